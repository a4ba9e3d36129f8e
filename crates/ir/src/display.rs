//! How types, layouts and shapes are written in HLO text: one place, for the printer, for diagnostics and for `{}`.
//!
//! Everything appends to a `String`; the printer writes millions of shapes, so nothing here allocates of its own.

use crate::layout::{DimLevelKind, Layout, Tile};
use crate::shape::{ArrayShape, ProgramShape, Shape};
use std::fmt;

/// Appends `n` in decimal.
pub fn write_int(out: &mut String, n: i64) {
    if n < 0 {
        out.push('-');
    }
    write_uint(out, n.unsigned_abs());
}

/// Appends `n` in decimal.
pub fn write_uint(out: &mut String, mut n: u64) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (n % 10) as u8;
        n /= 10;
        if n == 0 {
            break;
        }
    }
    // The buffer holds ASCII digits only.
    out.push_str(std::str::from_utf8(&digits[at..]).unwrap_or_default());
}

/// Appends `1,2,3`.
pub fn write_int_list(out: &mut String, list: &[i64]) {
    for (i, &n) in list.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        write_int(out, n);
    }
}

/// Which parts of a shape are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShapeStyle {
    /// Write layouts.
    pub layout: bool,
    /// Write `/*index=5*/` before every fifth tuple element.
    pub index_comments: bool,
}

impl ShapeStyle {
    /// As XLA writes the shapes of instructions.
    pub const FULL: ShapeStyle = ShapeStyle { layout: true, index_comments: true };
    /// As XLA writes the shapes in a computation's signature.
    pub const SIGNATURE: ShapeStyle = ShapeStyle { layout: false, index_comments: true };
}

impl Shape {
    /// Appends the shape in HLO text.
    pub fn write(&self, out: &mut String, style: ShapeStyle) {
        match self {
            Shape::Array(a) => a.write(out, style),
            Shape::Buffer(a) => {
                out.push_str("b(");
                a.write(out, style);
                out.push(')');
            }
            Shape::Token => out.push_str("token[]"),
            Shape::Opaque => out.push_str("opaque[]"),
            Shape::Tuple(elements) => {
                out.push('(');
                for (i, e) in elements.iter().enumerate() {
                    if i > 0 {
                        out.push_str(", ");
                        if style.index_comments && i % 5 == 0 {
                            write_index_comment(out, i);
                        }
                    }
                    e.write(out, style);
                }
                out.push(')');
            }
        }
    }
}

/// Appends `/*index=5*/`.
pub fn write_index_comment(out: &mut String, index: usize) {
    out.push_str("/*index=");
    write_uint(out, index as u64);
    out.push_str("*/");
}

impl ArrayShape {
    /// Appends the shape in HLO text.
    pub fn write(&self, out: &mut String, style: ShapeStyle) {
        out.push_str(self.element_type.name());
        out.push('[');
        for (i, &d) in self.dims().iter().enumerate() {
            if i > 0 {
                out.push(',');
            }
            if d == ArrayShape::UNBOUNDED {
                out.push('?');
                continue;
            }
            if self.is_dynamic_dim(i) {
                out.push_str("<=");
            }
            write_int(out, d);
        }
        out.push(']');
        if let Some(layout) = self.layout.as_ref().filter(|_| style.layout) {
            // XLA writes a scalar's layout only when it says something.
            if !self.is_scalar() || !layout.is_default() {
                layout.write(out);
            }
        }
    }
}

impl Layout {
    /// Appends `{1,0:T(8,128)S(1)}`.
    pub fn write(&self, out: &mut String) {
        out.push('{');
        write_int_list(out, &self.minor_to_major);
        if !(self.tiles.is_empty() && self.memory_space == 0 && self.element_size_in_bits == 0 && self.rare.is_none()) {
            out.push(':');
            self.write_properties(out);
        }
        out.push('}');
    }

    fn write_properties(&self, out: &mut String) {
        let rare = self.rare.as_deref();
        if let Some(r) = rare.filter(|r| !r.dim_level_types.is_empty()) {
            out.push_str("D(");
            for (i, d) in r.dim_level_types.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                out.push(match d.kind {
                    DimLevelKind::Dense => 'D',
                    DimLevelKind::Compressed => 'C',
                    DimLevelKind::Singleton => 'S',
                    DimLevelKind::LooseCompressed => 'H',
                });
                if !d.unique {
                    out.push('+');
                }
                if !d.ordered {
                    out.push('~');
                }
            }
            out.push(')');
        }
        if !self.tiles.is_empty() {
            out.push('T');
            for tile in &self.tiles {
                out.push('(');
                for (i, &d) in tile.0.iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    if d == Tile::COMBINE {
                        out.push('*');
                    } else {
                        write_int(out, d);
                    }
                }
                out.push(')');
            }
        }
        if let Some(r) = rare {
            if r.tail_padding_alignment_in_elements != 1 {
                write_property(out, "L", r.tail_padding_alignment_in_elements);
            }
            for (mark, t) in [("#(", r.index_primitive_type), ("*(", r.pointer_primitive_type)] {
                if let Some(t) = t {
                    out.push_str(mark);
                    out.push_str(t.name());
                    out.push(')');
                }
            }
        }
        if self.element_size_in_bits != 0 {
            write_property(out, "E", self.element_size_in_bits);
        }
        if self.memory_space != 0 {
            write_property(out, "S", self.memory_space);
        }
        if let Some(r) = rare {
            if !r.split_configs.is_empty() {
                out.push_str("SC");
                for split in &r.split_configs {
                    out.push('(');
                    write_int(out, split.dimension);
                    out.push(':');
                    write_int_list(out, &split.split_indices);
                    out.push(')');
                }
            }
            if let Some(shape) = &r.physical_shape {
                out.push_str("P(");
                shape.write(out, ShapeStyle::FULL);
                out.push(')');
            }
            if r.dynamic_shape_metadata_prefix_bytes != 0 {
                write_property(out, "M", r.dynamic_shape_metadata_prefix_bytes);
            }
        }
    }
}

fn write_property(out: &mut String, name: &str, value: i64) {
    out.push_str(name);
    out.push('(');
    write_int(out, value);
    out.push(')');
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = String::new();
        self.write(&mut out, ShapeStyle::FULL);
        f.write_str(&out)
    }
}

impl fmt::Display for ArrayShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = String::new();
        self.write(&mut out, ShapeStyle::FULL);
        f.write_str(&out)
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = String::new();
        self.write(&mut out);
        f.write_str(&out)
    }
}

impl fmt::Display for ProgramShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = String::from("(");
        for (i, p) in self.parameters.iter().enumerate() {
            if i > 0 {
                out.push_str(", ");
            }
            p.write(&mut out, ShapeStyle::FULL);
        }
        out.push_str(")->");
        self.result.write(&mut out, ShapeStyle::FULL);
        f.write_str(&out)
    }
}
