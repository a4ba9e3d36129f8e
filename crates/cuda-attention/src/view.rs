//! Arrays as strided views of other arrays: what transposes, reshapes and broadcasts leave of an array's order.
//!
//! A dimension of a view is a list of factors, the outermost first: that of 32 heads, each 4 of which read the same of 8,
//! is (8, stride), (4, 0). Reshapes regroup factors, and so never lose what they are made of.

use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use hloom_ir::op::Op;

/// So many steps, each so many elements long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Factor {
    pub size: i64,
    pub stride: i64,
}

/// A dimension: its factors, the outermost first; none if its size is 1.
pub(crate) type Dimension = Vec<Factor>;

/// An array as a view of another.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub base: InstructionId,
    pub dims: Vec<Dimension>,
}

/// The dimensions of a dense array.
pub(crate) fn dense(sizes: &[i64]) -> Vec<Dimension> {
    let mut stride = 1;
    let mut dims: Vec<Dimension> = sizes
        .iter()
        .rev()
        .map(|&size| {
            let factor = Factor { size, stride };
            stride *= size;
            if size == 1 { Vec::new() } else { vec![factor] }
        })
        .collect();
    dims.reverse();
    dims
}

/// The same factors in dimensions of other sizes.
pub(crate) fn regroup(dims: &[Dimension], sizes: &[i64]) -> Option<Vec<Dimension>> {
    let mut left: Vec<Factor> = dims.iter().flatten().copied().collect();
    let mut result = Vec::new();
    for &size in sizes.iter().rev() {
        let mut need = size;
        let mut dimension = Vec::new();
        while need > 1 {
            let factor = left.pop()?;
            if need % factor.size == 0 {
                need /= factor.size;
                dimension.push(factor);
            } else if factor.size % need == 0 {
                dimension.push(Factor { size: need, stride: factor.stride });
                left.push(Factor { size: factor.size / need, stride: factor.stride * need });
                need = 1;
            } else {
                return None;
            }
        }
        dimension.reverse();
        result.push(dimension);
    }
    result.reverse();
    left.is_empty().then_some(result)
}

/// The sizes of an array's dimensions.
pub(crate) fn sizes(module: &Module, id: InstructionId) -> Option<&[i64]> {
    module[id].shape.as_array().filter(|a| !a.is_dynamic()).map(|a| a.dims())
}

/// The dimensions of `id`, which hands on its operand's elements in another order, given the operand's.
pub(crate) fn reorder(module: &Module, id: InstructionId, dims: &[Dimension]) -> Option<Vec<Dimension>> {
    match &module[id].op {
        Op::Transpose { dimensions } => dimensions.iter().map(|&d| dims.get(d as usize).cloned()).collect(),
        Op::Reshape { .. } => regroup(dims, sizes(module, id)?),
        Op::Broadcast { dimensions } => {
            let of_result = sizes(module, id)?;
            let mut result: Vec<Dimension> = of_result
                .iter()
                .map(|&size| if size == 1 { Vec::new() } else { vec![Factor { size, stride: 0 }] })
                .collect();
            for (&to, dim) in dimensions.iter().zip(dims) {
                let size: i64 = dim.iter().map(|f| f.size).product();
                let place = result.get_mut(to as usize)?;
                if of_result.get(to as usize) != Some(&size) {
                    return None;
                }
                place.clone_from(dim);
            }
            Some(result)
        }
        Op::Copy | Op::Convert => Some(dims.to_vec()),
        _ => None,
    }
}

/// `id` as a view of the array that it comes from, past whatever merely hands elements on: as far as `past` allows.
pub(crate) fn view_of(module: &Module, id: InstructionId, past: impl Fn(InstructionId) -> bool) -> Option<View> {
    let mut path = Vec::new();
    let mut base = id;
    while path.len() < 64
        && matches!(
            module[base].op,
            Op::Transpose { .. } | Op::Reshape { .. } | Op::Broadcast { .. } | Op::Copy | Op::Convert
        )
        && past(base)
    {
        path.push(base);
        base = *module[base].operands().first()?;
    }
    let mut dims = dense(sizes(module, base)?);
    for &step in path.iter().rev() {
        dims = reorder(module, step, &dims)?;
    }
    Some(View { base, dims })
}

/// Where an array lies, part by part of the space that it runs over: `size` elements that are `step` apart in the space
/// are `stride` apart in the array.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Segment {
    pub step: i64,
    pub size: i64,
    pub stride: i64,
}

/// The segments of a dimension whose factors in the space are `space`, and in the array `array`.
pub(crate) fn segments(space: &[Factor], array: &[Factor]) -> Option<Vec<Segment>> {
    let mut result = Vec::new();
    let (mut space, mut array) = (space.to_vec(), array.to_vec());
    while let Some(s) = space.pop() {
        let a = array.pop()?;
        let size = s.size.min(a.size);
        if s.size % size != 0 || a.size % size != 0 {
            return None;
        }
        result.push(Segment { step: s.stride, size, stride: a.stride });
        if s.size > size {
            space.push(Factor { size: s.size / size, stride: s.stride * size });
        }
        if a.size > size {
            array.push(Factor { size: a.size / size, stride: a.stride * size });
        }
    }
    array.is_empty().then_some(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn factor(size: i64, stride: i64) -> Factor {
        Factor { size, stride }
    }

    #[test]
    fn reshapes_regroup_factors() {
        let heads = vec![vec![factor(8, 128)], vec![factor(4, 0)], vec![factor(64, 1)]];
        let merged = regroup(&heads, &[32, 64]).expect("merged");
        assert_eq!(merged, vec![vec![factor(8, 128), factor(4, 0)], vec![factor(64, 1)]]);
        assert_eq!(regroup(&merged, &[8, 4, 64]).expect("split"), heads);
        assert_eq!(regroup(&dense(&[6]), &[2, 3]).expect("split"), vec![vec![factor(2, 3)], vec![factor(3, 1)]]);
        assert_eq!(regroup(&dense(&[6]), &[4]), None);
    }

    #[test]
    fn segments_are_refined() {
        let found = segments(&[factor(32, 10)], &[factor(8, 128), factor(4, 0)]).expect("segments");
        assert_eq!(found, vec![Segment { step: 10, size: 4, stride: 0 }, Segment { step: 40, size: 8, stride: 128 }]);
    }
}
