//! Kernels as lowering asks for them: from the code generator, or out of a saved program.
//!
//! Since all that is asked for is recorded in order, the same module is lowered to the same thunks from either. Without the
//! feature `llvm` there is no generator, and what would have a kernel is left to the evaluator.

use crate::hand_written;
use hloom_cuda_kernels::{Architecture, KernelSequence};
use hloom_ir::attributes::FusionKind;
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
use std::sync::{Mutex, PoisonError};

/// A sequence of kernels, or why there is none.
pub(crate) type Made = Result<KernelSequence, String>;

/// Where the kernels of a program come from.
#[derive(Debug)]
pub(crate) enum KernelSource {
    /// They are made for this architecture.
    Compiler(Architecture),
    /// They were saved, in the order in which they are asked for.
    Saved(Vec<Made>),
}

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Request {
    /// The kernels of an instruction; `in_place` if each update has its operand and its result in the same memory.
    Instruction { id: InstructionId, in_place: bool },
    /// One that reduces arrays to one.
    Reduction(Reduction),
}

/// So many arrays, reduced element by element in their order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Reduction {
    pub(crate) op: BinaryOp,
    pub(crate) element_type: ElementType,
    pub(crate) elements: i64,
    pub(crate) arrays: usize,
}

impl Reduction {
    /// A program that is this reduction, and the fusion in it.
    fn module(self) -> Result<(Module, InstructionId), ShapeError> {
        let mut module = Module::new("reduction");
        let shape = ArrayShape::new(self.element_type, [self.elements]);
        let mut b = Builder::new(&mut module, "reduce_arrays");
        let parameter = |b: &mut Builder<'_>, n: usize| b.parameter(n as i64, shape.clone(), &format!("array_{n}"));
        let mut sum = parameter(&mut b, 0)?;
        for n in 1..self.arrays {
            let next = parameter(&mut b, n)?;
            sum = b.push(Op::Binary(self.op), &[sum, next])?;
        }
        let calls = b.finish(sum);
        let mut b = Builder::new(&mut module, "entry");
        let arrays = (0..self.arrays).map(|n| parameter(&mut b, n)).collect::<Result<Vec<_>, _>>()?;
        let fusion = Fusion { kind: FusionKind::Loop, calls, output_operand_aliasing: Vec::new() };
        let root = b.push_shaped(Op::Fusion(Box::new(fusion)), &arrays, shape)?;
        b.finish_entry(root);
        Ok((module, root))
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

/// Whether there are kernels for an instruction, and if not, why.
pub(crate) fn supports(module: &Module, id: InstructionId) -> Result<(), String> {
    #[cfg(feature = "llvm")]
    return hloom_cuda_codegen::supports(module, id).map_err(|why| why.to_string());
    #[cfg(not(feature = "llvm"))]
    {
        let _ = (module, id);
        Err("kernels cannot be made: hloom was built without LLVM".to_owned())
    }
}

/// The kernels of one request.
fn generate(module: &Module, request: Request, architecture: Architecture) -> Made {
    match request {
        Request::Instruction { id, in_place } => match hand_written::kernels(module, id, architecture) {
            Some(sequence) => Ok(sequence),
            None => of_instruction(module, id, in_place, architecture),
        },
        Request::Reduction(reduction) => {
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
fn of_instruction(module: &Module, id: InstructionId, _: bool, _: Architecture) -> Made {
    supports(module, id).map(|()| KernelSequence::default())
}

impl KernelSource {
    /// The kernels of all requests, each in a thread of its own as far as there are processors.
    pub(crate) fn make(self, module: &Module, requests: &[Request]) -> Vec<Made> {
        let architecture = match self {
            KernelSource::Compiler(architecture) => architecture,
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
                let Some(&request) = requests.get(n) else { return };
                let kernels = generate(module, request, architecture);
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
