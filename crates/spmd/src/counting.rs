//! Indices that count: each row of them is about its own row of what is indexed, as good as a batch dimension.

use hloom_ir::Op;
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use hloom_ir::op::ConstantValue;

/// How many instructions between a count and its use are looked through.
const DEPTH: usize = 8;
/// Constants of so many elements are looked at.
const MOST_ELEMENTS: usize = 1 << 16;

/// Pairs of a dimension of the indexed array and the dimension of the indices along which its index counts up, both of one
/// size. `map` says which dimension each component of an index is for; `sizes` are of the indexed array.
pub(crate) fn counting_dims(
    module: &Module,
    indices: InstructionId,
    index_vector: i64,
    map: &[i64],
    sizes: &[i64],
) -> Vec<(usize, usize)> {
    let Some(shape) = module[indices].shape.as_array() else { return Vec::new() };
    let parts: Vec<InstructionId> = match &module[indices].op {
        Op::Concatenate { dimension } if *dimension == index_vector => module[indices].operands().to_vec(),
        _ => vec![indices],
    };
    let vector = usize::try_from(index_vector).unwrap_or(usize::MAX);
    let mut component = 0;
    let mut found: Vec<(usize, usize)> = Vec::new();
    for part in parts {
        let width = module[part].shape.as_array().and_then(|a| a.dims().get(vector).copied()).unwrap_or(1);
        let of = map.get(component).and_then(|&d| usize::try_from(d).ok());
        component += usize::try_from(width).unwrap_or(0);
        let (1, Some(of)) = (width, of) else { continue };
        let Some(along) = counts_along(module, part).filter(|&d| d != vector) else { continue };
        let same = sizes.get(of).is_some_and(|&n| n > 1 && shape.dims().get(along) == Some(&n));
        if same && found.iter().all(|&(o, d)| o != of && d != along) {
            found.push((of, along));
        }
    }
    found
}

/// The dimension along which an array is 0, 1, 2, …, and alike along the others.
fn counts_along(module: &Module, x: InstructionId) -> Option<usize> {
    let mut at = x;
    let mut path = Vec::new();
    for _ in 0..DEPTH {
        match &module[at].op {
            Op::Iota { dimension } => return follow(module, &path, usize::try_from(*dimension).ok()?),
            Op::Constant(ConstantValue::Literal(literal)) => {
                let array = literal.as_array().filter(|a| a.len() <= MOST_ELEMENTS)?;
                return follow(module, &path, constant_counts_along(array)?);
            }
            Op::Broadcast { .. } | Op::Reshape { .. } | Op::Copy => path.push(at),
            Op::Convert if module[at].shape.element_type().is_some_and(|t| t.bits() >= 32 && !t.is_float()) => {
                path.push(at);
            }
            Op::CustomCall(call) if &*call.target == "Sharding" => path.push(at),
            _ => return None,
        }
        at = module[at].operands().first().copied()?;
    }
    None
}

/// Where a dimension ends up after the instructions of `path`, the last of which come first.
fn follow(module: &Module, path: &[InstructionId], mut dim: usize) -> Option<usize> {
    for &i in path.iter().rev() {
        let from = module[module[i].operands().first().copied()?].shape.as_array()?;
        let to = module[i].shape.as_array()?;
        match &module[i].op {
            Op::Broadcast { dimensions } => {
                let place = usize::try_from(*dimensions.get(dim)?).ok()?;
                if to.dims().get(place) != from.dims().get(dim) {
                    return None;
                }
                dim = place;
            }
            Op::Reshape { .. } => {
                // Only dimensions of one element come and go.
                let size = *from.dims().get(dim)?;
                let real = |dims: &[i64]| -> Vec<i64> { dims.iter().copied().filter(|&n| n != 1).collect() };
                if size == 1 || real(from.dims()) != real(to.dims()) {
                    return None;
                }
                let before = from.dims()[..dim].iter().filter(|&&n| n != 1).count();
                dim = (0..to.rank()).filter(|&d| to.dims()[d] != 1).nth(before)?;
            }
            _ => {}
        }
    }
    Some(dim)
}

fn constant_counts_along(array: &hloom_ir::literal::ArrayLiteral) -> Option<usize> {
    if array.is_empty() || array.element_type().is_float() {
        return None;
    }
    let dims = array.shape().dims();
    let width = array.element(0).len().min(8);
    let value = |i: usize| {
        let mut bytes = [0u8; 8];
        bytes[..width].copy_from_slice(&array.element(i)[..width]);
        u64::from_le_bytes(bytes)
    };
    let counts = |&d: &usize| {
        let inner: i64 = dims[d + 1..].iter().product();
        (0..array.len()).all(|i| value(i) == (i as i64 / inner % dims[d]) as u64)
    };
    (0..dims.len()).filter(|&d| dims[d] > 1).find(counts)
}
