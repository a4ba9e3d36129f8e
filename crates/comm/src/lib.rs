//! Devices meeting: rendezvous, mailboxes, and the certainty that nobody waits for ever.
//!
//! Devices are threads of one process. A collective is a meeting of a known list of devices: each brings something, the
//! last to arrive works out what everyone takes away, and all go on; who has come may do something else before it waits. A message goes from one device to another through a
//! mailbox. Since every wait happens here, a wait that cannot end is known at once: when no device is running any more,
//! those that wait are told whom they miss and what those are doing instead. Only a device that computes for too long is
//! found by a time limit.

#![forbid(unsafe_code)]

mod rendezvous;

pub use rendezvous::{Arrival, JoinError, JoinRequest, Rendezvous, RendezvousKey, Whereabouts};
