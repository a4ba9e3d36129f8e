//! Loops and branches inside of graphs: conditional nodes, whose bodies the GPU runs as its memory says.
//!
//! While a graph is captured, a loop becomes: the condition, a kernel that hands its value to the node, and the node, whose
//! body is the loop's body, the condition again, and that kernel. A branch becomes a node for each list. Nothing waits for
//! the host. Needs a driver for CUDA 12.4; with older ones the host looks at conditions.

use crate::driver::{DevicePointer, Handle};
use crate::gpu::Gpu;
use crate::library::functions;
use hloom_value::ExecutionError;
use std::ffi::c_void;

functions! {
    /// What of the driver makes conditional nodes.
    Functions of "the CUDA driver" in ["libcuda.so.1", "libcuda.so"] {
        handle_create = "cuGraphConditionalHandleCreate" (*mut u64, Handle, Handle, u32, u32);
        add_node = "cuGraphAddNode" (*mut Handle, Handle, *const Handle, usize, *mut NodeParameters);
        capture_info = "cuStreamGetCaptureInfo_v2" (
            Handle, *mut i32, *mut u64, *mut Handle, *mut *const Handle, *mut usize,
        );
        capture_after = "cuStreamUpdateCaptureDependencies" (Handle, *const Handle, usize, u32);
        capture_to_graph = "cuStreamBeginCaptureToGraph" (
            Handle, Handle, *const Handle, *const c_void, usize, i32,
        );
    }
}

/// `CUgraphNodeParams` of a conditional node.
#[repr(C)]
pub(crate) struct NodeParameters {
    kind: i32,
    reserved: [i32; 3],
    handle: u64,
    condition_kind: i32,
    size: u32,
    bodies: *mut Handle,
    context: Handle,
    rest: [u64; 26],
}

/// `CU_GRAPH_NODE_TYPE_CONDITIONAL`.
const CONDITIONAL: i32 = 13;

/// What decides about the body of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// It runs once if the value is not zero.
    If = 0,
    /// It runs for as long as the value is not zero.
    While = 1,
}

/// The value that a node looks at, and where the kernel finds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Test {
    /// A pred.
    IsTrue,
    /// A pred (`by_truth`: branch 0 is taken when it is true) or a number, which selects this branch of so many.
    Selects { branch: u32, branches: u32, by_truth: bool },
}

/// The driver resolves `cudaGraphSetConditional` when it assembles the text.
const TEXT: &std::ffi::CStr = c".version 8.3
.target sm_80
.address_size 64

.extern .func cudaGraphSetConditional
(
	.param .b64 cudaGraphSetConditional_param_0,
	.param .b32 cudaGraphSetConditional_param_1
)
;

.visible .entry hloom_set_true(
	.param .u64 handle,
	.param .u64 address
)
{
	.reg .pred %p1;
	.reg .b16 %h1;
	.reg .b32 %r1;
	.reg .b64 %d<3>;
	ld.param.u64 %d0, [handle];
	ld.param.u64 %d1, [address];
	cvta.to.global.u64 %d2, %d1;
	ld.global.u8 %h1, [%d2];
	setp.ne.u16 %p1, %h1, 0;
	selp.u32 %r1, 1, 0, %p1;
	{
	.param .b64 param0;
	st.param.b64 [param0+0], %d0;
	.param .b32 param1;
	st.param.b32 [param1+0], %r1;
	call.uni cudaGraphSetConditional, (param0, param1);
	}
	ret;
}

.visible .entry hloom_set_selected(
	.param .u64 handle,
	.param .u64 address,
	.param .u32 branch,
	.param .u32 last,
	.param .u32 by_truth
)
{
	.reg .pred %p<4>;
	.reg .b16 %h1;
	.reg .b32 %r<8>;
	.reg .b64 %d<3>;
	ld.param.u64 %d0, [handle];
	ld.param.u64 %d1, [address];
	ld.param.u32 %r0, [branch];
	ld.param.u32 %r1, [last];
	ld.param.u32 %r2, [by_truth];
	cvta.to.global.u64 %d2, %d1;
	setp.ne.u32 %p0, %r2, 0;
	@%p0 bra truth;
	ld.global.u32 %r3, [%d2];
	bra.uni chosen;
truth:
	ld.global.u8 %h1, [%d2];
	setp.eq.u16 %p1, %h1, 0;
	selp.u32 %r3, 1, 0, %p1;
chosen:
	min.u32 %r4, %r3, %r1;
	setp.eq.u32 %p2, %r4, %r0;
	selp.u32 %r5, 1, 0, %p2;
	{
	.param .b64 param0;
	st.param.b64 [param0+0], %d0;
	.param .b32 param1;
	st.param.b32 [param1+0], %r5;
	call.uni cudaGraphSetConditional, (param0, param1);
	}
	ret;
}
";

/// What makes conditional nodes.
#[derive(Debug)]
pub(crate) struct Conditionals {
    functions: Functions,
    set_true: Handle,
    set_selected: Handle,
}

/// A node to be: its handle in the graph that is captured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node {
    handle: u64,
}

impl Conditionals {
    /// Loads the kernels; the GPU must be this thread's.
    pub(crate) fn open(gpu: &Gpu) -> Result<Conditionals, ExecutionError> {
        let functions = Functions::open()?;
        let driver = &gpu.driver;
        let (mut module, mut set_true, mut set_selected) = (0, 0, 0);
        // SAFETY: the text and the names end with a zero, and out parameters are valid.
        unsafe {
            driver.check((driver.module_load)(&mut module, TEXT.as_ptr().cast()), "cuModuleLoadData")?;
            let find = driver.module_function;
            driver.check(find(&mut set_true, module, c"hloom_set_true".as_ptr()), "cuModuleGetFunction")?;
            driver.check(find(&mut set_selected, module, c"hloom_set_selected".as_ptr()), "cuModuleGetFunction")?;
        }
        Ok(Conditionals { functions, set_true, set_selected })
    }

    /// The graph that is captured on the current stream, and the nodes that what comes next depends on.
    fn frontier(&self, gpu: &Gpu) -> Result<(Handle, Vec<Handle>), ExecutionError> {
        let (mut status, mut id, mut graph, mut count) = (0, 0, 0, 0);
        let mut nodes: *const Handle = std::ptr::null();
        // SAFETY: out parameters are valid; the nodes are the driver's until the next call, and copied at once.
        unsafe {
            let call =
                (self.functions.capture_info)(gpu.stream(), &mut status, &mut id, &mut graph, &mut nodes, &mut count);
            gpu.driver.check(call, "cuStreamGetCaptureInfo")?;
            let nodes = if count == 0 { &[][..] } else { std::slice::from_raw_parts(nodes, count) };
            Ok((graph, nodes.to_vec()))
        }
    }

    /// A node in the graph that is captured.
    pub(crate) fn node(&self, gpu: &Gpu) -> Result<Node, ExecutionError> {
        let (graph, _) = self.frontier(gpu)?;
        let mut handle = 0;
        // SAFETY: the out parameter is valid.
        let call = unsafe { (self.functions.handle_create)(&mut handle, graph, gpu.context(), 0, 0) };
        gpu.driver.check(call, "cuGraphConditionalHandleCreate")?;
        Ok(Node { handle })
    }

    /// Enqueues the kernel that tells a node what is at `address`.
    pub(crate) fn set(&self, gpu: &Gpu, node: Node, address: DevicePointer, test: Test) -> Result<(), ExecutionError> {
        let (function, mut values) = match test {
            Test::IsTrue => (self.set_true, vec![node.handle, address]),
            Test::Selects { branch, branches, by_truth } => {
                let last = u64::from(branches.saturating_sub(1));
                (self.set_selected, vec![node.handle, address, u64::from(branch), last, u64::from(by_truth)])
            }
        };
        let mut parameters: Vec<*mut c_void> = values.iter_mut().map(|v| std::ptr::from_mut(v).cast()).collect();
        let (parameters, none) = (parameters.as_mut_ptr(), std::ptr::null_mut());
        // SAFETY: the parameters are those of the kernel.
        let call = unsafe { (gpu.driver.launch)(function, 1, 1, 1, 1, 1, 1, 0, gpu.stream(), parameters, none) };
        gpu.driver.check(call, "the launch of a condition")
    }

    /// Puts a node behind what was captured so far, with what `enqueue` enqueues as its body.
    pub(crate) fn body(
        &self,
        gpu: &Gpu,
        node: Node,
        kind: Kind,
        enqueue: impl FnOnce() -> Result<(), ExecutionError>,
    ) -> Result<(), ExecutionError> {
        let (graph, before) = self.frontier(gpu)?;
        let mut parameters = NodeParameters {
            kind: CONDITIONAL,
            reserved: [0; 3],
            handle: node.handle,
            condition_kind: kind as i32,
            size: 1,
            bodies: std::ptr::null_mut(),
            context: gpu.context(),
            rest: [0; 26],
        };
        let mut added = 0;
        let driver = &gpu.driver;
        // SAFETY: the dependencies are nodes of the graph; the driver fills in where the body is, one graph.
        let body = unsafe {
            let call = (self.functions.add_node)(&mut added, graph, before.as_ptr(), before.len(), &mut parameters);
            driver.check(call, "cuGraphAddNode")?;
            // CU_STREAM_SET_CAPTURE_DEPENDENCIES.
            let call = (self.functions.capture_after)(gpu.stream(), &added, 1, 1);
            driver.check(call, "cuStreamUpdateCaptureDependencies")?;
            if parameters.bodies.is_null() {
                return Err(ExecutionError::bug("a conditional node without a body"));
            }
            *parameters.bodies
        };
        let stream = gpu.other_stream()?;
        let none = std::ptr::null();
        // SAFETY: the stream is ours and captures nothing else; the capture is ended in any case.
        let call = unsafe {
            (self.functions.capture_to_graph)(stream, body, none, none.cast(), 0, crate::graph::THREAD_LOCAL)
        };
        driver.check(call, "cuStreamBeginCaptureToGraph")?;
        let enqueued = gpu.on_stream(stream, enqueue);
        let mut captured = 0;
        // SAFETY: as above.
        let ended = unsafe { (driver.capture_end)(stream, &mut captured) };
        enqueued?;
        driver.check(ended, "cuStreamEndCapture")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_parameters_have_the_size_that_the_driver_reads() {
        assert_eq!(size_of::<NodeParameters>(), 256);
        assert_eq!(std::mem::offset_of!(NodeParameters, handle), 16);
        assert_eq!(std::mem::offset_of!(NodeParameters, bodies), 32);
    }
}
