//! Programs that were compiled already.

use super::super::args::RunArgs;
use super::super::{Outcome, Result, Stop, crash, input, output};
use hloom::compiler::file;
use hloom::formats::hlo_text::SourceMap;
use hloom::load::{display_name, read_bytes};
use hloom::runtime::{Client, LoadedExecutable};
use hloom::{Format, Source, Verified};
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

/// A program that was compiled already, ready to run.
pub(super) struct Saved {
    pub(super) client: Arc<dyn Client>,
    pub(super) executable: Arc<dyn LoadedExecutable>,
    /// How long it took from the start of the process, where the system says.
    pub(super) load: Option<Duration>,
}

/// The compiled module in the file, if it is one: with its scheduled module; or, if it cannot be used here, its source
/// alone, to be compiled anew.
pub(super) fn open(args: &RunArgs) -> Result<Option<(Verified, Option<Saved>)>> {
    let mut beginning = [0; file::MAGIC.len()];
    let path = hloom::paths::to_path(&args.file);
    let begins = args.file != "-" && std::fs::File::open(path).is_ok_and(|mut f| f.read_exact(&mut beginning).is_ok());
    if !begins || beginning != *file::MAGIC {
        return Ok(None);
    }
    let name = display_name(&args.file);
    let bytes = Arc::new(read_bytes(&args.file).map_err(|r| input::show_rejected(&r))?);
    crash::remember_input(name, &bytes);
    let loaded = load(args, &bytes);
    let format = Format::HloModuleProto;
    let source = Source { name: name.to_owned(), bytes, format, positions: SourceMap::default() };
    let verified = |module| Verified { source, module, diagnostics: Vec::new() };
    match loaded {
        Ok(saved) => Ok(Some((verified((*saved.executable.compiled().module).clone()), Some(saved)))),
        Err(file::Refused { reason, source: Some(module) }) => {
            output::to_stderr(&format!(
                "warning: `{name}` cannot be used as it is: {reason}; its source is compiled anew\n"
            ));
            Ok(Some((verified(*module), None)))
        }
        Err(file::Refused { reason, source: None }) => {
            output::to_stderr(&format!("error: `{name}` cannot be loaded: {reason}\n"));
            Err(Stop(Outcome::InputAtFault))
        }
    }
}

fn load(args: &RunArgs, bytes: &[u8]) -> std::result::Result<Saved, file::Refused> {
    let refused = |reason: String| file::Refused { reason, source: file::source(bytes) };
    let client = args.engine.client(args.threads.map(|n| n as usize)).map_err(|e| refused(e.to_string()))?;
    let compiled = file::load(client.backend(), bytes)?;
    let loaded = client.load(Arc::new(compiled));
    let executable = loaded.map_err(|e| refused(e.into_diagnostic().message))?;
    Ok(Saved { client, executable, load: since_process_start() })
}

/// How long ago this process was started, where the system says.
fn since_process_start() -> Option<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The 22nd field, counted from the end of the name in parentheses: ticks after the system's start, 100 a second.
    let ticks: f64 = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()?;
    let uptime: f64 = std::fs::read_to_string("/proc/uptime").ok()?.split_whitespace().next()?.parse().ok()?;
    Duration::try_from_secs_f64(uptime - ticks / 100.0).ok()
}
