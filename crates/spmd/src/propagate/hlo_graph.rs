//! The graph of an HLO module whose shardings name the axes of a mesh.
//!
//! A value of the graph is a leaf of an instruction's result. Leaves that always have one sharding are one value: an
//! element of a tuple and what it was made of, the state of a loop in its operand's place, its body and its result.

use super::hlo_rules::{class_of, handed_on, is_shared, leaf_dims, rule_of};
use super::manual::ManualAxes;
use super::named::is_constraint;
use crate::axes::{Axis, AxisList};
use crate::factors::{
    Direction, Graph, GraphOp, ManualView, MeshId, OpClass, OpRef, TensorRef, TensorSharding, ValueRef,
};
use crate::rules::{Dims, Ranks, Rules};
use hloom_ir::device_list::{Mesh, MeshDevices};
use hloom_ir::entity::{ComputationId, EntityId, InstructionId};
use hloom_ir::module::Module;
use hloom_ir::order::PostOrder;
use hloom_ir::shape::ArrayShape;
use hloom_ir::sharding::{LeafSharding, NamedSharding, Sharding, ShardingKind};
use hloom_ir::{Op, Shape};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::sync::Arc;

/// The graph, and what its values and operations stand for.
#[derive(Debug)]
pub(crate) struct HloGraph {
    pub graph: Graph,
    /// The first of an instruction's leaves in `leaves`.
    starts: Vec<u32>,
    leaves: Vec<Option<ValueRef>>,
    /// The tuple of which an element was asked for last, and the first leaf of each of its elements.
    elements: (Option<InstructionId>, Vec<usize>),
    /// The leaf that each value is first of.
    pub owners: Vec<(InstructionId, usize)>,
    /// The instruction that each operation is.
    pub instructions: Vec<InstructionId>,
    /// The values that the program's results have, apart from what they return.
    pub results: Vec<Option<ValueRef>>,
    /// How the operands of manual computations look outside, by the call that annotates them.
    pub views: Vec<(InstructionId, ValueRef, Arc<ManualView>)>,
    pub manual: ManualAxes,
    meshes: FxHashMap<Arc<Mesh>, MeshId>,
    /// The mesh of most shardings.
    pub main_mesh: Option<MeshId>,
    rules: Rules,
    /// Whether the program is annotated with tiles: then indices that count up are as good as batch dimensions.
    tiles: bool,
}

/// A computation that is being gone through: how far, and what follows.
struct Frame {
    order: Vec<InstructionId>,
    next: usize,
    /// The loop or conditional whose computation it is, and its number there.
    caller: Option<(InstructionId, usize)>,
}

impl HloGraph {
    /// Of a prepared module: no calls, and one caller for each computation.
    pub(crate) fn new(module: &Module, computations: &[ComputationId]) -> HloGraph {
        HloGraph::build(module, computations, false)
    }

    /// The same, of a program that is annotated with tiles.
    pub(crate) fn for_tiles(module: &Module, computations: &[ComputationId]) -> HloGraph {
        HloGraph::build(module, computations, true)
    }

    fn build(module: &Module, computations: &[ComputationId], tiles: bool) -> HloGraph {
        let slots = module.instruction_slots();
        let mut g = HloGraph {
            graph: Graph::default(),
            starts: vec![u32::MAX; slots],
            leaves: Vec::new(),
            elements: (None, Vec::new()),
            owners: Vec::new(),
            instructions: Vec::new(),
            results: Vec::new(),
            views: Vec::new(),
            manual: ManualAxes::new(module, computations),
            meshes: FxHashMap::default(),
            main_mesh: None,
            rules: Rules::default(),
            tiles,
        };
        for &c in computations {
            for &i in module[c].instructions() {
                g.starts[i.index()] = g.leaves.len() as u32;
                g.leaves.extend(std::iter::repeat_n(None, module[i].shape.leaf_count()));
            }
        }
        g.graph.values.reserve(g.leaves.len());
        // Most values get a sharding once, and some another.
        g.graph.history.reserve(g.leaves.len() * 2);
        g.graph.ops.reserve(slots);
        g.instructions.reserve(slots);
        g.owners.reserve(g.leaves.len());
        let Some(entry) = module.entry() else { return g };
        let mut post = PostOrder::new(module);
        let mut called: rustc_hash::FxHashSet<ComputationId> = Default::default();
        let mut stack = vec![Frame { order: post.instructions(entry), next: 0, caller: None }];
        // Loops and conditionals are left when all their computations are done.
        while let Some(frame) = stack.last_mut() {
            let Some(&i) = frame.order.get(frame.next) else {
                let caller = frame.caller;
                stack.pop();
                if let Some((caller, n)) = caller {
                    g.leave(module, caller, n);
                }
                continue;
            };
            frame.next += 1;
            match &module[i].op {
                Op::While { condition, body } => {
                    g.enter_while(module, i, *body, *condition);
                    let body = post.instructions(*body);
                    stack.push(Frame { order: body, next: 0, caller: Some((i, 1)) });
                    stack.push(Frame { order: post.instructions(*condition), next: 0, caller: Some((i, 0)) });
                }
                Op::Call { to_apply, .. } => {
                    g.add_leaves(module, i);
                    for (&p, &x) in module.parameters(*to_apply).iter().zip(module[i].operands()) {
                        g.alias(module, p, x);
                    }
                    // Of several callers the first decides.
                    if called.insert(*to_apply) {
                        let order = post.instructions(*to_apply);
                        stack.push(Frame { order, next: 0, caller: Some((i, 0)) });
                    } else {
                        g.leave(module, i, 0);
                    }
                }
                Op::Conditional { branches } => {
                    g.add_leaves(module, i);
                    for (n, &branch) in branches.iter().enumerate() {
                        if let (Some(&p), Some(&x)) =
                            (module.parameters(branch).first(), module[i].operands().get(n + 1))
                        {
                            g.alias(module, p, x);
                        }
                    }
                    for (n, &branch) in branches.iter().enumerate().rev() {
                        stack.push(Frame { order: post.instructions(branch), next: 0, caller: Some((i, n)) });
                    }
                }
                _ => g.instruction(module, i),
            }
        }
        g.add_results(module, entry);
        g
    }

    /// The values of an instruction's leaves.
    pub(crate) fn values(&self, module: &Module, i: InstructionId) -> &[Option<ValueRef>] {
        let start = self.starts[i.index()] as usize;
        self.leaves.get(start..).and_then(|rest| rest.get(..module[i].shape.leaf_count())).unwrap_or(&[])
    }

    /// The value of one of an instruction's leaves.
    fn leaf(&self, i: InstructionId, leaf: usize) -> Option<ValueRef> {
        self.leaves.get(self.starts[i.index()] as usize + leaf).copied().flatten()
    }

    /// The leaf that a leaf of an instruction has its sharding from, which may be itself.
    pub(crate) fn owner(&self, i: InstructionId, leaf: usize) -> (InstructionId, usize) {
        let start = self.starts.get(i.index()).map_or(usize::MAX, |&s| s as usize);
        let value = start.checked_add(leaf).and_then(|at| self.leaves.get(at).copied().flatten());
        value.map_or((i, leaf), |v| self.owners[v.index()])
    }

    /// The number of the first leaf of an element of a tuple.
    fn element_start(&mut self, module: &Module, tuple: InstructionId, index: usize) -> usize {
        // Elements of one tuple are mostly taken one after another: they are counted once for all.
        if self.elements.0 != Some(tuple) {
            let mut starts = vec![0];
            for element in module[tuple].shape.as_tuple().unwrap_or(&[]) {
                starts.push(starts[starts.len() - 1] + element.leaf_count());
            }
            self.elements = (Some(tuple), starts);
        }
        self.elements.1.get(index).copied().unwrap_or(0)
    }

    fn set(&mut self, i: InstructionId, leaf: usize, value: Option<ValueRef>) {
        let at = self.starts[i.index()] as usize + leaf;
        self.leaves[at] = value;
    }

    fn alias(&mut self, module: &Module, i: InstructionId, of: InstructionId) {
        let values = self.values(module, of).to_vec();
        for (leaf, value) in values.into_iter().enumerate().take(module[i].shape.leaf_count()) {
            self.set(i, leaf, value);
        }
    }

    pub(crate) fn mesh(&mut self, mesh: &Arc<Mesh>) -> MeshId {
        if let Some(&id) = self.meshes.get(mesh) {
            return id;
        }
        let id = self.graph.add_mesh(mesh.clone());
        self.meshes.insert(mesh.clone(), id);
        if self.main_mesh.is_none() && !mesh.axes.is_empty() {
            self.main_mesh = Some(id);
        }
        id
    }

    /// A named sharding as one of the graph's; axes of one device say nothing, nor do meshes that have no others.
    fn sharding(&mut self, named: &NamedSharding) -> Option<TensorSharding> {
        let is_maximal = matches!(named.mesh.devices, MeshDevices::Maximal(_));
        if !is_maximal && !named.mesh.axes.is_empty() && named.mesh.size() == Some(1) {
            return None;
        }
        let mesh = self.mesh(&named.mesh);
        let mut sharding = Graph::sharding(named, mesh)?;
        sharding.dims.iter_mut().for_each(|d| d.axes.retain(|a| a.size > 1));
        sharding.replicated.retain(|a| a.size > 1);
        sharding.unreduced.retain(|a| a.size > 1);
        Some(sharding)
    }

    fn leaf_sharding(&mut self, leaf: &LeafSharding) -> Option<TensorSharding> {
        match &leaf.kind {
            ShardingKind::Named(named) => self.sharding(named),
            _ => None,
        }
    }

    /// What the program says of an instruction's leaf.
    fn given(&mut self, module: &Module, i: InstructionId, leaf: usize) -> Option<TensorSharding> {
        match module[i].common.sharding.as_deref()? {
            Sharding::Leaf(l) => self.leaf_sharding(l),
            Sharding::Tuple(all) => self.leaf_sharding(all.get(leaf)?),
        }
    }

    fn add_value(&mut self, i: InstructionId, leaf: usize, dims: Dims, given: Option<TensorSharding>) -> ValueRef {
        let given = given.filter(|s| s.dims.len() == dims.len() || self.graph.is_maximal(s.mesh));
        let value = self.graph.add_value(dims, given);
        self.owners.push((i, leaf));
        self.set(i, leaf, Some(value));
        value
    }

    fn add_leaves(&mut self, module: &Module, i: InstructionId) {
        if let Shape::Array(array) = &module[i].shape {
            self.add_leaf(module, i, 0, array);
            return;
        }
        for (leaf, (_, shape)) in module[i].shape.leaves().into_iter().enumerate() {
            let Some(array) = shape.as_array() else { continue };
            self.add_leaf(module, i, leaf, array);
        }
    }

    fn add_leaf(&mut self, module: &Module, i: InstructionId, leaf: usize, array: &ArrayShape) {
        let given = self.given(module, i, leaf);
        let value = self.add_value(i, leaf, Dims::from_slice(array.dims()), given);
        let all = module[i].common.sharding.as_deref().map_or(&[][..], |s| s.leaves());
        if let Some(group) = all.get(leaf).and_then(|l| l.group) {
            self.join(group.id, value);
        }
    }

    fn add_op(&mut self, i: InstructionId, op: GraphOp) -> OpRef {
        self.instructions.push(i);
        self.graph.add_op(op)
    }

    fn edge(&mut self, i: InstructionId, sources: &[Option<ValueRef>], target: TensorRef) -> OpRef {
        let dims = target.value.map(|v| Dims::from_slice(&self.graph.values[v.index()].dims)).unwrap_or_default();
        let ranks = Ranks::from_elem(dims.len() as u32, sources.len() + 1);
        let rule = self.rules.pointwise(dims, ranks, sources.len());
        let mut tensors: SmallVec<[TensorRef; 3]> = sources.iter().map(|&v| v.into()).collect();
        tensors.push(target);
        self.add_op(i, GraphOp { rule, tensors, class: OpClass::PassThrough, has_shared_operands: false })
    }

    fn instruction(&mut self, module: &Module, i: InstructionId) {
        let operands = module[i].operands();
        match &module[i].op {
            Op::Parameter { .. } => {
                // Parameters of loops and branches stand for what their caller gives.
                if module.entry() == Some(module[i].parent()) {
                    self.add_leaves(module, i);
                }
            }
            // A tuple whose sharding is said: its elements may differ from what it is made of.
            Op::Tuple if module[i].common.sharding.is_some() && !self.is_result(module, i) => self.handed(module, i),
            Op::Copy if module[i].shape.is_tuple() => self.handed(module, i),
            Op::Tuple => {
                let mut to = self.starts[i.index()] as usize;
                for &x in operands {
                    let (from, count) = (self.starts[x.index()] as usize, module[x].shape.leaf_count());
                    self.leaves.copy_within(from..from + count, to);
                    to += count;
                }
            }
            Op::GetTupleElement { index } => {
                let Some(&x) = operands.first() else { return };
                let first = self.element_start(module, x, usize::try_from(*index).unwrap_or(0));
                let (from, to) = (self.starts[x.index()] as usize + first, self.starts[i.index()] as usize);
                let count = module[i].shape.leaf_count();
                if from + count <= self.leaves.len() {
                    self.leaves.copy_within(from..from + count, to);
                }
            }
            Op::AddDependency => {
                if let Some(&x) = operands.first() {
                    self.alias(module, i, x);
                }
            }
            Op::OptBarrier => self.handed(module, i),
            Op::CustomCall(call) if &*call.target == "SPMDFullToShardShape" => self.full_to_shard(module, i),
            Op::CustomCall(call) if &*call.target == "SPMDShardToFullShape" => self.shard_to_full(module, i),
            Op::CustomCall(call) if &*call.target == "xla.sdy.ShardingGroup" => self.group(module, i),
            _ => {
                self.add_leaves(module, i);
                self.with_rule(module, i);
            }
        }
    }

    /// Whether an instruction only holds the results of the program.
    fn is_result(&self, module: &Module, i: InstructionId) -> bool {
        let root = module.entry().and_then(|e| module.root(e));
        let is_element = |r: InstructionId| is_shell(module, r) && module[r].operands() == [i];
        root == Some(i) || root.is_some_and(is_element)
    }

    /// Leaf by leaf what the operands are, each with a sharding of its own.
    fn handed(&mut self, module: &Module, i: InstructionId) {
        self.add_leaves(module, i);
        let sources: Vec<_> = module[i].operands().iter().flat_map(|&x| self.values(module, x).to_vec()).collect();
        let targets = self.values(module, i).to_vec();
        for (source, target) in sources.into_iter().zip(targets) {
            if target.is_some() {
                self.edge(i, &[source], target.into());
            }
        }
    }

    fn with_rule(&mut self, module: &Module, i: InstructionId) {
        let operands = module[i].operands();
        let target = match &module[i].op {
            Op::CustomCall(c) => &*c.target,
            _ => "",
        };
        let of_gspmd = match target {
            "ShardBarrierFrom" => Some(Direction::Backward),
            "ShardBarrierTo" => Some(Direction::Forward),
            _ => None,
        };
        let (rule, class) = if of_gspmd.is_some() || target == "xla.sdy.PropagationBarrier" {
            let said = module[i].common.frontend_attribute("xla.sdy.allowed_direction");
            let direction = match said {
                _ if of_gspmd.is_some() => of_gspmd.unwrap_or(Direction::None),
                Some(text) if text.contains("FORWARD") => Direction::Forward,
                Some(text) if text.contains("BACKWARD") => Direction::Backward,
                Some(text) if text.contains("BOTH") => Direction::Both,
                _ => Direction::None,
            };
            let dims = leaf_dims(&module[i].shape);
            let rule = dims.into_iter().next().map(|d| {
                let ranks = Ranks::from_elem(d.len() as u32, 2);
                self.rules.pointwise(d, ranks, 1)
            });
            (rule, OpClass::Barrier(direction))
        } else {
            (rule_of(module, i, self.tiles, &mut self.rules), class_of(module, i, self.tiles))
        };
        let Some(rule) = rule else { return };
        if self.tiles && matches!(module[i].op, Op::Scatter(_)) && self.values(module, i).len() > 1 {
            self.scatter_each(module, i, &rule);
            return;
        }
        let mut tensors: SmallVec<[TensorRef; 3]> = SmallVec::new();
        for &x in operands {
            tensors.extend(self.values(module, x).iter().map(|&v| TensorRef::from(v)));
        }
        tensors.extend(self.values(module, i).iter().map(|&v| TensorRef::from(v)));
        if tensors.len() != rule.tensors.len() {
            return;
        }
        let has_shared_operands = operands.iter().any(|&x| is_shared(module, i, x));
        self.add_op(i, GraphOp { rule, tensors, class, has_shared_operands });
    }

    /// A scatter of several arrays as one of each: GSPMD does not tie them.
    fn scatter_each(&mut self, module: &Module, i: InstructionId, rule: &crate::rules::Rule) {
        let operands: Vec<Option<ValueRef>> =
            module[i].operands().iter().flat_map(|&x| self.values(module, x).to_vec()).collect();
        let results = self.values(module, i).to_vec();
        let count = results.len();
        for (n, result) in results.into_iter().enumerate() {
            let picked = [n, count, count + 1 + n, rule.operands + n];
            let mut own = rule.clone();
            own.operands = 3;
            own.tensors = picked.iter().filter_map(|&t| rule.tensors.get(t).cloned()).collect();
            let mut tensors: SmallVec<[TensorRef; 3]> =
                picked[..3].iter().map(|&t| operands.get(t).copied().flatten().into()).collect();
            tensors.push(result.into());
            if own.tensors.len() == tensors.len() {
                let class = OpClass::Other;
                self.add_op(i, GraphOp { rule: Arc::new(own), tensors, class, has_shared_operands: false });
            }
        }
    }

    fn view(&self, outside: &TensorSharding, manual: &[u32], from_outside: bool) -> ManualView {
        let is_manual = |a: &Axis| manual.contains(&a.index);
        let dims: SmallVec<[AxisList; 4]> =
            outside.dims.iter().map(|d| d.axes.iter().copied().filter(is_manual).collect()).collect();
        let mesh = self.graph.mesh_of(outside.mesh);
        let used = |index: u32| dims.iter().flatten().any(|a: &Axis| a.index == index);
        let whole = |&index: &u32| Axis { index, pre: 1, size: mesh.axes.get(index as usize).map_or(1, |a| a.1) };
        let replicated = manual.iter().filter(|&&index| !used(index)).map(whole).filter(|a| a.size > 1).collect();
        ManualView { dims, replicated, from_outside }
    }

    /// Manual axes that are manual on one side of an edge only.
    fn own_manual(&self, inside: InstructionId, outside: InstructionId) -> Vec<u32> {
        let around = self.manual.of(outside);
        self.manual.of(inside).iter().copied().filter(|a| !around.contains(a)).collect()
    }

    /// Into a manual computation, from what its annotation constrains: the value inside is seen from outside with the
    /// manual axes in front.
    fn full_to_shard(&mut self, module: &Module, i: InstructionId) {
        self.add_leaves(module, i);
        let (Some(&placed), Some(target)) = (module[i].operands().first(), self.values(module, i)[0]) else { return };
        let annotated = self.given(module, placed, 0);
        let is_annotation = matches!(&module[placed].op, Op::CustomCall(c) if &*c.target == "Sharding");
        let source = match module[placed].operands().first() {
            Some(&x) if is_annotation => self.values(module, x).first().copied().flatten(),
            _ => self.values(module, placed).first().copied().flatten(),
        };
        let mut tensor = TensorRef::from(Some(target));
        if let Some(outside) = annotated {
            let manual = self.own_manual(i, placed);
            let view = Arc::new(self.view(&outside, &manual, true));
            self.graph.values[target.index()].sharding = Some(view.strip(&outside));
            self.views.push((placed, target, view.clone()));
            tensor.view = Some(view);
        }
        self.edge(i, &[source], tensor);
    }

    fn shard_to_full(&mut self, module: &Module, i: InstructionId) {
        self.add_leaves(module, i);
        let (Some(&placed), Some(target)) = (module[i].operands().first(), self.values(module, i)[0]) else { return };
        let is_annotation = matches!(&module[placed].op, Op::CustomCall(c) if &*c.target == "Sharding");
        let inside = match module[placed].operands().first() {
            Some(&x) if is_annotation => x,
            _ => placed,
        };
        let source = self.values(module, inside).first().copied().flatten();
        if is_annotation {
            self.set(placed, 0, source);
        }
        let mut tensor = TensorRef::from(Some(target));
        if let Some(outside) = self.graph.values[target.index()].sharding.clone() {
            let manual = self.own_manual(placed, i);
            tensor.view = Some(Arc::new(self.view(&outside, &manual, false)));
        }
        self.edge(i, &[source], tensor);
    }

    fn group(&mut self, module: &Module, i: InstructionId) {
        let id = module[i].common.frontend_attribute("xla.sdy.sharding_group_id");
        let id = id.and_then(|t| t.split_whitespace().next()?.parse::<usize>().ok()).filter(|&n| n < 1 << 20);
        let value = module[i].operands().first().and_then(|&x| self.values(module, x).first().copied().flatten());
        let (Some(id), Some(value)) = (id, value) else { return };
        self.join(id as i64, value);
    }

    /// Puts a value into a sharding group.
    fn join(&mut self, id: i64, value: ValueRef) {
        let Some(id) = usize::try_from(id).ok().filter(|&n| n < 1 << 20) else { return };
        if self.graph.groups.len() <= id {
            self.graph.groups.resize(id + 1, Vec::new());
        }
        // A value that is in two groups makes them one.
        match self.graph.values[value.index()].group {
            Some(other) if other as usize != id => {
                let moved = std::mem::take(&mut self.graph.groups[id]);
                for &member in &moved {
                    self.graph.values[member.index()].group = Some(other);
                }
                self.graph.groups[other as usize].extend(moved);
            }
            Some(_) => {}
            None => {
                self.graph.values[value.index()].group = Some(id as u32);
                self.graph.groups[id].push(value);
            }
        }
    }

    /// The state of a loop: one value for each leaf, but for what the loop only hands on, which is the value outside.
    fn enter_while(&mut self, module: &Module, i: InstructionId, body: ComputationId, condition: ComputationId) {
        let Some(&init) = module[i].operands().first() else { return };
        let outside = self.values(module, init).to_vec();
        let handed_on = handed_on(module, body);
        let parameters: Vec<InstructionId> =
            [body, condition].iter().filter_map(|&c| module.parameters(c).first().copied()).collect();
        for (leaf, (_, shape)) in module[i].shape.leaves().into_iter().enumerate() {
            let Some(array) = shape.as_array() else { continue };
            let given = self.given(module, i, leaf);
            let source = outside.get(leaf).copied().flatten();
            let invariant = handed_on.get(leaf) == Some(&true) && given.is_none();
            let value = match source.filter(|_| invariant) {
                Some(source) => match &self.graph.values[source.index()].sharding {
                    // A use inside does not force a sharding on what is annotated outside.
                    Some(s) if !s.dims.is_empty() && !s.says_nothing() => {
                        let open = TensorSharding::fully_open(s.mesh, s.dims.len());
                        let inside = self.add_value(i, leaf, Dims::from_slice(array.dims()), Some(open));
                        let op = self.edge(i, &[Some(source)], Some(inside).into());
                        self.graph.ops[op.index()].class = OpClass::Elementwise;
                        inside
                    }
                    _ => source,
                },
                None => self.add_value(i, leaf, Dims::from_slice(array.dims()), given),
            };
            // In GSPMD's order a loop begins with what it is given, not with what its body makes of that.
            if self.tiles && source.is_some() && handed_on.get(leaf) != Some(&true) {
                let op = self.edge(i, &[source], Some(value).into());
                self.graph.ops[op.index()].class = OpClass::Barrier(Direction::Forward);
            }
            self.set(i, leaf, Some(value));
            for &p in &parameters {
                self.set(p, leaf, Some(value));
            }
        }
    }

    /// After the computation number `n` of a loop or conditional.
    fn leave(&mut self, module: &Module, i: InstructionId, n: usize) {
        match &module[i].op {
            Op::While { body, .. } if n == 1 => {
                let (Some(root), Some(&init)) = (module.root(*body), module[i].operands().first()) else { return };
                let handed_on = handed_on(module, *body);
                let targets = self.values(module, i).to_vec();
                for (leaf, target) in targets.into_iter().enumerate() {
                    let sources = [init, root].map(|x| self.leaf(x, leaf));
                    if target.is_some() && handed_on.get(leaf) != Some(&true) {
                        self.edge(i, &sources, target.into());
                    }
                }
            }
            Op::Conditional { .. } | Op::Call { .. } if n + 1 == module[i].op.called_computations().len() => {
                let called = module[i].op.called_computations();
                let roots: Vec<InstructionId> = called.iter().filter_map(|&b| module.root(b)).collect();
                let targets = self.values(module, i).to_vec();
                for (leaf, target) in targets.into_iter().enumerate() {
                    let sources: Vec<_> = roots.iter().map(|&r| self.leaf(r, leaf)).collect();
                    if target.is_some() {
                        self.edge(i, &sources, target.into());
                    }
                }
            }
            _ => {}
        }
    }

    /// The results of the program have shardings of their own: those that the root says.
    fn add_results(&mut self, module: &Module, entry: ComputationId) {
        let Some(root) = module.root(entry) else { return };
        let given: Vec<Option<TensorSharding>> = match module[root].common.sharding.as_deref() {
            // A constraint at the root is an instruction's, and the result is open.
            Some(_) if is_constraint(module, root) => Vec::new(),
            Some(s) => s.leaves().to_vec().iter().map(|l| self.leaf_sharding(l)).collect(),
            None => Vec::new(),
        };
        for (leaf, source) in self.values(module, root).to_vec().into_iter().enumerate() {
            let Some(source) = source else {
                self.results.push(None);
                continue;
            };
            let dims = self.graph.values[source.index()].dims.clone();
            let own = given.get(leaf).cloned().flatten().filter(|s| s.dims.len() == dims.len());
            let result = self.graph.add_value(dims, own);
            self.owners.push((root, leaf));
            let op = self.edge(root, &[Some(source)], Some(result).into());
            self.graph.ops[op.index()].class = OpClass::Other;
            self.graph.results.push(op);
            self.results.push(Some(result));
        }
    }
}

/// Whether a root only holds results: a tuple, or the one element of a tuple made to say how it is spread.
pub(super) fn is_shell(module: &Module, root: InstructionId) -> bool {
    match &module[root].op {
        Op::Tuple => true,
        Op::GetTupleElement { .. } => {
            module[root].operands().first().is_some_and(|&t| matches!(module[t].op, Op::Tuple))
        }
        _ => false,
    }
}
