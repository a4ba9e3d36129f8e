//! What takes long to load, loaded in threads while a program is read: the assembler, LLVM, cuBLASLt and cuDNN; and, once
//! on a machine, the machine code of the commonest kernels.
//!
//! Assembler and LLVM are given kernels of the kinds that programs have: most of what is slow the first time is found on
//! the way through them, not at their door.
//!
//! A process that ends destroys a library's tables. A thread that is inside of the library then reads what is gone, and the
//! process dies by a signal: so whoever drops the last handle of a client waits for its threads.

use crate::common_kernels;
use crate::gpu::Gpu;
use crate::kernels;
use hloom_cuda_kernels::Architecture;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Threads that load libraries.
#[derive(Debug)]
pub(crate) struct Prewarm {
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Whether what is not needed is to be left undone.
    stop: Arc<AtomicBool>,
}

impl Prewarm {
    /// Begins to load for programs of that architecture. Who needs a library that cannot be loaded will hear of it.
    pub(crate) fn begin(gpu: &Arc<Gpu>, architecture: Architecture) -> Prewarm {
        let (assembler, of_products) = (gpu.assembler.clone(), gpu.clone());
        let thread = || std::thread::Builder::new().name("prewarm".into());
        let (generated, common, stop) = (assembler.clone(), assembler.clone(), Arc::new(AtomicBool::new(false)));
        let (told, told_of_convolutions) = (stop.clone(), stop.clone());
        let libraries = move || {
            drop(crate::cublaslt::prewarm(&of_products));
            // Fewer programs have convolutions, and a short one is done before it comes to them.
            if !told_of_convolutions.load(Ordering::Relaxed) {
                drop(crate::cudnn::prewarm(&of_products));
            }
        };
        let threads = [
            thread().spawn(move || assembler.prewarm(&kernels::examples_by_hand(architecture), architecture)),
            thread().spawn(move || generated.prewarm(&kernels::examples_generated(architecture), architecture)),
            thread().spawn(libraries),
            thread().spawn(move || common_kernels::assemble(&common, architecture, &told)),
        ];
        Prewarm { threads: Mutex::new(threads.into_iter().flatten().collect()), stop }
    }

    /// Waits until all is loaded.
    pub(crate) fn wait(&self) {
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            // One that panicked has loaded nothing: who needs the library will try again.
            let _ = thread.join();
        }
    }
}

impl Drop for Prewarm {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.wait();
    }
}
