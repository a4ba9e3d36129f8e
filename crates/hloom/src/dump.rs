//! Folders that XLA dumps into (`--xla_dump_to`): which modules are there, and which file is what of each.
//!
//! Files are told by their names alone: `module_0006.jit_f.before_optimizations.txt`,
//! `module_0006.jit_f.cpu_after_optimizations.txt` (or `sm_9.0_gpu_…`, or with dots), `…-buffer-assignment.txt`,
//! `module_0006.jit_f.execution_0000.hlo_unoptimized_snapshot.pb`, `module_0006.jit_f/module.mlir`. What is not a dump's
//! is named, not read.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// What is in a dump folder.
#[derive(Clone, Debug, Default)]
pub struct DumpFolder {
    /// The modules, by number.
    pub modules: Vec<DumpedModule>,
    /// Files that belong to no module.
    pub foreign: Vec<String>,
}

/// The files of one module.
#[derive(Clone, Debug, Default)]
pub struct DumpedModule {
    /// `module_0006.jit_f`.
    pub key: String,
    /// Before optimisation: text, proto or StableHLO.
    pub before: Option<PathBuf>,
    /// After optimisation, and for what: `cpu`, `sm_9.0_gpu`.
    pub after: Option<(PathBuf, String)>,
    /// The buffer assignment of the module after optimisation.
    pub buffer_assignment: Option<PathBuf>,
    /// Runs with their inputs, in order.
    pub snapshots: Vec<PathBuf>,
    /// The module after single passes.
    pub passes: Vec<PathBuf>,
    /// Whatever else is there.
    pub others: usize,
}

/// What a file of a module is.
enum Kind {
    Before,
    After(String),
    BufferAssignment,
    Snapshot,
    Pass,
    Other,
}

/// Looks through the folder at `path`.
pub fn scan(path: &Path) -> io::Result<DumpFolder> {
    let mut names: Vec<(String, bool)> = Vec::new();
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        names.push((entry.file_name().to_string_lossy().into_owned(), entry.path().is_dir()));
    }
    // What names a module plainly comes first, so that files with long tails find theirs.
    names.sort();
    let mut modules: BTreeMap<String, DumpedModule> = BTreeMap::new();
    let mut unsure = Vec::new();
    let mut folder = DumpFolder::default();
    for (name, is_folder) in names {
        if !name.starts_with("module_") {
            folder.foreign.push(name);
            continue;
        }
        let file = path.join(&name);
        if is_folder {
            let module = modules.entry(name.clone()).or_insert_with(|| named(&name));
            let program = file.join("module.mlir");
            if program.is_file() && module.before.is_none() {
                module.before = Some(program);
            }
            continue;
        }
        match of_name(&name) {
            Some((key, kind)) => add(modules.entry(key.clone()).or_insert_with(|| named(&key)), kind, file),
            None => unsure.push(name),
        }
    }
    for name in unsure {
        let owner = modules.range(..=name.clone()).next_back().filter(|(key, _)| name.starts_with(&***key));
        let owner = owner.map(|(key, _)| key.clone());
        match owner.and_then(|key| modules.get_mut(&key)) {
            Some(module) => module.others += 1,
            None => folder.foreign.push(name),
        }
    }
    folder.modules = modules.into_values().collect();
    Ok(folder)
}

fn named(key: &str) -> DumpedModule {
    DumpedModule { key: key.to_owned(), ..DumpedModule::default() }
}

fn add(module: &mut DumpedModule, kind: Kind, file: PathBuf) {
    match kind {
        Kind::Before => {
            // Text is for people to read beside it; of StableHLO and HLO the latter is what was compiled.
            let is_mlir = module.before.as_ref().is_some_and(|b| b.ends_with("module.mlir"));
            if module.before.is_none() || is_mlir {
                module.before = Some(file);
            }
        }
        Kind::After(machine) => {
            if module.after.is_none() {
                module.after = Some((file, machine));
            }
        }
        Kind::BufferAssignment => module.buffer_assignment = Some(file),
        Kind::Snapshot => module.snapshots.push(file),
        Kind::Pass => module.passes.push(file),
        Kind::Other => module.others += 1,
    }
}

/// Which module a file belongs to, and as what; `None` if its name does not say.
fn of_name(name: &str) -> Option<(String, Kind)> {
    let is_program = [".txt", ".hlo", ".pb", ".hlo.pb"].iter().any(|e| name.ends_with(e));
    if let Some(at) = name.find("_snapshot") {
        let head = &name[..at];
        let head = head.split(".execution_").next()?;
        let key = head.trim_end_matches(".hlo_unoptimized").trim_end_matches(".hlo").to_owned();
        return Some((key, Kind::Snapshot));
    }
    if let Some(at) = name.find(".snapshot.").filter(|_| name.ends_with(".pb")) {
        return Some((name[..at].to_owned(), Kind::Snapshot));
    }
    if let Some(at) = name.find(".before_optimizations.") {
        return is_program.then(|| (name[..at].to_owned(), Kind::Before));
    }
    if let Some(at) = name.find("after_optimizations") {
        let (head, tail) = (name[..at].trim_end_matches(['_', '.']), &name[at + "after_optimizations".len()..]);
        let (key, machine) = split_machine(head);
        let kind = match tail {
            _ if tail.starts_with("-buffer-assignment.") => Kind::BufferAssignment,
            _ if tail.starts_with('.') && is_program && !tail.contains("ir-") => Kind::After(machine),
            _ => Kind::Other,
        };
        return Some((key, kind));
    }
    // module_0001.jit_f.0003.simplification.after_dce.before_cse.txt
    let pass = name.find(".after_").filter(|_| is_program)?;
    let parts: Vec<&str> = name[..pass].split('.').collect();
    let number = parts.iter().skip(2).rposition(|p| p.len() == 4 && p.bytes().all(|b| b.is_ascii_digit()))?;
    Some((parts[..number + 2].join("."), Kind::Pass))
}

/// `module_0006.jit_f.sm_9.0_gpu` is `module_0006.jit_f` on `sm_9.0_gpu`.
fn split_machine(head: &str) -> (String, String) {
    if let Some(at) = head.find(".sm_").or_else(|| head.find(".gfx")) {
        return (head[..at].to_owned(), head[at + 1..].to_owned());
    }
    match head.rsplit_once('.') {
        Some((key, machine))
            if key.contains('.') && machine.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') =>
        {
            (key.to_owned(), machine.to_owned())
        }
        _ => (head.to_owned(), String::new()),
    }
}

impl DumpedModule {
    /// What to run of it: a run with its inputs, else the program as it was given to the compiler, else what became of it.
    pub fn to_run(&self) -> Option<&Path> {
        let after = || self.after.as_ref().map(|a| a.0.as_path());
        self.snapshots.first().map(PathBuf::as_path).or(self.before.as_deref()).or_else(after)
    }

    /// Whether it is the one that a user means by `name`: its key, its number, or its name without the number.
    pub fn is_called(&self, name: &str) -> bool {
        let rest = self.key.strip_prefix("module_").unwrap_or(&self.key);
        let (number, own) = rest.split_once('.').unwrap_or((rest, rest));
        let same_number = |a: &str| a.parse::<u64>().is_ok_and(|n| number.parse() == Ok(n));
        self.key == name || own == name || same_number(name)
    }

    /// What there is of it, in words.
    pub fn words(&self) -> String {
        let mut words = Vec::new();
        if self.before.is_some() {
            words.push("before optimisation".to_owned());
        }
        if let Some((_, machine)) = &self.after {
            let machine = if machine.is_empty() { String::new() } else { format!(" for {machine}") };
            words.push(format!("after optimisation{machine}"));
        }
        if self.buffer_assignment.is_some() {
            words.push("buffer assignment".to_owned());
        }
        let mut count = |n: usize, one: &str, many: &str| match n {
            0 => {}
            1 => words.push(format!("1 {one}")),
            _ => words.push(format!("{n} {many}")),
        };
        count(self.snapshots.len(), "snapshot", "snapshots");
        count(self.passes.len(), "module after a pass", "modules after passes");
        count(self.others, "other file", "other files");
        if words.is_empty() { "nothing that can be read".to_owned() } else { words.join(", ") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(name: &str) -> Option<(String, &'static str)> {
        of_name(name).map(|(key, kind)| {
            let kind = match kind {
                Kind::Before => "before",
                Kind::After(_) => "after",
                Kind::BufferAssignment => "buffers",
                Kind::Snapshot => "snapshot",
                Kind::Pass => "pass",
                Kind::Other => "other",
            };
            (key, kind)
        })
    }

    #[test]
    fn names_say_what_a_file_is() {
        let f = |kind| Some(("module_0006.jit_f".to_owned(), kind));
        assert_eq!(kinds("module_0006.jit_f.before_optimizations.txt"), f("before"));
        assert_eq!(kinds("module_0006.jit_f.before_optimizations.hlo.pb"), f("before"));
        assert_eq!(kinds("module_0006.jit_f.cpu_after_optimizations.txt"), f("after"));
        assert_eq!(kinds("module_0006.jit_f.sm_9.0_gpu_after_optimizations.txt"), f("after"));
        assert_eq!(kinds("module_0006.jit_f.cpu_after_optimizations-buffer-assignment.txt"), f("buffers"));
        assert_eq!(kinds("module_0006.jit_f.cpu_after_optimizations-memory-usage-report.txt"), f("other"));
        assert_eq!(kinds("module_0006.jit_f.execution_0000.hlo_unoptimized_snapshot.pb"), f("snapshot"));
        assert_eq!(kinds("module_0006.jit_f.execution_0000.hlo_unoptimized_snapshot.txt"), f("snapshot"));
        assert_eq!(kinds("module_0006.jit_f.snapshot.0.pb"), f("snapshot"));
        assert_eq!(kinds("module_0006.jit_f.0003.simplification.after_dce.before_cse.txt"), f("pass"));
        assert_eq!(kinds("module_0006.jit_f.debug_options"), None);
    }

    #[test]
    fn a_folder_is_sorted_by_modules() {
        let folder = std::env::temp_dir().join(format!("hloom-dump-test-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("module_0002.jit_g")).expect("a folder for temporary files");
        let names = [
            "module_0001.jit_f.before_optimizations.txt",
            "module_0001.jit_f.cpu_after_optimizations.txt",
            "module_0001.jit_f.debug_options",
            "module_0002.jit_g/module.mlir",
            "notes.md",
        ];
        names.iter().for_each(|n| std::fs::write(folder.join(n), "").expect("a file"));
        let found = scan(&folder).expect("it can be listed");
        std::fs::remove_dir_all(&folder).expect("the folder can go");
        assert_eq!(found.foreign, ["notes.md"]);
        let keys: Vec<&str> = found.modules.iter().map(|m| &*m.key).collect();
        assert_eq!(keys, ["module_0001.jit_f", "module_0002.jit_g"]);
        assert_eq!(found.modules[0].words(), "before optimisation, after optimisation for cpu, 1 other file");
        assert!(found.modules[1].to_run().is_some_and(|p| p.ends_with("module.mlir")));
        assert!(found.modules[1].is_called("jit_g") && found.modules[1].is_called("2"));
    }
}
