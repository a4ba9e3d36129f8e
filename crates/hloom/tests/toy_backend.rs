//! A third backend: it prints what a machine would be told instead of running it. It is here to show how little stands
//! behind the seam, and it goes the same way as the others: `Client::compile`, `execute`.

use hloom::compiler::{Backend, Code, CompileError, CompileOptions, CompileReport, CompiledModule, Emit};
use hloom::ir::shape::ArrayShape;
use hloom::ir::verify::VerifiedModule;
use hloom::passes::{PipelineStep, TargetInfo};
use hloom::runtime::memory::{Allocator, MemoryStatistics};
use hloom::runtime::{Buffer, Client, DeviceDescription, ExecuteOptions, LoadedExecutable, check_arguments};
use hloom::target::Target;
use hloom::value::{Array, ExecutionError};
use std::sync::{Arc, Mutex};

/// Compiles to a list of opcodes.
#[derive(Debug)]
struct ToyBackend(Target);

#[derive(Debug)]
struct ToyCode(Vec<String>);

impl Code for ToyCode {
    fn emit(&self, _: &VerifiedModule, form: Emit) -> Option<String> {
        (form == Emit::Thunks).then(|| self.0.join("\n"))
    }
    fn serialize(&self) -> Option<Vec<u8>> {
        Some(self.0.join("\n").into_bytes())
    }
}

impl Backend for ToyBackend {
    fn name(&self) -> &'static str {
        "toy"
    }
    fn info(&self) -> &dyn TargetInfo {
        &self.0
    }
    fn pipeline(&self) -> &[PipelineStep] {
        &[PipelineStep::Fixpoint(2, &["simplify", "cse", "dce"]), PipelineStep::Once("schedule")]
    }
    fn generate(
        &self,
        scheduled: &Arc<VerifiedModule>,
        _: &CompileOptions,
        _: &mut CompileReport,
    ) -> Result<Arc<dyn Code>, CompileError> {
        let module = scheduled.module();
        let entry = module.entry().ok_or_else(|| CompileError::bug("toy", "a verified module has an entry"))?;
        let line = |i: &hloom::ir::InstructionId| format!("{} {}", module[*i].opcode(), module[*i].name());
        Ok(Arc::new(ToyCode(module[entry].instructions().iter().map(line).collect())))
    }
    fn version(&self) -> String {
        "1".into()
    }
    fn machine(&self) -> Vec<String> {
        Vec::new()
    }
    fn deserialize(
        &self,
        scheduled: &Arc<VerifiedModule>,
        options: &CompileOptions,
        _: &[u8],
        report: &mut CompileReport,
    ) -> Result<Arc<dyn Code>, CompileError> {
        self.generate(scheduled, options, report)
    }
}

/// Devices that print.
#[derive(Debug)]
struct ToyClient {
    backend: ToyBackend,
    allocator: Allocator,
    printed: Arc<Mutex<Vec<String>>>,
}

impl Client for ToyClient {
    fn backend(&self) -> &dyn Backend {
        &self.backend
    }
    fn device(&self, id: usize) -> DeviceDescription {
        DeviceDescription { id, kind: "toy".into() }
    }
    fn allocate(&self, _: usize, shape: ArrayShape, fill: &mut dyn FnMut(&mut [u8])) -> Result<Buffer, ExecutionError> {
        self.allocator.buffer(shape, fill)
    }
    fn load(&self, compiled: Arc<CompiledModule>) -> Result<Arc<dyn LoadedExecutable>, ExecutionError> {
        Ok(Arc::new(ToyExecutable { compiled, printed: self.printed.clone() }))
    }
    fn memory_statistics(&self, _: usize) -> MemoryStatistics {
        self.allocator.statistics()
    }
}

#[derive(Debug)]
struct ToyExecutable {
    compiled: Arc<CompiledModule>,
    printed: Arc<Mutex<Vec<String>>>,
}

impl LoadedExecutable for ToyExecutable {
    fn compiled(&self) -> &CompiledModule {
        &self.compiled
    }
    fn execute(
        &self,
        arguments: Vec<Vec<Buffer>>,
        options: &ExecuteOptions<'_>,
    ) -> Result<Vec<Vec<Buffer>>, ExecutionError> {
        check_arguments(&self.compiled, &arguments, &options.local_devices(&self.compiled))?;
        let code = self.compiled.code::<ToyCode>().ok_or_else(|| ExecutionError::bug("another's code"))?;
        self.printed.lock().expect("nobody panics with it").extend(code.0.iter().cloned());
        Ok(arguments)
    }
}

#[test]
fn a_backend_that_prints_goes_the_same_way_as_the_others() {
    let program = hloom::parse(
        "HloModule m
         ENTRY e {
           x = f32[3] parameter(0)
           n = f32[3] negate(x)
           again = f32[3] negate(n)
           ROOT y = f32[3] multiply(again, x)
         }",
    )
    .expect("it is valid");
    let client = ToyClient {
        backend: ToyBackend(Target::named("cpu").expect("it is described")),
        allocator: Allocator::new(0),
        printed: Arc::default(),
    };
    let options = CompileOptions::new(hloom::eval::DeviceGrid { replicas: 1, partitions: 1 });
    let executable = client.compile(&program, &options).expect("it compiles");
    let x = Array::new(&[3], &[1.0f32, 2.0, 3.0]).expect("three elements");
    let argument = client.upload(0, &x).expect("there is memory");
    executable.execute(vec![vec![argument]], &ExecuteOptions::default()).expect("it runs");
    // The two negations are gone: the passes for every machine ran.
    assert_eq!(*client.printed.lock().expect("as above"), ["parameter x", "multiply y"]);
    let file = hloom::compiler::file::save(client.backend(), executable.compiled(), &program).expect("it can be saved");
    let loaded = hloom::compiler::file::load(client.backend(), &file).expect("it can be loaded");
    assert_eq!(loaded.code.emit(&loaded.module, Emit::Thunks), Some("parameter x\nmultiply y".to_owned()));
    for damaged in [&file[..file.len() - 1], &file[..20], &[&file[..40], b"x", &file[41..]].concat()] {
        assert!(hloom::compiler::file::load(client.backend(), damaged).is_err());
    }
}
