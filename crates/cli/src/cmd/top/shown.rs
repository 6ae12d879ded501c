//! What the screen shows: flows and their names, whatever they come from.

use std::{
    collections::{HashSet, VecDeque},
    mem,
    net::IpAddr,
    path::PathBuf,
    sync::Arc,
};

use dwell_engine::{
    filter::Filter,
    layers::Ends,
    measure::Protocol,
    names::Network,
    top::{FlowKey, Limits, Metric, PAST, Past, Row, RowKey, Settings, Table, View},
};
use dwell_records::Source;
use dwell_socket::names::Names;

use super::{backends::Balancer, sources::StoredNames, units::Units};
use crate::{
    exit::Failure,
    names::{NamesArgs, Tables, kernel_owners},
    source::CaptureLosses,
};

/// Where flows come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The sockets of this host, which can be asked about them.
    Live,
    Capture,
    Store,
}

/// Flows and names, and the interval that they are of.
pub struct Screenful {
    pub table: Table,
    pub names: Names,
    pub units: Units,
    /// The autonomous systems of addresses.
    tables: Option<Arc<Tables>>,
    /// The filter of the command line, and the one that was typed: both must admit a flow.
    filters: [Filter; 2],
    /// The host and the clock; a capture has no host.
    pub source: Source,
    /// Where the flows come from.
    pub origin: Origin,
    /// The capture or the store that is shown, if it can be read again.
    pub path: Option<PathBuf>,
    /// The names that a store has.
    pub stored_names: StoredNames,
    /// The ports at which sockets of this host listen; none of a capture or a store.
    pub listening: HashSet<u16>,
    /// The balancer of this host, or what a store has of balancers; a capture has none.
    pub balancer: Option<Balancer>,
    /// The end of the last interval and its length.
    pub interval: (u64, u64),
    /// What the capture lacks, or what came too fast to be read.
    pub losses: CaptureLosses,
    /// The ends and lengths of the intervals before the last one of which rows have values, the latest last.
    before: VecDeque<(u64, u64)>,
    shows_names: bool,
    /// Whether there are labels where names are shown.
    has_labels: bool,
    filter_text: String,
    /// All flows of a capture, whatever filter was typed.
    capture: Option<Table>,
}

impl Screenful {
    /// Shows nothing yet.
    ///
    /// # Errors
    ///
    /// If a table of autonomous systems cannot be read.
    pub fn new(settings: Settings, filter: Filter, names: &NamesArgs, source: Source) -> Result<Screenful, Failure> {
        let shows_names = names.are_shown();
        Ok(Screenful {
            tables: names.tables()?,
            table: Table::new(settings),
            names: if source.host.is_some() {
                let kernel = shows_names.then(kernel_owners).flatten();
                Names::load(shows_names, names.have_labels(false)).with_reverse(names.resolve()).with_kernel(kernel)
            } else {
                names.refuse_to_resolve()?;
                Names::of_capture(names.have_labels(false))
            },
            units: Units::default(),
            filters: [filter, Filter::default()],
            origin: if source.host.is_some() { Origin::Live } else { Origin::Capture },
            path: None,
            stored_names: StoredNames::default(),
            source,
            listening: HashSet::new(),
            balancer: None,
            interval: (0, 0),
            losses: CaptureLosses::new(),
            before: VecDeque::new(),
            shows_names,
            has_labels: names.have_labels(false),
            filter_text: String::new(),
            capture: None,
        })
    }

    /// Shows nothing of a store yet.
    ///
    /// # Errors
    ///
    /// As [`Screenful::new`].
    pub fn of_store(
        settings: Settings,
        filter: Filter,
        names: &NamesArgs,
        source: Source,
    ) -> Result<Screenful, Failure> {
        let shown = Screenful::new(settings, filter, names, source)?;
        Ok(Screenful { origin: Origin::Store, balancer: Some(Balancer::stored()), ..shown })
    }

    /// Whether the filters admit a flow.
    pub fn admits(&self, ends: &Ends, protocol: Protocol) -> bool {
        self.filters.iter().all(|filter| filter.admits(&ends.src, &ends.dst, protocol))
    }

    /// Ends an interval.
    pub fn end_interval(&mut self, now_ns: u64) {
        self.table.end_interval(now_ns);
        let (last_ns, _) = self.interval;
        let length_ns = if last_ns == 0 { 0 } else { now_ns.saturating_sub(last_ns) };
        self.note_interval((now_ns, length_ns));
        if let Some(balancer) = &mut self.balancer {
            balancer.end_interval(now_ns);
        }
    }

    /// Ends an interval of a store, from one time to another in Unix time.
    pub fn end_stored_interval(&mut self, (from_ns, to_ns): (i64, i64)) {
        self.table.end_interval(to_ns.cast_unsigned());
        self.note_interval((to_ns.cast_unsigned(), to_ns.abs_diff(from_ns)));
    }

    fn note_interval(&mut self, interval: (u64, u64)) {
        self.before.push_back(mem::replace(&mut self.interval, interval));
        if self.before.len() >= PAST {
            self.before.pop_front();
        }
    }

    /// The intervals of which rows may have values, the latest first: their ends and lengths.
    pub fn intervals(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let all = [self.interval].into_iter().chain(self.before.iter().rev().copied());
        all.filter(|(_, length_ns)| *length_ns > 0)
    }

    /// Keeps the flows as they are, at the end of a capture.
    pub fn end_capture(&mut self) {
        self.capture = Some(self.table.clone());
    }

    /// Shows only flows of a filter as on the command line, in addition to that one, or all of those if it is empty.
    ///
    /// # Errors
    ///
    /// If it is not a filter: what to write instead. The filter stays as it was.
    pub fn set_filter(&mut self, text: &str) -> Result<(), String> {
        let text = text.trim();
        let rules: &[&str] = if text.is_empty() { &[] } else { &[text] };
        self.filters[1] = Filter::parse(rules).map_err(|error| error.to_string())?;
        text.clone_into(&mut self.filter_text);
        let filter = &self.filters[1];
        if let Some(all) = &self.capture {
            self.table = all.clone();
        }
        self.table.retain(|flow| filter.admits(&flow.ends.src, &flow.ends.dst, flow.protocol));
        self.table.regroup();
        Ok(())
    }

    /// The filter that was typed.
    pub fn filter_text(&self) -> &str {
        &self.filter_text
    }

    /// Names are shown if they were not, and the other way round.
    pub fn toggle_names(&mut self) {
        self.shows_names = !self.shows_names;
    }

    /// Names, if they are to be shown.
    pub fn names(&self) -> Option<&Names> {
        self.shows_names.then_some(&self.names)
    }

    /// Whether labels are to be shown.
    pub fn shows_labels(&self) -> bool {
        self.shows_names && self.has_labels
    }

    /// The network of an address, if names are to be shown.
    pub fn network(&self, address: IpAddr) -> Option<Network> {
        self.tables.as_ref().filter(|_| self.shows_names)?.of(address)
    }

    /// The rows of a view, the worst first.
    pub fn rows(&self, view: View, by: Metric) -> Vec<Row> {
        self.table.rows(view, by)
    }

    /// A row as it is now; `None` if it has ended.
    pub fn row(&self, key: &RowKey) -> Option<Row> {
        self.table.row(key)
    }

    /// The last intervals of a row.
    pub fn past(&self, key: &RowKey) -> Option<&Past> {
        self.table.past(key)
    }

    /// What limited a flow.
    pub fn limits(&self, key: &FlowKey) -> Option<Limits> {
        self.table.limits(key)
    }

    /// The time of day at the end of the last interval, in UTC.
    pub fn time(&self) -> String {
        self.time_at(self.interval.0)
    }

    /// Writes a time on the source's clock.
    pub fn time_at(&self, time_ns: u64) -> String {
        let unix_ns = self.source.clock.unix_ns(time_ns);
        let time = i64::try_from(unix_ns / 1_000_000_000).ok().and_then(|s| jiff::Timestamp::from_second(s).ok());
        time.map_or_else(|| "-".into(), |time| time.strftime("%H:%M:%SZ").to_string())
    }
}
