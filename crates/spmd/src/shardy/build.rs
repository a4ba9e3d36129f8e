//! The graph of a program in MLIR.
//!
//! Values that always have one sharding are one value of the graph: the result of a loop and the arguments of its regions,
//! and likewise with other edges of the data flow.

use super::State;
use super::edit::{Uses, all_ops, returned};
use super::read::{Meshes, dims, is_tensor, main_function, of_function, per_value};
use super::rules::rule_of;
use crate::axes::{Axis, AxisList};
use crate::factors::{Direction, Graph, GraphOp, ManualView, OpClass, OpRef, TensorRef, TensorSharding, ValueRef};
use crate::rules::identity;
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::diagnostic::codes::spmd as codes;
use hloom_stablehlo::mlir::{AttrId, Module, OpId, OpKind, RegionId, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::sync::Arc;

/// Calls are followed no deeper than this where they stand; deeper functions come after.
const MAX_CALL_DEPTH: usize = 64;

/// Where the sharding of a value is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Store {
    Argument(OpId, usize),
    FunctionResult(OpId, usize),
    Result(OpId, usize),
    Attribute(OpId),
    In(OpId, usize),
    Out(OpId, usize),
}

/// The graph of a program, and what its values stand for.
pub(super) struct Built {
    pub graph: Graph,
    pub meshes: Meshes,
    /// For each value of the graph, where its sharding is written.
    pub stores: Vec<Store>,
    /// How the arguments of manual computations look from outside.
    pub views: FxHashMap<ValueRef, Arc<ManualView>>,
    /// The rule of each operation that has one of its own.
    pub rules: Vec<(OpId, OpRef)>,
}

struct Builder<'m, 'a> {
    m: &'m Module<'a>,
    uses: Uses,
    state: State,
    built: Built,
    values: Vec<Option<ValueRef>>,
    /// The edge that is written for a value, where edges are operations.
    edge_of: FxHashMap<ValueId, OpId>,
    /// Who calls each function.
    callers: FxHashMap<&'m str, Vec<OpId>>,
    functions: FxHashMap<&'m str, OpId>,
    visited: FxHashSet<OpId>,
    groups: FxHashMap<i64, u32>,
    late: Vec<(Vec<ValueId>, ValueRef)>,
    errors: Vec<Diagnostic>,
}

impl Built {
    pub(super) fn new(m: &Module<'_>, state: State) -> Result<Built, Vec<Diagnostic>> {
        let built = Built {
            graph: Graph::default(),
            meshes: Meshes::default(),
            stores: Vec::new(),
            views: FxHashMap::default(),
            rules: Vec::new(),
        };
        let mut edge_of = FxHashMap::default();
        let mut callers: FxHashMap<&str, Vec<OpId>> = FxHashMap::default();
        for op in all_ops(m) {
            match m.kind(op) {
                OpKind::SdyDataFlowEdge => {
                    m.op(op).operands.first().map(|&owner| edge_of.insert(owner, op));
                }
                OpKind::Call => {
                    if let Some(name) = m.string_attr(op, "callee") {
                        callers.entry(name).or_default().push(op);
                    }
                }
                _ => {}
            }
        }
        let mut builder = Builder {
            m,
            uses: Uses::new(m),
            state,
            built,
            values: vec![None; m.values.len()],
            edge_of,
            callers,
            functions: m.functions().collect(),
            visited: FxHashSet::default(),
            groups: FxHashMap::default(),
            late: Vec::new(),
            errors: Vec::new(),
        };
        let main = main_function(m);
        if state.call_edges
            && let Some(main) = main
        {
            builder.function(main, true, 0);
        }
        for (_, function) in m.functions() {
            builder.function(function, Some(function) == main, 0);
        }
        for (sources, target) in std::mem::take(&mut builder.late) {
            builder.edge(&sources, Some(target).into());
        }
        if builder.errors.is_empty() { Ok(builder.built) } else { Err(builder.errors) }
    }
}

impl Builder<'_, '_> {
    fn add(&mut self, like: ValueId, sharding: Option<AttrId>, store: Store, at: OpId) -> Option<ValueRef> {
        if !is_tensor(self.m, like) {
            return None;
        }
        let rank = dims(self.m, like).len();
        let sharding = sharding.and_then(|id| self.sharding(id, rank, at));
        let value = self.built.graph.add_value(dims(self.m, like), sharding);
        self.built.stores.push(store);
        self.values[like.index()] = Some(value);
        Some(value)
    }

    /// The sharding in an attribute; one that does not fit is reported.
    fn sharding(&mut self, id: AttrId, rank: usize, at: OpId) -> Option<TensorSharding> {
        let found = self.built.meshes.sharding(self.m, &mut self.built.graph, id);
        let is_maximal = |s: &TensorSharding| self.built.graph.is_maximal(s.mesh);
        let problem = match &found {
            None => "names a mesh or an axis that is not there",
            Some(s) if s.dims.len() != rank && !is_maximal(s) => "is for another number of dimensions",
            Some(s) if !crate::factors::engine::no_axis_twice(s) => "uses an axis twice",
            Some(_) => return found,
        };
        let text = self.m.attr_text(id);
        let message = format!("the sharding {text} of {} {problem}", self.m.op_name(at));
        self.errors.push(Diagnostic::error(&codes::BAD_SHARDING, message).at(self.m.op(at).span));
        None
    }

    fn tensor(&self, value: ValueId) -> TensorRef {
        self.values[value.index()].into()
    }

    /// Whether an operand that can be cut has other uses.
    fn shares_operands(&self, op: OpId) -> bool {
        let shared = |&v: &ValueId| self.uses.users(v).len() != 1 && !dims(self.m, v).is_empty();
        self.m.op(op).operands.iter().any(shared)
    }

    /// An edge of the data flow: the values that flow into `target`.
    fn edge(&mut self, sources: &[ValueId], target: TensorRef) -> OpRef {
        let shape = target.value.map(|v| self.built.graph.values[v.index()].dims.clone()).unwrap_or_default();
        let mut tensors: SmallVec<[TensorRef; 3]> = sources.iter().map(|&v| self.tensor(v)).collect();
        tensors.push(target);
        let rule = Arc::new(identity(&shape, sources.len(), 1));
        self.built.graph.add_op(GraphOp { rule, tensors, class: OpClass::PassThrough, has_shared_operands: false })
    }

    fn function(&mut self, function: OpId, is_main: bool, depth: usize) {
        let m = self.m;
        let Some(&region) = m.op(function).regions.first() else { return };
        if !self.visited.insert(function) {
            return;
        }
        let name = m.string_attr(function, "sym_name").unwrap_or("");
        let callers = self.callers.get(name).cloned().unwrap_or_default();
        for (i, value) in m.arguments(region).map(ValueId).enumerate() {
            let given = of_function(m, function, "arg_attrs", i);
            let added = self.add(value, given, Store::Argument(function, i), function);
            if self.state.call_edges
                && let Some(target) = added
                && !callers.is_empty()
            {
                let sources: Vec<ValueId> = callers.iter().filter_map(|&c| m.op(c).operands.get(i).copied()).collect();
                self.call_edge(sources, target);
            }
        }
        self.region(region, depth);
        if is_main {
            for (i, value) in returned(m, region).into_iter().enumerate() {
                self.result(function, i, value);
            }
        }
    }

    /// A result of the program, which has a sharding besides that of the value it is.
    fn result(&mut self, function: OpId, i: usize, value: ValueId) {
        let Some(source) = self.values[value.index()] else { return };
        let given = of_function(self.m, function, "res_attrs", i);
        let Some(result) = self.add(value, given, Store::FunctionResult(function, i), function) else { return };
        self.values[value.index()] = Some(source);
        let op = self.edge(&[value], Some(result).into());
        self.built.graph.ops[op.index()].class = OpClass::Other;
        self.built.graph.results.push(op);
    }

    fn region(&mut self, region: RegionId, depth: usize) {
        let m = self.m;
        for block in &m.region(region).blocks {
            for &op in &block.ops {
                self.operation(op, depth);
            }
        }
    }

    fn operation(&mut self, op: OpId, depth: usize) {
        use OpKind as K;
        let m = self.m;
        let node = m.op(op);
        match m.kind(op) {
            K::While => {
                let (Some(&cond), Some(&body)) = (node.regions.first(), node.regions.get(1)) else { return };
                self.data_flow(op, &[cond, body], depth);
            }
            K::Case | K::If => self.data_flow(op, &node.regions.clone(), depth),
            K::OptimizationBarrier => self.data_flow(op, &[], depth),
            K::SdyManualComputation | K::SdyNamedComputation => self.computation(op, depth),
            K::SdyDataFlowEdge => {}
            K::SdyFuncDataFlowEdge => self.func_edge(op),
            K::Call => self.call(op, depth),
            K::SdyShardingGroup => self.group(op),
            kind => {
                for (i, value) in node.results().enumerate() {
                    match kind {
                        K::SdyShardingConstraint | K::SdyReshard => {
                            self.add(value, m.find(op, "sharding"), Store::Attribute(op), op);
                        }
                        _ => {
                            let given = per_value(m, op, "sdy.sharding", i);
                            self.add(value, given, Store::Result(op, i), op);
                        }
                    }
                }
                self.with_rule(op, kind);
            }
        }
    }

    fn with_rule(&mut self, op: OpId, kind: OpKind) {
        use OpKind as K;
        let m = self.m;
        let node = m.op(op);
        let (rule, class) = match kind {
            K::SdyPropagationBarrier => {
                let direction = match m.string_attr(op, "allowed_direction") {
                    Some("FORWARD") => Direction::Forward,
                    Some("BACKWARD") => Direction::Backward,
                    Some("BOTH") => Direction::Both,
                    _ => Direction::None,
                };
                let Some(&x) = node.operands.first() else { return };
                (Some(identity(&dims(m, x), 1, 1)), OpClass::Barrier(direction))
            }
            _ => (rule_of(m, op, &self.uses), self.class_of(op, kind)),
        };
        let Some(rule) = rule else { return };
        let tensors = node.operands.iter().copied().chain(node.results()).map(|v| self.tensor(v)).collect();
        let has_shared_operands = self.shares_operands(op);
        let op_ref = self.built.graph.add_op(GraphOp { rule: Arc::new(rule), tensors, class, has_shared_operands });
        self.built.rules.push((op, op_ref));
    }

    fn class_of(&self, op: OpId, kind: OpKind) -> OpClass {
        use OpKind as K;
        match kind {
            K::SdyShardingConstraint | K::SdyReshard => OpClass::Elementwise,
            K::BitcastConvert => {
                let node = self.m.op(op);
                let same = node.operands.first().map(|&v| dims(self.m, v)) == Some(dims(self.m, node.first_result));
                if same { OpClass::Elementwise } else { OpClass::Other }
            }
            _ if kind.is_elementwise() => OpClass::Elementwise,
            K::Reshape | K::Transpose => OpClass::PassThrough,
            K::DynamicSlice | K::DynamicUpdateSlice => OpClass::DynamicSlice,
            K::BroadcastInDim => OpClass::Broadcast,
            K::CustomCall => match self.m.string_attr(op, "call_target_name") {
                Some("MoveToHost" | "MoveToDevice") => OpClass::PassThrough,
                _ => OpClass::Other,
            },
            _ => OpClass::Other,
        }
    }

    /// A loop, a conditional or a barrier: each result is one with the arguments of the regions that stand for it, and what
    /// the regions give (and the operands, but for conditionals) flows into it.
    fn data_flow(&mut self, op: OpId, regions: &[RegionId], depth: usize) {
        let m = self.m;
        let node = m.op(op);
        let kind = m.kind(op);
        let is_loop = kind == OpKind::While;
        let results: Vec<ValueId> = node.results().collect();
        let mut targets = vec![None; results.len()];
        for (i, &value) in results.iter().enumerate() {
            let edge = self.edge_of.get(&value).copied();
            if edge.is_none() && !self.state.edges {
                continue;
            }
            let (given, store) = match edge {
                Some(edge) => (m.find(edge, "sharding"), Store::Attribute(edge)),
                None => (per_value(m, op, "sdy.sharding", i), Store::Result(op, i)),
            };
            targets[i] = self.add(value, given, store, op);
            if let Some(edge) = edge {
                self.values[m.op(edge).first_result.index()] = targets[i];
            }
            if is_loop {
                for &region in regions {
                    if let Some(argument) = m.arguments(region).nth(i) {
                        self.values[argument as usize] = targets[i];
                    }
                }
            }
        }
        for &region in regions {
            self.region(region, depth);
        }
        let given: Vec<SmallVec<[ValueId; 4]>> = match is_loop {
            true => regions.get(1).map(|&body| returned(m, body)).into_iter().collect(),
            false => regions.iter().map(|&r| returned(m, r)).collect(),
        };
        for (i, target) in targets.into_iter().enumerate() {
            let Some(target) = target else { continue };
            let mut sources: Vec<ValueId> = Vec::new();
            if is_loop || kind == OpKind::OptimizationBarrier {
                sources.extend(node.operands.get(i));
            }
            sources.extend(given.iter().filter_map(|values| values.get(i)));
            self.edge(&sources, Some(target).into());
        }
    }

    /// The manual axes at the edge of a manual computation.
    fn view(&self, sharding: &TensorSharding, manual: &[u32], from_outside: bool) -> ManualView {
        let is_manual = |a: &Axis| manual.contains(&a.index);
        let dims: SmallVec<[AxisList; 4]> =
            sharding.dims.iter().map(|d| d.axes.iter().copied().filter(is_manual).collect()).collect();
        let mesh = self.built.graph.mesh_of(sharding.mesh);
        let used = |index: u32| dims.iter().flatten().any(|a: &Axis| a.index == index);
        let replicated = manual.iter().filter(|&&index| !used(index));
        let whole = |&index: &u32| Axis { index, pre: 1, size: mesh.axes[index as usize].1 };
        let replicated = replicated.map(whole).filter(|a| a.size > 1).collect();
        ManualView { dims, replicated, from_outside }
    }

    fn manual_axes(&self, op: OpId, sharding: &TensorSharding) -> Vec<u32> {
        let names = self.m.find(op, "manual_axes").and_then(|id| self.m.field(id, "axes"));
        let names = names.map_or(&[][..], |id| self.m.list(id));
        let mesh = self.built.graph.mesh_of(sharding.mesh);
        let axis = |&id: &AttrId| {
            let name = self.m.as_str(id)?;
            mesh.axes.iter().position(|(n, _)| **n == *name).map(|i| i as u32)
        };
        names.iter().filter_map(axis).collect()
    }

    /// A manual or named computation: its arguments and results have shardings of their own, in and out.
    fn computation(&mut self, op: OpId, depth: usize) {
        let m = self.m;
        let node = m.op(op);
        let Some(&region) = node.regions.first() else { return };
        for (i, argument) in m.arguments(region).map(ValueId).enumerate() {
            let edge = self.edge_of.get(&argument).copied();
            if edge.is_none() && !self.state.edges {
                continue;
            }
            let given = match edge.and_then(|e| m.find(e, "sharding")) {
                Some(given) => Some(given),
                None => per_value(m, op, "in_shardings", i),
            };
            let store = edge.map_or(Store::In(op, i), Store::Attribute);
            let Some(target) = self.add(argument, given, store, op) else { continue };
            let mut tensor = TensorRef::from(Some(target));
            if let Some(sharding) = self.built.graph.values[target.index()].sharding.clone() {
                let manual = self.manual_axes(op, &sharding);
                let view = Arc::new(self.view(&sharding, &manual, true));
                self.built.graph.values[target.index()].sharding = Some(view.strip(&sharding));
                self.built.views.insert(target, view.clone());
                tensor.view = Some(view);
            }
            if let Some(edge) = edge {
                self.values[m.op(edge).first_result.index()] = Some(target);
            }
            let source = node.operands.get(i).copied();
            self.edge(source.as_slice(), tensor);
        }
        self.region(region, depth);
        let given = returned(m, region);
        for (i, value) in node.results().enumerate() {
            let edge = self.edge_of.get(&value).copied();
            if edge.is_none() && !self.state.edges {
                continue;
            }
            let own = edge.and_then(|e| m.find(e, "sharding"));
            let attribute = own.or_else(|| per_value(m, op, "out_shardings", i));
            let store = edge.map_or(Store::Out(op, i), Store::Attribute);
            let Some(target) = self.add(value, attribute, store, op) else { continue };
            let mut tensor = TensorRef::from(Some(target));
            if let Some(sharding) = self.built.graph.values[target.index()].sharding.clone() {
                let manual = self.manual_axes(op, &sharding);
                tensor.view = Some(Arc::new(self.view(&sharding, &manual, false)));
            }
            if let Some(edge) = edge {
                self.values[m.op(edge).first_result.index()] = Some(target);
            }
            self.edge(given.get(i).map_or(&[][..], std::slice::from_ref), tensor);
        }
    }

    fn call(&mut self, op: OpId, depth: usize) {
        let m = self.m;
        for (i, value) in m.op(op).results().enumerate() {
            let given = per_value(m, op, "sdy.sharding", i);
            self.add(value, given, Store::Result(op, i), op);
        }
        if !self.state.call_edges || depth >= MAX_CALL_DEPTH {
            return;
        }
        let callee = m.string_attr(op, "callee").and_then(|name| self.functions.get(name)).copied();
        let Some(callee) = callee else { return };
        self.function(callee, false, depth + 1);
        let given = m.op(callee).regions.first().map(|&r| returned(m, r)).unwrap_or_default();
        for (value, source) in m.op(op).results().zip(given) {
            if let Some(target) = self.values[value.index()] {
                self.edge(&[source], Some(target).into());
            }
        }
    }

    /// An edge between a function and its callers, where such edges are operations.
    fn func_edge(&mut self, op: OpId) {
        let m = self.m;
        let node = m.op(op);
        let given = per_value(m, op, "sdy.sharding", 0);
        let Some(target) = self.add(node.first_result, given, Store::Result(op, 0), op) else { return };
        let Some(&x) = node.operands.first() else { return };
        let mut sources: Vec<ValueId> = Vec::new();
        match self.uses.def[x.index()] {
            Some(call) => {
                let number = x.0 - m.op(call).first_result.0;
                let callee = m.string_attr(call, "callee").and_then(|name| self.functions.get(name)).copied();
                let region = callee.and_then(|f| m.op(f).regions.first().copied());
                sources.extend(region.and_then(|r| returned(m, r).get(number as usize).copied()));
            }
            None => {
                let owner = m.functions().find_map(|(name, f)| {
                    let arguments = m.arguments(*m.op(f).regions.first()?);
                    arguments.contains(&x.0).then(|| (name, (x.0 - arguments.start) as usize))
                });
                let Some((name, number)) = owner else { return };
                let callers = self.callers.get(name).cloned().unwrap_or_default();
                sources.extend(callers.iter().filter_map(|&c| m.op(c).operands.get(number)));
            }
        }
        self.call_edge(sources, target);
    }

    /// An edge of a call. Callers may come later: then it waits until all of the program is known.
    fn call_edge(&mut self, sources: Vec<ValueId>, target: ValueRef) {
        if sources.iter().all(|v| self.values[v.index()].is_some()) {
            self.edge(&sources, Some(target).into());
        } else {
            self.late.push((sources, target));
        }
    }

    fn group(&mut self, op: OpId) {
        let m = self.m;
        let (Some(&x), Some(id)) = (m.op(op).operands.first(), m.find(op, "group_id").and_then(|g| m.as_int(g))) else {
            return;
        };
        let Some(value) = self.values[x.index()] else { return };
        let next = self.built.graph.groups.len() as u32;
        let group = *self.groups.entry(id).or_insert(next);
        if group == next {
            self.built.graph.groups.push(Vec::new());
        }
        let members = &mut self.built.graph.groups[group as usize];
        if !members.contains(&value) {
            members.push(value);
        }
        self.built.graph.values[value.index()].group = Some(group);
    }
}
