//! Shardy's attributes: meshes and shardings, as text and as the IR's meshes and shardings.
//!
//! Both readers give them as structs: `sdy.mesh` {axes, device_ids}, `sdy.mesh_axis` {name, size}, `sdy.sharding`
//! {mesh, dims, replicated, unreduced, reduction}, `sdy.dim_sharding` {axes, closed, priority}, `sdy.axis_ref` {name, sub_axis},
//! `sdy.sub_axis` {pre_size, size}, `sdy.sharding_per_value` {shardings} and `sdy.manual_axes` {axes}. Rules are in
//! `sharding_rule`.

use super::print::MAX_TEXT;
use super::{Attr, AttrId, Module, Named, Signedness, Type, TypeId};
use hloom_ir::device_list::{AxisRef, Mesh, MeshDevices};
use hloom_ir::sharding::{DimSharding, NamedSharding, UnreducedReduction};
use std::borrow::Cow;
use std::fmt::Write;
use std::sync::Arc;

/// No mesh has more axes, and no array more dimensions, than this; what claims more has no sharding in HLO.
const MAX_AXES: usize = 128;

impl<'a> Module<'a> {
    /// The mesh that an attribute holds, or that the symbol in it names.
    pub fn mesh(&self, id: AttrId) -> Option<Mesh> {
        let id = match self.attr(id) {
            Attr::Symbol(name) | Attr::String(name) => {
                let named =
                    |&&op: &&super::OpId| self.string_attr(op, "sym_name").is_some_and(|n| n.as_bytes() == &name[..]);
                self.find(*self.meshes.iter().find(named)?, "mesh")?
            }
            _ => id,
        };
        let axes = self.field(id, "axes").map_or(&[][..], |a| self.list(a));
        if axes.len() > MAX_AXES {
            return None;
        }
        let axes = axes.iter().map(|&a| {
            let name = self.as_str(self.field(a, "name")?)?.into();
            Some((name, self.as_int(self.field(a, "size")?)?))
        });
        let axes: Vec<(Box<str>, i64)> = axes.collect::<Option<_>>()?;
        let devices = self.field(id, "device_ids").and_then(|d| self.as_ints(d)).unwrap_or_default();
        let devices = match &devices[..] {
            [] => MeshDevices::Iota,
            &[device] if axes.is_empty() => MeshDevices::Maximal(device),
            _ => MeshDevices::Explicit(devices),
        };
        Some(Mesh { axes, devices })
    }

    /// A `sdy.sharding` over its mesh, which [`Module::mesh`] gives. `None` if it refers to what is not there.
    pub fn named_sharding(&self, id: AttrId, mesh: &Arc<Mesh>) -> Option<NamedSharding> {
        let list = |id: Option<AttrId>| -> Option<Vec<AxisRef>> {
            let axes = id.map_or(&[][..], |a| self.list(a));
            if axes.len() > MAX_AXES {
                return None;
            }
            axes.iter().map(|&a| self.axis(mesh, a)).collect()
        };
        let dims = self.field(id, "dims").map_or(&[][..], |d| self.list(d));
        if dims.len() > MAX_AXES {
            return None;
        }
        let dims = dims.iter().map(|&d| {
            let priority = self.field(d, "priority").and_then(|p| self.as_int(p)).and_then(|p| u32::try_from(p).ok());
            let closed = self.field(d, "closed").and_then(|c| self.as_bool(c)) == Some(true);
            Some(DimSharding { axes: list(self.field(d, "axes"))?, closed, priority })
        });
        let reduction = match self.field(id, "reduction").and_then(|r| self.as_str(r)) {
            Some("max") => UnreducedReduction::Max,
            Some("min") => UnreducedReduction::Min,
            _ => UnreducedReduction::Sum,
        };
        Some(NamedSharding {
            mesh: mesh.clone(),
            dims: dims.collect::<Option<_>>()?,
            replicated: list(self.field(id, "replicated"))?,
            unreduced: list(self.field(id, "unreduced"))?,
            manual: Vec::new(),
            reduction,
        })
    }

    fn axis(&self, mesh: &Mesh, id: AttrId) -> Option<AxisRef> {
        let name = self.as_str(self.field(id, "name")?)?;
        let axis = mesh.axes.iter().position(|(n, _)| **n == *name)?;
        let size = mesh.axes[axis].1;
        let sub_axis = self.sub_axis(id);
        let part = sub_axis.unwrap_or((1, size));
        let fits = part.0 > 0 && part.1 > 0 && part.0.checked_mul(part.1).is_some_and(|n| size % n == 0);
        fits.then_some(AxisRef { axis: axis as u32, sub_axis })
    }

    /// What a `sdy.sharding` that [`Module::named_sharding`] refuses refers to that is not there.
    #[cold]
    pub(crate) fn wrong_in_sharding(&self, id: AttrId) -> String {
        let Some(named) = self.field(id, "mesh") else { return "it names no mesh".into() };
        let Some(mesh) = self.mesh(named) else {
            let known = self.meshes.iter().filter_map(|&op| self.string_attr(op, "sym_name"));
            let known: Vec<String> = known.map(|name| format!("@{name}")).collect();
            let known =
                if known.is_empty() { "the module has none".into() } else { format!("there is {}", known.join(", ")) };
            return format!("there is no mesh {}; {known}", self.attr_text(named));
        };
        let listed =
            |from: AttrId, field: &str| self.field(from, field).map_or(&[][..], |a| self.list(a)).iter().copied();
        let dims = listed(id, "dims").flat_map(|d| listed(d, "axes"));
        let mut axes = dims.chain(listed(id, "replicated")).chain(listed(id, "unreduced"));
        let Some(wrong) = axes.find(|&a| self.axis(&mesh, a).is_none()) else { return "it has too many axes".into() };
        let name = self.field(wrong, "name").and_then(|n| self.as_str(n)).unwrap_or_default();
        match (mesh.axes.iter().find(|(n, _)| **n == *name), self.sub_axis(wrong)) {
            (Some((_, size)), Some((before, part))) => {
                format!(
                    "an axis \"{name}\" of {size} has no part ({before}){part}: {before} times {part} must divide {size}"
                )
            }
            _ => {
                let axes: Vec<String> = mesh.axes.iter().map(|(n, size)| format!("\"{n}\"={size}")).collect();
                format!("the mesh {} has no axis \"{name}\"; it has {}", self.attr_text(named), axes.join(", "))
            }
        }
    }

    /// A `sdy.sharding` attribute for a sharding over the mesh that the attribute `mesh` names or holds.
    pub fn add_sharding(&mut self, named: &NamedSharding, mesh: AttrId) -> AttrId {
        let structure = |m: &mut Self, name: &'static str, fields: Vec<Named<'a>>| {
            m.add_attr(Attr::Struct(Cow::Borrowed(name), fields))
        };
        let index = self.index_type();
        let integer = |m: &mut Self, n: i64| m.add_attr(Attr::Integer(n, index));
        let list = |m: &mut Self, axes: &[AxisRef]| {
            let mut items = Vec::with_capacity(axes.len());
            for axis in axes {
                let name = named.mesh.axes.get(axis.axis as usize).map_or("", |a| &a.0);
                let name = m.add_attr(Attr::String(Cow::Owned(name.as_bytes().to_vec())));
                let mut fields: Vec<Named<'a>> = vec![("name".into(), name)];
                if let Some((pre, size)) = axis.sub_axis {
                    let (pre, size) = (integer(m, pre), integer(m, size));
                    let sub = structure(m, "sdy.sub_axis", vec![("pre_size".into(), pre), ("size".into(), size)]);
                    fields.push(("sub_axis".into(), sub));
                }
                items.push(structure(m, "sdy.axis_ref", fields));
            }
            m.add_attr(Attr::Array(items))
        };
        let mut dims = Vec::with_capacity(named.dims.len());
        for dim in &named.dims {
            let axes = list(self, &dim.axes);
            let closed = self.add_attr(Attr::Bool(dim.closed));
            let mut fields: Vec<Named<'a>> = vec![("axes".into(), axes), ("closed".into(), closed)];
            if let Some(priority) = dim.priority {
                let priority = integer(self, i64::from(priority));
                fields.push(("priority".into(), priority));
            }
            dims.push(structure(self, "sdy.dim_sharding", fields));
        }
        let dims = self.add_attr(Attr::Array(dims));
        let mut fields: Vec<Named<'a>> = vec![("mesh".into(), mesh), ("dims".into(), dims)];
        for (key, axes) in [("replicated", &named.replicated), ("unreduced", &named.unreduced)] {
            if !axes.is_empty() {
                let axes = list(self, axes);
                fields.push((key.into(), axes));
            }
        }
        let word = match named.reduction {
            UnreducedReduction::Sum => None,
            UnreducedReduction::Max => Some("max"),
            UnreducedReduction::Min => Some("min"),
        };
        if let Some(word) = word {
            let word = self.add_attr(Attr::Keyword(Cow::Borrowed(word)));
            fields.push(("reduction".into(), word));
        }
        structure(self, "sdy.sharding", fields)
    }

    /// A `sdy.sharding_per_value` of these shardings.
    pub fn add_sharding_per_value(&mut self, shardings: Vec<AttrId>) -> AttrId {
        let list = self.add_attr(Attr::Array(shardings));
        self.add_attr(Attr::Struct(Cow::Borrowed("sdy.sharding_per_value"), vec![("shardings".into(), list)]))
    }

    fn index_type(&mut self) -> TypeId {
        let found = self.types.iter().position(|t| *t == Type::Integer(64, Signedness::Signless));
        match found {
            Some(i) => TypeId(i as u32),
            None => self.add_type(Type::Integer(64, Signedness::Signless)),
        }
    }

    /// An attribute of Shardy as text; `None` for others.
    pub fn sdy_text(&self, id: AttrId) -> Option<String> {
        let Attr::Struct(name, _) = self.attr(id) else { return None };
        let mut out = String::new();
        match &**name {
            "sdy.mesh" => {
                out.push_str("#sdy.mesh");
                self.write_mesh(&mut out, id);
            }
            "sdy.sharding" => {
                out.push_str("#sdy.sharding");
                self.write_sharding(&mut out, id);
            }
            "sdy.sharding_per_value" => {
                out.push_str("#sdy.sharding_per_value<[");
                let shardings = self.field(id, "shardings").map_or(&[][..], |s| self.list(s));
                for (i, &s) in shardings.iter().enumerate() {
                    if out.len() > MAX_TEXT {
                        return None;
                    }
                    if i > 0 {
                        out.push_str(", ");
                    }
                    self.write_sharding(&mut out, s);
                }
                out.push_str("]>");
            }
            "sdy.manual_axes" => {
                out.push_str("#sdy<manual_axes{");
                let axes = self.field(id, "axes").map_or(&[][..], |s| self.list(s));
                for (i, &a) in axes.iter().enumerate() {
                    let separator = if i > 0 { ", " } else { "" };
                    let _ = write!(out, "{separator}\"{}\"", self.as_str(a)?);
                }
                out.push_str("}>");
            }
            "sdy.op_sharding_rule" => return Some(self.sharding_rule_text(id)),
            _ => return None,
        }
        Some(out)
    }

    fn write_mesh(&self, out: &mut String, id: AttrId) {
        out.push_str("<[");
        if let Some(mesh) = self.mesh(id) {
            for (i, (name, size)) in mesh.axes.iter().enumerate() {
                let separator = if i > 0 { ", " } else { "" };
                let _ = write!(out, "{separator}\"{name}\"={size}");
            }
        }
        out.push(']');
        let devices = self.field(id, "device_ids").and_then(|d| self.as_ints(d)).unwrap_or_default();
        if !devices.is_empty() {
            let _ = write!(out, ", device_ids={devices:?}");
        }
        out.push('>');
    }

    fn write_axes(&self, out: &mut String, axes: &[AttrId]) {
        for (i, &axis) in axes.iter().enumerate().take(MAX_AXES) {
            if i > 0 {
                out.push_str(", ");
            }
            let name = self.field(axis, "name").and_then(|n| self.as_str(n)).unwrap_or("");
            let _ = write!(out, "\"{name}\"");
            if let Some((pre, size)) = self.sub_axis(axis) {
                let _ = write!(out, ":({pre}){size}");
            }
        }
    }

    fn sub_axis(&self, axis: AttrId) -> Option<(i64, i64)> {
        let sub = self.field(axis, "sub_axis")?;
        Some((self.as_int(self.field(sub, "pre_size")?)?, self.as_int(self.field(sub, "size")?)?))
    }

    fn write_sharding(&self, out: &mut String, id: AttrId) {
        out.push('<');
        match self.field(id, "mesh").map(|m| (m, self.attr(m))) {
            Some((_, Attr::Symbol(name))) => {
                let _ = write!(out, "@{}", String::from_utf8_lossy(name));
            }
            Some((mesh, _)) => {
                out.push_str("mesh");
                self.write_mesh(out, mesh);
            }
            None => {}
        }
        out.push_str(", [");
        let dims = self.field(id, "dims").map_or(&[][..], |d| self.list(d));
        for (i, &dim) in dims.iter().enumerate().take(MAX_AXES) {
            if i > 0 {
                out.push_str(", ");
            }
            let axes = self.field(dim, "axes").map_or(&[][..], |a| self.list(a));
            out.push('{');
            self.write_axes(out, axes);
            if self.field(dim, "closed").and_then(|c| self.as_bool(c)) != Some(true) {
                out.push_str(if axes.is_empty() { "?" } else { ", ?" });
            }
            out.push('}');
            if let Some(p) = self.field(dim, "priority").and_then(|p| self.as_int(p)) {
                let _ = write!(out, "p{p}");
            }
        }
        out.push(']');
        for key in ["replicated", "unreduced"] {
            let axes = self.field(id, key).map_or(&[][..], |a| self.list(a));
            if !axes.is_empty() {
                let word = self.field(id, "reduction").filter(|_| key == "unreduced").and_then(|r| self.as_str(r));
                let _ = write!(out, ", {key}={}{{", word.unwrap_or(""));
                self.write_axes(out, axes);
                out.push('}');
            }
        }
        out.push('>');
    }
}
