//! Running a verified program in this process.

use hloom_analysis::devices::DeviceGrid;
use hloom_eval::Options;
use hloom_ir::diagnostic::{Diagnostic, Place, codes::eval as codes};
use hloom_ir::module::Module;
use hloom_ir::verify::VerifiedModule;
use hloom_value::{Array, Value};

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

/// Runs a program without further ado: `arguments` are the same on every device, all results come back, one list of
/// leaves per device.
pub fn run(
    program: &VerifiedModule,
    arguments: impl IntoIterator<Item = Array>,
) -> Result<Vec<Vec<Array>>, Diagnostic> {
    let grid = device_grid(program.module(), None)?;
    let arguments: Vec<Value> = arguments.into_iter().map(Value::Array).collect();
    let inputs = vec![arguments; grid.devices()];
    let results = hloom_eval::run(program, grid, inputs, &Options::default()).map_err(|f| f.into_diagnostic())?;
    let arrays = |result: Value| {
        result.leaves().into_iter().filter_map(|leaf| leaf.as_array().ok().cloned()).collect::<Vec<_>>()
    };
    Ok(results.into_iter().map(arrays).collect())
}
