//! Thunks as text: the lists with what each thunk does, the arrays it works on, and where these lie.
//!
//! ```text
//! allocations:
//!   a0: argument 0
//!   a1: result, 256 bytes
//! thunks:
//!   multiply_fusion: kernel 0, 1 unit; reads a0+0, writes a1+0
//! ```

use crate::thunk::{ListId, Thunk, ThunkKind, ThunkProgram};
use hloom_ir::module::Module;
use hloom_runtime::placement::display_allocations;
use std::fmt::Write;

impl ThunkProgram {
    /// The program as text; `module` is what it was made of.
    pub(crate) fn display(&self, module: &Module) -> String {
        let mut text = display_allocations(module, &self.allocations, self.temporary_bytes);
        text.push_str("thunks:\n");
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
            .map(ToString::to_string)
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
