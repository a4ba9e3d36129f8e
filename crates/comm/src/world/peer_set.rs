//! Sets of the processes of a group, by number: no memory is taken for groups of up to 64.

/// Some of the processes of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PeerSet {
    first: u64,
    others: Vec<u64>,
}

impl PeerSet {
    pub(crate) fn insert(&mut self, peer: usize) {
        match peer / 64 {
            0 => self.first |= 1 << peer,
            word => {
                if self.others.len() < word {
                    self.others.resize(word, 0);
                }
                self.others[word - 1] |= 1 << (peer % 64);
            }
        }
    }

    pub(crate) fn remove(&mut self, peer: usize) {
        match peer / 64 {
            0 => self.first &= !(1 << peer),
            word => {
                if let Some(w) = self.others.get_mut(word - 1) {
                    *w &= !(1 << (peer % 64));
                }
            }
        }
    }

    pub(crate) fn clear(&mut self) {
        self.first = 0;
        self.others.clear();
    }

    pub(crate) fn contains(&self, peer: usize) -> bool {
        let word = if peer < 64 { self.first } else { self.others.get(peer / 64 - 1).copied().unwrap_or(0) };
        word >> (peer % 64) & 1 == 1
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first == 0 && self.others.iter().all(|&w| w == 0)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> {
        (0..64 * (1 + self.others.len())).filter(|&p| self.contains(p))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_come_and_go() {
        let mut set = PeerSet::default();
        [3, 63, 64, 200].into_iter().for_each(|p| set.insert(p));
        assert_eq!(set.iter().collect::<Vec<_>>(), [3, 63, 64, 200]);
        set.remove(64);
        set.remove(999);
        assert!(!set.contains(64) && set.contains(200) && !set.contains(999));
        [3, 63, 200].into_iter().for_each(|p| set.remove(p));
        assert!(set.is_empty());
    }
}
