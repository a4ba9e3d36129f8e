//! Differences of small modules written out, and changes planted at random in generated ones: each is found, and nothing
//! else is told.

mod planted;

use super::{AspectKind, Change, Difference, ModuleDiff, diff, to_html, to_json, to_text};
use hloom_formats::hlo_text;
use hloom_ir::module::Module;
use hloom_ir::verify::{VerifiedModule, VerifyOptions, verify};

fn verified(module: Module) -> VerifiedModule {
    verify(module, &VerifyOptions::default()).unwrap_or_else(|i| panic!("{:?}", i.diagnostics))
}

fn read(text: &str) -> VerifiedModule {
    let result = hlo_text::read(text.as_bytes());
    verified(result.module.unwrap_or_else(|| panic!("{:?}", result.diagnostics)))
}

/// What differs where `from` stands once and becomes `to`.
fn change(text: &str, from: &str, to: &str) -> ModuleDiff {
    assert_eq!(text.matches(from).count(), 1, "{from}");
    diff(&read(text), &read(&text.replace(from, to)))
}

/// The only difference.
fn only(found: &ModuleDiff) -> &Difference {
    assert_eq!(found.count(), 1, "{}", to_text(found));
    &found.differences[0]
}

const MLP: &str = r#"HloModule mlp
sum { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b) }
fused { p = f32[4,8] parameter(0)
  z = f32[] constant(0)
  zs = f32[4,8] broadcast(z), dimensions={}
  ROOT m = f32[4,8] maximum(p, zs) }
ENTRY main {
  x = f32[4,16] parameter(0)
  w = f32[16,8] parameter(1)
  v = f32[8,2] parameter(2)
  h = f32[4,8] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="up" source_file="model.py" source_line=7}
  r = f32[4,8] fusion(h), kind=kLoop, calls=fused
  y = f32[4,2] dot(r, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  c = f32[] constant(0.5)
  cs = f32[4,2] broadcast(c), dimensions={}
  d = f32[4,2] subtract(y, cs)
  e = f32[4,2]{1,0} exponential(d)
  g = f32[4,2] all-reduce(e), replica_groups={{0,1},{2,3}}, to_apply=sum
  i = f32[] constant(0)
  t = f32[4] reduce(g, i), dimensions={1}, to_apply=sum
  ROOT out = (f32[4], f32[4,2]) tuple(t, d)
}"#;

#[test]
fn names_order_and_commuted_operands_are_no_difference() {
    let other = MLP
        .replace("(a, b) }", "(b, a) }")
        .replace("maximum(p, zs)", "maximum(zs, p)")
        .replace(
            "  x = f32[4,16] parameter(0)\n  w = f32[16,8] parameter(1)\n",
            "  weights = f32[16,8] parameter(1)\n  x = f32[4,16] parameter(0)\n",
        )
        .replace("dot(x, w)", "dot(x, weights)")
        .replace("{{0,1},{2,3}}", "[2,2]<=[4]")
        .replace("source_line=7", "source_line=9")
        .replace("f32[4,2]{1,0} exponential", "f32[4,2] exponential");
    assert_ne!(other, MLP);
    let found = diff(&read(MLP), &read(&other));
    assert!(found.is_equal(), "{}", to_text(&found));
    assert!(to_text(&found).starts_with("no difference: 21 instructions each"), "{}", to_text(&found));
}

#[test]
fn a_constant_is_a_difference_and_what_follows_from_it_is_not() {
    let found = change(MLP, "constant(0.5)", "constant(0.25)");
    let difference = only(&found);
    assert_eq!(difference.aspects[0].kind, AspectKind::Constant);
    assert_eq!(difference.aspects[0].detail, "0.5 → 0.25");
}

#[test]
fn a_change_in_a_fusion_is_told_with_the_fusion() {
    let found = change(MLP, "z = f32[] constant(0)", "z = f32[] constant(1)");
    let difference = only(&found);
    assert_eq!(difference.a.as_ref().map(|a| &*a.name), Some("r"));
    assert_eq!(difference.aspects[0].kind, AspectKind::Fusion);
    assert_eq!(difference.inside.len(), 1);
    assert_eq!(difference.inside[0].aspects[0].detail, "0 → 1");
}

/// What moved is told where it was and where it is; the fusion that took it in is told as such, and nothing else.
#[test]
fn an_operation_that_moved_into_a_fusion_shows_at_both_places() {
    let outside = MLP
        .replace("  r = f32[4,8] fusion(h)", "  u = f32[4,8] tanh(h)\n  r = f32[4,8] fusion(u)")
        .replace("v = f32[8,2]", "v = f32[8,2]{1,0}");
    let inside =
        MLP.replace("maximum(p, zs)", "maximum(u, zs)").replace("  z = f32", "  u = f32[4,8] tanh(p)\n  z = f32");
    let found = diff(&read(&outside), &read(&inside));
    let [removed, fusion] = &found.differences[..] else { panic!("{}", to_text(&found)) };
    assert_eq!((removed.change, removed.a.as_ref().map(|a| &*a.name)), (Change::Removed, Some("u")));
    assert_eq!((fusion.aspects[0].kind, fusion.b.as_ref().map(|b| &*b.name)), (AspectKind::Fusion, Some("r")));
    let [added] = &fusion.inside[..] else { panic!("{}", to_text(&found)) };
    assert_eq!((added.change, added.b.as_ref().map(|b| &*b.name)), (Change::Added, Some("u")));
}

#[test]
fn layouts_collectives_and_operands_show_as_themselves() {
    let kinds = [
        ("f32[4,2]{1,0} exponential", "f32[4,2]{0,1} exponential", AspectKind::Layout),
        ("{{0,1},{2,3}}", "{{0,2},{1,3}}", AspectKind::Collective),
        ("subtract(y, cs)", "subtract(cs, y)", AspectKind::Operands),
        ("subtract(y, cs)", "add(y, cs)", AspectKind::Opcode),
        ("kind=kLoop", "kind=kInput", AspectKind::Fusion),
        (
            "dimensions={1}, to_apply=sum",
            "dimensions={1}, to_apply=sum, backend_config={\"a\":1}",
            AspectKind::BackendConfig,
        ),
        ("tuple(t, d)", "tuple(t, e)", AspectKind::Operands),
    ];
    for (from, to, kind) in kinds {
        let found = change(MLP, from, to);
        assert_eq!(only(&found).aspects[0].kind, kind, "{from} → {to}: {}", to_text(&found));
    }
}

#[test]
fn what_is_put_in_or_taken_out_is_told_once() {
    let with = MLP.replace("  g = ", "  n = f32[4,2] negate(e)\n  g = ").replace("all-reduce(e)", "all-reduce(n)");
    let found = diff(&read(MLP), &read(&with));
    let difference = only(&found);
    assert_eq!((difference.change, difference.b.as_ref().map(|b| &*b.name)), (Change::Added, Some("n")));
    assert!(difference.b.as_ref().is_some_and(|b| b.cost.flops == 8 && b.cost.bytes == 64), "{difference:?}");
    let found = diff(&read(&with), &read(MLP));
    let difference = only(&found);
    assert_eq!((difference.change, difference.a.as_ref().map(|a| &*a.name)), (Change::Removed, Some("n")));
}

#[test]
fn a_reducer_that_changed_is_told_with_what_applies_it() {
    let text = MLP.replace(
        "ENTRY",
        "most { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT s = f32[] maximum(a, b) }\nENTRY",
    );
    let found = change(&text, "dimensions={1}, to_apply=sum", "dimensions={1}, to_apply=most");
    let difference = only(&found);
    assert_eq!(difference.aspects[0].kind, AspectKind::Computation);
    assert_eq!(difference.inside[0].aspects[0].detail, "add → maximum");
    // Both of those that apply it: told once.
    let found = change(MLP, "f32[] add(a, b)", "f32[] maximum(a, b)");
    assert_eq!(only(&found).times, 2);
}

#[test]
fn channels_may_be_renumbered_but_not_joined() {
    let text = |a: i64, b: i64| {
        format!(
            "HloModule m\nENTRY e {{\n x = f32[4] parameter(0)\n y = f32[4] collective-permute(x), channel_id={a}, \
             source_target_pairs={{{{0,1}}}}\n ROOT z = f32[4] collective-permute(y), channel_id={b}, \
             source_target_pairs={{{{0,1}}}}\n}}"
        )
    };
    assert!(diff(&read(&text(1, 2)), &read(&text(7, 5))).is_equal());
    assert_eq!(only(&diff(&read(&text(1, 2)), &read(&text(3, 3)))).aspects[0].kind, AspectKind::Channel);
}

#[test]
fn constants_that_a_dump_leaves_out_are_counted_not_told() {
    let text = "HloModule m\nENTRY e {\n ROOT c = f32[12] constant({1,2,3,4,5,6,7,8,9,10,11,12})\n}";
    let found = change(text, "{1,2,3,4,5,6,7,8,9,10,11,12}", "{...}");
    assert!(found.is_equal() && found.unknown_constants == 1, "{}", to_text(&found));
}

#[test]
fn the_header_is_compared() {
    let text = MLP.replace("  w = ", "  u = f32[4] parameter(3)\n  w = ");
    let found = change(
        &text,
        "HloModule mlp",
        "HloModule other, replica_count=4, input_output_alias={ {0}: (3, {}, may-alias) }",
    );
    assert_eq!(found.header, ["replica_count: 1 → 4", "input_output_alias: 0 → 1 aliases"]);
    assert!(found.differences.is_empty());
}

#[test]
fn both_texts_source_lines_and_costs_are_told() {
    let found = change(
        MLP,
        "dot(x, w), lhs_contracting_dims={1}",
        "dot(x, w), lhs_contracting_dims={1}, operand_precision={high,high}",
    );
    let text = to_text(&found);
    for words in ["- %h = ", "+ %h = ", "operand_precision={high,high}", "model.py:7 \"up\"", "flops 1024"] {
        assert!(text.contains(words), "{words}\n{text}");
    }
    let json = to_json(&found);
    assert_eq!(json["differences"][0]["a"]["source"], "model.py:7");
    assert_eq!(json["equal"], false);
}

#[test]
fn no_input_can_run_in_the_page() {
    let evil = "</script><script>alert(1)</script>";
    let text = MLP.replace("op_name=\"up\"", &format!("op_name=\"{evil}\""));
    let found = change(
        &text,
        "dot(x, w), lhs_contracting_dims={1}",
        "dot(x, w), lhs_contracting_dims={1}, operand_precision={high,high}",
    );
    let page = to_html(&found, ("<b>", evil));
    assert!(!page.contains("<script>alert") && !page.contains("<b>"), "{page}");
    assert!(page.contains("&lt;script&gt;alert(1)"), "{page}");
}
