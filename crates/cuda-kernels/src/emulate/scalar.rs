//! Arithmetic on the bits of one thread's registers.

use half::{bf16, f16};

/// How bits are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Type {
    Pred,
    Unsigned(u32),
    Signed(u32),
    F16,
    Bf16,
    F32,
    F64,
}

impl Type {
    pub(super) fn parse(name: &str) -> Option<Type> {
        Some(match name {
            "pred" => Type::Pred,
            "u8" | "b8" => Type::Unsigned(8),
            "u16" | "b16" => Type::Unsigned(16),
            "u32" | "b32" => Type::Unsigned(32),
            "u64" | "b64" => Type::Unsigned(64),
            "s8" => Type::Signed(8),
            "s16" => Type::Signed(16),
            "s32" => Type::Signed(32),
            "s64" => Type::Signed(64),
            "f16" => Type::F16,
            "bf16" => Type::Bf16,
            "f32" => Type::F32,
            "f64" => Type::F64,
            _ => return None,
        })
    }

    pub(super) fn bits(self) -> u32 {
        match self {
            Type::Pred => 1,
            Type::Unsigned(n) | Type::Signed(n) => n,
            Type::F16 | Type::Bf16 => 16,
            Type::F32 => 32,
            Type::F64 => 64,
        }
    }

    fn is_float(self) -> bool {
        matches!(self, Type::F16 | Type::Bf16 | Type::F32 | Type::F64)
    }

    pub(super) fn truncate(self, bits: u64) -> u64 {
        match self.bits() {
            64 => bits,
            n => bits & ((1 << n) - 1),
        }
    }

    fn float(self, bits: u64) -> f64 {
        match self {
            Type::F16 => f16::from_bits(bits as u16).to_f64(),
            Type::Bf16 => bf16::from_bits(bits as u16).to_f64(),
            Type::F32 => f32::from_bits(bits as u32).into(),
            Type::F64 => f64::from_bits(bits),
            _ => self.integer(bits) as f64,
        }
    }

    fn encode_float(self, value: f64) -> u64 {
        match self {
            Type::F16 => f16::from_f64(value).to_bits().into(),
            Type::Bf16 => bf16::from_f32(value as f32).to_bits().into(),
            Type::F32 => (value as f32).to_bits().into(),
            Type::F64 => value.to_bits(),
            Type::Unsigned(n) => (value.max(0.0) as u128).min((1u128 << n) - 1) as u64,
            Type::Signed(n) => {
                let limit = 1i128 << (n - 1);
                self.truncate((value as i128).clamp(-limit, limit - 1) as u64)
            }
            Type::Pred => u64::from(value != 0.0),
        }
    }

    pub(super) fn integer(self, bits: u64) -> i128 {
        let bits = self.truncate(bits);
        match self {
            Type::Signed(n) => {
                let shift = 64 - n;
                i128::from(((bits << shift) as i64) >> shift)
            }
            _ => i128::from(bits),
        }
    }
}

/// Carries out `parts` (the opcode and its modifiers) on bits; `None` where it is not known.
pub(super) fn evaluate(parts: &[String], args: &[u64]) -> Option<u64> {
    let has = |name: &str| parts.iter().any(|p| p == name);
    let ty = parts.last().and_then(|p| Type::parse(p));
    match parts[0].as_str() {
        "mov" | "cvta" => Some(ty?.truncate(args[0])),
        // To the nearest with eleven bits, and away from zero where two are.
        "cvt" if has("tf32") => Some(args[0].wrapping_add(0x1000) & 0xffff_e000),
        "cvt" => convert(parts, args),
        "setp" => compare(&parts[1], ty?, args).map(u64::from),
        "selp" => Some(if args[2] & 1 == 1 { args[0] } else { args[1] }),
        "not" => Some(ty?.truncate(!args[0])),
        "and" => Some(ty?.truncate(args[0] & args[1])),
        "or" => Some(ty?.truncate(args[0] | args[1])),
        "xor" => Some(ty?.truncate(args[0] ^ args[1])),
        "shl" => {
            let ty = ty?;
            let by = args[1] as u32;
            Some(if by >= ty.bits() { 0 } else { ty.truncate(args[0] << by) })
        }
        "shr" => {
            let ty = ty?;
            let by = (args[1] as u32).min(127);
            Some(ty.truncate((ty.integer(args[0]) >> by) as u64))
        }
        "popc" => Some(args[0].count_ones().into()),
        "clz" => Some(u64::from(ty?.truncate(args[0]).leading_zeros() - (64 - ty?.bits()))),
        "bfe" => {
            let (at, length) = (args[1] as u32 & 255, args[2] as u32 & 255);
            Some(if at >= 64 { 0 } else { (ty?.truncate(args[0]) >> at) & ((1u64 << length.min(63)) - 1) })
        }
        "ex2" => Some(Type::F32.encode_float((Type::F32.float(args[0]) as f32).exp2().into())),
        "lg2" => Some(Type::F32.encode_float((Type::F32.float(args[0]) as f32).log2().into())),
        "rcp" => Some(ty?.encode_float(1.0 / ty?.float(args[0]))),
        "fma" => Some(fused(ty?, args)),
        "mul" if has("wide") => {
            let ty = ty?;
            Some((ty.integer(args[0]) * ty.integer(args[1])) as u64)
        }
        "mul" if has("hi") => {
            let ty = ty?;
            Some(ty.truncate(((ty.integer(args[0]) * ty.integer(args[1])) >> ty.bits()) as u64))
        }
        "mad" if has("wide") => {
            let ty = ty?;
            Some((ty.integer(args[0]) * ty.integer(args[1])).wrapping_add(args[2] as i128) as u64)
        }
        "mad" => {
            let ty = ty?;
            Some(
                ty.truncate(
                    (ty.integer(args[0]).wrapping_mul(ty.integer(args[1]))).wrapping_add(args[2] as i128) as u64
                ),
            )
        }
        "neg" | "abs" => {
            let ty = ty?;
            let negate = parts[0] == "neg";
            Some(if ty.is_float() {
                let x = ty.float(args[0]);
                ty.encode_float(if negate { -x } else { x.abs() })
            } else {
                let x = ty.integer(args[0]);
                ty.truncate((if negate { -x } else { x.abs() }) as u64)
            })
        }
        "add" | "sub" | "mul" | "div" | "rem" | "min" | "max" => binary(parts, ty?, args),
        _ => None,
    }
}

fn fused(ty: Type, args: &[u64]) -> u64 {
    match ty {
        Type::F32 => {
            let [a, b, c] = [0, 1, 2].map(|i| f32::from_bits(args[i] as u32));
            a.mul_add(b, c).to_bits().into()
        }
        _ => ty.encode_float(ty.float(args[0]).mul_add(ty.float(args[1]), ty.float(args[2]))),
    }
}

fn binary(parts: &[String], ty: Type, args: &[u64]) -> Option<u64> {
    let name = parts[0].as_str();
    if ty.is_float() {
        let (a, b) = (ty.float(args[0]), ty.float(args[1]));
        let nan = parts.iter().any(|p| p == "NaN") && (a.is_nan() || b.is_nan());
        let value = match name {
            "add" => a + b,
            "sub" => a - b,
            "mul" => a * b,
            "div" => a / b,
            _ if nan => f64::NAN,
            "min" => a.min(b),
            "max" => a.max(b),
            _ => return None,
        };
        return Some(ty.encode_float(value));
    }
    let (a, b) = (ty.integer(args[0]), ty.integer(args[1]));
    let value = match name {
        "add" => a + b,
        "sub" => a - b,
        "mul" => a.wrapping_mul(b),
        "div" => a.checked_div(b)?,
        "rem" => a.checked_rem(b)?,
        "min" => a.min(b),
        "max" => a.max(b),
        _ => return None,
    };
    Some(ty.truncate(value as u64))
}

fn compare(condition: &str, ty: Type, args: &[u64]) -> Option<bool> {
    if ty.is_float() {
        let (a, b) = (ty.float(args[0]), ty.float(args[1]));
        let unordered = a.is_nan() || b.is_nan();
        return Some(match condition {
            "eq" => a == b,
            "ne" => !unordered && a != b,
            "lt" => a < b,
            "le" => a <= b,
            "gt" => a > b,
            "ge" => a >= b,
            "neu" => a != b,
            "nan" => unordered,
            "num" => !unordered,
            "ltu" => unordered || a < b,
            "gtu" => unordered || a > b,
            _ => return None,
        });
    }
    let (a, b) = (ty.integer(args[0]), ty.integer(args[1]));
    Some(match condition {
        "eq" => a == b,
        "ne" => a != b,
        "lt" | "lo" => a < b,
        "le" | "ls" => a <= b,
        "gt" | "hi" => a > b,
        "ge" | "hs" => a >= b,
        _ => return None,
    })
}

fn convert(parts: &[String], args: &[u64]) -> Option<u64> {
    let last = parts.len() - 1;
    let from = Type::parse(&parts[last])?;
    if let Some(element) = parts[last - 1].strip_suffix("x2") {
        let to = Type::parse(element)?;
        let half = |bits| to.encode_float(from.float(bits));
        return Some(half(args[0]) << 16 | half(args[1]));
    }
    let to = Type::parse(&parts[last - 1])?;
    Some(match (from.is_float(), to.is_float()) {
        (false, false) => to.truncate(from.integer(args[0]) as u64),
        (false, true) => to.encode_float(from.integer(args[0]) as f64),
        (true, true) => to.encode_float(from.float(args[0])),
        (true, false) => {
            let value = from.float(args[0]);
            let rounded = if parts.iter().any(|p| p == "rni") { value.round_ties_even() } else { value.trunc() };
            to.encode_float(rounded)
        }
    })
}
