//! What the HLO text reader makes of each construct of the language.

use hloom_formats::hlo_text::read;
use hloom_ir::attributes::{AliasKind, ResultAccuracy};
use hloom_ir::device_list::ReplicaGroups;
use hloom_ir::instruction::{Instruction, OriginTree, OriginalValue};
use hloom_ir::literal::ArrayLiteral;
use hloom_ir::module::Module;
use hloom_ir::op::{ConstantValue, Op};
use hloom_ir::opcode::Opcode;

/// Reads a text that has nothing wrong with it.
fn module(text: &str) -> Module {
    let result = read(text.as_bytes());
    let said: Vec<String> = result.diagnostics.iter().map(ToString::to_string).collect();
    assert!(said.is_empty(), "{said:?} in\n{text}");
    result.module.expect("a module")
}

/// Reads `body` as the entry of a module.
fn entry(body: &str) -> Module {
    module(&format!("HloModule m\nENTRY e {{\n{body}\n}}\n"))
}

/// The root of the entry.
fn root(module: &Module) -> &Instruction {
    &module[module.root(module.entry().unwrap()).unwrap()]
}

/// Names of the entry's instructions, in order.
fn names(module: &Module) -> Vec<&str> {
    module[module.entry().unwrap()].instructions().iter().map(|&i| module[i].name()).collect()
}

fn literal(text: &str) -> ArrayLiteral {
    let module = entry(text);
    match &root(&module).op {
        Op::Constant(ConstantValue::Literal(l)) => l.as_array().expect("an array").clone(),
        other => panic!("{other:?} is no literal"),
    }
}

fn f32s(text: &str) -> Vec<f32> {
    literal(text).bytes().chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}

#[test]
fn the_header() {
    let m = module(
        "HloModule m, is_scheduled=true, input_output_alias={ {0}: (0, {}, must-alias), {1}: (1, {0}) }, \
         buffer_donor={ (2, {}) }, entry_computation_layout={(f32[2]{0}, (f32[]), s8[3]{0})->(f32[2]{0}, f32[])}, \
         allow_spmd_sharding_propagation_to_output={true,false}, replica_count=2, num_partitions=4, \
         frontend_attributes={k=\"v\",j={\"a\": 1}}\n\
         ENTRY e {\n  a = f32[2] parameter(0)\n  b = (f32[]) parameter(1)\n  c = s8[3] parameter(2)\n  \
         d = f32[] get-tuple-element(b), index=0\n  ROOT t = (f32[2], f32[]) tuple(a, d)\n}",
    );
    assert!(m.is_scheduled);
    assert_eq!((m.config.replica_count, m.config.num_partitions), (2, 4));
    let kinds: Vec<AliasKind> = m.config.input_output_alias.iter().map(|a| a.kind).collect();
    assert_eq!(kinds, [AliasKind::Must, AliasKind::May]);
    assert_eq!(m.config.buffer_donors[0].parameter, 2);
    assert_eq!(
        m.config.entry_layout.as_ref().unwrap().to_string(),
        "(f32[2]{0}, (f32[]), s8[3]{0})->(f32[2]{0}, f32[])"
    );
    assert_eq!(m.config.allow_spmd_sharding_propagation_to_output, [true, false]);
    assert_eq!(m.config.frontend_attributes.get("j").map(|v| &**v), Some("{\"a\": 1}"));
}

#[test]
fn a_module_without_a_header_is_named_after_its_entry() {
    assert_eq!(&*module("ENTRY %main {\n  ROOT p = f32[] parameter(0)\n}").name, "module_main");
    let m = module("first {\n  p = f32[] parameter(0)\n}\nlast {\n  p = f32[] parameter(0)\n}");
    assert_eq!(m[m.entry().unwrap()].name(), "last");
}

#[test]
fn a_single_instruction_makes_its_operands_parameters() {
    let m = module("%r = f32[4]{0} add(f32[4]{0} %x, f32[4]{0} %y)");
    assert_eq!(names(&m), ["x", "y", "r"]);
    assert!(m.is_scheduled);
    let m = module(
        "f32[4] map(f32[4], f32[4]), to_apply={ a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }",
    );
    assert_eq!(names(&m), ["_0", "_1", "_"]);
    let computations: Vec<&str> = m.computations().iter().map(|&c| m[c].name()).collect();
    assert_eq!(computations, ["_", "_.1"], "the entry is named before what stands in it");
}

#[test]
fn both_styles_and_comments() {
    let m = entry(
        "  %a.1 = f32[2,3]{1,0:T(8,128)(2,1)S(5)} parameter(0) // a comment\n  \
         b = f32[2,3]{1,0} add(f32[2,3]{1,0} %a.1, /*index=1*/%a.1)\n  ROOT %t = (f32[2,3], /*index=5*/f32[2,3]) tuple(b, %a.1)",
    );
    assert_eq!(names(&m), ["a.1", "b", "t"]);
    let parameter = &m[m.parameters(m.entry().unwrap())[0]];
    assert_eq!(parameter.shape.to_string(), "f32[2,3]{1,0:T(8,128)(2,1)S(5)}");
    assert_eq!(root(&m).shape.to_string(), "(f32[2,3]{1,0}, f32[2,3]{1,0})");
}

#[test]
fn shapes_of_every_kind() {
    for (written, read) in [
        ("f32[]", "f32[]"),
        ("f32[]{:T(128)}", "f32[]{:T(128)}"),
        ("f32[2, 3]", "f32[2,3]{1,0}"),
        ("f32 [2] {0}", "f32[2]{0}"),
        ("s4[8]{0:E(4)}", "s4[8]{0:E(4)}"),
        ("f32[<=8,?]", "f32[<=8,?]{1,0}"),
        (
            "f32[4,4]{0,1:T(*,2)L(8)#(u8)*(u32)E(32)S(1)SC(0:2,3)M(16)}",
            "f32[4,4]{0,1:T(*,2)L(8)#(u8)*(u32)E(32)S(1)SC(0:2,3)M(16)}",
        ),
        ("f32[4]{0:D(D)}", "f32[4]{0}"),
        ("()", "()"),
        ("(f32[], (s32[], token[]), opaque[])", "(f32[], (s32[], token[]), opaque[])"),
        ("b(f32[4])", "b(f32[4]{0})"),
        ("f32[999999999999,999999999999]", "f32[999999999999,999999999999]{1,0}"),
    ] {
        assert_eq!(root(&entry(&format!("  p = {written} parameter(0)"))).shape.to_string(), read, "{written}");
    }
}

#[test]
fn literals() {
    assert_eq!(f32s("c = f32[] constant(1.5)"), [1.5]);
    assert_eq!(f32s("c = f32[2,2] constant({ {1, 2}, {3 4} })"), [1.0, 2.0, 3.0, 4.0]);
    assert_eq!(f32s("c = f32[2,2] constant(f32[2,2] { {1, 2}, {3, 4} })"), [1.0, 2.0, 3.0, 4.0]);
    assert_eq!(
        f32s("c = f32[5] constant({inf, -inf, 1e-05, .5, 3.})"),
        [f32::INFINITY, f32::NEG_INFINITY, 1e-5, 0.5, 3.0]
    );
    assert_eq!(f32s("c = f32[] constant(-0)")[0].to_bits(), (-0.0f32).to_bits());
    assert_eq!(f32s("c = f32[] constant(nan(0x7))")[0].to_bits(), 0x7f80_0007);
    assert_eq!(f32s("c = f32[] constant(-nan)")[0].to_bits(), 0xffc0_0000);
    assert_eq!(f32s("c = f32[] constant(16777217)"), [16777216.0]);
    assert_eq!(f32s("c = f32[] constant(1.17549435e-38)"), [f32::MIN_POSITIVE]);
    assert_eq!(literal("c = pred[3] constant({true, 0, 1})").bytes(), [1, 0, 1]);
    assert_eq!(literal("c = s4[2]{0:E(4)} constant({-8, 7})").bytes(), [0xf8, 7]);
    assert_eq!(literal("c = u64[] constant(18446744073709551615)").bytes(), [0xff; 8]);
    assert_eq!(literal("c = bf16[] constant(1.5)").bytes(), [0xc0, 0x3f]);
    assert_eq!(literal("c = f8e4m3fn[2] constant({1, -448})").bytes(), [0x38, 0xfe]);
    assert_eq!(literal("c = c64[1] constant({(1, -2)})").bytes(), [0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0]);
    assert!(literal("c = f32[2,0] constant({ {}, {} })").is_empty());
    assert!(literal("c = f32[0,3] constant({})").is_empty());
}

#[test]
fn an_elided_constant_stays_elided() {
    for text in ["c = f32[100,100] constant({...})", "c = (f32[2], s32[]) constant({...})"] {
        assert_eq!(root(&entry(text)).op, Op::Constant(ConstantValue::Elided));
    }
}

#[test]
fn names_are_unique_in_the_whole_module() {
    let m = module(
        "HloModule m\nf {\n  b.5 = f32[] parameter(0)\n  ROOT b = f32[] negate(b.5)\n}\n\
         ENTRY e {\n  b.5 = f32[] parameter(0)\n  ROOT c.007 = f32[] call(b.5), to_apply=f\n}",
    );
    assert_eq!(names(&m), ["b.1", "c.7"]);
    // A computation in place ends before the one around it, and is named first.
    let m = entry(
        "  x = f32[2] parameter(0)\n  i = f32[] constant(0)\n  \
         ROOT r = f32[] reduce(x, i), dimensions={0}, to_apply={ x = f32[] parameter(0) y = f32[] parameter(1) ROOT a = f32[] add(x, y) }",
    );
    assert_eq!(names(&m), ["x.1", "i", "r"]);
}

#[test]
fn operands_in_place() {
    let m = entry("  a = f32[] parameter(0)\n  ROOT r = f32[] add(f32[] multiply(a, a), negate(multiply(a, a)))");
    assert_eq!(names(&m), ["a", "multiply.anon", "multiply.anon.1", "negate.anon", "r"]);
    let m = entry("  t = ((f32[], s32[]), f32[]) parameter(0)\n  ROOT r = f32[] add(t#0#0, t#0#0)");
    assert_eq!(names(&m), ["t", "t_0", "t_0_0", "r"]);
}

#[test]
fn async_operations_and_their_short_forms() {
    let m = entry(
        "  p = f32[4] parameter(0)\n  \
         s = ((f32[4]), f32[8], u32[]) custom-call-start(p), async_execution_thread=\"t\", custom_call_target=\"f\", metadata={op_name=\"n\"}\n  \
         u = ((f32[4]), f32[8], u32[]) custom-call-update(s)\n  ROOT d = f32[8] custom-call-done(u)",
    );
    let ids = m[m.entry().unwrap()].instructions().to_vec();
    let opcodes: Vec<Opcode> = ids.iter().map(|&i| m[i].opcode()).collect();
    assert_eq!(opcodes, [Opcode::Parameter, Opcode::AsyncStart, Opcode::AsyncUpdate, Opcode::AsyncDone]);
    let Op::AsyncStart(start) = &m[ids[1]].op else { panic!("not a start") };
    assert_eq!(start.execution_thread.as_deref(), Some("t"));
    let wrapped = &m[m.root(start.calls).unwrap()];
    assert_eq!((wrapped.opcode(), wrapped.shape.to_string()), (Opcode::CustomCall, "f32[8]{0}".to_owned()));
    assert_eq!(&*wrapped.common.metadata.as_ref().unwrap().op_name, "n");
    assert_eq!(m[start.calls].name(), "async_wrapped");
}

#[test]
fn replica_groups_in_all_forms() {
    for (written, groups) in [
        ("{{0,1},{2,3}}", vec![vec![0, 1], vec![2, 3]]),
        ("{}", vec![]),
        ("[2,2]<=[4]", vec![vec![0, 1], vec![2, 3]]),
        ("[2,2]<=[2,2]T(1,0)", vec![vec![0, 2], vec![1, 3]]),
        ("mesh['x'=2,'y'=2] {'x'}", vec![vec![0, 2], vec![1, 3]]),
        ("mesh['x'=2,'y'=2], device_ids=(3,2,1,0) {'y'}", vec![vec![3, 2], vec![1, 0]]),
        ("mesh['x'=4] {'x':(1)2}", vec![vec![0, 2], vec![1, 3]]),
    ] {
        let m = entry(&format!(
            "  p = f32[4] parameter(0)\n  ROOT a = f32[4] all-to-all(p), replica_groups={written}, dimensions={{0}}"
        ));
        let Op::AllToAll { collective, .. } = &root(&m).op else { panic!("not an all-to-all") };
        assert_eq!(collective.replica_groups.expand(), Some(groups), "{written}");
        if written.starts_with('[') {
            assert!(matches!(collective.replica_groups, ReplicaGroups::Iota { .. }));
        }
    }
}

#[test]
fn shardings_in_all_forms() {
    for sharding in [
        "{replicated}",
        "{maximal device=3}",
        "{manual}",
        "{unknown}",
        "{unreduced}",
        "{devices=[2,2]0,1,2,3}",
        "{devices=[2,4]<=[8]}",
        "{devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}",
        "{devices=[2,1,2,2]<=[8] last_tile_dims={manual, replicated}}",
        "{replicated shard_as 1}",
        "{devices=[2,1]0,1 shard_like 2 metadata={op_name=\"x\"}}",
        "{devices=[2,1]0,1 metadata={{op_name=\"x\"},{op_name=\"y\"}}}",
        "{mesh['a'=2,'b'=4], [{'a'}, {'b':(1)2, ?}], replicated={'b':(2)2}}",
        "{maximal_mesh[device_id=2]}",
        "{mesh['a'=2], replicated}",
        "{mesh['a'=2], unreduced=max {'a'}}",
    ] {
        let m = entry(&format!("  ROOT p = f32[8,8] parameter(0), sharding={sharding}"));
        assert!(root(&m).common.sharding.is_some(), "{sharding}");
    }
    let m = entry("  ROOT p = (f32[8], f32[8]) parameter(0), sharding={replicated}");
    assert_eq!(root(&m).common.sharding.as_ref().unwrap().leaves().len(), 2, "one for each array");
}

#[test]
fn what_every_instruction_may_have() {
    let m = entry(
        "  a = f32[] parameter(0)\n  b = f32[] negate(a)\n  ROOT r = f32[] exponential(a), \
         result_accuracy={tolerance={atol=1e-3,rtol=0,ulps=4}}, sharding={replicated}, frontend_attributes={z=\"1\",a=\"2\"}, \
         control-predecessors={%b}, statistics={visualizing_index=0,s=1.5}, origin={({\"x\"}, {\"y\" {1,0}})}, \
         metadata={op_type=\"t\", op_name=\"n\\\"q\" source_file='f' source_line=3 profile_type={1}}, backend_config={\"a\":{\"b\":\"}\"}}",
    );
    let r = root(&m);
    assert!(matches!(r.op, Op::Unary { accuracy: ResultAccuracy::Tolerance { ulps: 4, .. }, .. }));
    assert_eq!(r.common.control_predecessors().len(), 1);
    assert_eq!(r.common.frontend_attribute("z"), Some("1"));
    let metadata = r.common.metadata.as_ref().unwrap();
    assert_eq!((&*metadata.op_type, &*metadata.op_name, &*metadata.source_file), ("t", "n\"q", "f"));
    assert_eq!(r.common.backend_config.as_deref(), Some(&b"{\"a\":{\"b\":\"}\"}}"[..]));
    let rare = r.common.rare.as_ref().unwrap();
    assert_eq!(rare.statistics.as_ref().unwrap().values[0].1, 1.5);
    let Some(OriginalValue::Tree(OriginTree::Tuple(leaves))) = &rare.origin else { panic!("no origin") };
    assert_eq!(leaves.len(), 2);
}

#[test]
fn stack_frames() {
    let m = module(
        "HloModule m\n\nFileNames\n1 \"a.py\"\n2 \"b.py\"\n\nFunctionNames\n1 \"f\"\n\nFileLocations\n\
         1 {file_name_id=2 function_name_id=1 line=3 end_line=3 column=1 end_column=9}\n\n\
         StackFrames\n1 {file_location_id=1 parent_frame_id=1}\n2 {file_location_id=1 parent_frame_id=2}\n\n\
         ENTRY e {\n  a = f32[] parameter(0), metadata={stack_frame_id=2}\n  ROOT r = f32[] negate(a), metadata={stack_frame_id=9}\n}",
    );
    assert_eq!(m.stack_frames.file_names.len(), 2);
    assert_eq!(m.stack_frames.frames[1].parent_frame_id, 1, "written plus one");
    assert_eq!(m[m.parameters(m.entry().unwrap())[0]].common.metadata.as_ref().unwrap().stack_frame_id, 2);
    assert_eq!(root(&m).common.metadata.as_ref().unwrap().stack_frame_id, 0, "there is no frame 9");
}

#[test]
fn a_recovery_table_holds_modules() {
    let m = module(
        "HloModule m, origin_recovery_table={\n  {\"a\" {0}} : {\"b\"},\n  \"HloModule r\\nENTRY e {\\n  ROOT p = f32[] parameter(0)\\n}\"\n  {\"c\"} : {\"d\"}\n}\n\
         ENTRY e {\n  ROOT p = f32[] parameter(0)\n}",
    );
    let table = &m.config.origin_recovery_table;
    assert_eq!(table.len(), 2);
    assert_eq!(table[0].recovery.as_ref().map(|r| &*r.name), Some("r"));
    assert!(table[1].recovery.is_none());
}

#[test]
fn positions_lead_back_to_the_text() {
    use hloom_ir::diagnostic::{Part, Place};
    let text = b"HloModule m\nENTRY e (p: f32[]) -> f32[] {\n  p = f32[] parameter(0)\n  ROOT n = f32[] negate(p)\n}\n";
    let result = read(text);
    let m = result.module.unwrap();
    let entry = m.entry().unwrap();
    let at = |place: Place| {
        let span = result.positions.resolve(text, &place).unwrap();
        std::str::from_utf8(&text[span.start as usize..span.end as usize]).unwrap()
    };
    let root = m.root(entry).unwrap();
    assert_eq!(at(Place::Header), "HloModule m");
    assert_eq!(at(Place::Computation(entry)), "ENTRY e (p: f32[]) -> f32[]");
    assert_eq!(at(Place::Instruction(root, Part::Whole)), "ROOT n = f32[] negate(p)");
    assert_eq!(at(Place::Instruction(root, Part::Opcode)), "negate");
    assert_eq!(at(Place::Instruction(root, Part::Operand(0))), "p");
}
