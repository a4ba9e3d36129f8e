//! A program with its inputs, and the edits that make a smaller one of it.
//!
//! Every edit gives a new case in which parameters and inputs belong together and nothing is left that the result does
//! not need. Whether the module is valid is the verifier's to say.

use hloom_formats::hlo_text::{self, PrintOptions};
use hloom_ir::entity::{ComputationId, EntityId, InstructionId};
use hloom_ir::instruction::{Common, Operands};
use hloom_ir::module::{Module, ModuleConfig, NewInstruction};
use hloom_ir::op::Op;
use hloom_ir::order::PostOrder;
use hloom_ir::shape::Shape;
use hloom_ir::verify::{VerifiedModule, VerifyOptions, verify};
use hloom_value::Value;
use rustc_hash::FxHashSet;

/// A program and the arguments of each device.
#[derive(Clone, Debug)]
pub struct Case {
    /// The program.
    pub module: Module,
    /// By device, the arguments of the entry.
    pub inputs: Vec<Vec<Value>>,
}

/// How large a case is; a smaller one is better.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Size {
    /// All instructions.
    pub instructions: usize,
    /// Elements of all results of instructions.
    pub elements: u64,
    /// Bytes of the text.
    pub text: usize,
    /// Elements of the inputs that are neither zero nor one.
    pub odd_inputs: usize,
    /// Elements of the inputs that are not zero.
    pub nonzero_inputs: usize,
}

impl Case {
    /// How large it is.
    pub fn size(&self) -> Size {
        let module = &self.module;
        let all = module.computations().iter().flat_map(|&c| module[c].instructions());
        let elements = all.map(|&i| shape_elements(&module[i].shape)).fold(0u64, u64::saturating_add);
        let mut size = Size {
            instructions: module.instruction_count(),
            elements,
            text: self.text().len(),
            odd_inputs: 0,
            nonzero_inputs: 0,
        };
        for leaf in self.inputs.iter().flatten().flat_map(Value::leaves) {
            let Ok(array) = leaf.as_array() else { continue };
            let width = array.element_type().bytes().max(1);
            let one = super::values::one(array.element_type());
            for element in array.bytes().chunks_exact(width) {
                let is_zero = element.iter().all(|&b| b == 0);
                size.nonzero_inputs += usize::from(!is_zero);
                size.odd_inputs += usize::from(!is_zero && one.as_deref() != Some(element));
            }
        }
        size
    }

    /// The program in HLO text, whole.
    pub fn text(&self) -> String {
        hlo_text::print(&self.module, &PrintOptions::default())
    }

    /// The program, if it is valid.
    pub fn verified(&self) -> Option<VerifiedModule> {
        verify(self.module.clone(), &VerifyOptions::default()).ok()
    }

    /// The entry's instructions, each after what it needs.
    pub fn entry_order(&self) -> Vec<InstructionId> {
        match self.module.entry() {
            Some(entry) => PostOrder::new(&self.module).instructions(entry),
            None => Vec::new(),
        }
    }

    /// The same with the results of `at`, which are instructions of the entry, as its result: one as it is, several as a
    /// tuple.
    pub fn with_results(&self, at: &[InstructionId]) -> Option<Case> {
        let mut case = self.clone();
        let entry = case.module.entry()?;
        let root = match at {
            [] => return None,
            [only] => *only,
            many => {
                let shape = Shape::tuple(many.iter().map(|&i| case.module[i].shape.clone()));
                let operands = Operands::from_slice(many);
                let name = "results".into();
                case.module.add_instruction(
                    entry,
                    NewInstruction { name, op: Op::Tuple, shape, operands, common: Common::default() },
                )
            }
        };
        case.module.set_root(root);
        case.prune();
        Some(case)
    }

    /// The same with parameters in place of the instructions `at` of the entry; `values` has, by device, what they hold.
    pub fn with_parameters(&self, at: &[InstructionId], values: &[Vec<Value>]) -> Option<Case> {
        let mut case = self.clone();
        let entry = case.module.entry()?;
        let root = case.module.root(entry)?;
        case.module.set_root(root);
        if values.len() != case.inputs.len() || values.iter().any(|v| v.len() != at.len()) {
            return None;
        }
        for (n, &i) in at.iter().enumerate() {
            let number = case.module.parameters(entry).len() as i64;
            let shape = case.module[i].shape.clone();
            if values.iter().any(|v| !v[n].fits(&shape)) {
                return None;
            }
            let common = Common { metadata: case.module[i].common.metadata.clone(), ..Common::default() };
            let name = case.module[i].name().into();
            let new = NewInstruction { name, op: Op::parameter(number), shape, operands: Operands::new(), common };
            let parameter = case.module.add_instruction(entry, new);
            case.module.replace_all_uses(i, parameter).ok()?;
            for (arguments, values) in case.inputs.iter_mut().zip(values) {
                arguments.push(values[n].clone());
            }
        }
        case.prune();
        Some(case)
    }

    /// Applies an edit of the module that leaves the entry's parameters as they are.
    pub fn edited(&self, edit: impl FnOnce(&mut Module) -> Option<()>) -> Option<Case> {
        let mut case = self.clone();
        edit(&mut case.module)?;
        case.prune();
        Some(case)
    }

    /// Takes out what the result does not need: instructions, parameters with their inputs, computations; and what the
    /// header says of parameters and results.
    pub fn prune(&mut self) {
        let module = &mut self.module;
        module.config = ModuleConfig {
            replica_count: module.config.replica_count,
            num_partitions: module.config.num_partitions,
            ..ModuleConfig::default()
        };
        let Some(entry) = module.entry() else { return };
        let mut seen: FxHashSet<ComputationId> = FxHashSet::from_iter([entry]);
        let mut stack = vec![entry];
        while let Some(c) = stack.pop() {
            prune_computation(module, c, c == entry);
            for callee in module[c].instructions().iter().flat_map(|&i| module[i].op.called_computations()) {
                if seen.insert(callee) {
                    stack.push(callee);
                }
            }
        }
        let unused: Vec<ComputationId> = module.computations().iter().copied().filter(|c| !seen.contains(c)).collect();
        module.remove_computations(&unused);
        let mut kept = Vec::new();
        for (number, p) in module.parameters(entry).into_iter().enumerate() {
            if let Op::Parameter { number: old, .. } = &mut module.instruction_mut(p).op {
                kept.push(*old);
                *old = number as i64;
            }
        }
        for arguments in &mut self.inputs {
            let of = |&n: &i64| usize::try_from(n).ok().and_then(|n| arguments.get(n)).cloned();
            *arguments = kept.iter().filter_map(of).collect();
        }
    }
}

fn shape_elements(shape: &Shape) -> u64 {
    let count = |s: &Shape| s.as_array_or_buffer().and_then(|a| a.element_count()).unwrap_or(1).max(1) as u64;
    shape.leaves().into_iter().map(|(_, leaf)| count(leaf)).fold(0, u64::saturating_add)
}

/// Takes out what the root does not need, and puts the rest in an order in which everything comes after what it needs.
fn prune_computation(module: &mut Module, c: ComputationId, parameters_too: bool) {
    let Some(root) = module.root(c) else { return };
    module.set_root(root);
    let mut live: FxHashSet<InstructionId> = FxHashSet::from_iter([root]);
    let mut stack = vec![root];
    while let Some(i) = stack.pop() {
        for &needed in module[i].operands().iter().chain(module[i].common.control_predecessors()) {
            if live.insert(needed) {
                stack.push(needed);
            }
        }
    }
    let is_kept =
        |i: &InstructionId| live.contains(i) || !parameters_too && matches!(module[*i].op, Op::Parameter { .. });
    let dead: Vec<InstructionId> = module[c].instructions().iter().copied().filter(|i| !is_kept(i)).collect();
    // Nothing that stays uses them, so this is not refused.
    let _ = module.remove_instructions(&dead);
    let order = PostOrder::new(module).instructions(c);
    let _ = module.reorder(c, order);
}

/// The instructions of the whole module, by computation, in an order that edits of one keep for the others.
pub(super) fn all_instructions(module: &Module) -> Vec<InstructionId> {
    let mut all: Vec<InstructionId> =
        module.computations().iter().flat_map(|&c| module[c].instructions()).copied().collect();
    all.sort_by_key(|i| i.index());
    all
}
