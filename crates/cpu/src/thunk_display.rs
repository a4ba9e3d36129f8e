//! Thunks as text: the lists with what each thunk does, the arrays it works on, and where these lie.
//!
//! ```text
//! allocations:
//!   a0: argument 0
//!   a1: result, 256 bytes
//! thunks:
//!   multiply_fusion: kernel 0, 1 unit; reads a0+0, writes a1+0
//! ```

use crate::thunk::{AllocationSource, ListId, Location, Thunk, ThunkKind, ThunkProgram};
use hloom_ir::module::Module;
use std::fmt::Write;

impl ThunkProgram {
    /// The program as text; `module` is what it was made of.
    pub(crate) fn display(&self, module: &Module) -> String {
        let mut text = String::from("allocations:\n");
        for (n, source) in self.allocations.iter().enumerate() {
            let what = match source {
                AllocationSource::Unused => continue,
                AllocationSource::Argument { leaf, owned: false } => format!("argument {leaf}"),
                AllocationSource::Argument { leaf, owned: true } => format!("argument {leaf}, written"),
                AllocationSource::Constant { instruction, bytes, .. } => {
                    format!("constant {}, {bytes} bytes", module[*instruction].name())
                }
                AllocationSource::Result { bytes } => format!("result, {bytes} bytes"),
                AllocationSource::Temporary { offset } => format!("temporary at {offset}"),
                AllocationSource::SharedBuffer { number } => format!("shared buffer {number}"),
            };
            let _ = writeln!(text, "  a{n}: {what}");
        }
        let _ = writeln!(text, "{} bytes of temporaries\nthunks:", self.temporary_bytes);
        self.list(&mut text, module, 0, 1);
        text
    }

    fn list(&self, text: &mut String, module: &Module, list: ListId, depth: usize) {
        if let Some(thunks) = self.lists.get(list) {
            self.thunks(text, module, thunks, depth);
        }
    }

    fn thunks(&self, text: &mut String, module: &Module, thunks: &[Thunk], depth: usize) {
        for thunk in thunks {
            self.thunk(text, module, thunk, depth);
        }
    }

    fn thunk(&self, text: &mut String, module: &Module, thunk: &Thunk, depth: usize) {
        let indent = "  ".repeat(depth);
        let arrays: Vec<String> = self.table[thunk.arrays.start as usize..thunk.arrays.end as usize]
            .iter()
            .map(|l| if *l == Location::NOWHERE { "-".to_owned() } else { format!("a{}+{}", l.allocation, l.offset) })
            .collect();
        let what = match &thunk.kind {
            ThunkKind::Copy { bytes } => format!("copy {bytes} bytes"),
            ThunkKind::Kernel(kernel) => {
                format!("kernel {}, {} units of {}", kernel.number, kernel.units, kernel.chunk)
            }
            ThunkKind::Library(call, _) => format!("library call {}", call.name()),
            ThunkKind::Await => "await collective".to_owned(),
            other => other.name().to_owned(),
        };
        let arrays = arrays.join(", ");
        let _ = writeln!(text, "{indent}{}: {what} [{arrays}]", module[thunk.instruction].name());
        match &thunk.kind {
            ThunkKind::While(repeat) => {
                let _ = writeln!(text, "{indent} condition:");
                self.list(text, module, repeat.condition, depth + 1);
                let _ = writeln!(text, "{indent} body:");
                self.list(text, module, repeat.body, depth + 1);
            }
            ThunkKind::Conditional { branches, .. } => {
                for (n, &branch) in branches.iter().enumerate() {
                    let _ = writeln!(text, "{indent} branch {n}:");
                    self.list(text, module, branch, depth + 1);
                }
            }
            ThunkKind::Concurrent(region) => {
                for (n, (thunks, after)) in region.tasks().enumerate() {
                    let after: Vec<String> = after.iter().map(u32::to_string).collect();
                    let _ = writeln!(text, "{indent} task {n}, after [{}]:", after.join(", "));
                    self.thunks(text, module, thunks, depth + 1);
                }
            }
            ThunkKind::Region(region) => {
                let _ = writeln!(text, "{indent} outside of the region:");
                self.thunks(text, module, &region.outside, depth + 1);
            }
            _ => {}
        }
    }
}
