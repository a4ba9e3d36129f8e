//! MLIR as plain data: operations, regions, values, attributes, types and locations, whatever they were read from.
//!
//! Everything stands in tables of the [`Module`] and is named by a `u32` id. What was read is borrowed from the input
//! where it can be. Both readers give the same model: what VHLO spells in its own way (versions in names, attributes of
//! its own) is brought into StableHLO's spelling while it is read. Invariants that the readers keep:
//! - ids refer to entries that exist, except those inside attributes and types, which are looked up with a check;
//! - values are numbered in the order in which they are defined, so the values defined inside a region (with all that
//!   is nested in it) are one range, [`Region::values`];
//! - an operand is defined before its user; regions nest at most [`MAX_DEPTH`] deep.

pub mod dense;
pub mod kind;
pub mod module_text;
pub mod print;
pub mod sdy;
mod sharding_rule;

pub use dense::Dense;
pub use kind::OpKind;

use hloom_ir::diagnostic::Span;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::borrow::Cow;
use std::ops::Range;

/// How deep regions may nest; real programs stay below ten.
pub const MAX_DEPTH: usize = 64;

/// The size of a dynamic dimension.
pub const DYNAMIC: i64 = i64::MIN;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident),+) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
            pub struct $name(pub u32);

            impl $name {
                /// The place in its table.
                pub fn index(self) -> usize {
                    self.0 as usize
                }
            }
        )+
    };
}

ids!(
    /// An attribute or location.
    AttrId,
    /// A type.
    TypeId,
    /// A value: the result of an operation or the argument of a block.
    ValueId,
    /// An operation.
    OpId,
    /// A region.
    RegionId,
    /// The name of an operation.
    NameId
);

/// A named attribute.
pub type Named<'a> = (Cow<'a, str>, AttrId);

/// A program.
#[derive(Clone, Debug, Default)]
pub struct Module<'a> {
    /// The names of operations that occur.
    pub names: Vec<OpName<'a>>,
    /// Attributes and locations.
    pub attrs: Vec<Attr<'a>>,
    /// Types.
    pub types: Vec<Type<'a>>,
    /// The type of each value.
    pub values: Vec<TypeId>,
    /// Operations.
    pub ops: Vec<Operation<'a>>,
    /// Regions.
    pub regions: Vec<Region>,
    /// The operation that holds all others, `builtin.module`.
    pub root: Option<OpId>,
    /// The meshes that shardings name.
    pub meshes: Vec<OpId>,
    /// Blobs that `dense_resource` names.
    pub resources: FxHashMap<Cow<'a, [u8]>, Cow<'a, [u8]>>,
    /// Whether operations have places in a source text.
    pub is_text: bool,
}

/// The name of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpName<'a> {
    /// Dialect and name, as `stablehlo.add`.
    pub name: Cow<'a, str>,
    /// Which of the known operations it is.
    pub kind: OpKind,
}

/// One operation.
#[derive(Clone, Debug)]
pub struct Operation<'a> {
    /// Its name.
    pub name: NameId,
    /// Where it came from.
    pub location: Option<AttrId>,
    /// Its place in the text it was read from; empty for bytecode.
    pub span: Span,
    /// What it reads.
    pub operands: SmallVec<[ValueId; 4]>,
    /// The first of its results.
    pub first_result: ValueId,
    /// How many results it has.
    pub result_count: u32,
    /// Its attributes, inherent and other.
    pub attributes: SmallVec<[Named<'a>; 2]>,
    /// Its regions.
    pub regions: SmallVec<[RegionId; 1]>,
}

/// A region: blocks, of which StableHLO has one.
#[derive(Clone, Debug)]
pub struct Region {
    /// Its blocks.
    pub blocks: SmallVec<[Block; 1]>,
    /// The values defined in it and in all regions within.
    pub values: Range<u32>,
}

/// A block: arguments and operations.
#[derive(Clone, Debug)]
pub struct Block {
    /// The first of its arguments.
    pub first_argument: ValueId,
    /// How many arguments it has.
    pub argument_count: u32,
    /// Where the arguments came from; empty when nothing is known.
    pub locations: Vec<Option<AttrId>>,
    /// Its operations in order.
    pub ops: Vec<OpId>,
}

/// An attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum Attr<'a> {
    /// `unit`.
    Unit,
    /// `true`.
    Bool(bool),
    /// `3 : i32`.
    Integer(i64, TypeId),
    /// `1.5 : f32`.
    Float(f64, TypeId),
    /// `"text"`; any bytes.
    String(Cow<'a, [u8]>),
    /// A type.
    Type(TypeId),
    /// `[a, b]`.
    Array(Vec<AttrId>),
    /// `{k = v}`.
    Dict(Vec<Named<'a>>),
    /// `@name`.
    Symbol(Cow<'a, [u8]>),
    /// `array<i64: 1, 2>`, also of `i1`.
    Ints(TypeId, Vec<i64>),
    /// `array<f32: 1.0>`.
    Floats(TypeId, Vec<f64>),
    /// `dense<…> : tensor<…>`.
    Dense(Dense<'a>),
    /// `dense_resource<key> : tensor<…>`.
    Resource(TypeId, Cow<'a, [u8]>),
    /// A member of an enumeration, as `EQ` of `#stablehlo<comparison_direction EQ>`.
    Keyword(Cow<'a, str>),
    /// An attribute with named parts, as `#stablehlo.dot<…>`; the name has its dialect.
    Struct(Cow<'a, str>, Vec<Named<'a>>),
    /// A location.
    Location(Location<'a>),
    /// What is not understood, as text.
    Opaque(Cow<'a, [u8]>),
}

/// Where an operation came from.
#[derive(Clone, Debug, PartialEq)]
pub enum Location<'a> {
    /// Nobody knows.
    Unknown,
    /// A place in a file.
    File(Box<FileRange<'a>>),
    /// A name given to another location.
    Name(Cow<'a, [u8]>, Option<AttrId>),
    /// `callee`, called from `caller`.
    CallSite {
        /// The place that was called.
        callee: AttrId,
        /// Where from.
        caller: AttrId,
    },
    /// Several at once.
    Fused(Vec<AttrId>),
}

/// A place in a file.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "each field is what its name says")]
pub struct FileRange<'a> {
    pub file: Cow<'a, [u8]>,
    pub line: u32,
    pub column: u32,
    pub end_line: u32,
    pub end_column: u32,
}

/// Whether an integer type has a sign.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Signedness {
    /// `i32`: it is the operation's business; StableHLO takes it as signed.
    Signless,
    /// `si32`.
    Signed,
    /// `ui32`.
    Unsigned,
}

/// A type.
#[derive(Clone, Debug, PartialEq)]
pub enum Type<'a> {
    /// An integer of that many bits.
    Integer(u32, Signedness),
    /// A float, by its name.
    Float(FloatKind),
    /// `index`.
    Index,
    /// `none`.
    None,
    /// `complex<T>`.
    Complex(TypeId),
    /// `tensor<2x?xf32, encoding>`.
    Tensor {
        /// Sizes; [`DYNAMIC`] for `?`.
        dims: SmallVec<[i64; 4]>,
        /// The type of the elements.
        element: TypeId,
        /// Bounds of dynamic dimensions and the like.
        encoding: Option<AttrId>,
    },
    /// `tensor<*xf32>`.
    UnrankedTensor(TypeId),
    /// `memref<4xf32>`.
    MemRef(SmallVec<[i64; 4]>, TypeId),
    /// `tuple<T, U>`.
    Tuple(Vec<TypeId>),
    /// `(T) -> U`.
    Function(Vec<TypeId>, Vec<TypeId>),
    /// `!stablehlo.token`.
    Token,
    /// `!stablehlo.future<T>`.
    Future(Vec<TypeId>),
    /// A quantized type, as text.
    Quantized(Cow<'a, [u8]>),
    /// What is not understood, as text.
    Opaque(Cow<'a, [u8]>),
}

macro_rules! floats {
    ($($variant:ident $text:literal $bits:literal $element:ident),+ $(,)?) => {
        /// The floating-point types.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[allow(missing_docs, reason = "each variant is the type of that name")]
        pub enum FloatKind { $($variant),+ }

        impl FloatKind {
            /// Every type.
            pub const ALL: &'static [FloatKind] = &[$(FloatKind::$variant),+];
            /// The name in MLIR text.
            pub fn text(self) -> &'static str {
                match self { $(FloatKind::$variant => $text),+ }
            }
            /// The type of that name.
            pub fn from_text(text: &[u8]) -> Option<FloatKind> {
                FloatKind::ALL.iter().copied().find(|f| f.text().as_bytes() == text)
            }
            /// How many bits a number has.
            pub fn bits(self) -> u32 {
                match self { $(FloatKind::$variant => $bits),+ }
            }
            /// The element type in HLO.
            pub fn element_type(self) -> Option<hloom_ir::ElementType> {
                match self { $(FloatKind::$variant => floats!(@ $element)),+ }
            }
        }
    };
    (@ none) => { None };
    (@ $element:ident) => { Some(hloom_ir::ElementType::$element) };
}

floats! {
    F32 "f32" 32 F32,
    Bf16 "bf16" 16 Bf16,
    F16 "f16" 16 F16,
    F64 "f64" 64 F64,
    F80 "f80" 80 none,
    F128 "f128" 128 none,
    Tf32 "tf32" 32 none,
    F8E5M2 "f8E5M2" 8 F8e5m2,
    F8E4M3 "f8E4M3" 8 F8e4m3,
    F8E4M3FN "f8E4M3FN" 8 F8e4m3fn,
    F8E5M2FNUZ "f8E5M2FNUZ" 8 F8e5m2fnuz,
    F8E4M3FNUZ "f8E4M3FNUZ" 8 F8e4m3fnuz,
    F8E4M3B11FNUZ "f8E4M3B11FNUZ" 8 F8e4m3b11fnuz,
    F8E3M4 "f8E3M4" 8 F8e3m4,
    F8E8M0FNU "f8E8M0FNU" 8 F8e8m0fnu,
    F4E2M1FN "f4E2M1FN" 4 F4e2m1fn,
    F6E2M3FN "f6E2M3FN" 6 F6e2m3fn,
    F6E3M2FN "f6E3M2FN" 6 F6e3m2fn,
}

impl<'a> Module<'a> {
    /// The attribute `id`.
    pub fn attr(&self, id: AttrId) -> &Attr<'a> {
        self.attrs.get(id.index()).unwrap_or(&Attr::Unit)
    }
    /// The type `id`.
    pub fn ty(&self, id: TypeId) -> &Type<'a> {
        self.types.get(id.index()).unwrap_or(&Type::None)
    }
    /// The operation `id`.
    pub fn op(&self, id: OpId) -> &Operation<'a> {
        &self.ops[id.index()]
    }
    /// The region `id`.
    pub fn region(&self, id: RegionId) -> &Region {
        &self.regions[id.index()]
    }
    /// Which of the known operations `id` is.
    pub fn kind(&self, id: OpId) -> OpKind {
        self.names[self.ops[id.index()].name.index()].kind
    }
    /// The name of the operation `id`, with its dialect.
    pub fn op_name(&self, id: OpId) -> &str {
        &self.names[self.ops[id.index()].name.index()].name
    }
    /// The type of a value.
    pub fn value_type(&self, value: ValueId) -> TypeId {
        self.values[value.index()]
    }
    /// Adds an attribute.
    pub fn add_attr(&mut self, attr: Attr<'a>) -> AttrId {
        self.attrs.push(attr);
        AttrId(self.attrs.len() as u32 - 1)
    }
    /// Adds a type.
    pub fn add_type(&mut self, ty: Type<'a>) -> TypeId {
        self.types.push(ty);
        TypeId(self.types.len() as u32 - 1)
    }
    /// Adds a value.
    pub fn add_value(&mut self, ty: TypeId) -> ValueId {
        self.values.push(ty);
        ValueId(self.values.len() as u32 - 1)
    }
    /// The operations directly in the module.
    pub fn body(&self) -> &[OpId] {
        let Some(root) = self.root else { return &[] };
        let Some(&region) = self.op(root).regions.first() else { return &[] };
        self.region(region).blocks.first().map_or(&[], |b| &b.ops)
    }
    /// The functions of the module with their names.
    pub fn functions(&self) -> impl Iterator<Item = (&str, OpId)> {
        let functions = self.body().iter().filter(|&&op| self.kind(op) == OpKind::Func);
        functions.map(|&op| (self.string_attr(op, "sym_name").unwrap_or(""), op))
    }
    /// The attribute of that name on `op`.
    pub fn find(&self, op: OpId, name: &str) -> Option<AttrId> {
        self.op(op).attributes.iter().find(|(n, _)| n == name).map(|&(_, id)| id)
    }
    /// The string or symbol of that name on `op`.
    pub fn string_attr(&self, op: OpId, name: &str) -> Option<&str> {
        self.as_str(self.find(op, name)?)
    }
    /// The attribute as text, if it is a string, a symbol or a keyword.
    pub fn as_str(&self, id: AttrId) -> Option<&str> {
        match self.attr(id) {
            Attr::String(s) | Attr::Symbol(s) => std::str::from_utf8(s).ok(),
            Attr::Keyword(k) => Some(k),
            _ => None,
        }
    }
    /// The attribute as a whole number.
    pub fn as_int(&self, id: AttrId) -> Option<i64> {
        match self.attr(id) {
            Attr::Integer(n, _) => Some(*n),
            Attr::Bool(b) => Some(i64::from(*b)),
            Attr::Dense(d) => self.dense_ints(d).filter(|v| v.len() == 1).map(|v| v[0]),
            _ => None,
        }
    }
    /// The attribute as a truth value.
    pub fn as_bool(&self, id: AttrId) -> Option<bool> {
        match self.attr(id) {
            Attr::Unit => Some(true),
            Attr::Bool(b) => Some(*b),
            Attr::Integer(n, _) => Some(*n != 0),
            _ => None,
        }
    }
    /// The attribute as a list of whole numbers.
    pub fn as_ints(&self, id: AttrId) -> Option<Vec<i64>> {
        match self.attr(id) {
            Attr::Ints(_, v) => Some(v.clone()),
            Attr::Dense(d) => self.dense_ints(d),
            Attr::Array(items) => items.iter().map(|&i| self.as_int(i)).collect(),
            Attr::Integer(n, _) => Some(vec![*n]),
            _ => None,
        }
    }
    /// The part of that name of a dictionary or a struct.
    pub fn field(&self, id: AttrId, name: &str) -> Option<AttrId> {
        match self.attr(id) {
            Attr::Struct(_, fields) | Attr::Dict(fields) => fields.iter().find(|(n, _)| n == name).map(|&(_, id)| id),
            _ => None,
        }
    }
    /// The elements of a list; none for anything else.
    pub fn list(&self, id: AttrId) -> &[AttrId] {
        match self.attr(id) {
            Attr::Array(items) => items,
            _ => &[],
        }
    }
    /// The arguments of a region's only block.
    pub fn arguments(&self, region: RegionId) -> Range<u32> {
        match self.region(region).blocks.first() {
            Some(b) => b.first_argument.0..b.first_argument.0 + b.argument_count,
            None => 0..0,
        }
    }
}

impl Operation<'_> {
    /// The results in order.
    pub fn results(&self) -> impl ExactSizeIterator<Item = ValueId> + use<> {
        (self.first_result.0..self.first_result.0 + self.result_count).map(ValueId)
    }
}
