//! What the machine can do at best, measured: the speed of f32 products and of memory.

use crate::client::CpuClient;
use crate::library_call::Threads;
use hloom_cpu_kernels::matmul::Matmul;
use hloom_value::ExecutionError;
use std::time::Instant;

/// The best that was measured on this machine, with the threads of one client.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Ceiling {
    /// f32 multiplications and additions per second, in products of matrices that fit the caches.
    pub flops: f64,
    /// Bytes read or written per second, in arrays that do not.
    pub bytes: f64,
}

/// The side of the matrices; their product takes some milliseconds.
const SIDE: usize = 768;
/// Bytes of the array that is copied: more than caches hold.
const COPIED: usize = 128 << 20;
const TIMES: usize = 4;

/// Measures.
pub fn measure(client: &CpuClient) -> Result<Ceiling, ExecutionError> {
    let threads = Threads { pool: client.pool(), most: usize::MAX };
    let fastest = |work: &mut dyn FnMut()| {
        let times = (0..TIMES).map(|_| {
            let begun = Instant::now();
            work();
            begun.elapsed().as_secs_f64()
        });
        times.fold(f64::INFINITY, f64::min)
    };
    let (a, b) = (vec![0.5f32; SIDE * SIDE], vec![0.25f32; SIDE * SIDE]);
    let mut c = vec![0f32; SIDE * SIDE];
    let (m, n, k) = (SIDE, SIDE, SIDE);
    let product = Matmul { batch: Vec::new(), m, n, k, lhs_row: SIDE, lhs_column: 1, rhs_row: SIDE, rhs_column: 1 };
    let seconds = fastest(&mut || {
        product.run(&a, &b, &mut c, &threads);
    });
    let flops = product.flops() / seconds;
    let from = client.allocator().block(COPIED)?;
    let mut to = client.allocator().block(COPIED)?;
    let (source, target) = (from.bytes(), Destination(to.bytes_mut().as_mut_ptr()));
    let seconds = fastest(&mut || {
        client.pool().each(COPIED >> 12, 256, usize::MAX, &|begin, end| {
            let part = &source[begin << 12..end << 12];
            // SAFETY: the parts lie inside of both blocks and do not overlap.
            unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), target.start().add(begin << 12), part.len()) };
        });
    });
    Ok(Ceiling { flops, bytes: 2.0 * COPIED as f64 / seconds })
}

/// Where several threads write, each its part.
#[derive(Clone, Copy)]
struct Destination(*mut u8);
// SAFETY: an address is a number.
unsafe impl Sync for Destination {}
impl Destination {
    fn start(self) -> *mut u8 {
        self.0
    }
}
