//! Programs with bf16 put wherever the verifier allows it: the engine gives what the evaluator gives.
//!
//! `HLOOM_CASES` says how many are tried, `HLOOM_FIRST` from which on.

mod common;

use common::{execute, parse};
use hloom_compiler::{CompileOptions, ExcessPrecision};
use hloom_cpu::{CpuClient, CpuClientOptions};
use hloom_eval::run::DeviceGrid;
use hloom_formats::hlo_text::{self, PrintOptions};
use hloom_fuzz::choices::Choices;
use hloom_fuzz::differential::inputs;
use hloom_fuzz::engines::{Compared, agree, expected};
use hloom_fuzz::generate::{Options, generate};
use hloom_fuzz::mix_precision::mix;
use hloom_ir::element_type::ElementType::{Bf16, F32, Pred, S32};
use hloom_ir::infer::MixedPrecision;
use hloom_ir::verify::{VerifyOptions, verify_precision};
use hloom_runtime::{Client, ExecuteOptions};
use std::panic::{AssertUnwindSafe, catch_unwind};

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(otherwise)
}

/// How many results of program `seed` agree, and whether it mixes types as a source program may not; or what is wrong.
fn case(client: &CpuClient, seed: u64) -> Result<(Compared, bool), String> {
    let mut choices = Choices::from_seed(seed).with_ordinary_numbers();
    let replicas = [1, 1, 2][(seed % 3) as usize];
    let options = Options { replicas, element_types: vec![F32, F32, Bf16, S32, Pred], ..Options::runnable() };
    let mut module = generate(&mut choices, &options);
    mix(&mut module, &mut choices, 40);
    let text = hlo_text::print(&module, &PrintOptions { elide_constants: false });
    let wrong = |what: String| format!("{what}\n{text}");
    let module = parse(&text);
    let strict = verify_precision(module.module().clone(), &VerifyOptions::default(), MixedPrecision::Refused);
    let grid = DeviceGrid { replicas: replicas as usize, partitions: 1 };
    let arguments = inputs(module.module(), replicas as usize, &mut choices)?;
    let options =
        CompileOptions { fill_constants: true, excess_precision: ExcessPrecision::Never, ..CompileOptions::new(grid) };
    let compiled = client.compile(&module, &options);
    let compiled =
        compiled.map_err(|e| wrong(format!("it does not compile: {:?}", e.into_diagnostics(module.module()))));
    let given = execute(client, &compiled?, &arguments, &ExecuteOptions::default());
    let (expected, given) = match (expected(&module, grid, &arguments), given) {
        (Ok(expected), Ok(given)) => (expected, given),
        (Err(_), Err(_)) => return Ok((Compared::default(), strict.is_err())),
        (Ok(_), Err(e)) => return Err(wrong(format!("only the engine fails: {}", e.diagnostic().message))),
        (Err(e), Ok(_)) => return Err(wrong(format!("only the evaluator fails: {}", e.message))),
    };
    let compared = agree(module.module(), &expected, &given).map_err(wrong)?;
    Ok((compared, strict.is_err()))
}

#[test]
fn programs_with_mixed_precision_agree() {
    let options = CpuClientOptions { threads: Some(2), ..CpuClientOptions::default() };
    let client = CpuClient::new(&options).expect("a client");
    let (first, cases) = (number("HLOOM_FIRST", 0), number("HLOOM_CASES", 150));
    let (mut agreed, mut mixed, mut wrong) = (0, 0, Vec::new());
    for seed in first..first + cases {
        let verdict = catch_unwind(AssertUnwindSafe(|| case(&client, seed)));
        match verdict.unwrap_or_else(|_| Err("it panics".to_owned())) {
            Ok((compared, is_mixed)) => (agreed, mixed) = (agreed + compared.agree, mixed + u64::from(is_mixed)),
            Err(what) => wrong.push(format!("seed {seed}: {what}")),
        }
    }
    assert!(wrong.is_empty(), "{} of {cases} programs:\n{}", wrong.len(), wrong.join("\n"));
    assert!(mixed > cases / 2 && agreed as u64 > cases, "{mixed} programs mix types, {agreed} results agree");
}
