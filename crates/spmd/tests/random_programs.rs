//! Random programs with random shardings, sizes that do not divide included, against one device.
//!
//! `HLOOM_CASES=100000 cargo test --release -p hloom-spmd --test random_programs` looks longer; `HLOOM_SEED` begins
//! elsewhere.

mod support;

use std::fmt::Write;

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) as usize % n.max(1)
    }
    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

/// A value of the program: its name, sizes, and whether it is of s32 instead of f32.
#[derive(Clone)]
struct Value {
    name: String,
    dims: Vec<i64>,
    integer: bool,
}

impl Value {
    fn shape(&self) -> String {
        shape(&self.dims, self.integer)
    }
}

fn shape(dims: &[i64], integer: bool) -> String {
    let dims: Vec<String> = dims.iter().map(i64::to_string).collect();
    format!("{}[{}]", if integer { "s32" } else { "f32" }, dims.join(","))
}

struct Program {
    random: Random,
    mesh: Vec<i64>,
    text: String,
    values: Vec<Value>,
    count: usize,
}

impl Program {
    /// A sharding of an array of that rank: each axis of the mesh on a dimension, or on none.
    fn sharding(&mut self, rank: usize) -> String {
        let axes = self.mesh.len();
        let mut order: Vec<usize> = (0..axes).collect();
        for i in (1..axes).rev() {
            order.swap(i, self.random.below(i + 1));
        }
        let mut dims: Vec<Vec<usize>> = vec![Vec::new(); rank];
        let mut rest = Vec::new();
        for axis in order {
            if rank > 0 && !self.random.one_in(3) {
                let d = self.random.below(rank);
                dims[d].push(axis);
            } else {
                rest.push(axis);
            }
        }
        if dims.iter().all(Vec::is_empty) {
            return "{replicated}".into();
        }
        let product = |list: &[usize]| list.iter().map(|&a| self.mesh[a]).product::<i64>();
        let mut tiles: Vec<String> = dims.iter().map(|l| product(l).to_string()).collect();
        let mut transpose: Vec<usize> = dims.concat();
        let replicated = !rest.is_empty();
        if replicated {
            tiles.push(product(&rest).to_string());
            transpose.extend(rest);
        }
        let list = |items: Vec<String>| items.join(",");
        if self.random.one_in(16) {
            // Devices in an order of their own.
            let mut devices: Vec<i64> = (0..self.mesh.iter().product()).collect();
            for i in (1..devices.len()).rev() {
                devices.swap(i, self.random.below(i + 1));
            }
            let copies = if replicated { " last_tile_dim_replicate" } else { "" };
            let devices = list(devices.iter().map(i64::to_string).collect());
            return format!("{{devices=[{}]{devices}{copies}}}", tiles.join(","));
        }
        format!(
            "{{devices=[{}]<=[{}]T({}){}}}",
            tiles.join(","),
            list(self.mesh.iter().map(i64::to_string).collect()),
            list(transpose.iter().map(usize::to_string).collect()),
            if replicated { " last_tile_dim_replicate" } else { "" }
        )
    }

    fn push(&mut self, dims: &[i64], integer: bool, what: &str) -> Value {
        let name = format!("v{}", self.count);
        self.count += 1;
        let sharding = self.sharding(dims.len());
        let shape = shape(dims, integer);
        writeln!(self.text, "  {name} = {shape} {what}, sharding={sharding}").unwrap();
        let value = Value { name, dims: dims.to_vec(), integer };
        self.values.push(value.clone());
        value
    }

    fn scalar(&mut self, text: &str, integer: bool) -> String {
        let name = format!("c{}", self.count);
        self.count += 1;
        writeln!(self.text, "  {name} = {} constant({text})", if integer { "s32[]" } else { "f32[]" }).unwrap();
        name
    }

    fn any(&mut self) -> Value {
        let n = self.values.len();
        // Later ones rather than earlier.
        let i = n - 1 - self.random.below(n).min(self.random.below(n));
        self.values[i].clone()
    }

    fn float(&mut self) -> Value {
        for _ in 0..20 {
            let value = self.any();
            if !value.integer && !value.dims.is_empty() {
                return value;
            }
        }
        self.values[0].clone()
    }

    fn step(&mut self) {
        let x = self.float();
        let rank = x.dims.len();
        let d = self.random.below(rank);
        match self.random.below(26) {
            0 => {
                self.push(&x.dims, false, &format!("negate({})", x.name));
            }
            1 | 2 => {
                let same: Vec<Value> = self.values.iter().filter(|v| v.dims == x.dims && !v.integer).cloned().collect();
                let y = same[self.random.below(same.len())].clone();
                let op = ["add", "multiply", "subtract", "maximum"][self.random.below(4)];
                self.push(&x.dims, false, &format!("{op}({}, {})", x.name, y.name));
            }
            3 => {
                let mut order: Vec<usize> = (0..rank).collect();
                order.rotate_left(self.random.below(rank));
                let dims: Vec<i64> = order.iter().map(|&d| x.dims[d]).collect();
                let order: Vec<String> = order.iter().map(usize::to_string).collect();
                self.push(&dims, false, &format!("transpose({}), dimensions={{{}}}", x.name, order.join(",")));
            }
            4 if rank < 3 => {
                let mut dims = x.dims.clone();
                dims.insert(d, 1 + self.random.below(5) as i64);
                let kept: Vec<String> = (0..=rank).filter(|&e| e != d).map(|e| e.to_string()).collect();
                self.push(&dims, false, &format!("broadcast({}), dimensions={{{}}}", x.name, kept.join(",")));
            }
            5 | 6 => {
                // Products of many numbers overflow in one order and not in another.
                let op = self.random.below(3) * usize::from(x.dims[d] <= 12);
                let zero = self.scalar(["0", "1", "-inf"][op], false);
                let dims: Vec<i64> = (0..rank).filter(|&e| e != d).map(|e| x.dims[e]).collect();
                let by = ["add_f32", "multiply_f32", "maximum_f32"][op];
                self.push(&dims, false, &format!("reduce({}, {zero}), dimensions={{{d}}}, to_apply={by}", x.name));
            }
            7 | 8 => {
                let y = self.float();
                let e = self.random.below(y.dims.len());
                if rank + y.dims.len() > 5 {
                    return;
                }
                // Made to fit by a pad or a slice of the second.
                let y = self.resized(&y, e, x.dims[d]);
                let keep = |v: &Value, c: usize| -> Vec<i64> {
                    v.dims.iter().enumerate().filter(|(i, _)| *i != c).map(|(_, n)| *n).collect()
                };
                let dims: Vec<i64> = keep(&x, d).into_iter().chain(keep(&y, e)).collect();
                let what =
                    format!("dot({}, {}), lhs_contracting_dims={{{d}}}, rhs_contracting_dims={{{e}}}", x.name, y.name);
                self.push(&dims, false, &what);
            }
            9 => {
                let total: i64 = x.dims.iter().product();
                let options: Vec<i64> = (1..=total).filter(|n| total % n == 0).collect();
                let first = options[self.random.below(options.len())];
                let dims = if self.random.one_in(2) { vec![first, total / first] } else { vec![total] };
                self.push(&dims, false, &format!("reshape({})", x.name));
            }
            10 | 11 => {
                let mut dims = x.dims.clone();
                let start = self.random.below(x.dims[d] as usize) as i64;
                let limit = start + 1 + self.random.below((x.dims[d] - start) as usize) as i64;
                let stride = 1 + self.random.below(2) as i64;
                dims[d] = (limit - start + stride - 1) / stride;
                let ranges: Vec<String> = (0..rank)
                    .map(|e| match e == d {
                        true => format!("[{start}:{limit}:{stride}]"),
                        false => format!("[0:{}]", x.dims[e]),
                    })
                    .collect();
                self.push(&dims, false, &format!("slice({}), slice={{{}}}", x.name, ranges.join(", ")));
            }
            12 | 13 => {
                let value = self.scalar("0.5", false);
                let mut dims = x.dims.clone();
                let (low, high) = (self.random.below(4) as i64 - 1, self.random.below(4) as i64);
                let interior = if self.random.one_in(3) { 1 } else { 0 };
                dims[d] = low + high + x.dims[d] + interior * (x.dims[d] - 1);
                if dims[d] < 1 {
                    return;
                }
                let padding: Vec<String> =
                    (0..rank).map(|e| if e == d { format!("{low}_{high}_{interior}") } else { "0_0".into() }).collect();
                self.push(&dims, false, &format!("pad({}, {value}), padding={}", x.name, padding.join("x")));
            }
            14 | 15 => {
                let fits = |v: &&Value| {
                    !v.integer && v.dims.len() == rank && (0..rank).all(|e| e == d || v.dims[e] == x.dims[e])
                };
                let others: Vec<Value> = self.values.iter().filter(fits).cloned().collect();
                let y = others[self.random.below(others.len())].clone();
                let mut dims = x.dims.clone();
                dims[d] += y.dims[d];
                self.push(&dims, false, &format!("concatenate({}, {}), dimensions={{{d}}}", x.name, y.name));
            }
            16 => {
                self.push(&x.dims, false, &format!("reverse({}), dimensions={{{d}}}", x.name));
            }
            17 | 18 => self.dynamic(&x, d),
            19 => {
                let by = if self.random.one_in(2) { "less_f32" } else { "greater_f32" };
                let what = format!("sort({}), dimensions={{{d}}}, is_stable=true, to_apply={by}", x.name);
                self.push(&x.dims, false, &what);
            }
            20 | 21 => self.window(&x, d),
            22 => self.indexed(&x),
            23 | 24 => self.counted(&x),
            _ => {
                let mut other = self.push(&x.dims, true, &format!("iota(), iota_dimension={d}")).name;
                if self.random.one_in(2) {
                    // Small numbers are the same in bf16, and travel so.
                    let (sharding, narrow) = (self.sharding(rank), format!("n{}", self.count));
                    let shape = shape(&x.dims, false).replace("f32", "bf16");
                    writeln!(self.text, "  {narrow} = {shape} convert({other}), sharding={sharding}").unwrap();
                    other = narrow;
                }
                let as_float = self.push(&x.dims, false, &format!("convert({other})"));
                self.push(&x.dims, false, &format!("multiply({}, {})", as_float.name, x.name));
            }
        }
    }

    /// `y` with `n` elements along `e`.
    fn resized(&mut self, y: &Value, e: usize, n: i64) -> Value {
        if y.dims[e] == n {
            return y.clone();
        }
        let value = self.scalar("0.25", false);
        let mut dims = y.dims.clone();
        dims[e] = n;
        let padding: Vec<String> =
            (0..y.dims.len()).map(|i| if i == e { format!("0_{}", n - y.dims[e]) } else { "0_0".into() }).collect();
        self.push(&dims, false, &format!("pad({}, {value}), padding={}", y.name, padding.join("x")))
    }

    fn dynamic(&mut self, x: &Value, d: usize) {
        let start = self.random.below(12) as i64 - 2;
        let start = self.scalar(&start.to_string(), true);
        let zero = self.scalar("0", true);
        let starts: Vec<String> =
            (0..x.dims.len()).map(|e| if e == d { start.clone() } else { zero.clone() }).collect();
        let mut dims = x.dims.clone();
        dims[d] = 1 + self.random.below(x.dims[d] as usize) as i64;
        let sizes: Vec<String> = dims.iter().map(i64::to_string).collect();
        let what =
            format!("dynamic-slice({}, {}), dynamic_slice_sizes={{{}}}", x.name, starts.join(", "), sizes.join(","));
        let piece = self.push(&dims, false, &what);
        if self.random.one_in(2) {
            let doubled = self.push(&dims, false, &format!("add({}, {})", piece.name, piece.name));
            let what = format!("dynamic-update-slice({}, {}, {})", x.name, doubled.name, starts.join(", "));
            self.push(&x.dims, false, &what);
        }
    }

    fn window(&mut self, x: &Value, d: usize) {
        let rank = x.dims.len();
        let cumulative = self.random.one_in(2);
        let (size, stride, low, high) = match cumulative {
            true if self.random.one_in(2) => (x.dims[d], 1, x.dims[d] - 1, 0),
            true => (x.dims[d], 1, 0, x.dims[d] - 1),
            false => (1 + self.random.below(3) as i64, 1 + self.random.below(2) as i64, self.random.below(3) as i64, 1),
        };
        let out = (x.dims[d] + low + high - size) / stride + 1;
        if x.dims[d] + low + high < size || out < 1 {
            return;
        }
        let mut dims = x.dims.clone();
        dims[d] = out;
        let each = |own: String, other: &str| -> String {
            let all: Vec<String> = (0..rank).map(|e| if e == d { own.clone() } else { other.to_owned() }).collect();
            all.join("x")
        };
        let zero = self.scalar("0", false);
        let what = format!(
            "reduce-window({}, {zero}), window={{size={} stride={} pad={}}}, to_apply=add_f32",
            x.name,
            each(size.to_string(), "1"),
            each(stride.to_string(), "1"),
            each(format!("{low}_{high}"), "0_0")
        );
        self.push(&dims, false, &what);
    }

    /// One row of each matrix of a batch, and rows added there: the first index counts the batch.
    fn counted(&mut self, x: &Value) {
        if x.dims.len() < 2 {
            return;
        }
        let (n, rest) = (x.dims[0], x.dims[2..].to_vec());
        let first = self.push(&[n, 1], true, "iota(), iota_dimension=0");
        let second = self.push(&[n, 1], true, "iota(), iota_dimension=0");
        let what = format!("concatenate({}, {}), dimensions={{1}}", first.name, second.name);
        let indices = self.push(&[n, 2], true, &what);
        let list = |items: Vec<i64>| items.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
        let window = list((1..=rest.len() as i64).collect());
        let dims: Vec<i64> = [n].into_iter().chain(rest.iter().copied()).collect();
        let sizes = list([1, 1].into_iter().chain(rest).collect());
        let what = format!(
            "gather({}, {}), offset_dims={{{window}}}, collapsed_slice_dims={{0,1}}, start_index_map={{0,1}}, \
             index_vector_dim=1, slice_sizes={{{sizes}}}",
            x.name, indices.name
        );
        let rows = self.push(&dims, false, &what);
        let what = format!(
            "scatter({}, {}, {}), update_window_dims={{{window}}}, inserted_window_dims={{0,1}}, \
             scatter_dims_to_operand_dims={{0,1}}, index_vector_dim=1, to_apply=add_f32",
            x.name, indices.name, rows.name
        );
        self.push(&x.dims, false, &what);
    }

    /// Rows by indices, and rows added at indices.
    fn indexed(&mut self, x: &Value) {
        let rank = x.dims.len();
        let count = 1 + self.random.below(6) as i64;
        let index = self.push(&[count], true, "iota(), iota_dimension=0");
        let mut dims = x.dims.clone();
        dims[0] = count;
        let offsets: Vec<String> = (1..rank).map(|e| e.to_string()).collect();
        let mut sizes: Vec<String> = x.dims.iter().map(i64::to_string).collect();
        sizes[0] = "1".into();
        let what = format!(
            "gather({}, {}), offset_dims={{{}}}, collapsed_slice_dims={{0}}, start_index_map={{0}}, index_vector_dim=1, \
             slice_sizes={{{}}}",
            x.name,
            index.name,
            offsets.join(","),
            sizes.join(",")
        );
        let rows = self.push(&dims, false, &what);
        let what = format!(
            "scatter({}, {}, {}), update_window_dims={{{}}}, inserted_window_dims={{0}}, \
             scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=add_f32",
            x.name,
            index.name,
            rows.name,
            offsets.join(",")
        );
        self.push(&x.dims, false, &what);
    }
}

fn program(seed: u64) -> String {
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    for _ in 0..4 {
        random.below(2);
    }
    let meshes: [&[i64]; 5] = [&[2], &[2, 2], &[4, 2], &[2, 2, 2], &[3, 2]];
    let mesh = meshes[random.below(meshes.len())].to_vec();
    let devices: i64 = mesh.iter().product();
    let mut program = Program { random, mesh, text: String::new(), values: Vec::new(), count: 0 };
    for number in 0..2 {
        let rank = 1 + program.random.below(3);
        let dims: Vec<i64> = (0..rank).map(|_| 1 + program.random.below(9) as i64).collect();
        program.push(&dims, false, &format!("parameter({number})"));
    }
    for _ in 0..2 + program.random.below(8) {
        program.step();
    }
    let mut roots: Vec<Value> = program.values.iter().rev().take(2).cloned().collect();
    roots.retain(|v| v.dims.iter().product::<i64>() < 100_000);
    let shardings: Vec<String> = roots.iter().map(|r| program.sharding(r.dims.len())).collect();
    let names: Vec<String> = roots.iter().map(|r| r.name.clone()).collect();
    let shapes: Vec<String> = roots.iter().map(Value::shape).collect();
    let mut computations = String::new();
    for (name, kind, op) in [
        ("add_f32", "f32", "add(x, y)"),
        ("multiply_f32", "f32", "multiply(x, y)"),
        ("maximum_f32", "f32", "maximum(x, y)"),
        ("add_s32", "s32", "add(x, y)"),
    ] {
        writeln!(
            computations,
            "{name} {{ x = {kind}[] parameter(0) y = {kind}[] parameter(1) ROOT r = {kind}[] {op} }}"
        )
        .unwrap();
    }
    for (name, direction) in [("less_f32", "LT"), ("greater_f32", "GT")] {
        let compare = format!("compare(x, y), direction={direction}");
        writeln!(computations, "{name} {{ x = f32[] parameter(0) y = f32[] parameter(1) ROOT r = pred[] {compare} }}")
            .unwrap();
    }
    format!(
        "HloModule random, num_partitions={devices}\n{computations}ENTRY main {{\n{}  ROOT out = ({}) tuple({}), sharding={{{}}}\n}}\n",
        program.text,
        shapes.join(", "),
        names.join(", "),
        shardings.join(", ")
    )
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

#[test]
fn partitioned_programs_compute_what_one_device_does() {
    let (first, cases) = (number("HLOOM_SEED", 1), number("HLOOM_CASES", 400));
    for seed in first..first + cases {
        let text = program(seed);
        let module = support::read(&text);
        let made = match hloom_spmd::partition(&module, module.config.num_partitions) {
            Ok(made) => made,
            Err(e) => panic!("seed {seed}: {}\n{text}", e.message),
        };
        if let Err(e) = support::check(&module, &made, seed) {
            let options = hloom_formats::hlo_text::PrintOptions { elide_constants: false };
            panic!("seed {seed}: {e}\n{text}\n{}", hloom_formats::hlo_text::print(&made.module, &options));
        }
    }
}
