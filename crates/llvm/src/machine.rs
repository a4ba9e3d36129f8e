//! The machine that kernels are made for, as data: which processor, which features, how wide its vectors are.
//!
//! Nothing here or in the emitter asks at compile time what the compiler itself was built for, but for the list of
//! functions in `hloom-loader`: the host's features are found when the process runs.

use hloom_cost::CoreCost;
use hloom_loops::Simd;
use inkwell::targets::TargetMachine;
use std::sync::OnceLock;

/// A processor.
#[derive(Clone, PartialEq, Debug)]
pub struct Machine {
    /// The architecture part of LLVM's triple: `x86_64`, `aarch64`, `nvptx64`.
    pub architecture: String,
    /// LLVM's name of the processor; empty for any of the architecture.
    pub cpu: String,
    /// LLVM's list of features: `+avx2,+fma,-avx512f`.
    pub features: String,
    /// Its vectors.
    pub simd: Simd,
    /// What one of its cores takes.
    pub core: CoreCost,
}

impl Machine {
    /// The machine that this process runs on.
    pub fn host() -> &'static Machine {
        static HOST: OnceLock<Machine> = OnceLock::new();
        HOST.get_or_init(|| {
            let cpu = TargetMachine::get_host_cpu_name().to_string();
            let features = TargetMachine::get_host_cpu_features().to_string();
            let triple = TargetMachine::get_default_triple();
            let triple = triple.as_str().to_string_lossy();
            Machine::with_features(triple.split('-').next().unwrap_or_default(), &cpu, &features)
        })
    }

    /// The machine of that architecture with those features.
    pub fn with_features(architecture: &str, cpu: &str, features: &str) -> Machine {
        let has = |name: &str| features.split(',').any(|f| f.strip_prefix('+') == Some(name));
        let has_masks = ["avx512f", "avx512bw", "avx512vl", "avx512dq"].iter().all(|f| has(f));
        let vector_bits = match architecture {
            _ if has_masks => 512,
            _ if has("avx2") => 256,
            _ => 128,
        };
        Machine {
            architecture: architecture.into(),
            cpu: cpu.into(),
            features: features.into(),
            simd: Simd { vector_bits, has_masks },
            core: CoreCost::default(),
        }
    }

    /// The same machine without vectors wider than 256 bits and without masks.
    pub fn without_avx512(&self) -> Machine {
        let kept = self.features.split(',').filter(|f| !f.contains("avx512") && !f.contains("evex512"));
        let features: Vec<String> = kept.map(str::to_owned).chain(["-avx512f".to_owned()]).collect();
        Machine { core: self.core, ..Machine::with_features(&self.architecture, &self.cpu, &features.join(",")) }
    }

    /// An NVIDIA GPU, by LLVM's name of it (`sm_90a`).
    pub fn nvptx(processor: &str) -> Machine {
        // The oldest PTX that takes more than 4 KiB of parameters; drivers of CUDA 12.1 and later read it.
        Machine::with_features("nvptx64", processor, "+ptx81")
    }

    /// Whether it is an NVIDIA GPU.
    pub fn is_gpu(&self) -> bool {
        self.architecture == "nvptx64"
    }

    /// Whether kernels made for this machine run in this process.
    pub fn is_host(&self) -> bool {
        self.architecture == Machine::host().architecture
    }
}
