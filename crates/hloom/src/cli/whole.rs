//! Programs over whole arrays: for how many devices one is partitioned, and the program of one device that is made of it.

use super::{Outcome, Result, Stop, output, partition};
use hloom::global::{Global, is_global};
use hloom::ir::module::Module;
use hloom::{Source, Verified};

/// For how many devices the program is to be partitioned, if it is about whole arrays and for more than one.
pub(crate) fn devices(module: &Module, asked: Option<i64>) -> Result<Option<i64>> {
    if !is_global(module) {
        return Ok(None);
    }
    Ok(Some(partition::devices(module, asked)?).filter(|&n| n > 1))
}

/// The program of one device, and the global one; that it is partitioned is said.
pub(crate) fn partitioned(verified: Verified, devices: i64) -> Result<(Verified, Global)> {
    output::inform(&format!("the program is about whole arrays: it is partitioned for {devices} devices\n"));
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

/// The program of one device: `verified` itself, unless it is about whole arrays.
pub(crate) fn local(verified: Verified, asked: Option<i64>) -> Result<Verified> {
    match devices(verified.module.module(), asked)? {
        Some(devices) => Ok(partitioned(verified, devices)?.0),
        None => Ok(verified),
    }
}
