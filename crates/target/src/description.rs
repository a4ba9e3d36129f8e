//! What is known of a machine, and the descriptions that come with hloom.
//!
//! Invariants of a [`Target`]: memory spaces have different numbers, one of them is number 0, and every alignment and
//! granule is at least 1.

use crate::compute::Compute;
use crate::edit::Description;
use crate::entries::{Wrong, at_least, each, flag, number, rate, share, text, unknown};
use crate::links::Link;
use crate::text::{Entry, Table};
use crate::windows::WindowModel;
use hloom_ir::diagnostic::Diagnostic;

/// A machine.
#[derive(Clone, PartialEq, Debug)]
pub struct Target {
    /// Its name, as on the command line.
    pub name: String,
    /// The form in which its compiler writes buffer assignments; it tells the compiler's age, too.
    pub dialect: DumpDialect,
    /// Bytes of each pointer in the table that stands for a tuple.
    pub tuple_pointer_bytes: i64,
    /// A tuple's table takes a multiple of this.
    pub tuple_granule: i64,
    /// Bytes of an opaque value.
    pub opaque_bytes: i64,
    /// Bytes that an array of dynamic size takes besides its elements, for each dimension.
    pub dynamic_size_bytes: i64,
    /// Whether what a collective gathers or permutes into must not be memory that outlives the program's run.
    pub collectives_stay_inside: bool,
    /// Whether an all-reduce may write over its operand.
    pub all_reduce_overwrites: bool,
    /// Whether a power may write over its operand.
    pub power_overwrites: bool,
    /// Whether a shift may write over its operand.
    pub shift_overwrites: bool,
    /// Whether a prefix scan (a reduce-window whose windows reach to an end of their dimension) may write over its operand.
    pub scan_overwrites: bool,
    /// Whether a fusion is one loop, so that what it reads under two names, with other dimensions too, is read at once.
    pub one_loop_per_fusion: bool,
    /// Whether any output fusion may write over operands that it reads element by element, not only one that adds an
    /// operand to a product.
    pub output_fusion_overwrites: bool,
    /// From how many rows on a loop fusion whose reductions stay within rows, such as a softmax, may write over an operand
    /// that it reads: each row is read before it is written, and by one thread. `None` if it never may.
    pub row_fusion_overwrites: Option<i64>,
    /// Whether code generation writes into `backend_config` after memory is assigned, so that what it adds is not part
    /// of the instructions in a dump.
    pub late_backend_config: bool,
    /// Whether compilers of dialect a number values with computations sorted by size and content, not in the order of the
    /// module.
    pub sorted_computations: bool,
    /// Whether dialect b tells the page of each allocation.
    pub pages: bool,
    /// Whether element-wise work between two matrix products is done while the second reads its operands, not while the
    /// first writes its result.
    pub fuses_into_consumers: bool,
    /// Whether every operand of a convolution passes through a fusion of its own inside the convolution's.
    pub wraps_operands: bool,
    /// Whether an all-gather can be carried through the fusions that run meanwhile; where not it is synchronous.
    pub carries_collectives: bool,
    /// How often a loop is taken to run where the program does not say.
    pub assumed_trips: i64,
    /// What code for it is made for, where it is a GPU of NVIDIA's: `sm_90a`.
    pub gpu_architecture: Option<String>,
    /// Its memories, by number.
    pub spaces: Vec<MemorySpace>,
    /// What it computes with.
    pub compute: Compute,
    /// How devices are joined, the nearest first.
    pub links: Vec<Link>,
    /// What instructions cost where the compiler cuts them into windows; machines without have rates and launches.
    pub windows: Option<WindowModel>,
}

/// A kind of memory. In layouts it is `S(n)`, in dumps `color n`.
#[derive(Clone, PartialEq, Debug)]
pub struct MemorySpace {
    /// Its number.
    pub memory_space: i64,
    /// What it is called.
    pub name: String,
    /// How large it is, where that is known.
    pub bytes: Option<i64>,
    /// How much of it is kept for the windows of running operations, where some is.
    pub reserved: i64,
    /// Bytes a second, by the data sheet.
    pub bandwidth: Option<f64>,
    /// What programs reach of it.
    pub efficiency: f64,
    /// Seconds before the first byte of a copy arrives.
    pub latency_seconds: f64,
    /// Where values may begin.
    pub alignment: i64,
    /// The size of an array without tiles is a multiple of this.
    pub untiled_granule: i64,
    /// Whether tiles in a layout add no padding here.
    pub ignores_tiles: bool,
    /// Whether a pass of its own decides what lies here and where, before everything else is assigned.
    pub preset: bool,
    /// Whether compilers of dialect b assign what lies here in the order in which it begins, not by size.
    pub by_start: bool,
}

/// The form of a buffer assignment's dump.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DumpDialect {
    /// One file with everything, as TPU compilers of early 2025 wrote it.
    A,
    /// Three files, as newer compilers write it.
    B,
}

macro_rules! builtin {
    ($($name:literal),+ $(,)?) => { &[$(($name, include_str!(concat!("../targets/", $name, ".toml")))),+] };
}

/// The descriptions that come with hloom, by name.
pub(crate) const BUILTIN: &[(&str, &str)] = builtin![
    "cpu", "tpu-v2", "tpu-v3", "tpu-v4", "tpu-v5e", "tpu-v5p", "tpu-v6e", "tpu-v7x", "gpu-a100", "gpu-h100",
    "gpu-h200",
];

impl Target {
    /// The names of the descriptions that come with hloom.
    pub fn names() -> impl Iterator<Item = &'static str> {
        BUILTIN.iter().map(|(name, _)| *name)
    }

    /// The machine of that name.
    pub fn named(name: &str) -> Result<Target, Diagnostic> {
        Description::named(name)?.target()
    }

    /// The machine that `text` describes; `file` is what errors call it.
    pub fn from_text(text: &str, file: &str) -> Result<Target, Diagnostic> {
        Description::from_text(text, file)?.target()
    }

    /// The machine that these tables describe.
    pub(crate) fn from_tables(tables: &[Table]) -> Result<Target, Wrong> {
        let mut target = Target::plain();
        let (head, rest) = tables.split_first().ok_or((1, "it is empty".to_owned()))?;
        each(head, |entry| target.set(entry))?;
        if target.name.is_empty() {
            return Err((1, "it has no `name`".into()));
        }
        for table in rest {
            match (table.name.as_str(), table.is_listed) {
                ("memory", true) => {
                    let space = memory_space(table)?;
                    if target.space(space.memory_space).is_some() {
                        return Err((table.line, format!("memory space {} is described twice", space.memory_space)));
                    }
                    target.spaces.push(space);
                }
                ("rate", true) => target.compute.add_rate(table)?,
                ("cache", true) => target.compute.add_cache(table)?,
                ("link", true) => target.links.push(Link::read(table)?),
                ("windows", false) => target.windows = Some(WindowModel::read(table)?),
                (name, _) => {
                    let known = "tables are `[[memory]]`, `[[rate]]`, `[[cache]]`, `[[link]]` and `[windows]`";
                    return Err((table.line, format!("nothing is known of a table `{name}` written so; {known}")));
                }
            }
        }
        target.spaces.sort_by_key(|s| s.memory_space);
        match target.space(0) {
            Some(_) => Ok(target),
            None => Err((1, "it has no memory of space 0".into())),
        }
    }

    /// A machine of which nothing is said yet.
    fn plain() -> Target {
        Target {
            name: String::new(),
            dialect: DumpDialect::B,
            tuple_pointer_bytes: 8,
            tuple_granule: 1,
            opaque_bytes: 8,
            dynamic_size_bytes: 4,
            collectives_stay_inside: false,
            all_reduce_overwrites: false,
            power_overwrites: true,
            shift_overwrites: true,
            scan_overwrites: false,
            one_loop_per_fusion: false,
            output_fusion_overwrites: false,
            row_fusion_overwrites: None,
            late_backend_config: false,
            sorted_computations: false,
            pages: false,
            fuses_into_consumers: false,
            wraps_operands: false,
            carries_collectives: false,
            assumed_trips: 32,
            gpu_architecture: None,
            spaces: Vec::new(),
            compute: Compute { devices_per_chip: 1, ..Compute::default() },
            links: Vec::new(),
            windows: None,
        }
    }

    fn set(&mut self, entry: &Entry) -> Result<(), String> {
        if self.compute.set(entry)? {
            return Ok(());
        }
        match entry.key.as_str() {
            "name" => self.name = text(entry)?,
            "dialect" => {
                self.dialect = match text(entry)?.as_str() {
                    "a" => DumpDialect::A,
                    "b" => DumpDialect::B,
                    other => return Err(format!("the dialect is \"a\" or \"b\", not \"{other}\"")),
                }
            }
            "tuple_pointer_bytes" => self.tuple_pointer_bytes = at_least(entry, 1)?,
            "tuple_granule" => self.tuple_granule = at_least(entry, 1)?,
            "opaque_bytes" => self.opaque_bytes = at_least(entry, 0)?,
            "dynamic_size_bytes" => self.dynamic_size_bytes = at_least(entry, 0)?,
            "collectives_stay_inside" => self.collectives_stay_inside = flag(entry)?,
            "all_reduce_overwrites" => self.all_reduce_overwrites = flag(entry)?,
            "power_overwrites" => self.power_overwrites = flag(entry)?,
            "shift_overwrites" => self.shift_overwrites = flag(entry)?,
            "scan_overwrites" => self.scan_overwrites = flag(entry)?,
            "one_loop_per_fusion" => self.one_loop_per_fusion = flag(entry)?,
            "output_fusion_overwrites" => self.output_fusion_overwrites = flag(entry)?,
            "row_fusion_overwrites" => self.row_fusion_overwrites = Some(at_least(entry, 1)?),
            "late_backend_config" => self.late_backend_config = flag(entry)?,
            "sorted_computations" => self.sorted_computations = flag(entry)?,
            "pages" => self.pages = flag(entry)?,
            "fuses_into_consumers" => self.fuses_into_consumers = flag(entry)?,
            "wraps_operands" => self.wraps_operands = flag(entry)?,
            "carries_collectives" => self.carries_collectives = flag(entry)?,
            "assumed_trips" => self.assumed_trips = at_least(entry, 1)?,
            "gpu_architecture" => self.gpu_architecture = Some(text(entry)?),
            _ => return Err(unknown(entry, "here")),
        }
        Ok(())
    }

    /// Whether values are numbered with computations sorted by size and content.
    pub fn sorts_computations(&self) -> bool {
        self.sorted_computations && self.dialect == DumpDialect::A
    }

    /// Whether what lies in that memory is assigned in the order in which it begins.
    pub fn assigns_by_start(&self, memory_space: i64) -> bool {
        self.dialect == DumpDialect::B && self.space(memory_space).is_some_and(|s| s.by_start)
    }

    /// The memory space of that number, if it is described.
    pub fn space(&self, memory_space: i64) -> Option<&MemorySpace> {
        self.spaces.iter().find(|s| s.memory_space == memory_space)
    }

    /// Where values of that memory space may begin.
    pub fn alignment(&self, memory_space: i64) -> i64 {
        self.space(memory_space).map_or(1, |s| s.alignment)
    }
}

fn memory_space(table: &Table) -> Result<MemorySpace, Wrong> {
    let mut space = MemorySpace {
        memory_space: -1,
        name: String::new(),
        bytes: None,
        reserved: 0,
        bandwidth: None,
        efficiency: 1.0,
        latency_seconds: 0.0,
        alignment: 1,
        untiled_granule: 1,
        ignores_tiles: false,
        preset: false,
        by_start: false,
    };
    each(table, |entry| {
        match entry.key.as_str() {
            "space" => space.memory_space = at_least(entry, 0)?,
            "name" => space.name = text(entry)?,
            "bytes" => space.bytes = Some(at_least(entry, 0)?),
            "bandwidth" => space.bandwidth = Some(rate(entry)?),
            "efficiency" => space.efficiency = share(entry)?,
            "latency_us" => space.latency_seconds = number(entry)? * 1e-6,
            "reserved" => space.reserved = at_least(entry, 0)?,
            "alignment" => space.alignment = at_least(entry, 1)?,
            "untiled_granule" => space.untiled_granule = at_least(entry, 1)?,
            "ignores_tiles" => space.ignores_tiles = flag(entry)?,
            "preset" => space.preset = flag(entry)?,
            "by_start" => space.by_start = flag(entry)?,
            _ => return Err(unknown(entry, "of a memory")),
        }
        Ok(())
    })?;
    if space.memory_space < 0 {
        return Err((table.line, "a memory needs a `space`".into()));
    }
    Ok(space)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_description_can_be_read_and_bears_its_name() {
        for name in Target::names() {
            let target = Target::named(name).unwrap_or_else(|d| panic!("{d}"));
            assert_eq!(target.name, name);
            assert!(target.space(0).is_some_and(|s| s.alignment > 1), "{name}");
            assert!(target.bandwidth(0).is_ok() && !target.links.is_empty(), "{name}");
            for element_type in [hloom_ir::ElementType::F32, hloom_ir::ElementType::Bf16] {
                assert!(target.matmul_rate(element_type, false).is_ok(), "{name}");
            }
            assert_eq!(target.windows.is_some(), name.starts_with("tpu-"), "{name}");
        }
    }

    #[test]
    fn a_misspelt_name_is_answered_with_the_right_one() {
        let error = Target::named("tpu-v6").unwrap_err();
        assert!(error.notes.iter().any(|n| n.message.contains("did you mean `tpu-v")), "{error:?}");
    }

    #[test]
    fn what_is_wrong_with_a_description_is_said_with_its_line() {
        let cases = [
            ("name = \"x\"\n", "x.toml:1: it has no memory of space 0"),
            ("name = \"x\"\nspeed = 3\n", "x.toml:2: nothing is known of `speed` here"),
            (
                "name = \"x\"\n[[memory]]\nspace = 0\nalignment = 0\n",
                "x.toml:4: `alignment` is an integer of at least 1",
            ),
            ("name = \"x\"\n[[rate]]\ntype = \"f99\"\n", "x.toml:3: there is no element type \"f99\""),
            ("name = \"x\"\n[[link]]\nkind = \"torus\"\n", "x.toml:2: a link needs a `bandwidth`"),
            ("name = \"x\"\n[windows]\nsimple = 1\n", "x.toml:2: `[windows]` needs `window_bytes`"),
            (
                "name = \"x\"\n[[memory]]\nspace = 0\n[[memory]]\nspace = 0\n",
                "x.toml:4: memory space 0 is described twice",
            ),
        ];
        for (text, message) in cases {
            assert_eq!(Target::from_text(text, "x.toml").unwrap_err().message, message);
        }
    }

    #[test]
    fn a_rate_that_is_not_said_is_named() {
        let bare = Target::from_text("name = \"x\"\n[[memory]]\nspace = 0\n", "x.toml").unwrap();
        let message = bare.bandwidth(0).unwrap_err().message;
        assert_eq!(message, "the description of `x` does not say the bandwidth of memory 0");
        let h100 = Target::named("gpu-h100").unwrap();
        assert!(h100.vector_rate(hloom_ir::ElementType::C64).is_ok(), "complex numbers are pairs");
        assert!(h100.matmul_rate(hloom_ir::ElementType::F8e5m2, false).unwrap() > 1.9e15, "all f8 types have one rate");
    }
}
