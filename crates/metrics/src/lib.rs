//! Metrics for Prometheus.
//!
//! Names follow the Prometheus guidelines: base units (seconds), `_total` for
//! counters. No label holds a flow or a client's address: only interface,
//! method and the prefix group that the caller names. What has not been told
//! yet is absent, not 0.
//!
//! The text is our own and not prometheus-client's, for two reasons. That library
//! writes OpenMetrics, whose counters and end marker differ from text format
//! 0.0.4, which every scraper reads. And its metrics are updated one event at a
//! time, while ours come counted: from the kernel's counters as totals, and
//! from its histograms as buckets.

#![deny(clippy::print_stderr, reason = "the program says what there is to say")]

mod balancer;
mod exposition;
mod fleet;
mod response;
mod server;

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use dwell_engine::{
    histogram::Histogram,
    measure::Method,
    rtt::{Counter, Counters},
};
use exposition::Exposition;

pub use balancer::{BalancerMetric, BalancerSample};
pub use fleet::Family;
pub use server::{ServeError, Server, serve};

/// Upper bounds of the buckets of `dwell_rtt_seconds` in nanoseconds, 10 µs to
/// 60 s, six a decade.
pub const BOUNDS_NS: [u64; 41] = {
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

/// The label value of what found no place of its own.
pub const OTHER: &str = "other";

/// All metrics of a process. Shared between what counts and what serves.
#[derive(Debug)]
pub struct Metrics {
    version: String,
    max_groups: usize,
    state: Mutex<State>,
}

#[derive(Debug, Clone, Default)]
struct State {
    rtt: BTreeMap<GroupLabels, Histogram>,
    balancer: balancer::Balancer,
    response: response::Responses,
    fleet: fleet::Fleet,
    counters: Option<Counters>,
    maps: BTreeMap<String, Map>,
    programs: BTreeMap<String, Program>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct GroupLabels {
    interface: String,
    method: &'static str,
    prefix: String,
}

impl GroupLabels {
    fn new(interface: &str, method: &'static str, prefix: &str) -> GroupLabels {
        GroupLabels { interface: interface.into(), method, prefix: prefix.into() }
    }

    /// Itself, or the group of what finds no place.
    fn within(self, groups: &BTreeMap<GroupLabels, Histogram>, max_groups: usize) -> GroupLabels {
        if groups.len() < max_groups || groups.contains_key(&self) {
            return self;
        }
        GroupLabels::new(OTHER, self.method, OTHER)
    }

    fn pairs(&self) -> [(&str, &str); 3] {
        [("interface", &self.interface), ("method", self.method), ("prefix", &self.prefix)]
    }
}

/// How full a BPF map is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Map {
    /// Entries in use.
    pub entries: u64,
    /// Entries that fit.
    pub capacity: u64,
}

/// What the kernel says of a BPF program (`kernel.bpf_stats_enabled`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Program {
    /// How often it ran.
    pub runs: u64,
    /// How long in all.
    pub run_ns: u64,
}

impl Metrics {
    /// Metrics of dwell `version`. At most `max_groups` combinations of
    /// interface, method and prefix get series of their own (44 each); samples of
    /// later ones are counted with interface and prefix [`OTHER`].
    pub fn new(version: impl Into<String>, max_groups: usize) -> Metrics {
        Metrics { version: version.into(), max_groups, state: Mutex::default() }
    }

    /// Counts the latencies of an interval. `method` is `None` where it is not
    /// known any more.
    pub fn merge(&self, interface: &str, method: Option<Method>, prefix: &str, histogram: &Histogram) {
        let labels = GroupLabels::new(interface, method.map_or(OTHER, Method::name), prefix);
        let rtt = &mut self.state().rtt;
        rtt.entry(labels.within(rtt, self.max_groups)).or_default().merge(histogram);
    }

    /// Sets the engine's counters: totals since the start.
    pub fn set_counters(&self, counters: &Counters) {
        self.state().counters = Some(*counters);
    }

    /// Sets how full a map is.
    pub fn set_map(&self, name: &str, map: Map) {
        self.state().maps.insert(name.into(), map);
    }

    /// Sets what a BPF program has cost since it was loaded.
    pub fn set_program(&self, name: &str, program: Program) {
        self.state().programs.insert(name.into(), program);
    }

    /// All metrics in text format 0.0.4.
    pub fn render(&self) -> String {
        // A copy, so that a scrape does not hold up what counts.
        let state = self.state().clone();
        let mut text = Exposition::default();
        text.family("dwell_build_info", "gauge", "The version of dwell.");
        text.sample("dwell_build_info", &[("version", &self.version)], 1);
        write_rtt(&state.rtt, &mut text);
        state.response.write(&mut text);
        state.balancer.write(&mut text);
        state.fleet.write(&mut text);
        if let Some(counters) = &state.counters {
            write_counters(counters, &mut text);
        }
        write_self(&state, &mut text);
        text.finish()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves only counts behind: no invariant can be broken.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn write_rtt(groups: &BTreeMap<GroupLabels, Histogram>, text: &mut Exposition) {
    if groups.is_empty() {
        return;
    }
    text.family(
        "dwell_rtt_seconds",
        "histogram",
        "Time from seeing a packet to seeing its answer, by the prefix of the side that answered.",
    );
    for (labels, histogram) in groups {
        let labels = labels.pairs();
        text.histogram("dwell_rtt_seconds", &labels, &BOUNDS_NS, histogram);
    }
}

/// A family, its help, and the value of its `reason` label if it has one.
type Place = (&'static str, &'static str, Option<&'static str>);

/// Where a counter is shown. Counters of one family stand together in
/// [`Counter::ALL`].
fn place(counter: Counter) -> Place {
    let skipped =
        ("dwell_skipped_packets_total", "Packets that no matcher looked at, by reason.", Some(counter.name()));
    let rejected =
        ("dwell_rejected_total", "Matches that were not trusted and gave no sample, by reason.", Some(counter.name()));
    let one = |name, help| (name, help, None);
    match counter {
        Counter::Packets => one("dwell_packets_total", "Packets that passed."),
        Counter::Bytes => one("dwell_bytes_total", "Bytes of the packets that passed."),
        Counter::NotIp
        | Counter::OtherProtocol
        | Counter::Truncated
        | Counter::Malformed
        | Counter::Fragment
        | Counter::TooDeep
        | Counter::Filtered
        | Counter::UnknownLink
        | Counter::Server
        | Counter::Stray => skipped,
        Counter::FlowsOpened => one("dwell_flows_opened_total", "Flows that got a place."),
        Counter::FlowsEvicted => {
            one("dwell_flows_evicted_total", "Flows closed before their idle timeout to make room.")
        }
        Counter::FlowsExpired => one("dwell_flows_expired_total", "Flows closed after their idle timeout."),
        Counter::Untracked => one("dwell_untracked_packets_total", "Packets of flows that found no place."),
        Counter::Contended => {
            one("dwell_contended_packets_total", "Packets of flows that found no place as two CPUs wanted one at once.")
        }
        Counter::PlacesFreed => {
            one("dwell_flow_places_freed_total", "Places of the flow table that became free again.")
        }
        Counter::Stamps => one("dwell_stamps_total", "Packets whose time was kept."),
        Counter::StampsOverwritten => {
            one("dwell_stamps_overwritten_total", "Kept times lost to others within a second.")
        }
        Counter::Samples => one("dwell_samples_total", "Latencies measured."),
        Counter::EventsLost => one("dwell_events_lost_total", "Samples and flow events that did not reach user space."),
        Counter::Ambiguous | Counter::SpinEarly | Counter::SpinOrder | Counter::Backwards => rejected,
        Counter::AggregateOther => {
            one("dwell_aggregate_other_total", "Samples for whose prefix there was no group left.")
        }
    }
}

fn write_counters(counters: &Counters, text: &mut Exposition) {
    let mut family = "";
    for counter in Counter::ALL {
        let (name, help, reason) = place(counter);
        if family != name {
            text.family(name, "counter", help);
            family = name;
        }
        let labels: Vec<_> = reason.iter().map(|reason| ("reason", *reason)).collect();
        text.sample(name, &labels, counters.get(counter));
    }
}

fn write_self(state: &State, text: &mut Exposition) {
    if !state.maps.is_empty() {
        text.family("dwell_map_entries", "gauge", "Entries of a BPF map in use.");
        for (name, map) in &state.maps {
            text.sample("dwell_map_entries", &[("map", name)], map.entries);
        }
        text.family("dwell_map_capacity", "gauge", "Entries that fit a BPF map.");
        for (name, map) in &state.maps {
            text.sample("dwell_map_capacity", &[("map", name)], map.capacity);
        }
    }
    if !state.programs.is_empty() {
        text.family("dwell_bpf_run_seconds_total", "counter", "Time spent in a BPF program.");
        for (name, program) in &state.programs {
            let seconds = exposition::seconds(program.run_ns.into());
            text.sample("dwell_bpf_run_seconds_total", &[("program", name)], seconds);
        }
        text.family("dwell_bpf_runs_total", "counter", "How often a BPF program ran.");
        for (name, program) in &state.programs {
            text.sample("dwell_bpf_runs_total", &[("program", name)], program.runs);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use dwell_engine::abi;
    use proptest::prelude::*;

    use super::*;

    /// A histogram of one latency.
    fn one(rtt_ns: u64) -> Histogram {
        let mut histogram = Histogram::default();
        histogram.record(rtt_ns);
        histogram
    }

    fn full() -> Metrics {
        let metrics = Metrics::new("0.1.0", 100);
        for rtt_ns in [0, 789, 10_000, 456_000, 1_234_567, 2_000_000_000] {
            let method = Some(Method::TcpTimestamp);
            metrics.merge("eth0", method, "192.0.2.0/24", &one(rtt_ns));
        }
        let mut interval = Histogram::default();
        interval.record(61_000_000_000);
        interval.record(90_000_000_000);
        metrics.merge("eth0", Some(Method::Icmpv6), "2001:db8::/48", &interval);
        metrics.merge(OTHER, None, OTHER, &interval);
        let mut raw = abi::dwell_counters::default();
        for (value, number) in raw.value.iter_mut().zip(1..) {
            *value = number;
        }
        metrics.set_counters(&Counters::sum([&raw]));
        let map = Map { entries: 12, capacity: 131_072 };
        metrics.set_map("buckets", map);
        let program = Program { runs: 1_000, run_ns: 70_000 };
        metrics.set_program("observe_tc", program);
        metrics
    }

    /// Name, labels and value of each line that is not a comment.
    fn parse(text: &str) -> Vec<(String, String, f64)> {
        assert!(text.ends_with('\n'));
        text.lines()
            .filter(|line| !line.starts_with('#'))
            .map(|line| {
                let (series, value) = line.rsplit_once(' ').unwrap();
                let (name, labels) = match series.split_once('{') {
                    Some((name, labels)) => (name, labels.strip_suffix('}').unwrap()),
                    None => (series, ""),
                };
                (name.into(), labels.into(), value.parse().unwrap())
            })
            .collect()
    }

    /// Checks each histogram and returns its count and sum by its labels.
    fn histograms(text: &str) -> BTreeMap<String, (f64, f64)> {
        let mut buckets: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
        let (mut counts, mut sums) = (BTreeMap::new(), BTreeMap::new());
        for (name, labels, value) in parse(text) {
            match name.as_str() {
                "dwell_rtt_seconds_bucket" => {
                    let (labels, le) = labels.rsplit_once(",le=").unwrap();
                    let le = le.trim_matches('"').parse().unwrap();
                    buckets.entry(labels.into()).or_default().push((le, value));
                }
                "dwell_rtt_seconds_count" => drop(counts.insert(labels, value)),
                "dwell_rtt_seconds_sum" => drop(sums.insert(labels, value)),
                _ => {}
            }
        }
        assert_eq!(buckets.len(), counts.len());
        for (labels, buckets) in &buckets {
            assert_eq!(buckets.len(), BOUNDS_NS.len() + 1);
            assert!(buckets.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1));
            assert_eq!(buckets.last(), Some(&(f64::INFINITY, counts[labels])));
        }
        counts.into_iter().map(|(labels, count)| (labels.clone(), (count, sums[&labels]))).collect()
    }

    #[test]
    fn bounds_are_round_and_rise_evenly() {
        assert_eq!((BOUNDS_NS[0], BOUNDS_NS[40]), (10_000, 60_000_000_000));
        for pair in BOUNDS_NS.windows(2) {
            let ratio = pair[1] as f64 / pair[0] as f64;
            assert!((1.3..=2.0).contains(&ratio), "{pair:?}");
        }
    }

    #[test]
    fn histograms_add_up() {
        let text = full().render();
        let histograms = histograms(&text);
        assert_eq!(histograms.len(), 3);
        let tcp = r#"interface="eth0",method="tcp-timestamp",prefix="192.0.2.0/24""#;
        let (count, sum) = histograms[tcp];
        assert_eq!(count, 6.0);
        assert!((sum - 2.001_701_356).abs() < 1e-12);
        // 10 µs itself shares a bucket of the engine with what is longer.
        let first = format!("dwell_rtt_seconds_bucket{{{tcp},le=\"0.00001\"}} 2\n");
        assert!(text.contains(&first));
        let other = r#"interface="other",method="other",prefix="other""#;
        assert_eq!(histograms[other], (2.0, 151.0));
        // Both are longer than the last bound.
        assert!(text.contains(&format!("dwell_rtt_seconds_bucket{{{other},le=\"60\"}} 0\n")));
    }

    #[test]
    fn every_counter_is_shown_once_and_families_stand_together() {
        let text = full().render();
        let values: Vec<f64> = parse(&text)
            .into_iter()
            .filter(|(name, _, _)| !name.contains("rtt_seconds"))
            .map(|(_, _, value)| value)
            .collect();
        for number in 1..=Counter::ALL.len() {
            assert!(values.contains(&(number as f64)), "{number}");
        }
        let mut families = BTreeSet::new();
        let mut current = String::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                current = rest.split(' ').next().unwrap().into();
                assert!(families.insert(current.clone()), "{current} twice");
            } else if !line.starts_with('#') {
                assert!(line.starts_with(&current), "{line} in {current}");
            }
        }
        assert!(text.contains("dwell_skipped_packets_total{reason=\"truncated\"} 5\n"));
        assert!(text.contains("dwell_bpf_run_seconds_total{program=\"observe_tc\"} 0.00007\n"));
    }

    #[test]
    fn what_was_not_told_is_absent() {
        assert_eq!(
            Metrics::new("0.1.0", 100).render(),
            "# HELP dwell_build_info The version of dwell.\n\
             # TYPE dwell_build_info gauge\n\
             dwell_build_info{version=\"0.1.0\"} 1\n"
        );
    }

    #[test]
    fn groups_beyond_the_limit_share_series() {
        let metrics = Metrics::new("0.1.0", 2);
        for third in 0..100 {
            let prefix = format!("192.0.{third}.0/24");
            metrics.merge("eth0", Some(Method::Dns), &prefix, &one(1_000_000));
        }
        let histograms = histograms(&metrics.render());
        assert_eq!(histograms.len(), 3);
        let other = r#"interface="other",method="dns",prefix="other""#;
        assert_eq!(histograms[other].0, 98.0);
    }

    #[test]
    fn label_values_are_escaped() {
        let metrics = Metrics::new("0.1.0", 2);
        metrics.merge("a\"b\\c\nd", Some(Method::Dns), "", &one(1));
        let text = metrics.render();
        assert!(text.contains(r#"{interface="a\"b\\c\nd",method="dns",prefix="",le="#));
    }

    proptest! {
        /// A value may show in the bucket above its own if it is within one of
        /// the engine's buckets (1.6 %) of the bound, and never in one below.
        #[test]
        fn buckets_hold_what_was_observed(values in prop::collection::vec(0u64..70_000_000_000, 0..200)) {
            let metrics = Metrics::new("", 1);
            values.iter().for_each(|ns| metrics.merge("i", Some(Method::Dns), "p", &one(*ns)));
            let text = metrics.render();
            let by_label = histograms(&text);
            prop_assert_eq!(by_label.len(), usize::from(!values.is_empty()));
            let shown: Vec<f64> = parse(&text)
                .into_iter()
                .filter(|(name, _, _)| name.ends_with("_bucket"))
                .map(|(_, _, value)| value)
                .collect();
            for (bound, shown) in BOUNDS_NS.iter().zip(&shown) {
                let at_most = |ns: f64| values.iter().filter(|v| **v as f64 <= ns).count() as f64;
                let bound = *bound as f64;
                prop_assert!(*shown <= at_most(bound));
                prop_assert!(*shown >= at_most(bound * (1.0 - 1.0 / 64.0)));
            }
        }
    }
}
