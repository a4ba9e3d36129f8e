//! How a caller wants a program compiled: the parts of `CompileOptionsProto` that mean something here.

use crate::dump::DumpOptions;
use crate::status::Status;
use hloom_compiler::ExcessPrecision;
use hloom_formats::proto::read_shape;
use hloom_ir::module::Module;
use hloom_ir::shape::{ProgramShape, Shape};
use prost::Message;

/// `CompileOptionsProto`.
#[derive(Clone, PartialEq, Message)]
struct CompileOptionsProto {
    /// `ShapeProto` each.
    #[prost(bytes = "vec", repeated, tag = "1")]
    argument_layouts: Vec<Vec<u8>>,
    #[prost(bool, tag = "2")]
    parameter_is_tupled_arguments: bool,
    #[prost(message, optional, tag = "3")]
    build: Option<BuildOptionsProto>,
    #[prost(bool, tag = "4")]
    compile_portable_executable: bool,
    #[prost(btree_map = "string, message", tag = "7")]
    overrides: std::collections::BTreeMap<String, OverrideProto>,
}

/// `OptionOverrideProto`.
#[derive(Clone, PartialEq, Message)]
struct OverrideProto {
    #[prost(oneof = "Override", tags = "1, 2, 3, 4")]
    value: Option<Override>,
}

/// The value of an option that the caller names.
#[derive(Clone, PartialEq, prost::Oneof)]
enum Override {
    #[prost(string, tag = "1")]
    String(String),
    #[prost(bool, tag = "2")]
    Bool(bool),
    #[prost(int64, tag = "3")]
    Int(i64),
    #[prost(double, tag = "4")]
    Double(f64),
}

/// Options of XLA's that say yes or no; callers may name them, and but for the first and those of dumps they mean nothing
/// here.
const XLA_SWITCHES: [&str; 10] = [
    "xla_allow_excess_precision",
    "xla_cpu_enable_fast_math",
    "xla_cpu_enable_fast_min_max",
    "xla_cpu_multi_thread_eigen",
    "xla_cpu_use_thunk_runtime",
    "xla_disable_hlo_passes",
    "xla_dump_hlo_as_text",
    "xla_dump_hlo_as_proto",
    "xla_embed_ir_in_executable",
    "xla_llvm_disable_expensive_passes",
];

type Overrides = std::collections::BTreeMap<String, OverrideProto>;

/// What the caller says to a switch, if anything.
fn switch(overrides: &Overrides, name: &str) -> Option<bool> {
    match overrides.get(name)?.value.as_ref()? {
        Override::Bool(value) => Some(*value),
        Override::String(text) => Some(matches!(text.to_ascii_lowercase().as_str(), "true" | "1")),
        _ => None,
    }
}

/// What the caller names as `xla_allow_excess_precision`, or else XLA's flags have: yes, by default, is what XLA makes of it.
fn excess_precision(overrides: &Overrides, flags: &DebugOptionsProto) -> ExcessPrecision {
    match switch(overrides, "xla_allow_excess_precision").or(flags.xla_allow_excess_precision) {
        Some(false) => ExcessPrecision::Never,
        _ => ExcessPrecision::Converted,
    }
}

/// What is to be written of a program, as the caller's options or else XLA's flags have it.
fn dump(overrides: &Overrides, flags: &DebugOptionsProto) -> DumpOptions {
    let named = match overrides.get("xla_dump_to").and_then(|o| o.value.as_ref()) {
        Some(Override::String(folder)) => Some(folder),
        _ => None,
    };
    DumpOptions {
        folder: named.or(flags.xla_dump_to.as_ref()).filter(|folder| !folder.is_empty()).map(Into::into),
        protos: switch(overrides, "xla_dump_hlo_as_proto").or(flags.xla_dump_hlo_as_proto).unwrap_or(false),
    }
}

/// Options that are not for XLA's debugging.
const OTHER_OPTIONS: [&str; 4] =
    ["exec_time_optimization_effort", "memory_fitting_effort", "memory_fitting_level", "optimization_level"];

/// Whether the options that a caller names can be: those of XLA are taken, and left alone.
fn check_overrides(overrides: &Overrides) -> Result<(), Status> {
    for (name, given) in overrides {
        if !name.starts_with("xla_") && !OTHER_OPTIONS.contains(&name.as_str()) {
            return Err(Status::invalid(format!("No such compile option: '{name}'")));
        }
        if let Some(Override::String(value)) = &given.value
            && XLA_SWITCHES.contains(&name.as_str())
            && !matches!(value.to_ascii_lowercase().as_str(), "true" | "false" | "1" | "0")
        {
            let message = format!("While setting option {name}, '{value}' is not a valid bool value.");
            return Err(Status::invalid(message));
        }
    }
    Ok(())
}

/// `ExecutableBuildOptionsProto`.
#[derive(Clone, PartialEq, Message)]
struct BuildOptionsProto {
    #[prost(int64, tag = "1")]
    device_ordinal: i64,
    /// `ShapeProto`.
    #[prost(bytes = "vec", optional, tag = "2")]
    result_layout: Option<Vec<u8>>,
    #[prost(message, optional, tag = "3")]
    debug_options: Option<DebugOptionsProto>,
    #[prost(int64, tag = "4")]
    num_replicas: i64,
    #[prost(int64, tag = "5")]
    num_partitions: i64,
    #[prost(message, optional, tag = "9")]
    device_assignment: Option<DeviceAssignmentProto>,
    #[prost(bool, repeated, tag = "12")]
    allow_propagation_to_output: Vec<bool>,
    #[prost(bool, repeated, tag = "18")]
    allow_propagation_to_parameters: Vec<bool>,
}

/// `DebugOptions`.
#[derive(Clone, PartialEq, Message)]
struct DebugOptionsProto {
    #[prost(string, optional, tag = "109")]
    xla_dump_to: Option<String>,
    #[prost(bool, optional, tag = "113")]
    xla_dump_hlo_as_proto: Option<bool>,
    #[prost(bool, optional, tag = "122")]
    xla_allow_excess_precision: Option<bool>,
}

/// `DeviceAssignmentProto`.
#[derive(Clone, PartialEq, Message)]
struct DeviceAssignmentProto {
    #[prost(int32, tag = "1")]
    replica_count: i32,
    #[prost(int32, tag = "2")]
    computation_count: i32,
    #[prost(message, repeated, tag = "3")]
    computation_devices: Vec<ComputationDeviceProto>,
}

#[derive(Clone, PartialEq, Message)]
struct ComputationDeviceProto {
    #[prost(int64, repeated, tag = "1")]
    replica_device_ids: Vec<i64>,
}

/// How a program is to be compiled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CompileOptions {
    /// Copies of the program side by side.
    pub replicas: usize,
    /// Parts that each is cut into.
    pub partitions: usize,
    /// The device of each replica and partition, the partitions of a replica one after the other.
    pub devices: Vec<usize>,
    /// All arguments come as one tuple.
    pub tupled_arguments: bool,
    /// For each result, or once for all, whether it may be spread over the devices as seems best.
    pub open_results: Vec<bool>,
    /// The same for arguments.
    pub open_parameters: Vec<bool>,
    /// Which bf16 values may keep more digits than bf16 has.
    pub excess_precision: ExcessPrecision,
    /// The arguments with the layouts that they are to have; none where the program says so itself.
    pub argument_layouts: Vec<Shape>,
    /// The result with the layout that it is to have.
    pub result_layout: Option<Shape>,
    /// What is written of it.
    pub dump: DumpOptions,
}

impl CompileOptions {
    /// What a caller's options say, for a client with that many devices.
    pub fn decode(bytes: &[u8], available: usize) -> Result<CompileOptions, Status> {
        let options = CompileOptionsProto::decode(bytes)
            .map_err(|e| Status::invalid(format!("the compile options are not a CompileOptionsProto: {e}")))?;
        check_overrides(&options.overrides)?;
        let build = options.build.unwrap_or_default();
        let flags = build.debug_options.unwrap_or_default();
        let count = |n: i64, what: &str| match n {
            ..=0 => Ok(1),
            n if n as usize <= available => Ok(n as usize),
            n => Err(Status::invalid(format!("a program for {n} {what} cannot run on {available} devices"))),
        };
        let replicas = count(build.num_replicas, "replicas")?;
        let partitions = count(build.num_partitions, "partitions")?;
        let devices = match &build.device_assignment {
            Some(assignment) if !assignment.computation_devices.is_empty() => {
                assigned(assignment, replicas, partitions)?
            }
            _ if replicas * partitions == 1 => vec![build.device_ordinal.max(0)],
            _ => (0..(replicas * partitions) as i64).collect(),
        };
        let known = |id: i64| usize::try_from(id).ok().filter(|&id| id < available);
        let devices = devices.into_iter().map(|id| {
            known(id).ok_or_else(|| Status::invalid(format!("there is no device {id}: the client has {available}")))
        });
        let devices: Vec<usize> = devices.collect::<Result<_, _>>()?;
        let distinct: std::collections::BTreeSet<_> = devices.iter().collect();
        if distinct.len() != devices.len() {
            return Err(Status::invalid("the device assignment names a device twice"));
        }
        if devices.len() != replicas * partitions {
            let message =
                format!("{replicas} replicas of {partitions} partitions need {} devices", replicas * partitions);
            return Err(Status::invalid(message));
        }
        let shape = |bytes: &Vec<u8>| {
            read_shape(bytes).map_err(|d| Status::invalid(format!("a layout in the compile options: {}", d.message)))
        };
        Ok(CompileOptions {
            replicas,
            partitions,
            devices,
            argument_layouts: options.argument_layouts.iter().map(shape).collect::<Result<_, _>>()?,
            result_layout: build.result_layout.as_ref().map(shape).transpose()?,
            tupled_arguments: options.parameter_is_tupled_arguments,
            open_results: build.allow_propagation_to_output,
            open_parameters: build.allow_propagation_to_parameters,
            excess_precision: excess_precision(&options.overrides, &flags),
            dump: dump(&options.overrides, &flags),
        })
    }

    /// Has the program take and give arrays in the layouts that the options name.
    pub fn apply_layouts(&self, module: &mut Module) -> Result<(), Status> {
        if self.argument_layouts.is_empty() && self.result_layout.is_none() {
            return Ok(());
        }
        let entry = module.entry().and_then(|entry| module.program_shape(entry));
        let Some(mut said) = module.config.entry_layout.clone().or(entry) else { return Ok(()) };
        let wanted = match self.argument_layouts.is_empty() {
            true => said.parameters.clone(),
            false => self.argument_layouts.clone(),
        };
        let result = self.result_layout.as_ref().unwrap_or(&said.result).clone();
        let fits = |(a, b): (&Shape, &Shape)| a.equal_ignoring_layout(b);
        if wanted.len() != said.parameters.len()
            || !wanted.iter().zip(&said.parameters).all(fits)
            || !fits((&result, &said.result))
        {
            return Err(Status::invalid("the layouts in the compile options are not of the program's arrays"));
        }
        said = ProgramShape { parameters: wanted, result };
        module.config.entry_layout = Some(said);
        Ok(())
    }

    /// The device assignment as `DeviceAssignmentProto`.
    pub fn assignment(&self) -> Vec<u8> {
        let devices_of = |partition: usize| ComputationDeviceProto {
            replica_device_ids: (0..self.replicas)
                .map(|replica| self.devices[replica * self.partitions + partition] as i64)
                .collect(),
        };
        DeviceAssignmentProto {
            replica_count: self.replicas as i32,
            computation_count: self.partitions as i32,
            computation_devices: (0..self.partitions).map(devices_of).collect(),
        }
        .encode_to_vec()
    }
}

/// The devices of an assignment, the partitions of a replica one after the other.
fn assigned(assignment: &DeviceAssignmentProto, replicas: usize, partitions: usize) -> Result<Vec<i64>, Status> {
    let mut devices = Vec::with_capacity(replicas * partitions);
    for replica in 0..replicas {
        for partition in 0..partitions {
            let of_partition = assignment.computation_devices.get(partition);
            match of_partition.and_then(|c| c.replica_device_ids.get(replica)) {
                Some(&id) => devices.push(id),
                None => {
                    let message =
                        format!("the device assignment says nothing of replica {replica}, partition {partition}");
                    return Err(Status::invalid(message));
                }
            }
        }
    }
    Ok(devices)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(replicas: i64, partitions: i64, ids: &[&[i64]]) -> Vec<u8> {
        let device = |list: &&[i64]| ComputationDeviceProto { replica_device_ids: list.to_vec() };
        let assignment = DeviceAssignmentProto {
            replica_count: replicas as i32,
            computation_count: partitions as i32,
            computation_devices: ids.iter().map(device).collect(),
        };
        let build = BuildOptionsProto {
            device_ordinal: -1,
            num_replicas: replicas,
            num_partitions: partitions,
            device_assignment: (!ids.is_empty()).then_some(assignment),
            allow_propagation_to_output: vec![true],
            allow_propagation_to_parameters: vec![true],
            result_layout: None,
            debug_options: None,
        };
        CompileOptionsProto { build: Some(build), ..Default::default() }.encode_to_vec()
    }

    #[test]
    fn the_assignment_comes_back_as_it_was_given() {
        let options = CompileOptions::decode(&encoded(2, 2, &[&[3, 1], &[0, 2]]), 4).unwrap();
        assert_eq!(options.devices, [3, 0, 1, 2]);
        let again = DeviceAssignmentProto::decode(&*options.assignment()).unwrap();
        assert_eq!(again.computation_devices[0].replica_device_ids, [3, 1]);
        assert_eq!(again.computation_devices[1].replica_device_ids, [0, 2]);
    }

    #[test]
    fn options_that_nobody_knows_are_refused() {
        let with = |name: &str, value: Override| {
            let overrides = [(name.to_owned(), OverrideProto { value: Some(value) })].into();
            CompileOptions::decode(&CompileOptionsProto { overrides, ..Default::default() }.encode_to_vec(), 1)
        };
        assert!(with("xla_embed_ir_in_executable", Override::Bool(true)).is_ok());
        assert!(with("optimization_level", Override::Int(1)).is_ok());
        let why = |status: Result<_, Status>| status.unwrap_err().message;
        assert!(why(with("invalid_key", Override::Bool(true))).contains("No such compile option: 'invalid_key'"));
        let text = Override::String("perhaps".to_owned());
        assert!(why(with("xla_embed_ir_in_executable", text)).contains("is not a valid bool value."));
    }

    #[test]
    fn excess_precision_is_what_the_caller_names_or_else_the_flags_have() {
        let of = |named: Option<Override>, flag: Option<bool>| {
            let named = named.map(|v| ("xla_allow_excess_precision".to_owned(), OverrideProto { value: Some(v) }));
            let flags = DebugOptionsProto { xla_allow_excess_precision: flag, ..Default::default() };
            let build = BuildOptionsProto { debug_options: Some(flags), ..Default::default() };
            let proto = CompileOptionsProto {
                build: Some(build),
                overrides: named.into_iter().collect(),
                ..Default::default()
            };
            CompileOptions::decode(&proto.encode_to_vec(), 1).unwrap().excess_precision
        };
        assert_eq!(of(None, None), ExcessPrecision::Converted);
        assert_eq!(of(None, Some(false)), ExcessPrecision::Never);
        assert_eq!(of(Some(Override::Bool(true)), Some(false)), ExcessPrecision::Converted);
        assert_eq!(of(Some(Override::String("False".into())), Some(true)), ExcessPrecision::Never);
    }

    #[test]
    fn dumps_go_where_the_caller_or_else_the_flags_say() {
        let of = |named: Option<&str>, flag: Option<&str>| {
            let named =
                named.map(|v| ("xla_dump_to".to_owned(), OverrideProto { value: Some(Override::String(v.into())) }));
            let flags = DebugOptionsProto {
                xla_dump_to: flag.map(Into::into),
                xla_dump_hlo_as_proto: Some(true),
                ..Default::default()
            };
            let build = BuildOptionsProto { debug_options: Some(flags), ..Default::default() };
            let overrides = named.into_iter().collect();
            let proto = CompileOptionsProto { build: Some(build), overrides, ..Default::default() };
            CompileOptions::decode(&proto.encode_to_vec(), 1).unwrap().dump
        };
        let to = |folder: Option<&str>| DumpOptions { folder: folder.map(Into::into), protos: true };
        assert_eq!(of(None, None), to(None));
        assert_eq!(of(None, Some("/a")), to(Some("/a")));
        assert_eq!(of(None, Some("")), to(None));
        assert_eq!(of(Some("/b"), Some("/a")), to(Some("/b")));
    }

    #[test]
    fn layouts_of_arguments_are_those_that_the_options_name() {
        let shape = |order: [i64; 2], dims: [i64; 2]| {
            let array = hloom_ir::shape::ArrayShape::new(hloom_ir::ElementType::F32, dims);
            Shape::from(array.with_layout(hloom_ir::layout::Layout::new(order)))
        };
        let mut module = Module::new("m");
        let mut b = hloom_ir::builder::Builder::new(&mut module, "main");
        let x = b.parameter(0, shape([1, 0], [2, 3]), "x").unwrap();
        b.finish_entry(x);
        let decoded = |wanted: &Shape| {
            let argument_layouts = vec![hloom_formats::proto::write_shape(wanted)];
            let bytes = CompileOptionsProto { argument_layouts, ..Default::default() }.encode_to_vec();
            CompileOptions::decode(&bytes, 1).unwrap()
        };
        let wanted = shape([0, 1], [2, 3]);
        decoded(&wanted).apply_layouts(&mut module).unwrap();
        assert_eq!(module.config.entry_layout.as_ref().unwrap().parameters, [wanted]);
        let why = decoded(&shape([0, 1], [3, 3])).apply_layouts(&mut module).unwrap_err().message;
        assert!(why.contains("not of the program's arrays"), "{why}");
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for (bytes, why) in [
            (encoded(1, 8, &[]), "8 partitions"),
            (encoded(1, 1, &[&[7]]), "no device 7"),
            (encoded(1, 2, &[&[1], &[1]]), "twice"),
            (encoded(1, 2, &[&[1]]), "says nothing"),
            (vec![0xff; 3], "not a CompileOptionsProto"),
        ] {
            let status = CompileOptions::decode(&bytes, 4).unwrap_err();
            assert!(status.message.contains(why), "{}", status.message);
        }
    }
}
