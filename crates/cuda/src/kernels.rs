//! Kernels as lowering asks for them: from the code generator, or out of a saved program.
//!
//! Since all that is asked for is recorded in order, the same module is lowered to the same thunks from either. Without the
//! feature `llvm` there is no generator, and what would have a kernel is left to the evaluator.

use crate::cubin::Assembler;
use crate::hand_written;
use hloom_cuda_kernels::number::Number;
use hloom_cuda_kernels::scan::{ScanOperation, ScanShape, prefix_scan};
use hloom_cuda_kernels::{Architecture, KernelSequence};
use hloom_ir::attributes::{FusionKind, SliceDim};
use hloom_ir::builder::Builder;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::InstructionId;
use hloom_ir::infer::ShapeError;
use hloom_ir::module::Module;
use hloom_ir::op::{BinaryOp, Fusion, Op};
use hloom_ir::shape::ArrayShape;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A sequence of kernels, or why there is none.
pub(crate) type Made = Result<KernelSequence, String>;

/// Where the kernels of a program come from.
#[derive(Debug)]
pub(crate) enum KernelSource {
    /// They are made for this architecture; an assembler, where there is one, begins with each as soon as it is made.
    Compiler(Architecture, Option<Arc<Assembler>>),
    /// They were saved, in the order in which they are asked for.
    Saved(Vec<Made>),
}

/// What is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Request {
    /// The kernels of an instruction; `in_place` if each update has its operand and its result in the same memory.
    Instruction { id: InstructionId, in_place: bool },
    /// One that reduces the arrays of devices.
    Reduction(Reduction),
}

/// Arrays that each of so many devices has, each reduced element by element in the order of the devices. Operands are the
/// first array of every device, then the second, and so on; results likewise.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Reduction {
    pub(crate) op: BinaryOp,
    pub(crate) arrays: Vec<ReducedArray>,
    pub(crate) devices: usize,
    /// Whether each device gets its own block of every row, not the whole.
    pub(crate) in_blocks: bool,
}

/// An array that is reduced over devices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ReducedArray {
    pub(crate) element_type: ElementType,
    pub(crate) rows: i64,
    pub(crate) columns: i64,
}

impl Reduction {
    /// A program that is this reduction, and the fusion in it.
    fn module(&self) -> Result<(Module, InstructionId), ShapeError> {
        let mut module = Module::new("reduction");
        let mut b = Builder::new(&mut module, "reduce_arrays");
        let mut results = Vec::new();
        for (n, array) in self.arrays.iter().enumerate() {
            let first = n * self.devices;
            let mut sum = self.parameter(&mut b, first)?;
            for device in 1..self.devices {
                let next = self.parameter(&mut b, first + device)?;
                sum = b.push(Op::Binary(self.op), &[sum, next])?;
            }
            let width = array.columns / (self.devices as i64).max(1);
            for device in 0..self.devices as i64 {
                results.push(match self.in_blocks {
                    true => {
                        let dim = |start, limit| SliceDim { start, limit, stride: 1 };
                        b.slice(sum, [dim(0, array.rows), dim(device * width, (device + 1) * width)])?
                    }
                    false => sum,
                });
            }
        }
        let root = match results[..] {
            [only] => only,
            _ => b.tuple(&results)?,
        };
        let shape = b.shape(root).clone();
        let calls = b.finish(root);
        let mut b = Builder::new(&mut module, "entry");
        let count = self.arrays.len() * self.devices;
        let arrays = (0..count).map(|n| self.parameter(&mut b, n)).collect::<Result<Vec<_>, _>>()?;
        let fusion = Fusion { kind: FusionKind::Loop, calls, output_operand_aliasing: Vec::new() };
        let root = b.push_shaped(Op::Fusion(Box::new(fusion)), &arrays, shape)?;
        b.finish_entry(root);
        Ok((module, root))
    }

    fn parameter(&self, b: &mut Builder<'_>, n: usize) -> Result<InstructionId, ShapeError> {
        let ReducedArray { element_type, rows, columns } = self.arrays[n / self.devices];
        b.parameter(n as i64, ArrayShape::new(element_type, [rows, columns]), &format!("array_{n}"))
    }
}

/// The kernels of a saved program: as text, and as machine code by the text.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Saved {
    pub(crate) sequences: Vec<Made>,
    pub(crate) cubins: Vec<(String, Vec<u8>)>,
}

impl Saved {
    /// Its bytes.
    pub(crate) fn serialize(&self) -> Option<Vec<u8>> {
        postcard::to_stdvec(self).ok()
    }

    /// What [`Saved::serialize`] made.
    pub(crate) fn deserialize(bytes: &[u8]) -> Result<Saved, String> {
        postcard::from_bytes(bytes).map_err(|e| format!("the kernels cannot be read: {e}"))
    }
}

/// Whether there are kernels for a fusion of those instructions.
pub(crate) fn supports_members(module: &Module, members: &[InstructionId], results: &[InstructionId]) -> bool {
    #[cfg(feature = "llvm")]
    return hloom_cuda_codegen::supports_members(module, members, results).is_ok();
    #[cfg(not(feature = "llvm"))]
    {
        let _ = (module, members, results);
        false
    }
}

/// The kernels of one request.
fn generate(module: &Module, request: &Request, architecture: Architecture) -> Made {
    match *request {
        Request::Instruction { id, in_place } => match hand_written::kernels(module, id, architecture) {
            Some(sequence) => Ok(sequence),
            None => of_instruction(module, id, in_place, architecture),
        },
        Request::Reduction(ref reduction) => {
            let (module, fusion) = reduction.module().map_err(|why| format!("{why:?}"))?;
            of_instruction(&module, fusion, false, architecture)
        }
    }
}

#[cfg(feature = "llvm")]
fn of_instruction(module: &Module, id: InstructionId, in_place: bool, architecture: Architecture) -> Made {
    let made = match in_place {
        true => hloom_cuda_codegen::generate_in_place(module, id, architecture),
        false => hloom_cuda_codegen::generate(module, id, architecture),
    };
    made.map_err(|why| why.to_string())
}

#[cfg(not(feature = "llvm"))]
fn of_instruction(_: &Module, _: InstructionId, _: bool, _: Architecture) -> Made {
    Err("kernels cannot be made: hloom was built without LLVM".to_owned())
}

/// Texts of kernels by hand, with loops, shared memory and exchanges among threads.
pub(crate) fn examples_by_hand(architecture: Architecture) -> Vec<String> {
    let shape = ScanShape {
        element: Number::F32,
        operation: ScanOperation::Sum,
        outer: 1,
        length: 1 << 20,
        inner: 1,
        reverse: false,
    };
    texts(prefix_scan(&shape, architecture).ok())
}

/// Texts of kernels as they are generated.
pub(crate) fn examples_generated(architecture: Architecture) -> Vec<String> {
    let array = ReducedArray { element_type: ElementType::F32, rows: 1, columns: 1 << 20 };
    let sum = Reduction { op: BinaryOp::Add, arrays: vec![array], devices: 4, in_blocks: false };
    // There is nothing to make ready where nothing can be generated.
    let Ok((module, fusion)) = sum.module() else { return Vec::new() };
    texts(of_instruction(&module, fusion, false, architecture).ok())
}

fn texts(sequence: Option<KernelSequence>) -> Vec<String> {
    sequence.into_iter().flat_map(|sequence| sequence.kernels).map(|kernel| kernel.ptx).collect()
}

impl KernelSource {
    /// The kernels of all requests, each in a thread of its own as far as there are processors.
    pub(crate) fn make(self, module: &Module, requests: &[Request]) -> Vec<Made> {
        let (architecture, assembler) = match self {
            KernelSource::Compiler(architecture, assembler) => (architecture, assembler),
            KernelSource::Saved(mut made) => {
                made.resize_with(requests.len(), || Err("it is not among the saved kernels".to_owned()));
                return made;
            }
        };
        let next = AtomicUsize::new(0);
        let made: Mutex<FxHashMap<usize, Made>> = Mutex::default();
        let work = || {
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                let Some(request) = requests.get(n) else { return };
                let kernels = generate(module, request, architecture);
                if let (Ok(sequence), Some(assembler)) = (&kernels, &assembler) {
                    let texts: Vec<&str> = sequence.kernels.iter().map(|kernel| kernel.ptx.as_str()).collect();
                    assembler.begin(&texts, architecture);
                }
                made.lock().unwrap_or_else(PoisonError::into_inner).insert(n, kernels);
            }
        };
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get()).min(requests.len());
        match threads {
            0 | 1 => work(),
            _ => std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work)))),
        }
        let mut made = made.into_inner().unwrap_or_else(PoisonError::into_inner);
        let missing = || Err("the generator of kernels did not answer".to_owned());
        (0..requests.len()).map(|n| made.remove(&n).unwrap_or_else(missing)).collect()
    }
}

#[cfg(all(test, feature = "llvm"))]
mod tests {
    use super::*;

    #[test]
    fn arrays_of_all_devices_are_reduced_by_one_kernel() {
        let array = |rows, columns| ReducedArray { element_type: ElementType::F32, rows, columns };
        for in_blocks in [false, true] {
            let arrays = vec![array(1, 1024), array(6, 40), array(1, 8)];
            let reduction = Reduction { op: BinaryOp::Add, arrays, devices: 8, in_blocks };
            let (module, _) = reduction.module().unwrap();
            let architecture = Architecture { capability: 90, accelerated: true };
            let made = generate(&module, &Request::Reduction(reduction), architecture).unwrap();
            assert_eq!((made.kernels.len(), made.scratch.len()), (1, 0), "in blocks: {in_blocks}");
            assert_eq!(made.kernels[0].arguments.len(), 2 * 3 * 8);
        }
    }
}
