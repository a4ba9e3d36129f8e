//! Collectives that JAX writes as two custom calls, one that starts it and one that waits for its result.
//!
//! What the operation has as attributes is the text of a JSON object here. The start becomes the collective itself, and
//! the other call its result: which collectives run beside other work is decided when the program is scheduled.

use super::{Translate, Translator};
use hloom_ir::Op;
use hloom_ir::device_list::ReplicaGroups;
use hloom_ir::diagnostic::codes::mlir as codes;
use hloom_ir::entity::ComputationId;
use hloom_ir::op::{AllGather, AllReduce, Collective, CollectivePermute, ReduceScatter};
use serde_json::Value;

/// The attribute that holds the rest.
const CONFIG: &str = "async_collective_config";

const STARTS: [&str; 5] =
    ["all-gather-start", "all-reduce-start", "reduce-scatter-start", "all-to-all-start", "collective-permute-start"];
const DONES: [&str; 5] =
    ["all-gather-done", "all-reduce-done", "reduce-scatter-done", "all-to-all-done", "collective-permute-done"];

impl Translator<'_, '_> {
    /// Translates a call that is one of the two; says whether it was.
    pub(super) fn async_call(&mut self, target: &str) -> Translate<bool> {
        if DONES.contains(&target) {
            let value = self.operand(0)?;
            let wanted = self.result_shape(0)?;
            if *self.shape(value) != wanted {
                return Err(self.error(&codes::BAD_OPERANDS, "what is waited for has another shape"));
            }
            self.bind(value)?;
            return Ok(true);
        }
        let m = self.m;
        let attributes = m.find(self.at, "mhlo.frontend_attributes").filter(|_| STARTS.contains(&target));
        let Some(text) = attributes.and_then(|a| m.field(a, CONFIG)).and_then(|id| m.as_str(id)) else {
            return Ok(false);
        };
        let bad = |t: &Self| t.bad_attribute(CONFIG, "the JSON object of a collective");
        let config: Value = serde_json::from_str(text).map_err(|_| bad(self))?;
        let int = |name: &str| config.get(name).and_then(Value::as_i64).ok_or_else(|| bad(self));
        let channel_id = config.get("channel_id").and_then(Value::as_i64).filter(|&id| id != 0);
        let op = match target {
            "collective-permute-start" => {
                let pairs = lists(config.get("permutation")).ok_or_else(|| bad(self))?;
                let pair = |p: &Vec<i64>| <[i64; 2]>::try_from(&p[..]).map(|[a, b]| (a, b)).ok();
                let source_target_pairs = pairs.iter().map(pair).collect::<Option<_>>().ok_or_else(|| bad(self))?;
                Op::CollectivePermute(Box::new(CollectivePermute {
                    channel_id,
                    source_target_pairs,
                    slice_sizes: Vec::new(),
                }))
            }
            _ => {
                let groups = lists(config.get("replica_groups")).ok_or_else(|| bad(self))?;
                // Shorter groups are filled up with -1.
                let group = |g: Vec<i64>| g.into_iter().filter(|&d| d >= 0).collect();
                let collective = Collective {
                    channel_id,
                    replica_groups: ReplicaGroups::Explicit(groups.into_iter().map(group).collect()),
                    constrain_layout: false,
                    use_global_device_ids: config.get("use_global_device_ids").and_then(Value::as_bool) == Some(true),
                    mode: None,
                };
                match target {
                    "all-gather-start" => {
                        Op::AllGather(Box::new(AllGather { collective, dimension: int("all_gather_dimension")? }))
                    }
                    "all-reduce-start" => {
                        Op::AllReduce(Box::new(AllReduce { collective, to_apply: self.called_reducer()? }))
                    }
                    "reduce-scatter-start" => {
                        let (dimension, to_apply) = (int("scatter_dimension")?, self.called_reducer()?);
                        Op::ReduceScatter(Box::new(ReduceScatter { collective, dimension, to_apply }))
                    }
                    _ => {
                        let (split, concat) = (int("split_dimension")?, int("concat_dimension")?);
                        let count = int("split_count")?;
                        let x = self.operand(0)?;
                        let result = self.one_all_to_all(x, collective, split, concat, count)?;
                        self.bind(result)?;
                        return Ok(true);
                    }
                }
            }
        };
        self.plain(1, op)?;
        Ok(true)
    }

    /// The function that the call names.
    fn called_reducer(&self) -> Translate<ComputationId> {
        let m = self.m;
        let callee = self.attr("called_computations").and_then(|id| m.list(id).first().copied());
        let function = callee.and_then(|c| m.as_str(c)).and_then(|name| self.functions.get(name));
        let found = function.and_then(|f| self.translated.get(f)).copied();
        found.ok_or_else(|| self.bad_attribute("called_computations", "a list of one function"))
    }
}

/// A list of lists of numbers.
fn lists(value: Option<&Value>) -> Option<Vec<Vec<i64>>> {
    let list = |v: &Value| v.as_array()?.iter().map(Value::as_i64).collect::<Option<Vec<i64>>>();
    value?.as_array()?.iter().map(list).collect()
}
