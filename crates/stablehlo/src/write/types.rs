//! Types, names and lists as MLIR text.

use super::{Writer, Written};
use crate::mlir::FloatKind;
use crate::mlir::print::{is_bare, write_string};
use hloom_ir::entity::InstructionId;
use hloom_ir::instruction::FrontendAttributes;
use hloom_ir::{ArrayShape, ElementType, Shape};

/// The element type in MLIR; `None` for those it has not.
pub(super) fn element(t: ElementType) -> Option<String> {
    if let Some(kind) = FloatKind::ALL.iter().find(|k| k.element_type() == Some(t)) {
        return Some(kind.text().to_owned());
    }
    Some(match t {
        ElementType::Pred => "i1".to_owned(),
        ElementType::C64 => "complex<f32>".to_owned(),
        ElementType::C128 => "complex<f64>".to_owned(),
        // One-bit integers would be taken for truth values.
        ElementType::S1 | ElementType::U1 => return None,
        t if t.is_signed_integer() => format!("i{}", t.bits()),
        t if t.is_unsigned_integer() => format!("ui{}", t.bits()),
        _ => return None,
    })
}

/// `4x?x` and the bounds of what is dynamic.
fn dims(a: &ArrayShape) -> (String, String) {
    let mut text = String::new();
    let mut bounds = Vec::new();
    for (d, &size) in a.dims().iter().enumerate() {
        if a.is_dynamic_dim(d) {
            text.push_str("?x");
            bounds.push(if size == ArrayShape::UNBOUNDED { "?".to_owned() } else { size.to_string() });
        } else {
            text.push_str(&format!("{size}x"));
            bounds.push("?".to_owned());
        }
    }
    let bounded = bounds.iter().any(|b| b != "?");
    (text, if bounded { format!(", #stablehlo.bounds<{}>", bounds.join(", ")) } else { String::new() })
}

impl Writer<'_> {
    /// The type of a value that is no tuple.
    pub(super) fn ty(&self, id: InstructionId, shape: &Shape) -> Written<String> {
        let of = |a: &ArrayShape| element(a.element_type).ok_or_else(|| self.refuse(id, a.element_type));
        match shape {
            Shape::Array(a) => {
                let (sizes, bounds) = dims(a);
                Ok(format!("tensor<{sizes}{}{bounds}>", of(a)?))
            }
            Shape::Buffer(a) => Ok(format!("memref<{}{}>", dims(a).0, of(a)?)),
            Shape::Token => Ok("!stablehlo.token".to_owned()),
            Shape::Opaque | Shape::Tuple(_) => Err(self.refuse(id, "of a type")),
        }
    }
}

/// A name as it stands after `@`.
pub(super) fn symbol(name: &str) -> String {
    if is_bare(name) { name.to_owned() } else { quoted(name.as_bytes()) }
}

/// `"…"`.
pub(super) fn quoted(bytes: &[u8]) -> String {
    let mut out = String::new();
    write_string(&mut out, bytes);
    out
}

/// `1, 2, 3`.
pub(super) fn list(values: &[i64]) -> String {
    let texts: Vec<String> = values.iter().map(i64::to_string).collect();
    texts.join(", ")
}

/// `array<i64: 1, 2>`.
pub(super) fn array(values: &[i64]) -> String {
    if values.is_empty() { "array<i64>".to_owned() } else { format!("array<i64: {}>", list(values)) }
}

/// `dense<[[1, 2]]> : tensor<1x2xi64>`.
pub(super) fn matrix(rows: &[Vec<i64>], width: usize) -> String {
    let ty = format!("tensor<{}x{width}xi64>", rows.len());
    if rows.is_empty() || width == 0 {
        return format!("dense<> : {ty}");
    }
    let rows: Vec<String> = rows.iter().map(|r| format!("[{}]", list(r))).collect();
    format!("dense<[{}]> : {ty}", rows.join(", "))
}

/// `{k = "v"}`.
pub(super) fn dictionary(attributes: &FrontendAttributes) -> String {
    let key = |k: &str| if is_bare(k) { k.to_owned() } else { quoted(k.as_bytes()) };
    let fields: Vec<String> =
        attributes.iter().map(|(k, v)| format!("{} = {}", key(k), quoted(v.as_bytes()))).collect();
    format!("{{{}}}", fields.join(", "))
}
