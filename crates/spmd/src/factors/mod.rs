//! Propagation along factors, over any graph of values and operations.
//!
//! A [`Graph`] is what the readers of StableHLO and HLO make of a program: values with or without a sharding, operations
//! with a [`crate::rules::Rule`]. [`engine`] carries axes from value to value until nothing changes: shardings only grow,
//! closed dimensions and annotated axes stay as they are, so it ends. What is kept: no axis is used twice in a sharding.

pub(crate) mod engine;
mod graph;
mod memo;
mod projection;
mod strategy;

pub(crate) use graph::{
    Direction, Graph, GraphOp, ManualView, MeshId, OpClass, OpRef, Origin, TensorRef, TensorSharding, Value, ValueRef,
    axis_refs,
};
pub(crate) use strategy::Strategy;
