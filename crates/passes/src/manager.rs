//! Running passes over a module: in order, in groups to a fixpoint, with what each did and how long it took.
//!
//! A pass in a group is left out while the module is as it was when the pass last had nothing to change, so that a group
//! that has come to rest costs nothing more. In debug builds the module is verified after every pass that changed it; at
//! the end it always is.

use crate::lists::{PassList, PassStep};
use crate::mixed_precision::legalize;
use crate::normalize_layouts::normalize_layouts;
use crate::pass::{Context, Pass};
use crate::planted;
use hloom_ir::diagnostic::codes::passes::BROKEN_MODULE;
use hloom_ir::diagnostic::{Blame, Diagnostic, Severity};
use hloom_ir::module::Module;
use hloom_ir::verify::{self, VerifiedModule, VerifyOptions, check};
use std::time::{Duration, Instant};

/// A module after its passes.
#[derive(Debug)]
pub struct Optimized {
    /// The module.
    pub module: VerifiedModule,
    /// What was done.
    pub report: PassesReport,
}

/// What the passes did, in the order in which they first ran.
#[derive(Clone, Debug, Default)]
pub struct PassesReport {
    /// One entry per pass.
    pub passes: Vec<PassReport>,
    /// How long verifying took, all together.
    pub verifying: Duration,
}

/// What one pass did, all its runs together.
#[derive(Clone, Debug)]
pub struct PassReport {
    /// The pass.
    pub name: &'static str,
    /// How often it ran.
    pub runs: usize,
    /// The changes it made.
    pub changes: usize,
    /// How long it took.
    pub time: Duration,
    /// The number of instructions in the module after its last run.
    pub instructions: usize,
}

/// Why a pass could not do its work.
#[derive(Debug)]
pub struct Failed {
    /// The pass.
    pub pass: &'static str,
    /// The module as the pass left it.
    pub module: Box<Module>,
    /// What is wrong; an error of the pass, or what the verifier found.
    pub diagnostics: Vec<Diagnostic>,
}

/// Is told of every pass that ran, with the module after it.
pub type Watcher<'w> = &'w mut dyn FnMut(&'static Pass, &Module);

/// Runs a list of passes over `module`; `watcher` is told of each.
pub fn optimize(
    module: VerifiedModule,
    list: &PassList,
    context: &Context<'_>,
    watcher: Option<Watcher<'_>>,
) -> Result<Optimized, Failed> {
    let mut run = Run { module: module.into_module(), context, watcher, report: PassesReport::default(), version: 0 };
    let mut last = "the verifier";
    for step in &list.steps {
        let (bound, passes) = match step {
            PassStep::Once(pass) => (1, std::slice::from_ref(pass)),
            PassStep::Fixpoint { bound, passes } => (*bound, passes.as_slice()),
        };
        // The version of the module at which each pass had nothing to do.
        let mut at_rest = vec![None; passes.len()];
        for _ in 0..bound {
            let before = run.version;
            for (pass, at_rest) in passes.iter().copied().zip(&mut at_rest) {
                if *at_rest == Some(run.version) {
                    continue;
                }
                last = pass.name;
                if run.pass(pass)? == 0 {
                    *at_rest = Some(run.version);
                }
            }
            if run.version == before {
                break;
            }
        }
    }
    let begin = Instant::now();
    match verify::verify(run.module, &VerifyOptions::default()) {
        Ok(module) => {
            run.report.verifying += begin.elapsed();
            Ok(Optimized { module, report: run.report })
        }
        Err(invalid) => Err(broken(last, invalid.module, invalid.diagnostics)),
    }
}

/// A list of passes at work.
struct Run<'r, 'w> {
    module: Module,
    context: &'r Context<'r>,
    watcher: Option<Watcher<'w>>,
    report: PassesReport,
    /// Counts the runs that changed something.
    version: usize,
}

impl Run<'_, '_> {
    /// Runs one pass and returns its changes.
    fn pass(&mut self, pass: &'static Pass) -> Result<usize, Failed> {
        if self.module.is_scheduled && !pass.keeps_schedule {
            // Bitcasts of scheduled modules mean their layouts: what they mean is kept before the schedule is given up.
            // So are the types of values, which only compilers' modules mix.
            if let Err(diagnostic) = normalize_layouts(&mut self.module).and_then(|_| legalize(&mut self.module)) {
                return Err(self.fail(pass, vec![diagnostic]));
            }
            self.module.is_scheduled = false;
        }
        let begin = Instant::now();
        let result = (pass.run)(&mut self.module, self.context);
        let time = begin.elapsed();
        let changes = match result {
            // Once in a run: a fault that is made twice may be none.
            Ok(changes) if self.report.passes.iter().all(|r| r.name != pass.name) => {
                changes + planted::plant(&mut self.module, pass.name)
            }
            Ok(changes) => changes,
            Err(diagnostic) => return Err(self.fail(pass, vec![diagnostic])),
        };
        let instructions = self.module.instruction_count();
        match self.report.passes.iter_mut().find(|r| r.name == pass.name) {
            Some(report) => {
                report.runs += 1;
                report.changes += changes;
                report.time += time;
                report.instructions = instructions;
            }
            None => self.report.passes.push(PassReport { name: pass.name, runs: 1, changes, time, instructions }),
        }
        if let Some(watcher) = &mut self.watcher {
            watcher(pass, &self.module);
        }
        if changes > 0 {
            self.version += 1;
            if cfg!(debug_assertions) {
                self.verify(pass)?;
            }
        }
        Ok(changes)
    }

    fn verify(&mut self, pass: &'static Pass) -> Result<(), Failed> {
        let begin = Instant::now();
        let found = check(&self.module, &VerifyOptions::default());
        self.report.verifying += begin.elapsed();
        if found.iter().any(|d| d.severity == Severity::Error) {
            let module = Box::new(std::mem::replace(&mut self.module, Module::new("")));
            return Err(broken(pass.name, module, found));
        }
        Ok(())
    }

    fn fail(&mut self, pass: &'static Pass, diagnostics: Vec<Diagnostic>) -> Failed {
        let module = Box::new(std::mem::replace(&mut self.module, Module::new("")));
        Failed { pass: pass.name, module, diagnostics }
    }
}

/// What is wrong with a module that was valid before a pass: that is the pass's fault, not the program's.
fn broken(pass: &'static str, module: Box<Module>, found: Vec<Diagnostic>) -> Failed {
    let message = format!("the pass `{pass}` left a module that is not valid");
    let mut diagnostics = vec![Diagnostic::error(&BROKEN_MODULE, message).blame(Blame::Hloom)];
    diagnostics.extend(found.into_iter().filter(|d| d.severity == Severity::Error));
    Failed { pass, module, diagnostics }
}

impl PassesReport {
    /// Changes of all passes together.
    pub fn changes(&self) -> usize {
        self.passes.iter().map(|p| p.changes).sum()
    }

    /// The time of all passes together, without verifying.
    pub fn time(&self) -> Duration {
        self.passes.iter().map(|p| p.time).sum()
    }
}
