//! `hloom run`: inputs, results, and runs that cannot go on.

use super::{Folder, WRITTEN};
use hloom::formats::npz::{self, Descr};

/// Name, sizes and elements.
type Named<'a> = (&'a str, &'a [i64], &'a [f32]);

/// An npz file with f32 arrays.
fn npz(arrays: &[Named<'_>]) -> Vec<u8> {
    let bytes: Vec<Vec<u8>> = arrays.iter().map(|a| a.2.iter().flat_map(|x| x.to_le_bytes()).collect()).collect();
    let entries = arrays.iter().zip(&bytes).map(|(a, bytes)| (a.0.to_owned(), F32, a.1, &bytes[..]));
    npz::write(entries)
}

const F32: Descr = Descr { kind: b'f', size: 4 };

const SIX: [f32; 6] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];

fn sum(test: &str, arrays: &[Named<'_>]) -> Folder {
    Folder::new(test).with("sum.hlo", WRITTEN).with("in.npz", npz(arrays))
}

#[test]
#[allow(clippy::print_stderr, reason = "tests talk to whoever runs them")]
fn an_engine_whose_machine_is_not_there_says_what_is_missing() {
    let folder = sum("run-cuda", &[("p0", &[2, 3], &SIX), ("p1", &[2, 3], &[10.0; 6])]);
    let ran = folder.hloom(&["run", "sum.hlo", "--input", "in.npz", "--engine", "cuda"]);
    if ran.status == 0 {
        eprintln!("skipped: there is a GPU on this machine");
        return;
    }
    let ran = ran.exits(4);
    assert!(ran.stderr.contains("CUDA driver") && ran.stderr.contains("looked"), "{}", ran.stderr);
}

#[test]
fn arrays_go_in_and_come_out() {
    let folder = sum("run", &[("p0", &[2, 3], &SIX), ("p1", &[2, 3], &[10.0; 6])]);
    let ran = folder.hloom(&["run", "sum.hlo", "--input", "in.npz", "--output", "out.npz"]).exits(0);
    assert_eq!(ran.stdout, "", "results go to the file");
    let file = std::fs::read(folder.0.join("out.npz")).expect("it was written");
    let arrays = npz::read(&file).expect("it is an npz file");
    let [(name, array)] = &arrays[..] else { panic!("one array was expected") };
    assert_eq!((name.as_str(), array.descr, &array.dims[..]), ("d0.o0", F32, &[2, 3][..]));
    let expected: Vec<u8> = SIX.iter().flat_map(|x| (x + 10.0).to_le_bytes()).collect();
    assert_eq!(array.bytes, expected);
    let shown = folder.hloom(&["run", "sum.hlo", "--input", "in.npz"]).exits(0).stdout;
    assert!(shown.contains("d0.o0") && shown.contains("{ 11, 12, 13 }"), "{shown}");
}

#[test]
fn inputs_of_one_device_go_before_those_of_all() {
    let folder = sum("devices", &[("p0", &[2, 3], &SIX), ("d1.p0", &[2, 3], &[0.0; 6]), ("p1", &[2, 3], &[10.0; 6])]);
    folder.hloom(&["run", "sum.hlo", "--devices", "2", "--input", "in.npz", "--output", "out.npz"]).exits(0);
    let file = std::fs::read(folder.0.join("out.npz")).expect("it was written");
    let arrays = npz::read(&file).expect("it is an npz file");
    let first = |n: usize| f32::from_le_bytes(arrays[n].1.bytes[..4].try_into().expect("four bytes"));
    assert_eq!((arrays[0].0.as_str(), first(0), arrays[1].0.as_str(), first(1)), ("d0.o0", 11.0, "d1.o0", 10.0));
}

#[test]
fn an_array_that_is_missing_too_many_or_wrong_is_named() {
    let cases: [(&[Named<'_>], &str); 5] = [
        (&[("p0", &[2, 3], &SIX)], "input p1 is missing: f32[2,3]"),
        (&[("p0", &[2, 3], &SIX), ("p1", &[3, 2], &SIX)], "input p1 is"),
        (&[("p0", &[2, 3], &SIX), ("p1", &[2], &[1.0, 2.0])], "input p1 is"),
        (
            &[("p0", &[2, 3], &SIX), ("p1", &[2, 3], &SIX), ("p2", &[], &[1.0])],
            "input p2 of in.npz is not one of the program's",
        ),
        (&[("p0", &[2, 3], &SIX), ("p1", &[2, 3], &SIX), ("d7.p0", &[], &[1.0])], "input d7.p0 is"),
    ];
    for (n, (arrays, words)) in cases.into_iter().enumerate() {
        let folder = sum(&format!("wrong{n}"), arrays);
        let ran = folder.hloom(&["run", "sum.hlo", "--input", "in.npz"]).exits(1);
        assert!(ran.stderr.contains("H1007") && ran.stderr.contains(words), "{words}: {}", ran.stderr);
        assert_eq!(ran.stdout, "");
    }
}

#[test]
fn an_array_of_another_type_is_named() {
    let bytes = [0u8; 24];
    let file = npz::write([
        ("p0".to_owned(), Descr { kind: b'i', size: 4 }, &[2i64, 3][..], &bytes[..]),
        ("p1".to_owned(), F32, &[2, 3], &bytes),
    ]);
    let folder = Folder::new("type").with("sum.hlo", WRITTEN).with("in.npz", file);
    let ran = folder.hloom(&["run", "sum.hlo", "--input", "in.npz"]).exits(1);
    assert!(ran.stderr.contains("H1007") && ran.stderr.contains("input p0 is"), "{}", ran.stderr);
}

#[test]
fn made_up_inputs_are_the_same_for_the_same_seed() {
    let folder = Folder::new("seed").with("sum.hlo", WRITTEN);
    let run = |seed: &str| folder.hloom(&["run", "sum.hlo", "--seed", seed]).exits(0).stdout;
    assert_eq!(run("3"), run("3"));
    assert_ne!(run("3"), run("4"));
}

const ROOTS: &str = "HloModule m

f {
  a = f32[2] parameter(0)
  low = f32[] constant(-inf)
  lows = f32[2] broadcast(low), dimensions={}
  b = f32[2] maximum(a, lows)
  ROOT c = f32[2] sqrt(b), metadata={op_name=\"jit(f)/sqrt\" source_file=\"model.py\" source_line=12}
}

ENTRY main {
  x = f32[2] parameter(0)
  y = f32[2] call(x), to_apply=f
  ROOT z = f32[2] add(y, y)
}
";

#[test]
fn the_first_nan_is_found_where_it_is_made() {
    let folder = Folder::new("nan").with("roots.hlo", ROOTS).with("in.npz", npz(&[("p0", &[2], &[4.0, -1.0])]));
    let ran = folder.hloom(&["run", "roots.hlo", "--input", "in.npz", "--check-nan"]).exits(1);
    assert!(ran.stderr.contains("H1011") && ran.stderr.contains("c made a NaN"), "{}", ran.stderr);
    assert!(ran.stderr.contains("b is f32[2] {4, -1}"), "the operands are shown: {}", ran.stderr);
    assert!(ran.stderr.contains("model.py:12"), "the source is named: {}", ran.stderr);
    folder.hloom(&["run", "roots.hlo", "--input", "in.npz"]).exits(0);
}

/// An infinity that the program writes down itself, or is given, is not one that it made.
#[test]
fn infinities_that_were_there_are_no_error() {
    let folder = Folder::new("finite").with("roots.hlo", ROOTS);
    let folder = folder.with("in.npz", npz(&[("p0", &[2], &[4.0, 9.0])]));
    folder.hloom(&["run", "roots.hlo", "--input", "in.npz", "--check-nan"]).exits(0);
    let folder = folder.with("in.npz", npz(&[("p0", &[2], &[4.0, f32::NAN])]));
    folder.hloom(&["run", "roots.hlo", "--input", "in.npz", "--check-nan"]).exits(0);
}

#[test]
fn values_are_printed_as_they_come() {
    let folder = Folder::new("print").with("roots.hlo", ROOTS).with("in.npz", npz(&[("p0", &[2], &[4.0, 9.0])]));
    let args = ["run", "roots.hlo", "--input", "in.npz", "--print-values", "c", "--print-values", "x", "--json"];
    let ran = folder.hloom(&args).exits(0);
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert_eq!(lines[..2], ["d0 x = f32[2] {4, 9}", "d0 c = f32[2] {2, 3}"], "{}", ran.stdout);
    let all = folder.hloom(&["run", "roots.hlo", "--input", "in.npz", "--print-values", "*"]).exits(0).stdout;
    assert!(["d0 x = ", "d0 c = "].iter().all(|line| all.contains(line)), "{all}");
    let some = folder.hloom(&["run", "roots.hlo", "--input", "in.npz", "--print-values", "c*"]).exits(0).stdout;
    assert!(some.contains("d0 c = ") && !some.contains("d0 x = "), "{some}");
    let ran = folder.hloom(&["run", "roots.hlo", "--input", "in.npz", "--print-values", "nobody"]).exits(2);
    assert!(ran.stderr.contains("no instruction named nobody"), "{}", ran.stderr);
}

const ENDLESS: &str = "HloModule m

ever {
  s = s32[] parameter(0)
  ROOT p = pred[] constant(true)
}

body {
  s = s32[] parameter(0)
  one = s32[] constant(1)
  ROOT r = s32[] add(s, one)
}

ENTRY main {
  x = s32[] constant(0)
  ROOT y = s32[] while(x), condition=ever, body=body
}
";

#[test]
fn an_endless_loop_is_ended_by_the_limit_of_steps() {
    let folder = Folder::new("endless").with("loop.hlo", ENDLESS);
    let ran = folder.hloom(&["run", "loop.hlo", "--max-steps", "1000"]).exits(1);
    assert!(ran.stderr.contains("H1005"), "{}", ran.stderr);
}

#[test]
fn a_reduction_is_one_step_however_many_elements_it_has() {
    // More than a scalar function can be made of: the reducer is called.
    let text = "HloModule m

less {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT l = pred[] compare(x, y), direction=LT
}

inner {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  p = pred[] compare(a, b), direction=LT
  t = () tuple()
  s = f32[1] reshape(a)
  r = f32[1] sort(s), dimensions={0}, to_apply=less
  c = f32[] reshape(r)
  ROOT m = f32[] select(p, b, c)
}

ENTRY main {
  v = f32[1000] iota(), iota_dimension=0
  z = f32[] constant(0)
  ROOT s = f32[] reduce(v, z), dimensions={0}, to_apply=inner
}
";
    let folder = Folder::new("reducer-steps").with("m.hlo", text);
    let ran = folder.hloom(&["run", "m.hlo", "--engine", "eval", "--max-steps", "20"]).exits(0);
    assert!(ran.stdout.contains("999"), "{}", ran.stdout);
}

#[cfg(unix)]
#[test]
fn names_of_files_need_not_be_utf8() {
    use std::os::unix::ffi::OsStrExt;
    let folder = Folder::new("bytes");
    let [program, made] = [&b"a\xff.hlo"[..], b"o\xfe.npz"].map(std::ffi::OsStr::from_bytes);
    std::fs::write(folder.0.join(program), WRITTEN).expect("it can be written");
    let status = std::process::Command::new(env!("CARGO_BIN_EXE_hloom"))
        .current_dir(&folder.0)
        .args(["run".as_ref(), program, "--seed".as_ref(), "1".as_ref(), "--output".as_ref(), made])
        .status()
        .expect("hloom starts");
    assert!(status.success() && folder.0.join(made).is_file());
}

const HUGE: &str = "HloModule m

ENTRY main {
  x = f32[] constant(1)
  big = f32[1000000,2500000] broadcast(x), dimensions={}
  ROOT y = f32[1,1] slice(big), slice={[0:1], [0:1]}
}
";

#[test]
fn memory_that_nobody_has_is_refused_with_its_size_and_instruction() {
    let folder = Folder::new("huge").with("huge.hlo", HUGE);
    // Compiled, the program makes the one element that it needs.
    folder.hloom(&["run", "huge.hlo"]).exits(0);
    let ran = folder.hloom(&["run", "huge.hlo", "--engine", "eval"]).exits(4);
    assert!(ran.stderr.contains("H1001") && ran.stderr.contains("10000000000000 bytes"), "{}", ran.stderr);
    assert!(ran.stderr.contains("broadcast"), "the instruction is shown: {}", ran.stderr);
}

const ELIDED: &str = "HloModule m

ENTRY main {
  c = f32[20] constant({...})
  ROOT y = f32[20] negate(c)
}
";

#[test]
fn elided_constants_are_named_or_filled() {
    let folder = Folder::new("elided").with("elided.hlo", ELIDED);
    let ran = folder.hloom(&["run", "elided.hlo"]).exits(1);
    assert!(ran.stderr.contains("H1006") && ran.stderr.contains("--fill-constants"), "{}", ran.stderr);
    let ran = folder.hloom(&["run", "elided.hlo", "--fill-constants"]).exits(0);
    assert!(ran.stdout.contains("d0.o0"), "{}", ran.stdout);
}

const MEETING: &str = "HloModule m, replica_count=2

add {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT c = s32[] add(a, b)
}

meets {
  x = s32[] parameter(0)
  ROOT y = s32[] all-reduce(x), replica_groups={{0,1}}, to_apply=add
}

alone {
  ROOT x = s32[] parameter(0)
}

ENTRY main {
  id = u32[] replica-id()
  zero = u32[] constant(0)
  first = pred[] compare(id, zero), direction=EQ
  x = s32[] constant(1)
  ROOT r = s32[] conditional(first, x, x), true_computation=meets, false_computation=alone
}
";

#[test]
fn a_device_that_never_comes_is_named_with_instruction_and_group() {
    let folder = Folder::new("absent").with("meeting.hlo", MEETING);
    let ran = folder.hloom(&["run", "meeting.hlo"]).exits(1);
    for words in ["H1009", "y cannot complete on device 0", "device 1 has finished", "the group is [0, 1]"] {
        assert!(ran.stderr.contains(words), "{words}: {}", ran.stderr);
    }
}

#[test]
fn a_count_of_devices_that_does_not_fit_is_refused() {
    let folder = Folder::new("count").with(
        "p.hlo",
        "HloModule m, replica_count=2, num_partitions=2\n\nENTRY e {\n  ROOT p = u32[] partition-id()\n}\n",
    );
    let ran = folder.hloom(&["run", "p.hlo", "--devices", "6"]).exits(1);
    assert!(ran.stderr.contains("for 4 devices, but is to run on 6"), "{}", ran.stderr);
    let ran = folder.hloom(&["run", "p.hlo"]).exits(0);
    assert!(ran.stdout.contains("d3.o0"), "{}", ran.stdout);
}

#[test]
fn a_timed_run_says_how_long_it_took() {
    let folder = sum("bench", &[("p0", &[2, 3], &SIX), ("p1", &[2, 3], &SIX)]);
    let ran = folder.hloom(&["run", "sum.hlo", "--input", "in.npz", "--bench", "2", "--json"]).exits(0);
    let report: serde_json::Value = serde_json::from_str(&ran.stdout).expect("one JSON object");
    for key in ["compile_ms", "run_ms", "run_ms_median"] {
        assert!(report[key].as_f64().is_some_and(|ms| ms >= 0.0), "{key}: {report}");
    }
    assert_eq!((report["devices"].as_i64(), report["engine"].as_str()), (Some(1), Some("cpu")));
}

#[test]
fn devices_that_only_the_program_names_are_said_and_used() {
    let text = "HloModule m\n\nadd {\n  a = s32[] parameter(0)\n  b = s32[] parameter(1)\n  ROOT sum = s32[] add(a, b)\n}\n\n\
                ENTRY e {\n  one = s32[] constant(1)\n  \
                ROOT y = s32[] all-reduce(one), replica_groups={{0,1,2}}, to_apply=add\n}\n";
    let folder = Folder::new("implied-devices").with("m.hlo", text);
    for engine in ["cpu", "eval"] {
        let ran = folder.hloom(&["run", "m.hlo", "--engine", engine]).exits(0);
        assert!(ran.stderr.contains("running on 3 devices, as `y` names them"), "{}", ran.stderr);
        assert!(ran.stdout.contains("d2.o0 = s32[] 3"), "{}", ran.stdout);
    }
    let header = text.replace("HloModule m", "HloModule m, replica_count=3");
    let folder = Folder::new("named-devices").with("m.hlo", header);
    assert_eq!(folder.hloom(&["run", "m.hlo"]).exits(0).stderr, "");
}

#[test]
fn devices_that_only_transfers_name_are_used() {
    let pairs = "channel_id=1, frontend_attributes={_xla_send_recv_source_target_pairs={{0,1},{1,0}}}";
    let text = format!(
        "HloModule m\n\nENTRY e {{\n  me = u32[] replica-id()\n  none = token[] after-all()\n  \
         recv = (u32[], u32[], token[]) recv(none), {pairs}\n  send = (u32[], u32[], token[]) send(me, none), {pairs}\n  \
         sent = token[] send-done(send), {pairs}\n  came = (u32[], token[]) recv-done(recv), {pairs}\n  \
         ROOT y = u32[] get-tuple-element(came), index=0\n}}\n"
    );
    let folder = Folder::new("devices-of-transfers").with("m.hlo", text);
    let ran = folder.hloom(&["run", "m.hlo"]).exits(0);
    assert!(ran.stdout.contains("d0.o0 = u32[] 1") && ran.stdout.contains("d1.o0 = u32[] 0"), "{}", ran.stdout);
}

/// Whoever sends a signal sees that it was the signal that ended the run.
#[cfg(unix)]
#[test]
fn termination_ends_by_the_signal() {
    use std::os::unix::process::ExitStatusExt;
    let folder = Folder::new("signal").with("endless.hlo", ENDLESS);
    for (name, number) in [("-INT", 2), ("-TERM", 15)] {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_hloom"));
        command.args(["run", "endless.hlo"]).current_dir(&folder.0).stderr(std::process::Stdio::piped());
        let mut child = command.spawn().expect("the command starts");
        let id = child.id().to_string();
        let begun = std::time::Instant::now();
        // Once it has begun; again, if it had not.
        let status = loop {
            std::thread::sleep(std::time::Duration::from_millis(300));
            std::process::Command::new("kill").args([name, &id]).status().expect("there is a `kill`");
            if let Some(status) = child.try_wait().expect("it is a child") {
                break status;
            }
            assert!(begun.elapsed().as_secs() < 60, "it goes on");
        };
        assert_eq!(status.signal(), Some(number), "{status}");
    }
}

/// Threads for so many devices do not fit into the memory that the process may have.
#[cfg(target_os = "linux")]
#[test]
fn devices_do_not_wait_for_those_that_got_no_thread() {
    let program = "HloModule m, replica_count=64\n\nadd {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  \
                   ROOT s = f32[] add(a, b)\n}\n\nENTRY e {\n  x = f32[4] parameter(0)\n  \
                   ROOT r = f32[4] all-reduce(x), replica_groups={}, to_apply=add\n}\n";
    let folder = Folder::new("run-no-thread").with("m.hlo", program);
    for engine in ["cpu", "eval"] {
        let line = format!("ulimit -v 6000000; exec \"$0\" run m.hlo --seed 1 --engine {engine}");
        let mut command = std::process::Command::new("sh");
        command.args(["-c", &line, env!("CARGO_BIN_EXE_hloom")]).current_dir(&folder.0);
        let begun = std::time::Instant::now();
        let ran = command.output().expect("there is a `sh`");
        let said = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(4), "{engine}: {said}");
        assert!(said.contains("no thread for a device"), "{engine}: {said}");
        assert!(begun.elapsed().as_secs() < 300, "{engine}: it came late");
    }
}
