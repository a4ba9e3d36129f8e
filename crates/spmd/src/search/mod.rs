//! The search: how a program's parameters are best laid out on a mesh, by predicted time within memory.
//!
//! The schemes that people write by hand (data, tensor, fully sharded data, and their products over the axes of the mesh)
//! are tried first, the batch of activations being cut with the data's; from the best, classes of like parameters and of
//! what layers hand on are moved from dimension to dimension as long as that makes a step shorter. Parameters and
//! activations of repeated layers are one class, so that the number of tries does not grow with layers.
//! Kept true: the answer is no worse, by the model that it is chosen by, than any scheme that was tried.

mod evaluate;
mod model;
mod repeats;
mod roles;
mod schemes;

pub use evaluate::Price;
pub use roles::{ActivationClass, ParameterRoles, Role};
pub use schemes::AxisScheme;

use crate::partition::Partitioned;
use crate::propagate::prepare;
use evaluate::{annotated, mesh, price, realize};
use hloom_ir::diagnostic::{Blame, Diagnostic, codes::spmd as codes};
use hloom_ir::module::Module;
use hloom_ir::verify::VerifiedModule;
use hloom_target::Target;
use model::StepModel;
use std::collections::BTreeMap;

/// The axes of the mesh that cut a dimension.
pub type AxisUse = Vec<usize>;
/// How the parameters lie: a list of axes for each dimension of each.
pub type Layout = Vec<Vec<AxisUse>>;

/// What is stated of a program's arrays.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// How the parameters lie.
    pub layout: Layout,
    /// How each class of activations lies, where that is stated; a dimension without axes is left open.
    pub activations: Vec<Option<Vec<AxisUse>>>,
}

/// More axes than any mesh of machines has; schemes are as many as the fourth power of two to it.
const MOST_AXES: usize = 4;

/// What to search for.
#[derive(Clone, Debug)]
pub struct SearchOptions<'t> {
    /// The sizes of the mesh's axes.
    pub mesh: Vec<i64>,
    /// Bytes that a device has.
    pub memory_limit: Option<u64>,
    /// The machine.
    pub target: &'t Target,
    /// How many instructions may be partitioned in all, over all tries.
    pub budget: usize,
}

/// A layout that was tried.
#[derive(Clone, Debug)]
pub struct Tried {
    /// What each axis is for, and whether single classes were moved from there.
    pub schemes: Vec<AxisScheme>,
    /// How many classes lie otherwise than the scheme has them.
    pub moves: usize,
    /// What is stated.
    pub choice: Choice,
    /// What it costs.
    pub price: Price,
}

impl Tried {
    /// Whether it fits into the memory that there is.
    pub fn fits(&self, options: &SearchOptions<'_>) -> bool {
        options.memory_limit.is_none_or(|limit| self.price.memory_bytes <= limit)
    }
}

/// Like parameters, and how they lie.
#[derive(Clone, Debug)]
pub struct ParameterClass {
    /// Their sizes.
    pub dims: Vec<i64>,
    /// What their dimensions are for.
    pub roles: Vec<Role>,
    /// Their numbers.
    pub members: Vec<usize>,
}

/// What was found.
#[derive(Debug)]
pub struct Found {
    /// The best.
    pub best: Tried,
    /// The schemes, the best first: those that fit, by time; then the others, by memory.
    pub schemes: Vec<Tried>,
    /// Classes of like parameters.
    pub classes: Vec<ParameterClass>,
    /// Classes of like activations.
    pub activations: Vec<ActivationClass>,
    /// How many layouts were tried.
    pub tries: usize,
    /// How many repeated layers were recognised; schemes are then priced by programs of a few of them.
    pub layers: Option<usize>,
    /// The program with the best layout's shardings, propagated.
    pub source: Module,
    /// What was made of it.
    pub partitioned: Partitioned,
    /// The program of one device.
    pub program: VerifiedModule,
}

struct Search<'s> {
    activations: &'s [ActivationClass],
    options: &'s SearchOptions<'s>,
    model: StepModel,
    devices: i64,
    left: usize,
    tries: usize,
}

impl Search<'_> {
    /// The prices of some choices, worked out side by side; nothing of one that cannot be partitioned.
    fn prices(&mut self, choices: &[Choice]) -> Vec<Option<Price>> {
        self.left = self.left.saturating_sub(self.model.instruction_count().saturating_mul(choices.len()));
        self.tries += choices.len();
        let one = |choice: &Choice| self.model.price(choice, self.options, self.devices);
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get()).min(choices.len());
        if threads < 2 {
            return choices.iter().map(one).collect();
        }
        let next = std::sync::atomic::AtomicUsize::new(0);
        let work = || {
            let mut done: Vec<(usize, Option<Price>)> = Vec::new();
            loop {
                let n = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                let Some(choice) = choices.get(n) else { return done };
                done.push((n, one(choice)));
            }
        };
        let mut prices = vec![None; choices.len()];
        std::thread::scope(|scope| {
            let helpers: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
            let own = work();
            // A helper that failed has priced nothing.
            for (n, price) in own.into_iter().chain(helpers.into_iter().flat_map(|h| h.join().unwrap_or_default())) {
                prices[n] = price;
            }
        });
        prices
    }

    fn is_better(&self, a: &Price, b: &Price) -> bool {
        let over = |p: &Price| self.options.memory_limit.map_or(0, |limit| p.memory_bytes.saturating_sub(limit));
        match (over(a), over(b)) {
            (0, 0) => a.seconds < b.seconds * (1.0 - 1e-6),
            // What does not fit is better the less it is too large.
            (x, y) => x < y,
        }
    }

    /// Takes the best of some choices, if it is better than what there is.
    fn take_best(&mut self, best: &mut Tried, choices: Vec<Choice>) -> bool {
        let mut moved = false;
        for (choice, price) in self.prices(&choices).into_iter().zip(choices).map(|(p, c)| (c, p)) {
            let Some(price) = price else { continue };
            if self.is_better(&price, &best.price) {
                let moves = best.moves + usize::from(!moved);
                *best = Tried { schemes: best.schemes.clone(), moves, choice, price };
                moved = true;
            }
        }
        moved
    }

    /// Moves one axis of one class after another as long as that is better.
    fn improve(&mut self, start: Tried, classes: &[ParameterClass]) -> Tried {
        let mut best = start;
        let mesh = self.options.mesh.clone();
        loop {
            let mut moved = false;
            for n in 0..self.activations.len() + classes.len() {
                for axis in 0..mesh.len() {
                    let choices = match n.checked_sub(self.activations.len()) {
                        None => self.moves_of_activation(&best.choice, n, axis),
                        Some(n) => moves_of_parameter(&best.choice, &classes[n], &mesh, axis),
                    };
                    if self.left < self.model.instruction_count().saturating_mul(choices.len()) {
                        return best;
                    }
                    moved |= self.take_best(&mut best, choices);
                }
            }
            if !moved {
                return best;
            }
        }
    }

    /// A class of what layers hand on, with an axis at other dimensions than it is now.
    fn moves_of_activation(&self, from: &Choice, n: usize, axis: usize) -> Vec<Choice> {
        let class = &self.activations[n];
        if !class.is_residual() {
            return Vec::new();
        }
        let lists = from.activations[n].clone().unwrap_or_else(|| vec![AxisUse::new(); class.dims.len()]);
        let at = lists.iter().position(|list| list.contains(&axis));
        let moved = |to: usize| {
            let lists = with_axis(&lists, &class.dims, &self.options.mesh, axis, Some(to))?;
            let mut choice = from.clone();
            choice.activations[n] = Some(lists);
            Some(choice)
        };
        (0..class.dims.len()).filter(|&to| Some(to) != at).filter_map(moved).collect()
    }
}

/// A class of parameters with an axis at other dimensions than it is now, or at none.
fn moves_of_parameter(from: &Choice, class: &ParameterClass, mesh: &[i64], axis: usize) -> Vec<Choice> {
    let lists = &from.layout[class.members[0]];
    let at = lists.iter().position(|list| list.contains(&axis));
    let moved = |to: Option<usize>| {
        let lists = with_axis(lists, &class.dims, mesh, axis, to)?;
        let mut choice = from.clone();
        for &member in &class.members {
            choice.layout[member].clone_from(&lists);
        }
        Some(choice)
    };
    (0..class.dims.len()).map(Some).chain([None]).filter(|&to| to != at).filter_map(moved).collect()
}

/// A class's lists with `axis` at dimension `to` only; nothing if that does not cut it into equal parts.
fn with_axis(lists: &[AxisUse], dims: &[i64], mesh: &[i64], axis: usize, to: Option<usize>) -> Option<Vec<AxisUse>> {
    let mut lists = lists.to_vec();
    lists.iter_mut().for_each(|l| l.retain(|&a| a != axis));
    if let Some(d) = to {
        lists[d].push(axis);
        let parts: i64 = lists[d].iter().map(|&a| mesh[a]).product();
        if dims[d] % parts != 0 {
            return None;
        }
    }
    Some(lists)
}

/// What makes parameters alike: sizes, what their dimensions are for, and the operations that use them.
type Kind = (Vec<i64>, Vec<Role>, Vec<&'static str>);

fn classes(parameters: &[ParameterRoles], module: &Module) -> Vec<ParameterClass> {
    let entry_parameters = module.entry().map_or_else(Vec::new, |e| module.parameters(e));
    let mut by_kind: BTreeMap<Kind, Vec<usize>> = BTreeMap::new();
    for (n, p) in parameters.iter().enumerate().filter(|(_, p)| !p.dims.is_empty()) {
        // Those that are used alike: by the same operations, whatever else these take.
        let mut uses: Vec<&'static str> = entry_parameters
            .get(n)
            .map_or_else(Vec::new, |&i| module[i].users().iter().map(|&u| module[u].op.opcode().name()).collect());
        uses.sort_unstable();
        uses.dedup();
        by_kind.entry((p.dims.clone(), p.roles.clone(), uses)).or_default().push(n);
    }
    let mut all: Vec<ParameterClass> =
        by_kind.into_iter().map(|((dims, roles, _), members)| ParameterClass { dims, roles, members }).collect();
    // Those that hold most come first.
    let weight = |c: &ParameterClass| c.dims.iter().product::<i64>().saturating_mul(c.members.len() as i64);
    all.sort_by_key(|c| std::cmp::Reverse(weight(c)));
    all
}

/// Finds a layout of the parameters of a program.
pub fn search(module: &Module, options: &SearchOptions<'_>) -> Result<Found, Vec<Diagnostic>> {
    let refuse = |message: String| vec![Diagnostic::error(&codes::NOT_PROPAGATED, message).blame(Blame::Data)];
    if options.mesh.is_empty() || options.mesh.len() > MOST_AXES || options.mesh.iter().any(|&n| n < 1) {
        return Err(refuse(format!("a mesh has one to {MOST_AXES} axes of at least one device")));
    }
    let devices = options.mesh.iter().try_fold(1i64, |n, &d| n.checked_mul(d)).filter(|&n| n <= 1 << 16);
    let devices = devices.ok_or_else(|| refuse("the mesh has too many devices".into()))?;
    let mut source = module.clone();
    source.config.num_partitions = devices;
    prepare(&mut source)?;
    let roles::ProgramRoles { parameters, activations } = roles::program_roles(&source);
    let classes = classes(&parameters, &source);
    let model = StepModel::new(&source, &activations);
    let mut search = Search { activations: &activations, options, model, devices, left: options.budget, tries: 0 };
    let mut candidates: Vec<(Vec<AxisScheme>, Choice)> = Vec::new();
    for schemes in schemes::products(options.mesh.len()) {
        let layout = schemes::layout(&parameters, &options.mesh, &schemes);
        let stated = activations.iter().map(|c| schemes::activation(c, &options.mesh, &schemes)).collect();
        let choice = Choice { layout, activations: stated };
        if candidates.iter().all(|(_, c)| *c != choice) {
            candidates.push((schemes, choice));
        }
    }
    let (all_schemes, choices): (Vec<Vec<AxisScheme>>, Vec<Choice>) = candidates.into_iter().unzip();
    let prices = search.prices(&choices);
    let mut tried: Vec<Tried> = Vec::new();
    for ((schemes, choice), price) in all_schemes.into_iter().zip(choices).zip(prices) {
        tried.extend(price.map(|price| Tried { schemes, moves: 0, choice, price }));
    }
    tried.sort_by(|a, b| match (search.is_better(&a.price, &b.price), search.is_better(&b.price, &a.price)) {
        (true, _) => std::cmp::Ordering::Less,
        (_, true) => std::cmp::Ordering::Greater,
        _ => a.price.seconds.total_cmp(&b.price.seconds),
    });
    let Some(start) = tried.first().cloned() else {
        // Nothing could be partitioned: what is wrong with the program as it is says why.
        let none = Choice { layout: vec![Vec::new(); parameters.len()], activations: vec![None; activations.len()] };
        let mut module = annotated(&source, &mesh(&options.mesh), &activations, &none);
        return Err(realize(&mut module, devices).err().unwrap_or_else(|| refuse("no layout could be priced".into())));
    };
    let improved = search.improve(start.clone(), &classes);
    // The whole program decides, not the model of it.
    let realized = |tried: &Tried| -> Result<(Tried, Module, Partitioned, VerifiedModule), Vec<Diagnostic>> {
        let mut stated = annotated(&source, &mesh(&options.mesh), &activations, &tried.choice);
        let (partitioned, program) = realize(&mut stated, devices)?;
        let price = price(&program, options).map_err(|d| vec![d])?;
        Ok((Tried { price, ..tried.clone() }, stated, partitioned, program))
    };
    let mut best = realized(&improved)?;
    if improved.moves > 0 && search.model.is_shortened() {
        let scheme = realized(&start)?;
        tried[0].price = scheme.0.price;
        if search.is_better(&scheme.0.price, &best.0.price) {
            best = scheme;
        }
    } else if improved.moves == 0 {
        tried[0].price = best.0.price;
    }
    let (tries, layers) = (search.tries, search.model.layers());
    let (best, source, partitioned, program) = best;
    Ok(Found { best, schemes: tried, classes, activations, tries, layers, source, partitioned, program })
}
