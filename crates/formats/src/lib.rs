//! Reading and writing: HLO text and HloModuleProto.

pub mod hlo_text;
pub mod npz;
mod open_layouts;
pub mod proto;
