//! Snapshots go out and come back, and are told from modules alone.

use crate::hlo_text;
use crate::proto::{Container, Snapshot, read, read_snapshot, write, write_snapshot};
use hloom_ir::literal::Literal;
use hloom_ir::module::Module;

fn module() -> Module {
    let text = "HloModule m\nENTRY e {\n x = f32[2] parameter(0)\n ROOT y = f32[2] negate(x)\n}";
    hlo_text::read(text.as_bytes()).module.expect("it is a module")
}

fn pair(a: f32, b: f32) -> Literal {
    Literal::array([2], &[a, b]).expect("two elements")
}

#[test]
fn arguments_and_result_come_back() {
    let snapshot = Snapshot {
        arguments: vec![vec![pair(1.0, 2.0)]],
        result: Some(pair(-1.0, -2.0)),
        platform: "cpu".into(),
        arguments_left_out: false,
    };
    let bytes = write_snapshot(&module(), &snapshot).expect("it can be written");
    let back = read_snapshot(&bytes).expect("it can be read").expect("it is one");
    assert_eq!((back.arguments, back.result, &*back.platform), (snapshot.arguments, snapshot.result, "cpu"));
    assert_eq!(read(&bytes).map(|m| m.instruction_count()), Ok(2));
}

#[test]
fn each_device_has_its_arguments() {
    let arguments = vec![vec![pair(1.0, 2.0)], vec![pair(3.0, 4.0)]];
    let snapshot = Snapshot { arguments: arguments.clone(), ..Snapshot::default() };
    let bytes = write_snapshot(&module(), &snapshot).expect("it can be written");
    let back = read_snapshot(&bytes).expect("it can be read").expect("it is one");
    assert_eq!(back.arguments, arguments);
    assert_eq!(read(&bytes).map(|m| m.instruction_count()), Ok(2));
}

#[test]
fn a_module_alone_is_no_snapshot() {
    for container in [Container::Module, Container::Proto] {
        let bytes = write(&module(), container).expect("it can be written");
        assert!(matches!(read_snapshot(&bytes), Ok(None)), "{container:?}");
    }
    assert!(matches!(read_snapshot(b"HloModule m"), Ok(None)));
    assert!(matches!(read_snapshot(b""), Ok(None)));
}

#[test]
fn a_snapshot_behind_its_length_is_read() {
    let snapshot = Snapshot { arguments: vec![vec![], vec![]], ..Snapshot::default() };
    let bytes = write_snapshot(&module(), &snapshot).expect("it can be written");
    let mut delimited = Vec::new();
    crate::proto::wire::write_varint(&mut delimited, bytes.len() as u64);
    delimited.extend(&bytes);
    delimited.extend([1, 2, 3]);
    assert_eq!(read(&delimited).map(|m| m.instruction_count()), Ok(2));
    assert_eq!(read_snapshot(&delimited).expect("it can be read").map(|s| s.arguments.len()), Some(2));
}

#[test]
fn damaged_arguments_are_an_error() {
    let snapshot = Snapshot { arguments: vec![vec![pair(1.0, 2.0)]], ..Snapshot::default() };
    let mut bytes = write_snapshot(&module(), &snapshot).expect("it can be written");
    let end = bytes.len();
    bytes[end - 9] = 3;
    assert!(read_snapshot(&bytes).is_err() || read_snapshot(&bytes).is_ok_and(|s| s.is_some()));
    crate::proto::wire::write_bytes(&mut bytes, 2, &[0x0a, 0x05, 1]);
    assert!(read_snapshot(&bytes).is_err());
}

#[test]
fn arguments_behind_the_message_are_read() {
    use crate::proto::wire::{write_bytes, write_integer, write_varint};
    // A shape as XLA writes it: element type 2, dimension 3, layout of that one dimension.
    let element = |element_type: u64, dimension: u64| {
        let mut shape = Vec::new();
        write_integer(&mut shape, 2, element_type as i64);
        write_bytes(&mut shape, 3, &[dimension as u8]);
        shape
    };
    let raw = |shape: Vec<u8>, elements: &[u8]| {
        let mut bytes = (shape.len() as u64).to_le_bytes().to_vec();
        bytes.extend(shape);
        bytes.extend(elements);
        bytes
    };
    let floats: Vec<u8> = [1.5f32, -2.0].iter().flat_map(|x| x.to_le_bytes()).collect();
    let argument = raw(element(11, 2), &floats);
    // Ten preds in two bytes.
    let packed = raw(element(1, 10), &[0b0000_0101, 0b10]);
    let mut message = Vec::new();
    write_bytes(&mut message, 1, &write(&module(), Container::Module).expect("it can be written"));
    let mut inputs = Vec::new();
    for size in [argument.len(), packed.len()] {
        let mut descriptor = Vec::new();
        write_integer(&mut descriptor, 2, size as i64);
        write_bytes(&mut inputs, 2, &descriptor);
    }
    write_bytes(&mut message, 2, &inputs);
    let mut bytes = Vec::new();
    write_varint(&mut bytes, message.len() as u64);
    bytes.extend(message);
    bytes.extend(argument);
    bytes.extend(&packed);
    let snapshot = read_snapshot(&bytes).expect("it can be read").expect("it is one");
    let Literal::Array(preds) = &snapshot.arguments[0][1] else { panic!("an array") };
    assert_eq!(preds.bytes(), [1, 0, 1, 0, 0, 0, 0, 0, 0, 1]);
    let Literal::Array(pair) = &snapshot.arguments[0][0] else { panic!("an array") };
    assert_eq!((pair.bytes(), pair.shape().dims()), (&floats[..], &[2][..]));
    // Cut off in the middle.
    assert!(read_snapshot(&bytes[..bytes.len() - 3]).is_err());
}
