//! The MPI library as a file: found, loaded, and asked what it is.

use std::ffi::{CStr, CString, c_char, c_int, c_void};

/// Why MPI cannot be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MpiError(pub String);

/// A loaded library. It stays loaded: MPI cannot be taken out of a process again.
#[derive(Debug)]
pub(crate) struct Library {
    handle: *mut c_void,
    name: String,
}

const OPEN_MPI: [&str; 2] = ["libmpi.so.40", "libmpi.so.80"];
const MPICH: [&str; 3] = ["libmpich.so.12", "libmpi.so.12", "libmpich.so"];

/// The names under which the library of a launcher is found, by what it has put into the environment.
pub(super) fn of_launcher() -> Vec<String> {
    let set = |name: &str| std::env::var_os(name).is_some();
    let all: Vec<&str> = match set("OMPI_COMM_WORLD_SIZE") || !set("PMI_SIZE") {
        true => OPEN_MPI.into_iter().chain(MPICH).collect(),
        false => MPICH.into_iter().chain(OPEN_MPI).collect(),
    };
    named().unwrap_or_else(|| all.into_iter().chain(["libmpi.so"]).map(str::to_owned).collect())
}

/// The names under which MPICH is found.
pub(super) fn mpich() -> Vec<String> {
    named().unwrap_or_else(|| MPICH.map(str::to_owned).to_vec())
}

/// The library that the user names.
fn named() -> Option<Vec<String>> {
    Some(vec![std::env::var(super::LIBRARY_VARIABLE).ok()?])
}

impl Library {
    /// The first of these that can be loaded.
    pub(crate) fn open(names: &[String]) -> Result<Library, MpiError> {
        let mut why = Vec::new();
        for name in names {
            let Ok(path) = CString::new(name.as_str()) else { continue };
            // SAFETY: the name is a string; what loading runs is the library's own. Its parts, which it loads itself, look
            // for its symbols, so those are made global.
            let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
            if !handle.is_null() {
                return Ok(Library { handle, name: name.clone() });
            }
            // SAFETY: after a failure this is a string, until the next call.
            let error = unsafe { libc::dlerror() };
            if !error.is_null() {
                // SAFETY: not null, so a string.
                why.push(unsafe { CStr::from_ptr(error) }.to_string_lossy().into_owned());
            }
        }
        let tried = names.join(", ");
        let mut message = format!("no MPI library can be loaded (tried {tried})");
        if let Some(why) = why.first() {
            message.push_str(&format!(": {why}"));
        }
        Err(MpiError(message))
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The address of a symbol.
    pub(crate) fn symbol(&self, name: &str) -> Result<*mut c_void, MpiError> {
        let absent = || MpiError(format!("{} has no {name}", self.name));
        let text = CString::new(name).map_err(|_| absent())?;
        // SAFETY: the handle is that of a loaded library.
        let address = unsafe { libc::dlsym(self.handle, text.as_ptr()) };
        if address.is_null() { Err(absent()) } else { Ok(address) }
    }

    /// A function.
    ///
    /// # Safety
    /// `F` must be the type of a pointer to the function of that name.
    pub(crate) unsafe fn function<F: Copy>(&self, name: &str) -> Result<F, MpiError> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        let address = self.symbol(name)?;
        // SAFETY: both are pointers, and the caller promises that it is one to such a function.
        Ok(unsafe { std::mem::transmute_copy::<*mut c_void, F>(&address) })
    }

    /// What the library says that it is; may be asked before MPI is initialised, and takes no handle.
    pub(crate) fn version(&self) -> Result<String, MpiError> {
        type GetVersion = unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int;
        // SAFETY: the function has this type in every MPI since 3.0.
        let get: GetVersion = unsafe { self.function("MPI_Get_library_version")? };
        // MPI_MAX_LIBRARY_VERSION_STRING is 8192 at most.
        let (mut text, mut length) = (vec![0u8; 16 << 10], 0);
        // SAFETY: the buffer is longer than any version.
        if unsafe { get(text.as_mut_ptr().cast(), &raw mut length) } != 0 {
            return Err(MpiError(format!("{} does not say which MPI it is", self.name)));
        }
        text.truncate(usize::try_from(length).unwrap_or(0));
        let text = String::from_utf8_lossy(&text).trim_end_matches('\0').trim().to_owned();
        Ok(text.lines().next().unwrap_or_default().to_owned())
    }
}
