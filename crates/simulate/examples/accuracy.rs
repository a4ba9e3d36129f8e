//! How near the cost model comes to the cycles that a compiler wrote into its dumps:
//!
//!     cargo run --release -p hloom-simulate --example accuracy -- tpu-v6e MODULE.txt…
//!
//! prints for each module the sum over the instructions that carry `estimated_cycles`, by the model and as given, and the
//! median and 90th percentile of the errors. With `-v` every instruction is told.
#![allow(clippy::print_stdout, reason = "it is a command")]

use hloom_cost::CostModel;
use hloom_cost::dumped::estimated_cycles;
use hloom_formats::hlo_text;
use hloom_target::Target;

fn main() {
    let (flags, rest): (Vec<String>, Vec<String>) = std::env::args().skip(1).partition(|a| a.starts_with('-'));
    let is_verbose = flags.iter().any(|f| f == "-v");
    let is_searching = flags.iter().any(|f| f == "--search");
    let [name, files @ ..] = rest.as_slice() else {
        println!("usage: accuracy [-v] [--search] TARGET MODULE…");
        return;
    };
    let target = Target::named(name).expect("a target that comes with hloom");
    let mut errors = Vec::new();
    for file in files {
        let Some(module) = std::fs::read(file).ok().and_then(|bytes| hlo_text::read(&bytes).module) else {
            println!("{file}: cannot be read");
            continue;
        };
        let mut model = CostModel::new(&module, &target).expect("the target has all rates");
        if is_searching {
            model = model.with_searched_windows();
        }
        let (mut predicted, mut given) = (0.0, 0.0);
        for &computation in module.computations() {
            for &id in module[computation].instructions() {
                let Some(own) = estimated_cycles(&module[id]) else { continue };
                let cycles = model.instruction(id).ok().and_then(|c| c.cycles).unwrap_or(0.0);
                predicted += cycles;
                given += own as f64;
                if is_verbose {
                    println!("  {:+7.1} % {own:>10} {}", (cycles / own as f64 - 1.0) * 100.0, module[id].name());
                }
            }
        }
        if given > 0.0 {
            let error: f64 = predicted / given - 1.0;
            println!("{:+7.1} % {given:>12} {file}", error * 100.0);
            errors.push(error.abs());
        }
    }
    errors.sort_by(f64::total_cmp);
    if let Some(last) = errors.len().checked_sub(1) {
        let at = |share: f64| errors[((last as f64) * share).round() as usize] * 100.0;
        println!("{} modules: median {:.1} %, 90th percentile {:.1} %", errors.len(), at(0.5), at(0.9));
    }
}
