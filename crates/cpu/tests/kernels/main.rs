//! Kernels and routines against the evaluator, on one thread and on two, with the same results to the bit; that they are
//! used is checked, too.

#[path = "../common/mod.rs"]
mod common;
mod routines;
mod vectors;

use common::{execute, parse};
use hloom_compiler::{CompileOptions, CompileReport};
use hloom_cpu::{CpuClient, CpuClientOptions};
use hloom_eval::ops::elementwise::convert;
use hloom_eval::run::{DeviceGrid, Options, run};
use hloom_fuzz::differential::{Agreement, compare};
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use hloom_runtime::{Client, ExecuteOptions};
use hloom_value::{Array, Value};

const ONE: DeviceGrid = DeviceGrid { replicas: 1, partitions: 1 };

/// The elements of arguments by their numbers: real and imaginary parts.
type Numbers = fn(i64) -> (f64, f64);

fn arguments(module: &Module, numbers: Numbers) -> Vec<Value> {
    let parameters = module.parameters(module.entry().expect("an entry"));
    let argument = |p: InstructionId| {
        let shape = module[p].shape.as_array().expect("parameters are arrays");
        let count = shape.dims().iter().product::<i64>();
        let parts = (0..count).map(numbers);
        let array = if shape.element_type.is_complex() {
            let bytes: Vec<u8> = parts.flat_map(|(re, im)| [re.to_le_bytes(), im.to_le_bytes()].concat()).collect();
            Array::from_bytes(ElementType::C128, shape.dims(), &bytes).ok()
        } else {
            Array::new(shape.dims(), &parts.map(|(re, _)| re).collect::<Vec<f64>>())
        };
        let array = array.expect("as many as the dimensions say");
        Value::Array(convert(array, shape.element_type).expect("every type is converted to"))
    };
    parameters.iter().map(|&p| argument(p)).collect()
}

/// Compares with the evaluator, and one thread with two; `is_native` says whether nothing was left to the evaluator that
/// must not be.
fn agrees(text: &str, numbers: Numbers, tolerance: f64, is_native: impl Fn(&CompileReport) -> bool) {
    let module = parse(text);
    let arguments = [arguments(module.module(), numbers)];
    let expected = run(&module, ONE, arguments.to_vec(), &Options::default()).unwrap_or_else(|e| panic!("{e:?}"));
    let mut first: Option<Vec<Value>> = None;
    for threads in [1, 2] {
        let client = CpuClient::new(&CpuClientOptions { threads: Some(threads), ..CpuClientOptions::default() })
            .expect("a client");
        let options = CompileOptions::new(ONE);
        let compiled = client.compile(&module, &options).unwrap_or_else(|e| panic!("{e:?}"));
        assert!(is_native(&compiled.compiled().report), "{:?}\n{text}", compiled.compiled().report.fallback);
        let results = execute(&client, &compiled, &arguments, &ExecuteOptions::default());
        let results = results.unwrap_or_else(|e| panic!("{e:?}\n{text}"));
        compare(&results, &expected, Agreement::Within(tolerance)).unwrap_or_else(|e| panic!("{e}\n{text}"));
        match &first {
            None => first = Some(results),
            Some(one) => {
                compare(&results, one, Agreement::Within(0.0)).unwrap_or_else(|e| panic!("threads: {e}\n{text}"));
            }
        }
    }
}
