//! Attention in programs: what is recognised, that its fusion still means the same, and that its kernels give it.

use hloom_cuda_attention::{attention_kernels, fuse_attention};
use hloom_cuda_kernels::{Architecture, emulate};
use hloom_eval::run::{DeviceGrid, Options, run};
use hloom_formats::hlo_text;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::verify::{VerifiedModule, VerifyOptions, verify};
use hloom_value::{Array, Value};

const HOPPER: Architecture = Architecture { capability: 90, accelerated: true };
const GRID: DeviceGrid = DeviceGrid { replicas: 1, partitions: 1 };

fn verified(module: Module, text: &str) -> VerifiedModule {
    verify(module, &VerifyOptions::default()).unwrap_or_else(|e| panic!("{:?}\n{text}", e.diagnostics))
}

fn parse(text: &str) -> Module {
    let read = hlo_text::read(text.as_bytes());
    read.module.unwrap_or_else(|| panic!("{:?}\n{text}", read.diagnostics))
}

/// A program whose entry is `body`, with the reducers that attention uses.
fn program(body: &str) -> String {
    format!(
        "HloModule m\n
         max {{\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] maximum(a, b)\n}}\n
         sum {{\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b)\n}}\n
         ENTRY e {{\n{body}\n}}\n"
    )
}

/// The fusions of the entry that kernels by hand are for.
fn fusions(module: &Module) -> Vec<InstructionId> {
    let entry = module.entry().expect("an entry");
    let instructions = module[entry].instructions().iter().copied();
    instructions.filter(|&i| attention_kernels(module, i, HOPPER).is_some()).collect()
}

/// Checks that attention is found, that the program means the same, and that the kernels of each fusion give what the
/// evaluator gives.
fn check(body: &str, expected_fusions: usize) {
    let text = program(body);
    let original = verified(parse(&text), &text);
    let mut module = original.module().clone();
    fuse_attention(&mut module, HOPPER);
    let found = fusions(&module);
    assert_eq!(found.len(), expected_fusions, "{text}");
    let arguments = vec![arguments(original.module())];
    let options = Options::default();
    let expected = run(&original, GRID, arguments.clone(), &options).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
    let same =
        run(&verified(module.clone(), &text), GRID, arguments.clone(), &options).expect("the fused program runs");
    for (fused, plain) in same[0].leaves().into_iter().zip(expected[0].leaves()) {
        let bytes = |value: &Value| value.as_array().expect("an array").bytes().to_vec();
        assert_eq!(bytes(fused), bytes(plain), "the fusion means something else\n{text}");
    }

    // The output comes first among the results of a program, the gradients after it.
    let values: Vec<&Value> = expected[0].leaves();
    for fusion in found {
        let leaves = module[fusion].shape.leaf_count();
        let values = if leaves == 1 { &values[..1] } else { &values[values.len() - 3..] };
        assert_eq!(values.len(), leaves, "{text}");
        check_kernels(&module, fusion, &arguments[0], values, &text);
    }
}

/// Checks that the kernels of a fusion give the values that the evaluator gave.
fn check_kernels(module: &Module, fusion: InstructionId, arguments: &[Value], values: &[&Value], text: &str) {
    let bytes_of = |&o: &InstructionId| match module[o].op {
        Op::Parameter { number, .. } => arguments[number as usize].as_array().expect("an array").bytes().to_vec(),
        _ => panic!("{} is no parameter\n{text}", module[o].name()),
    };
    let operands: Vec<Vec<u8>> = module[fusion].operands().iter().map(bytes_of).collect();
    let leaves = module[fusion].shape.leaves();
    let shapes = leaves.iter().filter_map(|(_, shape)| shape.as_array());
    let sizes: Vec<usize> = shapes.map(|s| s.byte_size().expect("a size") as usize).collect();
    let sequence = attention_kernels(module, fusion, HOPPER).expect("kernels").expect("supported");
    let bytes = emulate::run(&sequence, &operands, &sizes).unwrap_or_else(|e| panic!("{e}\n{text}"));
    for (n, (made, expected)) in bytes.iter().zip(values).enumerate() {
        let expected = expected.as_array().expect("an array");
        let (expected, made) =
            (floats(expected.bytes(), expected.element_type()), floats(made, expected.element_type()));
        let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>().sqrt();
        let error = norm(&mut made.iter().zip(&expected).map(|(m, e)| m - e)) / norm(&mut expected.iter().copied());
        assert!(error < 1.5e-2, "result {n} is off by {error}\n{text}");
    }
}

/// The numbers of an array.
fn floats(bytes: &[u8], element_type: ElementType) -> Vec<f64> {
    match element_type {
        ElementType::F32 => bytes.chunks(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]).into()).collect(),
        _ => bytes.chunks(2).map(|b| half::bf16::from_le_bytes([b[0], b[1]]).to_f64()).collect(),
    }
}

/// Values for the parameters of a program: floats in [-1, 1), predicates that mostly hold.
fn arguments(module: &Module) -> Vec<Value> {
    let mut state = 17u64;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    let entry = module.entry().expect("an entry");
    let value = |&id: &InstructionId| {
        let shape = module[id].shape.as_array().expect("an array").clone();
        let count = shape.element_count().expect("a count");
        let bytes: Vec<u8> = (0..count)
            .flat_map(|_| match shape.element_type {
                ElementType::Pred => vec![u8::from(next() > -0.5)],
                ElementType::Bf16 => half::bf16::from_f32(next()).to_le_bytes().to_vec(),
                ElementType::F32 => next().to_le_bytes().to_vec(),
                other => panic!("a parameter of {other:?}"),
            })
            .collect();
        Value::Array(Array::from_bytes(shape.element_type, shape.dims(), &bytes).expect("an array"))
    };
    module.parameters(entry).iter().map(value).collect()
}

const SOFTMAX: &str = "
  lowest = f32[] constant(-inf)
  largest = f32[2,4,70] reduce(x, lowest), dimensions={3}, to_apply=max
  largest_rows = f32[2,4,70,90] broadcast(largest), dimensions={0,1,2}
  moved = f32[2,4,70,90] subtract(x, largest_rows)
  e = f32[2,4,70,90] exponential(moved)
  zero = f32[] constant(0)
  s = f32[2,4,70] reduce(e, zero), dimensions={3}, to_apply=sum
  sums = f32[2,4,70,90] broadcast(s), dimensions={0,1,2}
  p = f32[2,4,70,90] divide(e, sums)
  p16 = bf16[2,4,70,90] convert(p)";

#[test]
fn heads_first() {
    check(
        &format!(
            "q = bf16[2,4,70,64] parameter(0)
  k = bf16[2,4,90,64] parameter(1)
  v = bf16[2,4,90,64] parameter(2)
  qk = f32[2,4,70,90] dot(q, k), lhs_batch_dims={{0,1}}, rhs_batch_dims={{0,1}}, lhs_contracting_dims={{3}}, rhs_contracting_dims={{3}}
  scale = f32[] constant(0.125)
  scales = f32[2,4,70,90] broadcast(scale), dimensions={{}}
  x = f32[2,4,70,90] multiply(qk, scales){SOFTMAX}
  ROOT o = bf16[2,4,70,64] dot(p16, v), lhs_batch_dims={{0,1}}, rhs_batch_dims={{0,1}}, lhs_contracting_dims={{3}}, rhs_contracting_dims={{2}}"
        ),
        1,
    );
}

/// Attention of f32 whose products say so.
fn of_f32(says: &str) -> String {
    let softmax = SOFTMAX.replace("p16 = bf16[2,4,70,90] convert(p)", "");
    format!(
        "q = f32[2,4,70,64] parameter(0)
  k = f32[2,4,90,64] parameter(1)
  v = f32[2,4,90,64] parameter(2)
  x = f32[2,4,70,90] dot(q, k), lhs_batch_dims={{0,1}}, rhs_batch_dims={{0,1}}, lhs_contracting_dims={{3}}, rhs_contracting_dims={{3}}{says}{softmax}
  ROOT o = f32[2,4,70,64] dot(p, v), lhs_batch_dims={{0,1}}, rhs_batch_dims={{0,1}}, lhs_contracting_dims={{3}}, rhs_contracting_dims={{2}}{says}"
    )
}

#[test]
fn f32_where_products_may_have_eleven_bits() {
    check(&of_f32(""), 1);
    check(&of_f32(", operand_precision={highest,highest}"), 0);
}

#[test]
fn causal_with_repeated_heads_and_transposed_layouts() {
    check(
        &format!(
            "q0 = bf16[2,70,4,64] parameter(0)
  q = bf16[2,4,70,64] transpose(q0), dimensions={{0,2,1,3}}
  k0 = bf16[2,90,2,64] parameter(1)
  k1 = bf16[2,2,90,64] transpose(k0), dimensions={{0,2,1,3}}
  k2 = bf16[2,2,2,90,64] broadcast(k1), dimensions={{0,1,3,4}}
  k = bf16[2,4,90,64] reshape(k2)
  v0 = bf16[2,2,90,64] parameter(2)
  v1 = bf16[2,2,2,90,64] broadcast(v0), dimensions={{0,1,3,4}}
  v = bf16[2,4,90,64] reshape(v1)
  qk = f32[2,4,70,90] dot(q, k), lhs_batch_dims={{0,1}}, rhs_batch_dims={{0,1}}, lhs_contracting_dims={{3}}, rhs_contracting_dims={{3}}
  root = f32[] constant(8)
  roots = f32[2,4,70,90] broadcast(root), dimensions={{}}
  scaled = f32[2,4,70,90] divide(qk, roots)
  rows = s32[70,90] iota(), iota_dimension=0
  five = s32[] constant(5)
  fives = s32[70,90] broadcast(five), dimensions={{}}
  moved_rows = s32[70,90] add(rows, fives)
  columns = s32[70,90] iota(), iota_dimension=1
  sees = pred[70,90] compare(moved_rows, columns), direction=GE
  seen = pred[2,4,70,90] broadcast(sees), dimensions={{2,3}}
  hidden = f32[] constant(-1e30)
  hiddens = f32[2,4,70,90] broadcast(hidden), dimensions={{}}
  x = f32[2,4,70,90] select(seen, scaled, hiddens){SOFTMAX}
  o = bf16[2,4,70,64] dot(p16, v), lhs_batch_dims={{0,1}}, rhs_batch_dims={{0,1}}, lhs_contracting_dims={{3}}, rhs_contracting_dims={{2}}
  ROOT r = bf16[2,70,4,64] transpose(o), dimensions={{0,2,1,3}}"
        ),
        1,
    );
}

#[test]
fn bias_and_mask_with_the_weights_on_the_right() {
    check(
        &format!(
            "q = bf16[2,70,4,64] parameter(0)
  k = bf16[2,90,4,64] parameter(1)
  v = bf16[2,90,4,64] parameter(2)
  qk = f32[2,4,70,90] dot(q, k), lhs_batch_dims={{0,2}}, rhs_batch_dims={{0,2}}, lhs_contracting_dims={{3}}, rhs_contracting_dims={{3}}
  scale = f32[] constant(0.125)
  scales = f32[2,4,70,90] broadcast(scale), dimensions={{}}
  scaled = f32[2,4,70,90] multiply(qk, scales)
  b0 = bf16[4,70,90] parameter(3)
  b1 = f32[4,70,90] convert(b0)
  b = f32[2,4,70,90] broadcast(b1), dimensions={{1,2,3}}
  biased = f32[2,4,70,90] add(b, scaled)
  m0 = pred[2,1,1,90] parameter(4)
  m1 = pred[2,90] reshape(m0)
  m = pred[2,4,70,90] broadcast(m1), dimensions={{0,3}}
  hidden = f32[] constant(-2e38)
  hiddens = f32[2,4,70,90] broadcast(hidden), dimensions={{}}
  x = f32[2,4,70,90] select(m, biased, hiddens){SOFTMAX}
  o = bf16[2,4,64,70] dot(v, p16), lhs_batch_dims={{0,2}}, rhs_batch_dims={{0,1}}, lhs_contracting_dims={{1}}, rhs_contracting_dims={{3}}
  ROOT r = bf16[2,70,4,64] transpose(o), dimensions={{0,3,1,2}}"
        ),
        1,
    );
}

#[test]
fn scores_within_a_cap_under_a_mask() {
    let program = |inner: &str| {
        format!(
            "q = bf16[2,70,4,64] parameter(0)
  k = bf16[2,90,4,64] parameter(1)
  v = bf16[2,90,4,64] parameter(2)
  qk = f32[2,4,70,90] dot(q, k), lhs_batch_dims={{0,2}}, rhs_batch_dims={{0,2}}, lhs_contracting_dims={{3}}, rhs_contracting_dims={{3}}
  scale = f32[] constant(0.5)
  scales = f32[2,4,70,90] broadcast(scale), dimensions={{}}
  scaled = f32[2,4,70,90] multiply(qk, scales)
  cap = f32[] constant(3)
  caps = f32[2,4,70,90] broadcast(cap), dimensions={{}}
  relative = f32[2,4,70,90] divide(scaled, caps)
  bent = f32[2,4,70,90] tanh({inner})
  capped = f32[2,4,70,90] multiply(caps, bent)
  m0 = pred[2,90] parameter(3)
  m = pred[2,4,70,90] broadcast(m0), dimensions={{0,3}}
  hidden = f32[] constant(-2e38)
  hiddens = f32[2,4,70,90] broadcast(hidden), dimensions={{}}
  x = f32[2,4,70,90] select(m, capped, hiddens){SOFTMAX}
  o = bf16[2,4,70,64] dot(p16, v), lhs_batch_dims={{0,1}}, rhs_batch_dims={{0,2}}, lhs_contracting_dims={{3}}, rhs_contracting_dims={{1}}
  ROOT r = bf16[2,70,4,64] transpose(o), dimensions={{0,2,1,3}}"
        )
    };
    check(&program("relative"), 1);
    // A function of a function is no cap.
    check(
        &program("relative")
            .replace("tanh(relative)", "tanh(again)")
            .replace("  bent", "  again = f32[2,4,70,90] tanh(relative)\n  bent"),
        0,
    );
}

#[test]
fn slopes_of_positions_are_not_written_out() {
    let program = |distance: &str| {
        format!(
            "q = bf16[2,4,70,64] parameter(0)
  k = bf16[2,4,90,64] parameter(1)
  v = bf16[2,4,90,64] parameter(2)
  qk = f32[2,4,70,90] dot(q, k), lhs_batch_dims={{0,1}}, rhs_batch_dims={{0,1}}, lhs_contracting_dims={{3}}, rhs_contracting_dims={{3}}
  scale = f32[] constant(0.125)
  scales = f32[2,4,70,90] broadcast(scale), dimensions={{}}
  scaled = f32[2,4,70,90] multiply(qk, scales)
  slope = f32[4] parameter(3)
  slopes = f32[4,70,90] broadcast(slope), dimensions={{0}}
  rows = s32[70,90] iota(), iota_dimension=0
  columns = s32[70,90] iota(), iota_dimension=1
  apart = s32[70,90] subtract(columns, rows)
  {distance}
  distances = f32[4,70,90] broadcast(distance), dimensions={{1,2}}
  b0 = f32[4,70,90] multiply(slopes, distances)
  b = f32[2,4,70,90] broadcast(b0), dimensions={{1,2,3}}
  biased = f32[2,4,70,90] add(scaled, b)
  sees = pred[70,90] compare(rows, columns), direction=GE
  seen = pred[2,4,70,90] broadcast(sees), dimensions={{2,3}}
  hidden = f32[] constant(-inf)
  hiddens = f32[2,4,70,90] broadcast(hidden), dimensions={{}}
  x = f32[2,4,70,90] select(seen, biased, hiddens){SOFTMAX}
  ROOT o = bf16[2,4,70,64] dot(p16, v), lhs_batch_dims={{0,1}}, rhs_batch_dims={{0,1}}, lhs_contracting_dims={{3}}, rhs_contracting_dims={{2}}"
        )
    };
    let distances = [
        "distance = f32[70,90] convert(apart)",
        "size = s32[70,90] abs(apart)\n  size32 = f32[70,90] convert(size)\n  distance = f32[70,90] negate(size32)",
    ];
    for (distance, add) in distances.iter().flat_map(|d| [(d, "add"), (d, "subtract")]) {
        let program = program(distance).replace("add(scaled, b)", &format!("{add}(scaled, b)"));
        check(&program, 1);
        let mut module = parse(&self::program(&program));
        fuse_attention(&mut module, HOPPER);
        let config = module[fusions(&module)[0]].common.backend_config.clone().expect("a config");
        assert!(String::from_utf8_lossy(&config).contains("\"bias_positions\":{"), "the bias is written out");
    }
}

#[test]
fn rows_reduced_in_another_shape() {
    check(
        "q = bf16[2,70,4,64] parameter(0)
  k = bf16[2,90,4,64] parameter(1)
  v = bf16[2,90,4,64] parameter(2)
  q1 = bf16[2,70,4,1,64] reshape(q)
  q2 = bf16[2,4,70,1,64] transpose(q1), dimensions={0,2,1,3,4}
  qk = f32[2,4,70,1,90] dot(q2, k), lhs_batch_dims={0,1}, rhs_batch_dims={0,2}, lhs_contracting_dims={4}, rhs_contracting_dims={3}
  scale = f32[] constant(0.125)
  scales = f32[2,4,70,1,90] broadcast(scale), dimensions={}
  scaled = f32[2,4,70,1,90] multiply(qk, scales)
  x = f32[1,2,4,70,90] reshape(scaled)
  lowest = f32[] constant(-inf)
  largest1 = f32[2,4,70,1] reduce(scaled, lowest), dimensions={4}, to_apply=max
  largest = f32[1,2,4,70] reshape(largest1)
  largest_rows = f32[1,2,4,70,90] broadcast(largest), dimensions={0,1,2,3}
  moved = f32[1,2,4,70,90] subtract(x, largest_rows)
  e = f32[1,2,4,70,90] exponential(moved)
  zero = f32[] constant(0)
  s = f32[1,2,4,70] reduce(e, zero), dimensions={4}, to_apply=sum
  sums = f32[1,2,4,70,90] broadcast(s), dimensions={0,1,2,3}
  p = f32[1,2,4,70,90] divide(e, sums)
  p16 = bf16[1,2,4,70,90] convert(p)
  o = bf16[2,4,1,70,64] dot(p16, v), lhs_batch_dims={1,2}, rhs_batch_dims={0,2}, lhs_contracting_dims={4}, rhs_contracting_dims={1}
  o1 = bf16[2,4,70,64] reshape(o)
  ROOT r = bf16[2,70,4,64] transpose(o1), dimensions={0,2,1,3}",
        1,
    );
    // Heads that share keys, brought to the front after the maximum.
    check(
        "q0 = bf16[2,70,4,2,64] parameter(0)
  q = bf16[2,4,70,2,64] transpose(q0), dimensions={0,2,1,3,4}
  k = bf16[2,90,4,64] parameter(1)
  v = bf16[2,90,4,64] parameter(2)
  qk = f32[2,4,70,2,90] dot(q, k), lhs_batch_dims={0,1}, rhs_batch_dims={0,2}, lhs_contracting_dims={4}, rhs_contracting_dims={3}
  x = f32[2,2,4,70,90] transpose(qk), dimensions={3,0,1,2,4}
  lowest = f32[] constant(-inf)
  largest1 = f32[2,4,70,2] reduce(qk, lowest), dimensions={4}, to_apply=max
  largest = f32[2,2,4,70] transpose(largest1), dimensions={3,0,1,2}
  largest_rows = f32[2,2,4,70,90] broadcast(largest), dimensions={0,1,2,3}
  moved = f32[2,2,4,70,90] subtract(x, largest_rows)
  e = f32[2,2,4,70,90] exponential(moved)
  zero = f32[] constant(0)
  s = f32[2,2,4,70] reduce(e, zero), dimensions={4}, to_apply=sum
  sums = f32[2,2,4,70,90] broadcast(s), dimensions={0,1,2,3}
  p = f32[2,2,4,70,90] divide(e, sums)
  p16 = bf16[2,2,4,70,90] convert(p)
  o = bf16[2,4,2,70,64] dot(p16, v), lhs_batch_dims={1,2}, rhs_batch_dims={0,2}, lhs_contracting_dims={4}, rhs_contracting_dims={1}
  ROOT r = bf16[2,70,4,2,64] transpose(o), dimensions={0,3,1,2,4}",
        1,
    );
}

#[test]
fn a_softmax_of_bf16() {
    check(
        "q = bf16[2,4,70,64] parameter(0)
  k = bf16[2,4,90,64] parameter(1)
  v = bf16[2,4,90,64] parameter(2)
  qk = bf16[2,4,70,90] dot(q, k), lhs_batch_dims={0,1}, rhs_batch_dims={0,1}, lhs_contracting_dims={3}, rhs_contracting_dims={3}
  scale = bf16[] constant(8)
  scales = bf16[2,4,70,90] broadcast(scale), dimensions={}
  x = bf16[2,4,70,90] divide(qk, scales)
  x32 = f32[2,4,70,90] convert(x)
  lowest = f32[] constant(-inf)
  largest32 = f32[2,4,70] reduce(x32, lowest), dimensions={3}, to_apply=max
  largest = bf16[2,4,70] convert(largest32)
  largest_rows = bf16[2,4,70,90] broadcast(largest), dimensions={0,1,2}
  moved = bf16[2,4,70,90] subtract(x, largest_rows)
  moved32 = f32[2,4,70,90] convert(moved)
  e = f32[2,4,70,90] exponential(moved32)
  e16 = bf16[2,4,70,90] convert(e)
  zero = f32[] constant(0)
  s = f32[2,4,70] reduce(e, zero), dimensions={3}, to_apply=sum
  rounded = bf16[2,4,70] convert(s)
  sums = bf16[2,4,70,90] broadcast(rounded), dimensions={0,1,2}
  p = bf16[2,4,70,90] divide(e16, sums)
  ROOT o = bf16[2,4,70,64] dot(p, v), lhs_batch_dims={0,1}, rhs_batch_dims={0,1}, lhs_contracting_dims={3}, rhs_contracting_dims={2}",
        1,
    );
}

#[test]
fn what_is_no_attention_is_left_alone() {
    // A sum over another dimension is no softmax.
    check(
        "q = bf16[2,64,64] parameter(0)
  k = bf16[2,64,64] parameter(1)
  v = bf16[2,64,64] parameter(2)
  x = f32[2,64,64] dot(q, k), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={2}
  lowest = f32[] constant(-inf)
  largest = f32[2,64] reduce(x, lowest), dimensions={1}, to_apply=max
  largest_rows = f32[2,64,64] broadcast(largest), dimensions={0,1}
  moved = f32[2,64,64] subtract(x, largest_rows)
  e = f32[2,64,64] exponential(moved)
  zero = f32[] constant(0)
  s = f32[2,64] reduce(e, zero), dimensions={2}, to_apply=sum
  sums = f32[2,64,64] broadcast(s), dimensions={0,1}
  p = f32[2,64,64] divide(e, sums)
  p16 = bf16[2,64,64] convert(p)
  ROOT o = bf16[2,64,64] dot(p16, v), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}",
        0,
    );
}

/// Gradients as they are differentiated, without the output.
const GRADIENTS: &str = "q = bf16[1,2,64,64] parameter(0)
  k = bf16[1,2,64,64] parameter(1)
  v = bf16[1,2,64,64] parameter(2)
  do = bf16[1,2,64,64] parameter(3)
  qk = f32[1,2,64,64] dot(q, k), lhs_batch_dims={0,1}, rhs_batch_dims={0,1}, lhs_contracting_dims={3}, rhs_contracting_dims={3}
  scale = f32[] constant(0.125)
  scales = f32[1,2,64,64] broadcast(scale), dimensions={}
  scaled = f32[1,2,64,64] multiply(qk, scales)
  rows = s32[64,64] iota(), iota_dimension=0
  columns = s32[64,64] iota(), iota_dimension=1
  sees = pred[64,64] compare(rows, columns), direction=GE
  seen = pred[1,2,64,64] broadcast(sees), dimensions={2,3}
  hidden = f32[] constant(-1e30)
  hiddens = f32[1,2,64,64] broadcast(hidden), dimensions={}
  x = f32[1,2,64,64] select(seen, scaled, hiddens)
  lowest = f32[] constant(-inf)
  largest = f32[1,2,64] reduce(x, lowest), dimensions={3}, to_apply=max
  largest_rows = f32[1,2,64,64] broadcast(largest), dimensions={0,1,2}
  moved = f32[1,2,64,64] subtract(x, largest_rows)
  e = f32[1,2,64,64] exponential(moved)
  zero = f32[] constant(0)
  s = f32[1,2,64] reduce(e, zero), dimensions={3}, to_apply=sum
  sums = f32[1,2,64,64] broadcast(s), dimensions={0,1,2}
  p = f32[1,2,64,64] divide(e, sums)
  p16 = bf16[1,2,64,64] convert(p)
  dp16 = bf16[1,2,64,64] dot(do, v), lhs_batch_dims={0,1}, rhs_batch_dims={0,1}, lhs_contracting_dims={3}, rhs_contracting_dims={3}
  dp = f32[1,2,64,64] convert(dp16)
  first = f32[1,2,64,64] divide(dp, sums)
  one = f32[] constant(1)
  ones = f32[1,2,64,1] broadcast(one), dimensions={}
  row_sums = f32[1,2,64,1] reshape(s)
  squares = f32[1,2,64,1] multiply(row_sums, row_sums)
  inverse1 = f32[1,2,64,1] divide(ones, squares)
  inverse = f32[1,2,64] reshape(inverse1)
  inverses = f32[1,2,64,64] broadcast(inverse), dimensions={0,1,2}
  t = f32[1,2,64,64] multiply(dp, inverses)
  u = f32[1,2,64,64] multiply(t, e)
  w = f32[1,2,64] reduce(u, zero), dimensions={3}, to_apply=sum
  minus = f32[1,2,64] negate(w)
  minuses = f32[1,2,64,64] broadcast(minus), dimensions={0,1,2}
  y = f32[1,2,64,64] add(first, minuses)
  z = f32[1,2,64,64] multiply(y, e)
  zeros = f32[1,2,64,64] broadcast(zero), dimensions={}
  masked = f32[1,2,64,64] select(seen, z, zeros)
  ds = f32[1,2,64,64] multiply(masked, scales)
  k32 = f32[1,2,64,64] convert(k)
  dq32 = f32[1,2,64,64] dot(ds, k32), lhs_batch_dims={0,1}, rhs_batch_dims={0,1}, lhs_contracting_dims={3}, rhs_contracting_dims={2}
  dq = bf16[1,2,64,64] convert(dq32)
  q32 = f32[1,2,64,64] convert(q)
  dk32 = f32[1,2,64,64] dot(ds, q32), lhs_batch_dims={0,1}, rhs_batch_dims={0,1}, lhs_contracting_dims={2}, rhs_contracting_dims={2}
  dk = bf16[1,2,64,64] convert(dk32)
  dvt = bf16[1,2,64,64] dot(do, p16), lhs_batch_dims={0,1}, rhs_batch_dims={0,1}, lhs_contracting_dims={2}, rhs_contracting_dims={2}
  dv = bf16[1,2,64,64] transpose(dvt), dimensions={0,1,3,2}";

#[test]
fn gradients_as_they_are_differentiated() {
    let output = "o = bf16[1,2,64,64] dot(p16, v), lhs_batch_dims={0,1}, rhs_batch_dims={0,1}, lhs_contracting_dims={3}, rhs_contracting_dims={2}
  ROOT r = (bf16[1,2,64,64], bf16[1,2,64,64], bf16[1,2,64,64], bf16[1,2,64,64]) tuple(o, dq, dk, dv)";
    check(&format!("{GRADIENTS}\n  {output}"), 2);
}

#[test]
fn gradients_of_an_output_that_nobody_needs() {
    let root = "ROOT r = (bf16[1,2,64,64], bf16[1,2,64,64], bf16[1,2,64,64]) tuple(dq, dk, dv)";
    check(&format!("{GRADIENTS}\n  {root}"), 1);
}

/// Gradients of attention whose keys and values are shared by two heads each, as they are differentiated.
const GROUPED_GRADIENTS: &str = "rows = s32[64,64] iota(), iota_dimension=0
  columns = s32[64,64] iota(), iota_dimension=1
  sees = pred[64,64] compare(rows, columns), direction=GE
  seen = pred[2,2,2,64,64] broadcast(sees), dimensions={3,4}
  do = bf16[2,64,4,64] parameter(3)
  do_grouped = bf16[2,64,2,2,64] reshape(do)
  do_turned = bf16[2,2,64,2,64] transpose(do_grouped), dimensions={0,2,4,3,1}
  v = bf16[2,64,2,64] parameter(2)
  dp_heads = bf16[2,2,2,64,64] dot(do_turned, v), lhs_batch_dims={0,1}, lhs_contracting_dims={2}, rhs_batch_dims={0,2}, rhs_contracting_dims={3}
  dp16 = bf16[2,2,2,64,64] transpose(dp_heads), dimensions={2,0,1,3,4}
  dp = f32[2,2,2,64,64] convert(dp16)
  q = bf16[2,64,4,64] parameter(0)
  q_heads = bf16[2,64,2,2,64] reshape(q)
  q_grouped = bf16[2,2,64,2,64] transpose(q_heads), dimensions={0,2,1,3,4}
  k = bf16[2,64,2,64] parameter(1)
  qk = f32[2,2,64,2,64] dot(q_grouped, k), lhs_batch_dims={0,1}, lhs_contracting_dims={4}, rhs_batch_dims={0,2}, rhs_contracting_dims={3}, algorithm=dot_bf16_bf16_f32
  scale = f32[] constant(0.125)
  scales = f32[2,2,64,2,64] broadcast(scale), dimensions={}
  scaled_heads = f32[2,2,64,2,64] multiply(qk, scales)
  scaled = f32[2,2,2,64,64] transpose(scaled_heads), dimensions={3,0,1,2,4}
  hidden = f32[] constant(-2.38197633e+38)
  hiddens = f32[2,2,2,64,64] broadcast(hidden), dimensions={}
  x = f32[2,2,2,64,64] select(seen, scaled, hiddens)
  lowest = f32[] constant(-inf)
  largest = f32[2,2,2,64] reduce(x, lowest), dimensions={4}, to_apply=max
  largest_rows = f32[2,2,2,64,64] broadcast(largest), dimensions={0,1,2,3}
  moved = f32[2,2,2,64,64] subtract(x, largest_rows)
  e = f32[2,2,2,64,64] exponential(moved)
  zero = f32[] constant(0)
  s = f32[2,2,2,64] reduce(e, zero), dimensions={4}, to_apply=sum
  sums = f32[2,2,2,64,64] broadcast(s), dimensions={0,1,2,3}
  first = f32[2,2,2,64,64] divide(dp, sums)
  one = f32[] constant(1)
  ones = f32[2,2,2,64,1] broadcast(one), dimensions={}
  row_sums = f32[2,2,2,64,1] reshape(s)
  squares = f32[2,2,2,64,1] multiply(row_sums, row_sums)
  inverse1 = f32[2,2,2,64,1] divide(ones, squares)
  inverse = f32[2,2,2,64] reshape(inverse1)
  inverses = f32[2,2,2,64,64] broadcast(inverse), dimensions={0,1,2,3}
  t = f32[2,2,2,64,64] multiply(dp, inverses)
  u = f32[2,2,2,64,64] multiply(t, e)
  w = f32[2,2,2,64] reduce(u, zero), dimensions={4}, to_apply=sum
  w1 = f32[2,2,2,64,1] reshape(w)
  minus1 = f32[2,2,2,64,1] negate(w1)
  minus = f32[2,2,2,64] reshape(minus1)
  no_rows = f32[2,2,2,64] broadcast(zero), dimensions={}
  shift = f32[2,2,2,64] add(minus, no_rows)
  shifts = f32[2,2,2,64,64] broadcast(shift), dimensions={0,1,2,3}
  y = f32[2,2,2,64,64] add(first, shifts)
  z = f32[2,2,2,64,64] multiply(y, e)
  zeros = f32[2,2,2,64,64] broadcast(zero), dimensions={}
  masked = f32[2,2,2,64,64] select(seen, z, zeros)
  masked_heads = f32[2,2,64,2,64] transpose(masked), dimensions={1,2,3,0,4}
  ds32 = f32[2,2,64,2,64] multiply(masked_heads, scales)
  ds = bf16[2,2,64,2,64] convert(ds32)
  dq_heads = f32[2,2,64,2,64] dot(ds, k), lhs_batch_dims={0,1}, lhs_contracting_dims={4}, rhs_batch_dims={0,2}, rhs_contracting_dims={1}
  dq_turned = f32[2,64,2,2,64] transpose(dq_heads), dimensions={0,2,1,3,4}
  dq16 = bf16[2,64,2,2,64] convert(dq_turned)
  dq = bf16[2,64,4,64] reshape(dq16)
  ds_flat = bf16[4,128,64] reshape(ds)
  q_flat = bf16[4,128,64] reshape(q_grouped)
  dk_flat = f32[4,64,64] dot(ds_flat, q_flat), lhs_batch_dims={0}, lhs_contracting_dims={1}, rhs_batch_dims={0}, rhs_contracting_dims={1}
  dk_heads = f32[2,2,64,64] reshape(dk_flat)
  dk32 = f32[2,64,2,64] transpose(dk_heads), dimensions={0,2,1,3}
  dk = bf16[2,64,2,64] convert(dk32)
  do_flat = bf16[4,64,128] reshape(do_turned)
  p = f32[2,2,2,64,64] divide(e, sums)
  p16 = bf16[2,2,2,64,64] convert(p)
  p_heads = bf16[2,2,2,64,64] transpose(p16), dimensions={1,2,0,3,4}
  p_flat = bf16[4,128,64] reshape(p_heads)
  dvt_flat = bf16[4,64,64] dot(do_flat, p_flat), lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0}, rhs_contracting_dims={1}
  dvt = bf16[2,2,64,64] reshape(dvt_flat)
  dv = bf16[2,64,2,64] transpose(dvt), dimensions={0,3,1,2}
  ROOT r = (bf16[2,64,4,64], bf16[2,64,2,64], bf16[2,64,2,64]) tuple(dq, dk, dv)";

#[test]
fn gradients_of_grouped_heads_whose_output_nobody_needs() {
    check(GROUPED_GRADIENTS, 1);
}
