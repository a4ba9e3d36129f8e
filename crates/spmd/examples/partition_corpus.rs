//! Partitions every module of a list of files, or of folders that hold `propagated.hlo`, compares numbers with one device, and writes
//! what it made: `partition_corpus OUT DIR...`.

#[path = "../tests/support/mod.rs"]
mod support;

use std::path::Path;
use std::time::Instant;

#[allow(clippy::print_stdout, reason = "an example")]
fn main() {
    let mut arguments = std::env::args().skip(1);
    let out = arguments.next().expect("a folder for what is made");
    std::fs::create_dir_all(&out).expect("the folder can be made");
    for argument in arguments {
        let folder = Path::new(&argument);
        let name = folder.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let name = name.trim_end_matches(".propagated.hlo").to_owned();
        let path = if folder.is_dir() { folder.join("propagated.hlo") } else { folder.to_path_buf() };
        let Ok(text) = std::fs::read_to_string(path) else { continue };
        let module = support::read(&text);
        let devices = module.config.num_partitions;
        let begun = Instant::now();
        let made = std::panic::catch_unwind(|| hloom_spmd::partition(&module, devices));
        let elapsed = begun.elapsed().as_secs_f64() * 1e3;
        let made = match made {
            Ok(Ok(made)) => made,
            Ok(Err(e)) => {
                println!("{name} FAILED {}", e.message);
                continue;
            }
            Err(_) => {
                println!("{name} PANIC");
                continue;
            }
        };
        let options = hloom_formats::hlo_text::PrintOptions { elide_constants: false };
        let printed = hloom_formats::hlo_text::print(&made.module, &options);
        std::fs::write(format!("{out}/{name}.hlo"), printed).expect("the file can be written");
        let gathered: Vec<&str> = made.gathered.iter().map(|&i| module[i].op.opcode().name()).collect();
        let entry = module.entry().expect("a module has an entry");
        let bytes: i64 = module.parameters(entry).iter().filter_map(|&p| module[p].shape.byte_size()).sum();
        if bytes > 1 << 20 || support::is_manual(&module) {
            println!("{name} made {elapsed:.1}ms {gathered:?}");
            continue;
        }
        match support::check(&module, &made, 7) {
            Ok(()) => println!("{name} ok {elapsed:.1}ms {gathered:?}"),
            Err(e) => println!("{name} WRONG {e} {gathered:?}"),
        }
    }
}
