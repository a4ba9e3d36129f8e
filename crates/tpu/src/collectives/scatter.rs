//! Reduce-scatters as these machines run them: a fusion of an all-reduce and of the slice of it that the device keeps.
//!
//! What is sent is what a reduce-scatter sends: nobody makes the parts of the sum that it does not keep.

use crate::edit::{array_of, flow_computations, remove_dead};
use crate::fusion::build::Body;
use crate::stage::staged;
use crate::tiling::retiled;
use hloom_analysis::devices::{DeviceGrid, group_of};
use hloom_ir::attributes::FusionKind;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::InstructionId;
use hloom_ir::instruction::{Common, Operands};
use hloom_ir::layout::DimVec;
use hloom_ir::literal::Literal;
use hloom_ir::module::{Module, NewInstruction};
use hloom_ir::op::{AllReduce, BinaryOp, Fusion, Op};
use hloom_ir::shape::{ArrayShape, Shape};
use hloom_passes::Pass;

/// The stage.
pub(crate) static STAGE: Pass = Pass {
    name: "all-reduce-scatter",
    statement: "makes a reduce-scatter a fusion of an all-reduce and of the slice that is kept, where the machine runs it so",
    keeps_schedule: false,
    run: |module, context| {
        staged(module, context, |module, context| {
            // The place in the group is looked up by the number of the partition.
            if !context.target.scatters_all_reduces || module.config.replica_count > 1 {
                return Ok(0);
            }
            let all: Vec<InstructionId> =
                flow_computations(module).iter().flat_map(|&c| module[c].instructions()).copied().collect();
            // In large groups words of 32 bits are added up as they are passed on from each device to the next.
            let partitions = usize::try_from(module.config.num_partitions).unwrap_or(1);
            let grid = DeviceGrid { replicas: 1, partitions };
            let is_passed_on = |i: &InstructionId| {
                array_of(module, *i).is_some_and(|a| a.element_type.bits() >= 32)
                    && group_of(&module[*i].op, grid, 0).is_some_and(|g| g.len() >= LARGE_GROUP)
            };
            let chosen: Vec<InstructionId> = all.into_iter().filter(|i| !is_passed_on(i)).collect();
            let changes = chosen.into_iter().filter(|&i| fuse(module, i).is_some()).count();
            // Together: a removal goes through the whole computation.
            remove_dead(module, context.target)?;
            Ok(changes)
        })
    },
};

/// The devices of a group that is large.
const LARGE_GROUP: usize = 8;

/// Puts a fusion in the place of a reduce-scatter, which nothing reads any more then.
fn fuse(module: &mut Module, scatter: InstructionId) -> Option<()> {
    let (Op::ReduceScatter(attributes), &[source]) = (&module[scatter].op, module[scatter].operands()) else {
        return None;
    };
    let (dimension, to_apply) = (attributes.dimension, attributes.to_apply);
    let all_reduce = Op::AllReduce(Box::new(AllReduce { collective: attributes.collective.clone(), to_apply }));
    let (whole, part) = (array_of(module, source)?.clone(), array_of(module, scatter)?.clone());
    let size = *part.dims().get(usize::try_from(dimension).ok()?)?;
    let offsets = offsets(module, scatter, size)?;

    let mut body = Body::new(module, "all-reduce-scatter");
    let operand = body.parameter(module, source);
    let mut push = |module: &mut Module, name: &str, op: Op, shape: ArrayShape, operands: &[InstructionId]| {
        body.push(module, name, op, Shape::from(shape), Operands::from_slice(operands))
    };
    let sum = push(module, "all-reduce", all_reduce, whole.clone(), &[operand]);
    let number = |element_type, dims: &[i64]| retiled(&ArrayShape::new(element_type, dims.iter().copied()));
    let id = push(module, "partition-id", Op::PartitionId, number(ElementType::U32, &[]), &[]);
    let device = push(module, "convert", Op::Convert, number(ElementType::S32, &[]), &[id]);
    let constant = |n: i32| Op::constant(Literal::scalar(n));
    let counted = offsets.iter().zip(0..).all(|(&offset, n)| i64::from(offset) == n * size);
    let offset = if counted {
        let size = push(module, "constant", constant(i32::try_from(size).ok()?), number(ElementType::S32, &[]), &[]);
        push(module, "multiply", Op::Binary(BinaryOp::Multiply), number(ElementType::S32, &[]), &[device, size])
    } else {
        let count = offsets.len() as i64;
        let table = Op::constant(Literal::array([count], &offsets).ok()?);
        let table = push(module, "constant", table, number(ElementType::S32, &[count]), &[]);
        let one = Op::DynamicSlice { sizes: DimVec::from_elem(1, 1) };
        let one = push(module, "dynamic-slice", one, number(ElementType::S32, &[1]), &[table, device]);
        push(module, "bitcast", Op::Bitcast, number(ElementType::S32, &[]), &[one])
    };
    let zero = push(module, "constant", constant(0), number(ElementType::S32, &[]), &[]);
    let mut operands = vec![sum];
    operands.extend((0..whole.rank() as i64).map(|d| if d == dimension { offset } else { zero }));
    let kept = Op::DynamicSlice { sizes: part.dims().into() };
    let kept = push(module, "dynamic-slice", kept, part, &operands);
    module.set_root(kept);

    let home = module[scatter].parent();
    if let Some(root) = module.root(home) {
        module.set_root(root);
    }
    let calls = body.computation;
    let op = Op::Fusion(Box::new(Fusion { kind: FusionKind::Custom, calls, output_operand_aliasing: Vec::new() }));
    let common = Common { metadata: module[scatter].common.metadata.clone(), ..Common::default() };
    let shape = module[scatter].shape.clone();
    let new = NewInstruction { name: "all-reduce-scatter".into(), op, shape, operands: body.operands, common };
    let fusion = module.add_instruction(home, new);
    module.replace_all_uses(scatter, fusion).ok()
}

/// For each partition where the part that it keeps begins.
fn offsets(module: &Module, scatter: InstructionId, size: i64) -> Option<Vec<i32>> {
    let partitions = usize::try_from(module.config.num_partitions).ok()?;
    let grid = DeviceGrid { replicas: 1, partitions };
    let of = |device: usize| {
        let place = group_of(&module[scatter].op, grid, device)?.iter().position(|&d| d == device)?;
        i32::try_from((place as i64).checked_mul(size)?).ok()
    };
    (0..partitions).map(of).collect()
}
