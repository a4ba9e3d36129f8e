//! Attributes, types and locations as MLIR text.
//!
//! Custom calls with a dictionary for their configuration carry it in HLO as this text, and so do composites; messages
//! show types and places in it.

use super::{Attr, AttrId, DYNAMIC, Location, Module, Named, Signedness, Type, TypeId};
use crate::mlir::dense::Elements;
use hloom_ir::ElementType;
use hloom_ir::literal::ArrayLiteral;
use std::fmt::Write;

/// How deep attributes and types are followed.
const MAX_PRINT_DEPTH: usize = 64;

/// How long a text may become: parts that are shared can stand for exponentially many.
pub(super) const MAX_TEXT: usize = 1 << 22;

impl Module<'_> {
    /// The attribute as text.
    pub fn attr_text(&self, id: AttrId) -> String {
        let mut out = String::new();
        self.print_attr(&mut out, id, 0);
        out
    }

    /// The type as text.
    pub fn type_text(&self, id: TypeId) -> String {
        let mut out = String::new();
        self.print_type(&mut out, id, 0);
        out
    }

    fn print_attr(&self, out: &mut String, id: AttrId, depth: usize) {
        if depth > MAX_PRINT_DEPTH || out.len() > MAX_TEXT {
            out.push('…');
            return;
        }
        match self.attr(id) {
            Attr::Unit => out.push_str("unit"),
            Attr::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
            Attr::Integer(n, ty) => {
                match self.ty(*ty) {
                    Type::Integer(_, Signedness::Unsigned) => write_unsigned(out, *n),
                    _ => write_display(out, n),
                }
                out.push_str(" : ");
                self.print_type(out, *ty, depth + 1);
            }
            Attr::Float(x, ty) => {
                write_float(out, *x, matches!(self.ty(*ty), Type::Float(super::FloatKind::F64)));
                out.push_str(" : ");
                self.print_type(out, *ty, depth + 1);
            }
            Attr::String(s) => write_string(out, s),
            Attr::Type(t) => self.print_type(out, *t, depth + 1),
            Attr::Array(items) => {
                out.push('[');
                self.print_list(out, items, depth);
                out.push(']');
            }
            Attr::Dict(fields) => {
                out.push('{');
                self.print_fields(out, fields, depth);
                out.push('}');
            }
            Attr::Symbol(s) => {
                out.push('@');
                match std::str::from_utf8(s) {
                    Ok(s) if is_bare(s) => out.push_str(s),
                    _ => write_string(out, s),
                }
            }
            Attr::Ints(ty, values) => {
                out.push_str("array<");
                self.print_type(out, *ty, depth + 1);
                let bools = matches!(self.ty(*ty), Type::Integer(1, _));
                for (i, v) in values.iter().enumerate() {
                    out.push_str(if i == 0 { ": " } else { ", " });
                    if bools {
                        out.push_str(if *v != 0 { "true" } else { "false" });
                    } else {
                        write_display(out, v);
                    }
                }
                out.push('>');
            }
            Attr::Floats(ty, values) => {
                out.push_str("array<");
                self.print_type(out, *ty, depth + 1);
                let wide = matches!(self.ty(*ty), Type::Float(super::FloatKind::F64));
                for (i, v) in values.iter().enumerate() {
                    out.push_str(if i == 0 { ": " } else { ", " });
                    write_float(out, *v, wide);
                }
                out.push('>');
            }
            Attr::Dense(d) => {
                out.push_str("dense<");
                match self.elements(d) {
                    Some((element, Elements::Splat(b))) => write_element(out, element, &b),
                    Some((element, Elements::All(b))) => {
                        let dims = self.tensor(d.ty).map_or(&[][..], |(dims, _)| dims);
                        write_elements(out, element, dims, &b);
                    }
                    None => write_hex(out, &d.data),
                }
                out.push_str("> : ");
                self.print_type(out, d.ty, depth + 1);
            }
            Attr::Resource(ty, key) => {
                write_display(out, &format_args!("dense_resource<{}> : ", String::from_utf8_lossy(key)));
                self.print_type(out, *ty, depth + 1);
            }
            Attr::Keyword(k) => out.push_str(k),
            Attr::Struct(name, fields) => match self.sdy_text(id) {
                Some(text) => out.push_str(&text),
                None => {
                    write_display(out, &format_args!("#{name}<"));
                    self.print_fields(out, fields, depth);
                    out.push('>');
                }
            },
            Attr::Location(_) => {
                out.push_str("loc(");
                out.push_str(&self.location_text(id));
                out.push(')');
            }
            Attr::Opaque(text) => out.push_str(&String::from_utf8_lossy(text)),
        }
    }

    fn print_list(&self, out: &mut String, items: &[AttrId], depth: usize) {
        for (i, &item) in items.iter().enumerate() {
            if i > 0 {
                out.push_str(", ");
            }
            self.print_attr(out, item, depth + 1);
        }
    }

    fn print_fields(&self, out: &mut String, fields: &[Named<'_>], depth: usize) {
        for (i, (name, value)) in fields.iter().enumerate() {
            if i > 0 {
                out.push_str(", ");
            }
            if is_bare(name) {
                out.push_str(name);
            } else {
                write_string(out, name.as_bytes());
            }
            if !matches!(self.attr(*value), Attr::Unit) {
                out.push_str(" = ");
                self.print_attr(out, *value, depth + 1);
            }
        }
    }

    fn print_type(&self, out: &mut String, id: TypeId, depth: usize) {
        if depth > MAX_PRINT_DEPTH || out.len() > MAX_TEXT {
            out.push('…');
            return;
        }
        let list = |out: &mut String, items: &[TypeId]| {
            for (i, &item) in items.iter().enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                self.print_type(out, item, depth + 1);
            }
        };
        match self.ty(id) {
            Type::Integer(bits, sign) => {
                let prefix = match sign {
                    Signedness::Signless => "i",
                    Signedness::Signed => "si",
                    Signedness::Unsigned => "ui",
                };
                write_display(out, &format_args!("{prefix}{bits}"));
            }
            Type::Float(kind) => out.push_str(kind.text()),
            Type::Index => out.push_str("index"),
            Type::None => out.push_str("none"),
            Type::Complex(part) => {
                out.push_str("complex<");
                self.print_type(out, *part, depth + 1);
                out.push('>');
            }
            Type::Tensor { dims, element, encoding } => {
                out.push_str("tensor<");
                write_dims(out, dims);
                self.print_type(out, *element, depth + 1);
                if let Some(encoding) = encoding {
                    out.push_str(", ");
                    self.print_attr(out, *encoding, depth + 1);
                }
                out.push('>');
            }
            Type::UnrankedTensor(element) => {
                out.push_str("tensor<*x");
                self.print_type(out, *element, depth + 1);
                out.push('>');
            }
            Type::MemRef(dims, element) => {
                out.push_str("memref<");
                write_dims(out, dims);
                self.print_type(out, *element, depth + 1);
                out.push('>');
            }
            Type::Tuple(items) => {
                out.push_str("tuple<");
                list(out, items);
                out.push('>');
            }
            Type::Function(inputs, results) => {
                out.push('(');
                list(out, inputs);
                out.push_str(") -> (");
                list(out, results);
                out.push(')');
            }
            Type::Token => out.push_str("!stablehlo.token"),
            Type::Future(items) => {
                out.push_str("!stablehlo.future<");
                list(out, items);
                out.push('>');
            }
            Type::Quantized(text) | Type::Opaque(text) => out.push_str(&String::from_utf8_lossy(text)),
        }
    }

    /// The most telling part of a location: the innermost file and line, with the name if there is one.
    pub fn location_text(&self, id: AttrId) -> String {
        let mut name = None;
        let mut at = Some(id);
        for _ in 0..MAX_PRINT_DEPTH {
            let Some(id) = at else { break };
            let Attr::Location(location) = self.attr(id) else { break };
            match location {
                Location::Unknown => break,
                Location::File(f) => {
                    let place = format!("{}:{}:{}", String::from_utf8_lossy(&f.file), f.line, f.column);
                    return match name {
                        Some(name) => format!("{place} ({name})"),
                        None => place,
                    };
                }
                Location::Name(n, child) => {
                    name.get_or_insert_with(|| String::from_utf8_lossy(n).into_owned());
                    at = *child;
                }
                Location::CallSite { callee, .. } => at = Some(*callee),
                Location::Fused(parts) => at = parts.first().copied(),
            }
        }
        name.unwrap_or_else(|| "unknown".to_owned())
    }
}

fn write_display(out: &mut String, value: &dyn std::fmt::Display) {
    // Writing to a string cannot fail.
    let _ = write!(out, "{value}");
}

fn write_unsigned(out: &mut String, n: i64) {
    write_display(out, &(n as u64));
}

fn write_dims(out: &mut String, dims: &[i64]) {
    for &d in dims {
        if d == DYNAMIC {
            out.push_str("?x");
        } else {
            write_display(out, &format_args!("{d}x"));
        }
    }
}

/// Whether `name` can stand without quotes.
pub(crate) fn is_bare(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'$' | b'.'))
}

/// `"…"` with what cannot stand in it escaped.
pub(crate) fn write_string(out: &mut String, bytes: &[u8]) {
    out.push('"');
    for &b in bytes {
        match b {
            b'"' | b'\\' | 0..=0x1f | 0x7f..=0xff => write_display(out, &format_args!("\\{b:02X}")),
            _ => out.push(b as char),
        }
    }
    out.push('"');
}

/// A number as MLIR writes it: six digits if they say all, otherwise as many as are needed, and bits for what is no
/// number.
pub(crate) fn write_float(out: &mut String, x: f64, wide: bool) {
    if !x.is_finite() {
        if wide {
            write_display(out, &format_args!("0x{:016X}", x.to_bits()));
        } else {
            write_display(out, &format_args!("0x{:08X}", (x as f32).to_bits()));
        }
        return;
    }
    let exact = |text: &str| text.parse::<f64>().is_ok_and(|y| if wide { y == x } else { y as f32 == x as f32 });
    let mut text = format!("{x:.6e}");
    if !exact(&text) {
        text = if wide { format!("{x:e}") } else { format!("{:e}", x as f32) };
    }
    // Rust writes 1e0 and 1.5e-7; MLIR wants a dot and a sign with two digits.
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let dot = if mantissa.contains('.') { "" } else { ".0" };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let sign = if exponent < 0 { '-' } else { '+' };
    write_display(out, &format_args!("{mantissa}{dot}e{sign}{:02}", exponent.abs()));
}

fn write_hex(out: &mut String, data: &[u8]) {
    out.push_str("\"0x");
    for b in data {
        write_display(out, &format_args!("{b:02X}"));
    }
    out.push('"');
}

/// One element of a dense literal.
pub(crate) fn write_element(out: &mut String, element: ElementType, bytes: &[u8]) {
    let mut wide = [0u8; 8];
    let size = element.component().bytes();
    if element.is_complex() {
        let (re, im) = bytes.split_at(size.min(bytes.len()));
        out.push('(');
        write_element(out, element.component(), re);
        out.push(',');
        write_element(out, element.component(), im);
        out.push(')');
        return;
    }
    for (to, from) in wide.iter_mut().zip(bytes) {
        *to = *from;
    }
    let raw = u64::from_le_bytes(wide);
    match element {
        ElementType::Pred => out.push_str(if raw != 0 { "true" } else { "false" }),
        ElementType::F64 => write_float(out, f64::from_bits(raw), true),
        ElementType::F32 => write_float(out, f64::from(f32::from_bits(raw as u32)), false),
        t if t.is_signed_integer() => {
            let unused = 64 - 8 * size as u32;
            write_display(out, &((raw << unused) as i64 >> unused));
        }
        t if t.is_unsigned_integer() => write_display(out, &raw),
        // The small types are written by their bits, which every reader takes.
        _ => write_display(out, &format_args!("0x{raw:0width$X}", width = 2 * size)),
    }
}

/// The elements of an array in nested brackets.
pub(crate) fn write_elements(out: &mut String, element: ElementType, dims: &[i64], bytes: &[u8]) {
    let size = element.bytes();
    if bytes.is_empty() {
        return;
    }
    let rank = dims.len();
    let mut index = vec![0i64; rank];
    for chunk in bytes.chunks_exact(size) {
        // Brackets open where the index has just begun, and close where it ends.
        let opened = index.iter().rev().take_while(|&&i| i == 0).count();
        let started = index.iter().any(|&i| i != 0);
        if started {
            out.push_str(", ");
        }
        (0..opened).for_each(|_| out.push('['));
        write_element(out, element, chunk);
        for d in (0..rank).rev() {
            index[d] += 1;
            if index[d] < dims[d] {
                break;
            }
            index[d] = 0;
            out.push(']');
        }
    }
}

/// An array literal of HLO as the inside of `dense<…>`: one element if all are the same.
pub(crate) fn write_literal(out: &mut String, literal: &ArrayLiteral) {
    let (element, bytes) = (literal.element_type(), literal.bytes());
    let size = element.bytes();
    let first = literal.element(0);
    if literal.len() > 1 && bytes.chunks_exact(size).all(|c| c == first) {
        write_element(out, element, first);
    } else {
        write_elements(out, element, literal.shape().dims(), bytes);
    }
}
