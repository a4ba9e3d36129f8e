//! What the processor of this machine has, asked without LLVM: saved code runs only where everything is that it was made
//! with.

/// The names of the processor's features that code may depend on.
pub(crate) fn detected() -> Vec<String> {
    let mut found = vec![std::env::consts::ARCH.to_owned()];
    macro_rules! detect {
        ($ask:ident: $($name:tt)*) => {
            $(if std::arch::$ask!($name) { found.push($name.to_owned()); })*
        };
    }
    #[cfg(target_arch = "x86_64")]
    detect!(is_x86_feature_detected: "sse4.2" "avx" "avx2" "fma" "f16c" "bmi1" "bmi2" "lzcnt" "popcnt" "movbe" "adx" "gfni"
        "vaes" "vpclmulqdq" "avx512f" "avx512bw" "avx512vl" "avx512dq" "avx512cd" "avx512ifma" "avx512vbmi" "avx512vbmi2"
        "avx512vnni" "avx512bitalg" "avx512vpopcntdq" "avx512bf16" "avx512fp16" "avxvnni");
    #[cfg(target_arch = "aarch64")]
    detect!(is_aarch64_feature_detected: "neon" "fp16" "dotprod" "bf16" "i8mm" "sve" "sve2" "lse" "rcpc");
    found
}
