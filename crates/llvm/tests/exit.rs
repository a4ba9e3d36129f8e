//! A process may end while one of its threads compiles.

use hloom_llvm::{Effort, prewarm};
use std::process::{Command, exit};
use std::time::Duration;

/// Told to the processes that this test starts of itself: after how many microseconds to end.
const END_AFTER: &str = "HLOOM_TEST_END_AFTER";

#[test]
fn a_process_ends_well_while_it_compiles() {
    if let Ok(after) = std::env::var(END_AFTER) {
        // The first use is to be over.
        prewarm(Effort::Full);
        std::thread::spawn(|| {
            loop {
                prewarm(Effort::Full);
            }
        });
        std::thread::sleep(Duration::from_micros(after.parse().expect("a number")));
        exit(0);
    }
    let this = std::env::current_exe().expect("it has a path");
    for after in (0..20).map(|n| n * 500) {
        let ended = Command::new(&this).env(END_AFTER, after.to_string()).output().expect("it starts");
        assert!(ended.status.success(), "after {after} µs: {}", ended.status);
    }
}
