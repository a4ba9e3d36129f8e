//! Rewrites of HLO to HLO: passes, and what runs them.
//!
//! A [`Pass`] is a small named unit with a statement of what it does. A [`Registry`] knows passes by name, a backend's
//! pipeline ([`lists`]) says which run, in which order and how often, and [`manager`] runs them, counts and times them, and
//! checks in debug builds that each leaves a valid module. What a pass wants to know of the machine it asks of
//! [`TargetInfo`], never by the machine's name.
//!
//! A pass keeps what the program computes, for every input: floats as the evaluator makes them, but for sums and
//! products that are made in another order. It never panics on a verified module and takes time in proportion to the
//! module's size. Most passes are lists of rules, each a small function with its guard ([`rewrite`]).

pub mod barriers;
pub mod bitcasts;
pub mod collectives;
pub mod conditional;
pub mod cse;
pub mod dce;
pub mod defuse;
pub mod entry_layouts;
pub mod excess_precision;
pub mod facts;
pub mod fold;
pub mod inline;
pub mod layout_assignment;
pub mod legalize_products;
pub mod lists;
pub mod loops;
pub mod manager;
pub mod mixed_precision;
pub mod normalize_layouts;
pub mod pass;
pub mod placements;
pub mod planted;
pub mod registry;
pub mod rewrite;
pub mod rules;
mod same_sorts;
pub mod sink_converts;
pub mod split_reductions;

pub use lists::{PassList, PassStep, PipelineStep};
pub use manager::{Failed, Optimized, PassReport, PassesReport, optimize};
pub use pass::{Context, FusionLimits, Pass, TargetInfo};
pub use registry::Registry;
