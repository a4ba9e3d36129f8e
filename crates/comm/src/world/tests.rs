//! Collectives among processes that are threads here: every kind, any split of the devices, and faults.

use super::World;
use super::message_passing::{ANNOUNCEMENT_TAG, MessagePassing, MessageRequest, MessageRequests, TransportError};
use crate::collective::tests::{InOrder, in_process, operands, sample};
use crate::rendezvous::{JoinError, RendezvousKey, Whereabouts};
use crate::{
    ArrayGeometry, Arrival, Collective, CollectiveKind, CollectiveRequest, Communicator, GroupSize, ParticipantMemory,
    Purpose, Serial,
};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(20);

/// A message on its way: who sent it, its tag, its bytes, and what is raised when it has been received.
type Letter = (usize, i32, Vec<u8>, Arc<AtomicBool>);

/// The wires between all processes, a queue for each receiver.
type Wires = Arc<Vec<Mutex<VecDeque<Letter>>>>;

/// A library that carries messages in memory. Long sends are complete only when they have been received.
#[derive(Debug)]
struct TestTransport {
    rank: usize,
    wires: Wires,
    requests: Vec<TestRequest>,
    /// Loses everything that it is given.
    is_dead: bool,
}

#[derive(Debug)]
enum TestRequest {
    Send(Arc<AtomicBool>),
    Receive { from: usize, tag: i32, address: usize, length: usize },
}

fn transports(size: usize) -> Vec<TestTransport> {
    let wires: Wires = Arc::new((0..size).map(|_| Mutex::default()).collect());
    (0..size).map(|rank| TestTransport { rank, wires: wires.clone(), requests: Vec::new(), is_dead: false }).collect()
}

impl MessagePassing for TestTransport {
    fn rank(&self) -> usize {
        self.rank
    }
    fn size(&self) -> usize {
        self.wires.len()
    }
    unsafe fn send(
        &mut self,
        to: usize,
        tag: i32,
        bytes: *const u8,
        length: usize,
        requests: &mut MessageRequests,
    ) -> Result<(), TransportError> {
        // SAFETY: the bytes are there, as the caller promises.
        let bytes = unsafe { std::slice::from_raw_parts(bytes, length) }.to_vec();
        let taken = Arc::new(AtomicBool::new(length < 256));
        if !self.is_dead {
            self.wires[to].lock().unwrap().push_back((self.rank, tag, bytes, taken.clone()));
        }
        requests.push(MessageRequest(self.requests.len() as u64));
        self.requests.push(TestRequest::Send(taken));
        Ok(())
    }
    unsafe fn receive(
        &mut self,
        from: usize,
        tag: i32,
        bytes: *mut u8,
        length: usize,
        requests: &mut MessageRequests,
    ) -> Result<(), TransportError> {
        requests.push(MessageRequest(self.requests.len() as u64));
        self.requests.push(TestRequest::Receive { from, tag, address: bytes as usize, length });
        Ok(())
    }
    fn is_complete(&mut self, request: MessageRequest) -> Result<bool, TransportError> {
        match &self.requests[request.0 as usize] {
            TestRequest::Send(taken) => Ok(taken.load(Ordering::SeqCst)),
            &TestRequest::Receive { from, tag, address, length } => {
                let mut wire = self.wires[self.rank].lock().unwrap();
                let Some(n) = wire.iter().position(|l| l.0 == from && l.1 == tag) else { return Ok(false) };
                let (.., bytes, taken) = wire.remove(n).unwrap();
                assert_eq!(bytes.len(), length);
                // SAFETY: the memory is there and as long, as the caller promised.
                unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), address as *mut u8, length) };
                taken.store(true, Ordering::SeqCst);
                Ok(true)
            }
        }
    }
    fn max_tag(&self) -> i32 {
        1 << 20
    }
    fn next_announcement(&mut self, buffer: &mut Vec<u8>) -> Result<Option<usize>, TransportError> {
        let mut wire = self.wires[self.rank].lock().unwrap();
        let Some(n) = wire.iter().position(|l| l.1 == ANNOUNCEMENT_TAG) else { return Ok(None) };
        let (from, _, bytes, taken) = wire.remove(n).unwrap();
        assert!(bytes.len() <= super::ANNOUNCEMENT_BYTES);
        *buffer = bytes;
        taken.store(true, Ordering::SeqCst);
        Ok(Some(from))
    }
    fn finalize(&mut self) -> Result<(), TransportError> {
        Ok(())
    }
}

/// Runs `program` for each process, and in each for every device that it owns.
fn run<T: Send>(
    processes: usize,
    devices: usize,
    limit: Duration,
    program: impl Fn(usize, &dyn Communicator) -> T + Sync,
) -> Vec<T> {
    let mut results: Vec<Option<T>> = (0..devices).map(|_| None).collect();
    std::thread::scope(|scope| {
        let program = &program;
        let mut threads = Vec::new();
        for transport in transports(processes) {
            threads.push(scope.spawn(move || {
                let world = World::new(Box::new(transport), None);
                let owners = world.owners(devices);
                let own: Vec<usize> = (0..devices).filter(|&d| owners[d] == world.rank()).collect();
                let communicator = world.communicator(0, owners, limit);
                let results: Vec<(usize, T)> = std::thread::scope(|scope| {
                    let device = |&d: &usize| {
                        let communicator = &*communicator;
                        scope.spawn(move || {
                            let result = program(d, communicator);
                            communicator.finish(d);
                            (d, result)
                        })
                    };
                    let threads: Vec<_> = own.iter().map(device).collect();
                    threads.into_iter().map(|t| t.join().unwrap()).collect()
                });
                drop(communicator);
                world.flush(Duration::from_millis(500));
                results
            }));
        }
        for (d, result) in threads.into_iter().flat_map(|t| t.join().unwrap()) {
            results[d] = Some(result);
        }
    });
    results.into_iter().map(Option::unwrap).collect()
}

/// What devices meet for, in words.
fn purpose(what: &str, work: Collective) -> Arc<Purpose> {
    Purpose::new(what.into(), what.into(), work)
}

/// Comes to a collective.
///
/// # Safety
/// As for [`Communicator::start`].
unsafe fn come(
    communicator: &dyn Communicator,
    device: usize,
    participants: &[usize],
    purpose: &Arc<Purpose>,
    memory: ParticipantMemory,
    waits: bool,
) -> Result<Arrival, JoinError> {
    let key = RendezvousKey::Channel(1);
    let request = CollectiveRequest { key, participants, purpose, memory, parallel: &Serial, waits };
    // SAFETY: the caller's promise.
    unsafe { communicator.start(device, &request) }
}

/// One device's part in a collective of all of `group`.
fn collective(
    communicator: &dyn Communicator,
    device: usize,
    group: &[usize],
    purpose: &Arc<Purpose>,
) -> Result<Vec<Vec<u32>>, JoinError> {
    let place = group.iter().position(|&d| d == device).unwrap();
    let work = &purpose.collective;
    let inputs = operands(work, place);
    let mut results: Vec<Vec<u32>> =
        (0..work.arrays.len()).map(|n| vec![99; work.result_bytes(n, group.len()) / 4]).collect();
    let memory = ParticipantMemory {
        operands: inputs.iter().map(|a| a.as_ptr() as usize).collect(),
        results: results.iter_mut().map(|a| a.as_mut_ptr() as usize).collect(),
    };
    // SAFETY: the arrays are as long as the collective says and kept until the wait has ended, or for ever.
    let met = unsafe { come(communicator, device, group, purpose, memory, !device.is_multiple_of(3)) };
    match met.and_then(|arrival| communicator.wait(device, arrival)) {
        Ok(()) => Ok(results),
        Err(error) => {
            if !communicator.abandon(device) {
                std::mem::forget((inputs, results));
            }
            Err(error)
        }
    }
}

#[test]
fn every_kind_gives_what_it_gives_in_one_process() {
    for (processes, devices) in [(2, 2), (4, 4), (2, 4), (3, 5)] {
        for kind in 0..9 {
            // Short ones, ones that are announced and follow, and long ones.
            for rows in [1, 3, 700] {
                let work = purpose("test", sample(kind, rows, devices));
                // The group's order is its own.
                let group: Vec<usize> = (0..devices).map(|d| (d + 1) % devices).collect();
                let results = run(processes, devices, LIMIT, |d, c| {
                    (0..3).map(|_| collective(c, d, &group, &work).unwrap()).next_back().unwrap()
                });
                let expected = in_process(&work.collective, devices);
                for (place, &device) in group.iter().enumerate() {
                    let same = results[device] == expected[place];
                    assert!(same, "kind {kind}, {rows} rows, device {device} of {devices} on {processes} processes");
                }
            }
        }
    }
}

#[test]
fn groups_are_apart_and_some_are_within_a_process() {
    let results = run(2, 4, LIMIT, |d, c| {
        let within = if d < 2 { [0, 1] } else { [2, 3] };
        let across = if d % 2 == 0 { [0, 2] } else { [1, 3] };
        let work = ["within", "across"].map(|what| purpose(what, sample(6, 1, 2)));
        (0..50).all(|_| {
            let a = collective(c, d, &within, &work[0]).unwrap();
            let b = collective(c, d, &across, &work[1]).unwrap();
            a == b && a == in_process(&work[0].collective, 2)[0]
        })
    });
    assert_eq!(results, [true; 4]);
}

#[test]
fn results_may_take_the_place_of_operands() {
    for exact in [0, 6] {
        for rows in [1, 4000] {
            let work = purpose("in place", sample(exact, rows, 3));
            let expected = in_process(&work.collective, 3);
            let results = run(3, 3, LIMIT, |d, c| {
                let mut array = operands(&work.collective, d).remove(0);
                let address = array.as_mut_ptr() as usize;
                let memory = ParticipantMemory { operands: [address][..].into(), results: [address][..].into() };
                // SAFETY: the array is as long as the collective says, and kept until the wait has ended.
                let arrival = unsafe { come(c, d, &[0, 1, 2], &work, memory, true) }.unwrap();
                c.wait(d, arrival).unwrap();
                array
            });
            assert!(results.iter().zip(&expected).all(|(a, b)| *a == b[0]), "{rows} rows");
        }
    }
}

/// Sums of several arrays that go with their heads, again and again: whoever comes first or last, each gets those of this
/// time, in the order of the group.
#[test]
fn short_sums_are_in_order_whoever_is_late() {
    let kind = || CollectiveKind::AllReduce((0..2).map(|_| Box::new(InOrder { exact: false }) as _).collect());
    let geometry = |elements: usize| ArrayGeometry { bytes: 4 * elements, rows: 1, group: GroupSize::Any };
    let work = purpose("sums", Collective { kind: kind(), arrays: vec![geometry(3), geometry(5)] });
    let results = run(3, 3, LIMIT, |d, c| {
        (0..300u32).all(|n| {
            match (n as usize * 7 + d * 5) % 23 {
                0 => std::thread::sleep(Duration::from_millis(1)),
                late => (0..late * 50).for_each(|_| std::hint::spin_loop()),
            }
            let operands = [vec![n % 7 + d as u32; 3], vec![n % 5 + d as u32; 5]];
            let mut sums = [vec![0; 3], vec![0; 5]];
            let memory = ParticipantMemory {
                operands: operands.iter().map(|a| a.as_ptr() as usize).collect(),
                results: sums.iter_mut().map(|a| a.as_mut_ptr() as usize).collect(),
            };
            // SAFETY: the arrays are as long as the collective says, and kept until the wait has ended.
            let arrival = unsafe { come(c, d, &[2, 0, 1], &work, memory, true) }.unwrap();
            c.wait(d, arrival).unwrap();
            // Devices 2, 0 and 1 bring k + 2, k and k + 1.
            sums == [vec![111 * (n % 7) + 201; 3], vec![111 * (n % 5) + 201; 5]]
        })
    });
    assert_eq!(results, [true; 3]);
}

/// The communication thread alone carries a collective to its end: the devices come to it and never look after it, as when
/// they are inside a long product. Only whether it is over is asked.
#[test]
fn a_gather_is_over_though_nobody_waits_for_it() {
    let work = purpose("gather", sample(2, 4000, 3));
    let expected = in_process(&work.collective, 3);
    let results = run(3, 3, LIMIT, |d, c| {
        let operand = operands(&work.collective, d).remove(0);
        let mut result = vec![99u32; work.collective.result_bytes(0, 3) / 4];
        let memory = ParticipantMemory {
            operands: [operand.as_ptr() as usize][..].into(),
            results: [result.as_mut_ptr() as usize][..].into(),
        };
        // SAFETY: the arrays are as long as the collective says, and kept until the wait has ended.
        let arrival = unsafe { come(c, d, &[0, 1, 2], &work, memory, false) }.unwrap();
        let begun = Instant::now();
        while !c.is_done(&arrival) && begun.elapsed() < LIMIT {
            std::thread::sleep(Duration::from_millis(1));
        }
        let is_over = c.is_done(&arrival);
        c.wait(d, arrival).unwrap();
        (is_over, result)
    });
    assert!(results.iter().zip(&expected).all(|((is_over, a), b)| *is_over && *a == b[0]));
}

#[test]
fn messages_arrive_in_order_whether_short_or_long() {
    let results = run(2, 2, LIMIT, |d, c| {
        let sizes = [5, 100_000, 0, 40_000, 7];
        if d == 0 {
            for (n, size) in sizes.into_iter().enumerate() {
                c.send(9, 0, 1, vec![n as u8; size]).unwrap();
            }
            return true;
        }
        let came = |(n, size): (usize, usize)| c.receive(9, 0, 1, "recv").unwrap() == vec![n as u8; size];
        sizes.into_iter().enumerate().all(came)
    });
    assert_eq!(results, [true, true]);
}

#[test]
fn a_device_that_is_done_is_named_at_once() {
    let begun = Instant::now();
    let work = purpose("sum", sample(0, 1, 3));
    let results = run(3, 3, LIMIT, |d, c| if d == 2 { Ok(vec![]) } else { collective(c, d, &[0, 1, 2], &work) });
    assert!(begun.elapsed() < LIMIT / 2);
    let absent = Err(JoinError::Absent(vec![(2, Whereabouts::Finished)]));
    assert_eq!(results, [absent.clone(), absent, Ok(vec![])]);
}

#[test]
fn a_process_that_says_nothing_is_named_after_the_time_limit() {
    let limit = Duration::from_millis(200);
    let work = purpose("gather", sample(2, 1, 2));
    let results = run(2, 2, limit, |d, c| {
        if d == 1 {
            std::thread::sleep(limit * 4);
            return Ok(vec![]);
        }
        collective(c, 0, &[0, 1], &work)
    });
    let silent = vec![(1, Whereabouts::Elsewhere { rank: 1 })];
    assert_eq!(results[0], Err(JoinError::TimedOut(limit, silent)));
}

#[test]
fn processes_that_come_for_different_things_disagree() {
    for rows in [1, 4000] {
        let results = run(2, 2, LIMIT, |d, c| {
            let work = purpose(["f32[4]", "f32[8]"][d], sample(6, rows + d, 2));
            let result = collective(c, d, &[0, 1], &work);
            if result.is_err() {
                c.cancel(d, "devices disagree");
            }
            result
        });
        // Who finds out first says what the other came for; the other may learn of its failure instead.
        let disagrees = |(d, result): (usize, &Result<_, JoinError>)| match result {
            Err(JoinError::Disagree { device, what }) => *device == 1 - d && what.starts_with(["f32[8]", "f32[4]"][d]),
            Err(JoinError::PeerFailed { .. }) => true,
            _ => false,
        };
        assert!(results.iter().enumerate().all(disagrees), "{results:?}");
    }
}

#[test]
fn a_failure_is_told_to_those_who_wait() {
    let work = purpose("sum", sample(0, 1, 2));
    let results = run(2, 2, LIMIT, |d, c| {
        if d == 1 {
            c.cancel(1, "out of memory");
            return Ok(vec![]);
        }
        collective(c, 0, &[0, 1], &work)
    });
    let failed = JoinError::PeerFailed { rank: 1, device: Some(1), why: "out of memory".into() };
    assert_eq!(results[0], Err(failed));
}

#[test]
fn what_all_say_comes_to_all_and_silent_ones_are_named() {
    let mut transports = transports(3);
    transports[2].is_dead = true;
    let results: Vec<_> = std::thread::scope(|scope| {
        let process = |t: TestTransport| {
            scope.spawn(move || {
                let world = World::new(Box::new(t), None);
                let rank = world.rank();
                world.exchange(1, &[rank as u8], Duration::from_millis(300)).map_err(|s| s.ranks)
            })
        };
        let threads: Vec<_> = transports.into_iter().map(process).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert_eq!(results, [Err(vec![2]), Err(vec![2]), Ok(vec![vec![0], vec![1], vec![2]])]);
}

#[test]
fn devices_are_owned_in_order() {
    let world = World::new(Box::new(transports(3).remove(0)), None);
    assert_eq!(world.owners(8), [0, 0, 1, 1, 1, 2, 2, 2]);
    assert_eq!(world.owners(3), [0, 1, 2]);
    assert!(matches!(sample(2, 1, 1).kind, CollectiveKind::AllGather));
}
