//! A computation's content, whatever the names in it: the text that XLA's compilers fingerprint to sort computations.
//!
//! Instructions stand in post-order and are called `tmp_0`, `tmp_1`, … in the order in which they are first mentioned;
//! called computations are written out in full where they are called. Names, metadata, `backend_config`, control
//! dependencies and the values of constants that are neither integers nor all zero or all one are left out, so that two
//! computations that do the same have the same text.
//!
//! Computations written out where they are called can make a text far longer than the module: it ends at a limit.

use super::{PrintOptions, Printer};
use hloom_ir::display::{ShapeStyle, write_uint};
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::instruction::{Common, Instruction};
use hloom_ir::layout::Layout;
use hloom_ir::literal::{ArrayLiteral, Literal};
use hloom_ir::module::Module;
use hloom_ir::op::{ConstantValue, Op};
use hloom_ir::order::PostOrder;
use hloom_ir::shape::Shape;
use rustc_hash::FxHashMap;

/// How deep computations are written out within each other.
const MAX_DEPTH: usize = 100;

/// What is needed to write computations without names.
pub(super) struct Canonical<'m> {
    post_order: PostOrder<'m>,
    /// The numbers of the instructions of the computation being written.
    names: FxHashMap<InstructionId, u64>,
    /// The shape written first for those whose memory space is not to be written.
    without_space: &'m dyn Fn(ComputationId) -> bool,
    depth: usize,
    limit: usize,
}

/// The content of `computation`; `None` where its text is longer than `limit` bytes. Memory spaces are not written for
/// instructions of computations of which `without_space` says so.
pub fn print_canonical<'m>(
    module: &'m Module,
    computation: ComputationId,
    without_space: &'m dyn Fn(ComputationId) -> bool,
    limit: usize,
) -> Option<String> {
    let mut printer = Printer::new(module, &PrintOptions::default());
    printer.canonical = Some(Canonical {
        post_order: PostOrder::new(module),
        names: FxHashMap::default(),
        without_space,
        depth: 0,
        limit,
    });
    printer.canonical_computation(computation);
    (printer.out.len() <= limit).then_some(printer.out)
}

impl Printer<'_> {
    /// A called computation, after the `=` of the attribute that names it.
    pub(super) fn canonical_body(&mut self, computation: ComputationId) {
        let Some(canonical) = &mut self.canonical else { return };
        if canonical.depth >= MAX_DEPTH || self.out.len() > canonical.limit {
            return;
        }
        canonical.depth += 1;
        let outer = std::mem::take(&mut canonical.names);
        self.out.push('\n');
        self.canonical_computation(computation);
        if let Some(canonical) = &mut self.canonical {
            canonical.names = outer;
            canonical.depth -= 1;
        }
    }

    fn canonical_computation(&mut self, computation: ComputationId) {
        let module = self.module;
        let Some(canonical) = &mut self.canonical else { return };
        let indent = 2 * canonical.depth;
        let order = canonical.post_order.instructions(computation);
        let strip = (canonical.without_space)(computation);
        let root = module.root(computation);
        self.indentation(indent);
        self.text("{\n");
        for id in order {
            if self.canonical.as_ref().is_none_or(|c| self.out.len() > c.limit) {
                return;
            }
            self.indentation(indent + 2);
            if Some(id) == root {
                self.text("ROOT ");
            }
            self.canonical_instruction(id, strip);
            self.out.push('\n');
        }
        self.indentation(indent);
        self.out.push('}');
    }

    fn canonical_instruction(&mut self, id: InstructionId, strip: bool) {
        let instruction = &self.module[id];
        self.canonical_name(id);
        self.text(" = ");
        // `/*index=5*/` is for people: it is in the operands of modules, and so in shapes here, as in XLA.
        match strip {
            true => without_memory_space(&instruction.shape).write(&mut self.out, ShapeStyle::FULL),
            false => instruction.shape.write(&mut self.out, ShapeStyle::FULL),
        }
        self.out.push(' ');
        self.text(instruction.opcode().name());
        self.out.push('(');
        self.canonical_operands(instruction);
        self.out.push(')');
        match &instruction.op {
            Op::AsyncStart(start) => self.async_start(start, None, &instruction.common),
            _ => self.op_attributes(instruction),
        }
        self.common_attributes(instruction, &Common::default());
    }

    fn canonical_name(&mut self, id: InstructionId) {
        let Some(canonical) = &mut self.canonical else { return };
        let next = canonical.names.len() as u64;
        let number = *canonical.names.entry(id).or_insert(next);
        self.text("tmp_");
        write_uint(&mut self.out, number);
    }

    fn canonical_operands(&mut self, instruction: &Instruction) {
        match &instruction.op {
            Op::Parameter { number, .. } => self.int(*number),
            Op::Constant(ConstantValue::Literal(literal)) => match &**literal {
                Literal::Array(array) if is_all_zero(array) => self.out.push('0'),
                Literal::Array(array) if is_all_one(array) => self.out.push('1'),
                Literal::Array(array) if array.element_type().is_integer() => self.literal(literal),
                _ => self.text("{...}"),
            },
            Op::Constant(ConstantValue::Elided) => self.text("{...}"),
            _ => {
                for (i, &operand) in instruction.operands().iter().enumerate() {
                    self.comma(i);
                    self.canonical_name(operand);
                }
            }
        }
    }
}

/// The number one as an element's bytes, for the types whose ones are told apart.
fn one(element_type: ElementType) -> Option<Vec<u8>> {
    Some(match element_type {
        ElementType::F16 => 0x3c00u16.to_le_bytes().to_vec(),
        ElementType::Bf16 => 0x3f80u16.to_le_bytes().to_vec(),
        ElementType::F32 => 1f32.to_le_bytes().to_vec(),
        ElementType::F64 => 1f64.to_le_bytes().to_vec(),
        t if t.is_integer() || t == ElementType::Pred => {
            let mut bytes = vec![0; t.bytes()];
            bytes[0] = 1;
            bytes
        }
        _ => return None,
    })
}

fn is_all_zero(array: &ArrayLiteral) -> bool {
    array.bytes().iter().all(|&b| b == 0)
}

fn is_all_one(array: &ArrayLiteral) -> bool {
    one(array.element_type()).is_some_and(|one| (0..array.len()).all(|i| array.element(i) == one))
}

fn without_memory_space(shape: &Shape) -> Shape {
    shape.map_arrays(&mut |array| {
        let mut array = array.clone();
        if let Some(layout) = &mut array.layout {
            *layout = Layout { memory_space: 0, ..layout.clone() };
        }
        array
    })
}
