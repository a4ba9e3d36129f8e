//! Windows that reach from an element to the end of its dimension: running sums and the like.
//!
//! Taken as windows they would cost the square of the dimension's size. What a window holds is what its neighbour holds
//! and one element more, so that one loop along the dimension gives them all. That takes the function to be associative
//! and the initial value to change nothing, as the semantics of windows ask for.

use crate::affine::Affine;
use crate::graph::{Function, FunctionOp, Graph, ScalarOp};
use crate::lower::{Index, linear, lower_with};
use crate::program::{Item, LoopProgram, Reduce, Store};
use crate::unsupported::Unsupported;
use hloom_ir::ElementType;
use hloom_ir::attributes::Window;
use hloom_ir::op::BinaryOp;
use smallvec::SmallVec;

/// A dimension along which windows reach to an end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PrefixScan {
    dimension: usize,
    /// Whether the windows reach to the last element instead of the first.
    from_end: bool,
}

impl PrefixScan {
    /// Below this size windows are short enough to be reduced one by one, all at once.
    const LEAST: i64 = 8;

    /// Whether the windows over an array of those sizes are such.
    pub fn of(window: &Window, dims: &[i64]) -> Option<PrefixScan> {
        let mut found = None;
        for (d, (w, &size)) in window.dims.iter().zip(dims).enumerate() {
            let is_plain = w.stride == 1 && w.window_dilation == 1 && w.base_dilation == 1;
            if !is_plain {
                return None;
            }
            let none = w.size == 1 && w.padding_low == 0 && w.padding_high == 0;
            if none {
                continue;
            }
            let from_end = w.padding_low == 0;
            let reach = if from_end { w.padding_high } else { w.padding_low };
            let one_sided = from_end || w.padding_high == 0;
            if found.is_some() || w.size != size || reach != size - 1 || !one_sided || size < Self::LEAST {
                return None;
            }
            found = Some(PrefixScan { dimension: d, from_end });
        }
        found
    }

    /// The loops that write all results of the node.
    pub fn program(self, graph: &Graph, node: u32, function: &Function) -> Result<LoopProgram, Unsupported> {
        let data = &graph.nodes[node as usize];
        let rank = data.dims.len();
        // The dimension itself is the innermost loop, beside the others.
        let order: Vec<usize> = (0..rank).filter(|&d| d != self.dimension).chain([self.dimension]).collect();
        let sizes: Vec<i64> = order.iter().map(|&d| data.dims[d]).collect();
        let (inputs, inits) = data.operands.split_at(data.operands.len() / 2);
        let function = self.step(function);
        let program = lower_with(graph, &sizes, &|lowerer, index| {
            let mut at: Index = data.dims.iter().map(|_| Affine::default()).collect();
            for (&d, i) in order.iter().zip(index) {
                at[d] = i.clone();
            }
            if self.from_end {
                let last = data.dims[self.dimension] - 1;
                at[self.dimension] = Affine::constant(last).plus(&at[self.dimension], -1);
            }
            let mut scan = Reduce {
                vars: SmallVec::new(),
                inits: SmallVec::new(),
                inputs: SmallVec::new(),
                condition: None,
                function: function.clone(),
            };
            for (n, &o) in inits.iter().enumerate() {
                let item = lowerer.value(o, &[], None)?;
                scan.inits.push(lowerer.converted(item, function.parameters[n]));
            }
            for (n, &o) in inputs.iter().enumerate() {
                let item = lowerer.value(o, &at, None)?;
                scan.inputs.push(lowerer.converted(item, function.parameters[inits.len() + n]));
            }
            let scan = lowerer.add(Item::Scan(Box::new(scan)), data.types[0]);
            let offset = linear(&at, &data.dims);
            for (n, output) in graph.outputs.iter().enumerate().filter(|(_, o)| o.node == node) {
                let carried = function.parameters[output.result as usize];
                let element_type = data.types[output.result as usize];
                let item = lowerer.add(Item::ReduceResult(scan, output.result), carried);
                let item = lowerer.converted(item, element_type);
                let (buffer, offset) = (graph.inputs + n as u32, offset.clone());
                let store = Store { buffer, offset, item, element_type, combine: None, condition: None };
                lowerer.program.stores.push(store);
            }
            Ok(())
        })?;
        let innermost = program.nest.last().map(|&v| program.extents[v as usize]);
        if innermost != sizes.last().copied() {
            return Err(Unsupported::new("a running reduce over what is taken apart otherwise"));
        }
        Ok(program)
    }

    /// What is done with each element. PrefixScan sums of f32 are carried in f64: their error would grow all the way.
    fn step(self, function: &Function) -> Function {
        let mut step = function.clone();
        let widens = function.single_operation() == Some(BinaryOp::Add);
        for t in step.parameters.iter_mut().chain(step.code.iter_mut().map(|s| &mut s.element_type)) {
            if widens && *t == ElementType::F32 {
                *t = ElementType::F64;
            }
        }
        if self.from_end {
            // From the end the new element is the left one.
            let half = step.parameters.len() as u32 / 2;
            for s in &mut step.code {
                if let FunctionOp::Parameter(n) = &mut s.op {
                    *n = if *n < half { *n + half } else { *n - half };
                }
            }
        }
        debug_assert!(!widens || step.code.iter().all(|s| !matches!(s.op, FunctionOp::Scalar(ScalarOp::Convert))));
        step
    }
}
