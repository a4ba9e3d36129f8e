//! MPICH without a launcher: its processes find each other through a store of keys and values.
//!
//! A process of MPICH asks whoever started it, over a socket and in lines of text (PMI-1), who it is and what the others
//! have published about themselves. Here a thread of the process itself answers, out of a store that all processes share
//! (JAX has one for every distributed job). Only addresses go through the store; data travel by MPI.

use super::library::MpiError;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

/// Keys and values that all processes of a job share.
pub trait KeyValueStore: Send + Sync {
    /// Publishes a value.
    fn put(&self, key: &str, value: &str) -> Result<(), String>;

    /// The value that some process has published, or publishes within the time limit.
    fn get(&self, key: &str, time_limit: Duration) -> Result<String, String>;
}

/// What tells MPICH where to ask.
const VARIABLES: [&std::ffi::CStr; 3] = [c"PMI_FD", c"PMI_RANK", c"PMI_SIZE"];

/// Answers for the process manager of process `rank` of `size` as long as `initialize` runs, and after it.
pub(super) fn served<T>(
    store: Arc<dyn KeyValueStore>,
    rank: usize,
    size: usize,
    time_limit: Duration,
    initialize: impl FnOnce() -> Result<T, MpiError>,
) -> Result<T, MpiError> {
    let cannot = |e: std::io::Error| MpiError(format!("no socket for MPI: {e}"));
    let (ours, theirs) = UnixStream::pair().map_err(cannot)?;
    // The library uses its end for as long as the process lives.
    let fd = theirs.as_raw_fd();
    let _ = theirs.into_raw_fd();
    let mut manager = Manager { store, rank, size, time_limit, barriers: 0 };
    let serve = move || manager.serve(ours);
    std::thread::Builder::new().name("process manager".into()).spawn(serve).map_err(cannot)?;
    for (name, value) in VARIABLES.iter().zip([fd.to_string(), rank.to_string(), size.to_string()]) {
        let value = std::ffi::CString::new(value).map_err(|_| MpiError("a number has a zero in it".into()))?;
        // SAFETY: both are strings. Other threads that read the environment just now are the library's business, which
        // knows no other way to be told.
        unsafe { libc::setenv(name.as_ptr(), value.as_ptr(), 1) };
    }
    let result = initialize();
    for name in VARIABLES {
        // SAFETY: a string. Processes that this one starts must not take themselves for this rank.
        unsafe { libc::unsetenv(name.as_ptr()) };
    }
    result
}

struct Manager {
    store: Arc<dyn KeyValueStore>,
    rank: usize,
    size: usize,
    time_limit: Duration,
    barriers: u64,
}

impl Manager {
    fn serve(&mut self, socket: UnixStream) {
        let Ok(mut answers) = socket.try_clone() else { return };
        for line in BufReader::new(socket).lines() {
            let Ok(line) = line else { return };
            let answer = self.answer(&line);
            if answers.write_all(format!("{answer}\n").as_bytes()).is_err() {
                return;
            }
        }
    }

    /// The answer to a line.
    fn answer(&mut self, line: &str) -> String {
        let field = |name: &str| {
            let fields = line.split(' ').filter_map(|f| f.split_once('='));
            fields.into_iter().find(|(n, _)| *n == name).map_or("", |(_, value)| value)
        };
        match field("cmd") {
            "init" => "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0".into(),
            "get_maxes" => "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024 rc=0".into(),
            "get_appnum" => "cmd=appnum appnum=0 rc=0".into(),
            "get_my_kvsname" => "cmd=my_kvsname kvsname=hloom rc=0".into(),
            "get_universe_size" => format!("cmd=universe_size size={} rc=0", self.size),
            "put" => match self.store.put(&format!("pmi/{}", field("key")), field("value")) {
                Ok(()) => "cmd=put_result rc=0 msg=success".into(),
                Err(_) => "cmd=put_result rc=-1 msg=failed".into(),
            },
            // What a process manager itself would publish is not there.
            "get" if field("key").starts_with("PMI_") => "cmd=get_result rc=-1 msg=key_not_found value=unknown".into(),
            "get" => match self.store.get(&format!("pmi/{}", field("key")), self.time_limit) {
                Ok(value) => format!("cmd=get_result rc=0 msg=success value={value}"),
                Err(_) => "cmd=get_result rc=-1 msg=key_not_found value=unknown".into(),
            },
            "barrier_in" => {
                self.barrier();
                "cmd=barrier_out rc=0".into()
            }
            "finalize" => "cmd=finalize_ack rc=0".into(),
            other => format!("cmd={other} rc=-1 msg=unknown"),
        }
    }

    /// Waits until all processes have come here. Who does not come within the time limit is not waited for: what it should
    /// have published is missed then.
    fn barrier(&mut self) {
        let number = self.barriers;
        self.barriers += 1;
        let key = |rank: usize| format!("pmi/barrier/{number}/{rank}");
        if self.store.put(&key(self.rank), "here").is_err() {
            return;
        }
        for rank in (0..self.size).filter(|&r| r != self.rank) {
            if self.store.get(&key(rank), self.time_limit).is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;
    use std::sync::Mutex;
    use std::time::Instant;

    #[derive(Default)]
    struct TestStore(Mutex<HashMap<String, String>>);

    impl KeyValueStore for TestStore {
        fn put(&self, key: &str, value: &str) -> Result<(), String> {
            self.0.lock().unwrap().insert(key.to_owned(), value.to_owned());
            Ok(())
        }
        fn get(&self, key: &str, time_limit: Duration) -> Result<String, String> {
            let begun = Instant::now();
            loop {
                if let Some(value) = self.0.lock().unwrap().get(key) {
                    return Ok(value.clone());
                }
                if begun.elapsed() > time_limit {
                    return Err("not found".into());
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    #[test]
    fn processes_find_what_others_have_published() {
        let store: Arc<dyn KeyValueStore> = Arc::new(TestStore::default());
        let answers = |rank: usize| {
            let store = store.clone();
            std::thread::spawn(move || {
                let time_limit = Duration::from_secs(20);
                let mut manager = Manager { store, rank, size: 2, time_limit, barriers: 0 };
                assert!(manager.answer("cmd=init pmi_version=1 pmi_subversion=1").starts_with("cmd=response_to_init"));
                let put = manager.answer(&format!("cmd=put kvsname=hloom key=card-{rank} value=host#{rank}=x"));
                assert_eq!(put, "cmd=put_result rc=0 msg=success");
                assert_eq!(manager.answer("cmd=barrier_in"), "cmd=barrier_out rc=0");
                manager.answer(&format!("cmd=get kvsname=hloom key=card-{}", 1 - rank))
            })
        };
        let threads = [answers(0), answers(1)];
        let got = threads.map(|t| t.join().unwrap());
        let expected = |rank: usize| format!("cmd=get_result rc=0 msg=success value=host#{rank}=x");
        assert_eq!(got, [expected(1), expected(0)]);
    }

    #[test]
    fn what_is_not_there_is_said_so() {
        let store = Arc::new(TestStore::default());
        let mut manager = Manager { store, rank: 0, size: 1, time_limit: Duration::ZERO, barriers: 0 };
        assert!(manager.answer("cmd=get kvsname=hloom key=PMI_process_mapping").contains("rc=-1"));
        assert!(manager.answer("cmd=spawn").contains("rc=-1"));
        assert!(manager.answer("no command at all").contains("rc=-1"));
    }
}
