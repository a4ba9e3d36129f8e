//! Bytecode of the compiler's own dialects, as jaxlib's MLIR writes it, beside the text that it was made of.
//!
//! jaxlib 0.10.2 wrote `native/operations.bc` and `native/operations.mlir` from one module; `tools/compare_bytecode.py --write`
//! makes such pairs.

fn hlo(module: Result<hloom_stablehlo::mlir::Module<'_>, Box<hloom_ir::Diagnostic>>) -> String {
    let module = module.and_then(|m| hloom_stablehlo::to_hlo(&m)).unwrap_or_else(|e| panic!("{e}"));
    hloom_formats::hlo_text::print(&module, &Default::default())
}

#[test]
fn it_says_what_the_text_says() {
    let bytecode = include_bytes!("native/operations.bc");
    let from_bytecode = hlo(hloom_stablehlo::read_bytecode(bytecode));
    let from_text = hlo(hloom_stablehlo::read_text(include_bytes!("native/operations.mlir")));
    assert_eq!(from_bytecode, from_text);
    for part in ["xla.sdy.allowed_direction=\"BACKWARD\"", "#sdy.op_sharding_rule<([], [])->([])>\"", "channel_id=7"] {
        assert!(from_bytecode.contains(part), "{part} is missing:\n{from_bytecode}");
    }
}

#[test]
fn what_is_cut_off_or_changed_is_refused_or_read() {
    let bytecode = include_bytes!("native/operations.bc");
    for end in 0..bytecode.len() {
        assert!(hloom_stablehlo::read_bytecode(&bytecode[..end]).is_err(), "cut off at {end}");
    }
    for at in 0..bytecode.len() {
        for value in [0, 1, 0x7f, 0xff, bytecode[at] ^ 2] {
            let mut changed = bytecode.to_vec();
            changed[at] = value;
            let _whatever_comes_out =
                hloom_stablehlo::read_bytecode(&changed).and_then(|m| hloom_stablehlo::to_hlo(&m));
        }
    }
}
