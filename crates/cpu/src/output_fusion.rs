//! Output fusions: a product or convolution and the kernel of what follows it, in one step.
//!
//! The product's result lies where the kernel will write one of its own results, each element in the place of the one made
//! of it, and the kernel runs when the product is done. If there is no such place, the kernel gets rows of the product as
//! soon as they are there, from the thread that has computed them, and they lie there only for as long as it reads them; or,
//! where that cannot be, the product lies in memory of the step's own. The kernel computes the same in each case.

use crate::executor::ThunkExecutor;
use crate::kernel::Kernel;
use crate::library_call::{LibraryCall, Threads};
use crate::thunk::Location;
use hloom_cost::CoreCost;
use hloom_cpu_kernels::Epilogue;
use hloom_ir::attributes::FusionKind;
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_loops::kernel::{KernelRequest, Producer};
use hloom_value::ExecutionError;
use smallvec::SmallVec;
use std::ops::Range;

/// A second operand of more bytes does not stay in the caches until the next block of rows reads it.
const MAX_READ_AGAIN: usize = 8 << 20;

/// A product and the kernel after it. Their arrays are the operands of the fusion, its results, and the step's own memory.
#[derive(Debug)]
pub(crate) struct OutputFusion {
    pub(crate) call: LibraryCall,
    /// Which of the arrays the product reads.
    reads: [usize; 2],
    /// How many of the arrays are operands.
    operands: usize,
    /// The number of the kernel among those that are wanted.
    pub(crate) request: usize,
    kernel: Option<Kernel>,
    /// Rows of the product that are a unit of the kernel; 0 if it must wait for all of them.
    step: usize,
    place: Place,
}

/// Where the product's result lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// In that array, a result.
    Result(usize),
    /// Nowhere for long: each block of rows in memory of the thread that computes it.
    Apart,
    /// In memory of the step's own, the last of the arrays.
    Own,
}

/// An array: where it lies, and its bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Array {
    pub(crate) location: Location,
    pub(crate) bytes: usize,
}

impl Array {
    fn overlaps(&self, other: &Array) -> bool {
        let (a, b) = (self.location, other.location);
        a.allocation == b.allocation && a.offset < b.offset + other.bytes && b.offset < a.offset + self.bytes
    }
}

/// The product or convolution of an output fusion that can be computed apart from the rest.
pub(crate) fn product_of(module: &Module, id: InstructionId) -> Option<InstructionId> {
    let Op::Fusion(fusion) = &module[id].op else { return None };
    let body = module[fusion.calls].instructions().iter();
    let mut products = body.copied().filter(|&i| matches!(module[i].op, Op::Dot(_) | Op::Convolution(_)));
    let (FusionKind::Output, Some(product), None) = (fusion.kind, products.next(), products.next()) else {
        return None;
    };
    let arrays = module[id].operands().iter().all(|&o| module[o].shape.is_array());
    let whole = module[product].operands().iter().all(|&o| matches!(module[o].op, Op::Parameter { .. }));
    (arrays && whole).then_some(product)
}

impl OutputFusion {
    /// The step of a fusion whose product is that, without its kernel; `None` if there is no kernel for the product.
    pub(crate) fn new(
        module: &Module,
        id: InstructionId,
        product: InstructionId,
        request: usize,
    ) -> Option<OutputFusion> {
        let call = LibraryCall::new(module, product).ok()?;
        let number = |&o: &InstructionId| match module[o].op {
            Op::Parameter { number, .. } => usize::try_from(number).ok(),
            _ => None,
        };
        let &[lhs, rhs] = module[product].operands() else { return None };
        let reads = [number(&lhs)?, number(&rhs)?];
        let operands = module[id].operands().len();
        Some(OutputFusion { call, reads, operands, request, kernel: None, step: 0, place: Place::Own })
    }

    /// The kernel that it needs.
    pub(crate) fn wanted(&self, id: InstructionId, product: InstructionId) -> KernelRequest {
        let row = self.call.row().and_then(|row| i64::try_from(row).ok()).unwrap_or(0);
        KernelRequest { instruction: id, in_place: false, producer: Some(Producer { instruction: product, row }) }
    }

    /// Gives it its kernel, whose units are so many rows of the product, if they are whole rows, and decides where the
    /// product's result lies. `arrays` are the operands and results. Returns how many bytes of its own it needs.
    pub(crate) fn resolve(&mut self, kernel: Kernel, rows_of_unit: Option<usize>, arrays: &[Array]) -> usize {
        let (operands, results) = arrays.split_at(self.operands.min(arrays.len()));
        let is_read = |result: &Array| self.reads.iter().any(|&n| operands.get(n).is_none_or(|o| o.overlaps(result)));
        self.kernel = Some(kernel);
        // A result that lies where the product reads must not be written before the product is done.
        self.step = rows_of_unit.filter(|_| !results.iter().any(is_read)).unwrap_or(0);
        let is_free = |result: &Array| {
            result.bytes == self.call.result_bytes()
                && result.location != Location::NOWHERE
                && !operands.iter().any(|o| o.overlaps(result))
        };
        self.place = match results.iter().position(is_free) {
            Some(n) if self.step > 0 => Place::Result(self.operands + n),
            _ if self.step > 0 && self.is_good_in_blocks() => Place::Apart,
            _ => Place::Own,
        };
        if self.has_own_memory() { self.call.result_bytes() } else { 0 }
    }

    /// Whether the product is as fast if blocks of its rows are made one after another.
    fn is_good_in_blocks(&self) -> bool {
        self.call.second_bytes() <= MAX_READ_AGAIN && self.call.tiles_by_rows(self.step)
    }

    /// Whether it uses memory of its own.
    pub(crate) fn has_own_memory(&self) -> bool {
        self.place == Place::Own
    }

    /// The rows of the product, of all that are in its batch.
    fn rows(&self) -> usize {
        self.call.result_bytes().checked_div(self.call.row_bytes()).unwrap_or(0)
    }

    /// About how long it takes on such a core.
    pub(crate) fn nanoseconds(&self, core: &CoreCost) -> f64 {
        self.call.nanoseconds(core) + self.kernel.map_or(0.0, |kernel| kernel.nanoseconds)
    }

    /// Runs it.
    ///
    /// # Safety
    /// The arrays must be those of the fusion, and the step's own memory.
    pub(crate) unsafe fn run(&self, executor: &ThunkExecutor<'_>, arrays: &[*mut u8]) -> Result<(), ExecutionError> {
        let refused = || ExecutionError::bug("a kernel refuses its arrays");
        let kernel = self.kernel.ok_or_else(refused)?;
        let function = *executor.kernels.kernels.get(kernel.number as usize).ok_or_else(refused)?;
        let (operands, results) = arrays.split_at_checked(self.operands).ok_or_else(refused)?;
        let (&own, results) = results.split_last().ok_or_else(refused)?;
        let product = match self.place {
            Place::Result(n) => *arrays.get(n).ok_or_else(refused)?,
            Place::Apart => std::ptr::null_mut(),
            Place::Own => own,
        };
        let [lhs, rhs] = self.reads.map(|n| operands.get(n).copied());
        let (lhs, rhs) = lhs.zip(rhs).ok_or_else(refused)?;
        let threads = Threads { pool: executor.client.pool(), most: executor.threads };
        let row_bytes = self.call.row_bytes();
        let rows = self.rows();
        let table = Table([operands, &[product], results].concat().into());
        let call = |made: Range<usize>, at: *mut u8| {
            let mut table = table.addresses();
            table[self.operands] = at.wrapping_sub(made.start * row_bytes);
            let end = if made.end >= rows { kernel.units } else { made.end / self.step };
            // SAFETY: the caller's promise; units are independent, and what these read of the product is there.
            unsafe { function(table.as_ptr(), (made.start / self.step) as i64, end as i64) }
        };
        if self.place == Place::Apart {
            let epilogue = Epilogue { step: self.step, call: &call };
            // SAFETY: the caller's promise; nothing that is written on the way lies where the product reads.
            return unsafe { self.call.run_with_epilogue(&[lhs, rhs, product], &threads, &epilogue) }
                .ok_or_else(refused);
        }
        // SAFETY: the caller's promise.
        unsafe { self.call.run(&[lhs, rhs, product], &threads) }.ok_or_else(refused)?;
        executor.client.pool().each(kernel.units, kernel.chunk, executor.threads, &|begin, end| {
            // SAFETY: as above; all of the product is there.
            unsafe { function(table.start(), begin as i64, end as i64) }
        });
        Ok(())
    }
}

/// The kernel's arrays, for the threads that work on them.
struct Table(SmallVec<[*mut u8; 12]>);
// SAFETY: kernels write disjoint parts of what the addresses lead to.
unsafe impl Sync for Table {}
impl Table {
    fn addresses(&self) -> SmallVec<[*mut u8; 12]> {
        self.0.clone()
    }
    fn start(&self) -> *const *mut u8 {
        self.0.as_ptr()
    }
}
