//! Compiling a program for every generation, running source and result by the evaluator on every device, and having the
//! plan of what came out proved by the checker.

use hloom_eval::{DeviceGrid, Options, run};
use hloom_formats::hlo_text;
use hloom_ir::element_type::ElementType;
use hloom_ir::shape::Shape;
use hloom_ir::verify::{VerifiedModule, VerifyOptions, verify};
use hloom_plan::check::{Assignment, check};
use hloom_target::{Description, Topology};
use hloom_tpu::compile_to_schedule;
use hloom_tpu::policy::Policy;
use hloom_value::{Array, Value};

/// A loop of fifty rounds over the weights `w` of a layer, which it only reads: `body` and `condition`.
pub(crate) const LOOP: &str = "HloModule scan
body {
  s = (s32[], f32[16,128], f32[128,128]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  h = f32[16,128] get-tuple-element(s), index=1
  w = f32[128,128] get-tuple-element(s), index=2
  one = s32[] constant(1)
  n = s32[] add(i, one)
  d = f32[16,128] dot(h, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[16,128] tanh(d)
  ROOT r = (s32[], f32[16,128], f32[128,128]) tuple(n, t, w)
}
condition {
  s = (s32[], f32[16,128], f32[128,128]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  many = s32[] constant(50)
  ROOT c = pred[] compare(i, many), direction=LT
}
";

pub(crate) fn module(text: &str) -> VerifiedModule {
    let module = hlo_text::read(text.as_bytes()).module.expect("it can be read");
    verify(module, &VerifyOptions::default()).unwrap_or_else(|i| panic!("{:?}", i.diagnostics))
}

/// Numbers between -1 and 1 that differ from place to place, from device to device and from parameter to parameter.
fn inputs(module: &VerifiedModule, devices: usize) -> Vec<Vec<Value>> {
    let module = module.module();
    let parameters = module.parameters(module.entry().unwrap());
    fn of(shape: &Shape, device: usize, p: usize) -> Value {
        let Shape::Array(shape) = shape else {
            let elements = shape.as_tuple().unwrap().iter().enumerate();
            return Value::Tuple(elements.map(|(n, element)| of(element, device, p + 7 * n)).collect());
        };
        let count = shape.element_count().unwrap();
        let number = |n: i64| (((n * 37 + p as i64 * 101 + device as i64 * 59) % 199) as f32 / 99.5 - 1.0) * 0.7;
        let array = match shape.element_type {
            ElementType::S32 => Array::new(shape.dims(), &(0..count).map(|n| (n % 5) as i32).collect::<Vec<_>>()),
            _ => Array::new(shape.dims(), &(0..count).map(number).collect::<Vec<f32>>()),
        };
        Value::Array(array.unwrap())
    }
    let shape = |p: usize| &module[parameters[p]].shape;
    (0..devices).map(|d| (0..parameters.len()).map(|p| of(shape(p), d, p)).collect()).collect()
}

/// The largest difference of two results, relative to the largest number in them.
fn difference(a: &Value, b: &Value) -> f32 {
    let mut worst: f32 = 0.0;
    for (a, b) in a.leaves().into_iter().zip(b.leaves()) {
        let (a, b) = (a.as_array().unwrap(), b.as_array().unwrap());
        if let (Some(a), Some(b)) = (a.as_slice::<f32>(), b.as_slice::<f32>()) {
            let scale = b.iter().fold(1e-3f32, |m, x| m.max(x.abs()));
            let most = a.iter().zip(b).fold(0.0f32, |m, (x, y)| m.max((x - y).abs()));
            assert_eq!(a.len(), b.len());
            worst = worst.max(most / scale);
        } else {
            assert_eq!(a.bytes(), b.bytes());
        }
    }
    worst
}

/// What is different about the machines that a test compiles for.
#[derive(Default)]
pub(crate) struct Changed<'a> {
    /// Bytes of fast memory.
    pub(crate) fast_bytes: Option<i64>,
    /// Keys and values of the description.
    pub(crate) settings: &'a [(&'a str, &'a str)],
}

/// Compiles for every generation and compares; `tolerance` is what rounding operands of products may change.
pub(crate) fn check_values(text: &str, tolerance: f32, expect: impl Fn(&str, &str)) {
    check_with(text, tolerance, &Changed::default(), |name, printed, _| expect(name, printed));
}

/// As [`check_values`], on changed machines; `expect` is told the bytes of main memory, too.
pub(crate) fn check_with(text: &str, tolerance: f32, changed: &Changed<'_>, expect: impl Fn(&str, &str, i64)) {
    let source = module(text);
    let config = &source.module().config;
    let grid = DeviceGrid { replicas: config.replica_count as usize, partitions: config.num_partitions as usize };
    let inputs = inputs(&source, grid.devices());
    let want = run(&source, grid, inputs.clone(), &Options::default()).unwrap();
    for name in ["tpu-v4", "tpu-v5e", "tpu-v5p", "tpu-v6e", "tpu-v7x"] {
        let mut description = Description::named(name).unwrap();
        for (key, value) in changed.settings {
            description.set(key, value).unwrap();
        }
        if let Some(bytes) = changed.fast_bytes {
            let memory_space = Policy::of(&description.target().unwrap()).fast_memory.unwrap().memory_space;
            description.set(&format!("memory.{memory_space}.reserved"), "0").unwrap();
            description.set(&format!("memory.{memory_space}.bytes"), &bytes.to_string()).unwrap();
        }
        let target = description.target().unwrap();
        let topology = Topology::parse(&grid.devices().to_string()).unwrap();
        let compiled = compile_to_schedule(&source, &target, topology).unwrap_or_else(|d| panic!("{name}: {d:?}"));
        let got = run(&compiled, grid, inputs.clone(), &Options::default()).unwrap_or_else(|f| panic!("{name}: {f:?}"));
        for (device, (got, want)) in got.iter().zip(&want).enumerate() {
            let difference = difference(got, want);
            assert!(difference <= tolerance, "{name}, device {device}: the results differ by {difference}");
        }
        let plan = hloom_plan::plan(&compiled, &target).unwrap_or_else(|d| panic!("{name}: {d:?}"));
        let faults = check(&compiled, &target, &Assignment::from(&plan));
        assert!(faults.is_empty(), "{name}: {:?}", faults.first());
        let fast = Policy::of(&target).fast_memory.unwrap();
        assert!(plan.heap_bytes(fast.memory_space) <= fast.budget, "{name}");
        // What is printed is read back as the same.
        let printed = hlo_text::print(compiled.module(), &hlo_text::PrintOptions { elide_constants: false });
        assert_eq!(hlo_text::print(module(&printed).module(), &hlo_text::PrintOptions::default()).len(), printed.len());
        let main = plan.allocations.iter().filter(|a| a.memory_space == 0 && !a.is_thread_local).map(|a| a.size).sum();
        expect(name, &printed, main);
    }
}
