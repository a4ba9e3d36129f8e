//! Attention kernels, run by the emulator, against attention written out in double precision.

use half::{bf16, f16};
use hloom_cuda_kernels::attention::{
    AttentionShape, BackwardShape, BackwardTiling, Band, BiasType, Element, HeadStrides, PositionFactor, ScoreStrides,
    Tiling, backward_tiled, forward_tiled,
};
use hloom_cuda_kernels::{Architecture, emulate};

const HOPPER: Architecture = Architecture { capability: 90, accelerated: true };

/// Numbers in [-1, 1), the same at every call.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
}

fn bytes_of(element: Element) -> usize {
    if element == Element::F32 { 4 } else { 2 }
}

fn encode(element: Element, values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|&v| match element {
            Element::Bf16 => bf16::from_f32(v).to_le_bytes().to_vec(),
            Element::F16 => f16::from_f32(v).to_le_bytes().to_vec(),
            Element::F32 => v.to_le_bytes().to_vec(),
        })
        .collect()
}

fn decode(element: Element, bytes: &[u8]) -> Vec<f32> {
    bytes
        .chunks(bytes_of(element))
        .map(|b| match element {
            Element::Bf16 => bf16::from_le_bytes([b[0], b[1]]).to_f32(),
            Element::F16 => f16::from_le_bytes([b[0], b[1]]).to_f32(),
            Element::F32 => f32::from_le_bytes([b[0], b[1], b[2], b[3]]),
        })
        .collect()
}

/// Positions outermost or heads outermost.
#[derive(Clone, Copy)]
enum Order {
    HeadsFirst,
    PositionsFirst,
}

fn strides(order: Order, heads: u32, length: u32, dim: u32) -> HeadStrides {
    let (h, s, d) = (u64::from(heads), u64::from(length), u64::from(dim));
    match order {
        Order::HeadsFirst => HeadStrides { batch: h * s * d, head: s * d, row: d },
        Order::PositionsFirst => HeadStrides { batch: h * s * d, head: d, row: h * d },
    }
}

/// (batch, query heads, kv heads, queries, keys, head dim, value dim).
type Sizes = (u32, u32, u32, u32, u32, u32, u32);

fn shape(sizes: Sizes, order: Order) -> AttentionShape {
    let (batch, query_heads, kv_heads, query_length, kv_length, head_dim, value_dim) = sizes;
    AttentionShape {
        element: Element::Bf16,
        batch,
        query_heads,
        kv_heads,
        query_length,
        kv_length,
        head_dim,
        value_dim,
        scale: 1.0 / (head_dim as f32).sqrt() * 3.0,
        soft_cap: None,
        band: Band::default(),
        masked_score: f32::NEG_INFINITY,
        bias: None,
        bias_positions: None,
        mask: None,
        query: strides(order, query_heads, query_length, head_dim),
        key: strides(order, kv_heads, kv_length, head_dim),
        value: strides(order, kv_heads, kv_length, value_dim),
        output: strides(order, query_heads, query_length, value_dim),
        statistics: true,
    }
}

struct Data {
    query: Vec<f32>,
    key: Vec<f32>,
    value: Vec<f32>,
    bias: Vec<f32>,
    mask: Vec<u8>,
}

fn rounded(element: Element, count: u64, numbers: &mut Numbers) -> Vec<f32> {
    let values: Vec<f32> = (0..count).map(|_| numbers.next()).collect();
    decode(element, &encode(element, &values))
}

fn data(shape: &AttentionShape) -> Data {
    let mut numbers = Numbers(7);
    let size = |heads: u32, length: u32, dim: u32| {
        u64::from(shape.batch) * u64::from(heads) * u64::from(length) * u64::from(dim)
    };
    let scores = size(shape.query_heads, shape.query_length, shape.kv_length);
    Data {
        query: rounded(shape.element, size(shape.query_heads, shape.query_length, shape.head_dim), &mut numbers),
        key: rounded(shape.element, size(shape.kv_heads, shape.kv_length, shape.head_dim), &mut numbers),
        value: rounded(shape.element, size(shape.kv_heads, shape.kv_length, shape.value_dim), &mut numbers),
        bias: rounded(Element::Bf16, scores, &mut numbers),
        mask: (0..scores).map(|_| u8::from(numbers.next() > -0.5)).collect(),
    }
}

/// Scores as the kernel must see them: `[batch][head][query][key]`.
fn scores(shape: &AttentionShape, data: &Data) -> Vec<f64> {
    let group = shape.query_heads / shape.kv_heads;
    let mut all = Vec::new();
    for b in 0..u64::from(shape.batch) {
        for h in 0..u64::from(shape.query_heads) {
            for q in 0..u64::from(shape.query_length) {
                for key in 0..u64::from(shape.kv_length) {
                    let q_at = b * shape.query.batch + h * shape.query.head + q * shape.query.row;
                    let k_at = b * shape.key.batch + h / u64::from(group) * shape.key.head + key * shape.key.row;
                    let mut sum = 0.0;
                    for d in 0..u64::from(shape.head_dim) {
                        sum += f64::from(data.query[(q_at + d) as usize]) * f64::from(data.key[(k_at + d) as usize]);
                    }
                    let mut score = sum * f64::from(shape.scale);
                    if let Some(cap) = shape.soft_cap.map(f64::from) {
                        score = cap * (score / cap).tanh();
                    }
                    let at = |s: &ScoreStrides| (b * s.batch + h * s.head + q * s.query + key * s.key) as usize;
                    if let Some((_, strides)) = &shape.bias {
                        let factor = shape.bias_positions.map_or(1.0, |p| {
                            let sum = i64::from(p.query) * q as i64 + i64::from(p.key) * key as i64;
                            let sum = sum + i64::from(p.constant);
                            f64::from(p.scale) * if p.is_absolute { sum.abs() } else { sum } as f64
                        });
                        score += factor * f64::from(data.bias[at(strides)]);
                    }
                    let distance = key as i64 - q as i64;
                    let seen = shape.band.upper.is_none_or(|u| distance <= u)
                        && shape.band.lower.is_none_or(|l| distance >= l)
                        && shape.mask.as_ref().is_none_or(|s| data.mask[at(s)] != 0);
                    all.push(if seen { score } else { f64::from(shape.masked_score) });
                }
            }
        }
    }
    all
}

fn operands(shape: &AttentionShape, data: &Data) -> Vec<Vec<u8>> {
    let mut operands: Vec<Vec<u8>> =
        [&data.query, &data.key, &data.value].iter().map(|values| encode(shape.element, values)).collect();
    if let Some((kind, _)) = shape.bias {
        operands.push(match kind {
            BiasType::F32 => data.bias.iter().flat_map(|v| v.to_le_bytes()).collect(),
            BiasType::Bf16 => encode(Element::Bf16, &data.bias),
            BiasType::F16 => encode(Element::F16, &data.bias),
        });
    }
    if shape.mask.is_some() {
        operands.push(data.mask.clone());
    }
    operands
}

fn check_forward(shape: &AttentionShape, tiling: Tiling) {
    let data = data(shape);
    let sequence = forward_tiled(shape, HOPPER, tiling).expect("a kernel");
    let operands = operands(shape, &data);
    let rows = (shape.batch * shape.query_heads * shape.query_length) as usize;
    let output_bytes = rows * shape.value_dim as usize * bytes_of(shape.element);
    let results = emulate::run(&sequence, &operands, &[output_bytes, rows * 8]);
    let results = results.unwrap_or_else(|error| panic!("{error}"));
    let output = decode(shape.element, &results[0]);
    let statistics: Vec<f32> = results[1].chunks(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    let unit = if shape.bias.is_some() || shape.soft_cap.is_some() { 1.0 } else { shape.scale };

    let scores = scores(shape, &data);
    let keys = shape.kv_length as usize;
    let group = shape.query_heads / shape.kv_heads;
    for (row, row_scores) in scores.chunks(keys).enumerate() {
        let q = row as u64 % u64::from(shape.query_length);
        let h = row as u64 / u64::from(shape.query_length) % u64::from(shape.query_heads);
        let b = row as u64 / u64::from(shape.query_length) / u64::from(shape.query_heads);
        let largest = row_scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = row_scores.iter().map(|s| (s - largest).exp()).collect();
        let sum: f64 = weights.iter().sum();
        let expected_log = largest + sum.ln();
        let found_log = f64::from(statistics[row] * unit + statistics[rows + row].ln());
        assert!(
            (found_log - expected_log).abs() < 2e-3 || largest < -1e20,
            "row {row}: log-sum-exp {found_log} instead of {expected_log}"
        );
        for d in 0..u64::from(shape.value_dim) {
            let mut expected = 0.0;
            for (key, weight) in weights.iter().enumerate() {
                let at =
                    b * shape.value.batch + h / u64::from(group) * shape.value.head + key as u64 * shape.value.row + d;
                expected += weight / sum * f64::from(data.value[at as usize]);
            }
            let at = b * shape.output.batch + h * shape.output.head + q * shape.output.row + d;
            let found = f64::from(output[at as usize]);
            assert!((found - expected).abs() < 8e-3, "batch {b} head {h} row {q} element {d}: {found} for {expected}");
        }
    }
}

fn distance(found: &[f32], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>().sqrt();
    let size = norm(&mut expected.iter().copied());
    let difference = norm(&mut found.iter().zip(expected).map(|(f, e)| f64::from(*f) - e));
    difference / size.max(1e-30)
}

fn check_backward(shape: &AttentionShape, tiling: BackwardTiling) {
    let data = data(shape);
    let mut operands = operands(shape, &data);
    let rows = (shape.batch * shape.query_heads * shape.query_length) as usize;
    let sizes = [rows * shape.value_dim as usize * 2, rows * 8];
    let forward = forward_tiled(shape, HOPPER, SMALL).expect("a kernel");
    let results = emulate::run(&forward, &operands, &sizes).unwrap_or_else(|error| panic!("{error}"));
    operands.extend(results);
    let mut numbers = Numbers(99);
    let gradient = rounded(shape.element, (rows as u32 * shape.value_dim).into(), &mut numbers);
    operands.push(encode(shape.element, &gradient));
    let backward = BackwardShape {
        forward: shape.clone(),
        output_gradient: shape.output,
        query_gradient: shape.query,
        key_gradient: shape.key,
        value_gradient: shape.value,
    };
    let sequence = backward_tiled(&backward, HOPPER, tiling).expect("kernels");
    let sizes = [data.query.len() * 2, data.key.len() * 2, data.value.len() * 2];
    let results = emulate::run(&sequence, &operands, &sizes).unwrap_or_else(|error| panic!("{error}"));

    let mut expected = [vec![0.0; data.query.len()], vec![0.0; data.key.len()], vec![0.0; data.value.len()]];
    let keys = shape.kv_length as usize;
    let group = u64::from(shape.query_heads / shape.kv_heads);
    for (row, row_scores) in scores(shape, &data).chunks(keys).enumerate() {
        let q = row as u64 % u64::from(shape.query_length);
        let h = row as u64 / u64::from(shape.query_length) % u64::from(shape.query_heads);
        let b = row as u64 / u64::from(shape.query_length) / u64::from(shape.query_heads);
        let largest = row_scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = row_scores.iter().map(|s| (s - largest).exp()).sum();
        let weights: Vec<f64> = row_scores.iter().map(|s| (s - largest).exp() / sum).collect();
        let at = |s: &HeadStrides, head: u64, row: u64| (b * s.batch + head * s.head + row * s.row) as usize;
        let out = at(&shape.output, h, q);
        let products: Vec<f64> = (0..keys)
            .map(|key| {
                let v = at(&shape.value, h / group, key as u64);
                (0..shape.value_dim as usize).map(|d| f64::from(gradient[out + d]) * f64::from(data.value[v + d])).sum()
            })
            .collect();
        let mean: f64 = products.iter().zip(&weights).map(|(p, w)| p * w).sum();
        let query = at(&shape.query, h, q);
        for key in 0..keys {
            let masked = row_scores[key] <= f64::from(shape.masked_score);
            let change = if masked { 0.0 } else { weights[key] * (products[key] - mean) * f64::from(shape.scale) };
            let k_at = at(&shape.key, h / group, key as u64);
            let v_at = at(&shape.value, h / group, key as u64);
            for d in 0..shape.head_dim as usize {
                expected[0][query + d] += change * f64::from(data.key[k_at + d]);
                expected[1][k_at + d] += change * f64::from(data.query[query + d]);
            }
            for d in 0..shape.value_dim as usize {
                expected[2][v_at + d] += weights[key] * f64::from(gradient[out + d]);
            }
        }
    }
    for (name, (bytes, expected)) in ["Q", "K", "V"].iter().zip(results.iter().zip(&expected)) {
        let error = distance(&decode(shape.element, bytes), expected);
        assert!(error < 1e-2, "the gradient of {name} is off by {error}");
    }
}

const SMALL: Tiling = Tiling { consumers: 1, tile: 64, stages: 2, overlapped: true };

#[test]
fn whole_tiles() {
    check_forward(&shape((1, 1, 1, 64, 128, 64, 64), Order::HeadsFirst), SMALL);
}

#[test]
fn two_warpgroups_wide_heads() {
    let tiling = Tiling { consumers: 2, tile: 128, stages: 2, overlapped: true };
    check_forward(&shape((1, 1, 1, 128, 384, 128, 128), Order::HeadsFirst), tiling);
}

#[test]
fn without_overlap_three_stages() {
    let tiling = Tiling { consumers: 1, tile: 64, stages: 3, overlapped: false };
    check_forward(&shape((1, 1, 1, 64, 320, 64, 64), Order::HeadsFirst), tiling);
}

#[test]
fn lengths_and_heads_that_fill_no_tile() {
    check_forward(&shape((2, 4, 2, 50, 100, 96, 40), Order::PositionsFirst), SMALL);
}

#[test]
fn causal_skips_tiles() {
    let mut causal = shape((1, 1, 1, 200, 200, 64, 64), Order::HeadsFirst);
    causal.band.upper = Some(0);
    causal.masked_score = -1e30;
    check_forward(&causal, SMALL);
    check_forward(&causal, Tiling { consumers: 2, ..SMALL });
}

#[test]
fn a_window_of_keys() {
    let mut window = shape((1, 1, 1, 192, 256, 64, 64), Order::HeadsFirst);
    window.band = Band { lower: Some(-40), upper: Some(20) };
    check_forward(&window, SMALL);
}

#[test]
fn bias_and_mask() {
    let mut masked = shape((2, 2, 1, 70, 90, 64, 64), Order::HeadsFirst);
    masked.masked_score = -1e30;
    masked.mask = Some(ScoreStrides { batch: 90, head: 0, query: 0, key: 1 });
    check_forward(&masked, SMALL);
    for kind in [BiasType::F32, BiasType::Bf16, BiasType::F16] {
        masked.bias = Some((kind, ScoreStrides { batch: 0, head: 70 * 90, query: 90, key: 1 }));
        check_forward(&masked, SMALL);
    }
    masked.band.upper = Some(-3);
    masked.element = Element::F16;
    check_forward(&masked, SMALL);
}

#[test]
fn scores_within_a_cap() {
    let mut capped = shape((1, 2, 1, 100, 130, 64, 64), Order::HeadsFirst);
    capped.scale *= 8.0;
    capped.soft_cap = Some(5.0);
    check_forward(&capped, SMALL);
    capped.band.upper = Some(0);
    capped.masked_score = -1e30;
    check_forward(&capped, SMALL);
    capped.bias = Some((BiasType::F32, ScoreStrides { batch: 0, head: 100 * 130, query: 130, key: 1 }));
    check_forward(&capped, SMALL);
    let gradients = BackwardShape {
        output_gradient: capped.output,
        query_gradient: capped.query,
        key_gradient: capped.key,
        value_gradient: capped.value,
        forward: capped,
    };
    assert!(hloom_cuda_kernels::attention::backward(&gradients, HOPPER).is_err(), "the cap would be left out");
}

/// A slope for each head, and the distance of the key as a factor.
fn sloped(sizes: Sizes, positions: PositionFactor) -> AttentionShape {
    let mut shape = shape(sizes, Order::HeadsFirst);
    shape.bias = Some((BiasType::F32, ScoreStrides { batch: 0, head: 1, query: 0, key: 0 }));
    shape.bias_positions = Some(positions);
    shape
}

#[test]
fn slopes_of_positions() {
    let distance = PositionFactor { query: -1, key: 1, constant: 0, is_absolute: false, scale: 0.5 };
    let mut causal = sloped((1, 2, 1, 100, 130, 64, 64), distance);
    causal.band.upper = Some(0);
    check_forward(&causal, SMALL);
    let apart = PositionFactor { constant: 3, is_absolute: true, scale: -0.25, ..distance };
    check_forward(&sloped((2, 2, 2, 70, 90, 64, 64), apart), SMALL);
    check_backward(&sloped((1, 2, 1, 70, 90, 64, 64), apart), SMALL_BACKWARD);
    let mut far = sloped((1, 1, 1, 64, 64, 64, 64), PositionFactor { constant: 1 << 24, ..distance });
    assert!(forward_tiled(&far, HOPPER, SMALL).is_err(), "the sum would be rounded");
    far.bias_positions = Some(distance);
    far.bias = Some((BiasType::F32, ScoreStrides { batch: 0, head: 0, query: 0, key: 1 }));
    assert!(forward_tiled(&far, HOPPER, SMALL).is_err(), "no slope");
}

#[test]
fn heads_of_256() {
    let tiling = Tiling { consumers: 2, tile: 64, stages: 2, overlapped: true };
    check_forward(&shape((1, 1, 1, 100, 130, 256, 256), Order::HeadsFirst), tiling);
}

#[test]
fn f32_by_products_of_tf32() {
    let single = |sizes, order| AttentionShape { element: Element::F32, ..shape(sizes, order) };
    check_forward(&single((1, 1, 1, 64, 128, 64, 64), Order::HeadsFirst), SMALL);
    check_forward(&single((2, 4, 2, 50, 100, 96, 40), Order::PositionsFirst), SMALL);
    let mut masked = single((1, 2, 1, 70, 90, 32, 128), Order::HeadsFirst);
    masked.bias = Some((BiasType::F32, ScoreStrides { batch: 0, head: 70 * 90, query: 90, key: 1 }));
    masked.band.upper = Some(0);
    check_forward(&masked, Tiling { consumers: 2, ..SMALL });
}

const SMALL_BACKWARD: BackwardTiling =
    BackwardTiling { query_consumers: 1, query_tile: 64, key_consumers: 1, key_tile: 64, stages: 2 };

#[test]
fn gradients_of_whole_tiles() {
    let tiling = BackwardTiling { query_consumers: 2, key_consumers: 2, key_tile: 48, ..SMALL_BACKWARD };
    check_backward(&shape((1, 1, 1, 128, 128, 128, 128), Order::HeadsFirst), tiling);
}

#[test]
fn gradients_of_grouped_heads_that_fill_no_tile() {
    check_backward(&shape((2, 4, 2, 50, 100, 96, 40), Order::PositionsFirst), SMALL_BACKWARD);
}

#[test]
fn gradients_of_causal_attention() {
    let mut causal = shape((1, 2, 1, 200, 200, 64, 64), Order::HeadsFirst);
    causal.band.upper = Some(0);
    causal.masked_score = -1e30;
    check_backward(&causal, SMALL_BACKWARD);
    let tiling = BackwardTiling { query_consumers: 2, query_tile: 128, key_consumers: 2, ..SMALL_BACKWARD };
    check_backward(&causal, tiling);
}

#[test]
fn gradients_with_bias_and_mask() {
    let mut masked = shape((2, 4, 2, 70, 90, 64, 64), Order::HeadsFirst);
    masked.masked_score = -1e30;
    masked.mask = Some(ScoreStrides { batch: 90, head: 0, query: 0, key: 1 });
    check_backward(&masked, SMALL_BACKWARD);
    masked.bias = Some((BiasType::Bf16, ScoreStrides { batch: 0, head: 70 * 90, query: 90, key: 1 }));
    masked.element = Element::F16;
    // The first rows see nothing.
    masked.band.upper = Some(-3);
    check_backward(&masked, SMALL_BACKWARD);
}

#[test]
fn gradients_of_heads_of_256() {
    check_backward(&shape((1, 1, 1, 70, 130, 256, 192), Order::HeadsFirst), SMALL_BACKWARD);
}
