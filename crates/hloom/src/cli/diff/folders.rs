//! `hloom diff DIR DIR`: what differs in two dump folders, module by module.
//!
//! Modules are paired by what they are called, the first of a name with the first and so on: their numbers change from run
//! to run. Of a pair those after optimisation are compared where both folders have them, else those before. Folders that no
//! XLA dumped into are taken file by file, by name.

use super::super::args::DiffArgs;
use super::super::{Outcome, Result, Stop, input, json, output, progress, usage_error};
use hloom::dump::{DumpedModule, scan};
use hloom::load::plain_reason;
use hloom::paths::{self, to_path};
use hloom::report::diff::{self, ModuleDiff};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The modules of a folder that could be compared.
struct Side {
    /// Each with what it is paired by: its name, and which of that name it is.
    modules: Vec<((String, usize), Module)>,
}

struct Module {
    /// What it is called in its folder: `module_0006.jit_f`.
    name: String,
    before: Option<PathBuf>,
    after: Option<PathBuf>,
}

/// Two modules that belong together, or one that has no other.
enum Pair<'s> {
    Both {
        name: &'s str,
        a: &'s Path,
        b: &'s Path,
    },
    /// One has it only before, the other only after optimisation.
    Stages(&'s str),
    OnlyA(&'s str),
    OnlyB(&'s str),
}

/// What became of the pairs.
#[derive(Default)]
struct Tally {
    equal: usize,
    different: usize,
    alone: usize,
    unreadable: usize,
}

pub(super) fn answer(args: &DiffArgs) -> Result {
    let (a, b) = (side(&args.a)?, side(&args.b)?);
    if let Some(folder) = &args.html {
        output::make_folder(folder)?;
    }
    let (mut tally, mut modules, mut text) = (Tally::default(), Vec::new(), String::new());
    for pair in pairs(&a, &b) {
        let (name, told, value) = match pair {
            Pair::Both { name, a, b } => match compared(a, b)? {
                Some(found) => {
                    match found.is_equal() {
                        true => tally.equal += 1,
                        false => tally.different += 1,
                    }
                    if let (Some(folder), false) = (&args.html, found.is_equal()) {
                        let page = format!("{folder}/{name}.html");
                        output::to_path(&page, diff::to_html(&found, (&to_text(a), &to_text(b))).as_bytes())?;
                    }
                    let in_full = args.html.is_none() && !found.is_equal();
                    let told = if in_full { diff::to_text(&found) } else { diff::summary(&found) };
                    (name, told, diff::to_json(&found))
                }
                None => {
                    tally.unreadable += 1;
                    (name, "cannot be compared".to_owned(), serde_json::Value::Null)
                }
            },
            Pair::Stages(name) => {
                tally.alone += 1;
                let told = "is there before optimisation in one folder and after it in the other";
                (name, told.to_owned(), serde_json::json!({ "equal": false, "summary": told }))
            }
            Pair::OnlyA(name) | Pair::OnlyB(name) => {
                tally.alone += 1;
                let folder = if matches!(pair, Pair::OnlyA(_)) { &args.a } else { &args.b };
                let told = format!("is only in {folder}");
                (name, told.clone(), serde_json::json!({ "equal": false, "summary": told }))
            }
        };
        text.push_str(&format!("{name}: {}\n", told.trim_end()));
        modules.push(serde_json::json!({ "module": name, "diff": value }));
    }
    let is_equal = tally.different + tally.alone + tally.unreadable == 0;
    let summary = tally.words();
    let told = match args.json {
        true => json::to_line(&serde_json::json!({ "equal": is_equal, "summary": summary, "modules": modules })),
        false => format!("{summary}\n{text}"),
    };
    match output::to_stdout(told.as_bytes()) {
        Err(Stop(Outcome::Well)) | Ok(()) => {}
        Err(stop) => return Err(stop),
    }
    Ok(match (tally.unreadable, is_equal) {
        (0, true) => Outcome::Well,
        (0, false) => Outcome::InputAtFault,
        _ => Outcome::UsageAtFault,
    })
}

impl Tally {
    fn words(&self) -> String {
        let Tally { equal, different, alone, unreadable } = *self;
        let parts = [
            (different, "different"),
            (alone, "without another"),
            (unreadable, "that cannot be compared"),
            (equal, "equal"),
        ];
        let said: Vec<String> = parts.iter().filter(|p| p.0 > 0).map(|(n, words)| format!("{n} {words}")).collect();
        format!("modules: {}", if said.is_empty() { "none".to_owned() } else { said.join(", ") })
    }
}

fn to_text(path: &Path) -> String {
    paths::to_text(path.as_os_str().to_owned())
}

/// The difference of two modules; `None` if one cannot be read, which has been said.
fn compared(a: &Path, b: &Path) -> Result<Option<ModuleDiff>> {
    let load = |path: &Path| match input::load_verified(&to_text(path)) {
        Ok(verified) => Ok(Some(verified)),
        Err(Stop(Outcome::InputAtFault)) => Ok(None),
        Err(stop) => Err(stop),
    };
    let (Some(a), Some(b)) = (load(a)?, load(b)?) else { return Ok(None) };
    let _progress = progress::start("comparing".to_owned());
    Ok(Some(diff::diff(&a.module, &b.module)))
}

fn side(path: &str) -> Result<Side> {
    let cannot = |e: std::io::Error| usage_error(&format!("cannot list `{path}`: {}", plain_reason(&e)));
    let folder = scan(&to_path(path)).map_err(cannot)?;
    let of_dump = |m: &DumpedModule| Module {
        name: m.key.clone(),
        before: m.before.clone(),
        after: m.after.as_ref().map(|(file, _)| file.clone()),
    };
    let mut modules: Vec<Module> = folder.modules.iter().map(of_dump).collect();
    modules.retain(|m| m.before.is_some() || m.after.is_some());
    if modules.is_empty() {
        let is_module = |name: &&String| [".hlo", ".txt", ".pb", ".mlir"].iter().any(|end| name.ends_with(end));
        let of_file = |name: &String| {
            let file = to_path(path).join(name);
            Module { name: name.clone(), before: Some(file), after: None }
        };
        modules = folder.foreign.iter().filter(is_module).map(of_file).collect();
    }
    if modules.is_empty() {
        return Err(usage_error(&format!("there is no module in `{path}`")));
    }
    let mut times: BTreeMap<String, usize> = BTreeMap::new();
    let numbered = |module: Module| {
        let called = called(&module.name).to_owned();
        let time = times.entry(called.clone()).or_insert(0);
        *time += 1;
        ((called, *time - 1), module)
    };
    Ok(Side { modules: modules.into_iter().map(numbered).collect() })
}

/// `module_0006.jit_f` is called `jit_f`.
fn called(key: &str) -> &str {
    let is_number = |head: &str| head.strip_prefix("module_").is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()));
    match key.split_once('.') {
        Some((head, name)) if is_number(head) && !name.is_empty() => name,
        _ => key,
    }
}

fn pairs<'s>(a: &'s Side, b: &'s Side) -> Vec<Pair<'s>> {
    let of_b: BTreeMap<&(String, usize), &Module> = b.modules.iter().map(|(key, module)| (key, module)).collect();
    let of_a: BTreeMap<&(String, usize), &Module> = a.modules.iter().map(|(key, module)| (key, module)).collect();
    let both = |(key, a): &'s ((String, usize), Module)| match of_b.get(key) {
        None => Pair::OnlyA(&a.name),
        Some(b) => {
            let stages = [(&a.after, &b.after), (&a.before, &b.before)];
            let found = stages.into_iter().find_map(|(a, b)| Some((a.as_deref()?, b.as_deref()?)));
            found.map_or(Pair::Stages(&a.name), |(file_a, file_b)| Pair::Both { name: &a.name, a: file_a, b: file_b })
        }
    };
    let alone = b.modules.iter().filter(|(key, _)| !of_a.contains_key(key)).map(|(_, m)| Pair::OnlyB(&m.name));
    a.modules.iter().map(both).chain(alone).collect()
}
