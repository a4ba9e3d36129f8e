//! Async collective fusion: an all-gather that runs while convolutions do is carried through their fusions.
//!
//! Start, every output fusion on the way, and done each become a fusion with the same all-gather inside, and hand on a tuple
//! of what it needs: the array it gathers from, the one it gathers into, a pair of flags and the semaphores. A start that no
//! output fusion follows before its done has nothing to hide behind, and becomes a plain all-gather again.

use super::start::semaphore;
use crate::backend_config::{BackendConfig, Continuation};
use crate::edit::{flow_computations, remove_dead};
use crate::stage::staged;
use hloom_ir::attributes::{FusionKind, OutputOperandAlias};
use hloom_ir::diagnostic::codes::passes::BROKEN_MODULE;
use hloom_ir::diagnostic::{Blame, Diagnostic};
use hloom_ir::edit::EditError;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::instruction::{Common, Operands};
use hloom_ir::layout::Layout;
use hloom_ir::module::{Module, NewInstruction};
use hloom_ir::op::{AllGather, CustomCall, Fusion, Op};
use hloom_ir::shape::{ArrayShape, Shape, ShapeIndex};
use hloom_passes::Pass;
use rustc_hash::{FxHashMap, FxHashSet};

/// The stage.
pub(crate) static STAGE: Pass = Pass {
    name: "async-collective-fusion",
    statement: "carries all-gathers through the output fusions that run meanwhile; others become synchronous again",
    keeps_schedule: true,
    run: |module, context| {
        staged(module, context, |module, context| {
            let changes = fuse_module(module)?;
            remove_dead(module, context.target)?;
            Ok(changes) as Result<usize, Diagnostic>
        })
    },
};

/// Semaphores of one exchange.
const SEMAPHORES: usize = 12;
/// The first of the flags and semaphores among what is handed on.
const FIRST_FLAG: usize = 2;
/// What is handed on: source, destination, flags, semaphores.
const CARRIED: usize = 3 + SEMAPHORES;

fn fuse_module(module: &mut Module) -> Result<usize, Diagnostic> {
    let mut chains = 0;
    let mut changes = 0;
    for c in flow_computations(module) {
        let is_start = |&i: &InstructionId| matches!(module[i].op, Op::AllGatherStart(_));
        let starts: Vec<InstructionId> = module[c].instructions().iter().copied().filter(is_start).collect();
        if starts.is_empty() {
            continue;
        }
        let mut rewrite = Rewrite::new(module, c);
        for start in starts {
            changes += usize::from(rewrite.chain(module, start, &mut chains).is_some());
        }
        rewrite.finish(module)?;
    }
    Ok(changes)
}

/// A computation that is rewritten, with what takes the place of its instructions in the order.
struct Rewrite {
    computation: ComputationId,
    old: Vec<InstructionId>,
    place: FxHashMap<InstructionId, usize>,
    instead: FxHashMap<usize, Vec<InstructionId>>,
    /// Results of fusions that carry something: they stand right before what first reads them.
    results: FxHashSet<InstructionId>,
    /// What was replaced, and by what.
    replaced: FxHashMap<InstructionId, InstructionId>,
}

impl Rewrite {
    fn new(module: &Module, computation: ComputationId) -> Rewrite {
        let old = module[computation].instructions().to_vec();
        let place = old.iter().enumerate().map(|(n, &i)| (i, n)).collect();
        let (instead, results, replaced) = (FxHashMap::default(), FxHashSet::default(), FxHashMap::default());
        Rewrite { computation, old, place, instead, results, replaced }
    }

    fn chain(&mut self, module: &mut Module, start: InstructionId, chains: &mut usize) -> Option<()> {
        let Op::AllGatherStart(gather) = module[start].op.clone() else { return None };
        let &[done] = module[start].users() else { return None };
        if !matches!(module[done].op, Op::AllGatherDone) {
            return None;
        }
        let (&from, &to) = (self.place.get(&start)?, self.place.get(&done)?);
        let carriers: Vec<usize> = (from + 1..to).filter(|&n| self.can_carry(module, n)).collect();
        let source = *module[start].operands().first()?;
        if carriers.is_empty() {
            return self.synchronous(module, start, done, *gather, source);
        }
        let exchange = Exchange::new(module, *gather, source, done, *chains);
        *chains += 1;
        let copied = self.must_copy(module, source, start).then(|| copy(module, self.computation, source));
        let fusion = exchange.start(module, self.computation, copied.unwrap_or(source));
        let mut handed: Vec<(i64, InstructionId)> = Vec::new();
        for (n, shape) in exchange.carried.iter().enumerate() {
            handed.push((n as i64, element(module, self.computation, fusion, n as i64, shape)));
        }
        self.put(from, fusion, &handed);
        if let (Some(copy), Some(now)) = (copied, self.instead.get_mut(&from)) {
            now.insert(0, copy);
        }
        self.replaced.insert(start, fusion);
        for n in carriers {
            let carrier = self.old[n];
            let values: Vec<InstructionId> = handed.iter().map(|h| h.1).collect();
            let (fusion, own) = exchange.carry(module, self.computation, carrier, &values)?;
            handed.clear();
            // The gathered array comes twice, as the destination and as what the gather makes; it is handed on as the first.
            for (k, shape) in exchange.carried.iter().enumerate() {
                let index = own + k + usize::from(k >= FIRST_FLAG);
                handed.push((index as i64, element(module, self.computation, fusion, index as i64, shape)));
            }
            self.take_results(module, carrier, fusion, own)?;
            self.put(n, fusion, &handed);
        }
        let values: Vec<InstructionId> = handed.iter().map(|h| h.1).collect();
        let fusion = exchange.done(module, self.computation, &values);
        module.replace_all_uses(done, fusion).ok()?;
        self.put(to, fusion, &[]);
        self.replaced.insert(done, fusion);
        Some(())
    }

    /// Whether the chain may not hand on the memory of what is gathered: it is an argument, or is read by others later.
    fn must_copy(&self, module: &Module, source: InstructionId, start: InstructionId) -> bool {
        let from = self.place[&start];
        let is_later = |i: InstructionId| self.place.get(&i).is_none_or(|&n| n > from);
        let mut value = source;
        loop {
            // What reads it by another name does so where that name is read.
            let mut readers: Vec<InstructionId> =
                module[value].users().iter().copied().filter(|&u| u != start).collect();
            while let Some(reader) = readers.pop() {
                match module[reader].op {
                    Op::Bitcast | Op::GetTupleElement { .. } => readers.extend(module[reader].users()),
                    _ if reader != start && is_later(reader) => return true,
                    _ => {}
                }
            }
            match module[value].op {
                Op::Parameter { .. } | Op::Constant(_) => return true,
                Op::Bitcast => value = module[value].operands()[0],
                Op::GetTupleElement { .. } => {
                    return matches!(module[module[value].operands()[0]].op, Op::Parameter { .. });
                }
                _ => return module.root(self.computation) == Some(value),
            }
        }
    }

    fn can_carry(&self, module: &Module, n: usize) -> bool {
        !self.instead.contains_key(&n)
            && matches!(&module[self.old[n]].op, Op::Fusion(f) if f.kind == FusionKind::Output)
    }

    /// Puts a fusion into the place of an instruction, with what takes it apart behind it, the last first.
    fn put(&mut self, n: usize, fusion: InstructionId, handed: &[(i64, InstructionId)]) {
        let elements = handed.iter().rev().map(|h| h.1);
        self.instead.insert(n, [fusion].into_iter().chain(elements).collect());
    }

    /// Has everyone who reads the results of `carrier` read those of `fusion`.
    fn take_results(
        &mut self,
        module: &mut Module,
        carrier: InstructionId,
        fusion: InstructionId,
        own: usize,
    ) -> Option<()> {
        if module[carrier].shape.is_array() {
            let shape = module[carrier].shape.clone();
            let result = element(module, self.computation, fusion, 0, &shape);
            self.results.insert(result);
            module.replace_all_uses(carrier, result).ok()?;
        } else {
            debug_assert!(own > 1);
            module.replace_all_uses(carrier, fusion).ok()?;
        }
        self.replaced.insert(carrier, fusion);
        Some(())
    }

    fn synchronous(
        &mut self,
        module: &mut Module,
        start: InstructionId,
        done: InstructionId,
        gather: AllGather,
        source: InstructionId,
    ) -> Option<()> {
        let mut common = Common { metadata: module[start].common.metadata.clone(), ..Common::default() };
        let name = module[start].name().into();
        common.rare_mut().frontend_attributes.insert("async_collective_name".into(), name);
        let shape = module[done].shape.clone();
        let op = Op::AllGather(Box::new(gather));
        let new =
            NewInstruction { name: "all-gather".into(), op, shape, operands: Operands::from_slice(&[source]), common };
        let gather = module.add_instruction(self.computation, new);
        module.replace_all_uses(done, gather).ok()?;
        self.instead.insert(self.place[&start], Vec::new());
        self.instead.insert(self.place[&done], vec![gather]);
        self.replaced.extend([(done, gather), (start, gather)]);
        Some(())
    }

    /// Sets the order and removes what was replaced.
    fn finish(mut self, module: &mut Module) -> Result<(), Diagnostic> {
        self.move_control_edges(module)?;
        let mut order = Vec::new();
        let mut placed = FxHashSet::default();
        for (n, &i) in self.old.iter().enumerate() {
            let now = self.instead.remove(&n).unwrap_or_else(|| vec![i]);
            for i in now {
                for &operand in module[i].operands().iter().rev() {
                    if self.results.contains(&operand) && placed.insert(operand) {
                        order.push(operand);
                    }
                }
                order.push(i);
            }
        }
        // A result that nobody here reads is the root.
        order.extend(module.root(self.computation).filter(|root| self.results.contains(root) && placed.insert(*root)));
        if let Some(root) = module.root(self.computation) {
            module.set_root(root);
        }
        let dead: Vec<InstructionId> = self.replaced.keys().copied().collect();
        module.remove_instructions(&dead).map_err(refused)?;
        // Results of carriers that nobody reads at all.
        let unread: Vec<InstructionId> = self.results.iter().copied().filter(|r| !placed.contains(r)).collect();
        module.remove_instructions(&unread).map_err(refused)?;
        module.reorder(self.computation, order).map_err(refused)
    }

    /// Whoever waits for an instruction that was replaced waits for what took its place, which waits for what it waited for.
    fn move_control_edges(&self, module: &mut Module) -> Result<(), Diagnostic> {
        for &i in &self.old {
            let edges = module[i].common.control_predecessors().to_vec();
            if edges.is_empty() {
                continue;
            }
            let now = |i: InstructionId| self.replaced.get(&i).copied().unwrap_or(i);
            module.instruction_mut(i).common.rare_mut().control_predecessors.clear();
            for edge in edges.into_iter().map(now).filter(|&edge| edge != now(i)) {
                module.add_control_dependency(edge, now(i)).map_err(refused)?;
            }
        }
        Ok(())
    }
}

/// What the stage asked for did not fit the module.
fn refused(error: EditError) -> Diagnostic {
    let message = format!("the stage `{}` made an edit that is not one: {error:?}", STAGE.name);
    Diagnostic::error(&BROKEN_MODULE, message).blame(Blame::Hloom)
}

fn element(module: &mut Module, home: ComputationId, tuple: InstructionId, index: i64, shape: &Shape) -> InstructionId {
    let new = NewInstruction {
        name: "get-tuple-element".into(),
        op: Op::GetTupleElement { index },
        shape: shape.clone(),
        operands: Operands::from_slice(&[tuple]),
        common: Common::default(),
    };
    module.add_instruction(home, new)
}

fn copy(module: &mut Module, home: ComputationId, source: InstructionId) -> InstructionId {
    let shape = module[source].shape.clone();
    let operands = Operands::from_slice(&[source]);
    let new = NewInstruction { name: "copy".into(), op: Op::Copy, shape, operands, common: Common::default() };
    module.add_instruction(home, new)
}

fn alias(output: Option<usize>, operand: usize) -> OutputOperandAlias {
    let output_index: ShapeIndex = output.into_iter().map(|n| n as i64).collect();
    OutputOperandAlias { output_index, operand: operand as i64, operand_index: ShapeIndex::new() }
}

/// One all-gather that is carried along.
struct Exchange {
    gather: AllGather,
    carried: Vec<Shape>,
    chain: usize,
}

impl Exchange {
    fn new(module: &Module, gather: AllGather, source: InstructionId, done: InstructionId, chain: usize) -> Exchange {
        let flags = Layout { minor_to_major: [0].into_iter().collect(), memory_space: 4, ..Layout::default() };
        let mut carried = vec![module[source].shape.clone(), module[done].shape.clone()];
        carried.push(ArrayShape::new(ElementType::S32, [2]).with_layout(flags).into());
        carried.extend((0..SEMAPHORES).map(|_| semaphore().into()));
        Exchange { gather, carried, chain }
    }

    fn gather(
        &self,
        module: &mut Module,
        body: ComputationId,
        source: InstructionId,
        flags: (i64, i64),
    ) -> InstructionId {
        let mut common = Common::default();
        common.rare_mut().frontend_attributes.insert("chain_id".into(), self.chain.to_string().into());
        let op = Op::AllGather(Box::new(self.gather.clone()));
        let shape = self.carried[1].clone();
        let new =
            NewInstruction { name: "all-gather".into(), op, shape, operands: Operands::from_slice(&[source]), common };
        let gather = module.add_instruction(body, new);
        let config = BackendConfig { barrier: Some(0), async_flags: Some(flags), ..BackendConfig::default() };
        config.set(module, gather);
        gather
    }

    /// The parameters of a body that takes what is carried, from `first` on.
    fn parameters(
        &self,
        module: &mut Module,
        body: ComputationId,
        numbers: std::ops::Range<usize>,
    ) -> Vec<InstructionId> {
        let add = |n: usize| {
            let new = NewInstruction {
                name: format!("param_{n}").into(),
                op: Op::parameter(n as i64),
                shape: self.carried[n].clone(),
                operands: Operands::new(),
                common: Common::default(),
            };
            module.add_instruction(body, new)
        };
        numbers.map(add).collect()
    }

    fn flags() -> (i64, i64) {
        (FIRST_FLAG as i64, CARRIED as i64 - 1)
    }

    fn start(&self, module: &mut Module, home: ComputationId, source: InstructionId) -> InstructionId {
        let body = module.add_computation("fused_computation");
        let parameter = self.parameters(module, body, 0..1)[0];
        let gather = self.gather(module, body, parameter, (-1, -1));
        let shape = Shape::tuple(self.carried.iter().cloned());
        call(module, body, "AsyncCollectiveStart", shape.clone(), &[gather]);
        let aliasing = vec![alias(Some(0), 0)];
        fusion(module, home, "async-collective-start", FusionKind::Custom, body, shape, &[source], aliasing)
    }

    fn done(&self, module: &mut Module, home: ComputationId, handed: &[InstructionId]) -> InstructionId {
        let body = module.add_computation("fused_computation");
        let first = self.parameters(module, body, 0..FIRST_FLAG);
        let gather = self.gather(module, body, first[0], Self::flags());
        let rest = self.parameters(module, body, FIRST_FLAG..CARRIED);
        let operands: Vec<InstructionId> = first.into_iter().chain([gather]).chain(rest).collect();
        let shape = self.carried[1].clone();
        call(module, body, "AsyncCollectiveDone", shape.clone(), &operands);
        let aliasing = vec![alias(None, 1)];
        fusion(module, home, "async-collective-done", FusionKind::Custom, body, shape, handed, aliasing)
    }

    /// A fusion that does what `carrier` does and carries the exchange along; tells how many results are its own.
    fn carry(
        &self,
        module: &mut Module,
        home: ComputationId,
        carrier: InstructionId,
        handed: &[InstructionId],
    ) -> Option<(InstructionId, usize)> {
        let Op::Fusion(attributes) = &module[carrier].op else { return None };
        let (kind, calls) = (attributes.kind, attributes.calls);
        let old_root = module.root(calls)?;
        let own: Vec<Shape> = match &module[carrier].shape {
            Shape::Tuple(parts) => parts.to_vec(),
            one => vec![one.clone()],
        };
        let own_operands: Vec<InstructionId> = module[carrier].operands().to_vec();
        let body = module.clone_computation(calls, "async_collective_fusion");
        let root = module.root(body)?;
        for parameter in module.parameters(body) {
            if let Op::Parameter { number, .. } = &mut module.instruction_mut(parameter).op {
                *number += CARRIED as i64;
            }
        }
        let carried = self.parameters(module, body, 0..CARRIED);
        let gather = self.gather(module, body, carried[0], Self::flags());
        let mut results: Operands = match module[old_root].op {
            Op::Tuple => module[root].operands().into(),
            _ => Operands::from_slice(&[root]),
        };
        let mut shapes = own.clone();
        let mut aliasing = Vec::new();
        let mut hand_on = |value: InstructionId, shape: &Shape, operand: usize| {
            aliasing.push(alias(Some(shapes.len()), operand));
            results.push(value);
            shapes.push(shape.clone());
        };
        for (n, &value) in carried.iter().enumerate() {
            if n == FIRST_FLAG {
                hand_on(gather, &self.carried[1], 1);
            }
            hand_on(value, &self.carried[n], n);
        }
        let shape = Shape::tuple(shapes);
        let tuple = NewInstruction {
            name: "tuple".into(),
            op: Op::Tuple,
            shape: shape.clone(),
            operands: results,
            common: Common::default(),
        };
        let tuple = module.add_instruction(body, tuple);
        module.set_root(tuple);
        if matches!(module[root].op, Op::Tuple) {
            module.remove_instructions(&[root]).ok()?;
        }
        let post_order = hloom_ir::order::PostOrder::new(module).instructions(body);
        module.reorder(body, post_order).ok()?;
        let operands: Vec<InstructionId> = handed.iter().copied().chain(own_operands.iter().copied()).collect();
        let made = fusion(module, home, "fusion", kind, body, shape, &operands, aliasing);
        module.instruction_mut(made).common.metadata = module[carrier].common.metadata.clone();
        let last = (CARRIED + own_operands.len()) as i64 - 1;
        let continuation =
            Continuation { outputs: (0, own.len() as i64 - 1), operands: (CARRIED as i64, last.max(CARRIED as i64)) };
        BackendConfig { continuation: Some(continuation), ..BackendConfig::default() }.set(module, made);
        Some((made, own.len()))
    }
}

fn call(module: &mut Module, body: ComputationId, target: &str, shape: Shape, operands: &[InstructionId]) {
    let new = NewInstruction {
        name: "custom-call".into(),
        op: Op::CustomCall(Box::new(CustomCall::new(target))),
        shape,
        operands: Operands::from_slice(operands),
        common: Common::default(),
    };
    let root = module.add_instruction(body, new);
    module.set_root(root);
}

#[allow(clippy::too_many_arguments, reason = "each is one part of the instruction")]
fn fusion(
    module: &mut Module,
    home: ComputationId,
    name: &str,
    kind: FusionKind,
    calls: ComputationId,
    shape: Shape,
    operands: &[InstructionId],
    output_operand_aliasing: Vec<OutputOperandAlias>,
) -> InstructionId {
    if let Some(root) = module.root(home) {
        module.set_root(root);
    }
    let new = NewInstruction {
        name: name.into(),
        op: Op::Fusion(Box::new(Fusion { kind, calls, output_operand_aliasing })),
        shape,
        operands: Operands::from_slice(operands),
        common: Common::default(),
    };
    module.add_instruction(home, new)
}
