//! One socket of the process.

use dwell_engine::socket::{
    Account, Calls, Estimator, Meter, Observed, Peaks, Reading, Rhythm, Sum, TcpInfo, Totals,
    control::{Setting, State},
};

use super::adjust::Adjuster;
use crate::{
    sys::{self, Errno},
    table::{Claim, Count, Orders, Poller, Seat, Writer, blank},
};

/// A socket that is known.
pub struct Entry {
    pub cookie: u64,
    pub fd: i32,
    /// When it is to be looked at next.
    pub due_ns: u64,
    phase: Phase,
    /// Looks since anything changed.
    quiet: u32,
    meter: Meter,
    rhythm: Rhythm,
    /// What an earlier process has counted.
    base: Totals,
    account: Account,
    adjuster: Adjuster,
    calls: Option<Calls>,
    /// The table has something of it.
    is_told: bool,
    /// Bytes that it wrote by calls that were seen.
    called_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// This process writes its slot.
    Ours(Seat),
    /// Another process has it too, and writes the slot; or there is none.
    Theirs(Option<Seat>),
    /// Its descriptor is another's now. It may have another one.
    Lost,
}

impl Phase {
    fn of(claim: Claim) -> Phase {
        match claim {
            Claim::Mine(seat) => Phase::Ours(seat),
            Claim::Others(seat) => Phase::Theirs(Some(seat)),
            Claim::Full => Phase::Theirs(None),
        }
    }
}

/// How a connection came to be watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begun {
    /// It was there before: nobody knows what it has written.
    Before,
    /// It was just accepted.
    Accepted,
    /// It was just asked for at the other end.
    Dialed,
}

/// What all looks share.
#[derive(Clone, Copy)]
pub struct Means<'a> {
    pub table: &'a Writer,
    pub orders: &'a Orders,
    pub me: Poller,
}

/// What became of a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It was looked at, or is not to be now.
    Kept,
    /// The descriptor is another's.
    Lost,
}

/// What a look takes at most where nothing comes between.
const INTERRUPTED_NS: u64 = 500_000;

/// Looks without a change after which it is looked at less often, and how much less.
const QUIET: [(u32, u64); 2] = [(500, 16), (10, 4)];

/// And never less often than this, or than is asked for.
const LONGEST_PAUSE_NS: u64 = 500_000_000;

/// States of a socket, as TCP_INFO has them.
const SYN_SENT: u8 = 2;
const CLOSE: u8 = 7;
const LISTEN: u8 = 10;

impl Entry {
    /// Of a connection that is open at `fd`, if it is one, and the table has a place.
    pub fn open(cookie: u64, fd: i32, begun: Begun, means: Means<'_>, now_ns: u64) -> New {
        let Ok(info) = sys::info(fd) else {
            return New::NotOne;
        };
        if matches!(info.state, LISTEN | CLOSE) || sys::cookie(fd) != Ok(cookie) {
            return New::NotOne;
        }
        let (phase, before) = match means.table.claim(cookie, means.me, now_ns) {
            Claim::Full => return New::NoPlace,
            Claim::Others(seat) => (Phase::Theirs(Some(seat)), None),
            Claim::Mine(seat) => (Phase::Ours(seat), means.table.last(seat, cookie)),
        };
        // What is being made has written nothing, whoever began to make it.
        let begun = if info.state == SYN_SENT { Begun::Dialed } else { begun };
        let mut account = blank();
        account.cookie = cookie;
        account.estimator = means.orders.estimator;
        let written = info.bytes_acked.unwrap_or_default() + sys::unacknowledged(fd).unwrap_or(0);
        let mut entry = Entry {
            cookie,
            fd,
            due_ns: now_ns,
            phase,
            quiet: 0,
            meter: Meter::new(means.orders.estimator),
            rhythm: Rhythm::default(),
            base: Totals::default(),
            account,
            adjuster: Adjuster::new(fd, means.orders, means.table),
            is_told: before.is_some(),
            calls: (means.orders.estimator == Estimator::Paper).then(Calls::default),
            called_bytes: if begun == Begun::Before { written } else { 0 },
        };
        match &before {
            Some(last) => entry.continue_from(last),
            None => {
                entry.begin_again(Totals::default());
                entry.begin_at(now_ns.saturating_sub(means.orders.poll_ns), begun, &info);
            }
        }
        New::Entry(entry)
    }

    /// Looks at it. `decide` is told of it, and may want something.
    pub fn look(
        &mut self,
        means: Means<'_>,
        now_ns: u64,
        decide: &mut dyn FnMut(&Account, &State<'_>) -> Option<Setting>,
    ) -> Outcome {
        match self.phase {
            Phase::Lost => return Outcome::Kept,
            Phase::Theirs(seat) => return self.watch_theirs(seat, means, now_ns),
            Phase::Ours(_) => {}
        }
        let Ok(reading) = self.read() else {
            return self.lose(means, now_ns);
        };
        if reading.info.bytes_sent < self.account.reading.info.bytes_sent {
            // It was disconnected, and connected again, maybe to another end.
            let last_ns = self.account.reading.time_ns;
            self.begin_again(self.account.totals);
            self.begin_at(last_ns, Begun::Dialed, &reading.info);
            self.account.ends = blank().ends;
        }
        let observed = self.meter.observe_calls(&reading, self.calls.as_mut());
        self.rhythm.observe(reading.time_ns, &observed);
        let waiting_ns = self.meter.waiting_ns(reading.time_ns);
        let state = State { reading: &reading, delay: observed.sender, waiting_ns };
        self.settle(&reading, observed, waiting_ns, means);
        let asked = decide(&self.account, &state);
        self.adjuster.step(self.fd, &state, asked, means.table);
        self.account.setting = self.adjuster.setting();
        self.publish(means, now_ns);
        self.due_ns = now_ns + self.pause_ns(now_ns, means.orders);
        Outcome::Kept
    }

    /// A descriptor that is this socket's, after the one that it had was lost.
    pub fn find_again(&mut self, fd: i32, means: Means<'_>, now_ns: u64) {
        self.fd = fd;
        self.quiet = 0;
        self.due_ns = now_ns;
        let claim = means.table.claim(self.cookie, means.me, now_ns);
        self.phase = Phase::of(claim);
        // Another process may have had it meanwhile.
        if let Claim::Mine(seat) = claim
            && let Some(last) = means.table.last(seat, self.cookie)
        {
            self.adjuster.resume(last.setting);
        }
    }

    /// True if its descriptor is another's now.
    pub fn is_lost(&self) -> bool {
        self.phase == Phase::Lost
    }

    /// It is not watched any more.
    pub fn let_go(&mut self, means: Means<'_>, now_ns: u64) {
        if let Phase::Ours(seat) = self.phase {
            if self.is_told {
                means.table.let_go(seat, self.cookie, means.me, now_ns);
            } else {
                means.table.free(seat, self.cookie, means.me);
                means.table.count(Count::TooShort);
            }
        }
        self.phase = Phase::Lost;
    }

    /// The program wrote `bytes` in a call that began at `time_ns`.
    pub fn wrote(&mut self, time_ns: u64, bytes: u64) {
        self.called_bytes += bytes;
        if let Some(calls) = &mut self.calls {
            calls.wrote(time_ns, self.called_bytes);
        }
        self.quiet = 0;
        self.due_ns = 0;
    }

    fn read(&mut self) -> Result<Reading, Errno> {
        let mut time_ns = sys::monotonic_ns();
        let mut info = sys::info(self.fd)?;
        if sys::monotonic_ns().saturating_sub(time_ns) > INTERRUPTED_NS {
            // Another thread ran between the two.
            time_ns = sys::monotonic_ns();
            info = sys::info(self.fd)?;
        }
        let last = &self.account.reading;
        // Nothing came since all was read: nothing is there.
        let has_none = last.readable == Some(0)
            && last.info.bytes_received == info.bytes_received
            && info.bytes_received.is_some();
        let readable = if has_none { Some(0) } else { sys::readable(self.fd) };
        let is_counted = info.bytes_sent.is_some() && info.notsent_bytes.is_some();
        let unacknowledged =
            if is_counted && self.meter.estimator() == Estimator::Exact { None } else { sys::unacknowledged(self.fd) };
        if sys::cookie(self.fd)? != self.cookie {
            return Err(Errno(libc::EBADF));
        }
        Ok(Reading { time_ns, info, unacknowledged, readable })
    }

    fn settle(&mut self, reading: &Reading, observed: Observed, waiting_ns: Option<u64>, means: Means<'_>) {
        let account = &mut self.account;
        let totals = sum(&self.base, self.meter.totals());
        // Where bytes wait, it matters when they go on.
        let is_same = account.totals == totals
            && reading.readable.unwrap_or(0) == 0
            && reading.info.notsent_bytes.unwrap_or(0) == 0
            && account.reading.info.state == reading.info.state;
        self.quiet = if is_same { self.quiet.saturating_add(1) } else { 0 };
        if account.ends.dst.port == 0
            && let Some(ends) = sys::ends(self.fd)
        {
            account.ends = ends;
        }
        account.pid = Some(means.me.pid);
        account.fd = Some(self.fd);
        account.estimator = self.meter.estimator();
        account.reading = *reading;
        account.observed = Observed {
            sender: observed.sender.or(account.observed.sender),
            receiver: observed.receiver.or(account.observed.receiver),
        };
        account.peaks = Peaks {
            sender_ns: observed.sender.map(|delay| delay.ns),
            receiver_ns: observed.receiver.map(|delay| delay.ns),
        };
        account.waiting_ns = waiting_ns;
        account.totals = totals;
    }

    fn publish(&mut self, means: Means<'_>, now_ns: u64) {
        let Phase::Ours(seat) = self.phase else {
            return;
        };
        let is_connection =
            !matches!(self.account.reading.info.state, LISTEN | SYN_SENT) && self.account.ends.dst.port != 0;
        if !is_connection {
            return;
        }
        self.is_told = true;
        if !means.table.publish(seat, means.me, &self.account) {
            // dwell took this process for dead, as it was stopped for long.
            self.phase = Phase::of(means.table.claim(self.cookie, means.me, now_ns));
        }
    }

    fn watch_theirs(&mut self, seat: Option<Seat>, means: Means<'_>, now_ns: u64) -> Outcome {
        if sys::cookie(self.fd) != Ok(self.cookie) {
            return self.lose(means, now_ns);
        }
        self.quiet = self.quiet.saturating_add(1);
        self.due_ns = now_ns + self.pause_ns(now_ns, means.orders);
        let claim = match seat {
            Some(seat) => means.table.claim_again(seat, self.cookie, means.me, now_ns),
            None => means.table.claim(self.cookie, means.me, now_ns),
        };
        self.phase = Phase::of(claim);
        if let Claim::Mine(seat) = claim {
            self.quiet = 0;
            match means.table.last(seat, self.cookie) {
                Some(last) => self.continue_from(&last),
                None => self.begin_again(Totals::default()),
            }
        }
        Outcome::Kept
    }

    /// Goes on where another process has ended.
    fn continue_from(&mut self, last: &Account) {
        self.begin_again(last.totals);
        self.account.ends = last.ends;
        self.adjuster.resume(last.setting);
    }

    /// A connection that has just been made had written nothing at `time_ns`, whatever it has by the first look.
    fn begin_at(&mut self, time_ns: u64, begun: Begun, like: &TcpInfo) {
        if begun != Begun::Before {
            let unbegun = unbegun(time_ns, begun, like);
            self.meter.observe_calls(&unbegun, self.calls.as_mut());
        }
    }

    fn begin_again(&mut self, base: Totals) {
        self.meter = Meter::new(self.account.estimator);
        self.base = base;
        self.account.reading = Reading::default();
        self.account.totals = base;
    }

    fn lose(&mut self, means: Means<'_>, now_ns: u64) -> Outcome {
        self.let_go(means, now_ns);
        Outcome::Lost
    }

    fn pause_ns(&self, now_ns: u64, orders: &Orders) -> u64 {
        let less = QUIET.iter().find(|&&(looks, _)| self.quiet > looks);
        let pause_ns = self.rhythm.pause_ns(now_ns, orders.poll_ns);
        let pause_ns = pause_ns.saturating_mul(less.map_or(1, |&(_, less)| less));
        pause_ns.min(orders.poll_ns.max(LONGEST_PAUSE_NS))
    }
}

/// A connection before anything was written. What came before the first look came at times that nobody knows.
/// `like` is one of this kernel: what it does not count is not counted here.
fn unbegun(time_ns: u64, begun: Begun, like: &TcpInfo) -> Reading {
    let info = TcpInfo {
        // The kernel counts the SYN of the end that asked.
        bytes_acked: like.bytes_acked.map(|_| u64::from(begun == Begun::Dialed)),
        notsent_bytes: like.notsent_bytes.map(|_| 0),
        bytes_sent: like.bytes_sent.map(|_| 0),
        bytes_retransmitted: like.bytes_retransmitted.map(|_| 0),
        ..TcpInfo::default()
    };
    Reading { time_ns, info, unacknowledged: Some(0), readable: None }
}

/// What became of a descriptor that may be a connection.
#[expect(clippy::large_enum_variant, reason = "it is taken apart at once, and nothing here may allocate")]
pub enum New {
    Entry(Entry),
    NotOne,
    NoPlace,
}

fn sum(base: &Totals, own: &Totals) -> Totals {
    let add = |base: &Sum, own: &Sum| Sum {
        samples: base.samples.saturating_add(own.samples),
        bytes: base.bytes.saturating_add(own.bytes),
        ns_bytes: base.ns_bytes + own.ns_bytes,
    };
    Totals {
        sender: add(&base.sender, &own.sender),
        receiver: add(&base.receiver, &own.receiver),
        written_bytes: base.written_bytes.saturating_add(own.written_bytes),
        acked_bytes: base.acked_bytes.saturating_add(own.acked_bytes),
        received_bytes: base.received_bytes.saturating_add(own.received_bytes),
    }
}
