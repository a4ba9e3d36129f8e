//! The libraries themselves: this test starts itself under every launcher that is there, and without one.

#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

use hloom_comm::mpi::{self, KeyValueStore};
use hloom_comm::{
    ArrayGeometry, Collective, CollectiveKind, CollectiveRequest, GroupSize, ParticipantMemory, Purpose, Reducer,
    RendezvousKey, Serial, World, launched,
};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct Sum;

impl Reducer for Sum {
    fn element_bytes(&self) -> usize {
        4
    }
    fn is_exact(&self) -> bool {
        false
    }
    unsafe fn reduce(&self, from: &[usize], to: &[usize], count: usize) {
        for n in 0..count {
            // SAFETY: so many elements are there, as the caller promises.
            let sum = from.iter().map(|&a| unsafe { (a as *const f32).add(n).read() }).reduce(|a, b| a + b);
            // SAFETY: so many elements are there, as the caller promises.
            to.iter().for_each(|&a| unsafe { (a as *mut f32).add(n).write(sum.unwrap_or(0.0)) });
        }
    }
}

/// What a rank does: sums and gathers of all lengths with the others.
fn rank(world: &World) {
    let (rank, size) = (world.rank(), world.size());
    let group: Vec<usize> = (0..size).collect();
    let communicator = world.communicator(0, world.owners(size), LIMIT);
    for length in [1, 1000, 100_000, 3_000_000] {
        for gathers in [false, true] {
            let input: Vec<f32> = (0..length).map(|n| (n % 1000) as f32 + rank as f32 / 3.0).collect();
            let mut output = vec![0f32; if gathers { length * size } else { length }];
            let kind = if gathers { CollectiveKind::AllGather } else { CollectiveKind::AllReduce(vec![Box::new(Sum)]) };
            let geometry = ArrayGeometry { bytes: length * 4, rows: 1, group: GroupSize::Any };
            let collective = Collective { kind, arrays: vec![geometry] };
            let request = CollectiveRequest {
                key: RendezvousKey::Channel(1),
                participants: &group,
                purpose: &Purpose::new("test".into(), "test".into(), collective),
                memory: ParticipantMemory {
                    operands: [input.as_ptr() as usize][..].into(),
                    results: [output.as_mut_ptr() as usize][..].into(),
                },
                parallel: &Serial,
                waits: length < 100_000,
            };
            // SAFETY: the arrays are as long as the collective says, and kept until the wait has ended.
            let arrival = unsafe { communicator.start(rank, &request) }.expect("it begins");
            communicator.wait(rank, arrival).expect("it ends");
            let of = |r: usize, n: usize| (n % 1000) as f32 + r as f32 / 3.0;
            let expected = |n: usize| match gathers {
                true => of(n / length, n % length),
                false => (0..size).map(|r| of(r, n)).reduce(|a, b| a + b).unwrap_or(0.0),
            };
            let wrong = (0..output.len()).find(|&n| output[n].to_bits() != expected(n).to_bits());
            assert_eq!(wrong, None, "{length} elements on rank {rank}");
        }
    }
    communicator.finish(rank);
    drop(communicator);
    let said = world.exchange(5, &[rank as u8; 100_000], LIMIT).expect("all say something");
    assert!(said.iter().enumerate().all(|(r, s)| s == &vec![r as u8; 100_000]));
}

/// A rank, when this test has started itself.
#[test]
#[ignore = "runs under a launcher"]
fn child() {
    if launched().is_some() {
        let world = World::new(mpi::init().expect("MPI begins"), None);
        rank(&world);
        world.finalize().expect("MPI ends");
        return;
    }
    let number = |name: &str| std::env::var(name).ok().and_then(|n| n.parse().ok());
    if let (Some(own), Some(size)) = (number("TEST_RANK"), number("TEST_SIZE")) {
        let folder = std::env::var("TEST_FOLDER").expect("there is a folder");
        let store = Arc::new(FolderStore(folder.into()));
        let world = World::new(mpi::init_by_store(store, own, size, LIMIT).expect("MPI begins"), None);
        assert_eq!((world.rank(), world.size()), (own, size));
        rank(&world);
        // Nobody ends MPI here: what was sent must be out before the process is gone.
        world.flush(LIMIT);
    }
}

/// A store of files.
struct FolderStore(std::path::PathBuf);

impl FolderStore {
    fn path(&self, key: &str) -> std::path::PathBuf {
        self.0.join(key.replace('/', "_"))
    }
}

impl KeyValueStore for FolderStore {
    fn put(&self, key: &str, value: &str) -> Result<(), String> {
        let new = self.path(&format!("{key}.new.{}", std::process::id()));
        std::fs::write(&new, value).map_err(|e| e.to_string())?;
        std::fs::rename(new, self.path(key)).map_err(|e| e.to_string())
    }
    fn get(&self, key: &str, time_limit: Duration) -> Result<String, String> {
        let begun = Instant::now();
        loop {
            match std::fs::read_to_string(self.path(key)) {
                Ok(value) => return Ok(value),
                Err(_) if begun.elapsed() < time_limit => std::thread::sleep(Duration::from_millis(5)),
                Err(error) => return Err(error.to_string()),
            }
        }
    }
}

const CHILD: [&str; 4] = ["--exact", "child", "--ignored", "--nocapture"];

#[test]
fn every_launcher_brings_its_ranks_together() {
    let is_there = |name: &&str| Command::new(name).arg("--version").output().is_ok_and(|o| o.status.success());
    let launchers: Vec<_> = ["mpirun.openmpi", "mpirun.mpich"].into_iter().filter(is_there).collect();
    if launchers.is_empty() {
        eprintln!("skipped: there is no mpirun here");
    }
    for launcher in launchers {
        let ended = Command::new(launcher)
            .args(["-n", "3"])
            .arg(std::env::current_exe().expect("this test is a file"))
            .args(CHILD)
            .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
            .env("OMPI_MCA_rmaps_base_oversubscribe", "1")
            .env("OMPI_MCA_hwloc_base_binding_policy", "none")
            .output()
            .expect("the launcher starts");
        let said = String::from_utf8_lossy(&ended.stdout).into_owned() + &String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success(), "{launcher}: {said}");
    }
}

#[test]
fn mpich_needs_no_launcher() {
    if Command::new("mpirun.mpich").arg("--version").output().is_err() {
        eprintln!("skipped: there is no MPICH here");
        return;
    }
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("store-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for the test");
    let start = |rank: usize| {
        Command::new(std::env::current_exe().expect("this test is a file"))
            .args(CHILD)
            .env("TEST_RANK", rank.to_string())
            .env("TEST_SIZE", "3")
            .env("TEST_FOLDER", &folder)
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .expect("the test starts itself")
    };
    let children: Vec<_> = (0..3).map(start).collect();
    for child in children {
        let ended = child.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&ended.stdout).into_owned() + &String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success(), "{said}");
    }
    let _ = std::fs::remove_dir_all(folder);
}
