//! A process may end soon after it has made a client.

use hloom_cpu::{CpuClient, CpuClientOptions};
use std::process::{Command, exit};
use std::time::Duration;

/// Told to the processes that this test starts of itself: after how many microseconds to end.
const END_AFTER: &str = "HLOOM_TEST_END_AFTER";

#[test]
fn a_process_ends_well_that_keeps_its_client() {
    if let Ok(after) = std::env::var(END_AFTER) {
        std::mem::forget(CpuClient::new(&CpuClientOptions::default()).expect("a client"));
        std::thread::sleep(Duration::from_micros(after.parse().expect("a number")));
        exit(0);
    }
    let this = std::env::current_exe().expect("it has a path");
    for after in (0..20).map(|n| n * 500) {
        let ended = Command::new(&this).env(END_AFTER, after.to_string()).output().expect("it starts");
        assert!(ended.status.success(), "after {after} µs: {}", ended.status);
    }
}
