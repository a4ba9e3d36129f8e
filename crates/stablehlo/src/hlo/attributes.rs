//! Attributes of the operation that is being translated.
//!
//! VHLO spells dimension numbers as attributes of their own, StableHLO's text as parts of one struct; asking for a name
//! finds it either way.

use super::{Translate, Translator};
use crate::mlir::{Attr, AttrId};
use hloom_ir::Diagnostic;
use hloom_ir::diagnostic::codes::mlir as codes;
use hloom_ir::layout::DimVec;

impl<'m, 'a> Translator<'m, 'a> {
    /// The attribute, or the part of a struct among the attributes, of that name.
    pub(super) fn attr(&self, name: &str) -> Option<AttrId> {
        let attributes = &self.m.op(self.at).attributes;
        if let Some((_, id)) = attributes.iter().find(|(n, _)| n == name) {
            return Some(*id);
        }
        attributes
            .iter()
            .filter(|(_, id)| matches!(self.m.attr(*id), Attr::Struct(..)))
            .find_map(|(_, id)| self.m.field(*id, name))
    }

    #[cold]
    pub(super) fn bad_attribute(&self, name: &str, wanted: &str) -> Box<Diagnostic> {
        let message = match self.attr(name) {
            Some(_) => format!("the attribute `{name}` of {} is not {wanted}", self.op_name()),
            None => format!("{} needs the attribute `{name}`", self.op_name()),
        };
        self.error(&codes::BAD_ATTRIBUTE, message)
    }

    /// A list of whole numbers; empty when absent.
    pub(super) fn ints(&self, name: &str) -> Translate<DimVec> {
        match self.attr(name) {
            None => Ok(DimVec::new()),
            Some(id) => match self.m.as_ints(id) {
                Some(values) => Ok(values.into()),
                None => Err(self.bad_attribute(name, "a list of whole numbers")),
            },
        }
    }

    /// A list of whole numbers that must be there.
    pub(super) fn needed_ints(&self, name: &str) -> Translate<DimVec> {
        if self.attr(name).is_none() {
            return Err(self.bad_attribute(name, "a list of whole numbers"));
        }
        self.ints(name)
    }

    /// A list of `count` whole numbers; `default` repeated when absent.
    pub(super) fn ints_or(&self, name: &str, count: usize, default: i64) -> Translate<DimVec> {
        if self.attr(name).is_none() {
            return Ok(smallvec::smallvec![default; count]);
        }
        let mut values = self.ints(name)?;
        if values.len() == 1 && count != 1 {
            // A splat keeps its type's length, but old files write a single number for all.
            values = smallvec::smallvec![values[0]; count];
        }
        if values.len() != count {
            return Err(self.bad_attribute(name, &format!("a list of {count} numbers")));
        }
        Ok(values)
    }

    /// A list of pairs.
    pub(super) fn pairs(&self, name: &str, count: usize) -> Translate<Vec<(i64, i64)>> {
        if self.attr(name).is_none() {
            return Ok(vec![(0, 0); count]);
        }
        let values = self.ints(name)?;
        if values.len() != 2 * count {
            return Err(self.bad_attribute(name, &format!("a list of {count} pairs")));
        }
        Ok(values.chunks_exact(2).map(|p| (p[0], p[1])).collect())
    }

    /// A whole number that must be there.
    pub(super) fn int(&self, name: &str) -> Translate<i64> {
        let found = self.attr(name).and_then(|id| self.m.as_int(id));
        found.ok_or_else(|| self.bad_attribute(name, "a whole number"))
    }

    /// A whole number, or the default.
    pub(super) fn int_or(&self, name: &str, default: i64) -> Translate<i64> {
        if self.attr(name).is_none() { Ok(default) } else { self.int(name) }
    }

    /// A truth value; false when absent.
    pub(super) fn flag(&self, name: &str) -> Translate<bool> {
        match self.attr(name) {
            None => Ok(false),
            Some(id) => self.m.as_bool(id).ok_or_else(|| self.bad_attribute(name, "a truth value")),
        }
    }

    /// A number.
    pub(super) fn float(&self, name: &str) -> Translate<f64> {
        match self.attr(name).map(|id| self.m.attr(id)) {
            Some(Attr::Float(x, _)) => Ok(*x),
            Some(Attr::Integer(n, _)) => Ok(*n as f64),
            _ => Err(self.bad_attribute(name, "a number")),
        }
    }

    /// A string, symbol or member of an enumeration that must be there.
    pub(super) fn text(&self, name: &str) -> Translate<&'m str> {
        let m = self.m;
        let found = self.attr(name).and_then(|id| m.as_str(id));
        found.ok_or_else(|| self.bad_attribute(name, "a string"))
    }

    /// A string, symbol or member of an enumeration.
    pub(super) fn text_opt(&self, name: &str) -> Option<&'m str> {
        let m = self.m;
        m.as_str(self.attr(name)?)
    }
}
