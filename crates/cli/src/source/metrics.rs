//! What a program that watches interfaces exports about itself: its counters, its flow table and its BPF programs.

use dwell_engine::rtt::{Counter, Counters};
use dwell_metrics::{Collect, Exposition, Family, seconds};

/// Labels of a histogram of latency. [`dwell_metrics::OTHER`] replaces interface and prefix beyond the limit on groups.
pub const GROUP_LABELS: &[&str] = &["interface", "method", "prefix"];

const MAP_ENTRIES: Family = Family::gauge("dwell_map_entries", &["map"], "Entries of a BPF map in use.");
const MAP_CAPACITY: Family = Family::gauge("dwell_map_capacity", &["map"], "Entries that fit a BPF map.");
const RUN_SECONDS: Family =
    Family::counter("dwell_bpf_run_seconds_total", &["program"], "Time spent in a BPF program.");
const RUNS: Family = Family::counter("dwell_bpf_runs_total", &["program"], "How often a BPF program ran.");

/// Figures of a probe about itself. Nothing is exported before the first update.
#[derive(Debug, Clone, Default)]
pub struct ProbeStatus(Option<Status>);

#[derive(Debug, Clone)]
struct Status {
    counters: Counters,
    slots: u64,
    /// Name, runs and nanoseconds, by name. The kernel counts them while `kernel.bpf_stats_enabled` is set.
    programs: Vec<(&'static str, u64, u64)>,
}

impl ProbeStatus {
    /// Replaces the figures: counters since the start, slots of the flow table, and each BPF program with its runs and
    /// the nanoseconds they took.
    pub fn update(&mut self, counters: &Counters, slots: u64, mut programs: Vec<(&'static str, u64, u64)>) {
        programs.sort_unstable();
        self.0 = Some(Status { counters: *counters, slots, programs });
    }
}

impl Collect for ProbeStatus {
    fn collect(&self, text: &mut Exposition) {
        let Some(Status { counters, slots, programs }) = &self.0 else {
            return;
        };
        let mut last = None;
        for counter in Counter::ALL {
            let family = family(counter);
            if last.replace(family) != Some(family) {
                text.family(&family);
            }
            let labels: &[_] = if family.labels.is_empty() { &[] } else { &[counter.name()] };
            text.sample(&family, labels, counters.get(counter));
        }
        text.family(&MAP_ENTRIES);
        text.sample(&MAP_ENTRIES, &["flows"], counters.slots_taken());
        text.family(&MAP_CAPACITY);
        text.sample(&MAP_CAPACITY, &["flows"], slots);
        if programs.is_empty() {
            return;
        }
        text.family(&RUN_SECONDS);
        for (name, _, run_ns) in programs {
            text.sample(&RUN_SECONDS, &[name], seconds((*run_ns).into()));
        }
        text.family(&RUNS);
        for (name, runs, _) in programs {
            text.sample(&RUNS, &[name], runs);
        }
    }
}

/// Returns the family of a counter. Counters of one family stand together in [`Counter::ALL`].
fn family(counter: Counter) -> Family {
    let total = |name, help| Family::counter(name, &[], help);
    let by_reason = |name, help| Family::counter(name, &["reason"], help);
    match counter {
        Counter::Packets => total("dwell_packets_total", "Packets that passed."),
        Counter::Bytes => total("dwell_bytes_total", "Bytes of the packets that passed."),
        Counter::NotIp
        | Counter::OtherProtocol
        | Counter::Truncated
        | Counter::Malformed
        | Counter::Fragment
        | Counter::TooDeep
        | Counter::Filtered
        | Counter::UnknownLink
        | Counter::Server
        | Counter::Stray => by_reason("dwell_skipped_packets_total", "Packets that no matcher looked at, by reason."),
        Counter::FlowsOpened => total("dwell_flows_opened_total", "Flows that got a place."),
        Counter::FlowsEvicted => {
            total("dwell_flows_evicted_total", "Flows closed before their idle timeout to make room.")
        }
        Counter::FlowsExpired => total("dwell_flows_expired_total", "Flows closed after their idle timeout."),
        Counter::Untracked => total("dwell_untracked_packets_total", "Packets of flows that found no place."),
        Counter::Contended => total(
            "dwell_contended_packets_total",
            "Packets of flows that found no place as two CPUs wanted one at once.",
        ),
        Counter::SlotsFreed => {
            total("dwell_flow_places_freed_total", "Places of the flow table that became free again.")
        }
        Counter::Stamps => total("dwell_stamps_total", "Packets whose time was kept."),
        Counter::StampsOverwritten => {
            total("dwell_stamps_overwritten_total", "Kept times lost to others within a second.")
        }
        Counter::Samples => total("dwell_samples_total", "Latencies measured."),
        Counter::EventsLost => {
            total("dwell_events_lost_total", "Samples and flow events that did not reach user space.")
        }
        Counter::Ambiguous | Counter::SpinEarly | Counter::SpinOrder | Counter::Backwards => {
            by_reason("dwell_rejected_total", "Matches that were not trusted and gave no sample, by reason.")
        }
        Counter::AggregateOther => {
            total("dwell_aggregate_other_total", "Samples for whose prefix there was no group left.")
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use dwell_engine::abi;
    use dwell_metrics::Registry;

    use super::*;

    #[test]
    fn every_counter_is_exported_once_and_families_stand_together() {
        let mut raw = abi::dwell_counters::default();
        for (value, number) in raw.value.iter_mut().zip(1..) {
            *value = number;
        }
        let registry = Registry::new("0.1.0");
        let status = registry.register(ProbeStatus::default());
        assert!(!registry.render().contains("dwell_packets_total"));
        status.lock().update(&Counters::sum([&raw]), 131_072, vec![("observe_tc", 1_000, 70_000)]);
        let text = registry.render();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let values: Vec<f64> = lines.map(|line| line.rsplit_once(' ').unwrap().1.parse().unwrap()).collect();
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
        assert!(text.contains("dwell_map_capacity{map=\"flows\"} 131072\n"));
    }
}
