//! Every module of the corpus through a proto and back: the text must be the same.
#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

use hloom_formats::hlo_text::{self, PrintOptions, print};
use hloom_formats::proto::{self, Container};
use hloom_ir::module::{Module, ModuleConfig};
use std::path::{Path, PathBuf};

/// The folder of shared data: named by the environment, or beside one of the folders above.
fn shared() -> Option<PathBuf> {
    let beside = || {
        let above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
        above.map(|a| a.join("shared")).find(|s| s.join("corpus").is_dir())
    };
    std::env::var_os("HLOOM_SHARED").map(PathBuf::from).or_else(beside)
}

fn files(folder: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for path in entries.flatten().map(|e| e.path()) {
        if path.is_dir() {
            files(&path, ending, found);
        } else if path.to_string_lossy().ends_with(ending) {
            found.push(path);
        }
    }
}

fn text(module: &Module) -> String {
    print(module, &PrintOptions::default())
}

/// Gives a module what a proto has no fields for: XLA keeps it in a configuration beside the module.
fn complete(read: &mut ModuleConfig, original: &ModuleConfig) {
    read.replica_count = original.replica_count;
    read.num_partitions = original.num_partitions;
    read.alias_passthrough_params = original.alias_passthrough_params;
    read.allow_spmd_sharding_propagation_to_output = original.allow_spmd_sharding_propagation_to_output.clone();
    read.allow_spmd_sharding_propagation_to_parameters = original.allow_spmd_sharding_propagation_to_parameters.clone();
}

#[test]
fn text_survives_a_proto() {
    let Some(shared) = shared() else {
        return eprintln!("skipped: there is no shared folder with a corpus");
    };
    let mut paths = Vec::new();
    files(&shared.join("corpus/hlo"), ".hlo", &mut paths);
    let mut differing = Vec::new();
    for path in &paths {
        let source = std::fs::read(path).expect("the corpus can be read");
        // What the text reader makes of it is for the text reader's tests.
        let Some(mut module) = hlo_text::read(&source).module else { continue };
        for id in module.computations().iter().flat_map(|&c| module[c].instructions().to_vec()).collect::<Vec<_>>() {
            // Protos do not tell an empty configuration from none.
            let config = &mut module.instruction_mut(id).common.backend_config;
            *config = config.take().filter(|c| !c.is_empty());
        }
        let bytes = proto::write(&module, Container::Proto).expect("it can be written");
        let mut back = proto::read(&bytes).unwrap_or_else(|d| panic!("{}: {}", path.display(), d[0]));
        complete(&mut back.config, &module.config);
        if text(&back) != text(&module) {
            differing.push(path.display().to_string());
        }
    }
    assert!(differing.is_empty(), "{} of {} differ: {differing:#?}", differing.len(), paths.len());
}

#[test]
fn dumped_protos_are_read() {
    let Some(shared) = shared() else {
        return eprintln!("skipped: there is no shared folder with a corpus");
    };
    let mut paths = Vec::new();
    files(&shared.join("corpus"), ".hlo.pb", &mut paths);
    for path in &paths {
        let bytes = std::fs::read(path).expect("the corpus can be read");
        assert!(proto::detect(&bytes), "{}", path.display());
        let module = proto::read(&bytes).unwrap_or_else(|d| panic!("{}: {}", path.display(), d[0]));
        let again = proto::write(&module, Container::Module).expect("it can be written");
        let back = proto::read(&again).unwrap_or_else(|d| panic!("{}: {}", path.display(), d[0]));
        assert_eq!(text(&module), text(&back), "{}", path.display());
        // Written twice it is the same bytes: nothing is lost or gathers.
        assert_eq!(proto::write(&back, Container::Module).expect("it can be written"), again, "{}", path.display());
    }
}
