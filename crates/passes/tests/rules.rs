//! Rules for single instructions, on programs made to be simplified: expressions full of zeros, ones, infinities and the
//! like, and arrays that are cut, padded, turned and put together again. What is simplified computes the same, bit by bit.

use hloom_formats::hlo_text::{self, PrintOptions};
use hloom_fuzz::choices::Choices;
use hloom_fuzz::differential::{Agreement, compare, evaluate, inputs};
use hloom_ir::attributes::{ComparisonDirection, ComparisonType, GatherDimensionNumbers, PaddingDim, SliceDim};
use hloom_ir::builder::Builder;
use hloom_ir::element_type::ElementType::{self, *};
use hloom_ir::entity::InstructionId;
use hloom_ir::infer::ShapeError;
use hloom_ir::literal::{ArrayLiteral, Literal};
use hloom_ir::module::Module;
use hloom_ir::op::{BinaryOp, Gather, Op, UnaryOp};
use hloom_ir::shape::{ArrayShape, Shape};
use hloom_ir::verify::{VerifiedModule, VerifyOptions, verify};
use hloom_passes::rewrite::{Rule, rewrite};
use hloom_passes::rules::{arithmetic, counting, gathers, logic, reductions, shape, slices};
use hloom_passes::{Context, PassList, optimize};
use hloom_target::Target;
use std::sync::LazyLock;

type Added = Result<InstructionId, ShapeError>;

/// As many programs of each kind; `HLOOM_CASES` asks for more.
fn cases() -> u64 {
    std::env::var("HLOOM_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(600)
}

fn context() -> Context<'static> {
    static CPU: LazyLock<Target> = LazyLock::new(|| Target::named("cpu").expect("the CPU is described"));
    Context { target: &CPU }
}

/// Simplifies `module` and compares what it computes before and after; returns the number of changes.
fn check(
    name: &str,
    module: Module,
    choices: &mut Choices<'_>,
    agreement: Agreement,
    simplify: impl FnOnce(VerifiedModule) -> Result<(VerifiedModule, usize), String>,
) -> usize {
    let print = |m: &Module| hlo_text::print(m, &PrintOptions { elide_constants: false });
    let arguments = inputs(&module, 1, choices).expect("arguments can be made");
    let original = verify(module, &VerifyOptions::default())
        .unwrap_or_else(|e| panic!("{name}: {:?}\n{}", e.diagnostics, print(&e.module)));
    let (simplified, changes) = match simplify(original.clone()) {
        Ok((_, 0)) => return 0,
        Ok(simplified) => simplified,
        Err(error) => panic!("{name}: {error}\n{}", print(original.module())),
    };
    // Operations that a type does not have are refused before and after.
    let Ok(expected) = evaluate(&original, &arguments) else { return 0 };
    let outcome = match evaluate(&simplified, &arguments) {
        Ok(values) => compare(&expected, &values, agreement),
        Err(error) => Err(format!("only the simplified program fails: {error}")),
    };
    if let Err(error) = outcome {
        panic!("{name}: {error}\n{}\nbecame\n{}", print(original.module()), print(simplified.module()));
    }
    changes
}

/// A scalar of a type: one of those that identities are about.
fn special(choices: &mut Choices<'_>, t: ElementType) -> Literal {
    let bits: u64 = match t {
        Pred => choices.below(2) as u64,
        F32 => {
            let x =
                *choices.pick(&[0.0, -0.0, 1.0, -1.0, 2.0, 0.5, -4.0, 3.0, f32::INFINITY, -f32::INFINITY, f32::NAN]);
            x.to_bits().into()
        }
        F64 => {
            let x =
                *choices.pick(&[0.0, -0.0, 1.0, -1.0, 2.0, 0.5, -4.0, 3.0, f64::INFINITY, -f64::INFINITY, f64::NAN]);
            x.to_bits()
        }
        F16 => *choices.pick(&[0, 0x8000, 0x3c00, 0xbc00, 0x4000, 0x3800, 0x7c00, 0xfc00, 0x7e00, 0x0001]),
        Bf16 => *choices.pick(&[0, 0x8000, 0x3f80, 0xbf80, 0x4000, 0x3f00, 0x7f80, 0xff80, 0x7fc0, 0x0001]),
        t => {
            let top = 1u64 << (t.bits() - 1);
            let bits = *choices.pick(&[0, 1, 2, 3, 4, 8, u64::MAX, top, top - 1, 16, u64::MAX - 1]);
            let spare = 64 - t.bits();
            // Types narrower than a byte are kept extended.
            if t.is_signed_integer() { ((bits << spare) as i64 >> spare) as u64 } else { bits << spare >> spare }
        }
    };
    let shape = ArrayShape::new(t, []).with_default_layout();
    Literal::Array(ArrayLiteral::new(shape, bits.to_le_bytes()[..t.bytes()].to_vec()).expect("one element"))
}

const TYPES: &[ElementType] = &[Pred, S1, S4, S8, S16, S32, S64, U1, U4, U8, U16, U32, U64, F16, Bf16, F32, F64, C64];
const BINARY: &[BinaryOp] = &[
    BinaryOp::Add,
    BinaryOp::And,
    BinaryOp::Divide,
    BinaryOp::Maximum,
    BinaryOp::Minimum,
    BinaryOp::Multiply,
    BinaryOp::Or,
    BinaryOp::Remainder,
    BinaryOp::ShiftLeft,
    BinaryOp::ShiftRightArithmetic,
    BinaryOp::ShiftRightLogical,
    BinaryOp::Subtract,
    BinaryOp::Xor,
];
const UNARY: &[UnaryOp] = &[
    UnaryOp::Abs,
    UnaryOp::Negate,
    UnaryOp::Negate,
    UnaryOp::Not,
    UnaryOp::Floor,
    UnaryOp::Ceil,
    UnaryOp::RoundNearestEven,
    UnaryOp::Sign,
];
const DIRECTIONS: &[ComparisonDirection] = ComparisonDirection::ALL;

/// Two values that meet in two ways.
fn pairs(b: &mut Builder<'_>, choices: &mut Choices<'_>, x: InstructionId, y: InstructionId) -> Added {
    match choices.below(5) {
        3 => {
            let clamped = b.clamp(y, x, y)?;
            b.clamp(y, clamped, y)
        }
        4 => {
            let t = b.shape(x).element_type().unwrap_or(Pred);
            let (c, d) = (b.literal(special(choices, t))?, b.literal(special(choices, t))?);
            let (c, d) = (b.broadcast(c, [6], [])?, b.broadcast(d, [6], [])?);
            let sum = b.add(x, c)?;
            let equal = b.compare(*choices.pick(DIRECTIONS), sum, d)?;
            b.select(equal, x, y)
        }
        0 => {
            let (x, y) = (b.negate(x)?, b.negate(y)?);
            b.push(Op::Binary(*choices.pick(&[BinaryOp::Multiply, BinaryOp::Divide, BinaryOp::Subtract])), &[x, y])
        }
        1 => {
            let x = b.abs(x)?;
            b.multiply(x, x)
        }
        _ => {
            let equal = b.compare(*choices.pick(DIRECTIONS), x, y)?;
            b.select(equal, x, y)
        }
    }
}

/// An expression over one type: `values` are of it, `truths` of pred.
fn expression(b: &mut Builder<'_>, choices: &mut Choices<'_>, t: ElementType) -> Added {
    const SIZE: i64 = 6;
    let x = b.parameter(0, Shape::array(t, [SIZE]), "x")?;
    let y = b.parameter(1, Shape::array(t, [SIZE]), "y")?;
    let p = b.parameter(2, Shape::array(Pred, [SIZE]), "p")?;
    let (mut values, mut truths) = (vec![x, y], vec![p]);
    if t.is_integer() && t.bits() > 2 || matches!(t, F32 | F64) {
        values.push(b.iota(Shape::array(t, [SIZE]), 0)?);
    }
    let constant = |b: &mut Builder<'_>, choices: &mut Choices<'_>, t: ElementType| {
        if t.is_complex() {
            return Ok(x);
        }
        let scalar = b.literal(special(choices, t))?;
        b.broadcast(scalar, [SIZE], [])
    };
    for _ in 0..choices.between(3, 14) {
        // The last ones are taken often, so that rules meet what others made.
        let near = |choices: &mut Choices<'_>, list: &[InstructionId]| {
            let from = if choices.chance(60) { list.len().saturating_sub(2) } else { 0 };
            list[from + choices.below(list.len() - from)]
        };
        let a = near(choices, &values);
        let c = if choices.chance(45) { constant(b, choices, t)? } else { near(choices, &values) };
        let (first, second) = if choices.chance(50) { (a, c) } else { (c, a) };
        let q = if choices.chance(15) { constant(b, choices, Pred)? } else { near(choices, &truths) };
        let made = match choices.below(11) {
            9 => {
                let op = Op::Binary(*choices.pick(&[
                    BinaryOp::Add,
                    BinaryOp::Multiply,
                    BinaryOp::Minimum,
                    BinaryOp::Maximum,
                ]));
                let (c, d) = (constant(b, choices, t)?, constant(b, choices, t)?);
                b.push(op.clone(), &[a, c]).and_then(|inner| b.push(op, &[inner, d]))
            }
            10 if !t.is_complex() => pairs(b, choices, a, second),
            0..=2 => b.push(Op::Binary(*choices.pick(BINARY)), &[first, second]),
            3 | 4 => b.push(Op::unary(*choices.pick(UNARY)), &[a]),
            5 => {
                // The sign of a NaN that was computed is nobody's: only what is given is compared by it.
                let total = t.is_float() && choices.chance(30);
                let kind = total.then_some(ComparisonType::TotalOrder);
                let operands = if total { [x, if choices.chance(50) { x } else { y }] } else { [first, second] };
                let compare = b.push(Op::Compare { direction: *choices.pick(DIRECTIONS), kind }, &operands);
                truths.extend(compare);
                continue;
            }
            6 => b.select(q, first, second),
            7 => {
                let bound = constant(b, choices, t)?;
                b.clamp(bound, a, second)
            }
            _ => {
                let r = near(choices, &truths);
                let made = match choices.below(5) {
                    0 => b.not(q),
                    1 => b.and(q, r),
                    2 => b.or(q, r),
                    3 => b.select(q, r, p),
                    _ => b.push(Op::Compare { direction: *choices.pick(DIRECTIONS), kind: None }, &[q, r]),
                };
                truths.extend(made);
                continue;
            }
        };
        // What the type does not have is left out.
        values.extend(made);
    }
    let last = [values[values.len() - 1], values[values.len() / 2], truths[truths.len() - 1]];
    b.tuple(&last)
}

/// The program of a seed, and how near its results must be.
type Generator = fn(u64, &mut Choices<'_>) -> (Module, Agreement);

fn expression_of(seed: u64, choices: &mut Choices<'_>) -> (Module, Agreement) {
    let t = TYPES[seed as usize % TYPES.len()];
    let mut module = Module::new("expression");
    let mut b = Builder::new(&mut module, "main");
    let root = expression(&mut b, choices, t).expect("it is well formed");
    b.finish_entry(root);
    (module, Agreement::Exact)
}

/// All rules together keep what the programs compute.
fn together(generator: Generator, programs: u64) {
    let list =
        PassList::of_names(["simplify", "fold-constants", "simplify", "cse", "simplify"]).expect("they are there");
    let mut changes = 0;
    for seed in 0..programs {
        let mut choices = Choices::from_seed(seed);
        let (module, agreement) = generator(seed, &mut choices);
        let simplify = |module| {
            let optimized = optimize(module, &list, &context(), None);
            let optimized = optimized.map_err(|f| format!("{}: {:?}", f.pass, f.diagnostics))?;
            let changes = optimized.report.changes();
            Ok((optimized.module, changes))
        };
        changes += check(&format!("seed {seed}"), module, &mut choices, agreement, simplify);
    }
    assert!(changes as u64 > programs, "rules apply: {changes}");
}

/// Each rule alone keeps what the programs compute, and each is met.
fn alone(generator: Generator, programs: u64, families: &[&'static [Rule]], never_met: &[&str]) {
    let rules: Vec<&Rule> = families.iter().copied().flatten().collect();
    let mut met = vec![0; rules.len()];
    for seed in 0..programs {
        for (rule, met) in rules.iter().zip(&mut met) {
            let mut choices = Choices::from_seed(seed);
            let (module, agreement) = generator(seed, &mut choices);
            let simplify = |module: VerifiedModule| {
                let mut module = module.into_module();
                let changes = rewrite(&mut module, &[std::slice::from_ref(*rule)]);
                let module = verify(module, &VerifyOptions::default());
                module.map(|m| (m, changes)).map_err(|e| format!("{:?}", e.diagnostics))
            };
            let name = format!("{}, seed {seed}", rule.name);
            *met += check(&name, module, &mut choices, agreement, simplify);
        }
    }
    let unmet: Vec<&str> = rules.iter().zip(&met).filter(|(_, n)| **n == 0).map(|(r, _)| r.name).collect();
    assert_eq!(unmet, never_met, "rules that no program met");
}

#[test]
fn expressions_of_special_numbers_stay_exact() {
    together(expression_of, cases() * 3);
}

#[test]
fn each_rule_of_arithmetic_and_logic_is_exact() {
    // Powers and complex numbers are not in these expressions.
    let unmet = ["small-power", "root-power", "part-of-complex"];
    alone(expression_of, cases(), &[arithmetic::RULES, logic::RULES], &unmet);
}

#[test]
fn small_powers_are_products() {
    let folded = PassList::of_names(["fold-constants", "simplify-arithmetic"]).expect("they are there");
    let mut changes = 0;
    for t in [S32, U8, F16, Bf16, F32, F64] {
        for exponent in [-1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0] {
            let mut module = Module::new("power");
            let mut b = Builder::new(&mut module, "main");
            let build = |b: &mut Builder<'_>| {
                let x = b.parameter(0, Shape::array(t, [40]), "x")?;
                let e = b.constant(exponent)?;
                // Made from f64 and folded: the numbers fit every type here.
                let e = b.convert(e, t)?;
                let positive = if t.is_float() { b.abs(x)? } else { x };
                let es = b.broadcast(e, [40], [])?;
                let (p, q) = (b.power(x, es)?, b.power(positive, es)?);
                b.tuple(&[p, q])
            };
            let root = build(&mut b).expect("it is well formed");
            b.finish_entry(root);
            let mut choices = Choices::from_seed(7);
            // One rounding more or less.
            let tolerance = if t == Bf16 { 0.008 } else { 0.001 };
            let agreement = if t.is_float() { Agreement::Within(tolerance) } else { Agreement::Exact };
            let simplify = |module| {
                let optimized =
                    optimize(module, &folded, &context(), None).map_err(|f| format!("{:?}", f.diagnostics))?;
                let changes = optimized.report.changes();
                Ok((optimized.module, changes))
            };
            changes += check(&format!("{t} to the {exponent}"), module, &mut choices, agreement, simplify);
        }
    }
    assert!(changes > 60, "rules apply: {changes}");
}

/// Arrays that are moved about.
struct Moves<'c, 'b> {
    b: &'c mut Builder<'b>,
    arrays: Vec<InstructionId>,
    t: ElementType,
}

impl Moves<'_, '_> {
    fn dims(&self, i: InstructionId) -> Vec<i64> {
        self.b.shape(i).as_array().map_or_else(Vec::new, |a| a.dims().to_vec())
    }

    fn pick(&self, choices: &mut Choices<'_>) -> InstructionId {
        let from = if choices.chance(70) { self.arrays.len().saturating_sub(2) } else { 0 };
        self.arrays[from + choices.below(self.arrays.len() - from)]
    }

    fn parts(choices: &mut Choices<'_>, dims: &[i64]) -> Vec<SliceDim> {
        let part = |&n: &i64| {
            if choices.chance(35) {
                return SliceDim { start: 0, limit: n, stride: 1 };
            }
            let start = choices.between(0, n);
            let limit = choices.between(start, n);
            SliceDim { start, limit, stride: if choices.chance(30) { 2 } else { 1 } }
        };
        dims.iter().map(part).collect()
    }

    fn index(&mut self, choices: &mut Choices<'_>) -> Added {
        match choices.below(3) {
            0 => self.b.parameter_or_zero(choices),
            _ => self.b.constant(choices.between(-2, 5) as i32),
        }
    }

    /// Adds one more array made of others.
    fn step(&mut self, choices: &mut Choices<'_>) -> Added {
        let x = self.pick(choices);
        let dims = self.dims(x);
        let rank = dims.len() as i64;
        match choices.below(17) {
            15 => self.twice(choices, x, &dims),
            0 | 1 => {
                let parts = Self::parts(choices, &dims);
                self.b.slice(x, parts)
            }
            2 => {
                let value = self.scalar(choices)?;
                let low = if choices.chance(25) { -1 } else { 0 };
                let pad = |_: &i64| PaddingDim {
                    low: choices.between(low, 2),
                    high: choices.between(low, 2),
                    interior: i64::from(choices.chance(15)),
                };
                let padding: Vec<PaddingDim> = dims.iter().map(pad).collect();
                self.b.pad(x, value, padding)
            }
            3 if rank > 0 => {
                let d = choices.below(rank as usize);
                let parts = |choices: &mut Choices<'_>| {
                    let cut = choices.between(0, dims[d]);
                    let whole = dims.iter().map(|&limit| SliceDim { start: 0, limit, stride: 1 });
                    let (mut low, mut high): (Vec<_>, Vec<_>) = (whole.clone().collect(), whole.collect());
                    low[d].limit = cut;
                    high[d].start = cut;
                    (low, high)
                };
                let (low, high) = parts(choices);
                let (low, high) = (self.b.slice(x, low)?, self.b.slice(x, high)?);
                let order = if choices.chance(60) { vec![low, high] } else { vec![x, high, low, x] };
                self.b.concatenate(&order, d as i64)
            }
            4 => {
                let along: Vec<i64> = choices.subset(dims.len()).into_iter().map(|d| d as i64).collect();
                self.b.reverse(x, along)
            }
            5 => {
                let mut order: Vec<i64> = (0..rank).collect();
                choices.shuffle(&mut order);
                self.b.transpose(x, order)
            }
            6 => {
                let mut to = dims.clone();
                let at = choices.below(to.len() + 1);
                match choices.below(3) {
                    0 => to.insert(at, 1),
                    1 => to = vec![dims.iter().product()],
                    _ => to.retain(|&n| n != 1),
                }
                self.b.reshape(x, to)
            }
            7 if rank < 4 => {
                let at = choices.below(dims.len() + 1);
                let mut to = dims.clone();
                to.insert(at, choices.between(1, 3));
                let places = (0..=rank).filter(|&d| d != at as i64);
                self.b.broadcast(x, to, places)
            }
            8 => {
                let value = self.scalar(choices)?;
                self.b.broadcast(value, dims, [])
            }
            9 if rank > 0 => {
                let along = choices.below(dims.len()) as i64;
                self.b.iota(Shape::array(self.t, dims), along)
            }
            10 => {
                let sizes: Vec<i64> = dims.iter().map(|&n| choices.between(n.min(1), n)).collect();
                let mut starts = Vec::new();
                for _ in 0..rank {
                    starts.push(self.index(choices)?);
                }
                let part = self.b.dynamic_slice(x, &starts, sizes)?;
                match choices.below(4) {
                    0 => Ok(part),
                    3 => {
                        let turned = self.b.reverse(part, 0..rank)?;
                        let new = self.b.dynamic_update_slice(x, turned, &starts)?;
                        self.b.dynamic_update_slice(new, part, &starts)
                    }
                    1 => self.b.dynamic_update_slice(x, part, &starts),
                    _ => {
                        let turned = self.b.reverse(part, 0..rank)?;
                        let new = self.b.dynamic_update_slice(x, turned, &starts)?;
                        let sizes = self.dims(part);
                        if choices.chance(50) { self.b.dynamic_slice(new, &starts, sizes) } else { Ok(new) }
                    }
                }
            }
            11 | 12 if rank > 0 => {
                let along: Vec<i64> = choices.subset(dims.len()).into_iter().map(|d| d as i64).collect();
                // Sums of floats made in another order are not the same: files show these.
                let of_floats = [BinaryOp::Maximum, BinaryOp::Minimum];
                let of_integers = [BinaryOp::Add, BinaryOp::Multiply, BinaryOp::Maximum, BinaryOp::And];
                let op = *choices.pick(if self.t == F32 { &of_floats[..] } else { &of_integers });
                let init = self.scalar(choices)?;
                let to_apply = self.b.reducer(op, self.t)?;
                self.b.reduce(x, init, along, to_apply)
            }
            13 if rank > 0 && dims.iter().all(|&n| n > 0) => self.gather(choices, x, &dims),
            _ => {
                let other = self.pick(choices);
                if self.dims(other) == dims { self.b.add(x, other) } else { self.b.negate(x) }
            }
        }
    }

    /// The same done twice, which is often one.
    fn twice(&mut self, choices: &mut Choices<'_>, x: InstructionId, dims: &[i64]) -> Added {
        let last = dims.len() as i64 - 1;
        match choices.below(5) {
            0 => {
                let value = self.scalar(choices)?;
                let wide = |_: &i64| PaddingDim { low: 1, high: 0, interior: 0 };
                let padded = self.b.pad(x, value, dims.iter().map(wide))?;
                self.b.pad(padded, value, dims.iter().map(wide))
            }
            1 if last >= 0 => {
                let pair = self.b.concatenate(&[x, x], last)?;
                self.b.concatenate(&[pair, x], last)
            }
            2 if last >= 0 => {
                let value = self.scalar(choices)?;
                let (p, q) = (self.b.broadcast(value, dims.to_vec(), [])?, self.b.broadcast(value, dims.to_vec(), [])?);
                self.b.concatenate(&[p, q], last)
            }
            3 if last >= 1 && self.t != F32 => {
                let zero = self.b.literal(Literal::zero(self.t))?;
                let add = self.b.reducer(BinaryOp::Add, self.t)?;
                let once = self.b.reduce(x, zero, [last], add)?;
                self.b.reduce(once, zero, [0], add)
            }
            _ => {
                let wide = self.b.reshape(x, dims.iter().copied().chain([1]))?;
                let turned = self.b.transpose(wide, (0..=last + 1).rev())?;
                let narrow = self.b.reshape(turned, dims.iter().rev().copied().filter(|&n| n != 1))?;
                let same = Literal::array([3], &[7i32; 3]).expect("three elements");
                if self.t == S32 {
                    self.arrays.push(self.b.literal(same)?)
                }
                Ok(narrow)
            }
        }
    }

    fn gather(&mut self, choices: &mut Choices<'_>, x: InstructionId, dims: &[i64]) -> Added {
        let along = choices.below(dims.len());
        let count = choices.between(1, dims[along]);
        let indices = match choices.below(3) {
            0 => self.b.iota(Shape::array(S32, [count]), 0)?,
            1 => {
                let first = choices.between(-1, 2) as i32;
                let numbers: Vec<i32> = (0..count as i32).map(|n| first + n).collect();
                self.b.constant_array([count], &numbers)?
            }
            _ => {
                let index = self.index(choices)?;
                self.b.reshape(index, [1])?
            }
        };
        let (along, rank) = (along as i64, dims.len() as i64);
        // The gathered dimension goes where it came from, or first.
        let place = if choices.chance(50) { along } else { 0 };
        let numbers = GatherDimensionNumbers {
            offset_dims: (0..rank).filter(|&d| d != place).collect(),
            collapsed_slice_dims: [along].into_iter().collect(),
            start_index_map: [along].into_iter().collect(),
            index_vector_dim: 1,
            ..GatherDimensionNumbers::default()
        };
        let slice_sizes = (0..rank).map(|d| if d == along { 1 } else { dims[d as usize] }).collect();
        let op = Op::Gather(Box::new(Gather { dims: numbers, slice_sizes, indices_are_sorted: false }));
        self.b.push(op, &[x, indices])
    }

    fn scalar(&mut self, choices: &mut Choices<'_>) -> Added {
        let literal = special(choices, self.t);
        self.b.literal(literal)
    }
}

/// A scalar index that is not known.
trait UnknownIndex {
    fn parameter_or_zero(&mut self, choices: &mut Choices<'_>) -> Added;
}

impl UnknownIndex for Builder<'_> {
    fn parameter_or_zero(&mut self, choices: &mut Choices<'_>) -> Added {
        let entry = self.computation();
        let indices = self.module().parameters(entry)[2];
        let at = choices.between(0, 3);
        let one = self.slice(indices, [SliceDim { start: at, limit: at + 1, stride: 1 }])?;
        self.reshape(one, [])
    }
}

fn moves_of(seed: u64, choices: &mut Choices<'_>) -> (Module, Agreement) {
    let t = *choices.pick(&[S32, F32, U8, S32]);
    let mut module = Module::new("moves");
    let mut b = Builder::new(&mut module, "main");
    let mut build = || {
        let x = b.parameter(0, Shape::array(t, [3, 4]), "x")?;
        let y = b.parameter(1, Shape::array(t, [2, 1, 5]), "y")?;
        b.parameter(2, Shape::array(S32, [4]), "i")?;
        let mut moves = Moves { b: &mut b, arrays: vec![x, y], t };
        for _ in 0..choices.between(3, 12) {
            let made = moves.step(choices);
            let made = made.into_iter().filter(|&i| moves.dims(i).iter().product::<i64>() <= 2000);
            let made: Vec<InstructionId> = made.collect();
            moves.arrays.extend(made);
        }
        let n = moves.arrays.len();
        let last = [moves.arrays[n - 1], moves.arrays[n - 2], moves.arrays[n / 2]];
        b.tuple(&last)
    };
    let root = build().unwrap_or_else(|e| panic!("seed {seed}: {}", e.message));
    b.finish_entry(root);
    // The sign of the least of several zeros is nobody's.
    (module, if t == F32 { Agreement::Within(0.0) } else { Agreement::Exact })
}

#[test]
fn arrays_that_are_moved_about_stay_what_they_are() {
    together(moves_of, cases() * 2);
}

#[test]
fn each_rule_of_moves_and_reductions_is_right() {
    let families = [counting::RULES, shape::RULES, slices::RULES, gathers::RULES, reductions::RULES];
    // Of these there are files.
    let unmet = [
        "iota-converted",
        "copy",
        "scatter-nothing",
        "scatter-at-one-place",
        "sort-of-one",
        "sort-of-unused",
        "window-of-one",
        "window-of-all",
        "product-of-nothing",
    ];
    alone(moves_of, cases(), &families, &unmet);
}
