//! Running a verified program in this process.

use crate::engine::Engine;
use hloom_analysis::devices::DeviceGrid;
use hloom_compiler::{CompileError, CompileOptions};
use hloom_ir::diagnostic::{Blame, Diagnostic, Place, codes::eval as codes};
use hloom_ir::module::Module;
use hloom_ir::shape::Shape;
use hloom_ir::verify::VerifiedModule;
use hloom_runtime::{Buffer, Client, ExecuteOptions, assemble};
use hloom_value::{Array, ExecutionError, Value};

/// The devices that a program runs on: as many as its header names, or `devices`. Where the header names neither count,
/// the devices are replicas; where it names one of them, the other is what is left.
pub fn device_grid(module: &Module, devices: Option<usize>) -> Result<DeviceGrid, Diagnostic> {
    let count = |n: i64| usize::try_from(n).unwrap_or(1).max(1);
    let (replicas, partitions) = (count(module.config.replica_count), count(module.config.num_partitions));
    let named = DeviceGrid { replicas, partitions };
    let Some(devices) = devices.filter(|&n| n != named.devices()) else { return Ok(named) };
    match (replicas, partitions) {
        (1, p) if devices.is_multiple_of(p) => Ok(DeviceGrid { replicas: devices / p, partitions: p }),
        (r, 1) if devices.is_multiple_of(r) => Ok(DeviceGrid { replicas: r, partitions: devices / r }),
        (r, p) => Err(Diagnostic::error(
            &codes::DEVICE_COUNT,
            format!("the program is for {r} replicas × {p} partitions, which does not make {devices} devices"),
        )
        .at_place(Place::Header)),
    }
}

/// Compiles a program for this machine and runs it: `arguments` are the same on every device, all results come back, one
/// list of leaves per device.
pub fn run(
    program: &VerifiedModule,
    arguments: impl IntoIterator<Item = Array>,
) -> Result<Vec<Vec<Array>>, Diagnostic> {
    let grid = device_grid(program.module(), None)?;
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
    let arguments = upload(client, inputs).map_err(failed)?;
    let results = executable.execute(arguments, &ExecuteOptions::default()).map_err(failed)?;
    download(program.module(), results).map_err(failed)
}

fn first(error: CompileError, program: &VerifiedModule) -> Diagnostic {
    let unknown = || Diagnostic::error(&codes::INTERNAL, "the compiler failed without a word").blame(Blame::Hloom);
    error.into_diagnostics(program.module()).into_iter().next().unwrap_or_else(unknown)
}

/// The arguments on the devices: what devices share in `inputs` they share there, too. Each array is given up as soon as
/// all devices have it: there is never more than one of them twice.
pub fn upload(client: &dyn Client, inputs: Vec<Vec<Value>>) -> Result<Vec<Vec<Buffer>>, ExecutionError> {
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
    loop {
        // All devices have the same leaves in the same order.
        let same: Vec<Value> = devices.iter_mut().filter_map(Iterator::next).collect();
        if same.is_empty() {
            return Ok(uploaded);
        }
        let mut shared: Option<(*const u8, Buffer)> = None;
        for (device, (leaf, to)) in same.iter().zip(&mut uploaded).enumerate() {
            let address = leaf.as_array().map_or(std::ptr::null(), |a| a.bytes().as_ptr());
            let known = shared.as_ref().filter(|f| f.0 == address).map(|f| f.1.clone());
            let buffer = known.map_or_else(|| client.upload_leaf(device, leaf), Ok)?;
            shared.get_or_insert_with(|| (address, buffer.clone()));
            to.push(buffer);
        }
    }
}

/// The results of all devices on the host, as `module` says that they are.
pub fn download(module: &Module, results: Vec<Vec<Buffer>>) -> Result<Vec<Value>, ExecutionError> {
    let root = module.entry().and_then(|entry| module.root(entry));
    let shape = root.map_or(Shape::Token, |root| module[root].shape.clone());
    results.into_iter().map(|leaves| assemble(&shape, &mut leaves.into_iter())).collect()
}
