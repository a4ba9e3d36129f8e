//! Shardings, device lists and meshes.

use super::{Read, Reader};
use hloom_ir::device_list::{AxisRef, IotaTransform, Mesh, MeshDevices, ReplicaGroups};
use hloom_ir::diagnostic::{Diagnostic, Span, codes, did_you_mean};
use hloom_ir::op::Domain;
use hloom_ir::sharding::*;
use smallvec::SmallVec;
use std::sync::Arc;

/// `[2,4]` and what stands on its right side.
struct Tiling {
    dims: SmallVec<[i64; 4]>,
    devices: TileDevices,
}

impl<'a> Reader<'a> {
    /// `{…}` or `{{…},{…}}`.
    pub(super) fn sharding(&mut self) -> Read<Sharding> {
        self.expect(b'{', "to start a sharding")?;
        match self.peek() {
            b'{' => {}
            b'}' => {
                self.pos += 1;
                return Ok(Sharding::Tuple(Vec::new()));
            }
            _ => return Ok(Sharding::Leaf(Box::new(self.leaf_sharding()?))),
        }
        let mut leaves = Vec::new();
        loop {
            self.expect(b'{', "to start a sharding")?;
            leaves.push(self.leaf_sharding()?);
            if !self.eat(b',') {
                break;
            }
        }
        self.expect(b'}', "or `,` in a sharding of a tuple")?;
        Ok(Sharding::Tuple(leaves))
    }

    /// What follows the `{`, and the `}`.
    fn leaf_sharding(&mut self) -> Read<LeafSharding> {
        self.skip();
        let start = self.pos;
        if matches!(self.peek_ident(), b"mesh" | b"maximal_mesh") {
            return self.named_sharding();
        }
        let mut word: &[u8] = b"";
        let mut device = None;
        let mut tiling: Option<Tiling> = None;
        let mut replicate_last = false;
        let mut types: Option<Vec<SubgroupType>> = None;
        let mut group = None;
        let mut metadata = Vec::new();
        loop {
            if self.peek() == b'}' {
                self.pos += 1;
                break;
            }
            let at = self.pos;
            if let Some(name) = self.attribute_name() {
                match name {
                    b"device" => device = Some(self.int("the number of a device")?),
                    b"devices" => tiling = Some(self.tiling()?),
                    b"metadata" => metadata = self.metadata_list()?,
                    b"last_tile_dims" => types = Some(self.subgroup_types()?),
                    _ => {
                        let span = Span::new(at, at + name.len());
                        let known = ["device", "devices", "metadata", "last_tile_dims"];
                        return self.unknown_attribute(name, span, known.into_iter());
                    }
                }
                continue;
            }
            match self.peek_ident() {
                w @ (b"replicated" | b"maximal" | b"manual" | b"unknown" | b"unreduced") => {
                    word = w;
                    self.pos += w.len();
                }
                w @ b"last_tile_dim_replicate" => {
                    replicate_last = true;
                    self.pos += w.len();
                }
                w @ (b"shard_as" | b"shard_like") => {
                    self.pos += w.len();
                    let kind = if w == b"shard_as" { ShardGroupKind::As } else { ShardGroupKind::Like };
                    group = Some(ShardGroup { id: self.int("the number of a group")?, kind });
                }
                _ => return self.expected("a part of a sharding or `}`"),
            }
        }
        let span = self.span_from(start);
        let kind = match (word, tiling, device) {
            (b"maximal", None, Some(device)) => ShardingKind::Maximal { device },
            (b"maximal", ..) => return self.bad_sharding(span, "a maximal sharding names one device: device=N"),
            (b"replicated", None, None) => ShardingKind::Replicated,
            (b"manual", None, None) => ShardingKind::Manual,
            (b"unknown", None, None) => ShardingKind::Unknown,
            (b"unreduced", None, None) => ShardingKind::Unreduced,
            (b"", Some(tiling), None) => self.tiled(span, tiling, replicate_last, types)?,
            (b"", ..) => return self.bad_sharding(span, "a sharding says how it cuts: devices=[...]..."),
            _ => return self.bad_sharding(span, "this kind of sharding names no devices"),
        };
        Ok(LeafSharding { kind, group, metadata })
    }

    #[cold]
    fn bad_sharding<T>(&mut self, span: Span, message: &str) -> Read<T> {
        self.fail_at(&codes::text::BAD_SHARDING, span, message, "this sharding")
    }

    fn tiled(
        &mut self,
        span: Span,
        tiling: Tiling,
        replicate_last: bool,
        types: Option<Vec<SubgroupType>>,
    ) -> Read<ShardingKind> {
        let Tiling { dims, devices } = tiling;
        let tiles = dims.iter().try_fold(1i64, |n, &d| if d <= 0 { None } else { n.checked_mul(d) });
        let count = match &devices {
            TileDevices::Explicit(list) => Some(list.len() as i64),
            TileDevices::Iota(iota) => iota.len(),
        };
        if tiles.is_none() || tiles != count {
            let describe = |n: Option<i64>| n.map_or("an impossible number of".to_owned(), |n| n.to_string());
            let message =
                format!("the dimensions make {} tiles, but {} devices are listed", describe(tiles), describe(count));
            return self.bad_sharding(span, &message);
        }
        if tiles == Some(1) && matches!(devices, TileDevices::Explicit(_)) {
            return self.bad_sharding(span, "a tiled sharding has more than one device");
        }
        let subgroups = match types {
            Some(_) if replicate_last => {
                return self.bad_sharding(span, "last_tile_dim_replicate and last_tile_dims exclude each other");
            }
            Some(types) if types.len() > dims.len() => {
                return self.bad_sharding(span, "last_tile_dims has more entries than there are dimensions");
            }
            Some(types) if types.is_empty() => Subgroups::None,
            Some(types) if types == [SubgroupType::Replicated] => Subgroups::ReplicateLast,
            Some(types) => Subgroups::Types(types),
            None if replicate_last => Subgroups::ReplicateLast,
            None => Subgroups::None,
        };
        Ok(ShardingKind::Tiled(TileAssignment { dims, devices, subgroups }).canonical())
    }

    fn subgroup_types(&mut self) -> Read<Vec<SubgroupType>> {
        use SubgroupType::*;
        let mut types = Vec::new();
        self.list(|r| {
            types.push(r.word("a kind of subgroup", &[Replicated, Manual, Maximal, Unreduced], |t| match t {
                Replicated => "replicated",
                Manual => "manual",
                Maximal => "maximal",
                Unknown => "unknown",
                Unreduced => "unreduced",
            })?);
            Ok(())
        })?;
        Ok(types)
    }

    /// `[2,4]0,1,…` or `[2,4]<=[8]`.
    fn tiling(&mut self) -> Read<Tiling> {
        let dims = self.square_list()?;
        if self.eat_text(b"<=") {
            return Ok(Tiling { dims, devices: TileDevices::Iota(self.iota()?) });
        }
        let mut devices = Vec::new();
        loop {
            devices.push(self.int("the number of a device or `<=`")?);
            if !self.eat(b',') {
                break;
            }
        }
        Ok(Tiling { dims, devices: TileDevices::Explicit(devices) })
    }

    /// `[2,4]`, not empty.
    fn square_list(&mut self) -> Read<SmallVec<[i64; 4]>> {
        self.expect(b'[', "to start a list of sizes")?;
        let mut list = SmallVec::new();
        loop {
            list.push(self.int("a size")?);
            if !self.eat(b',') {
                break;
            }
        }
        self.expect(b']', "or `,` after a size")?;
        Ok(list)
    }

    /// `[8]` or `[4,2]T(1,0)`, the right side of `<=`.
    fn iota(&mut self) -> Read<IotaTransform> {
        self.skip();
        let start = self.pos;
        let reshape_dims = self.square_list()?;
        let rank = reshape_dims.len();
        let mut transpose_perm: SmallVec<[i64; 4]> = (0..rank as i64).collect();
        let end = self.pos;
        if self.peek_ident() == b"T" {
            self.pos += 1;
            transpose_perm.clear();
            self.expect(b'(', "after `T`")?;
            loop {
                transpose_perm.push(self.int("a dimension number")?);
                if !self.eat(b',') {
                    break;
                }
            }
            self.expect(b')', "or `,` after a dimension number")?;
        } else {
            self.pos = end;
        }
        let span = self.span_from(start);
        if !hloom_ir::layout::is_permutation(&transpose_perm, rank) {
            let message = format!("T must order the dimensions 0 to {} once each", rank.saturating_sub(1));
            return self.fail_at(&codes::text::BAD_DEVICE_LIST, span, message, "not a permutation");
        }
        let iota = IotaTransform { reshape_dims, transpose_perm };
        if iota.len().is_none() {
            let message = "this device list has a negative size or too many devices";
            return self.fail_at(&codes::text::BAD_DEVICE_LIST, span, message, "impossible sizes");
        }
        Ok(iota.canonical())
    }

    /// `{{0,1},{2,3}}`, `[2,4]<=[8]` or `mesh['x'=2] {'x'}`. That the two sides of `<=` have the same number of devices
    /// is the verifier's to check.
    pub(super) fn replica_groups(&mut self) -> Read<ReplicaGroups> {
        match self.peek() {
            b'{' => return Ok(ReplicaGroups::Explicit(self.int_list_list()?)),
            b'[' => {}
            _ if matches!(self.peek_ident(), b"mesh" | b"maximal_mesh") => {
                let mesh = Arc::new(self.mesh()?);
                let axes = self.axes(&mesh)?;
                return Ok(ReplicaGroups::MeshAxes { mesh, axes });
            }
            _ => return self.expected("replica groups"),
        }
        let start = self.pos;
        let Tiling { dims, devices } = self.tiling()?;
        let span = self.span_from(start);
        let TileDevices::Iota(devices) = devices else {
            let message = "replica groups in this form are written [groups,size]<=[...]";
            return self.fail_at(&codes::text::BAD_DEVICE_LIST, span, message, "expected `<=` after the sizes");
        };
        let &[num_groups, group_size] = dims.as_slice() else {
            let message = format!("replica groups have two sizes, groups and devices in each, not {}", dims.len());
            return self.fail_at(&codes::text::BAD_DEVICE_LIST, span, message, "expected [groups,size]");
        };
        Ok(ReplicaGroups::Iota { num_groups, group_size, devices })
    }

    /// `mesh['x'=2,'y'=4]`, perhaps with `, device_ids=(…)`, or `maximal_mesh[device_id=2]`.
    fn mesh(&mut self) -> Read<Mesh> {
        self.skip();
        let start = self.pos;
        let kind = self.ident("a mesh")?;
        self.expect(b'[', "after `mesh`")?;
        if kind == b"maximal_mesh" {
            if self.attribute_name() != Some(b"device_id") {
                return self.expected("`device_id=`");
            }
            let device = self.int("the number of a device")?;
            self.expect(b']', "to end a mesh")?;
            return Ok(Mesh { axes: Vec::new(), devices: MeshDevices::Maximal(device) });
        }
        let mut axes = Vec::new();
        while self.peek() != b']' {
            let name = self.text_string()?.into();
            self.expect(b'=', "after the name of an axis")?;
            axes.push((name, self.int("the size of an axis")?));
            if !self.eat(b',') {
                break;
            }
        }
        self.expect(b']', "or `,` after an axis")?;
        let mut mesh = Mesh { axes, devices: MeshDevices::Iota };
        let end = self.pos;
        let size = mesh.size();
        if size.is_none() {
            let span = self.span_from(start);
            return self.fail_at(&codes::text::BAD_MESH, span, "a mesh cannot have this size", "impossible sizes");
        }
        if !(self.eat(b',') && self.attribute_name() == Some(b"device_ids")) {
            self.pos = end;
            return Ok(mesh);
        }
        self.expect(b'(', "before the devices of a mesh")?;
        let count;
        if self.peek() == b'[' {
            // The left side of `<=`, where it is written, only repeats the axes.
            let before = self.pos;
            self.square_list()?;
            if !self.eat_text(b"<=") {
                self.pos = before;
            }
            let iota = self.iota()?;
            count = iota.len();
            mesh.devices = MeshDevices::Transformed(iota);
        } else {
            let mut devices = Vec::new();
            while self.peek() != b')' {
                devices.push(self.int("the number of a device")?);
                if !self.eat(b',') {
                    break;
                }
            }
            count = Some(devices.len() as i64);
            mesh.devices = MeshDevices::Explicit(devices);
        }
        self.expect(b')', "after the devices of a mesh")?;
        if count != size {
            let span = self.span_from(start);
            let message =
                format!("the axes make room for {} devices, but {} are listed", size.unwrap_or(0), count.unwrap_or(0));
            return self.fail_at(&codes::text::BAD_MESH, span, message, "the numbers of devices differ");
        }
        Ok(mesh)
    }

    /// `'x'` or `'x':(1)2`.
    fn axis(&mut self, mesh: &Mesh) -> Read<AxisRef> {
        self.skip();
        let start = self.pos;
        let name = self.text_string()?;
        let by_name = mesh.axes.iter().position(|(n, _)| **n == *name);
        let found = by_name.or_else(|| name.parse().ok().filter(|&i: &usize| i < mesh.axes.len()));
        let Some(axis) = found else {
            let mut diagnostic = Diagnostic::error(&codes::text::BAD_MESH, format!("the mesh has no axis `{name}`"))
                .at(self.span_from(start))
                .label("unknown axis");
            if let Some(near) = did_you_mean(&name, mesh.axes.iter().map(|(n, _)| &**n)) {
                diagnostic = diagnostic.help(format!("did you mean `{near}`?"));
            }
            return self.fail(diagnostic);
        };
        let mut sub_axis = None;
        if self.eat(b':') {
            self.expect(b'(', "before the size that precedes a part of an axis")?;
            let before = self.int("a size")?;
            self.expect(b')', "after the size that precedes a part of an axis")?;
            sub_axis = Some((before, self.int("the size of the part")?));
        }
        Ok(AxisRef { axis: axis as u32, sub_axis })
    }

    /// `{'x', 'y':(1)2}`.
    fn axes(&mut self, mesh: &Mesh) -> Read<Vec<AxisRef>> {
        let mut axes = Vec::new();
        self.list(|r| {
            axes.push(r.axis(mesh)?);
            Ok(())
        })?;
        Ok(axes)
    }

    fn reduction(&mut self) -> Read<UnreducedReduction> {
        use UnreducedReduction::*;
        self.word("a reduction", &[Sum, Max, Min], |r| match r {
            Sum => "sum",
            Max => "max",
            Min => "min",
        })
    }

    /// What follows the `{` of a sharding over a named mesh, and the `}`.
    fn named_sharding(&mut self) -> Read<LeafSharding> {
        let mesh = Arc::new(self.mesh()?);
        let all_axes = || (0..mesh.axes.len() as u32).map(|axis| AxisRef { axis, sub_axis: None }).collect();
        let mut named = NamedSharding {
            mesh: mesh.clone(),
            dims: Vec::new(),
            replicated: Vec::new(),
            unreduced: Vec::new(),
            manual: Vec::new(),
            reduction: UnreducedReduction::Sum,
        };
        let is_maximal = matches!(mesh.devices, MeshDevices::Maximal(_));
        if !is_maximal {
            self.eat(b',');
            let has_value = |r: &mut Self, word: &[u8]| r.byte_at(word.len()) == b'=';
            match self.peek_ident() {
                w @ b"replicated" if !has_value(self, w) => self.pos += w.len(),
                w @ b"manual" if !has_value(self, w) => {
                    self.pos += w.len();
                    named.manual = all_axes();
                }
                w @ b"unreduced" => {
                    self.pos += w.len();
                    if self.eat(b'=') {
                        named.reduction = self.reduction()?;
                    }
                    named.unreduced = if self.peek() == b'{' { self.axes(&mesh)? } else { all_axes() };
                }
                _ => {
                    self.expect(b'[', "to start the dimensions of a sharding")?;
                    while self.peek() != b']' {
                        named.dims.push(self.dim_sharding(&mesh)?);
                        if !self.eat(b',') {
                            break;
                        }
                    }
                    self.expect(b']', "or `,` in the dimensions of a sharding")?;
                }
            }
        }
        let mut metadata = Vec::new();
        while self.eat(b',') {
            self.skip();
            let at = self.pos;
            let Some(name) = self.attribute_name() else { return self.expected("an attribute of a sharding") };
            match name {
                b"replicated" => named.replicated = self.axes(&mesh)?,
                b"unreduced" => {
                    if self.peek() != b'{' {
                        named.reduction = self.reduction()?;
                    }
                    named.unreduced = self.axes(&mesh)?;
                }
                b"manual" => named.manual = self.axes(&mesh)?,
                b"metadata" => metadata = self.metadata_list()?,
                _ => {
                    let span = Span::new(at, at + name.len());
                    let known = ["replicated", "unreduced", "manual", "metadata"];
                    return self.unknown_attribute(name, span, known.into_iter());
                }
            }
        }
        self.expect(b'}', "to end a sharding")?;
        Ok(LeafSharding { kind: ShardingKind::Named(named), group: None, metadata })
    }

    /// `{'x', ?}`.
    fn dim_sharding(&mut self, mesh: &Mesh) -> Read<DimSharding> {
        let mut dim = DimSharding { axes: Vec::new(), closed: true, priority: None };
        self.list(|r| {
            if !dim.closed {
                return r.expected("`}` after `?`");
            }
            if r.eat(b'?') {
                dim.closed = false;
            } else {
                dim.axes.push(r.axis(mesh)?);
            }
            Ok(())
        })?;
        Ok(dim)
    }

    /// `{kind="sharding", entry={…}, exit={…}}`.
    pub(super) fn domain(&mut self) -> Read<Domain> {
        self.skip();
        let start = self.pos;
        let (mut kind, mut entry, mut exit) = (None, None, None);
        self.fields(&["kind", "entry", "exit"], |r, name| {
            match name {
                b"kind" => {
                    r.skip();
                    let at = r.pos;
                    let text = r.string()?;
                    kind = Some((text.to_vec(), r.span_from(at)));
                }
                b"entry" => entry = Some(r.sharding()?),
                b"exit" => exit = Some(r.sharding()?),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        let span = self.span_from(start);
        let (Some((kind, kind_span)), Some(entry), Some(exit)) = (kind, entry, exit) else {
            let message = "a domain has `kind`, `entry` and `exit`";
            return self.fail_at(&codes::text::MISSING_ATTRIBUTE, span, message, "one of them is missing");
        };
        if kind != b"sharding" {
            let message = format!("there is no domain of the kind {}", super::report::quote(&kind));
            return self.fail_at(&codes::text::UNSUPPORTED_DOMAIN, kind_span, message, "expected \"sharding\"");
        }
        Ok(Domain { entry, exit })
    }
}
