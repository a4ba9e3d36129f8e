//! The values of attributes: lists, windows, paddings, dimension labels, aliasing, words out of a few.

use super::{Read, Reader};
use hloom_ir::attributes::*;
use hloom_ir::diagnostic::{Diagnostic, Span, codes, did_you_mean};
use hloom_ir::layout::DimVec;
use hloom_ir::shape::ShapeIndex;
use smallvec::{Array, SmallVec};

impl<'a> Reader<'a> {
    /// `{1,2,3}`.
    pub(super) fn int_list<A: Array<Item = i64>>(&mut self) -> Read<SmallVec<A>> {
        self.expect(b'{', "to start a list of numbers")?;
        let mut list = SmallVec::new();
        if self.peek() != b'}' {
            loop {
                list.push(self.int("a whole number")?);
                if !self.eat(b',') {
                    break;
                }
            }
        }
        self.expect(b'}', "or `,` after a number")?;
        Ok(list)
    }

    /// `{{0,1},{2,3}}`.
    pub(super) fn int_list_list(&mut self) -> Read<Vec<Vec<i64>>> {
        let mut lists = Vec::new();
        self.list(|r| {
            lists.push(r.int_list::<[i64; 8]>()?.into_vec());
            Ok(())
        })?;
        Ok(lists)
    }

    /// `{item, item}`.
    pub(super) fn list(&mut self, mut item: impl FnMut(&mut Self) -> Read<()>) -> Read<()> {
        self.expect(b'{', "to start a list")?;
        if self.peek() != b'}' {
            loop {
                item(self)?;
                if !self.eat(b',') {
                    break;
                }
            }
        }
        self.expect(b'}', "or `,` in a list")
    }

    /// `{name=value name=value}`, with or without commas. `field` reads the value of a field it knows and answers
    /// whether it does; `known` lists the names for the error.
    pub(super) fn fields(
        &mut self,
        known: &[&'static str],
        mut field: impl FnMut(&mut Self, &[u8]) -> Read<bool>,
    ) -> Read<()> {
        self.expect(b'{', "to start a group of attributes")?;
        let mut seen: SmallVec<[&[u8]; 12]> = SmallVec::new();
        loop {
            self.eat(b',');
            if self.peek() == b'}' {
                self.pos += 1;
                return Ok(());
            }
            let start = self.pos;
            let Some(name) = self.attribute_name() else { return self.expected("an attribute or `}`") };
            let span = Span::new(start, start + name.len());
            if seen.contains(&name) {
                return self.repeated(name, span);
            }
            seen.push(name);
            if !field(self, name)? {
                return self.unknown_attribute(name, span, known.iter().copied());
            }
        }
    }

    #[cold]
    pub(super) fn repeated<T>(&mut self, name: &[u8], span: Span) -> Read<T> {
        let name = String::from_utf8_lossy(name).into_owned();
        self.fail_at(&codes::text::DUPLICATE_ATTRIBUTE, span, format!("`{name}` is given twice"), "the second time")
    }

    #[cold]
    pub(super) fn unknown_attribute<'n, T>(
        &mut self,
        name: &[u8],
        span: Span,
        known: impl Iterator<Item = &'n str> + Clone,
    ) -> Read<T> {
        let name = String::from_utf8_lossy(name).into_owned();
        let mut diagnostic =
            Diagnostic::error(&codes::text::UNKNOWN_ATTRIBUTE, format!("there is no attribute `{name}` here"))
                .at(span)
                .label("unknown attribute");
        match did_you_mean(&name, known.clone()) {
            Some(near) => diagnostic = diagnostic.help(format!("did you mean `{near}`?")),
            None => {
                let known: Vec<&str> = known.collect();
                let list = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                diagnostic = diagnostic.note(format!("attributes that can stand here: {list}"));
            }
        }
        self.fail(diagnostic)
    }

    /// One of a few words.
    pub(super) fn word<T: Copy>(&mut self, what: &str, all: &[T], text: impl Fn(T) -> &'static str) -> Read<T> {
        self.skip();
        let start = self.pos;
        let word = self.ident(what)?;
        if let Some(&found) = all.iter().find(|&&t| text(t).as_bytes() == word) {
            return Ok(found);
        }
        self.unknown_word(word, self.span_from(start), what, all, text)
    }

    /// One of a few words, in whatever case.
    pub(super) fn word_in_any_case<T: Copy>(
        &mut self,
        what: &str,
        all: &[T],
        text: impl Fn(T) -> &'static str,
    ) -> Read<T> {
        self.skip();
        let start = self.pos;
        let word = self.ident(what)?;
        if let Some(&found) = all.iter().find(|&&t| text(t).as_bytes().eq_ignore_ascii_case(word)) {
            return Ok(found);
        }
        self.unknown_word(word, self.span_from(start), what, all, text)
    }

    #[cold]
    fn unknown_word<T: Copy>(
        &mut self,
        word: &[u8],
        span: Span,
        what: &str,
        all: &[T],
        text: impl Fn(T) -> &'static str,
    ) -> Read<T> {
        let word = String::from_utf8_lossy(word).into_owned();
        let names = all.iter().map(|&t| text(t));
        let mut diagnostic = Diagnostic::error(&codes::text::ATTRIBUTE_VALUE, format!("`{word}` is not {what}"))
            .at(span)
            .label(format!("expected {what}"));
        diagnostic = match did_you_mean(&word, names.clone()) {
            Some(near) => diagnostic.help(format!("did you mean `{near}`?")),
            None => diagnostic.note(format!("one of {}", names.collect::<Vec<_>>().join(", "))),
        };
        self.fail(diagnostic)
    }

    /// `{true,false}`.
    pub(super) fn bool_list(&mut self) -> Read<Vec<bool>> {
        let mut list = Vec::new();
        self.list(|r| {
            list.push(r.bool()?);
            Ok(())
        })?;
        Ok(list)
    }

    /// `{high,default}`.
    pub(super) fn precision_list(&mut self) -> Read<SmallVec<[Precision; 2]>> {
        let mut list = SmallVec::new();
        self.list(|r| {
            list.push(r.word_in_any_case("a precision", Precision::ALL, Precision::text)?);
            Ok(())
        })?;
        Ok(list)
    }

    /// `{1,0}`: a path into a tuple.
    pub(super) fn shape_index(&mut self) -> Read<ShapeIndex> {
        self.expect(b'{', "to start a path into a tuple")?;
        let mut index = ShapeIndex::new();
        while self.peek() != b'}' {
            index.push(self.int("a whole number")?);
            if !self.eat(b',') {
                break;
            }
        }
        self.expect(b'}', "or `,` in a path into a tuple")?;
        Ok(index)
    }

    /// `{{0}: (1, {}), {1}: (2, {0})}`.
    pub(super) fn output_operand_aliasing(&mut self) -> Read<Vec<OutputOperandAlias>> {
        let mut aliases = Vec::new();
        self.expect(b'{', "to start a list of aliases")?;
        while self.peek() != b'}' {
            let output_index = self.shape_index()?;
            self.expect(b':', "after the path into the output")?;
            self.expect(b'(', "before the operand that is aliased")?;
            let operand = self.int("the number of an operand")?;
            self.expect(b',', "after the number of the operand")?;
            let operand_index = self.shape_index()?;
            self.expect(b')', "after the operand that is aliased")?;
            aliases.push(OutputOperandAlias { output_index, operand, operand_index });
            if !self.eat(b',') {
                break;
            }
        }
        self.expect(b'}', "or `,` in a list of aliases")?;
        Ok(aliases)
    }

    /// `{[0:2], [4:8:2]}`.
    pub(super) fn slice_ranges(&mut self) -> Read<Vec<SliceDim>> {
        let mut ranges = Vec::new();
        self.list(|r| {
            r.skip();
            let start = r.pos;
            r.expect(b'[', "to start a range")?;
            let mut parts: SmallVec<[i64; 3]> = SmallVec::new();
            loop {
                parts.push(r.int("a whole number")?);
                if !r.eat(b':') {
                    break;
                }
            }
            r.expect(b']', "or `:` in a range")?;
            match *parts.as_slice() {
                [start, limit] => ranges.push(SliceDim { start, limit, stride: 1 }),
                [start, limit, stride] => ranges.push(SliceDim { start, limit, stride }),
                _ => {
                    let span = r.span_from(start);
                    let message = format!("a range has two or three numbers, not {}", parts.len());
                    let label = "expected [start:limit] or [start:limit:stride]";
                    return r.fail_at(&codes::text::BAD_SLICE, span, message, label);
                }
            }
            Ok(())
        })?;
        Ok(ranges)
    }

    /// `3x3`.
    fn sizes(&mut self) -> Read<DimVec> {
        self.skip();
        let mut sizes = DimVec::new();
        loop {
            sizes.push(self.digits("sizes such as 3x3")?);
            if self.byte() != b'x' {
                return Ok(sizes);
            }
            self.pos += 1;
        }
    }

    /// `0_1x2_3_1`: lists of numbers joined by `_`, joined by `x`.
    fn padding_lists(&mut self) -> Read<SmallVec<[SmallVec<[i64; 3]>; 4]>> {
        self.skip();
        let mut lists = SmallVec::new();
        loop {
            let mut list: SmallVec<[i64; 3]> = SmallVec::new();
            loop {
                list.push(self.digits("a padding such as 0_0x1_2")?);
                if self.byte() != b'_' {
                    break;
                }
                self.pos += 1;
            }
            lists.push(list);
            if self.byte() != b'x' {
                return Ok(lists);
            }
            self.pos += 1;
        }
    }

    /// `padding=0_0_0x1_2_1`.
    pub(super) fn padding(&mut self) -> Read<Vec<PaddingDim>> {
        self.skip();
        let start = self.pos;
        let mut dims = Vec::new();
        for list in self.padding_lists()? {
            match *list.as_slice() {
                [low, high] => dims.push(PaddingDim { low, high, interior: 0 }),
                [low, high, interior] => dims.push(PaddingDim { low, high, interior }),
                _ => {
                    let span = self.span_from(start);
                    let message = "each dimension of a padding has two or three numbers";
                    return self.fail_at(
                        &codes::text::BAD_PADDING,
                        span,
                        message,
                        "expected low_high or low_high_interior",
                    );
                }
            }
        }
        Ok(dims)
    }

    /// `{size=3x3 stride=2x2 pad=1_1x0_1 lhs_dilate=1x2 rhs_dilate=2x2 rhs_reversal=0x1}`.
    pub(super) fn window(&mut self) -> Read<Window> {
        self.skip();
        let start = self.pos;
        let (mut size, mut stride, mut lhs_dilate) = (DimVec::new(), DimVec::new(), DimVec::new());
        let (mut rhs_dilate, mut rhs_reversal) = (DimVec::new(), DimVec::new());
        let mut pad = SmallVec::new();
        let names = ["size", "stride", "pad", "lhs_dilate", "rhs_dilate", "rhs_reversal"];
        self.fields(&names, |r, name| {
            match name {
                b"size" => size = r.sizes()?,
                b"stride" => stride = r.sizes()?,
                b"lhs_dilate" => lhs_dilate = r.sizes()?,
                b"rhs_dilate" => rhs_dilate = r.sizes()?,
                b"rhs_reversal" => rhs_reversal = r.sizes()?,
                b"pad" => pad = r.padding_lists()?,
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        let span = self.span_from(start);
        let rank = size.len();
        let lengths = [stride.len(), pad.len(), lhs_dilate.len(), rhs_dilate.len(), rhs_reversal.len()];
        for (len, name) in lengths.into_iter().zip(&names[1..]) {
            if len != 0 && len != rank {
                let message = format!("`{name}` has {len} dimensions, but `size` has {rank}");
                return self.fail_at(&codes::text::BAD_WINDOW, span, message, "the parts differ in length");
            }
        }
        if pad.iter().any(|p| p.len() != 2) {
            let message = "each dimension of a window's padding has two numbers";
            return self.fail_at(&codes::text::BAD_WINDOW, span, message, "expected pad=low_high");
        }
        let dims = (0..rank).map(|i| {
            let mut dim = WindowDim::of_size(size[i]);
            if let Some(&s) = stride.get(i) {
                dim.stride = s;
            }
            if let Some(p) = pad.get(i) {
                (dim.padding_low, dim.padding_high) = (p[0], p[1]);
            }
            if let Some(&d) = lhs_dilate.get(i) {
                dim.base_dilation = d;
            }
            if let Some(&d) = rhs_dilate.get(i) {
                dim.window_dilation = d;
            }
            dim.window_reversal = rhs_reversal.get(i) == Some(&1);
            dim
        });
        Ok(Window { dims: dims.collect() })
    }

    /// `b01f_01io->b01f`.
    pub(super) fn dim_labels(&mut self) -> Read<ConvDimensionNumbers> {
        self.skip();
        let start = self.pos;
        let is_label = |b: &u8| b.is_ascii_alphanumeric() || *b == b'?';
        let part = |r: &mut Self| {
            let rest = &r.text[r.pos..];
            let len = rest.iter().position(|b| !is_label(b)).unwrap_or(rest.len());
            r.pos += len;
            &rest[..len]
        };
        let lhs = part(self);
        let has_rhs = self.byte() == b'_';
        self.pos += usize::from(has_rhs);
        let rhs = part(self);
        let has_out = self.text[self.pos..].starts_with(b"->");
        self.pos += 2 * usize::from(has_out);
        let out = part(self);
        if !(has_rhs && has_out) {
            self.pos = start;
            return self.expected("dimension labels such as b01f_01io->b01f");
        }
        let span = self.span_from(start);
        let mut read = |labels: &[u8], first: u8, second: u8, which: &str| match labelled(labels, first, second) {
            Ok(dims) => Ok(dims),
            Err(why) => {
                let message = format!("the labels of the {which}, {}, {why}", super::report::quote(labels));
                self.fail_at(&codes::text::BAD_DIM_LABELS, span, message, "wrong labels")
            }
        };
        let (input_batch, input_feature, input_spatial) = read(lhs, b'b', b'f', "input")?;
        let (kernel_input_feature, kernel_output_feature, kernel_spatial) = read(rhs, b'i', b'o', "kernel")?;
        let (output_batch, output_feature, output_spatial) = read(out, b'b', b'f', "output")?;
        if input_spatial.len() != kernel_spatial.len() || input_spatial.len() != output_spatial.len() {
            let message = format!(
                "input, kernel and output have {}, {} and {} spatial dimensions",
                input_spatial.len(),
                kernel_spatial.len(),
                output_spatial.len()
            );
            return self.fail_at(&codes::text::BAD_DIM_LABELS, span, message, "their numbers differ");
        }
        Ok(ConvDimensionNumbers {
            input_batch,
            input_feature,
            input_spatial,
            kernel_input_feature,
            kernel_output_feature,
            kernel_spatial,
            output_batch,
            output_feature,
            output_spatial,
        })
    }

    /// `{mode=highest}` or `{tolerance={atol=1,rtol=2,ulps=3}}`.
    pub(super) fn result_accuracy(&mut self) -> Read<ResultAccuracy> {
        let mut accuracy = ResultAccuracy::Default;
        self.fields(&["mode", "tolerance"], |r, name| {
            match name {
                b"mode" => {
                    accuracy =
                        r.word_in_any_case("an accuracy", &[ResultAccuracy::Default, ResultAccuracy::Highest], |a| {
                            if a == ResultAccuracy::Highest { "highest" } else { "default" }
                        })?;
                }
                b"tolerance" => {
                    let (mut atol, mut rtol, mut ulps) = (0.0, 0.0, 0.0);
                    r.fields(&["atol", "rtol", "ulps"], |r, name| {
                        let value = match name {
                            b"atol" => &mut atol,
                            b"rtol" => &mut rtol,
                            b"ulps" => &mut ulps,
                            _ => return Ok(false),
                        };
                        *value = r.float("a number")?;
                        Ok(true)
                    })?;
                    accuracy = ResultAccuracy::Tolerance {
                        atol: f64::to_bits(atol),
                        rtol: f64::to_bits(rtol),
                        ulps: ulps as i64,
                    };
                }
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(accuracy)
    }

    /// `{lhs={sparsity=2x4 dimension=1 stride=1 idx=2}}`: the sparsities of the two sides.
    pub(super) fn sparsity_config(&mut self) -> Read<[Option<Sparsity>; 2]> {
        let mut sides = [None, None];
        self.fields(&["lhs", "rhs"], |r, name| {
            let side = match name {
                b"lhs" => 0,
                b"rhs" => 1,
                _ => return Ok(false),
            };
            let mut sparsity = Sparsity { num_non_zero: 0, block_size: 0, dimension: 0, stride: 0, idx: 0 };
            r.fields(&["sparsity", "dimension", "stride", "idx"], |r, name| {
                match name {
                    b"sparsity" => {
                        r.skip();
                        let start = r.pos;
                        let sizes = r.sizes()?;
                        let [non_zero, block] = *sizes.as_slice() else {
                            let span = r.span_from(start);
                            let message = "a sparsity has two numbers";
                            return r.fail_at(&codes::text::BAD_SPARSITY, span, message, "expected non-zeros x block");
                        };
                        (sparsity.num_non_zero, sparsity.block_size) = (non_zero, block);
                    }
                    b"dimension" => sparsity.dimension = r.int("a dimension")?,
                    b"stride" => sparsity.stride = r.int("a stride")?,
                    b"idx" => sparsity.idx = r.int32("the number of an operand")?,
                    _ => return Ok(false),
                }
                Ok(true)
            })?;
            sides[side] = Some(sparsity);
            Ok(true)
        })?;
        Ok(sides)
    }
}

/// Where `first` and `second` stand among the labels, and where each spatial dimension does.
fn labelled(labels: &[u8], first: u8, second: u8) -> Result<(i64, i64, DimVec), &'static str> {
    let count = labels.iter().filter(|b| b.is_ascii_digit()).count();
    let mut spatial = DimVec::from_elem(-1, count);
    let (mut at_first, mut at_second) = (None, None);
    for (i, &label) in labels.iter().enumerate() {
        let place = match label {
            b'?' => continue,
            b if b == first => &mut at_first,
            b if b == second => &mut at_second,
            b'0'..=b'9' => {
                let Some(dim) = spatial.get_mut(usize::from(label - b'0')) else {
                    return Err("do not number the spatial dimensions from 0");
                };
                if *dim != -1 {
                    return Err("have a label twice");
                }
                *dim = i as i64;
                continue;
            }
            _ => return Err("have an unknown label"),
        };
        if place.replace(i as i64).is_some() {
            return Err("have a label twice");
        }
    }
    // XLA leaves a dimension that is not labelled at 0.
    Ok((at_first.unwrap_or(0), at_second.unwrap_or(0), spatial))
}
