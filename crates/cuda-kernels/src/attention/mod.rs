//! Attention in one pass over memory: softmax(scale · Q Kᵀ + bias, masked) · V without the scores in global memory, which
//! may be capped before the bias.
//!
//! [`AttentionShape`] says what is asked for; [`forward()`] and [`backward()`] give the kernels. A block owns rows of Q (or of
//! K and V for their gradients), walks over tiles of the other side, and keeps a softmax that is corrected as larger
//! scores turn up. Products run on `wgmma`; what it accumulates is f32.

mod backward;
mod forward;
mod key_gradient;
mod query_gradient;
mod rows;
mod scores;
mod tiles;
mod transposed_values;

pub use backward::{BackwardShape, BackwardTiling, backward, backward_tiled, gradient};

use serde::{Deserialize, Serialize};

use crate::launch::{Architecture, KernelSequence};

/// Why there is no kernel for what was asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unsupported(pub String);

impl std::fmt::Display for Unsupported {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unsupported {}

/// The type of Q, K, V and the output.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Element {
    /// bfloat16.
    Bf16,
    /// IEEE half.
    F16,
    /// Single precision, multiplied with the eleven bits of TF32. There is the forward pass only.
    F32,
}

impl Element {
    pub(crate) fn ptx(self) -> &'static str {
        match self {
            Element::Bf16 => "bf16",
            Element::F16 => "f16",
            Element::F32 => "tf32",
        }
    }

    /// What tiles count in: an element has so many units of two bytes.
    pub(crate) fn units(self) -> u32 {
        match self {
            Element::Bf16 | Element::F16 => 1,
            Element::F32 => 2,
        }
    }
}

/// Where the rows of an array of heads lie, in elements; the elements of a row are adjacent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct HeadStrides {
    /// From one batch to the next.
    pub batch: u64,
    /// From one head to the next.
    pub head: u64,
    /// From one position to the next.
    pub row: u64,
}

impl HeadStrides {
    /// The same in units of two bytes.
    fn in_units(self, element: Element) -> HeadStrides {
        let times = |stride: u64| stride * u64::from(element.units());
        HeadStrides { batch: times(self.batch), head: times(self.head), row: times(self.row) }
    }

    fn check(&self, name: &str) -> Result<(), Unsupported> {
        if [self.batch, self.head, self.row].iter().any(|stride| stride % 8 != 0) {
            return Err(Unsupported(format!("rows of {name} that do not start at multiples of 16 bytes")));
        }
        if self.row > 1 << 24 {
            return Err(Unsupported(format!("rows of {name} that are {} elements apart", self.row)));
        }
        Ok(())
    }
}

/// Which keys a query may see: those from `query + lower` to `query + upper`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Band {
    /// The first key, relative to the query.
    pub lower: Option<i64>,
    /// The last key, relative to the query; 0 in causal attention.
    pub upper: Option<i64>,
}

/// The type of an array that is added to scores.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum BiasType {
    /// Single precision.
    F32,
    /// bfloat16.
    Bf16,
    /// IEEE half.
    F16,
}

/// Where an array over scores lies, in elements: 0 where it is broadcast.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct ScoreStrides {
    /// From one batch to the next.
    pub batch: u64,
    /// From one query head to the next.
    pub head: u64,
    /// From one query to the next.
    pub query: u64,
    /// From one key to the next.
    pub key: u64,
}

/// A multiple of a sum of positions: `scale · (query · q + key · k + constant)`, or of its absolute value.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct PositionFactor {
    /// How often the query's number counts.
    pub query: i32,
    /// How often the key's number counts.
    pub key: i32,
    /// What is added.
    pub constant: i32,
    /// Whether the sign of the sum is left out.
    pub is_absolute: bool,
    /// What it is multiplied by.
    pub scale: f32,
}

impl PositionFactor {
    /// The largest sum that may occur, sign aside.
    fn largest(&self, query_length: u32, kv_length: u32) -> i64 {
        let [query, key, constant] = [self.query, self.key, self.constant].map(|n| i64::from(n).abs());
        query * i64::from(query_length) + key * i64::from(kv_length) + constant
    }
}

/// What attention is asked for.
///
/// Operands are Q, K, V, then the bias and the mask where there are such.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct AttentionShape {
    /// The type of Q, K, V and the output.
    pub element: Element,
    /// Batches.
    pub batch: u32,
    /// Heads of Q.
    pub query_heads: u32,
    /// Heads of K and V, a divisor of those of Q.
    pub kv_heads: u32,
    /// Rows of Q a head.
    pub query_length: u32,
    /// Rows of K and V a head.
    pub kv_length: u32,
    /// Elements of a row of Q and K.
    pub head_dim: u32,
    /// Elements of a row of V and the output.
    pub value_dim: u32,
    /// What scores are multiplied by, above 0.
    pub scale: f32,
    /// Scaled scores are bent to stay within: cap · tanh(score / cap), before bias and mask. There is the forward pass only.
    pub soft_cap: Option<f32>,
    /// Which keys a query sees.
    pub band: Band,
    /// The score of a key that is not seen, by the band or by the mask.
    #[serde(with = "bits")]
    pub masked_score: f32,
    /// Added to scores after the scale.
    pub bias: Option<(BiasType, ScoreStrides)>,
    /// What the bias is multiplied by, which is then the same for all queries and keys: slopes of positions, as of ALiBi.
    pub bias_positions: Option<PositionFactor>,
    /// Bytes, 0 where a key is not seen.
    pub mask: Option<ScoreStrides>,
    /// Where Q lies.
    pub query: HeadStrides,
    /// Where K lies.
    pub key: HeadStrides,
    /// Where V lies.
    pub value: HeadStrides,
    /// Where the output goes.
    pub output: HeadStrides,
    /// Whether what the gradient needs is a second result: f32, `[2][batch][head][query]`, each row's largest score (before
    /// the scale, unless there is a bias or a cap) and its sum of exponentials.
    pub statistics: bool,
}

impl AttentionShape {
    /// Whether tiles of keys outside the band may be left out: what is masked must weigh nothing beside what is not.
    pub(crate) fn skips_masked_tiles(&self) -> bool {
        if self.masked_score == f32::NEG_INFINITY {
            return true;
        }
        let every_row_sees = {
            let (rows, keys) = (i64::from(self.query_length), i64::from(self.kv_length));
            let first_upper = self.band.upper.is_none_or(|upper| upper >= 0);
            let last_lower = self.band.lower.is_none_or(|lower| rows - 1 + lower < keys);
            let ordered = match (self.band.lower, self.band.upper) {
                (Some(lower), Some(upper)) => lower <= upper,
                _ => true,
            };
            first_upper && last_lower && ordered
        };
        self.masked_score <= -1e9 && every_row_sees && self.mask.is_none() && self.bias.is_none()
    }

    fn check(&self, architecture: Architecture) -> Result<(), Unsupported> {
        let refuse = |why: String| Err(Unsupported(why));
        if architecture.capability != 90 || !architecture.accelerated {
            return refuse(format!("attention needs wgmma of sm_90a, and the target is {architecture}"));
        }
        let sizes = [self.batch, self.query_heads, self.kv_heads, self.query_length, self.kv_length];
        if sizes.contains(&0) {
            return refuse("attention over an empty dimension".into());
        }
        for dim in [self.head_dim, self.value_dim] {
            let most = 256 / self.element.units();
            if dim == 0 || dim % 8 != 0 || dim > most {
                return refuse(format!("a head of {dim} elements: 8 to {most} in steps of 8 are known"));
            }
        }
        if !self.query_heads.is_multiple_of(self.kv_heads) {
            return refuse(format!("{} heads of Q over {} of K and V", self.query_heads, self.kv_heads));
        }
        if self.query_heads > 65535 || self.batch > 65535 || self.query_length > 1 << 30 || self.kv_length > 1 << 30 {
            return refuse("more heads, batches or positions than a grid counts".into());
        }
        if !(self.scale > 0.0 && self.scale.is_finite()) {
            return refuse(format!("scores multiplied by {}", self.scale));
        }
        if self.soft_cap.is_some_and(|cap| !(cap > 0.0 && cap.is_finite())) {
            return refuse("a cap of scores that is not above 0".into());
        }
        if let Some(positions) = &self.bias_positions {
            let is_slope = self.bias.is_some_and(|(_, strides)| strides.query == 0 && strides.key == 0);
            // Sums of positions are made in f32, and have to be exact there.
            if !is_slope || positions.largest(self.query_length, self.kv_length) >= 1 << 24 {
                return refuse("a bias by positions that is no slope, or of too many positions".into());
            }
        }
        if self.masked_score.is_nan() || self.masked_score > 0.0 {
            return refuse(format!("a masked score of {}", self.masked_score));
        }
        for (name, strides) in [("Q", self.query), ("K", self.key), ("V", self.value), ("the output", self.output)] {
            strides.check(name)?;
        }
        Ok(())
    }
}

/// How the work is cut. [`forward()`] chooses; tests and measurements try others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tiling {
    /// Warpgroups that multiply, of 64 rows each.
    pub consumers: u32,
    /// Rows of the other side a step.
    pub tile: u32,
    /// Tiles in shared memory at once.
    pub stages: u32,
    /// Whether a product of the next tile runs beside the softmax of this one.
    pub overlapped: bool,
}

impl Tiling {
    /// The tiling for the forward pass of heads of that size.
    pub fn for_forward(shape: &AttentionShape) -> Tiling {
        let widest = (shape.head_dim.max(shape.value_dim) * shape.element.units()).next_multiple_of(64);
        // A thread of four warpgroups has 128 registers, one of three has 168: what is linked cannot be given more by
        // `setmaxnreg`. Where scores, weights and output need more, products wait for each other.
        let held = shape.value_dim.next_multiple_of(64) / 2 + 32 + 16 * shape.element.units();
        let most = if widest <= 128 && held <= 96 { 3 } else { 2 };
        let consumers = shape.query_length.div_ceil(64).clamp(1, most);
        Tiling { consumers, tile: 64, stages: if widest <= 128 { 3 } else { 2 }, overlapped: true }
    }
}

/// The kernel for the output of attention (result 0) and, where asked for, its statistics (result 1).
pub fn forward(shape: &AttentionShape, architecture: Architecture) -> Result<KernelSequence, Unsupported> {
    forward_tiled(shape, architecture, Tiling::for_forward(shape))
}

/// [`forward()`] with a tiling of one's own.
pub fn forward_tiled(
    shape: &AttentionShape,
    architecture: Architecture,
    tiling: Tiling,
) -> Result<KernelSequence, Unsupported> {
    shape.check(architecture)?;
    forward::kernels(shape, architecture, tiling)
}

/// A float in files, infinities too: as its bits.
mod bits {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(value: &f32, serializer: S) -> Result<S::Ok, S::Error> {
        value.to_bits().serialize(serializer)
    }

    pub(super) fn deserialize<'d, D: Deserializer<'d>>(deserializer: D) -> Result<f32, D::Error> {
        u32::deserialize(deserializer).map(f32::from_bits)
    }
}
