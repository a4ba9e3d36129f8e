//! Reading and writing: HLO text and HloModuleProto.

pub mod hlo_text;
pub mod npz;
pub mod proto;
