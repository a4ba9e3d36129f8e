//! Packings of random heaps: right, never worse than the reference, and as good as can be where that is known.

use super::*;
use crate::heap::Stretch;

struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % bound
    }
}

/// Groups that are there at random times, some of them twice.
fn heap(seed: u64, count: u64, largest: u64) -> Vec<Group> {
    let mut numbers = Numbers(seed);
    let mut group = |owner: u64| {
        let start = numbers.below(count);
        let mut spans = vec![(start, start + numbers.below(1 + count / 3))];
        if numbers.below(10) == 0 {
            let again = spans[0].1 + 2 + numbers.below(4);
            spans.push((again, again + numbers.below(4)));
        }
        let length = spans.last().unwrap().1 - start;
        let size = numbers.below(largest) as i64;
        Group::new(owner as u32, size, length, spans)
    };
    (0..count).map(&mut group).collect()
}

/// The most that is there at once, by looking at every moment.
fn bound(groups: &[Group], alignment: i64) -> i64 {
    let last = groups.iter().flat_map(|g| g.spans.iter().map(|s| s.1)).max().unwrap_or(0);
    let at = |time: u64| {
        let there = |g: &&Group| g.size > 0 && g.spans.iter().any(|s| s.0 <= time && time <= s.1);
        let whole = |g: &Group| round_up(g.size, alignment).unwrap();
        let there: Vec<&Group> = groups.iter().filter(there).collect();
        let filling = there.iter().map(|g| whole(g) - g.size).max().unwrap_or(0);
        there.iter().map(|g| whole(g)).sum::<i64>() - filling
    };
    (0..=last).map(at).max().unwrap_or(0)
}

/// Fails unless everything lies apart, in the block, and where it may begin.
fn assert_right(groups: &[Group], alignment: i64, placed: &Placed) {
    let meet = |a: &[(u64, u64)], b: &[(u64, u64)]| a.iter().any(|s| b.iter().any(|t| s.0 <= t.1 && t.0 <= s.1));
    for (i, (a, &from)) in groups.iter().zip(&placed.offsets).enumerate() {
        assert!(from >= 0 && from % alignment == 0 && from + a.size <= placed.size);
        for (b, &other) in groups[..i].iter().zip(&placed.offsets) {
            for (x, y) in a.stretches().flat_map(|x| b.stretches().map(move |y| (x, y))) {
                let (at, next) = (from + x.0, other + y.0);
                let apart = at + x.1 <= next || next + y.1 <= at;
                assert!(apart || x.1 == 0 || y.1 == 0 || !meet(x.2, y.2), "{a:?} at {from}, {b:?} at {other}");
            }
        }
    }
}

/// Has some of the groups come in two to four parts, one after another in time.
fn in_parts(groups: &mut [Group], seed: u64, alignment: i64) {
    let mut numbers = Numbers(seed);
    for group in groups.iter_mut() {
        let count = 2 + numbers.below(3) as i64;
        let &[(start, end)] = group.spans.as_slice() else { continue };
        if numbers.below(2) == 0 || end - start < 4 {
            continue;
        }
        let size = round_up(group.size / count + 1, alignment).unwrap();
        group.size = size * count;
        let span = |n: i64| vec![(start + (end - start) * n as u64 / count as u64, end)];
        group.parts = (0..count).map(|n| Stretch { offset: n * size, size, spans: span(n) }).collect();
    }
}

#[test]
fn groups_in_parts_are_packed_right_and_in_no_more_than_without() {
    let (mut with, mut without) = (0, 0);
    for seed in 0..60 {
        let alignment = [1, 64][seed as usize % 2];
        let mut groups = heap(seed, 5 + seed, 40 * alignment as u64);
        in_parts(&mut groups, seed, alignment);
        let mut whole = groups.clone();
        whole.iter_mut().for_each(|g| g.parts.clear());
        for packer in [Packer::Reference, Packer::ReferencePreset, Packer::Best] {
            let placed = pack(&groups, alignment, packer, || Some(0)).unwrap();
            assert_right(&groups, alignment, &placed);
            with += placed.size;
            without += pack(&whole, alignment, packer, || Some(0)).unwrap().size;
        }
    }
    assert!(with < without, "{with} {without}");
}

#[test]
fn the_best_packing_is_right_and_never_worse_than_the_reference() {
    let (mut reference_bytes, mut best_bytes, mut least_bytes, mut reached, mut reference_reached) = (0, 0, 0, 0, 0);
    for seed in 0..40 {
        let alignment = [1, 64][seed as usize % 2];
        let groups = heap(seed, 5 + seed, 40 * alignment as u64);
        let least = bound(&groups, alignment);
        let reference = pack(&groups, alignment, Packer::Reference, || Some(least)).unwrap();
        let best = pack(&groups, alignment, Packer::Best, || Some(least)).unwrap();
        assert_right(&groups, alignment, &reference);
        assert_right(&groups, alignment, &best);
        assert!(least <= best.size && best.size <= reference.size, "seed {seed}");
        let again = pack(&groups, alignment, Packer::Best, || Some(least)).unwrap();
        assert_eq!(best.offsets, again.offsets, "seed {seed}: the same heap is packed in two ways");
        reference_bytes += reference.size;
        best_bytes += best.size;
        least_bytes += least;
        reached += i32::from(best.size == least);
        reference_reached += i32::from(reference.size == least);
    }
    assert!(
        reached >= 34 && best_bytes < reference_bytes,
        "bound {least_bytes}, reached by {reached}; best {best_bytes}; reference {reference_bytes}, {reference_reached}"
    );
}

/// Places by trying every order, each group as low as it goes.
fn least_of_all(groups: &[Group], order: &mut Vec<u32>, rest: &mut Vec<u32>) -> i64 {
    if rest.is_empty() {
        return Site::empty(groups, 1).place(order, Fit::First, &mut 0).unwrap().size;
    }
    let mut least = i64::MAX;
    for i in 0..rest.len() {
        order.push(rest.swap_remove(i));
        least = least.min(least_of_all(groups, order, rest));
        let last = order.pop().unwrap();
        rest.push(last);
        let end = rest.len() - 1;
        rest.swap(i, end);
    }
    least
}

#[test]
fn small_heaps_are_packed_as_well_as_can_be() {
    let mut above_bound = 0;
    for seed in 0..60 {
        let groups = heap(1000 + seed, 7, 12);
        let least = bound(&groups, 1);
        let best = pack(&groups, 1, Packer::Best, || Some(least)).unwrap();
        let exact = least_of_all(&groups, &mut Vec::new(), &mut (0..7).collect());
        assert_eq!(best.size, exact, "seed {seed}");
        above_bound += i32::from(exact > least);
    }
    assert!(above_bound < 30, "{above_bound}");
}
