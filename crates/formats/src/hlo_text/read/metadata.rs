//! What every instruction may have: metadata, frontend attributes, statistics, origin.

use super::{Read, Reader};
use hloom_ir::diagnostic::{Span, codes};
use hloom_ir::instruction::{FrontendAttributes, OriginTree, OriginalArray, OriginalValue, Statistics};
use hloom_ir::metadata::Metadata;
use hloom_ir::shape::ShapeIndex;
use std::borrow::Cow;
use std::sync::Arc;

/// The fields of metadata, the common ones first; [`Reader::metadata_field`] goes by their places here.
const METADATA: [&str; 12] = [
    "op_name",
    "source_file",
    "source_line",
    "stack_frame_id",
    "op_type",
    "source_end_line",
    "source_column",
    "source_end_column",
    "profile_type",
    "deduplicated_name",
    "scheduling_name",
    "metadata_payload",
];

impl<'a> Reader<'a> {
    /// A string of metadata. Few are different, so equal ones share their text.
    fn shared_string(&mut self) -> Read<Arc<str>> {
        self.skip();
        let start = self.pos;
        let Cow::Borrowed(bytes) = self.string()? else {
            self.pos = start;
            return Ok(self.text_string()?.into());
        };
        if let Some(shared) = self.strings.get(bytes) {
            return Ok(shared.clone());
        }
        self.pos = start;
        let shared: Arc<str> = self.text_string()?.into();
        self.strings.insert(bytes, shared.clone());
        Ok(shared)
    }

    /// `{op_type="…" op_name="…" source_file="…" source_line=1 …}`.
    pub(super) fn metadata(&mut self) -> Read<Metadata> {
        self.expect(b'{', "to start metadata")?;
        let mut m = Metadata::default();
        let mut seen = 0u16;
        loop {
            self.eat(b',');
            if self.peek() == b'}' {
                self.pos += 1;
                return Ok(m);
            }
            let start = self.pos;
            let Some(name) = self.attribute_name() else { return self.expected("an attribute or `}`") };
            let span = Span::new(start, start + name.len());
            let Some(field) = METADATA.iter().position(|n| n.as_bytes() == name) else {
                return self.unknown_attribute(name, span, METADATA.into_iter());
            };
            if seen & 1 << field != 0 {
                return self.repeated(name, span);
            }
            seen |= 1 << field;
            self.metadata_field(field, &mut m)?;
        }
    }

    #[inline]
    fn metadata_field(&mut self, field: usize, m: &mut Metadata) -> Read<()> {
        match field {
            0 => m.op_name = self.shared_string()?,
            1 => m.source_file = self.shared_string()?,
            2 => m.source_line = self.int32("a line number")?,
            3 => {
                // A frame that the table does not have is forgotten, as XLA does.
                let frame = self.int32("the number of a stack frame")?;
                let index = usize::try_from(frame).ok().and_then(|f| f.checked_sub(1));
                let is_known = index.and_then(|i| self.sound_frames.get(i)).copied().unwrap_or(false);
                m.stack_frame_id = if is_known { frame } else { 0 };
            }
            4 => m.op_type = self.shared_string()?,
            5 => m.source_end_line = self.int32("a line number")?,
            6 => m.source_column = self.int32("a column number")?,
            7 => m.source_end_column = self.int32("a column number")?,
            8 => {
                let mut types = Vec::new();
                self.list(|r| {
                    types.push(r.int32("a kind of profile")?);
                    Ok(())
                })?;
                if !types.is_empty() {
                    m.rare_mut().profile_types = types;
                }
            }
            9 => m.rare_mut().deduplicated_name = self.text_string()?.into(),
            10 => m.rare_mut().scheduling_name = self.text_string()?.into(),
            _ => m.rare_mut().payload = Some(self.string()?.into()),
        }
        Ok(())
    }

    /// One metadata, or a list of them in braces.
    pub(super) fn metadata_list(&mut self) -> Read<Vec<Metadata>> {
        let inside = super::cursor::skip_space(self.text, self.pos + 1);
        if self.peek() != b'{' || self.text.get(inside) != Some(&b'{') {
            return Ok(vec![self.metadata()?]);
        }
        let mut list = Vec::new();
        self.list(|r| {
            list.push(r.metadata()?);
            Ok(())
        })?;
        Ok(list)
    }

    /// `{k="v",k2={…}}`.
    pub(super) fn frontend_attributes(&mut self) -> Read<FrontendAttributes> {
        let mut map = FrontendAttributes::new();
        self.list(|r| {
            let name = r.key("an attribute: name=\"value\"")?;
            let value = match r.peek() {
                b'{' => String::from_utf8_lossy(r.braced_text()?).into_owned().into(),
                _ => r.text_string()?,
            };
            map.insert(name, value.into());
            Ok(())
        })?;
        Ok(map)
    }

    /// `name=` or `"name"=`, of a map with names of its own.
    fn key(&mut self, what: &str) -> Read<Box<str>> {
        if let Some(name) = self.attribute_name() {
            return Ok(String::from_utf8_lossy(name).into());
        }
        if self.peek() != b'"' {
            return self.expected(what);
        }
        let name = self.text_string()?.into();
        self.expect(b'=', "after a name")?;
        Ok(name)
    }

    /// `{visualizing_index=0,s=1.5}`.
    pub(super) fn statistics(&mut self) -> Read<Statistics> {
        let mut statistics = Statistics { visualizing_index: 0, values: Vec::new() };
        let mut is_first = true;
        self.list(|r| {
            let name = r.key("a statistic: name=number")?;
            if std::mem::take(&mut is_first) {
                statistics.visualizing_index = r.int("the number of a statistic")?;
            } else {
                let value = r.float("a number")?;
                statistics.values.push((name, value));
            }
            Ok(())
        })?;
        Ok(statistics)
    }

    /// `{"name" {1}}`; `None` for `{}`.
    pub(super) fn original_array(&mut self) -> Read<Option<OriginalArray>> {
        self.expect(b'{', "to start an array of the source program")?;
        let mut array = None;
        if self.peek() != b'}' {
            let instruction_name: Box<str> = self.text_string()?.into();
            let index = if self.peek() == b'{' { self.shape_index()? } else { ShapeIndex::new() };
            array = Some(OriginalArray { instruction_name, index }).filter(|a| !a.instruction_name.is_empty());
        }
        self.expect(b'}', "to end an array of the source program")?;
        Ok(array)
    }

    /// `{{"a"}}`, `{({"a"}, {"b" {1}})}` or `{[synthetic_call]}`.
    pub(super) fn origin(&mut self) -> Read<OriginalValue> {
        self.expect(b'{', "to start an origin")?;
        let origin = match self.peek() {
            b'[' => {
                self.pos += 1;
                if !self.eat_word(b"synthetic_call") {
                    return self.expected("`synthetic_call`");
                }
                self.expect(b']', "after `synthetic_call`")?;
                OriginalValue::SyntheticCall
            }
            b'}' => OriginalValue::Tree(OriginTree::Tuple(Vec::new())),
            _ => OriginalValue::Tree(self.origin_tree()?),
        };
        self.expect(b'}', "to end an origin")?;
        Ok(origin)
    }

    fn origin_tree(&mut self) -> Read<OriginTree> {
        if self.peek() != b'(' {
            return Ok(OriginTree::Leaf(self.original_array()?));
        }
        self.enter()?;
        self.pos += 1;
        let mut elements = Vec::new();
        if self.peek() != b')' {
            loop {
                elements.push(self.origin_tree()?);
                if !self.eat(b',') {
                    break;
                }
            }
        }
        self.expect(b')', "or `,` in an origin")?;
        self.leave();
        Ok(OriginTree::Tuple(elements))
    }

    /// Goes one level deeper; refuses to go too deep.
    pub(super) fn enter(&mut self) -> Read<()> {
        self.depth += 1;
        if self.depth > Self::MAX_DEPTH {
            let span = self.found_at(self.pos).1;
            let message = format!("this is nested more than {} levels deep", Self::MAX_DEPTH);
            return self.fail_at(&codes::text::TOO_DEEP, span, message, "too deep");
        }
        Ok(())
    }

    /// Comes back from [`Reader::enter`].
    pub(super) fn leave(&mut self) {
        self.depth -= 1;
    }
}
