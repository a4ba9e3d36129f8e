//! Which machine a dump is for: what tiles, memory spaces and backend configurations tell.
//!
//! A source program is for no machine yet. What an optimised one shows may fit several machines that differ in what it
//! does not show; then the usual one is chosen, and the reason says that, or nothing is chosen where the choice would
//! matter.

use crate::description::Target;
use hloom_ir::entity::EntityId;
use hloom_ir::layout::memory::{MemoryForm, element_bits};
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::shape::Shape;
use std::collections::BTreeSet;

/// What a module shows of the machine it was compiled for.
#[derive(Clone, Debug)]
pub enum Recognized {
    /// That machine, and why.
    As(Box<Target>, String),
    /// One of several, which have to be told apart by whoever asks; what it shows, and their names.
    OneOf(String, Vec<&'static str>),
    /// Nothing that a CPU's program would not show, too.
    Nothing,
}

/// What was seen in the module.
#[derive(Default)]
struct Signs {
    tiles: bool,
    spaces: BTreeSet<i64>,
    /// Bytes of the largest array in memory 1.
    largest_fast: i64,
    /// Bytes of memory 1 that an operation uses while it runs.
    scoped: i64,
    /// Fusions within fusions that do nothing but rename an operand.
    bitcast_fusions: bool,
    gpu: Option<String>,
}

/// Bytes of vector memory that operations may use while they run, on machines before the one that gave them more.
const OLDER_SCOPED_BYTES: i64 = 16 << 20;
/// Bytes of vector memory that are left for arrays on the machine with the smaller one.
const SMALLER_FAST_BYTES: i64 = 48 << 20;

/// Says which machine `module` is for.
pub fn recognize(module: &Module) -> Recognized {
    let signs = Signs::of(module);
    let found = |name: &str, why: String| match Target::named(name) {
        Ok(target) => Recognized::As(Box::new(target), why),
        Err(_) => Recognized::Nothing,
    };
    if !signs.tiles && signs.spaces.is_empty() {
        return match signs.gpu {
            Some(sign) => found("gpu-h100", format!("{sign} is a GPU's (all GPUs plan alike, but for their size)")),
            None => Recognized::Nothing,
        };
    }
    let has = |space: i64| signs.spaces.contains(&space);
    if has(3) {
        return found("tpu-v4", "it has values in memory 3".to_owned());
    }
    if [8, 10, 11, 12].into_iter().any(has) {
        return found("tpu-v7x", "it has values in memories beyond 6".to_owned());
    }
    if signs.scoped > OLDER_SCOPED_BYTES {
        let why = format!("an operation uses {} bytes of vector memory while it runs", signs.scoped);
        return found("tpu-v6e", why);
    }
    if !has(1) {
        let what = "it has tiles, but no values in a fast memory".to_owned();
        return Recognized::OneOf(what, vec!["tpu-v2", "tpu-v3", "tpu-v4", "tpu-v5e", "tpu-v5p", "tpu-v6e"]);
    }
    if signs.bitcast_fusions {
        return found("tpu-v6e", "operands of its products are renamed in fusions of their own".to_owned());
    }
    let why = match signs.largest_fast > SMALLER_FAST_BYTES {
        true => format!("it has {} bytes in vector memory", signs.largest_fast),
        false => "it has values in memory 1 (a tpu-v5p's may look like this, too)".to_owned(),
    };
    found("tpu-v5e", why)
}

impl Signs {
    fn of(module: &Module) -> Signs {
        let mut signs = Signs::default();
        let mut renames = vec![false; module.computation_slots()];
        let mut fused = vec![false; module.computation_slots()];
        for &c in module.computations() {
            let only_renames = |op: &Op| matches!(op, Op::Parameter { .. } | Op::Bitcast);
            let index = c.index();
            renames[index] = module[c].instructions().iter().all(|&i| only_renames(&module[i].op));
            for &i in module[c].instructions() {
                if let Op::Fusion(fusion) = &module[i].op {
                    fused[fusion.calls.index()] = true;
                }
            }
        }
        for &c in module.computations() {
            let inner = fused[c.index()];
            for &i in module[c].instructions() {
                signs.add_shape(&module[i].shape);
                match &module[i].op {
                    Op::Fusion(f) if inner => {
                        signs.bitcast_fusions |= renames[f.calls.index()];
                    }
                    Op::CustomCall(call) if is_gpu_library(&call.target) => {
                        signs.gpu.get_or_insert_with(|| format!("the call \"{}\"", call.target));
                    }
                    _ => {}
                }
                if let Some(config) = &module[i].common.backend_config {
                    signs.add_config(&String::from_utf8_lossy(config));
                }
            }
        }
        signs
    }

    fn add_shape(&mut self, shape: &Shape) {
        match shape {
            Shape::Array(a) | Shape::Buffer(a) => {
                let Some(layout) = &a.layout else { return };
                self.tiles |= !layout.tiles.is_empty();
                if layout.memory_space != 0 {
                    self.spaces.insert(layout.memory_space);
                }
                if layout.memory_space == 1 {
                    let bits = MemoryForm::of(a).and_then(|f| f.count.checked_mul(element_bits(a))).unwrap_or(0);
                    self.largest_fast = self.largest_fast.max(bits / 8);
                }
            }
            Shape::Tuple(elements) => elements.iter().for_each(|e| self.add_shape(e)),
            Shape::Token | Shape::Opaque => {}
        }
    }

    fn add_config(&mut self, config: &str) {
        for key in ["gemm_backend_config", "fusion_backend_config", "cudnn_conv_backend_config", "operation_queue_id"] {
            if self.gpu.is_none() && config.contains(key) {
                self.gpu = Some(format!("`{key}` in its backend_config"));
            }
        }
        // `"used_scoped_memory_configs":[{"memory_space":"1","offset":"0","size":"29233152"}]`, numbers perhaps unquoted.
        let Some((_, used)) = config.split_once("\"used_scoped_memory_configs\"") else { return };
        let entries = used.split_once(']').map_or(used, |(entries, _)| entries).split('{').skip(1);
        for entry in entries {
            let field = |name: &str| -> Option<i64> {
                let (_, rest) = entry.split_once(&format!("\"{name}\":"))?;
                let digits = rest.trim_start_matches(['"', ' ']);
                digits[..digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len())].parse().ok()
            };
            if field("memory_space") == Some(1) {
                self.scoped = self.scoped.max(field("size").unwrap_or(0));
            }
        }
    }
}

/// Whether code of that name is in a GPU's library.
fn is_gpu_library(target: &str) -> bool {
    ["__cublas", "__cudnn", "__cusolver", "__cufft", "__triton", "cusolver_", "cublas_"]
        .into_iter()
        .any(|library| target.starts_with(library))
}
