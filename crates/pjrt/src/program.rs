//! Programs on their way in: the formats that callers write them in, and compiling them.

use crate::client::Client;
use crate::custom_partitioner::RegisteredPartitioners;
use crate::dump::ProgramDump;
use crate::ffi;
use crate::log;
use crate::options::CompileOptions;
use crate::shardings::Shardings;
use crate::status::{Code, Status};
use hloom_compiler::file;
use hloom_eval::DeviceGrid;
use hloom_formats::proto::{Container, write};
use hloom_ir::attributes::AliasKind;
use hloom_ir::diagnostic::{Diagnostic, Place};
use hloom_ir::module::Module;
use hloom_ir::verify::{VerifiedModule, VerifyOptions, verify};
use hloom_ir::{InstructionId, Shape};
use hloom_passes::entry_layouts::resolve_entry_layouts;
use hloom_runtime::LoadedExecutable;
use hloom_spmd::PropagationOptions;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A program as a caller wrote it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Source {
    /// `mlir`, `hlo` or `hlo_with_config`.
    pub format: String,
    /// The program.
    pub code: Vec<u8>,
    /// `CompileOptionsProto`.
    pub options: Vec<u8>,
}

/// The beginning of MLIR bytecode.
pub(crate) const BYTECODE: &[u8] = b"ML\xefR";

impl Source {
    /// The program in HLO.
    pub fn read(&self) -> Result<Module, Status> {
        match self.format.as_str() {
            "mlir" if self.code.starts_with(BYTECODE) => {
                Ok(hloom_stablehlo::to_hlo(&hloom_stablehlo::read_bytecode(&self.code)?)?)
            }
            "mlir" => Ok(hloom_stablehlo::to_hlo(&hloom_stablehlo::read_text(&self.code)?)?),
            "hlo" | "hlo_with_config" => {
                hloom_formats::proto::read(&self.code).map_err(|found| Status::from_diagnostics(&found))
            }
            other => Err(Status::unimplemented(format!("programs in the format {other:?} are not known"))),
        }
    }

    /// Text that is the same for the same program only, in every process.
    pub fn fingerprint(&self) -> String {
        let half = |seed: u64| {
            let mut hasher = rustc_hash::FxHasher::default();
            (seed, &self.format, &self.code, &self.options).hash(&mut hasher);
            hasher.finish()
        };
        format!("{:016x}{:016x}", half(1), half(0x9e37_79b9_7f4a_7c15))
    }

    const MAGIC: &[u8] = b"hloom executable 3\n";

    /// All of it, and what was compiled of it, in one sequence of bytes.
    pub fn serialize(&self, saved: &Saved) -> Vec<u8> {
        let mut bytes = Self::MAGIC.to_vec();
        for part in [self.format.as_bytes(), &self.code, &self.options, saved.identity.as_bytes(), &saved.compiled] {
            bytes.extend((part.len() as u64).to_le_bytes());
            bytes.extend(part);
        }
        bytes
    }

    /// What [`Source::serialize`] wrote: the program, and what was compiled of it.
    pub fn deserialize(bytes: &[u8]) -> Result<(Source, Saved), Status> {
        let mut rest = bytes.strip_prefix(Self::MAGIC).ok_or_else(|| Status::invalid("not an executable of hloom"))?;
        let mut part = || {
            let (len, after) = rest.split_first_chunk::<8>()?;
            let (part, after) = after.split_at_checked(usize::try_from(u64::from_le_bytes(*len)).ok()?)?;
            rest = after;
            Some(part.to_vec())
        };
        let mut next = || part().ok_or_else(|| Status::new(Code::DataLoss, "the executable ends in its middle"));
        let format = String::from_utf8_lossy(&next()?).into_owned();
        let source = Source { format, code: next()?, options: next()? };
        let identity = String::from_utf8_lossy(&next()?).into_owned();
        Ok((source, Saved { identity, compiled: next()? }))
    }
}

/// What is saved of a program beside its source.
pub struct Saved {
    /// The text of [`identity`] for the module that was compiled, with all that the options made of it.
    identity: String,
    /// The compiled module.
    compiled: Vec<u8>,
}

/// Text that is the same only for equal modules that are compiled in the same way: what options make of the program is in
/// the module, or said beside it.
fn identity(module: &VerifiedModule, options: &CompileOptions) -> Result<String, Status> {
    let bytes = write(module.module(), Container::Module).map_err(|found| located(&found, module.module()))?;
    let half = |seed: u64| {
        let mut hasher = rustc_hash::FxHasher::default();
        let how = (options.replicas, options.partitions, options.excess_precision);
        (seed, how, &bytes).hash(&mut hasher);
        hasher.finish()
    };
    Ok(format!("{:016x}{:016x}", half(3), half(0x9e37_79b9_7f4a_7c15)))
}

/// An argument of a program.
pub struct Parameter {
    /// Its shape on one device.
    pub shape: Shape,
    /// Whether a run takes its memory.
    pub donated: bool,
}

/// A program that is ready to run.
pub struct Program {
    /// Where it runs.
    pub client: Client,
    /// As it was given.
    pub source: Source,
    /// The program as it was understood.
    pub module: VerifiedModule,
    /// How it was compiled.
    pub options: CompileOptions,
    /// How arguments and results are spread over the devices.
    pub shardings: (Shardings, Shardings),
    /// The custom calls that the caller provides.
    pub custom_calls: Arc<ffi::ProgramCalls>,
    /// Whether it calls code of this very process, by a number that means nothing in another.
    pub is_bound_to_process: bool,
    /// What runs.
    pub executable: Arc<dyn LoadedExecutable>,
    /// Its arguments.
    pub parameters: Vec<Parameter>,
    /// Whether a run takes the memory of any of them.
    pub donates: bool,
    /// The shapes of its results on one device.
    pub outputs: Vec<Shape>,
    /// Whether the sizes of the results are known before a run.
    pub fixed_shapes: bool,
    /// Text that is the same for the same program only.
    pub fingerprint: String,
    /// Where what is made of it is written, where that is asked for.
    pub dump: Option<ProgramDump>,
}

impl Program {
    /// Which of its devices are in this process.
    pub fn local_ordinals(&self) -> Vec<usize> {
        let is_here = |&i: &usize| self.client.local.contains(&self.options.devices[i]);
        (0..self.options.devices.len()).filter(is_here).collect()
    }

    /// Compiles a program.
    pub fn compile(client: &Client, source: Source) -> Result<Program, Status> {
        Program::new(client, source, None)
    }

    /// A program of which something was saved; it is compiled anew if that cannot be used here, which is said.
    pub fn load(client: &Client, source: Source, saved: &Saved) -> Result<Program, Status> {
        Program::new(client, source, Some(saved))
    }

    /// The bytes from which it is loaded.
    pub fn save(&self) -> Result<Vec<u8>, Status> {
        let saved = file::save(self.client.runtime.backend(), self.executable.compiled(), &self.module);
        let compiled = saved.map_err(|e| located(&e.into_diagnostics(self.module.module()), self.module.module()))?;
        let identity = identity(&self.module, &self.options)?;
        Ok(self.source.serialize(&Saved { identity, compiled }))
    }

    fn new(client: &Client, source: Source, saved: Option<&Saved>) -> Result<Program, Status> {
        let options = CompileOptions::decode(&source.options, client.devices.len())?;
        if options.tupled_arguments {
            return Err(Status::unimplemented("arguments that come as one tuple are not supported"));
        }
        let mut module = source.read()?;
        options.apply_layouts(&mut module)?;
        resolve_entry_layouts(&mut module);
        module.config.replica_count = options.replicas as i64;
        module.config.num_partitions = options.partitions as i64;
        let outputs = signature(&module).1.len();
        let shardings = match options.partitions {
            1 => Shardings::of(&module, outputs),
            _ => partition(&mut module, &options)?,
        };
        let devices = i64::try_from(options.devices.len()).ok();
        let module = verify(module, &VerifyOptions { devices })
            .map_err(|invalid| located(&invalid.diagnostics, &invalid.module))?;
        let grid = DeviceGrid { replicas: options.replicas, partitions: options.partitions };
        let dump = ProgramDump::begin(&module.module().name, &options.dump);
        if let Some(dump) = &dump {
            dump.before(&source, module.module());
        }
        let restored = saved.map(|saved| restore(client, &module, &options, saved));
        if let Some(Err(why)) = &restored {
            log::note(&format!(
                "the saved executable of {} is not used, and compiled anew: {why}",
                module.module().name
            ));
        }
        let executable = match restored {
            Some(Ok(executable)) => executable,
            _ => {
                let compile_options = hloom_compiler::CompileOptions {
                    excess_precision: options.excess_precision,
                    ..hloom_compiler::CompileOptions::new(grid)
                };
                let compiled = client.runtime.compile(&module, &compile_options);
                compiled.map_err(|e| located(&e.into_diagnostics(module.module()), module.module()))?
            }
        };
        if let Some(dump) = &dump {
            dump.after(client.runtime.backend(), &module, executable.compiled());
        }
        let (mut parameters, mut outputs) = signature(module.module());
        // The compiler may have chosen layouts.
        let compiled = executable.compiled();
        let layouts = compiled.parameters.iter().map(|(_, shape)| shape).chain(&compiled.results);
        let shapes = parameters.iter_mut().map(|p| &mut p.shape).chain(&mut outputs);
        for (shape, laid_out) in shapes.zip(layouts).filter(|(shape, other)| shape.equal_ignoring_layout(other)) {
            *shape = laid_out.clone();
        }
        let fingerprint = source.fingerprint();
        let targets = ffi::targets(module.module());
        ffi::all_provided(compiled.module.module(), &targets)
            .map_err(|missing| located(&[missing], compiled.module.module()))?;
        let is_bound_to_process = targets.iter().any(|t| ffi::is_bound_to_process(t));
        let custom_calls = Arc::new(ffi::ProgramCalls::new(targets, compiled.module.module()));
        let is_fixed = |shape: &Shape| shape.as_array().is_none_or(|a| (0..a.rank()).all(|d| !a.is_dynamic_dim(d)));
        Ok(Program {
            donates: parameters.iter().any(|p| p.donated),
            fixed_shapes: outputs.iter().all(is_fixed),
            client: client.clone(),
            source,
            module,
            options,
            executable,
            parameters,
            outputs,
            is_bound_to_process,
            custom_calls,
            shardings,
            fingerprint,
            dump,
        })
    }

    /// The name of the module.
    pub fn name(&self) -> &str {
        &self.module.module().name
    }
}

/// What was saved, ready to run, if it was compiled of that module with those options; otherwise why not.
fn restore(
    client: &Client,
    module: &VerifiedModule,
    options: &CompileOptions,
    saved: &Saved,
) -> Result<Arc<dyn LoadedExecutable>, String> {
    if identity(module, options).map_err(|status| status.message)? != saved.identity {
        return Err("it was compiled with other options".to_owned());
    }
    let compiled = file::load(client.runtime.backend(), &saved.compiled).map_err(|refused| refused.reason)?;
    client.runtime.load(Arc::new(compiled)).map_err(|error| error.into_diagnostic().message)
}

/// Makes the program of one device of a program over whole arrays; returns how its arguments and results lie.
fn partition(module: &mut Module, options: &CompileOptions) -> Result<(Shardings, Shardings), Status> {
    let mut propagation = PropagationOptions::default();
    if !options.open_results.is_empty() {
        propagation.allow_propagation_to_output = options.open_results.clone();
    }
    if !options.open_parameters.is_empty() {
        propagation.allow_propagation_to_parameters = options.open_parameters.clone();
    }
    hloom_spmd::propagate(module, &propagation).map_err(|found| located(&found, module))?;
    let partitioned = hloom_spmd::partition_with(module, options.partitions as i64, &RegisteredPartitioners);
    let partitioned = partitioned.map_err(|found| located(&[found], module))?;
    let axes = &partitioned.axes;
    let parameters = partitioned.parameters.iter().flatten().map(|spec| spec.to_sharding(axes));
    let results = partitioned.results.iter().map(|spec| spec.to_sharding(axes));
    let shardings = (Shardings::of_kinds(parameters), Shardings::of_kinds(results));
    *module = partitioned.module;
    Ok(shardings)
}

/// The arguments and results of a program.
fn signature(module: &Module) -> (Vec<Parameter>, Vec<Shape>) {
    let Some(entry) = module.entry() else { return (Vec::new(), Vec::new()) };
    let shapes: Vec<Shape> = module.parameters(entry).iter().map(|&p| module[p].shape.clone()).collect();
    let outputs = match module.root(entry).map(|root| &module[root].shape) {
        Some(Shape::Tuple(elements)) => elements.to_vec(),
        Some(shape) => vec![shape.clone()],
        None => Vec::new(),
    };
    let donated = donated(module, &shapes, &outputs);
    let parameter = |(shape, donated)| Parameter { shape, donated };
    (shapes.into_iter().zip(donated).map(parameter).collect(), outputs)
}

/// Which parameters give up their memory: those that share it with a result, and those that may give it to any result if
/// there is one of their size that has none yet.
fn donated(module: &Module, parameters: &[Shape], outputs: &[Shape]) -> Vec<bool> {
    let mut donated = vec![false; parameters.len()];
    let mut taken = vec![false; outputs.len()];
    for alias in &module.config.input_output_alias {
        let output = match &alias.output_index[..] {
            [] => Some(0),
            [n, ..] => usize::try_from(*n).ok(),
        };
        let Some(output) = output.filter(|&o| o < outputs.len()) else { continue };
        if let Some(donated) = usize::try_from(alias.parameter).ok().and_then(|p| donated.get_mut(p)) {
            *donated = matches!(alias.kind, AliasKind::May | AliasKind::Must);
            taken[output] = true;
        }
    }
    for donor in &module.config.buffer_donors {
        let Some(p) = usize::try_from(donor.parameter).ok().filter(|&p| p < parameters.len()) else { continue };
        let size = parameters[p].byte_size();
        let fitting = (0..outputs.len()).find(|&o| !taken[o] && outputs[o].byte_size() == size);
        if let Some(output) = fitting.filter(|_| !donated[p]) {
            donated[p] = true;
            taken[output] = true;
        }
    }
    donated
}

/// The findings, with the place in the source program where the first of them is.
pub(crate) fn located(found: &[Diagnostic], module: &Module) -> Status {
    let mut status = Status::from_diagnostics(found);
    if let Some(Place::Instruction(id, _)) = found.first().map(|d| &d.place) {
        status.message.push_str(&place(module, *id));
    }
    status
}

/// Where an instruction comes from.
fn place(module: &Module, id: InstructionId) -> String {
    let instruction = &module[id];
    let mut text = format!("\nat {}", instruction.name());
    if let Some(metadata) = &instruction.common.metadata {
        if !metadata.op_name.is_empty() {
            text.push_str(&format!(", {}", metadata.op_name));
        }
        if !metadata.source_file.is_empty() {
            text.push_str(&format!(", {}:{}", metadata.source_file, metadata.source_line));
        }
    }
    text
}
