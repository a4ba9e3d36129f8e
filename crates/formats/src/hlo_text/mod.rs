//! HLO text.
