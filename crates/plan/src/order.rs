//! The orders that decide numbers: instructions in post-order, computations as values are numbered, and the ordinals by
//! which dataflow goes round.

use crate::calls::{Calls, completed};
use crate::fingerprint::fingerprint64;
use hloom_formats::hlo_text::print_canonical;
use hloom_ir::entity::{ComputationId, EntityId, InstructionId};
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::order::PostOrder;
use hloom_target::Target;
use rustc_hash::FxHashMap;

/// Texts of computations longer than this are not compared: those computations stay in the order of the module.
const MAX_TEXT: usize = 1 << 24;

/// The orders of a module.
#[derive(Debug)]
pub struct Orders {
    /// The instructions of each computation in post-order, by the computation's index.
    pub instructions: Vec<Vec<InstructionId>>,
    /// Computations in the order in which their values are numbered.
    pub computations: Vec<ComputationId>,
    /// The place of each instruction in a post-order of the whole flow, by its index; 0 outside the flow.
    pub ordinal: Vec<u32>,
}

impl Orders {
    /// The orders of `module` for `target`.
    pub fn new(module: &Module, calls: &Calls, target: &Target) -> Orders {
        let mut post_order = PostOrder::new(module);
        let mut instructions = vec![Vec::new(); module.computation_slots()];
        for &computation in module.computations() {
            instructions[computation.index()] = post_order.instructions(computation);
        }
        let mut computations = module.computations().to_vec();
        if target.sorts_computations() {
            sort_by_content(module, calls, &mut computations);
        }
        let ordinal = ordinals(module, &instructions);
        Orders { instructions, computations, ordinal }
    }
}

/// Sorts by the number of instructions, then by the fingerprint of the content. Fingerprints are made only where lengths
/// are equal.
fn sort_by_content(module: &Module, calls: &Calls, computations: &mut [ComputationId]) {
    let mut of_length: FxHashMap<usize, usize> = FxHashMap::default();
    for &c in computations.iter() {
        *of_length.entry(module[c].instructions().len()).or_default() += 1;
    }
    // Memory spaces reach the bodies of fusions only after the computations were sorted.
    let is_applied = |c: ComputationId| !calls.is_global(c);
    let mut spent = 0;
    computations.sort_by_cached_key(|&c| {
        let length = module[c].instructions().len();
        let alone = of_length.get(&length).is_none_or(|&n| n == 1);
        let text = match alone || spent > MAX_TEXT {
            true => None,
            false => print_canonical(module, c, &is_applied, MAX_TEXT),
        };
        spent += text.as_ref().map_or(0, String::len);
        (length, text.map_or(0, |t| fingerprint64(t.as_bytes())))
    });
}

/// Post-order through the flow: what is called comes before its caller, a loop's condition before its body.
fn ordinals(module: &Module, instructions: &[Vec<InstructionId>]) -> Vec<u32> {
    let mut ordinal = vec![0; module.instruction_slots()];
    let mut seen = vec![false; module.computation_slots()];
    let Some(entry) = module.entry() else { return ordinal };
    let mut next = 0u32;
    // A computation, how far it has come, and whether the calls of the instruction there have been followed.
    let mut stack: Vec<(ComputationId, usize, bool)> = vec![(entry, 0, false)];
    seen[entry.index()] = true;
    while let Some(&mut (computation, ref mut at, ref mut entered)) = stack.last_mut() {
        let Some(&id) = instructions[computation.index()].get(*at) else {
            stack.pop();
            continue;
        };
        if !*entered {
            *entered = true;
            let callees = flow_callees(module, id);
            for &callee in callees.iter().rev() {
                if !std::mem::replace(&mut seen[callee.index()], true) {
                    stack.push((callee, 0, false));
                }
            }
            continue;
        }
        *entered = false;
        *at += 1;
        ordinal[id.index()] = next;
        next = next.saturating_add(1);
    }
    ordinal
}

/// The computations that run before the instruction is done, in the order in which they are put before it. What is started
/// runs where its last operand is brought.
pub fn flow_callees(module: &Module, id: InstructionId) -> Vec<ComputationId> {
    match &module[id].op {
        Op::While { condition, body } => vec![*condition, *body],
        Op::Conditional { branches } => branches.to_vec(),
        Op::Call { to_apply, .. } => vec![*to_apply],
        Op::AsyncStart(_) | Op::AsyncUpdate { .. } => completed(module, id).into_iter().collect(),
        _ => Vec::new(),
    }
}
