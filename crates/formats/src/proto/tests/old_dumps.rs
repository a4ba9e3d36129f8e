//! What dumps of earlier years have and newer ones do not.

use super::*;
use hloom_ir::attributes::ComparisonDirection;
use hloom_ir::device_list::{IotaTransform, ReplicaGroups};
use prost::Message;

fn with(mut instruction: Vec<u8>, attributes: m::InstructionAttributes) -> Vec<u8> {
    instruction.extend(attributes.encode_to_vec());
    instruction
}

fn op(bytes: &[u8], name: &str) -> Op {
    let module = read(bytes).expect("it is a module");
    module[module.instruction_by_name(name).expect("it is there")].op.clone()
}

#[test]
fn ids_are_unique_in_the_module_or_carry_the_computation() {
    let callee = computation("f", 7, 12, &[instruction("p", "parameter", 12, &[])]);
    let call = |operand| {
        let mut call = instruction("c", "call", 21, &[operand]);
        write_integers(&mut call, 38, [7]);
        call
    };
    for operand in [20, 9 << 32 | 20] {
        let entry = computation("e", 9, 21, &[instruction("q", "parameter", operand, &[]), call(operand)]);
        let module = read(&module(9, &[callee.clone(), entry])).expect("it is a module");
        assert_eq!(module.instruction_count(), 3);
        let entry = module.entry().expect("there is one");
        assert_eq!(module[module.root(entry).expect("there is one")].name(), "c");
    }
}

#[test]
fn comparisons_had_opcodes_of_their_own() {
    let p = instruction("p", "parameter", 1, &[]);
    let bytes = module(0, &[computation("e", 0, 2, &[p, instruction("c", "less-than", 2, &[1, 1])])]);
    assert_eq!(op(&bytes, "c"), Op::Compare { direction: ComparisonDirection::Lt, kind: None });
}

#[test]
fn collectives_had_other_fields() {
    let p = instruction("p", "parameter", 1, &[]);
    let groups = vec![m::ReplicaGroup { replica_ids: vec![0, 2] }, m::ReplicaGroup { replica_ids: vec![1, 3] }];
    let plain = m::InstructionAttributes { replica_groups: groups, channel_id: Some(5), ..Default::default() };
    let list = m::IotaReplicaGroupListProto {
        num_replica_groups: 2,
        num_devices_per_group: 2,
        iota_reshape_dims: vec![4],
        iota_transpose_perm: vec![0],
    };
    let nested = m::InstructionAttributes {
        collective_device_list: Some(Box::new(m::CollectiveDeviceListProto {
            replica_groups: Vec::new(),
            iota_replica_group_list: Some(list),
        })),
        ..Default::default()
    };
    let iota = ReplicaGroups::Iota { num_groups: 2, group_size: 2, devices: IotaTransform::identity(4) };
    for (attributes, wanted, channel) in
        [(plain, ReplicaGroups::Explicit(vec![vec![0, 2], vec![1, 3]]), Some(5)), (nested, iota, None)]
    {
        let all_to_all = with(instruction("a", "all-to-all", 2, &[1]), attributes);
        let bytes = module(0, &[computation("e", 0, 2, &[p.clone(), all_to_all])]);
        let Op::AllToAll { collective, .. } = op(&bytes, "a") else { panic!("another operation") };
        assert_eq!((collective.replica_groups, collective.channel_id), (wanted, channel));
    }
}

#[test]
fn prefetches_had_a_flag() {
    let p = instruction("p", "parameter", 1, &[]);
    let attributes = m::InstructionAttributes { is_cross_program_prefetch: true, ..Default::default() };
    let bytes = module(0, &[computation("e", 0, 2, &[p, with(instruction("c", "copy-start", 2, &[1]), attributes)])]);
    assert_eq!(op(&bytes, "c"), Op::CopyStart { cross_program_prefetch_index: Some(0) });
}

#[test]
fn payloads_hold_what_many_instructions_share() {
    let attributes = |id| m::InstructionAttributes {
        backend_config_payload: Some(Box::new(m::Payload { value: None, id: Some(id) })),
        ..Default::default()
    };
    let make = |id| {
        let mut bytes =
            module(0, &[computation("e", 0, 1, &[with(instruction("p", "parameter", 1, &[]), attributes(id))])]);
        write_bytes(&mut bytes, 22, b"zero");
        write_bytes(&mut bytes, 22, b"{\"one\":1}");
        bytes
    };
    let module = read(&make(1)).expect("it is a module");
    let p = module.instruction_by_name("p").expect("it is there");
    assert_eq!(module[p].common.backend_config.as_deref(), Some(&b"{\"one\":1}"[..]));
    assert_refused(&make(2), &hloom_ir::diagnostic::codes::proto::UNKNOWN_ID, &["instruction p", "payload"]);
}

#[test]
fn a_constant_may_have_left_its_value_out() {
    let bytes = module(0, &[computation("e", 0, 1, &[instruction("c", "constant", 1, &[])])]);
    assert_eq!(op(&bytes, "c"), Op::Constant(hloom_ir::op::ConstantValue::Elided));
}

#[test]
fn snapshots_and_protos_are_unwrapped() {
    let bare = module(0, &[computation("e", 0, 1, &[instruction("p", "parameter", 1, &[])])]);
    let wanted = text(&read(&bare).expect("it is a module"));
    let (mut proto, mut snapshot) = (Vec::new(), Vec::new());
    write_bytes(&mut proto, 1, &bare);
    // A buffer assignment: an alias of buffer 0, whose message begins with field 2.
    write_bytes(&mut proto, 3, &[0x12, 0x06, 0x12, 0x04, 0x20, 0x01, 0x1a, 0x00]);
    write_bytes(&mut snapshot, 1, &proto);
    write_str(&mut snapshot, 4, "CPU");
    for bytes in [bare, proto, snapshot] {
        assert!(crate::proto::detect(&bytes));
        assert_eq!(text(&read(&bytes).expect("there is a module inside")), wanted);
    }
}

#[test]
fn text_is_not_taken_for_a_proto() {
    for text in
        ["", "HloModule m\n\nENTRY e {\n}\n", "\nHloModule m, is_scheduled=true\n", "\n\n\n/* f\u{fc}r */", "ML\u{ef}R"]
    {
        assert!(!crate::proto::detect(text.as_bytes()), "{text:?}");
    }
    assert!(crate::proto::detect(b"\x0a\x01m\x1a\x02\x0a"));
}
