//! What must be true of every generated module.

use hloom_formats::hlo_text::{self, PrintOptions};
use hloom_fuzz::bodies;
use hloom_fuzz::choices::Choices;
use hloom_fuzz::generate::{Options, generate};
use hloom_ir::element_type::ElementType;
use hloom_ir::module::Module;
use hloom_ir::opcode::Opcode;
use hloom_ir::verify::{VerifyOptions, verify};
use std::collections::BTreeSet;

const CASES: u64 = 200;

fn check_all(options: &Options, holds: impl Fn(&Module) -> Result<(), String>) {
    for seed in 0..CASES {
        let module = generate(&mut Choices::from_seed(seed), options);
        if let Err(error) = holds(&module) {
            let text = hlo_text::print(&module, &PrintOptions { elide_constants: false });
            panic!("seed {seed}: {error}\n\nthe module is\n{text}");
        }
    }
}

fn is_valid(module: &Module) -> Result<(), String> {
    verify(module.clone(), &VerifyOptions::default())
        .map(|_| ())
        .map_err(|invalid| invalid.diagnostics.iter().map(|d| format!("{d} at {:?}\n", d.place)).collect())
}

#[test]
fn text_reads_back_the_same() {
    check_all(&Options::default(), bodies::prints_back);
}

#[test]
fn protos_read_back_the_same() {
    check_all(&Options::default(), bodies::keeps_through_proto);
}

#[test]
fn generated_modules_are_valid() {
    check_all(&Options::default(), is_valid);
}

#[test]
fn runnable_modules_are_valid() {
    check_all(&Options::runnable(), is_valid);
}

#[test]
fn a_reader_gives_a_module_as_valid_as_the_one_that_was_printed() {
    check_all(&Options::default(), |module| {
        let text = hlo_text::print(module, &PrintOptions { elide_constants: false });
        let read = hlo_text::read(text.as_bytes());
        let module = read.module.ok_or_else(|| format!("{:?}", read.diagnostics))?;
        is_valid(&module)
    });
}

#[test]
fn bytes_of_a_fuzzer_make_modules_too() {
    let mut bytes = Vec::new();
    let mut source = Choices::from_seed(7);
    for _ in 0..100 {
        let module = generate(&mut Choices::from_bytes(&bytes), &Options::default());
        assert_eq!(bodies::generated(&module), Ok(()), "from {bytes:?}");
        bytes.extend((0..20).map(|_| source.bits() as u8));
    }
}

/// A generator that leaves something out tests nothing of it.
#[test]
fn generated_modules_have_every_type_and_nearly_every_opcode() {
    let (mut opcodes, mut types) = (BTreeSet::new(), BTreeSet::new());
    for seed in 0..CASES {
        let module = generate(&mut Choices::from_seed(seed), &Options::default());
        for &computation in module.computations() {
            for &id in module[computation].instructions() {
                opcodes.insert(module[id].opcode());
                types.extend(module[id].shape.element_type());
            }
        }
    }
    let missing_types: Vec<_> = ElementType::ALL.into_iter().filter(|t| !types.contains(t)).collect();
    assert_eq!(missing_types, []);
    let missing: Vec<_> = Opcode::ALL.iter().copied().filter(|o| !opcodes.contains(o)).collect();
    assert_eq!(missing, [Opcode::CollectiveReduce, Opcode::RaggedAllToAll, Opcode::ScaledDot]);
}

#[test]
fn the_same_seed_gives_the_same_module() {
    let text = |seed| {
        let module = generate(&mut Choices::from_seed(seed), &Options::default());
        hlo_text::print(&module, &PrintOptions { elide_constants: false })
    };
    assert_eq!(text(3), text(3));
    assert_ne!(text(3), text(4));
}
