//! The HLO text reader on text that is cut, changed or hostile: it answers, without panic and without taking much
//! memory or time.

use hloom_formats::hlo_text::read;
use std::time::{Duration, Instant};

/// A module with most constructs in it.
const MODULE: &str = r#"HloModule m, is_scheduled=true, input_output_alias={ {0}: (0, {}, may-alias) }, entry_computation_layout={(f32[4,2]{1,0:T(2,128)S(1)}, s32[])->(f32[4,2]{1,0}, f32[])}, frontend_attributes={a="b"}

FileNames
1 "a.py"

FunctionNames
1 "f"

FileLocations
1 {file_name_id=1 function_name_id=1 line=1 end_line=1 column=1 end_column=1}

StackFrames
1 {file_location_id=1 parent_frame_id=1}

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(f32[] %a, f32[] %b), metadata={op_type="add" op_name="x/y" source_file="f" source_line=3 stack_frame_id=1}
}, execution_thread="main"

ENTRY %e (p: f32[4,2], i: s32[]) -> (f32[4,2], f32[]) {
  %p = f32[4,2]{1,0:T(2,128)S(1)} parameter(0), sharding={devices=[2,1,2]<=[4] last_tile_dim_replicate}, parameter_replication={true}
  %i = s32[] parameter(1)
  %c = f32[4,2]{1,0} constant({ { 1, -2.5 }, { inf, nan }, { 1e-3, -0 }, { 3, 4 } })
  %k = c64[1]{0} constant({(1, -2)})
  %z = f32[] constant(0)
  %g = f32[2,2]{1,0} slice(%p), slice={[0:4:2], [0:2]}
  %w = f32[2,1]{1,0} reduce-window(%g, %z), window={size=1x2 pad=0_0x0_0}, to_apply=%add
  %r = f32[] reduce(multiply(%p, %c), %z), dimensions={0,1}, to_apply={ x = f32[] parameter(0) y = f32[] parameter(1) ROOT t = f32[] add(x, y) }
  %ar = f32[4,2]{1,0} all-reduce(%p), channel_id=1, replica_groups=[2,2]<=[2,2]T(1,0), use_global_device_ids=true, to_apply=%add, backend_config={"a":["}"]}
  %cs = ((f32[4,2]{1,0}), f32[4,2]{1,0}, u32[]) custom-call-start(%ar), custom_call_target="t\n", control-predecessors={%r}
  %cd = f32[4,2]{1,0} custom-call-done(%cs)
  ROOT %t = (f32[4,2]{1,0}, /*index=1*/f32[]) tuple(%cd, %r), origin={({"a"}, {"b" {0}})}, statistics={visualizing_index=0,x=1.5}
}
"#;

#[test]
fn the_module_is_right_to_begin_with() {
    let result = read(MODULE.as_bytes());
    assert!(result.module.is_some(), "{:?}", result.diagnostics);
}

#[test]
fn cut_anywhere() {
    for end in 0..MODULE.len() {
        let result = read(&MODULE.as_bytes()[..end]);
        let entry = MODULE.find("ENTRY").unwrap() + 1..MODULE.rfind('}').unwrap() + 1;
        assert!(result.module.is_none() || !entry.contains(&end), "half an entry was read, cut at {end}");
        assert!(result.module.is_some() || !result.diagnostics.is_empty(), "nothing was said, cut at {end}");
        for d in &result.diagnostics {
            assert!(result.positions.resolve(&MODULE.as_bytes()[..end], &d.place).is_some(), "{d} has no place");
        }
    }
}

#[test]
fn any_byte_changed_to_any_of_these() {
    let mut text = MODULE.as_bytes().to_vec();
    for i in 0..text.len() {
        let original = text[i];
        for byte in [0, b'\n', b' ', b'"', b'(', b')', b'{', b'}', b',', b'9', b'-', b'%', b'/', 0xff] {
            text[i] = byte;
            let result = read(&text);
            assert!(result.module.is_some() || !result.diagnostics.is_empty());
        }
        text[i] = original;
    }
}

#[test]
fn any_line_left_out_or_doubled() {
    let lines: Vec<&str> = MODULE.lines().collect();
    for i in 0..lines.len() {
        let mut fewer = lines.clone();
        fewer.remove(i);
        read(fewer.join("\n").as_bytes());
        let mut more = lines.clone();
        more.insert(i, lines[i]);
        read(more.join("\n").as_bytes());
    }
}

#[test]
fn deep_nesting_of_every_kind() {
    for (open, close) in [
        ("(", ")"),
        ("{", "}"),
        ("[", "]"),
        ("negate(", ")"),
        ("f32[] call(), to_apply={ x = ", "}"),
        ("origin={(", ")}"),
        ("/*", "*/"),
    ] {
        for before in [
            "",
            "HloModule m\nENTRY e { x = ",
            "HloModule m\nENTRY e { ROOT x = f32[] constant(",
            "HloModule m, origin_recovery_table={",
        ] {
            let text = format!("{before}{}{}", open.repeat(50_000), close.repeat(50_000));
            assert!(read(text.as_bytes()).module.is_none());
        }
    }
}

#[test]
fn claimed_sizes_are_not_believed() {
    for line in [
        "ROOT c = f32[999999999999,999999999999] constant({1})",
        "ROOT c = f32[1000000000,1000000000] constant(1)",
        "ROOT c = f32[4000000000] constant({ 1, 2 })",
        "ROOT c = u8[9223372036854775807] constant({})",
        "ROOT p = f32[8] parameter(0), sharding={devices=[9223372036854775807]<=[9223372036854775807]}",
        "ROOT p = f32[8] parameter(0), sharding={devices=[1048576,1048576]<=[1099511627776]}",
        "ROOT p = f32[8] parameter(0), sharding={devices=[2,549755813888]<=[549755813888,2]T(1,0) last_tile_dim_replicate}",
        "ROOT p = f32[8] parameter(9223372036854775807)",
    ] {
        let start = Instant::now();
        read(format!("HloModule m\nENTRY e {{\n  {line}\n}}\n").as_bytes());
        assert!(start.elapsed() < Duration::from_secs(5), "{line}");
    }
}

/// Twice the text must not take much more than twice the time.
#[test]
fn time_grows_with_the_length() {
    let chain = |n: usize| {
        let mut text = "HloModule m\nENTRY e {\n  x = f32[4] parameter(0)\n".to_owned();
        (0..n).for_each(|i| text.push_str(&format!("  x.{i}.{} = f32[4] add(x, x)\n", i % 7)));
        text + "}\n"
    };
    let computations = |n: usize| {
        let mut text = "HloModule m\n".to_owned();
        // Bodies that do not end at the start of a line, so that nothing ahead can be found.
        (0..n).for_each(|i| text.push_str(&format!("f{i} {{\n  ROOT p = f32[] parameter(0)\n  }}\n")));
        text
    };
    let same_name = |n: usize| {
        let mut text = "HloModule m\n".to_owned();
        (0..n).for_each(|i| text.push_str(&format!("g{i} {{\n  ROOT add = f32[] parameter(0)\n}}\n")));
        text
    };
    let kinds: [(&str, &dyn Fn(usize) -> String); 3] =
        [("chain", &chain), ("computations", &computations), ("same name", &same_name)];
    for (name, make) in kinds {
        let time = |n: usize| {
            let text = make(n);
            (0..3)
                .map(|_| {
                    let start = Instant::now();
                    assert!(read(text.as_bytes()).module.is_some());
                    start.elapsed()
                })
                .min()
                .unwrap()
        };
        let (short, long) = (time(5_000), time(40_000));
        // Eight times the text; a quadratic step would take sixty-four times as long. The rest is for a busy machine.
        assert!(long < short * 40 + Duration::from_millis(200), "{name}: {short:?} for 5,000, {long:?} for 40,000");
    }
}
