//! Which values are expected to come out in parts, from the shardings alone.
//!
//! A sum that waits for another sum in parts is completed once, with it; whether another comes is known before the
//! program is written only by this guess. A wrong guess costs nothing but a select.

use super::Partitioner;
use super::axes::AxisSet;
use super::spec::Spec;
use hloom_ir::Op;
use hloom_ir::entity::InstructionId;
use hloom_ir::op::{BinaryOp, UnaryOp};

impl Partitioner<'_> {
    /// Guesses for the instructions of a computation, operands before users.
    pub(crate) fn predict(&mut self, order: &[InstructionId]) {
        for &i in order {
            let axes = self.predicted_axes(i);
            if !axes.is_empty() {
                self.predicted.set(i, axes);
            }
        }
    }

    fn predicted_axes(&self, i: InstructionId) -> AxisSet {
        let source = &self.source[i];
        if !source.shape.is_array() {
            return AxisSet::EMPTY;
        }
        let operands = source.operands();
        let spec = |o: InstructionId| self.annotated_array(o);
        let along = |spec: &Spec, dims: &[i64]| {
            dims.iter().filter_map(|&d| spec.dims.get(d as usize)).fold(AxisSet::EMPTY, |s, l| s.union(AxisSet::of(l)))
        };
        let single = |o: InstructionId| self.source[o].users().len() == 1;
        let passed = |o: InstructionId| if single(o) { self.predicted[o] } else { AxisSet::EMPTY };
        let made = match &source.op {
            Op::Dot(dot) => along(&spec(operands[0]), &dot.dims.lhs_contracting)
                .union(along(&spec(operands[1]), &dot.dims.rhs_contracting)),
            Op::Reduce { dimensions, .. } if operands.len() == 2 => along(&spec(operands[0]), dimensions),
            Op::Binary(BinaryOp::Add | BinaryOp::Subtract) => {
                let (a, b) = (passed(operands[0]), passed(operands[1]));
                if a.is_empty() { b } else { a }
            }
            Op::Binary(BinaryOp::Multiply) => {
                let (a, b) = (passed(operands[0]), passed(operands[1]));
                if a.is_empty() {
                    b
                } else if b.is_empty() {
                    a
                } else {
                    AxisSet::EMPTY
                }
            }
            Op::Binary(BinaryOp::Divide)
            | Op::Unary { op: UnaryOp::Negate, .. }
            | Op::Transpose { .. }
            | Op::Reshape { .. } => passed(operands[0]),
            _ => AxisSet::EMPTY,
        };
        if made.is_empty() {
            return made;
        }
        let result = self.annotated_array(i);
        if made.intersection(result.used()).is_empty() { made } else { AxisSet::EMPTY }
    }
}
