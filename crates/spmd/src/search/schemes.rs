//! Schemes that people write by hand: for each axis of the mesh, what it is for.

use super::roles::{ActivationClass, ParameterRoles, Role};
use super::{AxisUse, Layout};

/// What an axis of the mesh is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AxisScheme {
    /// Devices hold all of the program.
    Unused,
    /// The batch is cut.
    Data,
    /// The inner dimensions of weights are cut.
    Tensor,
    /// The batch is cut, and so is every weight, along its largest dimension.
    Fsdp,
}

impl AxisScheme {
    /// As the field calls it.
    pub fn name(self) -> &'static str {
        match self {
            AxisScheme::Unused => "unused",
            AxisScheme::Data => "data",
            AxisScheme::Tensor => "tensor",
            AxisScheme::Fsdp => "fsdp",
        }
    }
}

/// All products of schemes over that many axes.
pub(super) fn products(axes: usize) -> Vec<Vec<AxisScheme>> {
    let each = [AxisScheme::Data, AxisScheme::Tensor, AxisScheme::Fsdp, AxisScheme::Unused];
    let mut all: Vec<Vec<AxisScheme>> = vec![Vec::new()];
    for _ in 0..axes {
        all = all.iter().flat_map(|p| each.iter().map(move |&s| [p.as_slice(), &[s]].concat())).collect();
    }
    all
}

/// Appends `axis` to the dimension, if that cuts it into equal parts.
fn put(layout: &mut [AxisUse], dims: &[i64], mesh: &[i64], d: usize, axis: usize) -> bool {
    let parts: i64 = layout[d].iter().map(|&a| mesh[a]).product();
    let fits = dims[d] % (parts * mesh[axis]) == 0 && dims[d] > 0;
    if fits {
        layout[d].push(axis);
    }
    fits
}

/// How the parameters lie under a scheme.
pub(super) fn layout(parameters: &[ParameterRoles], mesh: &[i64], schemes: &[AxisScheme]) -> Layout {
    let one = |p: &ParameterRoles| {
        let mut lists: Vec<AxisUse> = vec![AxisUse::new(); p.dims.len()];
        // Tensor parallelism takes its dimensions first.
        let order = [AxisScheme::Tensor, AxisScheme::Data, AxisScheme::Fsdp];
        for wanted in order {
            for (axis, _) in schemes.iter().enumerate().filter(|&(_, &s)| s == wanted) {
                let mut dims: Vec<usize> = match (p.is_data, wanted) {
                    (true, AxisScheme::Data | AxisScheme::Fsdp) => {
                        (0..p.dims.len()).filter(|&d| p.roles[d] == Role::Batch).take(1).collect()
                    }
                    (false, AxisScheme::Tensor) => {
                        (0..p.dims.len()).filter(|&d| p.roles[d] == Role::Inner && p.dims.len() > 1).collect()
                    }
                    (false, AxisScheme::Fsdp) => (0..p.dims.len()).collect(),
                    _ => Vec::new(),
                };
                // Of the dimensions of a head the one that counts heads comes first; to save memory the largest is best.
                if wanted != AxisScheme::Tensor {
                    dims.sort_by_key(|&d| std::cmp::Reverse(p.dims[d]));
                }
                let _ = dims.into_iter().any(|d| put(&mut lists, &p.dims, mesh, d, axis));
            }
        }
        lists
    };
    parameters.iter().map(one).collect()
}

/// How a class of activations lies under a scheme: its batch is cut as the data is.
pub(super) fn activation(class: &ActivationClass, mesh: &[i64], schemes: &[AxisScheme]) -> Option<Vec<AxisUse>> {
    if class.is_residual() {
        return None;
    }
    let mut lists: Vec<AxisUse> = vec![AxisUse::new(); class.dims.len()];
    for wanted in [AxisScheme::Data, AxisScheme::Fsdp] {
        for (axis, _) in schemes.iter().enumerate().filter(|&(_, &s)| s == wanted) {
            let _ = put(&mut lists, &class.dims, mesh, class.batch, axis);
        }
    }
    (!lists[class.batch].is_empty()).then_some(lists)
}
