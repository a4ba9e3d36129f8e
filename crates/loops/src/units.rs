//! How the work of a nest is shared out: units, any range of which is one thread's share.

use crate::program::LoopProgram;
use crate::schedule::Schedule;
use hloom_cost::CoreCost;

/// As many units as a nest should have, so that threads can share them evenly. With as many rows, no row is shared: memory
/// plans rely on it (`row_fusion_overwrites` of a machine).
const ENOUGH_UNITS: i64 = 64;

/// How a nest is cut into units.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Units {
    /// How many of the outermost loops a unit is one point of.
    pub loops: usize,
    /// The size of a chunk of the next loop, and how many there are.
    pub chunk: Option<(i64, i64)>,
    /// How many units there are.
    pub count: i64,
}

impl Units {
    /// The units of a program.
    pub fn of(program: &LoopProgram, schedule: &Schedule, core: &CoreCost) -> Units {
        let extents: Vec<i64> = program.nest.iter().map(|&v| program.extents[v as usize]).collect();
        if extents.contains(&0) {
            return Units { loops: 0, chunk: None, count: 0 };
        }
        if let Some(rows) = program.row_tiles {
            return rows.units;
        }
        if program.is_sequential || extents.is_empty() {
            let count = extents[..program.apart].iter().product();
            return Units { loops: program.apart, chunk: None, count };
        }
        let (mut loops, mut count) = (0, 1i64);
        // The loop that a scan runs along is not cut, nor are rows that are kept. Beside a scan is the loop with lanes, which
        // is cut into chunks only.
        let uncut = if program.scan().is_some() { 1 } else { program.uncut };
        let inner = if program.scan().is_some() { 2 } else { uncut.max(1) };
        while loops + inner < extents.len() && count < ENOUGH_UNITS {
            count = count.saturating_mul(extents[loops]);
            loops += 1;
        }
        if loops + uncut == extents.len() {
            return Units { loops, chunk: None, count };
        }
        // A chunk takes as long as handing it to a thread, by what one iteration of the next loop costs: threads take
        // several. Chunks end where vectors do.
        let iterations = count.saturating_mul(extents[loops]);
        let iteration = program.nanoseconds(core) / iterations as f64;
        let lanes = u64::from(schedule.lanes[program.nest[loops] as usize]);
        let chunk = ((core.thread / iteration.max(0.01)) as u64 + 1).next_multiple_of(lanes) as i64;
        if count >= ENOUGH_UNITS || chunk >= extents[loops] {
            return Units { loops, chunk: None, count };
        }
        let chunks = (extents[loops] - 1) / chunk + 1;
        Units { loops, chunk: Some((chunk, chunks)), count: count.saturating_mul(chunks) }
    }
}
