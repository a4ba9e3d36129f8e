//! The axes of attention: batches, heads, queries and keys, and how far each array goes along them.
//!
//! Arrays that run over scores are known as segments of the space of scores. Cut finely enough, each has one stride along
//! each axis; axes along which all arrays go as along one are joined again.

use hloom_cuda_kernels::attention::{Band, HeadStrides, PositionFactor, ScoreStrides};

use crate::scores::{FoundBand, FoundPositions};
use crate::view::{Factor, Segment};

/// An axis: its size, its step in the space of scores, and the stride of each array.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Axis {
    size: i64,
    step: i64,
    strides: Vec<i64>,
}

/// The axes of attention, and the strides of each array along them. An axis that there is not has size 1.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct AttentionAxes {
    batch: Axis,
    kv_head: Axis,
    group: Axis,
    query: Axis,
    key: Axis,
    pub band: Band,
}

/// Which of the arrays do not depend on the query: the second and the third.
const KEY: usize = 1;
const VALUE: usize = 2;

/// The axes that cut the space finely enough for all arrays.
fn cut(space: &[Factor], arrays: &[Vec<Segment>]) -> Option<Vec<Axis>> {
    let mut axes = Vec::new();
    for dim in space {
        let (low, high) = (dim.stride, dim.stride * dim.size);
        let mut cuts = vec![low, high];
        for segment in arrays.iter().flatten().filter(|s| s.step >= low && s.step < high) {
            cuts.extend([segment.step, (segment.step * segment.size).min(high)]);
        }
        cuts.sort_unstable();
        cuts.dedup();
        for pair in cuts.windows(2).rev() {
            if pair[1] % pair[0] != 0 {
                return None;
            }
            let stride = |array: &Vec<Segment>| {
                let covers = |s: &&Segment| s.step <= pair[0] && pair[0] < s.step * s.size;
                array.iter().find(covers).map_or(0, |s| s.stride * (pair[0] / s.step))
            };
            let strides = arrays.iter().map(stride).collect();
            axes.push(Axis { size: pair[1] / pair[0], step: pair[0], strides });
        }
    }
    Some(axes)
}

/// Joins axes along which all arrays go as along one.
fn join(mut axes: Vec<Axis>) -> Vec<Axis> {
    'again: loop {
        for outer in 0..axes.len() {
            for inner in 0..axes.len() {
                let as_one = |(a, b): (&i64, &i64)| *a == b * axes[inner].size;
                if outer != inner && axes[outer].strides.iter().zip(&axes[inner].strides).all(as_one) {
                    let size = axes[outer].size * axes[inner].size;
                    axes[inner].size = size;
                    axes.remove(outer);
                    continue 'again;
                }
            }
        }
        return axes;
    }
}

impl AttentionAxes {
    /// Finds them in the space of scores. Arrays are Q, K, V and whatever else runs over scores but keys.
    pub(crate) fn new(
        space: &[Factor],
        arrays: &[Vec<Segment>],
        key_step: i64,
        bands: &[FoundBand],
    ) -> Option<AttentionAxes> {
        let none = Axis { size: 1, step: 0, strides: vec![0; arrays.len()] };
        let key_dim = space.iter().find(|f| f.stride == key_step)?;
        let is_key = |axis: &Axis| axis.step >= key_step && axis.step < key_step * key_dim.size;
        let (keys, rows): (Vec<Axis>, Vec<Axis>) = cut(space, arrays)?.into_iter().partition(is_key);
        let [key] = join(keys).try_into().ok()?;
        let (mut of_queries, of_keys): (Vec<Axis>, Vec<Axis>) =
            rows.into_iter().partition(|axis| axis.strides[KEY] == 0 && axis.strides[VALUE] == 0);

        let mut band = Band::default();
        let mut query_step = None;
        for found in bands {
            let (step, lower, upper) = if found.negative_step == key_step {
                (found.positive_step, found.lower, found.upper)
            } else if found.positive_step == key_step {
                (found.negative_step, found.upper.map(|x| -x), found.lower.map(|x| -x))
            } else {
                return None;
            };
            if query_step.replace(step).is_some_and(|other| other != step) {
                return None;
            }
            band.lower = band.lower.max(lower);
            band.upper = match (band.upper, upper) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
        }
        // The axis that a band is about, or the longest one.
        let place = match query_step {
            Some(step) => Some(of_queries.iter().position(|axis| axis.step == step)?),
            None => (0..of_queries.len()).max_by_key(|&i| of_queries[i].size),
        };
        let query = place.map_or(none.clone(), |i| of_queries.remove(i));
        let mut groups = join(of_queries);
        let group = groups.pop().unwrap_or(none.clone());
        let mut outer = join(of_keys);
        if !groups.is_empty() || outer.len() > 2 {
            return None;
        }
        let is_of_keys = |n: usize| query.strides[n] == 0 && group.strides[n] == 0 && key.strides[n] != 0;
        let (batch, kv_head) = match (outer.pop(), outer.pop()) {
            (None, _) => (none.clone(), none),
            (Some(only), None) if group.size > 1 => (only, none),
            (Some(only), None) => (none, only),
            (Some(inner), Some(outer)) if group.size == 1 => (outer, inner),
            // Heads of Q must follow each other: a head of K's group, then the next head's.
            (Some(a), Some(b)) => {
                let follows = |head: &Axis| {
                    // Of what belongs to queries; what belongs to keys does not go along the group at all.
                    let matters = |n: &usize| group.strides[*n] != 0 || head.strides[*n] != 0 && !is_of_keys(*n);
                    (0..arrays.len()).filter(matters).all(|n| head.strides[n] == group.strides[n] * group.size)
                };
                if follows(&a) {
                    (b, a)
                } else if follows(&b) {
                    (a, b)
                } else {
                    return None;
                }
            }
        };
        Some(AttentionAxes { batch, kv_head, group, query, key, band })
    }

    pub(crate) fn sizes(&self) -> Option<Sizes> {
        let size = |axis: &Axis| u32::try_from(axis.size).ok();
        Some(Sizes {
            batch: size(&self.batch)?,
            query_heads: size(&self.kv_head)?.checked_mul(size(&self.group)?)?,
            kv_heads: size(&self.kv_head)?,
            query_length: size(&self.query)?,
            kv_length: size(&self.key)?,
        })
    }

    /// The strides of an array of rows of Q: Q itself, the output, and their gradients.
    pub(crate) fn of_query(&self, array: usize) -> Option<HeadStrides> {
        Some(HeadStrides {
            batch: u64::try_from(self.batch.strides[array]).ok()?,
            head: u64::try_from(self.query_head_stride(array)).ok()?,
            row: u64::try_from(self.query.strides[array]).ok()?,
        })
    }

    /// The strides of an array of rows of K: K itself, V, and their gradients.
    pub(crate) fn of_key(&self, array: usize) -> Option<HeadStrides> {
        Some(HeadStrides {
            batch: u64::try_from(self.batch.strides[array]).ok()?,
            head: u64::try_from(self.kv_head.strides[array]).ok()?,
            row: u64::try_from(self.key.strides[array]).ok()?,
        })
    }

    /// The strides of an array over scores.
    pub(crate) fn of_scores(&self, array: usize) -> Option<ScoreStrides> {
        Some(ScoreStrides {
            batch: u64::try_from(self.batch.strides[array]).ok()?,
            head: u64::try_from(self.query_head_stride(array)).ok()?,
            query: u64::try_from(self.query.strides[array]).ok()?,
            key: u64::try_from(self.key.strides[array]).ok()?,
        })
    }

    /// A sum of positions of the query and the key; `None` if others count.
    pub(crate) fn position_factor(&self, positions: &FoundPositions) -> Option<PositionFactor> {
        let (mut query, mut key) = (0, 0);
        for &(step, coefficient) in &positions.terms {
            match step {
                step if step == self.key.step => key += coefficient,
                step if step == self.query.step => query += coefficient,
                _ => return None,
            }
        }
        let [query, key, constant] = [query, key, positions.constant].map(|n| i32::try_from(n).ok());
        Some(PositionFactor {
            query: query?,
            key: key?,
            constant: constant?,
            is_absolute: positions.is_absolute,
            scale: positions.scale as f32,
        })
    }

    /// Whether an array has nothing of its own for each query or each head of a group.
    pub(crate) fn is_of_keys(&self, array: usize) -> bool {
        self.query.strides[array] == 0 && self.group.strides[array] == 0
    }

    fn query_head_stride(&self, array: usize) -> i64 {
        match self.group.size {
            1 => self.kv_head.strides[array],
            _ => self.group.strides[array],
        }
    }
}

/// How many there are of each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sizes {
    pub batch: u32,
    pub query_heads: u32,
    pub kv_heads: u32,
    pub query_length: u32,
    pub kv_length: u32,
}
