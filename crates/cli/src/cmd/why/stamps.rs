//! The connections of a store: where bytes were on their way between two hosts.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use anyhow::anyhow;
use dwell_engine::{
    histogram::HistogramSum,
    layers::{Direction, Ends, PathSegment},
    why::{self, Evidence, Target, Unseen},
};
use dwell_records::counted;
use dwell_socket::outside::Selection;
use dwell_store::{Place, Reader, StoredSegment, Wanted};

use crate::{
    exit::{Exit, Failure},
    moment::Moment,
    source::{ServerArgs, server},
};

/// Connections of a target that are copied from a server: those with the most bytes.
const MOST_COPIED: usize = 10_000;

/// Reads what a store has of a target, or of all flows together, between two moments.
pub fn read(
    path: &Path,
    target: Option<(&str, &Selection)>,
    since: Option<Moment>,
    until: Option<Moment>,
    from_server: &ServerArgs,
) -> Result<Evidence, Failure> {
    let (store, left_out) = match server(path) {
        Some(address) => copy(address, target, since, until, from_server)?,
        None => {
            from_server.refuse()?;
            (Reader::open(path)?, 0)
        }
    };
    let mut evidence = judged(&store, path, target, since, until)?;
    if left_out > 0 {
        evidence.unseen.push(Unseen {
            what: format!(
                "{} with fewer bytes than the {MOST_COPIED} that were copied",
                counted(left_out as u64, "connection", "connections")
            ),
            remedy: "ask for less with --since, or name HOST:PORT".into(),
        });
    }
    Ok(evidence)
}

/// Copies what a server has of a target, or of all flows together.
fn copy(
    address: &str,
    target: Option<(&str, &Selection)>,
    since: Option<Moment>,
    until: Option<Moment>,
    from_server: &ServerArgs,
) -> Result<(Reader, usize), Failure> {
    let server = from_server.ask(address)?;
    let server = server.ok_or_else(|| Failure::usage(anyhow!("{address} has no intervals yet")))?;
    let takes = target.map(|(_, selected)| move |ends: &Ends| matches(selected, ends));
    let wanted = Wanted {
        flows: takes.as_ref().map(|takes| takes as &dyn Fn(&Ends) -> bool),
        hosts: &[],
        most_flows: if takes.is_some() { MOST_COPIED } else { 0 },
    };
    let (store, left_out) = server.copy(&wanted, since, until)?;
    Ok((store, if takes.is_some() { left_out } else { 0 }))
}

fn judged(
    store: &Reader,
    path: &Path,
    target: Option<(&str, &Selection)>,
    since: Option<Moment>,
    until: Option<Moment>,
) -> Result<Evidence, Failure> {
    let (first_ns, last_ns) = store.span()?.unwrap_or_default();
    let at = |moment: Option<Moment>, default| moment.map_or(default, |moment| moment.unix_ns(last_ns));
    let span = (at(since, first_ns).max(first_ns), at(until, last_ns).min(last_ns));
    if span.0 > span.1 {
        return Err(Failure::usage(anyhow!(
            "{} has nothing between --since and --until: widen the time",
            path.display()
        )));
    }
    let name = target.map_or_else(|| path.display().to_string(), |(name, _)| name.to_owned());
    let chosen: BTreeMap<i64, Ends> = match target {
        None => BTreeMap::new(),
        Some((_, selected)) => {
            let (flows, translated) = (store.flows(span, &[])?.into_iter(), store.translated(span)?);
            let is_chosen = |number: &i64, ends: &Ends| {
                matches(selected, ends) || translated.get(number).is_some_and(|ends| matches(selected, ends))
            };
            flows.filter(|(number, ends, _)| is_chosen(number, ends)).map(|(number, ends, _)| (number, ends)).collect()
        }
    };
    let mut paths = Paths::default();
    let numbers: Vec<i64> = chosen.keys().copied().collect();
    store.rows(span, &numbers, |read| {
        if read.flow.is_some() == target.is_some() {
            paths.add(read);
        }
    })?;
    let hosts: BTreeMap<i64, String> = store.hosts()?.into_iter().collect();
    let port = match target {
        Some((_, Selection::Ends { port, .. })) => *port,
        _ => None,
    };
    let chosen_by = target;
    let target = Target { name: name.clone(), port, ..Target::default() };
    let ended_ns = span.1.max(0).cast_unsigned();
    let observed_ns = (span.1 - span.0).max(0).cast_unsigned();
    let mut evidence = Evidence::of_path(target, &paths.worst(&hosts).unwrap_or_default(), observed_ns, ended_ns);
    if evidence.connections == 0 {
        evidence.unseen.push(Unseen {
            what: match store.last_verdict(span, &name)? {
                Some((time, sentence)) => {
                    format!("stamps of its bytes: the store has none; at {time} dwell why said of it '{sentence}'")
                }
                None => "stamps of its bytes: the store has none of it".into(),
            },
            remedy: "let `dwell agent` or `dwell stack --flows --store` follow its connections".into(),
        });
        let selected = chosen_by.map(|(_, selected)| selected);
        evidence.unseen.extend(other_figures(store, path, span, selected)?);
    }
    Ok(evidence)
}

/// What the store has of a target, or of all flows, besides stamps.
fn other_figures(
    store: &Reader,
    path: &Path,
    span: (i64, i64),
    selected: Option<&Selection>,
) -> Result<Option<Unseen>, Failure> {
    let takes = selected.map(|selected| move |ends: &Ends| matches(selected, ends));
    let counts = store.count_latencies(span, takes.as_ref().map(|takes| takes as &dyn Fn(&Ends) -> bool))?;
    let rows = counts.iter().map(|(_, count)| count).sum();
    let verbs = counts.iter().map(|(kind, _)| format!("`dwell {}`", kind.split('.').next().unwrap_or(kind)));
    let verbs = verbs.collect::<BTreeSet<_>>();
    let verbs = verbs.into_iter().collect::<Vec<_>>().join(", ");
    Ok((rows > 0).then(|| Unseen {
        what: format!("what its {} of {verbs} say, which have latencies and no stamps", counted(rows, "row", "rows")),
        remedy: format!("`dwell report -r {} --output FILE` draws them", path.display()),
    }))
}

/// Whether an end of a flow is the target.
fn matches(selected: &Selection, ends: &Ends) -> bool {
    let Selection::Ends { addresses, port } = selected else {
        return false;
    };
    [ends.src, ends.dst].iter().any(|end| {
        (addresses.is_empty() || addresses.contains(&end.address.to_canonical()))
            && port.is_none_or(|port| port == end.port)
    })
}

/// The sending and the receiving host.
type Pair = (Option<i64>, Option<i64>);

/// The rows of a target by path.
#[derive(Default)]
struct Paths {
    paths: BTreeMap<Pair, Rows>,
    /// What hosts know of their own layers.
    hosts: BTreeMap<(i64, Direction), Rows>,
}

#[derive(Default)]
struct Rows {
    segments: BTreeMap<PathSegment, HistogramSum>,
    flows: BTreeSet<Option<i64>>,
    resent: u64,
    is_estimated: bool,
    bound_ns: Option<u64>,
}

impl Paths {
    fn add(&mut self, read: &StoredSegment<'_>) {
        let rows = match (read.place, read.segment.direction()) {
            (Place::Path(tx, rx), _) => self.paths.entry((tx, rx)).or_default(),
            (Place::Host(host), Some(direction)) => self.hosts.entry((host, direction)).or_default(),
            (Place::Host(_), None) => return,
        };
        if read.resent {
            // A path has the totals of both hosts too.
            let is_host = matches!(read.place, Place::Host(_));
            let is_whole =
                matches!(read.segment.name(), "end-to-end" | "total") && is_host == read.segment.direction().is_some();
            rows.resent += if is_whole { read.histogram.count() } else { 0 };
            return;
        }
        if read.histogram.count() > 0 {
            rows.flows.insert(read.flow);
        }
        rows.segments.entry(read.segment).or_default().add(read.histogram);
        rows.is_estimated |= read.estimated;
        rows.bound_ns = rows.bound_ns.max(read.bound_ns);
    }

    /// Returns the path on which most time was spent: of those that both hosts have seen, if there is one.
    fn worst(mut self, names: &BTreeMap<i64, String>) -> Option<why::Path> {
        // An end without an agent knows nothing but the network; the other host knows its own layers.
        for (host, direction) in self.hosts.keys().copied().collect::<Vec<_>>() {
            let pair = match direction {
                Direction::Tx => (Some(host), None),
                Direction::Rx => (None, Some(host)),
            };
            let own = self.hosts.remove(&(host, direction)).unwrap_or_default();
            let rows = self.paths.entry(pair).or_default();
            for (segment, times) in own.segments {
                rows.segments.entry(segment).or_insert(times);
            }
            rows.flows.extend(own.flows);
            rows.resent += own.resent;
        }
        let is_known = |(tx, rx): &Pair| tx.is_some() && rx.is_some();
        let name = |host: Option<i64>| host.and_then(|host| names.get(&host).cloned());
        let measured = self.paths.into_iter().filter(|(_, rows)| !rows.flows.is_empty());
        let paths = measured.map(|(pair, rows)| {
            let path = why::Path {
                hosts: [name(pair.0), name(pair.1)],
                flows: rows.flows.len() as u64,
                segments: rows.segments.into_iter().map(|(segment, times)| (segment, times.finish())).collect(),
                resent: rows.resent,
                is_estimated: rows.is_estimated,
                bound_ns: rows.bound_ns,
            };
            (is_known(&pair), path)
        });
        let worst = paths.max_by(|(known, a), (other_known, b)| {
            known.cmp(other_known).then_with(|| a.spent_ns().total_cmp(&b.spent_ns()))
        });
        worst.map(|(_, path)| path)
    }
}

/// Refuses options that are for a store where there is none.
pub fn refuse_without_store(since: Option<Moment>, until: Option<Moment>) -> Result<(), Failure> {
    match (since, until) {
        (None, None) => Ok(()),
        _ => {
            Err(Failure::new(Exit::Usage, anyhow!("--since and --until are for a store: leave them out of a capture")))
        }
    }
}
