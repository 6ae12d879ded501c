//! The distributions of a run, by flow and method.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
};

use dwell_engine::{
    histogram::Figure,
    measure::{Endpoint, Method, Protocol, Sample, Tunnel},
    roles::Role,
    rtt::Figures,
};

/// The key of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowKey {
    /// The end whose packets were stamped.
    pub src: Endpoint,
    /// The end that answered them.
    pub dst: Endpoint,
    /// The transport.
    pub protocol: Protocol,
    /// The method.
    pub method: Method,
    /// The source's number for the interface.
    pub interface: u32,
    /// What encloses the packets.
    pub tunnel: Tunnel,
}

/// One line: a direction of a flow, by one method, at one interface.
#[derive(Debug, Clone, Copy)]
pub struct FlowLine<'a> {
    /// Its key.
    pub key: FlowKey,
    /// The time of its first sample on the source's clock.
    pub first_ns: u64,
    /// The time of its last sample.
    pub last_ns: u64,
    /// What `src` is, if the packets that opened the flow were seen.
    pub src_role: Option<Role>,
    /// What its samples add up to.
    pub figures: &'a Figures,
}

/// Collects samples in bounded memory: one histogram for each of the first flows, and one per method for all later
/// flows.
#[derive(Debug, Clone)]
pub struct Summary {
    limit: usize,
    by: Figure,
    top: usize,
    flows: HashMap<FlowKey, Flow>,
    other: BTreeMap<Method, Figures>,
}

#[derive(Debug, Clone, Default)]
struct Flow {
    first_ns: u64,
    last_ns: u64,
    src_role: Option<Role>,
    figures: Figures,
}

impl Flow {
    fn add(&mut self, sample: &Sample) {
        if self.figures.histogram.count() == 0 {
            self.first_ns = sample.time_ns;
        }
        self.last_ns = sample.time_ns;
        self.src_role = sample.src_role;
        self.figures.add(sample);
    }
}

impl Summary {
    /// Creates a summary of at most `limit` lines. Each takes about 350 bytes, and more the wider its round trips spread:
    /// 30 KB if they fill every bucket.
    pub fn new(limit: usize) -> Summary {
        Summary { limit, by: Figure::Count, top: usize::MAX, flows: HashMap::new(), other: BTreeMap::new() }
    }

    /// Sorts the lines by a figure, the largest first, and returns only the first `top` of them.
    #[must_use]
    pub fn ranked(self, by: Figure, top: usize) -> Summary {
        Summary { by, top, ..self }
    }

    /// Adds a sample.
    pub fn add(&mut self, sample: &Sample) {
        let key = FlowKey {
            src: sample.src,
            dst: sample.dst,
            protocol: sample.protocol,
            method: sample.method,
            interface: sample.interface,
            tunnel: sample.tunnel,
        };
        if let Some(flow) = self.flows.get_mut(&key) {
            flow.add(sample);
        } else if self.flows.len() < self.limit {
            self.flows.entry(key).or_default().add(sample);
        } else {
            self.other.entry(sample.method).or_default().add(sample);
        }
    }

    /// Returns the lines in their order, which is most samples first unless they are ranked; equal lines are in the order
    /// of their keys.
    pub fn flows(&self) -> Vec<FlowLine<'_>> {
        let mut lines: Vec<_> = self
            .flows
            .iter()
            .map(|(key, flow)| FlowLine {
                key: *key,
                first_ns: flow.first_ns,
                last_ns: flow.last_ns,
                src_role: flow.src_role,
                figures: &flow.figures,
            })
            .collect();
        lines.sort_by_cached_key(|line| (Reverse(self.by.of(&line.figures.histogram)), line.key));
        lines.truncate(self.top);
        lines
    }

    /// Returns the number of lines that are not among the first, and so are not returned.
    pub fn cut(&self) -> usize {
        self.flows.len().saturating_sub(self.top)
    }

    /// Returns the samples of flows beyond the limit, by method.
    pub fn other(&self) -> impl Iterator<Item = (Method, &Figures)> {
        self.other.iter().map(|(method, figures)| (*method, figures))
    }

    /// Returns true if there were more flows than the limit.
    pub fn overflowed(&self) -> bool {
        !self.other.is_empty()
    }

    /// Returns the maximum number of lines.
    pub fn limit(&self) -> usize {
        self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::samples;

    #[test]
    fn each_direction_and_method_and_interface_is_a_line() {
        let there = samples::tcp4();
        let back = Sample { src: there.dst, dst: there.src, ..there };
        let by_seq = Sample { method: Method::TcpSeq, ..there };
        let elsewhere = Sample { interface: 3, ..there };
        let mut summary = Summary::new(10);
        for sample in [there, there, back, by_seq, elsewhere] {
            summary.add(&sample);
        }
        let counts: Vec<_> = summary.flows().iter().map(|l| l.figures.histogram.count()).collect();
        assert_eq!(counts, [2, 1, 1, 1]);
        assert!(!summary.overflowed());
    }

    #[test]
    fn ranked_lines_are_sorted_and_cut() {
        let mut summary = Summary::new(10).ranked(Figure::Max, 2);
        for (port, rtt_ns) in [(1, 5), (1, 6), (2, 9), (3, 7)] {
            let src = samples::endpoint("192.0.2.1", port);
            summary.add(&Sample { src, rtt_ns, ..samples::tcp4() });
        }
        let ports: Vec<_> = summary.flows().iter().map(|line| line.key.src.port).collect();
        assert_eq!((ports, summary.cut()), (vec![2, 3], 1));
    }

    #[test]
    fn flows_beyond_the_limit_are_counted_and_take_no_memory() {
        let mut summary = Summary::new(2);
        for port in 1..=100 {
            summary.add(&Sample { src: samples::endpoint("192.0.2.1", port), ..samples::tcp4() });
        }
        summary.add(&Sample { method: Method::Dns, ..samples::tcp4() });
        assert_eq!(summary.flows().len(), 2);
        let other: Vec<_> = summary.other().map(|(m, figures)| (m, figures.histogram.count())).collect();
        assert_eq!(other, [(Method::TcpTimestamp, 98), (Method::Dns, 1)]);
        assert!(summary.overflowed());
    }
}
