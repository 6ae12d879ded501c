//! `--by FIGURE` and `--top N`: which lines come first, and how many are printed.

use std::cmp::Reverse;

use anyhow::anyhow;
use dwell_engine::histogram::Figure;

use crate::exit::Failure;

/// How lines are sorted and cut.
#[derive(Debug, Clone, Copy, clap::Args)]
#[group(skip)]
pub struct RankingArgs {
    /// Sort the lines by this figure, the largest first: count, mean, min, max, p50, p90, p95,
    /// p99 or p99.9 [default: count]
    #[arg(long, value_name = "FIGURE", value_parser = figure)]
    by: Option<Figure>,

    /// Only the first N of these lines; the number of the others is shown
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    top: Option<u32>,
}

impl RankingArgs {
    /// The figure to sort by.
    pub fn by(&self) -> Figure {
        self.by.unwrap_or(Figure::Count)
    }

    /// The greatest number of lines.
    pub fn top(&self) -> usize {
        self.top.map_or(usize::MAX, |top| top as usize)
    }

    /// Refuses a summary that would be written nowhere, and the options where there is none to sort.
    pub fn check(&self, has_summary: bool, is_written: bool) -> Result<(), Failure> {
        self.refuse_without("--summary", has_summary)?;
        match has_summary && !is_written {
            true => Err(Failure::usage(anyhow!("--format none prints no summary: leave out one of the two"))),
            false => Ok(()),
        }
    }

    /// Refuses the options where there is nothing to sort, because `option` was not given.
    pub fn refuse_without(&self, option: &str, is_given: bool) -> Result<(), Failure> {
        match (self.by, self.top) {
            (None, None) => Ok(()),
            _ if is_given => Ok(()),
            _ => Err(Failure::usage(anyhow!("--by and --top are for {option}: give that too, or leave them out"))),
        }
    }
}

/// Sorts lines by a figure of them, and cuts the list. Lines that are equal keep their order, and those whose figure is unknown
/// come last. Returns the number of lines that were cut.
pub fn cut<T>(lines: &mut Vec<T>, ranking: &RankingArgs, figure: impl Fn(&T, Figure) -> Option<u64>) -> usize {
    lines.sort_by_cached_key(|line| Reverse(figure(line, ranking.by())));
    let cut = lines.len().saturating_sub(ranking.top());
    lines.truncate(ranking.top());
    cut
}

fn figure(name: &str) -> Result<Figure, String> {
    let names = || Figure::ALL.map(Figure::name).join(", ");
    Figure::from_name(name).ok_or_else(|| format!("unknown figure; the figures are {}", names()))
}

#[cfg(test)]
mod tests {
    use dwell_engine::histogram::Histogram;

    use super::*;

    fn distribution(latencies: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
        latencies.iter().for_each(|ns| histogram.record(*ns));
        histogram
    }

    fn ranked(by: &str, top: Option<u32>) -> (String, usize) {
        let ranking = RankingArgs { by: Some(figure(by).unwrap()), top };
        let mut lines = vec![("a", vec![5, 5, 5]), ("none", vec![]), ("b", vec![1, 9]), ("c", vec![7])]
            .into_iter()
            .map(|(name, latencies)| (name, distribution(&latencies)))
            .collect();
        let cut = cut(&mut lines, &ranking, |(_, histogram), figure| figure.of(histogram));
        (lines.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(" "), cut)
    }

    #[test]
    fn the_largest_come_first_and_what_is_cut_is_counted() {
        assert_eq!(ranked("count", None), ("a b c none".to_owned(), 0));
        assert_eq!(ranked("max", Some(2)), ("b c".to_owned(), 2));
        assert_eq!(ranked("mean", Some(9)), ("c a b none".to_owned(), 0));
    }

    #[test]
    fn an_unknown_figure_is_answered_with_the_known_ones() {
        assert!(figure("p42").unwrap_err().contains("p90, p95, p99, p99.9"));
    }
}
