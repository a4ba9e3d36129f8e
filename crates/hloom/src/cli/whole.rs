//! Programs over whole arrays: for how many devices one is partitioned, and the program of one device that is made of it.

use super::{Outcome, Result, Stop, output, partition};
use hloom::dump_form;
use hloom::global::{Global, is_global};
use hloom::ir::module::Module;
use hloom::ir::verify::{VerifyOptions, verify};
use hloom::passes::sink_converts::sink_converts;
use hloom::passes::{Context, inline};
use hloom::target::Target;
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
        Some(devices) => Ok(partitioned(gathered_narrow(verified), devices)?.0),
        None => Ok(verified),
    }
}

/// As [`local`], in the form of compilers' dumps, for machines whose schedules are compared with such.
pub(crate) fn local_as_in_dumps(verified: Verified, asked: Option<i64>) -> Result<Verified> {
    let Some(devices) = devices(verified.module.module(), asked)? else { return Ok(verified) };
    let (made, global) = partitioned(gathered_narrow(verified), devices)?;
    let module = dump_form::of(&global).map_err(|found| {
        output::show(&made.source, None, &found);
        Stop(Outcome::of(&found))
    })?;
    Ok(Verified { module, ..made })
}

/// The program with what is gathered out of a widened array gathered before it is widened, so that less is sent between
/// devices; with calls written out, since array and gather may be on both sides of one. One without such gathers is as it
/// was.
fn gathered_narrow(verified: Verified) -> Verified {
    let Verified { source, module, diagnostics } = verified;
    let mut changed = module.module().clone();
    let Ok(target) = Target::named("cpu") else { return Verified { source, module, diagnostics } };
    let inlined = (inline::PASS.run)(&mut changed, &Context { info: &target });
    let is_narrower = inlined.is_ok() && sink_converts(&mut changed) > 0;
    let narrower = is_narrower.then(|| verify(changed, &VerifyOptions::default()).ok()).flatten();
    Verified { source, module: narrower.unwrap_or(module), diagnostics }
}
