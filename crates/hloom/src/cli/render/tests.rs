//! Diagnostics as people see them.
