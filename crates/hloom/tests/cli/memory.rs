//! `hloom memory`.

use super::*;
use expect_test::expect;

const MODULE: &str = r#"HloModule m, is_scheduled=true

ENTRY e {
  x = f32[64]{0} parameter(0)
  w = f32[64,64]{1,0} parameter(1)
  a = f32[64]{0} dot(x, w), lhs_contracting_dims={0}, rhs_contracting_dims={0}, metadata={op_name="a" source_file="net.py" source_line=7}
  b = f32[64]{0} dot(a, w), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  ROOT c = f32[64]{0} dot(b, w), lhs_contracting_dims={0}, rhs_contracting_dims={0}
}
"#;

/// The folder with the module in it.
fn folder(name: &str) -> Folder {
    Folder::new(name).with("m.hlo", MODULE)
}

#[test]
fn the_dump_has_the_form_that_the_target_has() {
    let folder = folder("memory-dump");
    let ran = folder.hloom(&["memory", "m.hlo"]).exits(0);
    expect![[r#"
        BufferAssignment:
        allocation 0: size 16384, parameter 1, shape |f32[64,64]| at ShapeIndex {}:
         value: <1 w @0> (size=16384,offset=0): f32[64,64]{1,0}
        allocation 1: size 256, output shape is |f32[64]|, maybe-live-out:
         value: <2 a @0> (size=256,offset=0): f32[64]{0}
         value: <4 c @0> (size=256,offset=0): f32[64]{0}
        allocation 2: size 256, parameter 0, shape |f32[64]| at ShapeIndex {}:
         value: <0 x @0> (size=256,offset=0): f32[64]{0}
        allocation 3: size 256, preallocated-temp:
         value: <3 b @0> (size=256,offset=0): f32[64]{0}
    "#]]
    .assert_eq(&ran.stdout);
    assert_eq!(ran.stderr, "");
    let whole = folder.hloom(&["memory", "m.hlo", "--dialect", "a"]).exits(0).stdout;
    assert!(whole.contains("Total bytes used: 17152 (16.8KiB)"), "{whole}");
    assert!(whole.contains("HloLiveRange (max 5):"), "{whole}");
    let values = folder.hloom(&["memory", "m.hlo", "--part", "values"]).exits(0).stdout;
    assert!(values.starts_with("\nTotal bytes used: 17152"), "{values}");
    let live = folder.hloom(&["memory", "m.hlo", "--part", "live-range"]).exits(0).stdout;
    assert!(live.contains("    b{}:3-4\n"), "{live}");
}

#[test]
fn the_summary_says_what_is_in_use_and_where_it_comes_from() {
    let ran = folder("memory-summary").hloom(&["memory", "m.hlo", "--summary"]).exits(0);
    expect![[r#"
        m on cpu: 16.8 KiB in 4 allocations

        memory       total  of  parameters  results  constants  temporaries  in use at most  padding then
        0 memory  16.8 KiB        16.2 KiB    256 B        0 B        256 B        16.8 KiB           0 B

        what temporaries are packed into, and the bytes of them that are live at once:

        memory   heap  at least   above that
        memory  256 B     256 B  0 B (0.0 %)

        most of memory is in use at b, step 3 of 5:

           bytes  padding  value  shape            steps   from
        16.0 KiB      0 B  w      f32[64,64]{1,0}  0 to 5
           256 B      0 B  x      f32[64]{0}       0 to 5
           256 B      0 B  a      f32[64]{0}       2 to 3  net.py:7
           256 B      0 B  b      f32[64]{0}       3 to 4

        allocations that values share, and what those would take apart:

        allocation  for     bytes  values  apart  saved
                 1  result  256 B       2  512 B  256 B

        what would lower a peak; each alone, with the peak computed anew, and they do not add up:

        bytes less  memory  change
             256 B  memory  donate parameter 0 `x`: the result `c` can have its place, nothing reads it any more then
    "#]]
    .assert_eq(&ran.stdout);
}

/// A module with something of everything that a summary tells.
const WASTEFUL: &str = r#"HloModule wasteful, is_scheduled=true

ENTRY e {
  x = f32[256,256]{1,0:T(8,128)} parameter(0), metadata={op_name="x"}
  early = f32[256,256]{1,0:T(8,128)} transpose(x), dimensions={1,0}, metadata={op_name="net/early" source_file="net.py" source_line=3}
  mean = f32[256,1]{1,0:T(8,128)} slice(early), slice={[0:256], [0:1]}, metadata={op_name="net/mean" source_file="net.py" source_line=4}
  wide = f32[256,1024]{1,0:T(8,128)} concatenate(x, x, x, x), dimensions={1}, metadata={op_name="net/wide" source_file="net.py" source_line=5}
  fast = f32[256,256]{1,0:T(8,128)S(1)} slice(wide), slice={[0:256], [256:512]}, metadata={op_name="net/fast" source_file="net.py" source_line=6}
  late = f32[256,256]{1,0:T(8,128)} transpose(fast), dimensions={1,0}
  ROOT out = f32[256,513]{1,0:T(8,128)} concatenate(early, late, mean), dimensions={1}
}
"#;

#[test]
fn the_summary_says_what_is_lost_and_what_would_lower_the_peak() {
    let folder = Folder::new("memory-advice").with("m.hlo", WASTEFUL);
    let ran = folder.hloom(&["memory", "m.hlo", "--target", "tpu-v6e", "--summary"]).exits(0);
    expect![[r#"
        wasteful on tpu-v6e: 2.50 MiB in 4 allocations

        memory              total        of  parameters  results  constants  temporaries  in use at most  padding then
        0 main memory    2.25 MiB  29.8 GiB     256 KiB  640 KiB        0 B     1.38 MiB        1.62 MiB       127 KiB
        1 vector memory   256 KiB   128 MiB         0 B      0 B        0 B      256 KiB         256 KiB           0 B

        what temporaries are packed into, and the bytes of them that are live at once:

        memory             heap  at least   above that
        main memory    1.38 MiB  1.38 MiB  0 B (0.0 %)
        vector memory   256 KiB   256 KiB  0 B (0.0 %)

        most of main memory is in use at wide, step 3 of 7:

           bytes  padding  value  shape                        steps   from
        1.00 MiB      0 B  wide   f32[256,1024]{1,0:T(8,128)}  3 to 4  net.py:5
         256 KiB      0 B  x      f32[256,256]{1,0:T(8,128)}   0 to 7  x
         256 KiB      0 B  early  f32[256,256]{1,0:T(8,128)}   1 to 6  net.py:3
         128 KiB  127 KiB  mean   f32[256,1]{1,0:T(8,128)}     2 to 6  net.py:4

        most of vector memory is in use at fast, step 4 of 7:

          bytes  padding  value  shape                           steps   from
        256 KiB      0 B  fast   f32[256,256]{1,0:T(8,128)S(1)}  4 to 5  net.py:6

        where tiles and tables pad most:

          bytes  padding  value  shape                       steps   from
        128 KiB  127 KiB  mean   f32[256,1]{1,0:T(8,128)}    2 to 6  net.py:4
        640 KiB  127 KiB  out    f32[256,513]{1,0:T(8,128)}  6 to 7

        allocations that values share, and what those would take apart:

        allocation  for             bytes  values     apart    saved
                 3  temporaries  1.38 MiB       4  1.62 MiB  256 KiB

        what would lower a peak; each alone, with the peak computed anew, and they do not add up:

        bytes less  memory       change
           128 KiB  main memory  compute `mean` later, right before `out` (step 6), the first to read it
           128 KiB  main memory  compute `early` again right before `out` (step 6) instead of keeping it
           128 KiB  main memory  order the whole module anew, for little memory, as --schedule memory does
    "#]]
    .assert_eq(&ran.stdout);
    // Two runs say the same.
    assert_eq!(folder.hloom(&["memory", "m.hlo", "--target", "tpu-v6e", "--summary"]).stdout, ran.stdout);
    let memory =
        json_lines(&folder.hloom(&["memory", "m.hlo", "--target", "tpu-v6e", "--json"]).exits(0).stdout).remove(0);
    let advice: Vec<_> = memory["advice"].as_array().into_iter().flatten().collect();
    let said: Vec<String> = advice.iter().map(|a| format!("{} {} {}", a["bytes"], a["kind"], a["value"])).collect();
    expect![[r#"
        131072 "later" "mean"
        131072 "rematerialise" "early"
        131072 "reschedule" null"#]]
    .assert_eq(&said.join("\n"));
    assert_eq!(memory["memories"][0]["most_padded"][0]["value"], "mean");
    assert_eq!(memory["sharing"][0]["values"], 4);
}

#[test]
fn json_has_every_value_with_its_place_and_time() {
    let ran = folder("memory-json").hloom(&["memory", "m.hlo", "--json"]).exits(0);
    let memory = &json_lines(&ran.stdout)[0];
    assert_eq!((&memory["total_bytes"], &memory["target"]), (&17152.into(), &"cpu".into()));
    let values = memory["allocations"]
        .as_array()
        .into_iter()
        .flatten()
        .flat_map(|a| a["values"].as_array().into_iter().flatten());
    let b = values.into_iter().find(|v| v["value"] == "b").expect("b has a place");
    assert_eq!((&b["size"], &b["live"]), (&256.into(), &serde_json::json!([3, 4])));
    assert_eq!(memory["memories"][0]["peak"]["bytes"], 16384 + 3 * 256);
}

#[test]
fn a_dump_is_judged() {
    let mut folder = folder("memory-check");
    let dump = folder.hloom(&["memory", "m.hlo"]).exits(0).stdout;
    folder = folder.with("right.txt", &dump);
    let ran = folder.hloom(&["memory", "m.hlo", "--check", "right.txt"]).exits(0);
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("", "right.txt: nothing is wrong with this assignment\n"));
    // b moves to where a is, which it still reads.
    let b = " value: <3 b @0> (size=256,offset=0): f32[64]{0}\n";
    let a = " value: <2 a @0> (size=256,offset=0): f32[64]{0}\n";
    folder = folder.with("wrong.txt", dump.replace(b, "").replace(a, &format!("{a}{b}")));
    let ran = folder.hloom(&["memory", "m.hlo", "--check", "wrong.txt"]).exits(1);
    expect![[r#"
        error[H0612]: `b` is written over `a`, which it reads
         --> wrong.txt:6:9
          |
        6 |  value: <3 b @0> (size=256,offset=0): f32[64]{0}
          |         ^^^^^^^^

        error[H0612]: `c` is written over `b`, which it reads
         --> wrong.txt:7:9
          |
        7 |  value: <4 c @0> (size=256,offset=0): f32[64]{0}
          |         ^^^^^^^^

        2 errors in wrong.txt
    "#]]
    .assert_eq(&ran.stderr);
    folder = folder.with("none.txt", "not a dump");
    let ran = folder.hloom(&["memory", "m.hlo", "--check", "none.txt"]).exits(1);
    expect![[r#"
        error[H0610]: this is not a dump of a buffer assignment
         --> none.txt:1:1
          |
        1 | not a dump
          | ^ expected `BufferAssignment:`, `Total bytes used:` or `HloLiveRange`

    "#]]
    .assert_eq(&ran.stderr);
}

#[test]
fn targets_are_named_or_described() {
    let mut folder = folder("memory-target");
    let ran = folder.hloom(&["memory", "m.hlo", "--target", "tpu-v6"]).exits(2);
    assert!(ran.stderr.contains("error[H0601]: there is no target `tpu-v6`"), "{}", ran.stderr);
    assert!(ran.stderr.contains("did you mean `tpu-v"), "{}", ran.stderr);
    folder =
        folder.with("mine.toml", "name = \"mine\"\n[[memory]]\nspace = 0\nalignment = 512\nuntiled_granule = 1024\n");
    let ran = folder.hloom(&["memory", "m.hlo", "--target", "mine.toml"]).exits(0);
    assert!(ran.stdout.contains("(size=1024,offset=0): f32[64]{0}"), "{}", ran.stdout);
    folder = folder.with("bad.toml", "name = \"bad\"\nspeed = 3\n");
    let ran = folder.hloom(&["memory", "m.hlo", "--target", "bad.toml"]).exits(1);
    assert!(ran.stderr.contains("error[H0602]: bad.toml:2: nothing is known of `speed` here"), "{}", ran.stderr);
}

#[test]
fn what_a_module_lacks_is_added_and_said() {
    let mut folder = Folder::new("memory-prepared");
    let text = "HloModule m\n\nENTRY e {\n  x = f32[8]{0} parameter(0)\n  y = f32[2]{0} parameter(1)\n  i = s32[] parameter(2)\n  \
                c = f32[8]{0} negate(x)\n  u = f32[8]{0} dynamic-update-slice(c, y, i)\n  ROOT r = f32[8]{0} add(u, c)\n}\n";
    folder = folder.with("copy.hlo", text);
    folder = folder.with("scheduled.hlo", text.replace("HloModule m", "HloModule m, is_scheduled=true"));
    let ran = folder.hloom(&["memory", "copy.hlo"]).exits(0);
    assert!(ran.stderr.contains("warning[H0606]"), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("warning[H0607]: to plan the memory of this module, it was given 1 copy"),
        "{}",
        ran.stderr
    );
    assert!(ran.stdout.contains(" copy @0> (size=32,offset="), "{}", ran.stdout);
    let ran = folder.hloom(&["memory", "scheduled.hlo"]).exits(0);
    assert!(ran.stderr.contains("warning[H0607]") && !ran.stderr.contains("H0606"), "{}", ran.stderr);
    let shared = "HloModule m\n\nf {\n  p = f32[8]{0} parameter(0)\n  ROOT n = f32[8]{0} negate(p)\n}\n\nENTRY e {\n  x = f32[8]{0} parameter(0)\n  \
                  a = f32[8]{0} call(x), to_apply=f\n  ROOT b = f32[8]{0} call(a), to_apply=f\n}\n";
    folder = folder.with("shared.hlo", shared);
    let ran = folder.hloom(&["memory", "shared.hlo"]).exits(0);
    assert!(ran.stderr.contains("it was given 1 computation for further callers"), "{}", ran.stderr);
    assert!(ran.stdout.contains(" n.clone @0> (size=32,offset="), "{}", ran.stdout);
}

#[test]
fn what_cannot_be_planned_is_refused_with_a_reason() {
    let text = "HloModule m\n\nENTRY e {\n  x = f32[?]{0} parameter(0)\n  ROOT r = f32[?]{0} negate(x)\n}\n";
    let folder = Folder::new("memory-refused").with("large.hlo", text);
    let ran = folder.hloom(&["memory", "large.hlo"]).exits(1);
    assert!(ran.stderr.contains("error[H0605]"), "{}", ran.stderr);
}

#[test]
fn newer_compilers_assign_in_the_order_in_which_things_begin() {
    let module = r#"HloModule m, is_scheduled=true

ENTRY e {
  x = f32[1024]{0:T(1024)} parameter(0)
  small = f32[1024]{0:T(1024)} negate(x)
  large = f32[2048]{0:T(1024)} concatenate(small, x), dimensions={0}
  part = f32[1024]{0:T(1024)} slice(large), slice={[0:1024]}
  ROOT sum = f32[1024]{0:T(1024)} add(part, small)
}
"#;
    let folder = Folder::new("memory-newer").with("m.hlo", module);
    let temporaries = |dialect: &str| {
        let ran = folder.hloom(&["memory", "m.hlo", "--target", "tpu-v6e", "--dialect", dialect]).exits(0);
        let lines = ran.stdout.lines().filter(|l| l.contains("small") && l.contains("value") || l.contains("large @"));
        lines.take(2).map(str::trim).collect::<Vec<_>>().join("\n")
    };
    expect![[r#"
         value: <1 small @0> (size=4096,offset=0): f32[1024]{0:T(1024)}
         value: <2 large @0> (size=8192,offset=0): f32[2048]{0:T(1024)}"#]]
    .assert_eq(&temporaries("a"));
    expect![[r#"
         value: <1 small @0> (size=4096,offset=0): f32[1024]{0:T(1024)}
         value: <2 large @0> (size=8192,offset=16384): f32[2048]{0:T(1024)}"#]]
    .assert_eq(&temporaries("b"));
    let ran = folder.hloom(&["memory", "m.hlo", "--target", "tpu-v6e", "--dialect", "b"]).exits(0);
    expect![[r#"
        BufferAssignment:
        allocation 0: size 4096, page 0, output shape is |f32[1024]|, maybe-live-out:
         value: <4 sum @0> (size=4096,offset=0): f32[1024]{0:T(1024)}
        allocation 1: size 4096, page 0, parameter 0, shape |f32[1024]| at ShapeIndex {}:
         value: <0 x @0> (size=4096,offset=0): f32[1024]{0:T(1024)}
        allocation 2: size 0, color 1, page 0, preallocated-temp:
        allocation 3: size 36864, page 0, preallocated-temp:
         value: <1 small @0> (size=4096,offset=0): f32[1024]{0:T(1024)}
         value: <2 large @0> (size=8192,offset=16384): f32[2048]{0:T(1024)}
         value: <3 part @0> (size=4096,offset=32768): f32[1024]{0:T(1024)}
    "#]]
    .assert_eq(&ran.stdout);
}

/// A dump with a weight in the fast memory, and with what one of its operations uses of that while it runs.
fn tpu_dump(space: i64, scoped: i64) -> String {
    let config = format!(
        r#"{{"flag_configs":[],"used_scoped_memory_configs":[{{"memory_space":"1","offset":"0","size":"{scoped}"}}]}}"#
    );
    format!(
        "HloModule m, is_scheduled=true\n\nENTRY e {{\n  x = f32[8,128]{{1,0:T(8,128)}} parameter(0)\n  \
         c = f32[8,128]{{1,0:T(8,128)S({space})}} copy(x)\n  \
         ROOT r = f32[8,128]{{1,0:T(8,128)}} add(x, c), backend_config={config}\n}}\n"
    )
}

#[test]
fn the_machine_of_a_dump_is_recognised_and_said() {
    let cases = [
        (tpu_dump(1, 29_233_152), "taken for tpu-v6e: an operation uses 29233152 bytes of vector memory"),
        (tpu_dump(1, 1024), "taken for tpu-v5e: it has values in memory 1"),
        (tpu_dump(3, 1024), "taken for tpu-v4: it has values in memory 3"),
    ];
    for (n, (text, words)) in cases.into_iter().enumerate() {
        let folder = Folder::new(&format!("memory-recognised-{n}")).with("m.hlo", text);
        for command in ["memory", "stats"] {
            let ran = folder.hloom(&[command, "m.hlo"]).exits(0);
            assert!(ran.stderr.contains(words), "{command}: {}", ran.stderr);
        }
        assert_eq!(folder.hloom(&["memory", "m.hlo", "--target", "tpu-v6e"]).stderr, "");
    }
    // Tiles alone do not tell which.
    let folder = Folder::new("memory-asked").with("m.hlo", tpu_dump(0, 0));
    let ran = folder.hloom(&["memory", "m.hlo"]).exits(2);
    assert!(ran.stderr.contains("give --target, which may be tpu-v2"), "{}", ran.stderr);
}
