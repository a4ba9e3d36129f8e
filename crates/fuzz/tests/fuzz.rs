//! A bounded number of cases of every fuzz body; the command of this crate runs as many as one likes.

use hloom_fuzz::choices::Choices;
use hloom_fuzz::{bodies, memory, mutate, seeds};

const CASES: u64 = 2000;

/// Small ones, to be quick.
const MAX_SEED_BYTES: u64 = 3 << 10;

/// Runs `body` on mutated seeds.
fn fuzz(seeds: &[Vec<u8>], body: fn(&[u8]) -> Result<bodies::Verdict, String>) {
    let mut refused = 0;
    for case in 0..CASES {
        let (a, b) = (case as usize % seeds.len(), (case as usize / 7 + 1) % seeds.len());
        let input = mutate::mutate(&mut Choices::from_seed(case), &seeds[a], &seeds[b], 32 << 10);
        match body(&input) {
            Ok(verdict) => refused += u64::from(verdict == bodies::Verdict::Refused),
            Err(error) => panic!("case {case}: {error}\n\nthe input is\n{}", String::from_utf8_lossy(&input)),
        }
    }
    // All refused would mean that nothing behind the reader is tested; none, that nothing is refused.
    assert!(refused > CASES / 100 && refused < CASES * 99 / 100, "{refused} of {CASES} were refused");
}

#[test]
fn any_text_is_read_or_refused() {
    fuzz(&seeds::texts(100, MAX_SEED_BYTES), bodies::text_reader);
}

#[test]
fn any_valid_text_is_run_or_refused() {
    fuzz(&seeds::texts(100, MAX_SEED_BYTES), bodies::evaluator);
}

#[test]
fn any_proto_is_read_or_refused() {
    fuzz(&seeds::protos(100, MAX_SEED_BYTES), bodies::proto_reader);
}

#[test]
fn any_valid_text_has_its_memory_planned_or_is_refused() {
    fuzz(&seeds::texts(100, MAX_SEED_BYTES), memory::planner);
}

#[test]
fn any_dump_is_judged() {
    let dumps = memory::dumps(&seeds::texts(100, MAX_SEED_BYTES), 16 << 10);
    assert!(dumps.len() > 100, "{} are too few", dumps.len());
    fuzz(&dumps, memory::check_dump);
}

#[test]
fn any_stablehlo_text_is_read_or_refused() {
    fuzz(&seeds::stablehlo_texts(MAX_SEED_BYTES), bodies::stablehlo_text);
}

#[test]
fn any_stablehlo_bytecode_is_read_or_refused() {
    let seeds = seeds::stablehlo_bytecode(MAX_SEED_BYTES);
    if seeds.len() > 1 {
        fuzz(&seeds, bodies::stablehlo_bytecode);
    }
}

#[test]
fn seeds_hold_to_begin_with() {
    let check = |seeds: Vec<Vec<u8>>, body: fn(&[u8]) -> Result<bodies::Verdict, String>| {
        // A prime step takes some of every kind of seed.
        for seed in seeds.iter().step_by(7) {
            assert_eq!(body(seed).map(drop), Ok(()), "the seed is\n{}", String::from_utf8_lossy(seed));
        }
    };
    check(seeds::texts(100, MAX_SEED_BYTES), bodies::text_reader);
    check(seeds::protos(100, MAX_SEED_BYTES), bodies::proto_reader);
}
