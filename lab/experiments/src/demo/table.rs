//! The table of the demonstration.

use std::io::{self, Write};

use dwell_testbed::{Nanos, Report, Side, Topology, workload::RoundTrips};

use super::{DemoReport, samples::Collected};

/// The part of the path that a latency covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// From the vantage point to one side and back.
    Side(Side),
    /// From client to server and back.
    EndToEnd,
}

impl Scope {
    /// All parts of the path.
    pub(crate) const ALL: [Scope; 3] = [Scope::Side(Side::Client), Scope::Side(Side::Server), Scope::EndToEnd];

    /// The configured round trip. 0 where packets do not come back the same way.
    pub(crate) fn least(self, topology: &Topology) -> Nanos {
        let side = |side| topology.side_rtt(side).unwrap_or_default();
        match self {
            Scope::Side(of) => side(of),
            Scope::EndToEnd => side(Side::Client) + side(Side::Server),
        }
    }

    /// The true round trip: the configured one, and the median error of the emulator both ways.
    pub(crate) fn truth(self, topology: &Topology, emulator: &Report) -> Nanos {
        let late = |name: &str| emulator.direction(name).and_then(|way| way.error_p50_ns).unwrap_or_default();
        let client = late("vantage to client") + late("client to vantage");
        let server = late("vantage to server") + late("server to vantage");
        self.least(topology)
            + match self {
                Scope::Side(Side::Client) => client,
                Scope::Side(Side::Server) => server,
                Scope::EndToEnd => client + server,
            }
    }

    /// The name in tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Side(Side::Client) => "client",
            Self::Side(Side::Server) => "server",
            Self::EndToEnd => "both",
        }
    }
}

/// The figures of a method for a side, with the truth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Name of the method, as in the samples.
    pub method: String,
    /// The part of the path that it measured.
    pub scope: Scope,
    /// The number of samples, at least 1.
    pub samples: usize,
    /// Their median.
    pub p50: Nanos,
    /// Their 99th percentile.
    pub p99: Nanos,
    /// The emulated round trip: configured delays and the median error of the emulator, without the time that the
    /// hosts' kernels add.
    pub truth: Nanos,
}

impl Row {
    pub(super) fn new(method: &str, scope: Scope, values: &[Nanos], truth: Nanos) -> Self {
        let values = RoundTrips(values.to_vec());
        let [p50, p99] = [0.5, 0.99].map(|quantile| values.quantile(quantile).unwrap_or_default());
        Self { method: method.to_owned(), scope, samples: values.0.len(), p50, p99, truth }
    }

    /// Returns the median minus the truth, in nanoseconds.
    pub fn difference_ns(&self) -> i64 {
        i64::try_from(self.p50.0).unwrap_or(i64::MAX) - i64::try_from(self.truth.0).unwrap_or(i64::MAX)
    }
}

pub(super) fn write(report: &DemoReport, collected: &Collected, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "Round trips in ms. Truth: emulated delay and median emulator error.\n")?;
    let [method, side, samples] = ["method", "side", "samples"];
    writeln!(out, "{method:<16} {side:<7} {samples:>8} {:>9} {:>9} {:>9} {:>10}", "p50", "p99", "truth", "p50-truth")?;
    for row in &report.rows {
        writeln!(
            out,
            "{:<16} {:<7} {:>8} {:>9.3} {:>9.3} {:>9.3} {:>+10.3}",
            row.method,
            row.scope.name(),
            row.samples,
            row.p50.as_millis_f64(),
            row.p99.as_millis_f64(),
            row.truth.as_millis_f64(),
            row.difference_ns() as f64 / 1e6,
        )?;
    }
    if report.rows.is_empty() {
        writeln!(out, "no samples")?;
    }
    for scope in Scope::ALL {
        let of_scope = collected.values.iter().filter(|((_, of), _)| *of == scope);
        let values = RoundTrips(of_scope.flat_map(|(_, values)| values.iter().copied()).collect());
        if !values.0.is_empty() {
            writeln!(out, "\n{}, {} samples of all methods", scope.name(), values.0.len())?;
            write!(out, "{}", histogram(&values))?;
        }
    }
    writeln!(out, "\n{}", report.emulator)?;
    for (count, what) in [(report.unreadable, "unreadable lines"), (report.elsewhere, "samples of other hosts")] {
        if count > 0 {
            writeln!(out, "{what}: {count}")?;
        }
    }
    for skipped in &report.skipped {
        writeln!(out, "skipped {skipped}")?;
    }
    for missing in &report.missing {
        writeln!(out, "no samples of {missing}")?;
    }
    Ok(())
}

const BARS: u64 = 12;
const WIDTH: usize = 50;

/// Draws a line per bin, from the least value to the 99th percentile, and a line for the values above it.
fn histogram(values: &RoundTrips) -> String {
    let (Some(low), Some(high)) = (values.quantile(0.0), values.quantile(0.99)) else {
        return String::new();
    };
    let step = (high.since(low).0 / BARS + 1).max(1_000);
    let mut bins = vec![0usize; BARS as usize];
    let mut above = 0;
    for value in &values.0 {
        match usize::try_from(value.since(low).0 / step).ok().and_then(|bin| bins.get_mut(bin)) {
            Some(bin) => *bin += 1,
            None => above += 1,
        }
    }
    let most = bins.iter().copied().chain([above]).max().unwrap_or_default().max(1);
    // A bin that is not empty has a bar.
    let bar = |count: usize| "#".repeat((count * WIDTH).div_ceil(most));
    let mut text = String::new();
    let used = bins.iter().rposition(|&count| count > 0).map_or(0, |last| last + 1);
    for (number, count) in (0..).zip(&bins[..used]) {
        let from = Nanos(low.0 + number * step).as_millis_f64();
        text += &format!("{from:>10.3} ms |{:<WIDTH$}| {count}\n", bar(*count));
    }
    if above > 0 {
        text += &format!("{:>10} ms |{:<WIDTH$}| {above}\n", "above", bar(above));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_the_signed_difference_of_the_median() {
        let values = [4, 5, 6].map(Nanos::from_millis);
        let row = Row::new("icmp", Scope::Side(Side::Server), &values, Nanos::from_micros(5_020));
        assert_eq!((row.samples, row.p50, row.p99), (3, Nanos::from_millis(5), Nanos::from_millis(6)));
        assert_eq!(row.difference_ns(), -20_000);
    }

    #[test]
    fn every_value_is_in_the_picture() {
        let mut values: Vec<Nanos> = (0..1000).map(|n| Nanos(5_000_000 + n * 100)).collect();
        values.push(Nanos::from_millis(900));
        let picture = histogram(&RoundTrips(values));
        let counts = picture.lines().map(|line| line.rsplit(' ').next().unwrap().parse::<usize>().unwrap());
        assert_eq!(counts.sum::<usize>(), 1001, "{picture}");
        assert!(picture.lines().last().unwrap().trim_start().starts_with("above"), "{picture}");
    }

    #[test]
    fn equal_values_make_one_bar() {
        let picture = histogram(&RoundTrips(vec![Nanos::from_millis(5); 3]));
        assert_eq!(picture.lines().count(), 1, "{picture}");
    }
}
