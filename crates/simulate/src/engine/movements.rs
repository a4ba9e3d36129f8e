//! Movements: started, queued, met by others, waited for, ended.

use super::{Engine, Instance, LINKS, MEMORY, MOST_EVENTS, MOST_MOVING, State, Task, TaskOf, Uses};
use crate::program::{Movement, bound_of};
use crate::timeline::{Event, Lane, Stall};
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::entity::InstructionId;
use smallvec::SmallVec;

impl Engine<'_> {
    /// Starts a movement; `None` if there is nothing to move.
    pub(super) fn start(
        &mut self,
        class: usize,
        id: InstructionId,
        movement: &Movement,
    ) -> Result<Option<usize>, Diagnostic> {
        let base = class * self.stride;
        let (seconds, mut uses, mut wire_bytes) = (0.0, Uses::new(), 0.0);
        let mut instance = Instance {
            instruction: id,
            seconds,
            uses: Uses::new(),
            lane: Lane::Network,
            bound: bound_of(movement),
            classes: std::iter::once(class as u32).collect(),
            came: 1,
            posted: self.now,
            started: self.now,
            ended: None,
            event: None,
            after: self.devices[class].last,
            wire_bytes,
        };
        match movement {
            Movement::Copy { bytes } => {
                let (seconds, latency) = self.model.copy_seconds(*bytes)?;
                let total = seconds + latency;
                uses.push((base + MEMORY, if total > 0.0 { seconds / total } else { 0.0 }));
                (instance.seconds, instance.lane) = (total, Lane::Copy);
                self.devices[class].totals.memory_seconds += seconds;
                self.devices[class].totals.bytes += bytes;
            }
            Movement::Kernel(cost) => {
                uses = self.kernel_uses(class, cost, false);
                (instance.seconds, instance.lane) = (cost.seconds, Lane::Copy);
                self.devices[class].totals.add_kernel(cost);
            }
            Movement::Send { bytes } => {
                let link = self.model.target().links.last();
                instance.seconds = link.map_or(0.0, |l| l.start_seconds + l.latency_seconds + bytes / l.reached());
                wire_bytes = *bytes;
                if self.stride > LINKS {
                    uses.push((base + self.stride - 1, 1.0));
                }
            }
            Movement::Collective { of, .. } | Movement::Permute { of, .. } => {
                let Some(meeting) = self.classes.meeting(*of, class) else { return Ok(None) };
                instance.seconds = meeting.transfer.seconds;
                wire_bytes = meeting.transfer.wire_bytes;
                for link in &meeting.transfer.links {
                    uses.push((base + LINKS + link.link, link.share));
                }
                // What goes out is read and what comes in is written.
                let traffic = 2.0 * wire_bytes / self.model.target().reached_bandwidth(0)?;
                uses.push((base + MEMORY, (traffic / instance.seconds).min(1.0)));
                if meeting.classes.len() > 1 {
                    let key = (id, self.occurrence(class, id), meeting.classes.clone());
                    instance.classes = meeting.classes.clone();
                    (instance.wire_bytes, instance.uses) = (wire_bytes, uses);
                    return Ok(Some(self.join(class, key, instance)));
                }
            }
        }
        if instance.seconds <= 0.0 {
            return Ok(None);
        }
        (instance.wire_bytes, instance.uses) = (wire_bytes, uses);
        self.instances.push(instance);
        let number = self.instances.len() - 1;
        self.devices[class].open += 1;
        self.devices[class].queue.push_back(number);
        self.start_queued(class);
        Ok(Some(number))
    }

    fn occurrence(&mut self, class: usize, id: InstructionId) -> u64 {
        let met = self.devices[class].met.entry(id).or_insert(0);
        *met += 1;
        *met
    }

    /// Comes to a collective that other classes take part in; the last to come starts it.
    fn join(&mut self, class: usize, key: (InstructionId, u64, SmallVec<[u32; 2]>), instance: Instance) -> usize {
        self.devices[class].open += 1;
        let Some(&number) = self.meeting.get(&key) else {
            self.instances.push(instance);
            self.meeting.insert(key, self.instances.len() - 1);
            return self.instances.len() - 1;
        };
        let known = &mut self.instances[number];
        known.came += 1;
        known.seconds = known.seconds.max(instance.seconds);
        known.uses.extend(instance.uses);
        // Who came last is what the others waited for.
        (known.posted, known.after) = (self.now, instance.after);
        if known.came == known.classes.len() {
            self.meeting.remove(&key);
            let first = self.instances[number].classes[0] as usize;
            self.devices[first].queue.push_back(number);
            self.start_queued(first);
        }
        number
    }

    /// Lets movements that queue begin, as far as there is room.
    fn start_queued(&mut self, class: usize) {
        while self.devices[class].under_way < MOST_MOVING {
            let Some(number) = self.devices[class].queue.pop_front() else { return };
            let instance = &mut self.instances[number];
            instance.started = self.now;
            let (instruction, lane, bound, after) =
                (instance.instruction, instance.lane, instance.bound, instance.after);
            let task = Task {
                left: instance.seconds,
                speed: 1.0,
                uses: instance.uses.clone(),
                of: TaskOf::Movement { instance: number },
            };
            let (start, owner) = (self.now, instance.classes[0] as usize);
            for class in instance.classes.clone() {
                self.devices[class as usize].under_way += 1;
            }
            self.tasks.push(task);
            self.is_changed = true;
            let event =
                Event { class: owner, lane, instruction, start, end: start, bound, cycles: None, rounds: 1, after };
            self.instances[number].event = self.record(event);
        }
    }

    pub(super) fn wait(&mut self, class: usize, instance: usize) {
        match self.instances[instance].ended {
            None => self.devices[class].state = State::Waiting { instance, since: self.now },
            Some(_) => self.record_stall(class, instance, self.now),
        }
    }

    /// The oldest movement that an instruction started, or that anyone did.
    pub(super) fn oldest(&mut self, class: usize, start: Option<InstructionId>) -> Option<usize> {
        let moving = &mut self.devices[class].moving;
        let start = match start {
            Some(start) => start,
            None => moving.iter().filter_map(|(id, q)| Some((*q.front()?, *id))).min()?.1,
        };
        moving.get_mut(&start)?.pop_front()
    }

    pub(super) fn end_movement(&mut self, number: usize) {
        let now = self.now;
        let instance = &mut self.instances[number];
        instance.ended = Some(now);
        let lasted = now - instance.started;
        if let Some(event) = instance.event {
            self.events[event].end = now;
        }
        let (lane, event, wire, uses) = (instance.lane, instance.event, instance.wire_bytes, instance.uses.clone());
        for class in instance.classes.clone() {
            let class = class as usize;
            let device = &mut self.devices[class];
            device.under_way = device.under_way.saturating_sub(1);
            device.open = device.open.saturating_sub(1);
            match lane {
                Lane::Network => {
                    device.totals.network_seconds += lasted;
                    device.totals.wire_bytes += wire;
                    for &(unit, share) in &uses {
                        if unit / self.stride == class && unit % self.stride >= LINKS {
                            device.totals.link_seconds[unit % self.stride - LINKS] += lasted * share;
                        }
                    }
                }
                Lane::Copy => device.totals.copy_seconds += lasted,
                Lane::Compute | Lane::Repeat => {}
            }
            if let State::Waiting { instance, since } = device.state
                && instance == number
            {
                device.state = State::Ready;
                self.waited(class, number, since);
                self.devices[class].last = event.or(self.devices[class].last);
            }
            self.start_queued(class);
        }
    }

    /// Keeps when a device came to the end of a movement, and went on.
    fn record_stall(&mut self, class: usize, instance: usize, since: f64) {
        if let Some(movement) = self.instances[instance].event
            && self.stalls.len() < MOST_EVENTS
        {
            self.stalls.push(Stall { class, movement, start: since, end: self.now });
        }
    }

    /// A device waited for a movement from `since` until now.
    fn waited(&mut self, class: usize, number: usize, since: f64) {
        self.record_stall(class, number, since);
        let instance = &self.instances[number];
        let seconds = self.now - since;
        let totals = &mut self.devices[class].totals;
        *totals.waits.entry(instance.instruction).or_insert(0.0) += seconds;
        // Until it began, the device waited for others, or for what was on its way already.
        let idle = (instance.started - since).clamp(0.0, seconds);
        match instance.lane {
            Lane::Network => {
                totals.exposed_network_seconds += seconds;
                totals.device_wait_seconds += if instance.classes.len() > 1 { idle } else { 0.0 };
            }
            _ => totals.exposed_copy_seconds += seconds,
        }
    }
}
