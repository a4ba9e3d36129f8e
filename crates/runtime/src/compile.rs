//! From a verified module to a program: what must be true of a module for that, and the way there.

use crate::client::Client;
use crate::executable::CompileOptions;
use crate::library::Call;
use crate::lower::{Unplanned, lower};
use crate::native;
use crate::output_fusion::product_of;
use crate::program::Program;
use crate::report::Report;
use crate::width::may_fork;
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::entity::{ComputationId, EntityId, InstructionId};
use hloom_ir::instruction::Instruction;
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::shape::{ArrayShape, Shape};
use hloom_ir::verify::{VerifiedModule, VerifyOptions, verify};
use hloom_passes::inline::undo_fusions;
use hloom_passes::{Context, PassList, optimize};
use hloom_plan::Packer;
use hloom_plan::copies::insert_copies;
use hloom_plan::flatten::flatten_call_graph;
use hloom_target::Target;
use std::collections::HashSet;

/// A program, and the module whose instructions its steps name.
pub(crate) struct Compiled {
    pub(crate) program: Program,
    pub(crate) module: VerifiedModule,
}

/// Compiles `module`.
pub(crate) fn compile(
    module: &VerifiedModule,
    client: &Client,
    options: &CompileOptions,
    report: &mut Report,
) -> Result<Compiled, Unplanned> {
    if let Some(reason) = unplannable(module.module()) {
        return Err(Unplanned::Evaluate(reason));
    }
    let target = Target::named("cpu").map_err(|d| leave(vec![d]))?;
    let module = prepare(module, &target, report)?;
    if let Some(reason) = not_row_major(module.module()) {
        return Err(Unplanned::Evaluate(reason));
    }
    let program = {
        let may_fork = may_fork(&module, client.pool().threads());
        let packer = if may_fork { Packer::Apart } else { Packer::Reference };
        let plan = report.stage("plan", |_| hloom_plan::plan_with(&module, &target, packer)).map_err(leave)?;
        lower(&plan, client, options, may_fork, report)?
    };
    Ok(Compiled { program, module })
}

/// What stops a compiler does not stop the evaluator.
fn leave(errors: Vec<Diagnostic>) -> Unplanned {
    Unplanned::Evaluate(errors.into_iter().next().map_or_else(String::new, |d| d.message))
}

/// Runs the passes of the target, and puts values where they can all have a place.
fn prepare(module: &VerifiedModule, target: &Target, report: &mut Report) -> Result<VerifiedModule, Unplanned> {
    let list = PassList::for_target(&target.name).map_err(|d| leave(vec![d]))?;
    let context = Context { target };
    let optimized = report.stage("passes", |_| optimize(module.clone(), &list, &context, None));
    let mut module = optimized.map_err(|failed| leave(failed.diagnostics))?.module.into_module();
    let refused = report.stage("fusions", |_| fusions_without_kernel(&module));
    if !refused.is_empty() {
        undo_fusions(&mut module, |body| refused.contains(&body));
    }
    reshapes_are_bitcasts(&mut module);
    report.stage("copies", |_| {
        flatten_call_graph(&mut module).map_err(|d| leave(vec![d]))?;
        insert_copies(&mut module, target).map_err(leave)
    })?;
    // The order in which copy insertion leaves the instructions is one in which they can run.
    module.is_scheduled = true;
    report.stage("verify", |_| verify(module, &VerifyOptions::default()).map_err(|invalid| leave(invalid.diagnostics)))
}

/// The bodies of fusions for which there is no kernel: apart, most of their instructions have one.
fn fusions_without_kernel(module: &Module) -> HashSet<ComputationId> {
    let all = module.computations().iter().flat_map(|&c| module[c].instructions());
    let has_kernels = |id: InstructionId| {
        let product = product_of(module, id);
        native::supports(module, id, product).is_ok() && product.is_none_or(|p| Call::new(module, p).is_ok())
    };
    let refused = all.filter_map(|&id| match &module[id].op {
        Op::Fusion(fusion) if !has_kernels(id) => Some(fusion.calls),
        _ => None,
    });
    refused.collect()
}

/// Where all arrays are row-major a reshape moves nothing: its value is its operand, in the same memory. Not within
/// fusions, where nothing lies in memory.
fn reshapes_are_bitcasts(module: &mut Module) {
    let mut fused = vec![false; module.computation_slots()];
    for &computation in module.computations() {
        for &id in module[computation].instructions() {
            if let Op::Fusion(fusion) = &module[id].op {
                fused[fusion.calls.index()] = true;
            }
        }
    }
    let steps = module.computations().iter().filter(|c| !fused[c.index()]).flat_map(|&c| module[c].instructions());
    let is_plain = |&id: &InstructionId| {
        let from = module[id].operands().first().map(|&o| &module[o].shape);
        matches!(module[id].op, Op::Reshape { .. }) && from.is_some_and(|from| keeps_order(from, &module[id].shape))
    };
    let reshapes: Vec<InstructionId> = steps.copied().filter(is_plain).collect();
    for id in reshapes {
        module.instruction_mut(id).op = Op::Bitcast;
    }
}

/// The first instruction for which there is a reason, with that reason.
fn first_reason(module: &Module, reason: impl Fn(&Instruction) -> Option<&'static str>) -> Option<String> {
    let mut all = module.computations().iter().flat_map(|&c| module[c].instructions());
    all.find_map(|&id| reason(&module[id]).map(|reason| format!("{} {reason}", module[id].name())))
}

/// Why a module has no static plan of memory, if it has none.
fn unplannable(module: &Module) -> Option<String> {
    first_reason(module, |instruction| match &instruction.op {
        _ if instruction.shape.is_dynamic() => Some("has a size that is known at run time only"),
        _ if has_opaque(&instruction.shape) => Some("has a value of unknown form"),
        _ => None,
    })
}

/// Why a planned module cannot be run with row-major arrays only, if it cannot.
fn not_row_major(module: &Module) -> Option<String> {
    first_reason(module, |instruction| match (&instruction.op, instruction.operands()) {
        (Op::Bitcast, &[operand]) if !keeps_order(&module[operand].shape, &instruction.shape) => {
            Some("changes the order of elements in memory")
        }
        (Op::CustomCall(call), _) if &*call.target == "AsyncCollectiveStart" => Some("starts a collective elsewhere"),
        _ => None,
    })
}

fn has_opaque(shape: &Shape) -> bool {
    match shape {
        Shape::Opaque | Shape::Buffer(_) => true,
        Shape::Tuple(elements) => elements.iter().any(has_opaque),
        _ => false,
    }
}

/// Whether both shapes have their elements in row-major order, so that a bitcast between them changes nothing.
fn keeps_order(from: &Shape, to: &Shape) -> bool {
    let row_major = |a: &ArrayShape| {
        let dims = a.minor_to_major();
        a.layout.as_ref().is_none_or(|l| l.tiles.is_empty() && l.element_size_in_bits == 0)
            && dims.iter().rev().enumerate().all(|(n, &d)| n as i64 == d)
    };
    match (from, to) {
        (Shape::Array(a), Shape::Array(b)) => row_major(a) && row_major(b),
        _ => false,
    }
}
