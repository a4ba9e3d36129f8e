//! Executables: what a caller may ask of a compiled program.

use crate::abi::{
    ClientCompileArgs, ClientLoadArgs, CompileArgs, ExecutableDeserializeAndLoadArgs, ExecutableDestroyArgs,
    ExecutableFingerprintArgs, ExecutableGetCompileOptionsArgs, ExecutableGetCompiledMemoryStatsArgs,
    ExecutableGetCostAnalysisArgs, ExecutableNameArgs, ExecutableNumOutputsArgs, ExecutableNumPartitionsArgs,
    ExecutableNumReplicasArgs, ExecutableOptimizedProgramArgs, ExecutableOutputDimensionsArgs,
    ExecutableOutputElementTypesArgs, ExecutableOutputMemoryKindsArgs, ExecutableParameterMemoryKindsArgs,
    ExecutableSerializeArgs, ExecutableSizeOfGeneratedCodeInBytesArgs, Handle,
    LoadedExecutableAddressableDeviceLogicalIdsArgs, LoadedExecutableAddressableDevicesArgs,
    LoadedExecutableDeleteArgs, LoadedExecutableDestroyArgs, LoadedExecutableFingerprintArgs,
    LoadedExecutableGetDeviceAssignmentArgs, LoadedExecutableGetExecutableArgs, LoadedExecutableIsDeletedArgs,
    LogicalDeviceIds, NamedValues, OptionValue, Program as CProgram, read, slice,
};
use crate::device::Device;
use crate::element_type;
use crate::layouts::Layout;
use crate::memory::KINDS;
use crate::program::{Program, Source};
use crate::status::{Code, Status};
use crate::topology::give_bytes;
use hloom_analysis::cost::cost;
use hloom_formats::proto::{Container, write};
use hloom_ir::Shape;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// A compiled program, and lists about it that callers keep pointers into.
pub struct Compiled {
    /// The program.
    pub program: Program,
    output_types: Vec<i32>,
    output_dims: Vec<i64>,
    output_ranks: Vec<usize>,
    memory_kinds: Vec<*const u8>,
    memory_kind_sizes: Vec<usize>,
    pub(crate) parameter_layouts: Vec<Handle<Layout>>,
    pub(crate) output_layouts: Vec<Handle<Layout>>,
    _layouts: Vec<Layout>,
    cost: OnceLock<NamedValues>,
}

// SAFETY: the pointers are to constants and to what is kept beside them, and never changed.
unsafe impl Send for Compiled {}
// SAFETY: likewise.
unsafe impl Sync for Compiled {}

impl Compiled {
    fn new(program: Program) -> Compiled {
        let arrays = |shape: &Shape| match shape.as_array() {
            Some(a) => (element_type::number(a.element_type), a.dims().to_vec()),
            None => (element_type::TOKEN, Vec::new()),
        };
        let outputs: Vec<_> = program.outputs.iter().map(arrays).collect();
        let most = program.outputs.len().max(program.parameters.len());
        let layouts: Vec<Layout> =
            program.parameters.iter().map(|p| &p.shape).chain(&program.outputs).map(Layout::of).collect();
        let (of_parameters, of_outputs) = layouts.split_at(program.parameters.len());
        Compiled {
            output_types: outputs.iter().map(|o| o.0).collect(),
            output_dims: outputs.iter().flat_map(|o| o.1.iter().copied()).collect(),
            output_ranks: outputs.iter().map(|o| o.1.len()).collect(),
            memory_kinds: vec![KINDS[0].as_ptr(); most],
            memory_kind_sizes: vec![KINDS[0].len(); most],
            parameter_layouts: of_parameters.iter().map(Handle::lend).collect(),
            output_layouts: of_outputs.iter().map(Handle::lend).collect(),
            _layouts: layouts,
            cost: OnceLock::new(),
            program,
        }
    }

    fn cost(&self) -> &NamedValues {
        self.cost.get_or_init(|| {
            let total = cost(&self.program.module).total;
            let value = |name: &str, n: u64| (name.to_owned(), OptionValue::Float(n as f32));
            NamedValues::new(vec![
                value("flops", total.flops),
                value("transcendentals", total.transcendentals),
                value("bytes accessed", total.bytes),
            ])
        })
    }

    /// `HloModuleProtoWithConfig` of the program as it runs.
    fn optimized(&self) -> Result<Vec<u8>, Status> {
        let module = self.program.executable.compiled().module.module();
        write(module, Container::WithConfig).map_err(|found| Status::from_diagnostics(&found))
    }
}

/// A program that can be asked about.
pub struct Executable(pub(crate) Arc<Compiled>);

/// A program that can be run.
pub struct LoadedExecutable {
    pub(crate) compiled: Arc<Compiled>,
    deleted: AtomicBool,
    devices: Vec<Handle<Device>>,
    logical_ids: Vec<LogicalDeviceIds>,
}

// SAFETY: the handles are to devices of the program's client, which lives as long.
unsafe impl Send for LoadedExecutable {}
// SAFETY: likewise.
unsafe impl Sync for LoadedExecutable {}

impl LoadedExecutable {
    /// A program that can be run.
    pub fn new(program: Program) -> LoadedExecutable {
        let options = &program.options;
        let local = program.local_ordinals();
        let devices = local.iter().map(|&i| program.client.device(options.devices[i])).collect();
        let ids = local.into_iter().map(|i| LogicalDeviceIds {
            replica: (i / options.partitions) as i32,
            partition: (i % options.partitions) as i32,
        });
        let logical_ids = ids.collect();
        LoadedExecutable {
            deleted: AtomicBool::new(false),
            devices,
            logical_ids,
            compiled: Arc::new(Compiled::new(program)),
        }
    }

    /// The program, unless deleted.
    pub fn program(&self) -> Result<&Program, Status> {
        match self.deleted.load(Ordering::Acquire) {
            false => Ok(&self.compiled.program),
            true => Err(Status::invalid("the executable has been deleted")),
        }
    }
}

fn source(program: *const CProgram, options: *const u8, options_size: usize) -> Result<Source, Status> {
    // SAFETY: the caller's program and options.
    unsafe {
        let program = read(program).ok_or_else(|| Status::invalid("the program is a null pointer"))?;
        Ok(Source {
            format: String::from_utf8_lossy(slice(program.format, program.format_size)).into_owned(),
            code: slice(program.code, program.code_size).to_vec(),
            options: slice(options, options_size).to_vec(),
        })
    }
}

pub(crate) fn compile(args: &mut ClientCompileArgs) -> Result<(), Status> {
    let client = args.client.get()?;
    let source = source(args.program, args.compile_options, args.compile_options_size)?;
    args.executable = Handle::give(LoadedExecutable::new(Program::compile(client, source)?));
    Ok(())
}

pub(crate) fn compile_for_topology(args: &mut CompileArgs) -> Result<(), Status> {
    let client = args.client.get().map_err(|_| Status::unimplemented("compiling needs a client here"))?;
    let source = source(args.program, args.compile_options, args.compile_options_size)?;
    args.executable = Handle::give(Executable(Arc::new(Compiled::new(Program::compile(client, source)?))));
    Ok(())
}

pub(crate) fn deserialize(args: &mut ExecutableDeserializeAndLoadArgs) -> Result<(), Status> {
    let client = args.client.get()?;
    // SAFETY: the caller's bytes.
    let (bytes, options) = unsafe {
        (
            slice(args.serialized_executable, args.serialized_executable_size),
            slice(args.overridden_serialized_compile_options, args.overridden_serialized_compile_options_size),
        )
    };
    let (mut source, compiled) = Source::deserialize(bytes)?;
    if !options.is_empty() {
        source.options = options.to_vec();
    }
    args.loaded_executable = Handle::give(LoadedExecutable::new(Program::load(client, source, &compiled)?));
    Ok(())
}

pub(crate) fn serialize(args: &mut ExecutableSerializeArgs) -> Result<(), Status> {
    let program = &args.executable.get()?.0.program;
    if program.is_bound_to_process {
        return Err(Status::unimplemented("the program calls back into this process, and means nothing in another"));
    }
    let (bytes, size, object, deleter) = give_bytes(program.save()?);
    (args.serialized_bytes, args.serialized_bytes_size) = (bytes, size);
    (args.serialized_executable, args.serialized_executable_deleter) = (object, deleter);
    Ok(())
}

pub(crate) fn destroy(args: &mut ExecutableDestroyArgs) -> Result<(), Status> {
    drop(args.executable.take());
    Ok(())
}

pub(crate) fn destroy_loaded(args: &mut LoadedExecutableDestroyArgs) -> Result<(), Status> {
    drop(args.executable.take());
    Ok(())
}

pub(crate) fn get_executable(args: &mut LoadedExecutableGetExecutableArgs) -> Result<(), Status> {
    args.executable = Handle::give(Executable(args.loaded_executable.get()?.compiled.clone()));
    Ok(())
}

pub(crate) fn device_assignment(args: &mut LoadedExecutableGetDeviceAssignmentArgs) -> Result<(), Status> {
    let assignment = args.executable.get()?.compiled.program.options.assignment();
    let (bytes, size, object, deleter) = give_bytes(assignment);
    (args.serialized_bytes, args.serialized_bytes_size) = (bytes, size);
    (args.serialized_device_assignment, args.serialized_device_assignment_deleter) = (object, deleter);
    Ok(())
}

pub(crate) fn addressable_devices(args: &mut LoadedExecutableAddressableDevicesArgs) -> Result<(), Status> {
    let devices = &args.executable.get()?.devices;
    (args.addressable_devices, args.num_addressable_devices) = (devices.as_ptr().cast_mut(), devices.len());
    Ok(())
}

pub(crate) fn logical_ids(args: &mut LoadedExecutableAddressableDeviceLogicalIdsArgs) -> Result<(), Status> {
    let ids = &args.executable.get()?.logical_ids;
    args.addressable_device_logical_ids = ids.as_ptr().cast_mut();
    args.num_addressable_device_logical_ids = ids.len();
    Ok(())
}

pub(crate) fn delete(args: &mut LoadedExecutableDeleteArgs) -> Result<(), Status> {
    args.executable.get()?.deleted.store(true, Ordering::Release);
    Ok(())
}

pub(crate) fn is_deleted(args: &mut LoadedExecutableIsDeletedArgs) -> Result<(), Status> {
    args.is_deleted = u8::from(args.executable.get()?.deleted.load(Ordering::Acquire));
    Ok(())
}

pub(crate) fn loaded_fingerprint(args: &mut LoadedExecutableFingerprintArgs) -> Result<(), Status> {
    let text = &args.executable.get()?.compiled.program.fingerprint;
    (args.executable_fingerprint, args.executable_fingerprint_size) = (text.as_ptr(), text.len());
    Ok(())
}

pub(crate) fn fingerprint(args: &mut ExecutableFingerprintArgs) -> Result<(), Status> {
    let text = &args.executable.get()?.0.program.fingerprint;
    (args.executable_fingerprint, args.executable_fingerprint_size) = (text.as_ptr(), text.len());
    Ok(())
}

pub(crate) fn name(args: &mut ExecutableNameArgs) -> Result<(), Status> {
    let name = args.executable.get()?.0.program.name();
    (args.executable_name, args.executable_name_size) = (name.as_ptr(), name.len());
    Ok(())
}

pub(crate) fn num_replicas(args: &mut ExecutableNumReplicasArgs) -> Result<(), Status> {
    args.num_replicas = args.executable.get()?.0.program.options.replicas;
    Ok(())
}

pub(crate) fn num_partitions(args: &mut ExecutableNumPartitionsArgs) -> Result<(), Status> {
    args.num_partitions = args.executable.get()?.0.program.options.partitions;
    Ok(())
}

pub(crate) fn num_outputs(args: &mut ExecutableNumOutputsArgs) -> Result<(), Status> {
    args.num_outputs = args.executable.get()?.0.program.outputs.len();
    Ok(())
}

pub(crate) fn code_size(args: &mut ExecutableSizeOfGeneratedCodeInBytesArgs) -> Result<(), Status> {
    args.executable.get()?;
    args.size_in_bytes = 0;
    Ok(())
}

pub(crate) fn cost_analysis(args: &mut ExecutableGetCostAnalysisArgs) -> Result<(), Status> {
    let cost = args.executable.get()?.0.cost();
    (args.properties, args.num_properties) = (cost.as_ptr(), cost.len());
    Ok(())
}

pub(crate) fn memory_stats(args: &mut ExecutableGetCompiledMemoryStatsArgs) -> Result<(), Status> {
    let program = &args.executable.get()?.0.program;
    let sum = |shapes: &mut dyn Iterator<Item = &Shape>| shapes.filter_map(Shape::byte_size).sum::<i64>();
    args.generated_code_size_in_bytes = 0;
    args.argument_size_in_bytes = sum(&mut program.parameters.iter().map(|p| &p.shape));
    args.output_size_in_bytes = sum(&mut program.outputs.iter());
    args.alias_size_in_bytes = sum(&mut program.parameters.iter().filter(|p| p.donated).map(|p| &p.shape));
    args.temp_size_in_bytes = program.executable.compiled().report.temp_bytes as i64;
    args.host_generated_code_size_in_bytes = 0;
    args.host_argument_size_in_bytes = 0;
    args.host_output_size_in_bytes = 0;
    args.host_alias_size_in_bytes = 0;
    args.host_temp_size_in_bytes = 0;
    let total =
        args.argument_size_in_bytes + args.output_size_in_bytes + args.temp_size_in_bytes - args.alias_size_in_bytes;
    args.peak_memory_in_bytes = total;
    args.total_size_in_bytes = total;
    args.total_allocation_bytes = total;
    args.indefinite_allocations = 0;
    args.peak_unpadded_heap_bytes = total;
    Ok(())
}

pub(crate) fn output_element_types(args: &mut ExecutableOutputElementTypesArgs) -> Result<(), Status> {
    let types = &args.executable.get()?.0.output_types;
    (args.output_types, args.num_output_types) = (types.as_ptr().cast_mut(), types.len());
    Ok(())
}

pub(crate) fn output_dimensions(args: &mut ExecutableOutputDimensionsArgs) -> Result<(), Status> {
    let compiled = &args.executable.get()?.0;
    args.num_outputs = compiled.output_ranks.len();
    args.dims = compiled.output_dims.as_ptr();
    args.dim_sizes = compiled.output_ranks.as_ptr().cast_mut();
    Ok(())
}

pub(crate) fn output_memory_kinds(args: &mut ExecutableOutputMemoryKindsArgs) -> Result<(), Status> {
    let compiled = &args.executable.get()?.0;
    args.num_outputs = compiled.program.outputs.len();
    args.memory_kinds = compiled.memory_kinds.as_ptr().cast_mut();
    args.memory_kind_sizes = compiled.memory_kind_sizes.as_ptr().cast_mut();
    Ok(())
}

pub(crate) fn parameter_memory_kinds(args: &mut ExecutableParameterMemoryKindsArgs) -> Result<(), Status> {
    let compiled = &args.executable.get()?.0;
    args.num_parameters = compiled.program.parameters.len();
    args.memory_kinds = compiled.memory_kinds.as_ptr().cast_mut();
    args.memory_kind_sizes = compiled.memory_kind_sizes.as_ptr().cast_mut();
    Ok(())
}

/// Called twice: for the size, then with room for the program.
pub(crate) fn optimized_program(args: &mut ExecutableOptimizedProgramArgs) -> Result<(), Status> {
    const FORMAT: &str = "hlo_with_config";
    let compiled = &args.executable.get()?.0;
    if args.program.is_null() {
        return Err(Status::invalid("there is nowhere to write the program to"));
    }
    let bytes = compiled.optimized()?;
    // SAFETY: the caller's struct, of which all fields have been there since the beginning.
    let program = unsafe { &mut *args.program };
    (program.format, program.format_size) = (FORMAT.as_ptr(), FORMAT.len());
    if program.code.is_null() {
        program.code_size = bytes.len();
        return Ok(());
    }
    if program.code_size < bytes.len() {
        return Err(Status::new(Code::InvalidArgument, format!("the program takes {} bytes", bytes.len())));
    }
    // SAFETY: the caller's room of that size.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), program.code.cast_mut(), bytes.len()) };
    program.code_size = bytes.len();
    Ok(())
}

/// The program, made ready to run on the devices that the options name.
pub(crate) fn load(args: &mut ClientLoadArgs) -> Result<(), Status> {
    let client = args.client.get()?;
    let compiled = &args.executable.get()?.0;
    // SAFETY: the caller's bytes.
    let options = unsafe { slice(args.compile_options, args.compile_options_size) };
    let source = &compiled.program.source;
    let options = if options.is_empty() { source.options.clone() } else { options.to_vec() };
    let source = Source { options, ..source.clone() };
    args.loaded_executable = Handle::give(LoadedExecutable::new(Program::compile(client, source)?));
    Ok(())
}

pub(crate) fn compile_options(args: &mut ExecutableGetCompileOptionsArgs) -> Result<(), Status> {
    let options = args.executable.get()?.0.program.source.options.clone();
    let (bytes, size, object, deleter) = give_bytes(options);
    (args.serialized_bytes, args.serialized_bytes_size) = (bytes, size);
    (args.serialized_compile_options, args.serialized_compile_options_deleter) = (object, deleter);
    Ok(())
}
