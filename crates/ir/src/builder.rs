//! Building modules from Rust: operations by name, shapes worked out.
//!
//! A [`Builder`] adds instructions to one computation. Every method infers the shape of what it adds
//! ([`crate::infer`]) and gives it the row-major layout, so a program that cannot be is refused where it is written.
//! A computation joins the module when it is finished, hence after all that it calls, as HLO text wants it.
//!
//! ```
//! use hloom_ir::{Builder, ElementType, Module, Shape};
//!
//! let mut module = Module::new("scale");
//! let mut b = Builder::new(&mut module, "main");
//! let x = b.parameter(0, Shape::array(ElementType::F32, [2, 3]), "x")?;
//! let two = b.constant(2f32)?;
//! let twos = b.broadcast(two, [2, 3], [])?;
//! let product = b.multiply(x, twos)?;
//! let total = b.sum(product, [0, 1])?;
//! b.finish_entry(total);
//! assert_eq!(module[total].shape.to_string(), "f32[]");
//! # Ok::<(), hloom_ir::infer::ShapeError>(())
//! ```

use crate::attributes::{ComparisonDirection, DotDimensionNumbers, PaddingDim, SliceDim};
use crate::diagnostic::{Part, codes};
use crate::element_type::ElementType;
use crate::entity::{ComputationId, InstructionId};
use crate::infer::{ShapeError, infer_shape};
use crate::instruction::Common;
use crate::layout::DimVec;
use crate::literal::{Element, Literal};
use crate::module::{Module, NewInstruction};
use crate::op::{BinaryOp, Dot, Op, UnaryOp};
use crate::shape::{ArrayShape, Shape};
use smallvec::SmallVec;

/// What adding an instruction answers.
type Added = Result<InstructionId, ShapeError>;

/// Adds instructions to one computation of a module.
#[derive(Debug)]
pub struct Builder<'m> {
    module: &'m mut Module,
    computation: ComputationId,
    /// Whether the module lists the computation already.
    listed: bool,
}

impl<'m> Builder<'m> {
    /// A builder of a new computation, which joins the module when it is finished.
    pub fn new(module: &'m mut Module, name: &str) -> Builder<'m> {
        let computation = module.add_unlisted_computation(name);
        Builder { module, computation, listed: false }
    }

    /// A builder that adds to the end of an existing computation.
    pub fn resume(module: &'m mut Module, computation: ComputationId) -> Builder<'m> {
        Builder { module, computation, listed: true }
    }

    /// Makes `root` the result of the computation, and the computation a part of the module.
    pub fn finish(self, root: InstructionId) -> ComputationId {
        self.module.set_root(root);
        if !self.listed {
            self.module.list_computation(self.computation);
        }
        self.computation
    }

    /// As [`Builder::finish`], and makes the computation the entry.
    pub fn finish_entry(self, root: InstructionId) -> ComputationId {
        self.module.set_entry(self.computation);
        self.finish(root)
    }

    /// Another computation of the module, for this one to call: `f` builds it and returns its root.
    pub fn define(
        &mut self,
        name: &str,
        f: impl FnOnce(&mut Builder<'_>) -> Added,
    ) -> Result<ComputationId, ShapeError> {
        let mut inner = Builder::new(self.module, name);
        let root = f(&mut inner)?;
        Ok(inner.finish(root))
    }

    /// A computation that applies `op` to two scalars, to reduce with.
    pub fn reducer(&mut self, op: BinaryOp, element_type: ElementType) -> Result<ComputationId, ShapeError> {
        self.define(op.opcode().name(), |b| {
            let x = b.parameter(0, Shape::scalar(element_type), "x")?;
            let y = b.parameter(1, Shape::scalar(element_type), "y")?;
            b.push(Op::Binary(op), &[x, y])
        })
    }

    /// The module so far.
    pub fn module(&self) -> &Module {
        self.module
    }

    /// The computation that is being built.
    pub fn computation(&self) -> ComputationId {
        self.computation
    }

    /// The shape of an instruction.
    pub fn shape(&self, instruction: InstructionId) -> &Shape {
        &self.module[instruction].shape
    }

    /// Adds `op`; its shape is inferred.
    pub fn push(&mut self, op: Op, operands: &[InstructionId]) -> Added {
        self.add_new(op, operands, None, None)
    }

    /// Adds `op` with a shape, for operations from whose operands it does not follow (reshape, custom-call, …).
    pub fn push_shaped(&mut self, op: Op, operands: &[InstructionId], shape: impl Into<Shape>) -> Added {
        self.add_new(op, operands, Some(shape.into()), None)
    }

    fn add_new(&mut self, op: Op, operands: &[InstructionId], shape: Option<Shape>, name: Option<&str>) -> Added {
        for (i, &operand) in operands.iter().enumerate() {
            if self.module.instructions.get(operand).is_none_or(|o| o.parent() != self.computation) {
                let message = format!("operand {i} of {} belongs to another computation", op.opcode());
                let code = &codes::infer::FOREIGN_OPERAND;
                return Err(ShapeError { code, message, part: Part::Operand(i) });
            }
        }
        let inferred = infer_shape(self.module, &op, operands, shape.as_ref())?;
        // A shape that was given keeps its layout.
        let shape = shape.filter(|s| s.equal_ignoring_layout(&inferred)).unwrap_or(inferred).with_default_layout();
        let name = name.unwrap_or(op.opcode().name()).into();
        let new = NewInstruction { name, op, shape, operands: operands.into(), common: Common::default() };
        Ok(self.module.add_instruction(self.computation, new))
    }

    /// Parameter `number` of the computation.
    pub fn parameter(&mut self, number: i64, shape: impl Into<Shape>, name: &str) -> Added {
        self.add_new(Op::parameter(number), &[], Some(shape.into()), Some(name))
    }

    /// A scalar constant.
    pub fn constant<T: Element>(&mut self, value: T) -> Added {
        self.literal(Literal::scalar(value))
    }

    /// A constant array with those elements in row-major order.
    pub fn constant_array<T: Element>(&mut self, dims: impl IntoIterator<Item = i64>, elements: &[T]) -> Added {
        let literal = Literal::array(dims, elements).map_err(|e| ShapeError {
            code: &codes::infer::LITERAL_SHAPE,
            message: match e.needed {
                Some(bytes) => format!("the shape needs {bytes} bytes, but {} are given", e.given),
                None => format!("no array has that shape, but {} bytes are given", e.given),
            },
            part: Part::Shape,
        })?;
        self.literal(literal)
    }

    /// A constant of any kind.
    pub fn literal(&mut self, literal: Literal) -> Added {
        self.push(Op::constant(literal), &[])
    }

    /// An array whose elements count along `dimension`.
    pub fn iota(&mut self, shape: impl Into<Shape>, dimension: i64) -> Added {
        self.push_shaped(Op::Iota { dimension }, &[], shape)
    }

    /// Whether the elements of `x` stand in that relation to those of `y`.
    pub fn compare(&mut self, direction: ComparisonDirection, x: InstructionId, y: InstructionId) -> Added {
        self.push(Op::Compare { direction, kind: None }, &[x, y])
    }

    /// Elements of `on_true` where `pred` holds, of `on_false` elsewhere.
    pub fn select(&mut self, pred: InstructionId, on_true: InstructionId, on_false: InstructionId) -> Added {
        self.push(Op::Select, &[pred, on_true, on_false])
    }

    /// Elements of `x`, but not below `min` nor above `max`.
    pub fn clamp(&mut self, min: InstructionId, x: InstructionId, max: InstructionId) -> Added {
        self.push(Op::Clamp, &[min, x, max])
    }

    /// The same numbers in another type.
    pub fn convert(&mut self, x: InstructionId, element_type: ElementType) -> Added {
        let shape = self.array_like(x, |a| a.with_element_type(element_type));
        self.add_new(Op::Convert, &[x], shape, None)
    }

    /// `f` of the array that `x` is; `None`, for inference to complain about, if it is none.
    fn array_like(&self, x: InstructionId, f: impl FnOnce(&ArrayShape) -> ArrayShape) -> Option<Shape> {
        Some(f(self.module.instructions.get(x)?.shape.as_array()?).into())
    }

    /// The same elements under other dimensions.
    pub fn reshape(&mut self, x: InstructionId, dims: impl IntoIterator<Item = i64>) -> Added {
        let shape = self.array_like(x, |a| ArrayShape::new(a.element_type, dims));
        self.add_new(Op::Reshape { inferred_dimension: None }, &[x], shape, None)
    }

    /// `x` repeated: its dimension `i` is dimension `dimensions[i]` of the result, which has the sizes `dims`.
    pub fn broadcast(
        &mut self,
        x: InstructionId,
        dims: impl IntoIterator<Item = i64>,
        dimensions: impl IntoIterator<Item = i64>,
    ) -> Added {
        let shape = self.array_like(x, |a| ArrayShape::new(a.element_type, dims));
        self.add_new(Op::Broadcast { dimensions: dimensions.into_iter().collect() }, &[x], shape, None)
    }

    /// `x` with its dimensions in another order: dimension `i` of the result is dimension `dimensions[i]` of `x`.
    pub fn transpose(&mut self, x: InstructionId, dimensions: impl IntoIterator<Item = i64>) -> Added {
        self.push(Op::Transpose { dimensions: dimensions.into_iter().collect() }, &[x])
    }

    /// `x` from the end to the beginning along `dimensions`.
    pub fn reverse(&mut self, x: InstructionId, dimensions: impl IntoIterator<Item = i64>) -> Added {
        self.push(Op::Reverse { dimensions: dimensions.into_iter().collect() }, &[x])
    }

    /// Arrays one after another along `dimension`.
    pub fn concatenate(&mut self, arrays: &[InstructionId], dimension: i64) -> Added {
        self.push(Op::Concatenate { dimension }, arrays)
    }

    /// The part of `x` from `start` up to `limit`, every `stride`-th element, of each dimension.
    pub fn slice(&mut self, x: InstructionId, dims: impl IntoIterator<Item = SliceDim>) -> Added {
        self.push(Op::Slice { dims: dims.into_iter().collect() }, &[x])
    }

    /// The part of `x` of those sizes that starts at `starts`, one scalar for each dimension.
    pub fn dynamic_slice(
        &mut self,
        x: InstructionId,
        starts: &[InstructionId],
        sizes: impl IntoIterator<Item = i64>,
    ) -> Added {
        let operands: SmallVec<[InstructionId; 8]> = [x].iter().chain(starts).copied().collect();
        self.push(Op::DynamicSlice { sizes: sizes.into_iter().collect() }, &operands)
    }

    /// `x` with `update` put in at `starts`.
    pub fn dynamic_update_slice(&mut self, x: InstructionId, update: InstructionId, starts: &[InstructionId]) -> Added {
        let operands: SmallVec<[InstructionId; 8]> = [x, update].iter().chain(starts).copied().collect();
        self.push(Op::DynamicUpdateSlice, &operands)
    }

    /// `x` with `value` around and between its elements.
    pub fn pad(
        &mut self,
        x: InstructionId,
        value: InstructionId,
        padding: impl IntoIterator<Item = PaddingDim>,
    ) -> Added {
        self.push(Op::Pad { padding: padding.into_iter().collect() }, &[x, value])
    }

    /// The product of `x` and `y`.
    pub fn dot(&mut self, x: InstructionId, y: InstructionId, dims: DotDimensionNumbers) -> Added {
        self.push(Op::Dot(Box::new(Dot { dims, ..Dot::default() })), &[x, y])
    }

    /// The matrix product of `x` and `y`: the last dimension of `x` goes with the first of `y`.
    pub fn matmul(&mut self, x: InstructionId, y: InstructionId) -> Added {
        let last = self.module.instructions.get(x).and_then(|i| i.shape.as_array()).map_or(0, ArrayShape::rank) as i64;
        let contracting = |d: i64| DimVec::from_slice(&[d]);
        let dims = DotDimensionNumbers {
            lhs_contracting: contracting(last - 1),
            rhs_contracting: contracting(0),
            ..DotDimensionNumbers::default()
        };
        self.dot(x, y, dims)
    }

    /// `x` reduced over `dimensions` by `to_apply`, from `init`.
    pub fn reduce(
        &mut self,
        x: InstructionId,
        init: InstructionId,
        dimensions: impl IntoIterator<Item = i64>,
        to_apply: ComputationId,
    ) -> Added {
        self.push(Op::Reduce { dimensions: dimensions.into_iter().collect(), to_apply }, &[x, init])
    }

    /// The sum of `x` over `dimensions`.
    pub fn sum(&mut self, x: InstructionId, dimensions: impl IntoIterator<Item = i64>) -> Added {
        let array = self.module.instructions.get(x).and_then(|i| i.shape.as_array());
        // What is not an array is refused below.
        let element_type = array.map_or(ElementType::Pred, |a| a.element_type);
        let zero = self.literal(Literal::zero(element_type))?;
        let add = self.reducer(BinaryOp::Add, element_type)?;
        self.reduce(x, zero, dimensions, add)
    }

    /// A tuple of values.
    pub fn tuple(&mut self, elements: &[InstructionId]) -> Added {
        self.push(Op::Tuple, elements)
    }

    /// Element `index` of a tuple.
    pub fn get_tuple_element(&mut self, tuple: InstructionId, index: i64) -> Added {
        self.push(Op::GetTupleElement { index }, &[tuple])
    }

    /// `body` applied to `init` again and again, as long as `condition` holds.
    pub fn while_loop(&mut self, condition: ComputationId, body: ComputationId, init: InstructionId) -> Added {
        self.push(Op::While { condition, body }, &[init])
    }

    /// `branches[index]` of its own operand.
    pub fn conditional(
        &mut self,
        index: InstructionId,
        branches: impl IntoIterator<Item = ComputationId>,
        operands: &[InstructionId],
    ) -> Added {
        let operands: SmallVec<[InstructionId; 8]> = [index].iter().chain(operands).copied().collect();
        self.push(Op::Conditional { branches: branches.into_iter().collect() }, &operands)
    }

    /// `to_apply` of those operands.
    pub fn call(&mut self, to_apply: ComputationId, operands: &[InstructionId]) -> Added {
        self.push(Op::Call { to_apply, is_composite: false }, operands)
    }
}

macro_rules! elementwise {
    ($($name:ident $variant:ident),+ ; $($unary:ident $unary_variant:ident),+ $(,)?) => {
        /// Operations on corresponding elements.
        impl Builder<'_> {
            $(
                #[doc = concat!("`", stringify!($name), "` of the corresponding elements of `x` and `y`.")]
                pub fn $name(&mut self, x: InstructionId, y: InstructionId) -> Added {
                    self.push(Op::Binary(BinaryOp::$variant), &[x, y])
                }
            )+
            $(
                #[doc = concat!("`", stringify!($unary), "` of each element of `x`.")]
                pub fn $unary(&mut self, x: InstructionId) -> Added {
                    self.push(Op::unary(UnaryOp::$unary_variant), &[x])
                }
            )+
        }
    };
}

elementwise! {
    add Add, and And, atan2 Atan2, complex Complex, divide Divide, maximum Maximum, minimum Minimum,
    multiply Multiply, or Or, power Power, remainder Remainder, shift_left ShiftLeft,
    shift_right_arithmetic ShiftRightArithmetic, shift_right_logical ShiftRightLogical, subtract Subtract, xor Xor;
    abs Abs, cbrt Cbrt, ceil Ceil, cosine Cosine, erf Erf, exponential Exponential,
    exponential_minus_one ExponentialMinusOne, floor Floor, imag Imag, is_finite IsFinite, log Log,
    log_plus_one LogPlusOne, logistic Logistic, negate Negate, not Not, population_count PopulationCount, real Real,
    rsqrt Rsqrt, sign Sign, sine Sine, sqrt Sqrt, tan Tan, tanh Tanh,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn f32s(dims: &[i64]) -> Shape {
        Shape::array(ElementType::F32, dims.iter().copied())
    }

    #[test]
    fn a_loop_is_built_with_its_computations_first() {
        let mut module = Module::new("count");
        let mut b = Builder::new(&mut module, "main");
        let s32 = Shape::scalar(ElementType::S32);
        let condition = b
            .define("below_ten", |b| {
                let i = b.parameter(0, s32.clone(), "i")?;
                let ten = b.constant(10i32)?;
                b.compare(ComparisonDirection::Lt, i, ten)
            })
            .unwrap();
        let body = b
            .define("next", |b| {
                let i = b.parameter(0, s32.clone(), "i")?;
                let one = b.constant(1i32)?;
                b.add(i, one)
            })
            .unwrap();
        let start = b.constant(0i32).unwrap();
        let last = b.while_loop(condition, body, start).unwrap();
        let main = b.finish_entry(last);
        assert_eq!(module.computations(), [condition, body, main]);
        assert_eq!(module.entry(), Some(main));
        assert_eq!(module.root(main), Some(last));
        assert_eq!(module[last].shape.to_string(), "s32[]");
        let names: Vec<&str> = module[body].instructions().iter().map(|&i| module[i].name()).collect();
        assert_eq!(names, ["i.1", "constant.1", "add"]);
    }

    #[test]
    fn shapes_are_inferred_with_row_major_layouts() {
        let mut module = Module::new("m");
        let mut b = Builder::new(&mut module, "main");
        let x = b.parameter(0, f32s(&[2, 3]), "x").unwrap();
        let y = b.parameter(1, f32s(&[3, 4]), "y").unwrap();
        let product = b.matmul(x, y).unwrap();
        let turned = b.transpose(product, [1, 0]).unwrap();
        let flat = b.reshape(turned, [8]).unwrap();
        let whole = b.convert(flat, ElementType::S8).unwrap();
        let total = b.sum(whole, [0]).unwrap();
        let shown: Vec<String> = [product, turned, flat, whole, total].map(|i| b.shape(i).to_string()).into();
        assert_eq!(shown, ["f32[2,4]{1,0}", "f32[4,2]{1,0}", "f32[8]{0}", "s8[8]{0}", "s8[]"]);
    }

    #[test]
    fn a_given_layout_is_kept() {
        let mut module = Module::new("m");
        let mut b = Builder::new(&mut module, "main");
        let shape = ArrayShape::new(ElementType::F32, [2, 3]).with_layout(crate::layout::Layout::new([0, 1]));
        let x = b.parameter(0, shape, "x").unwrap();
        let y = b.negate(x).unwrap();
        assert_eq!(b.shape(x).to_string(), "f32[2,3]{0,1}");
        assert_eq!(b.shape(y).to_string(), "f32[2,3]{1,0}");
    }

    #[test]
    fn what_cannot_be_is_refused_and_leaves_nothing_behind() {
        let mut module = Module::new("m");
        let mut b = Builder::new(&mut module, "main");
        let x = b.parameter(0, f32s(&[2]), "x").unwrap();
        let t = b.tuple(&[x]).unwrap();
        let before = b.module().instruction_slots();
        let refused = [
            b.add(x, t),
            b.not(x),
            b.matmul(t, x),
            b.convert(t, ElementType::F32),
            b.reshape(x, [3]),
            b.broadcast(x, [2, 2], [2]),
            b.constant_array([2], &[1f32]),
            b.constant_array([i64::MAX, 2], &[1u8]),
            b.get_tuple_element(t, -1),
            b.parameter(-1, f32s(&[]), "y"),
        ];
        let codes: Vec<u16> = refused.into_iter().map(|r| r.unwrap_err().code.number).collect();
        assert_eq!(codes, [302, 303, 302, 302, 314, 307, 326, 326, 321, 324]);
        assert_eq!(b.module().instruction_slots(), before);
    }

    #[test]
    fn operands_of_other_computations_are_refused() {
        let mut module = Module::new("m");
        let mut b = Builder::new(&mut module, "main");
        let x = b.parameter(0, f32s(&[]), "x").unwrap();
        let error = b.define("other", |b| b.negate(x)).unwrap_err();
        assert_eq!(error.code, &codes::infer::FOREIGN_OPERAND);
        b.finish_entry(x);
        assert_eq!(module.computations().len(), 1, "the computation that was given up is not listed");
    }
}
