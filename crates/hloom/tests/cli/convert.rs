//! `hloom convert`.

use super::*;

#[test]
fn text_survives_the_way_through_protos() {
    let folder = Folder::new("convert").with("m.hlo", WRITTEN);
    folder.hloom(&["convert", "m.hlo", "m.pb"]).exits(0);
    folder.hloom(&["convert", "m.pb", "again.txt"]).exits(0);
    assert_eq!(folder.read("again.txt"), PRINTED);
    // The bare module, whose ending says nothing of it.
    folder.hloom(&["convert", "m.hlo", "bare.bin", "--to", "module-pb"]).exits(0);
    folder.hloom(&["convert", "bare.bin", "third.hlo", "--from", "module-pb"]).exits(0);
    assert_eq!(folder.read("third.hlo"), PRINTED);
    assert_eq!(folder.names(), ["again.txt", "bare.bin", "m.hlo", "m.pb", "third.hlo"]);
}

#[test]
fn protos_are_known_by_their_content() {
    let folder = Folder::new("convert-detect").with("m.hlo", WRITTEN);
    for to in ["pb", "module-pb"] {
        folder.hloom(&["convert", "m.hlo", "anything", "--to", to]).exits(0);
        assert_eq!(folder.hloom(&["fmt", "anything"]).exits(0).stdout, PRINTED);
        folder.hloom(&["verify", "anything"]).exits(0);
    }
    let ran = folder.hloom(&["fmt", "--check", "anything"]).exits(2);
    assert!(ran.stderr.contains("this is a proto"), "{}", ran.stderr);
}

#[test]
fn pipes_work_on_both_sides() {
    let folder = Folder::new("convert-pipe");
    let text = folder.hloom_with(&["convert", "-", "-", "--to", "hlo"], WRITTEN).exits(0);
    assert_eq!(text.stdout, PRINTED);
}

#[test]
fn an_ending_that_says_nothing_needs_a_format() {
    let folder = Folder::new("convert-usage").with("m.hlo", WRITTEN);
    let ran = folder.hloom(&["convert", "m.hlo", "m.xyz"]).exits(2);
    assert!(ran.stderr.contains("`m.xyz` does not say which format to write; name it with --to"), "{}", ran.stderr);
    folder.hloom(&["convert", "m.hlo", "-"]).exits(2);
    folder.hloom(&["convert", "m.hlo", "m.pb", "--to", "jpeg"]).exits(2);
    assert_eq!(folder.names(), ["m.hlo"]);
}

#[test]
fn a_proto_that_is_damaged_is_refused() {
    let folder = Folder::new("convert-damaged").with("m.hlo", WRITTEN);
    folder.hloom(&["convert", "m.hlo", "m.pb"]).exits(0);
    let bytes = std::fs::read(folder.0.join("m.pb")).expect("it was written");
    for end in (1..bytes.len()).step_by(11) {
        std::fs::write(folder.0.join("cut.pb"), &bytes[..end]).expect("it can be written");
        let ran = folder.hloom(&["convert", "cut.pb", "cut.hlo", "--from", "pb"]).exits(1);
        assert!(ran.stderr.starts_with("error[H"), "cut at {end}: {}", ran.stderr);
    }
    assert!(!folder.names().contains(&"cut.hlo".to_owned()));
}

#[test]
fn a_wrong_shape_in_a_proto_shows_the_instruction() {
    let folder = Folder::new("convert-wrong").with("m.hlo", WRONG_SHAPE);
    folder.hloom(&["convert", "m.hlo", "m.pb"]).exits(0);
    let ran = folder.hloom(&["verify", "m.pb"]).exits(1);
    for words in ["--> m.pb", "%z = f32[2,4]", "the computation `main`", "model.py:7"] {
        assert!(ran.stderr.contains(words), "{words} is not in: {}", ran.stderr);
    }
}
