//! Shardy's attributes: meshes and shardings, as text and as shardings of HLO.
//!
//! Both readers give them as structs: `sdy.mesh` {axes, device_ids}, `sdy.mesh_axis` {name, size}, `sdy.sharding`
//! {mesh, dims, replicated, unreduced}, `sdy.dim_sharding` {axes, closed, priority}, `sdy.axis_ref` {name, sub_axis},
//! `sdy.sub_axis` {pre_size, size}, `sdy.sharding_per_value` {shardings} and `sdy.manual_axes` {axes}.

use super::print::MAX_TEXT;
use super::{Attr, AttrId, Module};
use hloom_ir::device_list::IotaTransform;
use hloom_ir::sharding::{ShardingKind, SubgroupType, Subgroups, TileAssignment, TileDevices};
use smallvec::SmallVec;
use std::fmt::Write;

/// No mesh has more axes, and no array more dimensions, than this; what claims more has no sharding in HLO.
const MAX_AXES: usize = 128;

/// No mesh has more devices than this; one that claims more has no sharding in HLO.
const MAX_DEVICES: i64 = 1 << 22;

/// A mesh: axes with their sizes, major first, and the devices where they are not in order.
#[derive(Clone, Debug, Default)]
pub struct Mesh {
    /// Names and sizes.
    pub axes: Vec<(String, i64)>,
    /// The devices in order; empty for `0..n`.
    pub devices: Vec<i64>,
}

/// An axis of a mesh or a part of one.
#[derive(Clone, Debug, PartialEq)]
struct Axis {
    index: usize,
    /// The size of what comes before the part, and of the part.
    part: (i64, i64),
}

impl Module<'_> {
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
            let name = self.as_str(self.field(a, "name")?)?.to_owned();
            Some((name, self.as_int(self.field(a, "size")?)?))
        });
        let devices = self.field(id, "device_ids").and_then(|d| self.as_ints(d)).unwrap_or_default();
        Some(Mesh { axes: axes.collect::<Option<_>>()?, devices })
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
            _ => return None,
        }
        Some(out)
    }

    fn write_mesh(&self, out: &mut String, id: AttrId) {
        let mesh = self.mesh(id).unwrap_or_default();
        out.push_str("<[");
        for (i, (name, size)) in mesh.axes.iter().enumerate() {
            let separator = if i > 0 { ", " } else { "" };
            let _ = write!(out, "{separator}\"{name}\"={size}");
        }
        out.push(']');
        if !mesh.devices.is_empty() {
            let _ = write!(out, ", device_ids={:?}", mesh.devices);
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
                let _ = write!(out, ", {key}={{");
                self.write_axes(out, axes);
                out.push('}');
            }
        }
        out.push('>');
    }

    /// A `sdy.sharding` as a sharding of HLO: tiles along the dimensions, then the axes that it is a sum over, then those
    /// that cut nothing, as manual where they are among `manual`, as replicated otherwise. `None` if it refers to what is not there.
    pub fn hlo_sharding(&self, id: AttrId, manual: &[String]) -> Option<ShardingKind> {
        let mesh = self.mesh(self.field(id, "mesh")?)?;
        let count = mesh.axes.iter().try_fold(1i64, |n, &(_, s)| if s > 0 { n.checked_mul(s) } else { None })?;
        if count > MAX_DEVICES {
            return None;
        }
        if mesh.axes.is_empty() {
            return Some(match mesh.devices.first() {
                Some(&device) => ShardingKind::Maximal { device },
                None => ShardingKind::Replicated,
            });
        }
        let mut order: Vec<Axis> = Vec::new();
        let mut tiles: SmallVec<[i64; 4]> = SmallVec::new();
        let dims = self.field(id, "dims").map_or(&[][..], |d| self.list(d));
        if dims.len() > MAX_AXES {
            return None;
        }
        for &dim in dims {
            let mut size = 1i64;
            for &axis in self.field(dim, "axes").map_or(&[][..], |a| self.list(a)) {
                let axis = self.axis(&mesh, axis)?;
                if order.len() >= MAX_AXES {
                    return None;
                }
                if manual.contains(&mesh.axes[axis.index].0) {
                    continue;
                }
                size = size.checked_mul(axis.part.1)?;
                order.push(axis);
            }
            tiles.push(size);
        }
        let data_rank = tiles.len();
        let mut unreduced_size = 1i64;
        for &axis in self.field(id, "unreduced").map_or(&[][..], |a| self.list(a)) {
            let axis = self.axis(&mesh, axis)?;
            if order.len() >= MAX_AXES {
                return None;
            }
            if !manual.contains(&mesh.axes[axis.index].0) {
                unreduced_size = unreduced_size.checked_mul(axis.part.1)?;
                order.push(axis);
            }
        }
        let (mut manual_size, mut rest_size) = (1i64, 1i64);
        let (mut manual_axes, mut rest) = (Vec::new(), Vec::new());
        for (index, (name, size)) in mesh.axes.iter().enumerate() {
            for part in remaining(&order, index, *size)? {
                if manual.contains(name) {
                    manual_size *= part.1;
                    manual_axes.push(Axis { index, part });
                } else {
                    rest_size *= part.1;
                    rest.push(Axis { index, part });
                }
            }
        }
        if tiles.iter().all(|&t| t == 1) && unreduced_size == 1 {
            if manual_axes.is_empty() {
                return Some(ShardingKind::Replicated);
            }
            if rest_size == 1 {
                return Some(ShardingKind::Manual);
            }
        }
        order.extend(manual_axes);
        order.extend(rest);
        let mut types = Vec::new();
        if unreduced_size > 1 {
            tiles.push(unreduced_size);
            types.push(SubgroupType::Unreduced);
        }
        if manual_size > 1 {
            tiles.push(manual_size);
            types.push(SubgroupType::Manual);
        }
        if rest_size > 1 {
            tiles.push(rest_size);
            types.push(SubgroupType::Replicated);
        }
        let subgroups = match &types[..] {
            [] => Subgroups::None,
            [SubgroupType::Replicated] => Subgroups::ReplicateLast,
            _ => Subgroups::Types(types),
        };
        debug_assert!(tiles.len() >= data_rank);
        let tiled = ShardingKind::Tiled(TileAssignment { dims: tiles, devices: devices(&mesh, &order)?, subgroups });
        Some(if unreduced_size > 1 { tiled.canonical() } else { tiled })
    }

    fn axis(&self, mesh: &Mesh, id: AttrId) -> Option<Axis> {
        let name = self.as_str(self.field(id, "name")?)?;
        let index = mesh.axes.iter().position(|(n, _)| n == name)?;
        let size = mesh.axes[index].1;
        let part = self.sub_axis(id).unwrap_or((1, size));
        let fits = part.0 > 0 && part.1 > 0 && part.0.checked_mul(part.1).is_some_and(|n| size % n == 0);
        fits.then_some(Axis { index, part })
    }
}

/// The parts of axis `index` of that size that `used` leaves over, major first, each with the size of what comes before.
fn remaining(used: &[Axis], index: usize, size: i64) -> Option<Vec<(i64, i64)>> {
    let mut parts: Vec<(i64, i64)> = used.iter().filter(|a| a.index == index).map(|a| a.part).collect();
    parts.sort_unstable();
    let mut left = Vec::new();
    let mut before = 1;
    for (pre, part) in parts {
        if pre < before || pre % before != 0 {
            return None;
        }
        if pre > before {
            left.push((before, pre / before));
        }
        before = pre * part;
    }
    if before < size {
        left.push((before, size / before));
    }
    Some(left)
}

/// The devices in the order of `axes`.
fn devices(mesh: &Mesh, axes: &[Axis]) -> Option<TileDevices> {
    // The mesh as an array of the parts of its axes, each axis cut where a part begins.
    let mut sizes: SmallVec<[i64; 4]> = SmallVec::new();
    let mut keys: Vec<(usize, i64)> = Vec::new();
    for index in 0..mesh.axes.len() {
        let mut parts: Vec<(i64, i64)> = axes.iter().filter(|a| a.index == index).map(|a| a.part).collect();
        parts.sort_unstable();
        for (pre, size) in parts {
            keys.push((index, pre));
            sizes.push(size);
        }
    }
    let perm: Option<SmallVec<[i64; 4]>> =
        axes.iter().map(|a| Some(keys.iter().position(|&k| k == (a.index, a.part.0))? as i64)).collect();
    let transform = IotaTransform { reshape_dims: sizes, transpose_perm: perm? }.canonical();
    if mesh.devices.is_empty() {
        return Some(TileDevices::Iota(transform));
    }
    let order = transform.expand(MAX_DEVICES)?;
    order.iter().map(|&i| mesh.devices.get(i as usize).copied()).collect::<Option<_>>().map(TileDevices::Explicit)
}
