//! The connection on which most of a time was spent.

use std::collections::BTreeMap;

use super::{Part, Times};
use crate::layers::Ends;

/// One connection of several, and its share of the time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Worst {
    /// The flow from this end to the other.
    pub ends: Ends,
    /// The part on which most of that time was spent.
    pub part: Part,
    /// Its share of the time of all connections, from 0 to 1.
    pub share: f64,
}

/// How many connections are kept of each part: some of them may turn out to keep nobody waiting.
const MOST: usize = 8;

/// Of each part, the connections on which most of its time was spent, the longest first.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Longest(BTreeMap<Part, Vec<(Ends, Times)>>);

impl Longest {
    pub(super) fn add(&mut self, ends: &Ends, times: &Times) {
        Part::ALL.into_iter().filter(|part| times.get(*part) > 0.0).for_each(|part| self.add_to(part, ends, times));
    }

    fn add_to(&mut self, part: Part, ends: &Ends, times: &Times) {
        let longest = self.0.entry(part).or_default();
        let at = longest.partition_point(|(_, other)| other.get(part) >= times.get(part));
        if at < MOST {
            longest.insert(at, (*ends, *times));
            longest.truncate(MOST);
        }
    }

    pub(super) fn plus(&mut self, other: &Longest) {
        for (part, longest) in &other.0 {
            longest.iter().for_each(|(ends, times)| self.add_to(*part, ends, times));
        }
    }

    /// Returns the connection that `counts` on which most of the time of these parts was spent, where it was `total_ns` on all.
    pub(super) fn of(&self, parts: &[Part], total_ns: f64, counts: impl Fn(&Ends) -> bool) -> Option<Worst> {
        let candidates = parts.iter().filter_map(|part| self.0.get(part)).flatten().filter(|(ends, _)| counts(ends));
        let (ends, times) = candidates.max_by(|(_, a), (_, b)| a.sum(parts).total_cmp(&b.sum(parts)))?;
        let part = parts.iter().copied().max_by(|a, b| times.get(*a).total_cmp(&times.get(*b)))?;
        // What is counted elsewhere has been taken out of the total alone.
        (total_ns > 0.0).then(|| Worst { ends: *ends, part, share: (times.sum(parts) / total_ns).min(1.0) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Endpoint;

    fn ends(port: u16) -> Ends {
        let end = |last, port| Endpoint { address: [192, 0, 2, last].into(), port };
        Ends { src: end(1, port), dst: end(2, 443) }
    }

    fn times(parts: &[(Part, f64)]) -> Times {
        let mut times = Times::default();
        parts.iter().for_each(|(part, ns)| times.add(*part, *ns));
        times
    }

    #[test]
    fn the_worst_connection_has_most_of_the_time_of_all_parts_of_a_cause() {
        let (mut longest, mut others) = (Longest::default(), Longest::default());
        longest.add(&ends(1), &times(&[(Part::Loss, 30.0), (Part::Answer, 500.0)]));
        longest.add(&ends(2), &times(&[(Part::Loss, 20.0), (Part::Transfer, 60.0)]));
        others.add(&ends(3), &times(&[(Part::Loss, 10.0), (Part::Transfer, 10.0)]));
        longest.plus(&others);
        let of = |parts: &[Part], total_ns| longest.of(parts, total_ns, |_| true);
        let worst = of(&[Part::Loss, Part::Transfer], 160.0).unwrap();
        assert_eq!(worst, Worst { ends: ends(2), part: Part::Transfer, share: 0.5 });
        assert_eq!(of(&[Part::Loss], 60.0).unwrap().ends, ends(1));
        assert_eq!(of(&[Part::Service], 0.0), None);
        assert_eq!(of(&[Part::Answer], 250.0).unwrap().share, 1.0);
        let next = longest.of(&[Part::Loss], 60.0, |it| *it != ends(1)).unwrap();
        assert_eq!(next.ends, ends(2));
        // Each of the three stands once in the list of a part.
        assert_eq!(longest.of(&[Part::Transfer], 70.0, |it| *it != ends(2)).unwrap().ends, ends(3));
        assert!(longest.0.values().all(|of_part| of_part.len() <= 3), "{longest:?}");
    }
}
