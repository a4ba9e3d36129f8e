//! What is known of a machine, and the descriptions that come with hloom.
//!
//! Invariants of a [`Target`]: memory spaces have different colours, one of them is colour 0, and every alignment and
//! granule is at least 1.

use crate::text::{Entry, Table, Value, read};
use hloom_ir::diagnostic::codes::plan::{BAD_TARGET, UNKNOWN_TARGET};
use hloom_ir::diagnostic::{Blame, Diagnostic, did_you_mean};

/// A machine.
#[derive(Clone, PartialEq, Eq, Debug)]
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
    /// Whether any output fusion may write over operands that it reads element by element, not only one that adds an
    /// operand to a product.
    pub output_fusion_overwrites: bool,
    /// Whether code generation writes into `backend_config` after memory is assigned, so that what it adds is not part
    /// of the instructions in a dump.
    pub late_backend_config: bool,
    /// Whether compilers of dialect a number values with computations sorted by size and content, not in the order of the
    /// module.
    pub sorted_computations: bool,
    /// Whether dialect b tells the page of each allocation.
    pub pages: bool,
    /// Its memories, by colour.
    pub spaces: Vec<MemorySpace>,
}

/// A kind of memory. In layouts it is the `n` of `S(n)`, in dumps the colour.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemorySpace {
    /// Its number.
    pub colour: i64,
    /// What it is called.
    pub name: String,
    /// How large it is, where that is known.
    pub bytes: Option<i64>,
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
const BUILTIN: &[(&str, &str)] = builtin![
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
        match BUILTIN.iter().find(|(n, _)| *n == name) {
            Some((name, text)) => Target::from_text(text, name),
            None => {
                let all: Vec<&str> = Target::names().collect();
                let unknown = Diagnostic::error(&UNKNOWN_TARGET, format!("there is no target `{name}`"))
                    .blame(Blame::Data)
                    .note(format!("the targets are {}; a path to a description is taken too", all.join(", ")));
                Err(match did_you_mean(name, Target::names()) {
                    Some(near) => unknown.help(format!("did you mean `{near}`?")),
                    None => unknown,
                })
            }
        }
    }

    /// The machine that `text` describes; `file` is what errors call it.
    pub fn from_text(text: &str, file: &str) -> Result<Target, Diagnostic> {
        let bad = |line: usize, message: String| {
            Diagnostic::error(&BAD_TARGET, format!("{file}:{line}: {message}")).blame(Blame::Data)
        };
        let tables = read(text).map_err(|e| bad(e.line, e.message))?;
        let mut target = Target::plain();
        let (head, rest) = tables.split_first().ok_or_else(|| bad(1, "it is empty".into()))?;
        for entry in &head.entries {
            target.set(entry).map_err(|message| bad(entry.line, message))?;
        }
        if target.name.is_empty() {
            return Err(bad(1, "it has no `name`".into()));
        }
        for table in rest {
            let space = memory_space(table).map_err(|(line, message)| bad(line, message))?;
            if target.space(space.colour).is_some() {
                return Err(bad(table.line, format!("colour {} is described twice", space.colour)));
            }
            target.spaces.push(space);
        }
        target.spaces.sort_by_key(|s| s.colour);
        match target.space(0) {
            Some(_) => Ok(target),
            None => Err(bad(1, "it has no memory of colour 0".into())),
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
            output_fusion_overwrites: false,
            late_backend_config: false,
            sorted_computations: false,
            pages: false,
            spaces: Vec::new(),
        }
    }

    fn set(&mut self, entry: &Entry) -> Result<(), String> {
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
            "output_fusion_overwrites" => self.output_fusion_overwrites = flag(entry)?,
            "late_backend_config" => self.late_backend_config = flag(entry)?,
            "sorted_computations" => self.sorted_computations = flag(entry)?,
            "pages" => self.pages = flag(entry)?,
            other => return Err(format!("nothing is known of `{other}` here")),
        }
        Ok(())
    }

    /// Whether values are numbered with computations sorted by size and content.
    pub fn sorts_computations(&self) -> bool {
        self.sorted_computations && self.dialect == DumpDialect::A
    }

    /// Whether what lies in that memory is assigned in the order in which it begins.
    pub fn assigns_by_start(&self, colour: i64) -> bool {
        self.dialect == DumpDialect::B && self.space(colour).is_some_and(|s| s.by_start)
    }

    /// The memory of that colour, if it is described.
    pub fn space(&self, colour: i64) -> Option<&MemorySpace> {
        self.spaces.iter().find(|s| s.colour == colour)
    }

    /// Where values of that colour may begin.
    pub fn alignment(&self, colour: i64) -> i64 {
        self.space(colour).map_or(1, |s| s.alignment)
    }
}

fn memory_space(table: &Table) -> Result<MemorySpace, (usize, String)> {
    if table.name != "memory" {
        return Err((table.line, format!("nothing is known of `[[{}]]`; memories are `[[memory]]`", table.name)));
    }
    let mut space = MemorySpace {
        colour: -1,
        name: String::new(),
        bytes: None,
        alignment: 1,
        untiled_granule: 1,
        ignores_tiles: false,
        preset: false,
        by_start: false,
    };
    for entry in &table.entries {
        let set = |space: &mut MemorySpace| -> Result<(), String> {
            match entry.key.as_str() {
                "colour" => space.colour = at_least(entry, 0)?,
                "name" => space.name = text(entry)?,
                "bytes" => space.bytes = Some(at_least(entry, 0)?),
                "alignment" => space.alignment = at_least(entry, 1)?,
                "untiled_granule" => space.untiled_granule = at_least(entry, 1)?,
                "ignores_tiles" => space.ignores_tiles = flag(entry)?,
                "preset" => space.preset = flag(entry)?,
                "by_start" => space.by_start = flag(entry)?,
                other => return Err(format!("nothing is known of `{other}` of a memory")),
            }
            Ok(())
        };
        set(&mut space).map_err(|message| (entry.line, message))?;
    }
    if space.colour < 0 {
        return Err((table.line, "a memory needs a `colour`".into()));
    }
    Ok(space)
}

fn text(entry: &Entry) -> Result<String, String> {
    match &entry.value {
        Value::Text(text) => Ok(text.clone()),
        _ => Err(format!("`{}` is a \"text\"", entry.key)),
    }
}

fn flag(entry: &Entry) -> Result<bool, String> {
    match entry.value {
        Value::Flag(flag) => Ok(flag),
        _ => Err(format!("`{}` is true or false", entry.key)),
    }
}

fn at_least(entry: &Entry, least: i64) -> Result<i64, String> {
    match entry.value {
        Value::Integer(n) if n >= least => Ok(n),
        _ => Err(format!("`{}` is an integer of at least {least}", entry.key)),
    }
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
            ("name = \"x\"\n", "x.toml:1: it has no memory of colour 0"),
            ("name = \"x\"\nspeed = 3\n", "x.toml:2: nothing is known of `speed` here"),
            (
                "name = \"x\"\n[[memory]]\ncolour = 0\nalignment = 0\n",
                "x.toml:4: `alignment` is an integer of at least 1",
            ),
            ("name = \"x\"\n[[memory]]\ncolour = 0\n[[memory]]\ncolour = 0\n", "x.toml:4: colour 0 is described twice"),
        ];
        for (text, message) in cases {
            assert_eq!(Target::from_text(text, "x.toml").unwrap_err().message, message);
        }
    }
}
