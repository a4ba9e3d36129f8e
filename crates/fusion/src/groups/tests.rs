//! What is made together where groups are full, and how much of a chain is made twice.

use super::{Facts, group};
use crate::multi_output::{Makers, merge};
use hloom_formats::hlo_text::read;
use hloom_ir::entity::InstructionId;
use hloom_ir::order::PostOrder;
use hloom_passes::FusionLimits;

/// The names of the results of each group of a program, and the number of its members.
fn groups(text: &str) -> Vec<(Vec<String>, usize)> {
    let module = read(text.as_bytes()).module.unwrap();
    let entry = module.entry().unwrap();
    let order = PostOrder::new(&module).instructions(entry);
    let mut facts = Facts::new(&module);
    let found = group(&module, entry, &order, &mut facts, FusionLimits::default());
    let found = merge(&module, entry, found, &order, &facts, &mut Makers::new(&module));
    let named = found.iter().filter(|g| !g.members.is_empty());
    let names = |results: &[InstructionId]| results.iter().map(|&r| module[r].name().to_owned()).collect();
    named.map(|g| (names(&g.results), g.members.len())).collect()
}

/// A chain of sums with the same number, each used by the next.
fn sums(count: usize) -> String {
    let mut text = String::from("HloModule m\nENTRY e {\n  x0 = f32[512] parameter(0)\n  c = f32[] constant(3)\n");
    text += "  cs = f32[512] broadcast(c), dimensions={}\n";
    for n in 1..=count {
        let root = if n == count { "ROOT " } else { "" };
        text += &format!("  {root}x{n} = f32[512] add(x{}, cs)\n", n - 1);
    }
    text + "}"
}

#[test]
fn constants_are_made_in_full_groups_too() {
    let found = groups(&sums(300));
    assert!(found.len() > 1, "one group has room for all");
    assert!(!found.iter().any(|(results, _)| results.contains(&"cs".to_owned())), "{found:?}");
}

#[test]
fn a_long_chain_of_cheap_values_is_made_once() {
    // Each value is used twice, as in a generator of random bits, so that each is cheap by itself.
    let chain = |length: usize| {
        let mut text =
            String::from("HloModule m\nENTRY e {\n  x0 = u32[512] parameter(0)\n  y0 = u32[512] parameter(1)\n");
        for n in 1..=length {
            let before = n - 1;
            text += &format!("  x{n} = u32[512] add(x{before}, y{before})\n  y{n} = u32[512] xor(y{before}, x{n})\n");
        }
        text += &format!("  l = u32[512] not(x{length})\n  r = u32[512] not(y{length})\n");
        text += "  ROOT t = (u32[512], u32[512]) tuple(l, r)\n}";
        groups(&text).iter().map(|(_, members)| members).sum::<usize>()
    };
    let (short, long) = (chain(60), chain(120));
    assert!(long - short <= 3 * 60, "{short} and {long} members: the chain is made twice");
}
