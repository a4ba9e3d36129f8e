//! Fields that the IR has no place for: kept as encoded, and written back.
//!
//! That is every field of a module, computation, instruction or metadata that is not among those listed here, be it
//! one that nobody knows yet or one that XLA knows and the IR does not model (profile information, device
//! assignments, prefetches). What an instruction has depends on its opcode: a field that belongs to another opcode is
//! kept like an unknown one.

use super::wire::Field;
use hloom_ir::op::UnaryOp;
use hloom_ir::opcode::Opcode;

/// A set of field numbers. Those from 128 on, of which the IR models none, are not told apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct FieldSet(u128);

impl FieldSet {
    pub(super) const EMPTY: FieldSet = FieldSet(0);

    pub(super) const fn of(numbers: &[u32]) -> FieldSet {
        let mut set = 0;
        let mut i = 0;
        while i < numbers.len() {
            set |= 1 << numbers[i];
            i += 1;
        }
        FieldSet(set)
    }
    pub(super) const fn and(self, other: FieldSet) -> FieldSet {
        FieldSet(self.0 | other.0)
    }
    pub(super) const fn without(self, other: FieldSet) -> FieldSet {
        FieldSet(self.0 & !other.0)
    }
    pub(super) const fn contains(self, number: u32) -> bool {
        number < 128 && self.0 >> number & 1 == 1
    }
    pub(super) fn insert(&mut self, number: u32) {
        // No field has the number 0: its bit stands for all those beyond the set.
        self.0 |= 1 << if number < 128 { number } else { 0 };
    }
    pub(super) const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// Fields of a module with a place in the IR. Names, ids and shapes of the entry are among them: they are derived from
/// the entry when the module is written.
pub(super) const MODULE: FieldSet = FieldSet::of(&[1, 2, 3, 4, 6, 7, 8, 17, 18, 19, 20, 22]);
/// Fields of a computation with a place in the IR, or derived from its instructions.
pub(super) const COMPUTATION: FieldSet = FieldSet::of(&[1, 2, 4, 5, 6, 7, 8]);
/// Fields of metadata with a place in the IR.
pub(super) const METADATA: FieldSet = FieldSet::of(&[1, 2, 3, 4, 5, 12, 15, 16, 17, 18, 19, 20]);
/// Fields of an instruction that are read and written one by one.
pub(super) const INSTRUCTION_FRAME: FieldSet = FieldSet::of(&[1, 2, 3, 7, 8, 35, 36, 37, 38]);

/// Fields of an instruction of that opcode with a place in the IR.
pub(super) const fn instruction(opcode: Opcode) -> FieldSet {
    /// name, opcode, shape, metadata, ids, sharding, backend_config, frontend_attributes, statistics_viz,
    /// original_value and backend_config_payload.
    const COMMON: FieldSet = FieldSet::of(&[1, 2, 3, 7, 35, 36, 37, 38, 40, 43, 68, 82, 88, 99]);
    /// channel_id, all_reduce_id, constrain_layout, use_global_device_ids and the four forms of device lists.
    const COLLECTIVE: FieldSet = FieldSet::of(&[26, 45, 49, 56, 71, 87, 92, 93]);
    if UnaryOp::from_opcode(opcode).is_some() {
        return COMMON.and(FieldSet::of(&[91]));
    }
    let own = match opcode {
        Opcode::Parameter => FieldSet::of(&[9, 61]),
        Opcode::Constant => FieldSet::of(&[8]),
        Opcode::Iota
        | Opcode::Broadcast
        | Opcode::Transpose
        | Opcode::Reverse
        | Opcode::Concatenate
        | Opcode::GetDimensionSize
        | Opcode::SetDimensionSize
        | Opcode::Reshape
        | Opcode::Map
        | Opcode::Reduce => FieldSet::of(&[14]),
        Opcode::Compare => FieldSet::of(&[63, 72]),
        Opcode::ReducePrecision => FieldSet::of(&[18, 19]),
        Opcode::Slice => FieldSet::of(&[17]),
        Opcode::DynamicSlice => FieldSet::of(&[20]),
        Opcode::Pad => FieldSet::of(&[21]),
        Opcode::Gather => FieldSet::of(&[33, 34, 67]),
        Opcode::Scatter => FieldSet::of(&[48, 67, 69]),
        Opcode::Dot | Opcode::ScaledDot => FieldSet::of(&[30, 51]),
        Opcode::RaggedDot => FieldSet::of(&[51, 90]),
        Opcode::Convolution => FieldSet::of(&[15, 16, 50, 51, 58, 97, 98]),
        Opcode::ReduceWindow | Opcode::SelectAndScatter => FieldSet::of(&[15]),
        Opcode::Scan => FieldSet::of(&[14, 94, 95, 96]),
        Opcode::Sort => FieldSet::of(&[14, 60]),
        Opcode::TopK => FieldSet::of(&[60, 81, 85]),
        Opcode::Fft => FieldSet::of(&[31, 32]),
        Opcode::Cholesky => FieldSet::of(&[62]),
        Opcode::TriangularSolve => FieldSet::of(&[59]),
        Opcode::BatchNormTraining | Opcode::BatchNormInference | Opcode::BatchNormGrad => FieldSet::of(&[24, 25]),
        Opcode::Rng => FieldSet::of(&[23]),
        Opcode::RngBitGenerator => FieldSet::of(&[70]),
        Opcode::RngGetAndUpdateState => FieldSet::of(&[66]),
        Opcode::GetTupleElement => FieldSet::of(&[13]),
        Opcode::Domain => FieldSet::of(&[54, 55]),
        Opcode::Call => FieldSet::of(&[89]),
        Opcode::Fusion => FieldSet::of(&[11, 74]),
        Opcode::CustomCall => FieldSet::of(&[8, 15, 16, 28, 50, 51, 56, 57, 58, 65, 74, 75, 76, 77]),
        Opcode::AsyncStart | Opcode::AsyncUpdate => FieldSet::of(&[74, 79]),
        Opcode::AsyncDone => FieldSet::of(&[79]),
        Opcode::AllReduce | Opcode::AllReduceStart => COLLECTIVE,
        Opcode::AllGather
        | Opcode::AllGatherStart
        | Opcode::ReduceScatter
        | Opcode::AllToAll
        | Opcode::RaggedAllToAll => COLLECTIVE.and(FieldSet::of(&[14])),
        Opcode::CollectiveBroadcast | Opcode::CollectiveReduce => COLLECTIVE.and(FieldSet::of(&[100])),
        Opcode::CollectivePermute | Opcode::CollectivePermuteStart => FieldSet::of(&[20, 26, 52]),
        Opcode::CopyStart => FieldSet::of(&[73, 80]),
        Opcode::Send | Opcode::SendDone | Opcode::Recv | Opcode::RecvDone => FieldSet::of(&[26, 47]),
        Opcode::Infeed => FieldSet::of(&[27]),
        Opcode::Outfeed => FieldSet::of(&[22, 29]),
        _ => FieldSet::EMPTY,
    };
    COMMON.and(own)
}

/// Collects fields that are not among `modelled`.
pub(super) fn keep(field: &Field<'_>, modelled: FieldSet, unknown: &mut Vec<u8>) {
    if !modelled.contains(field.number) {
        unknown.extend_from_slice(field.raw);
    }
}
