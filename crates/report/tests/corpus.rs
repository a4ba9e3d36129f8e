//! Real modules under other names and in another order: nothing differs. From a folder `shared` beside the checkout, or
//! in `HLOOM_SHARED`.
#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

use hloom_formats::hlo_text;
use hloom_ir::module::Module;
use hloom_ir::order::PostOrder;
use hloom_ir::verify::{VerifiedModule, VerifyOptions, verify};
use hloom_report::diff::{diff, to_text};
use std::path::{Path, PathBuf};

/// Of the modules in the corpus, one in so many is tried.
fn one_in() -> usize {
    std::env::var("HLOOM_ONE_IN").ok().and_then(|n| n.parse().ok()).unwrap_or(4).max(1)
}

fn corpus() -> Vec<PathBuf> {
    let named = std::env::var_os("HLOOM_SHARED").map(PathBuf::from);
    let shared = named.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"));
    let mut paths = Vec::new();
    for folder in ["corpus/hlo", "corpus/bench", "seeds"] {
        let Ok(entries) = std::fs::read_dir(shared.join(folder)) else { continue };
        paths.extend(entries.filter_map(|e| Some(e.ok()?.path())).filter(|p| p.is_file()));
    }
    if paths.is_empty() {
        eprintln!("skipped: there is no folder `shared` beside the checkout, nor in HLOOM_SHARED");
    }
    paths.sort();
    paths.into_iter().step_by(one_in()).collect()
}

fn verified(module: Module) -> Option<VerifiedModule> {
    verify(module, &VerifyOptions::default()).ok()
}

/// The same under other names, in post-order.
fn disguised(module: &Module) -> Module {
    let mut other = module.clone();
    for c in module.computations().to_vec() {
        let order = PostOrder::new(module).instructions(c);
        other.reorder(c, order).expect("the same instructions");
        for &i in module[c].instructions() {
            other.rename(i, &format!("other.{}", module[i].name()));
        }
    }
    other
}

#[test]
fn real_modules_under_other_names_are_equal() {
    let mut tried = 0;
    let paths = corpus();
    for path in &paths {
        let Ok(bytes) = std::fs::read(path) else { continue };
        let Some(a) = hlo_text::read(&bytes).module.and_then(verified) else { continue };
        let Some(b) = verified(disguised(a.module())) else { continue };
        let found = diff(&a, &b);
        assert!(found.is_equal(), "{}\n{}", path.display(), to_text(&found));
        tried += 1;
    }
    assert!(paths.is_empty() || tried > 0, "none of the modules could be read");
}
