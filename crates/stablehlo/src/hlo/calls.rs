//! Custom calls, composites, and what moves data in and out of a program.

use super::{Translate, Translator};
use crate::mlir::{Attr, AttrId};
use hloom_ir::attributes::{CustomCallApiVersion, OutputOperandAlias, PaddingDim, SliceDim};
use hloom_ir::diagnostic::codes::mlir as codes;
use hloom_ir::layout::{Tile, is_permutation};
use hloom_ir::op::{BinaryOp, CustomCall, Transfer, UnaryOp};
use hloom_ir::{ArrayShape, ElementType, Layout, Op, Shape};

impl Translator<'_, '_> {
    pub(super) fn custom_call(&mut self) -> Translate<()> {
        let target = self.text("call_target_name")?;
        if self.known_call(target)? || self.async_call(target)? {
            return Ok(());
        }
        let m = self.m;
        let mut call = CustomCall::new(target);
        call.has_side_effect = self.flag("has_side_effect")?;
        call.api_version = self.api_version()?;
        let operands = self.operands()?;
        if let Some(layouts) = self.attr("operand_layouts").map(|id| m.list(id)).filter(|l| !l.is_empty()) {
            let mut shapes = Vec::with_capacity(operands.len());
            for (&operand, &layout) in operands.iter().zip(layouts) {
                shapes.push(self.with_layout(self.shape(operand).clone(), layout)?);
            }
            call.operand_layouts = Some(shapes);
        }
        let mut shapes = self.result_shapes()?;
        if let Some(layouts) = self.attr("result_layouts").map(|id| m.list(id)).filter(|l| !l.is_empty()) {
            for (shape, &layout) in shapes.iter_mut().zip(layouts) {
                *shape = self.with_layout(shape.clone(), layout)?;
            }
        }
        if let Some(tilings) = self.attr("result_tilings").map(|id| m.list(id)) {
            for (shape, &tiles) in shapes.iter_mut().zip(tilings) {
                *shape = self.with_tiles(shape, tiles);
            }
        }
        for &alias in self.attr("output_operand_aliases").map_or(&[][..], |id| m.list(id)) {
            let ints = |name| m.field(alias, name).and_then(|id| m.as_ints(id)).unwrap_or_default();
            call.output_operand_aliasing.push(OutputOperandAlias {
                output_index: ints("output_tuple_indices").into(),
                operand: m.field(alias, "operand_index").and_then(|id| m.as_int(id)).unwrap_or(0),
                operand_index: ints("operand_tuple_indices").into(),
            });
        }
        for &callee in self.attr("called_computations").map_or(&[][..], |id| m.list(id)) {
            let function = m.as_str(callee).and_then(|name| self.functions.get(name));
            let Some(&computation) = function.and_then(|f| self.translated.get(f)) else {
                let message = format!("{} calls a function that is not there", self.op_name());
                return Err(self.error(&codes::UNKNOWN_FUNCTION, message));
            };
            call.called_computations.push(computation);
        }
        let config: Option<Box<[u8]>> = match self.attr("backend_config").map(|id| (id, m.attr(id))) {
            Some((_, Attr::String(s))) if !s.is_empty() => Some(s.as_ref().into()),
            Some((id, Attr::Dict(_))) => Some(m.attr_text(id).into_bytes().into()),
            // Some front ends write the configuration of a call as an annotation.
            _ => match m.find(self.at, "mhlo.backend_config").map(|id| (id, m.attr(id))) {
                Some((id, Attr::Dict(fields))) if !fields.is_empty() => Some(m.attr_text(id).into_bytes().into()),
                _ => None,
            },
        };
        let shape = match &shapes[..] {
            [one] => one.clone(),
            _ => Shape::tuple(shapes.iter().cloned()),
        };
        let id = self.emit(Op::CustomCall(Box::new(call)), operands, shape)?;
        self.out.instruction_mut(id).common.backend_config = config;
        if shapes.len() == 1 { self.bind(id) } else { self.bind_tuple(id) }
    }

    fn api_version(&self) -> Translate<CustomCallApiVersion> {
        let Some(id) = self.attr("api_version") else { return Ok(CustomCallApiVersion::Original) };
        let found = match self.m.attr(id) {
            Attr::Integer(n, _) => i32::try_from(*n).ok().and_then(CustomCallApiVersion::from_proto_number),
            Attr::Keyword(k) => CustomCallApiVersion::from_text(k),
            _ => None,
        };
        found.ok_or_else(|| self.bad_attribute("api_version", "the number of a calling convention"))
    }

    /// The shape with the order of dimensions that a list gives, fastest-varying first.
    fn with_layout(&self, shape: Shape, layout: AttrId) -> Translate<Shape> {
        let Shape::Array(array) = &shape else { return Ok(shape) };
        let order = self.m.as_ints(layout).or_else(|| self.index_list(layout)).unwrap_or_default();
        if !is_permutation(&order, array.rank()) {
            return Err(self.error(&codes::BAD_ATTRIBUTE, "a layout does not fit its array"));
        }
        Ok(array.as_ref().clone().with_layout(Layout::new(order)).into())
    }

    /// A literal of `index` elements.
    fn index_list(&self, id: AttrId) -> Option<Vec<i64>> {
        let Attr::Dense(dense) = self.m.attr(id) else { return None };
        let (_, elements) = self.m.elements(dense)?;
        let crate::mlir::dense::Elements::All(bytes) = elements else { return None };
        bytes.chunks_exact(8).map(|c| Some(i64::from_le_bytes(c.try_into().ok()?))).collect()
    }

    fn with_tiles(&self, shape: &Shape, tiles: AttrId) -> Shape {
        let Shape::Array(array) = shape else { return shape.clone() };
        let mut array = array.as_ref().clone();
        if let Some(layout) = &mut array.layout {
            let tile = |&t: &AttrId| Tile(self.m.as_ints(t).unwrap_or_default().into());
            layout.tiles = self.m.list(tiles).iter().map(tile).collect();
        }
        array.into()
    }

    /// Calls by which older front ends ask for operations that HLO has, and those that only speak of shapes.
    fn known_call(&mut self, target: &str) -> Translate<bool> {
        match target {
            "mhlo.erf" => self.unary(UnaryOp::Erf)?,
            "mhlo.tan" => self.unary(UnaryOp::Tan)?,
            "mhlo.topk" => {
                let attributes = self.m.find(self.at, "mhlo.attributes");
                let field = |name| attributes.and_then(|a| self.m.field(a, name));
                let Some(k) = field("k").and_then(|k| self.m.as_int(k)) else {
                    return Err(self.bad_attribute("mhlo.attributes", "a dictionary with k"));
                };
                let largest = field("largest").and_then(|l| self.m.as_bool(l)).unwrap_or(true);
                let operands = self.operands()?;
                self.emit_results(Op::TopK { k, largest, is_stable: true }, operands)?;
            }
            "ApproxTopK" => self.approx_top_k()?,
            "shape_assertion" => {
                let holds = self.operand(0)?;
                if self.fold(holds).is_some_and(|f| f.values == [0]) {
                    let message = self.text_opt("error_message").unwrap_or("an assertion about shapes does not hold");
                    return Err(self.error(&codes::DYNAMIC_SHAPE, message));
                }
            }
            _ => return self.dynamic_call(target),
        }
        Ok(true)
    }

    /// The first of each slice in the order that a comparator gives; here always exactly so: sorted, and cut off. Where they
    /// are left for others to choose from (`aggregate_to_topk = false`) there are more than `top_k`, and where there are
    /// more than the slice has, the rest is what a slice would begin with.
    fn approx_top_k(&mut self) -> Translate<()> {
        let m = self.m;
        let config = m.find(self.at, "mhlo.backend_config").or_else(|| self.attr("backend_config"));
        let number = |name| config.and_then(|c| m.field(c, name)).and_then(|id| m.as_int(id));
        let Some(dimension) = number("reduction_dim") else {
            return Err(self.bad_attribute("mhlo.backend_config", "a dictionary with reduction_dim"));
        };
        let callee = self.attr("called_computations").and_then(|id| m.list(id).first().copied());
        let function = callee.and_then(|c| m.as_str(c)).and_then(|name| self.functions.get(name));
        let Some(&to_apply) = function.and_then(|f| self.translated.get(f)) else {
            return Err(self.bad_attribute("called_computations", "a list of one function"));
        };
        let operands = self.operands()?;
        let (inputs, initial) = operands.split_at(operands.len() / 2);
        let shapes: Vec<Shape> = inputs.iter().map(|&x| self.shape(x).clone()).collect();
        let Some(rank) = shapes.first().and_then(|s| s.as_array()).map(|a| a.rank() as i64) else {
            return Err(self.error(&codes::BAD_OPERANDS, "ApproxTopK takes arrays"));
        };
        let dimension = if dimension < 0 { dimension + rank } else { dimension };
        let shape = if let [one] = &shapes[..] { one.clone() } else { Shape::tuple(shapes) };
        let sorted = self.emit(Op::Sort { dimension, is_stable: true, to_apply }, inputs, shape)?;
        let mut results = Vec::new();
        for (i, &initial) in initial.iter().enumerate() {
            let part = if inputs.len() == 1 { sorted } else { self.element(sorted, i)? };
            let sizes = self.shape(part).as_array().map(|a| a.dims().to_vec()).unwrap_or_default();
            let shape = self.result_shape(i)?;
            let Some(array) = shape.as_array().cloned() else {
                return Err(self.error(&codes::BAD_OPERANDS, "ApproxTopK makes arrays"));
            };
            let wanted = usize::try_from(dimension).ok().and_then(|d| array.dims().get(d).copied()).unwrap_or(0);
            let of_slice = |d: usize, size: i64| if d as i64 == dimension { wanted.min(size) } else { size };
            let cut: Vec<i64> = sizes.iter().enumerate().map(|(d, &size)| of_slice(d, size)).collect();
            let dims = cut.iter().map(|&limit| SliceDim { start: 0, limit, stride: 1 }).collect();
            let cut_shape = ArrayShape::new(array.element_type, cut.iter().copied()).with_default_layout();
            let first = self.emit(Op::Slice { dims }, [part].as_slice(), cut_shape.into())?;
            let missing = |(d, &size): (usize, &i64)| PaddingDim {
                low: 0,
                high: if d as i64 == dimension { wanted - size } else { 0 },
                interior: 0,
            };
            let padding: Box<[PaddingDim]> = cut.iter().enumerate().map(missing).collect();
            results.push(match padding.iter().all(|p| p.high == 0) {
                true => first,
                false => self.emit(Op::Pad { padding }, [first, initial].as_slice(), shape)?,
            });
        }
        self.bind_all(&results)
    }

    pub(super) fn composite(&mut self) -> Translate<()> {
        let name = self.text("name")?;
        if self.native_composite(name)? {
            return Ok(());
        }
        let decomposition = self.text("decomposition")?;
        let Some(&function) = self.functions.get(decomposition) else {
            return Err(self.error(&codes::UNKNOWN_FUNCTION, format!("there is no function @{decomposition}")));
        };
        let operands = self.operands()?;
        let results = self.call(function, &operands)?;
        let attributes = self.attr("composite_attributes").map_or_else(|| "{}".to_owned(), |id| self.m.attr_text(id));
        let version = self.int_or("version", 0)?;
        if let Some(id) = self.last
            && let Op::Call { is_composite, .. } = &mut self.out.instruction_mut(id).op
        {
            *is_composite = true;
            let frontend = &mut self.out.instruction_mut(id).common.rare_mut().frontend_attributes;
            frontend.insert("composite.attributes".into(), attributes.into());
            frontend.insert("composite.name".into(), name.into());
            frontend.insert("composite.version".into(), version.to_string().into());
        }
        self.bind_all(&results)
    }

    /// Composites that stand for an operation of HLO.
    fn native_composite(&mut self, name: &str) -> Translate<bool> {
        let unary = match name {
            "chlo.acos" => UnaryOp::Acos,
            "chlo.acosh" => UnaryOp::Acosh,
            "chlo.asin" => UnaryOp::Asin,
            "chlo.asinh" => UnaryOp::Asinh,
            "chlo.atanh" => UnaryOp::Atanh,
            "chlo.cosh" => UnaryOp::Cosh,
            "chlo.sinh" => UnaryOp::Sinh,
            "chlo.erf" => UnaryOp::Erf,
            "chlo.tan" => UnaryOp::Tan,
            "chlo.mulhi" => {
                self.binary(BinaryOp::Mulhi)?;
                return Ok(true);
            }
            "chlo.top_k" => {
                let attributes = self.attr("composite_attributes");
                let k = attributes.and_then(|a| self.m.field(a, "k")).and_then(|k| self.m.as_int(k));
                let Some(k) = k else { return Ok(false) };
                let operands = self.operands()?;
                self.emit_results(Op::TopK { k, largest: true, is_stable: true }, operands)?;
                return Ok(true);
            }
            _ => return Ok(false),
        };
        // Of complex numbers the decomposition is exact near the cuts of the plane.
        let operand = self.operand(0)?;
        if self.shape(operand).as_array().is_some_and(|a| a.element_type.is_complex()) {
            return Ok(false);
        }
        self.unary(unary)?;
        Ok(true)
    }

    pub(super) fn infeed(&mut self) -> Translate<()> {
        self.expect_operands(1)?;
        let token = self.operand(0)?;
        let mut shapes = self.result_shapes()?;
        if shapes.pop() != Some(Shape::Token) {
            return Err(self.error(&codes::BAD_OPERANDS, "the last result of infeed is a token"));
        }
        let count = shapes.len();
        let config = self.text_opt("infeed_config").unwrap_or("").as_bytes().into();
        let shape = Shape::tuple([Shape::tuple(shapes), Shape::Token]);
        let infeed = self.emit(Op::Infeed { config }, [token].as_slice(), shape)?;
        let data = self.element(infeed, 0)?;
        let mut results = (0..count).map(|i| self.element(data, i)).collect::<Translate<Vec<_>>>()?;
        results.push(self.element(infeed, 1)?);
        self.bind_all(&results)
    }

    pub(super) fn outfeed(&mut self) -> Translate<()> {
        let operands = self.operands()?;
        let Some((&token, inputs)) = operands.split_last() else {
            return Err(self.error(&codes::BAD_OPERANDS, "the last operand of outfeed is a token"));
        };
        let data = self.packed(inputs)?;
        let shape = self.shape(data).clone();
        let config = self.text_opt("outfeed_config").unwrap_or("").as_bytes().into();
        let id = self.emit(Op::Outfeed { config, shape }, [data, token].as_slice(), Shape::Token)?;
        self.bind(id)
    }

    fn transfer(&self) -> Translate<Transfer> {
        let handle = self.m.find(self.at, "channel_handle").and_then(|h| self.m.field(h, "handle"));
        let id = handle.or_else(|| self.m.find(self.at, "channel_id")).and_then(|id| self.m.as_int(id));
        Ok(Transfer { channel_id: id, is_host_transfer: self.flag("is_host_transfer")? })
    }

    pub(super) fn send(&mut self) -> Translate<()> {
        let operands = self.operands()?;
        let Some((&token, inputs)) = operands.split_last() else {
            return Err(self.error(&codes::BAD_OPERANDS, "the last operand of send is a token"));
        };
        let transfer = self.transfer()?;
        let data = self.packed(inputs)?;
        let context = Shape::scalar(ElementType::U32).with_default_layout();
        let shape = Shape::tuple([self.shape(data).clone(), context, Shape::Token]);
        let send = self.emit(Op::Send(transfer.clone()), [data, token].as_slice(), shape)?;
        self.transfer_pairs(send)?;
        let done = self.emit(Op::SendDone(transfer), [send].as_slice(), Shape::Token)?;
        self.transfer_pairs(done)?;
        self.bind(done)
    }

    pub(super) fn recv(&mut self) -> Translate<()> {
        self.expect_operands(1)?;
        let token = self.operand(0)?;
        let transfer = self.transfer()?;
        let mut shapes = self.result_shapes()?;
        if shapes.pop() != Some(Shape::Token) {
            return Err(self.error(&codes::BAD_OPERANDS, "the last result of recv is a token"));
        }
        let count = shapes.len();
        let data = if count == 1 { shapes.remove(0) } else { Shape::tuple(shapes) };
        let context = Shape::scalar(ElementType::U32).with_default_layout();
        let shape = Shape::tuple([data.clone(), context, Shape::Token]);
        let recv = self.emit(Op::Recv(transfer.clone()), [token].as_slice(), shape)?;
        self.transfer_pairs(recv)?;
        let shape = Shape::tuple([data, Shape::Token]);
        let done = self.emit(Op::RecvDone(transfer), [recv].as_slice(), shape)?;
        self.transfer_pairs(done)?;
        let data = self.element(done, 0)?;
        let mut results = vec![data];
        if count != 1 {
            results = (0..count).map(|i| self.element(data, i)).collect::<Translate<_>>()?;
        }
        results.push(self.element(done, 1)?);
        self.bind_all(&results)
    }

    /// Which devices send to which, where the operation says so.
    fn transfer_pairs(&mut self, id: hloom_ir::InstructionId) -> Translate<()> {
        let mut pairs = self.ints("source_target_pairs")?.to_vec();
        if pairs.is_empty()
            && let Some(channel) = self.transfer()?.channel_id
        {
            pairs = self.routes.get(&channel).cloned().unwrap_or_default();
        }
        if pairs.is_empty() {
            return Ok(());
        }
        let text: Vec<String> = pairs.chunks(2).map(|p| format!("{{{},{}}}", p[0], p.get(1).unwrap_or(&0))).collect();
        let text = format!("{{{}}}", text.join(","));
        let frontend = &mut self.out.instruction_mut(id).common.rare_mut().frontend_attributes;
        frontend.insert("_xla_send_recv_source_target_pairs".into(), text.into());
        Ok(())
    }
}
