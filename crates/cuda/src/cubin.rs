//! From PTX to machine code, by nvJitLink on all cores, kept by content in memory and on disk.
//!
//! nvJitLink works on several texts at once, which the driver's own assembler does not; that is used where nvJitLink is not
//! there. What is kept on disk holds the text that it was made of, and is used only if that is the same.

use crate::driver::Handle;
use crate::library::functions;
use crate::workers::Workers;
use hloom_cuda_kernels::Architecture;
use hloom_ir::diagnostic::{Blame, codes};
use hloom_value::ExecutionError;
use rustc_hash::FxHashMap;
use std::collections::hash_map::DefaultHasher;
use std::ffi::{CString, c_char, c_void};
use std::hash::{Hash, Hasher};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};

functions! {
    /// nvJitLink, whose functions carry the version in their names.
    NvJitLink of "nvJitLink" in ["libnvJitLink.so.13", "libnvJitLink.so.12", "libnvJitLink.so"] {
        create = "nvJitLinkCreate" | "__nvJitLinkCreate_13_0" | "__nvJitLinkCreate_12_0"
            (*mut Handle, u32, *const *const c_char);
        destroy = "nvJitLinkDestroy" | "__nvJitLinkDestroy_13_0" | "__nvJitLinkDestroy_12_0" (*mut Handle);
        add = "nvJitLinkAddData" | "__nvJitLinkAddData_13_0" | "__nvJitLinkAddData_12_0"
            (Handle, i32, *const c_void, usize, *const c_char);
        complete = "nvJitLinkComplete" | "__nvJitLinkComplete_13_0" | "__nvJitLinkComplete_12_0" (Handle);
        cubin_size = "nvJitLinkGetLinkedCubinSize" | "__nvJitLinkGetLinkedCubinSize_13_0"
            | "__nvJitLinkGetLinkedCubinSize_12_0" (Handle, *mut usize);
        cubin = "nvJitLinkGetLinkedCubin" | "__nvJitLinkGetLinkedCubin_13_0" | "__nvJitLinkGetLinkedCubin_12_0"
            (Handle, *mut u8);
        log_size = "nvJitLinkGetErrorLogSize" | "__nvJitLinkGetErrorLogSize_13_0"
            | "__nvJitLinkGetErrorLogSize_12_0" (Handle, *mut usize);
        log = "nvJitLinkGetErrorLog" | "__nvJitLinkGetErrorLog_13_0" | "__nvJitLinkGetErrorLog_12_0"
            (Handle, *mut c_char);
    }
}

/// `NVJITLINK_INPUT_PTX`.
const PTX: i32 = 2;

/// nvJitLink need not look for a text in files of its own, nor write it there: that is done here, without a compiler.
const NO_CACHE: &std::ffi::CStr = c"-no-cache";

/// How files of machine code begin.
const MAGIC: &[u8; 8] = b"hlcubin1";

/// Machine code by the text and the architecture that it is of; none while it is being assembled.
type Kept = FxHashMap<(Arc<str>, Architecture), Option<Result<Image, ExecutionError>>>;

/// What the driver loads: machine code, or, where nothing else assembles it, the text.
pub(crate) type Image = Arc<[u8]>;

/// Makes machine code of PTX.
#[derive(Debug)]
pub(crate) struct Assembler {
    library: Arc<OnceLock<Result<NvJitLink, ExecutionError>>>,
    kept: Arc<KeptImages>,
    workers: Workers,
}

/// Machine code that there is, and that there will be.
#[derive(Debug, Default)]
struct KeptImages {
    images: Mutex<Kept>,
    changed: Condvar,
}

impl KeptImages {
    fn images(&self) -> MutexGuard<'_, Kept> {
        self.images.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a worker owes those who wait for a text: an answer, even if it panics.
struct Owed {
    kept: Arc<KeptImages>,
    text: Arc<str>,
    architecture: Architecture,
    image: Option<Result<Image, ExecutionError>>,
}

impl Drop for Owed {
    fn drop(&mut self) {
        let missing = || Err(ExecutionError::bug("a kernel was not assembled"));
        let image = self.image.take().unwrap_or_else(missing);
        self.kept.images().insert((self.text.clone(), self.architecture), Some(image));
        self.kept.changed.notify_all();
    }
}

/// More threads than this would wait for memory, and have it for themselves afterwards.
const MOST_WORKERS: usize = 8;

impl Default for Assembler {
    fn default() -> Assembler {
        let processors = std::thread::available_parallelism().map_or(1, |n| n.get());
        let workers = Workers::new("assembler", processors.min(MOST_WORKERS));
        Assembler { library: Arc::default(), kept: Arc::default(), workers }
    }
}

/// Texts that are being assembled.
pub(crate) struct Assembling<'a> {
    assembler: &'a Assembler,
    texts: Vec<Arc<str>>,
    architecture: Architecture,
}

impl Assembling<'_> {
    /// The images of the texts, in order.
    pub(crate) fn finish(self) -> Result<Vec<Image>, ExecutionError> {
        let Assembling { assembler, texts, architecture } = self;
        let mut images = assembler.kept.images();
        let mut found = Vec::with_capacity(texts.len());
        for text in texts {
            let key = (text, architecture);
            loop {
                match images.get(&key) {
                    Some(Some(image)) => break found.push(image.clone()?),
                    Some(None) => {
                        images = assembler.kept.changed.wait(images).unwrap_or_else(PoisonError::into_inner);
                    }
                    None => return Err(ExecutionError::bug("machine code of a kernel is missing")),
                }
            }
        }
        Ok(found)
    }
}

impl Assembler {
    /// Loads the library and lets each worker assemble one of these texts, which is slow the first time. What is made is
    /// not kept: the next process has to go the same way.
    pub(crate) fn prewarm(&self, texts: &[String], architecture: Architecture) {
        let (done, all) = mpsc::channel::<()>();
        for text in texts.iter().cycle().take(if texts.is_empty() { 0 } else { self.workers.limit() }) {
            let (library, text, done) = (self.library.clone(), text.clone(), done.clone());
            self.workers.submit(move || {
                // Whoever needs it next will hear why it is not there.
                let _ = opened(&library).map(|library| library.assemble(&text, architecture));
                drop(done);
            });
        }
        drop(done);
        // It ends when all have let go of their ends.
        let _ = all.recv();
    }

    /// Assembles a text for the files, unless it is there; an error if that cannot be.
    pub(crate) fn keep_in_file(&self, text: &str, architecture: Architecture) -> Result<(), ExecutionError> {
        let is_there = file(text, architecture).is_some_and(|file| file.exists());
        if !is_there {
            image_of(Some(opened(&self.library)?), text, architecture)?;
        }
        Ok(())
    }

    /// The images of these texts, in order; equal ones are assembled once.
    pub(crate) fn assemble(&self, texts: &[&str], architecture: Architecture) -> Result<Vec<Image>, ExecutionError> {
        self.begin(texts, architecture).finish()
    }

    /// Begins to assemble these texts, each equal one once.
    pub(crate) fn begin(&self, texts: &[&str], architecture: Architecture) -> Assembling<'_> {
        let texts: Vec<Arc<str>> = texts.iter().map(|&t| Arc::from(t)).collect();
        let failed = || Some(Err(ExecutionError::bug("a kernel was not assembled")));
        let mut wanted = Vec::new();
        {
            let mut images = self.kept.images();
            for text in &texts {
                // What failed before is tried again.
                let kept = images.entry((text.clone(), architecture)).or_insert_with(failed);
                if matches!(kept, Some(Err(_))) {
                    *kept = None;
                    wanted.push(text.clone());
                }
            }
        }
        // The longest first: the others are done meanwhile.
        wanted.sort_by_key(|text| std::cmp::Reverse(text.len()));
        for text in wanted {
            let (library, kept) = (self.library.clone(), self.kept.clone());
            self.workers.submit(move || {
                let mut owed = Owed { kept, text, architecture, image: None };
                owed.image = Some(image_of(opened(&library).ok(), &owed.text, architecture));
            });
        }
        Assembling { assembler: self, texts, architecture }
    }

    /// Takes images that were assembled before.
    pub(crate) fn keep(&self, images: impl IntoIterator<Item = (String, Image)>, architecture: Architecture) {
        let of = |(text, image): (String, Image)| ((Arc::from(text), architecture), Some(Ok(image)));
        self.kept.images().extend(images.into_iter().map(of));
    }
}

/// The library, opened by who needs it first.
fn opened(library: &OnceLock<Result<NvJitLink, ExecutionError>>) -> Result<&NvJitLink, ExecutionError> {
    library.get_or_init(NvJitLink::open).as_ref().map_err(Clone::clone)
}

/// The image of a text: out of the files, or assembled; the text itself, ended by a zero, where nothing can assemble it.
fn image_of(library: Option<&NvJitLink>, text: &str, architecture: Architecture) -> Result<Image, ExecutionError> {
    let Some(library) = library else { return Ok([text.as_bytes(), &[0]].concat().into()) };
    let file = file(text, architecture);
    if let Some(image) = file.as_ref().and_then(|f| std::fs::read(f).ok()).and_then(|b| from_file(&b, text)) {
        return Ok(image.into());
    }
    let image = library.assemble(text, architecture)?;
    if let Some(file) = file {
        // A cache that cannot be written is no cache, and nothing worse.
        let _ = write(&file, &to_file(text, &image));
    }
    Ok(image.into())
}

fn key(text: &str, architecture: Architecture) -> u64 {
    let mut hasher = DefaultHasher::new();
    (text, architecture, env!("CARGO_PKG_VERSION")).hash(&mut hasher);
    hasher.finish()
}

/// The file of a text's machine code.
fn file(text: &str, architecture: Architecture) -> Option<PathBuf> {
    Some(folder()?.join(format!("{:016x}.cubin", key(text, architecture))))
}

/// Where machine code is kept from one process to the next.
pub(crate) fn folder() -> Option<PathBuf> {
    let own = std::env::var_os("HLOOM_CACHE_DIR").map(PathBuf::from);
    let cache = || std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|p| p.is_absolute());
    let home = || std::env::var_os("HOME").map(|h| PathBuf::from(h).join(".cache"));
    own.or_else(|| cache().or_else(home).map(|c| c.join("hloom"))).map(|f| f.join("cubin"))
}

fn to_file(text: &str, image: &[u8]) -> Vec<u8> {
    [&MAGIC[..], &(text.len() as u64).to_le_bytes(), text.as_bytes(), image].concat()
}

/// What a file holds for `text`.
fn from_file(bytes: &[u8], text: &str) -> Option<Vec<u8>> {
    let (len, rest) = bytes.strip_prefix(MAGIC)?.split_first_chunk::<8>()?;
    let (of, image) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*len)).ok()?)?;
    (of == text.as_bytes() && !image.is_empty()).then(|| image.to_vec())
}

/// Writes a file that nobody sees before it is whole.
fn write(file: &std::path::Path, bytes: &[u8]) -> std::io::Result<()> {
    let Some(folder) = file.parent() else { return Ok(()) };
    std::fs::create_dir_all(folder)?;
    let begun = file.with_extension(format!("{}.part", std::process::id()));
    std::fs::write(&begun, bytes)?;
    std::fs::rename(begun, file)
}

impl NvJitLink {
    /// The machine code of a text.
    fn assemble(&self, text: &str, architecture: Architecture) -> Result<Vec<u8>, ExecutionError> {
        let invalid = |_| ExecutionError::bug("PTX with a zero in it");
        let (text, name) = (CString::new(text).map_err(invalid)?, c"kernel.ptx");
        let options = [CString::new(format!("-arch={architecture}")).map_err(invalid)?, c"-O3".to_owned()];
        let options: Vec<*const c_char> = options.iter().map(|o| o.as_ptr()).chain([NO_CACHE.as_ptr()]).collect();
        let mut handle = 0;
        // SAFETY (all): out parameters are valid, buffers as long as was asked, and the handle is destroyed once.
        unsafe {
            let create = |count: usize, handle: &mut Handle| (self.create)(handle, count as u32, options.as_ptr());
            // Older libraries do not know the last option.
            if create(options.len(), &mut handle) != 0 && create(options.len() - 1, &mut handle) != 0 {
                return Err(self.failed("nvJitLinkCreate", 0));
            }
            let mut call = "nvJitLinkAddData";
            let mut status = (self.add)(handle, PTX, text.as_ptr().cast(), text.as_bytes().len(), name.as_ptr());
            if status == 0 {
                call = "nvJitLinkComplete";
                status = (self.complete)(handle);
            }
            let mut size = 0usize;
            if status == 0 {
                call = "nvJitLinkGetLinkedCubinSize";
                status = (self.cubin_size)(handle, &mut size);
            }
            let mut image = vec![0u8; size];
            if status == 0 {
                call = "nvJitLinkGetLinkedCubin";
                status = (self.cubin)(handle, image.as_mut_ptr());
            }
            let error = (status != 0).then(|| self.failed(call, handle));
            (self.destroy)(&mut handle);
            error.map_or(Ok(image), Err)
        }
    }

    /// What the library says is wrong with a text: ours, since we wrote it.
    unsafe fn failed(&self, call: &str, handle: Handle) -> ExecutionError {
        let mut log = Vec::new();
        let mut size = 0usize;
        // SAFETY: the caller's handle, if it is one; the buffer is as long as was asked.
        unsafe {
            if handle != 0 && (self.log_size)(handle, &mut size) == 0 && size > 1 {
                log = vec![0u8; size];
                (self.log)(handle, log.as_mut_ptr().cast());
            }
        }
        let log = String::from_utf8_lossy(&log).trim_end_matches('\0').trim().to_owned();
        let blame = if handle == 0 { Blame::Machine } else { Blame::Hloom };
        ExecutionError::new(&codes::eval::DEVICE_FAILED, format!("{call} fails: {log}")).blame(blame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_of_one_text_only() {
        let bytes = to_file("text", b"image");
        assert_eq!(from_file(&bytes, "text").as_deref(), Some(&b"image"[..]));
        assert_eq!(from_file(&bytes, "other"), None);
        assert_eq!(from_file(&bytes[..10], "text"), None);
        assert_eq!(from_file(&to_file("text", b""), "text"), None);
    }

    const HOPPER: Architecture = Architecture { capability: 90, accelerated: true };

    #[test]
    fn a_text_that_is_being_assembled_is_waited_for_by_all_who_ask() {
        let assembler = Assembler::default();
        let text: Arc<str> = Arc::from("text");
        let owed = |image| Owed { kept: assembler.kept.clone(), text: text.clone(), architecture: HOPPER, image };
        // One that panics leaves no image.
        for image in [None, Some(Ok(Arc::from(&b"image"[..])))] {
            assembler.kept.images().insert((text.clone(), HOPPER), None);
            let [first, second] = [0; 2].map(|_| assembler.begin(&["text", "text"], HOPPER));
            let expected = image.clone().map(|image: Result<Image, ExecutionError>| vec![image.unwrap(); 2]);
            std::thread::scope(|scope| {
                let waiting = scope.spawn(move || first.finish());
                drop(owed(image));
                assert_eq!(waiting.join().unwrap().ok(), expected);
            });
            assert_eq!(second.finish().ok(), expected);
        }
    }
}
