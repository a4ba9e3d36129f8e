//! What a pass is, and what it may ask of the world.

use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::module::Module;
use hloom_target::Target;

/// A small named unit that rewrites a module.
#[derive(Clone, Copy)]
pub struct Pass {
    /// Its name, as in `hloom opt --passes NAME`.
    pub name: &'static str,
    /// What it does, in one line.
    pub statement: &'static str,
    /// Whether the order of a scheduled module is still a schedule afterwards. A pass that does not promise this is given
    /// a module without one.
    pub keeps_schedule: bool,
    /// Rewrites the module and says how many changes were made; 0 only if the module is as it was.
    pub run: fn(&mut Module, &Context<'_>) -> Result<usize, Diagnostic>,
}

/// What a pass may know besides the module.
#[derive(Clone, Copy, Debug)]
pub struct Context<'c> {
    /// The machine that the module is compiled for.
    pub target: &'c Target,
}

impl std::fmt::Debug for Pass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Pass").field(&self.name).finish()
    }
}
