//! Entry layouts: the parameters and results of a program in the orders of dimensions that its header asks for.
//!
//! The program itself stays row-major. An entry parameter in another order is read as the bytes that it is: a bitcast to
//! one dimension, a reshape to the sizes in physical order, and a transpose to the logical ones, which simplifies and
//! fuses as any other; a result is written likewise. So only parameters and results have layouts of their own, and nothing
//! but bitcasts (and what hands values on) ever touches them.
//!
//! A result whose layout the header leaves open gets the one that costs nothing: that of the parameters it is made of,
//! through element-wise operations and transposes.

use crate::pass::{Context, Pass};
use hloom_ir::builder::Builder;
use hloom_ir::diagnostic::{Blame, Diagnostic};
use hloom_ir::entity::{ComputationId, EntityId, InstructionId};
use hloom_ir::infer::ShapeError;
use hloom_ir::layout::{DimVec, Layout};
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::order::PostOrder;
use hloom_ir::shape::{ArrayShape, ProgramShape, Shape};
use rustc_hash::FxHashMap;

/// The pass.
pub static PASS: Pass = Pass {
    name: "entry-layouts",
    statement: "gives parameters and results of the program the orders of dimensions that its header asks for",
    keeps_schedule: false,
    run: |module: &mut Module, _: &Context<'_>| entry_layouts(module),
};

/// Gives the entry of `module`, which has no schedule, the layouts that its header names.
fn entry_layouts(module: &mut Module) -> Result<usize, Diagnostic> {
    let mut changes = resolve_entry_layouts(module);
    let (Some(entry), Some(wanted)) = (module.entry(), module.config.entry_layout.clone()) else { return Ok(changes) };
    for (parameter, shape) in module.parameters(entry).into_iter().zip(&wanted.parameters) {
        changes += read_parameter(module, parameter, shape)?;
    }
    changes += write_result(module, entry, &wanted.result)?;
    Ok(changes)
}

/// Chooses the layouts that the header leaves open, and leaves tiles out. A program that is to be cut into parts is asked as
/// a whole: its parts lie as the whole does.
pub fn resolve_entry_layouts(module: &mut Module) -> usize {
    let (Some(entry), Some(wanted)) = (module.entry(), module.config.entry_layout.as_ref()) else { return 0 };
    let resolved = ProgramShape {
        parameters: wanted.parameters.iter().map(closed).collect(),
        result: resolve(module, entry, wanted),
    };
    let changes = usize::from(*wanted != resolved);
    module.config.entry_layout = Some(resolved);
    changes
}

/// The shape with the layouts in which its arrays are handed over; what is left open is row-major.
fn closed(shape: &Shape) -> Shape {
    shape.map_arrays(&mut |a| a.clone().with_layout(a.entry_layout()))
}

/// The result's shape with a layout for every array.
fn resolve(module: &Module, entry: ComputationId, wanted: &ProgramShape) -> Shape {
    let is_open = |s: &Shape| s.leaves().iter().any(|(_, leaf)| leaf.as_array().is_some_and(|a| a.layout.is_none()));
    let Some(root) = module.root(entry).filter(|_| is_open(&wanted.result)) else { return closed(&wanted.result) };
    let orders = natural_orders(module, entry, wanted);
    let leaf = |value: Option<InstructionId>, shape: &Shape| match shape {
        Shape::Array(a) if a.layout.is_none() => {
            let order = value.and_then(|v| orders.get(&v)).filter(|o| o.len() == a.rank() && !a.is_dynamic());
            let layout = order.map_or_else(|| Layout::descending(a.rank()), |o| Layout::new(o.iter().copied()));
            ArrayShape::clone(a).with_layout(layout).into()
        }
        other => closed(other),
    };
    match (&wanted.result, &module[root].op) {
        (Shape::Tuple(parts), Op::Tuple) => {
            let values = module[root].operands().iter().map(|&v| Some(v)).chain(std::iter::repeat(None));
            Shape::tuple(parts.iter().zip(values).map(|(part, value)| leaf(value, part)))
        }
        (shape, _) => leaf(Some(root), shape),
    }
}

/// The order of dimensions, fastest first, that values have by themselves if parameters lie as they are handed over:
/// of parameters, and of what keeps or permutes their elements.
fn natural_orders(module: &Module, entry: ComputationId, wanted: &ProgramShape) -> FxHashMap<InstructionId, DimVec> {
    let mut orders: FxHashMap<InstructionId, DimVec> = FxHashMap::default();
    for (parameter, shape) in module.parameters(entry).into_iter().zip(&wanted.parameters) {
        if let Some(array) = shape.as_array() {
            orders.insert(parameter, array.entry_layout().minor_to_major);
        }
    }
    for i in PostOrder::new(module).instructions(entry) {
        let instruction = &module[i];
        let operands = instruction.operands();
        let order = match &instruction.op {
            Op::Transpose { dimensions } => operands.first().and_then(|o| orders.get(o)).and_then(|order| {
                let place = |d: &i64| dimensions.iter().position(|p| p == d).map(|k| k as i64);
                order.iter().map(place).collect::<Option<DimVec>>()
            }),
            op if op.is_elementwise() || matches!(op, Op::Copy) || is_sharding(op) => {
                let same_dims = |o: &&InstructionId| match (module[**o].shape.as_array(), instruction.shape.as_array())
                {
                    (Some(from), Some(to)) => from.dims() == to.dims(),
                    _ => false,
                };
                operands.iter().filter(same_dims).find_map(|o| orders.get(o)).cloned()
            }
            _ => None,
        };
        if let Some(order) = order {
            orders.insert(i, order);
        }
    }
    orders
}

/// Whether it says how its operand is spread over devices, and nothing else.
fn is_sharding(op: &Op) -> bool {
    matches!(op, Op::CustomCall(call) if &*call.target == "Sharding")
}

fn is_row_major(array: &ArrayShape) -> bool {
    array.layout.as_ref().is_none_or(Layout::is_descending)
}

/// Whether some array of the shape is in another order in the other.
fn differs(now: &Shape, wanted: &Shape) -> bool {
    match (now, wanted) {
        (Shape::Tuple(a), Shape::Tuple(b)) => a.iter().zip(b.iter()).any(|(a, b)| differs(a, b)),
        (Shape::Array(a), Shape::Array(b)) => a.minor_to_major() != b.minor_to_major(),
        _ => false,
    }
}

fn bug(at: InstructionId) -> impl Fn(ShapeError) -> Diagnostic {
    move |e| {
        Diagnostic::error(e.code, e.message).blame(Blame::Hloom).at_instruction(at, hloom_ir::diagnostic::Part::Whole)
    }
}

/// Makes `parameter` one of the wanted layouts, read as row-major by all that use it.
fn read_parameter(module: &mut Module, parameter: InstructionId, wanted: &Shape) -> Result<usize, Diagnostic> {
    if !differs(&module[parameter].shape, wanted) {
        return Ok(0);
    }
    let computation = module[parameter].parent();
    // What is added at the end of the list must not become the root by that.
    if let Some(root) = module.root(computation) {
        module.set_root(root);
    }
    let proposed = std::mem::replace(&mut module.instruction_mut(parameter).shape, wanted.clone());
    let before = module.instruction_slots();
    let mut builder = Builder::resume(module, computation);
    let mut value = load(&mut builder, parameter, wanted).map_err(bug(parameter))?;
    // What reads the value as memory has been told how it lies.
    if proposed.leaves().iter().any(|(_, leaf)| leaf.as_array().is_some_and(|a| !is_row_major(a))) {
        value = builder.push_shaped(Op::Copy, &[value], proposed).map_err(bug(parameter))?;
    }
    let own: Vec<InstructionId> = module[parameter].users().iter().copied().filter(|u| u.index() >= before).collect();
    let edited = module.replace_all_uses(parameter, value);
    debug_assert!(edited.is_ok(), "{edited:?}");
    for reader in own {
        let edited = module.replace_operand(reader, 0, parameter);
        debug_assert!(edited.is_ok(), "{edited:?}");
    }
    Ok(1)
}

/// The row-major value of `source`, which has the layouts of `shape`.
fn load(b: &mut Builder<'_>, source: InstructionId, shape: &Shape) -> Result<InstructionId, ShapeError> {
    match shape {
        Shape::Tuple(parts) => {
            let mut values = Vec::with_capacity(parts.len());
            for (n, part) in parts.iter().enumerate() {
                let element = b.get_tuple_element(source, n as i64)?;
                values.push(load(b, element, part)?);
            }
            b.tuple(&values)
        }
        Shape::Array(a) if !is_row_major(a) => {
            let order = &a.entry_layout().minor_to_major;
            let flat = b.push_shaped(Op::Bitcast, &[source], flat(a))?;
            let physical = b.reshape(flat, order.iter().rev().map(|&d| a.dims()[d as usize]))?;
            let rank = a.rank() as i64;
            let mut dimensions: DimVec = order.clone();
            for (k, &d) in order.iter().enumerate() {
                dimensions[d as usize] = rank - 1 - k as i64;
            }
            b.transpose(physical, dimensions)
        }
        _ => Ok(source),
    }
}

/// Makes the result of `entry` one of the wanted layouts.
fn write_result(module: &mut Module, entry: ComputationId, wanted: &Shape) -> Result<usize, Diagnostic> {
    let Some(root) = module.root(entry).filter(|&root| !lies_so(module, root, wanted)) else { return Ok(0) };
    let sharding = module[root].common.sharding.clone();
    let new = store(&mut Builder::resume(module, entry), root, wanted).map_err(bug(root))?;
    module.instruction_mut(new).common.sharding = sharding;
    module.set_root(new);
    Ok(1)
}

/// Whether `value` lies in memory as `wanted` says, and its shape says so.
fn lies_so(module: &Module, value: InstructionId, wanted: &Shape) -> bool {
    match (wanted, &module[value].op) {
        (Shape::Tuple(parts), Op::Tuple) => {
            parts.iter().zip(module[value].operands()).all(|(part, &element)| lies_so(module, element, part))
        }
        (Shape::Array(a), _) => !differs(&module[value].shape, wanted) && (is_row_major(a) || is_memory(module, value)),
        (Shape::Tuple(_), _) => {
            let is_plain = |leaf: &Shape| leaf.as_array().is_none_or(is_row_major);
            !differs(&module[value].shape, wanted) && wanted.leaves().iter().all(|(_, leaf)| is_plain(leaf))
        }
        _ => true,
    }
}

/// Whether the layout of the shape of `value` is that of its memory: it is a part of a parameter, or the bytes of another
/// value. What a custom call with layouts of its own makes is row-major in memory, as everything else is.
fn is_memory(module: &Module, mut value: InstructionId) -> bool {
    loop {
        match (&module[value].op, module[value].operands().first()) {
            (Op::Parameter { .. } | Op::Bitcast, _) => return true,
            (Op::GetTupleElement { .. }, Some(&tuple)) => value = tuple,
            _ => return false,
        }
    }
}

/// `value` with the layouts of `shape`.
fn store(b: &mut Builder<'_>, value: InstructionId, shape: &Shape) -> Result<InstructionId, ShapeError> {
    if lies_so(b.module(), value, shape) {
        return Ok(value);
    }
    match shape {
        Shape::Tuple(parts) => {
            let known = match b.module()[value].op {
                Op::Tuple => b.module()[value].operands().to_vec(),
                _ => Vec::new(),
            };
            let mut values = Vec::with_capacity(parts.len());
            for (n, part) in parts.iter().enumerate() {
                let element = match known.get(n) {
                    Some(&element) => element,
                    None => b.get_tuple_element(value, n as i64)?,
                };
                values.push(store(b, element, part)?);
            }
            b.push_shaped(Op::Tuple, &values, shape.clone())
        }
        Shape::Array(a) => {
            let row_major = match b.shape(value).clone() {
                Shape::Array(now) if !is_row_major(&now) => match is_memory(b.module(), value) {
                    true => load(b, value, &Shape::Array(now))?,
                    false => b.push_shaped(Op::Copy, &[value], now.without_layout().with_default_layout())?,
                },
                _ => value,
            };
            if is_row_major(a) {
                return Ok(row_major);
            }
            let order = &a.entry_layout().minor_to_major;
            let physical = b.transpose(row_major, order.iter().rev().copied())?;
            let memory = flat(a);
            let flat = b.reshape(physical, memory.dims().iter().copied())?;
            b.push_shaped(Op::Bitcast, &[flat], ArrayShape::clone(a))
        }
        _ => Ok(value),
    }
}

/// The memory of the array: its elements one after another.
fn flat(array: &ArrayShape) -> ArrayShape {
    ArrayShape::new(array.element_type, [array.element_count().unwrap_or(0)]).with_default_layout()
}
