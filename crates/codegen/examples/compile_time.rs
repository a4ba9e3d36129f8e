//! How long the kernels of a program take to compile: `compile_time FILE.hlo… [--threads N] [--avx2]`.
//!
//! Every instruction outside of fusions that has a kernel gets one; the first line of a file is with a cold process.

#![allow(clippy::print_stdout, reason = "it is a command")]

use hloom_codegen::{KernelRequest, Machine, Options, compile, supports};
use hloom_ir::{Module, Op};
use std::time::Instant;

fn requests(module: &Module) -> (Vec<KernelRequest>, usize) {
    let mut fused = vec![false; module.computation_slots()];
    for &i in module.computations().iter().flat_map(|&c| module[c].instructions()) {
        let to_apply = match &module[i].op {
            Op::Fusion(f) => Some(f.calls),
            Op::Reduce { to_apply, .. } | Op::ReduceWindow { to_apply, .. } | Op::Map { to_apply, .. } => Some(*to_apply),
            Op::Sort { to_apply, .. } => Some(*to_apply),
            Op::Scatter(s) => Some(s.to_apply),
            _ => None,
        };
        if let Some(c) = to_apply {
            fused[hloom_ir::entity::EntityId::index(c)] = true;
        }
    }
    let (mut requests, mut without) = (Vec::new(), 0);
    for &c in module.computations().iter().filter(|c| !fused[hloom_ir::entity::EntityId::index(**c)]) {
        for &i in module[c].instructions() {
            if matches!(module[i].op, Op::Parameter { .. } | Op::Tuple | Op::GetTupleElement { .. } | Op::Constant(_)) {
                continue;
            }
            match supports(module, i) {
                Ok(()) => requests.push(KernelRequest { instruction: i, in_place: false }),
                Err(_) => without += 1,
            }
        }
    }
    (requests, without)
}

/// Milliseconds that this process has computed for, which other processes do not change.
fn cpu_ms() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the system writes the time to where it is told.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 * 1e3 + time.tv_nsec as f64 / 1e6
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut options = Options::default();
    let mut files = Vec::new();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--threads" => options.threads = arguments.next().and_then(|n| n.parse().ok()).unwrap_or(1),
            "--avx2" => options.machine = Machine::host().without_avx512(),
            _ => files.push(argument),
        }
    }
    for file in files {
        let Ok(bytes) = std::fs::read(&file) else { continue };
        let Some(module) = hloom_formats::hlo_text::read(&bytes).module else { continue };
        for _ in 0..3 {
            let start = Instant::now();
            let (requests, without) = requests(&module);
            let looked = start.elapsed();
            let (start, cpu) = (Instant::now(), cpu_ms());
            match compile(&module, &requests, &options) {
                Ok(library) => println!(
                    "{:8.2} ms, {:8.2} ms of computing, for {} kernels of {} instructions ({} without), {:.2} ms to look  {file}",
                    start.elapsed().as_secs_f64() * 1e3,
                    cpu_ms() - cpu,
                    library.len(),
                    requests.len(),
                    without,
                    looked.as_secs_f64() * 1e3,
                ),
                Err(error) => println!("{file}: {error}"),
            }
        }
    }
}
