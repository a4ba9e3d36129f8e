//! Where the parts of a module are in the text it was read from.
//!
//! Only whole statements are kept, eight bytes each. The place of a part (a shape, an operand, an attribute) is found
//! again by scanning its one statement when a diagnostic is shown, so that the millions that are right cost nothing.

use super::read::{ident_end, is_ident_start, skip_space};
use hloom_ir::diagnostic::{Part, Place, Span};
use hloom_ir::entity::{ComputationId, EntityId, InstructionId};

/// Positions in the source of what a module holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceMap {
    header: Option<Span>,
    instructions: Vec<Span>,
    computations: Vec<Span>,
}

/// What an entity without a statement of its own has: instructions made by sugar, for instance.
const NOWHERE: Span = Span { start: u32::MAX, end: u32::MAX };

impl SourceMap {
    /// The module's header line, if it has one.
    pub fn header(&self) -> Option<Span> {
        self.header
    }

    /// The statement of `id`, from its name (or `ROOT`) to the end of its last attribute.
    pub fn instruction(&self, id: InstructionId) -> Option<Span> {
        self.instructions.get(id.index()).copied().filter(|&s| s != NOWHERE)
    }

    /// The header of `id`: its name and signature.
    pub fn computation(&self, id: ComputationId) -> Option<Span> {
        self.computations.get(id.index()).copied().filter(|&s| s != NOWHERE)
    }

    pub(crate) fn set_header(&mut self, span: Span) {
        self.header = Some(span);
    }

    /// Says where `id` is; for readers of other texts.
    pub fn set_instruction(&mut self, id: InstructionId, span: Span) {
        set(&mut self.instructions, id.index(), span);
    }

    pub(crate) fn set_computation(&mut self, id: ComputationId, span: Span) {
        set(&mut self.computations, id.index(), span);
    }

    /// The bytes of `text` that `place` means. `text` must be what the module was read from.
    pub fn resolve(&self, text: &[u8], place: &Place) -> Option<Span> {
        match *place {
            Place::None => None,
            Place::Span(span) => Some(span),
            Place::Header => self.header,
            Place::Computation(id) => self.computation(id),
            Place::Instruction(id, part) => {
                let whole = self.instruction(id)?;
                Some(find_part(text, whole, part).unwrap_or(whole))
            }
        }
    }
}

fn set(table: &mut Vec<Span>, index: usize, span: Span) {
    if table.len() <= index {
        table.resize(index + 1, NOWHERE);
    }
    table[index] = span;
}

/// Finds `part` in the statement `whole`. The statement was read without error once, so this only has to tell its
/// parts from one another; where it cannot, it answers `None`.
pub(crate) fn find_part(text: &[u8], whole: Span, part: Part) -> Option<Span> {
    let text = text.get(..whole.end as usize)?;
    let mut pos = skip_space(text, whole.start as usize);
    let rest = |pos: usize| text.get(pos..).unwrap_or_default();
    if rest(pos).starts_with(b"ROOT") && rest(pos + 4).first().is_some_and(u8::is_ascii_whitespace) {
        pos = skip_space(text, pos + 4);
    }
    // The name; an instruction in place of an operand has none.
    let name_end = word_end(text, pos);
    let equals = skip_space(text, name_end);
    if name_end > pos && rest(equals).first() == Some(&b'=') {
        if part == Part::Name {
            return Some(Span::new(pos, name_end));
        }
        pos = skip_space(text, equals + 1);
    }
    // The shape, where there is one.
    let shape_end = shape_end(text, pos);
    if part == Part::Shape {
        return (shape_end > pos).then(|| Span::new(pos, shape_end));
    }
    pos = skip_space(text, shape_end);
    let opcode_end = word_end(text, pos);
    if part == Part::Opcode {
        return (opcode_end > pos).then(|| Span::new(pos, opcode_end));
    }
    let open = skip_space(text, opcode_end);
    if rest(open).first() != Some(&b'(') {
        return None;
    }
    let close = group_end(text, open);
    if let Part::Operand(n) = part {
        return items(text, open + 1, close.checked_sub(1)?).nth(n);
    }
    let Part::Attribute(name) = part else { return None };
    let first = skip_space(text, close);
    if rest(first).first() != Some(&b',') {
        return None;
    }
    items(text, first + 1, text.len()).find(|s| {
        let attribute = &text[s.start as usize..s.end as usize];
        attribute.strip_prefix(name.as_bytes()).is_some_and(|r| r.first() == Some(&b'='))
    })
}

/// Where the word at `pos`, with or without `%`, ends.
fn word_end(text: &[u8], pos: usize) -> usize {
    let start = pos + usize::from(text.get(pos) == Some(&b'%'));
    if text.get(start).is_some_and(|&b| is_ident_start(b)) { ident_end(text, start) } else { pos }
}

/// Where the shape at `pos` ends; `pos` if there is none.
fn shape_end(text: &[u8], pos: usize) -> usize {
    if text.get(pos) == Some(&b'(') {
        return group_end(text, pos);
    }
    let type_end = word_end(text, pos);
    let mut end = match text.get(type_end) {
        Some(b'[') => group_end(text, type_end),
        Some(b'(') if &text[pos..type_end] == b"b" => return group_end(text, type_end),
        _ => return pos,
    };
    if text.get(end) == Some(&b'{') {
        end = group_end(text, end);
    }
    end
}

/// Where the bracket that opens at `pos` is closed again; strings and comments are passed over.
fn group_end(text: &[u8], mut pos: usize) -> usize {
    let mut depth = 0usize;
    loop {
        pos = skip_space(text, pos);
        let Some(&b) = text.get(pos) else { return text.len() };
        match b {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return pos + 1;
                }
            }
            b'"' | b'\'' => {
                pos = string_end(text, pos);
                continue;
            }
            _ => {}
        }
        pos += 1;
    }
}

fn string_end(text: &[u8], start: usize) -> usize {
    let quote = text[start];
    let mut pos = start + 1;
    while let Some(&b) = text.get(pos) {
        pos += 1;
        if b == b'\\' {
            pos += 1;
        } else if b == quote {
            break;
        }
    }
    pos.min(text.len())
}

/// What stands between the commas from `pos` to `end`.
fn items(text: &[u8], pos: usize, end: usize) -> impl Iterator<Item = Span> + '_ {
    let text = &text[..end.min(text.len())];
    let mut next = Some(pos);
    std::iter::from_fn(move || {
        let start = skip_space(text, next.take()?);
        let mut pos = start;
        let mut last = start;
        while let Some(&b) = text.get(pos) {
            match b {
                b',' => {
                    next = Some(pos + 1);
                    break;
                }
                b'(' | b'[' | b'{' => pos = group_end(text, pos),
                b'"' | b'\'' => pos = string_end(text, pos),
                _ => pos += 1,
            }
            last = pos;
            pos = skip_space(text, pos);
        }
        (last > start).then(|| Span::new(start, last))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_found_again() {
        let text = b"  ROOT %a.1 = (f32[2]{0}, s32[]) custom-call(f32[2]{0} %x, /*index=1*/%y), custom_call_target=\"a,b\", metadata={op_name=\"n\"} ";
        let whole = Span::new(2, text.len() - 1);
        let find = |part| {
            find_part(text, whole, part).map(|s| std::str::from_utf8(&text[s.start as usize..s.end as usize]).unwrap())
        };
        assert_eq!(find(Part::Name), Some("%a.1"));
        assert_eq!(find(Part::Shape), Some("(f32[2]{0}, s32[])"));
        assert_eq!(find(Part::Opcode), Some("custom-call"));
        assert_eq!(find(Part::Operand(0)), Some("f32[2]{0} %x"));
        assert_eq!(find(Part::Operand(1)), Some("%y"));
        assert_eq!(find(Part::Operand(2)), None);
        assert_eq!(find(Part::Attribute("custom_call_target")), Some("custom_call_target=\"a,b\""));
        assert_eq!(find(Part::Attribute("metadata")), Some("metadata={op_name=\"n\"}"));
        assert_eq!(find(Part::Attribute("window")), None);
    }
}
