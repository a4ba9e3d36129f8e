//! The operations' own forms.
//!
//! Most are operands, then parts `key = value`, then a dictionary, then types, with commas between; one reader serves
//! all of those, told by `clause` what the parts mean.

use super::{Parse, Parsed, Parser};
use crate::mlir::{Attr, AttrId, OpKind, TypeId};
use hloom_ir::diagnostic::codes::mlir as codes;
use std::borrow::Cow;

impl<'a> Parser<'a> {
    pub(super) fn custom(&mut self, kind: OpKind, start: usize) -> Parse<Parsed<'a>> {
        use OpKind as K;
        match kind {
            K::Module => self.module_op(),
            K::Func => self.func_op(),
            K::Call => self.call_op(),
            K::While => self.while_op(),
            K::Reduce => self.reduce_op(),
            K::ChloScan => self.scan_op(),
            K::Constant | K::ChloConstant | K::SdyConstant => self.constant_op(kind),
            K::CustomCall => self.custom_call_op(),
            K::Composite => self.composite_op(),
            K::Convolution => self.convolution_op(),
            K::ChloTopK => self.top_k_op(),
            K::Cast => self.cast_op(),
            K::ExpectEqConst | K::ExpectAlmostEqConst => self.expect_const_op(),
            K::SdyMesh => self.sdy_mesh_op(),
            K::SdyManualComputation => self.sdy_manual_computation_op(),
            K::SdyNamedComputation => self.sdy_named_computation_op(),
            _ if has_own_form(kind) => self.plain_op(kind),
            _ => {
                let message = "this operation is written in the generic form, in quotes";
                Err(self.error(start, &codes::SYNTAX, message))
            }
        }
    }

    /// Operands, parts, a dictionary and types.
    fn plain_op(&mut self, kind: OpKind) -> Parse<Parsed<'a>> {
        let mut parsed = Parsed::default();
        // `stablehlo.optimization_barrier {attributes} %a : T`.
        if self.peek() == b'{' {
            parsed.attributes.extend(self.dictionary()?);
        }
        if kind == OpKind::Compare {
            let direction = self.expect_word("EQ, NE, GE, GT, LE or LT")?;
            let id = self.m.add_attr(Attr::Keyword(Cow::Borrowed(direction)));
            parsed.set("comparison_direction", id);
            self.expect(b',')?;
        }
        if matches!(kind, OpKind::OptimizationBarrier) && self.peek() == b'(' {
            self.pos += 1;
            self.expect(b')')?;
        }
        parsed.operands = self.value_list()?;
        match kind {
            OpKind::Slice => self.slice_bounds(&mut parsed)?,
            OpKind::GetTupleElement => {
                self.expect(b'[')?;
                let index = self.integer()?;
                self.expect(b']')?;
                let id = self.int_attr(index);
                parsed.set("index", id);
            }
            OpKind::SdyShardingConstraint | OpKind::SdyReshard => {
                let id = self.sdy_sharding()?;
                parsed.set("sharding", id);
            }
            _ => {}
        }
        // Parts follow a comma; those of iota and of sdy operations come first, or without one.
        loop {
            let mark = self.pos;
            let comma = self.eat(b',');
            let Some(word) = self.word() else {
                self.pos = mark;
                break;
            };
            if self.eat(b'=') {
                self.clause(kind, word, &mut parsed)?;
            } else if comma && kind == OpKind::Compare {
                let id = self.m.add_attr(Attr::Keyword(Cow::Borrowed(word)));
                parsed.set("compare_type", id);
            } else {
                self.pos = mark;
                break;
            }
        }
        if self.peek() == b'{' {
            parsed.attributes.extend(self.dictionary()?);
        }
        self.types_after_colon(kind, &mut parsed)?;
        Ok(parsed)
    }

    /// `: T`, `: T, U`, `: (T) -> U` or `: T -> U`, and what they say of the results.
    fn types_after_colon(&mut self, kind: OpKind, parsed: &mut Parsed<'a>) -> Parse<()> {
        let without_types = parsed.operands.is_empty()
            && matches!(kind, OpKind::Return | OpKind::FuncReturn | OpKind::SdyReturn | OpKind::OptimizationBarrier);
        if without_types && self.peek() != b':' {
            return Ok(());
        }
        self.expect(b':')?;
        // `check.expect_close %a, %b, … : {attributes} T, T`.
        if self.peek() == b'{' {
            parsed.attributes.extend(self.dictionary()?);
        }
        if self.peek() == b'(' {
            parsed.results = self.function_type()?.1;
            return Ok(());
        }
        let mut types: Vec<TypeId> = vec![self.parse_type()?];
        while self.eat(b',') {
            types.push(self.parse_type()?);
        }
        if self.eat_text("->") {
            parsed.results = self.result_types()?;
            return Ok(());
        }
        parsed.results = match kind {
            OpKind::Return | OpKind::FuncReturn | OpKind::SdyReturn => Vec::new(),
            OpKind::Print | OpKind::SdyShardingGroup => Vec::new(),
            _ if kind.is_expectation() => Vec::new(),
            OpKind::OptimizationBarrier => types,
            // The last type is that of the result: of select, it is the type of the values.
            _ => types.pop().into_iter().collect(),
        };
        Ok(())
    }

    /// `[0:4, 1:8:2]`.
    fn slice_bounds(&mut self, parsed: &mut Parsed<'a>) -> Parse<()> {
        let (mut starts, mut limits, mut strides) = (Vec::new(), Vec::new(), Vec::new());
        self.expect(b'[')?;
        while !self.eat(b']') {
            if !starts.is_empty() {
                self.expect(b',')?;
            }
            starts.push(self.integer()?);
            self.expect(b':')?;
            limits.push(self.integer()?);
            strides.push(if self.eat(b':') { self.integer()? } else { 1 });
        }
        for (name, values) in [("start_indices", starts), ("limit_indices", limits), ("strides", strides)] {
            let id = self.ints_attr(values);
            parsed.set(name, id);
        }
        Ok(())
    }

    /// The value of the part `key` of an operation.
    fn clause(&mut self, kind: OpKind, key: &'a str, parsed: &mut Parsed<'a>) -> Parse<()> {
        use OpKind as K;
        let name: &'static str = match (key, kind) {
            ("dims", K::BroadcastInDim | K::DynamicBroadcastInDim) => "broadcast_dimensions",
            ("dims", K::Transpose) => "permutation",
            ("dims", _) => "dimensions",
            ("dim", K::Iota | K::DynamicIota) => "iota_dimension",
            ("dim", _) => "dimension",
            ("sizes", K::DynamicSlice) => "slice_sizes",
            ("sizes", _) => "broadcast_sizes",
            ("low", _) => "edge_padding_low",
            ("high", _) => "edge_padding_high",
            ("interior", _) => "interior_padding",
            ("lower", _) => "lower",
            ("length", _) => "fft_length",
            ("config", _) => "einsum_config",
            ("group_id", _) => "group_id",
            ("probe_id", _) => "probe_id",
            ("iter" | "iteration", _) => "iteration",
            ("max_ulp_difference", _) => "max_ulp_difference",
            ("min_ulp_difference", _) => "min_ulp_difference",
            ("type", K::Fft) => return self.keyword_clause("fft_type", parsed),
            ("distribution", _) => return self.keyword_clause("rng_distribution", parsed),
            ("algorithm", K::RngBitGenerator) => return self.keyword_clause("rng_algorithm", parsed),
            ("allowed_direction", _) => return self.keyword_clause("allowed_direction", parsed),
            ("algorithm", _) => {
                let id = self.struct_attribute(Cow::Borrowed("stablehlo.dot_algorithm"))?;
                parsed.set("algorithm", id);
                return Ok(());
            }
            ("batching_dims", _) => {
                return self.dimension_pair("lhs_batching_dimensions", "rhs_batching_dimensions", parsed);
            }
            ("contracting_dims", _) => {
                return self.dimension_pair("lhs_contracting_dimensions", "rhs_contracting_dimensions", parsed);
            }
            ("sharding", K::SdyDataFlowEdge) => {
                let id = self.sdy_sharding()?;
                parsed.set("sharding", id);
                return Ok(());
            }
            ("precision", _) => return self.precision_clause(parsed),
            ("format", _) => return self.format_clause(parsed),
            ("tolerance", _) => return self.tolerance_clause(parsed),
            _ => return Err(self.expected("a part that the operation has")),
        };
        let id = match self.peek() {
            b'[' => {
                let values = self.integers()?;
                self.ints_attr(values)
            }
            b'"' => {
                let text = self.string()?;
                self.m.add_attr(Attr::String(text))
            }
            b't' | b'f' => {
                let word = self.expect_word("true or false")?;
                self.m.add_attr(Attr::Bool(word == "true"))
            }
            _ => {
                let value = self.integer()?;
                self.int_attr(value)
            }
        };
        parsed.set(name, id);
        Ok(())
    }

    fn keyword_clause(&mut self, name: &'static str, parsed: &mut Parsed<'a>) -> Parse<()> {
        let word = self.expect_word("a member of the enumeration")?;
        let id = self.m.add_attr(Attr::Keyword(Cow::Borrowed(word)));
        parsed.set(name, id);
        Ok(())
    }

    /// `[0] x [1]`.
    fn dimension_pair(&mut self, lhs: &'static str, rhs: &'static str, parsed: &mut Parsed<'a>) -> Parse<()> {
        let values = self.integers()?;
        let id = self.ints_attr(values);
        parsed.set(lhs, id);
        self.expect(b'x')?;
        let values = self.integers()?;
        let id = self.ints_attr(values);
        parsed.set(rhs, id);
        Ok(())
    }

    /// `[HIGHEST, DEFAULT]`.
    fn precision_clause(&mut self, parsed: &mut Parsed<'a>) -> Parse<()> {
        self.expect(b'[')?;
        let items = self.list_until(b']', |p| {
            let word = p.expect_word("a precision")?;
            Ok(p.m.add_attr(Attr::Keyword(Cow::Borrowed(word))))
        })?;
        let id = self.m.add_attr(Attr::Array(items));
        parsed.set("precision_config", id);
        Ok(())
    }

    /// `e5m10`.
    fn format_clause(&mut self, parsed: &mut Parsed<'a>) -> Parse<()> {
        self.skip();
        let start = self.pos;
        let word = self.expect_word("a format such as e5m10")?;
        let parts = word.strip_prefix('e').and_then(|r| r.split_once('m'));
        let Some((Ok(exponent), Ok(mantissa))) = parts.map(|(e, m)| (e.parse::<i64>(), m.parse::<i64>())) else {
            return Err(self.error(start, &codes::SYNTAX, "a format is written as e5m10"));
        };
        let (exponent, mantissa) = (self.int_attr(exponent), self.int_attr(mantissa));
        parsed.set("exponent_bits", exponent);
        parsed.set("mantissa_bits", mantissa);
        Ok(())
    }

    /// A number, whose type may follow a colon that is not yet the one before the operands' type.
    fn tolerance_clause(&mut self, parsed: &mut Parsed<'a>) -> Parse<()> {
        let Some(token) = self.number_token() else { return Err(self.expected("a number")) };
        let value: f64 = token.parse().map_err(|_| self.expected("a number"))?;
        let mark = self.pos;
        if !(self.eat(b':') && (self.eat_text("f64") || self.eat_text("f32"))) {
            self.pos = mark;
        }
        let id = self.m.add_attr(Attr::Float(value, self.float_type()));
        parsed.set("tolerance", id);
        Ok(())
    }

    /// `constant {…} dense<…> : T`; quantized ones are `constant() <{value = …}> : () -> T`.
    fn constant_op(&mut self, kind: OpKind) -> Parse<Parsed<'a>> {
        let mut parsed = Parsed::default();
        if self.peek() == b'(' {
            self.pos += 1;
            self.expect(b')')?;
            self.generic_tail(kind, &mut parsed)?;
            return Ok(parsed);
        }
        if self.peek() == b'{' {
            parsed.attributes.extend(self.dictionary()?);
        }
        let value = self.attribute()?;
        let ty = match self.m.attr(value) {
            Attr::Dense(d) => d.ty,
            Attr::Resource(ty, _) => *ty,
            _ => return Err(self.expected("a literal")),
        };
        parsed.set("value", value);
        parsed.results.push(ty);
        Ok(parsed)
    }

    /// `call @f(%a) {…} : FT`.
    fn call_op(&mut self) -> Parse<Parsed<'a>> {
        let mut parsed = Parsed::default();
        let callee = self.symbol()?;
        let id = self.m.add_attr(Attr::Symbol(callee));
        parsed.set("callee", id);
        self.call_tail(&mut parsed)?;
        Ok(parsed)
    }

    fn call_tail(&mut self, parsed: &mut Parsed<'a>) -> Parse<()> {
        self.expect(b'(')?;
        parsed.operands = self.value_list()?;
        self.expect(b')')?;
        if self.peek() == b'{' {
            parsed.attributes.extend(self.dictionary()?);
        }
        self.expect(b':')?;
        parsed.results = self.function_type()?.1;
        Ok(())
    }

    /// `custom_call @target(%a) {…} : FT`.
    fn custom_call_op(&mut self) -> Parse<Parsed<'a>> {
        let mut parsed = Parsed::default();
        let target = self.symbol()?;
        let id = self.m.add_attr(Attr::String(target));
        parsed.set("call_target_name", id);
        self.call_tail(&mut parsed)?;
        Ok(parsed)
    }

    /// `composite "name" %a, %b ({region}) {…} : FT`.
    fn composite_op(&mut self) -> Parse<Parsed<'a>> {
        let mut parsed = Parsed::default();
        let name = self.string()?;
        let id = self.m.add_attr(Attr::String(name));
        parsed.set("name", id);
        parsed.operands = self.value_list()?;
        if self.eat(b'(') {
            while !self.eat(b')') {
                if !parsed.regions.is_empty() {
                    self.expect(b',')?;
                }
                parsed.regions.push(self.region(&[])?);
            }
        }
        if self.peek() == b'{' {
            parsed.attributes.extend(self.dictionary()?);
        }
        self.expect(b':')?;
        parsed.results = self.function_type()?.1;
        Ok(parsed)
    }

    /// `convolution(%l, %r) dim_numbers = …, window = {…} {…} : FT`.
    fn convolution_op(&mut self) -> Parse<Parsed<'a>> {
        let mut parsed = Parsed::default();
        self.expect(b'(')?;
        parsed.operands = self.value_list()?;
        self.expect(b')')?;
        self.expect_text("dim_numbers")?;
        self.expect(b'=')?;
        let dimensions = self.convolution_dimensions()?;
        parsed.set("dimension_numbers", dimensions);
        if self.eat(b',') {
            self.expect_text("window")?;
            self.expect(b'=')?;
            self.expect(b'{')?;
            while !self.eat(b'}') {
                let key = self.expect_word("a part of a window")?;
                self.expect(b'=')?;
                let name = match key {
                    "stride" => "window_strides",
                    "pad" => "padding",
                    "lhs_dilate" => "lhs_dilation",
                    "rhs_dilate" => "rhs_dilation",
                    "reverse" => "window_reversal",
                    _ => return Err(self.expected("a part of a window")),
                };
                let id = self.window_part()?;
                parsed.set(name, id);
                self.eat(b',');
            }
        }
        if self.peek() == b'{' {
            parsed.attributes.extend(self.dictionary()?);
        }
        self.expect(b':')?;
        parsed.results = self.function_type()?.1;
        Ok(parsed)
    }

    /// `[1, 2]`, `[[1, 1], [0, 0]]` or `[true, false]`, as one list.
    fn window_part(&mut self) -> Parse<AttrId> {
        let mut values = Vec::new();
        self.expect(b'[')?;
        while !self.eat(b']') {
            match self.peek() {
                b'[' => values.extend(self.integers()?),
                b't' | b'f' => values.push(i64::from(self.expect_word("true or false")? == "true")),
                _ => values.push(self.integer()?),
            }
            self.eat(b',');
        }
        Ok(self.ints_attr(values))
    }

    /// `top_k(%x, k = 8) : T -> (T, U)`.
    fn top_k_op(&mut self) -> Parse<Parsed<'a>> {
        let mut parsed = Parsed::default();
        self.expect(b'(')?;
        parsed.operands.push(self.value()?);
        while self.eat(b',') {
            let key = self.expect_word("a part of top_k")?;
            self.expect(b'=')?;
            let id = match self.peek() {
                b't' | b'f' => {
                    let word = self.expect_word("true or false")?;
                    self.m.add_attr(Attr::Bool(word == "true"))
                }
                _ => {
                    let value = self.integer()?;
                    self.int_attr(value)
                }
            };
            parsed.attributes.push((Cow::Borrowed(key), id));
        }
        self.expect(b')')?;
        if self.peek() == b'{' {
            parsed.attributes.extend(self.dictionary()?);
        }
        self.expect(b':')?;
        self.parse_type()?;
        self.expect_text("->")?;
        parsed.results = self.result_types()?;
        Ok(parsed)
    }

    /// `unrealized_conversion_cast %a : T to U`.
    fn cast_op(&mut self) -> Parse<Parsed<'a>> {
        let mut parsed = Parsed { operands: self.value_list()?, ..Parsed::default() };
        self.expect(b':')?;
        self.parse_type()?;
        self.expect_text("to")?;
        parsed.results.push(self.parse_type()?);
        Ok(parsed)
    }

    /// `check.expect_eq_const %x, dense<…> : T, tolerance = 0.1`.
    fn expect_const_op(&mut self) -> Parse<Parsed<'a>> {
        let mut parsed = Parsed::default();
        parsed.operands.push(self.value()?);
        self.expect(b',')?;
        let value = self.attribute()?;
        parsed.set("value", value);
        if self.eat(b',') {
            self.expect_text("tolerance")?;
            self.expect(b'=')?;
            self.tolerance_clause(&mut parsed)?;
        }
        if self.peek() == b'{' {
            parsed.attributes.extend(self.dictionary()?);
        }
        Ok(parsed)
    }
}

/// Whether an operation has a form of its own; the others are written in the generic one only.
fn has_own_form(kind: OpKind) -> bool {
    use OpKind as K;
    !matches!(
        kind,
        K::Unknown
            | K::If
            | K::Case
            | K::Sort
            | K::Map
            | K::Gather
            | K::Scatter
            | K::ReduceWindow
            | K::SelectAndScatter
            | K::AllGather
            | K::AllReduce
            | K::AllToAll
            | K::ReduceScatter
            | K::CollectiveBroadcast
            | K::CollectivePermute
            | K::CollectiveReduce
            | K::CrossReplicaSum
            | K::Infeed
            | K::Outfeed
            | K::Send
            | K::Recv
            | K::BatchNormGrad
            | K::BatchNormInference
            | K::BatchNormTraining
            | K::TriangularSolve
            | K::DynamicConv
            | K::DynamicGather
            | K::AsyncStart
            | K::AsyncDone
            | K::TorchIndexSelect
            | K::RunParallel
            | K::ChloRaggedDot
    )
}
