//! Codes for files and the command line.

super::codes! {
    801 CANNOT_READ "a file cannot be read",
        "The file does not exist, is not readable, or the medium failed.",
        "hloom verify missing.hlo";
}
