//! Which instructions are computed together: groups with one result, made from readers to what they read.
//!
//! An instruction joins a group only if everything that reads it is in that group, so that groups never wait for each
//! other in a circle. Cheap instructions are in no group: each group that reads one makes it again. Every convolution
//! has a group of its own, with what is done to its operands in front of it ([`Side::Operand`]) and what is done to its
//! result behind it ([`Side::Main`]).

use super::classify::{Role, Roles};
use super::rows;
use crate::edit::array_of;
use crate::policy::Policy;
use hloom_ir::entity::InstructionId;
use hloom_ir::layout::DimVec;
use hloom_ir::module::Module;
use hloom_ir::op::{BinaryOp, Op};
use rustc_hash::{FxHashMap, FxHashSet};

/// The number of a group.
pub(super) type GroupId = usize;

/// More instructions than this are not computed together: the search for windows would take too long.
pub(super) const MAX_MEMBERS: usize = 1000;

/// Where in a group an instruction is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Side {
    /// In the loop that makes the results.
    Main,
    /// In what makes that operand of the convolution.
    Operand(usize),
}

/// Instructions that are computed together.
#[derive(Clone, Debug, Default)]
pub(super) struct Group {
    /// All of them but the cheap ones, in the order in which they were added.
    pub(super) members: Vec<InstructionId>,
    /// Those that are read from outside.
    pub(super) roots: Vec<InstructionId>,
    /// The convolution among them.
    pub(super) convolution: Option<InstructionId>,
    /// The sizes of the loop that makes the results.
    pub(super) dims: DimVec,
}

/// The groups of one computation.
pub(super) struct Groups {
    pub(super) groups: Vec<Group>,
    /// Parameters whose memory a result takes over.
    donated: FxHashSet<InstructionId>,
    pub(super) of: FxHashMap<InstructionId, (GroupId, Side)>,
}

/// Who reads an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Demand {
    None,
    One(GroupId, Side),
    Many,
    /// Among others something that is in no group.
    Outside,
}

impl Demand {
    fn and(self, other: Demand) -> Demand {
        match (self, other) {
            (Demand::None, d) | (d, Demand::None) => d,
            (a, b) if a == b => a,
            (Demand::Outside, _) | (_, Demand::Outside) => Demand::Outside,
            _ => Demand::Many,
        }
    }
}

impl Groups {
    /// Groups the instructions of a computation; `order` has every operand before its users.
    pub(super) fn new(module: &Module, order: &[InstructionId], roles: &Roles, policy: &Policy) -> Groups {
        let mut groups = Groups { groups: Vec::new(), donated: donated(module), of: FxHashMap::default() };
        let after_convolution = after_convolution(module, order);
        let mut demands: FxHashMap<InstructionId, Demand> = FxHashMap::default();
        for &i in order.iter().rev() {
            let mut demand = demands.remove(&i).unwrap_or(Demand::None);
            if module.root(module[i].parent()) == Some(i) {
                demand = Demand::Outside;
            }
            let is_from_convolution = after_convolution.contains_key(&i);
            match roles.of(i) {
                Role::Alone => {}
                Role::Cheap => {
                    if demand == Demand::Outside {
                        groups.start(module, i);
                    }
                }
                Role::Loop => match demand {
                    Demand::One(g, side)
                        if groups.accepts(g, side, is_from_convolution, policy)
                            && !reads_what_is_updated(module, &groups.groups[g].roots, i) =>
                    {
                        groups.join(g, i, side);
                    }
                    Demand::None => {}
                    _ => groups.start(module, i),
                },
                Role::LoopRoot => match demand {
                    Demand::One(g, side) if groups.takes_rows(module, (g, side), i, &after_convolution) => {
                        groups.join(g, i, side);
                    }
                    Demand::None => {}
                    _ => groups.start(module, i),
                },
                Role::Convolution => match demand {
                    Demand::One(g, Side::Main) if groups.takes_convolution(module, g, i) => {
                        groups.join(g, i, Side::Main);
                        groups.groups[g].convolution = Some(i);
                    }
                    Demand::None => {}
                    _ => {
                        groups.start(module, i);
                        if let Some(group) = groups.groups.last_mut() {
                            group.convolution = Some(i);
                        }
                    }
                },
            }
            for (n, &operand) in module[i].operands().iter().enumerate() {
                let demand = groups.demand_of(i, n, roles.of(i), demand);
                let slot = demands.entry(operand).or_insert(Demand::None);
                *slot = slot.and(demand);
            }
        }
        groups
    }

    /// What reading operand `n` of `i` means for the operand.
    fn demand_of(&self, i: InstructionId, n: usize, role: Role, demand: Demand) -> Demand {
        match (self.of.get(&i), role) {
            (Some(&(g, _)), Role::Convolution) => Demand::One(g, Side::Operand(n)),
            // A cheap one that is stored is made for others again.
            (Some(&(g, side)), Role::Cheap) if demand == Demand::Outside => Demand::One(g, side).and(Demand::Many),
            (Some(&(g, side)), _) => Demand::One(g, side),
            (None, Role::Cheap) => demand,
            (None, Role::Alone) => Demand::Outside,
            // Nothing reads it.
            (None, _) => Demand::None,
        }
    }

    fn start(&mut self, module: &Module, i: InstructionId) {
        let dims = loop_dims(module, i);
        self.of.insert(i, (self.groups.len(), Side::Main));
        self.groups.push(Group { members: vec![i], roots: vec![i], convolution: None, dims });
    }

    fn join(&mut self, g: GroupId, i: InstructionId, side: Side) {
        self.of.insert(i, (g, side));
        self.groups[g].members.push(i);
    }

    fn accepts(&self, g: GroupId, side: Side, is_from_convolution: bool, policy: &Policy) -> bool {
        self.groups[g].members.len() < MAX_MEMBERS
            && (policy.fuses_into_consumers || !is_from_convolution || side == Side::Main)
    }

    /// Whether a reduction can be computed in the middle of group `g`, row by row.
    fn takes_rows(
        &self,
        module: &Module,
        (g, side): (GroupId, Side),
        reduction: InstructionId,
        after_convolution: &FxHashMap<InstructionId, InstructionId>,
    ) -> bool {
        let group = &self.groups[g];
        let (Some(row), Some(&values)) = (rows::row(module, reduction), module[reduction].operands().first()) else {
            return false;
        };
        let count = |i: InstructionId| array_of(module, i).and_then(|a| a.element_count());
        let fits = match (side, group.convolution) {
            (Side::Operand(n), Some(convolution)) => {
                let operand = module[convolution].operands().get(n).copied();
                operand.and_then(count) == count(values) && rows::in_operand(module, convolution, n, row)
            }
            (Side::Main, None) => {
                let made_by = after_convolution.get(&values).copied();
                let is_whole = count(values) == Some(group.dims.iter().product());
                // A loop's windows are what it likes; a product's hold whole rows or not.
                let is_product = matches!(module[values].op, Op::Convolution(_));
                is_whole && !is_product && made_by.is_none_or(|convolution| rows::in_result(module, convolution))
            }
            _ => false,
        };
        fits && group.members.len() < MAX_MEMBERS
    }

    /// Whether the loop of group `g` reads memory that a result takes over. As a loop it can write over what it has read; in
    /// the fusion of a convolution it cannot, and the result would have to be copied.
    pub(super) fn updates_in_place(&self, module: &Module, g: GroupId) -> bool {
        let mut reads = self.groups[g].members.iter().flat_map(|&m| module[m].operands());
        !self.donated.is_empty() && reads.any(|o| self.donated.contains(o))
    }

    /// Whether what group `g` writes over is read element by element and by nothing but the result itself, so that a
    /// window of it is read before the same window of the result is written.
    fn updates_by_window(&self, module: &Module, g: GroupId) -> bool {
        let group = &self.groups[g];
        let &[root] = group.roots.as_slice() else { return false };
        let Some(result) = array_of(module, root) else { return false };
        let reads = |&m: &InstructionId| module[m].operands().iter().any(|o| self.donated.contains(o));
        let along = |&m: &InstructionId| {
            let is_as_result = |&o: &InstructionId| {
                !self.donated.contains(&o) || array_of(module, o).is_some_and(|a| a.dims() == result.dims())
            };
            module[m].op.is_elementwise() && module[m].operands().iter().all(is_as_result)
        };
        // A sum is written over what it adds only where the product itself is added.
        !matches!(module[root].op, Op::Binary(BinaryOp::Add))
            && group.members.iter().filter(|m| reads(m)).all(along)
            && group.members.iter().all(|&m| module[m].op.is_elementwise())
    }

    /// Whether the loop of group `g` can run over the windows of the convolution's result.
    fn takes_convolution(&self, module: &Module, g: GroupId, convolution: InstructionId) -> bool {
        let group = &self.groups[g];
        let count = |dims: &[i64]| dims.iter().product::<i64>();
        let Some(array) = array_of(module, convolution) else { return false };
        let runs_along = |&user: &InstructionId| {
            let op = &module[user].op;
            op.is_elementwise() || matches!(op, Op::Bitcast | Op::Reduce { .. })
        };
        let is_inside = |m: &InstructionId| matches!(module[*m].op, Op::Reduce { .. }) && !group.roots.contains(m);
        group.convolution.is_none()
            && (!group.members.iter().any(is_inside) || rows::in_result(module, convolution))
            && (!self.updates_in_place(module, g) || self.updates_by_window(module, g))
            && count(array.dims()) == count(&group.dims)
            && module[convolution].users().iter().all(runs_along)
    }
}

/// Whether `i` takes a part of an array of which one of `roots` updates another part in place: what is read might have been
/// written already.
pub(super) fn reads_what_is_updated(module: &Module, roots: &[InstructionId], i: InstructionId) -> bool {
    let &[from, ref position @ ..] = module[i].operands() else { return false };
    let is_elsewhere = |r: &InstructionId| match (&module[*r].op, module[*r].operands()) {
        (Op::DynamicUpdateSlice, &[into, _, ref start @ ..]) => into == from && start != position,
        _ => false,
    };
    matches!(module[i].op, Op::DynamicSlice { .. } | Op::Slice { .. }) && roots.iter().any(is_elsewhere)
}

fn donated(module: &Module) -> FxHashSet<InstructionId> {
    let Some(entry) = module.entry() else { return FxHashSet::default() };
    let parameters = module.parameters(entry);
    let of = |number: i64| usize::try_from(number).ok().and_then(|n| parameters.get(n)).copied();
    module.config.input_output_alias.iter().filter_map(|alias| of(alias.parameter)).collect()
}

/// The sizes of the loop that an instruction is: those of its result, or of what it reduces or updates with.
fn loop_dims(module: &Module, i: InstructionId) -> DimVec {
    let over = match module[i].op {
        Op::Reduce { .. } => module[i].operands().first(),
        Op::DynamicUpdateSlice => module[i].operands().get(1),
        _ => None,
    };
    array_of(module, over.copied().unwrap_or(i)).map(|a| a.dims().into()).unwrap_or_default()
}

/// Instructions that work element by element on what a convolution makes, of the same size, and that convolution.
fn after_convolution(module: &Module, order: &[InstructionId]) -> FxHashMap<InstructionId, InstructionId> {
    let mut after: FxHashMap<InstructionId, InstructionId> = FxHashMap::default();
    for &i in order {
        let along = |op: &Op| op.is_elementwise() || matches!(op, Op::Bitcast);
        let from = |&o: &InstructionId| {
            let made_by = match module[o].op {
                Op::Convolution(_) => Some(o),
                _ => after.get(&o).copied(),
            };
            made_by.filter(|_| {
                array_of(module, o).and_then(|a| a.element_count())
                    == array_of(module, i).and_then(|a| a.element_count())
            })
        };
        if along(&module[i].op)
            && let Some(convolution) = module[i].operands().iter().find_map(from)
        {
            after.insert(i, convolution);
        }
    }
    after
}
