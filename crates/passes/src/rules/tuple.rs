//! Tuples that are only taken apart, and tuples that are only put together again.

use crate::pass::{Context, Pass};
use crate::rewrite::{Rule, rewrite};
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::opcode::Opcode;

/// The pass.
pub static PASS: Pass = Pass {
    name: "simplify-tuples",
    statement: "takes elements of tuples from where they were put in, and whole tuples from where they were taken apart",
    keeps_schedule: false,
    run: |module: &mut Module, _: &Context<'_>| Ok(rewrite(module, &[RULES])),
};

/// The rules.
pub static RULES: &[Rule] = &[
    Rule {
        name: "element-of-tuple",
        statement: "get-tuple-element(tuple(a, b), i) → the i-th",
        opcodes: &[Opcode::GetTupleElement],
        apply: element_of_tuple,
    },
    Rule {
        name: "tuple-of-elements",
        statement: "tuple(get-tuple-element(t, 0), get-tuple-element(t, 1), …) → t",
        opcodes: &[Opcode::Tuple],
        apply: tuple_of_elements,
    },
];

fn element_of_tuple(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let Op::GetTupleElement { index } = module[i].op else { return None };
    let &tuple = module[i].operands().first()?;
    match module[tuple].op {
        Op::Tuple => module[tuple].operands().get(usize::try_from(index).ok()?).copied(),
        _ => None,
    }
}

fn tuple_of_elements(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let element_of = |element: InstructionId, n: usize| match module[element].op {
        Op::GetTupleElement { index } if index == n as i64 => module[element].operands().first().copied(),
        _ => None,
    };
    let elements = module[i].operands();
    let whole = element_of(*elements.first()?, 0)?;
    let same = elements.iter().enumerate().all(|(n, &e)| element_of(e, n) == Some(whole));
    (same && module[whole].shape == module[i].shape).then_some(whole)
}
