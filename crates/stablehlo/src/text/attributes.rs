//! Attributes in MLIR text.

use super::cursor::parse_integer;
use super::{Parse, Parser};
use crate::mlir::{Attr, AttrId, FloatKind, Named, Type};
use hloom_ir::diagnostic::codes::mlir as codes;
use smallvec::SmallVec;
use std::borrow::Cow;

impl<'a> Parser<'a> {
    pub(super) fn attribute(&mut self) -> Parse<AttrId> {
        self.skip();
        let start = self.pos;
        self.enter(start)?;
        let id = self.attribute_at(start)?;
        self.leave();
        Ok(id)
    }

    fn attribute_at(&mut self, start: usize) -> Parse<AttrId> {
        match self.at(0) {
            b'"' => {
                let string = self.string()?;
                if self.peek() == b':' {
                    self.pos += 1;
                    self.parse_type()?;
                }
                Ok(self.m.add_attr(Attr::String(string)))
            }
            b'[' => {
                self.pos += 1;
                let items = self.list_until(b']', Self::attribute)?;
                Ok(self.m.add_attr(Attr::Array(items)))
            }
            b'{' => {
                let fields = self.dictionary()?.into_vec();
                Ok(self.m.add_attr(Attr::Dict(fields)))
            }
            b'@' => {
                let mut name = self.symbol()?;
                while self.eat_text("::") {
                    let inner = self.symbol()?;
                    name = Cow::Owned([&name[..], b"::@", &inner[..]].concat());
                }
                Ok(self.m.add_attr(Attr::Symbol(name)))
            }
            b'#' => self.dialect_attribute(),
            b'-' | b'+' | b'0'..=b'9' => self.number(),
            b'!' | b'(' => {
                let ty = self.parse_type()?;
                Ok(self.m.add_attr(Attr::Type(ty)))
            }
            _ => {
                let Some(word) = self.word() else { return Err(self.expected("an attribute")) };
                self.keyword_attribute(word, start)
            }
        }
    }

    fn keyword_attribute(&mut self, word: &'a str, start: usize) -> Parse<AttrId> {
        let attr = match word {
            "unit" => Attr::Unit,
            "true" => Attr::Bool(true),
            "false" => Attr::Bool(false),
            "dense" => return self.dense(),
            "dense_resource" => {
                self.expect(b'<')?;
                let key = match self.peek() {
                    b'"' => self.string()?,
                    _ => Cow::Borrowed(self.expect_word("the name of a resource")?.as_bytes()),
                };
                self.expect(b'>')?;
                self.expect(b':')?;
                Attr::Resource(self.parse_type()?, key)
            }
            "array" if self.at(0) == b'<' => return self.dense_array(),
            "loc" => {
                self.pos = start;
                return self.location();
            }
            "affine_map" | "affine_set" | "sparse" | "distinct" => {
                let Some(end) = self.angle_end(self.pos) else {
                    return Err(self.error(start, &codes::SYNTAX, "an attribute does not end"));
                };
                self.pos = end;
                if word == "sparse" && self.eat(b':') {
                    self.parse_type()?;
                }
                Attr::Opaque(Cow::Borrowed(&self.text[start..self.pos]))
            }
            _ => {
                self.pos = start;
                Attr::Type(self.parse_type()?)
            }
        };
        Ok(self.m.add_attr(attr))
    }

    /// A number with its type, 64 bits wide unless it says otherwise.
    fn number(&mut self) -> Parse<AttrId> {
        let start = self.pos;
        let Some(token) = self.number_token() else { return Err(self.expected("a number")) };
        let is_float = !token.contains("0x") && token.contains(['.', 'e', 'E']);
        let ty = if self.peek() == b':' && self.at(1) != b':' {
            self.pos += 1;
            Some(self.parse_type()?)
        } else {
            None
        };
        let attr = self.number_attr(start, token, is_float, ty)?;
        Ok(self.m.add_attr(attr))
    }

    fn number_attr(
        &mut self,
        start: usize,
        token: &str,
        is_float: bool,
        ty: Option<crate::mlir::TypeId>,
    ) -> Parse<Attr<'a>> {
        let bad = |p: &Self| p.error(start, &codes::SYNTAX, "the number does not fit its type");
        if let Some(ty) = ty
            && let Type::Float(kind) = *self.m.ty(ty)
        {
            let value = match token.strip_prefix("0x") {
                Some(hex) => {
                    let bits = u64::from_str_radix(hex, 16).map_err(|_| bad(self))?;
                    match kind {
                        FloatKind::F64 => f64::from_bits(bits),
                        FloatKind::F16 => half::f16::from_bits(bits as u16).to_f64(),
                        FloatKind::Bf16 => half::bf16::from_bits(bits as u16).to_f64(),
                        _ => f64::from(f32::from_bits(bits as u32)),
                    }
                }
                None => token.parse::<f64>().map_err(|_| bad(self))?,
            };
            return Ok(Attr::Float(value, ty));
        }
        if is_float {
            let ty = ty.unwrap_or_else(|| self.float_type());
            return Ok(Attr::Float(token.parse::<f64>().map_err(|_| bad(self))?, ty));
        }
        let value = parse_integer(token).ok_or_else(|| bad(self))?;
        let ty = ty.unwrap_or_else(|| self.index_type());
        Ok(Attr::Integer(value, ty))
    }

    /// `array<i64: 1, 2>`.
    fn dense_array(&mut self) -> Parse<AttrId> {
        self.expect(b'<')?;
        let ty = self.parse_type()?;
        let is_float = matches!(self.m.ty(ty), Type::Float(_));
        let (mut ints, mut floats) = (Vec::new(), Vec::new());
        if self.eat(b':') {
            loop {
                self.skip();
                let start = self.pos;
                if self.eat_text("true") {
                    ints.push(1);
                } else if self.eat_text("false") {
                    ints.push(0);
                } else {
                    let Some(token) = self.number_token() else { return Err(self.expected("a number")) };
                    match self.number_attr(start, token, is_float, is_float.then_some(ty))? {
                        Attr::Float(x, _) => floats.push(x),
                        Attr::Integer(n, _) => ints.push(n),
                        _ => {}
                    }
                }
                if !self.eat(b',') {
                    break;
                }
            }
        }
        self.expect(b'>')?;
        Ok(self.m.add_attr(if is_float { Attr::Floats(ty, floats) } else { Attr::Ints(ty, ints) }))
    }

    /// Items with commas between, up to `end`.
    pub(super) fn list_until<T>(&mut self, end: u8, mut item: impl FnMut(&mut Self) -> Parse<T>) -> Parse<Vec<T>> {
        let mut items = Vec::new();
        while !self.eat(end) {
            if !items.is_empty() {
                self.expect(b',')?;
            }
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// `{a = 1, b}`.
    pub(super) fn dictionary(&mut self) -> Parse<SmallVec<[Named<'a>; 2]>> {
        self.expect(b'{')?;
        let mut fields = SmallVec::new();
        while !self.eat(b'}') {
            if !fields.is_empty() {
                self.expect(b',')?;
            }
            self.skip();
            let start = self.pos;
            let name = match self.at(0) {
                b'"' => {
                    let name = self.string()?;
                    self.utf8(start, name)?
                }
                _ => Cow::Borrowed(self.expect_word("the name of an attribute")?),
            };
            let value = if self.eat(b'=') { self.attribute()? } else { self.m.add_attr(Attr::Unit) };
            fields.push((name, value));
        }
        Ok(fields)
    }

    /// `#alias`, `#dialect<…>` or `#dialect.name<…>`.
    fn dialect_attribute(&mut self) -> Parse<AttrId> {
        let start = self.pos;
        self.pos += 1;
        let name = self.expect_word("the name of an attribute")?;
        if self.at(0) != b'<' {
            if let Some(&id) = self.attr_aliases.get(name) {
                return Ok(id);
            }
            if name.contains('.') {
                return Ok(self.m.add_attr(Attr::Opaque(Cow::Borrowed(&self.text[start..self.pos]))));
            }
            return Err(self.error(start, &codes::UNKNOWN_ALIAS, format!("the alias #{name} is not defined")));
        }
        let Some(end) = self.angle_end(self.pos) else {
            return Err(self.error(start, &codes::SYNTAX, "an attribute does not end"));
        };
        match name {
            "stablehlo" | "chlo" | "mhlo" | "vhlo" => {
                // #stablehlo<comparison_direction EQ>
                self.pos += 1;
                let kind = self.expect_word("the name of an enumeration")?;
                if self.peek() == b'<' {
                    let full: Cow<'a, str> = Cow::Owned(format!("{name}.{kind}"));
                    let id = self.struct_attribute(full)?;
                    self.expect(b'>')?;
                    return Ok(id);
                }
                let member = self.expect_word("a member of the enumeration")?;
                self.expect(b'>')?;
                Ok(self.m.add_attr(Attr::Keyword(Cow::Borrowed(member))))
            }
            "stablehlo.conv" | "mhlo.conv" => {
                self.pos += 1;
                let id = self.convolution_dimensions()?;
                self.expect(b'>')?;
                Ok(id)
            }
            "stablehlo.bounds" | "stablehlo.type_extensions" | "mhlo.type_extensions" => {
                self.pos += 1;
                self.bounds()
            }
            "sdy.sharding" | "sdy.sharding_per_value" | "sdy.mesh" => self.sdy_attribute(name),
            "sdy" if self.rest().starts_with(b"<manual_axes") => {
                self.pos += "<manual_axes".len();
                let id = self.manual_axes()?;
                self.expect(b'>')?;
                Ok(id)
            }
            _ if name.starts_with("stablehlo.") || name.starts_with("chlo.") || name.starts_with("mhlo.") => {
                self.struct_attribute(Cow::Borrowed(name))
            }
            _ => {
                self.pos = end;
                Ok(self.m.add_attr(Attr::Opaque(Cow::Borrowed(&self.text[start..end]))))
            }
        }
    }

    /// `<8, ?>`: the bounds of dynamic dimensions.
    fn bounds(&mut self) -> Parse<AttrId> {
        self.eat_text("bounds");
        self.eat(b'=');
        let bracketed = self.eat(b'[');
        let mut bounds = Vec::new();
        // Scalars have none.
        while self.peek() != if bracketed { b']' } else { b'>' } {
            bounds.push(if self.eat(b'?') { crate::mlir::DYNAMIC } else { self.integer()? });
            if !self.eat(b',') {
                break;
            }
        }
        if bracketed {
            self.expect(b']')?;
        }
        self.expect(b'>')?;
        let bounds = self.ints_attr(bounds);
        Ok(self.m.add_attr(Attr::Struct(Cow::Borrowed("stablehlo.bounds"), vec![("bounds".into(), bounds)])))
    }

    pub(super) fn ints_attr(&mut self, values: Vec<i64>) -> AttrId {
        let ty = self.index_type();
        self.m.add_attr(Attr::Ints(ty, values))
    }

    pub(super) fn int_attr(&mut self, value: i64) -> AttrId {
        let ty = self.index_type();
        self.m.add_attr(Attr::Integer(value, ty))
    }

    /// `<key = value, …>`, or `<MEMBER>` of an enumeration.
    pub(super) fn struct_attribute(&mut self, name: Cow<'a, str>) -> Parse<AttrId> {
        self.skip();
        let start = self.pos;
        self.enter(start)?;
        self.expect(b'<')?;
        let mut fields: Vec<Named<'a>> = Vec::new();
        while !self.eat(b'>') {
            if !fields.is_empty() {
                self.expect(b',')?;
                // A comma may stand before the end.
                if self.eat(b'>') {
                    break;
                }
            }
            let key = self.expect_word("the name of a part")?;
            if !self.eat(b'=') {
                self.expect(b'>')?;
                self.leave();
                return Ok(self.m.add_attr(Attr::Keyword(Cow::Borrowed(key))));
            }
            let value = self.struct_value(key)?;
            let key = if key == "sub_axis_info" { "sub_axis" } else { key };
            fields.push((Cow::Borrowed(key), value));
        }
        self.leave();
        Ok(self.m.add_attr(Attr::Struct(name, fields)))
    }

    fn struct_value(&mut self, key: &'a str) -> Parse<AttrId> {
        match self.peek() {
            b'<' => self.struct_attribute(Cow::Borrowed(key)),
            b'(' => {
                // (1)2: a part of an axis.
                self.pos += 1;
                let pre = self.integer()?;
                self.expect(b')')?;
                let size = self.integer()?;
                let fields = vec![("pre_size".into(), self.int_attr(pre)), ("size".into(), self.int_attr(size))];
                Ok(self.m.add_attr(Attr::Struct(Cow::Borrowed("sdy.sub_axis"), fields)))
            }
            b'[' => {
                let start = self.pos;
                self.enter(start)?;
                self.pos += 1;
                let items = self.list_until(b']', |p| p.struct_value(key))?;
                self.leave();
                Ok(self.m.add_attr(Attr::Array(items)))
            }
            _ => self.attribute(),
        }
    }

    /// `[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]`, or `raw` and named parts.
    pub(super) fn convolution_dimensions(&mut self) -> Parse<AttrId> {
        let name = Cow::Borrowed("stablehlo.conv");
        if self.eat_text("raw") {
            let mut fields: Vec<Named<'a>> = Vec::new();
            while self.peek() != b'>' {
                if !fields.is_empty() {
                    self.expect(b',')?;
                }
                let key = self.expect_word("the name of a part")?;
                self.expect(b'=')?;
                fields.push((Cow::Borrowed(key), self.struct_value(key)?));
            }
            return Ok(self.m.add_attr(Attr::Struct(name, fields)));
        }
        let mut fields: Vec<Named<'a>> = Vec::new();
        let parts: [(&[u8; 2], [&'static str; 3]); 3] = [
            (b"bf", ["input_batch_dimension", "input_feature_dimension", "input_spatial_dimensions"]),
            (b"io", ["kernel_input_feature_dimension", "kernel_output_feature_dimension", "kernel_spatial_dimensions"]),
            (b"bf", ["output_batch_dimension", "output_feature_dimension", "output_spatial_dimensions"]),
        ];
        for (i, (letters, names)) in parts.into_iter().enumerate() {
            match i {
                1 => self.expect(b'x')?,
                2 => self.expect_text("->")?,
                _ => {}
            }
            self.dimension_labels(letters, names, &mut fields)?;
        }
        Ok(self.m.add_attr(Attr::Struct(name, fields)))
    }

    /// `[b, 0, 1, f]`: where each dimension stands.
    fn dimension_labels(
        &mut self,
        letters: &[u8; 2],
        names: [&'static str; 3],
        fields: &mut Vec<Named<'a>>,
    ) -> Parse<()> {
        self.skip();
        let start = self.pos;
        self.expect(b'[')?;
        let mut places = [None, None];
        let mut spatial: Vec<(i64, i64)> = Vec::new();
        let mut position = 0i64;
        while !self.eat(b']') {
            if position > 0 {
                self.expect(b',')?;
            }
            let b = self.peek();
            if let Some(which) = letters.iter().position(|&l| l == b) {
                self.pos += 1;
                places[which] = Some(position);
            } else if b == b'?' {
                self.pos += 1;
            } else {
                spatial.push((self.integer()?, position));
            }
            position += 1;
        }
        spatial.sort_unstable();
        let (Some(first), Some(second)) = (places[0], places[1]) else {
            return Err(self.error(start, &codes::BAD_ATTRIBUTE, "dimension numbers lack a letter"));
        };
        fields.push((Cow::Borrowed(names[0]), self.int_attr(first)));
        fields.push((Cow::Borrowed(names[1]), self.int_attr(second)));
        let spatial = spatial.into_iter().map(|(_, p)| p).collect();
        fields.push((Cow::Borrowed(names[2]), self.ints_attr(spatial)));
        Ok(())
    }
}
