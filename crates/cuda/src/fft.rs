//! Fourier transforms as cuFFT takes them.

use hloom_ir::attributes::FftType;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use hloom_ir::op::Op;

/// Transforms of arrays side by side. Where the result is real the operand is destroyed, so that the thunk has a copy of it
/// as scratch memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Fft {
    pub(crate) kind: FftType,
    pub(crate) is_double: bool,
    pub(crate) length: Vec<i32>,
    pub(crate) batch: i32,
    pub(crate) operand_bytes: usize,
    /// Real numbers of the result, a complex one being two.
    pub(crate) result_reals: i64,
}

impl Fft {
    /// The transforms that an instruction is.
    pub(crate) fn new(module: &Module, id: InstructionId) -> Result<Fft, String> {
        let (Op::Fft { kind, length }, &[operand]) = (&module[id].op, module[id].operands()) else {
            return Err("it is no transform".into());
        };
        let array = |i: InstructionId| module[i].shape.as_array().filter(|a| !a.is_dynamic());
        let (Some(from), Some(to)) = (array(operand), array(id)) else {
            return Err("it has a size that is known at run time only".into());
        };
        let is_double = matches!(from.element_type, ElementType::F64 | ElementType::C128);
        if !(1..=3).contains(&length.len()) {
            return Err(format!("cuFFT has no transforms of {} dimensions", length.len()));
        }
        let too_large = || "it is too large for cuFFT".to_owned();
        let sizes = length.iter().map(|&n| i32::try_from(n).ok().filter(|&n| n > 0));
        let length = sizes.collect::<Option<Vec<i32>>>().ok_or_else(too_large)?;
        let outer = &from.dims()[..from.rank().saturating_sub(length.len())];
        let batch = outer.iter().try_fold(1i64, |n, &size| n.checked_mul(size)).ok_or_else(too_large)?;
        let batch = i32::try_from(batch).ok().filter(|&n| n > 0).ok_or_else(too_large)?;
        let operand_bytes = from.byte_size().and_then(|n| usize::try_from(n).ok()).ok_or_else(too_large)?;
        let reals = if to.element_type.is_complex() { 2 } else { 1 };
        let result_reals = to.element_count().and_then(|n| n.checked_mul(reals)).ok_or_else(too_large)?;
        Ok(Fft { kind: *kind, is_double, length, batch, operand_bytes, result_reals })
    }

    /// Whether the library writes over the operand.
    pub(crate) fn destroys_operand(&self) -> bool {
        self.kind == FftType::Irfft
    }

    /// What the library leaves to its caller: a factor of the result.
    pub(crate) fn factor(&self) -> Option<f64> {
        let elements: f64 = self.length.iter().map(|&n| f64::from(n)).product();
        matches!(self.kind, FftType::Ifft | FftType::Irfft).then_some(1.0 / elements)
    }
}

impl std::fmt::Display for Fft {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let length: Vec<String> = self.length.iter().map(i32::to_string).collect();
        write!(f, "{:?} of {} x{}", self.kind, length.join("x"), self.batch)?;
        if self.is_double { f.write_str(" in f64") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hloom_formats::hlo_text;

    fn fft(text: &str) -> Result<Fft, String> {
        let text = format!("HloModule m\n\nENTRY e {{\n{text}\n}}\n");
        let module = hlo_text::read(text.as_bytes()).module.expect("it can be read");
        Fft::new(&module, module.root(module.entry().unwrap()).unwrap())
    }

    #[test]
    fn outer_dimensions_are_transforms_side_by_side() {
        let f = fft("x = f32[3,5,8,16] parameter(0)\nROOT y = c64[3,5,8,9] fft(x), fft_type=RFFT, fft_length={8,16}");
        let f = f.unwrap();
        assert_eq!((f.batch, &f.length[..], f.factor(), f.destroys_operand()), (15, &[8, 16][..], None, false));
        let f = fft("x = c64[4,9] parameter(0)\nROOT y = f32[4,16] fft(x), fft_type=IRFFT, fft_length={16}").unwrap();
        assert_eq!((f.batch, f.factor(), f.destroys_operand()), (4, Some(1.0 / 16.0), true));
        assert_eq!(f.result_reals, 64);
    }
}
