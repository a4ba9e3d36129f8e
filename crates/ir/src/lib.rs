//! The HLO language.
//! ESSAY
pub mod attributes;
pub mod collective;
pub mod device_list;
pub mod diagnostic;
pub mod display;
pub mod edit;
pub mod element_type;
pub mod entity;
pub mod infer;
pub mod instruction;
pub mod layout;
pub mod literal;
pub mod metadata;
pub mod module;
pub mod names;
pub mod op;
pub mod opcode;
pub mod shape;
pub mod sharding;
pub mod verify;
