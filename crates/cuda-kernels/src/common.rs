//! The kernels that programs are most likely to ask for: of the usual types and sizes of heads, in the usual orders.
//!
//! Their text does not depend on how long arrays are, so that they can be assembled, and kept, before a program asks for
//! them. What is not among them is assembled when it is asked for.

use crate::attention::{AttentionShape, BackwardShape, Band, Element, HeadStrides, Unsupported, backward, forward};
use crate::launch::{Architecture, KernelSequence};
use crate::number::Number;
use crate::order::{FloatOrder, KeyOrder};
use crate::scan::{ScanOperation, ScanShape, prefix_scan};
use crate::sort::{SortShape, SortValue, radix_sort};
use crate::top_k::{TopKShape, top_k};
use std::collections::HashSet;

/// The texts of those kernels that there are for an architecture, each once: those that take longest to assemble first.
pub fn texts(architecture: Architecture) -> Vec<String> {
    let mut seen = HashSet::new();
    let sequences = attention(architecture).chain(sorts(architecture)).chain(scans(architecture));
    let kernels = sequences.filter_map(Result::ok).flat_map(|sequence| sequence.kernels);
    let mut texts: Vec<String> = kernels.map(|kernel| kernel.ptx).filter(|text| seen.insert(text.clone())).collect();
    texts.sort_by_key(|text| std::cmp::Reverse(text.len()));
    texts
}

type Made = Result<KernelSequence, Unsupported>;

/// Attention over whole tiles, of all keys or of those up to the query's own place, and its gradients.
fn attention(architecture: Architecture) -> impl Iterator<Item = Made> {
    let shape = move |element, dim: u32, upper, statistics| {
        let strides = HeadStrides { batch: u64::from(LENGTH * dim), head: u64::from(LENGTH * dim), row: dim.into() };
        AttentionShape {
            element,
            batch: 1,
            query_heads: 1,
            kv_heads: 1,
            query_length: LENGTH,
            kv_length: LENGTH,
            head_dim: dim,
            value_dim: dim,
            scale: 1.0,
            soft_cap: None,
            band: Band { lower: None, upper },
            masked_score: f32::NEG_INFINITY,
            bias: None,
            bias_positions: None,
            mask: None,
            query: strides,
            key: strides,
            value: strides,
            output: strides,
            statistics,
        }
    };
    let kinds = [(Element::Bf16, 64), (Element::Bf16, 128), (Element::F32, 64)];
    kinds.into_iter().flat_map(move |(element, dim)| {
        [None, Some(0)].into_iter().flat_map(move |upper| {
            let forward_shape = shape(element, dim, upper, true);
            let [output_gradient, query_gradient, key_gradient, value_gradient] = [forward_shape.output; 4];
            let with_statistics = forward(&forward_shape, architecture);
            let shape_of_gradients =
                BackwardShape { forward: forward_shape, output_gradient, query_gradient, key_gradient, value_gradient };
            let alone = forward(&shape(element, dim, upper, false), architecture);
            [alone, with_statistics, backward(&shape_of_gradients, architecture)]
        })
    })
}

/// The length of rows and heads: that of whole tiles.
const LENGTH: u32 = 4096;

/// Sorts of one long row, alone and with a value of four bytes, of rows that a block sorts, and the first of rows.
fn sorts(architecture: Architecture) -> impl Iterator<Item = Made> {
    let order = |key, floats, descending| KeyOrder { key, floats, descending };
    let orders = [
        order(Number::F32, FloatOrder::Canonical, false),
        order(Number::F32, FloatOrder::Total, false),
        order(Number::S32, FloatOrder::Total, false),
        order(Number::U32, FloatOrder::Total, false),
        order(Number::Bf16, FloatOrder::Canonical, false),
    ];
    let sorts = orders.into_iter().flat_map(move |order| {
        [(1, 1 << 20), (2, 4096), (2, 1024)].into_iter().flat_map(move |(rows, length)| {
            [vec![], vec![SortValue::Array { bytes: 4 }]]
                .map(|values| radix_sort(&SortShape { order, rows, length, values }, architecture))
        })
    });
    let firsts = [Number::F32, Number::Bf16].into_iter().flat_map(move |key| {
        let order = order(key, FloatOrder::Total, true);
        // By how many threads a row has.
        [64u64, 1024, 8192].map(|length| top_k(&TopKShape { order, rows: 2, length, k: 2 }, architecture))
    });
    sorts.chain(firsts)
}

/// Scans of many rows, of few long ones, and down columns.
fn scans(architecture: Architecture) -> impl Iterator<Item = Made> {
    use ScanOperation::{LogSumExp, Max, Product, Sum};
    let kinds = [
        (Number::F32, Sum),
        (Number::F32, Max),
        (Number::F32, Product),
        (Number::F32, LogSumExp),
        (Number::S32, Sum),
        (Number::Bf16, Sum),
    ];
    kinds.into_iter().flat_map(move |(element, operation)| {
        [(4096, 4096, 1), (1, 1 << 20, 1), (1, 4096, 4096)].map(|(outer, length, inner)| {
            prefix_scan(&ScanShape { element, operation, outer, length, inner, reverse: false }, architecture)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOPPER: Architecture = Architecture { capability: 90, accelerated: true };

    #[test]
    fn there_are_some_for_every_architecture_and_attention_where_it_has_products() {
        let texts_for = |capability, accelerated| texts(Architecture { capability, accelerated });
        let has_attention = |texts: &[String]| texts.iter().any(|t| t.contains(".entry attention_forward("));
        assert!(has_attention(&texts(HOPPER)));
        assert!(!has_attention(&texts_for(80, false)) && texts_for(80, false).len() > 20);
        assert!(texts_for(75, false).is_empty());
    }

    #[test]
    fn programs_of_other_sizes_find_theirs_among_them() {
        let texts = texts(HOPPER);
        let order = KeyOrder { key: Number::F32, floats: FloatOrder::Canonical, descending: false };
        let asked = [
            radix_sort(&SortShape { order, rows: 1, length: 16_000_001, values: Vec::new() }, HOPPER),
            radix_sort(&SortShape { order, rows: 900, length: 3000, values: Vec::new() }, HOPPER),
            top_k(
                &TopKShape {
                    order: KeyOrder { floats: FloatOrder::Total, descending: true, ..order },
                    rows: 7,
                    length: 32_000,
                    k: 40,
                },
                HOPPER,
            ),
            prefix_scan(
                &ScanShape {
                    element: Number::F32,
                    operation: ScanOperation::Sum,
                    outer: 3,
                    length: 600_000,
                    inner: 1,
                    reverse: false,
                },
                HOPPER,
            ),
            prefix_scan(
                &ScanShape {
                    element: Number::F32,
                    operation: ScanOperation::Sum,
                    outer: 5000,
                    length: 512,
                    inner: 1,
                    reverse: false,
                },
                HOPPER,
            ),
            prefix_scan(
                &ScanShape {
                    element: Number::S32,
                    operation: ScanOperation::Sum,
                    outer: 8,
                    length: 100,
                    inner: 77,
                    reverse: false,
                },
                HOPPER,
            ),
        ];
        for sequence in asked {
            for kernel in sequence.unwrap().kernels {
                assert!(texts.contains(&kernel.ptx), "{} {:?}", kernel.name, kernel.arguments);
            }
        }
    }

    #[test]
    fn attention_of_other_lengths_heads_and_strides_finds_its_own() {
        let texts = texts(HOPPER);
        let strides = HeadStrides { batch: 1024 * 16 * 128, head: 128, row: 16 * 128 };
        let shape = AttentionShape {
            element: Element::Bf16,
            batch: 3,
            query_heads: 16,
            kv_heads: 4,
            query_length: 1024,
            kv_length: 2048,
            head_dim: 128,
            value_dim: 128,
            scale: 0.0883,
            soft_cap: None,
            band: Band { lower: None, upper: Some(1024) },
            masked_score: -1e30,
            bias: None,
            bias_positions: None,
            mask: None,
            query: strides,
            key: HeadStrides { batch: 2048 * 4 * 128, head: 2048 * 128, row: 128 },
            value: HeadStrides { batch: 2048 * 4 * 128, head: 2048 * 128, row: 128 },
            output: strides,
            statistics: true,
        };
        let gradients = BackwardShape {
            output_gradient: strides,
            query_gradient: strides,
            key_gradient: shape.key,
            value_gradient: shape.value,
            forward: shape.clone(),
        };
        for sequence in [forward(&shape, HOPPER), backward(&gradients, HOPPER)] {
            for kernel in sequence.unwrap().kernels {
                assert!(texts.contains(&kernel.ptx), "{}", kernel.name);
            }
        }
    }
}
