//! Faults planted in engines and passes: the smallest program that shows them.
