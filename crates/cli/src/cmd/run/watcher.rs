//! Connections that are watched inside their process and from outside, as one list.

use std::{collections::HashMap, convert::Infallible, time::Duration};

use dwell_engine::socket::{Account, Totals, Way};
use dwell_records::{Socket, SocketCounts};
use dwell_socket::clock::monotonic_ns;
use dwell_socket::{
    Watch,
    outside::{self, Cgroup, Outside},
    table::Table,
};

use crate::exit::Failure;

/// Looks from outside are at least so far apart in the loop.
const SHORTEST: Duration = Duration::from_millis(1);
/// And at most.
const LONGEST: Duration = Duration::from_millis(100);
/// The library has looked at a connection by then that it watches.
const YOUNG: Duration = Duration::from_millis(150);

/// All that is watched. A connection is in the table, or else is watched from outside.
pub struct Watcher {
    pub table: Option<Table>,
    pub outside: Option<Outside>,
    /// Of a cgroup, in place of both.
    cgroup: Option<Cgroup>,
    seen: HashMap<u64, Seen>,
    lost: Option<String>,
}

/// A connection, as it was told last.
struct Seen {
    way: Way,
    counts: SocketCounts,
    /// Bytes of its whole life that were acknowledged, and that came in order.
    lifetime: (Option<u64>, Option<u64>),
}

impl Watcher {
    /// `poll` is the time between two looks at a connection.
    pub fn new(table: Option<Table>, mut outside: Option<Outside>, poll: Duration) -> Watcher {
        if let (Some(_), Some(outside)) = (&table, &mut outside) {
            outside.withhold(YOUNG.max(poll * 2));
        }
        Watcher { table, outside, cgroup: None, seen: HashMap::new(), lost: None }
    }

    pub fn of_cgroup(cgroup: Cgroup, poll: Duration) -> Watcher {
        Watcher { cgroup: Some(cgroup), ..Watcher::new(None, None, poll) }
    }

    /// Looks at what is due. Returns after what time it wants to be called again.
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

    /// Looks at all for the last time.
    pub fn poll_last(&mut self) -> Result<(), Failure> {
        if let Some(outside) = &mut self.outside {
            outside.hurry();
            outside.withhold(Duration::ZERO);
        }
        if let Some(cgroup) = &mut self.cgroup {
            cgroup.hurry();
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

    /// Why connections are not watched from outside any more, once.
    pub fn lost(&mut self) -> Option<String> {
        self.lost.take()
    }

    /// No connection is watched any more.
    pub fn is_blind(&self) -> bool {
        self.table.is_none() && self.outside.is_none() && self.cgroup.is_none()
    }

    /// Who was to be watched has ended.
    pub fn has_ended(&self) -> bool {
        match (&self.outside, &self.cgroup) {
            (Some(outside), _) => outside.has_ended(),
            (None, Some(cgroup)) => cgroup.has_ended(),
            (None, None) => true,
        }
    }

    /// Why connections in other network namespaces are not seen, if there are such.
    pub fn closed(&self) -> impl Iterator<Item = &outside::Error> {
        self.cgroup.iter().flat_map(Cgroup::closed)
    }

    /// Processes whose connections cannot be known.
    pub fn denied(&self) -> &[u32] {
        self.outside.as_ref().map_or(&[], Outside::denied)
    }

    /// The connections as they are now, each with what it had counted the last time.
    pub fn take(&mut self) -> Vec<Socket> {
        let mut accounts: Vec<Account> = Vec::new();
        if let Some(table) = &mut self.table {
            let Ok::<_, Infallible>(()) = table.visit(&mut |account| accounts.push(*account));
        }
        if let Some(outside) = &mut self.outside {
            outside.leave(accounts.iter().map(|account| account.cookie));
            let Ok::<_, Infallible>(()) = outside.visit(&mut |account| accounts.push(*account));
        }
        if let Some(cgroup) = &mut self.cgroup {
            let Ok::<_, Infallible>(()) = cgroup.visit(&mut |account| accounts.push(*account));
        }
        let sockets = accounts.into_iter().map(|account| self.compare(account));
        sockets.collect()
    }

    fn compare(&mut self, account: Account) -> Socket {
        let before = match account.ended {
            true => self.seen.remove(&account.cookie),
            false => self.seen.insert(account.cookie, Seen::new(&account)),
        };
        let before = match before {
            Some(seen) if seen.way == account.way => seen.counts,
            Some(seen) => seen.counts_of_another_way(&account),
            None => counts_before_the_first(&account),
        };
        Socket { account, before }
    }
}

impl Seen {
    fn new(account: &Account) -> Seen {
        let info = &account.reading.info;
        Seen {
            way: account.way,
            counts: SocketCounts::from(account),
            lifetime: (info.bytes_acked, info.bytes_received),
        }
    }

    /// Who begins to watch begins to count, and what the kernel counts goes on. What was told is not told again.
    fn counts_of_another_way(&self, account: &Account) -> SocketCounts {
        let info = &account.reading.info;
        let told = |counted: u64, now: Option<u64>, then: Option<u64>| match (now, then) {
            (Some(now), Some(then)) => counted.saturating_sub(now.saturating_sub(then)),
            _ => 0,
        };
        let (acked, received) = self.lifetime;
        SocketCounts {
            totals: Totals {
                acked_bytes: told(account.totals.acked_bytes, info.bytes_acked, acked),
                received_bytes: told(account.totals.received_bytes, info.bytes_received, received),
                ..Totals::default()
            },
            ..self.counts
        }
    }
}

/// What the kernel has counted before anybody watched is of no interval.
fn counts_before_the_first(account: &Account) -> SocketCounts {
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

/// How to look from outside.
pub fn config(args: &super::Args, is_inside_too: bool) -> outside::Config {
    let defaults = outside::Config::default();
    outside::Config {
        poll: args.poll,
        // Then there is seldom anything to find.
        discovery: defaults.discovery * if is_inside_too { 5 } else { 1 },
        estimator: args.estimator(),
        ..defaults
    }
}

#[cfg(test)]
mod tests {
    use dwell_engine::{
        layers::Ends,
        measure::Endpoint,
        socket::{Estimator, Observed, Peaks, Reading, TcpInfo, control::Setting},
    };

    use super::*;

    /// Of a connection that has sent `lifetime` bytes, `watched` of them while somebody watched.
    fn account(way: Way, lifetime: u64, watched: u64, retransmissions: u32) -> Account {
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
            way,
            estimator: Estimator::Exact,
            reading: Reading { time_ns: 1, info, ..Reading::default() },
            observed: Observed::default(),
            peaks: Peaks::default(),
            waiting_ns: None,
            totals: Totals { acked_bytes: watched, ..Totals::default() },
            setting: Setting::default(),
            ended: false,
        }
    }

    fn told(watcher: &mut Watcher, account: Account) -> (Option<u64>, u32, Option<u32>) {
        let socket = watcher.compare(account);
        let (again, late) = (socket.retransmissions(), socket.out_of_order());
        (socket.acked_bytes(), again, late)
    }

    fn watcher() -> Watcher {
        Watcher::new(None, None, Duration::from_millis(10))
    }

    #[test]
    fn what_was_sent_again_before_anybody_watched_is_not_of_an_interval() {
        let mut watcher = watcher();
        let first = told(&mut watcher, account(Way::Outside, 9_000, 1_000, 5));
        assert_eq!(first, (Some(1_000), 0, Some(0)));
        let second = told(&mut watcher, account(Way::Outside, 9_500, 1_500, 6));
        assert_eq!(second, (Some(500), 1, Some(2)));
    }

    #[test]
    fn of_a_connection_that_was_watched_from_its_begin_all_is_told() {
        let first = told(&mut watcher(), account(Way::Inside, 9_000, 9_000, 5));
        assert_eq!(first, (Some(9_000), 5, Some(10)));
    }

    #[test]
    fn another_way_tells_nothing_twice() {
        let mut watcher = watcher();
        told(&mut watcher, account(Way::Outside, 9_000, 9_000, 5));
        let other = told(&mut watcher, account(Way::Inside, 9_500, 9_500, 6));
        assert_eq!(other, (Some(500), 1, Some(2)));
        let later = told(&mut watcher, account(Way::Outside, 9_700, 100, 6));
        assert_eq!(later, (Some(100), 0, Some(0)));
    }
}
