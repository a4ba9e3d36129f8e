//! How long the kernels of a program take to compile, and to run on one core:
//! `kernel_times FILE.hlo… [--run] [--why] [--ir] [--threads N] [--repeat N] [--quick] [--avx2] [--in-place]`.
//!
//! Every instruction outside of fusions that has a kernel gets one; the first line of a file is with a cold process.

#![allow(clippy::print_stdout, reason = "it is a command")]

use hloom_ir::{Module, Op};
use hloom_llvm::{Effort, KernelObjects, Machine, Options, compile, llvm_ir};
use hloom_loader::CodeImage;
use hloom_loops::{KernelRequest, supports};
use std::collections::BTreeMap;
use std::time::Instant;

fn requests(module: &Module, in_place: bool) -> (Vec<KernelRequest>, BTreeMap<String, usize>) {
    let mut fused = vec![false; module.computation_slots()];
    for &i in module.computations().iter().flat_map(|&c| module[c].instructions()) {
        let to_apply = match &module[i].op {
            Op::Fusion(f) => Some(f.calls),
            Op::Reduce { to_apply, .. } | Op::ReduceWindow { to_apply, .. } | Op::Map { to_apply, .. } => {
                Some(*to_apply)
            }
            Op::Sort { to_apply, .. } => Some(*to_apply),
            Op::Scatter(s) => Some(s.to_apply),
            _ => None,
        };
        if let Some(c) = to_apply {
            fused[hloom_ir::entity::EntityId::index(c)] = true;
        }
    }
    let (mut requests, mut without) = (Vec::new(), BTreeMap::new());
    for &c in module.computations().iter().filter(|c| !fused[hloom_ir::entity::EntityId::index(**c)]) {
        for &i in module[c].instructions() {
            if matches!(module[i].op, Op::Parameter { .. } | Op::Tuple | Op::GetTupleElement { .. } | Op::Constant(_)) {
                continue;
            }
            match supports(module, i, None) {
                Ok(()) => requests.push(KernelRequest { instruction: i, in_place, producer: None }),
                Err(why) => *without.entry(format!("{}: {}", module[i].opcode(), why.what)).or_insert(0) += 1,
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

/// Runs each kernel on arrays of zeros and ones and prints the fastest of several runs.
fn speeds(module: &Module, requests: &[KernelRequest], library: &KernelObjects) {
    let image = CodeImage::load(&library.objects, &Machine::host().architecture).expect("it is for this machine");
    for (n, request) in requests.iter().enumerate() {
        let Ok(kernel) = library.kernel(n) else { continue };
        // SAFETY: the symbol is a kernel's.
        let Ok(function) = (unsafe { image.kernel(kernel.object, &kernel.name()) }) else { continue };
        let instruction = &module[request.instruction];
        let operands = instruction.operands().iter().flat_map(|&o| module[o].shape.leaves());
        let leaves: Vec<_> = operands.chain(instruction.shape.leaves()).map(|l| l.1.byte_size().unwrap_or(0)).collect();
        let total: i64 = leaves.iter().sum();
        if total > 2 << 30 {
            continue;
        }
        let mut arrays: Vec<Vec<u128>> =
            leaves.iter().map(|&b| vec![0x3f803f803f803f803f803f803f803f80; b as usize / 16 + 5]).collect();
        let buffers: Vec<*mut u8> =
            arrays.iter_mut().map(|a| a.as_mut_ptr().cast::<u8>().map_addr(|a| a.next_multiple_of(64))).collect();
        let mut best = f64::INFINITY;
        for _ in 0..8 {
            let start = Instant::now();
            // SAFETY: the buffers have the sizes of the leaves, and room to be aligned in.
            unsafe { function(buffers.as_ptr(), 0, kernel.work_units) };
            best = best.min(start.elapsed().as_secs_f64());
        }
        println!(
            "{:10.2} µs {:7.2} GB/s, guessed {:10.2} µs in {:5} units  {} {}",
            best * 1e6,
            total as f64 / best / 1e9,
            kernel.unit_nanoseconds * kernel.work_units as f64 / 1e3,
            kernel.work_units,
            instruction.opcode(),
            instruction.shape,
        );
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut options = Options::default();
    let (mut files, mut repeat) = (Vec::new(), 3);
    let (mut runs, mut why, mut shows_ir, mut in_place) = (false, false, false, false);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--threads" => options.threads = arguments.next().and_then(|n| n.parse().ok()).unwrap_or(1),
            "--repeat" => repeat = arguments.next().and_then(|n| n.parse().ok()).unwrap_or(3),
            "--why" => why = true,
            "--ir" => shows_ir = true,
            "--run" => runs = true,
            "--in-place" => in_place = true,
            "--quick" => options.effort = Effort::Quick,
            "--avx2" => options.machine = Machine::host().without_avx512(),
            _ => files.push(argument),
        }
    }
    for file in files {
        let Ok(bytes) = std::fs::read(&file) else { continue };
        let Some(module) = hloom_formats::hlo_text::read(&bytes).module else { continue };
        for turn in 0..repeat {
            let start = Instant::now();
            let (requests, without) = requests(&module, in_place);
            let looked = start.elapsed();
            if turn == 0 && why {
                without.iter().for_each(|(why, count)| println!("{count:6} without a kernel: {why}"));
            }
            if shows_ir {
                println!("{}", llvm_ir(&module, &requests, &options).unwrap_or_else(|e| e.to_string()));
                break;
            }
            let (start, cpu) = (Instant::now(), cpu_ms());
            match compile(&module, &requests, &options) {
                library if runs && turn == 0 => speeds(&module, &requests, &library),
                library => println!(
                    "{:8.2} ms, {:8.2} ms of computing, for {} kernels of {} instructions ({} without), {:.2} ms to look  {file}",
                    start.elapsed().as_secs_f64() * 1e3,
                    cpu_ms() - cpu,
                    library.len(),
                    requests.len(),
                    without.values().sum::<usize>(),
                    looked.as_secs_f64() * 1e3,
                ),
            }
        }
    }
}
