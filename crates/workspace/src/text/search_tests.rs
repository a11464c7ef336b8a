use proptest::prelude::*;

use super::*;

/// Length of a longest common subsequence, with the full table.
fn table_length(old: &[usize], new: &[usize]) -> usize {
    let mut row = vec![0; old.len() + 1];
    for new_line in new {
        let mut diagonal = 0;
        for (at, old_line) in old.iter().enumerate() {
            let above = row[at + 1];
            row[at + 1] = if old_line == new_line { diagonal + 1 } else { above.max(row[at]) };
            diagonal = above;
        }
    }
    row[old.len()]
}

fn check(old: &[usize], new: &[usize], distinct: usize) {
    let pairs = longest_common_lines(old, new, distinct);
    assert_eq!(pairs.len(), table_length(old, new), "{old:?} {new:?}");
    assert!(pairs.iter().all(|(left, right)| old[*left] == new[*right]));
    assert!(pairs.is_sorted_by(|one, next| one.0 < next.0 && one.1 < next.1));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn search_finds_a_longest_common_subsequence(
        old in prop::collection::vec(0..12_usize, 0..300),
        new in prop::collection::vec(0..12_usize, 0..300),
    ) {
        check(&old, &new, 12);
    }
}

#[test]
fn table_larger_than_its_buffer_is_split_and_stays_exact() {
    let mut state = 7_u64;
    let mut lines = |distinct: u64| -> Vec<usize> {
        let next = |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            usize::try_from((state >> 33) % distinct).unwrap()
        };
        (0..2_000).map(next).collect()
    };
    for distinct in [2, 40, 2_000] {
        let (old, new) = (lines(distinct), lines(distinct));
        check(&old, &new, 2_000);
    }
}
