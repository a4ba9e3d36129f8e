//! One computation of the program of one device, while it is written.
//!
//! [`Body`] adds instructions to it, knows where on the devices the program stands (coordinates along axes), and writes
//! single collectives. Kept true: every device runs the same collectives in the same order, and every channel is new.

use super::axes::{AxisList, DeviceAxes};
use super::known_plans::Question;
use super::plan::PlanCost;
use super::spec::{Reduction, Spec};
use super::values::Values;
use super::variants::Variants;
use super::{Change, Emit, Note, Partitioner, Reason};
use hloom_ir::attributes::{ComparisonDirection, PaddingDim, SliceDim};
use hloom_ir::diagnostic::{Diagnostic, Part as DiagnosticPart};
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::infer::infer_laid_out;
use hloom_ir::instruction::Common;
use hloom_ir::layout::DimVec;
use hloom_ir::literal::{Element, Literal};
use hloom_ir::module::NewInstruction;
use hloom_ir::op::{AllGather, AllReduce, BinaryOp, Collective, CollectivePermute, ReduceScatter};
use hloom_ir::shape::ArrayShape;
use hloom_ir::{ElementType, Op, Shape};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// A value of the program of one device.
#[derive(Clone, Debug)]
pub(crate) enum Val {
    /// A part of an array.
    Array(Part),
    /// A tuple of values; it exists as an instruction only where one is needed.
    Tuple(Vec<Val>),
    /// A token or what else has no elements.
    Other(InstructionId),
}

/// A device's part of an array.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// The instruction that has it.
    pub id: InstructionId,
    /// The whole array's shape, as the source has it: whatever its layout is, shards have the default one.
    pub shape: Arc<ArrayShape>,
    /// How the whole lies on the devices.
    pub spec: Spec,
    /// How it is had anew in any other way without communication.
    pub free: Option<Free>,
}

/// Values that need no communication.
#[derive(Clone, Debug)]
pub(crate) enum Free {
    /// Every element is that scalar, which all devices have.
    Splat(InstructionId),
    /// Elements count along a dimension.
    Iota(usize),
}

/// One computation while it is written.
pub(crate) struct Body<'p, 's> {
    pub p: &'p mut Partitioner<'s>,
    pub computation: ComputationId,
    /// What stands for each instruction of the source.
    pub values: Values,
    /// Other forms that a value has been brought into.
    pub variants: Variants,
    coordinates: FxHashMap<AxisList, InstructionId>,
    /// Scalar constants by type and bytes.
    constants: FxHashMap<(ElementType, u128), InstructionId>,
    logical: Option<InstructionId>,
    /// Of the program's arguments, by device, which shard it has.
    pub entries: FxHashMap<InstructionId, Vec<i64>>,
    /// The instruction of the source that is being partitioned.
    pub at: Option<InstructionId>,
    /// Why collectives are added just now.
    pub reason: Reason,
    /// The change of form that is being made.
    pub change: Option<Change>,
    /// The root of the source's computation.
    pub root: Option<InstructionId>,
    /// How the leaves of the result are to lie.
    pub result: Vec<Spec>,
}

impl<'p, 's> Body<'p, 's> {
    pub(crate) fn new(p: &'p mut Partitioner<'s>, name: &str) -> Body<'p, 's> {
        let computation = p.target.add_unlisted_computation(name);
        Body {
            p,
            computation,
            values: Values::default(),
            variants: Variants::default(),
            coordinates: FxHashMap::default(),
            constants: FxHashMap::default(),
            logical: None,
            entries: FxHashMap::default(),
            at: None,
            reason: Reason::Reshard,
            change: None,
            root: None,
            result: Vec::new(),
        }
    }

    pub(crate) fn axes(&self) -> &DeviceAxes {
        &self.p.axes
    }

    /// What it costs to bring an array of those sizes from one form into another.
    pub(crate) fn plan_cost(&self, sizes: &[i64], element_bits: u32, from: &Spec, to: &Spec) -> PlanCost {
        self.p.plans.cost(self.axes(), Question { sizes, element_bits, from, to })
    }

    /// A failure that names the instruction of the source.
    pub(crate) fn error(&self, message: impl Into<String>) -> Diagnostic {
        let error = super::error(message);
        match self.at {
            Some(at) => error.at_instruction(at, DiagnosticPart::Whole),
            None => error,
        }
    }

    /// Adds an instruction; its shape is inferred where none is given.
    pub(crate) fn add_shaped(
        &mut self,
        op: Op,
        operands: &[InstructionId],
        shape: Option<Shape>,
    ) -> Emit<InstructionId> {
        let Partitioner { target, shapes, .. } = &mut *self.p;
        let shape = infer_laid_out(target, &op, operands, shape.as_ref(), shapes)
            .map_err(|e| self.error(format!("writing {}: {}", op.opcode(), e.message)))?;
        let mut common = Common::default();
        let mut name = op.opcode().name();
        if let Some(at) = self.at {
            let source = &self.p.source[at];
            common.metadata = source.common.metadata.clone();
            if source.op.opcode() == op.opcode() {
                name = source.name();
            }
        }
        let name = self.p.target.unique_name(name);
        let new = NewInstruction { name, op, shape, operands: operands.into(), common };
        Ok(self.p.target.push_instruction(self.computation, new))
    }

    pub(crate) fn add(&mut self, op: Op, operands: &[InstructionId]) -> Emit<InstructionId> {
        self.add_shaped(op, operands, None)
    }

    /// The sizes of an instruction's result.
    pub(crate) fn dims(&self, id: InstructionId) -> DimVec {
        self.p.target[id].shape.as_array().map_or_else(DimVec::new, |a| DimVec::from_slice(a.dims()))
    }

    /// The shape of an array in the target.
    pub(crate) fn shape(&mut self, element_type: ElementType, dims: &[i64]) -> Shape {
        self.p.shapes.array(element_type, dims)
    }

    pub(crate) fn element_type(&self, id: InstructionId) -> ElementType {
        self.p.target[id].shape.element_type().unwrap_or(ElementType::Pred)
    }

    pub(crate) fn literal(&mut self, literal: Literal) -> Emit<InstructionId> {
        let scalar = literal.as_array().filter(|a| a.shape().is_scalar());
        match scalar.and_then(|a| Some((a.element_type(), low_bytes(a.bytes())?))) {
            Some((element_type, bytes)) => self.scalar_of(element_type, bytes, || literal),
            None => self.add(Op::constant(literal), &[]),
        }
    }

    /// The scalar of those bytes, which `literal` makes where it is not there yet.
    fn scalar_of(
        &mut self,
        element_type: ElementType,
        bytes: u128,
        literal: impl FnOnce() -> Literal,
    ) -> Emit<InstructionId> {
        if let Some(&id) = self.constants.get(&(element_type, bytes)) {
            return Ok(id);
        }
        let id = self.add(Op::constant(literal()), &[])?;
        self.constants.insert((element_type, bytes), id);
        Ok(id)
    }

    pub(crate) fn scalar<T: Element>(&mut self, value: T) -> Emit<InstructionId> {
        self.literal(Literal::scalar(value))
    }

    pub(crate) fn s32(&mut self, value: i64) -> Emit<InstructionId> {
        let value = value as i32;
        self.scalar_of(ElementType::S32, u128::from(value as u32), || Literal::scalar(value))
    }

    pub(crate) fn zero(&mut self, element_type: ElementType) -> Emit<InstructionId> {
        self.scalar_of(element_type, 0, || Literal::zero(element_type))
    }

    pub(crate) fn binary(&mut self, op: BinaryOp, x: InstructionId, y: InstructionId) -> Emit<InstructionId> {
        self.add(Op::Binary(op), &[x, y])
    }

    pub(crate) fn compare(
        &mut self,
        direction: ComparisonDirection,
        x: InstructionId,
        y: InstructionId,
    ) -> Emit<InstructionId> {
        self.add(Op::Compare { direction, kind: None }, &[x, y])
    }

    pub(crate) fn select(&mut self, pred: InstructionId, x: InstructionId, y: InstructionId) -> Emit<InstructionId> {
        // A scalar predicate is spread over the elements.
        let dims = self.dims(x);
        let pred =
            if self.dims(pred).is_empty() && !dims.is_empty() { self.broadcast(pred, &dims, &[])? } else { pred };
        self.add(Op::Select, &[pred, x, y])
    }

    pub(crate) fn broadcast(&mut self, x: InstructionId, dims: &[i64], dimensions: &[i64]) -> Emit<InstructionId> {
        let shape = self.shape(self.element_type(x), dims);
        self.add_shaped(Op::Broadcast { dimensions: dimensions.into() }, &[x], Some(shape))
    }

    pub(crate) fn reshape(&mut self, x: InstructionId, dims: &[i64]) -> Emit<InstructionId> {
        if self.dims(x)[..] == *dims {
            return Ok(x);
        }
        let shape = self.shape(self.element_type(x), dims);
        self.add_shaped(Op::Reshape { inferred_dimension: None }, &[x], Some(shape))
    }

    pub(crate) fn transpose(&mut self, x: InstructionId, dimensions: &[i64]) -> Emit<InstructionId> {
        if dimensions.iter().enumerate().all(|(i, &d)| i as i64 == d) {
            return Ok(x);
        }
        self.add(Op::Transpose { dimensions: dimensions.into() }, &[x])
    }

    pub(crate) fn convert(&mut self, x: InstructionId, to: ElementType) -> Emit<InstructionId> {
        if self.element_type(x) == to {
            return Ok(x);
        }
        let shape = self.shape(to, &self.dims(x));
        self.add_shaped(Op::Convert, &[x], Some(shape))
    }

    pub(crate) fn iota(&mut self, element_type: ElementType, dims: &[i64], dimension: usize) -> Emit<InstructionId> {
        let shape = self.shape(element_type, dims);
        self.add_shaped(Op::Iota { dimension: dimension as i64 }, &[], Some(shape))
    }

    /// The elements from `start` up to `limit` of dimension `dim`.
    pub(crate) fn slice_dim(
        &mut self,
        x: InstructionId,
        dim: usize,
        start: i64,
        limit: i64,
        stride: i64,
    ) -> Emit<InstructionId> {
        let dims = self.dims(x);
        if start == 0 && limit == dims[dim] && stride == 1 {
            return Ok(x);
        }
        let all = dims.iter().enumerate().map(|(d, &n)| match d == dim {
            true => SliceDim { start, limit, stride },
            false => SliceDim { start: 0, limit: n, stride: 1 },
        });
        self.add(Op::Slice { dims: all.collect() }, &[x])
    }

    /// `size` elements of dimension `dim` from a start that the program works out.
    pub(crate) fn dynamic_slice_dim(
        &mut self,
        x: InstructionId,
        dim: usize,
        start: InstructionId,
        size: i64,
    ) -> Emit<InstructionId> {
        let mut sizes = self.dims(x);
        sizes[dim] = size;
        let zero = self.zero(self.element_type(start))?;
        let mut operands = vec![x];
        operands.extend((0..sizes.len()).map(|d| if d == dim { start } else { zero }));
        self.add(Op::DynamicSlice { sizes: sizes.as_slice().into() }, &operands)
    }

    /// More elements before and after along `dim`; zeros where no value is given.
    pub(crate) fn pad_dim(
        &mut self,
        x: InstructionId,
        dim: usize,
        low: i64,
        high: i64,
        value: Option<InstructionId>,
    ) -> Emit<InstructionId> {
        if low == 0 && high == 0 {
            return Ok(x);
        }
        let value = match value {
            Some(value) => value,
            None => self.zero(self.element_type(x))?,
        };
        let rank = self.dims(x).len();
        let padding = (0..rank).map(|d| match d == dim {
            true => PaddingDim { low, high, interior: 0 },
            false => PaddingDim::default(),
        });
        self.add(Op::Pad { padding: padding.collect() }, &[x, value])
    }

    /// The first `size` elements of dimension `dim`, padded at the end if there are fewer.
    pub(crate) fn resize_dim(&mut self, x: InstructionId, dim: usize, size: i64) -> Emit<InstructionId> {
        let now = self.dims(x)[dim];
        if now < size { self.pad_dim(x, dim, 0, size - now, None) } else { self.slice_dim(x, dim, 0, size, 1) }
    }

    /// The logical number of this device, as s32.
    fn logical_id(&mut self) -> Emit<InstructionId> {
        if let Some(id) = self.logical {
            return Ok(id);
        }
        let device = self.add(Op::PartitionId, &[])?;
        let mut id = self.convert(device, ElementType::S32)?;
        if let Some(order) = self.axes().order() {
            let mut inverse = vec![0i32; order.len()];
            for (i, &d) in order.iter().enumerate() {
                inverse[d as usize] = i as i32;
            }
            id = self.lookup(&inverse, id)?;
        }
        self.logical = Some(id);
        Ok(id)
    }

    /// Element `index` of a table.
    pub(crate) fn lookup(&mut self, table: &[i32], index: InstructionId) -> Emit<InstructionId> {
        if table.iter().all(|&v| v == table[0]) {
            return self.s32(i64::from(table[0]));
        }
        let literal = Literal::array([table.len() as i64], table).map_err(|_| self.error("a table does not fit"))?;
        let table = self.literal(literal)?;
        let element = self.dynamic_slice_dim(table, 0, index, 1)?;
        self.reshape(element, &[])
    }

    /// The coordinate of this device along a list of axes, as s32.
    pub(crate) fn coordinate(&mut self, list: &[u8]) -> Emit<InstructionId> {
        let key = AxisList::from_slice(list);
        if let Some(&id) = self.coordinates.get(&key) {
            return Ok(id);
        }
        let devices = self.axes().devices();
        let mut result = None;
        let mut i = 0;
        while i < list.len() {
            // Neighbouring axes are one.
            let mut end = i + 1;
            while end < list.len()
                && self.axes().stride(list[end - 1]) == self.axes().stride(list[end]) * self.axes().size(list[end])
            {
                end += 1;
            }
            let (stride, size) = (self.axes().stride(list[end - 1]), self.axes().product(&list[i..end]));
            let mut digit = self.logical_id()?;
            if stride != 1 {
                let by = self.s32(stride)?;
                digit = self.binary(BinaryOp::Divide, digit, by)?;
            }
            if stride * size != devices {
                let by = self.s32(size)?;
                digit = self.binary(BinaryOp::Remainder, digit, by)?;
            }
            result = Some(match result {
                None => digit,
                Some(high) => {
                    let by = self.s32(size)?;
                    let high = self.binary(BinaryOp::Multiply, high, by)?;
                    self.binary(BinaryOp::Add, high, digit)?
                }
            });
            i = end;
        }
        let id = match result {
            Some(id) => id,
            None => self.s32(0)?,
        };
        self.coordinates.insert(key, id);
        Ok(id)
    }

    /// The coordinate times `by`: where a shard begins.
    pub(crate) fn offset(&mut self, list: &[u8], by: i64) -> Emit<InstructionId> {
        let coordinate = self.coordinate(list)?;
        if list.is_empty() || by == 1 {
            return Ok(coordinate);
        }
        let by = self.s32(by)?;
        self.binary(BinaryOp::Multiply, coordinate, by)
    }

    /// `x` with every element beyond the end of the whole dimension `dim` replaced; `limit` is the whole's size.
    pub(crate) fn mask_dim(
        &mut self,
        x: InstructionId,
        dim: usize,
        list: &[u8],
        limit: i64,
        value: InstructionId,
    ) -> Emit<InstructionId> {
        let dims = self.dims(x);
        if dims[dim] * self.axes().product(list) <= limit {
            return Ok(x);
        }
        let offset = self.offset(list, dims[dim])?;
        let index = self.iota(ElementType::S32, &dims, dim)?;
        let limit = self.s32(limit)?;
        let left = self.binary(BinaryOp::Subtract, limit, offset)?;
        let left = self.broadcast(left, &dims, &[])?;
        let valid = self.compare(ComparisonDirection::Lt, index, left)?;
        let value = self.broadcast(value, &dims, &[])?;
        self.select(valid, x, value)
    }

    fn collective(&mut self, list: &[u8]) -> Collective {
        Collective {
            channel_id: Some(self.p.next_channel()),
            replica_groups: self.axes().groups_of_replicas(list, self.p.source.config.replica_count.max(1)),
            use_global_device_ids: true,
            ..Collective::default()
        }
    }

    pub(crate) fn note(&mut self, instruction: InstructionId, list: &[u8]) {
        let change = self.change.clone().map(Box::new);
        let note = Note {
            instruction,
            source: self.at,
            axes: AxisList::from_slice(list),
            reason: self.reason.clone(),
            change,
        };
        self.p.notes.push(note);
    }

    /// The computation that combines two scalars.
    pub(crate) fn reducer(&mut self, reduction: Reduction, element_type: ElementType) -> Emit<ComputationId> {
        if let Some(&c) = self.p.reducers.get(&(reduction, element_type)) {
            return Ok(c);
        }
        let mut builder = hloom_ir::Builder::new(&mut self.p.target, reduction.op().opcode().name());
        let shape = Shape::scalar(element_type);
        let build = |b: &mut hloom_ir::Builder<'_>| {
            let x = b.parameter(0, shape.clone(), "x")?;
            let y = b.parameter(1, shape.clone(), "y")?;
            b.push(Op::Binary(reduction.op()), &[x, y])
        };
        let root = build(&mut builder).map_err(|e| super::error(e.message))?;
        let c = builder.finish(root);
        self.p.reducers.insert((reduction, element_type), c);
        Ok(c)
    }

    pub(crate) fn all_reduce(&mut self, x: InstructionId, list: &[u8], reduction: Reduction) -> Emit<InstructionId> {
        let to_apply = self.reducer(reduction, self.element_type(x))?;
        self.all_reduce_with(x, list, to_apply)
    }

    pub(crate) fn all_reduce_with(
        &mut self,
        x: InstructionId,
        list: &[u8],
        to_apply: ComputationId,
    ) -> Emit<InstructionId> {
        let collective = self.collective(list);
        let id = self.add(Op::AllReduce(Box::new(AllReduce { collective, to_apply })), &[x])?;
        self.note(id, list);
        Ok(id)
    }

    pub(crate) fn reduce_scatter(
        &mut self,
        x: InstructionId,
        dim: usize,
        list: &[u8],
        reduction: Reduction,
    ) -> Emit<InstructionId> {
        let to_apply = self.reducer(reduction, self.element_type(x))?;
        let collective = self.collective(list);
        let mut dims = self.dims(x);
        dims[dim] /= self.axes().product(list);
        let shape = self.shape(self.element_type(x), &dims);
        let op = ReduceScatter { collective, dimension: dim as i64, to_apply };
        let id = self.add_shaped(Op::ReduceScatter(Box::new(op)), &[x], Some(shape))?;
        self.note(id, list);
        Ok(id)
    }

    pub(crate) fn all_gather(&mut self, x: InstructionId, dim: usize, list: &[u8]) -> Emit<InstructionId> {
        let collective = self.collective(list);
        let mut dims = self.dims(x);
        dims[dim] *= self.axes().product(list);
        let shape = self.shape(self.element_type(x), &dims);
        let op = AllGather { collective, dimension: dim as i64 };
        let id = self.add_shaped(Op::AllGather(Box::new(op)), &[x], Some(shape))?;
        self.note(id, list);
        Ok(id)
    }

    /// Each device gives its `i`-th piece of dimension `split` to the `i`-th of its group and puts what it gets one after
    /// the other along `concat`.
    pub(crate) fn all_to_all(
        &mut self,
        x: InstructionId,
        split: usize,
        concat: usize,
        list: &[u8],
    ) -> Emit<InstructionId> {
        let mut collective = self.collective(list);
        // Its groups are of partitions, whatever replica they are of.
        collective.use_global_device_ids = false;
        collective.replica_groups = self.axes().groups(list);
        let group = self.axes().product(list);
        let dims = self.dims(x);
        let op = Op::AllToAll { collective: Box::new(collective), split_dimension: Some(split as i64) };
        let exchanged = self.add(op, &[x])?;
        self.note(exchanged, list);
        // Along `split` there are now pieces of `group` devices; they go before `concat`.
        let mut apart = dims.clone();
        apart[split] /= group;
        apart.insert(split, group);
        let apart = self.reshape(exchanged, &apart)?;
        let mut order: Vec<i64> = (0..=dims.len() as i64).filter(|&d| d != split as i64).collect();
        // Dimension `concat` of the original is at `concat` in what is left, whichever side of `split` it is on.
        order.insert(concat, split as i64);
        let moved = self.transpose(apart, &order)?;
        let mut result = dims;
        result[split] /= group;
        result[concat] *= group;
        self.reshape(moved, &result)
    }

    pub(crate) fn permute(&mut self, x: InstructionId, pairs: Vec<(i64, i64)>, list: &[u8]) -> Emit<InstructionId> {
        let channel_id = Some(self.p.next_channel());
        let op = CollectivePermute { channel_id, source_target_pairs: pairs, slice_sizes: Vec::new() };
        let id = self.add(Op::CollectivePermute(Box::new(op)), &[x])?;
        self.note(id, list);
        Ok(id)
    }
}

/// The bytes of a scalar as a number; none is longer than that.
fn low_bytes(bytes: &[u8]) -> Option<u128> {
    let mut all = [0; 16];
    all.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(u128::from_le_bytes(all))
}
