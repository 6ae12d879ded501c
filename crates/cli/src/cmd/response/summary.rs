//! `--summary`: the responses of each flow, server or prefix.

use std::collections::BTreeMap;

use dwell_engine::{
    histogram::Histogram,
    measure::{Endpoint, Protocol, Tunnel},
    response::{Answers, Key},
    rtt::Prefix,
};
use dwell_records::{Response, ResponseLine, ResponseSummary, ResponsesOf, Source, name_note, server_note};

use super::{PrefixLengths, SummaryBy, report::add_responses};
use crate::ranking::{self, RankingArgs};

/// Lines whose estimates are kept apart.
const MOST_LINES: usize = 100_000;

/// The epochs of a run by what a line is about.
pub struct Summary {
    by: SummaryBy,
    ranking: RankingArgs,
    prefixes: PrefixLengths,
    lines: BTreeMap<Group, Line>,
    /// Epochs for which there was no room.
    other: u64,
}

/// What a line is about.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    /// A QUIC connection is one flow whatever its client's address is.
    Flow(Option<Endpoint>, Endpoint, Protocol, Key, (u32, Tunnel), Option<u32>),
    Server(Endpoint, Protocol),
    Prefix(Prefix),
}

#[derive(Default)]
struct Line {
    /// The most recent name.
    name: String,
    interface: Option<u32>,
    of: ResponsesOf,
    first_ns: u64,
    last_ns: u64,
    epochs: u64,
    valid: u64,
    /// Responses, each with its own latency or, where the method does not know that, with the mean of its epoch.
    responses: Histogram,
    bounds: Bounds,
    /// Epochs without an estimate, by reason.
    reasons: BTreeMap<String, u64>,
}

/// Between what times responses are known to have ended: numbers of responses by the edges of their buckets.
#[derive(Default)]
struct Bounds {
    /// By the least that they took; 0 where only the mean of an epoch is known.
    least: BTreeMap<u64, u64>,
    /// By the most that they took; `u64::MAX` where that is unknown.
    most: BTreeMap<u64, u64>,
    /// Responses whose end is unknown: they may have been the shortest.
    unsure: u64,
}

impl Summary {
    /// Creates a summary without lines.
    pub fn new(by: SummaryBy, ranking: RankingArgs, prefixes: PrefixLengths) -> Summary {
        Summary { by, ranking, prefixes, lines: BTreeMap::new(), other: 0 }
    }

    /// Adds an epoch.
    pub fn add(&mut self, response: &Response<'_>, answers: Option<Answers<'_>>, source: &Source) {
        let record = response.record;
        let named = |note: fn(&Source, &Endpoint, &Endpoint, Protocol) -> String| {
            note(source, &record.src, &record.dst, record.protocol)
        };
        let (group, name, of) = match self.by {
            SummaryBy::Flow => (
                Group::Flow(
                    (record.key != Key::QuicCid).then_some(record.src),
                    record.dst,
                    record.protocol,
                    record.key,
                    (record.interface, record.tunnel),
                    record.id,
                ),
                format!("{} {}{}", record.protocol, record.flow(), named(name_note)),
                ResponsesOf { flow: Some(response.flow(source)), ..ResponsesOf::default() },
            ),
            SummaryBy::Server => (
                Group::Server(record.dst, record.protocol),
                format!("{} {}{}", record.protocol, record.dst, named(server_note)),
                ResponsesOf {
                    server: Some(record.dst.address),
                    port: record.key.has_ports().then_some(record.dst.port),
                    proto: Some(record.protocol.to_string()),
                    ..ResponsesOf::default()
                },
            ),
            SummaryBy::Prefix => {
                let prefix = self.prefixes.group(record.dst.address);
                let name = prefix.to_string();
                (Group::Prefix(prefix), name.clone(), ResponsesOf { prefix: Some(name), ..ResponsesOf::default() })
            }
        };
        if self.lines.len() >= MOST_LINES && !self.lines.contains_key(&group) {
            self.other += 1;
            return;
        }
        let line = self.lines.entry(group).or_default();
        (line.name, line.of) = (name, of);
        line.interface = (self.by == SummaryBy::Flow).then_some(record.interface);
        if line.epochs == 0 {
            line.first_ns = response.end_ns().saturating_sub(record.epoch.epoch_ns);
        }
        line.last_ns = response.end_ns();
        line.epochs += 1;
        if let (true, Some(ns)) = (response.is_valid(), response.response_ns) {
            line.valid += 1;
            add_responses(&mut line.responses, ns, response.batches, answers);
            line.bounds.add(response.batches, answers);
        } else if let Some(reason) = response.reason {
            *line.reasons.entry(reason.to_owned()).or_default() += 1;
        }
    }

    /// Passes the summary on, its lines sorted and cut.
    pub fn with<T>(&self, write: impl FnOnce(&ResponseSummary<'_>) -> T) -> T {
        let about = match self.by {
            SummaryBy::Flow => "flow",
            SummaryBy::Server => "server",
            SummaryBy::Prefix => "prefix of servers",
        };
        let mut lines: Vec<_> = self.lines.values().map(Line::of).collect();
        let cut = ranking::cut(&mut lines, &self.ranking, |line, figure| figure.of(line.responses));
        write(&ResponseSummary { about, lines: &lines, cut, other: self.other })
    }
}

impl Line {
    fn of(&self) -> ResponseLine<'_> {
        ResponseLine {
            name: &self.name,
            interface: self.interface,
            of: &self.of,
            first_ns: self.first_ns,
            last_ns: self.last_ns,
            epochs: self.epochs,
            valid: self.valid,
            responses: &self.responses,
            p99_bounds_ns: self.bounds.of(0.99),
            reasons: &self.reasons,
        }
    }
}

impl Bounds {
    /// Adds the responses of an epoch.
    fn add(&mut self, responses: u64, answers: Option<Answers<'_>>) {
        let mut add = |least_ns, most_ns, count| {
            *self.least.entry(least_ns).or_default() += count;
            *self.most.entry(most_ns).or_default() += count;
        };
        let Some(answers) = answers else {
            return add(0, u64::MAX, responses);
        };
        answers.buckets().for_each(|bucket| add(bucket.least_ns, bucket.most_ns.unwrap_or(u64::MAX), bucket.count));
        self.unsure += answers.unsure();
    }

    /// Returns the least and the most that a quantile can be, each if it is known.
    fn of(&self, q: f64) -> (Option<u64>, Option<u64>) {
        let all: u64 = self.least.values().sum();
        let rank = q * all as f64;
        let least_ns = at_rank(&self.least, rank - self.unsure as f64).filter(|ns| *ns > 0);
        (least_ns, at_rank(&self.most, rank).filter(|ns| *ns < u64::MAX))
    }
}

/// Returns the value that has this rank, by nearest rank. `None` if there are none.
fn at_rank(counts: &BTreeMap<u64, u64>, rank: f64) -> Option<u64> {
    let mut below = 0;
    let reaches = |(_, count): &(&u64, &u64)| {
        below += **count;
        below as f64 >= rank
    };
    counts.iter().find(reaches).map(|(ns, _)| *ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(buckets: &[(u64, u64, u64)], unsure: u64) -> Bounds {
        let mut bounds = Bounds { unsure, ..Bounds::default() };
        for (least_ns, most_ns, count) in buckets {
            bounds.least.insert(*least_ns, *count);
            bounds.most.insert(*most_ns, *count);
        }
        bounds
    }

    #[test]
    fn bounds_are_the_edges_of_the_bucket_that_has_the_quantile() {
        assert_eq!(bounds(&[(10, 12, 90), (40, 48, 10)], 0).of(0.5), (Some(10), Some(12)));
        assert_eq!(bounds(&[(10, 12, 90), (40, 48, 10)], 0).of(0.99), (Some(40), Some(48)));
        assert_eq!(bounds(&[], 0).of(0.99), (None, None));
    }

    #[test]
    fn responses_whose_end_is_unknown_may_have_been_the_shortest() {
        assert_eq!(bounds(&[(10, 12, 90), (40, 48, 10)], 9).of(0.99), (Some(10), Some(48)));
    }

    #[test]
    fn what_is_known_by_the_mean_alone_bounds_nothing() {
        assert_eq!(bounds(&[(0, u64::MAX, 2), (10, 12, 98)], 0).of(0.99), (Some(10), None));
        assert_eq!(bounds(&[(0, u64::MAX, 100)], 0).of(0.99), (None, None));
    }
}
