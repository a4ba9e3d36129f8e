//! From StableHLO to HLO.
//!
//! Functions become computations, the entry function the entry; regions become computations too. A value is mapped to
//! the instruction that makes it in the computation that is being built; on the way into a region the values it
//! captures are mapped to what stands for them there, and back on the way out. Shapes are taken from the types that
//! the program writes; where those are dynamic, they are inferred ([`fold`]). Whether the module makes sense is for the
//! verifier to say, but nothing here relies on it.

mod async_calls;
mod attributes;
mod bits;
mod calls;
mod chlo;
mod collectives;
mod control;
mod dynamic;
mod elementwise;
mod fold;
mod functions;
mod linear;
mod locations;
mod math;
mod movement;
mod ops;
mod parallel;
mod shapes;
mod sharding;
mod special;

use crate::mlir::{self, AttrId, OpId, OpKind, RegionId, ValueId};
use hloom_ir::device_list::Mesh;
use hloom_ir::diagnostic::codes::mlir as codes;
use hloom_ir::diagnostic::{Code, Diagnostic, Span};
use hloom_ir::entity::{ComputationId, EntityId, InstructionId};
use hloom_ir::infer::infer_shape;
use hloom_ir::instruction::{Common, Operands};
use hloom_ir::literal::ArrayLiteral;
use hloom_ir::module::NewInstruction;
use hloom_ir::{Module, Op, Shape};
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// What a part of the translation gives.
pub(crate) type Translate<T> = Result<T, Box<Diagnostic>>;

/// A translated program.
#[derive(Debug)]
pub struct Translation {
    /// The program.
    pub module: Module,
    /// For each instruction, by the index of its id, the place in the text that it was made from.
    pub spans: Vec<Span>,
}

/// The module in HLO.
pub fn to_hlo(module: &mlir::Module<'_>) -> Result<Module, Box<Diagnostic>> {
    translate(module).map(|t| t.module)
}

/// The module in HLO, with the places in the text that instructions were made from.
pub fn translate(module: &mlir::Module<'_>) -> Result<Translation, Box<Diagnostic>> {
    let mut translator = Translator::new(module)?;
    let entry = translator.entry_function()?;
    translator.program(entry)?;
    Ok(translator.finish())
}

/// Translates a stretch of operations of one function, which is to take `inputs` and give `outputs`, one value or a
/// tuple of them.
pub(crate) fn translate_part(
    module: &mlir::Module<'_>,
    name: &str,
    ops: &[OpId],
    inputs: &[ValueId],
    outputs: &[ValueId],
) -> Translate<Translation> {
    let mut translator = Translator::new(module)?;
    translator.part(name, ops, inputs, outputs)?;
    Ok(translator.finish())
}

/// Translates functions that run side by side, by replica and partition, into one program for all devices.
pub(crate) fn translate_parallel(
    module: &mlir::Module<'_>,
    at: OpId,
    programs: &[Vec<OpId>],
) -> Translate<Translation> {
    let mut translator = Translator::new(module)?;
    translator.at = at;
    translator.parallel(programs)?;
    Ok(translator.finish())
}

/// The literal that an attribute of `op` holds.
pub(crate) fn literal(module: &mlir::Module<'_>, op: OpId, value: AttrId) -> Translate<ArrayLiteral> {
    let mut translator = Translator::new(module)?;
    translator.at = op;
    translator.literal(value)
}

pub(crate) struct Translator<'m, 'a> {
    m: &'m mlir::Module<'a>,
    out: Module,
    /// The computation that is being built.
    computation: ComputationId,
    /// The operation that is being translated.
    at: OpId,
    /// What instructions made for it say of where it came from.
    info: Rc<locations::Info>,
    /// The instruction made last, other than to take a tuple apart.
    last: Option<InstructionId>,
    map: Vec<Option<InstructionId>>,
    shapes: Vec<Option<Shape>>,
    locations: locations::Cache,
    functions: FxHashMap<&'m str, OpId>,
    translated: FxHashMap<OpId, ComputationId>,
    captures: Vec<Option<Rc<[ValueId]>>>,
    /// For each value the number of the last search that met it.
    seen: Vec<u32>,
    searches: u32,
    folded: FxHashMap<InstructionId, Option<fold::Folded>>,
    spans: Vec<Span>,
    region_count: usize,
    /// How deep functions are being written in place of their calls.
    inlining: usize,
    /// Which devices send to which, by channel, where programs that run side by side show it.
    routes: FxHashMap<i64, Vec<i64>>,
    /// Axes of meshes that the code being translated handles itself.
    manual_axes: Vec<String>,
    /// Meshes by their names, so that shardings over one share it.
    meshes: RefCell<FxHashMap<Box<[u8]>, Arc<Mesh>>>,
}

impl<'m, 'a> Translator<'m, 'a> {
    fn new(m: &'m mlir::Module<'a>) -> Translate<Translator<'m, 'a>> {
        let name = m.root.and_then(|root| m.string_attr(root, "sym_name")).unwrap_or("module");
        let mut functions = FxHashMap::default();
        for (name, op) in m.functions() {
            if functions.insert(name, op).is_some() {
                let diagnostic = Diagnostic::error(&codes::REDEFINED, format!("two functions are named @{name}"));
                return Err(locate(m, op, diagnostic));
            }
        }
        Ok(Translator {
            m,
            out: Module::new(name),
            computation: ComputationId::from_index(0),
            at: OpId(0),
            info: Rc::default(),
            last: None,
            map: vec![None; m.values.len()],
            shapes: vec![None; m.types.len()],
            locations: locations::Cache::new(m),
            functions,
            translated: FxHashMap::default(),
            captures: vec![None; m.regions.len()],
            seen: vec![0; m.values.len()],
            searches: 0,
            folded: FxHashMap::default(),
            spans: Vec::new(),
            region_count: 0,
            inlining: 0,
            routes: FxHashMap::default(),
            manual_axes: Vec::new(),
            meshes: RefCell::default(),
        })
    }

    fn finish(mut self) -> Translation {
        self.out.stack_frames = self.locations.into_frames();
        Translation { module: self.out, spans: self.spans }
    }

    /// An error about the operation that is being translated.
    #[cold]
    fn error(&self, code: &'static Code, message: impl Into<String>) -> Box<Diagnostic> {
        locate(self.m, self.at, Diagnostic::error(code, message))
    }

    /// The name of the operation that is being translated.
    fn op_name(&self) -> &'m str {
        self.m.op_name(self.at)
    }

    /// Adds an instruction.
    fn emit(&mut self, op: Op, operands: impl Into<Operands>, shape: Shape) -> Translate<InstructionId> {
        let operands = operands.into();
        let shape = match &shape {
            Shape::Array(a) if a.is_unbounded() => self.inferred(&op, &operands, &shape)?,
            _ => shape,
        };
        let name = match &self.info.name {
            Some(name) => name.clone(),
            None => op.opcode().name().into(),
        };
        let common = Common { metadata: self.info.metadata.clone(), ..Common::default() };
        let takes_apart = matches!(op, Op::GetTupleElement { .. });
        let id = self.out.push_instruction(self.computation, NewInstruction { name, op, shape, operands, common });
        if self.m.is_text {
            self.spans.resize(id.index() + 1, Span::default());
            self.spans[id.index()] = self.m.op(self.at).span;
        }
        if !takes_apart {
            self.last = Some(id);
        }
        Ok(id)
    }

    /// The shape of an operation whose type in the program leaves sizes open.
    #[cold]
    fn inferred(&mut self, op: &Op, operands: &Operands, declared: &Shape) -> Translate<Shape> {
        // What follows from the operands says more than the program does; what does not must be known.
        let known = infer_shape(&self.out, op, operands, None)
            .or_else(|_| infer_shape(&self.out, op, operands, Some(declared)));
        match known {
            Ok(shape) if !shape.as_array().is_some_and(|a| a.is_unbounded()) => Ok(shape.with_default_layout()),
            Ok(_) => Err(self.error(
                &codes::DYNAMIC_SHAPE,
                format!("{} gives a shape that is not known before the program runs", self.op_name()),
            )),
            Err(error) => Err(self.error(error.code, error.message)),
        }
    }

    /// The shape of an instruction.
    fn shape(&self, id: InstructionId) -> &Shape {
        &self.out[id].shape
    }

    /// The instruction that makes `value`.
    fn value(&self, value: ValueId) -> Translate<InstructionId> {
        match self.map.get(value.index()) {
            Some(Some(id)) => Ok(*id),
            _ => Err(self.error(
                &codes::UNDEFINED_VALUE,
                format!("{} uses a value that is not defined where it stands", self.op_name()),
            )),
        }
    }

    /// Operand `i` of the operation that is being translated.
    fn operand(&self, i: usize) -> Translate<InstructionId> {
        match self.m.op(self.at).operands.get(i) {
            Some(&value) => self.value(value),
            None => Err(self.error(&codes::BAD_OPERANDS, format!("{} needs an operand {i}", self.op_name()))),
        }
    }

    /// All operands of the operation that is being translated.
    fn operands(&self) -> Translate<Operands> {
        self.m.op(self.at).operands.iter().map(|&v| self.value(v)).collect()
    }

    /// Says that the operation must have that many operands.
    fn expect_operands(&self, count: usize) -> Translate<()> {
        let given = self.m.op(self.at).operands.len();
        if given == count {
            return Ok(());
        }
        let message = format!("{} takes {count} operands, {given} are given", self.op_name());
        Err(self.error(&codes::BAD_OPERANDS, message))
    }

    /// Region `i` of the operation that is being translated.
    fn region(&self, i: usize) -> Translate<RegionId> {
        match self.m.op(self.at).regions.get(i) {
            Some(&region) => Ok(region),
            None => Err(self.error(&codes::BAD_OPERANDS, format!("{} needs a region {i}", self.op_name()))),
        }
    }

    /// The shape of result `i` of the operation that is being translated, as the program writes it.
    fn result_shape(&mut self, i: usize) -> Translate<Shape> {
        let op = self.m.op(self.at);
        if i >= op.result_count as usize {
            return Err(self.error(&codes::BAD_OPERANDS, format!("{} needs a result {i}", self.op_name())));
        }
        self.type_shape(self.m.value_type(ValueId(op.first_result.0 + i as u32)))
    }

    /// The shapes of all results.
    fn result_shapes(&mut self) -> Translate<Vec<Shape>> {
        (0..self.m.op(self.at).result_count as usize).map(|i| self.result_shape(i)).collect()
    }

    /// Makes `id` the only result of the operation.
    fn bind(&mut self, id: InstructionId) -> Translate<()> {
        let op = self.m.op(self.at);
        if op.result_count != 1 {
            let message = format!("{} gives one result, {} are named", self.op_name(), op.result_count);
            return Err(self.error(&codes::BAD_OPERANDS, message));
        }
        self.map[op.first_result.index()] = Some(id);
        Ok(())
    }

    /// Makes these the results of the operation.
    fn bind_all(&mut self, ids: &[InstructionId]) -> Translate<()> {
        let op = self.m.op(self.at);
        if op.result_count as usize != ids.len() {
            let message = format!("{} gives {} results, {} are named", self.op_name(), ids.len(), op.result_count);
            return Err(self.error(&codes::BAD_OPERANDS, message));
        }
        for (value, &id) in op.results().zip(ids) {
            self.map[value.index()] = Some(id);
        }
        Ok(())
    }

    /// Makes the elements of a tuple the results of the operation.
    fn bind_tuple(&mut self, tuple: InstructionId) -> Translate<()> {
        let count = self.m.op(self.at).result_count as usize;
        let parts = (0..count).map(|i| self.element(tuple, i)).collect::<Translate<Vec<_>>>()?;
        self.bind_all(&parts)
    }

    /// Emits an operation with the results that the program names: one, or a tuple that is taken apart.
    fn emit_results(&mut self, op: Op, operands: impl Into<Operands>) -> Translate<()> {
        let shapes = self.result_shapes()?;
        if let [shape] = &shapes[..] {
            let id = self.emit(op, operands, shape.clone())?;
            return self.bind(id);
        }
        let tuple = self.emit(op, operands, Shape::tuple(shapes))?;
        self.bind_tuple(tuple)
    }

    /// Element `index` of a tuple.
    fn element(&mut self, tuple: InstructionId, index: usize) -> Translate<InstructionId> {
        let shape = self.shape(tuple).as_tuple().and_then(|t| t.get(index)).cloned();
        let Some(shape) = shape else {
            let message = format!("{} gives no result {index}", self.op_name());
            return Err(self.error(&codes::BAD_OPERANDS, message));
        };
        self.emit(Op::GetTupleElement { index: index as i64 }, [tuple].as_slice(), shape)
    }

    /// A tuple of values.
    fn tuple(&mut self, parts: &[InstructionId]) -> Translate<InstructionId> {
        let shape = Shape::tuple(parts.iter().map(|&p| self.shape(p).clone()));
        self.emit(Op::Tuple, parts, shape)
    }

    /// The value itself if it is one, otherwise a tuple of all of them.
    fn packed(&mut self, parts: &[InstructionId]) -> Translate<InstructionId> {
        match parts {
            [one] => Ok(*one),
            _ => self.tuple(parts),
        }
    }

    /// Translates the operations of a block; gives the values that its last one returns.
    fn block(&mut self, ops: &[OpId]) -> Translate<Operands> {
        for &op in ops {
            self.enter(op);
            if self.m.kind(op).is_return() {
                return self.operands();
            }
            self.op()?;
            self.annotate()?;
        }
        Err(self.error(&codes::BAD_OPERANDS, "a block ends without a return"))
    }

    /// Makes `op` the operation that is being translated.
    fn enter(&mut self, op: OpId) {
        self.at = op;
        self.last = None;
        if let Some(location) = self.m.op(op).location {
            self.info = self.locations.info(self.m, location);
        } else {
            self.info = Rc::default();
        }
    }

    /// Makes a location the one that instructions carry.
    fn enter_location(&mut self, location: Option<AttrId>) {
        self.info = location.map_or_else(Rc::default, |l| self.locations.info(self.m, l));
    }

    /// Names what is made next, where its location does not.
    fn default_name(&mut self, name: impl Into<Box<str>>) {
        if self.info.name.is_none() {
            let metadata = self.info.metadata.clone();
            self.info = Rc::new(locations::Info { name: Some(name.into()), metadata });
        }
    }

    /// Starts a computation; what is to be given to [`Translator::end`] comes back.
    fn begin(&mut self, name: &str) -> (ComputationId, OpId) {
        let outer = (self.computation, self.at);
        self.computation = self.out.start_computation(name);
        outer
    }

    /// Ends the computation with `root` as its result.
    fn end(&mut self, outer: (ComputationId, OpId), root: InstructionId) -> ComputationId {
        let done = self.computation;
        self.out.set_root(root);
        self.out.finish_computation(done);
        self.computation = outer.0;
        self.enter(outer.1);
        done
    }
}

/// The diagnostic at an operation: in the text where there is one, otherwise with a note of where it came from.
#[cold]
pub(crate) fn locate(m: &mlir::Module<'_>, op: OpId, mut diagnostic: Diagnostic) -> Box<Diagnostic> {
    let Some(operation) = m.ops.get(op.index()) else { return Box::new(diagnostic) };
    if m.is_text {
        diagnostic = diagnostic.at(operation.span);
    }
    if let Some(location) = operation.location
        && !matches!(m.attr(location), mlir::Attr::Location(mlir::Location::Unknown))
    {
        diagnostic = diagnostic.note(format!("{} comes from {}", m.op_name(op), m.location_text(location)));
    } else if !m.is_text {
        diagnostic = diagnostic.note(format!("the operation is {}", m.op_name(op)));
    }
    Box::new(diagnostic)
}

/// Whether the operation is one that compares, and not part of what is computed.
pub(crate) fn is_check(m: &mlir::Module<'_>, op: OpId) -> bool {
    match m.kind(op) {
        OpKind::CustomCall => m.string_attr(op, "call_target_name").is_some_and(|t| t.starts_with("check.")),
        kind => kind.is_expectation(),
    }
}
