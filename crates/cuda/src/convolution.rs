//! Convolutions as cuDNN takes them: which instruction is one, and its sizes.
//!
//! cuDNN has three kinds: a forward convolution and the gradients of one with respect to its image and its filter. In HLO
//! all of them are convolutions; which kind one is, is seen from its windows. Images are `[batch, spatial…, features]`
//! and filters `[output features, spatial…, input features]`; the pass `canonicalize-convolutions` turns the others.

use hloom_ir::attributes::{DotAlgorithm, Precision};
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use hloom_ir::op::{self, Op};
use hloom_ir::shape::ArrayShape;

/// What cuDNN is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// An image and a filter to an image.
    Forward,
    /// The gradient of the output and the filter to the gradient of the image.
    ImageGradient,
    /// The image and the gradient of the output to the gradient of the filter.
    FilterGradient,
}

/// A convolution, in terms of the forward one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Convolution {
    pub(crate) kind: Kind,
    pub(crate) element_type: ElementType,
    /// Whether f32 may be multiplied in TF32.
    pub(crate) allows_tf32: bool,
    pub(crate) batch: i64,
    /// Features of the image, of all groups.
    pub(crate) input_features: i64,
    pub(crate) output_features: i64,
    pub(crate) groups: i64,
    pub(crate) axes: Vec<Axis>,
}

/// A spatial dimension of the forward convolution.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Axis {
    pub(crate) image: i64,
    pub(crate) filter: i64,
    pub(crate) output: i64,
    pub(crate) padding: i64,
    pub(crate) stride: i64,
    pub(crate) dilation: i64,
}

impl Axis {
    /// Whether the sizes are those that cuDNN works out.
    fn fits(&self) -> bool {
        let covered = self.dilation * (self.filter - 1) + 1;
        let room = self.image + 2 * self.padding - covered;
        self.padding >= 0 && self.stride > 0 && self.dilation > 0 && room >= 0 && room / self.stride + 1 == self.output
    }
}

/// The order of the dimensions of an operand or of the result that a kind wants: the first, the spatial ones, the last.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Orders {
    pub(crate) lhs: Vec<i64>,
    pub(crate) rhs: Vec<i64>,
    pub(crate) result: Vec<i64>,
}

/// Whether cuDNN has convolutions of those types.
pub(crate) fn has_convolution(lhs: ElementType, rhs: ElementType, to: ElementType) -> bool {
    use ElementType::{Bf16, F16, F32, F64};
    matches!(to, F32 | F64 | Bf16 | F16) && lhs == to && rhs == to
}

impl Convolution {
    /// The convolution that an instruction is, and the orders of dimensions that it wants.
    pub(crate) fn new(module: &Module, id: InstructionId) -> Result<(Convolution, Orders), String> {
        let (Op::Convolution(conv), &[lhs, rhs]) = (&module[id].op, module[id].operands()) else {
            return Err("it is no convolution of two operands".into());
        };
        let array = |i: InstructionId| module[i].shape.as_array().ok_or("an operand is no array");
        let (lhs, rhs, result) = (array(lhs)?, array(rhs)?, array(id)?);
        if !has_convolution(lhs.element_type, rhs.element_type, result.element_type) {
            return Err(format!("cuDNN has no convolution of {} to {}", lhs.element_type, result.element_type));
        }
        if lhs.is_dynamic() || rhs.is_dynamic() || conv.lhs_sparsity.is_some() || conv.rhs_sparsity.is_some() {
            return Err("cuDNN has no convolution of sparse arrays or of unknown sizes".into());
        }
        if conv.window.dims.len() > 3 {
            return Err("cuDNN has no convolution of more than three dimensions".into());
        }
        if [lhs, rhs, result].iter().any(|a| a.element_count().unwrap_or(0) == 0) {
            return Err("it has no elements".into());
        }
        let sizes = Sizes { conv, lhs, rhs, result };
        let kinds = [Kind::FilterGradient, Kind::ImageGradient, Kind::Forward];
        let found = kinds.into_iter().find_map(|kind| sizes.of(kind));
        found.ok_or_else(|| "its window is none that cuDNN takes".to_owned())
    }

    /// Whether the instruction's dimensions are in that order already.
    pub(crate) fn is_in_order(orders: &Orders) -> bool {
        let in_order = |order: &[i64]| order.iter().enumerate().all(|(n, &d)| n as i64 == d);
        in_order(&orders.lhs) && in_order(&orders.rhs) && in_order(&orders.result)
    }
}

struct Sizes<'m> {
    conv: &'m op::Convolution,
    lhs: &'m ArrayShape,
    rhs: &'m ArrayShape,
    result: &'m ArrayShape,
}

impl Sizes<'_> {
    /// The instruction as a convolution of that kind, if it is one.
    fn of(&self, kind: Kind) -> Option<(Convolution, Orders)> {
        let (conv, dims) = (self.conv, &self.conv.dims);
        let size = |array: &ArrayShape, d: i64| array.dims().get(usize::try_from(d).ok()?).copied();
        let mut axes = Vec::new();
        for (n, window) in conv.window.dims.iter().enumerate() {
            let at = |list: &[i64]| list.get(n).copied();
            let (i, k, o) = (
                size(self.lhs, at(&dims.input_spatial)?)?,
                size(self.rhs, at(&dims.kernel_spatial)?)?,
                size(self.result, at(&dims.output_spatial)?)?,
            );
            let axis = match kind {
                Kind::Forward if window.base_dilation == 1 && (!window.window_reversal || k == 1) => Axis {
                    image: i,
                    filter: k,
                    output: o,
                    padding: window.padding_low,
                    stride: window.stride,
                    dilation: window.window_dilation,
                },
                Kind::ImageGradient if window.stride == 1 && (window.window_reversal || k == 1) => Axis {
                    image: o,
                    filter: k,
                    output: i,
                    padding: window.window_dilation * (k - 1) - window.padding_low,
                    stride: window.base_dilation,
                    dilation: window.window_dilation,
                },
                Kind::FilterGradient if window.base_dilation == 1 && !window.window_reversal => Axis {
                    image: i,
                    filter: o,
                    output: k,
                    padding: window.padding_low,
                    stride: window.window_dilation,
                    dilation: window.stride,
                },
                _ => return None,
            };
            axes.push(axis);
        }
        if !axes.iter().all(Axis::fits) {
            return None;
        }
        let order = |first: i64, spatial: &[i64], last: i64| -> Vec<i64> {
            [first].into_iter().chain(spatial.iter().copied()).chain([last]).collect()
        };
        let image = |first, last| order(first, &dims.input_spatial, last);
        let kernel = |first, last| order(first, &dims.kernel_spatial, last);
        let output = |first, last| order(first, &dims.output_spatial, last);
        let (of_batch, of_features) = (size(self.lhs, dims.input_batch)?, size(self.lhs, dims.input_feature)?);
        let of_output = size(self.rhs, dims.kernel_output_feature)?;
        // Groups of batches are those of a filter's gradient: what is its batch are the features of the image.
        let of_batches = conv.batch_group_count.max(1);
        if of_batches > 1 && (kind != Kind::FilterGradient || conv.feature_group_count > 1) {
            return None;
        }
        let groups = conv.feature_group_count.max(of_batches);
        let (batch, input_features, output_features, orders) = match kind {
            Kind::Forward => {
                let orders = Orders {
                    lhs: image(dims.input_batch, dims.input_feature),
                    rhs: kernel(dims.kernel_output_feature, dims.kernel_input_feature),
                    result: output(dims.output_batch, dims.output_feature),
                };
                (of_batch, of_features, of_output, orders)
            }
            // A gradient has strides or windows turned round; without either the forward convolution does as well.
            Kind::ImageGradient if groups == 1 && axes.iter().any(|a| a.filter > 1) => {
                let orders = Orders {
                    lhs: image(dims.input_batch, dims.input_feature),
                    rhs: kernel(dims.kernel_input_feature, dims.kernel_output_feature),
                    result: output(dims.output_batch, dims.output_feature),
                };
                (of_batch, of_output, of_features, orders)
            }
            // What slides over the image is larger than what comes out.
            Kind::FilterGradient if groups == of_batches && area(&axes, |a| a.output) > area(&axes, |a| a.filter) => {
                let orders = Orders {
                    lhs: image(dims.input_feature, dims.input_batch),
                    rhs: kernel(dims.kernel_input_feature, dims.kernel_output_feature),
                    result: output(dims.output_feature, dims.output_batch),
                };
                (of_features, of_batch, of_output, orders)
            }
            _ => return None,
        };
        let precision = &conv.precision;
        let is_default = precision.operand_precision.iter().all(|&p| p == Precision::Default);
        let allows_tf32 = is_default && matches!(precision.algorithm, DotAlgorithm::Unset | DotAlgorithm::Tf32Tf32F32);
        let element_type = self.result.element_type;
        let convolution =
            Convolution { kind, element_type, allows_tf32, batch, input_features, output_features, groups, axes };
        Some((convolution, orders))
    }
}

fn area(axes: &[Axis], of: fn(&Axis) -> i64) -> i64 {
    axes.iter().map(of).fold(1, i64::saturating_mul)
}

impl std::fmt::Display for Convolution {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match self.kind {
            Kind::Forward => "convolution",
            Kind::ImageGradient => "convolution, gradient of the image,",
            Kind::FilterGradient => "convolution, gradient of the filter,",
        };
        let list = |of: fn(&Axis) -> i64| self.axes.iter().map(|a| of(a).to_string()).collect::<Vec<_>>().join("x");
        write!(f, "{kind} {} {}x{}x{}", self.element_type, self.batch, list(|a| a.image), self.input_features)?;
        write!(f, " by {} to {}", list(|a| a.filter), self.output_features)?;
        if self.groups > 1 {
            write!(f, " in {} groups", self.groups)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hloom_formats::hlo_text;

    fn convolution(lhs: &str, rhs: &str, rest: &str) -> Result<(Convolution, Orders), String> {
        let text = format!(
            "HloModule m\n\nENTRY e {{\na = f32[{lhs}] parameter(0)\nb = f32[{rhs}] parameter(1)\nROOT c = {rest}\n}}\n"
        );
        let module = hlo_text::read(text.as_bytes()).module.expect("it can be read");
        let root = module.root(module.entry().unwrap()).unwrap();
        Convolution::new(&module, root)
    }

    #[test]
    fn a_forward_convolution_wants_its_filter_turned() {
        let (c, orders) = convolution(
            "8,32,32,16",
            "3,3,16,64",
            "f32[8,32,32,64] convolution(a, b), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f",
        )
        .unwrap();
        assert_eq!((c.kind, c.batch, c.input_features, c.output_features), (Kind::Forward, 8, 16, 64));
        assert_eq!(orders.rhs, [3, 0, 1, 2]);
        assert!(!Convolution::is_in_order(&orders));
    }

    #[test]
    fn gradients_are_told_by_their_windows() {
        // Of a 3x3 convolution with stride 2 over 32x32, padded by 1.
        let (c, _) = convolution(
            "8,16,16,64",
            "3,3,16,64",
            "f32[8,32,32,16] convolution(a, b), window={size=3x3 pad=1_2x1_2 lhs_dilate=2x2 rhs_reversal=1x1}, \
             dim_labels=b01f_01oi->b01f",
        )
        .unwrap();
        assert_eq!((c.kind, c.batch, c.input_features, c.output_features), (Kind::ImageGradient, 8, 16, 64));
        assert_eq!(c.axes[0], Axis { image: 32, filter: 3, output: 16, padding: 1, stride: 2, dilation: 1 });
        let (c, orders) = convolution(
            "8,32,32,16",
            "8,16,16,64",
            "f32[3,3,16,64] convolution(a, b), window={size=16x16 pad=1_0x1_0 rhs_dilate=2x2}, \
             dim_labels=f01b_i01o->01bf",
        )
        .unwrap();
        assert_eq!((c.kind, c.batch, c.input_features, c.output_features), (Kind::FilterGradient, 8, 16, 64));
        assert_eq!(c.axes[0], Axis { image: 32, filter: 3, output: 16, padding: 1, stride: 2, dilation: 1 });
        assert_eq!(
            (&orders.lhs[..], &orders.rhs[..], &orders.result[..]),
            (&[0, 1, 2, 3][..], &[0, 1, 2, 3][..], &[3, 0, 1, 2][..])
        );
    }

    #[test]
    fn padding_on_one_side_is_for_the_pass() {
        let found = convolution(
            "8,32,32,16",
            "3,3,16,64",
            "f32[8,32,32,64] convolution(a, b), window={size=3x3 pad=0_2x0_2}, dim_labels=b01f_01io->b01f",
        );
        assert!(found.is_err());
    }
}
