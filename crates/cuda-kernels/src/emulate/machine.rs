//! A block of threads: who runs next, memory, barriers, and what is still under way.

use std::collections::HashMap;

use super::EmulationError;
use super::parse::{Instruction, Operand, Program, SHARED_BASE, Special, program};
use super::scalar::{Type, evaluate};
use super::tensor::{Factor, WarpProduct};
use crate::launch::PtxKernel;

/// Global memory: buffers at addresses far from each other.
#[derive(Default)]
pub(super) struct Memory {
    buffers: Vec<Vec<u8>>,
}

const BUFFER_STEP: u64 = 1 << 40;

impl Memory {
    pub(super) fn allocate(&mut self, bytes: Vec<u8>) -> u64 {
        self.buffers.push(bytes);
        self.buffers.len() as u64 * BUFFER_STEP
    }

    pub(super) fn take(&mut self, address: u64) -> Vec<u8> {
        std::mem::take(&mut self.buffers[(address / BUFFER_STEP) as usize - 1])
    }

    fn slice(&mut self, address: u64, bytes: usize) -> Option<&mut [u8]> {
        let buffer = self.buffers.get_mut((address / BUFFER_STEP).checked_sub(1)? as usize)?;
        let start = (address % BUFFER_STEP) as usize;
        buffer.get_mut(start..start.checked_add(bytes)?)
    }
}

pub(super) fn run_kernel(kernel: &PtxKernel, parameters: &[u64], memory: &mut Memory) -> Result<(), EmulationError> {
    let program = program(&kernel.ptx)?;
    let threads = kernel.launch.block.iter().product::<u32>() as usize;
    if threads > program.threads_limit || !threads.is_multiple_of(32) {
        return Err(EmulationError::new(format!("a block of {threads} threads"), &kernel.name));
    }
    let [x, y, z] = kernel.launch.grid;
    for block in 0..u64::from(x) * u64::from(y) * u64::from(z) {
        let id = [block % u64::from(x), block / u64::from(x) % u64::from(y), block / u64::from(x) / u64::from(y)];
        let mut machine = Block {
            program: &program,
            parameters,
            memory,
            shared: vec![0xA5; kernel.launch.dynamic_shared_bytes as usize],
            registers: vec![0; threads * program.registers],
            threads: vec![Thread::default(); threads],
            warps: vec![Vec::new(); threads / 32],
            barriers: HashMap::new(),
            arrivals: HashMap::new(),
            id,
            grid: kernel.launch.grid,
            block: kernel.launch.block,
        };
        machine.run()?;
    }
    Ok(())
}

#[derive(Clone, Default)]
struct Thread {
    pc: usize,
    exited: bool,
    /// The block barrier it waits at.
    waits: Option<u64>,
    /// Copies that were started: target, bytes.
    copies: Vec<(u64, Vec<u8>)>,
    groups: Vec<Vec<(u64, Vec<u8>)>>,
}

/// A product that a warp has started: the instruction, whether it accumulates.
#[derive(Clone)]
enum Started {
    Product { instruction: usize, accumulates: bool, left: Option<u64>, right: u64 },
    Commit,
}

struct MemoryBarrier {
    expected: u64,
    pending: u64,
    phase: u64,
}

struct Block<'a> {
    program: &'a Program,
    parameters: &'a [u64],
    memory: &'a mut Memory,
    shared: Vec<u8>,
    registers: Vec<u64>,
    threads: Vec<Thread>,
    warps: Vec<Vec<Started>>,
    barriers: HashMap<u64, MemoryBarrier>,
    /// Block barriers: who has arrived.
    arrivals: HashMap<u64, Vec<usize>>,
    id: [u64; 3],
    grid: [u32; 3],
    block: [u32; 3],
}

/// What came of an instruction.
enum Outcome {
    Next,
    /// The warp should let others run.
    Pause,
}

type Step<T> = Result<T, EmulationError>;

impl Block<'_> {
    fn run(&mut self) -> Step<()> {
        let mut idle_rounds = 0;
        loop {
            let mut alive = false;
            let mut progressed = false;
            for warp in 0..self.warps.len() {
                for _ in 0..2000 {
                    let Some((pc, lanes)) = self.next_group(warp) else { break };
                    alive = true;
                    let outcome = self.step(warp, pc, &lanes)?;
                    if matches!(outcome, Outcome::Pause) {
                        break;
                    }
                    progressed = true;
                }
            }
            if !alive {
                let waiting = self.threads.iter().filter(|t| !t.exited).count();
                if waiting > 0 {
                    return Err(EmulationError::new(format!("{waiting} threads wait for ever"), "bar.sync"));
                }
                return Ok(());
            }
            idle_rounds = if progressed { 0 } else { idle_rounds + 1 };
            if idle_rounds > 10_000 {
                return Err(EmulationError::new("a block waits for a barrier for ever", "mbarrier.try_wait"));
            }
        }
    }

    /// The lanes of a warp that are furthest behind.
    fn next_group(&self, warp: usize) -> Option<(usize, Vec<usize>)> {
        let lanes = warp * 32..warp * 32 + 32;
        let ready = |&t: &usize| !self.threads[t].exited && self.threads[t].waits.is_none();
        let pc = lanes.clone().filter(ready).map(|t| self.threads[t].pc).min()?;
        Some((pc, lanes.filter(ready).filter(|&t| self.threads[t].pc == pc).collect()))
    }

    fn register(&mut self, thread: usize, number: usize) -> &mut u64 {
        &mut self.registers[thread * self.program.registers + number]
    }

    fn value(&self, thread: usize, operand: &Operand) -> Option<u64> {
        Some(match operand {
            Operand::Reg(n) => self.registers[thread * self.program.registers + n],
            Operand::Constant(bits) => *bits,
            Operand::Parameter(n) => *self.parameters.get(*n)?,
            Operand::Address(base, offset) => self.value(thread, base)?.wrapping_add(*offset as u64),
            Operand::Special(special) => match special {
                Special::Thread(0) => (thread as u64) % u64::from(self.block[0]),
                Special::Thread(1) => (thread as u64) / u64::from(self.block[0]),
                Special::Thread(_) => 0,
                Special::Block(axis) => self.id[*axis],
                Special::Threads(axis) => self.block[*axis].into(),
                Special::Blocks(axis) => self.grid[*axis].into(),
                Special::Lane => thread as u64 % 32,
                Special::LanesBelow => (1u64 << (thread % 32)) - 1,
            },
            Operand::Tuple(_) | Operand::Target(_) | Operand::Sink | Operand::Pair(..) => return None,
        })
    }

    fn step(&mut self, warp: usize, pc: usize, lanes: &[usize]) -> Step<Outcome> {
        let Some(instruction) = self.program.instructions.get(pc) else {
            for &t in lanes {
                self.threads[t].exited = true;
            }
            return Ok(Outcome::Next);
        };
        let active: Vec<usize> = match instruction.guard {
            None => lanes.to_vec(),
            Some((n, when)) => lanes.iter().copied().filter(|&t| (*self.register(t, n) & 1 == 1) == when).collect(),
        };
        for &t in lanes {
            self.threads[t].pc += 1;
        }
        if active.is_empty() {
            return Ok(Outcome::Next);
        }
        let fail = |message: &str| EmulationError::new(message, &instruction.text);
        let name = instruction.parts[0].as_str();
        let collective = matches!(name, "wgmma" | "shfl" | "vote" | "match" | "setmaxnreg")
            || (name == "bar" && instruction.parts[1] == "warp");
        if collective {
            let present = (warp * 32..warp * 32 + 32).filter(|&t| !self.threads[t].exited).count();
            if active.len() != present {
                return Err(fail("not all threads of the warp are there"));
            }
        }
        match name {
            "bra" => {
                let Some(Operand::Target(target)) = instruction.operands.first() else { return Err(fail("no target")) };
                for &t in &active {
                    self.threads[t].pc = *target;
                }
            }
            "ret" => active.iter().for_each(|&t| self.threads[t].exited = true),
            "setmaxnreg" | "fence" | "membar" => {}
            "bar" if instruction.parts[1] == "warp" => {}
            "bar" | "barrier" => return self.block_barrier(instruction, &active),
            "mbarrier" => return self.memory_barrier(instruction, &active),
            "cp" => self.copy(instruction, &active)?,
            "ld" => self.load(instruction, &active)?,
            "st" => self.store(instruction, &active)?,
            "atom" | "red" => self.atomic(instruction, &active)?,
            "shfl" => self.shuffle(instruction, &active)?,
            "vote" | "match" => self.vote(instruction, &active)?,
            "wgmma" => self.product(instruction, warp, &active, pc)?,
            _ => {
                for &t in &active {
                    let args = instruction.operands[1..]
                        .iter()
                        .map(|o| self.value(t, o))
                        .collect::<Option<Vec<u64>>>()
                        .ok_or_else(|| fail("an operand without a value"))?;
                    let result = evaluate(&instruction.parts, &args).ok_or_else(|| fail("an unknown instruction"))?;
                    let Operand::Reg(n) = instruction.operands[0] else { return Err(fail("no result")) };
                    *self.register(t, n) = result;
                }
            }
        }
        Ok(Outcome::Next)
    }

    fn block_barrier(&mut self, instruction: &Instruction, active: &[usize]) -> Step<Outcome> {
        let fail = |message: &str| EmulationError::new(message, &instruction.text);
        let blocks = instruction.parts.iter().any(|p| p == "sync");
        for &t in active {
            let id = self.value(t, &instruction.operands[0]).ok_or_else(|| fail("no barrier"))?;
            let count = match instruction.operands.get(1) {
                Some(operand) => self.value(t, operand).ok_or_else(|| fail("no count"))? as usize,
                None => self.threads.len(),
            };
            if id > 15 {
                return Err(fail("a barrier that does not exist"));
            }
            if blocks {
                self.threads[t].waits = Some(id);
            }
            let arrived = self.arrivals.entry(id).or_default();
            arrived.push(t);
            if arrived.len() == count {
                for thread in std::mem::take(arrived) {
                    if self.threads[thread].waits == Some(id) {
                        self.threads[thread].waits = None;
                    }
                }
            }
        }
        Ok(Outcome::Next)
    }

    fn memory_barrier(&mut self, instruction: &Instruction, active: &[usize]) -> Step<Outcome> {
        let fail = |message: &str| EmulationError::new(message, &instruction.text);
        let mut outcome = Outcome::Next;
        for &t in active {
            let value = |s: &Self, i: usize| s.value(t, &instruction.operands[i]).ok_or_else(|| fail("no value"));
            match instruction.parts[1].as_str() {
                "init" => {
                    let expected = value(self, 1)?;
                    let address = value(self, 0)?;
                    self.barriers.insert(address, MemoryBarrier { expected, pending: expected, phase: 0 });
                }
                "arrive" => {
                    let address = value(self, 1)?;
                    self.arrive(address).ok_or_else(|| fail("no barrier was set up there, or too many arrive"))?;
                }
                "try_wait" => {
                    let (address, parity) = (value(self, 1)?, value(self, 2)?);
                    let barrier = self.barriers.get(&address).ok_or_else(|| fail("no barrier was set up there"))?;
                    let passed = barrier.phase & 1 != parity & 1;
                    let Operand::Reg(n) = instruction.operands[0] else { return Err(fail("no result")) };
                    *self.register(t, n) = passed.into();
                    if !passed {
                        outcome = Outcome::Pause;
                    }
                }
                _ => return Err(fail("an unknown instruction")),
            }
        }
        Ok(outcome)
    }

    fn arrive(&mut self, address: u64) -> Option<()> {
        let barrier = self.barriers.get_mut(&address)?;
        barrier.pending = barrier.pending.checked_sub(1)?;
        if barrier.pending == 0 {
            barrier.pending = barrier.expected;
            barrier.phase += 1;
        }
        Some(())
    }

    fn copy(&mut self, instruction: &Instruction, active: &[usize]) -> Step<()> {
        let fail = |message: &str| EmulationError::new(message, &instruction.text);
        for &t in active {
            match instruction.parts[2].as_str() {
                "cg" | "ca" => {
                    let args: Vec<u64> = instruction.operands.iter().filter_map(|o| self.value(t, o)).collect();
                    let size = args[2] as usize;
                    let used = args.get(3).map_or(size, |&n| n as usize);
                    if !args[0].is_multiple_of(size as u64) || !args[1].is_multiple_of(size as u64) {
                        return Err(fail("an address that is not aligned"));
                    }
                    let mut bytes = vec![0; size];
                    if used > 0 {
                        let source = self.memory.slice(args[1], used).ok_or_else(|| fail("outside of a buffer"))?;
                        bytes[..used].copy_from_slice(source);
                    }
                    self.threads[t].copies.push((args[0], bytes));
                }
                "commit_group" => {
                    let copies = std::mem::take(&mut self.threads[t].copies);
                    self.threads[t].groups.push(copies);
                }
                "wait_group" => {
                    let pending = self.value(t, &instruction.operands[0]).unwrap_or(0) as usize;
                    let done = self.threads[t].groups.len().saturating_sub(pending);
                    let copies: Vec<_> = self.threads[t].groups.drain(..done).flatten().collect();
                    self.finish_copies(copies).ok_or_else(|| fail("outside of shared memory"))?;
                }
                "wait_all" => {
                    let mut copies: Vec<_> = self.threads[t].groups.drain(..).flatten().collect();
                    copies.append(&mut self.threads[t].copies);
                    self.finish_copies(copies).ok_or_else(|| fail("outside of shared memory"))?;
                }
                "mbarrier" => {
                    let copies = std::mem::take(&mut self.threads[t].copies);
                    self.finish_copies(copies).ok_or_else(|| fail("outside of shared memory"))?;
                    let address = self.value(t, &instruction.operands[0]).ok_or_else(|| fail("no barrier"))?;
                    self.arrive(address).ok_or_else(|| fail("no barrier was set up there, or too many arrive"))?;
                }
                _ => return Err(fail("an unknown instruction")),
            }
        }
        Ok(())
    }

    fn finish_copies(&mut self, copies: Vec<(u64, Vec<u8>)>) -> Option<()> {
        for (address, bytes) in copies {
            self.shared_slice(address, bytes.len())?.copy_from_slice(&bytes);
        }
        Some(())
    }

    fn shared_slice(&mut self, address: u64, bytes: usize) -> Option<&mut [u8]> {
        let start = address.checked_sub(SHARED_BASE)? as usize;
        self.shared.get_mut(start..start.checked_add(bytes)?)
    }

    /// Bytes of shared or global memory, as the instruction says.
    fn bytes(&mut self, instruction: &Instruction, address: u64, bytes: usize) -> Step<&mut [u8]> {
        let fail = |message: String| EmulationError::new(message, &instruction.text);
        if !address.is_multiple_of(bytes as u64) {
            return Err(fail(format!("address {address} is not a multiple of {bytes}")));
        }
        let shared = instruction.parts.iter().any(|p| p.starts_with("shared"));
        let slice = if shared { self.shared_slice(address, bytes) } else { self.memory.slice(address, bytes) };
        slice.ok_or_else(|| fail(format!("{bytes} bytes at {address} are outside of memory")))
    }

    fn load(&mut self, instruction: &Instruction, active: &[usize]) -> Step<()> {
        let fail = |message: &str| EmulationError::new(message, &instruction.text);
        let ty = instruction.parts.last().and_then(|p| Type::parse(p)).ok_or_else(|| fail("an unknown type"))?;
        let size = (ty.bits() / 8) as usize;
        for &t in active {
            if let Operand::Parameter(_) = instruction.operands[1] {
                let value = self.value(t, &instruction.operands[1]).ok_or_else(|| fail("no such parameter"))?;
                let Operand::Reg(n) = instruction.operands[0] else { return Err(fail("no result")) };
                *self.register(t, n) = value;
                continue;
            }
            let address = self.value(t, &instruction.operands[1]).ok_or_else(|| fail("no address"))?;
            let results: Vec<usize> = registers(&instruction.operands[0]).ok_or_else(|| fail("no result"))?;
            let bytes = self.bytes(instruction, address, size * results.len())?.to_vec();
            for (n, chunk) in results.into_iter().zip(bytes.chunks(size)) {
                let mut raw = [0; 8];
                raw[..size].copy_from_slice(chunk);
                let bits = u64::from_le_bytes(raw);
                let bits = if let Type::Signed(_) = ty { ty.integer(bits) as u64 } else { bits };
                *self.register(t, n) = bits;
            }
        }
        Ok(())
    }

    fn store(&mut self, instruction: &Instruction, active: &[usize]) -> Step<()> {
        let fail = |message: &str| EmulationError::new(message, &instruction.text);
        let ty = instruction.parts.last().and_then(|p| Type::parse(p)).ok_or_else(|| fail("an unknown type"))?;
        let size = (ty.bits() / 8) as usize;
        for &t in active {
            let address = self.value(t, &instruction.operands[0]).ok_or_else(|| fail("no address"))?;
            let values: Vec<u64> = match &instruction.operands[1] {
                Operand::Tuple(parts) => parts.iter().filter_map(|o| self.value(t, o)).collect(),
                other => self.value(t, other).into_iter().collect(),
            };
            let bytes = self.bytes(instruction, address, size * values.len())?;
            for (chunk, value) in bytes.chunks_mut(size).zip(values) {
                chunk.copy_from_slice(&value.to_le_bytes()[..size]);
            }
        }
        Ok(())
    }

    fn atomic(&mut self, instruction: &Instruction, active: &[usize]) -> Step<()> {
        let fail = |message: &str| EmulationError::new(message, &instruction.text);
        let ty = instruction.parts.last().and_then(|p| Type::parse(p)).ok_or_else(|| fail("an unknown type"))?;
        let size = (ty.bits() / 8) as usize;
        let returns = usize::from(instruction.parts[0] == "atom");
        let operation = instruction
            .parts
            .iter()
            .find(|p| matches!(p.as_str(), "add" | "or" | "and" | "xor" | "min" | "max" | "exch"));
        let operation = operation.ok_or_else(|| fail("an unknown operation"))?.clone();
        for &t in active {
            let address = self.value(t, &instruction.operands[returns]).ok_or_else(|| fail("no address"))?;
            let value = self.value(t, &instruction.operands[returns + 1]).ok_or_else(|| fail("no value"))?;
            let bytes = self.bytes(instruction, address, size)?;
            let mut raw = [0; 8];
            raw[..size].copy_from_slice(bytes);
            let old = u64::from_le_bytes(raw);
            let new = match operation.as_str() {
                "exch" => Some(value),
                name => {
                    evaluate(&[name.to_string(), instruction.parts.last().cloned().unwrap_or_default()], &[old, value])
                }
            };
            let new = new.ok_or_else(|| fail("an unknown operation"))?;
            bytes.copy_from_slice(&new.to_le_bytes()[..size]);
            if let (1, Operand::Reg(n)) = (returns, &instruction.operands[0]) {
                *self.register(t, *n) = old;
            }
        }
        Ok(())
    }

    fn shuffle(&mut self, instruction: &Instruction, active: &[usize]) -> Step<()> {
        let fail = |message: &str| EmulationError::new(message, &instruction.text);
        let mode = instruction.parts[2].as_str();
        let mut results = Vec::new();
        for &t in active {
            let lane = t % 32;
            let value = |s: &Self, i: usize| s.value(t, &instruction.operands[i]).ok_or_else(|| fail("no value"));
            let by = value(self, 2)? as usize & 31;
            let clamp = value(self, 3)? as usize;
            let (last, segment) = (clamp & 31, clamp >> 8 & 31);
            let lowest = lane & segment;
            let highest = lowest | (last & !segment);
            let (source, inside) = match mode {
                "bfly" => (lane ^ by, lane ^ by <= highest),
                "idx" => (lowest | (by & !segment), (lowest | (by & !segment)) <= highest),
                "up" => (lane.wrapping_sub(by), lane >= by && lane - by >= (lane & segment).max(last & lane & segment)),
                "down" => (lane + by, lane + by <= highest),
                _ => return Err(fail("an unknown mode")),
            };
            let source = if inside { source } else { lane };
            let from = t - lane + source;
            let bits = self.value(from, &instruction.operands[1]).ok_or_else(|| fail("no value"))?;
            results.push((t, bits & 0xffff_ffff, inside));
        }
        for (t, bits, inside) in results {
            match instruction.operands[0] {
                Operand::Reg(n) => *self.register(t, n) = bits,
                Operand::Pair(n, p) => {
                    *self.register(t, n) = bits;
                    *self.register(t, p) = inside.into();
                }
                _ => return Err(fail("no result")),
            }
        }
        Ok(())
    }

    fn vote(&mut self, instruction: &Instruction, active: &[usize]) -> Step<()> {
        let fail = |message: &str| EmulationError::new(message, &instruction.text);
        let values = active
            .iter()
            .map(|&t| self.value(t, &instruction.operands[1]).ok_or_else(|| fail("no value")))
            .collect::<Step<Vec<u64>>>()?;
        for (i, &t) in active.iter().enumerate() {
            let lanes_where = |holds: &dyn Fn(u64) -> bool| {
                active.iter().zip(&values).filter(|(_, v)| holds(**v)).map(|(t, _)| 1u64 << (t % 32)).sum::<u64>()
            };
            let result = match (instruction.parts[0].as_str(), instruction.parts[2].as_str()) {
                ("match", _) => lanes_where(&|v| v == values[i]),
                (_, "ballot") => lanes_where(&|v| v & 1 == 1),
                (_, "any") => u64::from(values.iter().any(|v| v & 1 == 1)),
                (_, "all") => u64::from(values.iter().all(|v| v & 1 == 1)),
                _ if instruction.parts[1] == "any" => lanes_where(&|v| v == values[i]),
                _ => return Err(fail("an unknown mode")),
            };
            let Operand::Reg(n) = instruction.operands[0] else { return Err(fail("no result")) };
            *self.register(t, n) = result;
        }
        Ok(())
    }

    fn product(&mut self, instruction: &Instruction, warp: usize, active: &[usize], pc: usize) -> Step<()> {
        let fail = |message: &str| EmulationError::new(message, &instruction.text);
        let first = active[0];
        match instruction.parts[1].as_str() {
            "fence" => {}
            "commit_group" => self.warps[warp].push(Started::Commit),
            "wait_group" => {
                let pending = self.value(first, &instruction.operands[0]).unwrap_or(0) as usize;
                loop {
                    let groups = self.warps[warp].iter().filter(|s| matches!(s, Started::Commit)).count();
                    if groups <= pending {
                        break;
                    }
                    let Started::Product { instruction, accumulates, left, right } = self.warps[warp].remove(0) else {
                        continue;
                    };
                    self.finish_product(warp, instruction, accumulates, left, right)?;
                }
            }
            "mma_async" => {
                let value = |s: &Self, i: usize| s.value(first, &instruction.operands[i]);
                let left = match instruction.operands[1] {
                    Operand::Tuple(_) => None,
                    _ => Some(value(self, 1).ok_or_else(|| fail("no left factor"))?),
                };
                let right = value(self, 2).ok_or_else(|| fail("no right factor"))?;
                let accumulates = value(self, 3).ok_or_else(|| fail("no predicate"))? & 1 == 1;
                self.warps[warp].push(Started::Product { instruction: pc, accumulates, left, right });
            }
            _ => return Err(fail("an unknown instruction")),
        }
        Ok(())
    }

    fn finish_product(&mut self, warp: usize, pc: usize, accumulates: bool, left: Option<u64>, right: u64) -> Step<()> {
        let instruction = &self.program.instructions[pc];
        let fail = |message: &str| EmulationError::new(message, &instruction.text);
        let shape = instruction.parts.iter().find_map(|p| p.strip_prefix("m64n")).ok_or_else(|| fail("no shape"))?;
        let columns = shape.split('k').next().and_then(|n| n.parse().ok()).ok_or_else(|| fail("no shape"))?;
        let factor = instruction.parts.last().and_then(|p| Factor::parse(p)).ok_or_else(|| fail("an unknown type"))?;
        let right_by_rows = match instruction.operands.last() {
            // The factors of TF32 lie one way only, and there is no word of it.
            _ if factor == Factor::Tf32 => false,
            Some(Operand::Constant(transposed)) => *transposed == 1,
            _ => return Err(fail("no transposition")),
        };
        let product = WarpProduct { columns, factor, accumulates, right, right_by_rows };
        let lanes: Vec<usize> = (warp * 32..warp * 32 + 32).collect();
        let shared = &self.shared;
        let read = |address: u64| {
            let start = address.checked_sub(SHARED_BASE)? as usize;
            shared.get(start..start + 2).map(|b| u16::from_le_bytes([b[0], b[1]]))
        };
        let outside = || fail("outside of shared memory, or a layout that is not known");
        let left = match (left, &instruction.operands[1]) {
            (Some(descriptor), _) => product.left_from_shared(descriptor, warp % 4, &read).ok_or_else(outside)?,
            (None, Operand::Tuple(parts)) => {
                let fragments: Vec<[u32; 4]> =
                    lanes.iter().map(|&t| [0, 1, 2, 3].map(|i| self.value(t, &parts[i]).unwrap_or(0) as u32)).collect();
                product.left_from_registers(&fragments)
            }
            _ => return Err(fail("no left factor")),
        };
        let sums = registers(&instruction.operands[0]).ok_or_else(|| fail("no accumulator"))?;
        if sums.len() != columns / 2 {
            return Err(fail("an accumulator of the wrong size"));
        }
        let count = self.program.registers;
        let mut accumulator: Vec<Vec<f32>> = lanes
            .iter()
            .map(|&t| sums.iter().map(|n| f32::from_bits(self.registers[t * count + n] as u32)).collect())
            .collect();
        product.run(&left, &read, &mut accumulator).ok_or_else(outside)?;
        for (&t, values) in lanes.iter().zip(&accumulator) {
            for (n, value) in sums.iter().zip(values) {
                *self.register(t, *n) = value.to_bits().into();
            }
        }
        Ok(())
    }
}

/// The registers that an operand names.
fn registers(operand: &Operand) -> Option<Vec<usize>> {
    match operand {
        Operand::Reg(n) => Some(vec![*n]),
        Operand::Tuple(parts) => parts.iter().map(|p| if let Operand::Reg(n) = p { Some(*n) } else { None }).collect(),
        _ => None,
    }
}
