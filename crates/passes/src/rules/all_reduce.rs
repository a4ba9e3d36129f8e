//! Reductions among devices made fewer and smaller: sums of them are reduced once, and what is sliced is scattered.

use super::functions::reducer;
use super::{array, beside, dims, operand};
use crate::pass::{Context, Pass};
use crate::rewrite::{Rule, rewrite};
use hloom_ir::attributes::CollectiveGroupMode;
use hloom_ir::device_list::ReplicaGroups;
use hloom_ir::entity::InstructionId;
use hloom_ir::literal::ArrayLiteral;
use hloom_ir::module::Module;
use hloom_ir::op::{AllReduce, BinaryOp, Collective, ConstantValue, Op, ReduceScatter, UnaryOp};
use hloom_ir::opcode::Opcode;
use hloom_ir::{ElementType, Shape};

/// The pass that reduces sums once.
pub static REASSOCIATE: Pass = Pass {
    name: "reassociate-all-reduces",
    statement: "makes one all-reduce of the sum of several, where nothing else needs them",
    keeps_schedule: false,
    run: |module: &mut Module, _: &Context<'_>| Ok(rewrite(module, &[REASSOCIATE_RULES])),
};

/// The pass that scatters what is only sliced.
pub static SCATTER: Pass = Pass {
    name: "scatter-all-reduces",
    statement: "makes a reduce-scatter of an all-reduce of which each device takes its own slice only",
    keeps_schedule: false,
    run: |module: &mut Module, _: &Context<'_>| Ok(rewrite(module, &[SCATTER_RULES])),
};

static REASSOCIATE_RULES: &[Rule] = &[Rule {
    name: "sum-of-all-reduces",
    statement: "all-reduce(x) ± all-reduce(y) → all-reduce(x ± y), through negations, reshapes and transposes",
    opcodes: &[Opcode::Add, Opcode::Subtract],
    apply: sum_of_all_reduces,
}];

static SCATTER_RULES: &[Rule] = &[Rule {
    name: "sliced-all-reduce",
    statement: "dynamic-slice(all-reduce(x), the device's own part) → reduce-scatter(x)",
    opcodes: &[Opcode::DynamicSlice],
    apply: sliced_all_reduce,
}];

/// So many linear operations are looked through.
const MAX_CHAIN: usize = 8;
/// So many devices are asked for their slices.
const MAX_DEVICES: i64 = 1 << 12;
/// So many instructions make up the place of a slice.
const MAX_STEPS: usize = 64;

/// The sum over devices that a value is, through linear operations that only it needs; those from the outside in.
fn reduced(module: &Module, mut i: InstructionId) -> Option<(InstructionId, Vec<InstructionId>)> {
    let mut chain = Vec::new();
    loop {
        (module[i].users().len() == 1 && module.root(module[i].parent()) != Some(i)).then_some(())?;
        match &module[i].op {
            Op::AllReduce(reduce) if module[i].operands().len() == 1 && !module[i].shape.is_tuple() => {
                let sums = reducer(module, reduce.to_apply) == Some(BinaryOp::Add);
                let is_number = array(module, i).is_some_and(|a| a.element_type != ElementType::Pred);
                return (sums && is_number).then_some((i, chain));
            }
            Op::Unary { op: UnaryOp::Negate, .. } | Op::Reshape { .. } | Op::Transpose { .. } => chain.push(i),
            _ => return None,
        }
        (chain.len() <= MAX_CHAIN).then_some(())?;
        i = operand(module, i, 0)?;
    }
}

/// Whether two collectives are among the same devices in the same way.
fn alike(x: &AllReduce, y: &AllReduce) -> bool {
    let without = |c: &Collective| Collective { channel_id: None, ..c.clone() };
    without(&x.collective) == without(&y.collective)
        && x.collective.channel_id.is_some() == y.collective.channel_id.is_some()
}

fn sum_of_all_reduces(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let &[x, y] = module[i].operands() else { return None };
    let Op::Binary(op) = module[i].op else { return None };
    let ((first, left), (second, right)) = (reduced(module, x)?, reduced(module, y)?);
    let (Op::AllReduce(a), Op::AllReduce(b)) = (&module[first].op, &module[second].op) else { return None };
    alike(a, b).then_some(())?;
    let reduce = a.clone();
    let mut parts = Vec::new();
    for (reduction, chain) in [(first, left), (second, right)] {
        let mut value = operand(module, reduction, 0)?;
        for &link in chain.iter().rev() {
            let (op, shape) = (module[link].op.clone(), module[link].shape.clone());
            value = beside(module, i).push_shaped(op, &[value], shape).ok()?;
        }
        parts.push(value);
    }
    let shape = module[i].shape.clone();
    let sum = beside(module, i).push_shaped(Op::Binary(op), &parts, shape.clone()).ok()?;
    beside(module, i).push_shaped(Op::AllReduce(reduce), &[sum], shape).ok()
}

/// Element `n` of a literal of integers.
fn integer(literal: &ArrayLiteral, n: usize) -> Option<i64> {
    (n < literal.len()).then_some(())?;
    let bytes = literal.element(n);
    match literal.element_type() {
        ElementType::S32 => Some(i32::from_le_bytes(bytes.try_into().ok()?).into()),
        ElementType::U32 => Some(u32::from_le_bytes(bytes.try_into().ok()?).into()),
        ElementType::S64 => Some(i64::from_le_bytes(bytes.try_into().ok()?)),
        _ => None,
    }
}

/// What a scalar is on a partition, where it depends on the partition's number only.
fn on_partition(module: &Module, i: InstructionId, partition: i64, steps: &mut usize) -> Option<i64> {
    *steps = steps.checked_sub(1)?;
    let mut of = |n: usize| on_partition(module, operand(module, i, n)?, partition, steps);
    match &module[i].op {
        Op::PartitionId => Some(partition),
        Op::Constant(ConstantValue::Literal(literal)) => integer(literal.as_array()?, 0),
        Op::Convert | Op::Reshape { .. } | Op::Bitcast | Op::Copy => of(0),
        Op::Binary(op) => {
            let (x, y) = (of(0)?, of(1)?);
            match op {
                BinaryOp::Add => x.checked_add(y),
                BinaryOp::Subtract => x.checked_sub(y),
                BinaryOp::Multiply => x.checked_mul(y),
                BinaryOp::Divide if x >= 0 && y > 0 => Some(x / y),
                BinaryOp::Remainder if x >= 0 && y > 0 => Some(x % y),
                _ => None,
            }
        }
        Op::DynamicSlice { sizes } if sizes[..] == [1] => {
            let Op::Constant(ConstantValue::Literal(table)) = &module[operand(module, i, 0)?].op else { return None };
            let table = table.as_array()?;
            let last = (table.len() as i64).checked_sub(1)?;
            integer(table, usize::try_from(of(1)?.clamp(0, last)).ok()?)
        }
        _ => None,
    }
    // Smaller numbers than these are the same in every type that counts devices.
    .filter(|n| i32::try_from(*n).is_ok())
}

fn sliced_all_reduce(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let Op::DynamicSlice { sizes } = &module[i].op else { return None };
    let whole = operand(module, i, 0)?;
    let Op::AllReduce(reduce) = &module[whole].op else { return None };
    let alone = module[whole].users().len() == 1 && module[whole].operands().len() == 1;
    let partitions = module.config.num_partitions;
    let mode = module[whole].op.group_mode()?;
    // Ids are partitions' where these are all there is.
    let by_partition = mode == CollectiveGroupMode::CrossPartition
        || mode == CollectiveGroupMode::FlattenedId && module.config.replica_count <= 1;
    (alone && by_partition && (2..=MAX_DEVICES).contains(&partitions)).then_some(())?;
    let full = dims(module, whole)?.to_vec();
    let mut cut = (0..full.len()).filter(|&d| sizes[d] != full[d]);
    let (dimension, None) = (cut.next()?, cut.next()) else { return None };
    let size = sizes[dimension];
    (size > 0 && full[dimension] % size == 0).then_some(())?;
    let start = operand(module, i, dimension + 1)?;
    let mut groups = reduce.collective.replica_groups.expand()?;
    if groups.is_empty() {
        groups = vec![(0..partitions).collect()];
    }
    let mut named = vec![false; partitions as usize];
    for group in &mut groups {
        (group.len() as i64 * size == full[dimension]).then_some(())?;
        let mut owners = vec![None; group.len()];
        for &member in group.iter() {
            let known = named.get_mut(usize::try_from(member).ok()?)?;
            (!std::mem::replace(known, true)).then_some(())?;
            let at = on_partition(module, start, member, &mut { MAX_STEPS })?;
            (at >= 0 && at % size == 0).then_some(())?;
            let owner = owners.get_mut(usize::try_from(at / size).ok()?)?;
            owner.is_none().then_some(())?;
            *owner = Some(member);
        }
        *group = owners.into_iter().collect::<Option<_>>()?;
    }
    named.iter().all(|&n| n).then_some(())?;
    let collective = Collective { replica_groups: ReplicaGroups::Explicit(groups), ..reduce.collective.clone() };
    let op = ReduceScatter { collective, dimension: dimension as i64, to_apply: reduce.to_apply };
    let (x, shape): (InstructionId, Shape) = (operand(module, whole, 0)?, module[i].shape.clone());
    beside(module, i).push_shaped(Op::ReduceScatter(Box::new(op)), &[x], shape).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hloom_formats::hlo_text;

    /// The collectives of the entry that its result needs, after rules have been applied.
    fn collectives(rules: &'static [Rule], body: &str) -> Vec<String> {
        let text = format!(
            "HloModule m, num_partitions=2
            add {{
              a = f32[] parameter(0)
              b = f32[] parameter(1)
              ROOT c = f32[] add(a, b)
            }}
            ENTRY e {{ {body} }}"
        );
        let mut module = hlo_text::read(text.as_bytes()).module.expect("it can be read");
        rewrite(&mut module, &[rules]);
        let entry = module.entry().expect("it has an entry");
        let is_needed = |i: InstructionId| module.root(entry) == Some(i) || !module[i].users().is_empty();
        let is_meant = |i: InstructionId| module[i].op.collective().is_some() && is_needed(i);
        let all = module[entry].instructions().iter().filter(|&&i| is_meant(i));
        let groups = |i: InstructionId| module[i].op.collective().and_then(|c| c.replica_groups.expand());
        all.map(|&i| format!("{} {} {:?}", module[i].opcode().name(), module[i].shape.without_layout(), groups(i)))
            .collect()
    }

    const REDUCE: &str = "replica_groups={{0,1}}, use_global_device_ids=true, to_apply=add";

    #[test]
    fn sums_over_the_same_devices_are_made_once() {
        let body = format!(
            "x = f32[2] parameter(0)
            y = f32[2] parameter(1)
            row = f32[1,2] reshape(x)
            rows = f32[1,2] all-reduce(row), channel_id=1, {REDUCE}
            flat = f32[2] reshape(rows)
            less = f32[2] negate(flat)
            ys = f32[2] all-reduce(y), channel_id=2, {REDUCE}
            ROOT r = f32[2] add(less, ys)"
        );
        assert_eq!(collectives(REASSOCIATE_RULES, &body), ["all-reduce f32[2] Some([[0, 1]])"]);
        // One that is needed by itself stays, and so does the other.
        let body = format!(
            "x = f32[2] parameter(0)
            y = f32[2] parameter(1)
            xs = f32[2] all-reduce(x), channel_id=1, {REDUCE}
            ys = f32[2] all-reduce(y), channel_id=2, {REDUCE}
            sum = f32[2] add(xs, ys)
            ROOT r = f32[2] multiply(sum, xs)"
        );
        assert_eq!(collectives(REASSOCIATE_RULES, &body).len(), 2);
    }

    #[test]
    fn what_each_device_takes_its_own_part_of_is_scattered() {
        let program = |start: &str| {
            format!(
                "x = f32[4] parameter(0)
                device = u32[] partition-id()
                {start}
                xs = f32[4] all-reduce(x), channel_id=1, {REDUCE}
                ROOT mine = f32[2] dynamic-slice(xs, start), dynamic_slice_sizes={{2}}"
            )
        };
        let counted = "number = s32[] convert(device)
            two = s32[] constant(2)
            start = s32[] multiply(number, two)";
        assert_eq!(collectives(SCATTER_RULES, &program(counted)), ["reduce-scatter f32[2] Some([[0, 1]])"]);
        // The first device takes the second part.
        let listed = "table = s32[2] constant({2, 0})
            entry = s32[1] dynamic-slice(table, device), dynamic_slice_sizes={1}
            start = s32[] reshape(entry)";
        assert_eq!(collectives(SCATTER_RULES, &program(listed)), ["reduce-scatter f32[2] Some([[1, 0]])"]);
        // All devices take the same part.
        let same = "start = s32[] constant(2)";
        assert_eq!(collectives(SCATTER_RULES, &program(same)), ["all-reduce f32[4] Some([[0, 1]])"]);
    }
}
