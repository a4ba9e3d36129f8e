//! Runs as a user of the library sees them: arguments that do not fit, custom calls of one's own, watching, ending a run
//! early, deep calls, and failures of one device among several.

use hloom_eval::custom_call::CustomCalls;
use hloom_eval::interpreter::{Device, OperandValues};
use hloom_eval::observe::{Observer, Verdict};
use hloom_eval::run::{DeviceGrid, Leaving, Options, Prepared, Shared, run};
use hloom_formats::hlo_text;
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::diagnostic::codes::eval as codes;
use hloom_ir::entity::InstructionId;
use hloom_ir::verify::{VerifiedModule, VerifyOptions, verify};
use hloom_value::{Array, ExecutionError, Value};
use std::fmt::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

fn program(text: &str) -> VerifiedModule {
    let read = hlo_text::read(text.as_bytes());
    let module = read.module.unwrap_or_else(|| panic!("{:?}\n{text}", read.diagnostics));
    verify(module, &VerifyOptions::default()).unwrap_or_else(|e| panic!("{:?}\n{text}", e.diagnostics))
}

fn floats(elements: &[f32]) -> Value {
    Value::Array(Array::new(&[elements.len() as i64], elements).expect("a list has as many elements as it has"))
}

fn int(n: i32) -> Value {
    Value::Array(Array::new(&[], &[n]).expect("a scalar has one element"))
}

fn run_on(devices: usize, text: &str, arguments: Vec<Value>, options: &Options<'_>) -> Result<Vec<Value>, Diagnostic> {
    let grid = DeviceGrid { replicas: devices, partitions: 1 };
    run(&program(text), grid, vec![arguments; devices], options).map_err(ExecutionError::into_diagnostic)
}

fn fails(result: Result<Vec<Value>, Diagnostic>) -> Diagnostic {
    result.expect_err("this run must fail")
}

const SUM: &str =
    "HloModule m\nENTRY e {\n  x = f32[2] parameter(0)\n  y = f32[2] parameter(1)\n  ROOT z = f32[2] add(x, y)\n}\n";

#[test]
fn arguments_that_do_not_fit_are_named() {
    let options = Options::default();
    let cases: [(Vec<Value>, &str); 4] = [
        (vec![floats(&[1.0, 2.0])], "1 arguments are given to device 0, the program takes 2"),
        (vec![floats(&[1.0, 2.0]); 3], "3 arguments are given to device 0, the program takes 2"),
        (vec![floats(&[1.0, 2.0]), floats(&[1.0])], "argument 1 of device 0 is f32[1], but f32[2] is needed"),
        (vec![int(1), floats(&[1.0, 2.0])], "argument 0 of device 0 is s32[], but f32[2] is needed"),
    ];
    for (arguments, message) in cases {
        let error = fails(run_on(1, SUM, arguments, &options));
        assert_eq!((error.code, error.message.as_str()), (&codes::BAD_INPUT, message));
    }
}

const CALL: &str = r#"HloModule m
ENTRY e {
  x = f32[2] parameter(0)
  ROOT y = f32[2] custom-call(x), custom_call_target="my_kernel"
}
"#;

#[test]
fn a_custom_call_of_ones_own_is_called() {
    let mut custom_calls = CustomCalls::default();
    let twice = |_: &mut Device<'_>, _: InstructionId, operands: OperandValues| {
        let array = operands[0].as_array()?;
        Ok(floats(&array.elements::<f32>().iter().map(|x| 2.0 * x).collect::<Vec<_>>()))
    };
    custom_calls.register("my_kernel", Box::new(twice));
    let options = Options { custom_calls: Some(&custom_calls), ..Options::default() };
    let results = run_on(1, CALL, vec![floats(&[1.0, 2.5])], &options).expect("the call is provided");
    assert_eq!(results[0].as_array().unwrap().elements::<f32>(), [2.0, 5.0]);
}

#[test]
fn a_custom_call_that_gives_another_shape_is_found_out() {
    let mut custom_calls = CustomCalls::default();
    custom_calls.register("my_kernel", Box::new(|_, _, _| Ok(floats(&[1.0]))));
    let options = Options { custom_calls: Some(&custom_calls), ..Options::default() };
    let error = fails(run_on(1, CALL, vec![floats(&[1.0, 2.5])], &options));
    assert_eq!(error.code, &codes::UNSUPPORTED);
    assert!(error.message.contains("it gives f32[1], but is declared to give f32[2]"), "{}", error.message);
}

/// A device whose thread panics (in code of the user's, here) must not leave the others waiting for the time limit.
#[test]
fn devices_do_not_wait_for_one_that_panicked() {
    let mut custom_calls = CustomCalls::default();
    let panics = |device: &mut Device<'_>, _: InstructionId, operands: OperandValues| {
        assert!(device.ordinal != 1, "device 1 panics, as the test wants it to");
        operands.into_iter().next().ok_or_else(|| ExecutionError::bug("no operand"))
    };
    custom_calls.register("my_kernel", Box::new(panics));
    let text = r#"HloModule m
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

ENTRY e {
  x = f32[2] parameter(0)
  y = f32[2] custom-call(x), custom_call_target="my_kernel"
  ROOT z = f32[2] all-reduce(y), replica_groups={}, to_apply=add
}
"#;
    let options =
        Options { custom_calls: Some(&custom_calls), time_limit: Some(Duration::from_secs(60)), ..Options::default() };
    let start = Instant::now();
    let error = fails(run_on(3, text, vec![floats(&[1.0, 2.0])], &options));
    assert!(start.elapsed() < Duration::from_secs(30), "the others waited");
    assert_eq!(error.code, &codes::INTERNAL);
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

ENTRY e {
  x = s32[] parameter(0)
  ROOT y = s32[] while(x), condition=ever, body=body
}
";

#[test]
fn a_run_can_be_ended_from_outside() {
    let cancel = AtomicBool::new(false);
    let error = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let options = Options { cancel: Some(&cancel), ..Options::default() };
            fails(run_on(2, ENDLESS, vec![int(0)], &options))
        });
        std::thread::sleep(Duration::from_millis(50));
        assert!(!thread.is_finished(), "the loop ended by itself");
        cancel.store(true, Ordering::Relaxed);
        thread.join().expect("the run does not panic")
    });
    assert_eq!(error.code, &codes::CANCELLED);
}

#[test]
fn the_limit_of_steps_names_it() {
    let options = Options { max_steps: Some(500), ..Options::default() };
    let error = fails(run_on(2, ENDLESS, vec![int(0)], &options));
    assert_eq!(error.code, &codes::TOO_MANY_STEPS);
    assert!(error.message.contains("500 instructions"), "{}", error.message);
}

/// Computations that call each other `depth` deep; the innermost adds one.
fn nested_calls(depth: usize) -> String {
    let mut text = String::from("HloModule m\n");
    for level in 0..depth {
        let body = match level {
            0 => "one = s32[] constant(1)\n  ROOT r = s32[] add(x, one)".to_owned(),
            _ => format!("ROOT r = s32[] call(x), to_apply=f{}", level - 1),
        };
        let _ = writeln!(text, "f{level} {{\n  x = s32[] parameter(0)\n  {body}\n}}\n");
    }
    let last = depth - 1;
    let _ = writeln!(text, "ENTRY e {{\n  x = s32[] parameter(0)\n  ROOT y = s32[] call(x), to_apply=f{last}\n}}");
    text
}

#[test]
fn calls_may_nest_deep_but_not_without_end() {
    let options = Options::default();
    let results = run_on(1, &nested_calls(2000), vec![int(41)], &options).expect("two thousand calls are allowed");
    assert_eq!(results[0].as_array().unwrap().elements::<i32>(), [42]);
    let error = fails(run_on(1, &nested_calls(5000), vec![int(41)], &options));
    assert_eq!(error.code, &codes::UNSUPPORTED);
    assert!(error.message.contains("calls nest more than"), "{}", error.message);
}

/// Notes what it is told, and stops at a chosen value.
struct Notes {
    seen: Mutex<Vec<(usize, usize)>>,
    stop_at: usize,
}

impl Observer for Notes {
    fn made(&self, device: usize, _: InstructionId, _: &Value, operands: &[Value]) -> Verdict {
        let mut seen = self.seen.lock().unwrap();
        seen.push((device, operands.len()));
        if seen.len() < self.stop_at {
            return Verdict::GoOn;
        }
        Verdict::Stop(Box::new(Diagnostic::error(&codes::NOT_A_NUMBER, "stopped by the test")))
    }
}

#[test]
fn an_observer_sees_every_value_and_may_stop_the_run() {
    let text =
        "HloModule m\nENTRY e {\n  x = f32[2] parameter(0)\n  y = f32[2] negate(x)\n  ROOT z = f32[2] add(x, y)\n}\n";
    let notes = Notes { seen: Mutex::default(), stop_at: usize::MAX };
    let options = Options { observer: Some(&notes), ..Options::default() };
    run_on(1, text, vec![floats(&[1.0, 2.0])], &options).expect("nothing stops it");
    let expected = [(0, 0), (0, 1), (0, 2)];
    assert_eq!(*notes.seen.lock().unwrap(), expected, "device and number of operands of parameter, negate and add");

    let notes = Notes { seen: Mutex::default(), stop_at: 1 };
    let options = Options { observer: Some(&notes), ..Options::default() };
    let error = fails(run_on(1, text, vec![floats(&[1.0, 2.0])], &options));
    assert_eq!((error.code, error.message.as_str()), (&codes::NOT_A_NUMBER, "stopped by the test"));
    assert_eq!(notes.seen.lock().unwrap().len(), 1, "nothing is evaluated after the stop");
}

/// What a run is given is not changed by it, even where operations work in place.
#[test]
fn arguments_stay_as_they_were() {
    let argument = floats(&[1.0, 2.0]);
    let text =
        "HloModule m\nENTRY e {\n  x = f32[2] parameter(0)\n  y = f32[2] negate(x)\n  ROOT z = f32[2] add(y, y)\n}\n";
    for _ in 0..2 {
        let results = run_on(1, text, vec![argument.clone()], &Options::default()).expect("a plain program");
        assert_eq!(results[0].as_array().unwrap().elements::<f32>(), [-2.0, -4.0]);
    }
    assert_eq!(argument.as_array().unwrap().elements::<f32>(), [1.0, 2.0]);
}

/// A device for which no thread can be made never comes to a collective: the others are told at once.
#[test]
fn nobody_waits_for_a_device_that_never_began() {
    let text = "HloModule m, replica_count=2\nadd {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  \
                ROOT s = f32[] add(a, b)\n}\nENTRY e {\n  x = f32[2] parameter(0)\n  \
                ROOT r = f32[2] all-reduce(x), replica_groups={}, to_apply=add\n}\n";
    let (module, options) =
        (program(text), Options { time_limit: Some(Duration::from_secs(600)), ..Options::default() });
    let prepared = Prepared::new(&module, false).expect("a plain program");
    let shared = Shared::new(&module, &prepared, DeviceGrid { replicas: 2, partitions: 1 }, &options);
    let entry = module.module().entry().expect("an entry");
    drop(Leaving::new(&shared, 1));
    let begun = Instant::now();
    let error = Device::new(&shared, 0).call(entry, vec![floats(&[1.0, 2.0])]).expect_err("device 1 does not come");
    assert!(begun.elapsed() < Duration::from_secs(60), "{error:?} came late");
}
