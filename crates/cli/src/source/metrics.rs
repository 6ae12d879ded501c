//! What a program that watches interfaces exports about itself: its counters, its flow table and its BPF programs.

use dwell_engine::rtt::{Counter, Counters};
use dwell_metrics::{Collect, Family, Snapshot, seconds};

/// Labels of a histogram of latency. [`dwell_metrics::OTHER`] replaces interface and prefix beyond the limit on groups.
pub const GROUP_LABELS: &[&str] = &["interface", "method", "prefix"];

/// The verbs that watch interfaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watcher {
    /// `dwell rtt`.
    Rtt,
    /// `dwell response`.
    Response,
}

/// A metric's name: no two verbs export one name for two things.
macro_rules! name {
    ($verb:expr, $name:literal) => {
        match $verb {
            Watcher::Rtt => concat!("dwell_rtt_", $name),
            Watcher::Response => concat!("dwell_response_", $name),
        }
    };
}

/// Figures of a probe about itself. Nothing is exported before the first update.
#[derive(Debug, Clone)]
pub struct ProbeStatus {
    verb: Watcher,
    status: Option<Status>,
}

#[derive(Debug, Clone)]
struct Status {
    counters: Counters,
    slots: u64,
    /// Name, runs and nanoseconds, by name. The kernel counts them while `kernel.bpf_stats_enabled` is set.
    programs: Vec<(&'static str, u64, u64)>,
}

impl ProbeStatus {
    /// Creates the figures of a verb that watches interfaces.
    pub fn new(verb: Watcher) -> ProbeStatus {
        ProbeStatus { verb, status: None }
    }

    /// Replaces the figures: counters since the start, slots of the flow table, and each BPF program with its runs and
    /// the nanoseconds they took.
    pub fn update(&mut self, counters: &Counters, slots: u64, mut programs: Vec<(&'static str, u64, u64)>) {
        programs.sort_unstable();
        self.status = Some(Status { counters: *counters, slots, programs });
    }
}

impl Collect for ProbeStatus {
    fn collect(&self, snapshot: &mut Snapshot) {
        let ProbeStatus { verb, status: Some(Status { counters, slots, programs }) } = self else {
            return;
        };
        let mut last = None;
        for counter in Counter::ALL {
            let family = family(*verb, counter);
            if last.replace(family) != Some(family) {
                snapshot.family(&family);
            }
            let labels: &[_] = if family.labels.is_empty() { &[] } else { &[counter.name()] };
            snapshot.sample(&family, labels, counters.get(counter));
        }
        let map = |name, help| Family::gauge(name, &["map"], help);
        let entries = map(name!(verb, "map_entries"), "Entries of a BPF map in use.");
        let capacity = map(name!(verb, "map_capacity"), "Entries that fit a BPF map.");
        snapshot.family(&entries);
        snapshot.sample(&entries, &["flows"], counters.slots_taken());
        snapshot.family(&capacity);
        snapshot.sample(&capacity, &["flows"], *slots);
        if programs.is_empty() {
            return;
        }
        let program = |name, help| Family::counter(name, &["program"], help);
        let run_seconds = program(name!(verb, "bpf_run_seconds_total"), "Time spent in a BPF program.");
        let runs = program(name!(verb, "bpf_runs_total"), "How often a BPF program ran.");
        snapshot.family(&run_seconds);
        for (name, _, run_ns) in programs {
            snapshot.sample(&run_seconds, &[name], seconds((*run_ns).into()));
        }
        snapshot.family(&runs);
        for (name, count, _) in programs {
            snapshot.sample(&runs, &[name], *count);
        }
    }
}

/// Returns the family of a counter. Counters of one family stand together in [`Counter::ALL`].
fn family(verb: Watcher, counter: Counter) -> Family {
    let total = |name, help| Family::counter(name, &[], help);
    let by_reason = |name, help| Family::counter(name, &["reason"], help);
    match counter {
        Counter::Packets => total(name!(verb, "packets_total"), "Packets that passed."),
        Counter::Bytes => total(name!(verb, "bytes_total"), "Bytes of the packets that passed."),
        Counter::NotIp
        | Counter::OtherProtocol
        | Counter::Truncated
        | Counter::Malformed
        | Counter::Fragment
        | Counter::TooDeep
        | Counter::Filtered
        | Counter::UnknownLink
        | Counter::Server
        | Counter::Stray
        | Counter::Unreported => {
            by_reason(name!(verb, "skipped_packets_total"), "Packets that are in no result, by reason.")
        }
        Counter::FlowsOpened => total(name!(verb, "flows_opened_total"), "Flows that got a slot."),
        Counter::FlowsEvicted => {
            total(name!(verb, "flows_evicted_total"), "Flows closed before their idle timeout to make room.")
        }
        Counter::FlowsExpired => total(name!(verb, "flows_expired_total"), "Flows closed after their idle timeout."),
        Counter::Untracked => total(name!(verb, "untracked_packets_total"), "Packets of flows that found no slot."),
        Counter::Contended => total(
            name!(verb, "contended_packets_total"),
            "Packets of flows that found no slot because two CPUs wanted one at once.",
        ),
        Counter::SlotsFreed => {
            total(name!(verb, "flow_slots_freed_total"), "Slots of the flow table that became free again.")
        }
        Counter::Stamps => total(name!(verb, "stamps_total"), "Packets whose time was recorded."),
        Counter::StampsOverwritten => {
            total(name!(verb, "stamps_overwritten_total"), "Recorded times that others overwrote within a second.")
        }
        Counter::Samples => total(name!(verb, "samples_total"), "Latencies measured."),
        Counter::EventsLost => {
            total(name!(verb, "events_lost_total"), "Samples and flow events that did not reach user space.")
        }
        Counter::Ambiguous | Counter::SpinEarly | Counter::SpinOrder | Counter::Backwards => {
            by_reason(name!(verb, "rejected_total"), "Matches that were not trusted and gave no sample, by reason.")
        }
        Counter::AggregateOther => {
            total(name!(verb, "aggregate_other_total"), "Samples for whose prefix there was no group left.")
        }
        Counter::GroupsFreed => {
            total(name!(verb, "groups_freed_total"), "Groups that made room for others after a time without samples.")
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
        let status = registry.register(ProbeStatus::new(Watcher::Response));
        assert!(!registry.render().contains("dwell_response_packets_total"));
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
        assert!(text.contains("dwell_response_skipped_packets_total{reason=\"truncated\"} 5\n"));
        assert!(text.contains("dwell_response_bpf_run_seconds_total{program=\"observe_tc\"} 0.00007\n"));
        assert!(text.contains("dwell_response_map_capacity{map=\"flows\"} 131072\n"));
    }
}
