//! Shardy's attributes and operations in MLIR text.

use super::{Parse, Parsed, Parser};
use crate::mlir::{Attr, AttrId, Named};
use std::borrow::Cow;

impl<'a> Parser<'a> {
    fn sdy_struct(&mut self, name: &'static str, fields: Vec<Named<'a>>) -> AttrId {
        self.m.add_attr(Attr::Struct(Cow::Borrowed(name), fields))
    }

    fn array(&mut self, items: Vec<AttrId>) -> AttrId {
        self.m.add_attr(Attr::Array(items))
    }

    /// What follows `#sdy.sharding`, `#sdy.sharding_per_value` or `#sdy.mesh`.
    pub(super) fn sdy_attribute(&mut self, name: &str) -> Parse<AttrId> {
        match name {
            "sdy.mesh" => self.sdy_mesh(),
            "sdy.sharding" => self.sdy_sharding(),
            _ => {
                self.expect(b'<')?;
                self.expect(b'[')?;
                let id = self.sdy_per_value()?;
                self.expect(b'>')?;
                Ok(id)
            }
        }
    }

    /// `<…>, <…>]`: shardings up to the bracket.
    fn sdy_per_value(&mut self) -> Parse<AttrId> {
        let items = self.list_until(b']', Self::sdy_sharding)?;
        let items = self.array(items);
        Ok(self.sdy_struct("sdy.sharding_per_value", vec![("shardings".into(), items)]))
    }

    /// `<["x"=2, "y"=4], device_ids=[…]>`.
    fn sdy_mesh(&mut self) -> Parse<AttrId> {
        self.expect(b'<')?;
        self.expect(b'[')?;
        let axes = self.list_until(b']', |p| {
            let name = p.string()?;
            let name = p.m.add_attr(Attr::String(name));
            p.expect(b'=')?;
            let size = p.integer()?;
            let size = p.int_attr(size);
            Ok(p.sdy_struct("sdy.mesh_axis", vec![("name".into(), name), ("size".into(), size)]))
        })?;
        let mut devices = Vec::new();
        if self.eat(b',') {
            self.expect_text("device_ids")?;
            self.expect(b'=')?;
            devices = self.integers()?;
        }
        self.expect(b'>')?;
        let axes = self.array(axes);
        let devices = self.ints_attr(devices);
        Ok(self.sdy_struct("sdy.mesh", vec![("axes".into(), axes), ("device_ids".into(), devices)]))
    }

    /// `"x"` or `"x":(1)2`.
    fn sdy_axis(&mut self) -> Parse<AttrId> {
        let name = self.string()?;
        let mut fields: Vec<Named<'a>> = vec![("name".into(), self.m.add_attr(Attr::String(name)))];
        if self.eat(b':') {
            self.expect(b'(')?;
            let pre = self.integer()?;
            self.expect(b')')?;
            let size = self.integer()?;
            let (pre, size) = (self.int_attr(pre), self.int_attr(size));
            let sub = self.sdy_struct("sdy.sub_axis", vec![("pre_size".into(), pre), ("size".into(), size)]);
            fields.push(("sub_axis".into(), sub));
        }
        Ok(self.sdy_struct("sdy.axis_ref", fields))
    }

    /// `{"x", "y", ?}p2`.
    fn sdy_dimension(&mut self) -> Parse<AttrId> {
        self.expect(b'{')?;
        let mut axes = Vec::new();
        let mut closed = true;
        while !self.eat(b'}') {
            if !axes.is_empty() {
                self.expect(b',')?;
            }
            if self.eat(b'?') {
                closed = false;
                self.expect(b'}')?;
                break;
            }
            axes.push(self.sdy_axis()?);
        }
        let axes = self.array(axes);
        let closed = self.m.add_attr(Attr::Bool(closed));
        let mut fields: Vec<Named<'a>> = vec![("axes".into(), axes), ("closed".into(), closed)];
        if self.at(0) == b'p' && self.at(1).is_ascii_digit() {
            self.pos += 1;
            let priority = self.integer()?;
            fields.push(("priority".into(), self.int_attr(priority)));
        }
        Ok(self.sdy_struct("sdy.dim_sharding", fields))
    }

    /// `<@mesh, [{"x"}, {}], replicated={…}, unreduced={…}>`.
    pub(super) fn sdy_sharding(&mut self) -> Parse<AttrId> {
        self.expect(b'<')?;
        let mesh = match self.peek() {
            b'@' => {
                let name = self.symbol()?;
                self.m.add_attr(Attr::Symbol(name))
            }
            _ => {
                self.expect_text("mesh")?;
                self.sdy_mesh()?
            }
        };
        self.expect(b',')?;
        self.expect(b'[')?;
        let dims = self.list_until(b']', Self::sdy_dimension)?;
        let dims = self.array(dims);
        let mut fields: Vec<Named<'a>> = vec![("mesh".into(), mesh), ("dims".into(), dims)];
        while self.eat(b',') {
            let key = self.expect_word("replicated or unreduced")?;
            self.expect(b'=')?;
            let key = if key == "replicated" { "replicated" } else { "unreduced" };
            if let Some(reduction) = self.word() {
                let id = self.m.add_attr(Attr::Keyword(Cow::Borrowed(reduction)));
                fields.push(("reduction".into(), id));
            }
            self.expect(b'{')?;
            let axes = self.list_until(b'}', Self::sdy_axis)?;
            let axes = self.array(axes);
            fields.push((key.into(), axes));
        }
        self.expect(b'>')?;
        Ok(self.sdy_struct("sdy.sharding", fields))
    }

    /// `{"x", "y"}`.
    pub(super) fn manual_axes(&mut self) -> Parse<AttrId> {
        self.expect(b'{')?;
        let axes = self.list_until(b'}', |p| {
            let name = p.string()?;
            Ok(p.m.add_attr(Attr::String(name)))
        })?;
        let axes = self.array(axes);
        Ok(self.sdy_struct("sdy.manual_axes", vec![("axes".into(), axes)]))
    }

    /// `sdy.mesh @mesh = <…> {…}`.
    pub(super) fn sdy_mesh_op(&mut self) -> Parse<Parsed<'a>> {
        let mut parsed = Parsed::default();
        let name = self.symbol()?;
        let name = self.m.add_attr(Attr::String(name));
        parsed.set("sym_name", name);
        self.expect(b'=')?;
        let mesh = self.sdy_mesh()?;
        parsed.set("mesh", mesh);
        if self.peek() == b'{' {
            parsed.attributes.extend(self.dictionary()?);
        }
        Ok(parsed)
    }

    /// `(%a) in_shardings=[…] out_shardings=[…] manual_axes={…} (%arg: T) { … } : FT`.
    pub(super) fn sdy_manual_computation_op(&mut self) -> Parse<Parsed<'a>> {
        let mut parsed = Parsed::default();
        self.sdy_region_op(&mut parsed)?;
        Ok(parsed)
    }

    /// `<"foo">(%a) in_shardings=[…] (%arg: T) { … } : FT`.
    pub(super) fn sdy_named_computation_op(&mut self) -> Parse<Parsed<'a>> {
        let mut parsed = Parsed::default();
        self.expect(b'<')?;
        let name = self.string()?;
        let name = self.m.add_attr(Attr::String(name));
        parsed.set("name", name);
        self.expect(b'>')?;
        self.sdy_region_op(&mut parsed)?;
        Ok(parsed)
    }

    fn sdy_region_op(&mut self, parsed: &mut Parsed<'a>) -> Parse<()> {
        self.expect(b'(')?;
        parsed.operands = self.value_list()?;
        self.expect(b')')?;
        while self.peek() != b'(' {
            let key = self.expect_word("the shardings of a computation")?;
            self.expect(b'=')?;
            match key {
                "manual_axes" => {
                    let id = self.manual_axes()?;
                    parsed.set("manual_axes", id);
                }
                _ => {
                    self.expect(b'[')?;
                    let id = self.sdy_per_value()?;
                    parsed.attributes.push((Cow::Borrowed(key), id));
                }
            }
        }
        self.expect(b'(')?;
        let arguments = self.list_until(b')', Self::argument)?;
        parsed.regions.push(self.region(&arguments)?);
        if self.peek() == b'{' {
            parsed.attributes.extend(self.dictionary()?);
        }
        self.expect(b':')?;
        parsed.results = self.function_type()?.1;
        Ok(())
    }
}
