//! Declarations of metrics.

/// The type of a metric, as Prometheus knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A total that only grows while the process runs. Its name ends in `_total`.
    Counter,
    /// A value that may go up and down.
    Gauge,
    /// A distribution, with these upper bounds of its buckets in nanoseconds.
    Histogram(&'static [u64]),
}

impl Kind {
    /// Its name in a `# TYPE` line.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram(_) => "histogram",
        }
    }
}

/// A metric as it is declared: all series of one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Family {
    /// The name that is scraped.
    pub name: &'static str,
    /// Its type.
    pub kind: Kind,
    /// Names of its labels, in the order in which they are written.
    pub labels: &'static [&'static str],
    /// Its description, one sentence.
    pub help: &'static str,
}

impl Family {
    /// Declares a counter.
    pub const fn counter(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Family {
        Family { name, kind: Kind::Counter, labels, help }
    }

    /// Declares a gauge.
    pub const fn gauge(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Family {
        Family { name, kind: Kind::Gauge, labels, help }
    }

    /// Declares a histogram of times with these bucket bounds. It must have a label.
    pub const fn histogram(
        name: &'static str,
        labels: &'static [&'static str],
        bounds_ns: &'static [u64],
        help: &'static str,
    ) -> Family {
        Family { name, kind: Kind::Histogram(bounds_ns), labels, help }
    }

    /// Returns the unit that the name ends in, as UCUM writes it: "s", "By", "By.s", or "" for a plain number.
    pub fn unit(&self) -> &'static str {
        let name = self.name.strip_suffix("_total").unwrap_or(self.name);
        let units = [("_byte_seconds", "By.s"), ("_seconds", "s"), ("_bytes", "By")];
        units.into_iter().find(|(ending, _)| name.ends_with(ending)).map_or("", |(_, unit)| unit)
    }
}

/// Bucket bounds of round-trip and response latency: 10 µs to 60 s, six per decade.
pub const LATENCY_BOUNDS_NS: &[u64] = &{
    let mut bounds = [0; 41];
    let steps = [10, 15, 20, 30, 50, 70];
    let (mut index, mut unit_ns) = (0, 1_000);
    while index < 36 {
        bounds[index] = steps[index % 6] * unit_ns;
        index += 1;
        if index % 6 == 0 {
            unit_ns *= 10;
        }
    }
    let seconds = [10, 15, 20, 30, 60];
    while index < 41 {
        bounds[index] = seconds[index - 36] * 1_000_000_000;
        index += 1;
    }
    bounds
};

/// Bucket bounds of time within and between hosts: 100 ns to 50 s, three per decade.
pub const STACK_BOUNDS_NS: &[u64] = &{
    let mut bounds = [0; 27];
    let (mut index, mut unit_ns) = (0, 100);
    while index < 27 {
        bounds[index] = unit_ns;
        bounds[index + 1] = 2 * unit_ns;
        bounds[index + 2] = 5 * unit_ns;
        (index, unit_ns) = (index + 3, unit_ns * 10);
    }
    bounds
};
