//! LLVM's code generator: made once per machine and kept, and told to leave out what explicit vector code does not need.

use crate::failure::{self, Failure, LlvmError};
use crate::guard::{self, Pass};
use crate::machine::Machine;
use crate::options::{OptionSet, OptionsInForce};
use hloom_cost::CoreCost;
use inkwell::OptimizationLevel;
use inkwell::context::Context;
use inkwell::memory_buffer::MemoryBuffer;
use inkwell::module::Module;
use inkwell::targets::{
    CodeModel, FileType, InitializationConfig, RelocMode, Target, TargetMachine, TargetMachineOptions, TargetTriple,
};
use std::sync::{Mutex, Once, PoisonError};

/// How much time code is worth.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Effort {
    /// For code that runs once: it is there in half the time, and slower.
    Quick,
    /// For code that runs often.
    #[default]
    Full,
}

/// A code generator, taken from those that are kept, and given back when it is dropped.
pub(crate) struct Generator {
    key: (Machine, Effort),
    target: Option<Shared>,
    pass: Pass,
    _options: OptionsInForce,
}

struct Shared(TargetMachine);

// SAFETY: a target machine may be used by any thread, by one at a time, and `Generator` has it alone.
unsafe impl Send for Shared {}

type Kept = Vec<((Machine, Effort), Shared)>;
static KEPT: Mutex<Kept> = Mutex::new(Vec::new());
/// More are not kept: a process compiles for one machine, with few threads at a time.
const MOST_KEPT: usize = 16;

impl Generator {
    pub(crate) fn for_machine(machine: &Machine, effort: Effort) -> Result<Generator, LlvmError> {
        let pass = guard::enter();
        let options = OptionSet::ExplicitVectors.enter();
        // What its cores take makes no difference to LLVM.
        let key = (Machine { core: CoreCost::default(), ..machine.clone() }, effort);
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        let found = kept.iter().position(|(k, _)| *k == key).map(|n| kept.swap_remove(n).1);
        drop(kept);
        let target = match found {
            Some(target) => target,
            None => Shared(target_machine(machine, effort)?),
        };
        Ok(Generator { key, target: Some(target), pass, _options: options })
    }

    fn target(&self) -> &TargetMachine {
        &self.target.as_ref().expect("it is there until it is dropped").0
    }

    /// Tells a module what it is made for.
    pub(crate) fn prepare(&self, module: &Module<'_>) {
        module.set_triple(&self.target().get_triple());
        module.set_data_layout(&self.target().get_target_data().get_data_layout());
    }

    /// The assembly of the module that `write` makes in a new context.
    pub(crate) fn assembly(
        self,
        write: impl for<'c> FnOnce(&Generator, &'c Context) -> Module<'c>,
    ) -> Result<String, LlvmError> {
        let made = self.emit(FileType::Assembly, write)?;
        Ok(String::from_utf8_lossy(made.as_slice()).into_owned())
    }

    /// The object code of the module that `write` makes in a new context.
    pub(crate) fn object(
        self,
        write: impl for<'c> FnOnce(&Generator, &'c Context) -> Module<'c>,
    ) -> Result<MemoryBuffer<'static>, LlvmError> {
        self.emit(FileType::Object, write)
    }

    fn emit(
        mut self,
        kind: FileType,
        write: impl for<'c> FnOnce(&Generator, &'c Context) -> Module<'c>,
    ) -> Result<MemoryBuffer<'static>, LlvmError> {
        let context = Context::create();
        let module = write(&self, &context);
        // LLVM trusts what it is given: a fault in it could end the process. Looking costs one part in sixty.
        module.verify().map_err(|e| match cfg!(debug_assertions) {
            true => LlvmError(format!("{e}\n{}", module.print_to_string())),
            false => LlvmError(e.to_string()),
        })?;
        // SAFETY: the module is of that context, and all are ours alone.
        let made = unsafe { failure::emit(self.target().as_mut_ptr(), context.raw(), module.as_mut_ptr(), kind) };
        self.pass.used();
        match made {
            Ok(made) => Ok(made),
            Err(Failure::Refused(why)) => Err(LlvmError(why)),
            Err(Failure::Fatal(why)) => {
                std::mem::forget(self.target.take());
                std::mem::forget(module);
                std::mem::forget(context);
                Err(LlvmError(why))
            }
        }
    }
}

impl Drop for Generator {
    fn drop(&mut self) {
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(target), true) = (self.target.take(), kept.len() < MOST_KEPT) {
            kept.push((self.key.clone(), target));
        }
    }
}

fn target_machine(machine: &Machine, effort: Effort) -> Result<TargetMachine, LlvmError> {
    static INITIALIZED: Once = Once::new();
    INITIALIZED.call_once(|| {
        Target::initialize_x86(&InitializationConfig::default());
        Target::initialize_aarch64(&InitializationConfig::default());
        Target::initialize_nvptx(&InitializationConfig::default());
    });
    let system = if machine.is_gpu() { "nvidia-cuda" } else { "unknown-linux-gnu" };
    let triple = TargetTriple::create(&format!("{}-{system}", machine.architecture));
    let target = Target::from_triple(&triple).map_err(|e| LlvmError(e.to_string()))?;
    let level = match effort {
        Effort::Quick => OptimizationLevel::None,
        Effort::Full => OptimizationLevel::Default,
    };
    let options = TargetMachineOptions::new()
        .set_cpu(&machine.cpu)
        .set_features(&machine.features)
        .set_level(level)
        .set_reloc_mode(RelocMode::PIC)
        .set_code_model(CodeModel::Small);
    let made = target.create_target_machine_from_options(&triple, options);
    made.ok_or_else(|| LlvmError(format!("LLVM cannot make code for {}", machine.architecture)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A module with one function, which calls the named function of no parameters.
    fn calls<'c>(generator: &Generator, context: &'c Context, name: &str) -> Module<'c> {
        let module = context.create_module("test");
        generator.prepare(&module);
        let signature = context.i64_type().fn_type(&[], false);
        let callee = module.add_function(name, signature, None);
        let function = module.add_function("k", signature, None);
        let builder = context.create_builder();
        builder.position_at_end(context.append_basic_block(function, "entry"));
        let value = builder.build_call(callee, &[], "").expect("the builder is positioned");
        builder.build_return(value.try_as_basic_value().basic().as_ref().map(|v| v as _)).expect("as above");
        module
    }

    #[test]
    fn what_llvm_calls_fatal_is_an_error_of_that_module_alone() {
        let machine = Machine::with_features("x86_64", "", "");
        for effort in [Effort::Full, Effort::Quick] {
            let generator = Generator::for_machine(&machine, effort).expect("there is one");
            // An intrinsic of another machine cannot be selected.
            let refused = generator.object(|g, c| calls(g, c, "llvm.aarch64.tstart"));
            let why = refused.expect_err("there is no such instruction");
            assert!(why.0.contains("tstart"), "{why}");
            let generator = Generator::for_machine(&machine, effort).expect("there is one");
            let made = generator.object(|g, c| calls(g, c, "elsewhere"));
            assert!(made.is_ok());
        }
    }
}
