//! Operands of convolutions that nothing is done to: inside the convolution's fusion each passes through a loop fusion of a
//! bitcast, so that the emitter finds every operand in the same form.
//!
//! The parameter of an operand that is wrapped becomes the last one of the fusion.

use crate::edit::flow_computations;
use crate::stage::staged;
use hloom_ir::attributes::FusionKind;
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::entity::InstructionId;
use hloom_ir::instruction::{Common, Operands};
use hloom_ir::module::{Module, NewInstruction};
use hloom_ir::op::{Fusion, Op};
use hloom_passes::Pass;

/// The stage.
pub(crate) static STAGE: Pass = Pass {
    name: "wrap-operands",
    statement: "puts every operand of a convolution that is read as it is into a fusion of a bitcast",
    keeps_schedule: false,
    run: |module, context| {
        staged(module, context, |module, context| {
            Ok(if context.policy.wraps_operands { wrap_module(module) } else { 0 }) as Result<usize, Diagnostic>
        })
    },
};

fn wrap_module(module: &mut Module) -> usize {
    let mut changes = 0;
    for c in flow_computations(module) {
        for i in module[c].instructions().to_vec() {
            if matches!(&module[i].op, Op::Fusion(f) if f.kind == FusionKind::Output) {
                changes += wrap_operands(module, i).unwrap_or(0);
            }
        }
    }
    changes
}

fn wrap_operands(module: &mut Module, fusion: InstructionId) -> Option<usize> {
    let Op::Fusion(attributes) = &module[fusion].op else { return None };
    let body = attributes.calls;
    let convolutions = module[body].instructions().iter().copied();
    let convolution = convolutions.rev().find(|&i| matches!(module[i].op, Op::Convolution(_)))?;
    let mut wrapped = Vec::new();
    for n in 0..module[convolution].operands().len() {
        let (parameter, bitcasts) = read_as_it_is(module, convolution, n)?;
        let Some(parameter) = parameter else { continue };
        wrap(module, (convolution, n), parameter, &bitcasts, true)?;
        wrapped.push(parameter);
    }
    let dead: Vec<InstructionId> = module[body]
        .instructions()
        .iter()
        .copied()
        .filter(|&i| {
            matches!(module[i].op, Op::Bitcast) && module[i].users().is_empty() && module.root(body) != Some(i)
        })
        .collect();
    module.remove_instructions(&dead).ok()?;
    move_last(module, fusion, &wrapped);
    Some(wrapped.len())
}

/// The parameter that an operand of the convolution is, seen through the bitcasts returned with it; no parameter if
/// something is done to it.
pub(crate) fn read_as_it_is(
    module: &Module,
    convolution: InstructionId,
    n: usize,
) -> Option<(Option<InstructionId>, Vec<InstructionId>)> {
    let mut at = *module[convolution].operands().get(n)?;
    let mut bitcasts = Vec::new();
    while matches!(module[at].op, Op::Bitcast) {
        bitcasts.push(at);
        at = *module[at].operands().first()?;
    }
    bitcasts.reverse();
    Some((matches!(module[at].op, Op::Parameter { .. }).then_some(at), bitcasts))
}

/// Puts a loop fusion of the bitcasts between the parameter and the convolution; with a further one if `again`, that changes
/// nothing.
pub(crate) fn wrap(
    module: &mut Module,
    (convolution, n): (InstructionId, usize),
    parameter: InstructionId,
    bitcasts: &[InstructionId],
    again: bool,
) -> Option<InstructionId> {
    let plain = |name: &str, op: Op, shape, operands: &[InstructionId]| NewInstruction {
        name: name.into(),
        op,
        shape,
        operands: Operands::from_slice(operands),
        common: Common::default(),
    };
    let body = module.add_computation("bitcast_fusion");
    let from = module[parameter].shape.clone();
    let mut at = module.add_instruction(body, plain("bitcast_input", Op::parameter(0), from.clone(), &[]));
    let mut shape = from;
    for &bitcast in bitcasts {
        shape = module[bitcast].shape.clone();
        at = module.add_instruction(body, plain("bitcast", Op::Bitcast, shape.clone(), &[at]));
    }
    if again {
        at = module.add_instruction(body, plain("bitcast", Op::Bitcast, shape.clone(), &[at]));
    }
    module.set_root(at);
    let home = module[convolution].parent();
    let root = module.root(home)?;
    module.set_root(root);
    let op = Op::Fusion(Box::new(Fusion { kind: FusionKind::Loop, calls: body, output_operand_aliasing: Vec::new() }));
    let nested = module.add_instruction(home, plain("fusion", op, shape, &[parameter]));
    module.replace_operand(convolution, n, nested).ok()?;
    Some(nested)
}

/// Makes these parameters of a fusion the last ones, in this order.
fn move_last(module: &mut Module, fusion: InstructionId, last: &[InstructionId]) {
    let Op::Fusion(attributes) = &module[fusion].op else { return };
    let parameters = module.parameters(attributes.calls);
    let mut order: Vec<usize> = (0..parameters.len()).filter(|&n| !last.contains(&parameters[n])).collect();
    for parameter in last {
        let number = parameters.iter().position(|p| p == parameter);
        order.extend(number.filter(|n| !order.contains(n)));
    }
    let old: Operands = module[fusion].operands().into();
    let operands: Option<Operands> = order.iter().map(|&n| old.get(n).copied()).collect();
    let Some(operands) = operands.filter(|o| o.len() == old.len()) else { return };
    if module.set_operands(fusion, operands).is_ok() {
        for (number, &n) in order.iter().enumerate() {
            module.instruction_mut(parameters[n]).op = Op::parameter(number as i64);
        }
    }
}
