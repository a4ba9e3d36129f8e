//! Collectives by the double of NCCL against those in one process, and what becomes of ranks that do not come.

use super::communicators::Communicators;
use super::double::{Double, World};
use super::*;
use crate::collective::{Collective, Kind, Reducer};
use hloom_analysis::devices::DeviceGrid;
use hloom_comm::{Communicator, InProcess, JoinError, ParticipantMemory, RendezvousKey, Serial, Whereabouts};
use hloom_eval::collective_work::work_of;
use hloom_eval::ops::elementwise::convert;
use hloom_eval::reducer::reducer;
use hloom_formats::hlo_text;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use hloom_ir::shape::ArrayShape;
use hloom_value::Array;
use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(20);

/// Bytes that begin where every type may.
fn memory(bytes: usize) -> Vec<u64> {
    vec![0x5a5a_5a5a_5a5a_5a5a; bytes.div_ceil(8)]
}

fn address(memory: &[u64]) -> u64 {
    memory.as_ptr() as u64
}

/// A program whose root is a collective.
struct Program {
    text: String,
    module: Module,
    root: InstructionId,
    collective: Collective,
    devices: usize,
}

impl Program {
    fn new(text: String, devices: usize) -> Program {
        let module = hlo_text::read(text.as_bytes()).module.unwrap_or_else(|| panic!("it can be read:\n{text}"));
        let root = module.root(module.entry().unwrap()).unwrap();
        let collective = Collective::new(&module, root, DeviceGrid { replicas: devices, partitions: 1 });
        let mut collective = collective.unwrap_or_else(|| panic!("there are kernels for it:\n{text}"));
        for (operands, _) in collective.reductions() {
            collective.reducers.push(Reducer { operands, sequence: 0 });
        }
        Program { text, module, root, collective, devices }
    }

    fn operands(&self) -> Vec<ArrayShape> {
        let operands = self.module[self.root].operands().iter();
        operands.map(|&o| self.module[o].shape.as_array().unwrap().clone()).collect()
    }

    fn results(&self) -> Vec<ArrayShape> {
        self.module[self.root].shape.leaves().iter().map(|(_, s)| s.as_array().unwrap().clone()).collect()
    }

    /// What a device has, the operands and then room for the results.
    fn arrays(&self, device: usize) -> Vec<Vec<u64>> {
        let operand = |(n, shape): (usize, &ArrayShape)| {
            let count: i64 = shape.dims().iter().product();
            // Small numbers, whose sums and products are exact in every type; and NaN, which counts in a maximum.
            let number = |k: i64| match (device as i64 + 3 * n as i64 + 5 * k) % 13 {
                7 if shape.element_type == ElementType::F32 && !self.text.contains("multiply") => f32::NAN,
                x => (x % 4) as f32,
            };
            let numbers: Vec<f32> = (0..count).map(number).collect();
            let array = convert(Array::new(&[count], &numbers).unwrap(), shape.element_type).unwrap();
            let mut bytes = memory(array.bytes().len());
            // SAFETY: as many bytes are there.
            unsafe {
                let from = array.bytes();
                std::ptr::copy_nonoverlapping(from.as_ptr(), bytes.as_mut_ptr().cast::<u8>(), from.len());
            }
            bytes
        };
        let mut arrays: Vec<Vec<u64>> = self.operands().iter().enumerate().map(operand).collect();
        arrays.extend(self.results().iter().map(|s| memory(s.byte_size().unwrap() as usize)));
        arrays
    }

    fn result_bytes(&self, arrays: &[Vec<u64>]) -> Vec<Vec<u8>> {
        let bytes = |(shape, memory): (&ArrayShape, &Vec<u64>)| {
            let all: Vec<u8> = memory.iter().flat_map(|w| w.to_ne_bytes()).collect();
            all[..shape.byte_size().unwrap() as usize].to_vec()
        };
        self.results().iter().zip(&arrays[self.operands().len()..]).map(bytes).collect()
    }

    /// The results of each device, in one process.
    fn expected(&self) -> Vec<Vec<Vec<u8>>> {
        let work = work_of(&self.module, &self.module[self.root].op, &self.operands(), &self.results()).unwrap();
        let mut all: Vec<Vec<Vec<u64>>> = (0..self.devices).map(|d| self.arrays(d)).collect();
        let count = self.operands().len();
        for group in &self.collective.groups {
            let of = |&d: &usize| {
                let addresses: Vec<usize> = all[d].iter().map(|a| address(a) as usize).collect();
                ParticipantMemory { operands: addresses[..count].into(), results: addresses[count..].into() }
            };
            let memory: Vec<ParticipantMemory> = group.iter().map(of).collect();
            // SAFETY: the arrays are of the program's sizes.
            unsafe { work.run(&memory, &Serial) };
        }
        all.iter_mut().map(|arrays| self.result_bytes(arrays)).collect()
    }

    /// What the collective is to a device on the way to NCCL.
    fn run(&self, rank: &Rank<'_>) -> Result<Vec<Vec<u8>>, JoinError> {
        let group = self.collective.groups.iter().find(|g| g.contains(&rank.device)).unwrap();
        let entered = rank.enter(group, "a collective")?;
        let me = group.iter().position(|&d| d == rank.device).unwrap();
        let schedule = Schedule::new(&self.collective, me);
        let (arrays, scratch) = (self.arrays(rank.device), memory(schedule.scratch_bytes));
        let at = |at: At| match at.place {
            Place::Array(n) => address(&arrays[n]) + at.offset as u64,
            Place::Scratch => address(&scratch) + at.offset as u64,
        };
        for step in &schedule.steps {
            match step {
                &Step::Copy { from, from_pitch, to, to_pitch, width, rows } => {
                    for row in 0..rows {
                        let (from, to) = (at(from) as usize + row * from_pitch, at(to) as usize + row * to_pitch);
                        // SAFETY: the rows are within the arrays.
                        unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, width) };
                    }
                }
                // SAFETY: so many bytes are there.
                &Step::Zero { at: to, bytes } => unsafe { std::ptr::write_bytes(at(to) as *mut u8, 0, bytes) },
                Step::Exchange(calls) => {
                    let calls: Vec<Call<u64>> = calls.iter().map(|c| c.at(at)).collect();
                    // SAFETY: the arrays are of the program's sizes, and there until all is done.
                    unsafe { rank.communicators.enqueue(entered, 0, &calls, rank.limits())? };
                }
                Step::Reduce { reducer, operands, results } => self.reduce(*reducer, operands, results, &at),
            }
        }
        Ok(self.result_bytes(&arrays))
    }

    /// What the kernels of a reducer do.
    fn reduce(&self, number: usize, operands: &[At], results: &[At], at: &dyn Fn(At) -> u64) {
        let (Kind::Reduce(op) | Kind::ReduceBlocks(op)) = self.collective.kind else { panic!("it reduces") };
        let in_blocks = matches!(self.collective.kind, Kind::ReduceBlocks(_));
        let of_arrays = self.collective.reducers[number].operands.clone();
        let size = self.collective.groups[0].len();
        let groups = operands.chunks(size).zip(results.chunks(size));
        for (n, (from, to)) in of_arrays.zip(groups) {
            let geometry = &self.collective.arrays[n];
            let (width, rows) = (geometry.element_type.bytes(), if in_blocks { geometry.rows } else { 1 });
            let reducer = reducer(op, geometry.element_type).unwrap();
            let row = geometry.bytes / rows;
            let block = if in_blocks { row / size } else { row };
            for (member, r) in (0..size).flat_map(|m| (0..rows).map(move |r| (m, r))) {
                let offset = r * row + if in_blocks { member * block } else { 0 };
                let from: Vec<usize> = from.iter().map(|&a| at(a) as usize + offset).collect();
                // SAFETY: the arrays are of the program's sizes.
                unsafe { reducer.reduce(&from, &[at(to[member]) as usize + r * block], block / width) };
            }
        }
    }
}

/// A device on its way.
struct Rank<'r> {
    device: usize,
    communicators: &'r Communicators,
    communicator: &'r dyn Communicator,
    time_limit: Duration,
}

impl Rank<'_> {
    fn limits(&self) -> Limits<'_> {
        Limits { time_limit: self.time_limit, stopped: &|| None }
    }

    fn enter(&self, group: &[usize], what: &str) -> Result<usize, JoinError> {
        let (what, name) = (Arc::from(what), Arc::from("it"));
        let meeting = Meeting { key: RendezvousKey::Instruction(1), group, what: &what, name: &name };
        self.communicators.enter(self.communicator, self.device, &meeting, self.limits())
    }
}

/// GPUs by number, which each rank has one of.
struct Machine {
    world: Arc<World>,
    gpus: Vec<Communicators>,
    time_limit: Duration,
}

impl Machine {
    fn new(gpus: &[usize]) -> Machine {
        let world = Arc::new(World::default());
        let of = |&gpu: &usize| Communicators::new(Arc::new(Double { world: world.clone(), gpu }), [gpu as u8; 16]);
        Machine { gpus: gpus.iter().map(of).collect(), world, time_limit: LIMIT }
    }

    /// Runs `program` on every device in a thread of its own.
    fn run<T: Send>(&self, program: impl Fn(&Rank<'_>) -> T + Sync) -> Vec<T> {
        let communicator = InProcess::new(self.gpus.len(), LIMIT);
        std::thread::scope(|scope| {
            let of = |(device, communicators)| {
                let (program, communicator, time_limit) = (&program, &communicator, self.time_limit);
                scope.spawn(move || {
                    let result = program(&Rank { device, communicators, communicator, time_limit });
                    communicator.finish(device);
                    result
                })
            };
            let threads: Vec<_> = self.gpus.iter().enumerate().map(of).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        })
    }
}

/// Numbers that look as if they were random, the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }

    fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }
}

/// A collective of some kind, type, size and groups.
fn generated(numbers: &mut Numbers) -> Program {
    let (size, groups) = (2 + numbers.below(3), 1 + numbers.below(2));
    let devices = size * groups;
    let mut order: Vec<usize> = (0..devices).collect();
    (1..devices).for_each(|n| order.swap(n, numbers.below(n + 1)));
    let braced = |list: &[usize]| format!("{{{}}}", list.iter().map(usize::to_string).collect::<Vec<_>>().join(","));
    let replica_groups = order.chunks(size).map(braced).collect::<Vec<_>>().join(",");
    let t = numbers.of(&["s8", "u8", "s16", "s32", "u32", "s64", "u64", "f16", "bf16", "f32", "f64", "pred", "c64"]);
    let op = match t {
        "pred" => numbers.of(&["and", "or"]),
        "c64" => numbers.of(&["add", "multiply"]),
        _ => numbers.of(&["add", "multiply", "maximum", "minimum"]),
    };
    let dimension = numbers.below(2);
    let (rows, columns) = (1 + numbers.below(3), 1 + numbers.below(5));
    let dims = |factor: [usize; 2]| format!("{t}[{},{}]", rows * factor[0], columns * factor[1]);
    let along = |by: usize| if dimension == 0 { [by, 1] } else { [1, by] };
    let (one, many) = (dims([1, 1]), dims(along(size)));
    let kind = numbers.below(7);
    let count = if kind == 4 { size } else { 1 + numbers.below(2) };
    let (from, to, attributes) = match kind {
        0 => (&one, &one, "to_apply=f".to_owned()),
        1 => (&many, &one, format!("dimensions={{{dimension}}}, to_apply=f")),
        2 => (&one, &many, format!("dimensions={{{dimension}}}")),
        3 => (&many, &many, format!("dimensions={{{dimension}}}")),
        4 | 5 => (&one, &one, String::new()),
        _ => (&one, &one, String::new()),
    };
    let count = if kind == 3 { 1 } else { count };
    let opcodes = ["all-reduce", "reduce-scatter", "all-gather", "all-to-all", "all-to-all", "collective-broadcast"];
    let mut text = format!("HloModule m\n\nf {{\na = {t}[] parameter(0)\nb = {t}[] parameter(1)\n");
    write!(text, "ROOT s = {t}[] {op}(a, b)\n}}\n\nENTRY e {{\n").unwrap();
    (0..count).for_each(|n| writeln!(text, "x{n} = {from} parameter({n})").unwrap());
    let operands = (0..count).map(|n| format!("x{n}")).collect::<Vec<_>>().join(", ");
    let is_tuple = count > 1 || kind == 4;
    let shape = if is_tuple { format!("({})", vec![to.as_str(); count].join(", ")) } else { to.clone() };
    match opcodes.get(kind) {
        Some(opcode) => {
            let comma = if attributes.is_empty() { "" } else { ", " };
            writeln!(
                text,
                "ROOT r = {shape} {opcode}({operands}), replica_groups={{{replica_groups}}}{comma}{attributes}"
            )
        }
        None => {
            // Some devices send to another, or to themselves, each at most once.
            let pairs = order.iter().enumerate().filter(|_| numbers.below(4) > 0);
            let pairs: Vec<String> = pairs.map(|(n, t)| format!("{{{n},{t}}}")).collect();
            writeln!(
                text,
                "ROOT r = {shape} collective-permute({operands}), source_target_pairs={{{}}}",
                pairs.join(",")
            )
        }
    }
    .unwrap();
    text.push_str("}\n");
    Program::new(text, devices)
}

#[test]
fn every_collective_gives_what_it_gives_in_one_process() {
    let cases = std::env::var("HLOOM_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(400);
    let mut numbers = Numbers(1);
    for _ in 0..cases {
        let program = generated(&mut numbers);
        let machine = Machine::new(&(0..program.devices).collect::<Vec<_>>());
        let results = machine.run(|rank| program.run(rank));
        for (device, (got, expected)) in results.into_iter().zip(program.expected()).enumerate() {
            assert_eq!(got, Ok(expected), "on device {device} of\n{}", program.text);
        }
    }
}

#[test]
fn a_group_has_one_communicator_and_others_have_others() {
    let machine = Machine::new(&[0, 1, 2]);
    let handles = machine.run(|rank| {
        let first = rank.enter(&[0, 1, 2], "all").unwrap();
        let again = rank.enter(&[0, 1, 2], "all").unwrap();
        assert_eq!(first, again);
        if rank.device < 2 { rank.enter(&[1, 0], "two").unwrap() } else { first }
    });
    assert_eq!(machine.world.counts(), (5, 0), "three ranks of one and two of another");
    assert_eq!(handles.len(), 3);
}

#[test]
fn who_gave_its_communicators_up_meets_the_others_in_new_ones() {
    let machine = Machine::new(&[0, 1]);
    machine.run(|rank| rank.enter(&[0, 1], "all").unwrap());
    machine.gpus[1].give_up();
    assert_eq!(machine.world.counts(), (2, 1));
    machine.run(|rank| rank.enter(&[0, 1], "all").unwrap());
    assert_eq!(machine.world.counts(), (4, 1));
}

#[test]
fn devices_on_one_gpu_are_named_before_nccl_is_asked() {
    let machine = Machine::new(&[0, 1, 0]);
    for result in machine.run(|rank| rank.enter(&[0, 1, 2], "all")) {
        let said = "devices 0 and 2 are on one GPU, and NCCL takes a GPU for each";
        assert_eq!(result, Err(JoinError::Transport(said.into())));
    }
    assert_eq!(machine.world.counts(), (0, 0));
}

#[test]
fn a_device_that_does_not_come_is_named_before_nccl_is_asked() {
    let machine = Machine::new(&[0, 1, 2]);
    let results = machine.run(|rank| if rank.device == 1 { Ok(0) } else { rank.enter(&[0, 1, 2], "all") });
    let absent = Err(JoinError::Absent(vec![(1, Whereabouts::Finished)]));
    assert_eq!(results, [absent.clone(), Ok(0), absent]);
    assert_eq!(machine.world.counts(), (0, 0));
}

#[test]
fn devices_that_come_for_different_things_do_not_reach_nccl() {
    let machine = Machine::new(&[0, 1]);
    let results = machine.run(|rank| {
        let result = rank.enter(&[0, 1], ["sum of f32[2]", "sum of f32[3]"][rank.device]);
        if result.is_err() {
            rank.communicator.cancel(rank.device, "it disagrees");
        }
        result
    });
    assert!(results.iter().any(|r| matches!(r, Err(JoinError::Disagree { .. }))), "{results:?}");
    assert!(results.iter().all(Result::is_err));
    assert_eq!(machine.world.counts(), (0, 0));
}

#[test]
fn a_rank_that_dies_on_the_way_to_nccl_is_not_waited_for_longer_than_the_limit() {
    let mut machine = Machine::new(&[0, 1]);
    machine.time_limit = Duration::from_millis(100);
    let begun = Instant::now();
    let results = machine.run(|rank| {
        let entered = rank.enter(&[0, 1], "all")?;
        if rank.device == 1 {
            return Ok(());
        }
        let array = memory(8);
        let call = Call::Broadcast { from: address(&array), to: address(&array), bytes: 8, root: 0 };
        // SAFETY: the array is that long; the double does nothing before all ranks have come.
        unsafe { rank.communicators.enqueue(entered, 0, &[call], rank.limits()) }
    });
    assert_eq!(results[0], Err(JoinError::Transport("NCCL is not done after 0 s".into())));
    assert!(begun.elapsed() < LIMIT);
}

#[test]
fn ranks_that_call_different_things_hear_of_it() {
    let machine = Machine::new(&[0, 1]);
    let results = machine.run(|rank| {
        let entered = rank.enter(&[0, 1], "all").unwrap();
        let array = memory(8);
        let bytes = 4 + 4 * rank.device;
        let call = Call::Broadcast { from: address(&array), to: address(&array), bytes, root: 0 };
        // SAFETY: the array is that long.
        unsafe { rank.communicators.enqueue(entered, 0, &[call], rank.limits()) }
    });
    let fault = Err(JoinError::Transport("ranks call different collectives".into()));
    assert_eq!(results, [fault.clone(), fault]);
}
