//! An index of many modules: one page with the figures of each, and the reason for those that cannot be read.

use crate::page;
use hloom_analysis::cost::shape_bytes;
use hloom_analysis::devices::implied_devices;
use hloom_analysis::summary::summarise;
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
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
    /// The devices that its header names, or else its replica groups.
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
            devices: devices(module),
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

fn devices(module: &Module) -> i64 {
    let named = module.config.replica_count.saturating_mul(module.config.num_partitions);
    let implied = implied_devices(module).filter(|_| named <= 1);
    implied.and_then(|implied| i64::try_from(implied.grid.devices()).ok()).unwrap_or(named)
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

#[cfg(test)]
mod tests {
    use super::*;
    use hloom_ir::verify::{VerifyOptions, verify};

    #[test]
    fn devices_that_only_replica_groups_name_count() {
        let text = "HloModule m\nadd {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT s = f32[] add(a, b)\n}\n\
                    ENTRY e {\n  x = f32[8] parameter(0)\n  \
                    ROOT r = f32[8] all-reduce(x), replica_groups={{0,1,2,3,4,5,6,7}}, to_apply=add\n}\n";
        let module = hloom_formats::hlo_text::read(text.as_bytes()).module.expect("it can be read");
        let verified = verify(module, &VerifyOptions { devices: None }).expect("it is right");
        assert_eq!(Entry::new("m.hlo", &verified).devices, 8);
    }
}
