//! Running a verified program in this process.

use crate::engine::Engine;
use hloom_analysis::devices::{DeviceGrid, ImpliedDevices, grid_of, implied_devices};
use hloom_compiler::{CompileError, CompileOptions, CompiledModule};
use hloom_ir::diagnostic::{Blame, Diagnostic, Place, codes::eval as codes};
use hloom_ir::module::Module;
use hloom_ir::shape::Shape;
use hloom_ir::verify::VerifiedModule;
use hloom_runtime::{Buffer, Client, ExecuteOptions, assemble};
use hloom_value::{Array, ExecutionError, Value};

/// The devices that a program runs on, and why.
#[derive(Clone, Debug)]
pub struct DeviceChoice {
    /// The devices.
    pub grid: DeviceGrid,
    /// Why these, where neither the program's header nor the caller said so.
    pub reason: Option<String>,
}

/// No more devices than this are made.
const MAX_DEVICES: usize = 4096;

/// The devices that a program runs on: those that its header names, else `devices`, else as many as the program's
/// collectives name or as the input has arrays for (`in_input`). A number of devices that is not the header's is an error.
pub fn choose_devices(
    module: &Module,
    devices: Option<usize>,
    in_input: Option<usize>,
) -> Result<DeviceChoice, Diagnostic> {
    let count = |n: i64| usize::try_from(n).unwrap_or(1).max(1);
    let (replicas, partitions) = (count(module.config.replica_count), count(module.config.num_partitions));
    let named = DeviceGrid { replicas, partitions };
    let disagree = |message: String| Diagnostic::error(&codes::DEVICE_COUNT, message).at_place(Place::Header);
    let chosen = |grid| Ok(DeviceChoice { grid, reason: None });
    match devices {
        Some(n) if named.devices() > 1 && n != named.devices() => Err(disagree(format!(
            "the program is for {replicas} replicas × {partitions} partitions, which does not make {n} devices"
        ))),
        _ if replicas.saturating_mul(partitions) > MAX_DEVICES => Err(disagree(format!(
            "the program is for {replicas} replicas × {partitions} partitions; at most {MAX_DEVICES} devices are made"
        ))),
        _ if named.devices() > 1 => chosen(named),
        Some(n) => chosen(grid_of(module, n)),
        None => implied(module, in_input, disagree),
    }
}

/// The devices of a program of which nobody said how many it is for.
fn implied(
    module: &Module,
    in_input: Option<usize>,
    disagree: impl Fn(String) -> Diagnostic,
) -> Result<DeviceChoice, Diagnostic> {
    let by_program = implied_devices(module);
    let program = by_program.map_or(1, |i| i.grid.devices());
    let name = |i: &ImpliedDevices| module[i.named_by].name().to_owned();
    if let (Some(implied), Some(input)) = (&by_program, in_input.filter(|&n| n > program)) {
        return Err(disagree(format!(
            "`{}` names {program} devices, but the input has arrays for {input}",
            name(implied)
        ))
        .help("say how many it is for with --devices"));
    }
    if program > MAX_DEVICES {
        let who = by_program.as_ref().map_or_else(String::new, name);
        return Err(disagree(format!("`{who}` names {program} devices")).help("say how many it is for with --devices"));
    }
    match (by_program, in_input.filter(|&n| n > 1)) {
        (Some(implied), _) => {
            let reason = format!("running on {program} devices, as `{}` names them", name(&implied));
            Ok(DeviceChoice { grid: implied.grid, reason: Some(reason) })
        }
        (None, Some(n)) => {
            let reason = format!("running on {n} devices, as the input has arrays for them");
            Ok(DeviceChoice { grid: grid_of(module, n), reason: Some(reason) })
        }
        (None, None) => Ok(DeviceChoice { grid: DeviceGrid { replicas: 1, partitions: 1 }, reason: None }),
    }
}

/// Compiles a program for this machine and runs it: `arguments` are the same on every device, all results come back, one
/// list of leaves per device.
pub fn run(
    program: &VerifiedModule,
    arguments: impl IntoIterator<Item = Array>,
) -> Result<Vec<Vec<Array>>, Diagnostic> {
    let grid = choose_devices(program.module(), None, None)?.grid;
    let arguments: Vec<Value> = arguments.into_iter().map(Value::Array).collect();
    let client = Engine::Cpu.client(None).map_err(|e| first(e, program))?;
    let results = run_on(&*client, program, &CompileOptions::new(grid), vec![arguments; grid.devices()])?;
    let arrays = |result: Value| {
        result.leaves().into_iter().filter_map(|leaf| leaf.as_array().ok().cloned()).collect::<Vec<_>>()
    };
    Ok(results.into_iter().map(arrays).collect())
}

/// Compiles a program for a client's devices and runs it once, with `inputs[d]` the arguments of device `d`.
pub fn run_on(
    client: &dyn Client,
    program: &VerifiedModule,
    options: &CompileOptions,
    inputs: Vec<Vec<Value>>,
) -> Result<Vec<Value>, Diagnostic> {
    let executable = client.compile(program, options).map_err(|e| first(e, program))?;
    let failed = |e: ExecutionError| executable.compiled().explain(e, program.module()).into_diagnostic();
    let arguments = upload(client, executable.compiled(), inputs).map_err(failed)?;
    let results = executable.execute(arguments, &ExecuteOptions::default()).map_err(failed)?;
    download(program.module(), results).map_err(failed)
}

fn first(error: CompileError, program: &VerifiedModule) -> Diagnostic {
    let unknown = || Diagnostic::error(&codes::INTERNAL, "the compiler failed without a word").blame(Blame::Hloom);
    error.into_diagnostics(program.module()).into_iter().next().unwrap_or_else(unknown)
}

/// The arguments of a program on the devices, laid out as it takes them: what devices share in `inputs` they share
/// there, too. Each array is given up as soon as all devices have it: there is never more than one of them twice.
pub fn upload(
    client: &dyn Client,
    compiled: &CompiledModule,
    inputs: Vec<Vec<Value>>,
) -> Result<Vec<Vec<Buffer>>, ExecutionError> {
    fn flatten(value: Value, leaves: &mut Vec<Value>) {
        match value {
            Value::Tuple(elements) => elements.into_iter().for_each(|v| flatten(v, leaves)),
            leaf => leaves.push(leaf),
        }
    }
    let leaves = |arguments: Vec<Value>| {
        let mut leaves = Vec::new();
        arguments.into_iter().for_each(|v| flatten(v, &mut leaves));
        leaves.into_iter()
    };
    let mut devices: Vec<std::vec::IntoIter<Value>> = inputs.into_iter().map(leaves).collect();
    let mut uploaded: Vec<Vec<Buffer>> = vec![Vec::new(); devices.len()];
    for number in 0.. {
        // All devices have the same leaves in the same order.
        let same: Vec<Value> = devices.iter_mut().filter_map(Iterator::next).collect();
        if same.is_empty() {
            break;
        }
        // A leaf too many is for the run to complain of.
        let shape = compiled.parameters.get(number).map_or(&Shape::Opaque, |(_, shape)| shape);
        let mut shared: Option<(*const u8, Buffer)> = None;
        for (device, (leaf, to)) in same.iter().zip(&mut uploaded).enumerate() {
            let address = leaf.as_array().map_or(std::ptr::null(), |a| a.bytes().as_ptr());
            let known = shared.as_ref().filter(|f| f.0 == address).map(|f| f.1.clone());
            let buffer = known.map_or_else(|| client.upload_leaf(device, leaf, shape), Ok)?;
            shared.get_or_insert_with(|| (address, buffer.clone()));
            to.push(buffer);
        }
    }
    Ok(uploaded)
}

/// The results of all devices on the host, as `module` says that they are.
pub fn download(module: &Module, results: Vec<Vec<Buffer>>) -> Result<Vec<Value>, ExecutionError> {
    let root = module.entry().and_then(|entry| module.root(entry));
    let shape = root.map_or(Shape::Token, |root| module[root].shape.clone());
    results.into_iter().map(|leaves| assemble(&shape, &mut leaves.into_iter())).collect()
}
