//! One socket of the process.

use dwell_engine::socket::{
    Account, Calls, Delays, Estimator, Meter, Peaks, PollPacer, Reading, TcpInfo, Totals,
    control::{Setting, State},
};

use super::{
    adjust::{Adjuster, set_congestion},
    stamps::CallEvent,
};
use crate::{
    sys::{self, Errno},
    table::{Claim, ControllerKind, Count, Poller, RawConfig, SlotIndex, Writer, blank},
};

/// A known socket.
pub struct Entry {
    pub cookie: u64,
    pub fd: i32,
    /// Time of the next poll.
    pub due_ns: u64,
    phase: Phase,
    /// Polls since the last change.
    quiet: u32,
    meter: Meter,
    rhythm: PollPacer,
    /// Totals that an earlier process counted.
    base: Totals,
    account: Account,
    adjuster: Adjuster,
    /// The intercepted calls, for the estimator `paper`.
    calls: Option<Calls>,
    /// True once the socket was published in the table.
    is_published: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// This process writes the socket's slot.
    Ours(SlotIndex),
    /// Another process has the socket too and writes the slot; or no slot is free.
    Theirs(Option<SlotIndex>),
    /// The descriptor now belongs to another file. The socket may have another descriptor.
    Lost,
}

impl Phase {
    fn of(claim: Claim) -> Phase {
        match claim {
            Claim::Mine(index) => Phase::Ours(index),
            Claim::Others(index) => Phase::Theirs(Some(index)),
            Claim::Full => Phase::Theirs(None),
        }
    }
}

/// How a connection came to be watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The connection existed before: how much it has written is unknown.
    Preexisting,
    /// This process has just accepted it.
    Accepted,
    /// This process has just initiated it.
    Initiated,
}

/// References that all polls need.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    pub table: &'a Writer,
    pub config: &'a RawConfig,
    pub me: Poller,
}

/// Result of a poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The socket was polled, or is not due.
    Kept,
    /// The descriptor belongs to another file.
    Lost,
}

/// Longest duration of a poll that is not interrupted.
const INTERRUPTED_NS: u64 = 500_000;

/// Number of polls without a change after which the pause grows, and the factor.
const QUIET: [(u32, u64); 2] = [(500, 16), (10, 4)];

/// Longest pause, unless the configured one is longer.
const LONGEST_PAUSE_NS: u64 = 500_000_000;

/// Socket states of TCP_INFO.
const SYN_SENT: u8 = 2;
const CLOSE: u8 = 7;
const LISTEN: u8 = 10;

impl Entry {
    /// Creates the entry for `fd`, if an open connection is there and the table has a free slot.
    pub fn open(cookie: u64, fd: i32, origin: Origin, context: Context<'_>, now_ns: u64) -> New {
        let Ok(info) = sys::info(fd) else {
            return New::NotOne;
        };
        if matches!(info.state, LISTEN | CLOSE) || sys::cookie(fd) != Ok(cookie) {
            return New::NotOne;
        }
        let (phase, before) = match context.table.claim(cookie, context.me, now_ns) {
            Claim::Full => return New::NoSlot,
            Claim::Others(index) => (Phase::Theirs(Some(index)), None),
            Claim::Mine(index) => (Phase::Ours(index), context.table.last(index, cookie)),
        };
        // A connection in its handshake has written nothing, whoever initiated it.
        let origin = if info.state == SYN_SENT { Origin::Initiated } else { origin };
        let mut account = blank();
        account.cookie = cookie;
        account.estimator = context.config.estimator;
        set_congestion(fd, context.config, context.table);
        let calls = match origin {
            Origin::Preexisting => calls_so_far(fd, &info),
            Origin::Accepted | Origin::Initiated => Calls::default(),
        };
        let mut entry = Entry {
            cookie,
            fd,
            due_ns: now_ns,
            phase,
            quiet: 0,
            meter: Meter::new(context.config.estimator),
            rhythm: PollPacer::default(),
            base: Totals::default(),
            account,
            adjuster: Adjuster::new(context.config),
            is_published: before.is_some(),
            calls: (context.config.estimator == Estimator::Paper).then_some(calls),
        };
        match &before {
            Some(last) => entry.continue_from(last),
            None => {
                entry.begin_again(Totals::default());
                entry.begin_at(now_ns.saturating_sub(context.config.poll_ns), origin, &info);
            }
        }
        New::Entry(entry)
    }

    /// Polls the socket. `decide` gets the result and may return a setting.
    pub fn poll(
        &mut self,
        context: Context<'_>,
        now_ns: u64,
        decide: &mut dyn FnMut(&Account, &State<'_>) -> Option<Setting>,
    ) -> Outcome {
        match self.phase {
            Phase::Lost => return Outcome::Kept,
            Phase::Theirs(index) => return self.poll_theirs(index, context, now_ns),
            Phase::Ours(_) => {}
        }
        let Ok(reading) = self.read() else {
            return self.lose(context, now_ns);
        };
        if reading.info.bytes_sent < self.account.reading.info.bytes_sent {
            self.restart(context, &reading.info, calls_so_far(self.fd, &reading.info));
        }
        let delays = self.meter.observe_calls(&reading, self.calls.as_mut());
        self.rhythm.observe(reading.time_ns, &delays);
        let waiting_ns = self.meter.waiting_ns(reading.time_ns);
        let is_element = context.config.controller == Some(ControllerKind::Element);
        let state = State {
            reading: &reading,
            delay: delays.sender,
            waiting_ns,
            average_ns: self.calls.as_ref().and_then(Calls::average_ns),
            send_buffer: if is_element { sys::send_buffer(self.fd).unwrap_or(0) } else { 0 },
        };
        self.settle(&reading, delays, waiting_ns, context);
        let requested = decide(&self.account, &state);
        self.adjuster.step(self.fd, &state, requested, context.table);
        self.account.setting = self.adjuster.setting();
        self.publish(context, now_ns);
        self.due_ns = now_ns + self.pause_ns(now_ns, context.config);
        Outcome::Kept
    }

    /// Assigns a descriptor to a socket that had lost its own.
    pub fn reattach(&mut self, fd: i32, context: Context<'_>, now_ns: u64) {
        self.fd = fd;
        self.quiet = 0;
        self.due_ns = now_ns;
        let claim = context.table.claim(self.cookie, context.me, now_ns);
        self.phase = Phase::of(claim);
        // Another process may have written the slot in between.
        if let Claim::Mine(index) = claim
            && let Some(last) = context.table.last(index, self.cookie)
        {
            self.adjuster.resume(last.setting);
        }
    }

    /// Returns true if the descriptor belongs to another file now.
    pub fn is_lost(&self) -> bool {
        self.phase == Phase::Lost
    }

    /// Stops watching the socket.
    pub fn stop(&mut self, context: Context<'_>, now_ns: u64) {
        if let Phase::Ours(index) = self.phase {
            if self.is_published {
                context.table.vacate(index, self.cookie, context.me, now_ns);
            } else {
                context.table.free(index, self.cookie, context.me);
                context.table.count(Count::TooShort);
            }
        }
        self.phase = Phase::Lost;
    }

    /// Records a call of the program.
    pub fn called(&mut self, time_ns: u64, event: CallEvent) {
        if let Some(calls) = &mut self.calls {
            match event {
                CallEvent::WriteBegins => calls.begin_write(time_ns),
                CallEvent::WriteEnds(bytes) => calls.end_write(bytes),
                CallEvent::Read(bytes) => calls.read(time_ns, bytes),
            }
        }
    }

    /// Forgets the connection that the socket was before: a hook has seen that the program connected it again.
    pub fn reconnected(&mut self, context: Context<'_>, now_ns: u64) {
        if let (Phase::Ours(_), Ok(info)) = (self.phase, sys::info(self.fd)) {
            self.restart(context, &info, Calls::default());
            self.quiet = 0;
            self.due_ns = now_ns;
        }
    }

    fn read(&mut self) -> Result<Reading, Errno> {
        let mut time_ns = sys::monotonic_ns();
        let mut info = sys::info(self.fd)?;
        if sys::monotonic_ns().saturating_sub(time_ns) > INTERRUPTED_NS {
            // Another thread ran between the two calls.
            time_ns = sys::monotonic_ns();
            info = sys::info(self.fd)?;
        }
        let last = &self.account.reading;
        // Nothing has arrived since everything was read, so nothing is readable.
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

    fn settle(&mut self, reading: &Reading, delays: Delays, waiting_ns: Option<u64>, context: Context<'_>) {
        let account = &mut self.account;
        let totals = sum(&self.base, self.meter.totals());
        // While bytes wait, the time when they move on matters.
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
        account.pid = Some(context.me.pid);
        account.fd = Some(self.fd);
        account.estimator = self.meter.estimator();
        account.reading = *reading;
        account.delays = Delays {
            sender: delays.sender.or(account.delays.sender),
            receiver: delays.receiver.or(account.delays.receiver),
        };
        account.peaks = Peaks {
            sender_ns: delays.sender.map(|delay| delay.ns),
            receiver_ns: delays.receiver.map(|delay| delay.ns),
        };
        account.waiting_ns = waiting_ns;
        account.totals = totals;
    }

    fn publish(&mut self, context: Context<'_>, now_ns: u64) {
        let Phase::Ours(index) = self.phase else {
            return;
        };
        let is_connection =
            !matches!(self.account.reading.info.state, LISTEN | SYN_SENT) && self.account.ends.dst.port != 0;
        if !is_connection {
            return;
        }
        self.is_published = true;
        if !context.table.publish(index, context.me, &self.account) {
            // dwell considered this process dead, because it was stopped for long.
            self.phase = Phase::of(context.table.claim(self.cookie, context.me, now_ns));
        }
    }

    fn poll_theirs(&mut self, index: Option<SlotIndex>, context: Context<'_>, now_ns: u64) -> Outcome {
        if sys::cookie(self.fd) != Ok(self.cookie) {
            return self.lose(context, now_ns);
        }
        self.quiet = self.quiet.saturating_add(1);
        self.due_ns = now_ns + self.pause_ns(now_ns, context.config);
        let claim = match index {
            Some(index) => context.table.reclaim(index, self.cookie, context.me, now_ns),
            None => context.table.claim(self.cookie, context.me, now_ns),
        };
        self.phase = Phase::of(claim);
        if let Claim::Mine(index) = claim {
            self.quiet = 0;
            match context.table.last(index, self.cookie) {
                Some(last) => self.continue_from(&last),
                None => self.begin_again(Totals::default()),
            }
        }
        Outcome::Kept
    }

    /// Continues from the last record of another process.
    fn continue_from(&mut self, last: &Account) {
        self.begin_again(last.totals);
        self.account.ends = last.ends;
        self.adjuster.resume(last.setting);
    }

    /// Starts a new connection, which had written nothing at `time_ns`, whatever it has written by the first poll.
    fn begin_at(&mut self, time_ns: u64, origin: Origin, like: &TcpInfo) {
        if origin != Origin::Preexisting {
            let before_first_byte = before_first_byte(time_ns, origin, like);
            self.meter.observe_calls(&before_first_byte, self.calls.as_mut());
        }
    }

    /// Starts anew after the program has disconnected the socket and connected it again, possibly to another end.
    fn restart(&mut self, context: Context<'_>, info: &TcpInfo, calls: Calls) {
        let last_ns = self.account.reading.time_ns;
        self.begin_again(self.account.totals);
        if let Some(before) = &mut self.calls {
            *before = calls;
        }
        self.adjuster.restart(context.config);
        self.begin_at(last_ns, Origin::Initiated, info);
        self.account.ends = blank().ends;
    }

    fn begin_again(&mut self, base: Totals) {
        self.meter = Meter::new(self.account.estimator);
        self.base = base;
        self.account.reading = Reading::default();
        self.account.totals = base;
    }

    fn lose(&mut self, context: Context<'_>, now_ns: u64) -> Outcome {
        self.stop(context, now_ns);
        Outcome::Lost
    }

    fn pause_ns(&self, now_ns: u64, config: &RawConfig) -> u64 {
        if self.calls.is_some() {
            // The paper's algorithms poll at a fixed period.
            return config.poll_ns;
        }
        let less = QUIET.iter().find(|&&(looks, _)| self.quiet > looks);
        let pause_ns = self.rhythm.pause_ns(now_ns, config.poll_ns);
        let pause_ns = pause_ns.saturating_mul(less.map_or(1, |&(_, less)| less));
        pause_ns.min(config.poll_ns.max(LONGEST_PAUSE_NS))
    }
}

/// Returns the reading of a new connection before it wrote anything. Times of bytes before the first poll are unknown.
/// `like` is a reading of this kernel: counters that it lacks are left out here too.
fn before_first_byte(time_ns: u64, origin: Origin, like: &TcpInfo) -> Reading {
    let info = TcpInfo {
        // The kernel counts the SYN of the initiating end.
        bytes_acked: like.bytes_acked.map(|_| u64::from(origin == Origin::Initiated)),
        notsent_bytes: like.notsent_bytes.map(|_| 0),
        bytes_sent: like.bytes_sent.map(|_| 0),
        bytes_retransmitted: like.bytes_retransmitted.map(|_| 0),
        busy_us: like.busy_us.map(|_| 0),
        ..TcpInfo::default()
    };
    Reading { time_ns, info, unacknowledged: Some(0), readable: None }
}

/// Returns the calls of a connection of which only the kernel's counts are known.
fn calls_so_far(fd: i32, info: &TcpInfo) -> Calls {
    let written = info.bytes_acked.unwrap_or_default() + sys::unacknowledged(fd).unwrap_or(0);
    let read = info.bytes_received.unwrap_or_default().saturating_sub(sys::readable(fd).unwrap_or(0));
    Calls::after(written, read)
}

/// Result of looking for a connection at a descriptor.
#[expect(clippy::large_enum_variant, reason = "it is taken apart at once, and nothing here may allocate")]
pub enum New {
    Entry(Entry),
    NotOne,
    NoSlot,
}

fn sum(base: &Totals, own: &Totals) -> Totals {
    Totals {
        sender: base.sender.plus(&own.sender),
        receiver: base.receiver.plus(&own.receiver),
        written_bytes: base.written_bytes.saturating_add(own.written_bytes),
        acked_bytes: base.acked_bytes.saturating_add(own.acked_bytes),
        received_bytes: base.received_bytes.saturating_add(own.received_bytes),
    }
}
