//! Reading the modules that commands are given, with diagnostics shown when that fails.

use super::args::PrecisionArgs;
use super::progress::{self, At};
use super::{Outcome, Result, Stop, crash, output};
use hloom::ir::diagnostic::Diagnostic;
use hloom::load::{display_name, load_watched, read_bytes};
use hloom::target::{Description, Recognized, Target, recognize};
use hloom::{Format, Loaded, Rejected, Verified};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Reads the module at `path`, without showing anything.
pub(crate) fn read(path: &str, format: Option<Format>) -> std::result::Result<Loaded, Box<Rejected>> {
    let name = display_name(path);
    let bytes = Arc::new(read_bytes(path)?);
    crash::remember_input(name, &bytes);
    let (total, position) = (bytes.len(), AtomicUsize::new(0));
    let at = || match position.load(Ordering::Relaxed) {
        0 => At::Unknown,
        done => At::Share { done, total },
    };
    progress::follow(&format!("reading {name}"), at, || load_watched(name, bytes, format, &position))
}

/// Verifies a module that was read, without showing anything.
pub(crate) fn verify(loaded: Loaded, devices: Option<i64>) -> std::result::Result<Verified, Box<Rejected>> {
    verify_as(loaded, devices, PrecisionArgs::default())
}

/// The same, by the rules for mixed precision that were asked for.
pub(crate) fn verify_as(
    loaded: Loaded,
    devices: Option<i64>,
    precision: PrecisionArgs,
) -> std::result::Result<Verified, Box<Rejected>> {
    let _progress = progress::start(format!("verifying {}", loaded.source.name));
    if precision.strict_precision { loaded.verify_strictly(devices) } else { loaded.verify(devices) }
}

/// Reads the module at `path`; warnings are shown, and on errors the command stops.
pub(crate) fn load(path: &str, format: Option<Format>) -> Result<Loaded> {
    let loaded = read(path, format).map_err(|r| show_rejected(&r))?;
    output::show(&loaded.source, Some(&loaded.module), &loaded.diagnostics);
    Ok(loaded)
}

/// The same, and verified.
pub(crate) fn load_verified(path: &str) -> Result<Verified> {
    load_verified_as(path, PrecisionArgs::default())
}

/// The same, by the rules for mixed precision that were asked for.
pub(crate) fn load_verified_as(path: &str, precision: PrecisionArgs) -> Result<Verified> {
    let verified = read(path, None).and_then(|l| verify_as(l, None, precision)).map_err(|r| show_rejected(&r))?;
    output::show(&verified.source, Some(verified.module.module()), &verified.diagnostics);
    Ok(verified)
}

/// Shows why a module cannot be used.
pub(crate) fn show_rejected(rejected: &Rejected) -> Stop {
    output::show(&rejected.source, rejected.module.as_deref(), &rejected.diagnostics);
    Stop(Outcome::InputAtFault)
}

/// The machine that was asked for, or the one that the dump is for, which is then said; the CPU for what is no dump.
pub(crate) fn target_of(asked: Option<&str>, verified: &Verified) -> Result<Target> {
    if let Some(name) = asked {
        return target(name);
    }
    let name = &verified.source.name;
    match recognize(verified.module.module()) {
        Recognized::As(found, why) => {
            output::to_stderr(&format!("{name}: taken for {}: {why}; --target chooses another\n", found.name));
            Ok(*found)
        }
        Recognized::OneOf(what, targets) => {
            Err(super::usage_error(&format!("{name}: {what}: give --target, which may be {}", targets.join(", "))))
        }
        Recognized::Nothing => target("cpu"),
    }
}

/// The machine of that name, or that the file of that name describes.
pub(crate) fn target(name: &str) -> Result<Target> {
    described(name)?.target().map_err(|fault| bad_target(name, &fault))
}

/// The description of that name, or in the file of that name.
pub(crate) fn described(name: &str) -> Result<Description> {
    let found = if is_path(name) {
        let bytes = read_bytes(name).map_err(|r| show_rejected(&r))?;
        Description::from_text(&String::from_utf8_lossy(&bytes), name)
    } else {
        Description::named(name)
    };
    found.map_err(|fault| bad_target(name, &fault))
}

fn is_path(name: &str) -> bool {
    name.contains(['/', '\\']) || name.ends_with(".toml")
}

/// Says what is wrong with a target.
pub(crate) fn bad_target(name: &str, diagnostic: &Diagnostic) -> Stop {
    let mut text = format!("{diagnostic}\n");
    diagnostic.notes.iter().for_each(|n| text.push_str(&format!("  {}\n", n.message)));
    output::to_stderr(&text);
    Stop(if is_path(name) { Outcome::InputAtFault } else { Outcome::UsageAtFault })
}
