//! What loops carry without ever changing it, looked for through the loops and calls inside of them.

use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::order;
use hloom_ir::shape::Shape;
use rustc_hash::FxHashMap;

/// For each loop whose state is a tuple, which of its elements are after it what they were before it, however often it
/// runs.
#[derive(Debug, Default)]
pub struct Unchanged {
    of_loop: FxHashMap<InstructionId, Vec<bool>>,
}

/// An instruction's value, or an element of it.
type Place = (InstructionId, Option<usize>);

/// Where the elements of a computation's result come from, those that are handed through: the number of the parameter and
/// the element of it.
type Origins = Vec<Option<(usize, Option<usize>)>>;

impl Unchanged {
    /// What the loops of `module` never change.
    pub fn new(module: &Module) -> Unchanged {
        let mut unchanged = Unchanged::default();
        let all = || module.computations().iter().flat_map(|&c| module[c].instructions());
        if !all().any(|&i| matches!(module[i].op, Op::While { .. })) {
            return unchanged;
        }
        let mut origins: FxHashMap<ComputationId, Origins> = FxHashMap::default();
        for c in order::computations(module) {
            for &i in module[c].instructions() {
                if let Op::While { body, .. } = module[i].op {
                    let elements = origins.get(&body).map(|origins| unchanged_by(module, i, body, origins));
                    unchanged.of_loop.extend(elements.map(|elements| (i, elements)));
                }
            }
            origins.insert(c, unchanged.origins(module, c, &origins));
        }
        unchanged
    }

    /// Whether element `n` of the loop's state is what it was before the loop.
    pub fn is(&self, id: InstructionId, n: usize) -> bool {
        self.of_loop.get(&id).is_some_and(|elements| elements.get(n) == Some(&true))
    }

    fn origins(&self, module: &Module, c: ComputationId, of: &FxHashMap<ComputationId, Origins>) -> Origins {
        let Some(root) = module.root(c) else { return Origins::new() };
        let width = module[root].shape.as_tuple().map_or(0, <[Shape]>::len);
        // What was found on the way to one element serves the others.
        let mut known: FxHashMap<Place, Option<(usize, Option<usize>)>> = FxHashMap::default();
        let mut way: Vec<Place> = Vec::new();
        let mut origin = |n: usize| {
            let mut place = Some((root, Some(n)));
            let mut found = None;
            while let Some(at) = place {
                if let Some(&before) = known.get(&at) {
                    found = before;
                    break;
                }
                way.push(at);
                if let Op::Parameter { number, .. } = module[at.0].op {
                    found = usize::try_from(number).ok().map(|number| (number, at.1));
                    break;
                }
                place = self.one_step(module, at, of);
            }
            known.extend(way.drain(..).map(|at| (at, found)));
            found
        };
        (0..width).map(&mut origin).collect()
    }

    /// The place whose value `at` hands on, if it does.
    fn one_step(&self, module: &Module, at: Place, of: &FxHashMap<ComputationId, Origins>) -> Option<Place> {
        let (i, element) = at;
        let operands = module[i].operands();
        let next = match (&module[i].op, element) {
            (Op::Tuple, Some(n)) => (*operands.get(n)?, None),
            (Op::GetTupleElement { index }, None) => (*operands.first()?, usize::try_from(*index).ok()),
            (Op::Copy, element) => (*operands.first()?, element),
            (Op::While { .. }, Some(n)) if self.is(i, n) => (*operands.first()?, Some(n)),
            (Op::Call { to_apply, .. }, Some(n)) => {
                let (number, element) = (*of.get(to_apply)?.get(n)?)?;
                (*operands.get(number)?, element)
            }
            _ => return None,
        };
        // Where floats may be rounded on the way, another value arrives.
        shape_of(module, next)?.equal_ignoring_layout(shape_of(module, at)?).then_some(next)
    }
}

fn shape_of(module: &Module, place: Place) -> Option<&Shape> {
    let shape = &module[place.0].shape;
    place.1.map_or(Some(shape), |n| shape.as_tuple()?.get(n))
}

fn unchanged_by(module: &Module, id: InstructionId, body: ComputationId, origins: &Origins) -> Vec<bool> {
    let (Some(root), Some(&init)) = (module.root(body), module[id].operands().first()) else { return Vec::new() };
    let stays = |(n, &from): (usize, &Option<(usize, Option<usize>)>)| {
        let after = shape_of(module, (id, Some(n)));
        let is_alike = |i| shape_of(module, (i, Some(n))).zip(after).is_some_and(|(a, b)| a.equal_ignoring_layout(b));
        from == Some((0, Some(n))) && is_alike(init) && is_alike(root)
    };
    origins.iter().enumerate().map(stays).collect()
}
