use proptest::prelude::*;

use super::super::search::longest_common_lines;
use super::*;

#[test]
fn search_ends_at_its_limit() {
    let (old, new) = ([1, 2, 3], [1, 4, 3]);
    assert_eq!(common_lines_of_similar(&old, &new, 1), None);
    assert_eq!(common_lines_of_similar(&old, &new, 2), Some(vec![(0, 0), (2, 2)]));
}

#[test]
fn one_empty_side_has_no_pairs() {
    assert_eq!(common_lines_of_similar(&[], &[], 0), Some(vec![]));
    assert_eq!(common_lines_of_similar(&[], &[1, 2], 2), Some(vec![]));
    assert_eq!(common_lines_of_similar(&[1, 2], &[], 2), Some(vec![]));
    assert_eq!(common_lines_of_similar(&[1, 2], &[], 1), None);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn both_searches_find_equally_many_pairs(
        old in prop::collection::vec(0..6_usize, 0..60),
        new in prop::collection::vec(0..6_usize, 0..60),
        limit in 0..120_usize,
    ) {
        let longest = longest_common_lines(&old, &new, 6).len();
        let differences = old.len() + new.len() - 2 * longest;
        let pairs = common_lines_of_similar(&old, &new, limit);
        prop_assert_eq!(pairs.is_some(), differences <= limit);
        if let Some(pairs) = pairs {
            prop_assert_eq!(pairs.len(), longest);
            prop_assert!(pairs.iter().all(|(one, other)| old[*one] == new[*other]));
            prop_assert!(pairs.is_sorted_by(|one, next| one.0 < next.0 && one.1 < next.1));
        }
    }
}
