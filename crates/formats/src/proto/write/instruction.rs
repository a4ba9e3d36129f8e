//! One instruction, and the metadata that it and its sharding have.

use super::order::Places;
use super::{cannot_encode, literal, op, shape, sharding};
use crate::proto::messages::*;
use crate::proto::wire::{write_bytes, write_integer, write_integers, write_message, write_str};
use hloom_ir::diagnostic::{Diagnostic, Part};
use hloom_ir::entity::{ComputationId, InstructionId, SideTable};
use hloom_ir::instruction::{Common, FrontendAttributes as Attributes, OriginTree, OriginalArray, OriginalValue};
use hloom_ir::metadata::{Metadata, RareMetadata};
use hloom_ir::module::Module;
use hloom_ir::op::{ConstantValue, Op};

/// The ids that things are given in the proto.
pub(super) struct Ids {
    pub(super) computations: SideTable<ComputationId, i64>,
    pub(super) places: Places,
}

impl Ids {
    /// The computation's id in the upper half, the place in the computation in the lower one.
    pub(super) fn instruction(&self, module: &Module, instruction: InstructionId) -> i64 {
        let parent = self.computations[module[instruction].parent()];
        parent << 32 | i64::from(self.places.of(instruction))
    }
}

/// Appends the fields of an `HloInstructionProto`.
pub(super) fn instruction(
    out: &mut Vec<u8>,
    module: &Module,
    ids: &Ids,
    id: InstructionId,
    errors: &mut Vec<Diagnostic>,
) {
    let instruction = &module[id];
    if !shape::is_readable(&instruction.shape) {
        errors.push(cannot_encode(id, Part::Shape, format!("tuples nest too deeply in {}", instruction.name())));
        return;
    }
    write_str(out, 1, instruction.name());
    write_str(out, 2, instruction.opcode().name());
    write_message(out, 3, &shape::shape(&instruction.shape));
    if let Some(m) = &instruction.common.metadata {
        write_bytes(out, 7, &metadata(m));
    }
    match &instruction.op {
        Op::Constant(ConstantValue::Literal(value)) => write_message(out, 8, &literal::literal(value)),
        Op::CustomCall(c) => {
            if let Some(value) = &c.literal {
                write_message(out, 8, &literal::literal(value));
            }
        }
        _ => {}
    }
    let mut attributes = InstructionAttributes::default();
    op::attributes(&mut attributes, module, id);
    common(&mut attributes, &instruction.common);
    prost::Message::encode_raw(&attributes, out);
    write_integer(out, 35, ids.instruction(module, id));
    write_integers(out, 36, instruction.operands().iter().map(|&o| ids.instruction(module, o)));
    let predecessors = instruction.common.control_predecessors();
    write_integers(out, 37, predecessors.iter().map(|&p| ids.instruction(module, p)));
    write_integers(out, 38, instruction.op.called_computations().iter().map(|&c| ids.computations[c]));
    if let Some(rare) = &instruction.common.rare {
        out.extend_from_slice(&rare.unknown_fields);
    }
}

fn common(p: &mut InstructionAttributes, common: &Common) {
    p.sharding = common.sharding.as_deref().map(|s| Box::new(sharding::sharding(s)));
    p.backend_config = common.backend_config.as_deref().unwrap_or_default().to_vec();
    let Some(rare) = &common.rare else { return };
    if !rare.frontend_attributes.is_empty() {
        p.frontend_attributes = Some(Box::new(frontend_attributes(&rare.frontend_attributes)));
    }
    p.statistics_viz = rare.statistics.as_ref().map(|s| {
        let statistic = |(name, value): &(Box<str>, f64)| Statistic { stat_name: name.to_string(), stat_val: *value };
        Box::new(StatisticsViz {
            stat_index_to_visualize: s.visualizing_index,
            statistics: s.values.iter().map(statistic).collect(),
        })
    });
    p.original_value = rare.origin.as_ref().map(|o| Box::new(original_value(o)));
}

pub(super) fn frontend_attributes(attributes: &Attributes) -> FrontendAttributes {
    FrontendAttributes { map: attributes.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect() }
}

pub(super) fn original_array(array: &OriginalArray) -> OriginalArrayProto {
    OriginalArrayProto { instruction_name: array.instruction_name.to_string(), shape_index: array.index.to_vec() }
}

fn original_value(origin: &OriginalValue) -> OriginalValueProto {
    fn walk(tree: &OriginTree, path: &mut Vec<i64>, elements: &mut Vec<OriginalValueElementProto>) {
        match tree {
            OriginTree::Leaf(array) => elements.push(OriginalValueElementProto {
                shape_index: path.clone(),
                original_array: array.as_ref().map(original_array),
            }),
            OriginTree::Tuple(children) => {
                for (i, child) in children.iter().enumerate() {
                    path.push(i as i64);
                    walk(child, path, elements);
                    path.pop();
                }
            }
        }
    }
    match origin {
        OriginalValue::SyntheticCall => OriginalValueProto { elements: Vec::new(), is_synthetic_call: true },
        OriginalValue::Tree(tree) => {
            let mut elements = Vec::new();
            walk(tree, &mut Vec::new(), &mut elements);
            OriginalValueProto { elements, is_synthetic_call: false }
        }
    }
}

/// An encoded `OpMetadata`.
pub(super) fn metadata(m: &Metadata) -> Vec<u8> {
    let none = RareMetadata::default();
    let rare = m.rare.as_deref().unwrap_or(&none);
    let mut out = Vec::new();
    write_str(&mut out, 1, &m.op_type);
    write_str(&mut out, 2, &m.op_name);
    write_str(&mut out, 3, &m.source_file);
    write_integer(&mut out, 4, m.source_line.into());
    write_integers(&mut out, 5, rare.profile_types.iter().map(|&n| n.into()));
    write_str(&mut out, 12, &rare.deduplicated_name);
    write_integer(&mut out, 15, m.stack_frame_id.into());
    write_str(&mut out, 16, &rare.scheduling_name);
    write_integer(&mut out, 17, m.source_end_line.into());
    write_integer(&mut out, 18, m.source_column.into());
    write_integer(&mut out, 19, m.source_end_column.into());
    if let Some(payload) = &rare.payload {
        write_message(&mut out, 20, &Payload { value: Some(payload.to_vec()), id: None });
    }
    out.extend_from_slice(&rare.unknown_fields);
    out
}
