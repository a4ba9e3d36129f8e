//! What the code generator of a machine prefers, read from the machine's description.

use hloom_target::Target;

/// Preferences that stages follow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Policy {
    /// Whether element-wise work between two products goes to the second one's operands.
    pub fuses_into_consumers: bool,
    /// Whether every operand of a convolution is wrapped in a fusion of its own.
    pub wraps_operands: bool,
    /// Whether all-gathers are carried through the fusions that run meanwhile.
    pub carries_collectives: bool,
    /// The memory that values are put into to be near: its memory space and how many bytes may be used; `None` if there is none.
    pub fast_memory: Option<FastMemory>,
}

/// The memory near the compute units.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FastMemory {
    /// Its number in layouts.
    pub memory_space: i64,
    /// Bytes that values may take: what is there, less what is kept for windows.
    pub budget: i64,
    /// Bytes of all of it.
    pub bytes: i64,
}

impl Policy {
    /// The preferences of that machine's code generator.
    pub fn of(target: &Target) -> Policy {
        let fast_memory = target.spaces.iter().find(|s| s.preset).and_then(|s| {
            let bytes = s.bytes?;
            Some(FastMemory { memory_space: s.memory_space, budget: (bytes - s.reserved).max(0), bytes })
        });
        Policy {
            fuses_into_consumers: target.fuses_into_consumers,
            wraps_operands: target.wraps_operands,
            carries_collectives: target.carries_collectives,
            fast_memory,
        }
    }
}
