//! Rewrites of HLO to HLO: passes, lists of them per target, and what runs them.
//!
//! A [`Pass`] is a small named unit with a statement of what it does. [`registry`] knows all of them by name, [`lists`]
//! says which run for which target, in which order and how often, and [`manager`] runs them, counts and times them, and
//! checks in debug builds that each leaves a valid module.
//!
//! A pass keeps what the program computes, for every input: floats as the evaluator makes them, but for sums and
//! products that are made in another order. It never panics on a verified module and takes time in proportion to the
//! module's size. Most passes are lists of rules, each a small function with its guard ([`rewrite`]).

pub mod barriers;
pub mod bitcasts;
pub mod collectives;
pub mod conditional;
pub mod copy_insertion;
pub mod cse;
pub mod dce;
pub mod defuse;
mod facts;
pub mod flatten_call_graph;
pub mod fold;
pub mod fusion;
pub mod inline;
pub mod layout_assignment;
pub mod lists;
pub mod loops;
pub mod manager;
pub mod normalize_layouts;
pub mod pass;
pub mod registry;
pub mod replicate;
pub mod rewrite;
pub mod rules;
pub mod schedule;
pub mod split_reductions;

pub use lists::{PassList, Step};
pub use manager::{Failed, Optimized, PassReport, Report, optimize};
pub use pass::{Context, Pass};
