//! Shapes with the default layout, each made once: the instructions of a program have few of them.

use crate::element_type::ElementType;
use crate::shape::{ArrayShape, Shape};
use rustc_hash::{FxBuildHasher, FxHashMap};
use smallvec::SmallVec;
use std::hash::BuildHasher;
use std::sync::Arc;

/// Arrays with the default layout, shared by those who ask for the same.
#[derive(Default, Debug)]
pub struct LaidOutShapes {
    /// By the hash of type and sizes, so that one can be asked for without being made.
    arrays: FxHashMap<u64, SmallVec<[Shape; 1]>>,
}

impl LaidOutShapes {
    /// The static array of that type and sizes.
    pub fn array(&mut self, element_type: ElementType, dims: &[i64]) -> Shape {
        let alike = self.arrays.entry(FxBuildHasher.hash_one((element_type, dims))).or_default();
        let is_it = |s: &&Shape| s.as_array().is_some_and(|a| a.element_type == element_type && a.dims() == dims);
        if let Some(shape) = alike.iter().find(is_it) {
            return shape.clone();
        }
        let made = Shape::from(ArrayShape::new(element_type, dims.iter().copied()).with_default_layout());
        alike.push(made.clone());
        made
    }

    /// A shape with default layouts in place of those that it has.
    pub fn of(&mut self, shape: &Shape) -> Shape {
        match shape {
            Shape::Array(a) => self.like(a, a.element_type),
            Shape::Tuple(elements) => Shape::tuple(elements.iter().map(|e| self.of(e))),
            Shape::Buffer(a) => Shape::Buffer(Arc::new(a.without_layout().with_default_layout())),
            Shape::Token | Shape::Opaque => shape.clone(),
        }
    }

    /// An array with another element type.
    pub(crate) fn like(&mut self, array: &ArrayShape, element_type: ElementType) -> Shape {
        match array.is_dynamic() {
            true => array.without_layout().with_element_type(element_type).with_default_layout().into(),
            false => self.array(element_type, array.dims()),
        }
    }
}
