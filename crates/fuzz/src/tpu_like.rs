//! Programs as a TPU compiler would leave them, each with the source program that it must agree with.
//!
//! A program is written twice at once: plainly, and with what such compilers do: tiles and orders of dimensions, values
//! kept in bf16, products as convolutions, operations in fusions, values fetched into a fast memory, as a whole or in
//! slices of their bytes, and bitcasts in the place of transposes and reshapes wherever the memory is the same. Programs of
//! several devices also have collectives in the forms that such compilers give them ([`collectives`]). All values are small
//! integers, which bf16 holds exactly, so both must give the same, bit by bit.

mod collectives;
mod dots;

use crate::choices::Choices;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::InstructionId;
use hloom_ir::layout::memory::MemoryForm;
use hloom_ir::layout::{Layout, Tile};
use hloom_ir::module::Module;
use hloom_ir::shape::ArrayShape;
use hloom_value::{Array, Value};
use std::fmt::Write;

/// A program in its two forms, as HLO text.
#[derive(Clone, Debug)]
pub struct TpuLike {
    /// As a front end writes it.
    pub source: String,
    /// As a compiler leaves it.
    pub dump: String,
}

/// A program of `steps` operations for one device.
pub fn generate(choices: &mut Choices<'_>, steps: usize) -> TpuLike {
    generate_for(choices, steps, 1)
}

/// A program of `steps` operations for that many partitions; with more than one, many of them are collectives.
pub fn generate_for(choices: &mut Choices<'_>, steps: usize, devices: i64) -> TpuLike {
    let mut writer = Writer::new(choices, devices);
    for _ in 0..2 {
        let rank = writer.choices.between(2, 3);
        let dims = (0..rank).map(|_| writer.size()).collect();
        let value = writer.parameter(dims);
        writer.values.push(value);
    }
    for _ in 0..steps {
        writer.step();
    }
    writer.finish()
}

/// Arguments for a module's parameters: integers from -2 to 2.
pub fn arguments(module: &Module, choices: &mut Choices<'_>) -> Vec<Value> {
    let parameters = module.entry().map_or_else(Vec::new, |e| module.parameters(e));
    let value = |p: InstructionId| {
        let array = module[p].shape.as_array()?;
        let count = array.element_count()?;
        let numbers: Vec<f32> = (0..count).map(|_| choices.between(-2, 2) as f32).collect();
        Array::new(array.dims(), &numbers).map(Value::Array)
    };
    parameters.into_iter().filter_map(value).collect()
}

/// A value: its names in both programs, and how it is kept in the compiled one.
#[derive(Clone)]
struct Held {
    source: String,
    dump: String,
    shape: ArrayShape,
}

impl Held {
    fn dims(&self) -> &[i64] {
        self.shape.dims()
    }
}

struct Writer<'c, 'b> {
    choices: &'c mut Choices<'b>,
    devices: i64,
    parameters: usize,
    names: usize,
    channels: usize,
    source: String,
    dump: String,
    fused: String,
    values: Vec<Held>,
}

/// The tiles that an array of these sizes, slowest first, has.
fn tiles(element_type: ElementType, physical: &[i64]) -> Vec<Tile> {
    let packed = 32 / i64::from(element_type.bits());
    let power =
        |n: i64, low: i64, high: i64| (n.max(1) as u64).next_power_of_two().clamp(low as u64, high as u64) as i64;
    let tile = |sizes: &[i64]| Tile(sizes.iter().copied().collect());
    let mut tiles = match *physical {
        [] => return vec![tile(&[128 * packed])],
        [n] => {
            let first = vec![tile(&[power(n, 128 * packed, 1024)])];
            if packed > 1 { [first, vec![tile(&[128])]].concat() } else { first }
        }
        [.., rows, _] => vec![tile(&[power(rows, packed, 8), 128])],
    };
    if packed > 1 {
        tiles.push(tile(&[packed, 1]));
    }
    tiles
}

/// An array with its tiles, in that order of dimensions (fastest first), in that memory.
fn laid_out(element_type: ElementType, dims: &[i64], order: &[i64], space: i64) -> ArrayShape {
    let physical: Vec<i64> = order.iter().rev().map(|&d| dims[d as usize]).collect();
    let mut layout = Layout::new(order.iter().copied());
    layout.tiles = tiles(element_type, &physical).into_iter().collect();
    layout.memory_space = space;
    ArrayShape::new(element_type, dims.iter().copied()).with_layout(layout)
}

fn descending(rank: usize) -> Vec<i64> {
    (0..rank as i64).rev().collect()
}

/// Whether the elements of both, in row-major order, have the same places.
fn same_memory(a: &ArrayShape, b: &ArrayShape) -> bool {
    let positions = |shape: &ArrayShape| -> Option<Vec<i64>> {
        let form = MemoryForm::of(shape)?;
        let mut index = vec![0i64; shape.rank()];
        let places = (0..shape.element_count()?).map(|n| {
            let mut rest = n;
            for (i, &size) in index.iter_mut().zip(shape.dims()).rev() {
                *i = rest % size;
                rest /= size;
            }
            form.position(&index)
        });
        Some(places.collect())
    };
    a.element_type == b.element_type && positions(a) == positions(b)
}

fn list(numbers: &[i64]) -> String {
    numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

impl<'c, 'b> Writer<'c, 'b> {
    fn new(choices: &'c mut Choices<'b>, devices: i64) -> Writer<'c, 'b> {
        let (source, dump, fused) = (String::new(), String::new(), String::new());
        Writer { choices, devices, parameters: 0, names: 0, channels: 0, source, dump, fused, values: Vec::new() }
    }

    fn size(&mut self) -> i64 {
        *self.choices.pick(&[2, 2, 3, 4, 4, 5, 8, 16])
    }

    fn name(&mut self, base: &str) -> String {
        self.names += 1;
        format!("{base}.{}", self.names)
    }

    /// Adds an instruction to the source program.
    fn say(&mut self, dims: &[i64], text: &str) -> String {
        let name = self.name("v");
        let _ = writeln!(self.source, "  {name} = f32[{}] {text}", list(dims));
        name
    }

    /// Adds an instruction to the compiled program as it is.
    fn put(&mut self, shape: &ArrayShape, text: &str) -> String {
        let name = self.name("w");
        let _ = writeln!(self.dump, "  {name} = {shape} {text}");
        name
    }

    /// f32, or bf16 as a compiler would like.
    fn precision(&mut self) -> ElementType {
        if self.choices.chance(40) { ElementType::Bf16 } else { ElementType::F32 }
    }

    fn order(&mut self, rank: usize) -> Vec<i64> {
        let mut order = descending(rank);
        if self.choices.chance(40) {
            self.choices.shuffle(&mut order);
        }
        order
    }

    /// Adds an operation on `operands` to the compiled program, alone or in a fusion, whose parameters may be of another
    /// precision than what is passed.
    fn operate(
        &mut self,
        shape: &ArrayShape,
        operands: &[(&str, &ArrayShape)],
        opcode: &str,
        attributes: &str,
    ) -> String {
        let names: Vec<&str> = operands.iter().map(|(name, _)| *name).collect();
        if !self.choices.chance(50) {
            return self.put(shape, &format!("{opcode}({}){attributes}", names.join(", ")));
        }
        let computation = self.name("fused_computation");
        let _ = writeln!(self.fused, "{computation} {{");
        let mut parameters = Vec::new();
        for (n, (_, operand)) in operands.iter().enumerate() {
            // A bitcast of a parameter in another precision would read other bytes.
            let is_float = operand.element_type.is_float() && !operand.is_scalar() && opcode != "bitcast";
            let inner = match is_float && self.choices.chance(20) {
                true => laid_out(self.precision(), operand.dims(), &operand.minor_to_major(), 0),
                false => (*operand).clone(),
            };
            let parameter = self.name("param");
            let _ = writeln!(self.fused, "  {parameter} = {inner} parameter({n})");
            parameters.push(parameter);
        }
        let root = self.name("inner");
        let _ = writeln!(self.fused, "  ROOT {root} = {shape} {opcode}({}){attributes}\n}}\n", parameters.join(", "));
        let kind = if opcode == "convolution" { "kOutput" } else { "kLoop" };
        self.put(shape, &format!("fusion({}), kind={kind}, calls={computation}", names.join(", ")))
    }

    fn parameter(&mut self, dims: Vec<i64>) -> Held {
        let number = self.parameters;
        self.parameters += 1;
        let source = self.say(&dims, &format!("parameter({number})"));
        let shape = laid_out(ElementType::F32, &dims, &descending(dims.len()), 0);
        let dump = self.put(&shape, &format!("parameter({number})"));
        self.fetched(Held { source, dump, shape })
    }

    /// The value as it is, or brought into the fast memory.
    fn fetched(&mut self, value: Held) -> Held {
        let fast = |shape: &ArrayShape| {
            let mut layout = shape.layout.clone().unwrap_or_default();
            layout.memory_space = 1;
            shape.clone().with_layout(layout)
        };
        let target = fast(&value.shape);
        let dump = match self.choices.below(6) {
            0 => {
                let start = self.name("copy-start");
                let _ = writeln!(
                    self.dump,
                    "  {start} = ({target}, {}, u32[]{{:S(2)}}) copy-start({})",
                    value.shape, value.dump
                );
                self.put(&target, &format!("copy-done({start})"))
            }
            1 => match self.sliced(&value, &target) {
                Some(name) => name,
                None => return value,
            },
            _ => return value,
        };
        Held { dump, shape: target, ..value }
    }

    /// Fetches the bytes of a value in slices.
    fn sliced(&mut self, value: &Held, target: &ArrayShape) -> Option<String> {
        let places = MemoryForm::of(&value.shape)?.count;
        let bytes = places * value.shape.element_type.bytes() as i64;
        let all = laid_out(ElementType::S8, &[bytes], &[0], 0);
        let view = self.put(&all, &format!("bitcast({})", value.dump));
        let cut = (bytes / 2).div_euclid(1024) * 1024;
        let cuts: Vec<(i64, i64)> = if cut > 0 { vec![(0, cut), (cut, bytes)] } else { vec![(0, bytes)] };
        let mut done = Vec::new();
        for (from, to) in cuts {
            let slice = laid_out(ElementType::S8, &[to - from], &[0], 1);
            let (computation, parameter, root) = (self.name("slice"), self.name("param"), self.name("cut"));
            let _ = writeln!(
                self.fused,
                "{computation} {{\n  {parameter} = {all} parameter(0)\n  ROOT {root} = {slice} slice({parameter}), \
                 slice={{[{from}:{to}]}}\n}}\n"
            );
            let start = self.name("slice-start");
            let _ = writeln!(
                self.dump,
                "  {start} = (({all}), {slice}, s32[]{{:S(2)}}) async-start({view}), calls={computation}"
            );
            done.push(self.put(&slice, &format!("async-done({start})")));
        }
        Some(self.put(target, &format!("custom-call({}), custom_call_target=\"ConcatBitcast\"", done.join(", "))))
    }

    /// Keeps a new value, with its elements between -4 and 4, so that all stays exact.
    fn keep(&mut self, value: Held) {
        let bound = |writer: &mut Self, n: i64| {
            let source = writer.say(&[], &format!("constant({n})"));
            let shape = laid_out(ElementType::F32, &[], &[], 0);
            (source, writer.put(&shape, &format!("constant({n})")), shape)
        };
        let (low, high) = (bound(self, -4), bound(self, 4));
        let source = self.say(value.dims(), &format!("clamp({}, {}, {})", low.0, value.source, high.0));
        let shape = laid_out(self.precision(), value.dims(), &value.shape.minor_to_major(), 0);
        let operands = [(low.1.as_str(), &low.2), (value.dump.as_str(), &value.shape), (high.1.as_str(), &high.2)];
        let dump = self.operate(&shape, &operands, "clamp", "");
        let kept = self.fetched(Held { source, dump, shape });
        self.values.push(kept);
    }

    fn step(&mut self) {
        let n = self.choices.below(self.values.len());
        let value = self.values[n].clone();
        if self.devices > 1 && self.choices.chance(60) {
            return self.collective(&value);
        }
        match self.choices.below(6) {
            0 | 1 => self.dot(&value),
            2 => self.elementwise(&value),
            3 => self.reduce(&value),
            4 => self.transpose(&value),
            _ => self.reshape(&value),
        }
    }

    fn elementwise(&mut self, value: &Held) {
        let alike: Vec<Held> = self.values.iter().filter(|v| v.dims() == value.dims()).cloned().collect();
        let other = self.choices.pick(&alike).clone();
        let opcode = *self.choices.pick(&["add", "multiply", "maximum", "subtract"]);
        let source = self.say(value.dims(), &format!("{opcode}({}, {})", value.source, other.source));
        let order = self.order(value.dims().len());
        let shape = laid_out(self.precision(), value.dims(), &order, 0);
        let dump = self.operate(&shape, &[(&value.dump, &value.shape), (&other.dump, &other.shape)], opcode, "");
        self.keep(Held { source, dump, shape });
    }

    fn reduce(&mut self, value: &Held) {
        let Some(rank) = value.dims().len().checked_sub(1) else { return };
        let along = self.choices.below(rank + 1);
        let mut dims = value.dims().to_vec();
        dims.remove(along);
        let zero = self.say(&[], "constant(0)");
        let text = |x: &str, zero: &str| format!("reduce({x}, {zero}), dimensions={{{along}}}, to_apply=add");
        let source = self.say(&dims, &text(&value.source, &zero));
        let scalar = laid_out(ElementType::F32, &[], &[], 0);
        let zero = self.put(&scalar, "constant(0)");
        let order = self.order(rank);
        let shape = laid_out(self.precision(), &dims, &order, 0);
        let dump = self.put(&shape, &text(&value.dump, &zero));
        self.keep(Held { source, dump, shape });
    }

    fn transpose(&mut self, value: &Held) {
        let mut order: Vec<i64> = (0..value.dims().len() as i64).collect();
        self.choices.shuffle(&mut order);
        let dims: Vec<i64> = order.iter().map(|&d| value.dims()[d as usize]).collect();
        let source = self.say(&dims, &format!("transpose({}), dimensions={{{}}}", value.source, list(&order)));
        // Seen with its dimensions in another order, the memory stays.
        let seen: Vec<i64> = value
            .shape
            .minor_to_major()
            .iter()
            .filter_map(|d| order.iter().position(|o| o == d).map(|k| k as i64))
            .collect();
        let (shape, dump) = match self.choices.chance(60) {
            true => {
                let shape = laid_out(value.shape.element_type, &dims, &seen, 0);
                let dump = self.operate(&shape, &[(&value.dump, &value.shape)], "bitcast", "");
                (shape, dump)
            }
            false => {
                let order_of = self.order(dims.len());
                let shape = laid_out(self.precision(), &dims, &order_of, 0);
                let dump = self.put(&shape, &format!("transpose({}), dimensions={{{}}}", value.dump, list(&order)));
                (shape, dump)
            }
        };
        self.values.push(Held { source, dump, shape });
    }

    fn reshape(&mut self, value: &Held) {
        let mut dims = value.dims().to_vec();
        match (self.choices.below(3), dims.len()) {
            (0, 1..) => {
                let at = self.choices.below(dims.len() + 1);
                dims.insert(at, 1);
            }
            (1, 2..) => {
                let last = dims.pop().unwrap_or(1);
                dims.iter_mut().next_back().into_iter().for_each(|n| *n *= last);
            }
            _ => {
                let Some(at) = dims.iter().position(|n| n % 2 == 0) else { return };
                dims[at] /= 2;
                dims.insert(at + 1, 2);
            }
        }
        let source = self.say(&dims, &format!("reshape({})", value.source));
        let element_type = value.shape.element_type;
        // Any order in which the memory is the same will do; most have none.
        let mut shape = laid_out(element_type, &dims, &descending(dims.len()), 0);
        for _ in 0..8 {
            if same_memory(&value.shape, &shape) {
                break;
            }
            let mut order = descending(dims.len());
            self.choices.shuffle(&mut order);
            shape = laid_out(element_type, &dims, &order, 0);
        }
        let opcode = if same_memory(&value.shape, &shape) { "bitcast" } else { "reshape" };
        let dump = self.put(&shape, &format!("{opcode}({})", value.dump));
        self.values.push(Held { source, dump, shape });
    }

    /// Both programs give the newest values, in f32.
    fn finish(mut self) -> TpuLike {
        let results: Vec<Held> = self.values.iter().rev().take(3).cloned().collect();
        let mut parts = (Vec::new(), Vec::new());
        let mut shapes = (Vec::new(), Vec::new());
        for value in &results {
            let shape = laid_out(ElementType::F32, value.dims(), &descending(value.dims().len()), 0);
            let dump = self.put(&shape, &format!("copy({})", value.dump));
            shapes.0.push(format!("f32[{}]", list(value.dims())));
            parts.0.push(value.source.clone());
            shapes.1.push(shape.to_string());
            parts.1.push(dump);
        }
        let add = "add {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT sum = f32[] add(a, b)\n}\n\n";
        let entry = |body: &str, shapes: Vec<String>, parts: Vec<String>| {
            format!("ENTRY e {{\n{body}  ROOT r = ({}) tuple({})\n}}\n", shapes.join(", "), parts.join(", "))
        };
        let Writer { source, dump, fused, devices, .. } = self;
        let header = format!("num_partitions={devices}");
        let (source, dump) = (entry(&source, shapes.0, parts.0), entry(&dump, shapes.1, parts.1));
        TpuLike {
            source: format!("HloModule source, {header}\n\n{add}{source}"),
            dump: format!("HloModule dump, is_scheduled=true, {header}\n\n{add}{fused}{dump}"),
        }
    }
}
