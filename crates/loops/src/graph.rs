//! What a kernel computes, as plain data: the body of a fusion, or a single instruction, with tuples, calls and nested
//! fusions dissolved.
//!
//! Two instructions with equal graphs have the same kernel, so a graph can be compared and hashed. Nodes stand after
//! what they read. Every array is row-major and of static size.
//!
//! A product or convolution that a fusion begins with may be left to others: the kernel then finds its result in one more
//! buffer, behind those of the operands.

use crate::function::scalar_op;
use crate::unsupported::Unsupported;
use hloom_ir::attributes::{ComparisonDirection, PaddingDim, SliceDim, Window};
use hloom_ir::layout::DimVec;
use hloom_ir::literal::Literal;
use hloom_ir::op::{BinaryOp, ConstantValue, Gather, Op, Scatter, UnaryOp};
use hloom_ir::shape::{ArrayShape, Shape};
use hloom_ir::{ComputationId, ElementType, Instruction, InstructionId, Module};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::{SmallVec, smallvec};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

pub use crate::function::{Function, FunctionOp, FunctionStep, function_of};

/// The most nodes of a kernel: what is larger would take LLVM too long as one function.
const MAX_NODES: usize = 20_000;
/// How deep calls and fusions may nest.
pub(crate) const MAX_DEPTH: usize = 16;

/// Windows longer than the array and than this are left to who walks the array, not the window: nearly all of it is
/// padding, and there may be more of that than can be walked.
const MOSTLY_PADDING: i64 = 1024;

/// A result of a node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ValueRef {
    /// The node.
    pub node: u32,
    /// Which result: reductions of several arrays have several.
    pub result: u32,
}

/// An operation on single elements.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ScalarOp {
    /// An operation of one operand.
    Unary(UnaryOp),
    /// An operation of two operands.
    Binary(BinaryOp),
    /// A comparison; `total` orders NaN and the zeros, too.
    Compare {
        /// What is asked.
        direction: ComparisonDirection,
        /// Whether NaN and the zeros are ordered.
        total: bool,
    },
    /// One of two values by a pred.
    Select,
    /// A value kept between two bounds.
    Clamp,
    /// A conversion of the value.
    Convert,
    /// The same bits as another type.
    BitcastConvert,
    /// Rounding to fewer bits.
    ReducePrecision {
        /// Bits of the exponent.
        exponent_bits: i32,
        /// Bits of the mantissa.
        mantissa_bits: i32,
    },
}

/// The bytes of a constant, compared by value.
#[derive(Clone, Debug)]
pub struct Data(Arc<Literal>);

impl AsRef<[u8]> for Data {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

impl Data {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        self.0.as_array().map_or(&[], |a| a.bytes())
    }
}

impl PartialEq for Data {
    fn eq(&self, other: &Data) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.bytes() == other.bytes()
    }
}
impl Eq for Data {}
impl Hash for Data {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.bytes().hash(state);
    }
}

/// What a node does.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum NodeOp {
    /// The array in that buffer.
    Parameter(u32),
    /// An array that belongs to the kernel.
    Constant(Data),
    /// The index along a dimension.
    Iota {
        /// The dimension.
        dimension: usize,
    },
    /// An operation on each element.
    Scalar(ScalarOp),
    /// A function of each element.
    Map(Function),
    /// The same elements in other dimensions.
    Reshape,
    /// An array repeated along new dimensions.
    Broadcast {
        /// Where the dimensions of the operand are in the result.
        dimensions: DimVec,
    },
    /// Dimensions in another order.
    Transpose {
        /// For each dimension of the result that of the operand.
        dimensions: DimVec,
    },
    /// Dimensions run backwards.
    Reverse {
        /// Those dimensions.
        dimensions: DimVec,
    },
    /// Arrays one after another.
    Concatenate {
        /// Along that dimension.
        dimension: usize,
    },
    /// A part with constant bounds and steps.
    Slice(SmallVec<[SliceDim; 4]>),
    /// A part that begins at indices known at run time.
    DynamicSlice,
    /// An array with a part replaced, at indices known at run time.
    DynamicUpdateSlice,
    /// An array with elements around and between its own.
    Pad(SmallVec<[PaddingDim; 4]>),
    /// Parts of an array, at indices known at run time.
    Gather(GatherAttributes),
    /// An array changed at indices known at run time.
    Scatter(ScatterAttributes),
    /// Dimensions reduced by a function.
    Reduce {
        /// Those dimensions.
        dimensions: DimVec,
        /// The function.
        function: Function,
    },
    /// Windows reduced by a function.
    ReduceWindow {
        /// The windows.
        window: Window,
        /// The function.
        function: Function,
    },
}

/// The attributes of gather that say what it computes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct GatherAttributes {
    /// Which dimension is what.
    pub dims: hloom_ir::attributes::GatherDimensionNumbers,
    /// The sizes of the parts.
    pub slice_sizes: DimVec,
}

/// The attributes of scatter that say what it computes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ScatterAttributes {
    /// Which dimension is what.
    pub dims: hloom_ir::attributes::ScatterDimensionNumbers,
    /// What combines the old element and the new.
    pub function: Function,
}

/// One operation and its result.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Node {
    /// What it does.
    pub op: NodeOp,
    /// What it does it with.
    pub operands: SmallVec<[ValueRef; 3]>,
    /// The element types of the results.
    pub types: SmallVec<[ElementType; 1]>,
    /// The sizes of each result.
    pub dims: DimVec,
}

/// A kernel's meaning.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Graph {
    /// The nodes, each after those it uses.
    pub nodes: Vec<Node>,
    /// One per leaf of the result.
    pub outputs: Vec<ValueRef>,
    /// The number of leaf arrays of the operands: the buffers before those of the outputs.
    pub inputs: u32,
}

impl Graph {
    /// The node that makes a value.
    pub fn node(&self, value: ValueRef) -> &Node {
        &self.nodes[value.node as usize]
    }
    /// The sizes of a value.
    pub fn dims(&self, value: ValueRef) -> &[i64] {
        &self.node(value).dims
    }
    /// The element type of a value.
    pub fn element_type(&self, value: ValueRef) -> ElementType {
        self.node(value).types[value.result as usize]
    }

    /// What `instruction` computes from the leaf arrays of its operands, and of the result of `product`, if that
    /// instruction of its body is left to others.
    pub fn of(
        module: &Module,
        instruction: InstructionId,
        product: Option<InstructionId>,
    ) -> Result<Graph, Unsupported> {
        let mut builder = GraphBuilder { module, graph: Graph::default(), product: None };
        let operands = module[instruction].operands().iter();
        let operands = operands.map(|&o| builder.inputs(&module[o].shape)).collect::<Result<Vec<_>, _>>()?;
        builder.leave_to_others(product)?;
        let outputs = builder.instruction(instruction, &operands, 0)?;
        let mut graph = builder.graph;
        graph.outputs = outputs.to_vec();
        Ok(graph)
    }
}

impl Graph {
    /// What a fusion of `members`, each after its operands, would compute: their `results` from what they read
    /// elsewhere, and from the result of `product`, if that one among them is left to others.
    pub fn of_members(
        module: &Module,
        members: &[InstructionId],
        results: &[InstructionId],
        product: Option<InstructionId>,
    ) -> Result<Graph, Unsupported> {
        let mut builder = GraphBuilder { module, graph: Graph::default(), product: None };
        let inside: FxHashSet<InstructionId> = members.iter().copied().collect();
        let mut values: FxHashMap<InstructionId, Leaves> = FxHashMap::default();
        for &operand in members.iter().flat_map(|&m| module[m].operands()) {
            if !inside.contains(&operand) && !values.contains_key(&operand) {
                values.insert(operand, builder.inputs(&module[operand].shape)?);
            }
        }
        builder.leave_to_others(product)?;
        for &member in members {
            let operands = module[member].operands().iter().map(|o| values.get(o).cloned());
            let operands: Vec<Leaves> = operands.collect::<Option<_>>().ok_or_else(missing_operand)?;
            values.insert(member, builder.instruction(member, &operands, 0)?);
        }
        let mut graph = builder.graph;
        for result in results {
            graph.outputs.extend(values.get(result).ok_or_else(missing_operand)?);
        }
        Ok(graph)
    }
}

type Leaves = SmallVec<[ValueRef; 1]>;

/// The static array that a shape is.
fn array_of(shape: &Shape) -> Result<&ArrayShape, Unsupported> {
    let array = shape.as_array().ok_or_else(|| Unsupported::new("a value that is no array"))?;
    if array.is_dynamic() {
        return Err(Unsupported::new("a dynamic size"));
    }
    match array.byte_size() {
        Some(bytes) if bytes < i64::MAX / 64 => Ok(array),
        _ => Err(Unsupported::new("an array of more bytes than can be counted")),
    }
}

struct GraphBuilder<'m> {
    module: &'m Module,
    graph: Graph,
    /// What is left to others, and its result.
    product: Option<(InstructionId, ValueRef)>,
}

impl GraphBuilder<'_> {
    /// The leaf arrays of a value that is given, each in a buffer of its own.
    fn inputs(&mut self, shape: &Shape) -> Result<Leaves, Unsupported> {
        let mut leaves = Leaves::new();
        for (_, shape) in shape.leaves() {
            let array = array_of(shape)?;
            let buffer = self.graph.inputs;
            self.graph.inputs += 1;
            leaves.push(self.add(NodeOp::Parameter(buffer), &[], array)?);
        }
        Ok(leaves)
    }

    /// Takes the result of `product` for given, in one more buffer.
    fn leave_to_others(&mut self, product: Option<InstructionId>) -> Result<(), Unsupported> {
        if let Some(product) = product {
            let result = self.inputs(&self.module[product].shape)?;
            let &[result] = &result[..] else { return Err(Unsupported::new("a value that is no array")) };
            self.product = Some((product, result));
        }
        Ok(())
    }

    fn add(&mut self, op: NodeOp, operands: &[ValueRef], shape: &ArrayShape) -> Result<ValueRef, Unsupported> {
        self.add_many(op, operands, smallvec![shape.element_type], shape.dims())
    }

    fn add_many(
        &mut self,
        op: NodeOp,
        operands: &[ValueRef],
        types: SmallVec<[ElementType; 1]>,
        dims: &[i64],
    ) -> Result<ValueRef, Unsupported> {
        if self.graph.nodes.len() >= MAX_NODES {
            return Err(Unsupported::new("a fusion of too many instructions"));
        }
        let node = self.graph.nodes.len() as u32;
        self.graph.nodes.push(Node { op, operands: operands.into(), types, dims: dims.into() });
        Ok(ValueRef { node, result: 0 })
    }

    fn computation(&mut self, id: ComputationId, operands: &[Leaves], depth: usize) -> Result<Leaves, Unsupported> {
        if depth > MAX_DEPTH {
            return Err(Unsupported::new("fusions or calls nested too deep"));
        }
        let module = self.module;
        let root = module.root(id).ok_or_else(|| Unsupported::new("a computation without a root"))?;
        let mut values: FxHashMap<InstructionId, Leaves> = FxHashMap::default();
        for &i in module[id].instructions() {
            if i != root && module[i].users().is_empty() {
                continue;
            }
            let result = match &module[i].op {
                Op::Parameter { number, .. } => usize::try_from(*number).ok().and_then(|n| operands.get(n)).cloned(),
                _ => {
                    let of = |o: &InstructionId| values.get(o).cloned();
                    let operands: Option<Vec<Leaves>> = module[i].operands().iter().map(of).collect();
                    Some(self.instruction(i, &operands.ok_or_else(missing_operand)?, depth)?)
                }
            };
            values.insert(i, result.ok_or_else(missing_operand)?);
        }
        values.remove(&root).ok_or_else(missing_operand)
    }

    fn instruction(&mut self, i: InstructionId, operands: &[Leaves], depth: usize) -> Result<Leaves, Unsupported> {
        let instruction = &self.module[i];
        if let Some((_, result)) = self.product.filter(|(product, _)| *product == i) {
            return Ok(smallvec![result]);
        }
        match &instruction.op {
            Op::Fusion(f) => return self.computation(f.calls, operands, depth + 1),
            Op::Call { to_apply, .. } => return self.computation(*to_apply, operands, depth + 1),
            Op::Tuple => return Ok(operands.concat().into()),
            Op::OptBarrier | Op::AddDependency if operands.len() == 1 => return Ok(operands[0].clone()),
            Op::GetTupleElement { index } => {
                let tuple = instruction.operands().first().and_then(|&o| self.module[o].shape.as_tuple());
                let (tuple, index) = tuple.zip(usize::try_from(*index).ok()).ok_or_else(missing_operand)?;
                let start: usize = tuple[..index].iter().map(Shape::leaf_count).sum();
                return Ok(operands[0][start..start + tuple[index].leaf_count()].into());
            }
            _ => {}
        }
        let arrays: Option<SmallVec<[ValueRef; 3]>> =
            operands.iter().map(|o| if let [one] = o[..] { Some(one) } else { None }).collect();
        let arrays = arrays.ok_or_else(|| Unsupported::new("an operand that is a tuple"))?;
        let leaves = instruction.shape.leaves();
        let shapes = leaves.iter().map(|(_, s)| array_of(s)).collect::<Result<Vec<_>, _>>()?;
        let first = *shapes.first().ok_or_else(|| Unsupported::new("an instruction without a result"))?;
        let (op, arrays) = self.node_op(instruction, &arrays, first)?;
        let types = shapes.iter().map(|s| s.element_type).collect();
        let node = self.add_many(op, &arrays, types, first.dims())?;
        Ok((0..shapes.len() as u32).map(|result| ValueRef { node: node.node, result }).collect())
    }

    fn node_op(
        &mut self,
        instruction: &Instruction,
        operands: &[ValueRef],
        shape: &ArrayShape,
    ) -> Result<(NodeOp, SmallVec<[ValueRef; 3]>), Unsupported> {
        let module = self.module;
        let usizes = |list: &DimVec| list.clone();
        let op = match &instruction.op {
            Op::Constant(ConstantValue::Literal(literal)) => NodeOp::Constant(Data(literal.clone())),
            Op::Iota { dimension } => NodeOp::Iota { dimension: *dimension as usize },
            Op::Copy => NodeOp::Reshape,
            Op::Bitcast => {
                let is_row_major = |s: &ArrayShape| s.layout.as_ref().is_none_or(|l| l.is_descending());
                let from = instruction.operands().first().and_then(|&o| module[o].shape.as_array());
                let same_type = from.is_some_and(|f| f.element_type == shape.element_type);
                if !same_type || !from.is_some_and(is_row_major) || !is_row_major(shape) {
                    return Err(Unsupported::new("a bitcast between layouts or types"));
                }
                NodeOp::Reshape
            }
            Op::Reshape { .. } => NodeOp::Reshape,
            Op::Broadcast { dimensions } => NodeOp::Broadcast { dimensions: usizes(dimensions) },
            Op::Transpose { dimensions } => NodeOp::Transpose { dimensions: usizes(dimensions) },
            Op::Reverse { dimensions } => NodeOp::Reverse { dimensions: usizes(dimensions) },
            Op::Concatenate { dimension } => NodeOp::Concatenate { dimension: *dimension as usize },
            Op::Slice { dims } => NodeOp::Slice(dims.iter().copied().collect()),
            Op::DynamicSlice { .. } => NodeOp::DynamicSlice,
            Op::DynamicUpdateSlice => NodeOp::DynamicUpdateSlice,
            Op::Pad { padding } => NodeOp::Pad(padding.iter().copied().collect()),
            Op::Gather(g) => {
                let Gather { dims, slice_sizes, .. } = &**g;
                NodeOp::Gather(GatherAttributes { dims: dims.clone(), slice_sizes: slice_sizes.clone() })
            }
            Op::Scatter(s) => {
                let Scatter { dims, to_apply, .. } = &**s;
                let function = self.function(*to_apply, false)?;
                NodeOp::Scatter(ScatterAttributes { dims: dims.clone(), function })
            }
            Op::Reduce { dimensions, to_apply } => {
                NodeOp::Reduce { dimensions: dimensions.clone(), function: self.function(*to_apply, true)? }
            }
            Op::ReduceWindow { window, to_apply } => {
                let dims = operands.first().map_or(&[][..], |&x| self.graph.dims(x));
                if window.dims.iter().zip(dims).any(|(w, &n)| w.size > MOSTLY_PADDING.max(n)) {
                    return Err(Unsupported::new("a window that holds little but padding"));
                }
                NodeOp::ReduceWindow { window: (**window).clone(), function: self.function(*to_apply, true)? }
            }
            Op::Map { to_apply, .. } => NodeOp::Map(self.function(*to_apply, false)?),
            _ => NodeOp::Scalar(self.scalar_op(instruction, operands, shape)?),
        };
        Ok((op, operands.into()))
    }

    fn scalar_op(
        &self,
        instruction: &Instruction,
        operands: &[ValueRef],
        shape: &ArrayShape,
    ) -> Result<ScalarOp, Unsupported> {
        let types: SmallVec<[ElementType; 3]> = operands.iter().map(|&o| self.graph.element_type(o)).collect();
        let op = scalar_op(instruction, &types, shape.element_type)?;
        let fits = |&o: &ValueRef| self.graph.dims(o).is_empty() || self.graph.dims(o) == shape.dims();
        if !operands.iter().all(fits) {
            return Err(Unsupported::new(format!("{} with operands of other sizes", instruction.opcode())));
        }
        Ok(op)
    }

    /// The function that `computation` is. Where it reduces (`widen`), f16 and bf16 are carried as f32, so that a sum
    /// is rounded once.
    fn function(&self, computation: ComputationId, widen: bool) -> Result<Function, Unsupported> {
        function_of(self.module, computation, widen)
    }
}

pub(crate) fn missing_operand() -> Unsupported {
    Unsupported::new("an operand that is not there")
}
