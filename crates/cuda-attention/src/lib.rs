//! Attention in a module, made one instruction: a fusion that says in its config which kernel it is.
//!
//! What is recognised is softmax(scale · Q Kᵀ + bias, masked) · V by what it computes: dimensions in any order, heads of K
//! and V shared by groups of heads of Q, masks by comparison of positions or by an array, slopes of positions as a bias,
//! soft caps, conversions on the way. The body of the fusion keeps the instructions, so that it means what it meant.

mod axes;
mod find;
mod gradient;
mod scores;
mod slope;
mod values;
mod view;

use hloom_cuda_kernels::attention::{self, AttentionShape, BackwardShape, Unsupported};
use hloom_cuda_kernels::{Architecture, KernelArgument, KernelSequence};
use hloom_ir::attributes::FusionKind;
use hloom_ir::entity::{ComputationId, EntityId, InstructionId};
use hloom_ir::module::Module;
use hloom_ir::op::{Fusion, Op};
use rustc_hash::FxHashSet;
use serde::{Deserialize, Serialize};

/// What the config of a fusion says that is attention.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct AttentionConfig {
    /// What is asked of the kernels.
    pub attention: AttentionKind,
    /// The operands of the fusion that are the kernel's, in its order.
    pub operands: Vec<u32>,
}

/// Which kernels a fusion is.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum AttentionKind {
    /// The output.
    Forward(AttentionShape),
    /// The gradients of Q, K and V, from what the output is made of and its gradient.
    Gradient(BackwardShape),
}

impl AttentionKind {
    fn kernels(&self, architecture: Architecture) -> Result<KernelSequence, Unsupported> {
        match self {
            AttentionKind::Forward(shape) => attention::forward(shape, architecture),
            AttentionKind::Gradient(shape) => attention::gradient(shape, architecture),
        }
    }
}

/// More instructions than this are no attention.
const MAX_MEMBERS: usize = 400;

/// Makes each attention in the module one fusion, and its gradients another, where there are kernels for them; gives how
/// many fusions.
pub fn fuse_attention(module: &mut Module, architecture: Architecture) -> usize {
    let mut fused = 0;
    for computation in module.computations().to_vec() {
        let dots = products(module, computation);
        for &dot in &dots {
            let Some(parts) = find::attention(module, dot) else { continue };
            // Products that share the weights: the gradients of this attention, or something else that needs them.
            let others: Vec<InstructionId> =
                dots.iter().copied().filter(|&d| d != dot && d != parts.scores.dot).collect();
            let Some(shape) = parts.forward(module) else { continue };
            let mut weights_needed = needs_weights(module, &parts);
            if let Some(found) = gradient::gradient(module, &parts, &others) {
                let kind = AttentionKind::Gradient(found.shape);
                if kind.kernels(architecture).is_ok()
                    && fuse(module, kind, &found.operands, &found.results, "attention_gradient").is_some()
                {
                    fused += 1;
                    weights_needed = false;
                }
            }
            // Where the weights are made anyway, a product with them costs less than all of it again.
            if weights_needed {
                continue;
            }
            let kind = AttentionKind::Forward(shape);
            if kind.kernels(architecture).is_ok()
                && fuse(module, kind, &parts.operands, &[parts.result], "attention").is_some()
            {
                fused += 1;
            }
        }
        // Gradients of attention whose output nobody needs.
        let left = products(module, computation);
        for &dot in &left {
            let Some(parts) = gradient::attention_without_output(module, dot, &left) else { continue };
            let others: Vec<InstructionId> = left.iter().copied().filter(|&d| d != parts.scores.dot).collect();
            let Some(found) = gradient::gradient(module, &parts, &others) else { continue };
            let kind = AttentionKind::Gradient(found.shape);
            if kind.kernels(architecture).is_ok()
                && fuse(module, kind, &found.operands, &found.results, "attention_gradient").is_some()
            {
                fused += 1;
            }
        }
    }
    fused
}

/// The products that the result of a computation is made of, in the order of the program.
fn products(module: &Module, computation: ComputationId) -> Vec<InstructionId> {
    let mut open: Vec<InstructionId> = module.root(computation).into_iter().collect();
    let mut live: FxHashSet<InstructionId> = open.iter().copied().collect();
    while let Some(id) = open.pop() {
        open.extend(module[id].operands().iter().copied().filter(|&o| live.insert(o)));
    }
    let all = module[computation].instructions().iter().copied();
    all.filter(|id| matches!(module[*id].op, Op::Dot(_)) && live.contains(id)).collect()
}

/// Whether anything but this attention uses what it makes on the way.
fn needs_weights(module: &Module, parts: &find::Parts) -> bool {
    let Some(members) = members(module, &[parts.result], &parts.operands) else { return true };
    let inside: FxHashSet<InstructionId> = members.iter().copied().collect();
    let scores = &parts.scores;
    let made = [scores.dot, scores.exponential, scores.sum, scores.normalised];
    made.iter().any(|&id| module[id].users().iter().any(|user| !inside.contains(user)))
}

fn fuse(
    module: &mut Module,
    attention: AttentionKind,
    inputs: &[InstructionId],
    results: &[InstructionId],
    name: &str,
) -> Option<()> {
    let members = members(module, results, inputs)?;
    // What comes after the results must not be needed for them.
    if inputs.iter().any(|input| members.contains(input)) {
        return None;
    }
    let call =
        |calls| Op::Fusion(Box::new(Fusion { kind: FusionKind::Custom, calls, output_operand_aliasing: Vec::new() }));
    let fusion = module.outline(&members, results, name, call).ok()?;
    let place = |operand: &InstructionId| {
        let position = module[fusion].operands().iter().position(|o| o == operand)?;
        u32::try_from(position).ok()
    };
    let operands = inputs.iter().map(place).collect::<Option<Vec<u32>>>()?;
    let text = serde_json::to_vec(&AttentionConfig { attention, operands }).ok()?;
    module.instruction_mut(fusion).common.backend_config = Some(text.into());
    Some(())
}

/// The instructions from `inputs` to `results`, in the order of the program; `None` if results depend on anything else.
fn members(module: &Module, results: &[InstructionId], inputs: &[InstructionId]) -> Option<Vec<InstructionId>> {
    let mut seen: FxHashSet<InstructionId> = inputs.iter().copied().collect();
    let mut open = results.to_vec();
    let mut members = Vec::new();
    while let Some(id) = open.pop() {
        if !seen.insert(id) {
            continue;
        }
        let movable = !matches!(module[id].op, Op::Parameter { .. })
            && module[id].common.control_predecessors().is_empty()
            && (!module[id].operands().is_empty() || matches!(module[id].op, Op::Constant(_) | Op::Iota { .. }));
        if !movable || members.len() >= MAX_MEMBERS {
            return None;
        }
        members.push(id);
        open.extend_from_slice(module[id].operands());
    }
    sort_by_dependence(module, &mut members);
    Some(members)
}

/// Puts instructions after those they use.
fn sort_by_dependence(module: &Module, members: &mut Vec<InstructionId>) {
    let set: FxHashSet<InstructionId> = members.iter().copied().collect();
    let mut done: FxHashSet<InstructionId> = FxHashSet::default();
    let mut ordered = Vec::with_capacity(members.len());
    let mut roots = members.clone();
    roots.sort_unstable_by_key(|id| id.index());
    for root in roots {
        let mut stack = vec![(root, false)];
        while let Some((id, ready)) = stack.pop() {
            if done.contains(&id) || !set.contains(&id) {
                continue;
            }
            if ready {
                done.insert(id);
                ordered.push(id);
            } else {
                stack.push((id, true));
                stack.extend(module[id].operands().iter().map(|&o| (o, false)));
            }
        }
    }
    *members = ordered;
}

/// The kernels of a fusion that [`fuse_attention`] made; `None` if it is none.
pub fn attention_kernels(
    module: &Module,
    fusion: InstructionId,
    architecture: Architecture,
) -> Option<Result<KernelSequence, Unsupported>> {
    let Op::Fusion(call) = &module[fusion].op else { return None };
    if call.kind != FusionKind::Custom {
        return None;
    }
    let config: AttentionConfig = serde_json::from_slice(module[fusion].common.backend_config.as_deref()?).ok()?;
    Some(config.attention.kernels(architecture).and_then(|sequence| with_operands(sequence, &config)))
}

/// Renames the operands of kernels to those of the fusion.
fn with_operands(mut sequence: KernelSequence, config: &AttentionConfig) -> Result<KernelSequence, Unsupported> {
    for argument in sequence.kernels.iter_mut().flat_map(|kernel| &mut kernel.arguments) {
        if let KernelArgument::Operand(number) = argument {
            let named = config.operands.get(*number as usize);
            *number = *named.ok_or_else(|| Unsupported("a config that names too few operands".into()))?;
        }
    }
    Ok(sequence)
}
