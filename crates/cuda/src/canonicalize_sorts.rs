//! The pass `canonicalize-sorts`: sorts along the last dimension, by one key each, as the kernels have them.
//!
//! A sort along another dimension is turned, and turned back. One by several keys is one by the last of them, whose results
//! are sorted by the one before, and so on: each is stable, so that what is equal stays in the order of the keys after.

use crate::canonicalize::replace_each;
use hloom_eval::comparator::keys_of;
use hloom_ir::builder::Builder;
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_passes::rules::sorts::comparator;
use hloom_passes::{Context, Pass};

/// The pass.
pub(crate) static PASS: Pass = Pass {
    name: "canonicalize-sorts",
    statement: "makes sorts those of rows by one key",
    keeps_schedule: false,
    run: |module: &mut Module, _: &Context<'_>| Ok(canonicalize(module)) as Result<usize, Diagnostic>,
};

fn canonicalize(module: &mut Module) -> usize {
    replace_each(module, canonical)
}

/// The value to use instead of a sort, if it needs one.
fn canonical(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let Op::Sort { dimension, is_stable, to_apply } = module[i].op else { return None };
    let keys = keys_of(module, to_apply)?;
    let operands = module[i].operands().to_vec();
    let types: Vec<ElementType> = operands.iter().map(|&o| module[o].shape.element_type()).collect::<Option<_>>()?;
    let rank = module[*operands.first()?].shape.as_array()?.rank() as i64;
    let last = rank - 1;
    if dimension == last && keys.len() == 1 {
        return None;
    }
    let comparators: Vec<ComputationId> = match keys.len() {
        1 => vec![to_apply],
        _ => keys.iter().rev().map(|key| comparator(module, &types, key)).collect::<Option<_>>()?,
    };
    let is_stable = is_stable || comparators.len() > 1;
    let parent = module[i].parent();
    let mut b = Builder::resume(module, parent);
    let to_last: Vec<i64> = (0..rank).filter(|&d| d != dimension).chain([dimension]).collect();
    let back: Vec<i64> = (0..rank)
        .map(|d| match d {
            d if d == dimension => last,
            d if d > dimension => d - 1,
            d => d,
        })
        .collect();
    let turn = |b: &mut Builder<'_>, x: InstructionId, order: &[i64]| match dimension == last {
        true => Some(x),
        false => b.transpose(x, order.iter().copied()).ok(),
    };
    let mut values = operands.iter().map(|&o| turn(&mut b, o, &to_last)).collect::<Option<Vec<_>>>()?;
    for to_apply in comparators {
        let sorted = b.push(Op::Sort { dimension: last, is_stable, to_apply }, &values).ok()?;
        values = match values.len() {
            1 => vec![sorted],
            n => (0..n as i64).map(|k| b.get_tuple_element(sorted, k).ok()).collect::<Option<_>>()?,
        };
    }
    let results = values.iter().map(|&v| turn(&mut b, v, &back)).collect::<Option<Vec<_>>>()?;
    match results[..] {
        [result] => Some(result),
        _ => b.tuple(&results).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hloom_eval::comparator::Key;
    use hloom_formats::hlo_text;

    fn after(text: &str) -> Module {
        let mut module = hlo_text::read(text.as_bytes()).module.expect("it can be read");
        assert_eq!(canonicalize(&mut module), 1);
        let options = hloom_ir::verify::VerifyOptions::default();
        hloom_ir::verify::verify(module.clone(), &options).unwrap_or_else(|e| panic!("{:?}", e.diagnostics));
        module
    }

    fn live(module: &Module) -> String {
        let entry = module.entry().unwrap();
        let is_live = |&&i: &&InstructionId| !module[i].users().is_empty() || module.root(entry) == Some(i);
        let names: Vec<&str> =
            module[entry].instructions().iter().filter(is_live).map(|&i| module[i].opcode().name()).collect();
        names.join(" ")
    }

    #[test]
    fn columns_are_turned_and_turned_back() {
        let module = after(
            "HloModule m

             lt {
               a = f32[] parameter(0)
               b = f32[] parameter(1)
               ROOT c = pred[] compare(a, b), direction=LT, type=TOTALORDER
             }

             ENTRY e {
               x = f32[8,100,3] parameter(0)
               ROOT s = f32[8,100,3] sort(x), dimensions={1}, to_apply=lt
             }",
        );
        assert_eq!(live(&module), "parameter transpose sort transpose");
        let root = module.root(module.entry().unwrap()).unwrap();
        assert_eq!(module[root].shape.as_array().unwrap().dims(), [8, 100, 3]);
    }

    #[test]
    fn the_last_of_several_keys_is_sorted_by_first() {
        let module = after(
            "HloModule m

             lt {
               a = s32[] parameter(0)
               b = s32[] parameter(1)
               c = f32[] parameter(2)
               d = f32[] parameter(3)
               e = pred[] compare(a, b), direction=EQ
               f = pred[] compare(c, d), direction=GT, type=TOTALORDER
               g = pred[] compare(a, b), direction=LT
               ROOT h = pred[] select(e, f, g)
             }

             ENTRY e {
               x = s32[100] parameter(0)
               y = f32[100] parameter(1)
               ROOT s = (s32[100], f32[100]) sort(x, y), dimensions={0}, to_apply=lt
             }",
        );
        let sorts: Vec<Vec<Key>> = module[module.entry().unwrap()]
            .instructions()
            .iter()
            .filter(|&&i| !module[i].users().is_empty())
            .filter_map(|&i| match module[i].op {
                Op::Sort { to_apply, is_stable: true, .. } => keys_of(&module, to_apply),
                _ => None,
            })
            .collect();
        let columns: Vec<Vec<(usize, bool)>> =
            sorts.iter().map(|keys| keys.iter().map(|k| (k.column, k.descending)).collect()).collect();
        assert_eq!(columns, [[(1, true)], [(0, false)]]);
    }
}
