//! Kernels whose units are whole rows of an array that they read: they can begin with the first rows while the last ones are
//! still being made.

use crate::affine::{Affine, Term};
use crate::program::{Item, LoadSource, LoopProgram};
use crate::schedule::Schedule;
use crate::simd::Simd;
use crate::units::Units;

/// How a nest is cut into units that are whole rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RowTiles {
    /// The units.
    pub units: Units,
    /// RowTiles of a unit.
    pub of_unit: i64,
}

/// More rows are no unit: too few would be begun early.
const MOST_ROWS: i64 = 32;

impl RowTiles {
    /// The units of `program`, which reads rows of `row` elements from the last of its `inputs`. `None` if it does not read
    /// them where it writes, or writes anything else than one row after another.
    pub fn new(program: &LoopProgram, simd: &Simd, inputs: u32, row: i64) -> Option<RowTiles> {
        let has_parts = program.is_sequential || program.before.is_some() || program.copy_first.is_some();
        let has_parts = has_parts || program.uncut > 0 || !program.rows.is_empty();
        if has_parts || program.scan().is_some() || row <= 0 {
            return None;
        }
        // The nest runs over the results, and nothing else, in the order in which they lie.
        let extents: Vec<i64> = program.nest.iter().map(|&v| program.extents[v as usize]).collect();
        let mut place = Affine::default();
        let mut total = 1i64;
        for (&var, &extent) in program.nest.iter().zip(&extents).rev() {
            place = place.plus(&Affine::term(Term::Var(var)), total);
            total = total.checked_mul(extent)?;
        }
        let product = inputs.checked_sub(1)?;
        let is_there = |offset: &Affine| agree(program, offset, &place);
        let reads_there = program.items.iter().all(|data| match &data.item {
            Item::Load { source: LoadSource::Buffer(b), offset, .. } if *b == product => is_there(offset),
            _ => true,
        });
        let writes_there =
            program.stores.iter().all(|s| is_there(&s.offset) && s.condition.is_none() && s.combine.is_none());
        let is_tiled = program.tiles.iter().any(|t| t.source == LoadSource::Buffer(product));
        if !reads_there || !writes_there || is_tiled || total == 0 {
            return None;
        }
        // From the inside out to the loop in which rows end.
        let (mut level, mut inner) = (extents.len(), 1i64);
        while inner < row {
            level = level.checked_sub(1)?;
            if inner * extents[level] > row {
                break;
            }
            inner *= extents[level];
        }
        let outer: i64 = extents[..level].iter().product();
        if inner == row {
            return Some(RowTiles { units: Units { loops: level, chunk: None, count: outer }, of_unit: 1 });
        }
        let extent = extents[level];
        let lanes = i64::from(Schedule::new(program, simd).lanes[program.nest[level] as usize]);
        let iterations = (row % inner == 0).then_some(row / inner)?;
        // Chunks end where vectors do, but for the last.
        let of_unit = (1..=MOST_ROWS).find(|n| (n * iterations) % lanes == 0)?;
        let chunk = iterations.checked_mul(of_unit)?;
        let ends_evenly = extent % chunk == 0 || outer == 1 && extent % iterations == 0;
        let count = extent.checked_add(chunk - 1)? / chunk;
        let units = Units { loops: level, chunk: Some((chunk, count)), count: outer.checked_mul(count)? };
        (ends_evenly && chunk < extent).then_some(RowTiles { units, of_unit })
    }
}

/// Whether two indices are the same for all iterations of the loops; loops of one iteration make no difference.
fn agree(program: &LoopProgram, a: &Affine, b: &Affine) -> bool {
    let difference = a.plus(b, -1);
    let counts = |term: &Term| !matches!(term, Term::Var(v) if program.extents[*v as usize] == 1);
    difference.constant == 0 && !difference.terms.iter().any(|(term, _)| counts(term))
}
