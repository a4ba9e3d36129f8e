//! Typed ids and the arenas they index.
//!
//! Everything in a module is named by a `u32` newtype, so that a computation's id cannot be used where an
//! instruction's is meant, side tables are plain vectors ([`SideTable`]), and a module is cheap to clone.
//! Ids are dense and never reused: an instruction that is removed leaves its slot behind.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

/// A dense `u32` id that indexes an [`Arena`] or a [`SideTable`].
pub trait EntityId: Copy + Eq + std::hash::Hash {
    /// The id of slot `index`.
    fn from_index(index: usize) -> Self;
    /// The slot that this id names.
    fn index(self) -> usize;
}

macro_rules! entity_id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u32);

        impl EntityId for $name {
            fn from_index(index: usize) -> Self {
                // A module of 2^32 instructions does not fit in memory, so this is unreachable in practice;
                // saturating (rather than wrapping) keeps even that case from aliasing two entities.
                $name(u32::try_from(index).unwrap_or(u32::MAX))
            }
            fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

entity_id!(
    /// An instruction of a module (ids run over all computations).
    InstructionId,
    "i"
);
entity_id!(
    /// A computation of a module.
    ComputationId,
    "c"
);

/// A growing vector indexed by a typed id.
#[derive(Clone, Debug)]
pub struct Arena<K, V> {
    items: Vec<V>,
    key: PhantomData<K>,
}

impl<K, V> Default for Arena<K, V> {
    fn default() -> Self {
        Arena { items: Vec::new(), key: PhantomData }
    }
}

impl<K: EntityId, V> Arena<K, V> {
    /// An empty arena.
    pub fn new() -> Self {
        Self::default()
    }
    /// Adds `value` and returns its id.
    pub fn push(&mut self, value: V) -> K {
        let id = K::from_index(self.items.len());
        self.items.push(value);
        id
    }
    /// The id that the next [`Arena::push`] will return.
    pub fn next_id(&self) -> K {
        K::from_index(self.items.len())
    }
    /// Number of slots ever made.
    pub fn len(&self) -> usize {
        self.items.len()
    }
    /// Whether nothing was ever added.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
    /// The value of `id`, if there is one.
    pub fn get(&self, id: K) -> Option<&V> {
        self.items.get(id.index())
    }
    /// All ids, in order of creation.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = K> + use<K, V> {
        (0..self.items.len()).map(K::from_index)
    }
    /// All values with their ids, in order of creation.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (K, &V)> {
        self.items.iter().enumerate().map(|(i, v)| (K::from_index(i), v))
    }
    /// Makes room for `additional` more values.
    pub fn reserve(&mut self, additional: usize) {
        self.items.reserve(additional);
    }
}

impl<K: EntityId, V> Index<K> for Arena<K, V> {
    type Output = V;
    fn index(&self, id: K) -> &V {
        &self.items[id.index()]
    }
}

impl<K: EntityId, V> IndexMut<K> for Arena<K, V> {
    fn index_mut(&mut self, id: K) -> &mut V {
        &mut self.items[id.index()]
    }
}

/// What an analysis knows of each entity: a vector that grows on demand and answers a default beyond its end.
#[derive(Clone, Debug)]
pub struct SideTable<K, V> {
    items: Vec<V>,
    default: V,
    key: PhantomData<K>,
}

impl<K: EntityId, V: Clone + Default> Default for SideTable<K, V> {
    fn default() -> Self {
        Self::with_default(V::default())
    }
}

impl<K: EntityId, V: Clone> SideTable<K, V> {
    /// An empty table in which every entity has the value `default`.
    pub fn with_default(default: V) -> Self {
        SideTable { items: Vec::new(), default, key: PhantomData }
    }
    /// A table with room for `len` entities, each with the value `default`.
    pub fn with_len(len: usize, default: V) -> Self {
        SideTable { items: vec![default.clone(); len], default, key: PhantomData }
    }
    /// Sets the value of `id`.
    pub fn set(&mut self, id: K, value: V) {
        *self.get_mut(id) = value;
    }
    /// The value of `id`, to change.
    pub fn get_mut(&mut self, id: K) -> &mut V {
        if id.index() >= self.items.len() {
            self.items.resize(id.index() + 1, self.default.clone());
        }
        &mut self.items[id.index()]
    }
}

impl<K: EntityId, V> Index<K> for SideTable<K, V> {
    type Output = V;
    fn index(&self, id: K) -> &V {
        self.items.get(id.index()).unwrap_or(&self.default)
    }
}
