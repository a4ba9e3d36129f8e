//! Arrays that are cut, padded, turned and put together again.

use super::expressions::special;
use super::{Added, alone, cases, together};
use hloom_fuzz::choices::Choices;
use hloom_fuzz::differential::Agreement;
use hloom_ir::attributes::{GatherDimensionNumbers, PaddingDim, SliceDim};
use hloom_ir::builder::Builder;
use hloom_ir::element_type::ElementType::{self, *};
use hloom_ir::entity::InstructionId;
use hloom_ir::literal::Literal;
use hloom_ir::module::Module;
use hloom_ir::op::{BinaryOp, Gather, Op};
use hloom_ir::shape::Shape;
use hloom_passes::rules::{counting, gathers, reductions, shape, slices};

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
        "size-of-static",
        "iota-converted",
        "copy",
        "scatter-nothing",
        "scatter-at-one-place",
        "scatter-one-in-each-row",
        "sort-of-one",
        "sort-of-unused",
        "window-of-one",
        "window-of-all",
        "product-of-nothing",
    ];
    alone(moves_of, cases(), &families, &unmet);
}
