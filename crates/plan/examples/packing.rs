//! How well temporaries are packed: for each module given, and each memory space, the bytes of the reference packing, of
//! the best that was found, and the least there can be.
//!
//! `cargo run --release -p hloom-plan --example packing -- [--target T] FILE…`
#![allow(clippy::print_stdout, reason = "it is a command")]

use hloom_formats::hlo_text;
use hloom_ir::verify::{VerifyOptions, verify};
use hloom_plan::copies::insert_copies;
use hloom_plan::flatten::flatten_call_graph;
use hloom_plan::schedule::{Scheduler, schedule};
use hloom_plan::{Packer, plan_with};
use hloom_target::Target;
use std::time::Instant;

fn main() {
    let mut arguments = std::env::args().skip(1).peekable();
    let mut target = String::from("cpu");
    if arguments.next_if(|a| a == "--target").is_some() {
        target = arguments.next().unwrap_or(target);
    }
    let target = match Target::named(&target) {
        Ok(target) => target,
        Err(fault) => return println!("{fault}"),
    };
    println!("{:>12} {:>12} {:>12} {:>8}  file", "reference", "best", "bound", "ms");
    for path in arguments {
        if let Err(why) = measure(&path, &target) {
            println!("{path}: {why}");
        }
    }
}

fn measure(path: &str, target: &Target) -> Result<(), String> {
    let text = std::fs::read(path).map_err(|e| e.to_string())?;
    let read = hlo_text::read(&text);
    let mut module =
        read.module.ok_or_else(|| read.diagnostics.iter().map(|d| d.message.clone()).collect::<String>())?;
    if !module.is_scheduled {
        flatten_call_graph(&mut module).map_err(|d| d.message)?;
        insert_copies(&mut module, target).map_err(|d| d.iter().map(|d| d.message.clone()).collect::<String>())?;
        schedule(&mut module, Scheduler::Memory, target).map_err(|d| d.message)?;
    }
    let options = VerifyOptions { devices: None };
    let module = verify(module, &options).map_err(|e| format!("{:?}", e.diagnostics.first().map(|d| &d.message)))?;
    let planned = |packer| {
        let begin = Instant::now();
        let planned = plan_with(&module, target, packer);
        let ms = begin.elapsed().as_secs_f64() * 1e3;
        planned.map(|p| (p.heaps, ms)).map_err(|d| d.iter().map(|d| d.message.clone()).collect::<String>())
    };
    let (reference, _) = planned(Packer::Reference)?;
    let (best, ms) = planned(Packer::Best)?;
    for (reference, best) in reference.iter().zip(&best) {
        let (bytes, bound) = (best.bytes, best.lower_bound);
        println!("{:>12} {bytes:>12} {bound:>12} {ms:>8.1}  {path} @{}", reference.bytes, best.memory_space);
    }
    Ok(())
}
