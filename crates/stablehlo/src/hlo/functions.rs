//! Functions: which is the entry, in which order they are translated, arguments and results with their annotations.

use super::{Translate, Translator, is_check};
use crate::mlir::{Attr, AttrId, OpId, OpKind, Type, ValueId};
use hloom_formats::hlo_text::read_layout;
use hloom_ir::attributes::AliasKind;
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::diagnostic::codes::mlir as codes;
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::instruction::Operands;
use hloom_ir::module::{BufferDonor, InputOutputAlias};
use hloom_ir::shape::{ArrayShape, ProgramShape, ShapeIndex};
use hloom_ir::sharding::{LeafSharding, Sharding, ShardingKind};
use hloom_ir::{Op, Shape};
use rustc_hash::FxHashMap;
use std::sync::Arc;

impl<'m> Translator<'m, '_> {
    /// The function that a program starts with.
    pub(super) fn entry_function(&self) -> Translate<OpId> {
        if let Some(&main) = self.functions.get("main") {
            return Ok(main);
        }
        let public = |op: &OpId| self.m.string_attr(*op, "sym_visibility") != Some("private");
        let mut candidates = self.m.functions().map(|(_, op)| op).filter(public);
        match (candidates.next(), candidates.next()) {
            (Some(only), None) => Ok(only),
            (None, _) => Err(Box::new(Diagnostic::error(&codes::NO_ENTRY, "the module has no function to start with"))),
            (Some(_), Some(_)) => Err(Box::new(
                Diagnostic::error(&codes::NO_ENTRY, "no function of the module is named main")
                    .help("name the function that the program starts with main"),
            )),
        }
    }

    /// Translates `entry` and all it calls.
    pub(super) fn program(&mut self, entry: OpId) -> Translate<()> {
        self.module_attributes()?;
        self.callees_of(&[entry])?;
        self.function(entry, true)?;
        Ok(())
    }

    /// Translates a stretch of a function as a program of its own.
    pub(super) fn part(&mut self, name: &str, ops: &[OpId], inputs: &[ValueId], outputs: &[ValueId]) -> Translate<()> {
        self.callees_of(ops)?;
        let outer = self.begin(name);
        for (i, &input) in inputs.iter().enumerate() {
            let shape = self.type_shape(self.m.value_type(input))?;
            self.default_name(format!("Arg_{i}"));
            let id = self.emit(Op::parameter(i as i64), [].as_slice(), shape)?;
            self.map[input.index()] = Some(id);
        }
        for &op in ops {
            self.enter(op);
            if !is_check(self.m, op) {
                self.op()?;
                self.annotate()?;
            }
        }
        let results: Operands = outputs.iter().map(|&v| self.value(v)).collect::<Translate<_>>()?;
        let root = self.packed(&results)?;
        let computation = self.end(outer, root);
        self.out.set_entry(computation);
        Ok(())
    }

    fn module_attributes(&mut self) -> Translate<()> {
        let m = self.m;
        let Some(root) = m.root else { return Ok(()) };
        for (name, id) in &m.op(root).attributes {
            let number = m.as_int(*id).filter(|&n| n > 0);
            match (&**name, number) {
                ("mhlo.num_partitions", Some(n)) => self.out.config.num_partitions = n,
                ("mhlo.num_replicas", Some(n)) => self.out.config.replica_count = n,
                ("mhlo.frontend_attributes", _) => {
                    let attributes = self.frontend_attributes(*id);
                    self.out.config.frontend_attributes.extend(attributes);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Translates all functions that are called from `roots` (operations, or functions), callees first.
    pub(super) fn callees_of(&mut self, roots: &[OpId]) -> Translate<()> {
        // Whether a function is being looked at (false) or done (true).
        let mut state: FxHashMap<OpId, bool> = FxHashMap::default();
        let mut stack: Vec<(Option<OpId>, Vec<OpId>)> = Vec::new();
        let mut first = Vec::new();
        let mut entry = None;
        for &root in roots {
            if self.m.kind(root) == OpKind::Func {
                state.insert(root, false);
                entry = Some(root);
            }
            self.collect_callees(root, &mut first)?;
        }
        stack.push((None, first));
        while let Some((function, callees)) = stack.last_mut() {
            match callees.pop() {
                Some(callee) => match state.get(&callee) {
                    Some(true) => {}
                    Some(false) => {
                        let name = self.m.string_attr(callee, "sym_name").unwrap_or("");
                        self.at = callee;
                        let message = format!("@{name} calls itself, directly or through others");
                        return Err(self.error(&codes::RECURSIVE_CALL, message));
                    }
                    None => {
                        state.insert(callee, false);
                        let mut more = Vec::new();
                        self.collect_callees(callee, &mut more)?;
                        stack.push((Some(callee), more));
                    }
                },
                None => {
                    let function = *function;
                    stack.pop();
                    if let Some(function) = function {
                        state.insert(function, true);
                        // One whose shapes depend on its caller is written in place of each call.
                        if !self.is_open(function) && !self.is_declaration(function) && Some(function) != entry {
                            self.function(function, false)?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// The functions that `op` and all within call, the first called last.
    fn collect_callees(&mut self, op: OpId, callees: &mut Vec<OpId>) -> Translate<()> {
        let m = self.m;
        let mut stack = vec![op];
        let start = callees.len();
        while let Some(op) = stack.pop() {
            let operation = m.op(op);
            for &region in &operation.regions {
                stack.extend(m.region(region).blocks.iter().flat_map(|b| &b.ops));
            }
            let mut name = |this: &mut Self, id: Option<AttrId>| -> Translate<()> {
                let Some(name) = id.and_then(|id| m.as_str(id)) else { return Ok(()) };
                match this.functions.get(name) {
                    Some(&callee) => {
                        callees.push(callee);
                        Ok(())
                    }
                    None => {
                        this.at = op;
                        let message = format!("{} names @{name}, which the module does not have", m.op_name(op));
                        Err(this.error(&codes::UNKNOWN_FUNCTION, message))
                    }
                }
            };
            match m.kind(op) {
                OpKind::Call => name(self, m.find(op, "callee"))?,
                OpKind::Composite => name(self, m.find(op, "decomposition"))?,
                OpKind::CustomCall => {
                    if let Some(list) = m.find(op, "called_computations") {
                        for &id in m.list(list) {
                            name(self, Some(id))?;
                        }
                    }
                }
                _ => {}
            }
        }
        callees[start..].reverse();
        Ok(())
    }

    /// Whether the function has arguments or results whose sizes are not known.
    pub(super) fn is_open(&self, function: OpId) -> bool {
        let open = |&t: &crate::mlir::TypeId| match self.m.ty(t) {
            Type::Tensor { dims, encoding: None, .. } => dims.contains(&crate::mlir::DYNAMIC),
            _ => false,
        };
        match self.m.find(function, "function_type").map(|id| self.m.attr(id)) {
            Some(Attr::Type(t)) => match self.m.ty(*t) {
                Type::Function(inputs, results) => inputs.iter().chain(results).any(open),
                _ => false,
            },
            _ => false,
        }
    }

    pub(super) fn is_declaration(&self, function: OpId) -> bool {
        self.m.op(function).regions.first().is_none_or(|&r| self.m.region(r).blocks.is_empty())
    }

    pub(super) fn function(&mut self, function: OpId, is_entry: bool) -> Translate<ComputationId> {
        let m = self.m;
        self.enter(function);
        let name = m.string_attr(function, "sym_name").unwrap_or("f");
        let Some(block) = m.op(function).regions.first().and_then(|&r| m.region(r).blocks.first()) else {
            return Err(self.error(&codes::UNKNOWN_FUNCTION, format!("@{name} is declared, but has no body")));
        };
        let argument_attributes = m.find(function, "arg_attrs").map_or(&[][..], |id| m.list(id));
        let outer = self.begin(name);
        for i in 0..block.argument_count {
            let value = ValueId(block.first_argument.0 + i);
            let shape = self.type_shape(m.value_type(value))?;
            if is_entry && shape.as_array().is_some_and(ArrayShape::is_unbounded) {
                let ty = m.type_text(m.value_type(value));
                let message = format!("argument {i} of @{name} has the type {ty}, whose size is not known");
                return Err(self.error(&codes::DYNAMIC_SHAPE, message));
            }
            self.enter_location(block.locations.get(i as usize).copied().flatten());
            self.default_name(format!("Arg_{i}"));
            let id = self.emit(Op::parameter(i64::from(i)), [].as_slice(), shape)?;
            self.map[value.index()] = Some(id);
            if let Some(&attributes) = argument_attributes.get(i as usize) {
                self.argument_annotations(id, i, attributes, is_entry)?;
            }
        }
        let results = self.block(&block.ops)?;
        self.enter(function);
        let root = self.results(function, &results, is_entry)?;
        if is_entry {
            let shapes = self.out.computation(self.computation).instructions().iter();
            let parameters = shapes.filter(|&&i| matches!(self.out[i].op, Op::Parameter { .. }));
            // How arrays are handed over is for the attributes to say, not for a call that makes one of them.
            let row_major = |i: InstructionId| self.out[i].shape.without_layout().with_default_layout();
            let mut entry_layout =
                ProgramShape { parameters: parameters.map(|&i| row_major(i)).collect(), result: row_major(root) };
            for (shape, &attributes) in entry_layout.parameters.iter_mut().zip(argument_attributes) {
                *shape = self.laid_out(shape, attributes)?;
            }
            let result_attributes = m.find(function, "res_attrs").map_or(&[][..], |id| m.list(id));
            entry_layout.result = match (&entry_layout.result, result_attributes) {
                (shape, &[attributes]) => self.laid_out(shape, attributes)?,
                (Shape::Tuple(parts), list) if list.len() == parts.len() => {
                    let parts = parts.iter().zip(list).map(|(part, &attributes)| self.laid_out(part, attributes));
                    Shape::tuple(parts.collect::<Translate<Vec<_>>>()?)
                }
                (shape, _) => shape.clone(),
            };
            self.out.config.entry_layout = Some(entry_layout);
        }
        let computation = self.end(outer, root);
        self.translated.insert(function, computation);
        if is_entry {
            self.out.set_entry(computation);
        }
        Ok(computation)
    }

    /// The shape of an argument or result with the layout that its attributes ask for: none where it is left open.
    fn laid_out(&self, shape: &Shape, attributes: AttrId) -> Translate<Shape> {
        let m = self.m;
        let (Shape::Array(array), Attr::Dict(fields)) = (shape, m.attr(attributes)) else { return Ok(shape.clone()) };
        let mode =
            fields.iter().find(|(name, _)| &**name == "mhlo.layout_mode").and_then(|(_, value)| m.as_str(*value));
        match mode {
            None | Some("default") => Ok(shape.clone()),
            Some(_) if array.is_scalar() => Ok(shape.clone()),
            Some("auto") => Ok(array.without_layout().into()),
            Some(text) => match read_layout(text.as_bytes(), array.rank()) {
                Ok(layout) if layout.is_permutation(array.rank()) => {
                    Ok(ArrayShape::clone(array).with_layout(layout).into())
                }
                read => {
                    let why = read.err().and_then(|found| found.into_iter().next()).map(|d| d.message);
                    let why = why.unwrap_or_else(|| "it does not order all dimensions".to_owned());
                    let message = format!("{text:?} is no layout of {}: {why}", array.without_layout());
                    Err(self.error(&codes::BAD_ATTRIBUTE, message))
                }
            },
        }
    }

    fn argument_annotations(
        &mut self,
        id: InstructionId,
        number: u32,
        attributes: AttrId,
        is_entry: bool,
    ) -> Translate<()> {
        let m = self.m;
        let Attr::Dict(fields) = m.attr(attributes) else { return Ok(()) };
        for (name, value) in fields {
            match &**name {
                "tf.aliasing_output" if is_entry => {
                    let output = m.as_int(*value).unwrap_or(0);
                    self.out.config.input_output_alias.push(InputOutputAlias {
                        output_index: ShapeIndex::from_slice(&[output]),
                        parameter: i64::from(number),
                        parameter_index: ShapeIndex::new(),
                        kind: AliasKind::May,
                    });
                }
                "jax.buffer_donor" if is_entry && m.as_bool(*value) == Some(true) => {
                    let parameter_index = ShapeIndex::new();
                    self.out.config.buffer_donors.push(BufferDonor { parameter: i64::from(number), parameter_index });
                }
                "mhlo.parameter_replication" => {
                    let flags: Option<Box<[bool]>> = m.list(*value).iter().map(|&b| m.as_bool(b)).collect();
                    if let Op::Parameter { replication, .. } = &mut self.out.instruction_mut(id).op {
                        *replication = flags;
                    }
                }
                // The header says it.
                "mhlo.layout_mode" if is_entry => {}
                _ => self.annotation(id, name, *value)?,
            }
        }
        Ok(())
    }

    /// The root of a function, with what is said of its results.
    fn results(&mut self, function: OpId, results: &[InstructionId], is_entry: bool) -> Translate<InstructionId> {
        let m = self.m;
        let attributes = m.find(function, "res_attrs").map_or(&[][..], |id| m.list(id));
        let mut shardings: Vec<Option<LeafSharding>> = vec![None; results.len()];
        for (i, &dict) in attributes.iter().enumerate().take(results.len()) {
            let Attr::Dict(fields) = m.attr(dict) else { continue };
            for (name, value) in fields {
                match &**name {
                    "mhlo.sharding" | "sdy.sharding" => {
                        let sharding = self.sharding(name, *value)?;
                        shardings[i] = sharding.and_then(|s| s.leaves().first().cloned());
                    }
                    _ => {}
                }
            }
        }
        if is_entry && results.len() == 1 {
            // A single result is not wrapped, so neither is the place that shares memory with a parameter.
            for alias in &mut self.out.config.input_output_alias {
                alias.output_index.clear();
            }
        }
        let sharded = shardings.iter().any(Option::is_some);
        if !sharded {
            return self.packed(results);
        }
        // A result of which nothing is said is left to propagation.
        let leaves: Vec<LeafSharding> =
            shardings.into_iter().map(|s| s.unwrap_or_else(|| ShardingKind::Unknown.into())).collect();
        let tuple = self.tuple(results)?;
        let single = leaves.first().cloned();
        self.out.instruction_mut(tuple).common.sharding = Some(Arc::new(Sharding::Tuple(leaves)));
        if results.len() != 1 {
            return Ok(tuple);
        }
        let root = self.element(tuple, 0)?;
        self.out.instruction_mut(root).common.sharding = single.map(|s| Arc::new(Sharding::Leaf(Box::new(s))));
        Ok(root)
    }

    /// A call of `function`: of its computation, or its body in place if its shapes depend on the arguments.
    pub(super) fn call(&mut self, function: OpId, operands: &[InstructionId]) -> Translate<Vec<InstructionId>> {
        let m = self.m;
        if self.is_declaration(function) {
            let name = m.string_attr(function, "sym_name").unwrap_or("");
            return Err(self.error(&codes::UNKNOWN_FUNCTION, format!("@{name} is declared, but has no body")));
        }
        if self.is_open(function) {
            return self.inlined(function, operands);
        }
        let Some(&to_apply) = self.translated.get(&function) else {
            return Err(self.error(&codes::UNKNOWN_FUNCTION, "a function is called before it is known"));
        };
        let shapes = self.result_shapes()?;
        let op = Op::Call { to_apply, is_composite: false };
        if let [shape] = &shapes[..] {
            let shape = shape.clone();
            return Ok(vec![self.emit(op, operands, shape)?]);
        }
        let count = shapes.len();
        let tuple = self.emit(op, operands, Shape::tuple(shapes))?;
        (0..count).map(|i| self.element(tuple, i)).collect()
    }

    fn inlined(&mut self, function: OpId, operands: &[InstructionId]) -> Translate<Vec<InstructionId>> {
        let m = self.m;
        let block = m.op(function).regions.first().and_then(|&r| m.region(r).blocks.first());
        let block = block.filter(|b| b.argument_count as usize == operands.len());
        let Some(block) = block else {
            let message = format!("a function is called with {} arguments, but takes others", operands.len());
            return Err(self.error(&codes::BAD_OPERANDS, message));
        };
        if self.inlining >= crate::mlir::MAX_DEPTH {
            return Err(self.error(&codes::TOO_DEEP, "functions call each other too deeply"));
        }
        self.inlining += 1;
        let at = self.at;
        for (i, &operand) in operands.iter().enumerate() {
            self.map[block.first_argument.index() + i] = Some(operand);
        }
        let results = self.block(&block.ops)?;
        self.inlining -= 1;
        self.enter(at);
        Ok(results.to_vec())
    }
}
