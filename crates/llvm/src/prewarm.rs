//! Making LLVM ready ahead of time.
//!
//! The first kernel of a process costs several times what it costs later: tables are built, and the code of the compiler
//! itself is read from the disk. That can be done while something else is waited for.

use crate::generator::Effort;
use crate::library::{Options, compile_graph};
use hloom_ir::ElementType::F32;
use hloom_ir::op::{BinaryOp, UnaryOp};
use hloom_loops::graph::{Function, FunctionOp, FunctionStep, Graph, Node, NodeOp, ScalarOp, ValueRef};
use smallvec::smallvec;

/// Compiles a small kernel of the kind that programs have, and forgets it.
pub fn prewarm(effort: Effort) {
    let options = Options { threads: 1, effort, ..Options::default() };
    // What fails here fails again where it matters, and is reported there.
    let _ = compile_graph(sample(), &options);
}

/// The sum of exponentials along rows.
fn sample() -> Graph {
    let value = |node| ValueRef { node, result: 0 };
    let node = |op, operands: &[u32], dims: &[i64]| Node {
        op,
        operands: operands.iter().map(|&o| value(o)).collect(),
        types: smallvec![F32],
        dims: dims.into(),
    };
    let step = |op, operands: &[u32]| FunctionStep { op, operands: operands.into(), element_type: F32 };
    let sum = Function {
        parameters: smallvec![F32, F32],
        code: vec![
            step(FunctionOp::Parameter(0), &[]),
            step(FunctionOp::Parameter(1), &[]),
            step(FunctionOp::Scalar(ScalarOp::Binary(BinaryOp::Add)), &[0, 1]),
        ],
        results: smallvec![2],
    };
    Graph {
        nodes: vec![
            node(NodeOp::Parameter(0), &[], &[64, 100]),
            node(NodeOp::Parameter(1), &[], &[]),
            node(NodeOp::Scalar(ScalarOp::Unary(UnaryOp::Exponential)), &[0], &[64, 100]),
            node(NodeOp::Reduce { dimensions: smallvec![1], function: sum }, &[2, 1], &[64]),
        ],
        outputs: vec![value(3), value(2)],
        inputs: 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sample_is_a_kernel() {
        for effort in [Effort::Quick, Effort::Full] {
            let options = Options { threads: 1, effort, ..Options::default() };
            assert_eq!(compile_graph(sample(), &options), Ok(()));
        }
    }
}
