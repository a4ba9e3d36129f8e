//! What differs in two instructions that are taken for one.

use super::fingerprint;
use super::matching::Side;
use super::{Aspect, AspectKind};
use crate::values::unflatten;
use hloom_formats::hlo_text::print_sharding;
use hloom_ir::entity::InstructionId;
use hloom_ir::instruction::Instruction;
use hloom_ir::literal::{ArrayLiteral, Literal};
use hloom_ir::op::{ConstantValue, Op};
use hloom_ir::shape::{ArrayShape, Shape};

/// What two instructions by themselves have different: everything but their operands and what they call.
pub(super) struct OwnDifferences {
    /// What differs.
    pub(super) aspects: Vec<Aspect>,
    /// Whether one of them is a constant whose value the dump leaves out, so that it could not be compared.
    pub(super) unknown_constant: bool,
}

/// Compares two instructions by themselves. `inherited` says that a parameter has the shape that its caller gives it in
/// both modules: a difference there is the caller's.
pub(super) fn own(a: &Side<'_>, x: InstructionId, b: &Side<'_>, y: InstructionId, inherited: bool) -> OwnDifferences {
    let (p, q) = (&a.module[x], &b.module[y]);
    let mut aspects = Vec::new();
    let mut add = |kind, detail: String| aspects.push(Aspect { kind, detail });
    let mut unknown_constant = false;
    if p.opcode() != q.opcode() {
        add(AspectKind::Opcode, format!("{} → {}", p.opcode().name(), q.opcode().name()));
    } else if let (Op::Constant(c), Op::Constant(d)) = (&p.op, &q.op) {
        match (c, d) {
            (ConstantValue::Literal(c), ConstantValue::Literal(d)) => {
                if let Some(detail) = literals(c, d) {
                    add(AspectKind::Constant, detail);
                }
            }
            _ => unknown_constant = true,
        }
    } else if fingerprint::canonical(&p.op) != fingerprint::canonical(&q.op) {
        let (kind, detail) = attributes(&p.op, &q.op);
        add(kind, detail);
    }
    let (s, t) = (fingerprint::shape(&p.shape), fingerprint::shape(&q.shape));
    if s != t && !inherited && !follows_operands(a, p, b, q) {
        match s.equal_ignoring_layout(&t) {
            true => {
                let (s, t) = first_layouts(&s, &t);
                add(AspectKind::Layout, format!("{s} → {t}"));
            }
            false => add(AspectKind::Shape, format!("{} → {}", s.without_layout(), t.without_layout())),
        }
    }
    if fingerprint::sharding(p) != fingerprint::sharding(q) {
        let text = |i: &Instruction| i.common.sharding.as_ref().map_or_else(|| "none".into(), |s| print_sharding(s));
        add(AspectKind::Sharding, format!("{} → {}", text(p), text(q)));
    }
    if fingerprint::backend_config(p) != fingerprint::backend_config(q) {
        add(AspectKind::BackendConfig, config_difference(p, q));
    }
    let (f, g) = (fingerprint::frontend_attributes(p), fingerprint::frontend_attributes(q));
    if f != g {
        let keys = f.iter().filter(|e| !g.contains(e)).chain(g.iter().filter(|e| !f.contains(e))).map(|e| e.0);
        let mut keys: Vec<&str> = keys.collect();
        keys.sort_unstable();
        keys.dedup();
        add(AspectKind::FrontendAttributes, keys.join(", "));
    }
    OwnDifferences { aspects, unknown_constant }
}

/// Whether both shapes are nothing but those of the operands, as for tuples and their elements.
fn follows_operands(a: &Side<'_>, p: &Instruction, b: &Side<'_>, q: &Instruction) -> bool {
    let follows = |s: &Side<'_>, i: &Instruction| match i.op {
        Op::Tuple => {
            let elements = i.shape.as_tuple().unwrap_or(&[]);
            elements.len() == i.operands().len()
                && elements.iter().zip(i.operands()).all(|(e, &o)| same_shape(e, &s.module[o].shape))
        }
        Op::GetTupleElement { index } => {
            let whole = i.operands().first().map(|&o| &s.module[o].shape);
            whole.and_then(|w| w.at(&[index])).is_some_and(|e| same_shape(e, &i.shape))
        }
        Op::While { .. } | Op::OptBarrier | Op::AddDependency | Op::Domain(_) | Op::AsyncUpdate { .. } => {
            i.operands().first().is_some_and(|&o| same_shape(&s.module[o].shape, &i.shape))
        }
        _ => false,
    };
    p.opcode() == q.opcode() && (follows(a, p) && follows(b, q) || leaves_follow(a, p, b, q))
}

/// Whether the leaves in which the shapes of two starts or sends differ are those of operands, handed on in the tuple.
fn leaves_follow(a: &Side<'_>, p: &Instruction, b: &Side<'_>, q: &Instruction) -> bool {
    let (xs, ys) = (p.shape.leaves(), q.shape.leaves());
    let hands_on = p.shape.is_tuple() && !matches!(p.op, Op::Parameter { .. } | Op::Constant(_) | Op::Fusion(_));
    let is_operands = |s: &Side<'_>, i: &Instruction, leaf: &Shape| {
        let mut leaves = i.operands().iter().flat_map(|&o| s.module[o].shape.leaves());
        leaves.any(|(_, shape)| same_shape(shape, leaf))
    };
    hands_on
        && xs.len() == ys.len()
        && xs.iter().zip(&ys).all(|((_, x), (_, y))| same_shape(x, y) || is_operands(a, p, x) && is_operands(b, q, y))
}

/// Whether two shapes are the same, a layout left out being the default one.
pub(super) fn same_shape(a: &Shape, b: &Shape) -> bool {
    a == b || fingerprint::shape(a) == fingerprint::shape(b)
}

/// The arrays that differ first.
fn first_layouts(a: &Shape, b: &Shape) -> (String, String) {
    let leaves = a.leaves().into_iter().zip(b.leaves()).find(|((_, x), (_, y))| x != y);
    leaves.map_or_else(|| (a.to_string(), b.to_string()), |((_, x), (_, y))| (x.to_string(), y.to_string()))
}

/// Which attributes of two operations of one opcode differ, in a word or two.
fn attributes(p: &Op, q: &Op) -> (AspectKind, String) {
    if let (Some(c), Some(d)) = (p.collective(), q.collective()) {
        let groups = |c: &hloom_ir::op::Collective| match c.replica_groups.expand() {
            Some(g) if g.is_empty() => "all devices together".to_owned(),
            Some(g) => format!("{} groups of {}", g.len(), g.iter().map(Vec::len).max().unwrap_or(0)),
            None => "groups that fit no devices".to_owned(),
        };
        if c.replica_groups.expand() != d.replica_groups.expand() {
            let (c, d) = (groups(c), groups(d));
            let detail = if c == d { format!("other replica groups, {c}") } else { format!("{c} → {d}") };
            return (AspectKind::Collective, detail);
        }
        return (AspectKind::Collective, String::new());
    }
    match (p, q) {
        (Op::CollectivePermute(_) | Op::CollectivePermuteStart(_), _) => {
            (AspectKind::Collective, "source_target_pairs".into())
        }
        (Op::Fusion(f), Op::Fusion(g)) if f.kind != g.kind => (AspectKind::Fusion, format!("{} → {}", f.kind, g.kind)),
        (Op::CustomCall(f), Op::CustomCall(g)) if f.target != g.target => {
            (AspectKind::Attributes, format!("{} → {}", f.target, g.target))
        }
        (Op::GetTupleElement { index: i }, Op::GetTupleElement { index: j }) => {
            (AspectKind::Attributes, format!("element {i} → {j}"))
        }
        (Op::Parameter { number: i, .. }, Op::Parameter { number: j, .. }) if i != j => {
            (AspectKind::Attributes, format!("parameter {i} → {j}"))
        }
        _ => (AspectKind::Attributes, String::new()),
    }
}

/// How two constants differ; `None` if they do not.
fn literals(a: &Literal, b: &Literal) -> Option<String> {
    if a == b {
        return None;
    }
    let (Literal::Array(x), Literal::Array(y)) = (a, b) else { return Some("of a tuple".into()) };
    if x.bytes() == y.bytes() && x.dynamic_sizes == y.dynamic_sizes {
        // The rest of it is the shape, which is compared by itself.
        return None;
    }
    if x.len() != y.len() || x.element_type() != y.element_type() {
        return Some(format!("{} → {}", x.shape(), y.shape()));
    }
    let mut differing = (0..x.len()).filter(|&n| x.element(n) != y.element(n));
    let first = differing.next()?;
    let count = 1 + differing.count();
    let change = format!("{} → {}", element(x, first), element(y, first));
    Some(match x.len() {
        1 => change,
        all => format!("{count} of {all} elements, first {change} at {:?}", unflatten(first, x.shape().dims())),
    })
}

fn element(array: &ArrayLiteral, n: usize) -> String {
    let shape = ArrayShape::new(array.element_type(), []);
    let one = ArrayLiteral::new(std::sync::Arc::new(shape), array.element(n));
    one.map_or_else(|_| "?".into(), |one| hloom_formats::hlo_text::print_array(&one))
}

/// The keys of two JSON configurations that differ, or nothing where they are not JSON.
fn config_difference(p: &Instruction, q: &Instruction) -> String {
    let parse = |i: &Instruction| -> Option<serde_json::Map<String, serde_json::Value>> {
        match serde_json::from_slice(i.common.backend_config.as_deref()?).ok()? {
            serde_json::Value::Object(map) => Some(map),
            _ => None,
        }
    };
    match (parse(p), parse(q)) {
        (Some(f), Some(g)) => {
            let changed = f.keys().chain(g.keys()).filter(|k| f.get(*k) != g.get(*k));
            let mut keys: Vec<&str> = changed.map(String::as_str).collect();
            keys.sort_unstable();
            keys.dedup();
            keys.join(", ")
        }
        (None, None) => String::new(),
        (Some(_), None) => "only in the first".into(),
        (None, Some(_)) => "only in the second".into(),
    }
}
