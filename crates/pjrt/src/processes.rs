//! Clients of several processes: how these come together, and which of the devices are whose.
//!
//! JAX says which of how many processes this is (`node_id`, `num_nodes`) and lends a store of keys and values. Data travel by
//! MPI: that of the launcher where there is one, else MPICH, whose processes find each other through JAX's store. MPI can be
//! started once in the life of a process, so clients that come later find it as it is.

use crate::abi::ClientCreateArgs;
use crate::status::{Code, Status};
use hloom_comm::mpi::{self, KeyValueStore};
use hloom_comm::{Communicator, JoinError, World, launched};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::ffi::c_void;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Which of how many processes this is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Node {
    /// This one.
    pub id: usize,
    /// How many there are.
    pub count: usize,
}

/// All processes, and the devices of each.
pub struct Processes {
    world: Arc<World>,
    /// Which client of this process it is for.
    client: i64,
    /// This process, by JAX's count.
    pub node: usize,
    /// The number of this process among those on its machine.
    pub on_machine: usize,
    /// The process of each device, by JAX's count.
    pub nodes: Vec<usize>,
    /// The process of each device, by MPI's count.
    ranks: Vec<usize>,
    time_limit: Duration,
    /// Runs so far, by the processes that take part in them.
    runs: Mutex<FxHashMap<BTreeSet<usize>, u64>>,
    /// The caller's store, which must not be used when the client is gone.
    store: Option<Arc<JaxStore>>,
}

/// How long a process waits for another, in seconds.
const TIME_LIMIT_VARIABLE: &str = "HLOOM_TIME_LIMIT";
/// The store's own wait for a key.
const STORE_WAIT: Duration = Duration::from_secs(120);

/// MPI, once it has been started.
static WORLD: Mutex<Option<Arc<World>>> = Mutex::new(None);
/// The clients that have been made so far: what they tell each other is kept apart by it.
static CLIENTS: AtomicI64 = AtomicI64::new(0);

impl Processes {
    /// Brings the processes together, this one with so many devices.
    pub(crate) fn join(node: Node, devices: usize, args: &ClientCreateArgs) -> Result<Processes, Status> {
        let seconds = std::env::var(TIME_LIMIT_VARIABLE).ok().and_then(|s| s.parse().ok()).unwrap_or(600);
        let time_limit = Duration::from_secs(seconds);
        let (world, store) = world(node, args, time_limit)?;
        if world.size() != node.count {
            let message = format!("JAX counts {} processes, MPI {}", node.count, world.size());
            return Err(Status::new(Code::FailedPrecondition, message));
        }
        let mut said: Vec<u8> = [node.id as u64, devices as u64].iter().flat_map(|n| n.to_le_bytes()).collect();
        said.extend(machine());
        let client = CLIENTS.fetch_add(1, Ordering::Relaxed);
        let all = world.exchange(client, &said, time_limit).map_err(|silent| {
            let why =
                if let JoinError::PeerFailed { why, .. } = silent.why { format!(": {why}") } else { String::new() };
            let message = format!("processes {:?} did not come within {seconds} s{why}", silent.ranks);
            Status::new(Code::DeadlineExceeded, message)
        })?;
        let number = |bytes: &[u8], n: usize| {
            let part = bytes.get(n * 8..n * 8 + 8).and_then(|b| b.try_into().ok());
            part.map(|b| u64::from_le_bytes(b) as usize)
        };
        let broken = || Status::new(Code::Internal, "a process says what it should not");
        let mut of_nodes = vec![None; node.count];
        let is_before_here =
            |bytes: &&Vec<u8>| bytes.get(16..) == said.get(16..) && number(bytes, 0).is_some_and(|id| id < node.id);
        let on_machine = all.iter().filter(is_before_here).count();
        for (rank, bytes) in all.iter().enumerate() {
            let (id, count) = number(bytes, 0).zip(number(bytes, 1)).ok_or_else(broken)?;
            *of_nodes.get_mut(id).ok_or_else(broken)? = Some((rank, count));
        }
        let (mut nodes, mut ranks) = (Vec::new(), Vec::new());
        for (id, of_node) in of_nodes.into_iter().enumerate() {
            let (rank, count) = of_node.ok_or_else(|| Status::invalid("two processes have the same node_id"))?;
            nodes.extend(std::iter::repeat_n(id, count));
            ranks.extend(std::iter::repeat_n(rank, count));
        }
        let runs = Mutex::default();
        Ok(Processes { world, client, node: node.id, on_machine, nodes, ranks, time_limit, runs, store })
    }

    /// How the devices of a program meet in its next run; `None` if all are in this process. Calls are counted: all
    /// processes of the program must run it as often, in the same order.
    pub(crate) fn communicator(&self, devices: &[usize]) -> Option<Arc<dyn Communicator>> {
        let owners: Vec<usize> = devices.iter().map(|&d| self.ranks[d]).collect();
        let together: BTreeSet<usize> = owners.iter().copied().collect();
        if together.len() < 2 {
            return None;
        }
        let mut hasher = rustc_hash::FxHasher::default();
        (self.client, &together).hash(&mut hasher);
        let series = (hasher.finish() >> 32) as u32;
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        let count = runs.entry(together).or_insert(0);
        let number = *count;
        *count += 1;
        Some(self.world.communicator(World::run_in_series(series, number), owners, self.time_limit))
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        if let Some(store) = &self.store {
            store.closed.store(true, Ordering::Release);
        }
    }
}

/// What the machine is known by, as long as it is up.
fn machine() -> Vec<u8> {
    std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default()
}

/// The processes of the job, brought together now or before.
fn world(
    node: Node,
    args: &ClientCreateArgs,
    time_limit: Duration,
) -> Result<(Arc<World>, Option<Arc<JaxStore>>), Status> {
    let mut known = WORLD.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(world) = &*known {
        return Ok((world.clone(), None));
    }
    let is_launched = launched().is_some_and(|l| l.size == node.count);
    let store = if is_launched { None } else { Some(Arc::new(JaxStore::new(args)?)) };
    let (done, joined) = channel();
    let for_thread = store.clone();
    // MPI waits for all processes, for ever if need be; whoever gives up leaves it behind.
    std::thread::spawn(move || {
        let _ = done.send(match for_thread {
            None => mpi::init(),
            Some(store) => mpi::init_by_store(store, node.id, node.count, STORE_WAIT),
        });
    });
    let transport = match joined.recv_timeout(time_limit) {
        Ok(Ok(transport)) => transport,
        Ok(Err(error)) => {
            let message = format!(
                "the devices of {} processes cannot work together without MPI: {}; start the processes with mpirun, or \
                 install MPICH (Debian: apt-get install mpich)",
                node.count, error.0
            );
            return Err(Status::new(Code::FailedPrecondition, message));
        }
        Err(_) => {
            let message = format!("not all of {} processes have come within {} s", node.count, time_limit.as_secs());
            return Err(Status::new(Code::DeadlineExceeded, message));
        }
    };
    let world = Arc::new(World::new(transport, None));
    *known = Some(world.clone());
    // Launchers expect that MPI is ended in good order; without one, what was sent must be out before the process is gone.
    // SAFETY: the functions are there for as long as the process.
    unsafe { libc::atexit(if is_launched { finalize } else { flush }) };
    Ok((world, store))
}

/// Lets what was sent go out.
extern "C" fn flush() {
    if let Some(world) = WORLD.lock().unwrap_or_else(PoisonError::into_inner).take() {
        world.flush(Duration::from_secs(10));
    }
}

/// Ends MPI, if the others do so as well before long.
extern "C" fn finalize() {
    let Some(world) = WORLD.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
    let (done, ended) = channel();
    std::thread::spawn(move || {
        let _ = done.send(world.finalize());
    });
    let _ = ended.recv_timeout(Duration::from_secs(10));
}

/// The store of keys and values that JAX lends.
struct JaxStore {
    get: GetCallback,
    get_argument: usize,
    put: PutCallback,
    put_argument: usize,
    /// The client that was given the callbacks is gone.
    closed: AtomicBool,
}

type GetCallback = unsafe extern "C" fn(*mut KeyValueGetArgs) -> *mut c_void;
type PutCallback = unsafe extern "C" fn(*mut KeyValuePutArgs) -> *mut c_void;
type CallbackError = unsafe extern "C" fn(i32, *const u8, usize) -> *mut c_void;

#[repr(C)]
struct KeyValueGetArgs {
    struct_size: usize,
    extension_start: *mut c_void,
    key: *const u8,
    key_size: usize,
    timeout_in_ms: i32,
    callback_error: *const CallbackError,
    user_arg: *mut c_void,
    value: *mut u8,
    value_size: usize,
    value_deleter: Option<unsafe extern "C" fn(*mut u8)>,
}

#[repr(C)]
struct KeyValuePutArgs {
    struct_size: usize,
    extension_start: *mut c_void,
    key: *const u8,
    key_size: usize,
    value: *const u8,
    value_size: usize,
    callback_error: *const CallbackError,
    user_arg: *mut c_void,
}

const _: () = assert!(size_of::<KeyValueGetArgs>() == 80 && size_of::<KeyValuePutArgs>() == 64);

/// Makes an error that the store gives back to us.
unsafe extern "C" fn error(_: i32, message: *const u8, size: usize) -> *mut c_void {
    // SAFETY: the caller's text.
    let text = unsafe { crate::abi::slice(message, size) };
    Box::into_raw(Box::new(String::from_utf8_lossy(text).into_owned())).cast()
}

/// What the store answered.
fn checked(answer: *mut c_void) -> Result<(), String> {
    match answer.is_null() {
        true => Ok(()),
        // SAFETY: made by `error`, and given back once.
        false => Err(*unsafe { Box::from_raw(answer.cast::<String>()) }),
    }
}

impl JaxStore {
    fn new(args: &ClientCreateArgs) -> Result<JaxStore, Status> {
        if args.kv_get_callback.is_null() || args.kv_put_callback.is_null() {
            return Err(Status::invalid("there is no key-value store: call jax.distributed.initialize first"));
        }
        // SAFETY: in jobs of several processes these are functions of these types.
        let (get, put) = unsafe {
            (
                std::mem::transmute::<*mut c_void, GetCallback>(args.kv_get_callback),
                std::mem::transmute::<*mut c_void, PutCallback>(args.kv_put_callback),
            )
        };
        Ok(JaxStore {
            get,
            get_argument: args.kv_get_user_arg as usize,
            put,
            put_argument: args.kv_put_user_arg as usize,
            closed: AtomicBool::new(false),
        })
    }

    fn check_open(&self) -> Result<(), String> {
        match self.closed.load(Ordering::Acquire) {
            true => Err("the client is gone".into()),
            false => Ok(()),
        }
    }
}

impl KeyValueStore for JaxStore {
    fn put(&self, key: &str, value: &str) -> Result<(), String> {
        self.check_open()?;
        let callback_error: CallbackError = error;
        let mut args = KeyValuePutArgs {
            struct_size: size_of::<KeyValuePutArgs>(),
            extension_start: std::ptr::null_mut(),
            key: key.as_ptr(),
            key_size: key.len(),
            value: value.as_ptr(),
            value_size: value.len(),
            callback_error: &raw const callback_error,
            user_arg: self.put_argument as *mut c_void,
        };
        // SAFETY: the caller's function with the caller's argument, which live as long as the client.
        checked(unsafe { (self.put)(&raw mut args) })
    }

    fn get(&self, key: &str, time_limit: Duration) -> Result<String, String> {
        self.check_open()?;
        let callback_error: CallbackError = error;
        let mut args = KeyValueGetArgs {
            struct_size: size_of::<KeyValueGetArgs>(),
            extension_start: std::ptr::null_mut(),
            key: key.as_ptr(),
            key_size: key.len(),
            timeout_in_ms: i32::try_from(time_limit.as_millis()).unwrap_or(i32::MAX),
            callback_error: &raw const callback_error,
            user_arg: self.get_argument as *mut c_void,
            value: std::ptr::null_mut(),
            value_size: 0,
            value_deleter: None,
        };
        // SAFETY: the caller's function with the caller's argument, which live as long as the client.
        checked(unsafe { (self.get)(&raw mut args) })?;
        // SAFETY: the function has given a value of that size.
        let value = String::from_utf8_lossy(unsafe { crate::abi::slice(args.value, args.value_size) }).into_owned();
        if let Some(delete) = args.value_deleter {
            // SAFETY: the value is the function's to delete, once.
            unsafe { delete(args.value) };
        }
        Ok(value)
    }
}
