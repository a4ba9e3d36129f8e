//! Functions that run side by side on a grid of devices, as one program.
//!
//! Where all run the same function, it is the entry. Otherwise every device is given the arguments of all, calls the
//! function that is its own, and gives the results of all, of which those of the others are zeros.

use super::{Translate, Translator};
use crate::mlir::{OpId, OpKind, ValueId};
use hloom_ir::attributes::{CollectiveGroupMode, ComparisonDirection};
use hloom_ir::device_list::ReplicaGroups;
use hloom_ir::diagnostic::codes::mlir as codes;
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::op::BinaryOp;
use hloom_ir::{ElementType, Literal, Op, Shape};
use rustc_hash::FxHashMap;

impl Translator<'_, '_> {
    /// Translates `programs[replica][partition]`.
    pub(super) fn parallel(&mut self, programs: &[Vec<OpId>]) -> Translate<()> {
        let partitions = programs.first().map_or(0, Vec::len);
        if partitions == 0 || programs.iter().any(|row| row.len() != partitions) {
            return Err(self.error(&codes::BAD_ATTRIBUTE, "the programs do not form a grid of replicas and partitions"));
        }
        let all: Vec<OpId> = programs.iter().flatten().copied().collect();
        if all.iter().all(|&f| f == all[0]) {
            self.program(all[0])?;
        } else {
            self.switched(&all, partitions as i64)?;
        }
        self.out.config.replica_count = programs.len() as i64;
        self.out.config.num_partitions = partitions as i64;
        self.name_processes(programs.len() as i64, partitions as i64);
        // Results of one device never take the place of another's arguments.
        self.out.config.input_output_alias.clear();
        self.out.config.buffer_donors.clear();
        Ok(())
    }

    /// Where a group is of replicas with all their partitions, StableHLO counts the replicas of a partition first, HLO the
    /// partitions of a replica. Operations to which the order matters get groups of devices in the order of StableHLO.
    fn name_processes(&mut self, replicas: i64, partitions: i64) {
        let all = self.out.computations().iter().flat_map(|&c| self.out[c].instructions());
        let all: Vec<InstructionId> = all.copied().collect();
        for i in all {
            if self.out[i].op.group_mode() != Some(CollectiveGroupMode::CrossReplicaAndPartition) {
                continue;
            }
            let collective = match &mut self.out.instruction_mut(i).op {
                Op::AllGather(a) | Op::AllGatherStart(a) => &mut a.collective,
                Op::ReduceScatter(r) => &mut r.collective,
                _ => continue,
            };
            let named = collective.replica_groups.expand().filter(|g| !g.is_empty());
            let groups = named.unwrap_or_else(|| vec![(0..replicas).collect()]);
            let devices = |group: Vec<i64>| {
                let of = |partition: i64| group.iter().map(move |replica| replica * partitions + partition);
                (0..partitions).flat_map(of).collect()
            };
            collective.replica_groups = ReplicaGroups::Explicit(groups.into_iter().map(devices).collect());
            collective.use_global_device_ids = true;
        }
    }

    fn switched(&mut self, all: &[OpId], partitions: i64) -> Translate<()> {
        self.find_routes(all);
        let at = self.at;
        let mut distinct: Vec<OpId> = Vec::new();
        for &function in all {
            if !distinct.contains(&function) {
                self.callees_of(&[function])?;
                self.function(function, false)?;
                distinct.push(function);
            }
        }
        self.enter(at);
        let outer = self.begin("parallel");
        let mut arguments: Vec<Vec<InstructionId>> = Vec::new();
        let mut results: Vec<Shape> = Vec::new();
        let mut number = 0;
        for &function in all {
            let mut own = Vec::new();
            for shape in self.parameter_shapes(function)? {
                own.push(self.emit(Op::parameter(number), [].as_slice(), shape)?);
                number += 1;
            }
            arguments.push(own);
            let computation = self.computation_of(function)?;
            let root = self.out.root(computation);
            results.push(root.map_or(Shape::Token, |r| self.out[r].shape.clone()));
        }
        // device = replica × partitions + partition
        let scalar = Shape::scalar(ElementType::U32).with_default_layout();
        let replica = self.emit(Op::ReplicaId, [].as_slice(), scalar.clone())?;
        let partition = self.emit(Op::PartitionId, [].as_slice(), scalar.clone())?;
        let width = self.whole(ElementType::U32, partitions)?;
        let row = self.bin(BinaryOp::Multiply, replica, width)?;
        let device = self.bin(BinaryOp::Add, row, partition)?;
        let index = self.converted(device, ElementType::S32)?;
        let mut operands = vec![index];
        let mut branches = Vec::new();
        for (device, own) in arguments.iter().enumerate() {
            operands.push(self.tuple(own)?);
            let function = self.computation_of(all[device])?;
            branches.push(self.branch_of(device, own, function, &results)?);
        }
        let shape = Shape::tuple(results);
        // One branch is chosen by a truth value, several by a number.
        let root = if branches.len() == 1 {
            let zero = self.whole(ElementType::S32, 0)?;
            let is_first = self.cmp(ComparisonDirection::Eq, index, zero)?;
            operands[0] = is_first;
            operands.push(operands[1]);
            branches.push(branches[0]);
            self.emit(Op::Conditional { branches: branches.into() }, operands.as_slice(), shape)?
        } else {
            self.emit(Op::Conditional { branches: branches.into() }, operands.as_slice(), shape)?
        };
        let computation = self.end(outer, root);
        self.out.set_entry(computation);
        Ok(())
    }

    /// The device whose program sends on a channel sends to the one whose program receives on it.
    fn find_routes(&mut self, all: &[OpId]) {
        let m = self.m;
        let mut ends: FxHashMap<i64, (Vec<i64>, Vec<i64>)> = FxHashMap::default();
        for (device, &function) in all.iter().enumerate() {
            let mut stack = vec![function];
            while let Some(op) = stack.pop() {
                for &region in &m.op(op).regions {
                    stack.extend(m.region(region).blocks.iter().flat_map(|b| &b.ops));
                }
                let handle = m.find(op, "channel_handle").and_then(|h| m.field(h, "handle"));
                let Some(channel) = handle.and_then(|h| m.as_int(h)) else { continue };
                match m.kind(op) {
                    OpKind::Send => ends.entry(channel).or_default().0.push(device as i64),
                    OpKind::Recv => ends.entry(channel).or_default().1.push(device as i64),
                    _ => {}
                }
            }
        }
        for (channel, (sources, targets)) in ends {
            let pairs = sources.iter().zip(&targets).flat_map(|(&s, &t)| [s, t]).collect();
            self.routes.insert(channel, pairs);
        }
    }

    fn computation_of(&self, function: OpId) -> Translate<ComputationId> {
        let found = self.translated.get(&function).copied();
        found.ok_or_else(|| self.error(&codes::UNKNOWN_FUNCTION, "a program is not known"))
    }

    fn parameter_shapes(&mut self, function: OpId) -> Translate<Vec<Shape>> {
        let m = self.m;
        let Some(&region) = m.op(function).regions.first() else { return Ok(Vec::new()) };
        m.arguments(region).map(|v| self.type_shape(m.value_type(ValueId(v)))).collect()
    }

    /// The branch of one device: its function's results, and zeros for those of the others.
    fn branch_of(
        &mut self,
        device: usize,
        arguments: &[InstructionId],
        to_apply: ComputationId,
        results: &[Shape],
    ) -> Translate<ComputationId> {
        let shapes: Vec<Shape> = arguments.iter().map(|&a| self.shape(a).clone()).collect();
        let outer = self.begin("program");
        let count = shapes.len();
        let tuple = self.emit(Op::parameter(0), [].as_slice(), Shape::tuple(shapes))?;
        let own = (0..count).map(|i| self.element(tuple, i)).collect::<Translate<Vec<_>>>()?;
        let mut all = Vec::new();
        for (other, shape) in results.iter().enumerate() {
            all.push(if other == device {
                let op = Op::Call { to_apply, is_composite: false };
                self.emit(op, own.as_slice(), shape.clone())?
            } else {
                self.zeros(shape)?
            });
        }
        let root = self.tuple(&all)?;
        Ok(self.end(outer, root))
    }

    fn zeros(&mut self, shape: &Shape) -> Translate<InstructionId> {
        match shape {
            Shape::Array(a) => {
                let scalar = Shape::scalar(a.element_type).with_default_layout();
                let zero = self.emit(Op::constant(Literal::zero(a.element_type)), [].as_slice(), scalar)?;
                self.splat(zero, shape.clone())
            }
            Shape::Tuple(parts) => {
                let parts = parts.iter().map(|p| self.zeros(p)).collect::<Translate<Vec<_>>>()?;
                self.tuple(&parts)
            }
            _ => self.emit(Op::AfterAll, [].as_slice(), Shape::Token),
        }
    }
}
