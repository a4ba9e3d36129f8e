//! The gradients of attention: one kernel that reads what is known of each row of Q, one for the gradients of K and V, one
//! for that of Q.
//!
//! Scores are computed again in both, so that every gradient is summed by one block in a fixed order: results do not
//! depend on timing, and nothing of the size of the scores is kept.

use super::rows::{PLANE_THREADS, RowPlanes, write_planes};
use super::tiles::SHARED_LIMIT;
use super::{AttentionShape, Element, HeadStrides, Unsupported, key_gradient, query_gradient};
use crate::launch::{Architecture, KernelArgument, KernelSequence, Launch, PtxKernel, Scratch};
use crate::ptx::PtxBuilder;

/// What gradients are asked for.
///
/// Operands are those of the forward pass, then its output, its statistics, and the output's gradient. Results are the
/// gradients of Q, K and V.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct BackwardShape {
    /// The forward pass.
    pub forward: AttentionShape,
    /// Where the gradient of the output lies.
    pub output_gradient: HeadStrides,
    /// Where the gradient of Q goes.
    pub query_gradient: HeadStrides,
    /// Where the gradient of K goes.
    pub key_gradient: HeadStrides,
    /// Where the gradient of V goes.
    pub value_gradient: HeadStrides,
}

/// How the work is cut. [`backward`] chooses; tests and measurements try others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BackwardTiling {
    /// Warpgroups of 64 rows in the kernel for Q.
    pub query_consumers: u32,
    /// Keys a step in the kernel for Q.
    pub query_tile: u32,
    /// Warpgroups of 64 keys in the kernel for K and V.
    pub key_consumers: u32,
    /// Queries a step in the kernel for K and V.
    pub key_tile: u32,
    /// Tiles in shared memory at once.
    pub stages: u32,
}

impl BackwardTiling {
    /// The tiling for heads of that size.
    pub fn new(shape: &AttentionShape) -> BackwardTiling {
        let widest = shape.head_dim.max(shape.value_dim).next_multiple_of(64);
        let query_tile = if widest == 64 { 128 } else { 64 };
        let consumers = if widest > 128 { 1 } else { 2 };
        // Two accumulators of 128 columns leave no registers for a tile of 64.
        let key_tile = if widest == 128 { 48 } else { 64 };
        BackwardTiling { query_consumers: consumers, query_tile, key_consumers: consumers, key_tile, stages: 2 }
    }
}

/// Which gradients a kernel over keys computes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct KeyOutputs {
    pub key: bool,
    pub value: bool,
}

/// The kernels for the gradients of Q (result 0), K (1) and V (2).
pub fn backward(shape: &BackwardShape, architecture: Architecture) -> Result<KernelSequence, Unsupported> {
    backward_tiled(shape, architecture, BackwardTiling::new(&shape.forward))
}

/// [`backward`] with a tiling of one's own.
pub fn backward_tiled(
    shape: &BackwardShape,
    architecture: Architecture,
    tiling: BackwardTiling,
) -> Result<KernelSequence, Unsupported> {
    let forward = &shape.forward;
    forward.check(architecture)?;
    if forward.element == Element::F32 {
        return Err(Unsupported("the gradient of attention in f32".into()));
    }
    if forward.soft_cap.is_some() {
        return Err(Unsupported("the gradient of attention with a soft cap".into()));
    }
    let gradients = [
        ("the output's gradient", shape.output_gradient),
        ("Q's gradient", shape.query_gradient),
        ("K's gradient", shape.key_gradient),
        ("V's gradient", shape.value_gradient),
    ];
    for (name, strides) in gradients {
        strides.check(name)?;
    }
    let planes = RowPlanes::new(shape, [64 * tiling.query_consumers, tiling.key_tile]);
    let inputs = 3 + u32::from(forward.bias.is_some()) + u32::from(forward.mask.is_some());
    let (output, statistics, gradient) = (inputs, inputs + 1, inputs + 2);

    let mut kernels = Vec::new();
    let mut k = PtxBuilder::new("attention_rows", architecture, PLANE_THREADS, 4);
    write_planes(&mut k, shape, planes);
    let mut arguments = vec![
        KernelArgument::Operand(output),
        KernelArgument::Operand(statistics),
        KernelArgument::Operand(gradient),
        KernelArgument::Scratch(0),
    ];
    arguments.extend_from_slice(k.sizes());
    kernels.push(PtxKernel {
        name: "attention_rows".into(),
        ptx: k.finish(),
        launch: Launch {
            grid: [planes.padded.div_ceil(PLANE_THREADS / 32), forward.query_heads, forward.batch],
            block: [PLANE_THREADS, 1, 1],
            dynamic_shared_bytes: 0,
            cluster: 1,
        },
        arguments,
    });

    let mut shared_inputs: Vec<KernelArgument> = (0..inputs).map(KernelArgument::Operand).collect();
    shared_inputs.push(KernelArgument::Operand(gradient));
    shared_inputs.push(KernelArgument::Scratch(0));
    // Both accumulators of wide heads do not fit the registers of a warpgroup.
    let widest = forward.head_dim.max(forward.value_dim).next_multiple_of(64);
    let key_outputs: &[KeyOutputs] = if widest > 128 {
        &[KeyOutputs { key: false, value: true }, KeyOutputs { key: true, value: false }]
    } else {
        &[KeyOutputs { key: true, value: true }]
    };
    for &outputs in key_outputs {
        let name = match outputs {
            KeyOutputs { key: true, value: true } => "attention_key_value_gradient",
            KeyOutputs { key: true, value: false } => "attention_key_gradient",
            KeyOutputs { key: false, .. } => "attention_value_gradient",
        };
        let threads = 128 * (tiling.key_consumers + 1);
        let mut k = PtxBuilder::new(name, architecture, threads, 1);
        key_gradient::write(&mut k, shape, tiling, planes, outputs);
        let mut arguments = shared_inputs.clone();
        arguments.extend(outputs.key.then_some(KernelArgument::Result(1)));
        arguments.extend(outputs.value.then_some(KernelArgument::Result(2)));
        let rows = 64 * tiling.key_consumers;
        let grid = [forward.kv_length.div_ceil(rows), forward.kv_heads, forward.batch];
        kernels.push(finish(k, name, grid, threads, arguments)?);
    }

    let threads = 128 * (tiling.query_consumers + 1);
    let name = "attention_query_gradient";
    let mut k = PtxBuilder::new(name, architecture, threads, 1);
    query_gradient::write(&mut k, shape, tiling, planes);
    let mut arguments = shared_inputs;
    arguments.push(KernelArgument::Result(0));
    let grid = [forward.query_length.div_ceil(64 * tiling.query_consumers), forward.query_heads, forward.batch];
    kernels.push(finish(k, name, grid, threads, arguments)?);
    Ok(KernelSequence { kernels, scratch: vec![Scratch { bytes: planes.bytes(), zeroed: false }] })
}

/// The kernels for the gradients of Q, K and V from the operands of the forward pass and the output's gradient alone: the
/// forward pass is run again for the output and its statistics.
pub fn gradient(shape: &BackwardShape, architecture: Architecture) -> Result<KernelSequence, Unsupported> {
    let forward = &shape.forward;
    let with_statistics = AttentionShape { statistics: true, ..forward.clone() };
    let mut sequence = super::forward(&with_statistics, architecture)?;
    let rows = u64::from(forward.batch) * u64::from(forward.query_heads) * u64::from(forward.query_length);
    let strides = forward.output;
    let reach = u64::from(forward.batch - 1) * strides.batch
        + u64::from(forward.query_heads - 1) * strides.head
        + u64::from(forward.query_length - 1) * strides.row;
    let output_bytes = 2 * (reach + u64::from(forward.value_dim));
    let own = sequence.scratch.len() as u32;
    sequence.scratch.push(Scratch { bytes: output_bytes, zeroed: false });
    sequence.scratch.push(Scratch { bytes: 8 * rows, zeroed: false });
    for argument in sequence.kernels.iter_mut().flat_map(|kernel| &mut kernel.arguments) {
        if let KernelArgument::Result(number) = *argument {
            *argument = KernelArgument::Scratch(own + number);
        }
    }
    let inputs = 3 + u32::from(forward.bias.is_some()) + u32::from(forward.mask.is_some());
    let gradients = backward(shape, architecture)?;
    let moved = sequence.scratch.len() as u32;
    for mut kernel in gradients.kernels {
        for argument in &mut kernel.arguments {
            *argument = match *argument {
                KernelArgument::Operand(n) if n == inputs || n == inputs + 1 => {
                    KernelArgument::Scratch(own + n - inputs)
                }
                KernelArgument::Operand(n) if n == inputs + 2 => KernelArgument::Operand(inputs),
                KernelArgument::Scratch(n) => KernelArgument::Scratch(moved + n),
                other => other,
            };
        }
        sequence.kernels.push(kernel);
    }
    sequence.scratch.extend(gradients.scratch);
    Ok(sequence)
}

fn finish(
    k: PtxBuilder,
    name: &str,
    grid: [u32; 3],
    threads: u32,
    mut arguments: Vec<KernelArgument>,
) -> Result<PtxKernel, Unsupported> {
    arguments.extend_from_slice(k.sizes());
    let dynamic_shared_bytes = k.shared_bytes();
    if dynamic_shared_bytes > SHARED_LIMIT {
        return Err(Unsupported(format!("tiles of {dynamic_shared_bytes} bytes do not fit shared memory")));
    }
    let launch = Launch { grid, block: [threads, 1, 1], dynamic_shared_bytes, cluster: 1 };
    Ok(PtxKernel { name: name.to_string(), ptx: k.finish(), launch, arguments })
}
