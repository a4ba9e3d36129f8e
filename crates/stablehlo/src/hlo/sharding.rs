//! What is said about how values are spread over devices, and other annotations.
//!
//! Shardings of GSPMD become shardings of HLO. Those of Shardy do too, and are kept as text in frontend attributes,
//! in the form that XLA uses when it takes Shardy's operations through HLO.

use super::{Translate, Translator};
use crate::mlir::{Attr, AttrId};
use hloom_formats::hlo_text::read_sharding;
use hloom_ir::diagnostic::codes::mlir as codes;
use hloom_ir::entity::InstructionId;
use hloom_ir::instruction::FrontendAttributes;
use hloom_ir::op::CustomCall;
use hloom_ir::sharding::{LeafSharding, Sharding};
use hloom_ir::{Op, Shape};
use std::rc::Rc;

impl Translator<'_, '_> {
    /// Puts what the program says besides on the instruction that was made for the operation at hand.
    pub(super) fn annotate(&mut self) -> Translate<()> {
        let m = self.m;
        let Some(id) = self.last else { return Ok(()) };
        for (name, value) in &m.op(self.at).attributes {
            if name.starts_with("mhlo.") || name.starts_with("sdy.") {
                self.annotation(id, name, *value)?;
            }
        }
        Ok(())
    }

    /// Puts one annotation on an instruction.
    pub(super) fn annotation(&mut self, id: InstructionId, name: &str, value: AttrId) -> Translate<()> {
        match name {
            "mhlo.sharding" => {
                if let Some(sharding) = self.sharding(name, value)? {
                    self.out.instruction_mut(id).common.sharding = Some(Box::new(sharding));
                }
            }
            "sdy.sharding" => {
                if let Some(sharding) = self.sharding(name, value)? {
                    self.out.instruction_mut(id).common.sharding = Some(Box::new(sharding));
                }
                self.frontend(id, "xla.sdy.sharding", &self.m.attr_text(value));
            }
            "sdy.sharding_rule" => self.frontend(id, "xla.sdy.sharding_rule", &self.m.attr_text(value)),
            "mhlo.frontend_attributes" => {
                let attributes = self.frontend_attributes(value);
                if !attributes.is_empty() {
                    self.out.instruction_mut(id).common.rare_mut().frontend_attributes.extend(attributes);
                }
            }
            "mhlo.backend_config" => {
                let config: Option<Box<[u8]>> = match self.m.attr(value) {
                    Attr::String(s) if !s.is_empty() => Some(s.as_ref().into()),
                    // The attributes of a call by XLA's foreign function interface.
                    Attr::Dict(_) => Some(self.m.attr_text(value).into_bytes().into()),
                    _ => None,
                };
                if config.is_some() {
                    self.out.instruction_mut(id).common.backend_config = config;
                }
            }
            "mhlo.memory_kind" | "mhlo.layout_mode" => {
                if let Some(text) = self.m.as_str(value).filter(|&t| t != "default" && t != "device") {
                    let text = text.to_owned();
                    self.frontend(id, name, &text);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn frontend(&mut self, id: InstructionId, name: &str, value: &str) {
        let attributes = &mut self.out.instruction_mut(id).common.rare_mut().frontend_attributes;
        attributes.insert(name.into(), value.into());
    }

    /// A dictionary of strings; other values as text.
    pub(super) fn frontend_attributes(&self, id: AttrId) -> FrontendAttributes {
        let m = self.m;
        let Attr::Dict(fields) = m.attr(id) else { return FrontendAttributes::new() };
        let text = |value: AttrId| m.as_str(value).map_or_else(|| m.attr_text(value), str::to_owned);
        fields.iter().map(|(name, value)| (Box::from(&**name), text(*value).into_boxed_str())).collect()
    }

    /// The sharding that an attribute holds, if HLO can say it.
    pub(super) fn sharding(&self, name: &str, value: AttrId) -> Translate<Option<Sharding>> {
        let m = self.m;
        let leaf = |id| m.hlo_sharding(id, &self.manual_axes).map(LeafSharding::from);
        match m.attr(value) {
            Attr::String(text) if text.starts_with(b"{") => match read_sharding(text) {
                Ok(sharding) => Ok(Some(sharding)),
                Err(reasons) => {
                    let text = String::from_utf8_lossy(text);
                    let mut error = self.error(&codes::BAD_ATTRIBUTE, format!("the sharding `{text}` cannot be read"));
                    if let Some(reason) = reasons.first() {
                        *error = error.note(reason.message.clone());
                    }
                    Err(error)
                }
            },
            // A serialized sharding, as old front ends wrote it, says nothing that a reader of text can use.
            Attr::String(_) => Ok(None),
            Attr::Struct(kind, _) if kind == "sdy.sharding" => {
                let Some(leaf) = leaf(value) else { return Err(self.bad_sharding(name)) };
                Ok(Some(Sharding::Leaf(Box::new(leaf))))
            }
            Attr::Struct(kind, _) if kind == "sdy.sharding_per_value" => {
                let shardings = m.field(value, "shardings").map_or(&[][..], |s| m.list(s));
                // One for each result; a list that is longer says nothing.
                let count = m.op(self.at).result_count as usize;
                let leaves: Option<Vec<LeafSharding>> = shardings.iter().take(count).map(|&s| leaf(s)).collect();
                let Some(mut leaves) = leaves else { return Err(self.bad_sharding(name)) };
                Ok(match leaves.len() {
                    0 => None,
                    1 => Some(Sharding::Leaf(Box::new(leaves.remove(0)))),
                    _ => Some(Sharding::Tuple(leaves)),
                })
            }
            _ => Ok(None),
        }
    }

    #[cold]
    fn bad_sharding(&self, name: &str) -> Box<hloom_ir::Diagnostic> {
        self.bad_attribute(name, "a sharding over a known mesh")
    }

    /// Puts the meshes of the module among its frontend attributes.
    pub(super) fn export_meshes(&mut self) {
        let m = self.m;
        let meshes = m.meshes.iter().filter_map(|&op| {
            Some(format!("{} = {}", m.string_attr(op, "sym_name")?, m.sdy_text(m.find(op, "mesh")?)?))
        });
        let meshes: Vec<String> = meshes.collect();
        if !meshes.is_empty() {
            let text = format!("{{{}}}", meshes.join(", "));
            self.out.config.frontend_attributes.insert("xla.sdy.meshes".into(), text.into());
        }
    }

    fn call_to(&mut self, target: &str, operands: &[InstructionId], shapes: Vec<Shape>) -> Translate<InstructionId> {
        let shape = match &shapes[..] {
            [one] => one.clone(),
            _ => Shape::tuple(shapes),
        };
        self.emit(Op::CustomCall(Box::new(CustomCall::new(target))), operands, shape)
    }

    pub(super) fn sharding_constraint(&mut self) -> Translate<()> {
        self.expect_operands(1)?;
        let x = self.operand(0)?;
        let Some(sharding) = self.attr("sharding") else { return Err(self.bad_attribute("sharding", "a sharding")) };
        let shape = self.shape(x).clone();
        let scalar_function = matches!(&shape, Shape::Array(a) if a.is_scalar()) && !self.at_top();
        if scalar_function {
            // In a function per element the constraint says nothing.
            return self.bind(x);
        }
        let id = self.call_to("Sharding", &[x], vec![shape])?;
        if let Some(s) = self.sharding("sharding", sharding)? {
            self.out.instruction_mut(id).common.sharding = Some(Box::new(s));
        }
        let text = self.m.attr_text(sharding);
        let inner = text.strip_prefix("#sdy.sharding").unwrap_or(&text);
        let text = format!("#sdy.sharding_per_value<[{inner}]>");
        self.frontend(id, "xla.sdy.sharding", &text);
        self.bind(id)
    }

    /// Whether the computation that is being built is a function rather than a region.
    fn at_top(&self) -> bool {
        !self.out[self.computation].name().starts_with("region")
    }

    /// A part of the program that works on its own shard: from global values to local ones, the body, and back.
    pub(super) fn manual_computation(&mut self) -> Translate<()> {
        let m = self.m;
        let region = self.region(0)?;
        let operands = self.operands()?;
        let axes = self.attr("manual_axes").and_then(|id| m.field(id, "axes"));
        let axes = axes.map_or(&[][..], |a| m.list(a)).iter().filter_map(|&a| m.as_str(a).map(str::to_owned));
        let axes: Vec<String> = axes.collect();
        let text = |id: Option<AttrId>| id.map(|id| m.attr_text(id)).unwrap_or_default();
        let manual = text(self.attr("manual_axes"));
        let ins = text(self.attr("in_shardings"));
        let outs = text(self.attr("out_shardings"));

        let arguments: Vec<_> = m.arguments(region).map(crate::mlir::ValueId).collect();
        if arguments.len() != operands.len() {
            return Err(self.error(&codes::BAD_OPERANDS, "a manual computation takes other values than its body"));
        }
        let mut locals = Vec::new();
        if !operands.is_empty() {
            let mut shapes = Vec::new();
            for &argument in &arguments {
                shapes.push(self.type_shape(m.value_type(argument))?);
            }
            let local = self.call_to("xla.sdy.GlobalToLocalShape", &operands, shapes)?;
            self.mark_manual(local, &manual, "xla.sdy.in_shardings", &ins);
            locals.push(local);
            if operands.len() > 1 {
                locals = (0..operands.len()).map(|i| self.element(local, i)).collect::<Translate<_>>()?;
            }
        }
        let outer_axes = self.manual_axes.clone();
        self.manual_axes.extend(axes);
        let results = self.body_call(region, &locals)?;
        self.manual_axes = outer_axes;
        if results.is_empty() {
            return Ok(());
        }
        let shapes = self.result_shapes()?;
        let count = shapes.len();
        let global = self.call_to("xla.sdy.LocalToGlobalShape", &results, shapes)?;
        self.mark_manual(global, &manual, "xla.sdy.out_shardings", &outs);
        if count == 1 { self.bind(global) } else { self.bind_tuple(global) }
    }

    fn mark_manual(&mut self, id: InstructionId, axes: &str, key: &str, shardings: &str) {
        if let Op::CustomCall(call) = &mut self.out.instruction_mut(id).op {
            call.has_side_effect = true;
        }
        self.frontend(id, "xla.sdy.manual_axes", axes);
        self.frontend(id, key, shardings);
    }

    /// The body of a manual computation as a computation of its own, called here.
    fn body_call(
        &mut self,
        region: crate::mlir::RegionId,
        operands: &[InstructionId],
    ) -> Translate<Vec<InstructionId>> {
        let m = self.m;
        let Some(block) = m.region(region).blocks.first() else {
            return Err(self.error(&codes::BAD_OPERANDS, "a manual computation has no body"));
        };
        let outer = self.begin("xla.sdy.manual_computation_body");
        self.info = Rc::default();
        for (i, value) in m.arguments(region).enumerate() {
            let shape = self.type_shape(m.value_type(crate::mlir::ValueId(value)))?;
            self.map[value as usize] = Some(self.emit(Op::parameter(i as i64), [].as_slice(), shape)?);
        }
        let results = self.block(&block.ops)?;
        let root = self.packed(&results)?;
        let shape = self.shape(root).clone();
        let count = results.len();
        let to_apply = self.end(outer, root);
        let call = self.emit(Op::Call { to_apply, is_composite: false }, operands, shape)?;
        self.frontend(call, "inlineable", "false");
        if count == 1 {
            return Ok(vec![call]);
        }
        (0..count).map(|i| self.element(call, i)).collect()
    }

    /// A named part of a function is its body in place.
    pub(super) fn named_computation(&mut self) -> Translate<()> {
        let region = self.region(0)?;
        let operands = self.operands()?;
        let results = self.inline_region(region, &operands)?;
        self.bind_all(&results)
    }

    pub(super) fn sharding_group(&mut self) -> Translate<()> {
        let x = self.operand(0)?;
        let group = self.int("group_id")?;
        let id = self.call_to("xla.sdy.ShardingGroup", &[x], Vec::new())?;
        if let Op::CustomCall(call) = &mut self.out.instruction_mut(id).op {
            call.has_side_effect = true;
        }
        self.frontend(id, "xla.sdy.sharding_group_id", &format!("{group} : i64"));
        Ok(())
    }

    pub(super) fn propagation_barrier(&mut self) -> Translate<()> {
        let x = self.operand(0)?;
        let shape = self.shape(x).clone();
        let direction = self.attr("allowed_direction").map(|id| self.m.attr_text(id)).unwrap_or_default();
        let id = self.call_to("xla.sdy.PropagationBarrier", &[x], vec![shape])?;
        self.frontend(id, "xla.sdy.allowed_direction", &direction);
        self.bind(id)
    }
}
