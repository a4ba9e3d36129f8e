//! Programs as a TPU compiler leaves them give what their sources give: in the evaluator as they are, and after the passes
//! for the CPU, which leave no layout and no mixed precision behind.

use hloom_formats::hlo_text;
use hloom_fuzz::choices::Choices;
use hloom_fuzz::differential::{Agreement, compare, evaluate};
use hloom_fuzz::tpu_like::{arguments, generate};
use hloom_ir::infer::MixedPrecision;
use hloom_ir::verify::{VerifiedModule, VerifyOptions, verify, verify_precision};
use hloom_passes::{Context, PassList, optimize};
use hloom_target::Target;

fn verified(text: &str) -> VerifiedModule {
    let read = hlo_text::read(text.as_bytes());
    let module = read.module.unwrap_or_else(|| panic!("{:?}\n{text}", read.diagnostics));
    verify(module, &VerifyOptions::default()).unwrap_or_else(|e| panic!("{:#?}\n{text}", e.diagnostics))
}

#[test]
fn compiled_programs_give_what_their_sources_give() {
    let cases = std::env::var("HLOOM_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(60u64);
    let target = Target::named("cpu").expect("the CPU is described");
    let (mut bitcasts, mut slices, mut mixed) = (0, 0, 0);
    for seed in 0..cases {
        let mut choices = Choices::from_seed(seed);
        let program = generate(&mut choices, 6);
        let (source, dump) = (verified(&program.source), verified(&program.dump));
        let inputs = [arguments(source.module(), &mut choices)];
        let expected = evaluate(&source, &inputs).unwrap_or_else(|d| panic!("{d}\n{}", program.source));
        let say = |what: &str, why: &str| panic!("seed {seed}, {what}: {why}\n{}\n{}", program.source, program.dump);
        let came = evaluate(&dump, &inputs).unwrap_or_else(|d| say("the dump", &d.to_string()));
        compare(&expected, &came, Agreement::Exact).unwrap_or_else(|why| say("the dump", &why));
        bitcasts += program.dump.matches("} bitcast(").count();
        slices += program.dump.matches("ConcatBitcast").count();
        let strict = verify_precision(dump.module().clone(), &VerifyOptions::default(), MixedPrecision::Refused);
        mixed += usize::from(strict.is_err());

        let list = PassList::for_target("cpu").expect("there is a list for the CPU");
        let optimized = optimize(dump, &list, &Context { target: &target }, None)
            .unwrap_or_else(|failed| say("the passes", &format!("{:?}", failed.diagnostics)));
        let came = evaluate(&optimized.module, &inputs).unwrap_or_else(|d| say("after the passes", &d.to_string()));
        compare(&expected, &came, Agreement::Within(0.0)).unwrap_or_else(|why| say("after the passes", &why));
        let module = optimized.module.into_module();
        let strict = verify_precision(module, &VerifyOptions::default(), MixedPrecision::Refused);
        strict.unwrap_or_else(|e| say("precision after the passes", &format!("{:?}", e.diagnostics)));
    }
    let enough = cases as usize / 2;
    assert!(bitcasts > enough && slices > enough / 4 && mixed > enough / 2, "{bitcasts} {slices} {mixed}");
}
