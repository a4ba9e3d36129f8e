//! Programs of one fusion each, and their kernels.

use crate::common::ARCHITECTURE;
use hloom_cuda_codegen::{KernelSequence, Unsupported, generate, generate_in_place, supports};
use hloom_formats::hlo_text;
use hloom_ir::{InstructionId, Module};

/// What reductions reduce by.
const FUNCTIONS: &str = "add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }
max { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] maximum(a, b) }
argmax { a = f32[] parameter(0) i = s32[] parameter(1) b = f32[] parameter(2) j = s32[] parameter(3)
  g = pred[] compare(a, b), direction=GT n = pred[] compare(a, a), direction=NE t = pred[] or(g, n)
  e = pred[] compare(a, b), direction=EQ l = pred[] compare(i, j), direction=LT f = pred[] and(e, l)
  u = pred[] or(t, f) v = f32[] select(t, a, b) w = s32[] select(u, i, j) ROOT r = (f32[], s32[]) tuple(v, w) }
";

/// Bodies of fusions; the parameters are p0, p1 …
pub(crate) const PROGRAMS: [(&str, &str); 13] = [
    (
        "add_f32",
        "p0 = f32[65536] parameter(0) p1 = f32[65536] parameter(1) m = f32[65536] multiply(p0, p1)
         ROOT r = f32[65536] add(m, p1)",
    ),
    ("silu_bf16", "p0 = bf16[65536] parameter(0) l = bf16[65536] logistic(p0) ROOT r = bf16[65536] multiply(p0, l)"),
    ("softmax", ""),
    ("softmax_long", ""),
    (
        "column_sums",
        "p0 = f32[65536,512] parameter(0) z = f32[] constant(0)
         ROOT r = f32[512] reduce(p0, z), dimensions={0}, to_apply=add",
    ),
    ("transpose", "p0 = f32[512,1024] parameter(0) ROOT r = f32[1024,512] transpose(p0), dimensions={1,0}"),
    (
        "scatter",
        "p0 = f32[50,16] parameter(0) p1 = s32[20] parameter(1) p2 = f32[20,16] parameter(2)
         ROOT r = f32[50,16] scatter(p0, p1, p2), update_window_dims={1}, inserted_window_dims={0},
           scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add",
    ),
    ("updates", ""),
    (
        "row_sums_in_a_table",
        "p0 = f32[1024,64] parameter(0) p1 = f32[1024,1024] parameter(1) z = f32[] constant(0)
         s = f32[1024] reduce(p0, z), dimensions={1}, to_apply=add b = f32[1024,1024] broadcast(s), dimensions={0}
         ROOT r = f32[1024,1024] add(p1, b)",
    ),
    (
        "quotients",
        "p0 = f32[65536] parameter(0) p1 = f32[65536] parameter(1) q = f32[65536] divide(p0, p1)
         s = f32[65536] sqrt(q) t = f32[65536] rsqrt(p1) ROOT r = f32[65536] multiply(s, t)",
    ),
    (
        "places_of_largest",
        "p0 = f32[2048,32000] parameter(0) i = s32[2048,32000] iota(), iota_dimension=1 n = f32[] constant(-inf)
         z = s32[] constant(0)
         ROOT r = (f32[2048], s32[2048]) reduce(p0, i, n, z), dimensions={1}, to_apply=argmax",
    ),
    (
        "largest_of_sums",
        "p0 = f32[64,4,4] parameter(0) p1 = f32[64,4,4] parameter(1) z = f32[] constant(0) n = f32[] constant(-inf)
         a = f32[64,4,4,4] broadcast(p0), dimensions={0,1,3} b = f32[64,4,4,4] broadcast(p1), dimensions={0,2,3}
         m = f32[64,4,4,4] multiply(a, b) s = f32[64,4,4] reduce(m, z), dimensions={3}, to_apply=add
         t = f32[64,4] reduce(s, n), dimensions={2}, to_apply=max w = f32[64,4,4] broadcast(t), dimensions={0,1}
         ROOT r = f32[64,4,4] subtract(s, w)",
    ),
    (
        "sum_of_all_and_more",
        "p0 = f32[512,512] parameter(0) p1 = f32[7] parameter(1) z = f32[] constant(0)
         s = f32[] reduce(p0, z), dimensions={0,1}, to_apply=add b = f32[7] broadcast(s), dimensions={}
         ROOT r = f32[7] multiply(p1, b)",
    ),
];

/// The text of a program's fusion.
pub(crate) fn program(name: &str) -> String {
    let softmax = |rows: i64, length: i64| {
        let s = format!("f32[{rows},{length}]");
        format!(
            "p0 = {s} parameter(0) z = f32[] constant(0) n = f32[] constant(-inf)
             m = f32[{rows}] reduce(p0, n), dimensions={{1}}, to_apply=max mb = {s} broadcast(m), dimensions={{0}}
             d = {s} subtract(p0, mb) e = {s} exponential(d) q = f32[{rows}] reduce(e, z), dimensions={{1}}, to_apply=add
             qb = {s} broadcast(q), dimensions={{0}} ROOT r = {s} divide(e, qb)"
        )
    };
    match name {
        "softmax" => softmax(65536, 512),
        "softmax_long" => softmax(4096, 16384),
        "updates" => {
            // Forty arrays w ← w − g, one of them of another size.
            let size = |n: usize| if n == 7 { 333 } else { 64 * (n + 1) };
            let mut text = String::new();
            for n in 0..40 {
                let (s, w, g) = (size(n), 2 * n, 2 * n + 1);
                text += &format!(
                    "p{w} = f32[{s}] parameter({w}) p{g} = f32[{s}] parameter({g}) new{n} = f32[{s}] subtract(p{w}, p{g})\n"
                );
            }
            let shapes: Vec<String> = (0..40).map(|n| format!("f32[{}]", size(n))).collect();
            let names: Vec<String> = (0..40).map(|n| format!("new{n}")).collect();
            format!("{text} ROOT r = ({}) tuple({})", shapes.join(", "), names.join(", "))
        }
        "wide" => "p0 = s8[8589934592] parameter(0) ROOT r = s8[8589934592] negate(p0)".into(),
        _ => PROGRAMS.iter().find(|p| p.0 == name).expect("there is a program of that name").1.into(),
    }
}

/// A module whose root is a fusion of that body.
fn module(body: &str) -> (Module, InstructionId) {
    let mut parameters = Vec::new();
    for (at, _) in body.match_indices(" parameter(") {
        let before = body[..at].rsplit_once(" = ").expect("a parameter has a name");
        let name = before.0.rsplit([' ', '\n']).next().expect("a parameter has a name");
        parameters.push((name.to_owned(), before.1.to_owned()));
    }
    let result = body.rsplit_once("ROOT r = ").expect("there is a root").1;
    let result = match result.starts_with('(') {
        true => &result[..=result.find(')').expect("a tuple ends")],
        false => result.split(' ').next().expect("a root has a shape"),
    };
    let declared: Vec<String> =
        parameters.iter().enumerate().map(|(n, (name, shape))| format!("{name} = {shape} parameter({n})")).collect();
    let names: Vec<&str> = parameters.iter().map(|p| p.0.as_str()).collect();
    let text = format!(
        "HloModule m\n{FUNCTIONS}fused {{\n{body}\n}}\nENTRY e {{\n{}\nROOT f = {result} fusion({}), kind=kLoop, calls=fused\n}}\n",
        declared.join("\n"),
        names.join(", ")
    );
    let read = hlo_text::read(text.as_bytes());
    let module = read.module.unwrap_or_else(|| panic!("{:?}\n{text}", read.diagnostics));
    let root = module.entry().and_then(|e| module.root(e)).expect("there is a root");
    (module, root)
}

/// The kernels of a fusion.
pub(crate) fn kernels(body: String) -> Result<KernelSequence, Unsupported> {
    let (module, root) = module(&body);
    supports(&module, root)?;
    generate(&module, root, ARCHITECTURE)
}

/// The kernels of a fusion that changes its first operand.
pub(crate) fn kernels_in_place(body: String) -> Result<KernelSequence, Unsupported> {
    let (module, root) = module(&body);
    generate_in_place(&module, root, ARCHITECTURE)
}

/// How often a text occurs.
pub(crate) fn count(text: &str, what: &str) -> usize {
    text.matches(what).count()
}

/// All PTX of a sequence.
pub(crate) fn all_text(sequence: &KernelSequence) -> String {
    sequence.kernels.iter().map(|k| k.ptx.as_str()).collect()
}
