//! Codes of the HLO text reader.

super::codes! {
    101 UNEXPECTED_TOKEN "unexpected text",
        "The reader found something other than what HLO's grammar allows at this place. The message says what was expected.",
        "HloModule m\nENTRY e {\n  ROOT c = f32[] constant 1\n}";
}
