//! The driver and NVIDIA's libraries, opened when they are first needed.
//!
//! Nothing of CUDA is there when hloom is built. A library is looked for by its name where the system's loader looks, then
//! in the folders of Python packages (where JAX and PyTorch bring them) and of the toolkit. One that is absent is named in
//! the error, with the folders; programs that do not need it run without it.

use hloom_ir::diagnostic::{Blame, codes};
use hloom_value::ExecutionError;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// An opened library.
#[derive(Debug)]
pub(crate) struct Library {
    handle: libloading::Library,
    /// What it is, for people.
    name: &'static str,
    /// The file, or the name that the loader found it by.
    pub(crate) path: String,
}

impl Library {
    /// Opens the first of these files that is there.
    pub(crate) fn open(name: &'static str, files: &[&str]) -> Result<Library, ExecutionError> {
        let folders = folders();
        let by_loader = files.iter().map(PathBuf::from);
        let in_folders = folders.iter().flat_map(|folder| files.iter().map(move |f| folder.join(f)));
        let mut reason = None;
        for path in by_loader.chain(in_folders.filter(|p| p.exists())) {
            // SAFETY: these are NVIDIA's libraries by name; what they do when loaded is to set up their own tables.
            match unsafe { libloading::Library::new(&path) } {
                Ok(handle) => return Ok(Library { handle, name, path: path.display().to_string() }),
                Err(error) if path.is_absolute() => reason = Some(error.to_string()),
                Err(_) => {}
            }
        }
        let message = format!("{name} is not there: none of {} could be opened", files.join(", "));
        let looked: Vec<String> = folders.iter().map(|f| f.display().to_string()).collect();
        let error = ExecutionError::new(&codes::eval::LIBRARY_MISSING, message).blame(Blame::Machine).note(format!(
            "looked where the system's loader looks{}",
            if looked.is_empty() { String::new() } else { format!(", and in {}", looked.join(", ")) }
        ));
        Err(match reason {
            Some(reason) => error.note(reason),
            None => error.help("name a folder in HLOOM_CUDA_PATH, or install the library (as JAX's CUDA package does)"),
        })
    }

    /// A function of the library, by the first of its names that there is.
    ///
    /// # Safety
    /// `F` must be the type of that function.
    pub(crate) unsafe fn function<F: Copy>(&self, names: &[&str]) -> Result<F, ExecutionError> {
        for name in names {
            // SAFETY: the caller's promise. The library stays open for as long as the process lives (see `functions!`).
            if let Ok(symbol) = unsafe { self.handle.get::<F>(name.as_bytes()) } {
                return Ok(*symbol);
            }
        }
        let (library, path) = (self.name, &self.path);
        let message = format!("{library} is too old or too new: {path} has no {}", names.join(" or "));
        Err(ExecutionError::new(&codes::eval::LIBRARY_MISSING, message).blame(Blame::Machine))
    }
}

/// Folders beside those of the system's loader, in order, as far as they are there.
fn folders() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    if let Some(paths) = std::env::var_os("HLOOM_CUDA_PATH") {
        found.extend(std::env::split_paths(&paths));
    }
    for site in site_packages() {
        let packages = subfolders(&site.join("nvidia"));
        found.extend(packages.into_iter().flat_map(|p| [p.join("lib"), p.join("lib64")]));
    }
    let roots = ["CUDA_HOME", "CUDA_PATH"].map(|v| std::env::var_os(v).map(PathBuf::from));
    let roots = roots.into_iter().flatten().chain([PathBuf::from("/usr/local/cuda")]);
    found.extend(roots.flat_map(|r| [r.join("lib64"), r.join("targets/x86_64-linux/lib")]));
    found.extend(["/usr/local/nvidia/lib64", "/usr/lib/wsl/lib", "/usr/lib/x86_64-linux-gnu"].map(PathBuf::from));
    let mut seen = BTreeSet::new();
    found.retain(|f| f.is_dir() && seen.insert(f.clone()));
    found
}

/// Where Python packages are: of the environment that is active, of the Python on the path, and where this very code is
/// installed as one.
fn site_packages() -> Vec<PathBuf> {
    let mut roots: Vec<PathBuf> = Vec::new();
    roots.extend(["VIRTUAL_ENV", "CONDA_PREFIX"].iter().filter_map(std::env::var_os).map(PathBuf::from));
    for folder in std::env::var_os("PATH").iter().flat_map(std::env::split_paths) {
        if folder.join("python3").exists() {
            roots.extend(folder.parent().map(Path::to_path_buf));
        }
    }
    let lib = |root: &PathBuf| {
        let versions = subfolders(&root.join("lib")).into_iter();
        let versions = versions.filter(|v| v.file_name().is_some_and(|n| n.to_string_lossy().starts_with("python3")));
        versions.flat_map(|v| [v.join("site-packages"), v.join("dist-packages")]).collect::<Vec<_>>()
    };
    let mut sites: Vec<PathBuf> = own_site().into_iter().collect();
    sites.extend(roots.iter().flat_map(lib));
    sites
}

/// The `site-packages` that the file is in whose code this is.
fn own_site() -> Option<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let file =
        maps.lines().find_map(|line| line.split_whitespace().nth(5).filter(|f| f.ends_with("libhloom_pjrt.so")))?;
    Path::new(file).ancestors().find(|f| f.ends_with("site-packages")).map(Path::to_path_buf)
}

fn subfolders(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = entries.map(|e| e.path()).filter(|p| p.is_dir()).collect();
    folders.sort();
    folders
}

/// A table of functions of a library, which stays open.
macro_rules! functions {
    ($(#[$doc:meta])* $table:ident of $library:literal in [$($file:literal),*] {
        $($field:ident = $($symbol:literal)|+ ($($argument:ty),* $(,)?);)*
    }) => {
        $(#[$doc])*
        #[allow(missing_docs, reason = "each is the function of its name")]
        pub(crate) struct $table {
            $(pub(crate) $field: unsafe extern "C" fn($($argument),*) -> i32,)*
            /// Where it was found.
            pub(crate) path: String,
        }

        impl $table {
            /// Opens the library, which is never closed: what it made may outlive whoever asked for it.
            pub(crate) fn open() -> Result<$table, hloom_value::ExecutionError> {
                let library = $crate::library::Library::open($library, &[$($file),*])?;
                let table = $table {
                    // SAFETY: the types are those of the library's documentation.
                    $($field: unsafe { library.function(&[$($symbol),+])? },)*
                    path: library.path.clone(),
                };
                std::mem::forget(library);
                Ok(table)
            }
        }

        impl std::fmt::Debug for $table {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($table)).field("path", &self.path).finish_non_exhaustive()
            }
        }
    };
}
pub(crate) use functions;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_absent_is_named_with_where_it_was_looked_for() {
        let error = Library::open("a library", &["libno_such_thing.so.1"]).unwrap_err().into_diagnostic();
        assert_eq!(error.blame, Blame::Machine);
        assert!(error.message.contains("libno_such_thing.so.1"), "{}", error.message);
        assert!(error.notes.iter().any(|n| n.message.contains("the system's loader")), "{error:?}");
    }
}
