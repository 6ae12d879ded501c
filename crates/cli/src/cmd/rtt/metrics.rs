//! `--metrics` and `--otlp`: the histograms and counters of the kernel.

use std::collections::{BTreeMap, BTreeSet};

use dwell_engine::{
    measure::PathCounts,
    rtt::{Counters, Figures, Group, GroupKey},
};
use dwell_metrics::{Collect, Family, Histograms, LATENCY_BOUNDS_NS, OTHER, Shared, Snapshot, seconds};
use dwell_probes::rtt::Probe;
use dwell_records::Source;

use super::Args;
use crate::{
    served::MetricsOutputs,
    source::{GROUP_LABELS, ProbeStatus, Watcher},
};

const RTT: Family = Family::histogram(
    "dwell_rtt_seconds",
    GROUP_LABELS,
    LATENCY_BOUNDS_NS,
    "Time from seeing a packet to seeing its answer, by the prefix of the side that answered.",
);
const QUEUE: Family = counter(
    "dwell_rtt_queue_seconds_total",
    "Sum of what the samples of dwell_rtt_seconds were longer than the least of their flow in the last 8.6 to 17.2 s.",
);
/// Reads one count of a path.
type Count = fn(&PathCounts) -> u64;

/// The counters that add up what samples say of the packets before them, each with its figure.
const COUNTS: [(Family, Count); 5] = [
    (
        counter(
            "dwell_rtt_data_segments_total",
            "TCP segments with data to the side that answered, in flows with samples.",
        ),
        |counts| counts.sent,
    ),
    (
        counter("dwell_rtt_retransmitted_total", "Of dwell_rtt_data_segments_total, segments that had passed before."),
        |counts| counts.retransmitted,
    ),
    (
        counter("dwell_rtt_packets_back_total", "Packets from the side that answered, in flows with samples."),
        |counts| counts.received,
    ),
    (
        counter(
            "dwell_rtt_late_total",
            "Of dwell_rtt_packets_back_total, TCP segments that filled a hole: lost before and sent again, or reordered.",
        ),
        |counts| counts.late,
    ),
    (
        counter("dwell_rtt_ce_total", "Of dwell_rtt_packets_back_total, packets with ECN's mark of congestion."),
        |counts| counts.ce,
    ),
];

/// Declares a counter of a group.
const fn counter(name: &'static str, help: &'static str) -> Family {
    Family::counter(name, GROUP_LABELS, help)
}

/// The figures of the groups.
#[derive(Debug, Clone)]
struct Rtts {
    rtt: Histograms,
    path: BTreeMap<Vec<String>, Path>,
    /// The groups that share each series: listed prefixes can have the same name.
    sharing: BTreeMap<[String; 3], BTreeSet<GroupKey>>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Path {
    queue_ns: u64,
    counts: PathCounts,
}

impl Rtts {
    fn new(max_groups: usize) -> Rtts {
        Rtts { rtt: Histograms::new(RTT, max_groups), path: BTreeMap::new(), sharing: BTreeMap::new() }
    }

    fn add(&mut self, labels: [&str; 3], overflow: [&str; 3], figures: &Figures) {
        let (labels, histogram) = self.rtt.get_labelled(labels, overflow);
        histogram.merge(&figures.histogram);
        let path = self.path.entry(labels).or_default();
        path.queue_ns = path.queue_ns.saturating_add(figures.queue_sum_ns);
        path.counts += figures.path;
    }

    fn share(&mut self, labels: [String; 3], key: GroupKey) {
        self.sharing.entry(labels).or_default().insert(key);
    }

    /// Removes the series of a group that is freed, if no other group shares it.
    fn remove(&mut self, labels: &[String; 3], key: &GroupKey) {
        if let Some(keys) = self.sharing.get_mut(labels) {
            keys.remove(key);
            if !keys.is_empty() {
                return;
            }
        }
        self.sharing.remove(labels);
        self.rtt.remove(labels);
        self.path.remove(labels.as_slice());
    }
}

impl Collect for Rtts {
    fn collect(&self, snapshot: &mut Snapshot) {
        self.rtt.collect(snapshot);
        if self.path.is_empty() {
            return;
        }
        snapshot.family(&QUEUE);
        for (labels, path) in &self.path {
            snapshot.sample(&QUEUE, labels, seconds(path.queue_ns.into()));
        }
        for (family, count) in &COUNTS {
            snapshot.family(family);
            for (labels, path) in &self.path {
                snapshot.sample(family, labels, count(&path.counts));
            }
        }
    }
}

/// Exports metrics while it lives.
pub struct Exporter {
    source: Source,
    rtt: Shared<Rtts>,
    status: Shared<ProbeStatus>,
    _served: MetricsOutputs,
}

impl Exporter {
    /// Registers the figures of a run.
    pub fn new(served: MetricsOutputs, args: &Args, source: Source) -> Exporter {
        Exporter {
            source,
            rtt: served.registry.register(Rtts::new(args.max_groups as usize)),
            status: served.registry.register(ProbeStatus::new(Watcher::Rtt)),
            _served: served,
        }
    }

    /// Adds the samples of an interval, and forgets groups that are freed.
    pub fn groups(&self, groups: &[Group], freed: &[GroupKey]) {
        let mut rtt = self.rtt.lock();
        for group in groups {
            match &group.key {
                Some(key) => {
                    let labels = self.labels(key);
                    let [interface, method, prefix] = &labels;
                    rtt.add([interface, method, prefix], [OTHER, method, OTHER], &group.figures);
                    rtt.share(labels, *key);
                }
                None => rtt.add([OTHER; 3], [OTHER; 3], &group.figures),
            }
        }
        for key in freed {
            rtt.remove(&self.labels(key), key);
        }
    }

    /// Returns interface with tunnel, method, and the name of the prefix or the prefix itself.
    fn labels(&self, key: &GroupKey) -> [String; 3] {
        let mut interface = self.source.interfaces.label(key.interface).unwrap_or_default().into_owned();
        if !key.tunnel.is_none() {
            interface = format!("{interface} {}", key.tunnel);
        }
        let prefix = self.source.prefixes.name(&key.prefix).map_or_else(|| key.prefix.to_string(), str::to_owned);
        [interface, key.method.name().to_owned(), prefix]
    }

    /// Updates what the probe exports about itself.
    pub fn status(&self, probe: &Probe, counters: &Counters) {
        self.status.lock().update(counters, probe.slots(), probe.run_times());
    }
}

#[cfg(test)]
mod tests {
    use dwell_engine::{
        measure::{Method, Tunnel},
        rtt::Prefix,
    };

    use super::*;

    #[test]
    fn prefixes_of_one_name_share_a_series_until_the_last_is_freed() {
        let labels = ["eth0", "icmp", "customer A"];
        let owned = labels.map(str::to_owned);
        let keys = [1, 2].map(|last| GroupKey {
            interface: 1,
            tunnel: Tunnel(0),
            method: Method::Icmp,
            prefix: Prefix::of([10, last, 0, 0].into(), 16),
        });
        let mut rtts = Rtts::new(4);
        for key in keys {
            rtts.add(labels, [OTHER; 3], &Figures::default());
            rtts.share(owned.clone(), key);
        }
        for (key, left) in keys.iter().zip([1, 0]) {
            rtts.remove(&owned, key);
            assert_eq!(rtts.path.len(), left);
        }
    }
}
