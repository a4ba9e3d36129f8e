//! What operations were found to hand on, by their rule and the shardings of their values.
//!
//! A program has few shardings, and many of its operations share a rule: they ask the same over and over. Kept true: an
//! answer is what [`super::engine`] would work out.

use super::graph::{Direction, Graph, GraphOp, OpClass, TensorSharding, ValueRef};
use crate::rules::{FactorKind, Rule};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::sync::Arc;

/// In which direction an operation hands axes on along its factors: those that pass through, and the others.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Along {
    pub pass: Direction,
    pub other: Direction,
}

impl Along {
    pub(super) fn by(of: impl Fn(FactorKind) -> Direction) -> Along {
        Along { pass: of(FactorKind::PassThrough), other: of(FactorKind::Reduction) }
    }
    pub(super) fn of(self, kind: FactorKind) -> Direction {
        if kind == FactorKind::PassThrough { self.pass } else { self.other }
    }
    pub(super) fn is_none(self) -> bool {
        self.pass == Direction::None && self.other == Direction::None
    }
}

/// The number of a sharding; 0 for none. Two are equal where the shardings are.
pub(super) type Number = u32;

/// New shardings of an operation's arrays, by their places among them.
pub(super) type Updates = SmallVec<[(u32, Number); 2]>;

/// What an operation may hand on.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct Question {
    /// The rule, by its address: the graph keeps it.
    rule: *const Rule,
    elementwise: bool,
    along: Along,
    shardings: SmallVec<[Number; 6]>,
}

/// What is known of one graph, while nothing but propagation changes its shardings.
pub(super) struct Memo {
    shardings: Vec<TensorSharding>,
    numbers: FxHashMap<TensorSharding, Number>,
    /// The number of the sharding of each value, where it is known.
    of: Vec<Option<Number>>,
    answers: FxHashMap<Question, Updates>,
}

impl Memo {
    pub(super) fn new(graph: &Graph) -> Memo {
        let number = |sharding: &Option<TensorSharding>| if sharding.is_none() { Some(0) } else { None };
        Memo {
            shardings: Vec::new(),
            numbers: FxHashMap::default(),
            of: graph.values.iter().map(|v| number(&v.sharding)).collect(),
            answers: FxHashMap::with_capacity_and_hasher(graph.ops.len(), Default::default()),
        }
    }

    /// The number of a sharding.
    pub(super) fn number(&mut self, sharding: TensorSharding) -> Number {
        if let Some(&number) = self.numbers.get(&sharding) {
            return number;
        }
        self.shardings.push(sharding.clone());
        let number = self.shardings.len() as Number;
        self.numbers.insert(sharding, number);
        number
    }

    /// The sharding of a number.
    pub(super) fn sharding(&self, number: Number) -> Option<&TensorSharding> {
        self.shardings.get((number as usize).checked_sub(1)?)
    }

    /// The question that an operation is; `None` at the edge of a manual computation, where values look otherwise.
    pub(super) fn question(&mut self, graph: &Graph, op: &GraphOp, along: Along) -> Option<Question> {
        let mut shardings = SmallVec::new();
        for tensor in &op.tensors {
            if tensor.view.is_some() {
                return None;
            }
            shardings.push(tensor.value.map_or(0, |v| self.of_value(graph, v)));
        }
        let elementwise = op.class == OpClass::Elementwise;
        Some(Question { rule: Arc::as_ptr(&op.rule), elementwise, along, shardings })
    }

    /// The number of a value's sharding.
    pub(super) fn of_value(&mut self, graph: &Graph, value: ValueRef) -> Number {
        if let Some(number) = self.of[value.index()] {
            return number;
        }
        let number = graph.values[value.index()].sharding.as_ref().map_or(0, |s| self.number(s.clone()));
        self.of[value.index()] = Some(number);
        number
    }

    /// What was answered before.
    pub(super) fn answer(&self, question: &Question) -> Option<Updates> {
        self.answers.get(question).map(|known| SmallVec::from_slice(known))
    }

    pub(super) fn remember(&mut self, question: Question, updates: &Updates) {
        self.answers.insert(question, SmallVec::from_slice(updates));
    }

    /// The sharding of a value has become that one.
    pub(super) fn set(&mut self, value: ValueRef, number: Number) {
        self.of[value.index()] = Some(number);
    }
}
