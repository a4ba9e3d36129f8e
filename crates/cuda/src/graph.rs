//! CUDA graphs: a whole program enqueued by one call.
//!
//! A program runs once thunk by thunk, which loads what is loaded lazily; from the second run on it is captured as a graph
//! for the addresses of its arrays. Graphs of a few sets of addresses are kept, for buffers that come back; beyond that the
//! oldest is updated to the new addresses, which is cheaper than a new one.

use crate::driver::{DevicePointer, GraphUpdate, Handle};
use crate::gpu::Gpu;
use hloom_value::ExecutionError;

/// How many graphs of one program are kept.
const MAX_GRAPHS: usize = 4;
/// `CU_STREAM_CAPTURE_MODE_THREAD_LOCAL`: other threads may allocate meanwhile.
pub(crate) const THREAD_LOCAL: i32 = 1;

/// The graphs of a program.
#[derive(Debug, Default)]
pub(crate) struct Graphs {
    runs: u64,
    /// The oldest first.
    kept: Vec<(Vec<Vec<DevicePointer>>, Graph)>,
}

/// A graph that can be launched. It is never destroyed while a launch of it may be under way: runs are waited for.
#[derive(Debug)]
pub(crate) struct Graph(Handle);

/// What a run is to do.
pub(crate) enum Step<'g> {
    /// Enqueue thunk by thunk.
    Enqueue,
    /// Capture a graph and launch it.
    Capture,
    /// Launch this graph.
    Launch(&'g Graph),
}

/// A captured graph, not yet one that can be launched.
pub(crate) struct Captured<'g> {
    gpu: &'g Gpu,
    handle: Handle,
}

impl Drop for Captured<'_> {
    fn drop(&mut self) {
        // SAFETY: the graph is ours, and what was made of it does not need it.
        unsafe { (self.gpu.driver.graph_destroy)(self.handle) };
    }
}

impl Graphs {
    /// Destroys all graphs; no launch of one may be under way.
    pub(crate) fn clear(&mut self, gpu: &Gpu) {
        for (_, graph) in self.kept.drain(..) {
            // SAFETY: the graph is ours, and nobody launches it any more.
            unsafe { (gpu.driver.graph_exec_destroy)(graph.0) };
        }
    }

    /// Whether the program has run before.
    pub(crate) fn has_run(&self) -> bool {
        self.runs > 0
    }

    /// Counts a run without a graph.
    pub(crate) fn ran(&mut self) {
        self.runs += 1;
    }

    /// What the next run over these addresses is to do.
    pub(crate) fn step(&mut self, bases: &[Vec<DevicePointer>]) -> Step<'_> {
        self.runs += 1;
        if self.runs == 1 {
            return Step::Enqueue;
        }
        match self.kept.iter().position(|(of, _)| of == bases) {
            Some(n) => Step::Launch(&self.kept[n].1),
            None => Step::Capture,
        }
    }

    /// Keeps a graph for these addresses.
    pub(crate) fn keep(
        &mut self,
        gpu: &Gpu,
        bases: &[Vec<DevicePointer>],
        captured: Captured<'_>,
    ) -> Result<&Graph, ExecutionError> {
        let oldest = (self.kept.len() >= MAX_GRAPHS).then(|| self.kept.remove(0).1);
        let graph = match oldest.map(|graph| graph.updated(gpu, &captured)) {
            Some(Some(graph)) => graph,
            _ => Graph::new(gpu, &captured)?,
        };
        self.kept.push((bases.to_vec(), graph));
        self.kept.last().map(|(_, graph)| graph).ok_or_else(|| ExecutionError::bug("a graph was not kept"))
    }
}

/// Captures what `enqueue` enqueues.
pub(crate) fn capture<'g>(
    gpu: &'g Gpu,
    enqueue: impl FnOnce() -> Result<(), ExecutionError>,
) -> Result<Captured<'g>, ExecutionError> {
    let mut handle = 0;
    // SAFETY (both calls): the stream is ours, the out parameter is valid, and a capture is ended in any case.
    gpu.driver.check(unsafe { (gpu.driver.capture_begin)(gpu.stream(), THREAD_LOCAL) }, "cuStreamBeginCapture")?;
    let enqueued = enqueue();
    let ended = unsafe { (gpu.driver.capture_end)(gpu.stream(), &mut handle) };
    enqueued?;
    gpu.driver.check(ended, "cuStreamEndCapture")?;
    Ok(Captured { gpu, handle })
}

impl Graph {
    fn new(gpu: &Gpu, captured: &Captured<'_>) -> Result<Graph, ExecutionError> {
        let mut handle = 0;
        // SAFETY: the out parameter is valid, the graph whole.
        let call = unsafe { (gpu.driver.graph_instantiate)(&mut handle, captured.handle, 0) };
        gpu.driver.check(call, "cuGraphInstantiate")?;
        Ok(Graph(handle))
    }

    /// The same graph with the addresses of another capture; `None` if it cannot take them, and is then gone.
    fn updated(self, gpu: &Gpu, captured: &Captured<'_>) -> Option<Graph> {
        let mut update = GraphUpdate::default();
        // SAFETY: both graphs are ours, and no launch of this one is under way.
        unsafe {
            if (gpu.driver.graph_update)(self.0, captured.handle, &mut update) == 0 {
                return Some(self);
            }
            (gpu.driver.graph_exec_destroy)(self.0);
        }
        None
    }

    /// Enqueues the graph.
    pub(crate) fn launch(&self, gpu: &Gpu) -> Result<(), ExecutionError> {
        // SAFETY: graph and stream are ours.
        gpu.driver.check(unsafe { (gpu.driver.graph_launch)(self.0, gpu.stream()) }, "cuGraphLaunch")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_run_is_enqueued_and_others_are_captured_once_for_their_addresses() {
        let mut graphs = Graphs::default();
        let (here, there) = (vec![vec![1, 2]], vec![vec![1, 3]]);
        assert!(matches!(graphs.step(&here), Step::Enqueue));
        assert!(matches!(graphs.step(&here), Step::Capture));
        graphs.kept.push((here.clone(), Graph(7)));
        assert!(matches!(graphs.step(&here), Step::Launch(Graph(7))));
        assert!(matches!(graphs.step(&there), Step::Capture));
    }
}
