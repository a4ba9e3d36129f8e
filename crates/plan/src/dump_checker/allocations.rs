//! Reads the allocations of a dump, to the last byte: kinds, sizes, values and their shapes, and the total.

use super::cursor::{Cursor, Read};
use super::{Dump, Names};
use crate::calls::is_flow;
use crate::check::{Assigned, Assignment, Piece};
use crate::dump::human_bytes;
use hloom_ir::diagnostic::Span;
use hloom_ir::diagnostic::codes::plan::{DUMP_NAMES, WRONG_KIND};
use hloom_ir::display::ShapeStyle;
use hloom_ir::entity::{EntityId, InstructionId};
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::shape::{Shape, ShapeIndex};
use hloom_target::Target;

struct Reader<'a, 'm> {
    module: &'m Module,
    names: &'a Names<'m>,
    /// Whether the computation is a step of the flow, by its index.
    is_step: Vec<bool>,
    dump: Dump,
}

pub(super) fn read(module: &Module, names: &Names<'_>, cursor: &mut Cursor<'_>) -> Read<Dump> {
    let mut is_step = vec![false; module.computation_slots()];
    for &id in module.computations().iter().flat_map(|&c| module[c].instructions()) {
        if is_flow(&module[id].op) {
            module[id].op.called_computations().iter().for_each(|c| is_step[c.index()] = true);
        }
    }
    let mut reader = Reader { module, names, is_step, dump: Dump::default() };
    let mut assignment = Assignment::default();
    cursor.expect("BufferAssignment:\n")?;
    while cursor.rest().starts_with('a') {
        let number = assignment.allocations.len();
        let allocation = reader.allocation(cursor, number)?;
        assignment.allocations.push(allocation);
    }
    reader.dump.is_whole = cursor.is_at_end();
    reader.dump.rest = cursor.at;
    if !cursor.is_at_end() {
        assignment.stated_total = Some(total(cursor, &assignment)?);
    }
    Ok(Dump { assignment: Some(assignment), ..reader.dump })
}

/// Checks the line with the total, and leaves the cursor before it.
fn total(cursor: &mut Cursor<'_>, assignment: &Assignment) -> Read<i64> {
    let mut ahead = cursor.clone();
    ahead.expect("\nTotal bytes used: ")?;
    let start = ahead.at;
    let stated = ahead.number()?;
    let sum: i128 = assignment.allocations.iter().map(|a| i128::from(a.size)).sum();
    if i128::from(stated) != sum {
        return Err(ahead.error_over(
            start,
            format!("the allocations are {sum} bytes together"),
            format!("expected {sum}"),
        ));
    }
    ahead.expect(" (")?;
    ahead.expect(&human_bytes(sum))?;
    ahead.expect(")\n")?;
    Ok(stated)
}

fn shown(shape: &Shape, style: ShapeStyle) -> String {
    let mut text = String::new();
    shape.write(&mut text, style);
    text
}

impl Reader<'_, '_> {
    /// `allocation 0: size 512, color 1, parameter 4, shape |…| at ShapeIndex {}, thread-local:` and its values.
    fn allocation(&mut self, cursor: &mut Cursor<'_>, number: usize) -> Read<Assigned> {
        cursor.expect(&format!("allocation {number}: size "))?;
        let mut allocation = Assigned { size: cursor.number()?, ..Assigned::default() };
        if cursor.eat(", color ") {
            let start = cursor.at;
            allocation.memory_space = cursor.number()?;
            if allocation.memory_space == 0 {
                return Err(cursor.error_over(start, "main memory is not named", "expected another memory space"));
            }
        }
        cursor.eat(", page 0");
        if cursor.eat(", parameter ") {
            allocation.parameter = Some(self.parameter(cursor)?);
        }
        if cursor.eat(", output shape is |") {
            let root = self.module.entry().and_then(|e| self.module.root(e));
            let shape = root.map_or(String::new(), |r| shown(&self.module[r].shape, ShapeStyle::SIGNATURE));
            cursor.expect(&format!("{shape}|"))?;
        }
        for (flag, word) in [
            (&mut allocation.is_constant, ", constant"),
            (&mut allocation.is_thread_local, ", thread-local"),
            (&mut allocation.is_live_out, ", maybe-live-out"),
        ] {
            *flag = cursor.eat(word);
        }
        let is_named = allocation.is_constant || allocation.is_thread_local || allocation.is_live_out;
        if !is_named && allocation.parameter.is_none() {
            cursor.expect(", preallocated-temp")?;
        }
        cursor.expect(":\n")?;
        let mut last = -1;
        while cursor.rest().starts_with(" v") {
            let start = cursor.at;
            let (id, piece) = self.value(cursor, &allocation)?;
            if id <= last {
                return Err(cursor.error_over(start, format!("value {id} comes after {last}"), "values are sorted"));
            }
            last = id;
            allocation.pieces.push(piece);
        }
        Ok(allocation)
    }

    fn parameter(&self, cursor: &mut Cursor<'_>) -> Read<(i64, ShapeIndex)> {
        let start = cursor.at;
        let number = cursor.number()?;
        let parameters = self.module.entry().map(|e| self.module.parameters(e)).unwrap_or_default();
        let Some(&id) = usize::try_from(number).ok().and_then(|n| parameters.get(n)) else {
            let message = format!("the program has {} parameters", parameters.len());
            return Err(cursor.error_over(start, message, "there is no such parameter"));
        };
        cursor.expect(", shape |")?;
        let at = cursor.at;
        // The index tells which part is meant, and dialect B shows that part only.
        let line = cursor.line();
        let after = line.find("| at ShapeIndex ").unwrap_or(line.len());
        let said = &line[..after];
        cursor.at += after;
        cursor.expect("| at ShapeIndex ")?;
        let start = cursor.at;
        let index = cursor.index()?;
        let Some(part) = self.module[id].shape.at(&index) else {
            return Err(cursor.error_over(start, format!("parameter {number} has no such part"), "no such part"));
        };
        let whole = shown(&self.module[id].shape, ShapeStyle::SIGNATURE);
        if said != whole && said != shown(part, ShapeStyle::SIGNATURE) {
            cursor.at = at;
            cursor.expect(&whole)?;
            return Err(cursor.error("this is not the parameter's shape", "expected the end of the shape"));
        }
        Ok((number, index))
    }

    /// ` value: <30 copy-start.1{2} (phi) @2> (size=4,offset=0): u32[]`.
    fn value(&mut self, cursor: &mut Cursor<'_>, allocation: &Assigned) -> Read<(i64, Piece)> {
        cursor.expect(" value: ")?;
        let start = cursor.at;
        let (id, instruction, index, is_phi) = short(self.module, self.names, cursor)?;
        let span = Span::new(start, cursor.at);
        let instruction_here = &self.module[instruction];
        let Some(shape) = instruction_here.shape.at(&index) else {
            return Err(cursor.error_over(start, "there is no such part", "no such part"));
        };
        if Target::memory_space(shape) != allocation.memory_space {
            let memory_space = Target::memory_space(shape);
            let message = format!("`{}` belongs into memory space {memory_space}", instruction_here.name());
            let label = format!("the allocation is in {}", allocation.memory_space);
            let error = cursor.error_over(start, message, label);
            return Err(hloom_ir::Diagnostic { code: &WRONG_KIND, ..error });
        }
        if is_phi != self.merges(instruction) {
            let message = match is_phi {
                true => "only loops and conditionals merge values",
                false => "a loop or conditional makes no value but merges others",
            };
            return Err(cursor.error_over(start, message, if is_phi { "not a phi" } else { "expected ` (phi)`" }));
        }
        cursor.expect(" (size=")?;
        let size = cursor.number()?;
        cursor.expect(",offset=")?;
        let offset = cursor.number()?;
        cursor.expect("): ")?;
        cursor.expect_line(&shown(shape, ShapeStyle::FULL), "this is not the value's shape in the module")?;
        self.dump.lines.entry(instruction).or_insert(span);
        let place = (instruction, index.clone());
        if let Some(other) = self.dump.values.insert(id, place) {
            let name = self.module[other.0].name();
            let message = format!("value {id} is `{name}` already");
            let error = cursor.error_over(start, message, "this number is taken");
            return Err(hloom_ir::Diagnostic { code: &DUMP_NAMES, ..error });
        }
        Ok((id, Piece { instruction, index, is_phi, offset, size }))
    }

    /// Whether whatever is at the instruction arrives from elsewhere.
    fn merges(&self, id: InstructionId) -> bool {
        match self.module[id].op {
            Op::While { .. } | Op::Conditional { .. } => true,
            Op::Parameter { .. } => self.is_step[self.module[id].parent().index()],
            _ => false,
        }
    }
}

/// `<30 copy-start.1{2} (phi) @2>`: the number, the instruction, the part, whether it merges others.
pub(super) fn short(
    module: &Module,
    names: &Names<'_>,
    cursor: &mut Cursor<'_>,
) -> Read<(i64, InstructionId, ShapeIndex, bool)> {
    cursor.expect("<")?;
    let id = cursor.number()?;
    cursor.expect(" ")?;
    let start = cursor.at;
    let instruction = cursor.name(names, &['{', ' '])?;
    let index = match module[instruction].shape.is_tuple() {
        true => cursor.index()?,
        false => ShapeIndex::new(),
    };
    let Some(shape) = module[instruction].shape.at(&index) else {
        let message = format!("`{}` has no such part", module[instruction].name());
        let error = cursor.error_over(start, message, "no such part");
        return Err(hloom_ir::Diagnostic { code: &DUMP_NAMES, ..error });
    };
    let is_phi = cursor.eat(" (phi)");
    cursor.expect(&format!(" @{}>", Target::memory_space(shape)))?;
    Ok((id, instruction, index, is_phi))
}
