//! Products: dots in the source, convolutions in the compiled program.

use super::{Held, Writer, laid_out, same_memory};

impl Writer<'_, '_> {
    pub(super) fn dot(&mut self, value: &Held) {
        match *value.dims() {
            [m, k] => self.matrix_dot(value, m, k),
            [b, m, k] => self.batched_dot(value, [b, m, k]),
            _ => {}
        }
    }

    /// Adds a product: in the source a dot of those dimensions, in the compiled program a convolution.
    fn product(&mut self, [x, y]: [&Held; 2], dot: &str, dims: &[i64], convolution: (&str, &[i64])) -> Held {
        let source = self.say(dims, &format!("dot({}, {}), {dot}", x.source, y.source));
        let (attributes, made) = convolution;
        let order = self.order(made.len());
        let shape = laid_out(self.precision(), made, &order, 0);
        let operands = [(x.dump.as_str(), &x.shape), (y.dump.as_str(), &y.shape)];
        let dump = self.operate(&shape, &operands, "convolution", &format!(", {attributes}"));
        Held { source, dump, shape }
    }

    /// The value with a dimension of size one put in at `at`; nothing moves for it in memory.
    fn widened(&mut self, value: &Held, at: usize) -> Held {
        let mut dims = value.dims().to_vec();
        dims.insert(at, 1);
        let order = value.shape.minor_to_major().into_iter().map(|d| d + i64::from(d >= at as i64));
        let shape = laid_out(value.shape.element_type, &dims, &order.chain([at as i64]).collect::<Vec<_>>(), 0);
        let dump = self.operate(&shape, &[(&value.dump, &value.shape)], "bitcast", "");
        Held { source: value.source.clone(), dump, shape }
    }

    fn matrix_dot(&mut self, value: &Held, m: i64, k: i64) {
        let (n, h) = (self.size(), self.choices.between(2, 4));
        let made = match self.choices.below(3) {
            0 => {
                let weight = self.parameter(vec![k, n]);
                let dims = "lhs_contracting_dims={1}, rhs_contracting_dims={0}";
                self.product([value, &weight], dims, &[m, n], ("dim_labels=bf_io->bf", &[m, n]))
            }
            1 => {
                let weight = self.parameter(vec![n, k]);
                let dims = "lhs_contracting_dims={1}, rhs_contracting_dims={1}";
                self.product([value, &weight], dims, &[m, n], ("dim_labels=bf_oi->bf", &[m, n]))
            }
            _ => {
                let weight = self.parameter(vec![k, h, n]);
                let dims = "lhs_contracting_dims={1}, rhs_contracting_dims={0}";
                let pad = h - 1;
                let window = format!("window={{size={h} pad={pad}_{pad} rhs_reversal=1}}, dim_labels=b0f_i0o->b0f");
                let wide = self.widened(value, 1);
                self.product([&wide, &weight], dims, &[m, h, n], (&window, &[m, h, n]))
            }
        };
        self.keep(made);
    }

    fn batched_dot(&mut self, value: &Held, [b, m, k]: [i64; 3]) {
        let n = self.size();
        let made = match self.choices.below(3) {
            0 => {
                let weight = self.parameter(vec![k, n]);
                let wide = self.widened(&weight, 2);
                let dims = "lhs_contracting_dims={2}, rhs_contracting_dims={0}";
                let window = "window={size=1}, dim_labels=0bf_io0->0bf";
                self.product([value, &wide], dims, &[b, m, n], (window, &[b, m, n]))
            }
            1 if b > 1 => {
                let weight = self.parameter(vec![b, k, n]);
                let dims = "lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0}, rhs_contracting_dims={1}";
                let stride = b - 1;
                let window = format!("window={{size={b} stride={stride} lhs_dilate={b}}}, dim_labels=0bf_0io->0bf");
                self.product([value, &weight], dims, &[b, m, n], (&window, &[b, m, n]))
            }
            _ => {
                let weight = self.parameter(vec![m, k, n]);
                let dims = "lhs_contracting_dims={1,2}, rhs_contracting_dims={0,1}";
                let window = format!("window={{size={m}}}, dim_labels=b0f_0io->b0f");
                let made = self.product([value, &weight], dims, &[b, n], (&window, &[b, 1, n]));
                let order = self.order(2);
                let shape = laid_out(made.shape.element_type, &[b, n], &order, 0);
                let opcode = if same_memory(&made.shape, &shape) { "bitcast" } else { "reshape" };
                let dump = self.put(&shape, &format!("{opcode}({})", made.dump));
                Held { source: made.source, dump, shape }
            }
        };
        self.keep(made);
    }
}
