//! Loop programs as text: the nest of loops, the items in the order in which they are made, the stores.
//!
//! ```text
//! for i0 in 0..64, i1 in 0..100:
//!   %0 f32 = load b0[100*i0 + i1]
//!   %1 f32 = exponential %0
//!   store b1[100*i0 + i1] = %1
//! ```
//! Items of a reduction stand before it; the loops that they change with are the reduction's own.

use crate::affine::{Affine, Term};
use crate::graph::{Function, FunctionOp, Graph, ScalarOp};
use crate::kernel::KernelLoops;
use crate::program::{Item, LoadSource, LoopProgram, Reduce};
use std::fmt::{self, Display, Formatter};

impl Display for Affine {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut first = true;
        for &(term, factor) in &self.terms {
            match (first, factor < 0) {
                (true, true) => f.write_str("-")?,
                (true, false) => {}
                (false, true) => f.write_str(" - ")?,
                (false, false) => f.write_str(" + ")?,
            }
            if factor.unsigned_abs() != 1 {
                write!(f, "{}*", factor.unsigned_abs())?;
            }
            match term {
                Term::Var(v) => write!(f, "i{v}")?,
                Term::Item(i) => write!(f, "%{i}")?,
            }
            first = false;
        }
        match (first, self.constant) {
            (true, c) => write!(f, "{c}"),
            (false, 0) => Ok(()),
            (false, c) if c < 0 => write!(f, " - {}", c.unsigned_abs()),
            (false, c) => write!(f, " + {c}"),
        }
    }
}

impl Display for ScalarOp {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            ScalarOp::Unary(op) => f.write_str(op.opcode().name()),
            ScalarOp::Binary(op) => f.write_str(op.opcode().name()),
            ScalarOp::Compare { direction, total } => {
                write!(f, "compare.{}{}", direction, if *total { ".total" } else { "" })
            }
            ScalarOp::Select => f.write_str("select"),
            ScalarOp::Clamp => f.write_str("clamp"),
            ScalarOp::Convert => f.write_str("convert"),
            ScalarOp::BitcastConvert => f.write_str("bitcast-convert"),
            ScalarOp::ReducePrecision { exponent_bits, mantissa_bits } => {
                write!(f, "reduce-precision.e{exponent_bits}m{mantissa_bits}")
            }
        }
    }
}

/// Bytes as hexadecimal digits, the most significant first.
struct Bits<'b>(&'b [u8]);
impl Display for Bits<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("0x")?;
        self.0.iter().rev().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl Display for Function {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(op) = self.single_operation() {
            return f.write_str(op.opcode().name());
        }
        f.write_str("{")?;
        for (n, step) in self.code.iter().enumerate() {
            match &step.op {
                FunctionOp::Parameter(_) => continue,
                FunctionOp::Constant(t, bytes) => write!(f, " ${n} = {t} {};", Bits(bytes))?,
                FunctionOp::Scalar(op) => {
                    write!(f, " ${n} = {op}")?;
                    step.operands.iter().try_for_each(|o| match self.code[*o as usize].op {
                        FunctionOp::Parameter(p) => write!(f, " p{p}"),
                        _ => write!(f, " ${o}"),
                    })?;
                    f.write_str(";")?;
                }
            }
        }
        self.results.iter().try_for_each(|r| write!(f, " ${r}"))?;
        f.write_str(" }")
    }
}

impl Display for LoadSource {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            LoadSource::Buffer(n) => write!(f, "b{n}"),
            LoadSource::Constant(data) => write!(f, "constant({} bytes)", data.bytes().len()),
            LoadSource::Tile(n) => write!(f, "tile{n}"),
            LoadSource::Row(n) => write!(f, "row{n}"),
        }
    }
}

/// Items one after another.
struct Items<'i>(&'i [u32]);
impl Display for Items<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|i| write!(f, " %{i}"))
    }
}

fn reduction(f: &mut Formatter<'_>, what: &str, reduce: &Reduce, program: &LoopProgram) -> fmt::Result {
    write!(f, "{what} {}", reduce.function)?;
    for &v in &reduce.vars {
        write!(f, " i{v} in 0..{}", program.extents[v as usize])?;
    }
    write!(f, " of{} from{}", Items(&reduce.inputs), Items(&reduce.inits))?;
    reduce.condition.map_or(Ok(()), |c| write!(f, " where %{c}"))
}

impl LoopProgram {
    fn write_item(&self, f: &mut Formatter<'_>, item: &Item) -> fmt::Result {
        match item {
            Item::Constant(_, bytes) => write!(f, "{}", Bits(bytes)),
            Item::Load { source, offset, guard } => {
                write!(f, "load {source}[{offset}]")?;
                guard.map_or(Ok(()), |g| write!(f, " where %{g}"))
            }
            Item::Index(index) => write!(f, "index {index}"),
            Item::Quotient(index, by) => write!(f, "({index}) / {by}"),
            Item::Remainder(index, by) => write!(f, "({index}) % {by}"),
            Item::InRange { index, low, high } => write!(f, "{low} <= {index} < {high}"),
            Item::Scalar(op, operands) => write!(f, "{op}{}", Items(operands)),
            Item::Apply(function, operands) => write!(f, "apply {function}{}", Items(operands)),
            Item::Reduce(reduce) => reduction(f, "reduce", reduce, self),
            Item::Scan(scan) => reduction(f, "scan", scan, self),
            Item::ReduceResult(of, n) => write!(f, "result {n} of %{of}"),
        }
    }
}

impl Display for LoopProgram {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(before) = &self.before {
            writeln!(f, "{before}then")?;
        }
        if let Some((from, to, bytes)) = self.copy_first {
            writeln!(f, "copy b{from} to b{to}, {bytes} bytes")?;
        }
        let loops: Vec<String> =
            self.nest.iter().map(|&v| format!("i{v} in 0..{}", self.extents[v as usize])).collect();
        let order = if self.is_sequential { " in order" } else { "" };
        match loops.is_empty() {
            true => writeln!(f, "once{order}:")?,
            false => writeln!(f, "for {}{order}:", loops.join(", "))?,
        }
        for (n, tile) in self.tiles.iter().enumerate() {
            let (source, side) = (&tile.source, tile.side);
            writeln!(f, "  tile{n} = {side}x{side} of {source}[{}], in i{}", tile.offset, tile.inside)?;
        }
        for (n, row) in self.rows.iter().enumerate() {
            writeln!(f, "  row{n} {} keeps %{} of %{}", row.element_type, row.item, row.reduce)?;
        }
        for (n, data) in self.items.iter().enumerate() {
            write!(f, "  %{n} {} = ", data.element_type)?;
            self.write_item(f, &data.item)?;
            f.write_str("\n")?;
        }
        for store in &self.stores {
            write!(f, "  store b{}[{}] = ", store.buffer, store.offset)?;
            match &store.combine {
                Some(function) => write!(f, "{function} of itself and %{}", store.item)?,
                None => write!(f, "%{}", store.item)?,
            }
            store.condition.map_or(Ok(()), |c| write!(f, " where %{c}"))?;
            f.write_str("\n")?;
        }
        Ok(())
    }
}

impl Display for KernelLoops {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Graph { inputs, outputs, .. } = &self.graph;
        writeln!(f, "kernel of {inputs} inputs and {} outputs", outputs.len())?;
        self.programs.iter().try_for_each(|p| p.fmt(f))
    }
}
