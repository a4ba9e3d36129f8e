//! What takes longer on a processor than what, by the model: an order that measurements show on any machine.

use hloom_cost::{CostModel, carried_chain};
use hloom_formats::hlo_text;
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_target::Target;

fn module(text: &str) -> Module {
    hlo_text::read(text.as_bytes()).module.expect("it can be read")
}

/// Seconds of the root of a program whose entry has these lines, with these computations before it.
fn with_calls(calls: &str, entry: &str) -> f64 {
    let module = module(&format!("HloModule m\n{calls}\nENTRY e {{\n{entry}\n}}\n"));
    let target = Target::named("cpu").expect("it is built in");
    let model = CostModel::new(&module, &target).expect("all rates are given");
    let root = module.root(module.entry().expect("there is one")).expect("there is one");
    model.instruction(root).expect("all rates are given").seconds
}

fn seconds(entry: &str) -> f64 {
    with_calls("", entry)
}

const ADD: &str = "add { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT c = f32[] add(a, b) }";

fn unary(opcode: &str, element_type: &str) -> f64 {
    let shape = format!("{element_type}[1048576]");
    seconds(&format!("x = {shape} parameter(0)\n ROOT y = {shape} {opcode}(x)"))
}

fn binary(opcode: &str, element_type: &str) -> f64 {
    let shape = format!("{element_type}[1048576]");
    seconds(&format!("x = {shape} parameter(0)\n y = {shape} parameter(1)\n ROOT z = {shape} {opcode}(x, y)"))
}

fn dot(batch: i64, rows: i64, columns: i64, contracted: i64) -> f64 {
    let dims = "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}";
    seconds(&format!(
        "x = f32[{batch},{rows},{contracted}] parameter(0)\n y = f32[{batch},{contracted},{columns}] parameter(1)
        ROOT z = f32[{batch},{rows},{columns}] dot(x, y), {dims}"
    ))
}

#[test]
fn functions_take_their_own_time() {
    assert!(unary("sine", "f32") > 1.5 * unary("tanh", "f32"));
    assert!(unary("cbrt", "f32") > 2.0 * unary("sine", "f32"));
    assert!(unary("exponential", "bf16") > unary("exponential", "f32"), "the result is rounded");
    assert!(binary("power", "f32") > 4.0 * unary("exponential", "f32"));
    assert!(binary("divide", "s32") > 4.0 * binary("divide", "f32"), "there is no vector division of integers");
}

#[test]
fn sorts_grow_with_their_elements_more_than_with_their_rows() {
    let sort = |rows: i64, columns: i64| {
        let less =
            "less { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT c = pred[] compare(a, b), direction=LT }";
        let shape = format!("f32[{rows},{columns}]");
        with_calls(
            less,
            &format!("x = {shape} parameter(0)\n ROOT y = {shape} sort(x), dimensions={{1}}, to_apply=less"),
        )
    };
    let (short, long, twice) = (sort(8192, 64), sort(512, 1024), sort(1024, 1024));
    assert!(long > short && long < 1.5 * short, "{short} {long}");
    assert!((1.8..2.2).contains(&(twice / long)), "{long} {twice}");
}

#[test]
fn scans_and_sums_down_columns_are_no_scans_and_sums_of_rows() {
    let scan = |window: &str| {
        with_calls(
            ADD,
            &format!(
                "x = f32[1024,1024] parameter(0)\n z = f32[] constant(0)
                ROOT y = f32[1024,1024] reduce-window(x, z), window={{{window}}}, to_apply=add"
            ),
        )
    };
    assert!(scan("size=1x1024 pad=0_0x1023_0") > 4.0 * scan("size=1024x1 pad=1023_0x0_0"));
    let sum = |dimension: i64| {
        with_calls(
            ADD,
            &format!(
                "x = f32[4096,4096] parameter(0)\n z = f32[] constant(0)
                ROOT y = f32[4096] reduce(x, z), dimensions={{{dimension}}}, to_apply=add"
            ),
        )
    };
    assert!(sum(0) > 1.2 * sum(1), "columns are read by parts");
    let short = |columns: i64| {
        let rows = 1_048_576 / columns;
        with_calls(
            ADD,
            &format!(
                "x = f32[{rows},{columns}] parameter(0)\n z = f32[] constant(0)
                ROOT y = f32[{rows}] reduce(x, z), dimensions={{1}}, to_apply=add"
            ),
        )
    };
    assert!(short(8) > 2.0 * short(1024), "rows shorter than vectors");
}

#[test]
fn a_reduction_takes_as_long_as_what_it_combines_by() {
    let largest = "largest { a = f32[] parameter(0)\n i = s32[] parameter(1)\n b = f32[] parameter(2)\n j = s32[] parameter(3)
        g = pred[] compare(a, b), direction=GT\n s = pred[] compare(a, b), direction=EQ\n l = pred[] compare(i, j), direction=LT
        t = pred[] and(s, l)\n o = pred[] or(g, t)\n v = f32[] select(o, a, b)\n n = s32[] select(o, i, j)
        ROOT r = (f32[], s32[]) tuple(v, n) }";
    let argmax = with_calls(
        largest,
        "x = f32[1024,1024] parameter(0)\n n = s32[1024,1024] parameter(1)\n z = f32[] constant(0)\n w = s32[] constant(0)
        ROOT y = (f32[1024], s32[1024]) reduce(x, n, z, w), dimensions={1}, to_apply=largest",
    );
    let sum = with_calls(
        ADD,
        "x = f32[1024,1024] parameter(0)\n z = f32[] constant(0)\n ROOT y = f32[1024] reduce(x, z), dimensions={1}, to_apply=add",
    );
    assert!(argmax > 3.0 * sum, "{argmax} {sum}");
}

#[test]
fn rows_are_found_once_and_elements_one_by_one() {
    let gather = |indices: i64, width: i64| {
        seconds(&format!(
            "t = f32[4096,64] parameter(0)\n i = s32[{indices},2] parameter(1)
            ROOT g = f32[{indices},{width}] gather(t, i), offset_dims={{1}}, collapsed_slice_dims={{0}}, start_index_map={{0,1}}, index_vector_dim=1, slice_sizes={{1,{width}}}"
        ))
    };
    assert!(gather(65536, 1) > 2.0 * gather(1024, 64));
}

#[test]
fn of_what_is_fused_only_what_is_asked_for_is_made() {
    let fused = |root: &str| {
        let calls = format!(
            "fused {{ p = f32[4096,1024] parameter(0)\n e = f32[4096,1024] exponential(p)\n i = s32[] constant(0)\n {root} }}"
        );
        let shape = if root.contains("dynamic-slice") { "f32[1,1024]" } else { "f32[4096,1024]" };
        with_calls(
            &calls,
            &format!("x = f32[4096,1024] parameter(0)\n ROOT y = {shape} fusion(x), kind=kLoop, calls=fused"),
        )
    };
    let row = fused("ROOT r = f32[1,1024] dynamic-slice(e, i, i), dynamic_slice_sizes={1,1024}");
    let whole = fused("ROOT r = f32[4096,1024] negate(e)");
    assert!(row < whole / 100.0, "{row} {whole}");
}

#[test]
fn small_products_start_and_fill_vectors() {
    assert!(dot(4096, 6, 6, 8) > 10.0 * dot(1, 4096, 36, 8), "each product of a batch is begun");
    let (ten, sixteen, wide) = (dot(1, 4096, 10, 768), dot(1, 4096, 16, 768), dot(1, 4096, 160, 768));
    assert!((ten / sixteen - 1.0).abs() < 0.1, "columns come in vectors: {ten} {sixteen}");
    assert!(wide < 10.0 * ten, "{wide} {ten}");
}

#[test]
fn few_rows_do_not_make_up_for_bringing_the_columns_into_form() {
    let by = |rows: i64, second: &str, contracted: i64| {
        seconds(&format!(
            "x = bf16[{rows},1024] parameter(0)\n y = bf16[{second}] parameter(1)
            ROOT z = bf16[{rows},2048] dot(x, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{{contracted}}}"
        )) / rows as f64
    };
    assert!(by(8, "1024,2048", 0) > 1.2 * by(256, "1024,2048", 0), "each row of few takes longer");
    assert!(by(8, "2048,1024", 1) > 1.2 * by(8, "1024,2048", 0), "columns are transposed");
    assert!(by(1, "2048,1024", 1) > by(1, "1024,2048", 0), "each result is a sum of its own");
}

#[test]
fn a_filter_for_each_channel_has_nothing_to_reuse() {
    let convolution = |labels: &str, shape: &str, kernel: &str, groups: i64| {
        seconds(&format!(
            "x = {shape} parameter(0)\n w = {kernel} parameter(1)
            ROOT y = {shape} convolution(x, w), window={{size=3x3 pad=1_1x1_1}}, dim_labels={labels}, feature_group_count={groups}"
        ))
    };
    let dense = convolution("b01f_01io->b01f", "f32[1,56,56,128]", "f32[3,3,128,128]", 1);
    let by_channel = convolution("b01f_01io->b01f", "f32[1,56,56,128]", "f32[3,3,1,128]", 128);
    assert!(by_channel > dense / 64.0, "a 128th of the work: {by_channel} {dense}");
    let apart = convolution("bf01_01io->bf01", "f32[1,128,56,56]", "f32[3,3,128,128]", 1);
    assert!(apart > 1.2 * dense, "features lie apart: {apart} {dense}");
}

#[test]
fn arguments_of_a_large_program_come_from_memory() {
    let program = |others: usize| {
        let mut text = "HloModule m\nENTRY e {\n x = f32[1,1024] parameter(0)\n".to_owned();
        let mut last = "x".to_owned();
        for n in 0..=others {
            let dims = "lhs_contracting_dims={1}, rhs_contracting_dims={0}";
            let root = if n == others { "ROOT " } else { "" };
            text += &format!(" w{n} = f32[1024,1024] parameter({})\n", n + 1);
            text += &format!(" {root}y{n} = f32[1,1024] dot({last}, w{n}), {dims}\n");
            last = format!("y{n}");
        }
        let module = module(&(text + "}\n"));
        let target = Target::named("cpu").expect("it is built in");
        let model = CostModel::new(&module, &target).expect("all rates are given");
        let root = module.root(module.entry().expect("there is one")).expect("there is one");
        model.instruction(root).expect("all rates are given").seconds
    };
    let (alone, among_many) = (program(0), program(63));
    assert!(among_many > 1.5 * alone, "256 MB of weights are in no cache: {among_many} {alone}");
}

#[test]
fn what_a_cache_holds_of_more_than_its_size_grows_less() {
    let copy = |elements: i64| {
        seconds(&format!("x = f32[{elements}] parameter(0)\n ROOT y = f32[{elements}] negate(x)")) / elements as f64
    };
    let sizes: Vec<f64> = (20..28).map(|n| copy(1 << n)).collect();
    assert!(sizes.is_sorted_by(|a, b| a <= &(b * 1.2)), "an element takes no less where there are more: {sizes:?}");
    assert!(sizes[7] > 2.0 * sizes[0], "{sizes:?}");
}

#[test]
fn rounds_wait_for_the_state_that_they_make_and_not_for_counters() {
    let chain = |body: &str| {
        let text = format!(
            "HloModule m
body {{
  s = (s32[], f32[4], f32[100,4]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  x = f32[4] get-tuple-element(s), index=1
  ys = f32[100,4] get-tuple-element(s), index=2
  one = s32[] constant(1)
  zero = s32[] constant(0)
  next = s32[] add(n, one)
  {body}
  row = f32[1,4] reshape(y)
  out = f32[100,4] dynamic-update-slice(ys, row, n, zero)
  ROOT t = (s32[], f32[4], f32[100,4]) tuple(next, z, out)
}}
condition {{
  s = (s32[], f32[4], f32[100,4]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  rounds = s32[] constant(100)
  ROOT more = pred[] compare(n, rounds), direction=LT
}}
ENTRY e {{
  p = (s32[], f32[4], f32[100,4]) parameter(0)
  ROOT w = (s32[], f32[4], f32[100,4]) while(p), condition=condition, body=body
}}
"
        );
        let module = module(&text);
        let root = module.root(module.entry().expect("there is one")).expect("there is one");
        let Op::While { body, .. } = module[root].op else { panic!("it is a loop") };
        carried_chain(&module, body)
    };
    let short = chain("z = f32[4] add(x, x)\n y = f32[4] exponential(z)");
    assert_eq!(short, 1.0, "what is stored is not waited for");
    let long = chain("a = f32[4] add(x, x)\n b = f32[4] multiply(a, a)\n y = f32[4] tanh(b)\n z = f32[4] add(y, a)");
    assert!(long > short + 2.0, "{long}");
    assert_eq!(chain("y = f32[4] exponential(x)\n z = f32[4] copy(x)"), 0.0, "nothing is made of the state");
}
