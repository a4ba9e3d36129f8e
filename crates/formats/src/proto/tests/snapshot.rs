//! Snapshots go out and come back, and are told from modules alone.

use crate::hlo_text;
use crate::proto::{Container, Snapshot, from_text_form, is_text_form, read, read_snapshot, write, write_snapshot};
use hloom_ir::diagnostic::Place;
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

/// A snapshot as tools write it for people: text, with names for fields.
const TEXT: &str = r#"
# proto-message: HloUnoptimizedSnapshot
hlo_module {
  name: "m\145\x74"
  entry_computation_name: "e" entry_computation_id: 7
  computations: <
    name: 'e' id: 7 root_id: 2
    instructions {
      name: "x" opcode: "parameter" id: 1
      shape { element_type: F32 dimensions: 2 is_dynamic_dimension: false layout { minor_to_major: [0] } }
      metadata { op_name: "a\"" "b" source_line: 0x0c }
    }
    instructions {
      name: "y" opcode: "negate" id: 2 operand_ids: [ 1 ];
      shape { element_type: 11, dimensions: 2 }
    }
    program_shape { parameters { element_type: F32 dimensions: 2 } result { element_type: F32 dimensions: 2 } }
  >
}
partitions { arguments { shape { element_type: F32 dimensions: 2 layout { minor_to_major: 0 } } f32s: [1.5, -inf] } }
partitions { arguments { shape { element_type: F32 dimensions: 2 layout < minor_to_major: 0 > } f32s: 3f f32s: 4e0 } }
version: 1
"#;

#[test]
fn a_snapshot_in_text_form_is_read() {
    assert!(is_text_form(TEXT.as_bytes()));
    let bytes = from_text_form(TEXT.as_bytes()).expect("it can be read");
    let back = read_snapshot(&bytes).expect("it can be read").expect("it is one");
    assert_eq!(back.arguments, [vec![pair(1.5, f32::NEG_INFINITY)], vec![pair(3.0, 4.0)]]);
    let module = read(&bytes).expect("it is a module");
    assert_eq!((&*module.name, module.instruction_count()), ("met", 2));
    let printed = hlo_text::print(&module, &hlo_text::PrintOptions::default());
    assert!(printed.contains(r#"parameter(0), metadata={op_name="a\"b" source_line=12}"#), "{printed}");
    assert!(printed.contains("negate(%x)"), "{printed}");
}

#[test]
fn what_is_wrong_in_a_text_form_is_pointed_at() {
    let at = |text: &str| {
        let diagnostic = from_text_form(text.as_bytes()).expect_err("something is wrong");
        let Place::Span(span) = diagnostic.place else { panic!("{diagnostic}") };
        (text[span.start as usize..span.end as usize].to_owned(), diagnostic.message.clone())
    };
    let (place, message) = at("hlo_module { name: \"m\" nom: 3 }");
    assert_eq!((place.as_str(), message.as_str()), ("nom", "HloModuleProto has no field `nom` that is known"));
    assert_eq!(at("hlo_module { entry_computation_id: \"m\" }").0, "\"m\"");
    assert_eq!(at("hlo_module { computations { instructions { shape { element_type: F33 } } } }").0, "F33");
    assert_eq!(at("hlo_module { name: \"m }").1, "the text does not end");
    assert_eq!(at("hlo_module { name: \"\\q\" }").0, "\"\\q\"");
    assert_eq!(at("hlo_module { computations {").1, "the text ends inside a HloComputationProto");
    assert_eq!(at("hlo { hlo_module > }").0, ">");
    let deep = format!("hlo {{ hlo_module {{ host_program_shape {{ result {}", "{ tuple_shapes ".repeat(200));
    assert!(at(&deep).1.contains("too deeply"));
    for text in ["HloModule m", "module @m {", "hlo", "", "\u{1}\u{2}", "// hlo {"] {
        assert!(!is_text_form(text.as_bytes()), "{text}");
    }
}
