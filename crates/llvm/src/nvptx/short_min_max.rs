//! Minima and maxima of 16-bit integers, written in 32 bits.
//!
//! For Hopper `ptxas` makes them instructions on two halves at once, and a comparison of the result with the constant
//! operand their predicate. Both halves write that same predicate, so that the answer is that of the empty half: wrong. In
//! 32 bits there is one half.

use std::fmt::Write;

/// The text with every such instruction written out.
pub(super) fn widen(text: String) -> String {
    if !["min.s16", "max.s16", "min.u16", "max.u16"].iter().any(|op| text.contains(op)) {
        return text;
    }
    let mut widened = String::with_capacity(text.len() + 1024);
    for line in text.lines() {
        match widened_line(line) {
            Some(lines) => widened.push_str(&lines),
            None => {
                widened.push_str(line);
                widened.push('\n');
            }
        }
    }
    widened
}

fn widened_line(line: &str) -> Option<String> {
    let (op, rest) = line.trim().split_once(char::is_whitespace)?;
    let (what, sign) = match op {
        "min.s16" => ("min", 's'),
        "max.s16" => ("max", 's'),
        "min.u16" => ("min", 'u'),
        "max.u16" => ("max", 'u'),
        _ => return None,
    };
    let mut names = rest.trim_end().strip_suffix(';')?.split(',').map(str::trim);
    let (to, operands) = (names.next()?, [names.next()?, names.next()?]);
    let mut lines = String::from("\t{\n\t.reg .b32 %wide<2>;\n");
    for (n, operand) in operands.into_iter().enumerate() {
        // Writing to a string does not fail.
        let _ = match operand.starts_with('%') {
            true => writeln!(lines, "\tcvt.{sign}32.{sign}16 \t%wide{n}, {operand};"),
            false => writeln!(lines, "\tmov.u32 \t%wide{n}, {};", number(operand, sign)?),
        };
    }
    let _ = write!(lines, "\t{what}.{sign}32 \t%wide0, %wide0, %wide1;\n\tcvt.u16.u32 \t{to}, %wide0;\n\t}}\n");
    Some(lines)
}

/// A 16-bit constant, which may be written with either sign, in 32 bits.
fn number(text: &str, sign: char) -> Option<i32> {
    let bits = text.parse::<i32>().ok()? as u16;
    Some(if sign == 's' { i32::from(bits as i16) } else { i32::from(bits) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_minima_and_maxima_are_in_32_bits() {
        let text =
            "\tmax.s16 \t%rs2, %rs1, -1;\n\tadd.s16 \t%rs3, %rs2, 2;\n\tmin.u16 \t%rs4, %rs3, %rs1;\n".to_owned();
        let expected = "\t{\n\t.reg .b32 %wide<2>;\n\tcvt.s32.s16 \t%wide0, %rs1;\n\tmov.u32 \t%wide1, -1;\n\
             \tmax.s32 \t%wide0, %wide0, %wide1;\n\tcvt.u16.u32 \t%rs2, %wide0;\n\t}\n\
             \tadd.s16 \t%rs3, %rs2, 2;\n\
             \t{\n\t.reg .b32 %wide<2>;\n\tcvt.u32.u16 \t%wide0, %rs3;\n\tcvt.u32.u16 \t%wide1, %rs1;\n\
             \tmin.u32 \t%wide0, %wide0, %wide1;\n\tcvt.u16.u32 \t%rs4, %wide0;\n\t}\n";
        assert_eq!(widen(text), expected);
        assert_eq!(widen("\tmin.s32 \t%r1, %r2, 3;\n".to_owned()), "\tmin.s32 \t%r1, %r2, 3;\n");
    }
}
