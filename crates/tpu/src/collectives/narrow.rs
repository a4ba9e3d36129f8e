//! bf16 propagation: what is gathered only to be multiplied at default precision is rounded before it is gathered.
//!
//! The matrix unit rounds f32 operands of default precision to bf16. Rounding them before an all-gather changes nothing that
//! it computes and halves what goes over the links. Other readers, or a precision that was asked for, keep the value as
//! it is.

use crate::edit::{add, array_of, flow_computations};
use crate::fusion::build::fuse_alone;
use crate::fusion::operands::{read_as_it_is, wrap};
use crate::policy::Policy;
use crate::stage::staged;
use crate::tiling::retiled;
use hloom_ir::attributes::{DotAlgorithm, Precision};
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::InstructionId;
use hloom_ir::instruction::Common;
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::shape::{ArrayShape, Shape};
use hloom_passes::Pass;

/// The stage.
pub(crate) static STAGE: Pass = Pass {
    name: "bf16-propagation",
    statement: "rounds to bf16 before they are gathered those values that are only multiplied at default precision",
    keeps_schedule: false,
    run: |module, context| {
        staged(module, context, |module, context| {
            let mut changes = 0;
            for c in flow_computations(module) {
                for i in module[c].instructions().to_vec() {
                    changes += usize::from(narrow(module, i, &context.policy).is_some());
                }
            }
            Ok(changes) as Result<usize, Diagnostic>
        })
    },
};

/// An operand of a convolution inside a fusion.
struct Reading {
    convolution: InstructionId,
    operand: usize,
    parameter: InstructionId,
    bitcasts: Vec<InstructionId>,
}

fn narrow(module: &mut Module, gather: InstructionId, policy: &Policy) -> Option<()> {
    let Op::AllGather(attributes) = &module[gather].op else { return None };
    if attributes.collective.constrain_layout || array_of(module, gather)?.element_type != ElementType::F32 {
        return None;
    }
    if module.root(module[gather].parent()) == Some(gather) {
        return None;
    }
    let mut readings = Vec::new();
    for &user in module[gather].users() {
        for (n, &operand) in module[user].operands().iter().enumerate() {
            if operand == gather {
                readings.push(reading(module, user, n)?);
            }
        }
    }
    let &[source] = module[gather].operands() else { return None };
    let as_bf16 = |module: &Module, i| Some(retiled(&array_of(module, i)?.with_element_type(ElementType::Bf16)));
    let shape = as_bf16(module, source)?;
    if round_result(module, source, &shape).is_none() {
        let rounded = add(module, gather, "convert", Op::Convert, shape, &[source], Common::default());
        // A gather that is carried along starts from an operation of its own; others read what a loop fusion made. An
        // operation by itself reads from main memory: what a fusion has made would be stored there for it.
        let maker = match (&module[source].op, module[source].operands()) {
            (Op::GetTupleElement { .. }, &[whole]) => whole,
            _ => source,
        };
        let is_stored = !matches!(module[maker].op, Op::Fusion(_));
        let rounded = if policy.carries_collectives && is_stored { rounded } else { fuse_alone(module, rounded)? };
        module.replace_operand(gather, 0, rounded).ok()?;
    }
    module.instruction_mut(gather).shape = as_bf16(module, gather)?.into();
    for Reading { convolution, operand, parameter, bitcasts } in readings {
        for &i in [parameter].iter().chain(&bitcasts) {
            module.instruction_mut(i).shape = as_bf16(module, i)?.into();
        }
        if policy.wraps_operands && !bitcasts.is_empty() {
            wrap(module, (convolution, operand), parameter, &bitcasts, false)?;
            let dead: Vec<_> = bitcasts.into_iter().rev().filter(|&b| module[b].users().is_empty()).collect();
            module.remove_instructions(&dead).ok()?;
        }
    }
    Some(())
}

/// Rounds a value to `shape` in the fusion that makes it, where nothing but the gather reads it.
fn round_result(module: &mut Module, value: InstructionId, shape: &ArrayShape) -> Option<()> {
    let is_seen = |i: InstructionId| module.root(module[i].parent()) == Some(i);
    let (fusion, place) = match (&module[value].op, module[value].operands()) {
        (&Op::GetTupleElement { index }, &[fusion]) => (fusion, Some(usize::try_from(index).ok()?)),
        _ => (value, None),
    };
    let Op::Fusion(attributes) = &module[fusion].op else { return None };
    let body = attributes.calls;
    let takes_it = |&&u: &&InstructionId| module[u].op == module[value].op;
    let is_taken_once = place.is_none() || module[fusion].users().iter().filter(takes_it).count() == 1;
    if module[value].users().len() != 1 || is_seen(value) || is_seen(fusion) || !is_taken_once {
        return None;
    }
    let root = module.root(body)?;
    let wide = match place {
        Some(n) if module[root].op == Op::Tuple => *module[root].operands().get(n)?,
        Some(_) => return None,
        None => root,
    };
    let rounded = add(module, wide, "convert", Op::Convert, shape.clone(), &[wide], Common::default());
    match place {
        Some(n) => {
            module.replace_operand(root, n, rounded).ok()?;
            let all = module[root].operands().iter().map(|&o| module[o].shape.clone());
            let all = Shape::tuple(all.collect::<Vec<_>>());
            module.instruction_mut(root).shape = all.clone();
            module.instruction_mut(fusion).shape = all;
        }
        None => module.set_root(rounded),
    }
    module.instruction_mut(value).shape = shape.clone().into();
    Some(())
}

/// How operand `n` of `user` is read, if that is by a convolution of default precision alone.
fn reading(module: &Module, user: InstructionId, n: usize) -> Option<Reading> {
    let Op::Fusion(fusion) = &module[user].op else { return None };
    let parameter = *module.parameters(fusion.calls).get(n)?;
    let mut at = parameter;
    let convolution = loop {
        let &[only] = module[at].users() else { return None };
        match &module[only].op {
            Op::Bitcast => at = only,
            Op::Convolution(c) => {
                let is_default = c.precision.algorithm == DotAlgorithm::Unset
                    && c.precision.operand_precision.iter().all(|&p| p == Precision::Default);
                break is_default.then_some(only)?;
            }
            _ => return None,
        }
    };
    let operand = module[convolution].operands().iter().position(|&o| o == at)?;
    let (_, bitcasts) = read_as_it_is(module, convolution, operand)?;
    Some(Reading { convolution, operand, parameter, bitcasts })
}
