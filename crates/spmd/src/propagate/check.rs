//! Shardings that cannot hold, before anything is made of them: what does not fit its value, meshes that disagree,
//! arguments and results that are not cut into equal parts, and two shardings for one piece of memory.

use super::hlo_graph::is_shell;
use hloom_formats::hlo_text::print_sharding;
use hloom_ir::device_list::MeshDevices;
use hloom_ir::diagnostic::codes::spmd as codes;
use hloom_ir::diagnostic::{Diagnostic, Part};
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::module::Module;
use hloom_ir::sharding::{NamedSharding, Sharding, ShardingKind};
use rustc_hash::FxHashSet;

/// Where an instruction comes from, and what is said of it.
fn origin(module: &Module, i: InstructionId, named: &NamedSharding) -> String {
    let text = print_sharding(&Sharding::leaf(ShardingKind::Named(named.clone())));
    let line = module[i].common.metadata.as_deref().filter(|m| !m.source_file.is_empty());
    let line = line.map_or_else(String::new, |m| format!(", {}:{}", m.source_file, m.source_line));
    format!("`{}` has {text}{line}", module[i].name())
}

fn at_sharding(error: Diagnostic, i: InstructionId) -> Diagnostic {
    error.at_instruction(i, Part::Attribute("sharding"))
}

/// Every named sharding, with the leaf that it is for.
fn named_shardings<'m>(
    module: &'m Module,
    computations: &'m [ComputationId],
) -> impl Iterator<Item = (InstructionId, usize, &'m NamedSharding)> {
    let all = computations.iter().flat_map(|&c| module[c].instructions());
    let with = all.filter_map(|&i| Some((i, module[i].common.sharding.as_deref()?)));
    with.flat_map(|(i, sharding)| {
        sharding.leaves().iter().enumerate().filter_map(move |(n, leaf)| match &leaf.kind {
            ShardingKind::Named(named) => Some((i, n, named)),
            _ => None,
        })
    })
}

/// Refuses what cannot hold.
pub(super) fn check(module: &Module, computations: &[ComputationId]) -> Result<(), Vec<Diagnostic>> {
    let mut errors = Vec::new();
    fits(module, computations, &mut errors);
    meshes(module, computations, &mut errors);
    if errors.is_empty() {
        uneven(module, &mut errors);
        aliases(module, &mut errors);
    }
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

/// Lists of axes for as many dimensions as there are, of axes that the mesh has, each used once.
fn fits<'m>(module: &'m Module, computations: &'m [ComputationId], errors: &mut Vec<Diagnostic>) {
    let (mut of, mut leaves) = (None, Vec::new());
    // Few shardings are stated many times.
    let mut sound: FxHashSet<&NamedSharding> = FxHashSet::default();
    let mut is_sound =
        |named: &'m NamedSharding| sound.contains(named) || named.to_tiles().is_some() && sound.insert(named);
    for (i, n, named) in named_shardings(module, computations) {
        if matches!(named.mesh.devices, MeshDevices::Maximal(_)) || named.mesh.axes.is_empty() {
            continue;
        }
        if of.is_none_or(|of| of != i) {
            (of, leaves) = (Some(i), module[i].shape.leaves());
        }
        let rank = leaves.get(n).and_then(|(_, s)| s.as_array()).map(|a| a.rank());
        let message = match rank {
            Some(rank) if rank != named.dims.len() => {
                format!("the sharding is of {} dimensions, the value has {rank}", named.dims.len())
            }
            _ if !is_sound(named) => "an axis is not in the mesh, or is used twice".to_owned(),
            _ => continue,
        };
        let error = Diagnostic::error(&codes::BAD_SHARDING, message).note(origin(module, i, named));
        errors.push(at_sharding(error, i));
    }
}

/// All devices take part in every mesh, but for those of one device, which say nothing (a program that was exported for
/// one device and is called by one for several brings them along).
fn meshes(module: &Module, computations: &[ComputationId], errors: &mut Vec<Diagnostic>) {
    let counts = |named: &NamedSharding| match named.mesh.devices {
        MeshDevices::Maximal(_) => None,
        _ if named.mesh.axes.is_empty() => None,
        _ => named.mesh.size().filter(|&size| size > 1),
    };
    let mut first: Option<(InstructionId, &NamedSharding, i64)> = None;
    for (i, _, named) in named_shardings(module, computations) {
        let Some(size) = counts(named) else { continue };
        match first {
            None => first = Some((i, named, size)),
            Some((other, its, count)) if count != size => {
                let message = format!("a mesh of {size} devices meets one of {count}");
                let error = Diagnostic::error(&codes::DIFFERENT_MESHES, message)
                    .note(origin(module, i, named))
                    .note(origin(module, other, its));
                errors.push(at_sharding(error, i));
                return;
            }
            Some(_) => {}
        }
    }
}

/// Parameters and results whose given shardings do not cut them into equal parts.
fn uneven(module: &Module, errors: &mut Vec<Diagnostic>) {
    let Some(entry) = module.entry() else { return };
    let root = module.root(entry).filter(|&r| is_shell(module, r));
    for i in module.parameters(entry).into_iter().chain(root) {
        let Some(sharding) = module[i].common.sharding.as_deref() else { continue };
        for ((_, shape), leaf) in module[i].shape.leaves().into_iter().zip(sharding.leaves()) {
            let (Some(array), ShardingKind::Named(named)) = (shape.as_array(), &leaf.kind) else { continue };
            let Some(ShardingKind::Tiled(tiles)) = named.to_tiles() else { continue };
            for (d, (&size, &parts)) in array.dims().iter().zip(&tiles.dims).enumerate() {
                if size % parts != 0 {
                    let message = format!(
                        "dimension {d} of `{}` has {size} elements, which cannot be cut into {parts} equal parts",
                        module[i].name()
                    );
                    let error = Diagnostic::error(&codes::UNEVEN_ARGUMENT, message).note(origin(module, i, named));
                    errors.push(at_sharding(error, i));
                }
            }
        }
    }
}

/// A result that takes the memory of a parameter is cut as it is, where both are said.
fn aliases(module: &Module, errors: &mut Vec<Diagnostic>) {
    let Some(entry) = module.entry() else { return };
    let parameters = module.parameters(entry);
    let Some(root) = module.root(entry).filter(|&r| is_shell(module, r)) else { return };
    let closed = |i: InstructionId, n: usize| match module[i].common.sharding.as_deref()?.leaves().get(n)?.kind {
        ShardingKind::Named(ref named) if named.dims.iter().all(|d| d.closed) => Some(named),
        _ => None,
    };
    for alias in &module.config.input_output_alias {
        let output = match &alias.output_index[..] {
            [] => 0,
            [n] => usize::try_from(*n).unwrap_or(usize::MAX),
            _ => continue,
        };
        let parameter = usize::try_from(alias.parameter).ok().and_then(|p| parameters.get(p));
        let (Some(&p), []) = (parameter, &alias.parameter_index[..]) else { continue };
        let (Some(given), Some(wanted)) = (closed(p, 0), closed(root, output)) else { continue };
        let parts = |named: &NamedSharding| match named.to_tiles() {
            Some(ShardingKind::Tiled(tiles)) => tiles.dims[..named.dims.len().min(tiles.dims.len())].to_vec(),
            _ => vec![1; named.dims.len()],
        };
        if parts(given) != parts(wanted) {
            let message = format!("result {output} takes the memory of `{}`, but is cut otherwise", module[p].name());
            let error = Diagnostic::error(&codes::CONFLICTING_SHARDINGS, message)
                .note(origin(module, p, given))
                .note(origin(module, root, wanted));
            errors.push(at_sharding(error, p));
        }
    }
}
