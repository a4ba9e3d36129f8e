//! `hloom explain`, `hloom completions`, `--help` and `--version`.

use super::*;

#[test]
fn every_listed_code_is_explained() {
    let folder = Folder::new("explain");
    let list = folder.hloom(&["explain"]).exits(0).stdout;
    let codes: Vec<&str> = list.lines().filter_map(|l| l.split("  ").next()).collect();
    assert!(codes.len() > 5 && codes.contains(&"H0101"), "{list}");
    for code in codes {
        let text = folder.hloom(&["explain", code]).exits(0).stdout;
        assert!(text.starts_with(&format!("{code}: ")) && text.lines().count() >= 3, "{text}");
    }
}

#[test]
fn an_unknown_code_is_a_mistake_on_the_command_line() {
    let ran = Folder::new("explain-unknown").hloom(&["explain", "H9999"]).exits(2);
    assert!(ran.stderr.contains("there is no code `H9999`"), "{}", ran.stderr);
    assert_eq!(ran.stdout, "");
}

#[test]
fn completions_know_the_commands() {
    let folder = Folder::new("completions");
    for shell in ["bash", "zsh", "fish"] {
        let script = folder.hloom(&["completions", shell]).exits(0).stdout;
        assert!(script.contains("verify") && script.contains("elide-constants"), "{shell}");
    }
    folder.hloom(&["completions", "abacus"]).exits(2);
}

#[test]
fn help_and_version_go_to_standard_output() {
    let folder = Folder::new("help");
    let help = folder.hloom(&["--help"]).exits(0).stdout;
    for command in ["fmt", "verify", "convert", "stats", "explain", "completions"] {
        assert!(help.contains(&format!("\n  {command} ")), "{command} is not in the help: {help}");
    }
    assert!(folder.hloom(&["--version"]).exits(0).stdout.starts_with("hloom "));
    folder.hloom(&[]).exits(2);
    folder.hloom(&["frobnicate"]).exits(2);
}
