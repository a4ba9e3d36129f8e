//! Scan, written out as a loop over the slices of its inputs.

use super::{beside, dims};
use crate::rewrite::Rule;
use hloom_ir::attributes::ComparisonDirection;
use hloom_ir::builder::Builder;
use hloom_ir::entity::InstructionId;
use hloom_ir::infer::ShapeError;
use hloom_ir::layout::DimVec;
use hloom_ir::literal::Literal;
use hloom_ir::module::Module;
use hloom_ir::op::{Op, Scan};
use hloom_ir::opcode::Opcode;
use hloom_ir::shape::{ArrayShape, Shape};

/// The rules.
pub(super) static RULES: &[Rule] = &[Rule {
    name: "scan",
    statement: "scan(x, carry), to_apply=f → a loop that applies f to one slice of x after another",
    opcodes: &[Opcode::Scan],
    apply: scan,
}];

/// A scan being written out. The state of its loop is the number of turns, the operands with the carries as they are, and
/// the outputs so far.
struct Turns {
    attributes: Scan,
    /// How many operands there are, and how many of these are no carries.
    operands: usize,
    inputs: usize,
    outputs: usize,
    length: i32,
    state: Shape,
}

fn scan(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let Op::Scan(attributes) = &module[i].op else { return None };
    let attributes = (**attributes).clone();
    let operands = module[i].operands().to_vec();
    let carries = usize::try_from(attributes.num_carries).ok()?;
    let inputs = operands.len().checked_sub(carries).filter(|&n| n > 0)?;
    // One output without carries may be no tuple.
    let (results, is_tuple) = match &module[i].shape {
        Shape::Tuple(parts) => (&parts[..], true),
        whole => (std::slice::from_ref(whole), false),
    };
    let arrays: Vec<ArrayShape> =
        results.iter().map(|s| s.as_array().filter(|a| !a.is_dynamic()).cloned()).collect::<Option<_>>()?;
    let outputs = arrays.len().checked_sub(carries)?;
    let made = &module[module.root(attributes.to_apply)?].shape;
    (made.as_tuple().map(<[Shape]>::len) == Some(arrays.len())).then_some(())?;
    let at = usize::try_from(attributes.dimension).ok()?;
    let length = i32::try_from(*dims(module, operands[0])?.get(at)?).ok()?;
    let mut b = beside(module, i);
    let mut state = vec![b.constant(0i32).ok()?];
    state.extend(&operands);
    for output in &arrays[..outputs] {
        let zero = b.literal(Literal::zero(output.element_type)).ok()?;
        state.push(b.broadcast(zero, output.dims().iter().copied(), []).ok()?);
    }
    let elements = |first: usize, count: usize| first..first + count;
    let wanted = elements(1 + operands.len(), outputs).chain(elements(1 + inputs, carries));
    if length == 0 {
        let wanted: Vec<InstructionId> = wanted.map(|n| state[n]).collect();
        return together(&mut b, &wanted, is_tuple);
    }
    let init = b.tuple(&state).ok()?;
    let state = b.shape(init).clone();
    let turns = Turns { attributes, operands: operands.len(), inputs, outputs, length, state };
    let condition = b.define("scan_condition", |b| turns.condition(b)).ok()?;
    let body = b.define("scan_body", |b| turns.body(b)).ok()?;
    let end = b.while_loop(condition, body, init).ok()?;
    let wanted = wanted.map(|n| b.get_tuple_element(end, n as i64).ok()).collect::<Option<Vec<_>>>()?;
    together(&mut b, &wanted, is_tuple)
}

/// The results as the scan gives them.
fn together(b: &mut Builder<'_>, results: &[InstructionId], is_tuple: bool) -> Option<InstructionId> {
    match results {
        &[only] if !is_tuple => Some(only),
        _ => b.tuple(results).ok(),
    }
}

type Added = Result<InstructionId, ShapeError>;

impl Turns {
    fn condition(&self, b: &mut Builder<'_>) -> Added {
        let state = b.parameter(0, self.state.clone(), "state")?;
        let turn = b.get_tuple_element(state, 0)?;
        let end = b.constant(self.length)?;
        b.compare(ComparisonDirection::Lt, turn, end)
    }

    fn body(&self, b: &mut Builder<'_>) -> Added {
        let dimension = self.attributes.dimension as usize;
        let state = b.parameter(0, self.state.clone(), "state")?;
        let count = 1 + self.operands + self.outputs;
        let mut next = (0..count).map(|n| b.get_tuple_element(state, n as i64)).collect::<Result<Vec<_>, _>>()?;
        let turn = next[0];
        let zero = b.constant(0i32)?;
        let at = match self.attributes.is_reverse {
            true => {
                let last = b.constant(self.length - 1)?;
                b.subtract(last, turn)?
            }
            false => turn,
        };
        let starts = |rank: usize| (0..rank).map(|d| if d == dimension { at } else { zero }).collect::<Vec<_>>();
        let mut arguments = Vec::new();
        for &input in &next[1..=self.inputs] {
            let mut sizes = sizes(b, input);
            let starts = starts(sizes.len());
            sizes[dimension] = 1;
            let slice = b.dynamic_slice(input, &starts, sizes.iter().copied())?;
            sizes.remove(dimension);
            arguments.push(b.reshape(slice, sizes)?);
        }
        arguments.extend(&next[1 + self.inputs..=self.operands]);
        let made = b.call(self.attributes.to_apply, &arguments)?;
        for n in 0..self.outputs {
            let value = b.get_tuple_element(made, n as i64)?;
            let mut sizes = sizes(b, value);
            sizes.insert(dimension, 1);
            let slice = b.reshape(value, sizes)?;
            let place = 1 + self.operands + n;
            let starts = starts(self::sizes(b, next[place]).len());
            next[place] = b.dynamic_update_slice(next[place], slice, &starts)?;
        }
        for n in self.inputs..self.operands {
            next[1 + n] = b.get_tuple_element(made, (self.outputs + n - self.inputs) as i64)?;
        }
        let one = b.constant(1i32)?;
        next[0] = b.add(turn, one)?;
        b.tuple(&next)
    }
}

fn sizes(b: &Builder<'_>, i: InstructionId) -> DimVec {
    b.shape(i).as_array().map(|a| a.dims().into()).unwrap_or_default()
}
