//! Maglev hashing (NSDI 2016, section 3.4) with weights.
//!
//! Each member walks the table along its own permutation and takes the first free entry; members take turns in
//! proportion to their weights. The table depends only on the set of members, and neither on their order nor on the
//! previous table.

use std::array;

use crate::hash::split_mix;

/// The default size of a table: the smaller size in the Maglev paper. A prime.
pub const DEFAULT_SIZE: u32 = 65_537;

/// The greatest size of a table.
pub const MAX_SIZE: u32 = 1 << 24;

/// A backend that may have entries of a table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Member {
    /// A hash of its name, distinct among the members of a table. The positions of its entries depend only on this, so
    /// that balancers agree.
    pub id: u64,
    /// The number of entries is proportional to the weight. A member whose weight is not a positive finite number has
    /// none.
    pub weight: f64,
    /// The value of its entries.
    pub real: u32,
}

/// Builds a table: each entry holds the `real` of a member, or 0 if no member has weight.
///
/// The number of entries of a member differs from its share by at most two. A member with weight has at least one
/// entry, provided that there are at least as many entries as members.
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

/// Returns the part of entries in which two tables of the same size differ, 0 to 1: this part of the unknown
/// connections goes to another backend.
///
/// # Panics
///
/// If the sizes differ.
pub fn disruption(old: &[u32], new: &[u32]) -> f64 {
    assert_eq!(old.len(), new.len(), "tables of one size");
    let changed = old.iter().zip(new).filter(|(old, new)| old != new).count();
    changed as f64 / old.len().max(1) as f64
}

/// Returns whether a table may have this size, as far as divisors are concerned.
pub fn is_prime(size: u32) -> bool {
    let mut divisors = (2..).take_while(|d: &u32| d * d <= size);
    (2..=1 << 30).contains(&size) && divisors.all(|divisor| !size.is_multiple_of(divisor))
}

fn has_weight(member: &Member) -> bool {
    member.weight.is_finite() && member.weight > 0.0
}

/// The position of a member in its permutation.
struct Walk {
    offset: u32,
    skip: u32,
    /// The distances to the entries that are examined at once.
    steps: [u32; AHEAD],
    /// The next entry to examine.
    at: u32,
    /// The accumulated turns, and the turns per round, in units of 2^-32.
    turns: u64,
    per_round: u64,
}

const TURN: u64 = 1 << 32;

/// The number of entries that a walk examines at once.
const AHEAD: usize = 8;

struct Filling {
    size: u32,
    walks: Vec<Walk>,
    /// One bit per entry: 1 if it is free. Small enough for the first-level cache.
    free: Vec<u64>,
    left: u32,
    entries: Vec<u32>,
}

impl Filling {
    fn new(size: u32, members: &[Member]) -> Filling {
        // Weights are divided by the greatest one, so that no sum is infinite.
        let greatest = members.iter().map(|m| m.weight).fold(0.0, f64::max);
        let total: f64 = members.iter().map(|m| m.weight / greatest).sum();
        // The heaviest member has a turn in each round. If most are far lighter, rounds are longer, because each round
        // visits all members.
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
                // Rounded to the nearest, but up for the first entry.
                turns: if part * f64::from(size) < 1.0 { TURN - 1 } else { TURN / 2 },
                per_round: ((part * round * TURN as f64).round() as u64).max(1),
            }
        };
        // A power of two, so that an index can be masked instead of checked.
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
        // As the table fills, walks mostly meet taken entries: the last one costs as many steps as there are entries.
        // From here on it is cheaper to sort the free ones in each member's order.
        let sparse = self.size / (8 * members.len() as u32);
        self.rounds(members, sparse, |filling, walk| filling.walk(walk));
        let mut orders: Vec<_> = self.walks.iter().map(|walk| self.in_order(walk)).collect();
        self.rounds(members, 0, |filling, walk| {
            let rest = &mut orders[walk];
            rest.find(|at| filling.is_free(*at)).expect("free entries are in each order")
        });
        self.entries
    }

    /// Lets members take turns in whole rounds, until at most `until` entries are free.
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

    /// Returns the first free entry on the walk of a member. Several entries are examined at once, because the
    /// processor predicts well whether one of many is free.
    fn walk(&mut self, index: usize) -> u32 {
        let walk = &mut self.walks[index];
        let words = &self.free[..];
        let mask = words.len() - 1;
        let is_free = |at: u32| words[(at as usize / 64) & mask] >> (at % 64) & 1 == 1;
        // While most entries are free, the next one usually is.
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

    /// Returns the free entries in the order of a member's permutation.
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

/// Reduces `at` modulo `size`; it must be less than twice the size.
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

/// Returns the inverse of `value` modulo a prime: `value` to the power of `prime` - 2.
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

/// Makes the hash of the skip differ from the hash of the offset.
const SKIP: u64 = 0x6d61_676c_6576_5f32;
