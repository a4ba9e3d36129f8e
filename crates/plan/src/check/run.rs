//! Runs the module over memory that remembers who wrote it.
//!
//! At every position there is an act of writing and the spot it wrote to; forwarding copies both. Reading asks memory
//! whether the spot still holds that act.

use super::assignment::Assignment;
use super::memory::{Memory, Spot, Tag, UNKNOWN};
use super::needs::Needs;
use super::overwrite::{in_place, is_made_of, may_write_over};
use crate::calls::{AsyncChains, async_start, completed};
use crate::positions::{Position, Positions};
use hloom_ir::attributes::OutputOperandAlias;
use hloom_ir::diagnostic::codes::plan::{DUMP_NAMES, OVERLAP, SPLIT_ALIAS, WRONG_KIND};
use hloom_ir::diagnostic::{Diagnostic, Part, Place};
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use rustc_hash::{FxHashMap, FxHashSet};
use std::ops::Range;

/// What is at a position: who wrote it and where.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Held {
    tag: Tag,
    spot: Spot,
}

/// The positions of a part, where there is such a part.
type Span = Option<Range<Position>>;

struct Runner<'a, 'm> {
    positions: &'a Positions<'m>,
    module: &'m Module,
    /// The spot that the assignment gives to each position, and whether it is that of a phi.
    spots: Vec<Option<(Spot, bool)>>,
    held: Vec<Option<Held>>,
    memory: Memory,
    /// Who did each act of writing.
    writers: Vec<Position>,
    faults: &'a mut Vec<Diagnostic>,
    /// Instructions that a fault was found at: once is enough.
    blamed: FxHashSet<InstructionId>,
    chains: AsyncChains,
    needs: Needs,
}

/// Runs the module; adds what is wrong to `faults`.
pub(super) fn run(positions: &Positions<'_>, assignment: &Assignment, faults: &mut Vec<Diagnostic>) {
    let module = positions.module();
    let mut spots = vec![None; positions.len()];
    let mut live_out = vec![false; assignment.allocations.len()];
    for (number, allocation) in assignment.allocations.iter().enumerate() {
        live_out[number] = allocation.is_live_out;
        for piece in allocation.pieces.iter().filter(|_| !allocation.is_thread_local) {
            let Some(part) = positions.part(piece.instruction, &piece.index) else { continue };
            let spot = Spot { allocation: number as u32, start: piece.offset, end: piece.offset + piece.size };
            spots[part.start as usize] = Some((spot, piece.is_phi));
        }
    }
    let mut runner = Runner {
        positions,
        module,
        spots,
        held: vec![None; positions.len()],
        memory: Memory::new(assignment.allocations.len()),
        writers: vec![0],
        faults,
        blamed: FxHashSet::default(),
        chains: AsyncChains::new(module),
        needs: Needs::new(positions),
    };
    let Some(entry) = module.entry() else { return };
    for &parameter in &module.parameters(entry) {
        for position in positions.of(parameter) {
            if !runner.write(position) {
                runner.has_no_place(parameter, position);
            }
        }
    }
    runner.computation(entry, true);
    runner.results(entry, &live_out);
    let Runner { needs, faults, .. } = runner;
    needs.check(positions, &assignment.ranges, faults);
}

impl Runner<'_, '_> {
    fn label(&self, position: Position) -> String {
        let mut label = self.module[self.positions.instruction(position)].name().to_owned();
        let index = self.positions.index(position);
        if !index.is_empty() {
            crate::dump::write_index(&mut label, &index);
        }
        label
    }

    fn fault(&mut self, at: InstructionId, diagnostic: Diagnostic) {
        if self.blamed.insert(at) {
            self.faults.push(diagnostic.at_instruction(at, Part::Whole));
        }
    }

    fn has_no_place(&mut self, id: InstructionId, position: Position) {
        let message = format!("`{}` has no place", self.label(position));
        self.fault(id, Diagnostic::error(&DUMP_NAMES, message));
    }

    /// Where one of several values arrives, it has a place as that.
    fn merged(&mut self, position: Position) {
        if !matches!(self.spots[position as usize], Some((_, true))) {
            self.has_no_place(self.positions.instruction(position), position);
        }
    }

    /// Writes what belongs at a position to the spot that the assignment gives it, if it gives it one.
    fn write(&mut self, position: Position) -> bool {
        let Some((spot, false)) = self.spots[position as usize] else { return false };
        let tag = self.writers.len() as Tag;
        self.writers.push(position);
        self.memory.write(spot, tag);
        self.held[position as usize] = Some(Held { tag, spot });
        self.needs.begin(position, self.needs.now);
        true
    }

    /// Checks that `reader` finds what was written for it.
    fn read(&mut self, position: Position, reader: InstructionId) {
        let Some(Held { tag, spot }) = self.held[position as usize] else { return };
        self.needs.read(position);
        let Err(by) = self.memory.holds(spot, tag) else { return };
        let lost = self.label(self.writers[tag as usize]);
        let reader_name = self.module[reader].name();
        let diagnostic = match by.filter(|&b| b != UNKNOWN) {
            Some(by) => {
                let over = self.writers[by as usize];
                let message = format!("`{reader_name}` reads `{lost}`, but `{}` was written over it", self.label(over));
                let maker = self.positions.instruction(over);
                let range = format!("bytes {} to {} of allocation {}", spot.start, spot.end, spot.allocation);
                Diagnostic::error(&OVERLAP, message)
                    .note_at("this was written over it", Place::Instruction(maker, Part::Whole))
                    .note(format!("`{lost}` is assigned to {range}"))
            }
            None => Diagnostic::error(
                &OVERLAP,
                format!("`{reader_name}` reads `{lost}`, which not every branch leaves alone"),
            ),
        };
        self.fault(reader, diagnostic);
    }

    fn read_all(&mut self, positions: Range<Position>, reader: InstructionId) {
        for position in positions {
            self.read(position, reader);
        }
    }

    /// Runs a computation whose parameters hold what they are called with; `twice` says whether loops go round twice.
    fn computation(&mut self, computation: ComputationId, twice: bool) {
        for &id in self.module[computation].instructions() {
            self.instruction(id, twice);
        }
    }

    fn instruction(&mut self, id: InstructionId, twice: bool) {
        let module = self.module;
        let instruction = &module[id];
        self.needs.now = self.needs.times.of(id);
        match &instruction.op {
            Op::Parameter { .. } => {}
            Op::While { condition, body } => self.while_loop(id, *condition, *body, twice),
            Op::Conditional { branches } => self.conditional(id, branches, twice),
            Op::Call { to_apply, .. } => {
                self.hand_over(instruction.operands(), *to_apply);
                self.computation(*to_apply, twice);
                self.needs.now = self.needs.times.of(id);
                if let Some(root) = module.root(*to_apply) {
                    self.forward(self.positions.of(root), self.positions.of(id));
                }
            }
            _ => self.plain(id, twice),
        }
    }

    /// Gives a called computation's parameters what the operands hold.
    fn hand_over(&mut self, operands: &[InstructionId], callee: ComputationId) {
        let parameters = self.module.parameters(callee);
        for (&operand, parameter) in operands.iter().zip(parameters) {
            self.forward(self.positions.of(operand), self.positions.of(parameter));
        }
    }

    fn forward(&mut self, from: Range<Position>, to: Range<Position>) {
        for (from, to) in from.zip(to) {
            let held = self.held[from as usize];
            if let Some(slot) = self.held.get_mut(to as usize) {
                *slot = held;
                self.needs.forward(from, to);
            }
        }
    }

    /// An instruction that calls nothing, or starts something asynchronous.
    fn plain(&mut self, id: InstructionId, twice: bool) {
        let module = self.module;
        self.operand_reads(id);
        if let Op::AsyncStart(_) | Op::AsyncUpdate { .. } = &module[id].op
            && let Some(calls) = completed(module, id)
        {
            let operands = self.chains.operands(module, async_start(module, id));
            self.hand_over(&operands, calls);
            self.computation(calls, twice);
            self.needs.now = self.needs.times.of(id);
        }
        self.forwarded(id);
        let operands: Vec<Held> = self.operands_held(id);
        let aliases = self.aliases_of(id);
        // Results that are the same operand's memory are the same memory, and the same act of writing.
        let mut by_operand: FxHashMap<Position, Held> = FxHashMap::default();
        for position in self.positions.of(id) {
            let alias = aliases.get(&position);
            let twin = alias.and_then(|a| by_operand.get(a)).copied();
            if let (Some(twin), Some((spot, false))) = (twin, self.spots[position as usize])
                && twin.spot == spot
            {
                self.held[position as usize] = Some(twin);
                continue;
            }
            if !self.write(position) {
                if self.held[position as usize].is_none() && self.needs_place(id, position) {
                    self.has_no_place(id, position);
                }
                continue;
            }
            if let Some(held) = self.held[position as usize] {
                self.check_written(id, position, held.spot, &operands);
                if let Some(&operand) = alias {
                    by_operand.insert(operand, held);
                }
            }
        }
        self.in_place(id, &aliases);
    }

    /// A result may not lie on an operand that it cannot be written over.
    fn check_written(&mut self, id: InstructionId, position: Position, spot: Spot, operands: &[Held]) {
        // Tuples of thousands of results read few operands, and operations of thousands of operands have one result.
        let over = operands.iter().find(|held| held.spot.overlaps(&spot));
        let spots = self.module[id].operands().iter().map(|&o| self.held[self.positions.whole(o) as usize]);
        if let Some(held) = over
            && !is_made_of(self.module, id, spots.map(|held| Some(held?.spot)), spot)
            && !(held.spot == spot && may_write_over(self.module, id, &self.slots_of(id, held.spot)))
        {
            let lost = self.label(self.writers[held.tag as usize]);
            let message = format!("`{}` is written over `{lost}`, which it reads", self.label(position));
            self.fault(id, Diagnostic::error(&OVERLAP, message));
        }
    }

    /// The operands of an instruction that lie at that spot.
    fn slots_of(&self, id: InstructionId, spot: Spot) -> Vec<usize> {
        let operands = self.module[id].operands().iter().enumerate();
        let is_there = |&p: &Position| self.held[p as usize].is_some_and(|h| h.spot == spot);
        operands.filter(|&(_, &o)| self.positions.of(o).any(|p| is_there(&p))).map(|(i, _)| i).collect()
    }

    /// For each result part that is an operand's memory, as the instruction says or by what it does, that operand part.
    fn aliases_of(&self, id: InstructionId) -> FxHashMap<Position, Position> {
        let instruction = &self.module[id];
        let stated = match &instruction.op {
            Op::Fusion(f) => f.output_operand_aliasing.as_slice(),
            Op::CustomCall(c) => c.output_operand_aliasing.as_slice(),
            Op::AsyncStart(a) => a.output_operand_aliasing.as_slice(),
            _ => &[],
        };
        let pair = |alias: &OutputOperandAlias| {
            let operand = instruction.operands().get(usize::try_from(alias.operand).ok()?)?;
            let from = self.positions.part(*operand, &alias.operand_index)?;
            let to = self.positions.part(id, &alias.output_index)?;
            Some((to.start, from.start))
        };
        // The tables in an async-start are its own, whatever is said of what they lead to.
        let is_start = matches!(instruction.op, Op::AsyncStart(_));
        let stated = stated.iter().filter_map(pair).filter(|(to, _)| !(is_start && self.positions.is_tuple(*to)));
        let implied = in_place(self.module, id).into_iter().filter_map(|(operand, result)| {
            let from = self.positions.whole(*instruction.operands().get(operand)?);
            let to = match result {
                Some(element) => self.positions.part(id, &[element])?.start,
                None => self.positions.whole(id),
            };
            Some((to, from))
        });
        implied.chain(stated).collect()
    }

    /// What the operands of an instruction hold, as far as it reads them itself.
    fn operands_held(&self, id: InstructionId) -> Vec<Held> {
        let op = &self.module[id].op;
        if matches!(op, Op::Tuple | Op::GetTupleElement { .. }) {
            return Vec::new();
        }
        let operands = self.module[id].operands().iter();
        operands.flat_map(|&o| self.positions.of(o)).filter_map(|p| self.held[p as usize]).collect()
    }

    fn operand_reads(&mut self, id: InstructionId) {
        let module = self.module;
        match &module[id].op {
            Op::Tuple | Op::Bitcast | Op::AddDependency | Op::OptBarrier | Op::Domain(_) => {}
            Op::GetTupleElement { .. } => {
                for &operand in module[id].operands() {
                    self.read(self.positions.whole(operand), id);
                }
            }
            Op::AsyncUpdate { .. } | Op::AsyncDone | Op::CollectivePermuteDone | Op::AllReduceDone => {
                self.done_reads(id)
            }
            _ => {
                for &operand in module[id].operands() {
                    self.read_all(self.positions.of(operand), id);
                }
            }
        }
    }

    /// What was started must find its operands untouched until it is done, but for those that it writes itself.
    fn done_reads(&mut self, id: InstructionId) {
        let module = self.module;
        for &brought in module[id].operands().iter().skip(1) {
            self.read_all(self.positions.of(brought), id);
        }
        let Some(&start) = module[id].operands().first() else { return };
        let result = match self.chains.computation(module, id).and_then(|c| module.root(c)) {
            Some(root) => Some(self.positions.of(root)),
            None => self.positions.part(start, &[1]),
        };
        let own: FxHashSet<Spot> =
            result.into_iter().flatten().filter_map(|p| self.held[p as usize]).map(|h| h.spot).collect();
        let inputs = self.positions.part(start, &[0]);
        for position in self.positions.of(start) {
            let is_input = inputs.as_ref().is_some_and(|i| i.contains(&position));
            let is_own = self.held[position as usize].is_some_and(|h| own.contains(&h.spot));
            if !(is_input && is_own) {
                self.read(position, id);
            }
        }
    }

    /// Fills in the positions that hold what an operand holds.
    fn forwarded(&mut self, id: InstructionId) {
        let (module, positions) = (self.module, self.positions);
        let instruction = &module[id];
        let here = positions.of(id);
        for position in here.clone() {
            self.held[position as usize] = None;
        }
        let first = instruction.operands().first().copied();
        let part = |index: &[i64]| first.and_then(|o| positions.part(o, index));
        let own = |index: &[i64]| positions.part(id, index);
        let mut pairs: Vec<(Span, Span)> = Vec::new();
        match &instruction.op {
            Op::Bitcast | Op::AddDependency | Op::OptBarrier | Op::Domain(_) | Op::AllReduceDone | Op::Copy => {
                pairs.push((part(&[]), Some(here)));
            }
            Op::GetTupleElement { index } => pairs.push((part(&[*index]), Some(here))),
            Op::Tuple => {
                let mut at = here.start + 1;
                for &operand in instruction.operands() {
                    let from = positions.of(operand);
                    let to = at..at + (from.end - from.start);
                    at = to.end;
                    pairs.push((Some(from), Some(to)));
                }
            }
            Op::CopyStart { .. } => pairs.push((part(&[]), own(&[1]))),
            Op::CopyDone => pairs.push((part(&[0]), Some(here))),
            Op::AsyncStart(_) | Op::AsyncUpdate { .. } => {
                let mut at = own(&[0]).map_or(here.start, |r| r.start + 1);
                let mut brought = instruction.operands();
                if let Op::AsyncUpdate { .. } = instruction.op {
                    pairs.push((part(&[0]), own(&[0])));
                    at += part(&[0]).map_or(0, |before| before.end - before.start - 1);
                    brought = &brought[1..];
                }
                for &operand in brought {
                    let from = positions.of(operand);
                    let to = at..at + (from.end - from.start);
                    at = to.end;
                    pairs.push((Some(from), Some(to)));
                }
                let root = self.chains.computation(module, id).and_then(|c| module.root(c));
                pairs.push((root.map(|r| positions.of(r)).or_else(|| part(&[1])), own(&[1])));
            }
            Op::AsyncDone => {
                let root = self.chains.computation(module, id).and_then(|c| module.root(c));
                pairs.push((root.map(|r| positions.of(r)), Some(here)));
            }
            Op::AllGatherDone | Op::CollectivePermuteDone => {
                pairs.push((part(&[1]).or_else(|| part(&[])), Some(here)));
            }
            Op::AllGatherStart(_) | Op::CollectivePermuteStart(_) => {
                let inputs = own(&[0]);
                let is_list = inputs.as_ref().is_some_and(|i| positions.is_tuple(i.start));
                let mut at = inputs.map_or(here.start, |i| i.start + u32::from(is_list));
                let writes_slices =
                    matches!(&instruction.op, Op::CollectivePermuteStart(p) if !p.slice_sizes.is_empty());
                for &operand in instruction.operands() {
                    let mut from = positions.of(operand);
                    if is_list && positions.is_tuple(from.start) && (writes_slices || instruction.operands().len() == 1)
                    {
                        from.start += 1;
                    }
                    let to = at..at + (from.end - from.start);
                    at = to.end;
                    pairs.push((Some(from), Some(to)));
                    if !is_list || writes_slices {
                        break;
                    }
                }
            }
            Op::Send(_) => pairs.push((part(&[]), own(&[0]))),
            Op::RecvDone(_) => pairs.push((part(&[0]), own(&[0]))),
            _ => {}
        }
        for (from, to) in pairs {
            if let (Some(from), Some(to)) = (from, to) {
                self.forward(from, to);
            }
        }
        // The whole of a copy is its own; of a tuple, the elements are not.
        if let Op::Copy = instruction.op {
            self.held[positions.whole(id) as usize] = None;
        }
    }

    /// Lists of operands within the results of asynchronous collectives are not always given tables.
    fn needs_place(&self, id: InstructionId, position: Position) -> bool {
        let is_inner_table = self.positions.is_tuple(position) && !self.positions.is_whole(position);
        !is_inner_table || matches!(self.module[id].op, Op::AsyncStart(_) | Op::AsyncUpdate { .. })
    }

    /// The operand and the result of an in-place operation are the same memory.
    fn in_place(&mut self, id: InstructionId, aliases: &FxHashMap<Position, Position>) {
        let mut pairs: Vec<(Position, Position)> = aliases.iter().map(|(&to, &from)| (from, to)).collect();
        pairs.sort_unstable();
        for (from, to) in pairs {
            self.same_spot(id, from, to);
        }
    }

    fn same_spot(&mut self, id: InstructionId, from: Position, to: Position) {
        let (Some(a), Some(b)) = (self.held[from as usize], self.held[to as usize]) else { return };
        if a.spot != b.spot {
            let message = format!(
                "`{}` and `{}` are the same memory, but lie in different places",
                self.label(from),
                self.label(to)
            );
            self.fault(id, Diagnostic::error(&SPLIT_ALIAS, message));
        } else {
            self.needs.join(from, to);
        }
    }

    /// Where the assignment gives a position a place as one of several values, what arrives must lie there.
    fn arrive(&mut self, caller: InstructionId, from: Range<Position>, to: Range<Position>, at: u32) {
        for (from, to) in from.zip(to) {
            let held = self.held[from as usize];
            if let Some((spot, true)) = self.spots[to as usize] {
                if held.is_some_and(|h| h.spot != spot) {
                    let (a, b) = (self.label(from), self.label(to));
                    let message = format!("`{a}` arrives at `{b}`, but lies in another place");
                    self.fault(caller, Diagnostic::error(&SPLIT_ALIAS, message));
                }
                self.needs.begin(to, at);
                self.needs.join(from, to);
            } else {
                self.needs.forward(from, to);
            }
            self.held[to as usize] = held;
        }
    }

    fn while_loop(&mut self, id: InstructionId, condition: ComputationId, body: ComputationId, twice: bool) {
        let module = self.module;
        let Some(&init) = module[id].operands().first() else { return };
        let (Some(root), Some(result)) = (module.root(body), module.root(condition)) else { return };
        let parameter = |c: ComputationId| module.parameters(c).first().map(|&p| self.positions.of(p));
        let (Some(in_condition), Some(in_body)) = (parameter(condition), parameter(body)) else { return };
        let (begin, body_begin) = (self.needs.times.begin(condition), self.needs.times.begin(body));
        let end = self.needs.times.of(id);
        let mut carried = self.positions.of(init);
        let before: Vec<Option<Held>> = carried.clone().map(|p| self.held[p as usize]).collect();
        for round in 0..=usize::from(twice) {
            // Loops inside go round twice in the first round only: in the second, what they read and write is the same.
            let inner = twice && round == 0;
            self.needs.now = if round == 0 { begin } else { end };
            self.read_all(carried.clone(), id);
            self.arrive(id, carried.clone(), in_condition.clone(), begin);
            self.computation(condition, inner);
            self.needs.now = self.needs.times.end_of(condition);
            self.read_all(self.positions.of(result), id);
            self.arrive(id, carried, in_body.clone(), body_begin);
            self.computation(body, inner);
            carried = self.positions.of(root);
        }
        for (nth, (before, after)) in before.into_iter().zip(carried.clone()).enumerate() {
            let after = self.held[after as usize];
            if before.map(|h| h.tag) != after.map(|h| h.tag) && before.is_some() && after.is_some() {
                for at in [&in_condition, &in_body, &self.positions.of(id)] {
                    self.merged(at.start + nth as u32);
                }
            }
        }
        // The condition is asked once more before the loop ends.
        self.needs.now = end;
        self.read_all(carried.clone(), id);
        self.arrive(id, carried.clone(), in_condition, begin);
        self.computation(condition, false);
        self.needs.now = end;
        self.arrive(id, carried, self.positions.of(id), end);
    }

    fn conditional(&mut self, id: InstructionId, branches: &[ComputationId], twice: bool) {
        let module = self.module;
        if let Some(&selector) = module[id].operands().first() {
            self.read_all(self.positions.of(selector), id);
        }
        let here = self.positions.of(id);
        let mut results: Vec<Vec<Option<Held>>> = Vec::new();
        let mut written = Vec::new();
        for (n, &branch) in branches.iter().enumerate() {
            let mark = self.memory.begin();
            if let (Some(&operand), Some(&parameter)) =
                (module[id].operands().get(n + 1), module.parameters(branch).first())
            {
                self.forward(self.positions.of(operand), self.positions.of(parameter));
            }
            self.computation(branch, twice);
            if let Some(root) = module.root(branch) {
                self.needs.now = self.needs.times.end_of(branch);
                self.read_all(self.positions.of(root), root);
                self.arrive(id, self.positions.of(root), here.clone(), self.needs.times.of(id));
                results.push(here.clone().map(|p| self.held[p as usize]).collect());
            }
            written.extend(self.memory.take_back(mark));
        }
        for spot in written {
            self.memory.write(spot, UNKNOWN);
        }
        for (nth, position) in here.enumerate() {
            let mut arriving = results.iter().filter_map(|r| r.get(nth).copied().flatten());
            let Some(first) = arriving.next() else { continue };
            if arriving.all(|other| other == first) {
                self.held[position as usize] = Some(first);
                // What all branches leave there is known again; what none of them wrote still is.
                if self.memory.holds(first.spot, first.tag).is_err() {
                    self.memory.write(first.spot, first.tag);
                }
                continue;
            }
            self.merged(position);
            let tag = self.writers.len() as Tag;
            self.writers.push(position);
            self.memory.write(first.spot, tag);
            self.held[position as usize] = Some(Held { tag, spot: first.spot });
        }
    }

    /// After the run the results must be there, in memory that outlives it, and where they are aliased to.
    fn results(&mut self, entry: ComputationId, live_out: &[bool]) {
        let module = self.module;
        let Some(root) = module.root(entry) else { return };
        let parameters = module.parameters(entry);
        self.needs.now = self.needs.times.end;
        for position in self.positions.of(root) {
            self.read(position, root);
            if let Some(held) = self.held[position as usize]
                && !live_out.get(held.spot.allocation as usize).copied().unwrap_or(false)
            {
                let message = format!(
                    "`{}` is a result, but allocation {} does not outlive the run",
                    self.label(position),
                    held.spot.allocation
                );
                self.fault(root, Diagnostic::error(&WRONG_KIND, message));
            }
        }
        for alias in &module.config.input_output_alias {
            let parameter = usize::try_from(alias.parameter).ok().and_then(|n| parameters.get(n));
            let from = parameter.and_then(|&p| self.positions.part(p, &alias.parameter_index));
            let to = self.positions.part(root, &alias.output_index);
            if let (Some(from), Some(to)) = (from, to) {
                self.same_spot(root, from.start, to.start);
            }
        }
    }
}
