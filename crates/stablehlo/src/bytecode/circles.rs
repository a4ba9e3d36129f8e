//! Attributes and types that refer to each other in a circle are refused, once, so that nothing after has to look.

use super::Reader;
use super::cursor::{Read, damaged};
use crate::mlir::{Attr, AttrId, Location, Type, TypeId};

impl Reader<'_> {
    /// Entries must not lead back to themselves: everything after this follows them without looking.
    pub(super) fn refuse_circles(&self) -> Read<()> {
        let m = &self.module;
        let (attrs, types) = (m.attrs.len(), m.types.len());
        // Attributes first, then types; 0 not seen, 1 being followed, 2 done.
        let mut state = vec![0u8; attrs + types];
        let mut stack: Vec<(usize, usize)> = Vec::new();
        let mut children: Vec<usize> = Vec::new();
        for root in 0..attrs + types {
            if state[root] != 0 {
                continue;
            }
            stack.push((root, usize::MAX));
            while let Some((node, start)) = stack.pop() {
                if start != usize::MAX {
                    // All that this entry refers to is done.
                    state[node] = 2;
                    continue;
                }
                match state[node] {
                    2 => continue,
                    1 => return Err(damaged("the attributes and types", "an entry refers to itself")),
                    _ => state[node] = 1,
                }
                stack.push((node, 0));
                children.clear();
                if node < attrs {
                    attr_children(&m.attrs[node], attrs, &mut children);
                } else {
                    type_children(&m.types[node - attrs], attrs, &mut children);
                }
                for &child in &children {
                    match state.get(child) {
                        Some(1) => return Err(damaged("the attributes and types", "an entry refers to itself")),
                        Some(0) => stack.push((child, usize::MAX)),
                        _ => {}
                    }
                }
            }
        }
        Ok(())
    }
}

/// The entries that an attribute refers to, types counted after all `attrs` attributes.
fn attr_children(attr: &Attr<'_>, attrs: usize, children: &mut Vec<usize>) {
    let of_type = |t: &TypeId| attrs + t.index();
    match attr {
        Attr::Integer(_, t) | Attr::Float(_, t) | Attr::Type(t) | Attr::Ints(t, _) | Attr::Floats(t, _) => {
            children.push(of_type(t));
        }
        Attr::Resource(t, _) => children.push(of_type(t)),
        Attr::Dense(d) => children.push(of_type(&d.ty)),
        Attr::Array(items) | Attr::Location(Location::Fused(items)) => {
            children.extend(items.iter().map(|i| i.index()));
        }
        Attr::Dict(fields) | Attr::Struct(_, fields) => children.extend(fields.iter().map(|(_, i)| i.index())),
        Attr::Location(Location::Name(_, child)) => children.extend(child.map(AttrId::index)),
        Attr::Location(Location::CallSite { callee, caller }) => children.extend([callee.index(), caller.index()]),
        Attr::Unit | Attr::Bool(_) | Attr::String(_) | Attr::Symbol(_) | Attr::Keyword(_) | Attr::Opaque(_) => {}
        Attr::Location(Location::Unknown | Location::File(_)) => {}
    }
}

/// The entries that a type refers to.
fn type_children(ty: &Type<'_>, attrs: usize, children: &mut Vec<usize>) {
    let of_type = |t: &TypeId| attrs + t.index();
    match ty {
        Type::Complex(t) | Type::UnrankedTensor(t) | Type::MemRef(_, t) => children.push(of_type(t)),
        Type::Tensor { element, encoding, .. } => {
            children.push(of_type(element));
            children.extend(encoding.map(AttrId::index));
        }
        Type::Tuple(items) | Type::Future(items) => children.extend(items.iter().map(of_type)),
        Type::Function(inputs, results) => children.extend(inputs.iter().chain(results).map(of_type)),
        Type::Integer(..) | Type::Float(_) | Type::Index | Type::None | Type::Token => {}
        Type::Quantized(_) | Type::Opaque(_) => {}
    }
}
