//! The arrays that go into and come out of a run, by the names they have in npz files.
//!
//! Inputs: `p3` is parameter 3 on every device, `d1.p3` parameter 3 of device 1, `p3.0`, `p3.1`, … the leaves of a tuple
//! parameter, numbered flat. Outputs: `d0.o0`, `d0.o1`, … the leaves of each device's result. A missing, superfluous or
//! wrongly shaped array is an error that names it.

use hloom_analysis::devices::DeviceGrid;
use hloom_formats::npz::{self, Archive, Bytes, Descr, NpyArray};
use hloom_ir::diagnostic::{Blame, Diagnostic, Part, codes::eval as codes};
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::InstructionId;
use hloom_ir::literal::Literal;
use hloom_ir::module::Module;
use hloom_ir::op::{ConstantValue, Op};
use hloom_ir::shape::{ArrayShape, Shape};
use hloom_ir::verify::VerifiedModule;
use hloom_value::{Array, Value};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

/// The arguments of each device, one per parameter of the entry.
pub type Inputs = Vec<Vec<Value>>;

/// A file whose parts are read as they are needed.
pub struct ArrayFile {
    file: File,
    size: u64,
}

impl ArrayFile {
    /// The file at `path`; `None` if there is none, or one without a size, such as a pipe.
    pub fn open(path: &str) -> Option<ArrayFile> {
        let file = File::open(crate::paths::to_path(path)).ok()?;
        let facts = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
        Some(ArrayFile { file, size: facts.len() })
    }
}

impl Bytes for ArrayFile {
    fn size(&self) -> u64 {
        self.size
    }
    fn part(&self, at: u64, length: usize) -> Result<Cow<'_, [u8]>, npz::NpzError> {
        let failed = |e: std::io::Error| npz::NpzError::new(e.to_string());
        // Nothing is asked for that the file cannot fill.
        if at.checked_add(length as u64).is_none_or(|end| end > self.size) {
            return Err(npz::NpzError::new("the file ends in the middle"));
        }
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(length).map_err(|_| npz::NpzError::new("an array does not fit in memory"))?;
        let mut file = &self.file;
        file.seek(SeekFrom::Start(at)).map_err(failed)?;
        file.take(length as u64).read_to_end(&mut bytes).map_err(failed)?;
        match bytes.len() == length {
            true => Ok(Cow::Owned(bytes)),
            false => Err(npz::NpzError::new("the file ends in the middle")),
        }
    }
}

/// The arguments from the arrays of an npz file.
pub fn from_npz<F: Bytes + ?Sized>(module: &Module, grid: DeviceGrid, file: &F) -> Result<Inputs, Vec<Diagnostic>> {
    gather(module, grid, Some(("the npz file", file)), &[], None)
}

/// The arguments from wherever they are given: an npz file and the name it goes by, values that fill an array, by its name,
/// and what is made up of a seed for all others.
pub fn gather<F: Bytes + ?Sized>(
    module: &Module,
    grid: DeviceGrid,
    file: Option<(&str, &F)>,
    scalars: &[(String, String)],
    seed: Option<u64>,
) -> Result<Inputs, Vec<Diagnostic>> {
    let file_name = file.map_or("no file", |(name, _)| name);
    let unreadable = |e: npz::NpzError| bad(format!("{file_name} cannot be read: {e}"));
    let archive = file.map(|(_, f)| Archive::open(f)).transpose().map_err(|e| vec![unreadable(e)])?;
    // Where each array is, and whether it is used. Each is read when it is needed: they may be large.
    let mut named: BTreeMap<String, (usize, bool)> = BTreeMap::new();
    for (n, name) in archive.iter().flat_map(Archive::names).enumerate() {
        // What numpy calls arrays that are given without names.
        let name =
            name.strip_prefix("arr_").filter(|n| n.parse::<u32>().is_ok()).map_or(name.to_owned(), |n| format!("p{n}"));
        named.insert(name, (n, false));
    }
    let holds = match (&archive, named.is_empty()) {
        (None, _) => None,
        (_, true) => Some(format!("{file_name} holds no arrays")),
        _ => Some(format!("{file_name} holds {}", listed(named.keys().map(String::as_str)))),
    };
    let made_up = seed.map(|seed| from_seed(module, grid, seed)).transpose().map_err(|d| vec![d])?;
    let mut unused: Vec<&str> = scalars.iter().map(|(name, _)| name.as_str()).collect();
    let mut errors = Vec::new();
    // An array that stands for all devices is converted once and shared.
    let mut shared: BTreeMap<String, Value> = BTreeMap::new();
    let mut inputs = Vec::with_capacity(grid.devices());
    for device in 0..grid.devices() {
        let mut arguments = Vec::new();
        for (number, &p) in parameters(module).iter().enumerate() {
            let shape = &module[p].shape;
            let is_tuple = shape.is_tuple();
            let mut leaves = Vec::new();
            for (leaf, (_, leaf_shape)) in shape.leaves().into_iter().enumerate() {
                let base = if is_tuple { format!("p{number}.{leaf}") } else { format!("p{number}") };
                let own = format!("d{device}.{base}");
                let is_given = |name: &String| named.contains_key(name) || scalars.iter().any(|(n, _)| n == name);
                let name = if is_given(&own) { own } else { base };
                if let Some(value) = shared.get(&name) {
                    leaves.push(value.clone());
                    continue;
                }
                if let Some((_, text)) = scalars.iter().find(|(n, _)| *n == name) {
                    unused.retain(|n| *n != name);
                    match filled(leaf_shape, text) {
                        Ok(value) => {
                            shared.insert(name, value.clone());
                            leaves.push(value);
                        }
                        Err(why) => errors.push(bad(format!("input {name} {why}")).at_instruction(p, Part::Shape)),
                    }
                    continue;
                }
                let given = match named.get_mut(&name).zip(archive.as_ref()) {
                    Some(((n, used), archive)) => {
                        *used = true;
                        Some(archive.array(*n).map_err(|e| vec![unreadable(e)])?)
                    }
                    None => None,
                };
                if let (None, Some(made_up)) = (&given, &made_up) {
                    let value = made_up[device].get(number).and_then(|v| v.leaves().get(leaf).copied().cloned());
                    leaves.push(value.unwrap_or(Value::Token));
                    continue;
                }
                match leaf_value(leaf_shape, given) {
                    Ok(value) => {
                        shared.insert(name, value.clone());
                        leaves.push(value);
                    }
                    Err(why) => {
                        let error = bad(format!("input {name} {why}")).at_instruction(p, Part::Shape);
                        errors.push(holds.iter().fold(error, |e, holds| e.note(holds.clone())).help(CONTRACT));
                    }
                }
            }
            let mut leaves = leaves.into_iter();
            arguments.push(assemble(shape, &mut leaves));
        }
        inputs.push(arguments);
        if !errors.is_empty() {
            break;
        }
    }
    let superfluous = named.iter().filter(|(_, (_, used))| !used).map(|(name, _)| name.as_str()).chain(unused);
    if errors.is_empty() {
        errors.extend(superfluous.map(|name| {
            let from = if named.contains_key(name) { format!(" of {file_name}") } else { String::new() };
            bad(format!("input {name}{from} is not one of the program's")).help(wanted(module, grid))
        }));
    }
    if errors.is_empty() { Ok(inputs) } else { Err(errors) }
}

/// How arrays are named.
const CONTRACT: &str = "p3 is parameter 3 on every device, d1.p3 that of device 1, p3.0 the first leaf of a tuple; \
                        --seed N makes up what is not given";

/// A few names, and how many more there are.
fn listed<'n>(names: impl ExactSizeIterator<Item = &'n str>) -> String {
    const SHOWN: usize = 12;
    let more = names.len().saturating_sub(SHOWN);
    let shown = names.take(SHOWN).collect::<Vec<_>>().join(", ");
    if more > 0 { format!("{shown} and {more} more") } else { shown }
}

/// An array of a shape whose elements are all the number that a text says.
fn filled(shape: &Shape, text: &str) -> Result<Value, String> {
    let shape = shape.as_array_or_buffer().ok_or("is no array")?;
    let element_type = shape.element_type;
    // As HLO text writes it: every type has its way.
    let program = format!("HloModule m\nENTRY e {{\n  ROOT c = {element_type}[] constant({text})\n}}\n");
    let wrong = || format!("is {text}, which is no {element_type}");
    let parsed = hloom_formats::hlo_text::read(program.as_bytes()).module.ok_or_else(wrong)?;
    let constant = parsed.entry().and_then(|e| parsed.root(e)).map(|root| &parsed[root].op);
    let Some(Op::Constant(ConstantValue::Literal(literal))) = constant else { return Err(wrong()) };
    let Some(literal) = literal.as_array() else { return Err(wrong()) };
    let mut array = Array::zeroed(element_type, shape.dims()).map_err(|_| "does not fit in memory")?;
    let element = literal.bytes().to_vec();
    array.bytes_mut().chunks_exact_mut(element.len().max(1)).for_each(|e| e.copy_from_slice(&element));
    Ok(Value::Array(array))
}

/// The number of devices that the names of the arrays in an npz file speak of: one more than the largest `d` of `d3.p0`;
/// `None` if they speak of none, or the file cannot be read.
pub fn devices_named<F: Bytes + ?Sized>(file: &F) -> Option<usize> {
    let archive = Archive::open(file).ok()?;
    let device = |name: &str| name.strip_prefix('d')?.split_once(".p")?.0.parse::<usize>().ok()?.checked_add(1);
    archive.names().filter_map(device).max()
}

fn bad(message: String) -> Diagnostic {
    Diagnostic::error(&codes::BAD_INPUT, message).blame(Blame::Data)
}

fn parameters(module: &Module) -> Vec<InstructionId> {
    module.entry().map_or_else(Vec::new, |entry| module.parameters(entry).to_vec())
}

fn wanted(module: &Module, grid: DeviceGrid) -> String {
    let count = parameters(module).len();
    match count {
        0 => "the program has no parameters".to_owned(),
        _ => format!("it has parameters p0 to p{} and runs on devices d0 to d{}", count - 1, grid.devices() - 1),
    }
}

/// What is wrong with the array that is given for a value, in words that follow its name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ArrayMisfit {
    /// The value is no array.
    NoArray,
    /// None is given.
    Missing {
        /// The shape that is needed.
        needed: String,
    },
    /// It is of another type or of other sizes.
    Other {
        /// What is given.
        given: String,
        /// The shape that is needed.
        needed: String,
    },
    /// There is no memory for it.
    NoMemory,
}

impl std::fmt::Display for ArrayMisfit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ArrayMisfit::NoArray => f.write_str("has no array type"),
            ArrayMisfit::Missing { needed } => write!(f, "is missing: {needed} is needed"),
            ArrayMisfit::Other { given, needed } => write!(f, "is {given}, but {needed} is needed"),
            ArrayMisfit::NoMemory => f.write_str("does not fit in memory"),
        }
    }
}

impl std::error::Error for ArrayMisfit {}

/// The value of one leaf, or what is wrong with the array given for it.
fn leaf_value(shape: &Shape, given: Option<NpyArray<'_>>) -> Result<Value, ArrayMisfit> {
    let array_shape = match shape {
        Shape::Token => return Ok(Value::Token),
        Shape::Opaque => return Ok(Value::Opaque),
        other => other.as_array_or_buffer().ok_or(ArrayMisfit::NoArray)?,
    };
    let array = given.ok_or_else(|| ArrayMisfit::Missing { needed: array_shape.to_string() })?;
    let fits = descr_fits(array_shape.element_type, array.descr) && dims_fit(array_shape, &array.dims);
    if !fits {
        let needed = Shape::from(array_shape.clone()).without_layout().to_string();
        return Err(ArrayMisfit::Other { given: format!("{}{:?}", array.descr, array.dims), needed });
    }
    let mut value =
        Array::from_bytes(array_shape.element_type, &array.dims, &array.bytes).map_err(|_| ArrayMisfit::NoMemory)?;
    normalize(&mut value);
    Ok(Value::Array(value))
}

/// The array of that shape from a file, or what is wrong with it.
pub fn array_of(shape: &ArrayShape, given: NpyArray<'_>) -> Result<Array, ArrayMisfit> {
    match leaf_value(&Shape::from(shape.clone()), Some(given))? {
        Value::Array(array) => Ok(array),
        _ => Err(ArrayMisfit::NoArray),
    }
}

/// Sizes equal the shape's, or are within the bound where that is dynamic.
fn dims_fit(shape: &ArrayShape, dims: &[i64]) -> bool {
    shape.rank() == dims.len()
        && shape.dims().iter().zip(dims).enumerate().all(|(d, (&bound, &size))| {
            size == bound || (shape.is_dynamic_dim(d) && (bound == ArrayShape::UNBOUNDED || size <= bound))
        })
}

/// Brings elements whose type has fewer bits than a byte into the form that arrays have: sign-extended or masked; pred 0
/// or 1.
fn normalize(array: &mut Array) {
    let element_type = array.element_type();
    let bits = element_type.bits();
    if element_type == ElementType::Pred {
        array.bytes_mut().iter_mut().for_each(|b| *b = u8::from(*b != 0));
    } else if element_type.is_signed_integer() && bits < 8 {
        array.bytes_mut().iter_mut().for_each(|b| *b = (((*b << (8 - bits)) as i8) >> (8 - bits)) as u8);
    } else if bits < 8 {
        array.bytes_mut().iter_mut().for_each(|b| *b &= (1 << bits) - 1);
    }
}

/// The type that an array has in a file.
pub fn descr_of(element_type: ElementType) -> Descr {
    let kind = match element_type {
        ElementType::Pred => b'b',
        ElementType::Bf16 => b'V',
        t if t.is_small_float() => b'V',
        t if t.is_signed_integer() => b'i',
        t if t.is_unsigned_integer() => b'u',
        t if t.is_complex() => b'c',
        _ => b'f',
    };
    Descr { kind, size: element_type.bytes() }
}

/// Whether an array of that type in a file can be one of `element_type`: the same, or raw bytes of the same size.
fn descr_fits(element_type: ElementType, descr: Descr) -> bool {
    let own = descr_of(element_type);
    let raw_integer = element_type.is_sub_byte() || element_type.is_small_float();
    descr == own
        || (descr.size == own.size && descr.kind == b'V')
        || (raw_integer && descr.size == 1 && matches!(descr.kind, b'i' | b'u' | b'f'))
        || (element_type == ElementType::Pred && descr.size == 1 && descr.kind == b'u')
}

/// A value of `shape` from its leaves; one that is missing has been reported.
fn assemble(shape: &Shape, leaves: &mut impl Iterator<Item = Value>) -> Value {
    match shape {
        Shape::Tuple(t) => Value::Tuple(t.iter().map(|s| assemble(s, leaves)).collect()),
        _ => leaves.next().unwrap_or(Value::Token),
    }
}

/// Made-up arguments, the same on every device: floats uniform in [-1, 1), integers and preds 0 or 1.
pub fn from_seed(module: &Module, grid: DeviceGrid, seed: u64) -> Result<Inputs, Diagnostic> {
    let mut random = SplitMix(seed);
    let mut arguments = Vec::new();
    for p in parameters(module) {
        arguments.push(made_up(&module[p].shape, &mut random).map_err(|f| f.at(p).into_diagnostic())?);
    }
    Ok(vec![arguments; grid.devices()])
}

/// A made-up value of `shape`.
pub fn made_up(shape: &Shape, random: &mut SplitMix) -> Result<Value, hloom_value::ExecutionError> {
    Ok(match shape {
        Shape::Array(a) | Shape::Buffer(a) => {
            let float = a.element_type.is_float() || a.element_type.is_complex();
            if !float {
                let mut array = Array::zeroed(a.element_type, a.dims())?;
                let width = a.element_type.bytes();
                array.bytes_mut().chunks_exact_mut(width).for_each(|e| e[0] = (random.next() >> 63) as u8);
                if a.element_type == ElementType::S1 {
                    normalize(&mut array);
                }
                return Ok(Value::Array(array));
            }
            let wide = if a.element_type.is_complex() { ElementType::C128 } else { ElementType::F64 };
            let mut array = Array::zeroed(wide, a.dims())?;
            for x in array.bytes_mut().as_chunks_mut::<8>().0 {
                *x = ((random.next() >> 11) as f64 / (1u64 << 52) as f64 - 1.0).to_le_bytes();
            }
            Value::Array(hloom_eval::ops::elementwise::convert(array, a.element_type)?)
        }
        Shape::Tuple(t) => Value::Tuple(t.iter().map(|s| made_up(s, random)).collect::<Result<_, _>>()?),
        Shape::Token => Value::Token,
        Shape::Opaque => Value::Opaque,
    })
}

/// The generator SplitMix64: small, fast, and the same everywhere.
pub struct SplitMix(pub u64);

impl SplitMix {
    /// The next 64 random bits.
    #[allow(clippy::should_implement_trait, reason = "it never ends, and nobody iterates over it")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

/// An npz file with these arrays under their names.
pub fn to_npz(named: &[(String, Array)]) -> Vec<u8> {
    npz::write(named.iter().map(|(name, a)| (name.clone(), descr_of(a.element_type()), a.dims(), a.bytes())))
}

/// Whether the arrays of a file are named by the devices that they are for, as `d0.p0`.
pub fn names_devices(path: &str) -> bool {
    let Some(file) = ArrayFile::open(path) else { return false };
    let is_device = |name: &str| {
        let device = name.strip_prefix('d').and_then(|rest| rest.split_once('.'));
        device.is_some_and(|(number, _)| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
    };
    Archive::open(&file).is_ok_and(|archive| archive.names().any(is_device))
}

/// An npz file with the arguments of each device: once for all where they are the same.
pub fn inputs_to_npz(inputs: &Inputs) -> Vec<u8> {
    let mut named: Vec<(String, &Array)> = Vec::new();
    let parameters = inputs.first().map_or(0, Vec::len);
    for number in 0..parameters {
        let of_device = |arguments: &'_ Vec<Value>| -> Vec<(usize, bool)> {
            let is_tuple = matches!(arguments.get(number), Some(Value::Tuple(_)));
            let leaves = arguments.get(number).map_or(0, |v| v.leaves().len());
            (0..leaves).map(|n| (n, is_tuple)).collect()
        };
        let leaf = |device: usize, n: usize| -> Option<&Array> {
            inputs[device].get(number)?.leaves().get(n).and_then(|v| v.as_array().ok())
        };
        for (n, is_tuple) in of_device(&inputs[0]) {
            let base = if is_tuple { format!("p{number}.{n}") } else { format!("p{number}") };
            let Some(first) = leaf(0, n) else { continue };
            let is_same = |a: &Array| a.dims() == first.dims() && a.bytes() == first.bytes();
            match (1..inputs.len()).all(|d| leaf(d, n).is_some_and(is_same)) {
                true => named.push((base, first)),
                false => {
                    let each = (0..inputs.len()).filter_map(|d| Some((format!("d{d}.{base}"), leaf(d, n)?)));
                    named.extend(each);
                }
            }
        }
    }
    npz::write(named.into_iter().map(|(name, a)| (name, descr_of(a.element_type()), a.dims(), a.bytes())))
}

/// The arguments for `devices` devices from the bytes of an npz file, if they are there and fit.
pub fn read_inputs(module: &Module, devices: usize, bytes: &[u8]) -> Option<Inputs> {
    let grid = crate::execute::choose_devices(module, Some(devices), None).ok()?.grid;
    from_npz(module, grid, bytes).ok()
}

/// The results of `devices` devices from the bytes of an npz file, if they are there and fit the program.
pub fn read_results(program: &VerifiedModule, devices: usize, bytes: &[u8]) -> Option<Vec<Value>> {
    let module = program.module();
    let archive = Archive::open(bytes).ok()?;
    let places: BTreeMap<String, usize> = archive.names().enumerate().map(|(n, name)| (name.to_owned(), n)).collect();
    let shape = &module[module.entry().and_then(|entry| module.root(entry))?].shape;
    let result = |device: usize| {
        let mut leaves = Vec::new();
        for (n, (_, leaf)) in shape.leaves().into_iter().enumerate() {
            let given = match places.get(&format!("d{device}.o{n}")) {
                Some(&place) => Some(archive.array(place).ok()?),
                None => None,
            };
            leaves.push(leaf_value(leaf, given).ok()?);
        }
        Some(assemble(shape, &mut leaves.into_iter()))
    };
    (0..devices).map(result).collect()
}

/// Arguments from literals, one list per device; in words what does not fit.
pub fn from_literals(module: &Module, devices: &[Vec<Literal>]) -> Result<Inputs, Vec<Diagnostic>> {
    let parameters = parameters(module);
    let of_device = |arguments: &Vec<Literal>| {
        if arguments.len() != parameters.len() {
            let (given, needed) = (arguments.len(), parameters.len());
            return Err(vec![bad(format!("the snapshot has {given} arguments for {needed} parameters"))]);
        }
        let one = |(&p, literal): (&InstructionId, &Literal)| {
            let shape = &module[p].shape;
            let value = Value::from_literal(literal).map_err(|f| vec![f.at(p).into_diagnostic()])?;
            match value.fits(shape) {
                true => Ok(value),
                false => {
                    let message = format!("the snapshot has {} for {shape}", literal.shape());
                    Err(vec![bad(message).at_instruction(p, Part::Shape)])
                }
            }
        };
        parameters.iter().zip(arguments).map(one).collect()
    };
    devices.iter().map(of_device).collect()
}

/// The leaves of each device's result that are arrays, with their names.
pub fn outputs(results: &[Value]) -> Vec<(String, &Array)> {
    let mut named = Vec::new();
    for (device, result) in results.iter().enumerate() {
        for (n, leaf) in result.leaves().into_iter().enumerate() {
            if let Value::Array(array) = leaf {
                named.push((format!("d{device}.o{n}"), array));
            }
        }
    }
    named
}
