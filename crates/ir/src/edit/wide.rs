//! Where the operands of instructions that have very many are, so that to replace them one after the other is not quadratic
//! in their number.
//!
//! An index is made when an operand of such an instruction is first replaced, and kept until its operands are changed in
//! another way. Every change of operands goes through here or forgets the index.

use crate::entity::InstructionId;
use crate::instruction::Operands;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

/// From how many operands on an index pays.
const WIDE: usize = 128;

/// The positions of each operand.
type Positions = FxHashMap<InstructionId, SmallVec<[u32; 1]>>;

/// The indices of instructions that have very many operands.
#[derive(Clone, Default, Debug)]
pub(crate) struct WideUsers(FxHashMap<InstructionId, Positions>);

impl WideUsers {
    /// Puts `new` in the place of `old` everywhere among the operands of `user`; whether `new` was one of them before.
    pub(super) fn replace(
        &mut self,
        user: InstructionId,
        operands: &mut Operands,
        old: InstructionId,
        new: InstructionId,
    ) -> bool {
        if operands.len() < WIDE {
            let mut had = false;
            for operand in operands {
                had |= *operand == new;
                if *operand == old {
                    *operand = new;
                }
            }
            return had;
        }
        let positions = self.0.entry(user).or_insert_with(|| index(operands));
        let moved = positions.remove(&old).unwrap_or_default();
        for &n in &moved {
            operands[n as usize] = new;
        }
        let of_new = positions.entry(new).or_default();
        let had = !of_new.is_empty();
        of_new.extend(moved);
        had
    }

    /// The operands of `user` are about to change in another way.
    pub(super) fn forget(&mut self, user: InstructionId) {
        if !self.0.is_empty() {
            self.0.remove(&user);
        }
    }
}

fn index(operands: &[InstructionId]) -> Positions {
    let mut positions = Positions::default();
    for (n, &operand) in operands.iter().enumerate() {
        positions.entry(operand).or_default().push(n as u32);
    }
    positions
}

/// The operands, each once, in the order in which they first come.
pub(crate) fn distinct(operands: &[InstructionId]) -> Operands {
    if operands.len() < WIDE {
        let mut distinct = Operands::new();
        for operand in operands {
            if !distinct.contains(operand) {
                distinct.push(*operand);
            }
        }
        return distinct;
    }
    let mut seen = FxHashSet::default();
    operands.iter().copied().filter(|&o| seen.insert(o)).collect()
}

/// Says whether an instruction is in the list.
pub(crate) fn one_of(list: &[InstructionId]) -> impl Fn(InstructionId) -> bool + use<'_> {
    let set: Option<FxHashSet<InstructionId>> = (list.len() >= WIDE).then(|| list.iter().copied().collect());
    move |i| match &set {
        Some(set) => set.contains(&i),
        None => list.contains(&i),
    }
}
