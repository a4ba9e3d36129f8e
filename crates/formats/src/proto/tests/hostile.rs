//! Bytes that are no module, or a malicious one: always a diagnostic, never a panic.

use super::*;
use hloom_ir::diagnostic::codes::proto as codes;
use prost::Message;

/// A module with most kinds of fields in it.
fn rich() -> Vec<u8> {
    write(&super::round_trip::every_operation(), Container::Proto).expect("it can be written")
}

#[test]
fn cut_off_anywhere() {
    let bytes = rich();
    // Every cut near the ends, where the containers are, and a good sample between.
    let step = (bytes.len() / 1500).max(1);
    for end in (0..200).chain((200..bytes.len()).step_by(step)).chain(bytes.len() - 50..bytes.len()) {
        assert!(read(&bytes[..end]).is_err(), "cut at {end} of {}", bytes.len());
    }
}

#[test]
fn bits_flipped_anywhere() {
    let bytes = rich();
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        // Some flips make another module; what counts is that none makes a panic.
        if let Ok(module) = read(&damaged) {
            drop(write(&module, Container::Module));
            drop(text(&module));
        }
    }
}

#[test]
fn no_module_at_all() {
    for bytes in [&b""[..], b"HloModule m", b"\xff\xff\xff\xff", b"\x89PNG\r\n\x1a\n", b"\x08\x01"] {
        assert_refused(bytes, &codes::NOT_A_PROTO, &[]);
    }
}

#[test]
fn shapes_that_nest_without_end() {
    let mut shape = m::ShapeProto { element_type: 13, ..Default::default() };
    for _ in 0..200 {
        shape = m::ShapeProto { element_type: 13, tuple_shapes: vec![shape], ..Default::default() };
    }
    let mut p = Vec::new();
    write_str(&mut p, 1, "p");
    write_str(&mut p, 2, "parameter");
    write_message(&mut p, 3, &shape);
    assert_refused(&module(0, &[computation("e", 0, 0, &[p])]), &codes::TOO_DEEP, &["computation e", "instruction p"]);
}

#[test]
fn recovery_modules_that_nest_without_end() {
    let mut inner = module(0, &[computation("e", 0, 1, &[instruction("p", "parameter", 1, &[])])]);
    for _ in 0..10 {
        let entry = m::OriginalValueRecoveryEntry { recovery_module: Some(inner), ..Default::default() };
        let table = m::OriginalValueRecoveryTableProto { entries: vec![entry] };
        inner = module(0, &[computation("e", 0, 1, &[instruction("p", "parameter", 1, &[])])]);
        write_message(&mut inner, 20, &table);
    }
    assert_refused(&inner, &codes::TOO_DEEP, &["recovery"]);
}

#[test]
fn ids_that_refer_to_nothing() {
    let p = || instruction("p", "parameter", 1, &[]);
    let entry = |instructions: &[Vec<u8>], root| module(0, &[computation("e", 0, root, instructions)]);
    let unknown = &codes::UNKNOWN_ID;
    assert_refused(&entry(&[p(), instruction("n", "negate", 2, &[9])], 2), unknown, &["computation e", "n", "9"]);
    // Itself, and one another.
    assert_refused(&entry(&[instruction("n", "negate", 2, &[2])], 2), unknown, &["instruction n", "operand 0"]);
    let cycle = [instruction("n", "negate", 2, &[3]), instruction("o", "negate", 3, &[2])];
    assert_refused(&entry(&cycle, 2), unknown, &["instruction n"]);
    assert_refused(&entry(&[p()], 5), unknown, &["root_id", "5"]);
    assert_refused(&module(4, &[computation("e", 0, 1, &[p()])]), unknown, &["entry_computation_id", "4"]);
    // A computation that calls itself.
    let mut call = instruction("c", "call", 1, &[]);
    write_integers(&mut call, 38, [0]);
    assert_refused(&entry(&[call], 1), unknown, &["instruction c", "calls"]);
    let mut waits = instruction("w", "after-all", 2, &[]);
    write_integers(&mut waits, 37, [8]);
    assert_refused(&entry(&[p(), waits], 2), unknown, &["instruction w", "control predecessor"]);
}

#[test]
fn ids_that_are_used_twice() {
    let twice = [instruction("p", "parameter", 1, &[]), instruction("q", "parameter", 7 << 32 | 1, &[])];
    assert_refused(&module(0, &[computation("e", 0, 1, &twice)]), &codes::DUPLICATE_ID, &["instruction q"]);
    let c = |name| computation(name, 3, 1, &[instruction("p", "parameter", 1, &[])]);
    assert_refused(&module(3, &[c("e"), c("f")]), &codes::DUPLICATE_ID, &["computation f", "3"]);
}

#[test]
fn schedules_that_do_not_fit() {
    let instructions = [instruction("p", "parameter", 1, &[]), instruction("n", "negate", 2, &[1])];
    let scheduled = |sequence: &[i64]| {
        let mut bytes = module(0, &[computation("e", 0, 2, &instructions)]);
        let sequence = m::InstructionSequence { instruction_ids: sequence.to_vec() };
        write_message(&mut bytes, 7, &m::HloScheduleProto { sequences: [(0, sequence)].into() });
        bytes
    };
    assert!(read(&scheduled(&[1, 2])).expect("it fits").is_scheduled);
    for (sequence, word) in [(&[1][..], "leaves out"), (&[1, 1], "already"), (&[1, 2, 3], "not there")] {
        assert_refused(&scheduled(sequence), &codes::BAD_SCHEDULE, &["computation e", word]);
    }
    // The user before what it uses.
    assert_refused(&scheduled(&[2, 1]), &codes::UNKNOWN_ID, &["instruction n"]);
}

#[test]
fn fields_that_are_missing_or_senseless() {
    let entry = |instruction: Vec<u8>| module(0, &[computation("e", 0, 1, &[instruction])]);
    let with = |opcode: &str, attributes: m::InstructionAttributes| {
        let mut out = instruction("i", opcode, 1, &[]);
        out.extend(attributes.encode_to_vec());
        entry(out)
    };
    let none = m::InstructionAttributes::default;
    assert_refused(&with("frobnicate", none()), &codes::UNKNOWN_OPCODE, &["instruction i", "frobnicate"]);
    assert!(fault(&with("trnspose", none())).notes.iter().any(|n| n.message.contains("transpose")));
    assert_refused(&with("concatenate", none()), &codes::MISSING_FIELD, &["instruction i", "dimensions"]);
    assert_refused(&with("dot", none()), &codes::MISSING_FIELD, &["dot_dimension_numbers"]);
    assert_refused(&with("while", none()), &codes::BAD_VALUE, &["called_computation_ids"]);
    let fft = m::InstructionAttributes { fft_type: 9, ..none() };
    assert_refused(&with("fft", fft), &codes::BAD_VALUE, &["fft_type", "9"]);
    let fusion = m::InstructionAttributes { fusion_kind: "kFancy".into(), ..none() };
    assert_refused(&with("fusion", fusion), &codes::BAD_VALUE, &["kFancy"]);
    let mut nameless = Vec::new();
    write_str(&mut nameless, 2, "parameter");
    let named = instruction("p", "parameter", 2, &[]);
    assert_refused(&module(0, &[computation("e", 0, 1, &[named, nameless])]), &codes::MISSING_FIELD, &["name"]);
}

#[test]
fn shapes_and_literals_of_absurd_size() {
    let constant = |shape: m::ShapeProto, f32s: Vec<u32>| {
        let mut out = Vec::new();
        write_str(&mut out, 1, "c");
        write_str(&mut out, 2, "constant");
        write_message(&mut out, 3, &shape);
        write_message(&mut out, 8, &m::LiteralProto { shape: Some(shape), f32s, ..Default::default() });
        module(0, &[computation("e", 0, 0, &[out])])
    };
    let shape = |dims: &[i64]| m::ShapeProto { element_type: 11, dimensions: dims.to_vec(), ..Default::default() };
    let bad = &codes::BAD_LITERAL;
    assert_refused(&constant(shape(&[i64::MAX, i64::MAX]), vec![1]), bad, &["instruction c", "1 elements"]);
    assert_refused(&constant(shape(&[3]), vec![1, 2]), bad, &["f32[3]", "2 elements"]);
    assert_refused(&constant(shape(&[-4]), vec![]), &codes::BAD_SHAPE, &["-4"]);
    assert_refused(
        &constant(m::ShapeProto { element_type: 99, ..Default::default() }, vec![]),
        &codes::BAD_SHAPE,
        &["99"],
    );
    // No elements, in a layout whose strides overflow.
    let layout = m::LayoutProto { minor_to_major: vec![0, 1, 2], ..Default::default() };
    let empty = m::ShapeProto { layout: Some(Box::new(layout)), ..shape(&[0, i64::MAX, i64::MAX]) };
    assert!(read(&constant(empty, vec![])).is_ok());
}

#[test]
fn shardings_that_contradict_themselves() {
    let sharded = |sharding: m::OpSharding| {
        let mut p = instruction("p", "parameter", 1, &[]);
        write_message(&mut p, 40, &sharding);
        module(0, &[computation("e", 0, 1, &[p])])
    };
    let tiled =
        m::OpSharding { kind: m::sharding_type::OTHER, tile_assignment_dimensions: vec![2, 2], ..Default::default() };
    let bad = &codes::BAD_SHARDING;
    let iota = |dims: &[i64], perm: &[i64]| m::OpSharding {
        iota_reshape_dims: dims.to_vec(),
        iota_transpose_perm: perm.to_vec(),
        ..tiled.clone()
    };
    assert!(read(&sharded(iota(&[4], &[0]))).is_ok());
    assert_refused(&sharded(iota(&[4], &[])), bad, &["instruction p"]);
    assert_refused(&sharded(iota(&[1 << 40, 1 << 40], &[0, 1])), bad, &["too many"]);
    assert_refused(&sharded(m::OpSharding { tile_assignment_devices: vec![0, 1, 2], ..tiled.clone() }), bad, &["3"]);
    assert_refused(&sharded(m::OpSharding { kind: 77, ..Default::default() }), bad, &["77"]);
    let axis = m::AxisRefProto { mesh_axis_index: 5, sub_axis_info: None };
    let named = m::NamedShardingProto { replicated_axes: vec![axis], ..Default::default() };
    assert_refused(
        &sharded(m::OpSharding { named_sharding: Some(Box::new(named)), ..Default::default() }),
        bad,
        &["axis 5"],
    );
    let mut tuple = m::OpSharding { kind: m::sharding_type::TUPLE, ..Default::default() };
    tuple = m::OpSharding { kind: m::sharding_type::TUPLE, tuple_shardings: vec![tuple], ..Default::default() };
    assert_refused(&sharded(tuple), bad, &["inside"]);
}

#[test]
fn a_payload_that_would_fill_the_memory() {
    let attributes = m::InstructionAttributes {
        backend_config_payload: Some(Box::new(m::Payload { value: None, id: Some(0) })),
        ..Default::default()
    };
    let instructions: Vec<Vec<u8>> = (1..3000)
        .map(|id| {
            let mut out = instruction("p", "parameter", id, &[]);
            out.extend(attributes.encode_to_vec());
            out
        })
        .collect();
    let mut bytes = module(0, &[computation("e", 0, 1, &instructions)]);
    write_bytes(&mut bytes, 22, &vec![b'x'; 1 << 20]);
    assert_refused(&bytes, &codes::TOO_LARGE, &["payload"]);
}

#[test]
fn a_sharding_that_would_fill_the_memory() {
    let leaf = m::ShapeProto { element_type: 11, ..Default::default() };
    let tuple = m::ShapeProto { element_type: 13, tuple_shapes: vec![leaf; 4096], ..Default::default() };
    let sharding = m::OpSharding {
        kind: m::sharding_type::OTHER,
        tile_assignment_dimensions: vec![4096],
        tile_assignment_devices: (0..4096).collect(),
        ..Default::default()
    };
    let mut p = Vec::new();
    write_str(&mut p, 1, "p");
    write_str(&mut p, 2, "parameter");
    write_message(&mut p, 3, &tuple);
    write_message(&mut p, 40, &sharding);
    assert_refused(&module(0, &[computation("e", 0, 0, &[p])]), &codes::TOO_LARGE, &["instruction p", "sharding"]);
}

#[test]
fn names_that_text_could_not_hold() {
    let p = instruction("bad name\n{}", "parameter", 1, &[]);
    let q = instruction("f32", "parameter", 2, &[]);
    let module = read(&module(0, &[computation("0e", 0, 1, &[p, q])])).expect("names can be mended");
    assert!(module.instruction_by_name("bad_name___").is_some());
    assert!(module.instruction_by_name("f32_").is_some());
    assert!(module.computation_by_name("_e").is_some());
}
