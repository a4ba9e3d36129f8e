//! How devices are joined: links of a machine, and topologies of devices that are joined by them.
//!
//! A torus joins each device with its neighbours along every dimension; an axis is a ring where it is long enough for
//! the wires that close it. Switches stand in levels: the first joins the devices of a host, the next joins hosts.
//! Devices are numbered along the topology's dimensions, the last varying fastest.

use crate::description::Target;
use crate::entries::{Wrong, at_least, each, number, rate, share, text, unknown};
use crate::text::Table;
use hloom_ir::diagnostic::codes::plan::{BAD_TOPOLOGY, MISSING_RATE};
use hloom_ir::diagnostic::{Blame, Diagnostic};

/// A kind of link between devices.
#[derive(Clone, PartialEq, Debug)]
pub struct Link {
    /// What it is called.
    pub name: String,
    /// How it joins devices.
    pub kind: LinkKind,
    /// Bytes a second in one direction: of one port of a torus, of all ports of a device at a switch.
    pub bandwidth: f64,
    /// What collectives reach of it.
    pub efficiency: f64,
    /// Seconds from one device to the next.
    pub latency_seconds: f64,
    /// Seconds that a collective takes to start.
    pub start_seconds: f64,
}

/// How links join devices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkKind {
    /// Each device with its neighbours.
    Torus {
        /// The most dimensions that it has.
        dimensions: usize,
        /// An axis is a ring if its size is a multiple of this; otherwise it is a line.
        ring_multiple: i64,
    },
    /// Every device with every other of the same level.
    Switch {
        /// How many it joins, where that is fixed.
        devices: Option<i64>,
    },
}

impl Link {
    pub(crate) fn read(table: &Table) -> Result<Link, Wrong> {
        let (mut name, mut kind, mut bandwidth) = (String::new(), String::new(), None);
        let (mut efficiency, mut latency, mut start) = (1.0, 0.0, 0.0);
        let (mut dimensions, mut ring_multiple, mut devices) = (2, i64::MAX, None);
        each(table, |entry| {
            match entry.key.as_str() {
                "name" => name = text(entry)?,
                "kind" => kind = text(entry)?,
                "bandwidth" => bandwidth = Some(rate(entry)?),
                "efficiency" => efficiency = share(entry)?,
                "latency_us" => latency = number(entry)? * 1e-6,
                "start_us" => start = number(entry)? * 1e-6,
                "dimensions" => dimensions = at_least(entry, 1)? as usize,
                "ring_multiple" => ring_multiple = at_least(entry, 1)?,
                "devices" => devices = Some(at_least(entry, 1)?),
                _ => return Err(unknown(entry, "of a link")),
            }
            Ok(())
        })?;
        let kind = match kind.as_str() {
            "torus" => LinkKind::Torus { dimensions, ring_multiple },
            "switch" => LinkKind::Switch { devices },
            other => {
                return Err((table.line, format!("the `kind` of a link is \"torus\" or \"switch\", not \"{other}\"")));
            }
        };
        let Some(bandwidth) = bandwidth else { return Err((table.line, "a link needs a `bandwidth`".into())) };
        Ok(Link { name, kind, bandwidth, efficiency, latency_seconds: latency, start_seconds: start })
    }

    /// Bytes a second in one direction that collectives reach.
    pub fn reached(&self) -> f64 {
        self.bandwidth * self.efficiency
    }
}

/// How many devices there are along each dimension, the last varying fastest in their numbers.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Topology {
    dims: Vec<i64>,
}

/// More devices than any program names.
const MOST_DEVICES: i64 = 1 << 20;

impl Topology {
    /// A single device.
    pub fn single() -> Topology {
        Topology { dims: vec![1] }
    }

    /// The topology that is written so: `2x2`, `64x8`, `16`.
    pub fn parse(text: &str) -> Result<Topology, Diagnostic> {
        let bad =
            |why: &str| Diagnostic::error(&BAD_TOPOLOGY, format!("`{text}` is no topology: {why}")).blame(Blame::Data);
        let size = |part: &str| part.parse::<i64>().ok().filter(|&n| n >= 1);
        let dims: Option<Vec<i64>> = text.split('x').map(size).collect();
        let dims = dims.ok_or_else(|| bad("it is written as sizes with `x` between them, as `2x2`"))?;
        if dims.len() > 6 {
            return Err(bad("it has more than six dimensions"));
        }
        let devices = dims.iter().try_fold(1i64, |n, &d| n.checked_mul(d));
        match devices {
            Some(n) if n <= MOST_DEVICES => Ok(Topology { dims }),
            _ => Err(bad("it has more than a million devices")),
        }
    }

    /// Sizes along the dimensions.
    pub fn dims(&self) -> &[i64] {
        &self.dims
    }

    /// The number of devices.
    pub fn devices(&self) -> usize {
        self.dims.iter().product::<i64>() as usize
    }

    /// Where a device is.
    pub fn coordinates(&self, device: usize) -> Vec<i64> {
        let mut rest = device as i64;
        let mut at = vec![0; self.dims.len()];
        for (slot, &size) in at.iter_mut().zip(&self.dims).rev() {
            *slot = rest % size;
            rest /= size;
        }
        at
    }
}

impl std::fmt::Display for Topology {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sizes: Vec<String> = self.dims.iter().map(i64::to_string).collect();
        f.write_str(&sizes.join("x"))
    }
}

impl Target {
    /// The topology in which that many devices usually come: as square as can be for a torus, full hosts for switches.
    pub fn usual_topology(&self, devices: usize) -> Topology {
        let n = i64::try_from(devices).unwrap_or(MOST_DEVICES).clamp(1, MOST_DEVICES);
        let dims = match self.links.first().map(|l| l.kind) {
            Some(LinkKind::Torus { dimensions, .. }) => near_square(n, dimensions),
            Some(LinkKind::Switch { devices: Some(host) }) if n > host && n % host == 0 => vec![n / host, host],
            _ => vec![n],
        };
        Topology { dims }
    }

    /// Checks that the machine's links can join devices so.
    pub fn check_topology(&self, topology: &Topology) -> Result<(), Diagnostic> {
        let bad = |why: String| {
            let message = format!("`{}` devices cannot be joined as {topology}: {why}", self.name);
            Diagnostic::error(&BAD_TOPOLOGY, message).blame(Blame::Data)
        };
        if topology.devices() == 1 {
            return Ok(());
        }
        match self.links.first().map(|l| l.kind) {
            None => Err(Diagnostic::error(&MISSING_RATE, format!("the description of `{}` has no links", self.name))
                .blame(Blame::Data)
                .help("describe them as `[[link]]` in a description of your own")),
            Some(LinkKind::Torus { dimensions, .. }) => {
                let used = topology.dims().iter().filter(|&&d| d > 1).count();
                if used > dimensions {
                    return Err(bad(format!("the torus has {dimensions} dimensions")));
                }
                Ok(())
            }
            Some(LinkKind::Switch { .. }) => {
                let used = topology.dims().len();
                if used > self.links.len() {
                    let names: Vec<&str> = self.links.iter().map(|l| l.name.as_str()).collect();
                    return Err(bad(format!("there are {} levels of links ({})", names.len(), names.join(", "))));
                }
                for (link, &size) in self.links.iter().zip(topology.dims().iter().rev()) {
                    if let LinkKind::Switch { devices: Some(most) } = link.kind
                        && size > most
                    {
                        return Err(bad(format!("{} joins at most {most}", link.name)));
                    }
                }
                Ok(())
            }
        }
    }
}

/// `n` as a product of at most `dimensions` factors that are as near to each other as can be, the smallest first.
fn near_square(n: i64, dimensions: usize) -> Vec<i64> {
    let mut dims = Vec::new();
    let mut rest = n;
    for left in (1..=dimensions).rev() {
        let root = (rest as f64).powf(1.0 / left as f64).round() as i64;
        let factor = if left == 1 { rest } else { (1..=root.max(1)).rev().find(|f| rest % f == 0).unwrap_or(1) };
        dims.push(factor);
        rest /= factor;
    }
    dims.sort_unstable();
    dims
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_numbered_with_the_last_dimension_fastest() {
        let topology = Topology::parse("2x3x4").unwrap();
        assert_eq!(topology.devices(), 24);
        assert_eq!(topology.coordinates(0), [0, 0, 0]);
        assert_eq!(topology.coordinates(17), [1, 1, 1]);
        assert_eq!(topology.to_string(), "2x3x4");
    }

    #[test]
    fn what_is_no_topology_is_refused() {
        for text in ["", "2x", "0x2", "-1", "2x2x2x2x2x2x2", "axb", "99999999999", "1024x1024x1024", "2 x 2"] {
            assert_eq!(Topology::parse(text).unwrap_err().code, &BAD_TOPOLOGY, "{text:?}");
        }
    }

    #[test]
    fn usual_topologies_are_square_or_full_hosts() {
        let usual = |target: &str, n| Target::named(target).unwrap().usual_topology(n).to_string();
        assert_eq!(usual("tpu-v6e", 4), "2x2");
        assert_eq!(usual("tpu-v6e", 8), "2x4");
        assert_eq!(usual("tpu-v5p", 8), "2x2x2");
        assert_eq!(usual("tpu-v5p", 64), "4x4x4");
        assert_eq!(usual("gpu-h100", 8), "8");
        assert_eq!(usual("gpu-h100", 512), "64x8");
        assert_eq!(usual("cpu", 4), "4");
    }

    #[test]
    fn topologies_that_the_links_cannot_join_are_refused() {
        let check = |target: &str, topology: &str| {
            let fault = Target::named(target).unwrap().check_topology(&Topology::parse(topology).unwrap());
            fault.map_err(|d| d.message).err().unwrap_or_default()
        };
        assert_eq!(check("tpu-v6e", "2x2"), "");
        assert_eq!(check("tpu-v6e", "2x2x1"), "");
        assert_eq!(check("gpu-h100", "64x8"), "");
        assert_eq!(
            check("tpu-v6e", "2x2x2"),
            "`tpu-v6e` devices cannot be joined as 2x2x2: the torus has 2 dimensions"
        );
        assert_eq!(check("gpu-h100", "4x16"), "`gpu-h100` devices cannot be joined as 4x16: nvlink joins at most 8");
        assert!(check("gpu-h100", "2x4x8").contains("2 levels of links (nvlink, infiniband)"));
    }
}
