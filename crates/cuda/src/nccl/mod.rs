//! Collectives between GPUs by NCCL.
//!
//! Every device that takes part has a GPU of its own. Before a collective is given to NCCL its devices meet on the host, by
//! the [`hloom_comm::Communicator`] of the run ([`Communicators::enter`]): there they find out who is absent or has come for
//! something else, which NCCL would answer by waiting for ever; so NCCL is only entered for what all have come for. What is
//! then done is a [`Schedule`]: groups of calls with copies before and after, worked out without NCCL. The library is behind
//! [`calls::CollectiveCalls`]: `abi` opens the real one, when it is first needed; tests have one that works on the host's memory.

mod abi;
mod calls;
mod communicators;
#[cfg(test)]
mod double;
mod schedule;
#[cfg(test)]
mod tests;

pub(crate) use abi::Nccl;
pub(crate) use calls::Call;
pub(crate) use communicators::{Communicators, Limits, Meeting, not_done};
pub(crate) use schedule::{At, Place, Schedule, Step};
