//! The two ABIs of MPI, and a job over either.
//!
//! `H` is what a handle is: a pointer in Open MPI, an integer in MPICH. [`Functions`] and [`Constants`] of the same `H`
//! belong together, and nothing else compiles.

use super::library::{Library, MpiError};
use crate::world::ANNOUNCEMENT_BYTES;
use crate::world::message_passing::{
    ANNOUNCEMENT_TAG, MessagePassing, MessageRequest, MessageRequests, TransportError,
};
use std::collections::VecDeque;
use std::ffi::{c_int, c_void};

/// Room for a status of any ABI, aligned for any of its fields.
type Status = [u64; 8];

/// The functions that are used, with `H` for handles.
pub(crate) struct Functions<H> {
    init_thread: unsafe extern "C" fn(*mut c_int, *mut *mut c_void, c_int, *mut c_int) -> c_int,
    finalize: unsafe extern "C" fn() -> c_int,
    initialized: unsafe extern "C" fn(*mut c_int) -> c_int,
    query_thread: unsafe extern "C" fn(*mut c_int) -> c_int,
    comm_dup: unsafe extern "C" fn(H, *mut H) -> c_int,
    comm_rank: unsafe extern "C" fn(H, *mut c_int) -> c_int,
    comm_size: unsafe extern "C" fn(H, *mut c_int) -> c_int,
    comm_set_errhandler: unsafe extern "C" fn(H, H) -> c_int,
    isend: unsafe extern "C" fn(*const c_void, c_int, H, c_int, c_int, H, *mut H) -> c_int,
    irecv: unsafe extern "C" fn(*mut c_void, c_int, H, c_int, c_int, H, *mut H) -> c_int,
    test: unsafe extern "C" fn(*mut H, *mut c_int, *mut c_void) -> c_int,
    cancel: unsafe extern "C" fn(*mut H) -> c_int,
    request_free: unsafe extern "C" fn(*mut H) -> c_int,
    comm_get_attr: unsafe extern "C" fn(H, c_int, *mut c_void, *mut c_int) -> c_int,
    get_count: unsafe extern "C" fn(*const c_void, H, *mut c_int) -> c_int,
    error_string: unsafe extern "C" fn(c_int, *mut u8, *mut c_int) -> c_int,
}

impl<H> Functions<H> {
    /// Finds the functions. `H` must be what the library's handles are.
    pub(crate) fn load(library: &Library) -> Result<Functions<H>, MpiError> {
        macro_rules! function {
            ($name:literal) => {
                // SAFETY: the C functions of these names have these types in every MPI, with `H` for handles.
                unsafe { library.function($name)? }
            };
        }
        Ok(Functions {
            init_thread: function!("MPI_Init_thread"),
            finalize: function!("MPI_Finalize"),
            initialized: function!("MPI_Initialized"),
            query_thread: function!("MPI_Query_thread"),
            comm_dup: function!("MPI_Comm_dup"),
            comm_rank: function!("MPI_Comm_rank"),
            comm_size: function!("MPI_Comm_size"),
            comm_set_errhandler: function!("MPI_Comm_set_errhandler"),
            isend: function!("MPI_Isend"),
            irecv: function!("MPI_Irecv"),
            test: function!("MPI_Test"),
            cancel: function!("MPI_Cancel"),
            request_free: function!("MPI_Request_free"),
            comm_get_attr: function!("MPI_Comm_get_attr"),
            get_count: function!("MPI_Get_count"),
            error_string: function!("MPI_Error_string"),
        })
    }
}

/// What the header of an MPI says.
#[derive(Clone, Copy)]
pub(crate) struct Constants<H> {
    world: H,
    byte: H,
    errors_return: H,
    null_request: H,
    any_source: c_int,
    /// The key of the attribute that says the largest tag.
    tag_ub: c_int,
    status_ignore: *mut c_void,
    /// Where a status has its source, in 32-bit words.
    source_word: usize,
}

/// MPI_THREAD_SERIALIZED in both.
const SERIALIZED: c_int = 2;

/// A handle of Open MPI.
pub(crate) type OpenMpiHandle = *mut c_void;

/// Open MPI 4 and 5: predefined handles are objects of the library.
pub(crate) fn open_mpi(library: &Library) -> Result<Constants<OpenMpiHandle>, MpiError> {
    Ok(Constants {
        world: library.symbol("ompi_mpi_comm_world")?,
        byte: library.symbol("ompi_mpi_byte")?,
        errors_return: library.symbol("ompi_mpi_errors_return")?,
        null_request: library.symbol("ompi_request_null")?,
        any_source: -1,
        tag_ub: 0,
        status_ignore: std::ptr::null_mut(),
        source_word: 0,
    })
}

/// MPICH 3.1 and later, whose ABI several vendors keep: handles are integers, predefined ones constants.
pub(crate) fn mpich() -> Constants<c_int> {
    Constants {
        world: 0x4400_0000,
        byte: 0x4c00_010d,
        errors_return: 0x5400_0001,
        null_request: 0x2c00_0000,
        any_source: -2,
        tag_ub: 0x6440_0001,
        // MPI_STATUS_IGNORE is the address 1.
        status_ignore: std::ptr::without_provenance_mut(1),
        source_word: 2,
    }
}

/// Handles of either ABI as numbers, to be kept as requests.
pub(crate) trait Handle: Copy + PartialEq + 'static {
    fn to_number(self) -> u64;
    fn from_number(number: u64) -> Self;
}

impl Handle for OpenMpiHandle {
    fn to_number(self) -> u64 {
        self.expose_provenance() as u64
    }
    fn from_number(number: u64) -> Self {
        std::ptr::with_exposed_provenance_mut(number as usize)
    }
}

impl Handle for c_int {
    fn to_number(self) -> u64 {
        u64::from(self as u32)
    }
    fn from_number(number: u64) -> Self {
        number as u32 as c_int
    }
}

/// The bytes of a message at most: counts are C integers.
const MAX_BYTES: usize = 1 << 30;

/// A job of several processes.
pub(crate) struct Job<H> {
    functions: Functions<H>,
    constants: Constants<H>,
    /// A communicator of our own, so that nobody else's messages come between ours.
    comm: H,
    rank: usize,
    size: usize,
    max_tag: c_int,
    /// Receives of announcements that are to come from anybody, in their order.
    announcements: VecDeque<(H, Vec<u8>)>,
    /// Memory for one more: it is begun at the next look, so that what has just come is not kept waiting.
    next_buffer: Option<Vec<u8>>,
}

/// Announcements that are expected at once.
const EXPECTED: usize = 8;
/// What every library has for tags.
const LEAST_MAX_TAG: c_int = 32_767;

// SAFETY: handles are not tied to a thread, and the library is asked to serve one thread at a time, whichever it is.
unsafe impl<H> Send for Job<H> {}

impl<H> std::fmt::Debug for Job<H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "process {} of {}", self.rank, self.size)
    }
}

impl<H: Handle> Job<H> {
    /// Initialises MPI and joins the others.
    pub(crate) fn init(functions: Functions<H>, constants: Constants<H>) -> Result<Job<H>, MpiError> {
        let mut job = Job {
            functions,
            constants,
            comm: constants.world,
            rank: 0,
            size: 1,
            max_tag: LEAST_MAX_TAG,
            announcements: VecDeque::new(),
            next_buffer: None,
        };
        let failed = |what: &str| MpiError(format!("{what} failed"));
        let (mut provided, mut rank, mut size, mut begun) = (0, 0, 0, 0);
        // SAFETY: null stands for no arguments. Somebody else in this process (mpi4py) may have initialised MPI already.
        let rc = unsafe {
            let none = std::ptr::null_mut();
            match (job.functions.initialized)(&raw mut begun) {
                0 if begun != 0 => (job.functions.query_thread)(&raw mut provided),
                0 => (job.functions.init_thread)(none, none.cast(), SERIALIZED, &raw mut provided),
                failed => failed,
            }
        };
        if rc != 0 {
            return Err(failed("MPI_Init_thread"));
        }
        if provided < SERIALIZED {
            return Err(MpiError("this MPI does not let several threads use it, not even in turn".into()));
        }
        let mut comm = constants.world;
        // SAFETY (all): MPI is initialised, and the handles are its own.
        unsafe {
            job.check((job.functions.comm_set_errhandler)(constants.world, constants.errors_return))?;
            job.check((job.functions.comm_dup)(constants.world, &raw mut comm))?;
            job.comm = comm;
            job.check((job.functions.comm_set_errhandler)(comm, constants.errors_return))?;
            job.check((job.functions.comm_rank)(comm, &raw mut rank))?;
            job.check((job.functions.comm_size)(comm, &raw mut size))?;
        }
        // SAFETY: MPI is initialised; the attribute is a pointer to an integer.
        job.max_tag = unsafe {
            let (mut value, mut found): (*mut c_int, c_int) = (std::ptr::null_mut(), 0);
            let code = (job.functions.comm_get_attr)(comm, constants.tag_ub, (&raw mut value).cast(), &raw mut found);
            let is_told = code == 0 && found != 0 && !value.is_null();
            if is_told { value.read().max(LEAST_MAX_TAG) } else { LEAST_MAX_TAG }
        };
        for _ in 0..EXPECTED {
            job.expect_announcement(Vec::new()).map_err(|error| MpiError(error.0))?;
        }
        job.rank = usize::try_from(rank).map_err(|_| failed("MPI_Comm_rank"))?;
        job.size = usize::try_from(size).map_err(|_| failed("MPI_Comm_size"))?;
        Ok(job)
    }

    fn check(&self, code: c_int) -> Result<(), MpiError> {
        if code == 0 {
            return Ok(());
        }
        // MPI_MAX_ERROR_STRING is 512 at most.
        let (mut text, mut length) = (vec![0u8; 1024], 0);
        // SAFETY: the buffer is longer than any message.
        unsafe { (self.functions.error_string)(code, text.as_mut_ptr(), &raw mut length) };
        text.truncate(usize::try_from(length).unwrap_or(0));
        Err(MpiError(String::from_utf8_lossy(&text).into_owned()))
    }

    fn transport(&self, code: c_int) -> Result<(), TransportError> {
        self.check(code).map_err(|error| TransportError(error.0))
    }

    /// Begins to receive an announcement that is to come, into this buffer.
    fn expect_announcement(&mut self, mut buffer: Vec<u8>) -> Result<(), TransportError> {
        buffer.clear();
        buffer.reserve(ANNOUNCEMENT_BYTES);
        let (mut request, length) = (self.constants.null_request, Self::to_int(ANNOUNCEMENT_BYTES)?);
        let Constants { byte, any_source, .. } = self.constants;
        // SAFETY: the buffer is kept until the request is complete, with room for so many bytes; moving the vector does not
        // move them.
        let code = unsafe {
            let start = buffer.as_mut_ptr().cast();
            (self.functions.irecv)(start, length, byte, any_source, ANNOUNCEMENT_TAG, self.comm, &raw mut request)
        };
        self.transport(code)?;
        self.announcements.push_back((request, buffer));
        Ok(())
    }

    fn to_int(number: usize) -> Result<c_int, TransportError> {
        c_int::try_from(number).map_err(|_| TransportError(format!("{number} is too large for MPI")))
    }
}

/// The parts that a message travels in: at least one.
fn parts(length: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..length.max(1)).step_by(MAX_BYTES).map(move |first| (first, MAX_BYTES.min(length - first)))
}

impl<H: Handle> MessagePassing for Job<H> {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn max_tag(&self) -> i32 {
        self.max_tag
    }

    unsafe fn send(
        &mut self,
        to: usize,
        tag: i32,
        bytes: *const u8,
        length: usize,
        requests: &mut MessageRequests,
    ) -> Result<(), TransportError> {
        let to = Self::to_int(to)?;
        for (first, part) in parts(length) {
            let (mut request, part) = (self.constants.null_request, Self::to_int(part)?);
            // SAFETY: the caller's promise of the bytes; the handles are the library's.
            let code = unsafe {
                let start = bytes.add(first).cast();
                (self.functions.isend)(start, part, self.constants.byte, to, tag, self.comm, &raw mut request)
            };
            self.transport(code)?;
            requests.push(MessageRequest(request.to_number()));
        }
        Ok(())
    }

    unsafe fn receive(
        &mut self,
        from: usize,
        tag: i32,
        bytes: *mut u8,
        length: usize,
        requests: &mut MessageRequests,
    ) -> Result<(), TransportError> {
        let from = Self::to_int(from)?;
        for (first, part) in parts(length) {
            let (mut request, part) = (self.constants.null_request, Self::to_int(part)?);
            // SAFETY: the caller's promise of the memory; the handles are the library's.
            let code = unsafe {
                let start = bytes.add(first).cast();
                (self.functions.irecv)(start, part, self.constants.byte, from, tag, self.comm, &raw mut request)
            };
            self.transport(code)?;
            requests.push(MessageRequest(request.to_number()));
        }
        Ok(())
    }

    fn is_complete(&mut self, request: MessageRequest) -> Result<bool, TransportError> {
        let (mut handle, mut flag) = (H::from_number(request.0), 0);
        // SAFETY: the request is one that the library gave and that is not complete yet; the status is not wanted. A
        // request that is not complete is left as it is.
        let code = unsafe { (self.functions.test)(&raw mut handle, &raw mut flag, self.constants.status_ignore) };
        self.transport(code)?;
        Ok(flag != 0)
    }

    fn next_announcement(&mut self, buffer: &mut Vec<u8>) -> Result<Option<usize>, TransportError> {
        if let Some(buffer) = self.next_buffer.take() {
            self.expect_announcement(buffer)?;
        }
        let Some((request, _)) = self.announcements.front_mut() else { return Ok(None) };
        let (mut flag, mut status, mut count): (c_int, Status, c_int) = (0, [0; 8], 0);
        let address: *mut c_void = (&raw mut status).cast();
        // SAFETY: the request is one that the library gave and that is not complete yet; the status is longer than that of
        // any MPI.
        let code = unsafe { (self.functions.test)(request, &raw mut flag, address) };
        self.transport(code)?;
        if flag == 0 {
            return Ok(None);
        }
        // SAFETY: the library has filled the status.
        let source = unsafe { address.cast::<c_int>().add(self.constants.source_word).read() };
        // SAFETY: the library has filled the status.
        self.transport(unsafe { (self.functions.get_count)(address, self.constants.byte, &raw mut count) })?;
        let (Ok(source), Ok(count)) = (usize::try_from(source), usize::try_from(count)) else {
            return Err(TransportError("a message comes from nowhere".into()));
        };
        let Some((_, mut received)) = self.announcements.pop_front() else { return Ok(None) };
        // SAFETY: the library has written so many bytes, for which there is room.
        unsafe { received.set_len(count.min(ANNOUNCEMENT_BYTES)) };
        std::mem::swap(buffer, &mut received);
        self.next_buffer = Some(received);
        match source < self.size {
            true => Ok(Some(source)),
            false => Err(TransportError("a message comes from nowhere".into())),
        }
    }

    fn finalize(&mut self) -> Result<(), TransportError> {
        for (mut request, buffer) in std::mem::take(&mut self.announcements) {
            // SAFETY: the request is one that the library gave and that is not complete; its memory is kept for ever.
            unsafe {
                (self.functions.cancel)(&raw mut request);
                (self.functions.request_free)(&raw mut request);
            }
            std::mem::forget(buffer);
        }
        // SAFETY: MPI is initialised, and nothing of ours is under way.
        let code = unsafe { (self.functions.finalize)() };
        match code {
            0 => Ok(()),
            _ => Err(TransportError("MPI_Finalize failed".into())),
        }
    }
}
