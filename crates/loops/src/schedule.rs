//! Where each item of a loop program is computed, and with how many lanes.
//!
//! Loops form a tree: the nest is a path in it, and the loops of a reduce hang where the reduce is computed. A *scope* is the
//! inside of one loop; scope 0 is outside of all. An item is computed in the innermost scope among those of the loop
//! variables it changes with, so that whatever does not change in a loop is computed before it. Addresses are summed up
//! the same way, one part in each scope.

use crate::affine::{Affine, ItemId, Term, VarId};
use crate::arg_reduce::is_arg_reduce;
use crate::graph::ScalarOp;
use crate::program::{Item, LoadSource, LoopProgram, Reduce};
use crate::simd::Simd;
use hloom_ir::ElementType;
use hloom_ir::op::BinaryOp;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// The number of a loop, or of what is outside of all.
pub type ScopeId = u32;
/// The number of an address.
pub type AddressId = u32;

/// What is done in a scope.
#[derive(Clone, Copy, Debug)]
pub enum ScheduleStep {
    /// Makes an item.
    Item(ItemId),
    /// Makes an address.
    Address(AddressId),
    /// A tile is filled.
    Tile(u32),
    /// What has just been computed is put into a row.
    Row(u32),
}

/// A part of an address: another address, or the start of an array, plus multiples of terms.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Address {
    /// What it is added to.
    pub base: AddressBase,
    /// Factors are in bytes.
    pub part: Affine,
}

/// What an address is made of.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum AddressBase {
    /// The start of an array.
    LoadSource(LoadSource),
    /// Another address.
    Address(AddressId),
}

/// Where a load or store goes: an address, and for the lanes a stride in bytes or offsets of their own.
#[derive(Clone, Debug)]
pub struct Access {
    /// The address of the part that does not vary.
    pub address: AddressId,
    /// Items that may differ from lane to lane, with factors in bytes.
    pub varying: SmallVec<[(ItemId, i64); 1]>,
    /// The whole offset, in elements.
    pub offset: Affine,
}

/// The plan for a program.
pub struct Schedule {
    /// The scope of each loop variable.
    pub scope_of_var: Vec<ScopeId>,
    /// What each scope does before the loops in it.
    pub steps: Vec<Vec<ScheduleStep>>,
    /// The addresses.
    pub addresses: Vec<Address>,
    /// Where each load reads.
    pub loads: FxHashMap<ItemId, Access>,
    /// Where each store writes.
    pub stores: Vec<Access>,
    /// Where each tile is read.
    pub tiles: Vec<Access>,
    /// Where each row is written, if it is.
    pub rows: Vec<Option<Access>>,
    /// The number of lanes of each loop, by variable; 1 for most.
    pub lanes: Vec<u32>,
}

struct Scopes {
    parent: Vec<ScopeId>,
    depth: Vec<u32>,
    of_var: Vec<ScopeId>,
}

impl Scopes {
    fn add(&mut self, parent: ScopeId, var: VarId) -> ScopeId {
        let scope = self.parent.len() as ScopeId;
        self.parent.push(parent);
        self.depth.push(self.depth[parent as usize] + 1);
        self.of_var[var as usize] = scope;
        scope
    }
    fn innermost(&self, vars: &[VarId]) -> ScopeId {
        vars.iter().map(|&v| self.of_var[v as usize]).max_by_key(|&s| self.depth[s as usize]).unwrap_or(0)
    }
}

impl Schedule {
    /// The schedule of a program for a machine with those vectors.
    pub fn new(program: &LoopProgram, simd: &Simd) -> Schedule {
        let mut scopes = Scopes { parent: vec![0], depth: vec![0], of_var: vec![0; program.extents.len()] };
        let mut at = 0;
        for &v in &program.nest {
            at = scopes.add(at, v);
        }
        // Reductions come after what is reduced: those around others have the greater numbers.
        for data in program.items.iter().rev() {
            if let Item::Reduce(reduce) = &data.item {
                let mut at = scopes.innermost(&data.vars);
                for &v in &reduce.vars {
                    at = scopes.add(at, v);
                }
            }
        }
        let lanes = choose_lanes(program, simd);
        let vector_vars: Vec<VarId> = (0..lanes.len()).filter(|&v| lanes[v] > 1).map(|v| v as VarId).collect();
        let mut schedule = Schedule {
            steps: vec![Vec::new(); scopes.parent.len()],
            addresses: Vec::new(),
            loads: FxHashMap::default(),
            stores: Vec::new(),
            tiles: Vec::new(),
            rows: vec![None; program.rows.len()],
            lanes,
            scope_of_var: scopes.of_var.clone(),
        };
        let mut made: FxHashMap<Address, AddressId> = FxHashMap::default();
        for (id, data) in program.items.iter().enumerate() {
            let id = id as ItemId;
            // Tiles are filled inside of their loop, which is outside of all loops that read them.
            if let Item::Load { source: LoadSource::Tile(n), .. } = &data.item {
                let tile = &program.tiles[*n as usize];
                let bytes = tile.element_type.bytes() as i64;
                let source = tile.source.clone();
                let access = schedule.access(program, &scopes, &vector_vars, &mut made, source, &tile.offset, bytes);
                schedule.tiles.push(access);
                schedule.steps[scopes.of_var[tile.inside as usize] as usize].push(ScheduleStep::Tile(*n));
            }
            if let Item::Load { source, offset, .. } = &data.item {
                let bytes = program.loaded_type(data).bytes() as i64;
                let access = schedule.access(program, &scopes, &vector_vars, &mut made, source.clone(), offset, bytes);
                schedule.loads.insert(id, access);
            }
            let scope = scopes.innermost(&data.vars);
            schedule.steps[scope as usize].push(ScheduleStep::Item(id));
            for (n, row) in program.rows.iter().enumerate().filter(|(_, row)| row.item == id) {
                let (source, bytes) = (LoadSource::Row(n as u32), row.element_type.bytes() as i64);
                let access = schedule.access(program, &scopes, &vector_vars, &mut made, source, &row.offset, bytes);
                schedule.rows[n] = Some(access);
                schedule.steps[scope as usize].push(ScheduleStep::Row(n as u32));
            }
        }
        for store in &program.stores {
            let bytes = store.element_type.bytes() as i64;
            let source = LoadSource::Buffer(store.buffer);
            let access = schedule.access(program, &scopes, &vector_vars, &mut made, source, &store.offset, bytes);
            schedule.stores.push(access);
        }
        schedule
    }

    #[allow(clippy::too_many_arguments, reason = "one caller, and all of it is needed")]
    fn access(
        &mut self,
        program: &LoopProgram,
        scopes: &Scopes,
        vector_vars: &[VarId],
        made: &mut FxHashMap<Address, AddressId>,
        source: LoadSource,
        offset: &Affine,
        bytes: i64,
    ) -> Access {
        let mut varying: SmallVec<[(ItemId, i64); 1]> = SmallVec::new();
        let mut parts: Vec<(u32, ScopeId, Term, i64)> = Vec::new();
        for &(term, factor) in &offset.terms {
            let vars = match &term {
                Term::Var(v) => std::slice::from_ref(v),
                Term::Item(i) => &program.item(*i).vars[..],
            };
            if let (Term::Item(i), true) = (term, vars.iter().any(|v| vector_vars.contains(v))) {
                varying.push((i, factor.wrapping_mul(bytes)));
                continue;
            }
            let scope = scopes.innermost(vars);
            parts.push((scopes.depth[scope as usize], scope, term, factor.wrapping_mul(bytes)));
        }
        parts.sort_by_key(|p| p.0);
        let mut base = AddressBase::LoadSource(source);
        let mut rest = &parts[..];
        // The constant goes to the outermost part.
        let mut constant = offset.constant.wrapping_mul(bytes);
        let mut last = None;
        while !rest.is_empty() || last.is_none() {
            let depth = rest.first().map_or(0, |p| p.0);
            let depth = if last.is_none() && constant != 0 { 0 } else { depth };
            let here = rest.iter().take_while(|p| p.0 == depth).count();
            let scope = rest[..here].first().map_or(0, |p| p.1);
            let mut part = Affine::constant(std::mem::take(&mut constant));
            part.terms.extend(rest[..here].iter().map(|p| (p.2, p.3)));
            part.terms.sort();
            let address = Address { base, part };
            let id = *made.entry(address.clone()).or_insert_with(|| {
                let id = self.addresses.len() as AddressId;
                self.addresses.push(address);
                self.steps[scope as usize].push(ScheduleStep::Address(id));
                id
            });
            (base, last) = (AddressBase::Address(id), Some(id));
            rest = &rest[here..];
        }
        Access { address: last.unwrap_or(0), varying, offset: offset.clone() }
    }
}

/// Bytes of the widest part that elements of the type are computed in; f16 and bf16 are f32 then.
fn computed_bytes(t: ElementType) -> u32 {
    match t {
        ElementType::F16 | ElementType::Bf16 => 4,
        ElementType::Pred => 1,
        _ => t.component().bytes() as u32,
    }
}

/// The greatest power of two not above `n`.
fn power_of_two_below(n: i64) -> u32 {
    if n <= 0 { 1 } else { 1 << (63 - n.min(1 << 20).leading_zeros()) }
}

/// The number of lanes that fill a vector with the widest of what changes with `var`.
pub fn natural_lanes(program: &LoopProgram, simd: &Simd, var: VarId) -> u32 {
    let widest = program
        .items
        .iter()
        .filter(|i| i.vars.contains(&var))
        .filter(|i| matches!(i.item, Item::Load { .. } | Item::ReduceResult(..) | Item::Scalar(..) | Item::Scan(_)))
        .filter(|i| !is_narrow_index(program, &i.item))
        .map(|i| match i.item {
            // Narrow floats are moved as bytes, and computed as f32.
            Item::Scalar(..) if i.element_type.is_small_float() => 4,
            _ => computed_bytes(i.element_type),
        })
        .chain(program.stores.iter().map(|s| computed_bytes(s.element_type)))
        .max();
    (simd.vector_bits / 8 / widest.unwrap_or(4).max(1)).min(64)
}

/// Whether an item is an index of 32 bits made wider: addresses are made of it as it was.
fn is_narrow_index(program: &LoopProgram, item: &Item) -> bool {
    let Item::Scalar(ScalarOp::Convert, of) = item else { return false };
    let is_clamped = |data: &crate::program::ItemData| {
        data.element_type == ElementType::S32 && matches!(data.item, Item::Scalar(ScalarOp::Clamp, _))
    };
    of.first().is_some_and(|&o| is_clamped(program.item(o)))
}

fn choose_lanes(program: &LoopProgram, simd: &Simd) -> Vec<u32> {
    let mut lanes = vec![1; program.extents.len()];
    let natural = |var: VarId| natural_lanes(program, simd, var);
    let fit = |natural: u32, extent: i64| -> u32 {
        let below = power_of_two_below(extent);
        match simd.has_masks {
            _ if extent >= i64::from(natural) => natural,
            true if i64::from(below) < extent => below * 2,
            _ => below,
        }
    };
    let mut vector_var = None;
    // A scan goes step by step: lanes are beside it.
    let innermost = program.nest.iter().rev().nth(program.scan().iter().len());
    if let Some(&v) = innermost
        && (prefers_lanes(program, simd, v) || scatters_points(program, v))
    {
        let extent = program.extents[v as usize];
        let mut n = fit(natural(v), extent);
        // A reduce or a scan down the columns walks far: more columns at once make better use of each row that is touched.
        let walks = |item: &Item| matches!(item, Item::Reduce(_) | Item::Scan(_));
        let reduces_down = program.items.iter().any(|i| walks(&i.item) && i.vars.contains(&v));
        if reduces_down {
            n *= several(weight(program, v), extent, n);
        }
        lanes[v as usize] = n;
        vector_var = (n > 1).then_some(v);
    }
    for data in &program.items {
        let Item::Reduce(reduce) = &data.item else { continue };
        let Some(&v) = reduce.vars.last() else { continue };
        if vector_var.is_some_and(|v| data.vars.contains(&v)) || !contiguous(program, v) {
            continue;
        }
        // A value has lanes along one loop only: of reductions within reductions, one of them.
        let has_others = |vars: &[VarId]| vars.iter().any(|&w| w != v && lanes[w as usize] > 1);
        if program.items.iter().any(|i| i.vars.contains(&v) && has_others(&i.vars)) {
            continue;
        }
        // Lanes change the order of the reduce: only for what is known to be the same in any order.
        let has_identity = |op| has_identity(op, reduce.function.parameters[0]);
        if !reduce.function.single_operation().is_some_and(has_identity) && !counts_places(program, reduce) {
            continue;
        }
        let extent = program.extents[v as usize];
        let n = fit(natural(v), extent);
        lanes[v as usize] = n * several(weight(program, v), extent, n);
    }
    lanes
}

/// Whether a reduce looks for a place, and the places are counted along its loop.
fn counts_places(program: &LoopProgram, reduce: &Reduce) -> bool {
    let (&[var], &[_, place]) = (&reduce.vars[..], &reduce.inputs[..]) else { return false };
    let counts = |item: &Item| matches!(item, Item::Index(index) if index.factor(Term::Var(var)) > 0);
    let is_counted = match &program.item(place).item {
        Item::Scalar(ScalarOp::Convert, of) => of.first().is_some_and(|&i| counts(&program.item(i).item)),
        item => counts(item),
    };
    is_counted && reduce.condition.is_none() && is_arg_reduce(&reduce.function)
}

/// How many vectors a reduce works on at once: several, since each addition waits for the one before; fewer where there is
/// much else to do meanwhile, which would only make more code.
fn several(weight: u32, extent: i64, lanes: u32) -> u32 {
    let wanted = match weight {
        0..=4 => 4,
        5..=12 => 2,
        _ => 1,
    };
    let fits = |n: &u32| *n <= wanted && extent >= i64::from(n * lanes);
    [4, 2].into_iter().find(fits).unwrap_or(1)
}

/// About how many operations there are for each iteration of the loop of `var`.
fn weight(program: &LoopProgram, var: VarId) -> u32 {
    let each = |i: &crate::program::ItemData| match &i.item {
        Item::Scalar(ScalarOp::Unary(op), _) if op.takes_result_accuracy() => 12,
        Item::Scalar(..) if matches!(i.element_type, ElementType::F16) => 3,
        Item::Scalar(..) | Item::Reduce(_) => 1,
        Item::Apply(f, _) => f.code.len() as u32,
        _ => 0,
    };
    program.items.iter().filter(|i| i.vars.contains(&var)).map(each).sum()
}

/// The loads that change with `var`, and by how many elements.
fn strides(program: &LoopProgram, var: VarId) -> impl Iterator<Item = (i64, &[VarId])> {
    program.items.iter().filter_map(move |i| match &i.item {
        Item::Load { offset, .. } if i.vars.contains(&var) => Some((offset.factor(Term::Var(var)), &i.vars[..])),
        _ => None,
    })
}

/// Elements from one lane to the next that still make it worth loading all that is between them.
pub const MAX_CLOSE: i64 = 4;

/// The same for the loop of `var`: of short loops it would only be more code.
fn max_close(program: &LoopProgram, var: VarId) -> i64 {
    if program.extents[var as usize] >= MIN_POINTS { MAX_CLOSE } else { 1 }
}

/// Whether most loads that change with `var` read one element after another, or nearly.
fn contiguous(program: &LoopProgram, var: VarId) -> bool {
    let (mut good, mut bad) = (0, 0);
    let close = max_close(program, var);
    for (stride, _) in strides(program, var) {
        if (-1..=close).contains(&stride) { good += 1 } else { bad += 1 }
    }
    good >= bad
}

/// Whether single elements are written to places that are computed for each: lanes are of use for the computing.
fn scatters_points(program: &LoopProgram, var: VarId) -> bool {
    let varies = |t: &(Term, i64)| matches!(t.0, Term::Item(i) if program.item(i).vars.contains(&var));
    let anywhere = |s: &crate::program::Store| !s.element_type.is_complex() && s.offset.terms.iter().any(varies);
    let is_reduce = |i: &crate::program::ItemData| matches!(i.item, Item::Reduce(_) | Item::Scan(_));
    program.is_sequential
        && program.extents[var as usize] >= MIN_POINTS
        && program.stores.iter().all(anywhere)
        && !program.items.iter().any(is_reduce)
}

/// Fewer are scattered, or taken from between others, one by one: that is less code.
const MIN_POINTS: i64 = 64;

/// Whether lanes should go along the innermost loop of the nest: not if stores are apart there, nor if a reduce would
/// rather have them.
fn prefers_lanes(program: &LoopProgram, simd: &Simd, var: VarId) -> bool {
    // With masks, what stands close together is written as whole vectors.
    let is_close = |s: &crate::program::Store| {
        let plain = s.combine.is_none() && !s.element_type.is_complex() && !program.is_sequential;
        simd.has_masks && plain && (2..=max_close(program, var)).contains(&s.offset.factor(Term::Var(var)))
    };
    let apart = |s: &crate::program::Store| {
        let varies = |t: &(Term, i64)| matches!(t.0, Term::Item(i) if program.item(i).vars.contains(&var));
        // Pairs are combined one by one.
        let pairs = s.combine.is_some() && s.element_type.is_complex();
        s.offset.factor(Term::Var(var)) != 1 && !is_close(s) || pairs || s.offset.terms.iter().any(varies)
    };
    if program.stores.iter().any(apart) {
        return false;
    }
    let reductions = program.items.iter().filter_map(|i| match &i.item {
        Item::Reduce(reduce) if i.vars.contains(&var) => reduce.vars.last().copied(),
        _ => None,
    });
    for inner in reductions {
        let apart = strides(program, var).any(|(s, vars)| vars.contains(&inner) && !matches!(s, -1..=1));
        if apart && contiguous(program, inner) && program.extents[inner as usize] >= 4 {
            return false;
        }
    }
    true
}

/// Whether a reduction by `op` may start anywhere, since some value changes nothing. Floats of 8 bits and fewer are rounded
/// so much at each step that their order is kept; some of these types have no such value either.
pub fn has_identity(op: BinaryOp, t: ElementType) -> bool {
    match op {
        _ if t.is_small_float() => false,
        BinaryOp::Add | BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => true,
        BinaryOp::Multiply | BinaryOp::Maximum | BinaryOp::Minimum => !t.is_complex(),
        _ => false,
    }
}
