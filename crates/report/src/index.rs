//! An index of many modules: one page with the figures of each, and the reason for those that cannot be read.

use crate::page;
use hloom_analysis::cost::shape_bytes;
use hloom_analysis::summary::summarise;
use hloom_ir::entity::InstructionId;
use hloom_ir::verify::VerifiedModule;
use serde::Serialize;

const HTML: &str = include_str!("../assets/index/index.html");
const STYLE: &str = concat!(include_str!("../assets/lib/base.css"), include_str!("../assets/lib/views.css"));
const SCRIPT: &str = concat!(
    "\n",
    include_str!("../assets/lib/words.js"),
    include_str!("../assets/lib/dom.js"),
    include_str!("../assets/lib/canvas.js"),
    include_str!("../assets/lib/table.js"),
    include_str!("../assets/lib/data.js"),
    include_str!("../assets/index/main.js"),
);

/// A file of the index.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Entry {
    /// The file.
    pub file: String,
    /// Why it cannot be read, if it cannot.
    pub problem: Option<String>,
    /// The page about it, beside the index.
    pub page: Option<String>,
    /// The module's name.
    pub module: String,
    /// How many instructions it has.
    pub instructions: usize,
    /// How many fusions are among them.
    pub fusions: u64,
    /// Whether it is scheduled.
    pub is_scheduled: bool,
    /// The devices that its header names.
    pub devices: i64,
    /// Flops of one run on one device.
    pub flops: u64,
    /// Memory traffic of one run on one device.
    pub bytes: u64,
    /// Bytes of its parameters.
    pub parameter_bytes: u64,
    /// Bytes of its result.
    pub result_bytes: u64,
    /// Collectives in it.
    pub collectives: u64,
    /// Bytes that a device puts into them in one run.
    pub collective_bytes: u64,
    /// The buffer assignment that was dumped beside it.
    pub assignment: Option<DumpedAssignment>,
}

/// A buffer assignment that a compiler dumped of a module.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct DumpedAssignment {
    /// The file.
    pub file: String,
    /// Bytes of all its allocations.
    pub bytes: i64,
    /// What is wrong with it, if something is.
    pub fault: Option<String>,
}

impl Entry {
    /// The figures of a module.
    pub fn new(file: &str, verified: &VerifiedModule) -> Entry {
        let module = verified.module();
        let summary = summarise(verified);
        let bytes_of = |id: InstructionId| shape_bytes(&module[id].shape);
        let parameter_bytes = summary.parameters.iter().fold(0u64, |n, &p| n.saturating_add(bytes_of(p)));
        let result_bytes = module.entry().and_then(|entry| module.root(entry)).map_or(0, bytes_of);
        let fusions = summary.opcodes.iter().filter(|l| l.opcode.name() == "fusion").map(|l| l.count).sum();
        Entry {
            file: file.to_owned(),
            problem: None,
            page: None,
            module: module.name.to_string(),
            instructions: module.instruction_count(),
            fusions,
            is_scheduled: module.is_scheduled,
            devices: module.config.replica_count.saturating_mul(module.config.num_partitions),
            flops: summary.cost.total.flops,
            bytes: summary.cost.total.bytes,
            parameter_bytes,
            result_bytes,
            collectives: summary.collectives.iter().map(|l| l.count).sum(),
            collective_bytes: summary.collectives.iter().fold(0, |n, l| n.saturating_add(l.bytes)),
            assignment: None,
        }
    }

    /// A file that is no module, or a damaged one.
    pub fn unreadable(file: &str, problem: &str) -> Entry {
        Entry { file: file.to_owned(), problem: Some(problem.to_owned()), ..Entry::default() }
    }
}

#[derive(Serialize)]
struct IndexData<'a> {
    title: &'a str,
    entries: &'a [Entry],
}

/// The page.
pub fn index(title: &str, entries: &[Entry]) -> String {
    let json = serde_json::to_vec(&IndexData { title, entries }).unwrap_or_default();
    page::fill(HTML, STYLE, SCRIPT, &format!("{title} · modules"), &json)
}
