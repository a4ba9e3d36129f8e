//! Operations without regions in their own forms.

use super::{Printer, Shown};
use crate::mlir::print::{is_bare, write_string};
use crate::mlir::{Attr, OpId};
use std::fmt::Write;

impl Printer<'_, '_> {
    /// `op %a, %b<parts> {attributes} : type`.
    pub(super) fn plain(&mut self, op: OpId, shown: Shown, parts: &str) {
        let name = self.m.op_name(op).to_owned();
        self.text(&name);
        let operands = self.m.op(op).operands.clone();
        if !operands.is_empty() {
            self.text(" ");
            self.values(&operands);
        }
        self.text(parts);
        self.dictionary(op, shown);
        self.short_type(op);
    }

    pub(super) fn with_ints(&mut self, op: OpId, key: &str, name: &'static str) -> bool {
        let Some(ints) = self.ints(op, name) else { return false };
        let shown: Shown = match name {
            "broadcast_dimensions" => &["broadcast_dimensions"],
            "permutation" => &["permutation"],
            "slice_sizes" => &["slice_sizes"],
            _ => &["dimensions"],
        };
        self.plain(op, shown, &format!(", {key} = {ints}"));
        true
    }

    pub(super) fn with_int(&mut self, op: OpId, key: &str, name: &'static str) -> bool {
        let Some(value) = self.m.find(op, name).and_then(|id| self.m.as_int(id)) else { return false };
        let shown: Shown = if name == "dimension" { &["dimension"] } else { &["iota_dimension"] };
        self.plain(op, shown, &format!("{key} = {value}"));
        true
    }

    pub(super) fn slice(&mut self, op: OpId) -> bool {
        let of = |name: &str| self.m.find(op, name).and_then(|id| self.m.as_ints(id));
        let (Some(starts), Some(limits)) = (of("start_indices"), of("limit_indices")) else { return false };
        let strides = of("strides").unwrap_or_else(|| vec![1; starts.len()]);
        let dims: Vec<String> = starts
            .iter()
            .zip(&limits)
            .zip(&strides)
            .map(|((s, l), &stride)| if stride == 1 { format!("{s}:{l}") } else { format!("{s}:{l}:{stride}") })
            .collect();
        let shown: Shown = &["start_indices", "limit_indices", "strides"];
        self.plain(op, shown, &format!(" [{}]", dims.join(", ")));
        true
    }

    pub(super) fn pad(&mut self, op: OpId) -> bool {
        let parts = [("low", "edge_padding_low"), ("high", "edge_padding_high"), ("interior", "interior_padding")];
        let parts: Option<Vec<String>> =
            parts.iter().map(|(key, name)| Some(format!(", {key} = {}", self.ints(op, name)?))).collect();
        let Some(parts) = parts else { return false };
        self.plain(op, &["edge_padding_low", "edge_padding_high", "interior_padding"], &parts.concat());
        true
    }

    pub(super) fn dot_general(&mut self, op: OpId) -> bool {
        let holder = self.m.find(op, "dot_dimension_numbers");
        let of = |name: &str| {
            let id = match holder {
                Some(holder) => self.m.field(holder, name),
                None => self.m.find(op, name),
            };
            let values = id.and_then(|id| self.m.as_ints(id)).unwrap_or_default();
            let text: Vec<String> = values.iter().map(i64::to_string).collect();
            (values.len(), format!("[{}]", text.join(", ")))
        };
        let (lb, rb) = (of("lhs_batching_dimensions"), of("rhs_batching_dimensions"));
        let (lc, rc) = (of("lhs_contracting_dimensions"), of("rhs_contracting_dimensions"));
        let mut parts = String::new();
        if lb.0 > 0 || rb.0 > 0 {
            let _ = write!(parts, ", batching_dims = {} x {}", lb.1, rb.1);
        }
        let _ = write!(parts, ", contracting_dims = {} x {}", lc.1, rc.1);
        let mut shown: Shown = &[
            "dot_dimension_numbers",
            "lhs_batching_dimensions",
            "rhs_batching_dimensions",
            "lhs_contracting_dimensions",
            "rhs_contracting_dimensions",
            "precision_config",
        ];
        if let Some(Attr::Array(items)) = self.m.find(op, "precision_config").map(|id| self.m.attr(id)) {
            let words: Vec<&str> = items.iter().filter_map(|&i| self.m.as_str(i)).collect();
            if words.len() == items.len() {
                let _ = write!(parts, ", precision = [{}]", words.join(", "));
            } else {
                shown = &shown[..5];
            }
        }
        self.plain(op, shown, &parts);
        true
    }

    pub(super) fn compare(&mut self, op: OpId) -> bool {
        let word = |name: &str| self.m.find(op, name).and_then(|id| self.m.as_str(id)).map(str::to_owned);
        let Some(direction) = word("comparison_direction") else { return false };
        let _ = write!(self.out, "stablehlo.compare {direction}, ");
        let operands = self.m.op(op).operands.clone();
        self.values(&operands);
        if let Some(kind) = word("compare_type").filter(|k| k != "NOTYPE") {
            let _ = write!(self.out, ", {kind}");
        }
        self.dictionary(op, &["comparison_direction", "compare_type"]);
        self.text(" : ");
        self.function_type(op);
        true
    }

    pub(super) fn constant(&mut self, op: OpId, name: &str) -> bool {
        let Some(value) = self.m.find(op, "value") else { return false };
        if !matches!(self.m.attr(value), Attr::Dense(_) | Attr::Resource(..)) {
            return false;
        }
        self.text(name);
        self.dictionary(op, &["value"]);
        let text = self.m.attr_text(value);
        let _ = write!(self.out, " {text}");
        true
    }

    pub(super) fn call(&mut self, op: OpId, name: &str, target: &'static str) -> bool {
        let Some(callee) = self.m.string_attr(op, target).map(str::to_owned) else { return false };
        let _ = write!(self.out, "{name} @");
        if is_bare(&callee) {
            self.text(&callee);
        } else {
            write_string(&mut self.out, callee.as_bytes());
        }
        self.text("(");
        let operands = self.m.op(op).operands.clone();
        self.values(&operands);
        self.text(")");
        self.dictionary(op, if target == "callee" { &["callee"] } else { &["call_target_name"] });
        self.text(" : ");
        self.function_type(op);
        true
    }

    pub(super) fn give(&mut self, name: &str, op: OpId) -> bool {
        self.text(name);
        let operands = self.m.op(op).operands.clone();
        if !operands.is_empty() {
            self.text(" ");
            self.values(&operands);
            self.dictionary(op, &[]);
            self.text(" : ");
            let types = self.operand_types(op);
            self.types(&types);
        }
        true
    }
}
