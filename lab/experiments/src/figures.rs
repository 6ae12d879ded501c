//! Figures over the rounds of a run.

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
}
