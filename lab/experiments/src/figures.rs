//! Figures over the rounds of a run.

use dwell_engine::stats;

/// The middle value, the upper one of two; 0 without any.
pub fn median<T: Copy + PartialOrd + Default>(values: &[T]) -> T {
    let mut sorted = values.to_vec();
    sorted.sort_by(|a, b| a.partial_cmp(b).expect("figures are numbers"));
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

/// The least value; 0 without any.
pub fn least<T: Copy + PartialOrd + Default>(values: &[T]) -> T {
    values.iter().copied().reduce(|a, b| if b < a { b } else { a }).unwrap_or_default()
}

/// The greatest value; 0 without any.
pub fn greatest<T: Copy + PartialOrd + Default>(values: &[T]) -> T {
    values.iter().copied().reduce(|a, b| if b > a { b } else { a }).unwrap_or_default()
}

/// How far the median of these rounds may be from that of all rounds there could be, with a probability of 95 %, whatever their
/// distribution. `None` below six rounds, which cannot tell.
pub fn median_within(rounds: &[f64]) -> Option<f64> {
    let sorted = stats::sorted(rounds.iter().copied());
    let middle = median(&sorted);
    // The median is below the value at this rank, from 0, with the probability of so few heads in as many tosses.
    let (mut probability, mut below, mut rank) = (0.5_f64.powi(sorted.len() as i32), 0.0, None);
    for at in 0..sorted.len() / 2 {
        below += probability;
        if below > 0.025 {
            break;
        }
        rank = Some(at);
        probability *= (sorted.len() - at) as f64 / (at + 1) as f64;
    }
    let (low, high) = (sorted[rank?], sorted[sorted.len() - 1 - rank?]);
    Some((middle - low).max(high - middle))
}

/// The median of shares in percent, and the least and the greatest.
pub fn spread(shares: &[f64]) -> String {
    format!("{:.1} % ({:.0} to {:.0})", median(shares), least(shares), greatest(shares))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_that_of_the_sorted_values() {
        assert_eq!(median(&[5, 1, 3]), 3);
        assert_eq!(median(&[0.5, 0.1]), 0.5);
        assert_eq!(median::<u64>(&[]), 0);
        assert_eq!((least(&[2, 1, 3]), greatest(&[2, 1, 3])), (1, 3));
    }
    /// Of 20 values, the 6th and the 15th enclose the median with a probability of 95.9 %, as tables of the sign test have it.
    #[test]
    fn a_median_is_as_uncertain_as_its_ranks() {
        let rounds: Vec<f64> = (1..=20).map(f64::from).collect();
        assert_eq!((median(&rounds), median_within(&rounds)), (11.0, Some(5.0)));
        assert_eq!(median_within(&rounds[..6]), Some(3.0));
        assert_eq!(median_within(&rounds[..5]), None);
    }
}
