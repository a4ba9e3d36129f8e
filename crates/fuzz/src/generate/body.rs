//! A computation that is being grown: the values there are so far, and ways to find or make one that fits.

use super::Generator;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::instruction::Common;
use hloom_ir::module::{Module, NewInstruction};
use hloom_ir::op::{BinaryOp, Op};
use hloom_ir::shape::{ArrayShape, Shape};

/// A computation that is being grown.
pub(super) struct Body {
    pub(super) computation: ComputationId,
    /// Everything added so far that steps may use.
    pub(super) values: Vec<InstructionId>,
    /// Whether only plain steps are taken, as in fusions.
    pub(super) small: bool,
    /// Whether all devices come here equally often, so that collectives may stand here.
    pub(super) uniform: bool,
    /// Whether parameters may be added while it grows.
    pub(super) grows_parameters: bool,
    pub(super) next_parameter: i64,
    /// How many computations it is inside of.
    pub(super) depth: usize,
}

impl Body {
    pub(super) fn new(module: &mut Module, name: &str) -> Body {
        Body {
            computation: module.add_computation(name),
            values: Vec::new(),
            small: false,
            uniform: false,
            grows_parameters: false,
            next_parameter: 0,
            depth: 0,
        }
    }
}

impl Generator<'_, '_> {
    /// Adds an instruction. `shape` has no layouts; they are chosen here.
    pub(super) fn add(
        &mut self,
        body: &mut Body,
        op: Op,
        shape: impl Into<Shape>,
        operands: impl IntoIterator<Item = InstructionId>,
    ) -> InstructionId {
        let mut shape = self.with_layouts(&shape.into());
        if let Op::Constant(_) = op {
            shape = unpacked(&shape);
        }
        // Asynchronous operations are printed as what they wrap, and the reader calls what is inside as XLA does, by
        // its opcode: those names are left to it.
        let stem = match &op {
            Op::Binary(BinaryOp::Multiply) => "product",
            Op::CustomCall(_) => "foreign",
            other => other.opcode().name(),
        };
        let name = match self.choices.below(8) {
            0 => "v".into(),
            1 => format!("{stem}.{}", self.choices.below(99)),
            _ => stem.to_string(),
        };
        let new = NewInstruction {
            name: name.into(),
            op,
            shape,
            operands: operands.into_iter().collect(),
            common: Common::default(),
        };
        let id = self.module.add_instruction(body.computation, new);
        // What has only been started is for the operation that ends it; other steps must not use it.
        if !is_unfinished(&self.module[id].op) {
            body.values.push(id);
        }
        self.budget = self.budget.saturating_sub(1);
        id
    }

    /// Adds the next parameter.
    pub(super) fn parameter(&mut self, body: &mut Body, shape: Shape) -> InstructionId {
        let number = body.next_parameter;
        body.next_parameter += 1;
        self.add(body, Op::parameter(number), shape, [])
    }

    /// Takes the root of `body` to be the values that nothing uses, or one of them.
    pub(super) fn finish(&mut self, body: &mut Body) {
        let mut unused: Vec<_> = body.values.iter().copied().filter(|&v| self.module[v].users().is_empty()).collect();
        unused.truncate(12);
        let root = match unused[..] {
            [one] => one,
            [first, ..] if self.choices.chance(15) => first,
            [] => body.values[0],
            _ => {
                let shape = Shape::tuple(unused.iter().map(|&v| self.module[v].shape.clone()));
                self.add(body, Op::Tuple, shape, unused)
            }
        };
        self.module.set_root(root);
    }

    /// The shape of an array value, without its layout.
    pub(super) fn array_shape(&self, id: InstructionId) -> Option<ArrayShape> {
        let mut shape = self.module[id].shape.as_array()?.clone();
        shape.layout = None;
        Some(shape)
    }

    /// Some array among the values of `body` that `fits`, with its shape.
    pub(super) fn find(
        &mut self,
        body: &Body,
        fits: impl Fn(&ArrayShape) -> bool,
    ) -> Option<(InstructionId, ArrayShape)> {
        let n = body.values.len();
        let start = self.choices.below(n);
        // A bounded search keeps large modules linear.
        let found = (0..n.min(48))
            .map(|i| body.values[(start + i) % n])
            .find(|&v| matches!(&self.module[v].shape, Shape::Array(a) if fits(a)))?;
        Some((found, self.array_shape(found)?))
    }

    /// Some array without dynamic dimensions.
    pub(super) fn find_static(
        &mut self,
        body: &Body,
        fits: impl Fn(&ArrayShape) -> bool,
    ) -> Option<(InstructionId, ArrayShape)> {
        self.find(body, |a| !a.is_dynamic() && fits(a))
    }

    /// A static array that `fits`, or a new one made by `make`.
    pub(super) fn find_or(
        &mut self,
        body: &mut Body,
        fits: impl Fn(&ArrayShape) -> bool,
        make: impl FnOnce(&mut Self) -> ArrayShape,
    ) -> (InstructionId, ArrayShape) {
        if let Some(found) = self.find_static(body, fits) {
            return found;
        }
        let shape = make(self);
        (self.fresh(body, &shape), shape)
    }

    /// A value of exactly that shape: one there is, or a new one. Dynamic shapes must be there already.
    pub(super) fn value_of(&mut self, body: &mut Body, shape: &ArrayShape) -> InstructionId {
        if (shape.is_dynamic() || !self.choices.chance(10))
            && let Some((found, _)) = self.find(body, |a| a.equal_ignoring_layout(shape))
        {
            return found;
        }
        self.fresh(body, shape)
    }

    /// A value of that shape from anywhere: a leaf of the program.
    pub(super) fn fresh(&mut self, body: &mut Body, shape: &ArrayShape) -> InstructionId {
        if body.grows_parameters && self.choices.chance(30) {
            return self.parameter(body, shape.clone().into());
        }
        let t = shape.element_type;
        if shape.element_count().is_some_and(|n| n <= 16) && !shape.is_dynamic() {
            return self.constant(body, shape);
        }
        if shape.rank() > 0 && t != ElementType::Pred && self.choices.chance(40) {
            let dimension = self.choices.below(shape.rank()) as i64;
            return self.add(body, Op::Iota { dimension }, shape.clone(), []);
        }
        let scalar = self.constant(body, &ArrayShape::new(t, []));
        self.add(body, Op::Broadcast { dimensions: Default::default() }, shape.clone(), [scalar])
    }

    /// A constant of any value.
    pub(super) fn constant(&mut self, body: &mut Body, shape: &ArrayShape) -> InstructionId {
        let laid_out = unpacked(&self.with_layouts(&shape.clone().into()));
        let literal = super::literal_of(self.choices, &laid_out);
        self.add(body, Op::constant(literal), shape.clone(), [])
    }

    /// The scalar `value` as a constant of an integer type.
    pub(super) fn integer(&mut self, body: &mut Body, t: ElementType, value: i64) -> InstructionId {
        let shape = Shape::scalar(t);
        let literal = super::literals::integer_scalar(&unpacked(&self.with_layouts(&shape)), value);
        self.add(body, Op::constant(literal), shape, [])
    }

    /// A computation that applies `op` to two scalars.
    pub(super) fn scalar_computation(&mut self, op: BinaryOp, t: ElementType) -> ComputationId {
        if let Some(&known) = self.scalar_computations.get(&(op, t)) {
            return known;
        }
        let mut body = Body::new(&mut self.module, &format!("{}_{t}", op.opcode().name()));
        let scalar = Shape::scalar(t);
        let a = self.parameter(&mut body, scalar.clone());
        let b = self.parameter(&mut body, scalar.clone());
        let root = self.add(&mut body, Op::Binary(op), scalar, [a, b]);
        self.module.set_root(root);
        self.scalar_computations.insert((op, t), body.computation);
        body.computation
    }

    /// An operation that combines two values of type `t`, whatever their order.
    pub(super) fn combiner(&mut self, t: ElementType) -> BinaryOp {
        use BinaryOp::*;
        *match t {
            ElementType::Pred => self.choices.pick(&[And, Or]),
            _ if t.is_complex() => self.choices.pick(&[Add, Multiply]),
            _ if t.is_integer() => self.choices.pick(&[Add, Multiply, Maximum, Minimum, And, Or, Xor]),
            _ => self.choices.pick(&[Add, Maximum, Minimum, Multiply]),
        }
    }

    /// A number that no other channel has.
    pub(super) fn channel(&mut self) -> i64 {
        self.next_channel += 1;
        self.next_channel - 1
    }
}

/// `shape` with every element in bytes of its own: a constant is never packed.
fn unpacked(shape: &Shape) -> Shape {
    shape.map_arrays(&mut |array| {
        let mut array = array.clone();
        if let Some(layout) = &mut array.layout {
            layout.element_size_in_bits = 0;
        }
        array
    })
}

/// Whether only a matching operation may use the result.
fn is_unfinished(op: &Op) -> bool {
    matches!(
        op,
        Op::AllReduceStart(_)
            | Op::AllGatherStart(_)
            | Op::CollectivePermuteStart(_)
            | Op::AsyncStart(_)
            | Op::AsyncUpdate { .. }
            | Op::CopyStart { .. }
            | Op::Send(_)
            | Op::Recv(_)
    )
}
