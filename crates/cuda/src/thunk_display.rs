//! Thunks as text: the lists with what each thunk does, the arrays it works on, and where these lie.
//!
//! ```text
//! allocations:
//!   a0: argument 0
//!   a1: result, 256 bytes
//! 0 bytes of temporaries
//! thunks:
//!   multiply_fusion: kernel multiply_fusion <<<1, 128>>> [a0+0, a1+0]
//! ```

use crate::thunk::{ListId, Thunk, ThunkKind, ThunkProgram};
use hloom_cuda_kernels::PtxKernel;
use hloom_ir::module::Module;
use hloom_runtime::placement::{AllocationSource, display_allocations};
use std::fmt::Write;

impl ThunkProgram {
    /// The program as text; `module` is what it was made of.
    pub(crate) fn display(&self, module: &Module) -> String {
        // The last allocation is the scratch memory of thunks, of which there may be none.
        let shown = match self.allocations.split_last() {
            Some((AllocationSource::Temporary { offset }, rest)) if *offset >= self.temporary_bytes => rest,
            _ => &self.allocations,
        };
        let mut text = display_allocations(module, shown, self.temporary_bytes);
        text.push_str("thunks:\n");
        self.list(&mut text, module, 0, 1);
        text
    }

    fn list(&self, text: &mut String, module: &Module, list: ListId, depth: usize) {
        for thunk in self.lists.get(list).into_iter().flatten() {
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
            ThunkKind::Kernels(call) => {
                let kernels = self.sequence(call.sequence).map_or(&[][..], |s| &s.kernels);
                kernels.iter().map(launch).collect::<Vec<_>>().join(", ")
            }
            ThunkKind::Gemm(gemm) => gemm.to_string(),
            ThunkKind::Convolution(convolution) => convolution.to_string(),
            ThunkKind::Fft(fft) => fft.to_string(),
            ThunkKind::Solver(solver) => solver.to_string(),
            ThunkKind::While(repeat) => match repeat.trip_count {
                Some(count) => format!("while, {count} times"),
                None => "while".to_owned(),
            },
            ThunkKind::Collective(collective) => collective.to_string(),
            other => other.name().to_owned(),
        };
        let arrays = arrays.join(", ");
        let _ = writeln!(text, "{indent}{}: {what} [{arrays}]", module[thunk.instruction].name());
        match &thunk.kind {
            ThunkKind::While(repeat) => {
                if repeat.trip_count.is_none() {
                    let _ = writeln!(text, "{indent} condition:");
                    self.list(text, module, repeat.condition, depth + 1);
                }
                let _ = writeln!(text, "{indent} body:");
                self.list(text, module, repeat.body, depth + 1);
            }
            ThunkKind::Conditional { branches, .. } => {
                for (n, &branch) in branches.iter().enumerate() {
                    let _ = writeln!(text, "{indent} branch {n}:");
                    self.list(text, module, branch, depth + 1);
                }
            }
            _ => {}
        }
    }
}

/// A launch as in CUDA C++, with clusters and shared memory where there are any.
fn launch(kernel: &PtxKernel) -> String {
    let dims = |d: [u32; 3]| match d {
        [x, 1, 1] => x.to_string(),
        [x, y, 1] => format!("{x}x{y}"),
        [x, y, z] => format!("{x}x{y}x{z}"),
    };
    let launch = &kernel.launch;
    let mut text = format!("kernel {} <<<{}, {}", kernel.name, dims(launch.grid), dims(launch.block));
    if launch.dynamic_shared_bytes > 0 {
        let _ = write!(text, ", {}", launch.dynamic_shared_bytes);
    }
    text.push_str(">>>");
    if launch.cluster > 1 {
        let _ = write!(text, " in clusters of {}", launch.cluster);
    }
    text
}
