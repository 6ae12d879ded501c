//! Connections that are watched inside their process and from outside, as one list.

use std::{collections::HashMap, convert::Infallible, time::Duration};

use dwell_engine::socket::{Account, Way};
use dwell_records::{Socket, SocketCounts};
use dwell_socket::{
    Watch,
    outside::{self, Outside},
    table::Table,
};

use crate::{exit::Failure, source::monotonic_ns, tell::tell};

/// Looks from outside are at least so far apart in the loop.
const SHORTEST: Duration = Duration::from_millis(1);
/// And at most.
const LONGEST: Duration = Duration::from_millis(100);

/// All that is watched. A connection is in the table, or else is watched from outside.
pub struct Watcher {
    pub table: Option<Table>,
    pub outside: Option<Outside>,
    seen: HashMap<u64, (Way, SocketCounts)>,
}

impl Watcher {
    pub fn new(table: Option<Table>, outside: Option<Outside>) -> Watcher {
        Watcher {
            table,
            outside,
            seen: HashMap::new(),
        }
    }

    /// Looks at what is due. Returns after what time it wants to be called again.
    pub fn poll(&mut self) -> Result<Duration, Failure> {
        if let Some(table) = &self.table {
            table.share_out();
        }
        let Some(outside) = &mut self.outside else {
            return Ok(LONGEST);
        };
        match outside.poll() {
            Ok(due_ns) => {
                let left_ns = due_ns.saturating_sub(monotonic_ns()?);
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
        }
        self.poll().map(drop)
    }

    fn give_up(&mut self, error: &outside::Error) {
        self.outside = None;
        let left = match self.table {
            Some(_) => "only connections of programs with libdwell are watched from here on",
            None => "no connection is watched from here on",
        };
        tell(format_args!("{error}; {left}"));
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
        let sockets = accounts.into_iter().map(|account| self.compare(account));
        sockets.collect()
    }

    fn compare(&mut self, account: Account) -> Socket {
        let now = (account.way, SocketCounts::from(&account));
        let before = match account.ended {
            true => self.seen.remove(&account.cookie),
            false => self.seen.insert(account.cookie, now),
        };
        // Who begins to watch begins to count.
        let before = before.filter(|(way, _)| *way == account.way);
        Socket {
            account,
            before: before.map(|(_, counts)| counts).unwrap_or_default(),
        }
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
