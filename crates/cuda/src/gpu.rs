//! A GPU: its context, the one stream that all work goes through, its memory, and the libraries that were opened for it.
//!
//! All work is enqueued on one stream, so that memory given back by the host may be given out again while the GPU still
//! uses it: who gets it is behind on the stream. Whoever enqueues holds [`Gpu::lock`]: what one thread captures as a graph
//! must not have another's work in it.

use crate::conditional::Conditionals;
use crate::cubin::Assembler;
use crate::cublaslt::CublasLt;
use crate::cudnn::Cudnn;
use crate::cufft::{Cublas, Cufft};
use crate::cusolver::Cusolver;
use crate::driver::{DevicePointer, Driver, Handle, NOT_READY, is_fatal};
use crate::lanes::Lanes;
use crate::memory::Pool;
use crate::nccl::{Communicators, Nccl};
use hloom_ir::diagnostic::{Blame, codes};
use hloom_value::ExecutionError;
use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// So many bytes go to the device as they are: pinned memory takes milliseconds to come by, and programs with a constant or
/// two would be compiled so much later.
const UNSTAGED_BYTES: usize = 1 << 16;
/// Bytes of pinned memory that arrays pass through on their way, in two halves.
const STAGING_BYTES: usize = 32 << 20;
/// Memory for cuBLASLt, as much as it is told to want on Hopper.
pub(crate) const WORKSPACE_BYTES: usize = 32 << 20;
/// How long to ask again and again whether work is done before the thread sleeps in between.
const SPIN: Duration = Duration::from_millis(20);

/// What a device is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Description {
    pub(crate) name: String,
    /// 90 for 9.0.
    pub(crate) capability: u32,
    pub(crate) memory_bytes: usize,
    /// 13000 for 13.0.
    pub(crate) driver_version: i32,
    /// How many GPUs the driver sees.
    pub(crate) count: usize,
    /// Which of them this is.
    pub(crate) index: usize,
    /// What it is known by on every machine.
    pub(crate) uuid: [u8; 16],
}

/// A GPU.
#[derive(Debug)]
pub(crate) struct Gpu {
    pub(crate) driver: Driver,
    pub(crate) description: Description,
    context: Handle,
    /// The stream that work goes to: another one while the body of a conditional node is captured.
    current: AtomicUsize,
    /// The memory that libraries work in there; 0 for that of the one stream.
    current_workspace: AtomicU64,
    /// Streams for such bodies, that no capture is on.
    spare: Mutex<Vec<Handle>>,
    enqueue: Mutex<()>,
    pub(crate) pool: Pool,
    staging: Mutex<Option<Staging>>,
    cublaslt: OnceLock<Result<CublasLt, ExecutionError>>,
    cudnn: OnceLock<Result<Cudnn, ExecutionError>>,
    cufft: OnceLock<Result<Cufft, ExecutionError>>,
    cublas: OnceLock<Result<Cublas, ExecutionError>>,
    cusolver: OnceLock<Result<Cusolver, ExecutionError>>,
    nccl: OnceLock<Result<Communicators, ExecutionError>>,
    conditionals: OnceLock<Result<Conditionals, ExecutionError>>,
    workspace: OnceLock<Result<DevicePointer, ExecutionError>>,
    pub(crate) lanes: OnceLock<Result<Lanes, ExecutionError>>,
    pub(crate) assembler: Arc<Assembler>,
    /// Why nothing runs here any more: a kernel that trapped, or one that did not end in time.
    lost: OnceLock<ExecutionError>,
    /// Whether every thunk is waited for, so that a fault is told of the instruction that it is in.
    pub(crate) blocks: bool,
}

/// Pinned memory, and what has to be over before each half is written again.
#[derive(Debug)]
struct Staging {
    start: *mut u8,
    free_at: [Handle; 2],
}

// SAFETY: the memory is used by who holds the lock around it.
unsafe impl Send for Staging {}

/// What a wait is given.
#[derive(Clone, Copy, Default)]
pub(crate) struct Patience<'p> {
    pub(crate) cancel: Option<&'p AtomicBool>,
    pub(crate) time_limit: Option<Duration>,
    /// Is asked now and then why the work will never be done.
    pub(crate) check: Option<&'p dyn Fn() -> Result<(), ExecutionError>>,
}

impl Gpu {
    /// The GPU of that number.
    pub(crate) fn open(driver: Driver, index: usize, assembler: Arc<Assembler>) -> Result<Gpu, ExecutionError> {
        let (device, description) = describe(&driver, index)?;
        let (mut context, mut stream) = (0, 0);
        // SAFETY (all calls of the driver here): out parameters are valid, and handles are those that the driver gave.
        unsafe {
            driver.check((driver.context_retain)(&mut context, device), "cuDevicePrimaryCtxRetain")?;
            driver.check((driver.context_set)(context), "cuCtxSetCurrent")?;
            // CU_STREAM_NON_BLOCKING: the default stream is nobody's.
            driver.check((driver.stream_create)(&mut stream, 1), "cuStreamCreate")?;
        }
        Ok(Gpu {
            driver,
            description,
            context,
            current: AtomicUsize::new(stream),
            current_workspace: AtomicU64::new(0),
            spare: Mutex::default(),
            enqueue: Mutex::default(),
            pool: Pool::default(),
            staging: Mutex::default(),
            cublaslt: OnceLock::new(),
            cudnn: OnceLock::new(),
            cufft: OnceLock::new(),
            cublas: OnceLock::new(),
            cusolver: OnceLock::new(),
            nccl: OnceLock::new(),
            conditionals: OnceLock::new(),
            workspace: OnceLock::new(),
            lanes: OnceLock::new(),
            assembler,
            lost: OnceLock::new(),
            blocks: std::env::var_os("HLOOM_CUDA_BLOCKING").is_some_and(|v| v != "0" && !v.is_empty()),
        })
    }

    /// Makes the GPU this thread's.
    pub(crate) fn enter(&self) -> Result<(), ExecutionError> {
        // SAFETY: the context lives as long as the process.
        self.driver.check(unsafe { (self.driver.context_set)(self.context) }, "cuCtxSetCurrent")
    }

    /// Leave to enqueue work.
    pub(crate) fn lock(&self) -> Result<MutexGuard<'_, ()>, ExecutionError> {
        let guard = self.enqueue.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = self.lost.get() {
            return Err(error.clone().note("since then this process cannot use the GPU; a new one can"));
        }
        self.enter()?;
        Ok(guard)
    }

    /// Remembers a fault after which nothing runs here any more.
    pub(crate) fn mark_lost(&self, error: &ExecutionError) {
        self.lost.get_or_init(|| error.clone());
    }

    /// The same for one whose instruction is not known.
    fn lose(&self, error: ExecutionError) -> ExecutionError {
        let error = match self.blocks {
            true => error,
            false => error.help("set HLOOM_CUDA_BLOCKING=1 to hear which instruction it is"),
        };
        self.mark_lost(&error);
        error
    }

    /// The answer of a call that waits for work.
    fn waited(&self, status: i32, call: &str) -> Result<(), ExecutionError> {
        let answer = self.driver.check(status, call);
        if is_fatal(status) { answer.map_err(|error| self.lose(error)) } else { answer }
    }

    /// The stream that work is enqueued on.
    pub(crate) fn stream(&self) -> Handle {
        self.current.load(Ordering::Relaxed)
    }

    /// The context.
    pub(crate) fn context(&self) -> Handle {
        self.context
    }

    /// A stream that nothing is on.
    pub(crate) fn other_stream(&self) -> Result<Handle, ExecutionError> {
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if let Some(stream) = spare {
            return Ok(stream);
        }
        let mut stream = 0;
        // SAFETY: the out parameter is valid.
        self.driver.check(unsafe { (self.driver.stream_create)(&mut stream, 1) }, "cuStreamCreate")?;
        Ok(stream)
    }

    /// Does `enqueue` with its work on another stream, which is spare afterwards.
    pub(crate) fn on_stream<T>(&self, stream: Handle, enqueue: impl FnOnce() -> T) -> T {
        let before = self.current.swap(stream, Ordering::Relaxed);
        let result = enqueue();
        self.current.store(before, Ordering::Relaxed);
        self.spare.lock().unwrap_or_else(PoisonError::into_inner).push(stream);
        result
    }

    /// What makes conditional nodes, if the driver has them.
    pub(crate) fn conditionals(&self) -> Option<&Conditionals> {
        if self.description.driver_version < 12040 {
            return None;
        }
        self.conditionals.get_or_init(|| Conditionals::open(self)).as_ref().ok()
    }

    /// Why there are no conditional nodes.
    pub(crate) fn why_no_conditionals(&self) -> String {
        match self.conditionals.get() {
            Some(Err(error)) => error.diagnostic().message.clone(),
            _ => "the driver is older than CUDA 12.4".to_owned(),
        }
    }

    /// cuBLASLt.
    pub(crate) fn cublaslt(&self) -> Result<&CublasLt, ExecutionError> {
        self.cublaslt.get_or_init(CublasLt::open).as_ref().map_err(Clone::clone)
    }

    /// cuDNN.
    pub(crate) fn cudnn(&self) -> Result<&Cudnn, ExecutionError> {
        self.cudnn.get_or_init(Cudnn::open).as_ref().map_err(Clone::clone)
    }

    /// cuFFT.
    pub(crate) fn cufft(&self) -> Result<&Cufft, ExecutionError> {
        self.cufft.get_or_init(Cufft::open).as_ref().map_err(Clone::clone)
    }

    /// cuBLAS.
    pub(crate) fn cublas(&self) -> Result<&Cublas, ExecutionError> {
        self.cublas.get_or_init(Cublas::open).as_ref().map_err(Clone::clone)
    }

    /// cuSOLVER.
    pub(crate) fn cusolver(&self) -> Result<&Cusolver, ExecutionError> {
        self.cusolver.get_or_init(Cusolver::open).as_ref().map_err(Clone::clone)
    }

    /// NCCL, with the communicators that this GPU is in.
    pub(crate) fn nccl(&self) -> Result<&Communicators, ExecutionError> {
        let open = || match Nccl::open() {
            Ok(nccl) => Ok(Communicators::new(Arc::new(nccl), self.description.uuid)),
            Err(error) => Err(error.help("with one GPU (CUDA_VISIBLE_DEVICES=0) devices of one process need none")),
        };
        self.nccl.get_or_init(open).as_ref().map_err(Clone::clone)
    }

    /// Makes `stream` the one that work goes to, and says which was; the workspace is that of the one stream where none is
    /// named.
    pub(crate) fn swap_current(
        &self,
        stream: Handle,
        workspace: Option<DevicePointer>,
    ) -> (Handle, Option<DevicePointer>) {
        let workspace = self.current_workspace.swap(workspace.unwrap_or(0), Ordering::Relaxed);
        (self.current.swap(stream, Ordering::Relaxed), Some(workspace).filter(|&w| w != 0))
    }

    /// The memory that libraries work in.
    pub(crate) fn workspace(&self) -> Result<DevicePointer, ExecutionError> {
        match self.current_workspace.load(Ordering::Relaxed) {
            0 => self.workspace.get_or_init(|| self.new_workspace()).clone(),
            of_lane => Ok(of_lane),
        }
    }

    /// Memory for libraries to work in, never given back.
    pub(crate) fn new_workspace(&self) -> Result<DevicePointer, ExecutionError> {
        self.pool.fresh(&self.driver, WORKSPACE_BYTES)
    }

    /// Waits until all work is done.
    pub(crate) fn synchronize(&self) -> Result<(), ExecutionError> {
        // SAFETY: the stream is ours.
        self.waited(unsafe { (self.driver.stream_synchronize)(self.stream()) }, "the work on the GPU")
    }

    /// Waits until all work is done, for as long as `patience` lasts.
    pub(crate) fn wait(&self, patience: Patience<'_>) -> Result<(), ExecutionError> {
        let event = Event::new(self, false)?;
        event.record()?;
        let begun = Instant::now();
        loop {
            if event.is_over()? {
                return Ok(());
            }
            if patience.cancel.is_some_and(|c| c.load(Ordering::Relaxed)) {
                return Err(ExecutionError::new(&codes::eval::CANCELLED, "the run was cancelled"));
            }
            let waited = begun.elapsed();
            if patience.time_limit.is_some_and(|limit| waited > limit) {
                let message = format!("the GPU is not done after {:.1} s", waited.as_secs_f64());
                let error = ExecutionError::new(&codes::eval::DEVICE_FAILED, message).blame(Blame::Machine);
                return Err(self.lose(error));
            }
            if waited < SPIN {
                std::hint::spin_loop();
                continue;
            }
            patience.check.map_or(Ok(()), |check| check())?;
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Copies bytes to the device; they have been read when this returns.
    pub(crate) fn upload(&self, to: DevicePointer, from: &[u8]) -> Result<(), ExecutionError> {
        if from.len() <= UNSTAGED_BYTES {
            // SAFETY: `to` is as long as `from`, which is there until the copy is over.
            let call = unsafe { (self.driver.copy_to_device)(to, from.as_ptr(), from.len(), self.stream()) };
            self.driver.check(call, "cuMemcpyHtoDAsync")?;
            return self.synchronize();
        }
        self.staged(from.len(), |gpu, staging, range, half| {
            // SAFETY: half of the staging memory is that long, and nothing reads it any more; `to` is as long as `from`.
            unsafe {
                let pinned = staging.half(half);
                std::ptr::copy_nonoverlapping(from[range.clone()].as_ptr(), pinned, range.len());
                let call = (gpu.driver.copy_to_device)(to + range.start as u64, pinned, range.len(), gpu.stream());
                gpu.driver.check(call, "cuMemcpyHtoDAsync")
            }
        })?;
        self.synchronize()
    }

    /// Copies bytes from the device.
    pub(crate) fn download(&self, to: &mut [u8], from: DevicePointer) -> Result<(), ExecutionError> {
        let start = to.as_mut_ptr() as usize;
        self.staged(to.len(), |gpu, staging, range, half| {
            // SAFETY: as above; what was copied is there after the wait.
            unsafe {
                let pinned = staging.half(half);
                let call = (gpu.driver.copy_to_host)(pinned, from + range.start as u64, range.len(), gpu.stream());
                gpu.driver.check(call, "cuMemcpyDtoHAsync")?;
                gpu.synchronize()?;
                std::ptr::copy_nonoverlapping(pinned, (start + range.start) as *mut u8, range.len());
            }
            Ok(())
        })
    }

    /// Does `piece` for pieces of so many bytes that fit into the halves of the staging memory.
    fn staged(
        &self,
        bytes: usize,
        piece: impl Fn(&Gpu, &Staging, std::ops::Range<usize>, usize) -> Result<(), ExecutionError>,
    ) -> Result<(), ExecutionError> {
        let mut staging = self.staging.lock().unwrap_or_else(PoisonError::into_inner);
        if staging.is_none() {
            *staging = Some(Staging::new(self)?);
        }
        let Some(staging) = staging.as_ref() else { return Ok(()) };
        let size = STAGING_BYTES / 2;
        for (n, start) in (0..bytes).step_by(size).enumerate() {
            let half = n % 2;
            let event = Event { gpu: self, handle: staging.free_at[half], is_kept: true };
            while !event.is_over()? {
                std::hint::spin_loop();
            }
            piece(self, staging, start..bytes.min(start + size), half)?;
            event.record()?;
        }
        Ok(())
    }
}

impl Staging {
    fn new(gpu: &Gpu) -> Result<Staging, ExecutionError> {
        let mut start = std::ptr::null_mut();
        // SAFETY: the out parameter is valid. The memory is never given back.
        gpu.driver.check(unsafe { (gpu.driver.allocate_host)(&mut start, STAGING_BYTES, 0) }, "cuMemHostAlloc")?;
        let event = || -> Result<Handle, ExecutionError> {
            let event = Event::new(gpu, false)?;
            event.record()?;
            Ok(event.keep())
        };
        Ok(Staging { start, free_at: [event()?, event()?] })
    }

    fn half(&self, half: usize) -> *mut u8 {
        self.start.wrapping_add(half * (STAGING_BYTES / 2))
    }
}

/// A mark on the stream.
pub(crate) struct Event<'g> {
    gpu: &'g Gpu,
    pub(crate) handle: Handle,
    is_kept: bool,
}

impl<'g> Event<'g> {
    /// A mark, with or without the time at which it is passed.
    pub(crate) fn new(gpu: &'g Gpu, timed: bool) -> Result<Event<'g>, ExecutionError> {
        let mut handle = 0;
        // SAFETY: the out parameter is valid. 2 is CU_EVENT_DISABLE_TIMING.
        let call = unsafe { (gpu.driver.event_create)(&mut handle, if timed { 0 } else { 2 }) };
        gpu.driver.check(call, "cuEventCreate")?;
        Ok(Event { gpu, handle, is_kept: false })
    }

    /// The mark itself, never destroyed.
    pub(crate) fn keep(mut self) -> Handle {
        self.is_kept = true;
        self.handle
    }

    /// Puts it behind all work so far.
    pub(crate) fn record(&self) -> Result<(), ExecutionError> {
        // SAFETY: event and stream are ours.
        let call = unsafe { (self.gpu.driver.event_record)(self.handle, self.gpu.stream()) };
        self.gpu.driver.check(call, "cuEventRecord")
    }

    /// Whether the work before it is done.
    pub(crate) fn is_over(&self) -> Result<bool, ExecutionError> {
        // SAFETY: the event is ours.
        match unsafe { (self.gpu.driver.event_query)(self.handle) } {
            0 => Ok(true),
            NOT_READY => Ok(false),
            status => self.gpu.waited(status, "the work on the GPU").map(|()| true),
        }
    }

    /// The time from an earlier mark to this one; both must be over.
    pub(crate) fn since(&self, earlier: &Event<'_>) -> Result<Duration, ExecutionError> {
        let mut milliseconds = 0f32;
        // SAFETY: the events are ours.
        let call = unsafe { (self.gpu.driver.event_elapsed)(&mut milliseconds, earlier.handle, self.handle) };
        self.gpu.driver.check(call, "cuEventElapsedTime")?;
        Ok(Duration::from_secs_f64(f64::from(milliseconds.max(0.0)) / 1e3))
    }
}

impl Drop for Event<'_> {
    fn drop(&mut self) {
        if !self.is_kept {
            // SAFETY: the event is ours, and nobody else has it.
            unsafe { (self.gpu.driver.event_destroy)(self.handle) };
        }
    }
}

fn machine_fault(message: String) -> ExecutionError {
    ExecutionError::new(&codes::eval::DEVICE_FAILED, message).blame(Blame::Machine)
}

/// How many GPUs the driver sees.
pub(crate) fn count(driver: &Driver) -> Result<usize, ExecutionError> {
    let mut count = 0;
    // SAFETY (both): the out parameter is valid.
    unsafe {
        driver.check((driver.init)(0), "cuInit")?;
        driver.check((driver.device_count)(&mut count), "cuDeviceGetCount")?;
    }
    match usize::try_from(count) {
        Ok(0) | Err(_) => Err(machine_fault("the CUDA driver sees no GPU on this machine".into())),
        Ok(count) => Ok(count),
    }
}

/// The GPU of that number and what the driver calls it, if programs can be made for it.
fn describe(driver: &Driver, index: usize) -> Result<(i32, Description), ExecutionError> {
    let count = count(driver)?;
    let (mut driver_version, mut device, mut memory_bytes, mut uuid) = (0, 0, 0usize, [0; 16]);
    let mut name = [0 as std::ffi::c_char; 256];
    // SAFETY (all): out parameters are valid and as long as is said.
    unsafe {
        driver.check((driver.driver_version)(&mut driver_version), "cuDriverGetVersion")?;
        driver.check((driver.device_get)(&mut device, i32::try_from(index).unwrap_or(i32::MAX)), "cuDeviceGet")?;
        driver.check((driver.device_uuid)(&mut uuid, device), "cuDeviceGetUuid")?;
        driver.check((driver.device_name)(name.as_mut_ptr(), 255, device), "cuDeviceGetName")?;
        driver.check((driver.device_memory)(&mut memory_bytes, device), "cuDeviceTotalMem")?;
    }
    let attribute = |number: i32| {
        let mut value = 0;
        // SAFETY: the out parameter is valid.
        let call = unsafe { (driver.device_attribute)(&mut value, number, device) };
        driver.check(call, "cuDeviceGetAttribute").map(|()| value)
    };
    // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR.
    let capability = (attribute(75)? * 10 + attribute(76)?) as u32;
    // SAFETY: the driver ends the name with a zero; the last byte is one in any case.
    let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();
    if driver_version < 12000 {
        let version = format!("{}.{}", driver_version / 1000, driver_version % 1000 / 10);
        return Err(machine_fault(format!("the CUDA driver is too old: it is for CUDA {version}, and 12.0 is needed")));
    }
    if capability < 80 {
        let version = format!("{}.{}", capability / 10, capability % 10);
        return Err(machine_fault(format!("{name} has compute capability {version}, and 8.0 is needed")));
    }
    Ok((device, Description { name, capability, memory_bytes, driver_version, count, index, uuid }))
}
