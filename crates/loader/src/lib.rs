//! Object code of kernels made ready to run: loaded into executable memory, without LLVM.
//!
//! [`ObjectCode`] is what a compiler of kernels makes and what is saved in files; a [`CodeImage`] is the same in memory, and
//! keeps the functions alive that are looked up in it.

mod elf;
mod error;
mod external;

pub use error::LoadError;

use hloom_loops::abi::{KernelFn, RegionFn};
use std::fmt;
use std::sync::Arc;

/// Bytes that code refers to by their address.
pub type SharedBytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// An object file, and the data that its code refers to by name.
#[derive(Clone, Default)]
pub struct ObjectCode {
    /// The object file.
    pub bytes: Arc<[u8]>,
    /// Arrays too large to be part of the code, by the names of their symbols.
    pub constants: Vec<(String, SharedBytes)>,
}

impl fmt::Debug for ObjectCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let constants: Vec<&str> = self.constants.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("ObjectCode").field("bytes", &self.bytes.len()).field("constants", &constants).finish()
    }
}

/// Objects in executable memory.
pub struct CodeImage {
    objects: Vec<elf::Code>,
    /// What the code refers to by its address.
    _constants: Vec<SharedBytes>,
}

impl fmt::Debug for CodeImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CodeImage").field("objects", &self.objects.len()).finish_non_exhaustive()
    }
}

impl CodeImage {
    /// Loads objects made for an architecture (`x86_64`, `aarch64`), which must be this machine's.
    pub fn load(objects: &[ObjectCode], architecture: &str) -> Result<CodeImage, LoadError> {
        let mut constants = Vec::new();
        let mut loaded = Vec::with_capacity(objects.len());
        for object in objects {
            let data = |name: &str| {
                let found = object.constants.iter().find(|(n, _)| n == name);
                found.map(|(_, bytes)| bytes.as_ref().as_ref().as_ptr() as usize)
            };
            loaded.push(elf::load(&object.bytes, architecture, &data)?);
            constants.extend(object.constants.iter().map(|(_, bytes)| bytes.clone()));
        }
        Ok(CodeImage { objects: loaded, _constants: constants })
    }

    fn address(&self, object: usize, name: &str) -> Result<usize, LoadError> {
        let code = self.objects.get(object).ok_or(LoadError::NoObject(object))?;
        code.address(name).ok_or_else(|| LoadError::NoFunction(name.to_owned()))
    }

    /// A kernel's function. It must not be called after the image is gone.
    ///
    /// # Safety
    /// The symbol of that name must be a kernel's.
    pub unsafe fn kernel(&self, object: usize, name: &str) -> Result<KernelFn, LoadError> {
        let address = self.address(object, name)?;
        // SAFETY: the caller's promise; a kernel has just this signature.
        Ok(unsafe { std::mem::transmute::<usize, KernelFn>(address) })
    }

    /// A region's function. It must not be called after the image is gone.
    ///
    /// # Safety
    /// The symbol of that name must be a region's.
    pub unsafe fn region(&self, object: usize, name: &str) -> Result<RegionFn, LoadError> {
        let address = self.address(object, name)?;
        // SAFETY: the caller's promise; a region has just this signature.
        Ok(unsafe { std::mem::transmute::<usize, RegionFn>(address) })
    }
}
