//! From HLO to StableHLO text.
//!
//! The entry becomes `@main`, computations that are called become private functions, and those that an operation applies
//! become its regions. StableHLO has flat values where HLO has tuples: a tuple is written nowhere, its elements are
//! passed along by name. What exists in HLO only is refused with its name.

mod attributes;
mod custom_call;
mod ops;
mod regions;
mod types;

use hloom_formats::hlo_text::print_sharding;
use hloom_ir::diagnostic::codes::mlir as codes;
use hloom_ir::diagnostic::{Diagnostic, Part, Place};
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::shape::Shape;
use hloom_ir::sharding::Sharding;
use hloom_ir::{Module, Op};
use rustc_hash::{FxHashMap, FxHashSet};
use std::fmt::Write;

/// What writing a part gives.
type Written<T> = Result<T, Box<Diagnostic>>;

/// How deep regions may nest.
const MAX_DEPTH: usize = 100;

/// The module as StableHLO text.
pub fn from_hlo(module: &Module) -> Result<String, Box<Diagnostic>> {
    let Some(entry) = module.entry() else {
        return Err(Box::new(Diagnostic::error(&codes::NO_ENTRY, "the module has no entry computation")));
    };
    let mut writer = Writer {
        m: module,
        out: String::new(),
        indent: 1,
        values: FxHashMap::default(),
        names: 0,
        functions: FxHashMap::default(),
        taken: FxHashSet::default(),
        waiting: Vec::new(),
        depth: 0,
        // A computation that several operations apply is written for each: as long as the text stays in proportion.
        left: module.instruction_count().saturating_mul(64).saturating_add(10_000),
    };
    writer.module(entry)?;
    Ok(writer.out)
}

/// A value by the names of its parts.
#[derive(Clone, Debug)]
enum Val {
    /// An array or token.
    One(String),
    /// A tuple.
    Tuple(Vec<Val>),
}

impl Val {
    /// The names of all parts, in order.
    fn leaves<'v>(&'v self, out: &mut Vec<&'v str>) {
        match self {
            Val::One(name) => out.push(name),
            Val::Tuple(parts) => parts.iter().for_each(|p| p.leaves(out)),
        }
    }
}

struct Writer<'m> {
    m: &'m Module,
    out: String,
    indent: usize,
    values: FxHashMap<InstructionId, Val>,
    names: usize,
    functions: FxHashMap<ComputationId, String>,
    taken: FxHashSet<String>,
    /// Computations that are called and not written yet.
    waiting: Vec<ComputationId>,
    depth: usize,
    /// How many more instructions may be written.
    left: usize,
}

impl<'m> Writer<'m> {
    /// What StableHLO cannot say.
    #[cold]
    fn refuse(&self, id: InstructionId, what: impl std::fmt::Display) -> Box<Diagnostic> {
        let instruction = &self.m[id];
        let message = format!("{} is {what}, which StableHLO cannot say", instruction.name());
        Box::new(Diagnostic::error(&codes::CANNOT_WRITE, message).at_place(Place::Instruction(id, Part::Opcode)))
    }

    fn line(&mut self, text: &str) {
        for _ in 0..self.indent {
            self.out.push_str("  ");
        }
        self.out.push_str(text);
        self.out.push('\n');
    }

    fn fresh(&mut self) -> String {
        self.names += 1;
        format!("%{}", self.names - 1)
    }

    /// New names in the form of a shape.
    fn fresh_for(&mut self, shape: &Shape) -> Val {
        match shape {
            Shape::Tuple(parts) => Val::Tuple(parts.iter().map(|p| self.fresh_for(p)).collect()),
            _ => Val::One(self.fresh()),
        }
    }

    fn module(&mut self, entry: ComputationId) -> Written<()> {
        let config = &self.m.config;
        let mut attributes = vec![
            format!("mhlo.num_partitions = {} : i32", config.num_partitions),
            format!("mhlo.num_replicas = {} : i32", config.replica_count),
        ];
        if !config.frontend_attributes.is_empty() {
            attributes
                .insert(0, format!("mhlo.frontend_attributes = {}", types::dictionary(&config.frontend_attributes)));
        }
        let name = types::symbol(&self.m.name);
        let _ = writeln!(self.out, "module @{name} attributes {{{}}} {{", attributes.join(", "));
        self.functions.insert(entry, "main".to_owned());
        self.taken.insert("main".to_owned());
        self.function(entry, true)?;
        while let Some(computation) = self.waiting.pop() {
            self.function(computation, false)?;
        }
        self.out.push_str("}\n");
        Ok(())
    }

    /// The function that a computation is, to be written if it is not yet.
    fn function_name(&mut self, computation: ComputationId) -> String {
        if let Some(name) = self.functions.get(&computation) {
            return name.clone();
        }
        let wanted = self.m[computation].name().to_owned();
        let mut name = wanted.clone();
        let mut n = 0;
        while !self.taken.insert(name.clone()) {
            n += 1;
            name = format!("{wanted}_{n}");
        }
        self.functions.insert(computation, name.clone());
        self.waiting.push(computation);
        name
    }

    fn function(&mut self, computation: ComputationId, is_entry: bool) -> Written<()> {
        let m = self.m;
        let parameters = m.parameters(computation);
        let Some(root) = m.root(computation) else {
            return Err(Box::new(Diagnostic::error(&codes::CANNOT_WRITE, "a computation is empty")));
        };
        let mut arguments = Vec::new();
        for (number, &p) in parameters.iter().enumerate() {
            let shape = &m[p].shape;
            let value = self.fresh_for(shape);
            let mut names = Vec::new();
            value.leaves(&mut names);
            for (name, (_, leaf)) in names.iter().zip(shape.leaves()) {
                let annotations =
                    if is_entry && !shape.is_tuple() { self.argument_attributes(p, number) } else { String::new() };
                arguments.push(format!("{name}: {}{annotations}", self.ty(p, leaf)?));
            }
            self.values.insert(p, value);
        }
        let mut results = Vec::new();
        let shardings = m[root].common.sharding.as_ref().map_or(&[][..], |s| s.leaves());
        for (i, (_, leaf)) in m[root].shape.leaves().into_iter().enumerate() {
            let ty = self.ty(root, leaf)?;
            // The sharding of a tuple that is returned is that of the results.
            let own = shardings.get(i).filter(|_| is_entry && matches!(m[root].op, Op::Tuple));
            results.push(match own {
                Some(leaf) => {
                    let text = print_sharding(&Sharding::Leaf(Box::new(leaf.clone())));
                    format!("{ty} {{mhlo.sharding = {}}}", types::quoted(text.as_bytes()))
                }
                None => ty,
            });
        }
        let visibility = if is_entry { "public" } else { "private" };
        let name = types::symbol(&self.functions[&computation]);
        let head = format!("func.func {visibility} @{name}({}) -> ({}) {{", arguments.join(", "), results.join(", "));
        self.line(&head);
        self.indent += 1;
        self.body(computation)?;
        self.give("return", root)?;
        self.indent -= 1;
        self.line("}");
        Ok(())
    }

    /// The instructions of a computation whose parameters have names.
    fn body(&mut self, computation: ComputationId) -> Written<()> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Box::new(Diagnostic::error(&codes::TOO_DEEP, "regions would nest too deeply")));
        }
        for &id in self.m[computation].instructions() {
            if matches!(self.m[id].op, Op::Parameter { .. }) {
                continue;
            }
            let Some(left) = self.left.checked_sub(1) else {
                let message = "computations are applied by so many operations that the text would be too long";
                return Err(Box::new(Diagnostic::error(&codes::TOO_LARGE, message)));
            };
            self.left = left;
            let value = self.instruction(id)?;
            self.values.insert(id, value);
        }
        self.depth -= 1;
        Ok(())
    }

    /// `return %a, %b : T, U`.
    fn give(&mut self, keyword: &str, root: InstructionId) -> Written<()> {
        let value = self.value(root)?;
        let mut names = Vec::new();
        value.leaves(&mut names);
        let mut types = Vec::new();
        for (_, leaf) in self.m[root].shape.leaves() {
            types.push(self.ty(root, leaf)?);
        }
        let text = if names.is_empty() {
            keyword.to_owned()
        } else {
            format!("{keyword} {} : {}", names.join(", "), types.join(", "))
        };
        self.line(&text);
        Ok(())
    }

    fn value(&self, id: InstructionId) -> Written<Val> {
        self.values.get(&id).cloned().ok_or_else(|| self.refuse(id, "used before it is defined"))
    }

    /// The name of an operand that is one value.
    fn name(&self, id: InstructionId, operand: usize) -> Written<String> {
        let Some(&x) = self.m[id].operands().get(operand) else {
            return Err(self.refuse(id, "short of operands"));
        };
        match self.value(x)? {
            Val::One(name) => Ok(name),
            Val::Tuple(_) => Err(self.refuse(id, "given a tuple")),
        }
    }

    /// The names of all parts of all operands.
    fn operand_names(&self, id: InstructionId) -> Written<Vec<String>> {
        let mut names = Vec::new();
        for &x in self.m[id].operands() {
            let value = self.value(x)?;
            let mut parts = Vec::new();
            value.leaves(&mut parts);
            names.extend(parts.into_iter().map(str::to_owned));
        }
        Ok(names)
    }

    /// The types of all parts of all operands.
    fn operand_types(&self, id: InstructionId) -> Written<Vec<String>> {
        let mut types = Vec::new();
        for &x in self.m[id].operands() {
            for (_, leaf) in self.m[x].shape.leaves() {
                types.push(self.ty(id, leaf)?);
            }
        }
        Ok(types)
    }

    /// `(T, U) -> V` of an operation with these operands and the results of `shape`.
    fn signature(&self, id: InstructionId, shape: &Shape) -> Written<String> {
        let mut results = Vec::new();
        for (_, leaf) in shape.leaves() {
            results.push(self.ty(id, leaf)?);
        }
        let operands = self.operand_types(id)?.join(", ");
        Ok(match &results[..] {
            [one] => format!("({operands}) -> {one}"),
            _ => format!("({operands}) -> ({})", results.join(", ")),
        })
    }

    /// Names for the results of `shape`, and `%0:2 = ` in front of the statement that defines them.
    fn results(&mut self, shape: &Shape) -> (Val, String) {
        let count = shape.leaf_count();
        let name = self.fresh();
        if count == 1 && !shape.is_tuple() {
            return (Val::One(name.clone()), format!("{name} = "));
        }
        let mut next = 0;
        let value = numbered(shape, &name, count, &mut next);
        let text = match count {
            0 => String::new(),
            1 => format!("{name} = "),
            _ => format!("{name}:{count} = "),
        };
        (value, text)
    }
}

/// `%0#0`, `%0#1`, … in the form of a shape.
fn numbered(shape: &Shape, name: &str, count: usize, next: &mut usize) -> Val {
    match shape {
        Shape::Tuple(parts) => Val::Tuple(parts.iter().map(|p| numbered(p, name, count, next)).collect()),
        _ => {
            *next += 1;
            Val::One(if count == 1 { name.to_owned() } else { format!("{name}#{}", *next - 1) })
        }
    }
}
