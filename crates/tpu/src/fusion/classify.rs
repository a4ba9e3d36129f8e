//! What an instruction is to fusion.

use crate::edit::array_of;
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use rustc_hash::FxHashMap;

/// The role that an instruction can take in a fusion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    /// It stands alone, whatever is around it.
    Alone,
    /// Made again wherever it is read, since that costs less than to store it: constants, iotas, broadcasts, and what is
    /// computed of these alone.
    Cheap,
    /// Each element of its result comes from elements of its operands: any place in a fusion.
    Loop,
    /// As [`Role::Loop`], but only as what a fusion results in: reductions and updates in place.
    LoopRoot,
    /// A convolution.
    Convolution,
}

/// How deep chains of cheap instructions may be: what is made again is made again for each reader.
const MAX_CHEAP_DEPTH: u8 = 6;

/// The role of every instruction of a computation, and how deep chains of cheap ones are.
pub(super) struct Roles {
    roles: FxHashMap<InstructionId, (Role, u8)>,
    /// What is made again though it is made of what is stored, and what that is, with its bytes.
    remade: FxHashMap<InstructionId, (InstructionId, i64)>,
}

impl Roles {
    /// `order` has every operand before its users.
    pub(super) fn new(module: &Module, order: &[InstructionId]) -> Roles {
        let mut roles = Roles { roles: FxHashMap::default(), remade: FxHashMap::default() };
        for &i in order {
            let role = roles.classify(module, i);
            roles.roles.insert(i, role);
        }
        roles
    }

    pub(super) fn of(&self, i: InstructionId) -> Role {
        self.roles.get(&i).map_or(Role::Alone, |r| r.0)
    }

    /// Has an instruction made again wherever it is read, of something stored of so many bytes.
    pub(super) fn remake(&mut self, i: InstructionId, stored: (InstructionId, i64)) {
        self.roles.insert(i, (Role::Cheap, 1));
        self.remade.insert(i, stored);
    }

    /// What is stored that it is made of, and the bytes of that, if it is made again though.
    pub(super) fn remade(&self, i: InstructionId) -> Option<(InstructionId, i64)> {
        self.remade.get(&i).copied()
    }

    fn classify(&self, module: &Module, i: InstructionId) -> (Role, u8) {
        let plain = |role| (role, 0);
        // Arithmetic on single numbers is the scalar unit's.
        let is_scalar = |i: InstructionId| array_of(module, i).is_some_and(|a| a.is_scalar());
        let instruction = &module[i];
        let Some(array) = instruction.shape.as_array() else {
            return plain(match instruction.op {
                Op::Reduce { .. } => Role::LoopRoot,
                _ => Role::Alone,
            });
        };
        let is_dynamic = |i: &InstructionId| module[*i].shape.is_dynamic();
        if array.is_dynamic()
            || instruction.operands().iter().any(is_dynamic)
            || array.element_count().is_none_or(|n| n == 0)
        {
            return plain(Role::Alone);
        }
        if !instruction.common.control_predecessors().is_empty() {
            return plain(Role::Alone);
        }
        match &instruction.op {
            Op::Constant(_) if array.is_scalar() => (Role::Cheap, 1),
            Op::Iota { .. } => (Role::Cheap, 1),
            Op::Broadcast { .. } => {
                let depth = self.cheap_depth(instruction.operands()).unwrap_or(0);
                if depth < MAX_CHEAP_DEPTH { (Role::Cheap, depth + 1) } else { plain(Role::Loop) }
            }
            // To widen again what is stored narrow reads less than to read it wide.
            Op::Convert if widens_stored(module, i, self) => (Role::Cheap, 1),
            op if op.is_elementwise() && !(is_scalar(i) && instruction.operands().iter().all(|&o| is_scalar(o))) => {
                match self.cheap_depth(instruction.operands()) {
                    Some(depth) if depth < MAX_CHEAP_DEPTH => (Role::Cheap, depth + 1),
                    _ => plain(Role::Loop),
                }
            }
            Op::Reshape { .. } | Op::Bitcast if !is_scalar(i) => match self.cheap_depth(instruction.operands()) {
                Some(depth) if depth < MAX_CHEAP_DEPTH => (Role::Cheap, depth + 1),
                _ => plain(Role::Loop),
            },
            Op::Slice { .. }
            | Op::Pad { .. }
            | Op::Transpose { .. }
            | Op::Reverse { .. }
            | Op::Concatenate { .. }
            | Op::DynamicSlice { .. } => plain(Role::Loop),
            Op::Reduce { .. } | Op::DynamicUpdateSlice => plain(Role::LoopRoot),
            Op::Convolution(_) => plain(Role::Convolution),
            _ => plain(Role::Alone),
        }
    }

    /// The depth of the deepest operand, if all are cheap; scalars are as good as cheap.
    fn cheap_depth(&self, operands: &[InstructionId]) -> Option<u8> {
        operands.iter().try_fold(0, |deepest: u8, o| match self.roles.get(o) {
            Some(&(Role::Cheap, depth)) => Some(deepest.max(depth)),
            _ => None,
        })
    }
}

fn widens_stored(module: &Module, i: InstructionId, roles: &Roles) -> bool {
    let Some(&operand) = module[i].operands().first() else { return false };
    match (array_of(module, operand), array_of(module, i)) {
        (Some(from), Some(to)) => {
            !to.is_scalar() && from.element_type.bits() < to.element_type.bits() && roles.of(operand) == Role::Alone
        }
        _ => false,
    }
}
