//! What operations of HLO are called elsewhere, for who writes those names here.

use hloom_ir::opcode::Opcode;

/// What HLO calls an operation that is known by another name in StableHLO or in JAX.
pub(super) fn named_elsewhere(name: &str) -> Option<&'static str> {
    let bare = name.rsplit('.').next().unwrap_or(name).replace('_', "-");
    Some(match bare.as_str() {
        "optimization-barrier" => "opt-barrier",
        "dot-general" | "matmul" => "dot",
        "broadcast-in-dim" => "broadcast",
        "conv" | "conv-general-dilated" => "convolution",
        "case" | "cond" | "if" => "conditional",
        "dynamic-update" => "dynamic-update-slice",
        "mul" => "multiply",
        "sub" => "subtract",
        "div" => "divide",
        "max" => "maximum",
        "min" => "minimum",
        "neg" => "negate",
        "exp" => "exponential",
        "pow" => "power",
        "cos" => "cosine",
        "sin" => "sine",
        "psum" => "all-reduce",
        "ppermute" => "collective-permute",
        other => Opcode::ALL.iter().map(|o| o.name()).find(|known| *known == other)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_stablehlo_and_jax_are_known() {
        let known: Vec<&str> = Opcode::ALL.iter().map(|o| o.name()).collect();
        for name in ["stablehlo.optimization_barrier", "dot_general", "exp", "dynamic_update_slice", "mhlo.all_reduce"]
        {
            let found = named_elsewhere(name).unwrap_or_else(|| panic!("{name} is not known"));
            assert!(known.contains(&found), "{name} is called {found}, which there is not");
        }
        assert_eq!(named_elsewhere("frobnicate"), None);
    }
}
