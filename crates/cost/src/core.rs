//! What one core of a machine takes for the parts of kernels, out of the machine's description: for decisions about
//! loops and threads, which are made before there is a kernel to ask [`CostModel`](crate::CostModel) about.

use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::element_type::ElementType;
use hloom_target::Target;

/// The rates of one core, as nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CoreCost {
    /// An addition of f32 among many: what [`element`](crate::element) counts in.
    pub addition: f64,
    /// A byte that is read or written while it is in a cache of the core's own.
    pub near_byte: f64,
    /// A byte of main memory.
    pub far_byte: f64,
    /// A multiplication or an addition of a matrix product of f32.
    pub matmul_flop: f64,
    /// To start a step.
    pub launch: f64,
    /// To hand a part of some work to another thread and hear that it is done.
    pub thread: f64,
    /// How often the body of a loop is thought to run if nothing is known; no time.
    pub assumed_trips: f64,
}

impl Default for CoreCost {
    /// Those of the description `cpu`.
    fn default() -> CoreCost {
        let (addition, matmul_flop) = (0.05, 1.0 / 72.0);
        let (near_byte, far_byte) = (1.0 / 120.0, 1.0 / 18.0);
        CoreCost { addition, near_byte, far_byte, matmul_flop, launch: 150.0, thread: 4000.0, assumed_trips: 32.0 }
    }
}

/// A part that another thread takes should last so many times as long as it takes to hand it over.
const WORTH_THREAD: f64 = 4.0;

impl CoreCost {
    /// Those of one core of a machine.
    pub fn of(target: &Target) -> Result<CoreCost, Diagnostic> {
        let compute = &target.compute;
        let nanoseconds = compute.cores.unwrap_or(1) as f64 * 1e9;
        let far_byte = nanoseconds / target.reached_bandwidth(0)?;
        let own_cache = compute.caches.iter().rfind(|c| !c.is_shared).and_then(|c| c.bandwidth);
        Ok(CoreCost {
            addition: nanoseconds / target.vector_rate(ElementType::F32)?,
            near_byte: own_cache.map_or(far_byte, |bandwidth| nanoseconds / bandwidth),
            far_byte,
            matmul_flop: nanoseconds / target.reached_matmul_rate(ElementType::F32, false)?,
            launch: compute.launch_seconds * 1e9,
            thread: compute.thread_seconds * 1e9,
            assumed_trips: target.assumed_trips as f64,
        })
    }

    /// What a thread takes at a time should last at least so long.
    pub fn worth_sharing(&self) -> f64 {
        WORTH_THREAD * self.thread
    }

    /// Whether work that lasts so long on one core is shared among threads.
    pub fn is_shared(&self, work: f64) -> bool {
        work >= 2.0 * self.worth_sharing()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_has_its_share_of_the_machine() {
        let target = Target::named("cpu").expect("it is built in");
        let core = CoreCost::of(&target).expect("all rates are given");
        let vector = target.vector_rate(ElementType::F32).expect("it is given");
        let cores = target.compute.cores.expect("it is given") as f64;
        assert!((core.addition * vector / cores - 1e9).abs() < 1.0);
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9 * b;
        let plain = CoreCost::default();
        assert!(near(core.addition, plain.addition) && near(core.matmul_flop, plain.matmul_flop), "{core:?}");
        assert!(near(core.near_byte, plain.near_byte) && near(core.far_byte, plain.far_byte), "{core:?}");
        assert!(near(core.launch, plain.launch) && near(core.thread, plain.thread), "{core:?}");
        assert!(near(core.assumed_trips, plain.assumed_trips), "{core:?}");
        assert!(core.near_byte < core.far_byte, "{core:?}");
        assert!(core.is_shared(3.0 * core.worth_sharing()) && !core.is_shared(core.thread));
    }

    #[test]
    fn a_machine_without_rates_is_refused() {
        let mut target = Target::named("cpu").expect("it is built in");
        target.compute.rates.clear();
        assert!(CoreCost::of(&target).is_err());
    }
}
