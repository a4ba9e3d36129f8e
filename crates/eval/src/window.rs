//! Walking the windows of reduce-window and select-and-scatter over an array: padding, strides and both dilations.

use hloom_ir::attributes::{Window, WindowDim};
use hloom_ir::layout::DimVec;
use hloom_value::ExecutionError;
use hloom_value::array::strides;

/// How many windows of `size` elements lie over `base` elements; `None` if that is more than can be counted.
pub fn window_count(base: i64, size: i64, w: &WindowDim) -> Option<i64> {
    let spread = |n: i64, dilation: i64| if n == 0 { 0 } else { (i128::from(n) - 1) * i128::from(dilation) + 1 };
    let padded = spread(base, w.base_dilation) + i128::from(w.padding_low) + i128::from(w.padding_high);
    let reach = spread(size, w.window_dilation);
    if padded < reach { Some(0) } else { i64::try_from((padded - reach) / i128::from(w.stride) + 1).ok() }
}

/// The windows over an array of given sizes.
pub struct WindowWalk {
    output: DimVec,
    dims: Vec<WalkDim>,
}

struct WalkDim {
    size: i64,
    stride: i64,
    padding_low: i64,
    window_dilation: i64,
    base_dilation: i64,
    base_size: i64,
    base_stride: i64,
}

impl WindowWalk {
    /// The windows over an array with those sizes.
    pub fn new(base: &[i64], window: &Window) -> Result<WindowWalk, ExecutionError> {
        let base_strides = strides(base);
        let mut walk = WindowWalk { output: DimVec::new(), dims: Vec::new() };
        for (d, w) in window.dims.iter().enumerate() {
            let wrong = || ExecutionError::bug("a window does not fit its array");
            let (&base_size, &base_stride) = base.get(d).zip(base_strides.get(d)).ok_or_else(wrong)?;
            if w.stride < 1 || w.base_dilation < 1 || w.window_dilation < 1 || w.size < 0 {
                return Err(wrong());
            }
            walk.output.push(window_count(base_size, w.size, w).ok_or_else(wrong)?);
            walk.dims.push(WalkDim {
                size: w.size,
                stride: w.stride,
                padding_low: w.padding_low,
                window_dilation: w.window_dilation,
                base_dilation: w.base_dilation,
                base_size,
                base_stride,
            });
        }
        if walk.dims.len() != base.len() {
            return Err(ExecutionError::bug("a window has fewer dimensions than its array"));
        }
        Ok(walk)
    }

    /// The sizes of the array of windows.
    pub fn output_dims(&self) -> &[i64] {
        &self.output
    }

    /// Fills `positions` with the row-major positions in the base of the elements in window `output`, in order; padding
    /// and the holes of dilation are left out.
    pub fn positions(&self, output: &[i64], positions: &mut Vec<usize>) {
        positions.clear();
        if self.dims.iter().any(|d| d.base_size == 0) {
            return;
        }
        positions.push(0);
        // Each dimension multiplies the list by the indices it allows, the last varying fastest.
        for (d, &o) in self.dims.iter().zip(output) {
            // The window may be far larger than the array: only the part of it that lies over the array is walked.
            let start = i128::from(o) * i128::from(d.stride) - i128::from(d.padding_low);
            let step = i128::from(d.window_dilation);
            let base_end = i128::from(d.base_size) * i128::from(d.base_dilation);
            let first = if start < 0 { (-start + step - 1) / step } else { 0 };
            let indices = (first..i128::from(d.size)).map(|w| start + w * step).take_while(|&at| at < base_end);
            let on_element = indices.filter(|at| at % i128::from(d.base_dilation) == 0);
            let allowed: DimVec =
                on_element.map(|at| (at / i128::from(d.base_dilation)) as i64 * d.base_stride).collect();
            let before = std::mem::take(positions);
            positions.extend(before.iter().flat_map(|p| allowed.iter().map(move |a| p + *a as usize)));
        }
    }
}
