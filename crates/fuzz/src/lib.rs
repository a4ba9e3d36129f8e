//! Generators of modules and fuzz bodies for the readers.
