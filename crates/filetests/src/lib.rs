//! Tests that are files: a small HLO text says in its comments what is tested and what must come out.
//!
//! The runner (`tests/filetests.rs`) makes one test of every `.hlo` file under `tests/`; `cargo test -p hloom-filetests
//! -- layouts` runs those whose path contains `layouts`. With `HLOOM_BLESS=1` in the environment the expectations are
//! rewritten to what came out: read the change before committing it.
//!
//! # The format of a test
//!
//! ```text
//! // test verify
//! // A few words on what is shown here.
//! HloModule m
//!
//! ENTRY e {
//!   x = f32[4] parameter(0)
//!   ROOT r = f32[5] negate(x)
//! //         ^ error H0302: the result is f32[4]
//! }
//! ```
//!
//! The first line is `// test` and one or more of these, with spaces between:
//!
//! | word | what is done |
//! |---|---|
//! | `read` | the text is read |
//! | `verify` | it is read and verified |
//! | `print` | it is read and printed; the print, read again, prints the same |
//! | `elide` | as `print`, with large constants elided |
//! | `roundtrip` | as `print`, but nothing is said about how the print looks |
//! | `proto` | it is read, written as a proto, read from that and printed: as it is printed directly |
//! | `run` | it is read, verified and evaluated |
//! | `opt` | it is read, verified, rewritten by the passes that a line `// passes a,b` names, and printed; with `run`, the rewritten program must give the same results |
//! | `emit` | it is read, verified, compiled for the CPU, and printed in the form that a line `// emit thunks` names, one of those of `hloom compile --emit` |
//!
//! **Diagnostics.** Every error and warning must be expected, and every expected one must come. An expectation is a
//! comment line directly beneath the line at fault, with a `^` beneath the column at which the fault begins, then
//! `error` or `warning`, the code, and after a colon some words of the message (none are needed). Columns 1 and 2, which
//! are taken by `//`, are written `// @1 error …`. A diagnostic without a place is expected by a line
//! `// error H0123: words` at the top of the file. Lines with expectations are blanked before the text is read, so that
//! all positions stay.
//!
//! **Output** of `print`, `elide`, `opt` and `emit` is expected in one of three ways: `// expect: itself` at the top means that the text
//! is printed as it stands there; a line `// expect:` after the text is followed by the print, every line behind `// `;
//! without either there is a file beside, named `.expected` instead of `.hlo`.
//!
//! Of a form that is not the same on every machine (`loops`, `llvm`, `asm`) single lines are expected instead: `// has: words`
//! at the top, as often as needed, for lines that contain those words, in this order.
//!
//! **Inputs and results** of `run` stand at the top of the file, as a shape and a literal of HLO text:
//!
//! ```text
//! // test run
//! // input p0 = f32[2,2] {{1, 2}, {3, 4}}
//! // input d1.p0 = f32[2,2] {{5, 6}, {7, 8}}
//! // output o0 = f32[2] {4, 6}
//! // output d1.o0 = f32[2] {12, 14}
//! ```
//!
//! `p0` is parameter 0 on every device, `d1.p0` that of device 1; `p0.1` is a leaf of a tuple. `o0` is the first leaf of
//! the result on every device, `d1.o0` that of device 1. Integers must be equal; floats may differ by 1e-12 (f64), 1e-6
//! (f32), 1e-3 (f16) or 4e-3 (bf16) of their value, or of one if they are smaller; a NaN must be a NaN. Further lines:
//! `devices 4`, `tolerance 1e-3`, `max-steps 100`, `time-limit 2` (seconds), `fill-constants`, and `infeed d0 = …`,
//! `outfeed d0 = …` in the order of the values. An error of the run is expected like any other, at its instruction.
//! What is expected of a run is worked out by other means: `HLOOM_BLESS` leaves it alone.

pub mod bless;
pub mod execution;
pub mod file;
pub mod run;

use std::path::{Path, PathBuf};

/// All `.hlo` files under `root`, in order of their paths.
pub fn discover(root: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "hlo") {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}
