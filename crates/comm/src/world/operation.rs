//! A collective among processes: what this one sends to which other and where what comes is put.
//!
//! Devices of one process bring their arrays together; between two processes there is one message each way and stage. What
//! is only moved goes straight to its place. A reduction brings the contributions of all devices to the process that
//! reduces them, in the order of the group, so that the bits are those of the in-process transport; only where any order
//! gives the same bits are the devices of a process combined first. A short all-reduce is done by every process; a long
//! one is cut into a slice for each process, which reduces it and shares the result in a second stage. Very long ones go
//! piece after piece, so that what has come is reduced while it is near.

use super::algorithm::Algorithm;
use super::group::Group;
use super::peer_set::PeerSet;
use super::staging::StagingBuffer;
use crate::collective::{CollectiveKind, ParticipantMemory, source_of};
use crate::communicator::Purpose;
use crate::rendezvous::JoinError;
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex};

/// Bytes in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Segment {
    pub(crate) address: usize,
    pub(crate) length: usize,
}

/// Bytes that travel together: mostly one or two pieces, which take no memory of their own.
pub(crate) type Segments = SmallVec<[Segment; 2]>;

/// What becomes of a collective; whoever waits for it looks here.
#[derive(Debug)]
pub(crate) struct OperationStatus {
    pub(crate) purpose: Arc<Purpose>,
    pub(crate) group: Arc<Group>,
    /// Pieces that are not done.
    pub(crate) pieces_left: AtomicUsize,
    pub(crate) is_done: AtomicBool,
    pub(crate) error: Mutex<Option<JoinError>>,
}

impl OperationStatus {
    fn new(purpose: Arc<Purpose>, group: Arc<Group>, pieces: usize) -> OperationStatus {
        let (pieces_left, is_done) = (AtomicUsize::new(pieces), AtomicBool::new(false));
        OperationStatus { purpose, group, pieces_left, is_done, error: Mutex::new(None) }
    }
}

/// A collective that all devices of this process have come to, or a piece of it.
#[derive(Debug)]
pub(crate) struct Operation {
    pub(crate) purpose: Arc<Purpose>,
    pub(crate) group: Arc<Group>,
    pub(crate) stage: u8,
    /// Which piece it is, of how many.
    pub(crate) piece: usize,
    pub(crate) pieces: usize,
    /// Who has not announced yet what it sends in each stage.
    pub(crate) unheard: [PeerSet; 2],
    /// From whom bytes are still to come in each stage.
    pub(crate) missing: [PeerSet; 2],
    /// From whom bytes are being received in each stage.
    pub(crate) posted: [PeerSet; 2],
    /// To whom arrays are still being sent in each stage.
    pub(crate) sending: [PeerSet; 2],
    pub(crate) status: Arc<OperationStatus>,
    algorithm: Algorithm,
    /// The arrays of this process's devices, in the order of their places.
    memory: Arc<[ParticipantMemory]>,
    /// The operands of this process's devices combined, where that is what it contributes to a reduction.
    combined: Option<Arc<Vec<StagingBuffer>>>,
    /// What other processes contribute, one after another, and where each begins.
    inputs: StagingBuffer,
    input_at: SmallVec<[usize; 4]>,
}

impl Operation {
    /// A collective of a group, of which `memory` are the devices here (by place, in order).
    ///
    /// # Safety
    /// The memory must be as the collective says and stay until the operation is done; the group must fit.
    pub(crate) unsafe fn new(
        purpose: &Arc<Purpose>,
        group: &Arc<Group>,
        memory: Arc<[ParticipantMemory]>,
    ) -> Box<Operation> {
        let algorithm = Algorithm::of(&purpose.collective, group.processes.len());
        let pieces = algorithm.pieces(&purpose.collective, group.processes.len());
        let status = Arc::new(OperationStatus::new(purpose.clone(), group.clone(), pieces));
        Box::new(Operation {
            purpose: purpose.clone(),
            group: group.clone(),
            stage: 0,
            piece: 0,
            pieces,
            unheard: Default::default(),
            missing: Default::default(),
            posted: Default::default(),
            sending: Default::default(),
            status,
            algorithm,
            memory,
            combined: None,
            inputs: StagingBuffer::default(),
            input_at: SmallVec::new(),
        })
    }

    /// Another piece of the same, prepared as well.
    pub(crate) fn other_piece(&self, piece: usize) -> Box<Operation> {
        let mut operation = Operation {
            purpose: self.purpose.clone(),
            group: self.group.clone(),
            stage: 0,
            piece,
            pieces: self.pieces,
            unheard: Default::default(),
            missing: Default::default(),
            posted: Default::default(),
            sending: Default::default(),
            status: self.status.clone(),
            algorithm: self.algorithm,
            memory: self.memory.clone(),
            combined: self.combined.clone(),
            inputs: StagingBuffer::default(),
            input_at: SmallVec::new(),
        };
        operation.expect();
        Box::new(operation)
    }

    /// Does what needs no other process, and says what comes from whom. Nothing is sent or received before.
    ///
    /// # Safety
    /// As for [`Operation::new`].
    pub(crate) unsafe fn prepare(&mut self) {
        if self.algorithm == Algorithm::Move {
            // SAFETY: the caller's promise.
            unsafe { self.move_locally() };
        } else if self.is_exact() && self.memory.len() > 1 {
            // SAFETY: the caller's promise.
            self.combined = Some(Arc::new(unsafe { self.combine() }));
        }
        self.expect();
    }

    /// Makes room for what comes from whom.
    fn expect(&mut self) {
        for peer in self.peers() {
            let length: usize = match self.algorithm {
                Algorithm::Move => self.incoming(0, peer).iter().map(|s| s.length).sum(),
                _ => self.input_bytes(peer),
            };
            let comes = [length > 0, self.algorithm == Algorithm::ReduceSlices && self.slice_bytes(peer) > 0];
            for (stage, _) in comes.into_iter().enumerate().filter(|c| c.1) {
                self.missing[stage].insert(peer);
                self.unheard[stage].insert(peer);
            }
        }
        if self.algorithm != Algorithm::Move {
            let mut end = 0;
            for process in 0..self.group.processes.len() {
                self.input_at.push(end);
                end += if process == self.group.me { 0 } else { self.input_bytes(process) };
            }
            self.inputs = StagingBuffer::new(end);
        }
    }

    /// Takes everything that a process brings to a reduction.
    ///
    /// # Safety
    /// The segments must be there, and as long as what the process brings.
    pub(super) unsafe fn take_whole(&mut self, process: usize, segments: &[Segment]) {
        let mut to = self.input(process);
        for s in segments {
            // SAFETY: the caller's promise; nobody else writes there.
            unsafe { std::ptr::copy_nonoverlapping(s.address as *const u8, to as *mut u8, s.length) };
            to += s.length;
        }
        self.unheard[0].remove(process);
        self.missing[0].remove(process);
    }

    /// Where what a process contributes lies.
    fn input(&self, process: usize) -> usize {
        self.inputs.address() + self.input_at[process]
    }

    /// The other processes, by number.
    pub(crate) fn peers(&self) -> impl Iterator<Item = usize> + use<> {
        let me = self.group.me;
        (0..self.group.processes.len()).filter(move |&p| p != me)
    }

    /// The number of the process of that rank.
    pub(crate) fn process(&self, rank: usize) -> Option<usize> {
        self.group.processes.iter().position(|p| p.rank == rank)
    }

    fn members(&self) -> usize {
        self.group.participants.len()
    }

    fn own_places(&self) -> &[usize] {
        &self.group.processes[self.group.me].places
    }

    fn reducer_width(&self, n: usize) -> usize {
        match &self.purpose.collective.kind {
            CollectiveKind::AllReduce(r) | CollectiveKind::ReduceScatter(r) => r[n].element_bytes().max(1),
            _ => 1,
        }
    }

    fn is_exact(&self) -> bool {
        match &self.purpose.collective.kind {
            CollectiveKind::AllReduce(r) | CollectiveKind::ReduceScatter(r) => r.iter().all(|r| r.is_exact()),
            _ => false,
        }
    }

    /// Where this process's contribution number `k` to the reduction of array `n` lies: what its devices have combined, or
    /// the operand of one.
    fn contribution(&self, k: usize, n: usize) -> usize {
        match &self.combined {
            Some(combined) => combined[n].address(),
            None => self.memory[k].operands[n],
        }
    }

    /// How many contributions a process makes.
    fn contributions_of(&self, process: usize) -> usize {
        if self.is_exact() { 1 } else { self.group.processes[process].places.len() }
    }

    /// The bytes of array `n` that a process reduces in a piece of a sliced all-reduce.
    fn slice(&self, n: usize, process: usize) -> Range<usize> {
        let (width, count) = (self.reducer_width(n), self.group.processes.len());
        let elements = self.purpose.collective.arrays[n].bytes / width;
        let parts = self.pieces as u128 * count as u128;
        let at = |k: usize| (elements as u128 * k as u128 / parts) as usize * width;
        let part = self.piece * count + process;
        at(part)..at(part + 1)
    }

    fn slice_bytes(&self, process: usize) -> usize {
        (0..self.purpose.collective.arrays.len()).map(|n| self.slice(n, process).len()).sum()
    }

    /// The bytes that a process contributes to what this one reduces.
    fn input_bytes(&self, process: usize) -> usize {
        self.contributions_of(process) * self.input_bytes_of_one()
    }

    fn input_bytes_of_one(&self) -> usize {
        let arrays = 0..self.purpose.collective.arrays.len();
        match self.algorithm {
            Algorithm::Move => 0,
            Algorithm::ReduceAll => arrays.map(|n| self.purpose.collective.arrays[n].bytes).sum(),
            Algorithm::ReduceSlices => self.slice_bytes(self.group.me),
            Algorithm::ReduceBlocks => {
                arrays.map(|n| self.purpose.collective.result_bytes(n, self.members())).sum::<usize>()
                    * self.own_places().len()
            }
        }
    }

    /// Which devices of another process something that all get is sent for: the first only.
    fn receivers<'p>(&self, places: &'p [usize]) -> &'p [usize] {
        match self.purpose.collective.kind {
            CollectiveKind::AllGather | CollectiveKind::Broadcast(_) => &places[..1],
            _ => places,
        }
    }

    /// What goes to a process in a stage.
    pub(crate) fn outgoing(&self, stage: u8, peer: usize) -> Segments {
        let (mut segments, group) = (Segments::new(), self.members());
        let arrays = 0..self.purpose.collective.arrays.len();
        match (self.algorithm, stage) {
            (Algorithm::Move, _) => {
                for (&source, memory) in self.own_places().iter().zip(self.memory.iter()) {
                    for &target in self.receivers(&self.group.processes[peer].places) {
                        for n in arrays.clone() {
                            for m in self.purpose.collective.moves(n, group, source, target) {
                                push(&mut segments, memory.operands[n] + m.from.start, m.from.len());
                            }
                        }
                    }
                }
            }
            (Algorithm::ReduceAll, _) => {
                for k in 0..self.contributions_of(self.group.me) {
                    let whole = |n: usize| (self.contribution(k, n), self.purpose.collective.arrays[n].bytes);
                    arrays.clone().map(whole).for_each(|(address, bytes)| push(&mut segments, address, bytes));
                }
            }
            (Algorithm::ReduceSlices, 0) => {
                for k in 0..self.contributions_of(self.group.me) {
                    for n in arrays.clone() {
                        let slice = self.slice(n, peer);
                        push(&mut segments, self.contribution(k, n) + slice.start, slice.len());
                    }
                }
            }
            (Algorithm::ReduceSlices, _) => {
                for n in arrays {
                    let slice = self.slice(n, self.group.me);
                    push(&mut segments, self.memory[0].results[n] + slice.start, slice.len());
                }
            }
            (Algorithm::ReduceBlocks, _) => {
                for k in 0..self.contributions_of(self.group.me) {
                    for &target in &self.group.processes[peer].places {
                        for n in arrays.clone() {
                            let block = self.purpose.collective.block(n, group);
                            for row in 0..self.purpose.collective.arrays[n].rows {
                                push(&mut segments, self.contribution(k, n) + (row * group + target) * block, block);
                            }
                        }
                    }
                }
            }
        }
        segments
    }

    /// Where what comes from a process in a stage is put.
    pub(crate) fn incoming(&self, stage: u8, peer: usize) -> Segments {
        let (mut segments, group) = (Segments::new(), self.members());
        match (self.algorithm, stage) {
            (Algorithm::Move, _) => {
                for &source in &self.group.processes[peer].places {
                    for (&target, memory) in self.receivers(self.own_places()).iter().zip(self.memory.iter()) {
                        for n in 0..self.purpose.collective.arrays.len() {
                            for m in self.purpose.collective.moves(n, group, source, target) {
                                push(&mut segments, memory.results[m.result] + m.to, m.from.len());
                            }
                        }
                    }
                }
            }
            (Algorithm::ReduceSlices, 1) => {
                for n in 0..self.purpose.collective.arrays.len() {
                    let slice = self.slice(n, peer);
                    push(&mut segments, self.memory[0].results[n] + slice.start, slice.len());
                }
            }
            _ => push(&mut segments, self.input(peer), self.input_bytes(peer)),
        }
        segments
    }

    /// Whether results may be received from a process already: not while the operands that they may take the place of are
    /// still being sent to it.
    pub(crate) fn may_receive(&self, stage: u8, peer: usize) -> bool {
        stage == 0 || (self.stage >= 1 && !self.sending[0].contains(peer))
    }

    /// Goes on where everything of a stage has come: `true` if another stage is to be sent now.
    ///
    /// # Safety
    /// As for [`Operation::new`].
    pub(crate) unsafe fn advance(&mut self) -> bool {
        // Every process reduces everything into what may be the place of its operands: those must be sent by then.
        let may_reduce = self.algorithm != Algorithm::ReduceAll || self.sending[0].is_empty();
        if self.stage == 0 && self.has_all(0) && may_reduce {
            self.stage = 1;
            if self.algorithm != Algorithm::Move {
                // SAFETY: the caller's promise; all contributions have come.
                unsafe { self.reduce() };
            }
            if self.algorithm == Algorithm::ReduceSlices {
                return true;
            }
        }
        if self.stage == 1 && self.has_all(1) && self.sending.iter().all(PeerSet::is_empty) {
            // SAFETY: the caller's promise; nothing is being sent or received any more.
            unsafe { self.copy_to_others() };
            self.stage = 2;
        }
        false
    }

    fn has_all(&self, stage: usize) -> bool {
        self.missing[stage].is_empty() && self.unheard[stage].is_empty()
    }

    pub(crate) fn is_done(&self) -> bool {
        self.stage == 2
    }

    /// # Safety
    /// As for [`Operation::new`].
    unsafe fn move_locally(&self) {
        let (places, group) = (self.own_places().to_vec(), self.members());
        for (&target, to) in places.iter().zip(self.memory.iter()) {
            if let CollectiveKind::Permute(pairs) = &self.purpose.collective.kind
                && source_of(pairs, target).is_none()
            {
                for (n, &address) in to.results.iter().enumerate() {
                    // SAFETY: the caller's promise.
                    unsafe { std::ptr::write_bytes(address as *mut u8, 0, self.purpose.collective.arrays[n].bytes) };
                }
            }
            for (&source, from) in places.iter().zip(self.memory.iter()) {
                for n in 0..self.purpose.collective.arrays.len() {
                    for m in self.purpose.collective.moves(n, group, source, target) {
                        let (source, target) = (from.operands[n] + m.from.start, to.results[m.result] + m.to);
                        // SAFETY: the caller's promise; what devices share is copied onto itself at most.
                        unsafe { std::ptr::copy(source as *const u8, target as *mut u8, m.from.len()) };
                    }
                }
            }
        }
    }

    /// The operands of this process's devices combined.
    ///
    /// # Safety
    /// As for [`Operation::new`].
    unsafe fn combine(&self) -> Vec<StagingBuffer> {
        let (CollectiveKind::AllReduce(reducers) | CollectiveKind::ReduceScatter(reducers)) =
            &self.purpose.collective.kind
        else {
            return Vec::new();
        };
        let mut buffers = Vec::new();
        for (n, reducer) in reducers.iter().enumerate() {
            let bytes = self.purpose.collective.arrays[n].bytes;
            let combined = StagingBuffer::new(bytes);
            let from: Vec<usize> = self.memory.iter().map(|m| m.operands[n]).collect();
            // SAFETY: the caller's promise.
            unsafe { reducer.reduce(&from, &[combined.address()], bytes / reducer.element_bytes().max(1)) };
            buffers.push(combined);
        }
        buffers
    }

    /// Where the contributions lie that this process reduces, in the order of the group: how far into each of them the
    /// bytes at `in_operand` of an operand, or at `in_input` of what has come, are.
    fn sources(&self, n: usize, in_operand: usize, in_input: usize) -> SmallVec<[usize; 8]> {
        let each = self.input_bytes_of_one();
        let of = |process: usize, k: usize| match process == self.group.me {
            true => self.contribution(k, n) + in_operand,
            false => self.input(process) + k * each + in_input,
        };
        if self.is_exact() {
            return (0..self.group.processes.len()).map(|process| of(process, 0)).collect();
        }
        self.group.places.iter().map(|&(process, k)| of(process, k)).collect()
    }

    /// # Safety
    /// As for [`Operation::new`], and all contributions must be there.
    unsafe fn reduce(&self) {
        let (CollectiveKind::AllReduce(reducers) | CollectiveKind::ReduceScatter(reducers)) =
            &self.purpose.collective.kind
        else {
            return;
        };
        let (group, mut in_input) = (self.members(), 0);
        let targets = if self.algorithm == Algorithm::ReduceBlocks { self.own_places() } else { &[0] };
        for (t, &target) in targets.iter().enumerate() {
            for (n, reducer) in reducers.iter().enumerate() {
                let (whole, width) = (self.purpose.collective.arrays[n].bytes, reducer.element_bytes().max(1));
                let (rows, length) = match self.algorithm {
                    Algorithm::ReduceBlocks => {
                        (self.purpose.collective.arrays[n].rows, self.purpose.collective.block(n, group))
                    }
                    Algorithm::ReduceSlices => (1, self.slice(n, self.group.me).len()),
                    _ => (1, whole),
                };
                for row in 0..rows {
                    let (in_operand, to) = match self.algorithm {
                        Algorithm::ReduceBlocks => {
                            ((row * group + target) * length, self.memory[t].results[n] + row * length)
                        }
                        Algorithm::ReduceSlices => {
                            let start = self.slice(n, self.group.me).start;
                            (start, self.memory[0].results[n] + start)
                        }
                        _ => (0, self.memory[0].results[n]),
                    };
                    let from = self.sources(n, in_operand, in_input);
                    // SAFETY: the caller's promise.
                    unsafe { reducer.reduce(&from, &[to], length / width) };
                    in_input += length;
                }
            }
        }
    }

    /// Gives what the first device of this process has got to the others that get the same.
    ///
    /// # Safety
    /// As for [`Operation::new`].
    unsafe fn copy_to_others(&self) {
        let all_get_it = match self.algorithm {
            Algorithm::ReduceAll | Algorithm::ReduceSlices => true,
            Algorithm::Move => {
                matches!(self.purpose.collective.kind, CollectiveKind::AllGather | CollectiveKind::Broadcast(_))
            }
            Algorithm::ReduceBlocks => false,
        };
        if !all_get_it {
            return;
        }
        let (first, others) = self.memory.split_at(1);
        for n in 0..self.purpose.collective.arrays.len() {
            let bytes = match self.algorithm {
                Algorithm::ReduceSlices => self.slice(n, 0).start..self.slice(n, self.group.processes.len() - 1).end,
                _ => 0..self.purpose.collective.result_bytes(n, self.members()),
            };
            for other in others.iter().filter(|o| o.results[n] != first[0].results[n]) {
                let (from, to) = ((first[0].results[n] + bytes.start) as *const u8, other.results[n] + bytes.start);
                // SAFETY: the caller's promise.
                unsafe { std::ptr::copy_nonoverlapping(from, to as *mut u8, bytes.len()) };
            }
        }
    }

    /// The participants from which something is still to come.
    pub(crate) fn absent(&self) -> Vec<usize> {
        let stage = usize::from(self.stage.min(1));
        let mut silent: Vec<usize> = self.unheard[stage].iter().collect();
        if silent.is_empty() {
            // All have said that something comes; it does not.
            silent = self.missing[stage].iter().chain(self.sending.iter().flat_map(PeerSet::iter)).collect();
        }
        let group = &self.group;
        let devices = |&p: &usize| group.processes[p].places.iter().map(|&place| group.participants[place]);
        let mut absent: Vec<usize> = silent.iter().flat_map(devices).collect();
        absent.sort_unstable();
        absent.dedup();
        absent
    }
}

/// Adds bytes, to the last segment if they follow it.
fn push(segments: &mut Segments, address: usize, length: usize) {
    match segments.last_mut() {
        _ if length == 0 => {}
        Some(last) if last.address + last.length == address => last.length += length,
        _ => segments.push(Segment { address, length }),
    }
}
