//! How the floats of at most 8 bits are written, by their element type.

use hloom_ir::ElementType;
use hloom_numerics::small_float as small;
use hloom_numerics::small_float::Format;

/// How the floats of a type are written; `None` for other types.
pub fn format(t: ElementType) -> Option<Format> {
    use ElementType::*;
    Some(match t {
        F8e5m2 => small::F8E5M2::FORMAT,
        F8e4m3 => small::F8E4M3::FORMAT,
        F8e4m3fn => small::F8E4M3FN::FORMAT,
        F8e4m3b11fnuz => small::F8E4M3B11FNUZ::FORMAT,
        F8e3m4 => small::F8E3M4::FORMAT,
        F8e5m2fnuz => small::F8E5M2FNUZ::FORMAT,
        F8e4m3fnuz => small::F8E4M3FNUZ::FORMAT,
        F8e8m0fnu => small::F8E8M0FNU::FORMAT,
        F4e2m1fn => small::F4E2M1FN::FORMAT,
        F6e3m2fn => small::F6E3M2FN::FORMAT,
        F6e2m3fn => small::F6E2M3FN::FORMAT,
        _ => return None,
    })
}
