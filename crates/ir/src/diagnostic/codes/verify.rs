//! Codes of the verifier.

super::codes! {
    401 NO_ENTRY "no entry computation",
        "A module needs one computation where it starts.",
        "HloModule m";
}
