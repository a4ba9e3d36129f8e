//! Collectives in the forms that a TPU compiler gives them: at once, as pairs of start and done, carried along by fusions
//! that compute meanwhile, as an all-reduce with a slice of it (padded, with the rows that this shifts away fetched from
//! the neighbour), and as a loop that computes with one part while the next is on its way.

use super::{Held, Writer, descending, laid_out, list};
use hloom_ir::element_type::ElementType;
use hloom_ir::shape::ArrayShape;
use std::fmt::Write;

/// What an asynchronous collective keeps besides its operand and its result: flags and one semaphore.
const FLAGS: &str = "s32[2]{0:S(4)}";
const SEMAPHORE: &str = "u32[]{:S(2)}";

impl Writer<'_, '_> {
    pub(super) fn collective(&mut self, value: &Held) {
        // What is gathered again and again would fill the machine.
        let small = value.dims().iter().product::<i64>() <= 1024;
        let made = match self.choices.below(6) {
            1 | 2 if small => self.all_gather(value),
            3 => self.reduce_scatter(value),
            4 => self.permute(value),
            5 if small => self.windowed_einsum(value),
            _ => self.all_reduce(value),
        };
        if let Some(made) = made {
            self.keep(made);
        }
    }

    /// All devices in one group, with a channel of its own.
    fn everyone(&mut self) -> String {
        self.channels += 1;
        let devices = self.devices;
        let groups = match self.choices.below(3) {
            0 => format!("[1,{devices}]<=[{devices}]"),
            1 => format!("mesh['x'={devices}] {{'x'}}"),
            _ => format!("{{{{{}}}}}", list(&(0..devices).collect::<Vec<_>>())),
        };
        format!("channel_id={}, replica_groups={groups}, use_global_device_ids=true", self.channels)
    }

    /// The value as the compiled program hands it to a collective: maybe in bf16, in its order of dimensions.
    fn handed(&mut self, value: &Held) -> Held {
        let shape = laid_out(self.precision(), value.dims(), &value.shape.minor_to_major(), 0);
        let dump = self.operate(&shape, &[(&value.dump, &value.shape)], "copy", "");
        Held { source: value.source.clone(), dump, shape }
    }

    /// Adds a constant to the compiled program.
    fn number(&mut self, n: i64) -> (String, ArrayShape) {
        let shape = laid_out(ElementType::S32, &[], &[], 0);
        (self.put(&shape, &format!("constant({n})")), shape)
    }

    fn all_reduce(&mut self, value: &Held) -> Option<Held> {
        let groups = self.everyone();
        let text = |x: &str| format!("all-reduce({x}), {groups}, to_apply=add");
        let source = self.say(value.dims(), &text(&value.source));
        let handed = self.handed(value);
        let dump = self.put(&handed.shape, &text(&handed.dump));
        Some(Held { source, dump, shape: handed.shape })
    }

    fn all_gather(&mut self, value: &Held) -> Option<Held> {
        let along = self.choices.below(value.dims().len().max(1));
        let mut dims = value.dims().to_vec();
        *dims.get_mut(along)? *= self.devices;
        let groups = self.everyone();
        let attributes = format!("{groups}, dimensions={{{along}}}");
        let source = self.say(&dims, &format!("all-gather({}), {attributes}", value.source));
        let handed = self.handed(value);
        let shape = laid_out(handed.shape.element_type, &dims, &handed.shape.minor_to_major(), 0);
        let dump = match self.choices.below(3) {
            0 => self.put(&shape, &format!("all-gather({}), {attributes}", handed.dump)),
            1 => {
                let start = self.name("all-gather-start");
                let _ = writeln!(
                    self.dump,
                    "  {start} = ({}, {shape}) all-gather-start({}), {attributes}",
                    handed.shape, handed.dump
                );
                self.put(&shape, &format!("all-gather-done({start})"))
            }
            _ => self.carried(&handed, &shape, &attributes),
        };
        Some(Held { source, dump, shape })
    }

    /// An all-gather whose start and end are fusions, and which fusions that compute something else carry along.
    fn carried(&mut self, operand: &Held, shape: &ArrayShape, attributes: &str) -> String {
        let meet = format!("all-gather(x), {attributes}, frontend_attributes={{chain_id=\"{}\"}}", self.channels);
        let state = format!("{}, {shape}, {FLAGS}, {SEMAPHORE}", operand.shape);
        let parameters = format!(
            "  x = {} parameter(0)\n  result = {shape} parameter(1)\n  flags = {FLAGS} parameter(2)\n  \
             flag = {SEMAPHORE} parameter(3)\n  meet = {shape} {meet}\n",
            operand.shape
        );
        let (start, done) = (self.name("async_collective_start"), self.name("async_collective_done"));
        let _ = writeln!(
            self.fused,
            "{start} {{\n  x = {} parameter(0)\n  meet = {shape} {meet}\n  ROOT s = ({state}) custom-call(meet), \
             custom_call_target=\"AsyncCollectiveStart\"\n}}\n\n{done} {{\n{parameters}  ROOT y = {shape} \
             custom-call(x, result, meet, flags, flag), custom_call_target=\"AsyncCollectiveDone\"\n}}\n",
            operand.shape
        );
        let mut holder = self.name("start-fusion");
        let _ = writeln!(
            self.dump,
            "  {holder} = ({state}) fusion({}), kind=kCustom, calls={start}, output_to_operand_aliasing={{{{0}}: (0, {{}})}}",
            operand.dump
        );
        let mut places = [0, 1, 2, 3];
        for _ in 0..self.choices.below(4) {
            let n = self.choices.below(self.values.len());
            let own = self.values[n].clone();
            let (parts, carry) = (self.parts(&holder, places, operand, shape), self.name("continuation"));
            let own_shape = &own.shape;
            let _ = writeln!(
                self.fused,
                "{carry} {{\n{parameters}  own = {own_shape} parameter(4)\n  more = {own_shape} add(own, own)\n  ROOT t = \
                 ({own_shape}, {}, {shape}, {shape}, {FLAGS}, {SEMAPHORE}) tuple(more, x, result, meet, flags, flag)\n}}\n",
                operand.shape
            );
            holder = self.name("fusion");
            let _ = writeln!(
                self.dump,
                "  {holder} = ({own_shape}, {}, {shape}, {shape}, {FLAGS}, {SEMAPHORE}) fusion({parts}, {}), kind=kOutput, \
                 calls={carry}",
                operand.shape, own.dump
            );
            places = [1, 2, 4, 5];
            let source = self.say(own.dims(), &format!("add({0}, {0})", own.source));
            let dump = self.put(own_shape, &format!("get-tuple-element({holder}), index=0"));
            self.keep(Held { source, dump, shape: own.shape });
        }
        let parts = self.parts(&holder, places, operand, shape);
        self.put(shape, &format!("fusion({parts}), kind=kCustom, calls={done}"))
    }

    /// Takes the state of a collective out of the tuple that holds it, highest index first; the names, lowest first.
    fn parts(&mut self, holder: &str, places: [usize; 4], operand: &Held, shape: &ArrayShape) -> String {
        let types = [operand.shape.to_string(), shape.to_string(), FLAGS.to_owned(), SEMAPHORE.to_owned()];
        let mut names = Vec::new();
        for (place, text) in places.iter().zip(&types).rev() {
            let name = self.name("get-tuple-element");
            let _ = writeln!(self.dump, "  {name} = {text} get-tuple-element({holder}), index={place}");
            names.push(name);
        }
        names.reverse();
        names.join(", ")
    }

    /// A reduce-scatter of the first dimension, which is an all-reduce and a slice of it at the partition's offset. With the
    /// parts padded to more rows than they should have, what a device lacks comes from the one before it.
    fn reduce_scatter(&mut self, value: &Held) -> Option<Held> {
        let &[rows, ref others @ ..] = value.dims() else { return None };
        let others = others.to_vec();
        let part = rows / self.devices;
        if rows % self.devices != 0 {
            return None;
        }
        let dims_of = |rows: i64| [&[rows][..], &others].concat();
        let groups = self.everyone();
        let source = self.say(
            &dims_of(part),
            &format!("reduce-scatter({}), {groups}, dimensions={{0}}, to_apply=add", value.source),
        );
        let more = *self.choices.pick(&[0, 0, 1]);
        // What is lacking must be in the part of the one device before.
        let halo = (self.devices - 1) * more;
        let (more, halo) = if halo <= part + more { (more, halo) } else { (0, 0) };
        let padded = part + more;
        let order = descending(others.len() + 1);
        let handed = self.handed(value);
        let t = handed.shape.element_type;
        let shaped = |dims: &[i64]| laid_out(t, dims, &order, 0);
        let (whole, scattered) = (shaped(&dims_of(padded * self.devices)), shaped(&dims_of(padded)));
        let scalar = laid_out(ElementType::S32, &[], &[], 0);
        let computation = self.name("all-reduce-scatter");
        let zeros = ", zero".repeat(others.len());
        let padding = format!("0_{}{}", padded * self.devices - rows, "x0_0".repeat(others.len()));
        let _ = writeln!(
            self.fused,
            "{computation} {{\n  x = {} parameter(0)\n  nothing = {t}[] constant(0)\n  padded = {whole} pad(x, nothing), \
             padding={padding}\n  sum = {whole} all-reduce(padded), {groups}, to_apply=add\n  me = u32[]{{:T(128)}} \
             partition-id()\n  number = {scalar} convert(me)\n  rows = {scalar} constant({padded})\n  offset = {scalar} \
             multiply(number, rows)\n  zero = {scalar} constant(0)\n  ROOT part = {scattered} dynamic-slice(sum, \
             offset{zeros}), dynamic_slice_sizes={{{}}}\n}}\n",
            handed.shape,
            list(scattered.dims())
        );
        let dump = self.put(&scattered, &format!("fusion({}), kind=kCustom, calls={computation}", handed.dump));
        if halo == 0 {
            return Some(Held { source, dump, shape: scattered });
        }
        let full = |dims: &[i64]| dims.iter().map(|n| format!("[0:{n}]")).collect::<Vec<_>>();
        let mut ranges = vec![format!("[{}:{padded}]", padded - halo)];
        ranges.extend(full(&others));
        let edge_shape = shaped(&dims_of(halo));
        let edge = self.put(&edge_shape, &format!("slice({dump}), slice={{{}}}", ranges.join(", ")));
        let came = self.sent(&edge, &edge_shape, |d| (d > 0).then(|| d - 1));
        let both =
            self.put(&shaped(&dims_of(halo + padded)), &format!("concatenate({came}, {dump}), dimensions={{0}}"));
        // Device n has n times too many rows before its own.
        let unsigned = laid_out(ElementType::U32, &[], &[], 0);
        let me = self.put(&unsigned, "partition-id()");
        let number = self.put(&scalar, &format!("convert({me})"));
        let (many, most, zero) = (self.number(more).0, self.number(halo).0, self.number(0).0);
        let shift = self.put(&scalar, &format!("multiply({number}, {many})"));
        let offset = self.put(&scalar, &format!("subtract({most}, {shift})"));
        let zeros = format!(", {zero}").repeat(others.len());
        let shape = shaped(&dims_of(part));
        let sizes = list(shape.dims());
        let dump =
            self.put(&shape, &format!("dynamic-slice({both}, {offset}{zeros}), dynamic_slice_sizes={{{sizes}}}"));
        Some(Held { source, dump, shape })
    }

    /// Pairs by which device `d` is sent something by the device that `from` names.
    fn pairs(&self, from: impl Fn(i64) -> Option<i64>) -> String {
        let pairs = (0..self.devices).filter_map(|d| Some(format!("{{{},{d}}}", from(d)?)));
        format!("source_target_pairs={{{}}}", pairs.collect::<Vec<_>>().join(","))
    }

    /// A permute in the compiled program.
    fn sent(&mut self, value: &str, shape: &ArrayShape, from: impl Fn(i64) -> Option<i64>) -> String {
        let (pairs, start) = (self.pairs(from), self.name("collective-permute-start"));
        self.channels += 1;
        let _ = writeln!(
            self.dump,
            "  {start} = ({shape}, {shape}, {SEMAPHORE}, {SEMAPHORE}) collective-permute-start({value}), channel_id={}, \
             {pairs}",
            self.channels
        );
        self.put(shape, &format!("collective-permute-done({start})"))
    }

    fn permute(&mut self, value: &Held) -> Option<Held> {
        let (devices, by) = (self.devices, self.choices.between(1, 3));
        let around = self.choices.chance(70);
        let from = |d: i64| if around || d >= by { Some((d - by).rem_euclid(devices)) } else { None };
        self.channels += 1;
        let text = format!("collective-permute({}), channel_id={}, {}", value.source, self.channels, self.pairs(from));
        let source = self.say(value.dims(), &text);
        let handed = self.handed(value);
        let dump = self.sent(&handed.dump, &handed.shape, from);
        Some(Held { source, dump, shape: handed.shape })
    }

    /// A product of a gathered operand: a loop multiplies the part that is there while it goes on to the next device.
    fn windowed_einsum(&mut self, value: &Held) -> Option<Held> {
        let &[m, k] = value.dims() else { return None };
        let (devices, n) = (self.devices, self.size());
        let weight = self.parameter(vec![k, n]);
        let groups = self.everyone();
        let gathered =
            self.say(&[m * devices, k], &format!("all-gather({}), {groups}, dimensions={{0}}", value.source));
        let dims = [m * devices, n];
        let dots = "lhs_contracting_dims={1}, rhs_contracting_dims={0}";
        let source = self.say(&dims, &format!("dot({gathered}, {}), {dots}", weight.source));

        let handed = self.handed(value);
        let (x, w) = (&handed.shape, &weight.shape);
        let part = laid_out(self.precision(), &[m, n], &[1, 0], 0);
        let shape = laid_out(part.element_type, &dims, &[1, 0], 0);
        let (scalar, unsigned) = (laid_out(ElementType::S32, &[], &[], 0), laid_out(ElementType::U32, &[], &[], 0));
        let (body, condition) = (self.name("windowed_dot_general_body"), self.name("windowed_dot_general_cond"));
        let state = format!("({x}, {w}, {shape}, {scalar})");
        self.channels += 1;
        let pairs = self.pairs(|d| Some((d + 1) % devices));
        let _ = writeln!(
            self.fused,
            "{condition} {{\n  s = {state} parameter(0)\n  i = {scalar} get-tuple-element(s), index=3\n  end = {scalar} \
             constant({devices})\n  ROOT more = pred[]{{:T(512)}} compare(i, end), direction=LT\n}}\n\n{body} {{\n  s = \
             {state} parameter(0)\n  i = {scalar} get-tuple-element(s), index=3\n  y = {shape} get-tuple-element(s), \
             index=2\n  w = {w} get-tuple-element(s), index=1\n  x = {x} get-tuple-element(s), index=0\n  send = ({x}, {x}, \
             {SEMAPHORE}, {SEMAPHORE}) collective-permute-start(x), channel_id={}, {pairs}\n  part = {part} convolution(x, \
             w), dim_labels=bf_io->bf\n  me = {unsigned} partition-id()\n  number = {scalar} convert(me)\n  place = \
             {scalar} add(number, i)\n  all = {scalar} constant({devices})\n  turn = {scalar} remainder(place, all)\n  rows \
             = {scalar} constant({m})\n  offset = {scalar} multiply(turn, rows)\n  zero = {scalar} constant(0)\n  next = \
             {shape} dynamic-update-slice(y, part, offset, zero)\n  one = {scalar} constant(1)\n  count = {scalar} add(i, \
             one)\n  came = {x} collective-permute-done(send)\n  ROOT t = {state} tuple(came, w, next, count)\n}}\n",
            self.channels
        );
        let nothing = {
            let scalar = laid_out(shape.element_type, &[], &[], 0);
            self.put(&scalar, "constant(0)")
        };
        let empty = self.put(&shape, &format!("broadcast({nothing}), dimensions={{}}"));
        let (zero, _) = self.number(0);
        let (init, run) = (self.name("tuple"), self.name("while"));
        let _ = writeln!(
            self.dump,
            "  {init} = {state} tuple({}, {}, {empty}, {zero})\n  {run} = {state} while({init}), condition={condition}, \
             body={body}",
            handed.dump, weight.dump
        );
        let dump = self.put(&shape, &format!("get-tuple-element({run}), index=2"));
        Some(Held { source, dump, shape })
    }
}
