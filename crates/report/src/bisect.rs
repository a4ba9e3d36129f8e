//! The first step of a sequence after which something is wrong.

/// Of `count` steps, the first after which `is_wrong`, if before them nothing is and after the last something is, and what
/// is wrong stays so. Where it does not stay so, a step is found before which nothing was wrong and after which something
/// is. `None` for no steps.
pub fn first_wrong(count: usize, mut is_wrong: impl FnMut(usize) -> bool) -> Option<usize> {
    let (mut right, mut wrong) = (0, count);
    while wrong - right > 1 {
        let middle = right + (wrong - right) / 2;
        // After step `middle`, counted from one.
        match is_wrong(middle - 1) {
            true => wrong = middle,
            false => right = middle,
        }
    }
    wrong.checked_sub(1)
}

/// The least set of `items` for which `is_enough`, found by leaving out ever smaller parts: what is left cannot do
/// without any one of them. `is_enough` holds for all of them together.
pub fn least_set<T: Clone>(items: Vec<T>, mut is_enough: impl FnMut(&[T]) -> bool) -> Vec<T> {
    let mut kept = items;
    let mut parts = 2;
    while kept.len() > 1 {
        let size = kept.len().div_ceil(parts);
        let without = (0..kept.len()).step_by(size).map(|start| {
            let end = (start + size).min(kept.len());
            [&kept[..start], &kept[end..]].concat()
        });
        match without.into_iter().find(|rest| !rest.is_empty() && is_enough(rest)) {
            Some(rest) => {
                kept = rest;
                parts = (parts - 1).max(2);
            }
            None if parts >= kept.len() => break,
            None => parts = (parts * 2).min(kept.len()),
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_wrong_step_is_found_in_few_questions() {
        for first in 0..100 {
            let mut asked = 0;
            let found = first_wrong(100, |step| {
                asked += 1;
                step >= first
            });
            assert_eq!(found, Some(first));
            assert!(asked <= 7, "{asked}");
        }
        assert_eq!(first_wrong(0, |_| true), None);
    }

    #[test]
    fn only_what_is_needed_is_kept() {
        let needed = [3, 17, 40];
        let kept = least_set((0..64).collect(), |some: &[i32]| needed.iter().all(|n| some.contains(n)));
        assert_eq!(kept, needed);
        assert_eq!(least_set(vec![1, 2], |_| true).len(), 1);
    }
}
