//! Shapes and layouts.
//!
//! A module has few different shapes and writes each many times, so a shape is looked up by its text first. Only text
//! that was read as one whole shape is in the table; a wrong guess at where a shape ends finds nothing there.

use super::{Read, Reader};
use hloom_ir::diagnostic::{Diagnostic, Span, codes, did_you_mean};
use hloom_ir::element_type::ElementType;
use hloom_ir::layout::{DimVec, Layout, SplitConfig, Tile};
use hloom_ir::shape::{ArrayShape, Shape};
use smallvec::SmallVec;
use std::sync::Arc;

/// What a type's name names.
enum Type {
    Array(ElementType),
    Token,
    Opaque,
}

impl<'a> Reader<'a> {
    /// Whether a shape starts here rather than a name or an operation.
    #[inline]
    pub(super) fn at_shape(&mut self) -> bool {
        let first = self.peek();
        if first == b'(' {
            return true;
        }
        let ident = self.peek_ident();
        if ident.is_empty() || ident.len() > 24 {
            return false;
        }
        match self.byte_at(ident.len()) {
            b'[' => true,
            b'(' => ident == b"b",
            // A space between the type and its dimensions is allowed, though nobody writes it.
            b' ' if Self::type_of(ident).is_some() => true,
            _ => false,
        }
    }

    /// A shape; arrays without a layout get the default one.
    #[inline]
    pub(super) fn shape(&mut self) -> Read<Shape> {
        match self.known_shape() {
            Some(shape) => Ok(shape),
            None => self.new_shape(self.pos),
        }
    }

    /// A shape, if one is next rather than a name or an operation.
    #[inline]
    pub(super) fn shape_if_any(&mut self) -> Read<Option<Shape>> {
        match self.known_shape() {
            Some(shape) => Ok(Some(shape)),
            None if self.at_shape() => self.new_shape(self.pos).map(Some),
            None => Ok(None),
        }
    }

    /// A shape whose text was read before.
    #[inline]
    fn known_shape(&mut self) -> Option<Shape> {
        self.skip();
        let end = self.guess_shape_end(self.pos)?;
        let shape = self.shapes.get(&self.text[self.pos..end])?.clone();
        self.pos = end;
        Some(shape)
    }

    fn new_shape(&mut self, start: usize) -> Read<Shape> {
        self.enter()?;
        let shape = match self.byte() {
            b'(' => self.tuple_shape(),
            b'b' if self.byte_at(1) == b'(' => self.buffer_shape(),
            _ => self.array_shape(),
        };
        self.leave();
        let shape = shape?;
        self.shapes.insert(&self.text[start..self.pos], shape.clone());
        Ok(shape)
    }

    /// Where the shape that starts at `start` ends, if it is written the usual way.
    #[inline]
    fn guess_shape_end(&self, start: usize) -> Option<usize> {
        let rest = self.text.get(start..)?;
        if rest.first() == Some(&b'(') {
            return self.guess_tuple_end(start);
        }
        let open = rest.iter().take(16).position(|&b| b == b'[')?;
        let close = open + rest[open..].iter().position(|&b| b == b']')?;
        let mut end = close + 1;
        let next = |n: usize| rest.get(n).copied().unwrap_or(0);
        match next(end) {
            b'{' => match next(end + 1) {
                b'0'..=b'9' | b':' => end += rest[end..].iter().position(|&b| b == b'}')? + 1,
                b' ' | b'\t' | b'\r' | b'\n' | b'/' | b'-' => return None,
                _ => {}
            },
            // A layout may follow after a space; leave that to the slow path.
            b' ' if !matches!(next(end + 1), b'{' | b' ' | b'\t' | b'\r' | b'\n' | b'/') => {}
            b' ' | b'\t' | b'\r' | b'\n' | b'/' => return None,
            _ => {}
        }
        Some(start + end)
    }

    fn guess_tuple_end(&self, start: usize) -> Option<usize> {
        let mut depth = 0usize;
        for n in memchr::memchr2_iter(b'(', b')', &self.text[start..]) {
            if self.text[start + n] == b'(' {
                depth += 1;
            } else if depth <= 1 {
                return Some(start + n + 1);
            } else {
                depth -= 1;
            }
        }
        None
    }

    fn tuple_shape(&mut self) -> Read<Shape> {
        self.expect(b'(', "to start a tuple shape")?;
        let mut elements: SmallVec<[Shape; 8]> = SmallVec::new();
        if self.peek() != b')' {
            loop {
                elements.push(self.shape()?);
                if !self.eat(b',') {
                    break;
                }
            }
        }
        self.expect(b')', "or `,` after an element of a tuple shape")?;
        Ok(Shape::Tuple(elements.into_iter().collect()))
    }

    fn buffer_shape(&mut self) -> Read<Shape> {
        self.pos += 2;
        self.skip();
        let start = self.pos;
        let inner = self.shape()?;
        let span = self.span_from(start);
        self.expect(b')', "to end a buffer shape")?;
        match inner {
            Shape::Array(array) => Ok(Shape::Buffer(array)),
            _ => self.fail_at(&codes::text::BAD_BUFFER, span, "only arrays can be buffers", "not an array"),
        }
    }

    fn type_of(name: &[u8]) -> Option<Type> {
        match name {
            b"token" => Some(Type::Token),
            b"opaque" => Some(Type::Opaque),
            _ => ElementType::from_name(name).map(Type::Array),
        }
    }

    fn element_type(&mut self) -> Read<Type> {
        let name = self.ident("a shape")?;
        match Self::type_of(name) {
            Some(t) => Ok(t),
            None => {
                let span = Span::new(self.pos - name.len(), self.pos);
                let text = String::from_utf8_lossy(name).into_owned();
                let mut diagnostic =
                    Diagnostic::error(&codes::text::UNKNOWN_TYPE, format!("there is no element type `{text}`"))
                        .at(span)
                        .label("expected an element type");
                let names = ElementType::ALL.iter().map(|t| t.name()).chain(["token", "opaque"]);
                if let Some(near) = did_you_mean(&text, names) {
                    diagnostic = diagnostic.help(format!("did you mean `{near}`?"));
                }
                self.fail(diagnostic)
            }
        }
    }

    fn array_shape(&mut self) -> Read<Shape> {
        let start = self.pos;
        let element_type = self.element_type()?;
        let mut dims = DimVec::new();
        let mut dynamic: SmallVec<[bool; 8]> = SmallVec::new();
        self.expect(b'[', "after an element type")?;
        if self.peek() != b']' {
            loop {
                let (size, is_dynamic) = self.dimension()?;
                dims.push(size);
                dynamic.push(is_dynamic);
                if !self.eat(b',') {
                    break;
                }
            }
        }
        self.expect(b']', "or `,` after a dimension")?;
        let end = self.pos;
        let has_layout = self.peek() == b'{' && {
            let inside = super::cursor::skip_space(self.text, self.pos + 1);
            matches!(self.text.get(inside), Some(b'0'..=b'9' | b'-' | b':'))
        };
        if !has_layout {
            self.pos = end;
        }
        let layout = if has_layout { Some(self.layout(dims.len())?) } else { None };
        let element_type = match element_type {
            Type::Array(t) => t,
            Type::Token | Type::Opaque if !dims.is_empty() => {
                let span = self.span_from(start);
                return self.fail_at(
                    &codes::text::BAD_DIMENSION,
                    span,
                    "a token or opaque value has no dimensions",
                    "expected `[]`",
                );
            }
            Type::Token => return Ok(Shape::Token),
            Type::Opaque => return Ok(Shape::Opaque),
        };
        let array = if dynamic.contains(&true) {
            ArrayShape::with_dynamic(element_type, dims, dynamic)
        } else {
            ArrayShape::new(element_type, dims)
        };
        Ok(Shape::Array(Arc::new(match layout {
            Some(layout) => array.with_layout(layout),
            None => array.with_default_layout(),
        })))
    }

    /// `8`, `<=8` or `?`.
    fn dimension(&mut self) -> Read<(i64, bool)> {
        match self.peek() {
            b'?' => {
                self.pos += 1;
                return Ok((ArrayShape::UNBOUNDED, true));
            }
            b'<' if self.byte_at(1) == b'=' => {
                self.pos += 2;
                return Ok((self.size()?, true));
            }
            _ => {}
        }
        Ok((self.size()?, false))
    }

    fn size(&mut self) -> Read<i64> {
        self.skip();
        let start = self.pos;
        let size = self.int("a dimension")?;
        if size < 0 {
            let span = self.span_from(start);
            return self.fail_at(&codes::text::BAD_DIMENSION, span, "a dimension cannot be negative", "negative");
        }
        Ok(size)
    }

    /// A layout of an array of `rank` dimensions.
    pub(super) fn layout(&mut self, rank: usize) -> Read<Layout> {
        let start = self.pos;
        self.expect(b'{', "to start a layout")?;
        let mut layout = Layout::default();
        if self.peek() != b':' {
            loop {
                layout.minor_to_major.push(self.int("a dimension number")?);
                if !self.eat(b',') {
                    break;
                }
            }
        }
        if self.eat(b':') {
            self.layout_properties(&mut layout)?;
        }
        if self.peek() != b'}' {
            let (_, span) = self.found_at(self.pos);
            let found = self.quote(span);
            return self.fail(
                Diagnostic::error(&codes::text::BAD_LAYOUT, format!("unexpected {found} in a layout"))
                    .at(span)
                    .label("expected `}`")
                    .note("properties come in this order: D T L # * E S SC P M"),
            );
        }
        self.pos += 1;
        let span = self.span_from(start);
        if layout.minor_to_major.len() != rank {
            let message =
                format!("the shape has {rank} dimensions, but its layout orders {}", layout.minor_to_major.len());
            return self.fail_at(&codes::text::LAYOUT_RANK, span, message, format!("expected {rank} dimensions"));
        }
        Ok(layout)
    }

    fn layout_properties(&mut self, layout: &mut Layout) -> Read<()> {
        if self.eat_word(b"D") {
            self.expect(b'(', "after `D`")?;
            while self.peek() != b')' {
                let kind = self.ident("D, C, S or H")?;
                if !matches!(kind, b"D" | b"C" | b"S" | b"H") {
                    let span = Span::new(self.pos - kind.len(), self.pos);
                    return self.fail_at(
                        &codes::text::BAD_LAYOUT,
                        span,
                        "an unknown kind of dimension",
                        "expected D, C, S or H",
                    );
                }
                self.eat(b'+');
                self.eat(b'~');
                if !self.eat(b',') {
                    break;
                }
            }
            self.expect(b')', "after the kinds of dimensions")?;
        }
        if self.eat_word(b"T") {
            loop {
                layout.tiles.push(self.tile()?);
                if self.peek() != b'(' {
                    break;
                }
            }
        }
        if self.eat_word(b"L") {
            let n = self.property()?;
            if n != 1 {
                layout.rare_mut().tail_padding_alignment_in_elements = n;
            }
        }
        if self.eat(b'#') {
            layout.rare_mut().index_primitive_type = Some(self.unsigned_type()?);
        }
        if self.eat(b'*') {
            layout.rare_mut().pointer_primitive_type = Some(self.unsigned_type()?);
        }
        if self.eat_word(b"E") {
            layout.element_size_in_bits = self.property()?;
        }
        if self.eat_word(b"S") {
            layout.memory_space = self.property()?;
        }
        if self.eat_word(b"SC") {
            loop {
                let split = self.split_config()?;
                layout.rare_mut().split_configs.push(split);
                if self.peek() != b'(' {
                    break;
                }
            }
        }
        if self.peek_ident() == b"P" {
            let start = self.pos;
            self.pos += 1;
            self.expect(b'(', "before a physical shape")?;
            self.shape()?;
            self.expect(b')', "after a physical shape")?;
            let span = self.span_from(start);
            return self.fail_at(
                &codes::text::BAD_LAYOUT,
                span,
                "only sparse arrays have a physical shape",
                "this array is dense",
            );
        }
        if self.eat_word(b"M") {
            let n = self.property()?;
            if n != 0 {
                layout.rare_mut().dynamic_shape_metadata_prefix_bytes = n;
            }
        }
        Ok(())
    }

    /// `(8,128)` of `T(8,128)`.
    fn tile(&mut self) -> Read<Tile> {
        self.expect(b'(', "before the sizes of a tile")?;
        let mut sizes = SmallVec::new();
        while self.peek() != b')' {
            sizes.push(if self.eat(b'*') { Tile::COMBINE } else { self.int("the size of a tile")? });
            if !self.eat(b',') {
                break;
            }
        }
        self.expect(b')', "after the sizes of a tile")?;
        Ok(Tile(sizes))
    }

    /// `(n)` of `S(n)`.
    fn property(&mut self) -> Read<i64> {
        self.expect(b'(', "before the value of a layout's property")?;
        let value = self.int("a number")?;
        self.expect(b')', "after the value of a layout's property")?;
        Ok(value)
    }

    fn unsigned_type(&mut self) -> Read<ElementType> {
        self.expect(b'(', "before a type")?;
        self.skip();
        let start = self.pos;
        let element_type = match self.element_type()? {
            Type::Array(t) if t.is_unsigned_integer() => t,
            _ => {
                let span = self.span_from(start);
                return self.fail_at(
                    &codes::text::BAD_LAYOUT,
                    span,
                    "indices and pointers have an unsigned type",
                    "expected u8, u16, u32 or u64",
                );
            }
        };
        self.expect(b')', "after a type")?;
        Ok(element_type)
    }

    fn split_config(&mut self) -> Read<SplitConfig> {
        self.expect(b'(', "before a split")?;
        let dimension = self.int("the dimension that is split")?;
        self.expect(b':', "after the dimension that is split")?;
        let mut split_indices = Vec::new();
        while self.peek() != b')' {
            split_indices.push(self.int("where the dimension is split")?);
            if !self.eat(b',') {
                break;
            }
        }
        self.expect(b')', "after a split")?;
        Ok(SplitConfig { dimension, split_indices })
    }
}
