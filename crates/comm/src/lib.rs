//! Devices meeting: the trait [`Communicator`], its transports, and the certainty that nobody waits for ever.
//!
//! A collective is a meeting of a known list of devices: each brings the addresses of its arrays, and goes on when its
//! results are there; who has come may do something else before it waits. A message goes from one device to another. What
//! is done with the bytes is told by a [`Collective`]; nothing here knows instructions or values.
//!
//! [`InProcess`] is the transport among devices that are threads of this process. Since every wait happens in its
//! [`Rendezvous`], a wait that cannot end is known at once: when no device is running any more, those that wait are told whom
//! they miss and what those are doing instead. Only a device that computes for too long is found by a time limit.
//! [`world`] has the transport among devices of several processes.

mod collective;
mod communicator;
mod in_process;
mod launcher;
pub mod mpi;
mod rendezvous;
mod roll_call;
pub mod world;

pub use collective::{
    Addresses, ArrayGeometry, Collective, CollectiveKind, GroupSize, Parallel, ParticipantMemory, Reducer, Serial,
};
pub use communicator::{CollectiveRequest, Communicator, Purpose};
pub use in_process::InProcess;
pub use launcher::{LaunchedProcess, launched, local_rank, processes_beside};
pub use rendezvous::{Arrival, JoinError, JoinRequest, Rendezvous, RendezvousKey, Whereabouts};
pub use roll_call::RollCall;
pub use world::World;
