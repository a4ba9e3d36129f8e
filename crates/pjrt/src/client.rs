//! Clients: devices, their memories, and what they share.

use crate::abi::{
    ClientAddressableDevicesArgs, ClientAddressableMemoriesArgs, ClientCreateArgs, ClientDefaultDeviceAssignmentArgs,
    ClientDestroyArgs, ClientDevicesArgs, ClientLookupAddressableDeviceArgs, ClientLookupDeviceArgs,
    ClientPlatformNameArgs, ClientPlatformVersionArgs, ClientProcessIndexArgs, ClientTopologyDescriptionArgs,
    ClientUpdateGlobalProcessInfoArgs, Handle, NamedValues, OptionValue, PluginAttributesArgs, PluginInitializeArgs,
    read_options,
};
use crate::device::{Device, DeviceDescription};
use crate::dispatch::Dispatcher;
use crate::log;
use crate::memory::{KINDS, Memory};
use crate::processes::{Node, Processes};
use crate::status::{Code, Status};
use crate::topology::TopologyDescription;
use hloom_compiler::{CompileError, Effort};
use hloom_cpu::{CpuClient, CpuClientOptions, Prewarm};
use hloom_cuda::{CudaClient, CudaClientOptions};
use std::ops::{Deref, Range};
use std::sync::{Arc, OnceLock};

/// More virtual devices than anybody means.
const MAX_DEVICES: i64 = 4096;

/// What a client's buffers and programs share with it; it lives as long as any of them.
pub struct Shared {
    /// Where programs run.
    pub runtime: Arc<dyn hloom_runtime::Client>,
    /// What runs programs.
    pub(crate) engine: Engine,
    /// What runs programs that callers do not wait for.
    pub(crate) dispatcher: Dispatcher,
    /// The name of the platform that is reported.
    pub platform_name: String,
    /// The devices, by their numbers.
    pub devices: Vec<Device>,
    /// The memories, [`KINDS`] for each device.
    pub memories: Vec<Memory>,
    /// The devices of this process.
    pub local: Range<usize>,
    /// All processes, if there are several.
    pub processes: Option<Processes>,
    device_handles: Vec<Handle<Device>>,
    memory_handles: Vec<Handle<Memory>>,
    topology: TopologyDescription,
    /// The compiler is made ready while the first program is on its way.
    _prewarm: Option<Prewarm>,
}

// SAFETY: the handles are to what is kept beside them, and never changed.
unsafe impl Send for Shared {}
// SAFETY: likewise.
unsafe impl Sync for Shared {}

/// A client. Clones are the same.
#[derive(Clone)]
pub struct Client(Arc<Shared>);

impl Deref for Client {
    type Target = Shared;
    fn deref(&self) -> &Shared {
        &self.0
    }
}

/// How a client is to be.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many virtual devices.
    pub devices: usize,
    /// The name of the platform to report.
    pub platform_name: String,
    /// Threads that may compute at once.
    pub threads: Option<usize>,
    /// What runs programs.
    pub engine: Engine,
    /// Which of how many processes this is, if there are several.
    pub node: Option<Node>,
}

/// What runs programs.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Engine {
    /// This machine's processors.
    #[default]
    Cpu,
    /// An NVIDIA GPU of this machine.
    Cuda,
}

impl Options {
    /// What a caller's options ask for, and the environment where they say nothing.
    pub fn new(options: &[(String, OptionValue)]) -> Result<Options, Status> {
        let variable = |name: &str| std::env::var(name).ok().map(OptionValue::String);
        let find = |name: &str, variable_name: &str| {
            let given = options.iter().rev().find(|(n, _)| n == name).map(|(_, v)| v.clone());
            given.or_else(|| variable(variable_name))
        };
        let number = |name: &str, variable_name: &str| match find(name, variable_name) {
            None => Ok(None),
            Some(value) => match value.as_int().filter(|n| (1..=MAX_DEVICES).contains(n)) {
                Some(n) => Ok(Some(n as usize)),
                None => Err(Status::invalid(format!("{name} must be a number from 1 to {MAX_DEVICES}, not {value:?}"))),
            },
        };
        let name = find("platform_name", "HLOOM_PLATFORM_NAME");
        let platform_name = match name.as_ref().map(OptionValue::as_str) {
            None => "hloom".to_owned(),
            Some(Some(name)) if !name.is_empty() => name.to_owned(),
            Some(_) => return Err(Status::invalid("platform_name must be a name")),
        };
        let engine = match find("engine", "HLOOM_ENGINE").as_ref().map(OptionValue::as_str) {
            None | Some(Some("cpu")) => Engine::Cpu,
            Some(Some("cuda")) => Engine::Cuda,
            Some(other) => {
                return Err(Status::invalid(format!(
                    "engine must be cpu or cuda, not {}",
                    other.unwrap_or("a number")
                )));
            }
        };
        let count = |name: &str| find(name, "").and_then(|v| usize::try_from(v.as_int()?).ok());
        let node = match (count("node_id"), count("num_nodes")) {
            (_, None | Some(0 | 1)) => None,
            (Some(id), Some(count)) if id < count => Some(Node { id, count }),
            (id, Some(count)) => return Err(Status::invalid(format!("node_id is {id:?}, of {count} nodes"))),
        };
        Ok(Options {
            node,
            devices: number("num_devices", "HLOOM_NUM_DEVICES")?.unwrap_or(1),
            platform_name,
            threads: number("num_threads", "HLOOM_NUM_THREADS")?,
            engine,
        })
    }
}

impl Client {
    /// A client with virtual devices, together with those of other processes if there are any.
    pub fn new(options: &Options, processes: Option<Processes>) -> Result<Client, Status> {
        let failed = |error: CompileError| Status::from_diagnostics(&error.diagnostics);
        let of_cpu = CpuClientOptions { threads: options.threads, ..Default::default() };
        let runtime: Arc<dyn hloom_runtime::Client> = match options.engine {
            Engine::Cpu => Arc::new(CpuClient::new(&of_cpu).map_err(failed)?),
            // Programs may be for some of the devices only, so that those of one process share a GPU.
            Engine::Cuda => {
                let process = processes.as_ref().map_or(0, |p| p.on_machine);
                Arc::new(CudaClient::with(CudaClientOptions { devices: 1, process }).map_err(failed)?)
            }
        };
        runtime.notes().iter().for_each(|note| log::note(note));
        let nodes = processes.as_ref().map_or_else(|| vec![0; options.devices], |p| p.nodes.clone());
        let own = processes.as_ref().map_or(0, |p| p.node);
        let first = nodes.iter().position(|&n| n == own).unwrap_or(0);
        let local = first..first + nodes.iter().filter(|&&n| n == own).count();
        let device = |id| Device {
            description: DeviceDescription::new(id, &options.platform_name, nodes[id]),
            local_hardware_id: local.contains(&id).then(|| (id - first) as i32),
            local_devices: local.len(),
            memories: Vec::new(),
            runtime: runtime.clone(),
        };
        let mut devices: Vec<Device> = (0..nodes.len()).map(device).collect();
        let memory = |id| Memory::new(id / KINDS.len(), id % KINDS.len());
        let mut memories: Vec<Memory> = (0..nodes.len() * KINDS.len()).map(memory).collect();
        // The elements of the vectors stay where they are, so each can know the others' addresses.
        let device_handles: Vec<_> = devices.iter().map(Handle::lend).collect();
        for memory in &mut memories {
            memory.devices = [device_handles[memory.device]];
        }
        let memory_handles: Vec<_> = memories.iter().map(Handle::lend).collect();
        for (device, handles) in devices.iter_mut().zip(memory_handles.chunks(KINDS.len())) {
            device.memories = handles.to_vec();
        }
        let topology = TopologyDescription::new(&options.platform_name, &nodes);
        Ok(Client(Arc::new(Shared {
            runtime,
            engine: options.engine,
            dispatcher: Dispatcher::default(),
            platform_name: options.platform_name.clone(),
            devices,
            memories,
            local,
            processes,
            device_handles,
            memory_handles,
            topology,
            _prewarm: (options.engine == Engine::Cpu).then(|| Prewarm::begin(Effort::Full)),
        })))
    }

    /// The handle of a device.
    pub fn device(&self, number: usize) -> Handle<Device> {
        self.device_handles.get(number).copied().unwrap_or(Handle::null())
    }

    /// The memory of that kind of a device.
    pub fn memory(&self, device: usize, kind: usize) -> Handle<Memory> {
        self.memory_handles.get(device * KINDS.len() + kind).copied().unwrap_or(Handle::null())
    }

    /// The topology.
    pub fn topology(&self) -> &TopologyDescription {
        &self.topology
    }
}

/// What the plugin says of itself.
fn plugin_attributes() -> &'static NamedValues {
    static ATTRIBUTES: OnceLock<NamedValues> = OnceLock::new();
    ATTRIBUTES.get_or_init(|| {
        let version = |name: &str, list: [i64; 3]| (name.to_owned(), OptionValue::IntList(list.to_vec()));
        NamedValues::new(vec![
            // Programs are written for this version, or for the newest that the caller knows.
            version("stablehlo_current_version", [1, 17, 0]),
            version("stablehlo_minimum_version", [0, 9, 0]),
            version("sdy_current_version", [0, 0, 1]),
            ("xla_version".to_owned(), OptionValue::Int(2)),
            ("supports_cross_host_transfers".to_owned(), OptionValue::Bool(false)),
        ])
    })
}

pub(crate) fn plugin_initialize(_: &mut PluginInitializeArgs) -> Result<(), Status> {
    Ok(())
}

pub(crate) fn attributes(args: &mut PluginAttributesArgs) -> Result<(), Status> {
    let attributes = plugin_attributes();
    (args.attributes, args.num_attributes) = (attributes.as_ptr(), attributes.len());
    Ok(())
}

pub(crate) fn create(args: &mut ClientCreateArgs) -> Result<(), Status> {
    // SAFETY: the caller's options.
    let options = Options::new(&unsafe { read_options(args.create_options, args.num_options) })?;
    let processes = options.node.map(|node| Processes::join(node, options.devices, args)).transpose()?;
    args.client = Handle::give(Client::new(&options, processes)?);
    Ok(())
}

pub(crate) fn destroy(args: &mut ClientDestroyArgs) -> Result<(), Status> {
    drop(args.client.take());
    Ok(())
}

pub(crate) fn platform_name(args: &mut ClientPlatformNameArgs) -> Result<(), Status> {
    let name = &args.client.get()?.platform_name;
    (args.platform_name, args.platform_name_size) = (name.as_ptr(), name.len());
    Ok(())
}

pub(crate) fn process_index(args: &mut ClientProcessIndexArgs) -> Result<(), Status> {
    args.process_index = args.client.get()?.processes.as_ref().map_or(0, |p| p.node as i32);
    Ok(())
}

pub(crate) fn platform_version(args: &mut ClientPlatformVersionArgs) -> Result<(), Status> {
    let version = args.client.get()?.topology.version();
    (args.platform_version, args.platform_version_size) = (version.as_ptr(), version.len());
    Ok(())
}

pub(crate) fn topology(args: &mut ClientTopologyDescriptionArgs) -> Result<(), Status> {
    args.topology = Handle::lend(&args.client.get()?.topology);
    Ok(())
}

pub(crate) fn devices(args: &mut ClientDevicesArgs) -> Result<(), Status> {
    let devices = &args.client.get()?.device_handles;
    (args.devices, args.num_devices) = (devices.as_ptr().cast_mut(), devices.len());
    Ok(())
}

pub(crate) fn addressable_devices(args: &mut ClientAddressableDevicesArgs) -> Result<(), Status> {
    let client = args.client.get()?;
    let devices = &client.device_handles[client.local.clone()];
    (args.addressable_devices, args.num_addressable_devices) = (devices.as_ptr().cast_mut(), devices.len());
    Ok(())
}

fn lookup(client: Handle<Client>, id: i32) -> Result<Handle<Device>, Status> {
    let found = usize::try_from(id).map_or(Handle::null(), |id| client.get().map_or(Handle::null(), |c| c.device(id)));
    client.get()?;
    match found.is_null() {
        false => Ok(found),
        true => Err(Status::new(Code::NotFound, format!("there is no device {id}"))),
    }
}

pub(crate) fn lookup_device(args: &mut ClientLookupDeviceArgs) -> Result<(), Status> {
    args.device = lookup(args.client, args.id)?;
    Ok(())
}

pub(crate) fn lookup_addressable_device(args: &mut ClientLookupAddressableDeviceArgs) -> Result<(), Status> {
    let local = &args.client.get()?.local;
    let id = i32::try_from(local.start).ok().and_then(|first| first.checked_add(args.local_hardware_id));
    let id = id.filter(|&id| usize::try_from(id).is_ok_and(|id| local.contains(&id)));
    args.addressable_device = lookup(args.client, id.unwrap_or(-1))?;
    Ok(())
}

pub(crate) fn addressable_memories(args: &mut ClientAddressableMemoriesArgs) -> Result<(), Status> {
    let client = args.client.get()?;
    let memories = &client.memory_handles[client.local.start * KINDS.len()..client.local.end * KINDS.len()];
    (args.addressable_memories, args.num_addressable_memories) = (memories.as_ptr().cast_mut(), memories.len());
    Ok(())
}

pub(crate) fn default_device_assignment(args: &mut ClientDefaultDeviceAssignmentArgs) -> Result<(), Status> {
    let client = args.client.get()?;
    let count = |n: i32| usize::try_from(n).ok().filter(|&n| n > 0);
    let needed = count(args.num_replicas).zip(count(args.num_partitions)).and_then(|(r, p)| r.checked_mul(p));
    let needed = needed.ok_or_else(|| Status::invalid("replicas and partitions must be counted from one"))?;
    if needed > client.devices.len() {
        let message = format!("{needed} devices are needed, there are {}", client.devices.len());
        return Err(Status::invalid(message));
    }
    if args.default_assignment.is_null() || args.default_assignment_size < needed {
        return Err(Status::invalid(format!("the assignment has no room for {needed} devices")));
    }
    for device in 0..needed {
        // SAFETY: the caller's array is that long.
        unsafe { args.default_assignment.add(device).write(device as i32) };
    }
    Ok(())
}

/// A process that is gone is noticed where it is missed.
pub(crate) fn update_global_process_info(_: &mut ClientUpdateGlobalProcessInfoArgs) -> Result<(), Status> {
    Ok(())
}
