//! The runner of the .hlo filetests.
