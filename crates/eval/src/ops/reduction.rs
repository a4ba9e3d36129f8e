//! Operations that fold many elements into one by a function of the program: map, reduce, reduce-window,
//! select-and-scatter, scan.
//!
//! The function becomes a [`crate::scalar`] program where it can. Sums and products of narrow floats are carried in f64
//! and rounded once at the end ([`crate::fold`]): closer to the true value than any order of rounded additions, which is what an
//! oracle is asked for.

use crate::fold::Fold;
use crate::interpreter::{Device, OperandValues};
use crate::ops::data_movement::{concatenate, dynamic_slice, transpose};
use crate::ops::elementwise::convert;
use crate::scalar::Scalar;
use crate::window::WindowWalk;
use hloom_ir::attributes::Window;
use hloom_ir::diagnostic::codes;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::layout::DimVec;
use hloom_ir::op::{BinaryOp, Op, Scan};
use hloom_ir::shape::Shape;
use hloom_value::ExecutionError;
use hloom_value::array::{Array, Value, index_count};
use hloom_value::strided::Indices;

/// Evaluates one instruction of this family.
pub fn evaluate(device: &mut Device<'_>, i: InstructionId, operands: OperandValues) -> Result<Value, ExecutionError> {
    let module = device.module();
    let shape = &module[i].shape;
    let results = match &module[i].op {
        Op::Map { to_apply, .. } => map(device, *to_apply, all_arrays(operands)?)?,
        Op::Reduce { dimensions, to_apply } => {
            let (inputs, inits) = halves(operands)?;
            reduce(device, inputs, inits, dimensions, *to_apply)?
        }
        Op::ReduceWindow { window, to_apply } => {
            let (inputs, inits) = halves(operands)?;
            reduce_window(device, &inputs, inits, window, *to_apply)?
        }
        Op::SelectAndScatter { window, select, scatter } => {
            vec![select_and_scatter(device, operands, window, *select, *scatter)?]
        }
        Op::Scan(scan_attributes) => return scan(device, operands, scan_attributes, shape),
        other => return Err(ExecutionError::bug(format!("{} is not a reduction", other.opcode()))),
    };
    as_shaped(results, shape)
}

/// `results` in the form and of the types that `shape` has.
pub fn as_shaped(results: Vec<Array>, shape: &Shape) -> Result<Value, ExecutionError> {
    let types: Vec<ElementType> = shape.leaves().iter().filter_map(|(_, s)| s.element_type()).collect();
    if types.len() != results.len() {
        return Err(ExecutionError::bug(format!("{} results for {shape}", results.len())));
    }
    let mut values = Vec::with_capacity(results.len());
    for (array, to) in results.into_iter().zip(types) {
        values.push(Value::Array(convert(array, to)?));
    }
    match shape.is_tuple() {
        true => Ok(Value::Tuple(values)),
        false => values.pop().ok_or_else(|| ExecutionError::bug("an operation has no result")),
    }
}

fn all_arrays(operands: OperandValues) -> Result<Vec<Array>, ExecutionError> {
    operands.into_iter().map(Value::into_array).collect()
}

/// Checks that arrays which are walked together have the same sizes: those of dynamic dimensions are known only now.
pub fn same_sizes(arrays: &[Array]) -> Result<(), ExecutionError> {
    let Some((first, rest)) = arrays.split_first() else { return Err(ExecutionError::bug("an operand is missing")) };
    match rest.iter().find(|a| a.dims() != first.dims()) {
        Some(other) => Err(ExecutionError::new(
            &codes::eval::UNSUPPORTED,
            format!("operands have different sizes: {:?} and {:?}", first.dims(), other.dims()),
        )),
        None => Ok(()),
    }
}

/// The accumulators of a reduction: the types that its function takes first, and the initial values as those.
fn accumulators(device: &Device<'_>, function: ComputationId, inits: Vec<Array>) -> Result<Vec<Array>, ExecutionError> {
    let types = Fold::parameter_types(device.module(), function);
    inits.into_iter().zip(types).map(|(init, t)| convert(init, t)).collect()
}

/// One of the values that a reduction folds beside each other, or of other types than it accumulates them in.
struct Component {
    fold: Fold,
    /// The type in which the function takes the values.
    value: ElementType,
    /// The type in which they are folded: floats are carried wide, and rounded once at the end.
    carried: ElementType,
}

impl Component {
    /// The components of a reduction by `function`, if each is folded by a known operation; not for a single value of one
    /// type, which needs no converting.
    fn all_of(
        device: &Device<'_>,
        function: ComputationId,
        accumulators: &[ElementType],
        inputs: &[ElementType],
    ) -> Option<Vec<Component>> {
        let module = device.module();
        if accumulators.len() == 1 && accumulators == inputs && Fold::known_operation(module, function).is_some() {
            return None;
        }
        let operations = Fold::known_operations(module, function)?;
        let taken = Fold::parameter_types(module, function);
        let values = taken.get(accumulators.len()..)?;
        let component = |(op, (&accumulator, &value)): (BinaryOp, (&ElementType, &ElementType))| {
            let is_real = |t: ElementType| t.is_float();
            let carried = match accumulator {
                _ if is_real(accumulator) && is_real(value) => ElementType::F64,
                _ if accumulator == value => accumulator,
                _ => return None,
            };
            let fold = Fold::of_operation(device, function, op);
            fold.knows(carried).then_some(Component { fold, value, carried })
        };
        operations.into_iter().zip(accumulators.iter().zip(values)).map(component).collect()
    }

    fn value(&self, input: Array) -> Result<Array, ExecutionError> {
        convert(convert(input, self.value)?, self.carried)
    }

    fn accumulator(&self, init: Array) -> Result<Array, ExecutionError> {
        convert(init, self.carried)
    }
}

fn types_of(arrays: &[Array]) -> Vec<ElementType> {
    arrays.iter().map(Array::element_type).collect()
}

/// The operands of a variadic reduction: as many inputs as initial values.
fn halves(operands: OperandValues) -> Result<(Vec<Array>, Vec<Array>), ExecutionError> {
    let mut inputs = all_arrays(operands)?;
    if inputs.is_empty() || inputs.len() % 2 != 0 {
        return Err(ExecutionError::bug("a reduction needs an initial value for each input"));
    }
    let inits = inputs.split_off(inputs.len() / 2);
    Ok((inputs, inits))
}

fn map(device: &mut Device<'_>, function: ComputationId, inputs: Vec<Array>) -> Result<Vec<Array>, ExecutionError> {
    same_sizes(&inputs)?;
    let result_types = Fold::result_types(device.module(), function)?;
    let mut fold = Fold::new(device, function, &types_of(&inputs), &result_types)?;
    let first = inputs.first().ok_or_else(|| ExecutionError::bug("map has no operand"))?;
    let result_type = *result_types.first().ok_or_else(|| ExecutionError::bug("a function has no result"))?;
    let mut result = Array::zeroed(result_type, first.dims())?;
    let width = result.element_type().bytes();
    let mut arguments = vec![Scalar::default(); inputs.len()];
    for (n, bytes) in result.bytes_mut().chunks_exact_mut(width).enumerate() {
        if n % 4096 == 0 {
            device.check_cancelled()?;
        }
        for (argument, input) in arguments.iter_mut().zip(&inputs) {
            *argument = Scalar::load(input, n);
        }
        fold.apply(device, &arguments)?[0].store(bytes);
    }
    Ok(vec![result])
}

/// Reduces along `dimensions`. The reduced dimensions are moved to the end first, so that each result is the fold of one
/// contiguous row.
pub fn reduce(
    device: &mut Device<'_>,
    inputs: Vec<Array>,
    inits: Vec<Array>,
    dimensions: &[i64],
    function: ComputationId,
) -> Result<Vec<Array>, ExecutionError> {
    same_sizes(&inputs)?;
    let inits = accumulators(device, function, inits)?;
    let types = types_of(&inits);
    let rank = inputs[0].rank() as i64;
    let kept: DimVec = (0..rank).filter(|d| !dimensions.contains(d)).collect();
    let order: DimVec = kept.iter().copied().chain((0..rank).filter(|d| dimensions.contains(d))).collect();
    let dims: DimVec = kept.iter().map(|&d| inputs[0].dims()[d as usize]).collect();
    if dims.contains(&0) {
        return types.iter().map(|&t| Array::zeroed(t, &dims)).collect();
    }
    let row = index_count(&dimensions.iter().map(|&d| inputs[0].dims()[d as usize]).collect::<DimVec>());
    let rows = inputs.into_iter().map(|a| transpose(a, &order)).collect::<Result<Vec<_>, _>>()?;
    let mut fold = Fold::new(device, function, &[&types[..], &types_of(&rows)].concat(), &types)?;
    let mut results = types.iter().map(|&t| Array::zeroed(t, &dims)).collect::<Result<Vec<_>, _>>()?;
    if let Some(parts) = Component::all_of(device, function, &types, &types_of(&rows)) {
        for (((part, input), init), result) in parts.iter().zip(rows).zip(inits).zip(&mut results) {
            let (input, init) = (part.value(input)?, part.accumulator(init)?);
            let mut wide = Array::zeroed(input.element_type(), &dims)?;
            if !part.fold.fold_rows(&input, row, Scalar::load(&init, 0), &mut wide) {
                return Err(ExecutionError::bug("a component of a reduction has no fold"));
            }
            *result = convert(wide, result.element_type())?;
            device.check_cancelled()?;
        }
        return Ok(results);
    }
    let start: Vec<Scalar> = inits.iter().map(|a| Scalar::load(a, 0)).collect();
    if let ([input], [result]) = (&rows[..], &mut results[..])
        && fold.fold_rows(input, row, start[0], result)
    {
        return Ok(results);
    }
    let mut state = start.clone();
    let mut arguments = vec![Scalar::default(); 2 * types.len()];
    for n in 0..results[0].len() {
        state.copy_from_slice(&start);
        for k in n * row..(n + 1) * row {
            arguments[..state.len()].copy_from_slice(&state);
            for (argument, input) in arguments[state.len()..].iter_mut().zip(&rows) {
                *argument = Scalar::load(input, k);
            }
            state.copy_from_slice(fold.apply(device, &arguments)?);
        }
        for (result, s) in results.iter_mut().zip(&state) {
            store(result, n, *s);
        }
        device.check_cancelled()?;
    }
    Ok(results)
}

/// Writes an element at a row-major position.
fn store(array: &mut Array, n: usize, scalar: Scalar) {
    let width = array.element_type().bytes();
    scalar.store(&mut array.bytes_mut()[n * width..(n + 1) * width]);
}

fn reduce_window(
    device: &mut Device<'_>,
    inputs: &[Array],
    inits: Vec<Array>,
    window: &Window,
    function: ComputationId,
) -> Result<Vec<Array>, ExecutionError> {
    same_sizes(inputs)?;
    let inits = accumulators(device, function, inits)?;
    let types = types_of(&inits);
    let walk = WindowWalk::new(inputs[0].dims(), window)?;
    let mut fold = Fold::new(device, function, &[&types[..], &types_of(inputs)].concat(), &types)?;
    let mut results = types.iter().map(|&t| Array::zeroed(t, walk.output_dims())).collect::<Result<Vec<_>, _>>()?;
    if let Some(parts) = Component::all_of(device, function, &types, &types_of(inputs)) {
        for (((part, input), init), result) in parts.iter().zip(inputs).zip(inits).zip(&mut results) {
            let (input, init) = (part.value(input.clone())?, part.accumulator(init)?);
            let (mut wide, start) = (Array::zeroed(part.carried, walk.output_dims())?, Scalar::load(&init, 0));
            let mut positions = Vec::new();
            for (n, output) in Indices::new(walk.output_dims()).enumerate() {
                walk.positions(&output, &mut positions);
                let folded = part.fold.fold_at(&input, &positions, start);
                store(&mut wide, n, folded.ok_or_else(|| ExecutionError::bug("a component of a window has no fold"))?);
                if n % 4096 == 0 {
                    device.check_cancelled()?;
                }
            }
            *result = convert(wide, result.element_type())?;
        }
        return Ok(results);
    }
    let start: Vec<Scalar> = inits.iter().map(|a| Scalar::load(a, 0)).collect();
    let mut state = start.clone();
    let mut arguments = vec![Scalar::default(); 2 * types.len()];
    let mut positions = Vec::new();
    for (n, output) in Indices::new(walk.output_dims()).enumerate() {
        walk.positions(&output, &mut positions);
        if let ([input], [result]) = (inputs, &mut results[..])
            && let Some(folded) = fold.fold_at(input, &positions, start[0])
        {
            store(result, n, folded);
            continue;
        }
        state.copy_from_slice(&start);
        for &k in &positions {
            arguments[..state.len()].copy_from_slice(&state);
            for (argument, input) in arguments[state.len()..].iter_mut().zip(inputs) {
                *argument = Scalar::load(input, k);
            }
            state.copy_from_slice(fold.apply(device, &arguments)?);
        }
        for (result, s) in results.iter_mut().zip(&state) {
            store(result, n, *s);
        }
        if n % 4096 == 0 {
            device.check_cancelled()?;
        }
    }
    Ok(results)
}

/// For each window of the operand the selected element's position receives the corresponding element of the source.
fn select_and_scatter(
    device: &mut Device<'_>,
    operands: OperandValues,
    window: &Window,
    select: ComputationId,
    scatter: ComputationId,
) -> Result<Array, ExecutionError> {
    let [operand, source, init] = crate::ops::arrays(operands)?;
    let (from, to) = (operand.element_type(), init.element_type());
    let walk = WindowWalk::new(operand.dims(), window)?;
    let mut select = Fold::new(device, select, &[from, from], &[ElementType::Pred])?;
    let mut scatter = Fold::new(device, scatter, &[to, source.element_type()], &[to])?;
    let mut result = crate::ops::data_movement::broadcast(&init, operand.dims(), &[])?;
    let mut positions = Vec::new();
    for (n, index) in Indices::new(source.dims()).enumerate() {
        walk.positions(&index, &mut positions);
        let mut selected: Option<usize> = None;
        for &candidate in &positions {
            let keeps = match selected {
                Some(s) => {
                    let pair = [Scalar::load(&operand, s), Scalar::load(&operand, candidate)];
                    select.apply(device, &pair)?[0].0 != 0
                }
                None => false,
            };
            if !keeps {
                selected = Some(candidate);
            }
        }
        if let Some(s) = selected {
            let pair = [Scalar::load(&result, s), Scalar::load(&source, n)];
            let combined = scatter.apply(device, &pair)?[0];
            store(&mut result, s, combined);
        }
        if n % 4096 == 0 {
            device.check_cancelled()?;
        }
    }
    Ok(result)
}

/// Applies the function to the slices of the inputs one after another, handing the carries along.
fn scan(
    device: &mut Device<'_>,
    operands: OperandValues,
    attributes: &Scan,
    shape: &Shape,
) -> Result<Value, ExecutionError> {
    let mut inputs = all_arrays(operands)?;
    let carries = usize::try_from(attributes.num_carries).unwrap_or(usize::MAX).min(inputs.len());
    let mut carry: Vec<Value> = inputs.split_off(inputs.len() - carries).into_iter().map(Value::Array).collect();
    let dimension = attributes.dimension as usize;
    let missing = || ExecutionError::bug("scan needs an input with the scanned dimension");
    let length = *inputs.first().and_then(|a| a.dims().get(dimension)).ok_or_else(missing)?;
    if length == 0 {
        // No step says what the outputs are: the shape does.
        let mut results = Value::zeroed(shape)?.into_tuple()?;
        results.truncate(results.len().saturating_sub(carries));
        results.append(&mut carry);
        return Ok(Value::Tuple(results));
    }
    let mut outputs: Vec<Vec<Array>> = Vec::new();
    for step in 0..length {
        let at = if attributes.is_reverse { length - 1 - step } else { step };
        let mut arguments = Vec::with_capacity(inputs.len() + carry.len());
        for input in &inputs {
            arguments.push(Value::Array(slice_at(input, dimension, at)?));
        }
        arguments.append(&mut carry);
        let mut made = match device.apply(attributes.to_apply, arguments)? {
            Value::Tuple(t) => t,
            single => vec![single],
        };
        carry = made.split_off(made.len().saturating_sub(carries));
        outputs.resize_with(made.len(), Vec::new);
        for (list, value) in outputs.iter_mut().zip(made) {
            let value = value.into_array()?;
            let mut dims: DimVec = value.dims().into();
            dims.insert(dimension, 1);
            list.push(value.reshaped(&dims)?);
        }
    }
    let mut result = Vec::new();
    for mut list in outputs {
        if attributes.is_reverse {
            list.reverse();
        }
        result.push(Value::Array(concatenate(&list, dimension)?));
    }
    result.append(&mut carry);
    Ok(Value::Tuple(result))
}

/// `array` at position `at` of `dimension`, without that dimension.
fn slice_at(array: &Array, dimension: usize, at: i64) -> Result<Array, ExecutionError> {
    let mut starts = DimVec::from_elem(0, array.rank());
    let mut sizes: DimVec = array.dims().into();
    starts[dimension] = at;
    sizes[dimension] = 1;
    let slice = dynamic_slice(array, &starts, &sizes)?;
    sizes.remove(dimension);
    slice.reshaped(&sizes)
}
