//! Reductions that look for a place: the greatest number and where it stands, or the least, or the first that is no number.
//!
//! Such a reduce may be done in lanes, each with a share of the elements, if its function gives the same however the
//! elements are grouped. The function is a program's, so this has to be found out. Where it does nothing but compare and
//! choose, all that counts is how its arguments are ordered; trying all orders of three elements is then a proof.

use crate::graph::{Function, FunctionOp, ScalarOp};
use hloom_ir::ElementType;
use hloom_ir::attributes::ComparisonDirection;
use hloom_ir::op::BinaryOp;

/// A number (0, 1, 2, or 3 for one that is none) and the place where it stands.
type Found = (u8, u8);
const NAN: u8 = 3;

/// What is in a register while a function is tried.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cell {
    Number(u8),
    Place(u8),
    Truth(bool),
}

/// The function, in the order in which the elements stand: of two that are no numbers the first may be wanted.
fn combined(function: &Function, a: Found, b: Found) -> Option<Found> {
    if a.1 <= b.1 { apply(function, a, b) } else { apply(function, b, a) }
}

/// Whether the function takes two pairs of a number and a place to one of them, and the same one however many are grouped.
pub fn is_arg_reduce(function: &Function) -> bool {
    let is_place =
        |t: ElementType| matches!(t, ElementType::S32 | ElementType::S64 | ElementType::U32 | ElementType::U64);
    let pairs = match function.parameters[..] {
        [n, p, m, q] => n == m && p == q && n.is_float() && is_place(p),
        _ => false,
    };
    if !pairs || function.results.len() != 2 || function.code.len() > 64 {
        return false;
    }
    let numbers = || 0..=NAN;
    for (a, b, c) in numbers().flat_map(|a| numbers().flat_map(move |b| numbers().map(move |c| (a, b, c)))) {
        // Places differ, but for that of the initial value, which may be that of the first element.
        for places in
            [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0], [0, 0, 1], [0, 1, 0], [1, 0, 0]]
        {
            let [x, y, z] = [(a, places[0]), (b, places[1]), (c, places[2])];
            let left = combined(function, x, y).and_then(|xy| combined(function, xy, z));
            let right = combined(function, y, z).and_then(|yz| combined(function, x, yz));
            let same_place = x.1 == y.1 && x.0 != y.0;
            if left.is_none() || (left != right && !same_place) {
                return false;
            }
        }
        // Only then is it the same to begin with the initial value in every lane.
        if combined(function, (a, 0), (a, 0)) != Some((a, 0)) {
            return false;
        }
    }
    true
}

fn apply(function: &Function, a: Found, b: Found) -> Option<Found> {
    let mut cells: Vec<Cell> = Vec::with_capacity(function.code.len());
    for step in &function.code {
        let operand = |n: usize| step.operands.get(n).and_then(|&o| cells.get(o as usize)).copied();
        let cell = match &step.op {
            FunctionOp::Parameter(0) => Cell::Number(a.0),
            FunctionOp::Parameter(1) => Cell::Place(a.1),
            FunctionOp::Parameter(2) => Cell::Number(b.0),
            FunctionOp::Parameter(3) => Cell::Place(b.1),
            FunctionOp::Scalar(ScalarOp::Compare { direction, total: false }) => {
                Cell::Truth(compare(*direction, operand(0)?, operand(1)?)?)
            }
            FunctionOp::Scalar(ScalarOp::Binary(op)) => {
                let (Cell::Truth(x), Cell::Truth(y)) = (operand(0)?, operand(1)?) else { return None };
                Cell::Truth(match op {
                    BinaryOp::Or => x || y,
                    BinaryOp::And => x && y,
                    BinaryOp::Xor => x != y,
                    _ => return None,
                })
            }
            FunctionOp::Scalar(ScalarOp::Unary(hloom_ir::op::UnaryOp::Not)) => match operand(0)? {
                Cell::Truth(x) => Cell::Truth(!x),
                _ => return None,
            },
            FunctionOp::Scalar(ScalarOp::Select) => {
                let Cell::Truth(truth) = operand(0)? else { return None };
                if truth { operand(1)? } else { operand(2)? }
            }
            _ => return None,
        };
        cells.push(cell);
    }
    let result = |n: usize| cells.get(*function.results.get(n)? as usize).copied();
    match (result(0)?, result(1)?) {
        (Cell::Number(n), Cell::Place(p)) => Some((n, p)),
        _ => None,
    }
}

fn compare(direction: ComparisonDirection, a: Cell, b: Cell) -> Option<bool> {
    let (order, has_nan) = match (a, b) {
        (Cell::Number(a), Cell::Number(b)) => (a.cmp(&b), a == NAN || b == NAN),
        (Cell::Place(a), Cell::Place(b)) => (a.cmp(&b), false),
        _ => return None,
    };
    Some(match direction {
        ComparisonDirection::Eq => order.is_eq() && !has_nan,
        ComparisonDirection::Ne => order.is_ne() || has_nan,
        ComparisonDirection::Lt => order.is_lt() && !has_nan,
        ComparisonDirection::Le => order.is_le() && !has_nan,
        ComparisonDirection::Gt => order.is_gt() && !has_nan,
        ComparisonDirection::Ge => order.is_ge() && !has_nan,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::FunctionStep;
    use smallvec::smallvec;

    /// The greatest with its place; of equal ones the first if `first`, of NaNs the first if `nan`.
    fn greatest(first: bool, nan: bool) -> Function {
        use ComparisonDirection::{Eq, Gt, Lt, Ne};
        let compare = |direction| FunctionOp::Scalar(ScalarOp::Compare { direction, total: false });
        let binary = |op| FunctionOp::Scalar(ScalarOp::Binary(op));
        let select = || FunctionOp::Scalar(ScalarOp::Select);
        let parameter = |n| FunctionOp::Parameter(n);
        let (f, s, p) = (ElementType::F32, ElementType::S32, ElementType::Pred);
        let mut code = Vec::new();
        let mut push = |op, operands: &[u32], element_type| {
            code.push(FunctionStep { op, operands: operands.into(), element_type });
            code.len() as u32 - 1
        };
        let (a, i, b, j) = (
            push(parameter(0), &[], f),
            push(parameter(1), &[], s),
            push(parameter(2), &[], f),
            push(parameter(3), &[], s),
        );
        let mut takes = push(compare(Gt), &[a, b], p);
        if nan {
            let is_nan = push(compare(Ne), &[a, a], p);
            takes = push(binary(BinaryOp::Or), &[takes, is_nan], p);
        }
        let value = push(select(), &[takes, a, b], f);
        if first {
            let (equal, before) = (push(compare(Eq), &[a, b], p), push(compare(Lt), &[i, j], p));
            let both = push(binary(BinaryOp::And), &[equal, before], p);
            takes = push(binary(BinaryOp::Or), &[takes, both], p);
        }
        let place = push(select(), &[takes, i, j], s);
        Function { parameters: smallvec![f, s, f, s], code, results: smallvec![value, place] }
    }

    #[test]
    fn what_gives_the_same_in_any_grouping_is_found() {
        assert!(is_arg_reduce(&greatest(true, true)));
    }

    #[test]
    fn what_depends_on_the_grouping_is_not() {
        // A NaN is dropped when a number follows it, but not when it follows.
        assert!(!is_arg_reduce(&greatest(true, false)));
        // The sum of two numbers is no choice between them.
        let mut sum = greatest(true, true);
        sum.code[6].op = FunctionOp::Scalar(ScalarOp::Binary(BinaryOp::Add));
        assert!(!is_arg_reduce(&sum));
    }
}
