//! Fields without a place in the IR survive.

use super::*;
use crate::proto::unknown::FieldSet;
use crate::proto::wire::Fields;

/// Whether some message in the encoded message, at the path of field numbers, has these bytes in it.
fn has(bytes: &[u8], path: &[u32], wanted: &[u8]) -> bool {
    match path {
        [] => bytes.windows(wanted.len()).any(|w| w == wanted),
        [first, rest @ ..] => Fields::new(bytes)
            .flatten()
            .filter(|f| f.number == *first)
            .filter_map(|f| f.value.bytes())
            .any(|inner| has(inner, rest, wanted)),
    }
}

#[test]
fn unknown_fields_survive_at_every_level() {
    let field = |text: &str, number| {
        let mut out = Vec::new();
        write_str(&mut out, number, text);
        out
    };
    // Numbers that nobody has given yet, small and large, and some that the IR does not model.
    for number in [27, 101, 4000] {
        let mut metadata = Vec::new();
        write_str(&mut metadata, 2, "op");
        metadata.extend(field("in metadata", number));
        let mut p = instruction("p", "parameter", 1, &[]);
        write_bytes(&mut p, 7, &metadata);
        p.extend(field("in the instruction", number));
        let mut c = computation("e", 0, 1, &[p]);
        c.extend(field("in the computation", number));
        let mut bytes = module(0, &[c]);
        bytes.extend(field("in the module", number));

        let again = write(&read(&bytes).expect("it is a module"), Container::Module).expect("it can be written");
        for (path, wanted) in [
            (&[][..], "in the module"),
            (&[3], "in the computation"),
            (&[3, 2], "in the instruction"),
            (&[3, 2, 7], "in metadata"),
        ] {
            assert!(has(&again, path, &field(wanted, number)), "field {number} {wanted} is lost");
        }
        let twice = write(&read(&again).expect("it is a module"), Container::Module).expect("it can be written");
        assert_eq!(again, twice, "fields must not multiply");
    }
}

#[test]
fn fields_of_other_opcodes_survive() {
    // A parameter with dimensions, which it has no use for.
    let mut p = instruction("p", "parameter", 1, &[]);
    let mut dimensions = Vec::new();
    write_integers(&mut dimensions, 14, [3, 1]);
    p.extend(&dimensions);
    let read = read(&module(0, &[computation("e", 0, 1, &[p])])).expect("it is a module");
    let again = write(&read, Container::Proto).expect("it can be written");
    assert!(has(&again, &[1, 3, 2], &dimensions));
}

#[test]
fn sets_hold_what_is_put_in() {
    let mut set = FieldSet::of(&[1, 100]);
    assert!(set.contains(1) && set.contains(100) && !set.contains(2) && !set.contains(1000));
    set.insert(1000);
    assert!(!set.without(FieldSet::of(&[1, 100])).is_empty(), "large numbers must not be lost");
}
