//! The kernels of the roots of HLO modules as JSON, for who wants to look at them or to try them on a GPU:
//! `ptx FOLDER FILE.hlo…` writes `FOLDER/FILE.json` for each. A file whose first line has the word in-place gets kernels
//! that change their first operand.

use hloom_cuda_codegen::{Architecture, KernelSequence, generate, generate_in_place};
use hloom_formats::hlo_text;
use std::path::Path;
use std::process::ExitCode;

const ARCHITECTURE: Architecture = Architecture { capability: 90, accelerated: true };

fn kernels(path: &Path) -> Result<KernelSequence, String> {
    let text = std::fs::read(path).map_err(|e| e.to_string())?;
    let in_place = text.split(|&b| b == b'\n').next().is_some_and(|l| l.windows(8).any(|w| w == b"in-place"));
    let read = hlo_text::read(&text);
    let module = read.module.ok_or_else(|| format!("{:?}", read.diagnostics))?;
    let root = module.entry().and_then(|e| module.root(e)).ok_or("there is no root")?;
    let made = match in_place {
        true => generate_in_place(&module, root, ARCHITECTURE),
        false => generate(&module, root, ARCHITECTURE),
    };
    made.map_err(|why| why.to_string())
}

#[allow(clippy::print_stderr, reason = "it is a command")]
fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((folder, files)) = arguments.split_first() else {
        eprintln!("usage: ptx FOLDER FILE.hlo…");
        return ExitCode::from(2);
    };
    let mut failed = false;
    for file in files {
        let path = Path::new(file);
        let to = Path::new(folder).join(path.with_extension("json").file_name().unwrap_or_default());
        let begin = std::time::Instant::now();
        let written = kernels(path).and_then(|sequence| {
            let text = serde_json::to_string(&sequence).map_err(|e| e.to_string())?;
            std::fs::write(&to, text).map_err(|e| e.to_string())
        });
        match written {
            Ok(()) => eprintln!("{file}: {:.1} ms", begin.elapsed().as_secs_f64() * 1e3),
            Err(why) => {
                eprintln!("{file}: {why}");
                failed = true;
            }
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
