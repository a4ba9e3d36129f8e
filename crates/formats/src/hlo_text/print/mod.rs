//! The HLO text printer.
//!
//! The form is the one XLA prints by default, which is also what its dumps hold: percent signs, layouts, operands by
//! name, metadata, every computation before its callers. Printing a module, reading it back and printing it again
//! gives the same text.
//!
//! Everything is appended to one `String`, nothing recurses over instructions or computations, and the time is linear
//! in the length of the text.

mod attributes;
pub mod canonical;
mod escape;
mod instruction;
mod literal;
mod metadata;
mod module;
mod order;
mod sharding;
#[cfg(test)]
mod tests;

use hloom_ir::display::{write_int, write_int_list, write_uint};
use hloom_ir::entity::InstructionId;
use hloom_ir::literal::ArrayLiteral;
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::sharding::Sharding;
use rustc_hash::FxHashMap;

/// How a module is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PrintOptions {
    /// Print what XLA's dumps hold and no more: constants of more than ten elements and all tuple constants are left
    /// out as `{...}`, the floats of attributes have six digits, metadata that names neither an operation nor a file is
    /// dropped, and so is what an async operation's computation says beyond its opcode and attributes. Otherwise
    /// nothing of the module is lost.
    pub elide_constants: bool,
}

/// The module in HLO text, ending in a line break.
pub fn print(module: &Module, options: &PrintOptions) -> String {
    let mut printer = Printer::new(module, options);
    // Long names and metadata make real modules longer than this; short ones do not waste much.
    printer.out.reserve(module.instruction_count().saturating_mul(96).saturating_add(256));
    printer.module();
    let end = printer.out.trim_end().len();
    printer.out.truncate(end);
    printer.out.push('\n');
    printer.out
}

/// One instruction as it stands in the module's text, without indent and line break.
pub fn print_instruction(module: &Module, id: InstructionId, options: &PrintOptions) -> String {
    let mut printer = Printer::new(module, options);
    printer.instruction(id);
    printer.out
}

/// How a single instruction is printed where it stands apart from its module.
#[derive(Clone, Copy, Debug, Default)]
pub struct InstructionStyle<'a> {
    /// As for whole modules.
    pub options: PrintOptions,
    /// Write each operand's shape before its name.
    pub operand_shapes: bool,
    /// Write this `backend_config` instead of the instruction's own; an empty one is not written.
    pub backend_config: Option<&'a [u8]>,
}

/// One instruction in that style, without indent and line break.
pub fn print_styled<'m>(module: &'m Module, id: InstructionId, style: &InstructionStyle<'m>) -> String {
    let mut printer = Printer::new(module, &style.options);
    printer.operand_shapes = style.operand_shapes;
    printer.backend_config = style.backend_config;
    printer.instruction(id);
    printer.out
}

/// What is written of an instruction besides its name, shape, operands and metadata.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct InstructionParts {
    /// The opcode; an async operation of one instruction is called after it, as `slice-start`.
    pub opcode: String,
    /// The number of a parameter or the value of a constant; empty for others.
    pub argument: String,
    /// Everything after the operands, without metadata: empty, or beginning with a comma.
    pub attributes: String,
}

/// The parts of one instruction's text, for those who put it together in their own way.
pub fn print_parts(module: &Module, id: InstructionId, options: &PrintOptions) -> InstructionParts {
    let mut printer = Printer::new(module, options);
    printer.leave_out_metadata = true;
    let wrapped = printer.opcode(id);
    let opcode = std::mem::take(&mut printer.out);
    let instruction = &module[id];
    if matches!(instruction.op, Op::Parameter { .. } | Op::Constant(_)) {
        printer.operands(instruction);
    }
    let argument = std::mem::take(&mut printer.out);
    printer.attributes(instruction, wrapped);
    InstructionParts { opcode, argument, attributes: printer.out }
}

/// The elements of an array as they stand in a constant.
pub fn print_array(array: &ArrayLiteral) -> String {
    let mut out = String::new();
    literal::write_array(&mut out, array);
    out
}

/// A sharding by itself, in its braces.
pub fn print_sharding(sharding: &Sharding) -> String {
    let module = Module::new("");
    let mut printer = Printer::new(&module, &PrintOptions::default());
    printer.sharding(sharding);
    printer.out
}

/// The text so far, and what is needed to write more of it.
struct Printer<'m> {
    module: &'m Module,
    options: PrintOptions,
    out: String,
    /// Spaces before every line of the module: modules nest in `origin_recovery_table`.
    indent: usize,
    /// The async-start that an async instruction belongs to, for those asked so far.
    async_starts: FxHashMap<InstructionId, Option<InstructionId>>,
    /// Write operands with their shapes.
    operand_shapes: bool,
    /// Write no metadata.
    leave_out_metadata: bool,
    /// What to write instead of an instruction's `backend_config`.
    backend_config: Option<&'m [u8]>,
    /// Set while computations are written without the names in them.
    canonical: Option<canonical::Canonical<'m>>,
}

impl<'m> Printer<'m> {
    fn new(module: &'m Module, options: &PrintOptions) -> Printer<'m> {
        Printer {
            module,
            options: *options,
            out: String::new(),
            indent: 0,
            async_starts: FxHashMap::default(),
            operand_shapes: false,
            leave_out_metadata: false,
            backend_config: None,
            canonical: None,
        }
    }

    fn text(&mut self, text: &str) {
        self.out.push_str(text);
    }

    fn int(&mut self, n: i64) {
        write_int(&mut self.out, n);
    }

    /// `, name=5`; `name` is given with its comma and equals sign.
    fn int_attribute(&mut self, name: &str, n: i64) {
        self.text(name);
        self.int(n);
    }

    /// `, name={1,2}`; `name` is given with its comma and equals sign.
    fn list_attribute(&mut self, name: &str, list: &[i64]) {
        self.text(name);
        self.braced_list(list);
    }

    /// `{1,2}`.
    fn braced_list(&mut self, list: &[i64]) {
        self.out.push('{');
        write_int_list(&mut self.out, list);
        self.out.push('}');
    }

    /// `", "`, with `/*index=5*/` before every fifth element of a list; nothing before the first.
    fn separator(&mut self, index: usize) {
        if index > 0 {
            self.out.push_str(", ");
            if index.is_multiple_of(5) {
                self.out.push_str("/*index=");
                write_uint(&mut self.out, index as u64);
                self.out.push_str("*/");
            }
        }
    }

    /// `", "` between the elements of a list that has no index comments.
    fn comma(&mut self, index: usize) {
        if index > 0 {
            self.out.push_str(", ");
        }
    }

    /// `name="text"`, escaped; `name` is given with what stands before the quote.
    fn quoted(&mut self, name: &str, text: &[u8]) {
        self.text(name);
        self.out.push('"');
        escape::write_escaped(&mut self.out, text);
        self.out.push('"');
    }

    fn indentation(&mut self, spaces: usize) {
        for _ in 0..self.indent + spaces {
            self.out.push(' ');
        }
    }
}
