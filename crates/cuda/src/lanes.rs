//! Lanes: streams beside the one that all work goes through, for work that is independent.
//!
//! A fork makes every lane wait for what is on the stream, and the join makes the stream wait for what is on every lane: so
//! to whoever comes after, all work is still in one order. While a graph is captured the lanes become branches of it. A lane
//! has a workspace of its own for products, since those of several lanes run at once.

use crate::driver::{DevicePointer, Handle};
use crate::gpu::{Event, Gpu};
use hloom_value::ExecutionError;

/// More lanes than this are not busier: small kernels of eight devices fill a GPU, and large ones fill it alone.
const MAX_LANES: usize = 8;

/// A stream, what marks its end, and memory for products.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) stream: Handle,
    done: Handle,
    pub(crate) workspace: DevicePointer,
}

/// All lanes of a GPU.
#[derive(Debug)]
pub(crate) struct Lanes {
    /// What marks where they part from the stream.
    begin: Handle,
    lanes: Vec<Lane>,
}

/// Lanes that have begun, to be joined.
#[must_use = "the stream waits for lanes that are joined only"]
pub(crate) struct Forked<'g> {
    gpu: &'g Gpu,
    lanes: &'g [Lane],
}

impl Lane {
    fn new(gpu: &Gpu) -> Result<Lane, ExecutionError> {
        let stream = gpu.other_stream()?;
        Ok(Lane { stream, done: Event::new(gpu, false)?.keep(), workspace: gpu.new_workspace()? })
    }
}

impl Gpu {
    /// Makes lanes for so many devices, which cannot be done while a graph is captured.
    pub(crate) fn make_lanes(&self, devices: usize) -> Result<(), ExecutionError> {
        let make = || {
            let lanes = (0..MAX_LANES).map(|_| Lane::new(self)).collect::<Result<_, _>>()?;
            Ok(Lanes { begin: Event::new(self, false)?.keep(), lanes })
        };
        match devices {
            0 | 1 => Ok(()),
            _ => self.lanes.get_or_init(make).as_ref().map(|_| ()).map_err(Clone::clone),
        }
    }

    /// Lets the lanes of so many devices begin when what is on the stream is over. They have been made before.
    pub(crate) fn fork(&self, devices: usize) -> Result<Forked<'_>, ExecutionError> {
        let made = self.lanes.get().and_then(|lanes| lanes.as_ref().ok());
        let Lanes { begin, lanes } = made.ok_or_else(|| ExecutionError::bug("lanes were not made"))?;
        let lanes = &lanes[..devices.clamp(1, lanes.len())];
        self.mark(*begin, self.stream())?;
        for lane in lanes {
            self.wait_for(lane.stream, *begin)?;
        }
        Ok(Forked { gpu: self, lanes })
    }

    fn mark(&self, mark: Handle, stream: Handle) -> Result<(), ExecutionError> {
        // SAFETY: event and stream are ours.
        self.driver.check(unsafe { (self.driver.event_record)(mark, stream) }, "cuEventRecord")
    }

    /// Does `enqueue` with its work on a lane.
    pub(crate) fn on_lane<T>(&self, lane: &Lane, enqueue: impl FnOnce() -> T) -> T {
        let before = self.swap_current(lane.stream, Some(lane.workspace));
        let result = enqueue();
        self.swap_current(before.0, before.1);
        result
    }

    /// Has a stream wait for a mark on another.
    fn wait_for(&self, stream: Handle, mark: Handle) -> Result<(), ExecutionError> {
        // SAFETY: both are ours. 0 is CU_EVENT_WAIT_DEFAULT.
        self.driver.check(unsafe { (self.driver.stream_wait)(stream, mark, 0) }, "cuStreamWaitEvent")
    }
}

impl Forked<'_> {
    /// The lane of a device.
    pub(crate) fn lane(&self, device: usize) -> &Lane {
        &self.lanes[device % self.lanes.len()]
    }

    /// Has the stream wait for all lanes.
    pub(crate) fn join(self) -> Result<(), ExecutionError> {
        let gpu = self.gpu;
        for lane in self.lanes {
            gpu.mark(lane.done, lane.stream)?;
            gpu.wait_for(gpu.stream(), lane.done)?;
        }
        Ok(())
    }
}
