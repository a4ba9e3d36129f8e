//! Codes of shape inference.

super::codes! {
    301 OPERAND_COUNT "wrong number of operands",
        "An operation was given more or fewer operands than it takes.",
        "ROOT a = f32[] add(x)";
}
