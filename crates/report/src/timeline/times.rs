//! How long each instruction keeps a device from anything else.
//!
//! Of the devices the first counts, and of its lanes those that stand for what the device itself does; an event's time is
//! less that of the events within it, so that the times of all instructions add up to that of the run.

use super::Timeline;
use hloom_ir::entity::InstructionId;
use rustc_hash::FxHashMap;

/// Lanes of what a device does itself, beside helpers, copies and links.
const OWN_LANES: [&str; 2] = ["own thread", "compute"];

impl Timeline {
    /// Microseconds of each instruction, and how much of that it only waited for other devices.
    pub fn times_us(&self) -> FxHashMap<InstructionId, (f64, f64)> {
        let Some(first) = self.lanes.first() else { return FxHashMap::default() };
        let in_group: Vec<bool> = self.lanes.iter().map(|l| l.group == first.group).collect();
        let is_own = |l: usize| in_group[l] && OWN_LANES.contains(&&*self.lanes[l].name);
        let own: Vec<bool> = (0..self.lanes.len()).map(is_own).collect();
        let counted = if own.contains(&true) { own } else { in_group };
        let mut times: FxHashMap<InstructionId, (f64, f64)> = FxHashMap::default();
        let mut open: Vec<Vec<usize>> = vec![Vec::new(); self.lanes.len()];
        for number in self.in_order() {
            let event = &self.events[number as usize];
            let lane = event.lane as usize;
            if !counted.get(lane).is_some_and(|&c| c) {
                continue;
            }
            let end_us = |e: usize| self.events[e].start_us + self.events[e].duration_us;
            while open[lane].last().is_some_and(|&outer| end_us(outer) <= event.start_us) {
                open[lane].pop();
            }
            if let Some(outer) = open[lane].last().and_then(|&outer| self.events[outer].instruction) {
                times.entry(outer).or_default().0 -= event.duration_us;
            }
            if let Some(id) = event.instruction {
                let time = times.entry(id).or_default();
                time.0 += event.duration_us;
                time.1 += if event.is_exposed { event.duration_us } else { 0.0 };
            }
            open[lane].push(number as usize);
        }
        // Clocks of helpers may differ a little from the device's.
        times.values_mut().for_each(|t| t.0 = t.0.max(0.0));
        times
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::{Lane, TimelineEvent};
    use hloom_ir::entity::EntityId;

    #[test]
    fn what_runs_inside_counts_once_and_helpers_do_not() {
        let lane = |name: &str, group: &str| Lane { name: name.into(), group: group.into() };
        let event = |lane: u32, id: usize, start_us: f64, duration_us: f64| TimelineEvent {
            lane,
            instruction: Some(InstructionId::from_index(id)),
            start_us,
            duration_us,
            is_exposed: id == 2,
            ..TimelineEvent::default()
        };
        let timeline = Timeline {
            lanes: vec![lane("own thread", "device 0"), lane("thread 1", "device 0"), lane("own thread", "device 1")],
            // A loop of 10 with two steps inside; a helper, and another device.
            events: vec![
                event(0, 1, 3.0, 2.0),
                event(0, 0, 0.0, 10.0),
                event(0, 2, 6.0, 1.0),
                event(1, 1, 0.0, 50.0),
                event(2, 1, 0.0, 50.0),
                event(0, 1, 11.0, 4.0),
            ],
            ..Timeline::default()
        };
        let times = timeline.times_us();
        let of = |id: usize| times.get(&InstructionId::from_index(id)).copied();
        assert_eq!((of(0), of(1), of(2)), (Some((7.0, 0.0)), Some((6.0, 0.0)), Some((1.0, 1.0))));
    }
}
