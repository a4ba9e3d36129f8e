//! The model against what a TPU compiler writes as `estimated_cycles`, on dumps that lie beside the checkout.
#![allow(clippy::print_stderr, reason = "tests talk to whoever runs them")]

use hloom_cost::CostModel;
use hloom_cost::dumped::estimated_cycles;
use hloom_formats::hlo_text;
use hloom_ir::module::Module;
use hloom_target::Target;
use std::path::PathBuf;

/// The dump whose name begins so, or a word that there is none.
fn dump(prefix: &str) -> Option<Module> {
    let shared = std::env::var_os("HLOOM_SHARED")
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared")), PathBuf::from);
    let found = std::fs::read_dir(shared.join("seeds")).ok().into_iter().flatten().flatten();
    let path = found.map(|f| f.path()).find(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with(prefix)));
    let Some(path) = path else {
        eprintln!("skipped: there are no dumps in {}", shared.display());
        return None;
    };
    hlo_text::read(&std::fs::read(path).ok()?).module
}

/// The names, predicted cycles and given cycles of the instructions that carry an estimate.
fn compared(
    module: &Module,
    target: &str,
    given: impl Fn(&str, Option<u64>) -> Option<u64>,
) -> Vec<(String, f64, f64)> {
    let target = Target::named(target).unwrap();
    let model = CostModel::new(module, &target).unwrap();
    let entry = module.entry().unwrap();
    let mut rows = Vec::new();
    for &id in module[entry].instructions() {
        let Some(given) = given(module[id].name(), estimated_cycles(&module[id])) else { continue };
        let cost = model.instruction(id).unwrap();
        rows.push((module[id].name().to_owned(), cost.cycles.unwrap_or(0.0), given as f64));
    }
    rows
}

fn assert_near(rows: &[(String, f64, f64)], percent: f64) {
    for (name, predicted, given) in rows {
        let error = (predicted / given - 1.0) * 100.0;
        assert!(error.abs() < percent, "{name}: {predicted:.0} for {given:.0} ({error:+.1} %)");
    }
}

#[test]
fn cycles_of_a_sharded_mlp_are_near_those_in_its_dump() {
    let Some(module) = dump("001") else { return };
    let rows = compared(&module, "tpu-v6e", |_, given| given);
    assert_eq!(rows.len(), 6, "three conversions and three products carry estimates");
    assert_near(&rows, 2.0);
}

#[test]
fn cycles_of_products_with_operands_in_fast_memory_are_near_the_compilers() {
    let Some(module) = dump("000") else { return };
    // This dump was made before code generation; the compiler's estimates are those of the same program.
    let known = [("fusion.12", 128_128), ("fusion.10", 108_650), ("fusion", 73_104)];
    let rows = compared(&module, "tpu-v6e", |name, _| known.iter().find(|(n, _)| *n == name).map(|k| k.1));
    assert_eq!(rows.len(), 3);
    // Windows are not known here: the search finds larger ones for the last than the compiler, which needs room for what is
    // fused in front.
    assert_near(&rows, 10.0);
}

/// A reduction on its own, of which the compiler's estimates are known for every machine.
#[test]
fn cycles_of_a_single_reduction_are_near_the_compilers() {
    let text = "HloModule m
sum { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
ENTRY e {
  x = f32[1024,2048]{1,0:T(8,128)} parameter(0)
  zero = f32[]{:T(128)} constant(0)
  ROOT s = f32[1024]{0:T(1024)S(1)} reduce(x, zero), dimensions={1}, to_apply=sum
}
";
    let module = hlo_text::read(text.as_bytes()).module.unwrap();
    for (name, given) in [("tpu-v4", 45_568.0), ("tpu-v5e", 63_200.0), ("tpu-v5p", 14_863.0), ("tpu-v6e", 20_552.0)] {
        let target = Target::named(name).unwrap();
        let model = CostModel::new(&module, &target).unwrap();
        let cost = model.instruction(module.root(module.entry().unwrap()).unwrap()).unwrap();
        let ratio = cost.cycles.unwrap() / given;
        assert!((0.97..1.03).contains(&ratio), "{name}: {ratio:.3} times the compiler's estimate");
    }
}

#[test]
fn rows_are_gathered_at_the_speed_of_memory_and_single_elements_are_not() {
    let gathered = |width: usize| {
        let text = format!(
            "HloModule m
ENTRY e {{
  t = f32[1000000,64] parameter(0)
  i = s32[1000000,2] parameter(1)
  ROOT g = f32[1000000,{width}] gather(t, i), offset_dims={{1}}, collapsed_slice_dims={{0}}, start_index_map={{0,1}}, index_vector_dim=1, slice_sizes={{1,{width}}}
}}
"
        );
        let module = hlo_text::read(text.as_bytes()).module.unwrap();
        let target = Target::named("gpu-h200").unwrap();
        let cost = CostModel::new(&module, &target).unwrap().instruction(module.root(module.entry().unwrap()).unwrap());
        let cost = cost.unwrap();
        cost.bytes / cost.memory_seconds
    };
    assert!(gathered(64) > 2.0 * gathered(1), "{:e} and {:e} bytes a second", gathered(64), gathered(1));
}

/// What a compiler estimates of a product of 1024 × 1024 × 1024 elements of bf16, and of an addition, by where they lie.
const KNOWN: &str = "HloModule m
ENTRY e {
  x = bf16[8,128,1024]{2,1,0:T(8,128)(2,1)S(1)} parameter(0)
  w = bf16[1024,1024,1]{1,0,2:T(8,128)(2,1)S(1)} parameter(1)
  y = bf16[1024,1024,1]{1,0,2:T(8,128)(2,1)} parameter(2)
  a = f32[512,8,256]{2,1,0:T(8,128)S(1)} parameter(3)
  b = f32[512,8,256]{2,1,0:T(8,128)S(1)} parameter(4)
  fast = bf16[8,128,1024]{2,1,0:T(8,128)(2,1)S(1)} convolution(x, w), window={size=1}, dim_labels=0bf_io0->0bf
  read = bf16[8,128,1024]{2,1,0:T(8,128)(2,1)S(1)} convolution(x, y), window={size=1}, dim_labels=0bf_io0->0bf
  wide = f32[8,128,1024]{2,1,0:T(8,128)S(1)} convolution(x, w), window={size=1}, dim_labels=0bf_io0->0bf
  sum = f32[512,8,256]{2,1,0:T(8,128)S(1)} add(a, b)
  ROOT all = (bf16[8,128,1024]{2,1,0:T(8,128)(2,1)S(1)}, bf16[8,128,1024]{2,1,0:T(8,128)(2,1)S(1)}, f32[8,128,1024]{2,1,0:T(8,128)S(1)}, f32[512,8,256]{2,1,0:T(8,128)S(1)}) tuple(fast, read, wide, sum)
}
";

#[test]
fn a_window_is_filled_multiplied_and_converted() {
    let module = hlo_text::read(KNOWN.as_bytes()).module.unwrap();
    let target = Target::named("tpu-v6e").unwrap();
    let model = CostModel::new(&module, &target).unwrap();
    let cycles = |name: &str| {
        let entry = module.entry().unwrap();
        let id = module[entry].instructions().iter().find(|&&i| module[i].name() == name).unwrap();
        model.instruction(*id).unwrap().cycles.unwrap()
    };
    // Filling takes 1024 and 2^31 operations 4096; what is not f32 is converted, what is in main memory copied first.
    for (name, given) in [("wide", 5_120.0), ("fast", 11_701.0), ("read", 15_141.0), ("sum", 3_908.0)] {
        let ratio = cycles(name) / given;
        assert!((0.97..1.03).contains(&ratio), "{name}: {ratio:.3} times the compiler's estimate");
    }
}
