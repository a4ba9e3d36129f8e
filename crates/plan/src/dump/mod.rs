//! Buffer assignments in the forms that XLA's compilers dump them in.
//!
//! Dialect A is one text: allocations, used values, live ranges. Dialect B is three, and lists what is needed at the
//! peak by size, with a tree of where in the program it comes from.

mod live_range;
mod tree;

use crate::Plan;
use crate::assign::Allocation;
use crate::backend_config::before_code_generation;
use crate::dataflow::ValueId;
use hloom_formats::hlo_text::{InstructionStyle, PrintOptions, print_styled};
use hloom_ir::display::ShapeStyle;
use hloom_ir::op::Op;
use hloom_ir::shape::Shape;
use hloom_target::{DumpDialect, Target};
use std::fmt::Write;

/// What the tree of where the memory at the peak comes from begins with.
pub(crate) const BREAKDOWN: &str = "  Stack trace breakdown for peak usage:";

/// How the dump of a buffer assignment begins.
pub const ASSIGNMENT_HEAD: &str = "BufferAssignment:";

/// A part of a dump.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// The allocations and what lies in them.
    Allocations,
    /// The total and every value that has a place.
    Values,
    /// The schedule, the live ranges and the peak.
    LiveRange,
}

/// The whole dump, in dialect A.
pub fn dump_a(plan: &Plan<'_>, target: &Target) -> String {
    let dumper = Dumper { plan, target, dialect: DumpDialect::A };
    let mut out = String::new();
    dumper.allocations(&mut out);
    dumper.values(&mut out);
    out.push_str("\n\n");
    live_range::write(plan, DumpDialect::A, &mut out);
    out
}

/// A part of the dump, in dialect B.
pub fn dump_b(plan: &Plan<'_>, target: &Target, part: Part) -> String {
    let dumper = Dumper { plan, target, dialect: DumpDialect::B };
    let mut out = String::new();
    match part {
        Part::Allocations => dumper.allocations(&mut out),
        Part::Values => dumper.values(&mut out),
        Part::LiveRange => live_range::write(plan, DumpDialect::B, &mut out),
    }
    out
}

/// `14.3KiB`, as XLA writes sizes for people.
pub fn human_bytes(bytes: i128) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes}B");
    }
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 1 { format!("{value:.1}{}", UNITS[unit]) } else { format!("{value:.2}{}", UNITS[unit]) }
}

struct Dumper<'a, 'm> {
    plan: &'a Plan<'m>,
    target: &'a Target,
    dialect: DumpDialect,
}

impl Dumper<'_, '_> {
    fn allocations(&self, out: &mut String) {
        out.push_str(ASSIGNMENT_HEAD);
        out.push('\n');
        for (number, allocation) in self.plan.allocations.iter().enumerate() {
            self.allocation(out, number, allocation);
        }
    }

    fn allocation(&self, out: &mut String, number: usize, allocation: &Allocation) {
        let dataflow = &self.plan.dataflow;
        let module = dataflow.module();
        let _ = write!(out, "allocation {number}: size {}", allocation.size);
        if allocation.memory_space != 0 {
            let _ = write!(out, ", color {}", allocation.memory_space);
        }
        if self.dialect == DumpDialect::B && self.target.pages {
            out.push_str(", page 0");
        }
        if let Some(position) = allocation.parameter {
            let instruction = dataflow.positions.instruction(position);
            let parameter = match module[instruction].op {
                Op::Parameter { number, .. } => number,
                _ => 0,
            };
            let shape = match self.dialect {
                DumpDialect::A => &module[instruction].shape,
                DumpDialect::B => dataflow.positions.shape(position),
            };
            let _ = write!(out, ", parameter {parameter}, shape |");
            shape.write(out, ShapeStyle::SIGNATURE);
            out.push_str("| at ShapeIndex ");
            write_index(out, &dataflow.positions.index(position));
        }
        if let Some(shape) = self.output_shape(allocation) {
            out.push_str(", output shape is |");
            shape.write(out, ShapeStyle::SIGNATURE);
            out.push('|');
        }
        for (flag, text) in [
            (allocation.is_constant, ", constant"),
            (allocation.is_thread_local, ", thread-local"),
            (allocation.is_live_out, ", maybe-live-out"),
            (allocation.is_temporary(), ", preallocated-temp"),
        ] {
            out.push_str(if flag { text } else { "" });
        }
        out.push_str(":\n");
        for place in &allocation.places {
            out.push_str(" value: ");
            self.short(out, place.value);
            let _ = write!(out, " (size={},offset={}): ", place.size, place.offset);
            if let Some(value) = dataflow.value(place.value) {
                dataflow.positions.shape(value.position).write(out, ShapeStyle::FULL);
            }
            out.push('\n');
        }
    }

    /// The shape of the whole result, if it may be in this allocation.
    fn output_shape(&self, allocation: &Allocation) -> Option<&Shape> {
        let dataflow = &self.plan.dataflow;
        let module = dataflow.module();
        let root = module.root(module.entry()?)?;
        let value = dataflow.at(dataflow.positions.whole(root))?;
        allocation.is_live_out.then_some(())?;
        let found = allocation.places.binary_search_by_key(&value, |p| p.value).is_ok();
        found.then(|| &module[root].shape)
    }

    /// `<30 copy-start.1{} @0>`.
    fn short(&self, out: &mut String, id: ValueId) {
        let dataflow = &self.plan.dataflow;
        let Some(value) = dataflow.value(id) else { return };
        let _ = write!(out, "<{id} ");
        self.position(out, value.position, "");
        if value.is_phi {
            out.push_str(" (phi)");
        }
        let _ = write!(out, " @{}>", Target::memory_space(dataflow.positions.shape(value.position)));
    }

    /// A name, and the index if the instruction makes a tuple.
    fn position(&self, out: &mut String, position: u32, between: &str) {
        let positions = &self.plan.dataflow.positions;
        let instruction = &positions.module()[positions.instruction(position)];
        out.push_str(instruction.name());
        if instruction.shape.is_tuple() {
            out.push_str(between);
            write_index(out, &positions.index(position));
        }
    }

    fn values(&self, out: &mut String) {
        let total = self.plan.total_bytes();
        let _ = write!(out, "\nTotal bytes used: {total} ({})\n\nUsed values:\n", human_bytes(total));
        for id in self.plan.placed_values() {
            self.value(out, id);
        }
    }

    fn value(&self, out: &mut String, id: ValueId) {
        let dataflow = &self.plan.dataflow;
        let module = dataflow.module();
        self.short(out, id);
        out.push_str("\n positions:\n");
        for &position in dataflow.positions_of(id) {
            out.push_str("  ");
            self.position(out, position, " ");
            out.push('\n');
        }
        out.push_str(" uses:\n");
        for usage in dataflow.uses_of(id) {
            let _ = write!(out, "  {}, operand {}", module[usage.user].name(), usage.operand);
            let operand = dataflow.positions.instruction(usage.position);
            if module[operand].shape.is_tuple() {
                out.push(' ');
                write_index(out, &dataflow.positions.index(usage.position));
            }
            out.push('\n');
        }
        if dataflow.uses_of(id).is_empty() && self.dialect == DumpDialect::B {
            out.push_str("  (none)\n");
        }
        out.push_str(" from instruction: ");
        if let Some(value) = dataflow.value(id) {
            let instruction = dataflow.instruction(value);
            let config = module[instruction].common.backend_config.as_deref();
            let config = config.filter(|_| self.target.late_backend_config).map(before_code_generation);
            let style = InstructionStyle {
                options: PrintOptions { elide_constants: true },
                operand_shapes: self.dialect == DumpDialect::A,
                backend_config: config.as_deref(),
            };
            out.push_str(&print_styled(module, instruction, &style));
        }
        out.push('\n');
    }
}

/// `{1,0}`.
pub(crate) fn write_index(out: &mut String, index: &[i64]) {
    out.push('{');
    hloom_ir::display::write_int_list(out, index);
    out.push('}');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_for_people() {
        let shown = [0, 1023, 1024, 14643, 299_944_008, 2_885_767_252].map(human_bytes);
        assert_eq!(shown, ["0B", "1023B", "1.0KiB", "14.3KiB", "286.05MiB", "2.69GiB"]);
    }
}
