//! The tables of attributes and types: builtin, VHLO and sdy entries into the one model; StableHLO's own are `native`'s.
//!
//! Entries refer to each other by number, also forward, and are not followed here. Only strings are decoded first,
//! because locations, symbols and dictionaries hold their text rather than their number.

use super::cursor::{Cursor, Read};
use super::{ATTR_TYPE, ATTR_TYPE_OFFSET, Reader};
use crate::mlir::{Attr, AttrId, Dense, FileRange, FloatKind, Location, Named, Signedness, Type, TypeId};
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::diagnostic::codes::mlir as codes;
use std::borrow::Cow;

/// An entry of a table before it is decoded.
#[derive(Clone, Copy)]
struct Entry<'a> {
    dialect: &'a str,
    bytes: &'a [u8],
    /// Whether it is in the dialect's own encoding; otherwise it is text.
    encoded: bool,
}

/// What to do about bytecode whose encoding changes from version to version.
pub(super) const SERIALIZE: &str =
    "only portable artifacts have an encoding that stays: serialize the module as one, as jax.export does";

#[cold]
pub(super) fn unknown_code(what: &str, dialect: &str, code: u64) -> Box<Diagnostic> {
    let message = format!("{what} {code} of the dialect {dialect} is not known");
    let error = Diagnostic::error(&codes::NEWER_BYTECODE, message);
    Box::new(match dialect {
        "builtin" | "vhlo" | "sdy" => error,
        _ => error.help(SERIALIZE),
    })
}

pub(super) const DIRECTIONS: &[&str] = &["EQ", "NE", "GE", "GT", "LE", "LT"];
pub(super) const COMPARE_TYPES: &[&str] = &["NOTYPE", "FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED"];
const API_VERSIONS: &[&str] = &[
    "API_VERSION_UNSPECIFIED",
    "API_VERSION_ORIGINAL",
    "API_VERSION_STATUS_RETURNING",
    "API_VERSION_STATUS_RETURNING_UNIFIED",
    "API_VERSION_TYPED_FFI",
];
pub(super) const FFT_TYPES: &[&str] = &["FFT", "IFFT", "RFFT", "IRFFT"];
pub(super) const PRECISIONS: &[&str] = &["DEFAULT", "HIGH", "HIGHEST"];
pub(super) const RNG_ALGORITHMS: &[&str] = &["DEFAULT", "THREE_FRY", "PHILOX"];
pub(super) const RNG_DISTRIBUTIONS: &[&str] = &["", "UNIFORM", "NORMAL"];
pub(super) const TRANSPOSES: &[&str] = &["TRANSPOSE_INVALID", "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"];
pub(super) const ACCURACY_MODES: &[&str] = &["DEFAULT", "HIGHEST", "TOLERANCE"];

/// A struct with the parts that are there.
pub(super) fn fields<'a, const N: usize>(name: &'static str, fields: [(&'static str, Option<AttrId>); N]) -> Attr<'a> {
    let present = |(n, id): (&'static str, Option<AttrId>)| Some((Cow::Borrowed(n), id?));
    Attr::Struct(Cow::Borrowed(name), fields.into_iter().filter_map(present).collect::<Vec<Named<'a>>>())
}

impl<'a> Reader<'a> {
    /// Decodes all attributes and types.
    pub(super) fn tables(&mut self) -> Read<()> {
        let mut at = self.section(ATTR_TYPE_OFFSET)?;
        let mut data = self.section(ATTR_TYPE)?;
        let attr_count = at.count()?;
        let type_count = at.count()?;
        let mut entries = Vec::with_capacity(attr_count + type_count);
        for limit in [attr_count, attr_count + type_count] {
            while entries.len() < limit {
                let dialect = self.dialect(&mut at)?;
                let count = at.count()?;
                if count > limit - entries.len() {
                    return Err(at.damaged("a group is too large"));
                }
                for _ in 0..count {
                    let (size, encoded) = at.flagged()?;
                    let size = usize::try_from(size).map_err(|_| at.damaged("an entry is too long"))?;
                    entries.push(Entry { dialect, bytes: data.take(size)?, encoded });
                }
                if count == 0 && at.is_at_end() {
                    return Err(at.damaged("entries are missing"));
                }
            }
        }
        (self.attr_count, self.type_count) = (attr_count as u32, type_count as u32);
        let (attrs, types) = entries.split_at(attr_count);
        self.module.types.reserve(type_count + 1);
        for entry in types {
            let ty = self.decode_type(entry)?;
            self.module.types.push(ty);
        }
        self.push_i64_type();
        self.module.attrs = vec![Attr::Unit; attr_count];
        for (i, entry) in attrs.iter().enumerate() {
            if let Some(string) = self.decode_string(entry)? {
                self.module.attrs[i] = Attr::String(Cow::Borrowed(string));
            }
        }
        for (i, entry) in attrs.iter().enumerate() {
            if !matches!(self.module.attrs[i], Attr::String(_)) {
                self.module.attrs[i] = self.decode_attr(entry)?;
            }
        }
        self.refuse_circles()
    }

    fn entry_cursor(entry: &Entry<'a>) -> Cursor<'a> {
        Cursor::new(entry.bytes, "an attribute or type")
    }

    /// The text of an entry that is a string.
    fn decode_string(&self, entry: &Entry<'a>) -> Read<Option<&'a [u8]>> {
        if !entry.encoded {
            return Ok(None);
        }
        let mut at = Self::entry_cursor(entry);
        match (entry.dialect, at.varint()?) {
            ("builtin", 2 | 3) | ("vhlo", 14) => self.read_string(&mut at).map(Some),
            _ => Ok(None),
        }
    }

    /// The text of an attribute that must be a string.
    fn string_of(&self, at: &mut Cursor<'a>) -> Read<&'a [u8]> {
        let id = self.attr(at)?;
        match self.attr_string(id) {
            Some(Cow::Borrowed(s)) => Ok(s),
            _ => Err(at.damaged("an attribute is no string where one is needed")),
        }
    }

    fn name_of(&self, at: &mut Cursor<'a>) -> Read<Cow<'a, str>> {
        let bytes = self.string_of(at)?;
        std::str::from_utf8(bytes).map(Cow::Borrowed).map_err(|_| at.damaged("a name is not UTF-8"))
    }

    fn dictionary(&self, at: &mut Cursor<'a>) -> Read<Attr<'a>> {
        let n = at.count()?;
        let fields = (0..n).map(|_| Ok((self.name_of(at)?, self.attr(at)?))).collect::<Read<_>>()?;
        Ok(Attr::Dict(fields))
    }

    /// A number in the format of the type, as a float attribute.
    fn float(&self, at: &mut Cursor<'a>, ty: TypeId) -> Read<Attr<'a>> {
        let Type::Float(kind) = *self.module.ty(ty) else { return Err(at.damaged("a float has no float type")) };
        let bits = at.apint(kind.bits())?.unwrap_or(0);
        Ok(match kind {
            FloatKind::F64 => Attr::Float(f64::from_bits(bits as u64), ty),
            FloatKind::F32 => Attr::Float(f64::from(f32::from_bits(bits as u32)), ty),
            FloatKind::F16 => Attr::Float(half::f16::from_bits(bits as u16).to_f64(), ty),
            FloatKind::Bf16 => Attr::Float(half::bf16::from_bits(bits as u16).to_f64(), ty),
            _ => Attr::Opaque(Cow::Owned(format!("0x{bits:X} : {}", kind.text()).into_bytes())),
        })
    }

    fn integer(&self, at: &mut Cursor<'a>, ty: TypeId) -> Read<Attr<'a>> {
        let (width, sign) = match *self.module.ty(ty) {
            Type::Integer(width, sign) => (width, sign),
            Type::Index => (64, Signedness::Signless),
            _ => return Err(at.damaged("a whole number has no integer type")),
        };
        let Some(value) = at.apint(width)? else { return Ok(Attr::Opaque(Cow::Borrowed(b"a wide integer"))) };
        if width == 1 {
            return Ok(Attr::Bool(value & 1 != 0));
        }
        let value = if sign == Signedness::Unsigned && width < 64 { value & ((1 << width) - 1) } else { value };
        Ok(Attr::Integer(value, ty))
    }

    /// `array<…>`: elements of a whole number of bytes.
    fn dense_array(&self, at: &mut Cursor<'a>) -> Read<Attr<'a>> {
        let element = self.type_id(at)?;
        let count = at.varint()?;
        let data = at.blob()?;
        let size = match self.module.ty(element) {
            Type::Integer(1, _) => 1,
            Type::Integer(bits @ (8 | 16 | 32 | 64), _) => *bits as usize / 8,
            Type::Float(FloatKind::F32) => 4,
            Type::Float(FloatKind::F64) => 8,
            _ => return Err(at.damaged("an array has elements of an odd type")),
        };
        if (data.len() / size) as u64 != count || data.len() % size != 0 {
            return Err(at.damaged("an array has another number of elements than it claims"));
        }
        let word = |c: &[u8]| {
            let mut wide = [0u8; 8];
            wide[..c.len()].copy_from_slice(c);
            i64::from_le_bytes(wide)
        };
        Ok(match self.module.ty(element) {
            Type::Float(FloatKind::F32) => {
                Attr::Floats(element, data.chunks_exact(4).map(|c| f64::from(f32::from_bits(word(c) as u32))).collect())
            }
            Type::Float(_) => {
                Attr::Floats(element, data.chunks_exact(8).map(|c| f64::from_bits(word(c) as u64)).collect())
            }
            _ => {
                let unused = 64 - 8 * size as u32;
                Attr::Ints(element, data.chunks_exact(size).map(|c| word(c) << unused >> unused).collect())
            }
        })
    }

    fn dense(&self, at: &mut Cursor<'a>) -> Read<Attr<'a>> {
        let ty = self.type_id(at)?;
        Ok(Attr::Dense(Dense { ty, data: Cow::Borrowed(at.blob()?) }))
    }

    pub(super) fn int_attr(&mut self, value: i64) -> AttrId {
        let ty = self.i64_type();
        self.module.add_attr(Attr::Integer(value, ty))
    }

    pub(super) fn ints_attr(&mut self, values: Vec<i64>) -> AttrId {
        let ty = self.i64_type();
        self.module.add_attr(Attr::Ints(ty, values))
    }

    pub(super) fn string_attr(&mut self, at: &mut Cursor<'a>) -> Read<AttrId> {
        let string = self.read_string(at)?;
        Ok(self.module.add_attr(Attr::String(Cow::Borrowed(string))))
    }

    pub(super) fn array_attr(&mut self, at: &mut Cursor<'a>) -> Read<AttrId> {
        let items = self.attrs(at)?;
        Ok(self.module.add_attr(Attr::Array(items)))
    }

    fn decode_attr(&mut self, entry: &Entry<'a>) -> Read<Attr<'a>> {
        if !entry.encoded {
            let text = entry.bytes.strip_suffix(b"\0").unwrap_or(entry.bytes);
            let read = match entry.dialect {
                "stablehlo" | "chlo" => crate::text::attribute_into(&mut self.module, text),
                _ => None,
            };
            return Ok(read.map_or(Attr::Opaque(Cow::Borrowed(text)), |id| self.module.attr(id).clone()));
        }
        let mut at = Self::entry_cursor(entry);
        let code = at.varint()?;
        match entry.dialect {
            "builtin" => self.builtin_attr(&mut at, code),
            "vhlo" => self.vhlo_attr(&mut at, code),
            "sdy" => self.sdy_attr(&mut at, code),
            "stablehlo" => self.stablehlo_attr(&mut at, code),
            "chlo" => self.chlo_attr(&mut at, code),
            other => Err(unknown_code("attribute", other, code)),
        }
    }

    fn builtin_attr(&mut self, at: &mut Cursor<'a>, code: u64) -> Read<Attr<'a>> {
        Ok(match code {
            0 => Attr::Array(self.attrs(at)?),
            1 => self.dictionary(at)?,
            4 => Attr::Symbol(Cow::Borrowed(self.string_of(at)?)),
            5 => {
                let root = self.string_of(at)?;
                Attr::Symbol(Cow::Borrowed(root))
            }
            6 => Attr::Type(self.type_id(at)?),
            7 => Attr::Unit,
            8 => {
                let ty = self.type_id(at)?;
                self.integer(at, ty)?
            }
            9 => {
                let ty = self.type_id(at)?;
                self.float(at, ty)?
            }
            10 => {
                let callee = self.attr(at)?;
                Attr::Location(Location::CallSite { callee, caller: self.attr(at)? })
            }
            11 => {
                let file = self.string_of(at)?;
                let (line, column) = (at.index()?, at.index()?);
                file_range(file, line, column, line, column)
            }
            12 => Attr::Location(Location::Fused(self.attrs(at)?)),
            13 => {
                let parts = self.attrs(at)?;
                self.attr(at)?;
                Attr::Location(Location::Fused(parts))
            }
            14 => {
                let name = self.string_of(at)?;
                Attr::Location(Location::Name(Cow::Borrowed(name), Some(self.attr(at)?)))
            }
            15 => Attr::Location(Location::Unknown),
            16 => {
                let ty = self.type_id(at)?;
                let handle = at.varint()?;
                Attr::Resource(ty, Cow::Owned(format!("\0handle {handle}").into_bytes()))
            }
            17 => self.dense_array(at)?,
            18 => self.dense(at)?,
            19 | 20 | 23 | 24 => Attr::Opaque(Cow::Borrowed(b"an attribute of a kind that is not used")),
            21 => {
                self.attr(at)?;
                Attr::Unit
            }
            22 => {
                let file = self.string_of(at)?;
                let n = at.indices()?;
                match n[..] {
                    [] => file_range(file, 0, 0, 0, 0),
                    [line] => file_range(file, line, 0, line, 0),
                    [line, column] => file_range(file, line, column, line, column),
                    [line, column, end] => file_range(file, line, column, line, end),
                    [line, column, end_line, end, ..] => file_range(file, line, column, end_line, end),
                }
            }
            _ => return Err(unknown_code("attribute", "builtin", code)),
        })
    }

    pub(super) fn keyword(&self, at: &mut Cursor<'a>, names: &'static [&'static str]) -> Read<Attr<'a>> {
        let n = at.varint()?;
        match usize::try_from(n).ok().and_then(|n| names.get(n)) {
            Some(&name) => Ok(Attr::Keyword(Cow::Borrowed(name))),
            None => Err(at.damaged(format_args!("{n} is no member of an enumeration"))),
        }
    }

    fn vhlo_attr(&mut self, at: &mut Cursor<'a>, code: u64) -> Read<Attr<'a>> {
        Ok(match code {
            1 => Attr::Array(self.attrs(at)?),
            2 => Attr::Bool(at.varint()? != 0),
            3 => self.keyword(at, DIRECTIONS)?,
            4 => self.keyword(at, COMPARE_TYPES)?,
            5 => self.keyword(at, API_VERSIONS)?,
            6 => self.dictionary(at)?,
            7 => self.keyword(at, FFT_TYPES)?,
            8 => {
                let ty = self.type_id(at)?;
                self.float(at, ty)?
            }
            9 => {
                let ty = self.type_id(at)?;
                self.integer(at, ty)?
            }
            10 => self.output_operand_alias(at)?,
            11 => self.keyword(at, PRECISIONS)?,
            12 => self.keyword(at, RNG_ALGORITHMS)?,
            13 => self.keyword(at, RNG_DISTRIBUTIONS)?,
            15 => self.dense(at)?,
            16 => self.keyword(at, TRANSPOSES)?,
            17 => Attr::Type(self.type_id(at)?),
            18 => self.bounds(at)?,
            19 => self.keyword(at, ACCURACY_MODES)?,
            20 => self.result_accuracy(at)?,
            21 => self.sub_axis(at)?,
            22 => {
                let name = self.attr(at)?;
                let sub = if at.varint()? != 0 { Some(self.attr(at)?) } else { None };
                fields("stablehlo.axis_ref", [("name", Some(name)), ("sub_axis", sub)])
            }
            23 => {
                let mesh = self.attr(at)?;
                let axes = self.attr(at)?;
                fields("stablehlo.replica_group_mesh_axes", [("mesh", Some(mesh)), ("axes", Some(axes))])
            }
            24 => {
                let name = self.attr(at)?;
                let size = at.svarint()?;
                let size = self.int_attr(size);
                fields("stablehlo.mesh_axis", [("name", Some(name)), ("size", Some(size))])
            }
            25 => {
                let axes = self.attr(at)?;
                let devices = self.optional_attr(at)?;
                fields("stablehlo.mesh", [("axes", Some(axes)), ("device_ids", devices)])
            }
            _ => return Err(unknown_code("attribute", "vhlo", code)),
        })
    }

    pub(super) fn sub_axis(&mut self, at: &mut Cursor<'a>) -> Read<Attr<'a>> {
        let (pre, size) = (at.svarint()?, at.svarint()?);
        let (pre, size) = (self.int_attr(pre), self.int_attr(size));
        Ok(Attr::Struct(Cow::Borrowed("sdy.sub_axis"), vec![("pre_size".into(), pre), ("size".into(), size)]))
    }

    fn sdy_attr(&mut self, at: &mut Cursor<'a>, code: u64) -> Read<Attr<'a>> {
        let named = |name: &'static str, fields: Vec<Named<'a>>| Attr::Struct(Cow::Borrowed(name), fields);
        Ok(match code {
            0 => named("sdy.manual_axes", vec![("axes".into(), self.array_attr(at)?)]),
            1 => {
                let name = self.string_attr(at)?;
                let size = at.svarint()?;
                named("sdy.mesh_axis", vec![("name".into(), name), ("size".into(), self.int_attr(size))])
            }
            2 => {
                let axes = self.array_attr(at)?;
                let devices = at.svarints()?;
                named("sdy.mesh", vec![("axes".into(), axes), ("device_ids".into(), self.ints_attr(devices))])
            }
            3 => self.sub_axis(at)?,
            4 => {
                let mut fields: Vec<Named<'a>> = vec![("name".into(), self.string_attr(at)?)];
                if let Some(sub) = self.optional_attr(at)? {
                    fields.push(("sub_axis".into(), sub));
                }
                named("sdy.axis_ref", fields)
            }
            5 => {
                let axes = self.array_attr(at)?;
                let closed = at.byte()? != 0;
                let closed = self.module.add_attr(Attr::Bool(closed));
                let mut fields: Vec<Named<'a>> = vec![("axes".into(), axes), ("closed".into(), closed)];
                if let (priority, true) = at.flagged()? {
                    fields.push(("priority".into(), self.int_attr(priority as i64)));
                }
                named("sdy.dim_sharding", fields)
            }
            6 | 15 | 17 => {
                let mut fields: Vec<Named<'a>> = vec![("mesh".into(), self.attr(at)?)];
                fields.push(("dims".into(), self.array_attr(at)?));
                fields.push(("replicated".into(), self.array_attr(at)?));
                if code != 6 {
                    fields.push(("unreduced".into(), self.array_attr(at)?));
                }
                if code == 17 {
                    const REDUCTIONS: [&[u8]; 3] = [b"", b"max", b"min"];
                    let kind = usize::try_from(at.svarint()?).ok().and_then(|k| REDUCTIONS.get(k));
                    let kind = kind.ok_or_else(|| at.damaged("a sum in parts has an unknown way to be combined"))?;
                    let word = self.module.add_attr(Attr::String(Cow::Borrowed(kind)));
                    fields.push(("reduction".into(), word));
                }
                named("sdy.sharding", fields)
            }
            7 | 16 => named("sdy.sharding_per_value", vec![("shardings".into(), self.array_attr(at)?)]),
            8 => Attr::Ints(self.i64_type(), at.svarints()?),
            9 => Attr::Array(self.attrs(at)?),
            10 => {
                let mut fields: Vec<Named<'a>> = Vec::new();
                let sizes = at.svarints()?;
                fields.push(("factor_sizes".into(), self.ints_attr(sizes)));
                fields.push(("operands".into(), self.array_attr(at)?));
                fields.push(("results".into(), self.array_attr(at)?));
                for key in ["reduction", "need_replication", "permutation", "blocked_propagation"] {
                    let factors = at.svarints()?;
                    fields.push((key.into(), self.ints_attr(factors)));
                }
                let custom = at.byte()? != 0;
                fields.push(("custom".into(), self.module.add_attr(Attr::Bool(custom))));
                named("sdy.op_sharding_rule", fields)
            }
            11..=14 => Attr::Opaque(Cow::Borrowed(b"#sdy.axes")),
            _ => return Err(unknown_code("attribute", "sdy", code)),
        })
    }

    fn decode_type(&mut self, entry: &Entry<'a>) -> Read<Type<'a>> {
        if !entry.encoded {
            let text = entry.bytes.strip_suffix(b"\0").unwrap_or(entry.bytes);
            return Ok(crate::text::simple_type(text).unwrap_or(Type::Opaque(Cow::Borrowed(text))));
        }
        let mut at = Self::entry_cursor(entry);
        let code = at.varint()?;
        match entry.dialect {
            "builtin" => self.builtin_type(&mut at, code),
            "vhlo" => self.vhlo_type(&mut at, code),
            "stablehlo" => self.stablehlo_type(&mut at, code),
            other => Err(unknown_code("type", other, code)),
        }
    }

    fn builtin_type(&mut self, at: &mut Cursor<'a>, code: u64) -> Read<Type<'a>> {
        const FLOATS: [FloatKind; 12] = [
            FloatKind::Tf32,
            FloatKind::F8E5M2,
            FloatKind::F8E4M3,
            FloatKind::F8E4M3FN,
            FloatKind::F8E5M2FNUZ,
            FloatKind::F8E4M3FNUZ,
            FloatKind::F8E4M3B11FNUZ,
            FloatKind::F8E3M4,
            FloatKind::F4E2M1FN,
            FloatKind::F6E2M3FN,
            FloatKind::F6E3M2FN,
            FloatKind::F8E8M0FNU,
        ];
        Ok(match code {
            0 => {
                let n = at.varint()?;
                let sign = match n & 3 {
                    0 => Signedness::Signless,
                    1 => Signedness::Signed,
                    _ => Signedness::Unsigned,
                };
                let bits = u32::try_from(n >> 2).ok().filter(|&b| b < 1 << 24);
                Type::Integer(bits.ok_or_else(|| at.damaged("an integer type is too wide"))?, sign)
            }
            1 => Type::Index,
            2 => Type::Function(self.types(at)?, self.types(at)?),
            3 => Type::Float(FloatKind::Bf16),
            4 => Type::Float(FloatKind::F16),
            5 => Type::Float(FloatKind::F32),
            6 => Type::Float(FloatKind::F64),
            7 => Type::Float(FloatKind::F80),
            8 => Type::Float(FloatKind::F128),
            9 => Type::Complex(self.type_id(at)?),
            10 => Type::MemRef(at.svarints()?, self.type_id(at)?),
            11 => {
                self.attr(at)?;
                Type::MemRef(at.svarints()?, self.type_id(at)?)
            }
            12 => Type::None,
            13 => Type::Tensor { dims: at.svarints()?, element: self.type_id(at)?, encoding: None },
            14 => {
                let encoding = Some(self.attr(at)?);
                Type::Tensor { dims: at.svarints()?, element: self.type_id(at)?, encoding }
            }
            15 => Type::Tuple(self.types(at)?),
            16 | 17 | 19 | 20 => Type::Opaque(Cow::Borrowed(b"a memref or vector")),
            18 => Type::UnrankedTensor(self.type_id(at)?),
            21..=32 => Type::Float(FLOATS[code as usize - 21]),
            _ => return Err(unknown_code("type", "builtin", code)),
        })
    }

    fn vhlo_type(&mut self, at: &mut Cursor<'a>, code: u64) -> Read<Type<'a>> {
        use FloatKind::*;
        let int = |bits| Type::Integer(bits, Signedness::Signless);
        let unsigned = |bits| Type::Integer(bits, Signedness::Unsigned);
        Ok(match code {
            0 => int(1),
            1 => Type::Complex(self.type_id(at)?),
            2 => Type::Float(Bf16),
            3 => Type::Float(F16),
            4 => Type::Float(F32),
            5 => Type::Float(F64),
            6 => Type::Float(F8E4M3FN),
            7 => Type::Float(F8E5M2),
            8 => Type::Function(self.types(at)?, self.types(at)?),
            9 => Type::Index,
            10..=14 => int(4 << (code - 10)),
            15..=19 => unsigned(4 << (code - 15)),
            20 => Type::Tensor { dims: at.svarints()?, element: self.type_id(at)?, encoding: None },
            21 => {
                let encoding = Some(self.attr(at)?);
                Type::Tensor { dims: at.svarints()?, element: self.type_id(at)?, encoding }
            }
            22 => Type::Token,
            23 => Type::Tuple(self.types(at)?),
            24 => Type::Quantized(Cow::Borrowed(b"!quant.uniform")),
            25 => Type::UnrankedTensor(self.type_id(at)?),
            26 => Type::Opaque(Cow::Borrowed(b"!shape.witness")),
            27 => Type::Float(F8E4M3FNUZ),
            28 => Type::Float(F8E5M2FNUZ),
            29 => Type::Float(F8E4M3B11FNUZ),
            30 => Type::Quantized(Cow::Borrowed(b"!quant.uniform (per axis)")),
            31 => int(2),
            32 => unsigned(2),
            33 => Type::None,
            34 => Type::Float(Tf32),
            35 => Type::Float(F8E4M3),
            36 => Type::Float(F8E3M4),
            37 => Type::Float(F4E2M1FN),
            38 => Type::Float(F6E2M3FN),
            39 => Type::Float(F6E3M2FN),
            40 => Type::Float(F8E8M0FNU),
            41 => Type::MemRef(at.svarints()?, self.type_id(at)?),
            42 => Type::Future(self.types(at)?),
            _ => return Err(unknown_code("type", "vhlo", code)),
        })
    }
}

fn file_range(file: &[u8], line: u32, column: u32, end_line: u32, end_column: u32) -> Attr<'_> {
    let file = Cow::Borrowed(file);
    Attr::Location(Location::File(Box::new(FileRange { file, line, column, end_line, end_column })))
}
