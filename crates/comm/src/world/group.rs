//! Groups of devices as processes see them, and where the devices of a run are: made once for all runs alike.

use rustc_hash::FxHashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// A process of a group.
#[derive(Debug)]
pub(crate) struct ProcessOfGroup {
    pub(crate) rank: usize,
    /// The places of its devices in the group.
    pub(crate) places: Vec<usize>,
}

/// Devices that meet.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) participants: Vec<usize>,
    pub(crate) processes: Vec<ProcessOfGroup>,
    /// The number of this process among them.
    pub(crate) me: usize,
    /// The participants of this process.
    pub(crate) here: Vec<usize>,
    /// Of each place, the number of its process and which of that process's devices it is.
    pub(crate) places: Vec<(usize, usize)>,
    /// The ranks of the other processes.
    pub(crate) peers: Vec<usize>,
}

/// A group that has met for something.
#[derive(Clone, Debug)]
pub(crate) struct KnownGroup {
    /// Where its devices are.
    pub(crate) map: Arc<DeviceMap>,
    pub(crate) group: Arc<Group>,
    /// Whether what it meets for is a short all-reduce.
    pub(crate) is_short: bool,
}

/// Where the devices of a run are.
#[derive(Debug)]
pub(crate) struct DeviceMap {
    /// The process of each device.
    pub(crate) owners: Vec<usize>,
    /// This process.
    pub(crate) rank: usize,
    groups: Mutex<FxHashMap<Vec<usize>, Arc<Group>>>,
}

impl DeviceMap {
    pub(crate) fn new(owners: Vec<usize>, rank: usize) -> DeviceMap {
        DeviceMap { owners, rank, groups: Mutex::default() }
    }

    /// The process of a device.
    pub(crate) fn owner(&self, device: usize) -> usize {
        self.owners.get(device).copied().unwrap_or(self.rank)
    }

    /// The group of these devices, in their order.
    pub(crate) fn group(&self, participants: &[usize]) -> Arc<Group> {
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(group) = groups.get(participants) {
            return group.clone();
        }
        let mut processes: Vec<ProcessOfGroup> = Vec::new();
        let mut places = Vec::with_capacity(participants.len());
        let mut number_of: FxHashMap<usize, usize> = FxHashMap::default();
        for (place, &device) in participants.iter().enumerate() {
            let rank = self.owner(device);
            let number = *number_of.entry(rank).or_insert(processes.len());
            if number == processes.len() {
                processes.push(ProcessOfGroup { rank, places: Vec::new() });
            }
            let of_process = &mut processes[number].places;
            places.push((number, of_process.len()));
            of_process.push(place);
        }
        let me = processes.iter().position(|p| p.rank == self.rank).unwrap_or(0);
        let here = participants.iter().copied().filter(|&d| self.owner(d) == self.rank).collect();
        let peers = processes.iter().map(|p| p.rank).filter(|&r| r != self.rank).collect();
        let group = Arc::new(Group { participants: participants.to_vec(), processes, me, here, places, peers });
        groups.insert(participants.to_vec(), group.clone());
        group
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_know_their_processes() {
        let map = DeviceMap::new(vec![0, 0, 1, 1, 2], 1);
        let group = map.group(&[4, 2, 0, 3]);
        let ranks: Vec<_> = group.processes.iter().map(|p| (p.rank, p.places.clone())).collect();
        assert_eq!(ranks, [(2, vec![0]), (1, vec![1, 3]), (0, vec![2])]);
        assert_eq!((group.me, &group.here[..], &group.peers[..]), (1, &[2, 3][..], &[2, 0][..]));
        assert_eq!(group.places, [(0, 0), (1, 0), (2, 0), (1, 1)]);
        assert!(Arc::ptr_eq(&group, &map.group(&[4, 2, 0, 3])));
    }
}
