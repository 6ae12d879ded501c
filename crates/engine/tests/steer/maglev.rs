//! Balance, disruption and weights of tables.

use std::collections::HashMap;

use dwell_engine::steer::maglev::{DEFAULT_SIZE, Member, disruption, is_prime, table};
use proptest::prelude::*;

fn members(weights: impl IntoIterator<Item = f64>) -> Vec<Member> {
    let weights = weights.into_iter().enumerate();
    weights.map(|(n, weight)| Member { id: 0xd3e1 + 977 * n as u64, weight, real: n as u32 + 1 }).collect()
}

fn counts(table: &[u32]) -> HashMap<u32, u32> {
    table.iter().fold(HashMap::new(), |mut counts, real| {
        *counts.entry(*real).or_default() += 1;
        counts
    })
}

#[test]
fn a_small_table_is_as_by_hand() {
    // The turns by hand: each member's first free entry, in the order of their ids, from permutations that the test
    // makes by the definition.
    let members = members([1.0, 1.0, 1.0]);
    let size = 13;
    let permutations: Vec<Vec<u32>> = members.iter().map(|m| permutation(m.id, size)).collect();
    let mut entries = vec![0; size as usize];
    let turns = members.iter().zip(&permutations).cycle();
    for (member, permutation) in turns.take(size as usize) {
        let free = permutation.iter().find(|at| entries[**at as usize] == 0);
        entries[*free.unwrap() as usize] = member.real;
    }
    assert_eq!(table(size, &members), entries);
}

/// Returns the permutation by the definition of section 3.4, with the hashes of `maglev.rs`.
fn permutation(id: u64, size: u32) -> Vec<u32> {
    let mix = |value: u64| {
        let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ value >> 31
    };
    let size = u64::from(size);
    let offset = mix(id) % size;
    let skip = mix(id ^ 0x6d61_676c_6576_5f32) % (size - 1) + 1;
    (0..size).map(|step| ((offset + step * skip) % size) as u32).collect()
}

#[test]
fn a_large_table_is_as_by_the_definition() {
    let members = members(vec![1.0; 7]);
    let size = 4099;
    let mut nexts: Vec<_> = members.iter().map(|member| permutation(member.id, size).into_iter()).collect();
    let mut entries = vec![0; size as usize];
    for turn in 0..size as usize {
        let index = turn % members.len();
        let at = nexts[index].find(|at| entries[*at as usize] == 0).unwrap();
        entries[at as usize] = members[index].real;
    }
    assert_eq!(table(size, &members), entries);
}

#[test]
fn members_of_equal_weight_differ_by_one_entry() {
    for count in [2, 3, 10, 1000, 10_000] {
        let counts = counts(&table(DEFAULT_SIZE, &members(vec![1.0; count])));
        assert_eq!(counts.len(), count);
        let (least, most) = (counts.values().min().unwrap(), counts.values().max().unwrap());
        assert!(most - least <= 1, "{count}: {least} to {most}");
    }
}

#[test]
fn one_of_many_that_goes_moves_little_beside_its_own() {
    // The paper's Figure 12 has a thousand backends in 65,537 entries.
    for (count, beside) in [(4, 0.002), (10, 0.004), (100, 0.01), (1000, 0.01)] {
        let all = members(vec![1.0; count]);
        let old = table(DEFAULT_SIZE, &all);
        let new = table(DEFAULT_SIZE, &all[1..]);
        let moved = disruption(&old, &new);
        let own = 1.0 / count as f64;
        assert!(moved >= own - 1.0 / 65_537.0, "{count}: {moved}");
        assert!(moved < own + beside, "{count}: {moved}");
    }
}

#[test]
fn a_larger_table_moves_less() {
    let all = members(vec![1.0; 100]);
    let beside = |size| disruption(&table(size, &all), &table(size, &all[1..])) - 0.01;
    assert!(beside(655_373) < 0.6 * beside(DEFAULT_SIZE));
}

#[test]
fn without_weight_there_is_no_entry() {
    let weights = [1.0, 0.0, -1.0, f64::NAN, f64::INFINITY, 1e-300, 2.0];
    let counts = counts(&table(DEFAULT_SIZE, &members(weights)));
    let mut reals: Vec<_> = counts.keys().copied().collect();
    reals.sort_unstable();
    // The smallest possible weight has one entry.
    assert_eq!((reals, counts[&6]), (vec![1, 6, 7], 1));
    assert!(table(7, &[]).iter().all(|real| *real == 0));
    assert!(table(7, &members([0.0])).iter().all(|real| *real == 0));
    assert!(table(7, &members([0.3])).iter().all(|real| *real == 1));
    // If there are fewer entries than members, all entries are used.
    assert!(table(2, &members([1.0; 5])).iter().all(|real| *real > 0));
}

#[test]
fn primes_are_known() {
    let primes = (0..60).filter(|n| is_prime(*n));
    let expected = [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59];
    assert!(primes.eq(expected));
    assert!(is_prime(65_537) && is_prime(655_373) && !is_prime(65_536));
    assert!(!is_prime(251 * 257) && !is_prime(u32::MAX));
}

#[test]
#[should_panic(expected = "a prime number of entries")]
fn a_size_that_is_no_prime_is_refused() {
    table(65_536, &members([1.0]));
}

/// Returns the part of all weight that has moved.
fn shifted(old: &[Member], new: &[Member]) -> f64 {
    let sum = |members: &[Member]| members.iter().map(|m| m.weight).sum::<f64>();
    let (all_old, all_new) = (sum(old), sum(new));
    let parts = old.iter().zip(new);
    parts.map(|(old, new)| (old.weight / all_old - new.weight / all_new).abs() / 2.0).sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn the_order_of_members_does_not_matter(
        weights in prop::collection::vec(0.0..4.0, 1..40),
        seed in any::<u64>(),
    ) {
        let ordered = members(weights);
        let mut other = ordered.clone();
        let mut state = seed;
        for i in (1..other.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            other.swap(i, (state >> 33) as usize % (i + 1));
        }
        prop_assert_eq!(table(4099, &ordered), table(4099, &other));
    }

    #[test]
    fn entries_are_in_proportion_to_weights(
        weights in prop::collection::vec(0.01..10.0, 2..200),
    ) {
        let members = members(weights);
        let total: f64 = members.iter().map(|m| m.weight).sum();
        let counts = counts(&table(DEFAULT_SIZE, &members));
        for member in &members {
            let wanted = member.weight / total * f64::from(DEFAULT_SIZE);
            let had = f64::from(counts[&member.real]);
            prop_assert!((had - wanted).abs() <= 2.0, "{} for {}", had, wanted);
            prop_assert!(wanted < 200.0 || (had / wanted - 1.0).abs() <= 0.01);
        }
    }

    /// The bound that `docs/method/steering.md` states: twice the part of weight that moves, plus 4 %.
    #[test]
    fn shares_that_change_a_little_move_little(
        changes in prop::collection::vec((0.05..2.0, 0.8..1.25), 2..64),
    ) {
        let old = members(changes.iter().map(|(weight, _)| *weight));
        let new = members(changes.iter().map(|(weight, times)| weight * times));
        let moved = disruption(&table(DEFAULT_SIZE, &old), &table(DEFAULT_SIZE, &new));
        let shifted = shifted(&old, &new);
        prop_assert!(moved <= 2.0 * shifted + 0.04, "{} moved for {}", moved, shifted);
        prop_assert!(moved >= shifted - 0.01);
    }

    #[test]
    fn all_weights_times_one_factor_change_nothing(
        weights in prop::collection::vec(0.1..4.0, 2..20),
    ) {
        let old = members(weights.iter().copied());
        let new = members(weights.iter().map(|weight| weight * 1024.0));
        prop_assert_eq!(table(4099, &old), table(4099, &new));
    }
}
