//! `hloom run` under mpirun: the results are those of one process, and a rank that goes astray ends all with an error.
//!
//! Every launcher that is there is tried; where there is none, the tests say so and pass.

#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The launchers on this machine.
fn launchers() -> Vec<&'static str> {
    let is_there = |name: &&str| Command::new(name).arg("--version").output().is_ok_and(|o| o.status.success());
    let found: Vec<_> = ["mpirun.openmpi", "mpirun.mpich"].into_iter().filter(is_there).collect();
    match found.is_empty() && is_there(&"mpirun") {
        true => vec!["mpirun"],
        false => found,
    }
}

fn skipped(launchers: &[&str]) -> bool {
    if launchers.is_empty() {
        eprintln!("skipped: there is no mpirun here");
    }
    launchers.is_empty()
}

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder for the test");
    folder
}

/// A job of so many ranks, which runs a shell script that has `$HLOOM` and `$RANK`.
fn job(launcher: &str, ranks: usize, folder: &Path, script: &str) -> Child {
    let script = format!("RANK=${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}}; {script}");
    // Hydra would kill all ranks as soon as one has ended, and nobody could say why.
    let own: &[&str] = if launcher.ends_with("mpich") { &["-disable-auto-cleanup"] } else { &[] };
    Command::new(launcher)
        .args(own)
        .args(["-n", &ranks.to_string(), "sh", "-c", &script])
        .current_dir(folder)
        .env("HLOOM", env!("CARGO_BIN_EXE_hloom"))
        .env("NO_COLOR", "1")
        // More ranks than processors, as root, on this host alone.
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .env("OMPI_MCA_rmaps_base_oversubscribe", "1")
        .env("OMPI_MCA_hwloc_base_binding_policy", "none")
        .env("OMPI_MCA_btl", "self,vader")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the launcher starts")
}

/// Waits for the job's end, but not for ever; what was said on standard error.
fn ended(mut job: Child) -> (bool, String) {
    let begun = Instant::now();
    loop {
        match job.try_wait().expect("it can be waited for") {
            Some(_) => {
                let output = job.wait_with_output().expect("it has ended");
                return (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned());
            }
            None if begun.elapsed() > Duration::from_secs(240) => {
                let _ = job.kill();
                panic!("the job does not end");
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// A program whose devices meet in every kind of collective.
const PROGRAM: &str = r#"HloModule kinds, replica_count=4
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }
sum { a = s32[] parameter(0) b = s32[] parameter(1) ROOT s = s32[] add(a, b) }
ENTRY e {
  x = f32[4,2500] parameter(0)
  k = s32[] constant(3)
  r = u32[] replica-id()
  f = f32[] convert(r)
  fs = f32[4,2500] broadcast(f), dimensions={}
  y = f32[4,2500] add(x, fs)
  reduced = f32[4,2500] all-reduce(y), to_apply=add, replica_groups={}
  pairs = f32[4,2500] all-reduce(y), to_apply=add, replica_groups={{3,0},{1,2}}
  small = s32[] all-reduce(k), to_apply=sum, replica_groups={}
  gathered = f32[4,10000] all-gather(y), dimensions={1}, replica_groups={}
  scattered = f32[1,2500] reduce-scatter(y), dimensions={0}, to_apply=add, replica_groups={}
  exchanged = f32[4,2500] all-to-all(y), dimensions={0}, replica_groups={}
  moved = f32[4,2500] collective-permute(y), source_target_pairs={{0,1},{1,2},{2,3}}
  shared = f32[4,2500] collective-broadcast(y), replica_groups={{2,0},{1,3}}
  ROOT out = (f32[4,2500], f32[4,2500], s32[], f32[4,10000], f32[1,2500], f32[4,2500], f32[4,2500], f32[4,2500])
    tuple(reduced, pairs, small, gathered, scattered, exchanged, moved, shared)
}
"#;

#[test]
fn results_are_those_of_one_process() {
    let launchers = launchers();
    if skipped(&launchers) {
        return;
    }
    let folder = folder("ranks-results");
    fs::write(folder.join("kinds.hlo"), PROGRAM).expect("the program is written");
    for engine in ["cpu", "eval"] {
        let run = format!("\"$HLOOM\" run kinds.hlo --seed 7 --engine {engine} --threads 1 --time-limit 100");
        let alone = Command::new("sh")
            .args(["-c", &format!("{run} --output alone.npz")])
            .current_dir(&folder)
            .env("HLOOM", env!("CARGO_BIN_EXE_hloom"))
            .status();
        assert!(alone.expect("it starts").success());
        let alone = fs::read(folder.join("alone.npz")).expect("there are results");
        for launcher in &launchers {
            for ranks in [2, 3, 4] {
                let _ = fs::remove_file(folder.join("out.npz"));
                let (well, said) = ended(job(launcher, ranks, &folder, &format!("{run} --output out.npz")));
                assert!(well, "{launcher} with {ranks} ranks: {said}");
                let together = fs::read(folder.join("out.npz")).expect("there are results");
                assert!(together == alone, "{launcher} with {ranks} ranks gives other results, engine {engine}");
            }
        }
    }
}

#[test]
fn each_rank_writes_its_own_and_records_are_merged() {
    let launchers = launchers();
    if skipped(&launchers) {
        return;
    }
    let folder = folder("ranks-own");
    fs::write(folder.join("kinds.hlo"), PROGRAM).expect("the program is written");
    let run = "exec \"$HLOOM\" run kinds.hlo --seed 7 --threads 1 --time-limit 100 --output out.npz --output-per-rank";
    let (well, said) = ended(job(launchers[0], 2, &folder, &format!("{run} --trace trace.json")));
    assert!(well, "{said}");
    assert!(folder.join("out.0.npz").exists() && folder.join("out.1.npz").exists() && !folder.join("out.npz").exists());
    let record = fs::read_to_string(folder.join("trace.json")).expect("there is a record");
    assert!((0..4).all(|d| record.contains(&format!("\"pid\":{d}"))), "not all devices are in the record");
}

/// Two products with weights that are gathered: the second gather stands after the first product, and is needed late. A
/// larger value comes after them, so that memory does not grow if both are gathered at once.
const GATHERS: &str = r#"HloModule layer, replica_count=2
ENTRY e {
  x = f32[64,256] parameter(0)
  up_part = f32[128,512] parameter(1)
  down_part = f32[256,256] parameter(2)
  up = f32[256,512] all-gather(up_part), dimensions={0}, replica_groups={}
  hidden = f32[64,512] dot(x, up), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  down = f32[512,256] all-gather(down_part), dimensions={0}, replica_groups={}
  y = f32[64,256] dot(hidden, down), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  wide = f32[256,8192] parameter(3)
  w = f32[64,8192] dot(y, wide), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT z = f32[64,64] dot(w, w), lhs_contracting_dims={1}, rhs_contracting_dims={1}
}
"#;

/// Weights that travel as bf16, both gathered first: what is converted for one gather must not be written over by what
/// comes next, or the gather would be waited for where it begins.
const CONVERTED: &str = r#"HloModule layer, replica_count=2
ENTRY e {
  x = f32[64,256] parameter(0)
  up_part = f32[128,512] parameter(1)
  down_part = f32[256,256] parameter(2)
  up_narrow = bf16[128,512] convert(up_part)
  up = bf16[256,512] all-gather(up_narrow), dimensions={0}, replica_groups={}
  down_narrow = bf16[256,256] convert(down_part)
  down = bf16[512,256] all-gather(down_narrow), dimensions={0}, replica_groups={}
  up_wide = f32[256,512] convert(up)
  hidden = f32[64,512] dot(x, up_wide), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  down_wide = f32[512,256] convert(down)
  ROOT y = f32[64,256] dot(hidden, down_wide), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"#;

#[test]
fn a_gather_goes_on_beside_a_product() {
    let launchers = launchers();
    if skipped(&launchers) {
        return;
    }
    for (name, program) in [("ranks-overlap", GATHERS), ("ranks-overlap-converted", CONVERTED)] {
        is_hidden(launchers[0], &folder(name), program);
    }
}

/// Checks on the record of a run that the gather `down` is under way while `hidden` is computed.
fn is_hidden(launcher: &str, folder: &Path, program: &str) {
    fs::write(folder.join("layer.hlo"), program).expect("the program is written");
    let run = "exec \"$HLOOM\" run layer.hlo --seed 7 --threads 1 --time-limit 100 --trace trace.json";
    let (well, said) = ended(job(launcher, 2, folder, run));
    assert!(well, "{said}");
    let record = fs::read_to_string(folder.join("trace.json")).expect("there is a record");
    let record: Value = serde_json::from_str(&record).expect("it is JSON");
    let events = record["traceEvents"].as_array().expect("it has events");
    for device in 0..2 {
        let of = |name: &str, category: &str| {
            let is_it = |e: &&Value| e["pid"] == device && e["name"] == name && e["cat"] == category;
            let event = events.iter().find(is_it).unwrap_or_else(|| panic!("{name} has no {category}: {events:?}"));
            let time = |key: &str| event[key].as_f64().unwrap_or(f64::NAN);
            (time("ts"), time("ts") + time("dur"))
        };
        // It is begun before the product, returns at once, and is waited for after it.
        let (begun, product, wait) = (of("down", "collective"), of("hidden", "library"), of("down", "wait"));
        assert!(begun.1 <= product.0 && product.1 <= wait.0, "device {device}: {begun:?}, {product:?}, {wait:?}");
    }
}

/// Runs that take long, in which every rank notes its process and what it said.
fn astray(launcher: &str, name: &str, prepare: &str, meddle: impl FnOnce(&Path)) -> Vec<String> {
    let folder = folder(name);
    let steps = |count: u64| {
        format!(
            r#"HloModule steps, replica_count=3
add {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }}
body {{
  i = s32[] parameter(0)
  f = f32[] convert(i)
  z = f32[] all-reduce(f), to_apply=add, replica_groups={{}}, metadata={{source_file="train.py" source_line=12}}
  g = f32[] constant(3)
  q = f32[] divide(z, g)
  t = s32[] convert(q)
  one = s32[] constant(1)
  ROOT n = s32[] add(t, one)
}}
more {{ i = s32[] parameter(0) c = s32[] constant({count}) ROOT m = pred[] compare(i, c), direction=LT }}
ENTRY e {{ z = s32[] constant(0) ROOT w = s32[] while(z), condition=more, body=body }}
"#
        )
    };
    fs::write(folder.join("steps.hlo"), steps(10_000_000)).expect("the program is written");
    fs::write(folder.join("other.hlo"), steps(10_000_001)).expect("the program is written");
    // The shell stays, so that it can say how the rank ended; the launcher's signals reach both.
    let script = format!(
        "FILE=steps.hlo; {prepare}; trap : TERM; \
         \"$HLOOM\" run $FILE --threads 1 --time-limit 4 --output out.npz 2> err.$RANK & echo $! > pid.$RANK; \
         wait $!; code=$?; while kill -0 $(cat pid.$RANK) 2> /dev/null; do wait $(cat pid.$RANK); code=$?; done; \
         echo $code > code.$RANK; exit $code"
    );
    let job = job(launcher, 3, &folder, &script);
    meddle(&folder);
    let (well, _) = ended(job);
    assert!(!well && !folder.join("out.npz").exists(), "{name}: there are results");
    let read = |file: String| fs::read_to_string(folder.join(file)).unwrap_or_default();
    (0..3)
        .map(|rank| format!("exit {}\n{}", read(format!("code.{rank}")).trim(), read(format!("err.{rank}"))))
        .collect()
}

/// Sends a signal to a rank once it has begun.
fn signal(folder: &Path, rank: usize, name: &str) {
    let file = folder.join(format!("pid.{rank}"));
    let begun = Instant::now();
    while fs::read_to_string(&file).map_or(true, |t| t.trim().is_empty()) && begun.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(10));
    }
    // Some time for it to be in the middle of its work.
    std::thread::sleep(Duration::from_millis(1500));
    let pid = fs::read_to_string(&file).expect("it has noted its process");
    assert!(Command::new("kill").args([name, pid.trim()]).status().expect("kill is there").success());
}

/// Whether a rank ended with that status. Launchers end all ranks when one has ended: where that reaches the shell first, it
/// notes their signal, or nothing.
fn ended_with(text: &str, status: &str) -> bool {
    [status, "143", ""].iter().any(|status| text.starts_with(&format!("exit {status}\n")))
}

#[test]
fn a_rank_that_is_killed_is_named() {
    for launcher in launchers() {
        let said = astray(launcher, "ranks-killed", ":", |folder| signal(folder, 1, "-KILL"));
        // Hydra kills the others, too, before they could say anything.
        if launcher.ends_with("mpich") {
            continue;
        }
        // Who hears of it later may hear first of one that has ended for it.
        assert!(said[0].contains("rank 1") || said[2].contains("rank 1"), "{launcher}: {said:?}");
        for rank in [0, 2] {
            assert!(ended_with(&said[rank], "4") && said[rank].contains("rank"), "{launcher}: {}", said[rank]);
        }
    }
}

#[test]
fn a_rank_that_is_stopped_is_named_with_the_collective() {
    for launcher in launchers() {
        let stopped = |folder: &Path| {
            signal(folder, 2, "-STOP");
            let folder = folder.to_owned();
            // Launchers wait for what is stopped; by then the others have ended.
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_secs(12));
                let pid = fs::read_to_string(folder.join("pid.2")).unwrap_or_default();
                let _ = Command::new("kill").args(["-KILL", pid.trim()]).status();
            });
        };
        let said = astray(launcher, "ranks-stopped", ":", stopped);
        let names_all =
            |text: &String| ["device 2 on rank 2", "[0, 1, 2]", "train.py:12"].iter().all(|part| text.contains(part));
        assert!(said[..2].iter().any(names_all), "{launcher}: {said:?}");
        for text in &said[..2] {
            // A rank may see the end of one that knew it first.
            let knows = names_all(text) || text.contains("ended early");
            assert!(ended_with(text, "4") && knows, "{launcher}: {text}");
        }
    }
}

#[test]
fn a_rank_with_another_program_is_named_before_the_first_step() {
    for launcher in launchers() {
        let other = "if [ $RANK = 1 ]; then FILE=other.hlo; fi";
        let said = astray(launcher, "ranks-other", other, |_| {});
        // A rank may see the end of one that knew it first.
        let is_named = |text: &&String| text.contains("rank 1 runs another program");
        assert!(said.iter().any(|text| is_named(&text)), "{launcher}: {said:?}");
        for text in &said {
            let knows = is_named(&text) || text.contains("rank 1 failed") || text.contains("ended early");
            assert!(ended_with(text, "4") && knows, "{launcher}: {text}");
        }
    }
}

#[test]
fn a_rank_that_fails_ends_the_others() {
    for launcher in launchers() {
        let missing = "if [ $RANK = 2 ]; then FILE=missing.hlo; fi";
        let said = astray(launcher, "ranks-failed", missing, |_| {});
        assert!(ended_with(&said[2], "1") && said[2].contains("missing.hlo"), "{launcher}: {}", said[2]);
        for text in &said[..2] {
            assert!(ended_with(text, "4") && text.contains("rank 2 failed"), "{launcher}: {text}");
        }
    }
}
