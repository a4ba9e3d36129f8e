//! Programs in which a compiler has kept values in bf16 where nothing forces them to be f32, as the verifier allows it.
//!
//! Any f32 that an operation makes may become bf16 without a word to those who use it: they then have bf16 on one side and
//! f32 on the other. What passes bytes on (tuples and their elements) follows; where that ends in something that needs the
//! types to be equal, the value stays what it was.

use crate::choices::Choices;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::InstructionId;
use hloom_ir::infer::{MixedPrecision, check_shape, infer_shape};
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::shape::Shape;

/// Makes about `percent` of what could be bf16 in `module` bf16, and marks the module as scheduled, so that it may. Says how
/// many values changed.
pub fn mix(module: &mut Module, choices: &mut Choices<'_>, percent: usize) -> usize {
    module.is_scheduled = true;
    let all: Vec<InstructionId> =
        module.computations().iter().flat_map(|&c| module[c].instructions()).copied().collect();
    let entry_parameters = module.entry().map_or_else(Vec::new, |e| module.parameters(e));
    let mut changed = 0;
    for i in all {
        let given = matches!(module[i].op, Op::Constant(_)) || entry_parameters.contains(&i);
        let narrow = narrowed(&module[i].shape);
        if !given && narrow != module[i].shape && choices.chance(percent) {
            changed += usize::from(set_shape(module, i, narrow));
        }
    }
    changed
}

/// `shape` with bf16 for f32.
fn narrowed(shape: &Shape) -> Shape {
    shape.map_arrays(&mut |a| match a.element_type {
        ElementType::F32 => a.with_element_type(ElementType::Bf16),
        _ => a.clone(),
    })
}

/// Gives `i` that shape, and to what passes it on what follows from it; nothing if somebody could not take it.
fn set_shape(module: &mut Module, i: InstructionId, shape: Shape) -> bool {
    let mut before = vec![(i, std::mem::replace(&mut module.instruction_mut(i).shape, shape))];
    let mut pending = vec![i];
    let mut fits = true;
    while let Some(changed) = pending.pop() {
        fits &= is_valid(module, changed);
        for user in module[changed].users().to_vec() {
            if matches!(module[user].op, Op::Tuple | Op::GetTupleElement { .. }) {
                let (op, operands) = (module[user].op.clone(), module[user].operands().to_vec());
                match infer_shape(module, &op, &operands, None) {
                    Ok(shape) if shape != module[user].shape.without_layout() => {
                        before.push((user, std::mem::replace(&mut module.instruction_mut(user).shape, shape)));
                        pending.push(user);
                    }
                    Ok(_) => {}
                    Err(_) => fits = false,
                }
            }
            fits &= is_valid(module, user);
        }
        let computation = module[changed].parent();
        fits &= callers(module, computation).into_iter().all(|caller| is_valid(module, caller));
    }
    if !fits {
        for (i, shape) in before.into_iter().rev() {
            module.instruction_mut(i).shape = shape;
        }
    }
    fits
}

fn callers(module: &Module, computation: hloom_ir::entity::ComputationId) -> Vec<InstructionId> {
    let all = module.computations().iter().flat_map(|&c| module[c].instructions()).copied();
    all.filter(|&i| module[i].op.called_computations().contains(&computation)).collect()
}

fn is_valid(module: &Module, i: InstructionId) -> bool {
    let instruction = &module[i];
    check_shape(module, &instruction.op, instruction.operands(), &instruction.shape, MixedPrecision::Allowed).is_ok()
}
