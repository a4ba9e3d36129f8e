//! From a program that shows a fault to the smallest that still does.
//!
//! The caller brings an [`Oracle`] that says whether a case still shows the fault; nothing here knows what a fault is,
//! nor runs anything. What is tried, from the coarse to the fine: one device; parts of the result; the first part of the
//! program; the last part of it, from values that the oracle's reference gives; calls, fusions, loops and branches written
//! out; single instructions left out; smaller shapes; plainer numbers; attributes dropped. A case that is no smaller is
//! never taken, so that it ends; the best so far is handed out whenever there is a better one, and after that the search
//! can be stopped at any time and begun again from there.

mod case;
mod shapes;
mod steps;
mod values;

#[cfg(test)]
mod tests;

pub use case::{Case, Size};

use hloom_ir::entity::InstructionId;
use hloom_value::Value;
use rustc_hash::FxHashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};

/// What tells whether a case shows the fault.
pub trait Oracle: Sync {
    /// Whether the case still shows it. The module is valid.
    fn is_interesting(&self, case: &Case) -> bool;

    /// The result of each device, by what is held to be right; `None` if it cannot be had. Without a reference, values in
    /// the middle of the program are not known, and it cannot be cut there.
    fn reference(&self, case: &Case) -> Option<Vec<Value>>;

    /// Whether the result of the program may be replaced by values in the middle of it, and the inputs changed. Not so
    /// where it is held against results that someone wrote down.
    fn may_cut(&self) -> bool {
        true
    }
}

/// What a search is given besides the case.
pub struct Settings<'s> {
    /// How many candidates are tried at once.
    pub workers: usize,
    /// Ends the search when it is raised.
    pub stop: &'s AtomicBool,
    /// Is told of each better case.
    pub on_better: &'s mut (dyn FnMut(&Case, Progress) + Send),
}

/// How far a search has come.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Progress {
    /// Candidates that were tried.
    pub tried: usize,
    /// Candidates that were better.
    pub better: usize,
}

/// Makes `case` as small as can be found. It must show the fault itself.
pub fn reduce(case: Case, oracle: &dyn Oracle, settings: &mut Settings<'_>) -> (Case, Progress) {
    let mut pruned = case.clone();
    pruned.prune();
    let mut search = Search {
        size: case.size(),
        best: case,
        oracle,
        workers: settings.workers.max(1),
        stop: settings.stop,
        on_better: settings.on_better,
        tried: FxHashSet::default(),
        progress: Progress::default(),
    };
    search.take_if_interesting(pruned);
    let mut before = None;
    while before != Some(search.size) && !search.stopped() {
        before = Some(search.size);
        steps::round(&mut search);
    }
    (search.best, search.progress)
}

/// A search at work.
struct Search<'s> {
    best: Case,
    size: Size,
    oracle: &'s dyn Oracle,
    workers: usize,
    stop: &'s AtomicBool,
    on_better: &'s mut (dyn FnMut(&Case, Progress) + Send),
    /// What was found to be of no interest.
    tried: FxHashSet<u64>,
    progress: Progress,
}

impl Search<'_> {
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Tries candidates, several at once, and takes the first that is interesting; says which one that was. Candidates
    /// that are no smaller, invalid or known are passed over.
    fn take_first(&mut self, candidates: Vec<Case>) -> Option<usize> {
        let mut waiting: Vec<(usize, u64, Case)> = Vec::new();
        let mut numbered = candidates.into_iter().enumerate().peekable();
        while numbered.peek().is_some() && !self.stopped() {
            waiting.clear();
            while waiting.len() < self.workers {
                let Some((n, candidate)) = numbered.next() else { break };
                if candidate.size() < self.size && candidate.verified().is_some() {
                    let key = fingerprint(&candidate);
                    if !self.tried.contains(&key) {
                        waiting.push((n, key, candidate));
                    }
                }
            }
            let oracle = self.oracle;
            let verdicts: Vec<bool> = std::thread::scope(|scope| {
                let threads: Vec<_> =
                    waiting.iter().map(|(_, _, c)| scope.spawn(move || oracle.is_interesting(c))).collect();
                threads.into_iter().map(|t| t.join().unwrap_or(false)).collect()
            });
            self.progress.tried += waiting.len();
            let first = verdicts.iter().position(|&v| v);
            for (n, (_, key, _)) in waiting.iter().enumerate() {
                if !verdicts[n] {
                    self.tried.insert(*key);
                }
            }
            if let Some(first) = first {
                let (n, _, case) = waiting.swap_remove(first);
                self.accept(case);
                return Some(n);
            }
        }
        None
    }

    fn accept(&mut self, case: Case) {
        self.size = case.size();
        self.best = case;
        self.progress.better += 1;
        (self.on_better)(&self.best, self.progress);
    }

    fn take_if_interesting(&mut self, candidate: Case) -> bool {
        self.take_first(vec![candidate]).is_some()
    }

    /// Goes through positions of the best case, and stays where it is after each success: what was there is gone. `make`
    /// gives the candidates for a position.
    fn sweep(&mut self, count: impl Fn(&Case) -> usize, make: impl Fn(&Case, usize) -> Vec<Case>) {
        let mut position = 0;
        while position < count(&self.best) && !self.stopped() {
            let end = (position + self.workers).min(count(&self.best));
            let batch: Vec<Vec<Case>> = (position..end).map(|p| make(&self.best, p)).collect();
            let mut owners = Vec::new();
            let mut candidates = Vec::new();
            for (p, made) in (position..end).zip(batch) {
                owners.extend(std::iter::repeat_n(p, made.len()));
                candidates.extend(made);
            }
            position = match self.take_first(candidates) {
                Some(n) => owners[n],
                None => end,
            };
        }
    }

    /// The least number in `1..=count` for which `make` gives an interesting case, if a larger one gives one whenever a
    /// smaller one does; the case is taken. Several numbers are tried at once.
    fn least(&mut self, count: usize, make: impl Fn(&Case, usize) -> Option<Case> + Sync) {
        let start = self.best.clone();
        let (mut low, mut high) = (0, count);
        // `low` gives none, `high` is the case as it is.
        while high - low > 1 && !self.stopped() {
            let parts = (self.workers + 1).min(high - low);
            let mut points: Vec<usize> = (1..parts).map(|k| low + (high - low) * k / parts).collect();
            points.retain(|&p| p > low && p < high);
            points.dedup();
            if points.is_empty() {
                points.push(low + (high - low) / 2);
            }
            let oracle = self.oracle;
            let (make, start) = (&make, &start);
            let verdicts: Vec<Option<Case>> = std::thread::scope(|scope| {
                let try_one = move |p: usize| {
                    let candidate = make(start, p)?;
                    (candidate.verified().is_some() && oracle.is_interesting(&candidate)).then_some(candidate)
                };
                let threads: Vec<_> = points.iter().map(|&p| scope.spawn(move || try_one(p))).collect();
                threads.into_iter().map(|t| t.join().unwrap_or(None)).collect()
            });
            self.progress.tried += points.len();
            let mut found = None;
            for (&p, verdict) in points.iter().zip(verdicts) {
                match verdict {
                    Some(case) => {
                        found = Some((p, case));
                        break;
                    }
                    None => low = p,
                }
            }
            if let Some((p, case)) = found {
                high = p;
                if case.size() < self.size {
                    self.accept(case);
                }
            }
        }
    }
}

/// What the instructions `at` of the entry hold, by device, by the reference.
fn values_at(oracle: &dyn Oracle, case: &Case, at: &[InstructionId]) -> Option<Vec<Vec<Value>>> {
    if at.is_empty() {
        return Some(vec![Vec::new(); case.inputs.len()]);
    }
    let results = oracle.reference(&case.with_results(at)?)?;
    let each = |value: Value| match (at.len(), value) {
        (1, value) => Some(vec![value]),
        (_, Value::Tuple(elements)) => Some(elements),
        _ => None,
    };
    results.into_iter().map(each).collect()
}

fn fingerprint(case: &Case) -> u64 {
    let mut hasher = DefaultHasher::new();
    case.text().hash(&mut hasher);
    for leaf in case.inputs.iter().flatten().flat_map(Value::leaves) {
        if let Ok(array) = leaf.as_array() {
            array.dims().hash(&mut hasher);
            array.bytes().hash(&mut hasher);
        }
    }
    hasher.finish()
}
