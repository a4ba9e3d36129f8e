//! Literals: the values of constants, on one line.
//!
//! `{1, 2}` for one dimension, `{ { 1, 2 }, { 3, 4 } }` for more; from four dimensions on, the inner ones carry their
//! position (`{ /*i0=1*/ …`). Elements are written one after another, row-major; the braces between two of them follow
//! from how many dimensions roll over.

use super::Printer;
use hloom_ir::display::{ShapeStyle, write_int, write_uint};
use hloom_ir::element_type::ElementType;
use hloom_ir::literal::{ArrayLiteral, Literal};
use hloom_numerics::format::{write_bf16, write_f16, write_f32, write_f64, write_small_float};
use hloom_numerics::{
    F4E2M1FN, F6E2M3FN, F6E3M2FN, F8E3M4, F8E4M3, F8E4M3B11FNUZ, F8E4M3FN, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ, F8E8M0FNU,
    SmallFloat, bf16, f16,
};

/// An array without elements but with more rows than this is left out: its braces would be endless.
const MAX_EMPTY_ROWS: i64 = 1 << 16;

impl Printer<'_> {
    /// The value without its shape.
    pub(super) fn literal(&mut self, literal: &Literal) {
        self.literal_in_style(literal, false);
    }

    /// `s32[2]{0} {1, 2}`: each array with its shape.
    pub(super) fn literal_with_shapes(&mut self, literal: &Literal) {
        self.literal_in_style(literal, true);
    }

    /// Nests as deep as the tuples of a shape do, which readers limit.
    fn literal_in_style(&mut self, literal: &Literal, shapes: bool) {
        match literal {
            Literal::Token => self.text("token"),
            Literal::Array(array) => {
                if shapes {
                    // Without a layout the braces of the elements would be read as one.
                    match array.shape().layout {
                        Some(_) => array.shape().write(&mut self.out, ShapeStyle::FULL),
                        None => array.shape().clone().with_default_layout().write(&mut self.out, ShapeStyle::FULL),
                    }
                    self.out.push(' ');
                }
                write_array(&mut self.out, array);
            }
            Literal::Tuple(elements) => {
                self.text("( ");
                for (i, element) in elements.iter().enumerate() {
                    self.comma(i);
                    self.literal_in_style(element, shapes);
                }
                self.text(" )");
            }
        }
    }
}

pub(super) fn write_array(out: &mut String, array: &ArrayLiteral) {
    use ElementType::*;
    let signed = |out: &mut String, n: i64| write_int(out, n);
    match array.element_type() {
        Pred if array.shape().is_scalar() => {
            write_elements(out, array, |out, [b]: [u8; 1]| out.push_str(if b != 0 { "true" } else { "false" }));
        }
        Pred => write_elements(out, array, |out, [b]: [u8; 1]| out.push(if b != 0 { '1' } else { '0' })),
        S1 | S2 | S4 | S8 => write_elements(out, array, |out, b| signed(out, i8::from_le_bytes(b).into())),
        S16 => write_elements(out, array, |out, b| signed(out, i16::from_le_bytes(b).into())),
        S32 => write_elements(out, array, |out, b| signed(out, i32::from_le_bytes(b).into())),
        S64 => write_elements(out, array, |out, b| signed(out, i64::from_le_bytes(b))),
        U1 | U2 | U4 | U8 => write_elements(out, array, |out, [b]: [u8; 1]| write_uint(out, b.into())),
        U16 => write_elements(out, array, |out, b| write_uint(out, u16::from_le_bytes(b).into())),
        U32 => write_elements(out, array, |out, b| write_uint(out, u32::from_le_bytes(b).into())),
        U64 => write_elements(out, array, |out, b| write_uint(out, u64::from_le_bytes(b))),
        F16 => write_elements(out, array, |out, b| write_f16(out, f16::from_le_bytes(b))),
        Bf16 => write_elements(out, array, |out, b| write_bf16(out, bf16::from_le_bytes(b))),
        F32 => write_elements(out, array, |out, b| write_f32(out, f32::from_le_bytes(b))),
        F64 => write_elements(out, array, |out, b| write_f64(out, f64::from_le_bytes(b))),
        C64 => write_elements(out, array, |out, [a, b, c, d, e, f, g, h]: [u8; 8]| {
            let parts = [[a, b, c, d], [e, f, g, h]].map(f32::from_le_bytes);
            write_complex(out, parts, write_f32);
        }),
        C128 => write_elements(out, array, |out, bytes: [u8; 16]| {
            let bits = u128::from_le_bytes(bytes);
            let parts = [bits as u64, (bits >> 64) as u64].map(f64::from_bits);
            write_complex(out, parts, write_f64);
        }),
        F8e5m2 => write_small::<F8E5M2>(out, array),
        F8e4m3 => write_small::<F8E4M3>(out, array),
        F8e4m3fn => write_small::<F8E4M3FN>(out, array),
        F8e4m3b11fnuz => write_small::<F8E4M3B11FNUZ>(out, array),
        F8e3m4 => write_small::<F8E3M4>(out, array),
        F8e5m2fnuz => write_small::<F8E5M2FNUZ>(out, array),
        F8e4m3fnuz => write_small::<F8E4M3FNUZ>(out, array),
        F8e8m0fnu => write_small::<F8E8M0FNU>(out, array),
        F4e2m1fn => write_small::<F4E2M1FN>(out, array),
        F6e3m2fn => write_small::<F6E3M2FN>(out, array),
        F6e2m3fn => write_small::<F6E2M3FN>(out, array),
    }
}

fn write_small<T: SmallFloat>(out: &mut String, array: &ArrayLiteral) {
    write_elements(out, array, |out, [b]: [u8; 1]| write_small_float(out, T::from_bits(b)));
}

fn write_complex<T: Copy>(out: &mut String, [real, imaginary]: [T; 2], write: impl Fn(&mut String, T)) {
    out.push('(');
    write(out, real);
    out.push_str(", ");
    write(out, imaginary);
    out.push(')');
}

/// Writes all elements, `N` bytes each, with the braces around and between them.
fn write_elements<const N: usize>(out: &mut String, array: &ArrayLiteral, write: impl Fn(&mut String, [u8; N])) {
    let dims = array.shape().dims();
    let (mut rest, _) = array.bytes().as_chunks::<N>();
    // The innermost dimension that is reached: the last, or an empty one further out.
    let reached = dims.iter().position(|&d| d == 0).map_or(dims.len(), |d| d + 1);
    let Some((&row, outer)) = dims[..reached].split_last() else {
        return rest.iter().for_each(|&element| write(out, element));
    };
    if row == 0 && outer.iter().try_fold(1i64, |n, &d| n.checked_mul(d)).is_none_or(|rows| rows > MAX_EMPTY_ROWS) {
        return out.push_str("{...}");
    }
    let row = usize::try_from(row).unwrap_or(0);
    let padded = dims.len() > 1 && row > 1;
    let mut braces = Braces { dims: outer, index: vec![0; outer.len()], rank: dims.len() };
    braces.open(out, 0);
    loop {
        if reached < dims.len() {
            braces.open_one(out, reached - 1);
            out.push_str(if reached > 1 && dims.len() > 3 { " }" } else { "  }" });
        } else {
            out.push_str(if padded { "{ " } else { "{" });
            let (now, later) = rest.split_at(row.min(rest.len()));
            rest = later;
            for (i, &element) in now.iter().enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                write(out, element);
            }
            out.push_str(if padded { " }" } else { "}" });
        }
        if !braces.next_row(out) {
            return;
        }
    }
}

/// The braces of the outer dimensions, and where in them the writing is.
struct Braces<'a> {
    dims: &'a [i64],
    index: Vec<i64>,
    rank: usize,
}

impl Braces<'_> {
    /// Opens the dimensions from `first` inwards.
    fn open(&mut self, out: &mut String, first: usize) {
        for d in first..self.dims.len() {
            self.open_one(out, d);
            out.push(' ');
        }
    }

    /// Opens dimension `d`, with its position in the one around it if there are many.
    fn open_one(&mut self, out: &mut String, d: usize) {
        out.push('{');
        if self.rank > 3 && d > 0 {
            out.push_str(" /*i");
            write_uint(out, d as u64 - 1);
            out.push('=');
            write_int(out, self.index[d - 1]);
            out.push_str("*/");
        }
    }

    /// Goes on to the next row, closing and opening what lies between; `false` after the last one, with all closed.
    fn next_row(&mut self, out: &mut String) -> bool {
        for d in (0..self.dims.len()).rev() {
            self.index[d] += 1;
            if self.index[d] < self.dims[d] {
                out.push_str(", ");
                self.open(out, d + 1);
                return true;
            }
            self.index[d] = 0;
            out.push_str(" }");
        }
        false
    }
}
