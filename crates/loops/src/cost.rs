//! What the items of programs take, in additions, by the one table of [`hloom_cost::element`].

use crate::graph::{Function, FunctionOp, ScalarOp};
use crate::program::Item;
use hloom_cost::element;
use hloom_ir::ElementType;

/// A step of a scan waits for the one before: unless vectors hold several that lie side by side, it takes so many times as
/// long as one of many that are done at once.
pub(crate) const WAITING: f64 = 10.0;
/// Work on an index, which several elements of a vector share.
const INDEX: f64 = 0.5;

impl ScalarOp {
    /// What one result of the type takes.
    fn additions(self, to: ElementType) -> f64 {
        match self {
            ScalarOp::Unary(op) => element::unary(op, to),
            ScalarOp::Binary(op) => element::binary(op, to),
            ScalarOp::Convert => element::convert(to),
            ScalarOp::Compare { .. } | ScalarOp::Select | ScalarOp::BitcastConvert => 1.0,
            ScalarOp::Clamp | ScalarOp::ReducePrecision { .. } => 2.0,
        }
    }
}

impl Function {
    fn additions(&self) -> f64 {
        let each = self.code.iter().map(|step| match &step.op {
            FunctionOp::Scalar(op) => op.additions(step.element_type),
            FunctionOp::Parameter(_) | FunctionOp::Constant(..) => 0.0,
        });
        each.sum()
    }
}

impl Item {
    /// What it takes to compute it once, what it needs aside, and but for what is read of memory. Reductions hide
    /// behind what they read.
    pub(crate) fn additions(&self, to: ElementType) -> f64 {
        match self {
            Item::Scalar(op, _) => op.additions(to),
            Item::Apply(function, _) => function.additions(),
            Item::Quotient(..) | Item::Remainder(..) => element::INDEX_QUOTIENT,
            Item::Scan(scan) => scan.function.additions(),
            Item::Constant(..) | Item::Load { .. } => 0.0,
            Item::Index(_) | Item::InRange { .. } | Item::Reduce(_) | Item::ReduceResult(..) => INDEX,
        }
    }
}
