//! Compares what a dump says of values and times with what follows from the module.
//!
//! The numbers of values, and the order of positions and uses within a value, are the history of the compiler that wrote
//! the dump: they are taken as they are, as long as all is there and nothing else.

use super::allocations::short;
use super::cursor::{Cursor, Read};
use super::{Dump, Names, names};
use crate::Plan;
use crate::backend_config::before_code_generation;
use crate::dataflow::ValueId;
use crate::dump::BREAKDOWN;
use crate::dump::{Part, dump_b, human_bytes, write_index};
use crate::live_range::{instruction_bytes, peak};
use hloom_formats::hlo_text::{InstructionStyle, PrintOptions, print_styled};
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::diagnostic::codes::plan::DUMP_NAMES;
use hloom_ir::entity::InstructionId;
use hloom_target::Target;
use rustc_hash::{FxHashMap, FxHashSet};
use std::fmt::Write;

struct Comparison<'a, 'm> {
    plan: &'a Plan<'m>,
    target: &'a Target,
    dump: &'a Dump,
    names: Names<'m>,
}

/// The first thing that the dump says and that is not so.
pub(super) fn compare(plan: &Plan<'_>, target: &Target, dump: &Dump, text: &str) -> Read<()> {
    let comparison = Comparison { plan, target, dump, names: names(plan.dataflow.module()) };
    let mut cursor = Cursor::new(text);
    cursor.at = dump.rest;
    if dump.assignment.is_some() {
        comparison.all_placed(&cursor)?;
    }
    if cursor.is_at_end() && dump.is_whole {
        return Ok(());
    }
    if cursor.rest().starts_with("HloLiveRange") {
        return comparison.live_ranges(&mut cursor);
    }
    comparison.values(&mut cursor)?;
    if cursor.is_at_end() && dump.assignment.is_none() {
        return Ok(());
    }
    cursor.expect("\n\n")?;
    comparison.live_ranges(&mut cursor)
}

fn other_module(diagnostic: Diagnostic) -> Diagnostic {
    Diagnostic { code: &DUMP_NAMES, ..diagnostic }
}

impl Comparison<'_, '_> {
    /// Every value that needs a place has one in the dump. The cursor is behind the allocations.
    fn all_placed(&self, cursor: &Cursor<'_>) -> Read<()> {
        let dataflow = &self.plan.dataflow;
        let placed: FxHashSet<(InstructionId, &[i64])> = self.dump.values.values().map(|(i, x)| (*i, &x[..])).collect();
        for value in self.plan.placed_values() {
            let Some(made) = dataflow.value(value) else { continue };
            let (instruction, index) = (dataflow.instruction(made), dataflow.positions.index(made.position));
            if !placed.contains(&(instruction, &index[..])) {
                let mut name = dataflow.module()[instruction].name().to_owned();
                if !index.is_empty() {
                    write_index(&mut name, &index);
                }
                let error = cursor.error(format!("`{name}` has no place"), format!("expected the value `{name}`"));
                return Err(other_module(error));
            }
        }
        Ok(())
    }

    fn values(&self, cursor: &mut Cursor<'_>) -> Read<()> {
        cursor.expect("\nTotal bytes used: ")?;
        let start = cursor.at;
        let total = cursor.number()?;
        if self.dump.assignment.is_none() && total < 0 {
            return Err(cursor.error_over(start, "less than nothing is used", "expected a number"));
        }
        cursor.expect(" (")?;
        cursor.expect(&human_bytes(i128::from(total)))?;
        cursor.expect(")\n\nUsed values:\n")?;
        let mut seen: FxHashSet<ValueId> = FxHashSet::default();
        let mut last = -1;
        while cursor.rest().starts_with('<') {
            let start = cursor.at;
            let (id, instruction, index, is_phi) = short(self.plan.dataflow.module(), &self.names, cursor)?;
            let fail = |message: String, label: &str| Err(other_module(cursor.error_over(start, message, label)));
            if id <= last {
                return fail(format!("value {id} comes after {last}"), "values are sorted");
            }
            last = id;
            if self.dump.assignment.is_some() {
                match self.dump.values.get(&id) {
                    Some(known) if *known == (instruction, index.clone()) => {}
                    Some(_) => return fail(format!("value {id} is another one above"), "not the same value"),
                    None => return fail(format!("value {id} lies in no allocation"), "this value has no place"),
                }
            }
            let dataflow = &self.plan.dataflow;
            let position = dataflow.positions.part(instruction, &index).map(|p| p.start);
            let value = position
                .and_then(|p| dataflow.at(p))
                .filter(|&v| dataflow.value(v).is_some_and(|v| Some(v.position) == position && v.is_phi == is_phi));
            let Some(value) = value else {
                return fail("the module makes no such value".to_owned(), "not a value of the module");
            };
            if !seen.insert(value) {
                return fail("this value stands here for the second time".to_owned(), "stood above");
            }
            self.value(cursor, value)?;
        }
        if self.dump.assignment.is_some() && seen.len() < self.dump.values.len() {
            let module = self.plan.dataflow.module();
            let missing = self.dump.values.iter().filter(|(_, (id, index))| {
                let part = self.plan.dataflow.positions.part(*id, index);
                part.and_then(|p| self.plan.dataflow.at(p.start)).is_none_or(|v| !seen.contains(&v))
            });
            let first = missing.min_by_key(|m| *m.0).map(|(id, (i, _))| format!("<{id} {}>", module[*i].name()));
            let label = format!("expected the value {}", first.unwrap_or_default());
            return Err(cursor.error("not all values that have a place stand here", label));
        }
        Ok(())
    }

    fn value(&self, cursor: &mut Cursor<'_>, value: ValueId) -> Read<()> {
        let dataflow = &self.plan.dataflow;
        let module = dataflow.module();
        cursor.expect("\n positions:\n")?;
        let positions = dataflow.positions_of(value).iter().map(|&p| self.position(p)).collect();
        self.listed(cursor, positions, "position")?;
        cursor.expect(" uses:\n")?;
        let uses: Vec<String> = dataflow
            .uses_of(value)
            .iter()
            .map(|u| {
                let mut line = format!("{}, operand {}", module[u.user].name(), u.operand);
                let operand = dataflow.positions.instruction(u.position);
                if module[operand].shape.is_tuple() {
                    line.push(' ');
                    write_index(&mut line, &dataflow.positions.index(u.position));
                }
                line
            })
            .collect();
        if !(uses.is_empty() && cursor.eat("  (none)\n")) {
            self.listed(cursor, uses, "use")?;
        }
        cursor.expect(" from instruction: ")?;
        let Some(made) = dataflow.value(value) else { return Ok(()) };
        self.instruction(cursor, dataflow.instruction(made))?;
        // One generation of compilers wrote no end of line here.
        cursor.eat("\n");
        Ok(())
    }

    /// Lines that are each one of `expected`, in any order, all of them.
    fn listed(&self, cursor: &mut Cursor<'_>, expected: Vec<String>, what: &str) -> Read<()> {
        let mut left: FxHashMap<&str, usize> = FxHashMap::default();
        for line in &expected {
            *left.entry(line).or_default() += 1;
        }
        while cursor.eat("  ") {
            let start = cursor.at;
            let line = cursor.line();
            cursor.at += line.len();
            match left.get_mut(line) {
                Some(count) if *count > 0 => *count -= 1,
                _ => {
                    let message = format!("this is no {what} of the value");
                    let next = expected.iter().find(|e| left.get(e.as_str()).is_some_and(|&n| n > 0));
                    let label = next.map_or("expected no more".to_owned(), |n| format!("expected `{n}`"));
                    return Err(other_module(cursor.error_over(start, message, label)));
                }
            }
            cursor.expect("\n")?;
        }
        match expected.iter().find(|e| left.get(e.as_str()).is_some_and(|&n| n > 0)) {
            Some(missing) => {
                Err(cursor.error(format!("a {what} of the value is missing"), format!("expected `{missing}`")))
            }
            None => Ok(()),
        }
    }

    fn position(&self, position: u32) -> String {
        let positions = &self.plan.dataflow.positions;
        let instruction = &positions.module()[positions.instruction(position)];
        let mut line = instruction.name().to_owned();
        if instruction.shape.is_tuple() {
            line.push(' ');
            write_index(&mut line, &positions.index(position));
        }
        line
    }

    /// The text of an instruction, in either dialect, as it is now or as it was before code generation.
    fn instruction(&self, cursor: &mut Cursor<'_>, id: InstructionId) -> Read<()> {
        let module = self.plan.dataflow.module();
        let config = module[id].common.backend_config.as_deref();
        let early = config.filter(|_| self.target.late_backend_config).map(before_code_generation);
        let mut texts = Vec::new();
        for operand_shapes in [true, false] {
            for backend_config in [early.as_deref(), None] {
                let options = PrintOptions { elide_constants: true };
                texts.push(print_styled(module, id, &InstructionStyle { options, operand_shapes, backend_config }));
            }
        }
        let line = cursor.line();
        let is_end = |after: &str| after.is_empty() || after.starts_with('<');
        if let Some(text) = texts.iter().find(|t| line.strip_prefix(t.as_str()).is_some_and(is_end)) {
            cursor.at += text.len();
            return Ok(());
        }
        let same = |t: &String| t.bytes().zip(line.bytes()).take_while(|(a, b)| a == b).count();
        let nearest = texts.iter().max_by_key(|t| same(t)).map_or("", String::as_str);
        cursor.expect_line(nearest, "this is not the instruction as it is in the module").map_err(other_module)
    }

    fn live_ranges(&self, cursor: &mut Cursor<'_>) -> Read<()> {
        let schedule = &self.plan.schedule;
        let module = self.plan.dataflow.module();
        cursor.expect("HloLiveRange (max ")?;
        let start = cursor.at;
        if cursor.number()? != i64::from(schedule.end()) {
            let label = format!("expected {}", schedule.end());
            return Err(other_module(cursor.error_over(start, "the schedule has another length", label)));
        }
        cursor.expect("):\n  InstructionSequence:\n")?;
        let mut has_run: FxHashSet<InstructionId> = FxHashSet::default();
        for (time, &id) in schedule.sequence.iter().enumerate() {
            cursor.expect(&format!("    {time}:"))?;
            let start = cursor.at;
            let said = cursor.name(&self.names, &['\n'])?;
            if said != id {
                let early = module[said].operands().iter().find(|o| !has_run.contains(o));
                let message = match early {
                    Some(&operand) => {
                        format!("`{}` runs before `{}`, which it reads", module[said].name(), module[operand].name())
                    }
                    None => format!("the module's schedule has `{}` here", module[id].name()),
                };
                let label = format!("expected `{}`", module[id].name());
                return Err(other_module(cursor.error_over(start, message, label)));
            }
            has_run.insert(id);
            cursor.expect("\n")?;
        }
        cursor.expect("  BufferLiveRange:\n")?;
        self.ranges(cursor)?;
        self.peak(cursor)
    }

    fn ranges(&self, cursor: &mut Cursor<'_>) -> Read<()> {
        let dataflow = &self.plan.dataflow;
        let mut seen: FxHashSet<ValueId> = FxHashSet::default();
        while cursor.eat("    ") {
            let start = cursor.at;
            let instruction = cursor.name(&self.names, &['{'])?;
            let index = cursor.index()?;
            let position = dataflow.positions.part(instruction, &index).map(|p| p.start);
            let value = position.and_then(|p| dataflow.at(p));
            let value = value.filter(|&v| dataflow.value(v).is_some_and(|v| Some(v.position) == position));
            let range = value.and_then(|v| self.plan.live.of(v));
            let (Some(value), Some(range)) = (value, range) else {
                return Err(other_module(cursor.error_over(start, "the module makes no such value", "not a value")));
            };
            if !seen.insert(value) {
                return Err(cursor.error_over(start, "this value stands here for the second time", "stood above"));
            }
            cursor.expect(":")?;
            let start = cursor.at;
            let (from, _, to) = (cursor.number()?, cursor.expect("-")?, cursor.number()?);
            if (from, to) != (i64::from(range.start), i64::from(range.end)) {
                let message = format!("the value is needed from {} to {}", range.start, range.end);
                let label = format!("expected {}-{}", range.start, range.end);
                return Err(other_module(cursor.error_over(start, message, label)));
            }
            cursor.expect("\n")?;
        }
        let missing = dataflow.values().find(|(id, _)| self.plan.live.of(*id).is_some() && !seen.contains(id));
        match missing {
            Some((_, value)) => {
                let name = dataflow.module()[dataflow.instruction(value)].name();
                Err(cursor.error("a live range is missing", format!("expected that of `{name}`")))
            }
            None => Ok(()),
        }
    }

    fn peak(&self, cursor: &mut Cursor<'_>) -> Read<()> {
        let dataflow = &self.plan.dataflow;
        let Some(peak) = peak(dataflow, &self.plan.live) else { return self.end(cursor) };
        cursor.expect("  Live ranges at ")?;
        let start = cursor.at;
        if cursor.number()? != i64::from(peak.time) {
            let label = format!("expected {}", peak.time);
            return Err(other_module(cursor.error_over(start, "most is needed at another time", label)));
        }
        cursor.expect(" (peak):\n")?;
        if !cursor.line().contains(" (cumulative: ") {
            let mut lines = Vec::new();
            for &id in &peak.values {
                let Some(value) = dataflow.value(id) else { continue };
                let mut line = String::new();
                let name = dataflow.module()[dataflow.instruction(value)].name();
                let _ = write!(line, "  {name}: {} bytes", instruction_bytes(dataflow, id));
                lines.push(line);
            }
            self.listed(cursor, lines, "line")?;
            return self.end(cursor);
        }
        let ours = dump_b(self.plan, self.target, Part::LiveRange);
        let tail = ours.split_once(" (peak):\n").map_or("", |t| t.1);
        for line in tail.lines() {
            // Compilers of the middle of 2025 list the peak so, but do not break it down yet.
            if cursor.is_at_end() && line.starts_with(BREAKDOWN) {
                break;
            }
            cursor.expect_line(line, "this does not follow from the module").map_err(other_module)?;
        }
        self.end(cursor)
    }

    fn end(&self, cursor: &Cursor<'_>) -> Read<()> {
        match cursor.is_at_end() {
            true => Ok(()),
            false => Err(cursor.error("the dump goes on after its end", "expected nothing more")),
        }
    }
}
