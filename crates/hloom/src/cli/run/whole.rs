//! Programs over whole arrays: whether a program is one, and what is made of it for the devices.

use super::super::args::RunArgs;
use super::super::{Outcome, Result, Stop, output, partition};
use hloom::arrays;
use hloom::global::{self, Global};
use hloom::{Source, Verified};

/// For how many devices the program is to be partitioned, if it is about whole arrays; the choice is said.
pub(super) fn devices(args: &RunArgs, verified: &Verified) -> Result<Option<i64>> {
    let module = verified.module.module();
    if args.per_device || !(args.global || global::is_global(module)) {
        return Ok(None);
    }
    let devices = partition::devices(module, args.devices.map(i64::from))?;
    if devices <= 1 {
        return Ok(None);
    }
    if !args.global && args.input.as_deref().is_some_and(arrays::names_devices) {
        output::to_stderr("the arrays are named by devices: the program is run as that of one device\n");
        return Ok(None);
    }
    output::to_stderr(&format!("the program is about whole arrays: it is partitioned for {devices} devices\n"));
    Ok(Some(devices))
}

/// The program of one device, and the global one.
pub(super) fn partitioned(verified: Verified, devices: i64) -> Result<(Verified, Global)> {
    let Verified { source, module, .. } = verified;
    let kept = module.module().clone();
    let made = Global::partition(module, devices).map_err(|found| {
        output::show(&source, Some(&kept), &found);
        Stop(Outcome::of(&found))
    })?;
    // Its instructions are not those of the text.
    let source = Source { positions: Default::default(), ..source };
    let verified = Verified { source, module: made.program.clone(), diagnostics: Vec::new() };
    Ok((verified, made))
}
