//! Walking the windows of reduce-window and select-and-scatter over an array: padding, strides and both dilations.

use crate::array::strides;
use crate::fault::Fault;
use hloom_ir::attributes::Window;
use hloom_ir::layout::DimVec;

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
    pub fn new(base: &[i64], window: &Window) -> Result<WindowWalk, Fault> {
        let base_strides = strides(base);
        let mut walk = WindowWalk { output: DimVec::new(), dims: Vec::new() };
        for (d, w) in window.dims.iter().enumerate() {
            let wrong = || Fault::bug("a window does not fit its array");
            let (&base_size, &base_stride) = base.get(d).zip(base_strides.get(d)).ok_or_else(wrong)?;
            if w.stride < 1 || w.base_dilation < 1 || w.window_dilation < 1 || w.size < 0 {
                return Err(wrong());
            }
            let dilated = if base_size == 0 { 0 } else { (base_size - 1) * w.base_dilation + 1 };
            let reach = if w.size == 0 { 0 } else { (w.size - 1) * w.window_dilation + 1 };
            let padded = dilated + w.padding_low + w.padding_high;
            walk.output.push(if padded < reach { 0 } else { (padded - reach) / w.stride + 1 });
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
            return Err(Fault::bug("a window has fewer dimensions than its array"));
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
        positions.push(0);
        // Each dimension multiplies the list by the indices it allows, the last varying fastest.
        for (d, &o) in self.dims.iter().zip(output) {
            let allowed = (0..d.size).filter_map(|w| {
                let dilated = o * d.stride + w * d.window_dilation - d.padding_low;
                let base = dilated / d.base_dilation;
                (dilated >= 0 && dilated % d.base_dilation == 0 && base < d.base_size).then_some(base * d.base_stride)
            });
            let allowed: DimVec = allowed.collect();
            let before = std::mem::take(positions);
            positions.extend(before.iter().flat_map(|p| allowed.iter().map(move |a| p + *a as usize)));
        }
    }
}
