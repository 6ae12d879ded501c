//! Maglev hashing (NSDI 2016, section 3.4) with weights.
//!
//! Each member walks the table along a permutation of its own and takes the
//! first free entry that it meets; members take turns, as often as they have
//! weight. The table depends on the set of members alone: neither on their order
//! nor on the table before.

use std::array;

use crate::hash::split_mix;

/// Entries of a table, unless configured otherwise: the smaller size of the
/// Maglev paper. A prime.
pub const DEFAULT_SIZE: u32 = 65_537;

/// Tables are no larger than this.
pub const MAX_SIZE: u32 = 1 << 24;

/// A backend that may have entries of a table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Member {
    /// A hash of its name: where its entries are depends on this alone, so that
    /// balancers agree. Distinct among the members of a table.
    pub id: u64,
    /// Entries are had in proportion to it. A member with 0, or with what is no
    /// positive finite number, has none.
    pub weight: f64,
    /// What its entries hold.
    pub real: u32,
}

/// Builds a table: each entry holds the `real` of a member, or 0 if there is no
/// member with weight.
///
/// Members have their part of the entries to within two of them, and each with
/// weight has at least one as long as entries are no fewer than members.
///
/// # Panics
///
/// If `size` is not a prime of at most [`MAX_SIZE`]: no permutation then visits all entries.
pub fn table(size: u32, members: &[Member]) -> Vec<u32> {
    assert!(
        is_prime(size) && size <= MAX_SIZE,
        "a table has a prime number of entries, at most {MAX_SIZE}, not {size}"
    );
    let mut present: Vec<Member> = members.iter().filter(|m| has_weight(m)).copied().collect();
    present.sort_unstable_by_key(|member| (member.id, member.real));
    match present.as_slice() {
        [] => vec![0; size as usize],
        [only] => vec![only.real; size as usize],
        _ => Filling::new(size, &present).fill(&present),
    }
}

/// The part of entries in which two tables of the same size differ, 0 to 1: of
/// connections that are not remembered, so many go elsewhere.
///
/// # Panics
///
/// If the sizes differ.
pub fn disruption(old: &[u32], new: &[u32]) -> f64 {
    assert_eq!(old.len(), new.len(), "tables of one size");
    let changed = old.iter().zip(new).filter(|(old, new)| old != new).count();
    changed as f64 / old.len().max(1) as f64
}

/// Whether a table may have so many entries, as far as that goes by divisors.
pub fn is_prime(size: u32) -> bool {
    let mut divisors = (2..).take_while(|d: &u32| d * d <= size);
    (2..=1 << 30).contains(&size) && divisors.all(|divisor| !size.is_multiple_of(divisor))
}

fn has_weight(member: &Member) -> bool {
    member.weight.is_finite() && member.weight > 0.0
}

/// Where a member is on its way through its permutation.
struct Walk {
    offset: u32,
    skip: u32,
    /// How far the entries are that it looks at in one go.
    steps: [u32; AHEAD],
    /// The entry that it looks at next.
    at: u32,
    /// Turns that it has saved up, and how many it gets a round; in 2^-32.
    turns: u64,
    per_round: u64,
}

const TURN: u64 = 1 << 32;

/// Entries that a walk looks at in one go.
const AHEAD: usize = 8;

struct Filling {
    size: u32,
    walks: Vec<Walk>,
    /// A bit an entry: 1 if it is free. Small enough for the first cache.
    free: Vec<u64>,
    left: u32,
    entries: Vec<u32>,
}

impl Filling {
    fn new(size: u32, members: &[Member]) -> Filling {
        // of all weights by the greatest, so that no sum is infinite
        let greatest = members.iter().map(|m| m.weight).fold(0.0, f64::max);
        let total: f64 = members.iter().map(|m| m.weight / greatest).sum();
        // the heaviest has a turn each round; where most are far lighter, rounds
        // are longer, as each is a look at all members
        let round = total.max(members.len() as f64 / 4.0);
        let walk = |member: &Member| {
            let part = member.weight / greatest / total;
            let offset = (split_mix(member.id) % u64::from(size)) as u32;
            let skip = split_mix(member.id ^ SKIP) % u64::from(size - 1) + 1;
            Walk {
                offset,
                skip: skip as u32,
                steps: array::from_fn(|step| (skip * step as u64 % u64::from(size)) as u32),
                at: offset,
                // rounded to the nearest, but up to the first
                turns: if part * f64::from(size) < 1.0 { TURN - 1 } else { TURN / 2 },
                per_round: ((part * round * TURN as f64).round() as u64).max(1),
            }
        };
        // a power of two, so that an index can be masked instead of checked
        let words = size.div_ceil(64).next_power_of_two();
        let free = |word: u32| match size.saturating_sub(word * 64) {
            left @ 0..64 => (1 << left) - 1,
            _ => u64::MAX,
        };
        Filling {
            size,
            walks: members.iter().map(walk).collect(),
            free: (0..words).map(free).collect(),
            left: size,
            entries: vec![0; size as usize],
        }
    }

    fn fill(mut self, members: &[Member]) -> Vec<u32> {
        // As the table fills, walks meet taken entries mostly: the last one costs
        // as many steps as there are entries. From here on it is cheaper to put
        // the free ones in each member's order.
        let sparse = self.size / (8 * members.len() as u32);
        self.rounds(members, sparse, |filling, walk| filling.walk(walk));
        let mut orders: Vec<_> = self.walks.iter().map(|walk| self.in_order(walk)).collect();
        self.rounds(members, 0, |filling, walk| {
            let rest = &mut orders[walk];
            rest.find(|at| filling.is_free(*at)).expect("free entries are in each order")
        });
        self.entries
    }

    /// Lets members take turns, whole rounds, until no more than `until` entries are free.
    fn rounds(&mut self, members: &[Member], until: u32, mut next: impl FnMut(&mut Filling, usize) -> u32) {
        while self.left > until {
            for (index, member) in members.iter().enumerate() {
                self.walks[index].turns += self.walks[index].per_round;
                while self.walks[index].turns >= TURN && self.left > 0 {
                    self.walks[index].turns -= TURN;
                    let at = next(self, index);
                    self.free[at as usize / 64] &= !(1 << (at % 64));
                    self.entries[at as usize] = member.real;
                    self.left -= 1;
                }
            }
        }
    }

    /// The first free entry on the way of a member. Several are looked at in one go:
    /// whether one of many is free can be foreseen, by the processor too.
    fn walk(&mut self, index: usize) -> u32 {
        let walk = &mut self.walks[index];
        let words = &self.free[..];
        let mask = words.len() - 1;
        let is_free = |at: u32| words[(at as usize / 64) & mask] >> (at % 64) & 1 == 1;
        // while most are free, the next one is
        if 2 * self.left > self.size {
            while !is_free(walk.at) {
                walk.at = wrapped(walk.at + walk.skip, self.size);
            }
            return walk.at;
        }
        loop {
            let ahead = walk.steps.map(|step| wrapped(walk.at + step, self.size));
            let free = ahead
                .iter()
                .enumerate()
                .fold(0, |free, (bit, at)| free | (words[(*at as usize / 64) & mask] >> (at % 64) & 1) << bit);
            if free != 0 {
                walk.at = ahead[free.trailing_zeros() as usize];
                return walk.at;
            }
            walk.at = wrapped(ahead[AHEAD - 1] + walk.skip, self.size);
        }
    }

    fn is_free(&self, at: u32) -> bool {
        self.free[at as usize / 64] >> (at % 64) & 1 == 1
    }

    /// The free entries, in the order of a member's permutation.
    fn in_order(&self, walk: &Walk) -> std::vec::IntoIter<u32> {
        let size = u64::from(self.size);
        let inverse = inverse(walk.skip.into(), size);
        let rank = |at: u32| {
            let ahead = u64::from(at) + size - u64::from(walk.offset);
            ahead % size * inverse % size
        };
        let mut order: Vec<u64> = (0..self.free.len() as u32)
            .flat_map(|word| bits(self.free[word as usize]).map(move |bit| word * 64 + bit))
            .map(|at| rank(at) << 32 | u64::from(at))
            .collect();
        order.sort_unstable();
        let order: Vec<u32> = order.into_iter().map(|ranked| ranked as u32).collect();
        order.into_iter()
    }
}

/// `at`, or where that is once around: it is less than twice the size.
fn wrapped(at: u32, size: u32) -> u32 {
    at.min(at.wrapping_sub(size))
}

fn bits(mut word: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let bit = (word != 0).then(|| word.trailing_zeros())?;
        word &= word - 1;
        Some(bit)
    })
}

/// x with x * value = 1 modulo a prime: value to the power of prime - 2.
fn inverse(value: u64, prime: u64) -> u64 {
    let (mut base, mut power, mut product) = (value % prime, prime - 2, 1);
    while power > 0 {
        if power & 1 == 1 {
            product = product * base % prime;
        }
        base = base * base % prime;
        power >>= 1;
    }
    product
}

/// Tells the hash for the skip from the one for the offset.
const SKIP: u64 = 0x6d61_676c_6576_5f32;
