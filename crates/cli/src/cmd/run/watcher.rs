//! Connections that are watched inside their process and from outside, as one list.

use std::{collections::HashMap, convert::Infallible, io, process, time::Duration};

use dwell_engine::socket::{Account, Totals, Viewpoint};
use dwell_records::{Socket, SocketCounts};
use dwell_socket::{
    Watch,
    clock::monotonic_ns,
    outside::{self, Cgroup, Outside},
    table::{self, Counts, RawConfig, Table},
};

use crate::exit::{Exit, Failure};

/// Shortest and longest time between two polls from outside.
const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(100);
/// Age at which a connection was polled by the library, if the library watches it.
const YOUNG: Duration = Duration::from_millis(150);

/// All watched connections. Those that are not in the table are watched from outside.
pub struct Watcher {
    pub table: Option<Table>,
    pub outside: Option<Outside>,
    /// Watches a cgroup, in place of both.
    cgroup: Option<Cgroup>,
    reported: HashMap<u64, LastReport>,
    lost: Option<String>,
}

/// A connection as of the last interval.
struct LastReport {
    viewpoint: Viewpoint,
    counts: SocketCounts,
    /// Bytes of its whole life that were acknowledged, and that arrived in order.
    lifetime: (Option<u64>, Option<u64>),
}

impl Watcher {
    /// `poll` is the time between two polls of a connection.
    pub fn new(table: Option<Table>, mut outside: Option<Outside>, poll: Duration) -> Watcher {
        if let (Some(_), Some(outside)) = (&table, &mut outside) {
            outside.withhold(YOUNG.max(poll * 2));
        }
        Watcher { table, outside, cgroup: None, reported: HashMap::new(), lost: None }
    }

    pub fn of_cgroup(cgroup: Cgroup, poll: Duration) -> Watcher {
        Watcher { cgroup: Some(cgroup), ..Watcher::new(None, None, poll) }
    }

    /// Polls whatever is due. Returns the time until the next call.
    pub fn poll(&mut self) -> Result<Duration, Failure> {
        if let Some(table) = &self.table {
            table.share_out();
        }
        let polled = match (&mut self.outside, &mut self.cgroup) {
            (Some(outside), _) => outside.poll(),
            (None, Some(cgroup)) => cgroup.poll(),
            (None, None) => return Ok(LONGEST),
        };
        match polled {
            Ok(due_ns) => {
                let left_ns = due_ns.saturating_sub(monotonic_ns());
                Ok(Duration::from_nanos(left_ns).clamp(SHORTEST, LONGEST))
            }
            Err(error) => {
                self.give_up(&error);
                Ok(LONGEST)
            }
        }
    }

    /// Polls all connections for the last time.
    pub fn poll_last(&mut self) -> Result<(), Failure> {
        if let Some(outside) = &mut self.outside {
            outside.poll_all_next();
            outside.withhold(Duration::ZERO);
        }
        if let Some(cgroup) = &mut self.cgroup {
            cgroup.poll_all_next();
        }
        self.poll().map(drop)
    }

    fn give_up(&mut self, error: &outside::Error) {
        self.outside = None;
        self.cgroup = None;
        let left = match self.table {
            Some(_) => "only connections of programs with libdwell are watched from here on",
            None => "no connection is watched from here on",
        };
        self.lost = Some(format!("{error}; {left}"));
    }

    /// Returns once why connections are no longer watched from outside.
    pub fn lost(&mut self) -> Option<String> {
        self.lost.take()
    }

    /// Returns true if no connection is watched any more.
    pub fn is_blind(&self) -> bool {
        self.table.is_none() && self.outside.is_none() && self.cgroup.is_none()
    }

    /// Returns true if the watched process or cgroup has ended.
    pub fn has_ended(&self) -> bool {
        match (&self.outside, &self.cgroup) {
            (Some(outside), _) => outside.has_ended(),
            (None, Some(cgroup)) => cgroup.has_ended(),
            (None, None) => true,
        }
    }

    /// Returns what became of the options that were set on sockets.
    pub fn counts(&self) -> Counts {
        let mut all = self.table.as_ref().map_or_else(Counts::default, Table::counts);
        all += self.outside.as_ref().map_or_else(Counts::default, Outside::counts);
        all += self.cgroup.as_ref().map_or_else(Counts::default, Cgroup::counts);
        all
    }

    /// Resets the options that were set from outside. Returns the number of connections.
    pub fn reset_options(&mut self) -> usize {
        let outside = self.outside.as_mut().map_or(0, Outside::reset_options);
        outside + self.cgroup.as_mut().map_or(0, Cgroup::reset_options)
    }

    /// Returns processes on whose connections no options can be set from outside, and why.
    pub fn unreachable(&self) -> Vec<(u32, io::Error)> {
        let outside = self.outside.iter().flat_map(Outside::unreachable);
        outside.chain(self.cgroup.iter().flat_map(Cgroup::unreachable)).collect()
    }

    /// Returns why connections in other network namespaces cannot be seen.
    pub fn inaccessible(&self) -> impl Iterator<Item = (u64, &outside::Error)> {
        self.cgroup.iter().flat_map(Cgroup::inaccessible)
    }

    /// Returns the processes whose connections cannot be seen.
    pub fn denied(&self) -> &[u32] {
        self.outside.as_ref().map_or(&[], Outside::denied)
    }

    /// Returns the current connections, each with its counts at the last call.
    pub fn take(&mut self) -> Vec<Socket> {
        let mut sockets: Vec<Socket> = Vec::with_capacity(self.reported.len());
        let (reported, own) = (&mut self.reported, Some(process::id()));
        let mut take = |account: &Account, sockets: &mut Vec<Socket>| {
            // Prometheus connects to dwell itself.
            if account.pid != own {
                sockets.push(compare(reported, account));
            }
        };
        if let Some(table) = &mut self.table {
            let mut inside = Vec::new();
            let Ok::<_, Infallible>(()) = table.visit(&mut |account| {
                inside.push(account.cookie);
                take(account, &mut sockets);
            });
            if let Some(outside) = &mut self.outside {
                outside.exclude(inside);
            }
        }
        if let Some(outside) = &mut self.outside {
            let Ok::<_, Infallible>(()) = outside.visit(&mut |account| take(account, &mut sockets));
        }
        if let Some(cgroup) = &mut self.cgroup {
            let Ok::<_, Infallible>(()) = cgroup.visit(&mut |account| take(account, &mut sockets));
        }
        sockets
    }
}

/// Returns a connection with its counts as last reported, and notes the present ones for the next time.
fn compare(reported: &mut HashMap<u64, LastReport>, account: &Account) -> Socket {
    let before = match account.ended {
        true => reported.remove(&account.cookie),
        false => reported.insert(account.cookie, LastReport::new(account)),
    };
    let before = match before {
        Some(last) if last.viewpoint == account.viewpoint => last.counts,
        Some(last) => last.counts_of_other_watcher(account),
        None => counts_before_first_interval(account),
    };
    Socket { account: *account, before }
}

impl LastReport {
    fn new(account: &Account) -> LastReport {
        let info = &account.reading.info;
        LastReport {
            viewpoint: account.viewpoint,
            counts: SocketCounts::from(account),
            lifetime: (info.bytes_acked, info.bytes_received),
        }
    }

    /// Returns the counts before, when a connection changes between inside and outside: a new watcher starts counting
    /// anew, while the kernel's counts continue. Nothing is reported twice.
    fn counts_of_other_watcher(&self, account: &Account) -> SocketCounts {
        let info = &account.reading.info;
        let before = |counted: u64, now: Option<u64>, then: Option<u64>| match (now, then) {
            (Some(now), Some(then)) => counted.saturating_sub(now.saturating_sub(then)),
            _ => 0,
        };
        let (acked, received) = self.lifetime;
        SocketCounts {
            totals: Totals {
                acked_bytes: before(account.totals.acked_bytes, info.bytes_acked, acked),
                received_bytes: before(account.totals.received_bytes, info.bytes_received, received),
                ..Totals::default()
            },
            ..self.counts
        }
    }
}

/// Returns the counts before the first interval: what the kernel counted before the connection was watched belongs to no
/// interval.
fn counts_before_first_interval(account: &Account) -> SocketCounts {
    let (info, totals) = (&account.reading.info, &account.totals);
    // The SYN counts.
    let acked = info.bytes_acked.map(|acked| acked.saturating_sub(1));
    let is_whole = acked.is_some_and(|acked| acked <= totals.acked_bytes)
        && info.bytes_received.is_some_and(|received| received <= totals.received_bytes);
    match is_whole {
        true => SocketCounts::default(),
        false => SocketCounts { totals: Totals::default(), ..SocketCounts::from(account) },
    }
}

/// Returns the configuration for watching from outside. Where no library sets the options of sockets, dwell does.
pub fn config(args: &super::Args, has_library: bool) -> Result<outside::Config, Failure> {
    let defaults = outside::Config::default();
    let options = args.sets_outside().then(|| RawConfig::new(&args.table_config())).transpose();
    Ok(outside::Config {
        options: options.map_err(no_table)?,
        spares_library: has_library,
        poll: args.poll,
        // With a library there is rarely anything to find.
        discovery: defaults.discovery * if has_library { 5 } else { 1 },
        estimator: args.estimator(),
        ..defaults
    })
}

/// Converts an error of the table or its configuration.
pub fn no_table(error: table::Error) -> Failure {
    let exit = match error {
        table::Error::Congestion { .. } => Exit::Usage,
        table::Error::Memory { .. } => Exit::Host,
    };
    Failure::new(exit, error)
}

#[cfg(test)]
mod tests {
    use dwell_engine::{
        layers::Ends,
        measure::Endpoint,
        socket::{Delays, Estimator, Peaks, Reading, TcpInfo, control::Setting},
    };

    use super::*;

    /// Returns a connection that has sent `lifetime` bytes, `watched` of them while it was watched.
    fn account(viewpoint: Viewpoint, lifetime: u64, watched: u64, retransmissions: u32) -> Account {
        let end = Endpoint { address: [127, 0, 0, 1].into(), port: 1 };
        let info = TcpInfo {
            bytes_acked: Some(lifetime + 1),
            bytes_received: Some(0),
            retransmissions,
            out_of_order: Some(2 * retransmissions),
            ..TcpInfo::default()
        };
        Account {
            cookie: 7,
            pid: None,
            fd: None,
            ends: Ends { src: end, dst: end },
            viewpoint,
            estimator: Estimator::Exact,
            reading: Reading { time_ns: 1, info, ..Reading::default() },
            delays: Delays::default(),
            peaks: Peaks::default(),
            waiting_ns: None,
            totals: Totals { acked_bytes: watched, ..Totals::default() },
            setting: Setting::default(),
            ended: false,
        }
    }

    fn report(watcher: &mut Watcher, account: Account) -> (Option<u64>, u32, Option<u32>) {
        let socket = compare(&mut watcher.reported, &account);
        let (again, late) = (socket.retransmissions(), socket.out_of_order());
        (socket.acked_bytes(), again, late)
    }

    fn watcher() -> Watcher {
        Watcher::new(None, None, Duration::from_millis(10))
    }

    #[test]
    fn retransmissions_before_the_first_interval_are_left_out() {
        let mut watcher = watcher();
        let first = report(&mut watcher, account(Viewpoint::Outside, 9_000, 1_000, 5));
        assert_eq!(first, (Some(1_000), 0, Some(0)));
        let second = report(&mut watcher, account(Viewpoint::Outside, 9_500, 1_500, 6));
        assert_eq!(second, (Some(500), 1, Some(2)));
    }

    #[test]
    fn a_connection_that_was_watched_from_its_start_is_counted_in_full() {
        let first = report(&mut watcher(), account(Viewpoint::Inside, 9_000, 9_000, 5));
        assert_eq!(first, (Some(9_000), 5, Some(10)));
    }

    #[test]
    fn a_change_of_watcher_reports_nothing_twice() {
        let mut watcher = watcher();
        report(&mut watcher, account(Viewpoint::Outside, 9_000, 9_000, 5));
        let other = report(&mut watcher, account(Viewpoint::Inside, 9_500, 9_500, 6));
        assert_eq!(other, (Some(500), 1, Some(2)));
        let later = report(&mut watcher, account(Viewpoint::Outside, 9_700, 100, 6));
        assert_eq!(later, (Some(100), 0, Some(0)));
    }
}
