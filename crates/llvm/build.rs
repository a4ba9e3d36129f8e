//! Finds LLVM 19 and links it: the shared library in development, where linking must be quick; only the needed parts,
//! statically, in release, so that the command runs on machines without LLVM.

use std::path::{Path, PathBuf};
use std::process::Command;

/// What a kernel needs of LLVM: code generators of the machines, and what they stand on.
const COMPONENTS: [&str; 5] = ["x86", "aarch64", "nvptx", "executionengine", "analysis"];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=LLVM_SYS_191_PREFIX");
    let Some(config) = find_llvm_config() else {
        println!("cargo:error=LLVM 19 is missing: install llvm-19-dev, or point LLVM_SYS_191_PREFIX at it");
        return;
    };
    let ask = |arguments: &[&str]| output(&config, arguments).unwrap_or_default();
    println!("cargo:rustc-link-search=native={}", ask(&["--libdir"]));
    let wants_static = std::env::var("PROFILE").is_ok_and(|p| p == "release");
    let mut query = vec!["--link-static", "--libs"];
    query.extend(COMPONENTS);
    let static_libraries = ask(&query);
    let first = static_libraries.split_whitespace().next().and_then(|l| l.strip_prefix("-l"));
    let has_static = first.is_some_and(|l| Path::new(&ask(&["--libdir"])).join(format!("lib{l}.a")).exists());
    if wants_static && has_static {
        // `-bundle`: the archives stay where they are until the command is linked.
        for library in static_libraries.split_whitespace().filter_map(|l| l.strip_prefix("-l")) {
            println!("cargo:rustc-link-lib=static:-bundle={library}");
        }
        for library in ["z", "zstd", "stdc++"] {
            link_system(library);
        }
    } else {
        println!("cargo:rustc-link-lib=dylib=LLVM-19");
    }
}

/// Links a system library from its archive where there is one.
fn link_system(name: &str) {
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let archive = format!("lib{name}.a");
    match output(Path::new(&compiler), &[&format!("-print-file-name={archive}")]).map(PathBuf::from) {
        Some(path) if path.is_absolute() && path.exists() => {
            if let Some(folder) = path.parent() {
                println!("cargo:rustc-link-search=native={}", folder.display());
            }
            println!("cargo:rustc-link-lib=static:-bundle={name}");
        }
        _ => println!("cargo:rustc-link-lib=dylib={name}"),
    }
}

fn find_llvm_config() -> Option<PathBuf> {
    let prefix = std::env::var_os("LLVM_SYS_191_PREFIX").map(|p| PathBuf::from(p).join("bin/llvm-config"));
    let candidates = ["llvm-config-19", "/usr/lib/llvm-19/bin/llvm-config", "llvm-config"].map(PathBuf::from);
    let is_19 = |path: &PathBuf| output(path, &["--version"]).is_some_and(|v| v.starts_with("19."));
    prefix.into_iter().chain(candidates).find(is_19)
}

fn output(program: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
