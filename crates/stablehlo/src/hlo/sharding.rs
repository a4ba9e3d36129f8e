//! What is said about how values are spread over devices, and other annotations.
//!
//! Shardings of GSPMD become shardings of HLO, and so do those of Shardy, as named ones over their meshes. A manual
//! computation is its body in place: each value goes from its whole shape to that of a shard through a custom call, and
//! back, as in GSPMD; the values inside name the manual axes.

use super::{Translate, Translator};
use crate::mlir::{Attr, AttrId};
use hloom_formats::hlo_text::read_sharding;
use hloom_ir::device_list::{AxisRef, Mesh};
use hloom_ir::diagnostic::codes::mlir as codes;
use hloom_ir::entity::InstructionId;
use hloom_ir::instruction::FrontendAttributes;
use hloom_ir::op::CustomCall;
use hloom_ir::sharding::{LeafSharding, NamedSharding, Sharding, ShardingKind};
use hloom_ir::{Op, Shape};
use std::sync::Arc;

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
            "mhlo.sharding" | "sdy.sharding" => {
                if let Some(sharding) = self.sharding(name, value)? {
                    self.out.instruction_mut(id).common.sharding = Some(Arc::new(sharding));
                }
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
        let leaf = |id| self.named(id).map(|n| LeafSharding::from(ShardingKind::Named(n)));
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
                let Some(leaf) = leaf(value) else { return Err(self.bad_sharding(name, value)) };
                Ok(Some(Sharding::Leaf(Box::new(leaf))))
            }
            Attr::Struct(kind, _) if kind == "sdy.sharding_per_value" => {
                let shardings = m.field(value, "shardings").map_or(&[][..], |s| m.list(s));
                // One for each result; a list that is longer says nothing.
                let count = m.op(self.at).result_count as usize;
                let one = |&s: &AttrId| leaf(s).ok_or_else(|| self.bad_sharding(name, s));
                let mut leaves: Vec<LeafSharding> = shardings.iter().take(count).map(one).collect::<Translate<_>>()?;
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
    fn bad_sharding(&self, name: &str, sharding: AttrId) -> Box<hloom_ir::Diagnostic> {
        let mut error = self.error(
            &codes::BAD_ATTRIBUTE,
            format!("`{name}` of {}: {}", self.op_name(), self.m.wrong_in_sharding(sharding)),
        );
        *error = error.note(format!("the sharding is {}", self.m.attr_text(sharding)));
        error
    }

    /// A `sdy.sharding` as a named sharding, of a value that is in the manual computations around it.
    fn named(&self, id: AttrId) -> Option<NamedSharding> {
        let mesh = self.mesh(self.m.field(id, "mesh")?)?;
        let named = self.m.named_sharding(id, &mesh)?;
        Some(within(named, &self.manual_axes))
    }

    /// A mesh, the same one each time.
    fn mesh(&self, id: AttrId) -> Option<Arc<Mesh>> {
        let Attr::Symbol(name) = self.m.attr(id) else { return self.m.mesh(id).map(Arc::new) };
        if let Some(mesh) = self.meshes.borrow().get(&**name) {
            return Some(mesh.clone());
        }
        let mesh = Arc::new(self.m.mesh(id)?);
        self.meshes.borrow_mut().insert(Box::from(&**name), mesh.clone());
        Some(mesh)
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
            self.out.instruction_mut(id).common.sharding = Some(Arc::new(s));
        }
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
        let inside: Vec<String> = self.manual_axes.iter().cloned().chain(axes).collect();
        let ins = self.edge_shardings("in_shardings", operands.len())?;
        let outs = self.edge_shardings("out_shardings", m.op(self.at).result_count as usize)?;
        let arguments: Vec<_> = m.arguments(region).map(crate::mlir::ValueId).collect();
        if arguments.len() != operands.len() {
            return Err(self.error(&codes::BAD_OPERANDS, "a manual computation takes other values than its body"));
        }
        let mut locals = Vec::new();
        for ((&x, &argument), sharding) in operands.iter().zip(&arguments).zip(ins) {
            let whole = self.shape(x).clone();
            if !whole.is_array() {
                locals.push(x);
                continue;
            }
            let shape = self.type_shape(m.value_type(argument))?;
            let placed = self.placed("Sharding", x, whole, sharding.clone())?;
            locals.push(self.placed("SPMDFullToShardShape", placed, shape, within(sharding, &inside))?);
        }
        let outer = std::mem::replace(&mut self.manual_axes, inside.clone());
        let results = self.inline_region(region, &locals);
        self.manual_axes = outer;
        let results = results?;
        if results.len() != outs.len() {
            return Err(self.error(&codes::BAD_OPERANDS, "a manual computation gives other values than its body"));
        }
        let shapes = self.result_shapes()?;
        let mut wholes = Vec::new();
        for ((&local, shape), sharding) in results.iter().zip(shapes).zip(outs) {
            let part = self.shape(local).clone();
            if !part.is_array() {
                wholes.push(local);
                continue;
            }
            let placed = self.placed("Sharding", local, part, within(sharding.clone(), &inside))?;
            wholes.push(self.placed("SPMDShardToFullShape", placed, shape, sharding)?);
        }
        self.bind_all(&wholes)
    }

    /// The shardings of the values at the edge of a manual computation.
    fn edge_shardings(&self, name: &'static str, count: usize) -> Translate<Vec<NamedSharding>> {
        let list = self.attr(name).and_then(|id| self.m.field(id, "shardings"));
        let list = list.map_or(&[][..], |s| self.m.list(s));
        if list.len() != count {
            return Err(self.bad_attribute(name, &format!("a list of {count} shardings")));
        }
        list.iter().map(|&s| self.named(s).ok_or_else(|| self.bad_sharding(name, s))).collect()
    }

    /// A custom call that says how a value is spread.
    fn placed(
        &mut self,
        target: &str,
        x: InstructionId,
        shape: Shape,
        sharding: NamedSharding,
    ) -> Translate<InstructionId> {
        let id = self.call_to(target, &[x], vec![shape])?;
        let sharding = Sharding::leaf(ShardingKind::Named(sharding));
        self.out.instruction_mut(id).common.sharding = Some(Arc::new(sharding));
        Ok(id)
    }

    /// A named part of a function is its body in place.
    pub(super) fn named_computation(&mut self) -> Translate<()> {
        let region = self.region(0)?;
        let operands = self.operands()?;
        let results = self.inline_region(region, &operands)?;
        self.bind_all(&results)
    }

    /// An edge of Shardy's data flow is the value that it is about.
    pub(super) fn passed_on(&mut self) -> Translate<()> {
        let x = self.operand(0)?;
        self.bind(x)
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

/// The sharding of a value inside manual computations over these axes: they are the program's own, and cut nothing.
fn within(mut named: NamedSharding, manual: &[String]) -> NamedSharding {
    let axes = named.mesh.axes.iter().enumerate();
    let manual: Vec<u32> =
        axes.filter(|(_, (name, _))| manual.iter().any(|m| **m == **name)).map(|(i, _)| i as u32).collect();
    let is_free = |axis: &AxisRef| !manual.contains(&axis.axis);
    for dim in &mut named.dims {
        dim.axes.retain(is_free);
    }
    named.replicated.retain(is_free);
    named.unreduced.retain(is_free);
    named.manual = manual.into_iter().map(|axis| AxisRef { axis, sub_axis: None }).collect();
    named
}
