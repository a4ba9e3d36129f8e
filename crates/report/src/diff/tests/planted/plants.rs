//! The changes that are planted.

use super::{Change, Fingerprints, OperandOrder, operand_order};
use hloom_fuzz::choices::Choices;
use hloom_ir::attributes::{ComparisonDirection, FusionKind, Precision};
use hloom_ir::entity::{EntityId, InstructionId};
use hloom_ir::instruction::Operands;
use hloom_ir::literal::{ArrayLiteral, Literal};
use hloom_ir::module::{Module, NewInstruction};
use hloom_ir::op::{BinaryOp, ConstantValue, Op, UnaryOp};
use hloom_ir::opcode::Opcode;
use hloom_ir::shape::Shape;
use std::sync::Arc;

/// A way to change one instruction for real; `None` if it does not apply to it.
pub(super) type Plant = fn(&mut Module, InstructionId, &mut Choices<'_>) -> Option<(InstructionId, Change)>;

pub(super) const PLANTS: &[(&str, Plant)] = &[
    ("constant", constant),
    ("layout", layout),
    ("opcode", opcode),
    ("operands swapped", swapped),
    ("operand replaced", replaced),
    ("put in", put_in),
    ("taken out", taken_out),
    ("dimensions", dimensions),
    ("replica groups", regrouped),
    ("backend_config", backend_config),
    ("frontend attribute", frontend_attribute),
    ("slice bounds", slice_bounds),
    ("comparison", comparison),
    ("element-wise function", function),
    ("custom call", custom_call),
    ("window", window),
    ("precision", precision),
    ("order", order),
    ("fusion kind", fusion_kind),
];

fn constant(module: &mut Module, i: InstructionId, choices: &mut Choices<'_>) -> Option<(InstructionId, Change)> {
    let Op::Constant(ConstantValue::Literal(literal)) = &module[i].op else { return None };
    let plain = |a: &&ArrayLiteral| !a.is_empty() && a.element_type().is_integer() && a.element_type().bits() >= 8;
    let array = literal.as_array().filter(plain)?;
    let mut bytes = array.bytes().to_vec();
    let at = choices.below(bytes.len());
    bytes[at] ^= 1;
    let changed = ArrayLiteral::new(array.shared_shape().clone(), bytes).ok()?;
    module.instruction_mut(i).op = Op::Constant(ConstantValue::Literal(Arc::new(Literal::Array(changed))));
    Some((i, Change::Changed))
}

fn layout(module: &mut Module, i: InstructionId, _: &mut Choices<'_>) -> Option<(InstructionId, Change)> {
    let Shape::Array(shape) = &module[i].shape else { return None };
    let shape = (**shape).clone();
    let mut layout = shape.clone().with_default_layout().layout?;
    layout.memory_space = 1 + shape.layout.as_ref().map_or(0, |l| l.memory_space);
    if matches!(module[i].op, Op::Parameter { .. } | Op::Constant(_)) {
        return None;
    }
    module.instruction_mut(i).shape = Shape::from(shape.with_layout(layout));
    Some((i, Change::Changed))
}

fn opcode(module: &mut Module, i: InstructionId, choices: &mut Choices<'_>) -> Option<(InstructionId, Change)> {
    let other = match module[i].op {
        Op::Binary(BinaryOp::Add) => Op::Binary(BinaryOp::Multiply),
        Op::Binary(BinaryOp::Multiply) => Op::Binary(BinaryOp::Maximum),
        Op::Binary(BinaryOp::Subtract) => Op::Binary(if choices.chance(50) { BinaryOp::Add } else { BinaryOp::Divide }),
        Op::Unary { op: UnaryOp::Negate, .. } => Op::unary(UnaryOp::Abs),
        Op::Unary { op: UnaryOp::Sine | UnaryOp::Tanh, .. } => Op::unary(UnaryOp::Cosine),
        _ => return None,
    };
    module.instruction_mut(i).op = other;
    Some((i, Change::Changed))
}

fn swapped(module: &mut Module, i: InstructionId, _: &mut Choices<'_>) -> Option<(InstructionId, Change)> {
    let &[x, y] = module[i].operands() else { return None };
    let prints = Fingerprints::new(module);
    let same = prints.value[x.index()] == prints.value[y.index()];
    if same || operand_order(&module[i].op) == OperandOrder::Free {
        return None;
    }
    module.set_operands(i, Operands::from_slice(&[y, x])).ok()?;
    Some((i, Change::Changed))
}

fn replaced(module: &mut Module, i: InstructionId, choices: &mut Choices<'_>) -> Option<(InstructionId, Change)> {
    let mut operands = Operands::from_slice(module[i].operands());
    let at = choices.below(operands.len());
    let old = *operands.get(at)?;
    let prints = Fingerprints::new(module);
    let list = module[module[i].parent()].instructions();
    let end = list.iter().position(|&j| j == i)?;
    // Only what stands before it cannot depend on it.
    let fits = |&&j: &&InstructionId| {
        module[j].shape == module[old].shape
            && !operands.contains(&j)
            && prints.grounded[j.index()]
            && prints.value[j.index()] != prints.value[old.index()]
    };
    let fitting: Vec<InstructionId> = list[..end].iter().filter(fits).copied().collect();
    if fitting.is_empty() || !prints.grounded[old.index()] {
        return None;
    }
    operands[at] = fitting[choices.below(fitting.len())];
    module.set_operands(i, operands).ok()?;
    Some((i, Change::Changed))
}

/// Whether the instruction, an operand or a user is of that opcode: of two in a row, either may be the one put in.
fn beside(module: &Module, i: InstructionId, opcode: Opcode) -> bool {
    let users = module[i].users();
    let further = users.iter().flat_map(|&u| module[u].operands());
    let near = module[i].operands().iter().chain(users).chain(further);
    near.filter(|&&n| n != i).any(|&n| module[n].opcode() == opcode)
        || opcode == Opcode::Copy && matches!(module[i].op, Op::Copy)
}

fn put_in(module: &mut Module, i: InstructionId, _: &mut Choices<'_>) -> Option<(InstructionId, Change)> {
    let shape = module[i].shape.clone();
    if !shape.is_array() || module[i].users().is_empty() || shape.is_dynamic() || beside(module, i, Opcode::Copy) {
        return None;
    }
    let new = NewInstruction {
        name: "put_in".into(),
        op: Op::Copy,
        shape,
        operands: Operands::from_slice(&[i]),
        common: Default::default(),
    };
    let parent = module[i].parent();
    let root = module.root(parent)?;
    let new = module.add_instruction(parent, new);
    module.set_root(root);
    module.replace_all_uses(i, new).ok()?;
    Some((new, Change::Added))
}

fn taken_out(module: &mut Module, i: InstructionId, _: &mut Choices<'_>) -> Option<(InstructionId, Change)> {
    let &[operand] = module[i].operands() else { return None };
    if beside(module, i, module[i].opcode())
        || !module[i].op.is_elementwise()
        || module[i].shape != module[operand].shape
        || module[i].users().is_empty()
    {
        return None;
    }
    module.replace_all_uses(i, operand).ok()?;
    module.remove_instructions(&[i]).ok()?;
    Some((i, Change::Removed))
}

fn dimensions(module: &mut Module, i: InstructionId, _: &mut Choices<'_>) -> Option<(InstructionId, Change)> {
    match &mut module.instruction_mut(i).op {
        Op::Iota { dimension } => *dimension = if *dimension == 0 { 1 } else { 0 },
        Op::Reverse { dimensions } if dimensions.len() > 1 => _ = dimensions.pop(),
        Op::Transpose { dimensions } if dimensions.len() > 1 => dimensions.reverse(),
        Op::Sort { is_stable, .. } => *is_stable = !*is_stable,
        Op::Broadcast { dimensions } if dimensions.len() > 1 => dimensions.reverse(),
        _ => return None,
    }
    Some((i, Change::Changed))
}

fn regrouped(module: &mut Module, i: InstructionId, _: &mut Choices<'_>) -> Option<(InstructionId, Change)> {
    use hloom_ir::device_list::ReplicaGroups::Explicit;
    let collective = match &mut module.instruction_mut(i).op {
        Op::AllReduce(a) => &mut a.collective,
        Op::AllGather(a) => &mut a.collective,
        Op::AllToAll { collective, .. } | Op::CollectiveBroadcast { collective, .. } => &mut **collective,
        _ => return None,
    };
    let mut groups = collective.replica_groups.expand()?;
    let last = groups.last_mut()?;
    if last.len() < 2 {
        return None;
    }
    last.reverse();
    collective.replica_groups = Explicit(groups);
    Some((i, Change::Changed))
}

fn backend_config(module: &mut Module, i: InstructionId, choices: &mut Choices<'_>) -> Option<(InstructionId, Change)> {
    let config = format!("{{\"planted\":{}}}", choices.below(1000));
    module.instruction_mut(i).common.backend_config = Some(config.into_bytes().into());
    Some((i, Change::Changed))
}

fn frontend_attribute(module: &mut Module, i: InstructionId, _: &mut Choices<'_>) -> Option<(InstructionId, Change)> {
    module.instruction_mut(i).common.rare_mut().frontend_attributes.insert("planted".into(), "yes".into());
    Some((i, Change::Changed))
}

fn slice_bounds(module: &mut Module, i: InstructionId, _: &mut Choices<'_>) -> Option<(InstructionId, Change)> {
    let operand = *module[i].operands().first()?;
    let sizes = module[operand].shape.as_array()?.dims().to_vec();
    let Op::Slice { dims } = &mut module.instruction_mut(i).op else { return None };
    let (dim, _) = dims.iter_mut().zip(sizes).find(|(d, size)| d.stride == 1 && d.limit < *size)?;
    (dim.start, dim.limit) = (dim.start + 1, dim.limit + 1);
    Some((i, Change::Changed))
}

fn comparison(module: &mut Module, i: InstructionId, choices: &mut Choices<'_>) -> Option<(InstructionId, Change)> {
    use ComparisonDirection::{Ge, Gt, Le, Lt};
    let of_itself = module[i].operands().first() == module[i].operands().get(1);
    let Op::Compare { direction, .. } = &mut module.instruction_mut(i).op else { return None };
    // With itself a value compares the same from either side.
    let is_mirrored = |d: ComparisonDirection| matches!((*direction, d), (Lt, Gt) | (Gt, Lt) | (Le, Ge) | (Ge, Le));
    let is_other = |d: &&ComparisonDirection| **d != *direction && !(of_itself && is_mirrored(**d));
    let others: Vec<_> = ComparisonDirection::ALL.iter().filter(is_other).collect();
    *direction = **choices.pick(&others);
    Some((i, Change::Changed))
}

/// Any element-wise function for any other that the types allow.
fn function(module: &mut Module, i: InstructionId, choices: &mut Choices<'_>) -> Option<(InstructionId, Change)> {
    let other = match module[i].op {
        Op::Binary(_) => Op::Binary(*choices.pick(BinaryOp::ALL)),
        Op::Unary { .. } => Op::unary(*choices.pick(UnaryOp::ALL)),
        _ => return None,
    };
    if other.opcode() == module[i].opcode() {
        return None;
    }
    module.instruction_mut(i).op = other;
    Some((i, Change::Changed))
}

fn custom_call(module: &mut Module, i: InstructionId, _: &mut Choices<'_>) -> Option<(InstructionId, Change)> {
    let Op::CustomCall(call) = &mut module.instruction_mut(i).op else { return None };
    call.target = format!("{}.planted", call.target).into();
    Some((i, Change::Changed))
}

fn window(module: &mut Module, i: InstructionId, _: &mut Choices<'_>) -> Option<(InstructionId, Change)> {
    let dims = match &mut module.instruction_mut(i).op {
        Op::ReduceWindow { window, .. } => &mut window.dims,
        Op::Convolution(convolution) => &mut convolution.window.dims,
        _ => return None,
    };
    let dim = dims.iter_mut().find(|d| d.padding_low != d.padding_high)?;
    (dim.padding_low, dim.padding_high) = (dim.padding_high, dim.padding_low);
    Some((i, Change::Changed))
}

fn precision(module: &mut Module, i: InstructionId, _: &mut Choices<'_>) -> Option<(InstructionId, Change)> {
    let Op::Dot(dot) = &mut module.instruction_mut(i).op else { return None };
    let first = dot.precision.operand_precision.first_mut()?;
    *first = if *first == Precision::Highest { Precision::High } else { Precision::Highest };
    Some((i, Change::Changed))
}

/// An order that nothing but the program asks for.
fn order(module: &mut Module, i: InstructionId, _: &mut Choices<'_>) -> Option<(InstructionId, Change)> {
    let list = module[module[i].parent()].instructions();
    let &first = list.first().filter(|&&f| f != i && !module[i].operands().contains(&f))?;
    if module[i].common.control_predecessors().contains(&first) {
        return None;
    }
    module.instruction_mut(i).common.rare_mut().control_predecessors.push(first);
    Some((i, Change::Changed))
}

fn fusion_kind(module: &mut Module, i: InstructionId, choices: &mut Choices<'_>) -> Option<(InstructionId, Change)> {
    let Op::Fusion(fusion) = &mut module.instruction_mut(i).op else { return None };
    let others: Vec<FusionKind> = FusionKind::ALL.iter().copied().filter(|k| *k != fusion.kind).collect();
    fusion.kind = *choices.pick(&others);
    Some((i, Change::Changed))
}
