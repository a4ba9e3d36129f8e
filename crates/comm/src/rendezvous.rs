//! The place where devices meet.

use crate::world::{OperationKey, OperationStatus};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Where devices meet: a name that all of them use for the same collective.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RendezvousKey {
    /// All instructions with this channel id.
    Channel(i64),
    /// One instruction, by its index.
    Instruction(usize),
}

/// What a device says when it comes to a meeting.
#[derive(Clone, Debug)]
pub struct JoinRequest<'a> {
    /// Where.
    pub key: RendezvousKey,
    /// Who is expected, in the group's order; the device itself is among them.
    pub participants: &'a [usize],
    /// What is done there, in words; all must say the same.
    pub what: &'a str,
}

/// Why a device did not meet the others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum JoinError {
    /// Some never arrive: nobody is left who could.
    Absent(Vec<(usize, Whereabouts)>),
    /// Some had not arrived within the time limit.
    TimedOut(Duration, Vec<(usize, Whereabouts)>),
    /// Another device came for something else.
    Disagree {
        /// That device.
        device: usize,
        /// What it came for.
        what: String,
    },
    /// The device is not among the participants it names, or names one that does not exist.
    NotAParticipant,
    /// The run is being ended.
    Cancelled,
    /// The participants bring arrays of different sizes, or sizes that the group cannot share.
    Unfit,
    /// A device of another process has failed, or that process.
    PeerFailed {
        /// The process.
        rank: usize,
        /// The device, if it was one.
        device: Option<usize>,
        /// Why.
        why: String,
    },
    /// The process was told to end while it waited for these.
    Interrupted(Vec<(usize, Whereabouts)>),
    /// The message-passing library says that something is wrong.
    Transport(String),
}

/// What a device is doing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Whereabouts {
    /// Computing.
    Running,
    /// Waiting for others, at what it says.
    Waiting(String),
    /// Done with its program.
    Finished,
    /// In another process, of which nothing was heard.
    Elsewhere {
        /// Which one.
        rank: usize,
    },
}

/// All devices of a run, and what is between them. `V` is what they bring and take.
#[derive(Debug)]
pub struct Rendezvous<V> {
    state: Mutex<State<V>>,
    changed: Condvar,
    time_limit: Duration,
}

#[derive(Debug)]
struct State<V> {
    devices: Vec<Whereabouts>,
    meetings: FxHashMap<GroupKey, GroupState<V>>,
    /// How often each device has been at each key: devices in step are at the same count.
    visits: FxHashMap<(usize, RendezvousKey), u64>,
    mailboxes: FxHashMap<(i64, usize, usize), VecDeque<V>>,
    /// Devices that wait for a message, and from which mailbox.
    expecting: FxHashMap<usize, (i64, usize)>,
    /// The run is being ended.
    cancelled: bool,
    /// Nobody can go on: set once, so that all who wait learn of it.
    stuck: bool,
}

/// RendezvousKey, visit, and the first of the participants: groups of one collective are apart.
pub(crate) type GroupKey = (RendezvousKey, u64, usize);

#[derive(Debug)]
struct GroupState<V> {
    what: String,
    first: usize,
    participants: Vec<usize>,
    brought: Vec<Option<V>>,
    /// Who waits for it, by place; others are doing something else meanwhile.
    waits: Vec<bool>,
    taken: Option<Vec<Option<V>>>,
}

/// A device's word that it came to a meeting.
#[derive(Debug)]
#[must_use]
pub struct Arrival {
    pub(crate) key: GroupKey,
    pub(crate) place: usize,
    /// What it waits for, where only other processes take part.
    pub(crate) operation: Option<(OperationKey, Arc<OperationStatus>)>,
    /// Whether there is nothing to wait for any more.
    pub(crate) is_over: bool,
}

impl<V> Rendezvous<V> {
    /// A rendezvous of `devices` running devices, none of which waits longer than `time_limit` for another that computes.
    pub fn new(devices: usize, time_limit: Duration) -> Rendezvous<V> {
        let state = State {
            devices: vec![Whereabouts::Running; devices],
            meetings: FxHashMap::default(),
            visits: FxHashMap::default(),
            mailboxes: FxHashMap::default(),
            expecting: FxHashMap::default(),
            cancelled: false,
            stuck: false,
        };
        Rendezvous { state: Mutex::new(state), changed: Condvar::new(), time_limit }
    }

    /// Meets the other participants. The last to arrive computes, from what everyone brought (in the order of the
    /// participants), what everyone takes away; if that fails, it alone gets the failure and the run should be cancelled.
    pub fn join<E>(
        &self,
        device: usize,
        meeting: &JoinRequest<'_>,
        brings: V,
        finish: impl FnOnce(Vec<V>) -> Result<Vec<V>, E>,
    ) -> Result<Result<V, E>, JoinError> {
        match self.arrive(device, meeting, brings, finish)? {
            Ok(arrival) => self.wait_for(device, &arrival).map(Ok),
            Err(error) => Ok(Err(error)),
        }
    }

    /// Comes to a meeting without waiting for it: the others get what the device brings, and it goes on with something
    /// else. As with [`Rendezvous::join`] the last to arrive computes what everyone takes away.
    pub fn arrive<E>(
        &self,
        device: usize,
        meeting: &JoinRequest<'_>,
        brings: V,
        finish: impl FnOnce(Vec<V>) -> Result<Vec<V>, E>,
    ) -> Result<Result<Arrival, E>, JoinError> {
        let place = meeting.participants.iter().position(|&p| p == device).ok_or(JoinError::NotAParticipant)?;
        let mut state = self.lock();
        if meeting.participants.iter().any(|&p| p >= state.devices.len()) {
            return Err(JoinError::NotAParticipant);
        }
        let visit = state.visits.entry((device, meeting.key)).or_insert(0);
        let key = (meeting.key, *visit, meeting.participants[0]);
        *visit += 1;
        let count = meeting.participants.len();
        let m = state.meetings.entry(key).or_insert_with(|| GroupState {
            what: meeting.what.to_owned(),
            first: device,
            participants: meeting.participants.to_vec(),
            brought: (0..count).map(|_| None).collect(),
            waits: vec![false; count],
            taken: None,
        });
        if m.what != meeting.what || m.participants != meeting.participants {
            let (device, what) = (m.first, m.what.clone());
            return Err(JoinError::Disagree { device, what });
        }
        m.brought[place] = Some(brings);
        let arrival = Arrival { key, place, operation: None, is_over: false };
        if !m.brought.iter().all(Option::is_some) {
            return Ok(Ok(arrival));
        }
        let brought: Vec<V> = m.brought.iter_mut().filter_map(Option::take).collect();
        drop(state);
        let taken = match finish(brought) {
            Ok(taken) => taken,
            Err(error) => return Ok(Err(error)),
        };
        let mut state = self.lock();
        let State { meetings, devices, .. } = &mut *state;
        if let Some(m) = meetings.get_mut(&key) {
            m.taken = Some(taken.into_iter().map(Some).collect());
            let waiting = m.participants.iter().zip(&m.waits).filter(|&(_, &waits)| waits);
            waiting.for_each(|(&p, _)| devices[p] = Whereabouts::Running);
        }
        self.changed.notify_all();
        Ok(Ok(arrival))
    }

    /// Which meeting a device would come to next at a key.
    pub(crate) fn next_visit(&self, device: usize, key: RendezvousKey) -> u64 {
        self.lock().visits.get(&(device, key)).copied().unwrap_or(0)
    }

    /// Comes to a key without a meeting: which visit it is, unless no device can meet others any more.
    pub(crate) fn visit(&self, device: usize, key: RendezvousKey) -> Result<u64, JoinError> {
        let mut state = self.lock();
        if state.cancelled {
            return Err(JoinError::Cancelled);
        }
        let visit = state.visits.entry((device, key)).or_insert(0);
        *visit += 1;
        Ok(*visit - 1)
    }

    /// Looks at what the device will take away from a meeting that has taken place.
    pub(crate) fn look<T>(&self, arrival: &Arrival, look: impl FnOnce(&V) -> T) -> Option<T> {
        let state = self.lock();
        let taken = state.meetings.get(&arrival.key)?.taken.as_ref()?;
        taken.get(arrival.place)?.as_ref().map(look)
    }

    /// Whether a meeting that the device came to has taken place already.
    pub fn has_taken_place(&self, arrival: &Arrival) -> bool {
        self.lock().meetings.get(&arrival.key).is_some_and(|m| m.taken.is_some())
    }

    /// Waits for a meeting that the device came to, and takes away what is its own.
    pub fn wait_for(&self, device: usize, arrival: &Arrival) -> Result<V, JoinError> {
        let Arrival { key, place, .. } = arrival;
        let mut state = self.lock();
        if let Some(mine) = take(&mut state, key, *place) {
            return Ok(mine);
        }
        // A meeting that is no more will never take place.
        let m = state.meetings.get_mut(key).ok_or(JoinError::Cancelled)?;
        m.waits[*place] = true;
        let what = m.what.clone();
        state.devices[device] = Whereabouts::Waiting(what);
        let absent = |state: &State<V>| {
            let Some(m) = state.meetings.get(key) else { return Vec::new() };
            let missing = m.participants.iter().zip(&m.brought).filter(|(_, brought)| brought.is_none());
            missing.map(|(&p, _)| (p, state.devices[p].clone())).collect::<Vec<_>>()
        };
        self.wait(state, device, |state| take(state, key, *place), absent)
    }

    /// Puts `value` into the mailbox from `from` to `to` on `channel`.
    pub fn post(&self, channel: i64, from: usize, to: usize, value: V) {
        let mut state = self.lock();
        state.mailboxes.entry((channel, from, to)).or_default().push_back(value);
        if state.expecting.get(&to) == Some(&(channel, from)) {
            state.expecting.remove(&to);
            state.devices[to] = Whereabouts::Running;
        }
        self.changed.notify_all();
    }

    /// Takes the next value from the mailbox from `from` to `to` on `channel`, waiting for it as long as it may come.
    pub fn take(&self, channel: i64, from: usize, to: usize, what: &str) -> Result<V, JoinError> {
        let mut state = self.lock();
        if from >= state.devices.len() || to >= state.devices.len() {
            return Err(JoinError::NotAParticipant);
        }
        let open = |state: &mut State<V>| state.mailboxes.get_mut(&(channel, from, to)).and_then(VecDeque::pop_front);
        if let Some(value) = open(&mut state) {
            return Ok(value);
        }
        state.devices[to] = Whereabouts::Waiting(what.to_owned());
        state.expecting.insert(to, (channel, from));
        self.wait(state, to, open, |state| vec![(from, state.devices[from].clone())])
    }

    /// Says that `device` is done with its program.
    pub fn finish(&self, device: usize) {
        let mut state = self.lock();
        // Once nobody can go on, the picture stays as it was then: it is what everyone is told.
        if !state.stuck
            && let Some(d) = state.devices.get_mut(device)
        {
            *d = Whereabouts::Finished;
        }
        self.changed.notify_all();
    }

    /// Ends every wait, now and later.
    pub fn cancel(&self) {
        self.lock().cancelled = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State<V>> {
        // A device that panicked holding the lock left the state as it was before its change: each change is one step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `ready` gives something, or it is certain that it never will.
    fn wait<T>(
        &self,
        mut state: MutexGuard<'_, State<V>>,
        device: usize,
        ready: impl Fn(&mut State<V>) -> Option<T>,
        absent: impl Fn(&State<V>) -> Vec<(usize, Whereabouts)>,
    ) -> Result<T, JoinError> {
        let start = Instant::now();
        loop {
            if let Some(value) = ready(&mut state) {
                state.devices[device] = Whereabouts::Running;
                return Ok(value);
            }
            if state.cancelled {
                return Err(JoinError::Cancelled);
            }
            // Who has been let go is marked running by the one who let it go, so if nobody runs, nobody ever will.
            if state.stuck || !state.devices.contains(&Whereabouts::Running) {
                state.stuck = true;
                self.changed.notify_all();
                return Err(JoinError::Absent(absent(&state)));
            }
            let Some(left) = self.time_limit.checked_sub(start.elapsed()).filter(|d| !d.is_zero()) else {
                return Err(JoinError::TimedOut(self.time_limit, absent(&state)));
            };
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// What the participant at `place` takes away, if the meeting has taken place; the last to take clears it away.
fn take<V>(state: &mut State<V>, key: &GroupKey, place: usize) -> Option<V> {
    let taken = state.meetings.get_mut(key)?.taken.as_mut()?;
    let mine = taken.get_mut(place).and_then(Option::take);
    if taken.iter().all(Option::is_none) {
        state.meetings.remove(key);
    }
    mine
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(20);

    fn meet(
        rendezvous: &Rendezvous<i64>,
        device: usize,
        key: usize,
        participants: &[usize],
        what: &str,
    ) -> Result<i64, JoinError> {
        let meeting = JoinRequest { key: RendezvousKey::Instruction(key), participants, what };
        let sum = |brought: Vec<i64>| Ok::<_, ()>(vec![brought.iter().sum(); brought.len()]);
        rendezvous.join(device, &meeting, 10 + device as i64, sum).map(|r| r.unwrap())
    }

    /// Runs `program` on each device and tells the rendezvous when it is done.
    fn run<T: Send>(rendezvous: &Rendezvous<i64>, devices: usize, program: impl Fn(usize) -> T + Sync) -> Vec<T> {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..devices)
                .map(|d| {
                    let program = &program;
                    scope.spawn(move || {
                        let result = program(d);
                        rendezvous.finish(d);
                        result
                    })
                })
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        })
    }

    #[test]
    fn everyone_takes_what_was_made_of_all() {
        let rendezvous = Rendezvous::new(4, LIMIT);
        let sums = run(&rendezvous, 4, |d| {
            let group = if d < 2 { [0, 1] } else { [2, 3] };
            (0..200).map(|_| meet(&rendezvous, d, 0, &group, "sum").unwrap()).sum::<i64>()
        });
        assert_eq!(sums, [200 * 21, 200 * 21, 200 * 25, 200 * 25]);
    }

    #[test]
    fn a_device_may_come_to_several_meetings_before_it_waits() {
        let rendezvous = Rendezvous::new(3, LIMIT);
        let sum = |brought: Vec<i64>| Ok::<_, ()>(vec![brought.iter().sum(); brought.len()]);
        let sums = run(&rendezvous, 3, |d| {
            let arrive = |key: usize| {
                let meeting =
                    JoinRequest { key: RendezvousKey::Instruction(key), participants: &[0, 1, 2], what: "sum" };
                rendezvous.arrive(d, &meeting, (key * 10 + d) as i64, sum).unwrap().unwrap()
            };
            let arrivals: Vec<Arrival> = (1..4).map(arrive).collect();
            // Those who wait for the last first must not look as if nobody could go on.
            arrivals.iter().rev().map(|a| rendezvous.wait_for(d, a).unwrap()).collect::<Vec<_>>()
        });
        assert_eq!(sums, vec![vec![93, 63, 33]; 3]);
    }

    #[test]
    fn who_came_and_went_on_is_not_missed() {
        let rendezvous = Rendezvous::new(2, LIMIT);
        let results = run(&rendezvous, 2, |d| {
            if d == 0 {
                return meet(&rendezvous, 0, 0, &[0, 1], "sum").map(Some);
            }
            let meeting = JoinRequest { key: RendezvousKey::Instruction(0), participants: &[0, 1], what: "sum" };
            let sum = |brought: Vec<i64>| Ok::<_, ()>(vec![brought.iter().sum(); brought.len()]);
            let arrival = rendezvous.arrive(1, &meeting, 11, sum).unwrap().unwrap();
            Ok(rendezvous.has_taken_place(&arrival).then_some(0))
        });
        assert_eq!(results[0], Ok(Some(21)));
    }

    #[test]
    fn a_device_that_never_comes_is_named_at_once() {
        let rendezvous = Rendezvous::new(3, LIMIT);
        let start = Instant::now();
        let results = run(&rendezvous, 3, |d| if d == 2 { Ok(0) } else { meet(&rendezvous, d, 0, &[0, 1, 2], "sum") });
        assert!(start.elapsed() < LIMIT / 2, "the time limit was waited for");
        let absent = Err(JoinError::Absent(vec![(2, Whereabouts::Finished)]));
        assert_eq!(results, [absent.clone(), absent, Ok(0)]);
    }

    #[test]
    fn devices_that_wait_for_each_other_elsewhere_are_told_so() {
        let rendezvous = Rendezvous::new(2, LIMIT);
        let results = run(&rendezvous, 2, |d| meet(&rendezvous, d, d, &[0, 1], ["left", "right"][d]));
        let waiting = |device, what: &str| Err(JoinError::Absent(vec![(device, Whereabouts::Waiting(what.into()))]));
        assert_eq!(results, [waiting(1, "right"), waiting(0, "left")]);
    }

    #[test]
    fn devices_that_come_for_different_things_disagree() {
        let rendezvous = Rendezvous::new(2, LIMIT);
        let results = run(&rendezvous, 2, |d| {
            let result = meet(&rendezvous, d, 0, &[0, 1], ["sum of f32[2]", "sum of f32[3]"][d]);
            if matches!(result, Err(JoinError::Disagree { .. })) {
                rendezvous.cancel();
            }
            result
        });
        assert!(results.iter().any(|r| matches!(r, Err(JoinError::Disagree { .. }))), "{results:?}");
        assert!(results.iter().all(Result::is_err));
    }

    #[test]
    fn a_device_that_computes_for_too_long_is_named_after_the_time_limit() {
        let rendezvous = Rendezvous::new(2, Duration::from_millis(50));
        let results = run(&rendezvous, 2, |d| {
            if d == 1 {
                std::thread::sleep(Duration::from_millis(400));
                return Ok(0);
            }
            meet(&rendezvous, d, 0, &[0, 1], "sum")
        });
        assert!(matches!(&results[0], Err(JoinError::TimedOut(_, absent)) if absent == &[(1, Whereabouts::Running)]));
    }

    #[test]
    fn messages_arrive_in_order_and_may_be_awaited_first() {
        let rendezvous = Rendezvous::new(2, LIMIT);
        let results = run(&rendezvous, 2, |d| {
            if d == 0 {
                (0..100).for_each(|n| rendezvous.post(7, 0, 1, n));
                return vec![];
            }
            (0..100).map(|_| rendezvous.take(7, 0, 1, "recv").unwrap()).collect::<Vec<_>>()
        });
        assert_eq!(results[1], (0..100).collect::<Vec<_>>());
        assert_eq!(rendezvous.take(7, 0, 1, "recv"), Err(JoinError::Absent(vec![(0, Whereabouts::Finished)])));
    }

    #[test]
    fn a_device_outside_the_world_is_not_invited() {
        let rendezvous = Rendezvous::new(2, LIMIT);
        assert_eq!(meet(&rendezvous, 0, 0, &[0, 5], "sum"), Err(JoinError::NotAParticipant));
        assert_eq!(meet(&rendezvous, 0, 0, &[1], "sum"), Err(JoinError::NotAParticipant));
    }
}
