//! A whole program as MLIR text: each operation in its own form where it has a plain one, in the generic form otherwise.
//!
//! Values get new names: arguments `%arg0`, `%arg1` and so on through each function, results `%0`, `%1`. What is printed can
//! be read back.

mod forms;

use super::print::{is_bare, write_string};
use super::{Attr, AttrId, Module, Named, OpId, OpKind, RegionId, Type, TypeId, ValueId};
use std::fmt::Write;

/// The program as text. Without `enclosing`, what is in the module stands at the top.
pub fn module_text(module: &Module<'_>, enclosing: bool) -> String {
    let mut printer = Printer {
        m: module,
        out: String::new(),
        indent: 0,
        names: vec![String::new(); module.values.len()],
        next_argument: 0,
        next_result: 0,
    };
    match module.root.filter(|_| enclosing) {
        Some(root) => printer.operation(root),
        None => module.body().iter().for_each(|&op| printer.operation(op)),
    }
    printer.out
}

struct Printer<'m, 'a> {
    m: &'m Module<'a>,
    out: String,
    indent: usize,
    names: Vec<String>,
    next_argument: usize,
    next_result: usize,
}

/// Attributes that an operation's own form shows elsewhere.
type Shown = &'static [&'static str];

impl Printer<'_, '_> {
    fn text(&mut self, text: &str) {
        self.out.push_str(text);
    }

    fn line_start(&mut self) {
        for _ in 0..self.indent {
            self.out.push_str("  ");
        }
    }

    fn name(&self, value: ValueId) -> &str {
        self.names.get(value.index()).map_or("%?", |n| n)
    }

    fn values(&mut self, values: &[ValueId]) {
        for (i, &value) in values.iter().enumerate() {
            let separator = if i > 0 { ", " } else { "" };
            let _ = write!(self.out, "{separator}{}", self.names.get(value.index()).map_or("%?", |n| n));
        }
    }

    fn types(&mut self, types: &[TypeId]) {
        for (i, &ty) in types.iter().enumerate() {
            if i > 0 {
                self.text(", ");
            }
            let text = self.m.type_text(ty);
            self.text(&text);
        }
    }

    fn operand_types(&self, op: OpId) -> Vec<TypeId> {
        self.m.op(op).operands.iter().map(|&v| self.m.value_type(v)).collect()
    }

    fn result_types(&self, op: OpId) -> Vec<TypeId> {
        self.m.op(op).results().map(|v| self.m.value_type(v)).collect()
    }

    /// `(T, U) -> V`.
    fn function_type(&mut self, op: OpId) {
        let (from, to) = (self.operand_types(op), self.result_types(op));
        self.text("(");
        self.types(&from);
        self.text(") -> ");
        let single = matches!(&to[..], [one] if !matches!(self.m.ty(*one), Type::Function(..)));
        if !single {
            self.text("(");
        }
        self.types(&to);
        if !single {
            self.text(")");
        }
    }

    /// `: T` where all types are one, else as a function.
    fn short_type(&mut self, op: OpId) {
        self.text(" : ");
        let mut all: Vec<String> = Vec::new();
        for ty in self.operand_types(op).into_iter().chain(self.result_types(op)) {
            all.push(self.m.type_text(ty));
        }
        let is_one = self.m.op(op).result_count == 1 && all.windows(2).all(|w| w[0] == w[1]);
        match all.first().filter(|_| is_one).cloned() {
            Some(ty) => self.text(&ty),
            None => self.function_type(op),
        }
    }

    fn attribute_text(&self, name: &str, id: AttrId) -> String {
        if let Attr::Keyword(word) = self.m.attr(id) {
            return enumeration(name).map_or_else(|| word.to_string(), |e| format!("#stablehlo<{e} {word}>"));
        }
        if let (Attr::Array(items), "precision_config") = (self.m.attr(id), name) {
            let items: Vec<String> = items.iter().map(|&i| self.attribute_text(name, i)).collect();
            return format!("[{}]", items.join(", "));
        }
        let text = self.m.attr_text(id);
        match text.strip_prefix("#stablehlo.conv<") {
            Some(rest) => format!("#stablehlo.conv<raw {rest}"),
            None => text,
        }
    }

    fn attributes(&mut self, fields: &[Named<'_>]) {
        for (i, (name, id)) in fields.iter().enumerate() {
            if i > 0 {
                self.text(", ");
            }
            if is_bare(name) {
                self.text(name);
            } else {
                write_string(&mut self.out, name.as_bytes());
            }
            if !matches!(self.m.attr(*id), Attr::Unit) {
                let text = self.attribute_text(name, *id);
                let _ = write!(self.out, " = {text}");
            }
        }
    }

    /// ` {…}` with what is not among `shown`.
    fn dictionary(&mut self, op: OpId, shown: Shown) {
        let fields: Vec<Named<'_>> =
            self.m.op(op).attributes.iter().filter(|(name, _)| !shown.contains(&&**name)).cloned().collect();
        if !fields.is_empty() {
            self.text(" {");
            self.attributes(&fields);
            self.text("}");
        }
    }

    fn operation(&mut self, op: OpId) {
        self.line_start();
        let results: Vec<ValueId> = self.m.op(op).results().collect();
        let kind = self.m.kind(op);
        if kind == OpKind::Func {
            (self.next_argument, self.next_result) = (0, 0);
        }
        if !results.is_empty() {
            let name = format!("%{}", self.next_result);
            self.next_result += 1;
            for (i, &value) in results.iter().enumerate() {
                let own = if results.len() > 1 { format!("{name}#{i}") } else { name.clone() };
                if let Some(slot) = self.names.get_mut(value.index()) {
                    *slot = own;
                }
            }
            self.text(&name);
            if results.len() > 1 {
                let _ = write!(self.out, ":{}", results.len());
            }
            self.text(" = ");
        }
        if !self.own_form(op, kind) {
            self.generic(op);
        }
        self.text("\n");
    }

    /// `"op"(operands) <{own attributes}> ({regions}) {other attributes} : type`.
    fn generic(&mut self, op: OpId) {
        let node = self.m.op(op);
        write_string(&mut self.out, self.m.op_name(op).as_bytes());
        self.text("(");
        self.values(&node.operands);
        self.text(")");
        let (others, own): (Vec<Named<'_>>, Vec<Named<'_>>) =
            node.attributes.iter().cloned().partition(|(name, _)| name.contains('.'));
        if !own.is_empty() {
            self.text(" <{");
            self.attributes(&own);
            self.text("}>");
        }
        if !node.regions.is_empty() {
            self.text(" (");
            for (i, &region) in node.regions.iter().enumerate() {
                if i > 0 {
                    self.text(", ");
                }
                self.region(region, true);
            }
            self.text(")");
        }
        if !others.is_empty() {
            self.text(" {");
            self.attributes(&others);
            self.text("}");
        }
        self.text(" : ");
        self.function_type(op);
    }

    fn name_arguments(&mut self, region: RegionId) -> Vec<ValueId> {
        let arguments: Vec<ValueId> = self.m.arguments(region).map(ValueId).collect();
        for &value in &arguments {
            let name = format!("%arg{}", self.next_argument);
            self.next_argument += 1;
            if let Some(slot) = self.names.get_mut(value.index()) {
                *slot = name;
            }
        }
        arguments
    }

    /// `{ … }`; with `head` the arguments stand in it.
    fn region(&mut self, region: RegionId, head: bool) {
        self.text("{\n");
        if head {
            let arguments = self.name_arguments(region);
            if !arguments.is_empty() {
                self.line_start();
                self.text("^bb0(");
                self.arguments(&arguments);
                self.text("):\n");
            }
        }
        self.indent += 1;
        let m = self.m;
        for block in &m.region(region).blocks {
            block.ops.iter().for_each(|&op| self.operation(op));
        }
        self.indent -= 1;
        self.line_start();
        self.text("}");
    }

    /// `%a: T, %b: U`.
    fn arguments(&mut self, arguments: &[ValueId]) {
        for (i, &value) in arguments.iter().enumerate() {
            let ty = self.m.type_text(self.m.value_type(value));
            let separator = if i > 0 { ", " } else { "" };
            let _ = write!(self.out, "{separator}{}: {ty}", self.names[value.index()]);
        }
    }

    fn ints(&self, op: OpId, name: &str) -> Option<String> {
        let values = self.m.as_ints(self.m.find(op, name)?)?;
        let values: Vec<String> = values.iter().map(i64::to_string).collect();
        Some(format!("[{}]", values.join(", ")))
    }

    /// Prints an operation in its own form, if it has one here.
    fn own_form(&mut self, op: OpId, kind: OpKind) -> bool {
        use OpKind as K;
        match kind {
            K::Module => self.module(op),
            K::Func => self.function(op),
            K::FuncReturn => return self.give("return", op),
            K::Return => return self.give("stablehlo.return", op),
            K::SdyReturn => return self.give("sdy.return", op),
            K::Call => return self.call(op, "call", "callee"),
            K::CustomCall => return self.call(op, "stablehlo.custom_call", "call_target_name"),
            K::Constant => return self.constant(op, "stablehlo.constant"),
            K::SdyConstant => return self.constant(op, "sdy.constant"),
            K::While => return self.while_loop(op),
            K::Reduce => return self.reduce(op),
            K::SdyMesh => return self.mesh(op),
            K::SdyManualComputation => self.manual_computation(op),
            K::SdyNamedComputation => self.named_computation(op),
            K::SdyShardingConstraint | K::SdyReshard => return self.with_sharding(op, " "),
            K::SdyDataFlowEdge => return self.with_sharding(op, " sharding="),
            K::SdyShardingGroup => return self.sharding_group(op),
            K::SdyPropagationBarrier => return self.barrier(op),
            K::SdyFuncDataFlowEdge => self.plain(op, &[], ""),
            K::Compare => return self.compare(op),
            K::ReducePrecision => return false,
            K::BroadcastInDim => return self.with_ints(op, "dims", "broadcast_dimensions"),
            K::Transpose => return self.with_ints(op, "dims", "permutation"),
            K::Reverse => return self.with_ints(op, "dims", "dimensions"),
            K::DynamicSlice => return self.with_ints(op, "sizes", "slice_sizes"),
            K::Concatenate => return self.with_int(op, ", dim", "dimension"),
            K::Iota => return self.with_int(op, " dim", "iota_dimension"),
            K::Slice => return self.slice(op),
            K::Pad => return self.pad(op),
            K::DotGeneral => return self.dot_general(op),
            K::Reshape | K::DynamicUpdateSlice | K::OptimizationBarrier => self.plain(op, &[], ""),
            _ if kind.is_elementwise() => self.plain(op, &[], ""),
            _ => return false,
        }
        true
    }

    fn module(&mut self, op: OpId) {
        self.text("module");
        if let Some(name) = self.m.string_attr(op, "sym_name").map(str::to_owned) {
            let _ = write!(self.out, " @{name}");
        }
        let mark = self.out.len();
        self.dictionary(op, &["sym_name"]);
        if self.out.len() > mark {
            self.out.insert_str(mark, " attributes");
        }
        self.text(" ");
        if let Some(&region) = self.m.op(op).regions.first() {
            self.region(region, false);
        }
    }

    fn function(&mut self, op: OpId) {
        self.text("func.func ");
        if let Some(visibility) = self.m.string_attr(op, "sym_visibility").map(str::to_owned) {
            let _ = write!(self.out, "{visibility} ");
        }
        let name = self.m.string_attr(op, "sym_name").unwrap_or("").to_owned();
        let _ = write!(self.out, "@{name}(");
        let region = self.m.op(op).regions.first().copied();
        let (from, to) = match self.m.find(op, "function_type").map(|id| self.m.attr(id)) {
            Some(Attr::Type(ty)) => match self.m.ty(*ty) {
                Type::Function(from, to) => (from.clone(), to.clone()),
                _ => Default::default(),
            },
            _ => Default::default(),
        };
        let arguments = region.map(|r| self.name_arguments(r)).unwrap_or_default();
        for (i, &ty) in from.iter().enumerate() {
            if i > 0 {
                self.text(", ");
            }
            if let Some(&value) = arguments.get(i) {
                let name = self.name(value).to_owned();
                let _ = write!(self.out, "{name}: ");
            }
            let ty = self.m.type_text(ty);
            self.text(&ty);
            self.nth_dictionary(op, "arg_attrs", i);
        }
        self.text(")");
        if !to.is_empty() {
            self.text(" -> (");
            for (i, &ty) in to.iter().enumerate() {
                if i > 0 {
                    self.text(", ");
                }
                let ty = self.m.type_text(ty);
                self.text(&ty);
                self.nth_dictionary(op, "res_attrs", i);
            }
            self.text(")");
        }
        let mark = self.out.len();
        self.dictionary(op, &["sym_name", "sym_visibility", "function_type", "arg_attrs", "res_attrs"]);
        if self.out.len() > mark {
            self.out.insert_str(mark, " attributes");
        }
        if let Some(region) = region.filter(|&r| !self.m.region(r).blocks.is_empty()) {
            self.text(" ");
            self.region(region, false);
        }
    }

    /// The `i`th of a list of dictionaries.
    fn nth_dictionary(&mut self, op: OpId, name: &str, i: usize) {
        let m = self.m;
        let Some(&id) = m.find(op, name).and_then(|list| m.list(list).get(i)) else { return };
        if let Attr::Dict(fields) = m.attr(id)
            && !fields.is_empty()
        {
            self.text(" {");
            self.attributes(fields);
            self.text("}");
        }
    }

    fn while_loop(&mut self, op: OpId) -> bool {
        let node = self.m.op(op).clone();
        let &[cond, body] = &node.regions[..] else { return false };
        let cond_arguments = self.name_arguments(cond);
        let body_arguments: Vec<ValueId> = self.m.arguments(body).map(ValueId).collect();
        if cond_arguments.len() != node.operands.len() || body_arguments.len() != node.operands.len() {
            return false;
        }
        for (from, to) in cond_arguments.iter().zip(&body_arguments) {
            let name = self.names[from.index()].clone();
            if let Some(slot) = self.names.get_mut(to.index()) {
                *slot = name;
            }
        }
        self.text("stablehlo.while(");
        for (i, (&argument, &operand)) in cond_arguments.iter().zip(&node.operands).enumerate() {
            let (argument, operand) = (self.name(argument).to_owned(), self.name(operand).to_owned());
            let _ = write!(self.out, "{}{argument} = {operand}", if i > 0 { ", " } else { "" });
        }
        self.text(")");
        if !node.operands.is_empty() {
            self.text(" : ");
            let types = self.result_types(op);
            self.types(&types);
        }
        let mark = self.out.len();
        self.dictionary(op, &[]);
        if self.out.len() > mark {
            self.out.insert_str(mark, " attributes");
        }
        self.text("\n");
        self.line_start();
        self.text("cond ");
        self.region(cond, false);
        self.text(" do ");
        self.region(body, false);
        true
    }

    fn reduce(&mut self, op: OpId) -> bool {
        let node = self.m.op(op).clone();
        let (Some(dims), &[region]) = (self.ints(op, "dimensions"), &node.regions[..]) else { return false };
        let count = node.operands.len() / 2;
        let arguments = self.name_arguments(region);
        if arguments.len() != node.operands.len() || count == 0 {
            return false;
        }
        self.text("stablehlo.reduce");
        for i in 0..count {
            let (x, init) = (self.name(node.operands[i]).to_owned(), self.name(node.operands[count + i]).to_owned());
            let _ = write!(self.out, "{}({x} init: {init})", if i > 0 { ", " } else { "" });
        }
        let applied = self.applied(region, &arguments);
        if let Some(name) = &applied {
            let _ = write!(self.out, " applies {name}");
        }
        let _ = write!(self.out, " across dimensions = {dims}");
        self.dictionary(op, &["dimensions"]);
        self.text(" : ");
        self.function_type(op);
        if applied.is_none() {
            self.text("\n");
            self.line_start();
            self.text(" reducer");
            for i in 0..count {
                self.text("(");
                self.arguments(&[arguments[i], arguments[count + i]]);
                self.text(") ");
            }
            self.region(region, false);
        }
        true
    }

    /// The one operation on its two arguments that a reducer is, if it is that simple.
    fn applied(&self, region: RegionId, arguments: &[ValueId]) -> Option<String> {
        let [block] = &self.m.region(region).blocks[..] else { return None };
        let &[first, last] = &block.ops[..] else { return None };
        let (f, l) = (self.m.op(first), self.m.op(last));
        let simple = arguments.len() == 2
            && f.operands[..] == *arguments
            && f.attributes.is_empty()
            && f.regions.is_empty()
            && f.results().len() == 1
            && l.operands[..] == [f.first_result]
            && self.m.kind(last).is_return();
        simple.then(|| self.m.op_name(first).to_owned())
    }

    fn mesh(&mut self, op: OpId) -> bool {
        let (Some(name), Some(mesh)) = (self.m.string_attr(op, "sym_name"), self.m.find(op, "mesh")) else {
            return false;
        };
        let text = self.m.attr_text(mesh);
        let text = format!("sdy.mesh @{name} = {}", text.strip_prefix("#sdy.mesh").unwrap_or(&text));
        self.text(&text);
        self.dictionary(op, &["sym_name", "mesh"]);
        true
    }

    /// `op %a <@mesh, …> {…} : T`.
    fn with_sharding(&mut self, op: OpId, before: &str) -> bool {
        let mut parts = String::new();
        if let Some(id) = self.m.find(op, "sharding") {
            let text = self.m.attr_text(id);
            parts = format!("{before}{}", text.strip_prefix("#sdy.sharding").unwrap_or(&text));
        }
        self.plain(op, &["sharding"], &parts);
        true
    }

    fn sharding_group(&mut self, op: OpId) -> bool {
        let Some(group) = self.m.find(op, "group_id").and_then(|id| self.m.as_int(id)) else { return false };
        let operands = self.m.op(op).operands.clone();
        self.text("sdy.sharding_group ");
        self.values(&operands);
        let _ = write!(self.out, " group_id={group}");
        self.dictionary(op, &["group_id"]);
        self.text(" : ");
        let types = self.operand_types(op);
        self.types(&types);
        true
    }

    fn barrier(&mut self, op: OpId) -> bool {
        let Some(direction) = self.m.string_attr(op, "allowed_direction").map(str::to_owned) else { return false };
        self.plain(op, &["allowed_direction"], &format!(" allowed_direction={direction}"));
        true
    }

    fn per_value(&self, op: OpId, name: &str) -> String {
        let text = self.m.find(op, name).map(|id| self.m.attr_text(id)).unwrap_or_default();
        let inner = text.strip_prefix("#sdy.sharding_per_value<").and_then(|t| t.strip_suffix('>'));
        inner.unwrap_or("[]").to_owned()
    }

    fn manual_computation(&mut self, op: OpId) {
        let axes = self.m.find(op, "manual_axes").map(|id| self.m.attr_text(id)).unwrap_or_default();
        let axes = axes.strip_prefix("#sdy<manual_axes").and_then(|t| t.strip_suffix('>')).unwrap_or("{}").to_owned();
        self.text("sdy.manual_computation");
        let (ins, outs) = (self.per_value(op, "in_shardings"), self.per_value(op, "out_shardings"));
        self.computation(op, &format!(" in_shardings={ins} out_shardings={outs} manual_axes={axes}"));
    }

    fn named_computation(&mut self, op: OpId) {
        let name = self.m.string_attr(op, "name").unwrap_or("").to_owned();
        let _ = write!(self.out, "sdy.named_computation<\"{name}\">");
        let mut parts = String::new();
        for key in ["in_shardings", "out_shardings"] {
            if self.m.find(op, key).is_some() {
                let _ = write!(parts, " {key}={}", self.per_value(op, key));
            }
        }
        self.computation(op, &parts);
    }

    /// `(%a)<parts> (%arg: T) { … } {…} : FT`.
    fn computation(&mut self, op: OpId, parts: &str) {
        let node = self.m.op(op).clone();
        self.text("(");
        self.values(&node.operands);
        self.text(")");
        self.text(parts);
        self.text(" (");
        if let Some(&region) = node.regions.first() {
            let arguments = self.name_arguments(region);
            self.arguments(&arguments);
            self.text(") ");
            self.region(region, false);
        } else {
            self.text(") {}");
        }
        self.dictionary(op, &["in_shardings", "out_shardings", "manual_axes", "name"]);
        self.text(" : ");
        self.function_type(op);
    }
}

/// The enumeration that an attribute of that name is a member of.
fn enumeration(name: &str) -> Option<&'static str> {
    Some(match name {
        "comparison_direction" => "comparison_direction",
        "compare_type" => "comparison_type",
        "precision_config" => "precision",
        "transpose_a" => "transpose",
        "fft_type" => "fft_type",
        "rng_distribution" => "rng_distribution",
        "rng_algorithm" => "rng_algorithm",
        _ => return None,
    })
}
