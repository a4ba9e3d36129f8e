//! Simulations of small programs, with times worked out by hand beside each.

use hloom_formats::hlo_text;
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::verify::{VerifiedModule, VerifyOptions, verify};
use hloom_simulate::{CycleSource, Lane, Options, Simulation, prepare, simulate};
use hloom_target::{Description, Target, Topology};

fn read(text: &str) -> VerifiedModule {
    let result = hlo_text::read(text.as_bytes());
    let module = result.module.unwrap_or_else(|| panic!("{:?}", result.diagnostics));
    verify(module, &VerifyOptions::default()).unwrap_or_else(|invalid| panic!("{:?}", invalid.diagnostics))
}

/// A machine whose numbers are easy: 1 GB/s of memory, 1 Gflop/s, links of 1 GB/s, nothing to start.
fn plain() -> Target {
    let text = "name = \"plain\"\nclock_hz = 1e9\n[[memory]]\nspace = 0\nname = \"memory\"\nbytes = 4_000_000\nalignment = 8
bandwidth = 1e9\n[[memory]]\nspace = 1\nname = \"fast\"\nbytes = 1_000_000\nalignment = 8\n[[rate]]\ntype = \"f32\"\nmatmul = 1e9\nvector = 1e12
[[rate]]\ntype = \"s32\"\nvector = 1e12\n[[link]]\nname = \"wire\"\nkind = \"torus\"\ndimensions = 2\nbandwidth = 1e9\n";
    Target::from_text(text, "plain").unwrap()
}

fn run_on(text: &str, target: &Target, options: &Options) -> Result<Simulation, Vec<Diagnostic>> {
    simulate(&read(text), target, options)
}

fn run(text: &str) -> Simulation {
    run_on(text, &plain(), &Options::default()).unwrap_or_else(|faults| panic!("{faults:?}"))
}

fn is_near(a: f64, b: f64) {
    assert!((a - b).abs() <= 1e-9 * b.abs().max(1e-9), "{a} is not {b}");
}

#[test]
fn kernels_run_one_after_another() {
    // Each reads 4000 bytes twice or once, and writes 4000: 12 and 8 microseconds at a byte a nanosecond.
    let s = run(
        "HloModule m, is_scheduled=true\nENTRY e {\n x = f32[1000] parameter(0)\n a = f32[1000] add(x, x)\n ROOT b = f32[1000] negate(a)\n}",
    );
    is_near(s.step_seconds, 20e-6);
    assert_eq!(s.instructions.len(), 2);
    is_near(s.instructions[1].start, 12e-6);
    assert_eq!(s.critical_path.len(), 2);
    is_near(s.memory_utilisation, 1.0);
}

#[test]
fn copies_go_on_beside_kernels_and_share_the_memory() {
    // The copy of 4000 bytes and the negation of 8000 share the memory evenly: the copy is done after 8 µs, the negation
    // has then done half of its own and takes 4 more; the sum reads one array in main memory and writes one.
    let s = run("HloModule m, is_scheduled=true
ENTRY e {
  x = f32[1000]{0} parameter(0)
  y = f32[1000]{0} parameter(1)
  start = (f32[1000]{0:S(1)}, f32[1000]{0}, u32[]) copy-start(x)
  a = f32[1000]{0} negate(y)
  done = f32[1000]{0:S(1)} copy-done(start)
  ROOT b = f32[1000]{0} add(a, done)
}");
    is_near(s.step_seconds, 12e-6 + 8e-6);
    is_near(s.totals.exposed_copy_seconds, 0.0);
    let copy = s.instructions.iter().find(|i| i.lane == Lane::Copy).expect("the copy");
    is_near(copy.end, 8e-6);
}

#[test]
fn a_done_waits_for_its_exchange() {
    // Three quarters of 16000 bytes come in over two links: 6 µs, of which the negation (8 µs of memory) hides all but
    // what the memory is shared for.
    let text = "HloModule m, is_scheduled=true, num_partitions=4
ENTRY e {
  x = f32[1000] parameter(0)
  start = (f32[1000], f32[4000]) all-gather-start(x), channel_id=1, replica_groups={{0,1,2,3}}, dimensions={0}, use_global_device_ids=true
  done = f32[4000] all-gather-done(start)
  ROOT b = f32[4000] negate(done)
}";
    let s = run(text);
    assert_eq!((s.devices, s.topology.as_str(), s.classes.len()), (4, "2x2", 1));
    is_near(s.totals.exposed_network_seconds, s.totals.network_seconds);
    assert_eq!(s.waits.len(), 1);
    assert!(s.totals.exposed_network_seconds >= 6e-6, "{s:?}");
    is_near(s.totals.wire_bytes, 12000.0);
    let lanes: Vec<Lane> = s.critical_path.iter().map(|&n| s.events[n].lane).collect();
    assert_eq!(lanes, [Lane::Network, Lane::Compute]);
}

const LOOP: &str = "HloModule m, is_scheduled=true
body {
  b.p = (s32[], f32[1000]) parameter(0)
  b.i = s32[] get-tuple-element(b.p), index=0
  b.x = f32[1000] get-tuple-element(b.p), index=1
  b.one = s32[] constant(1)
  b.j = s32[] add(b.i, b.one)
  b.y = f32[1000] negate(b.x)
  ROOT b.t = (s32[], f32[1000]) tuple(b.j, b.y)
}
condition {
  c.p = (s32[], f32[1000]) parameter(0)
  c.i = s32[] get-tuple-element(c.p), index=0
  c.n = s32[] LIMIT
  ROOT c.r = pred[] compare(c.i, c.n), direction=LT
}
ENTRY e {
  i = s32[] constant(0)
  x = f32[1000] parameter(0)
  t = (s32[], f32[1000]) tuple(i, x)
  ROOT w = (s32[], f32[1000]) while(t), condition=condition, body=body
}";

#[test]
fn loops_are_simulated_once_and_repeated() {
    let short = run(&LOOP.replace("LIMIT", "constant(10)"));
    let long = run(&LOOP.replace("LIMIT", "constant(1000000)"));
    let negate = 8e-6;
    assert!(short.step_seconds > 10.0 * negate && short.step_seconds < 11.0 * negate, "{}", short.step_seconds);
    // The condition runs once more than the body, which matters less for the long one.
    assert!((long.step_seconds / short.step_seconds / 1e5 - 1.0).abs() < 1e-3);
    assert!(long.events.len() < 20, "{} events", long.events.len());
    assert!(long.totals.bytes > 8e9 && long.totals.bytes < 8.1e9);
    assert_eq!(
        long.instructions.iter().map(|i| i.runs).fold(0.0, f64::max),
        1_000_001.0,
        "the condition runs once more"
    );
}

#[test]
fn rounds_last_as_long_as_what_the_next_waits_for() {
    let mut target = plain();
    (target.compute.launch_seconds, target.compute.loop_launch_seconds) = (1e-3, Some(0.0));
    let program = LOOP.replace("LIMIT", "constant(10)");
    let simulated = |target: &Target| {
        run_on(&program, target, &Options::default()).unwrap_or_else(|faults| panic!("{faults:?}")).step_seconds
    };
    let traffic = simulated(&target);
    assert!(traffic < 1e-4, "no kernel of a loop is launched by itself: {traffic}");
    // One negation of the state, whose result the next round begins with.
    target.compute.operation_seconds = 1e-4;
    let waited = simulated(&target);
    assert!((1e-3..1.01e-3).contains(&waited), "ten rounds of 100 µs: {waited}");
}

#[test]
fn a_loop_of_unknown_length_is_named_and_may_be_told() {
    let text = LOOP.replace("LIMIT", "get-tuple-element(c.p), index=0");
    let fault = run_on(&text, &plain(), &Options::default()).unwrap_err();
    assert_eq!(fault[0].message, "how often the loop `w` runs is not known");
    let told = |name: &str| {
        let options = Options { trip_counts: vec![(name.to_owned(), 3)], ..Options::default() };
        run_on(&text, &plain(), &options)
    };
    assert!(told("w").unwrap().step_seconds > 24e-6);
    assert_eq!(told("v").unwrap_err()[0].message, "`--trip-count` names `v`, which the module lacks");
}

#[test]
fn devices_that_meet_other_groups_are_of_another_class() {
    // Devices 0 and 1 exchange; 2 and 3 are alone, and all meet afterwards: the first two come late.
    let s = run("HloModule m, is_scheduled=true, num_partitions=4
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}
ENTRY e {
  x = f32[1000] parameter(0)
  some = f32[1000] all-reduce(x), channel_id=1, replica_groups={{0,1},{2},{3}}, use_global_device_ids=true, to_apply=add
  ROOT all = f32[1000] all-reduce(some), channel_id=2, replica_groups={{0,1,2,3}}, use_global_device_ids=true, to_apply=add
}");
    assert_eq!(s.classes.iter().map(|c| c.devices).collect::<Vec<_>>(), [2, 2]);
    is_near(s.classes[0].seconds, s.classes[1].seconds);
    // One link, twice half of 4000 bytes; then two links, twice three quarters. The memory takes part: 2 × the bytes.
    assert!(s.step_seconds >= 4e-6 + 3e-6, "{}", s.step_seconds);
}

#[test]
fn what_does_not_fit_is_said() {
    let text = "HloModule m, is_scheduled=true, num_partitions=4\nENTRY e {\n ROOT x = f32[1000] parameter(0)\n}";
    let on = |topology: &str| {
        let options = Options { topology: Some(Topology::parse(topology).unwrap()), ..Options::default() };
        run_on(text, &plain(), &options).map(|s| s.devices).map_err(|f| f[0].message.clone())
    };
    assert_eq!(on("2x2"), Ok(4));
    assert_eq!(
        on("2x4").unwrap_err(),
        "the topology 2x4 has 8 devices, but the module is for 1 replicas × 4 partitions"
    );
    let large = "HloModule m, is_scheduled=true\nENTRY e {\n x = f32[1000000] parameter(0)\n ROOT y = f32[1000000] negate(x)\n}";
    let s = run(large);
    let over = s.warnings.iter().find(|w| w.code.number == 1305).expect("it is too large");
    assert_eq!(over.message, "the program takes 8000000 bytes of `plain`'s memory, 4000000 more than there are");
    let other = "HloModule m, is_scheduled=true\nENTRY e {\n ROOT x = f32[10]{0:S(7)} parameter(0)\n}";
    let fault = run_on(other, &plain(), &Options::default()).unwrap_err();
    assert_eq!(fault[0].message, "`x` lies in memory S(7), which `plain` does not have");
}

#[test]
fn cycles_of_a_dump_are_taken_as_they_are() {
    let text = |config: &str| {
        format!(
            "HloModule m, is_scheduled=true\nENTRY e {{\n x = f32[1000] parameter(0)\n ROOT y = f32[1000] negate(x){config}\n}}"
        )
    };
    let dump = Options { cycles: CycleSource::Dump, ..Options::default() };
    let config = ", backend_config={\"window_config\":{\"estimated_cycles\":\"5000\",\"iteration_bounds\":[\"1\"]}}";
    is_near(run_on(&text(config), &plain(), &dump).unwrap().step_seconds, 5e-6);
    let fault = run_on(&text(""), &plain(), &dump).unwrap_err();
    assert_eq!(fault[0].message, "`y` does work and carries no `estimated_cycles`");
}

#[test]
fn calls_without_a_cost_are_named() {
    let text = "HloModule m, is_scheduled=true\nENTRY e {\n x = f32[1000] parameter(0)\n ROOT y = f32[1000] custom-call(x), custom_call_target=\"mystery\"\n}";
    let fault = run_on(text, &plain(), &Options::default()).unwrap_err();
    assert_eq!(fault[0].message, "what `y` costs is not known: it calls `mystery`, and there is no formula for it");
    let cost = hloom_cost::CustomCost::parse("12us").unwrap();
    let options = Options { costs: vec![("mystery".to_owned(), cost)], ..Options::default() };
    is_near(run_on(text, &plain(), &options).unwrap().step_seconds, 12e-6);
}

#[test]
fn a_missing_rate_is_named() {
    let text =
        "HloModule m, is_scheduled=true\nENTRY e {\n x = f64[1000] parameter(0)\n ROOT y = f64[1000] negate(x)\n}";
    let fault = run_on(text, &plain(), &Options::default()).unwrap_err();
    assert_eq!(
        fault[0].message,
        "the description of `plain` does not say how fast it computes with f64 element by element"
    );
}

#[test]
fn modules_without_a_schedule_get_one() {
    let text = "HloModule m\nENTRY e {\n x = f32[1000] parameter(0)\n a = f32[1000] add(x, x)\n ROOT b = f32[1000] negate(a)\n}";
    let mut module = read(text).into_module();
    assert!(prepare(&mut module, &plain()).unwrap().is_scheduled);
    let verified = verify(module, &VerifyOptions::default()).unwrap_or_else(|i| panic!("{:?}", i.diagnostics));
    is_near(simulate(&verified, &plain(), &Options::default()).unwrap().step_seconds, 20e-6);
}

#[test]
fn twice_the_bandwidth_is_half_the_time() {
    let text = "HloModule m, is_scheduled=true\nENTRY e {\n x = f32[8000000] parameter(0)\n ROOT y = f32[8000000] negate(x)\n}";
    let on = |change: &str| {
        let mut description = Description::named("gpu-h100").unwrap();
        description.set("hbm_bandwidth", change).unwrap();
        let s = run_on(text, &description.target().unwrap(), &Options::default()).unwrap();
        s.totals.memory_seconds
    };
    is_near(on("1x"), 2.0 * on("2x"));
}

#[test]
fn attention_has_a_formula_and_is_told_of_once() {
    let call = |name: &str| {
        format!(
            "  {name} = (bf16[1,8192,16,128], f32[1]) custom-call(q, k, k), custom_call_target=\"te_fused_attn_forward_ffi\"\n"
        )
    };
    let text = format!(
        "HloModule m, is_scheduled=true\nENTRY e {{\n  q = bf16[1,8192,16,128] parameter(0)\n  k = bf16[1,8192,2,128] parameter(1)\n{}{}  ROOT t = (bf16[1,8192,16,128], f32[1]) tuple(g, h)\n}}",
        call("a"),
        call("b")
    )
    .replace("  ROOT t", "  g = bf16[1,8192,16,128] get-tuple-element(a), index=0\n  h = f32[1] get-tuple-element(b), index=1\n  ROOT t");
    let s = run_on(&text, &Target::named("gpu-h100").unwrap(), &Options::default()).unwrap();
    assert_eq!(s.warnings.len(), 1, "{:?}", s.warnings);
    assert_eq!(s.warnings[0].message, "`te_fused_attn_forward_ffi`, which is called 2 times, is taken for attention");
    // Scores and their product with the values: 4 operations for each query, key and element of a head, twice.
    is_near(s.totals.matmul_flops, 2.0 * 4.0 * 16.0 * 8192.0 * 8192.0 * 128.0);
}
