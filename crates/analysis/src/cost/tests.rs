//! Costs of small modules, worked out by hand beside each.
