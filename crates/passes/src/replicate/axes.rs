//! Shardings by the axes of a mesh, as Shardy writes them: `#sdy.sharding_per_value<[<@mesh, [{"x"}, {}]>]>`.

use super::{Replicate, Tiling, error};
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;

/// The meshes of a module.
pub(super) struct Meshes {
    devices: usize,
    meshes: Vec<(String, Mesh)>,
}

struct Mesh {
    axes: Vec<(String, i64)>,
    /// The device at each position; in order when empty.
    device_ids: Vec<i64>,
}

/// An axis, or a part of it: the sizes before it and of it.
struct AxisRef {
    name: String,
    part: Option<(i64, i64)>,
}

impl AxisRef {
    fn whole((name, _): &(String, i64)) -> AxisRef {
        AxisRef { name: name.clone(), part: None }
    }
}

/// What is left of a text.
struct Cursor<'t>(&'t str);

impl<'t> Cursor<'t> {
    fn eat(&mut self, text: &str) -> bool {
        match self.0.trim_start().strip_prefix(text) {
            Some(rest) => {
                self.0 = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, text: &str) -> Replicate<()> {
        match self.eat(text) {
            true => Ok(()),
            false => Err(error(format!("a sharding is not understood where `{text}` is expected: {}", self.0))),
        }
    }

    fn until(&mut self, ends: &[char]) -> &'t str {
        let rest = self.0.trim_start();
        let end = rest.find(ends).unwrap_or(rest.len());
        self.0 = &rest[end..];
        rest[..end].trim()
    }

    fn number(&mut self) -> Replicate<i64> {
        let rest = self.0.trim_start();
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        self.0 = &rest[end..];
        rest[..end].parse().map_err(|_| error("a sharding has no number where it must have one"))
    }

    fn quoted(&mut self) -> Replicate<String> {
        self.expect("\"")?;
        let name = self.until(&['"']).to_owned();
        self.expect("\"")?;
        Ok(name)
    }

    /// Items between commas up to `end`.
    fn list<T>(&mut self, end: &str, mut item: impl FnMut(&mut Self) -> Replicate<T>) -> Replicate<Vec<T>> {
        let mut items = Vec::new();
        while !self.eat(end) {
            items.push(item(self)?);
            if !self.eat(",") {
                self.expect(end)?;
                break;
            }
        }
        Ok(items)
    }

    fn axis(&mut self) -> Replicate<AxisRef> {
        let name = self.quoted()?;
        let part = if self.eat(":") {
            self.expect("(")?;
            let before = self.number()?;
            self.expect(")")?;
            Some((before, self.number()?))
        } else {
            None
        };
        Ok(AxisRef { name, part })
    }

    fn mesh(&mut self) -> Replicate<Mesh> {
        self.expect("<")?;
        let mut axes = Vec::new();
        if self.eat("[") {
            axes = self.list("]", |c| {
                let name = c.quoted()?;
                c.expect("=")?;
                Ok((name, c.number()?))
            })?;
        }
        let mut device_ids = Vec::new();
        let _ = self.eat(",");
        if self.eat("device_ids") {
            self.expect("=")?;
            self.expect("[")?;
            device_ids = self.list("]", Cursor::number)?;
        } else if self.eat("maximal_device_id") {
            self.expect("=")?;
            device_ids = vec![self.number()?];
        }
        self.expect(">")?;
        Ok(Mesh { axes, device_ids })
    }
}

/// `#sdy<manual_axes{"x", "y"}>`.
fn manual_axes(text: &str) -> Replicate<Vec<String>> {
    let mut c = Cursor(text);
    c.until(&['{']);
    c.expect("{")?;
    c.list("}", Cursor::quoted)
}

impl Meshes {
    /// Those that the module names.
    pub(super) fn of(module: &Module, devices: usize) -> Meshes {
        let text = module.config.frontend_attributes.get("xla.sdy.meshes").map_or("{}", |t| t);
        let mut cursor = Cursor(text);
        let read = |cursor: &mut Cursor<'_>| {
            cursor.expect("{")?;
            cursor.list("}", |c| {
                let name = c.until(&['=']).to_owned();
                c.expect("=")?;
                let _ = c.eat("#sdy.mesh");
                Ok((name, c.mesh()?))
            })
        };
        // A mesh that is not understood is missed only if something is spread over it.
        Meshes { devices, meshes: read(&mut cursor).unwrap_or_default() }
    }

    /// How the values at the edge of a manual computation are cut. With `own` that is what the body has to do with: axes
    /// that it leaves to others do not cut.
    pub(super) fn boundary(
        &self,
        module: &Module,
        edge: InstructionId,
        key: &str,
        own: bool,
    ) -> Replicate<Vec<Tiling>> {
        let text = |key: &str| module[edge].common.frontend_attribute(key).unwrap_or_default();
        let manual = if own { Some(manual_axes(text("xla.sdy.manual_axes"))?) } else { None };
        let shardings = self.shardings(text(key), manual.as_deref())?;
        match shardings.len() == module[edge].operands().len() {
            true => Ok(shardings),
            false => Err(error(format!("{} has {} shardings", module[edge].name(), shardings.len()))),
        }
    }

    /// Where each device is on the axes that a manual computation leaves to others; all at one place if it leaves none.
    pub(super) fn free_places(&self, module: &Module, edge: InstructionId, key: &str) -> Replicate<Vec<i64>> {
        let text = |key: &str| module[edge].common.frontend_attribute(key).unwrap_or_default();
        let manual = manual_axes(text("xla.sdy.manual_axes"))?;
        // All values at an edge are spread over the same axes.
        let name = text(key).split_once('@').map_or("", |(_, rest)| Cursor(rest).until(&[',', '>']));
        let Some((_, mesh)) = self.meshes.iter().find(|(n, _)| n == name) else { return Ok(vec![0; self.devices]) };
        let free: Vec<AxisRef> =
            mesh.axes.iter().filter(|(name, _)| !manual.contains(name)).map(AxisRef::whole).collect();
        let places = self.tiling(mesh, &[free, Vec::new()])?;
        Ok(places.index.iter().map(|at| at.first().copied().unwrap_or(0)).collect())
    }

    /// How each value is cut along all axes, or only those that are listed.
    fn shardings(&self, text: &str, axes: Option<&[String]>) -> Replicate<Vec<Tiling>> {
        let mut c = Cursor(text);
        let _ = c.eat("#sdy.sharding_per_value");
        c.expect("<")?;
        c.expect("[")?;
        c.list("]", |c| {
            c.expect("<")?;
            let inline = if c.eat("mesh") { Some(c.mesh()?) } else { None };
            let mesh = match &inline {
                Some(mesh) => mesh,
                None => {
                    c.expect("@")?;
                    let name = c.until(&[',', '>']);
                    let found = self.meshes.iter().find(|(n, _)| n == name);
                    &found.ok_or_else(|| error(format!("there is no mesh @{name}")))?.1
                }
            };
            c.expect(",")?;
            c.expect("[")?;
            let dims = c.list("]", |c| {
                c.expect("{")?;
                let mut axes = Vec::new();
                while !c.eat("}") {
                    if !c.eat("?") {
                        axes.push(c.axis()?);
                    }
                    let _ = c.eat(",");
                }
                if c.eat("p") {
                    c.number()?;
                }
                Ok(axes)
            })?;
            let mut unreduced = Vec::new();
            // What else is said (replicated axes) does not matter for who has which part.
            let mut depth = 0;
            while depth > 0 || !c.eat(">") {
                if depth == 0 && c.eat("unreduced") {
                    c.expect("=")?;
                    c.expect("{")?;
                    unreduced = c.list("}", Cursor::axis)?;
                    continue;
                }
                let rest = c.0.trim_start();
                let mut chars = rest.chars();
                match chars.next() {
                    None => return Err(error("a sharding ends in its middle")),
                    Some('<' | '{' | '[') => depth += 1,
                    Some('>' | '}' | ']') => depth -= 1,
                    Some(_) => {}
                }
                c.0 = chars.as_str();
            }
            let mut dims: Vec<Vec<AxisRef>> = dims;
            dims.push(unreduced);
            if let Some(axes) = axes {
                dims.iter_mut().for_each(|d| d.retain(|a| axes.contains(&a.name)));
            }
            self.tiling(mesh, &dims)
        })
    }

    /// How an array is cut by the axes of each dimension; the last are those that it is a sum over.
    fn tiling(&self, mesh: &Mesh, dims: &[Vec<AxisRef>]) -> Replicate<Tiling> {
        let positions: i64 = mesh.axes.iter().map(|a| a.1).product();
        let rank = dims.len().saturating_sub(1);
        if dims.iter().all(Vec::is_empty) {
            return Ok(Tiling::whole(rank, self.devices));
        }
        if positions != self.devices as i64 {
            return Err(error(format!("a mesh of {positions} devices is used on {}", self.devices)));
        }
        let mut parts = vec![1; dims.len()];
        let mut index = vec![Vec::new(); self.devices];
        let mut rest_of = vec![0; self.devices];
        for position in 0..positions {
            // The place on each axis, the first varying slowest.
            let mut rest = position;
            let mut at = vec![0; mesh.axes.len()];
            for (a, (_, size)) in mesh.axes.iter().enumerate().rev() {
                at[a] = rest % size;
                rest /= size;
            }
            let mut of_device = Vec::with_capacity(dims.len());
            // The place on each axis, but for what cuts.
            let mut others = at.clone();
            for (d, axes) in dims.iter().enumerate() {
                let (mut number, mut count) = (0, 1);
                for axis in axes {
                    let a = mesh.axes.iter().position(|(n, _)| *n == axis.name);
                    let a = a.ok_or_else(|| error(format!("the mesh has no axis {:?}", axis.name)))?;
                    let (before, size) = axis.part.unwrap_or((1, mesh.axes[a].1));
                    let after = mesh.axes[a].1 / (before * size).max(1);
                    let digit = at[a] / after.max(1) % size.max(1);
                    number = number * size + digit;
                    others[a] -= digit * after.max(1);
                    count *= size;
                }
                parts[d] = count;
                of_device.push(number);
            }
            let device = mesh.device_ids.get(position as usize).copied().unwrap_or(position);
            let slot = usize::try_from(device).ok().filter(|&d| d < self.devices);
            let slot = slot.ok_or_else(|| error(format!("a mesh names device {device}, of {}", self.devices)))?;
            index[slot] = of_device;
            rest_of[slot] = others.iter().zip(&mesh.axes).fold(0, |n, (&at, (_, size))| n * size + at);
        }
        let summands = parts.pop().unwrap_or(1);
        let summand = index.iter_mut().map(|at| at.pop().unwrap_or(0)).collect();
        Ok(Tiling { parts, index, summands, summand, rest: rest_of })
    }
}
