//! MPI, loaded at run time: Open MPI and MPICH (and what keeps MPICH's ABI: Intel MPI, MVAPICH, Cray MPICH).
//!
//! Nothing of an MPI is needed to build or to run in one process. The two families have different ABIs: handles are
//! pointers to objects of the library in one and integers in the other, and statuses are laid out differently. [`abi`] has
//! both as types, so that a handle of one can never be passed to the other; which of them a library is, it says itself
//! (`MPI_Get_library_version`), before any handle is made. Wrapping the standard ABI of MPI 5 instead would leave out the
//! libraries that clusters have today.
//!
//! The library is asked for `MPI_THREAD_SERIALIZED`: the engine calls it under one lock.

mod abi;
mod library;
mod pmi;

use crate::world::message_passing::MessagePassing;
use abi::{Functions, Job};
use library::Library;
use std::sync::Arc;
use std::time::Duration;

pub use library::MpiError;
pub use pmi::KeyValueStore;

/// The MPI to load, if it is not the one that the launcher belongs to.
pub const LIBRARY_VARIABLE: &str = "HLOOM_MPI_LIBRARY";

/// Joins the job that a launcher started this process for. Returns when all its processes have come.
pub fn init() -> Result<Box<dyn MessagePassing>, MpiError> {
    join(&Library::open(&library::of_launcher())?)
}

/// Joins a job that nobody launched: process `rank` of `size`, which find each other through a store that they share. Only
/// MPICH can be used so. Returns when all have come.
pub fn init_by_store(
    store: Arc<dyn KeyValueStore>,
    rank: usize,
    size: usize,
    time_limit: Duration,
) -> Result<Box<dyn MessagePassing>, MpiError> {
    let library = Library::open(&library::mpich())?;
    let version = library.version()?;
    if version.contains("Open MPI") {
        let message = format!("{} is {version}, which needs a launcher", library.name());
        return Err(MpiError(format!("{message}: start the processes with mpirun, or install MPICH")));
    }
    pmi::served(store, rank, size, time_limit, || join(&library))
}

fn join(library: &Library) -> Result<Box<dyn MessagePassing>, MpiError> {
    match library.version()? {
        version if version.contains("Open MPI") => {
            let constants = abi::open_mpi(library)?;
            Ok(Box::new(Job::init(Functions::load(library)?, constants)?))
        }
        version if ["MPICH", "Intel(R) MPI", "MVAPICH", "CRAY MPICH"].iter().any(|name| version.contains(name)) => {
            Ok(Box::new(Job::init(Functions::load(library)?, abi::mpich())?))
        }
        version => Err(MpiError(format!("{} is an MPI that hloom does not know: {version}", library.name()))),
    }
}
