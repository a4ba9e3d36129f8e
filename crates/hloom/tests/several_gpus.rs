//! `hloom run --engine cuda` on several GPUs, with stubs of the driver and of NCCL: nothing here needs a GPU.
//!
//! What is tested is what lies between: which GPU a device gets, how devices meet, what is given to NCCL, and what is said
//! when something is missing or does not end. Where there is no C compiler, or no mpirun, the tests say so and pass.

#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

use hloom::formats::npz::{self, Descr};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A program whose devices meet in every kind of collective, and do nothing else.
const KINDS: &str = r"HloModule kinds, replica_count=4
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }
sum { a = u32[] parameter(0) b = u32[] parameter(1) ROOT s = u32[] add(a, b) }
ENTRY e {
  x = f32[4,100] parameter(0)
  y = f32[100,4] parameter(1)
  r = u32[] replica-id()
  reduced = f32[4,100] all-reduce(x), to_apply=add, replica_groups={}
  pairs = f32[4,100] all-reduce(x), to_apply=add, replica_groups={{3,0},{1,2}}
  small = u32[] all-reduce(r), to_apply=sum, replica_groups={}
  alone = f32[4,100] collective-broadcast(x), replica_groups={{0},{1},{2},{3}}
  gathered = f32[4,400] all-gather(x), dimensions={1}, replica_groups={}
  stacked = f32[16,100] all-gather(x), dimensions={0}, replica_groups={{2,1,0,3}}
  scattered = f32[1,100] reduce-scatter(x), dimensions={0}, to_apply=add, replica_groups={}
  in_rows = f32[100,1] reduce-scatter(y), dimensions={1}, to_apply=add, replica_groups={}
  exchanged = f32[4,100] all-to-all(x), dimensions={0}, replica_groups={}
  columns = f32[4,100] all-to-all(x), dimensions={1}, replica_groups={{1,3},{0,2}}
  moved = f32[4,100] collective-permute(x), source_target_pairs={{0,1},{1,2},{3,3}}
  shared = f32[4,100] collective-broadcast(x), replica_groups={{2,0},{1,3}}
  ROOT out = (f32[4,100], f32[4,100], u32[], f32[4,100], f32[4,400], f32[16,100], f32[1,100], f32[100,1], f32[4,100],
    f32[4,100], f32[4,100], f32[4,100])
    tuple(reduced, pairs, small, alone, gathered, stacked, scattered, in_rows, exchanged, columns, moved, shared)
}
";

/// One whose devices only give each other what they have.
const MOVES: &str = "HloModule moves, replica_count=2
ENTRY e {
  x = f32[4,100] parameter(0)
  ROOT g = f32[8,100] all-gather(x), dimensions={0}, replica_groups={}
}
";

/// One whose devices never meet.
const APART: &str = "HloModule apart, replica_count=2
ENTRY e {
  x = f32[4,100] parameter(0)
  y = f32[4,100] copy(x)
  r = u32[] replica-id()
  ROOT out = (f32[4,100], u32[]) tuple(y, r)
}
";

/// A folder with the stubs and a program.
struct Machine {
    folder: PathBuf,
    gpus: usize,
}

impl Machine {
    /// One with so many GPUs, and with these stubs; none if there is no compiler for them.
    fn new(test: &str, gpus: usize, stubs: &[(&str, &str)], program: &str) -> Option<Machine> {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder for the test");
        fs::write(folder.join("program.hlo"), program).expect("the program is written");
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/several_gpus");
        for (source, library) in stubs {
            let mut compiler = Command::new("cc");
            compiler.args(["-O1", "-w", "-shared", "-fPIC", "-o"]).arg(folder.join(library)).arg(sources.join(source));
            match compiler.output() {
                Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr)),
                Err(_) => {
                    eprintln!("skipped: there is no C compiler here");
                    return None;
                }
            }
        }
        Some(Machine { folder, gpus })
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(&self.folder)
            .env("LD_LIBRARY_PATH", &self.folder)
            .env("HLOOM_CACHE_DIR", &self.folder)
            .env("STUB_FOLDER", &self.folder)
            .env("STUB_GPUS", self.gpus.to_string())
            .env("NO_COLOR", "1");
        command
    }

    fn hloom(&self, arguments: &[&str], variables: &[(&str, &str)]) -> (i32, String) {
        let mut command = self.command(env!("CARGO_BIN_EXE_hloom"));
        let given = match self.folder.join("in.npz").exists() {
            true => ["--input", "in.npz"],
            false => ["--seed", "1"],
        };
        command.args(["run", "program.hlo"]).args(given).args(arguments).envs(variables.iter().copied());
        said(&command.output().expect("hloom starts"))
    }

    /// Compares what the engine wrote with what the evaluator does.
    fn compare(&self) {
        assert_eq!(self.hloom(&["--engine", "eval", "--output", "expected.npz"], &[]).0, 0);
        let file = |name: &str| fs::read(self.folder.join(name)).expect("it was written");
        assert!(file("out.npz") == file("expected.npz"), "the results are not those of the evaluator");
    }
}

/// Exit status and standard error.
fn said(output: &Output) -> (i32, String) {
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&output.stderr).into_owned())
}

const DRIVER: (&str, &str) = ("driver.c", "libcuda.so.1");
const NCCL: (&str, &str) = ("nccl.c", "libnccl.so.2");
const ON_GPUS: [&str; 4] = ["--engine", "cuda", "--output", "out.npz"];

#[test]
fn devices_of_one_process_have_a_gpu_each() {
    let Some(machine) = Machine::new("gpus-threads", 4, &[DRIVER, NCCL], KINDS) else { return };
    let (status, stderr) = machine.hloom(&ON_GPUS, &[]);
    assert_eq!(status, 0, "{stderr}");
    assert!(stderr.contains("the 4 devices are on GPUs 0, 1, 2, 3, and meet by NCCL"), "{stderr}");
    machine.compare();
}

#[test]
fn an_argument_of_all_devices_is_brought_to_every_gpu() {
    let Some(machine) = Machine::new("gpus-arguments", 2, &[DRIVER, NCCL], MOVES) else { return };
    let numbers: Vec<u8> = (0..400).flat_map(|n| (n as f32).to_le_bytes()).collect();
    let entry = ("p0".to_owned(), Descr { kind: b'f', size: 4 }, &[4i64, 100][..], &numbers[..]);
    fs::write(machine.folder.join("in.npz"), npz::write([entry])).expect("the argument is written");
    let (status, stderr) = machine.hloom(&ON_GPUS, &[]);
    assert_eq!(status, 0, "{stderr}");
    machine.compare();
}

#[test]
fn devices_on_one_gpu_need_no_nccl() {
    let Some(machine) = Machine::new("gpus-virtual", 1, &[DRIVER], MOVES) else { return };
    let (status, stderr) = machine.hloom(&ON_GPUS, &[]);
    assert_eq!((status, stderr.contains("GPU")), (0, false), "{stderr}");
    machine.compare();
}

#[test]
fn more_devices_than_gpus_share_one() {
    let Some(machine) = Machine::new("gpus-too-few", 3, &[DRIVER], &MOVES.replace("=2", "=4").replace("8,", "16,"))
    else {
        return;
    };
    let (status, stderr) = machine.hloom(&ON_GPUS, &[]);
    assert_eq!(status, 0, "{stderr}");
    assert!(stderr.contains("the machine has 3 GPUs, and the first of them is used for all 4 devices"), "{stderr}");
    machine.compare();
}

#[test]
fn nccl_is_asked_for_when_devices_meet_and_not_before() {
    let Some(machine) = Machine::new("gpus-apart", 2, &[DRIVER], APART) else { return };
    let (status, stderr) = machine.hloom(&ON_GPUS, &[]);
    assert_eq!(status, 0, "{stderr}");
    machine.compare();
    let Some(machine) = Machine::new("gpus-no-nccl", 2, &[DRIVER], MOVES) else { return };
    let (status, stderr) = machine.hloom(&ON_GPUS, &[("HLOOM_CUDA_PATH", "")]);
    if status == 0 {
        eprintln!("skipped: there is NCCL on this machine");
        return;
    }
    assert_eq!(status, 4, "{stderr}");
    for word in ["NCCL", "is not there: none of libnccl.so.2", "looked where", "CUDA_VISIBLE_DEVICES=0"] {
        assert!(stderr.contains(word), "no {word} in\n{stderr}");
    }
}

#[test]
fn an_old_nccl_is_refused() {
    let Some(machine) = Machine::new("gpus-old-nccl", 2, &[DRIVER, NCCL], MOVES) else { return };
    let (status, stderr) = machine.hloom(&ON_GPUS, &[("STUB_NCCL_VERSION", "2804")]);
    assert_eq!(status, 4, "{stderr}");
    assert!(stderr.contains("is 2.8.4, and 2.14 is needed"), "{stderr}");
}

#[test]
fn a_collective_that_does_not_end_is_named_after_the_time_limit() {
    let Some(machine) = Machine::new("gpus-hang", 2, &[DRIVER, NCCL], MOVES) else { return };
    let limited = [&ON_GPUS[..], &["--time-limit", "2"]].concat();
    let (status, stderr) = machine.hloom(&limited, &[("STUB_ASTRAY", "1")]);
    assert_eq!(status, 4, "{stderr}");
    for word in ["g cannot complete on device", "is not done after", "the group is [0, 1]"] {
        assert!(stderr.contains(word), "no {word} in\n{stderr}");
    }
}

/// A job of so many ranks; none if there is no launcher.
fn job(machine: &Machine, ranks: usize) -> Option<(i32, String)> {
    let mut command = machine.command("mpirun");
    command
        .args(["-n", &ranks.to_string(), env!("CARGO_BIN_EXE_hloom"), "run", "program.hlo", "--seed", "1"])
        .args(ON_GPUS)
        .args(["--time-limit", "60"])
        // More ranks than processors, as root, on this host alone.
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .env("OMPI_MCA_rmaps_base_oversubscribe", "1")
        .env("OMPI_MCA_hwloc_base_binding_policy", "none")
        .env("OMPI_MCA_btl", "self,vader");
    match command.output() {
        Ok(output) => Some(said(&output)),
        Err(_) => {
            eprintln!("skipped: there is no mpirun here");
            None
        }
    }
}

#[test]
fn ranks_have_a_gpu_each() {
    let Some(machine) = Machine::new("gpus-ranks", 4, &[DRIVER, NCCL], KINDS) else { return };
    let Some((status, stderr)) = job(&machine, 4) else { return };
    assert_eq!(status, 0, "{stderr}");
    // Of the ranks only the first speaks; if two had the same GPU, the run would have failed.
    assert!(stderr.contains("the machine has 4 GPUs, and the first of them is used"), "{stderr}");
    machine.compare();
    // Two devices on two GPUs in each of two ranks.
    let Some((status, stderr)) = job(&machine, 2) else { return };
    assert_eq!(status, 0, "{stderr}");
    assert!(stderr.contains("the 2 devices are on GPUs 0, 1, and meet by NCCL"), "{stderr}");
    machine.compare();
}

#[test]
fn ranks_on_one_gpu_are_refused() {
    let Some(machine) = Machine::new("gpus-shared", 1, &[DRIVER, NCCL], MOVES) else { return };
    let Some((status, stderr)) = job(&machine, 2) else { return };
    assert_ne!(status, 0, "{stderr}");
    assert!(stderr.contains("devices 0 and 1 are on one GPU, and NCCL takes a GPU for each"), "{stderr}");
}
