//! Devices meeting: rendezvous, time limits, who is absent.
