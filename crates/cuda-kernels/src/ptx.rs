//! PTX text, written instruction by instruction: registers by class, labels, guards, parameters and shared memory.
//!
//! A kernel is written once, straight down; every register is declared by the time the text is taken. One instruction
//! stands on one line, which is what the emulator and a reader of `--emit ptx` rely on.

use std::fmt::{Display, Write};

use crate::launch::{Architecture, KernelArgument};

/// The class of a register: its width, and whether arithmetic on it is that of floats.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Class {
    /// A predicate.
    Pred,
    /// 16 bits.
    B16,
    /// 32 bits.
    B32,
    /// 64 bits.
    B64,
    /// A single-precision float.
    F32,
    /// A double-precision float.
    F64,
}

impl Class {
    const ALL: [Class; 6] = [Class::Pred, Class::B16, Class::B32, Class::B64, Class::F32, Class::F64];

    fn prefix(self) -> &'static str {
        match self {
            Class::Pred => "%p",
            Class::B16 => "%h",
            Class::B32 => "%r",
            Class::B64 => "%rd",
            Class::F32 => "%f",
            Class::F64 => "%fd",
        }
    }

    fn ptx_type(self) -> &'static str {
        match self {
            Class::Pred => ".pred",
            Class::B16 => ".b16",
            Class::B32 => ".b32",
            Class::B64 => ".b64",
            Class::F32 => ".f32",
            Class::F64 => ".f64",
        }
    }
}

/// A virtual register.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Reg {
    /// Its class.
    pub class: Class,
    index: u32,
}

impl Display for Reg {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.class.prefix(), self.index)
    }
}

/// `[base+offset]`.
#[derive(Clone, Copy, Debug)]
pub struct Address {
    base: Reg,
    offset: i64,
}

/// The place `offset` bytes after `base`.
pub fn at(base: Reg, offset: i64) -> Address {
    Address { base, offset }
}

impl Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.offset {
            0 => write!(f, "[{}]", self.base),
            offset => write!(f, "[{}+{offset}]", self.base),
        }
    }
}

/// `{a, b, …}`.
#[derive(Clone, Copy, Debug)]
pub struct Tuple<'a>(pub &'a [Reg]);

impl Display for Tuple<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("{")?;
        for (i, reg) in self.0.iter().enumerate() {
            write!(f, "{}{reg}", if i == 0 { "" } else { ", " })?;
        }
        f.write_str("}")
    }
}

/// A single-precision constant, bit for bit.
#[derive(Clone, Copy, Debug)]
pub struct Float(pub f32);

impl Display for Float {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "0f{:08X}", self.0.to_bits())
    }
}

/// A double-precision constant, bit for bit.
#[derive(Clone, Copy, Debug)]
pub struct Double(pub f64);

impl Display for Double {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "0d{:016X}", self.0.to_bits())
    }
}

/// A place in the text that can be jumped to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Label(u32);

impl Display for Label {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "L{}", self.0)
    }
}

/// A kernel that is being written.
pub struct PtxBuilder {
    name: String,
    architecture: Architecture,
    threads: u32,
    blocks_per_multiprocessor: u32,
    parameters: Vec<&'static str>,
    sizes: Vec<KernelArgument>,
    shared_bytes: u32,
    body: String,
    registers: [u32; 6],
    labels: u32,
    guard: String,
}

impl PtxBuilder {
    /// Starts a kernel for blocks of `threads` threads, of which at least `blocks_per_multiprocessor` shall fit at once.
    pub fn new(name: &str, architecture: Architecture, threads: u32, blocks_per_multiprocessor: u32) -> Self {
        PtxBuilder {
            name: name.to_string(),
            architecture,
            threads,
            blocks_per_multiprocessor,
            parameters: Vec::new(),
            sizes: Vec::new(),
            shared_bytes: 0,
            body: String::new(),
            registers: [0; 6],
            labels: 0,
            guard: String::new(),
        }
    }

    /// A register that nothing has written yet.
    pub fn reg(&mut self, class: Class) -> Reg {
        let count = &mut self.registers[class as usize];
        *count += 1;
        Reg { class, index: *count - 1 }
    }

    /// Several registers that nothing has written yet.
    pub fn regs(&mut self, class: Class, count: usize) -> Vec<Reg> {
        (0..count).map(|_| self.reg(class)).collect()
    }

    /// Writes an instruction.
    pub fn instruction(&mut self, opcode: &str, operands: &[&dyn Display]) {
        let mut line = format!("\t{}{opcode}", self.guard);
        for (i, operand) in operands.iter().enumerate() {
            let _ = write!(line, "{}{operand}", if i == 0 { " " } else { ", " });
        }
        line.push_str(";\n");
        self.body.push_str(&line);
    }

    /// Writes an instruction whose first operand is a new register, and gives that register.
    pub fn define(&mut self, class: Class, opcode: &str, operands: &[&dyn Display]) -> Reg {
        let result = self.reg(class);
        self.instruction_into(result, opcode, operands);
        result
    }

    /// Writes an instruction whose first operand is `result`.
    pub fn instruction_into(&mut self, result: Reg, opcode: &str, operands: &[&dyn Display]) {
        let mut all: Vec<&dyn Display> = vec![&result];
        all.extend_from_slice(operands);
        self.instruction(opcode, &all);
    }

    /// A new parameter of 64 bits that holds the address of a buffer in global memory.
    pub fn buffer_parameter(&mut self) -> Reg {
        let index = self.parameters.len();
        self.parameters.push(".u64");
        let name = format!("[p{index}]");
        self.define(Class::B64, "ld.param.u64", &[&name])
    }

    /// A new parameter of 32 bits.
    pub fn number_parameter(&mut self) -> Reg {
        let index = self.parameters.len();
        self.parameters.push(".u32");
        let name = format!("[p{index}]");
        self.define(Class::B32, "ld.param.u32", &[&name])
    }

    /// A number of 64 bits that the text shall not depend on, so that it is the same for arrays of other sizes: a parameter,
    /// whose argument is among [`PtxBuilder::sizes`]. All other parameters come before the first of them.
    pub fn size64(&mut self, value: u64) -> Reg {
        self.sizes.push(KernelArgument::U64(value));
        self.buffer_parameter()
    }

    /// As [`PtxBuilder::size64`], of 32 bits; negative numbers are in two's complement.
    pub fn size32(&mut self, value: i64) -> Reg {
        self.sizes.push(KernelArgument::U32(value as u32));
        self.number_parameter()
    }

    /// As [`PtxBuilder::size64`], a float.
    pub fn size_f32(&mut self, value: f32) -> Reg {
        let bits = self.size32(value.to_bits().into());
        self.define(Class::F32, "mov.b32", &[&bits])
    }

    /// The arguments for what [`PtxBuilder::size64`] and its like have made parameters, to come after all others.
    pub fn sizes(&self) -> &[KernelArgument] {
        &self.sizes
    }

    /// Room in shared memory after all that was asked for so far; gives its offset.
    pub fn shared(&mut self, bytes: u32, alignment: u32) -> u32 {
        let offset = self.shared_bytes.next_multiple_of(alignment);
        self.shared_bytes = offset + bytes;
        offset
    }

    /// How much shared memory was asked for.
    pub fn shared_bytes(&self) -> u32 {
        self.shared_bytes
    }

    /// The address of the block's dynamic shared memory, 1024-byte aligned.
    pub fn shared_base(&mut self) -> Reg {
        self.define(Class::B32, "mov.u32", &[&"smem"])
    }

    /// A label that is not placed yet.
    pub fn label(&mut self) -> Label {
        self.labels += 1;
        Label(self.labels - 1)
    }

    /// Places a label here.
    pub fn place(&mut self, label: Label) {
        let _ = writeln!(self.body, "{label}:");
    }

    /// Jumps.
    pub fn branch(&mut self, label: Label) {
        self.instruction("bra", &[&label]);
    }

    /// Jumps where the predicate holds.
    pub fn branch_if(&mut self, predicate: Reg, label: Label) {
        self.guarded(predicate, true, |k| k.branch(label));
    }

    /// Jumps where the predicate does not hold.
    pub fn branch_unless(&mut self, predicate: Reg, label: Label) {
        self.guarded(predicate, false, |k| k.branch(label));
    }

    /// Jumps where the predicate holds, which it does for all threads of a warp or for none.
    pub fn branch_uniform_if(&mut self, predicate: Reg, label: Label) {
        self.guarded(predicate, true, |k| k.instruction("bra.uni", &[&label]));
    }

    /// Jumps where the predicate does not hold, which is so for all threads of a warp or for none.
    pub fn branch_uniform_unless(&mut self, predicate: Reg, label: Label) {
        self.guarded(predicate, false, |k| k.instruction("bra.uni", &[&label]));
    }

    /// Writes instructions that are carried out only where the predicate is `when`. Guards do not nest.
    pub fn guarded<T>(&mut self, predicate: Reg, when: bool, write: impl FnOnce(&mut Self) -> T) -> T {
        let before = std::mem::replace(&mut self.guard, format!("@{}{predicate} ", if when { "" } else { "!" }));
        debug_assert!(before.is_empty(), "guards do not nest");
        let result = write(self);
        self.guard = before;
        result
    }

    /// Writes a loop that stays one: its body once, with how often it ran before. A body that is repeated in the text takes
    /// the assembler as much longer.
    pub fn repeat(&mut self, times: u32, body: impl FnOnce(&mut Self, Reg)) {
        let index = self.define(Class::B32, "mov.u32", &[&0]);
        if times <= 1 {
            return body(self, index);
        }
        let again = self.label();
        self.place(again);
        self.body.push_str("\t.pragma \"nounroll\";\n");
        body(self, index);
        self.instruction_into(index, "add.s32", &[&index, &1]);
        let more = self.define(Class::Pred, "setp.lt.u32", &[&index, &times]);
        self.branch_uniform_if(more, again);
    }

    /// The text of a module that holds this kernel alone.
    pub fn finish(self) -> String {
        let mut text = format!(
            ".version 8.0\n.target {}\n.address_size 64\n\n.extern .shared .align 1024 .b8 smem[];\n\n.visible .entry {}(\n",
            self.architecture, self.name
        );
        for (i, parameter) in self.parameters.iter().enumerate() {
            let comma = if i + 1 == self.parameters.len() { "" } else { "," };
            let _ = writeln!(text, "\t.param {parameter} p{i}{comma}");
        }
        let _ =
            writeln!(text, ")\n.maxntid {}, 1, 1\n.minnctapersm {}\n{{", self.threads, self.blocks_per_multiprocessor);
        for class in Class::ALL {
            let count = self.registers[class as usize];
            if count > 0 {
                let _ = writeln!(text, "\t.reg {} {}<{count}>;", class.ptx_type(), class.prefix());
            }
        }
        text.push_str(&self.body);
        text.push_str("\tret;\n}\n");
        text
    }
}

/// `emit!(k, "st.shared.b32", at(a, 0), v)`: writes an instruction.
macro_rules! emit {
    ($k:expr, $opcode:expr $(, $operand:expr)* $(,)?) => {
        $k.instruction($opcode, &[$(&$operand as &dyn std::fmt::Display),*])
    };
}

/// `def!(k, B32, "add.s32", a, b)`: writes an instruction whose result is a new register, and gives it.
macro_rules! def {
    ($k:expr, $class:ident, $opcode:expr $(, $operand:expr)* $(,)?) => {
        $k.define($crate::ptx::Class::$class, $opcode, &[$(&$operand as &dyn std::fmt::Display),*])
    };
}

pub(crate) use {def, emit};
