//! Connections of `dwell run`: in an interval, and in a run.

use std::{
    cmp::Reverse,
    collections::{HashMap, HashSet},
};

use dwell_engine::socket::{Account, Sum, Totals};

/// A finished interval of `dwell run`.
#[derive(Debug, Clone, Copy)]
pub struct Sockets<'a> {
    /// Its end on the source's clock.
    pub end_ns: u64,
    /// Its length.
    pub length_ns: u64,
    /// The connections.
    pub sockets: &'a [Socket],
    /// Which of them have a line of their own.
    pub order: SocketOrder,
    /// Whether times in text have tenths of seconds, because a second has more than one interval.
    pub has_tenths: bool,
}

/// Which connections come first, and how many of them have a line of their own.
#[derive(Debug, Clone, Copy, Default)]
pub struct SocketOrder {
    /// What they are sorted by, the largest first.
    pub by: SocketFigure,
    /// How many have a line; `None` for all in JSON Lines, and as many as a screen has room for in text.
    pub top: Option<usize>,
}

/// A figure of a connection, in an interval or in the whole run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SocketFigure {
    /// The bytes of both directions.
    #[default]
    Bytes,
    /// The number of polls that showed a wait in the send buffer.
    Count,
    /// The mean wait in the send buffer.
    Mean,
    /// The longest wait in the send buffer.
    Max,
}

impl SocketFigure {
    /// All figures.
    pub const ALL: [SocketFigure; 4] =
        [SocketFigure::Bytes, SocketFigure::Count, SocketFigure::Mean, SocketFigure::Max];

    /// Returns the name in options.
    pub fn name(self) -> &'static str {
        match self {
            SocketFigure::Bytes => "bytes",
            SocketFigure::Count => "count",
            SocketFigure::Mean => "mean",
            SocketFigure::Max => "max",
        }
    }

    /// Returns the figure of what is known of a connection; `None` where it is unknown.
    fn of(self, bytes: u64, sender: &Sum, max_ns: Option<u64>) -> Option<u64> {
        match self {
            SocketFigure::Bytes => Some(bytes),
            SocketFigure::Count => Some(sender.samples),
            SocketFigure::Mean => sender.mean_ns(),
            SocketFigure::Max => max_ns,
        }
    }
}

impl Sockets<'_> {
    /// Returns the shown connections in order: those that have a line, at most `order.top` or else `top` of them, and the
    /// rest.
    pub(crate) fn ordered(&self, is_shown: impl Fn(&Socket) -> bool, top: usize) -> (Vec<&Socket>, Vec<&Socket>) {
        let mut sockets: Vec<_> = self.sockets.iter().filter(|socket| is_shown(socket)).collect();
        sockets.sort_by_cached_key(|socket| {
            let figure = self.order.by.of(socket.bytes(), &socket.sender(), socket.account.peaks.sender_ns);
            (Reverse(figure), socket.account.cookie)
        });
        let rest = sockets.split_off(self.order.top.unwrap_or(top).min(sockets.len()));
        (sockets, rest)
    }
}

/// A connection in an interval.
#[derive(Debug, Clone, Copy)]
pub struct Socket {
    /// Its state at the end of the interval.
    pub account: Account,
    /// Its counts at the start of the interval.
    pub before: SocketCounts,
}

/// The counts of a connection.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct SocketCounts {
    /// Bytes, and how long they waited.
    pub totals: Totals,
    /// Retransmitted segments.
    pub retransmissions: u32,
    /// Segments that arrived out of order, where the kernel counts them.
    pub out_of_order: Option<u32>,
}

impl From<&Account> for SocketCounts {
    fn from(account: &Account) -> SocketCounts {
        SocketCounts {
            totals: account.totals,
            retransmissions: account.reading.info.retransmissions,
            out_of_order: account.reading.info.out_of_order,
        }
    }
}

impl Socket {
    /// Returns how long bytes that left in the interval had waited in the send buffer.
    pub fn sender(&self) -> Sum {
        self.account.totals.sender.since(&self.before.totals.sender)
    }

    /// Returns how long bytes that were read in the interval had waited in the receive buffer.
    pub fn receiver(&self) -> Sum {
        let receiver = &self.account.totals.receiver;
        receiver.since(&self.before.totals.receiver)
    }

    /// Returns the bytes acknowledged in the interval; `None` if the kernel does not count them.
    pub fn acked_bytes(&self) -> Option<u64> {
        self.account.reading.info.bytes_acked?;
        let acked = self.account.totals.acked_bytes;
        Some(acked.saturating_sub(self.before.totals.acked_bytes))
    }

    /// Returns the bytes received in order in the interval; `None` if the kernel does not count them.
    pub fn received_bytes(&self) -> Option<u64> {
        self.account.reading.info.bytes_received?;
        let received = self.account.totals.received_bytes;
        Some(received.saturating_sub(self.before.totals.received_bytes))
    }

    /// Returns the segments retransmitted in the interval.
    pub fn retransmissions(&self) -> u32 {
        let total = self.account.reading.info.retransmissions;
        total.saturating_sub(self.before.retransmissions)
    }

    /// Returns the segments that arrived out of order in the interval; `None` if the kernel does not count them.
    pub fn out_of_order(&self) -> Option<u32> {
        let total = self.account.reading.info.out_of_order?;
        Some(total.saturating_sub(self.before.out_of_order.unwrap_or(0)))
    }

    /// Returns the smoothed round-trip time, once there is one.
    pub fn rtt_ns(&self) -> Option<u64> {
        let rtt_us = self.account.reading.info.rtt_us;
        (rtt_us > 0).then(|| u64::from(rtt_us) * 1_000)
    }

    /// Returns the minimum round-trip time that the kernel keeps.
    pub fn min_rtt_ns(&self) -> Option<u64> {
        let rtt_us = self.account.reading.info.min_rtt_us;
        rtt_us.map(|rtt_us| u64::from(rtt_us) * 1_000)
    }

    /// Returns the slow-start threshold in segments, after a first loss.
    pub fn ssthresh(&self) -> Option<u32> {
        const INFINITE: u32 = 0x7fff_ffff;
        Some(self.account.reading.info.ssthresh).filter(|segments| (1..INFINITE).contains(segments))
    }

    /// Returns the congestion window in segments.
    pub fn cwnd(&self) -> Option<u32> {
        Some(self.account.reading.info.cwnd).filter(|&segments| segments > 0)
    }

    /// Returns true if bytes were transferred or are waiting.
    pub fn is_active(&self) -> bool {
        self.bytes() > 0 || self.sender().bytes > 0 || self.account.waiting_ns.is_some()
    }

    /// Returns the bytes of both directions.
    pub fn bytes(&self) -> u64 {
        let (acked, received) = (self.acked_bytes(), self.received_bytes());
        acked.unwrap_or(0).saturating_add(received.unwrap_or(0))
    }
}

/// Converts bytes in a time to bits per second.
pub(crate) fn rate_bps(bytes: u64, length_ns: u64) -> Option<u64> {
    let bits = u128::from(bytes) * 8 * 1_000_000_000;
    bits.checked_div(u128::from(length_ns)).map(|bps| u64::try_from(bps).unwrap_or(u64::MAX))
}

/// The end of `dwell run`.
#[derive(Debug, Clone, Copy)]
pub struct SocketEnd<'a> {
    /// The time on the source's clock.
    pub end_ns: u64,
    /// The connections of the run.
    pub summary: &'a SocketSummary,
    /// Which of them have a line of their own.
    pub order: SocketOrder,
    /// How waits in the send buffer could be shortened; `None` if the run does so already.
    pub remedy: Option<&'a str>,
    /// Whether connections were polled from outside only.
    pub is_outside: bool,
    /// Time between two polls of a connection. Shorter waits are not known well enough for a judgement.
    pub look_ns: u64,
}

/// Collects the connections of a run in bounded memory.
#[derive(Debug, Clone)]
pub struct SocketSummary {
    limit: usize,
    lines: HashMap<u64, SocketLine>,
    /// Number of lines whose connection has ended.
    ended: usize,
    /// Cookies of open connections beyond the limit.
    beyond: HashSet<u64>,
    /// Number of connections without a line, or whose line was dropped.
    other: u64,
    all: SocketTotal,
}

/// A connection in a run.
#[derive(Debug, Clone, Copy)]
pub struct SocketLine {
    /// Its last known state.
    pub last: Account,
    /// The time of that state on the source's clock.
    pub end_ns: u64,
    /// Its totals.
    pub total: SocketTotal,
}

/// The totals of one connection or of all.
#[derive(Debug, Clone, Copy, Default)]
pub struct SocketTotal {
    /// How long it was watched.
    pub length_ns: u64,
    /// How long bytes that left had waited in the send buffer.
    pub sender: Sum,
    /// The longest wait in the send buffer.
    pub sender_max_ns: Option<u64>,
    /// How long bytes that were read had waited in the receive buffer.
    pub receiver: Sum,
    /// The longest wait in the receive buffer.
    pub receiver_max_ns: Option<u64>,
    /// Smoothed round-trip times, weighted by the bytes transferred at each.
    pub network: Sum,
    /// Acknowledged bytes.
    pub acked_bytes: Option<u64>,
    /// Bytes received in order.
    pub received_bytes: Option<u64>,
    /// Retransmitted segments.
    pub retransmissions: u64,
    /// Segments that arrived out of order.
    pub out_of_order: Option<u64>,
}

/// Shares of the time of a byte, which add up to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shares {
    /// In the send buffer of this host.
    pub sender: f64,
    /// In one direction of the network: half of the round trip.
    pub network: f64,
    /// In the receive buffer of this host.
    pub receiver: f64,
    /// The whole time.
    pub whole_ns: u64,
}

impl SocketSummary {
    /// Creates a summary that keeps at most `limit` connections apart, at about 600 bytes each. Beyond that, ended
    /// connections with the fewest bytes make room.
    pub fn new(limit: usize) -> SocketSummary {
        SocketSummary {
            limit,
            lines: HashMap::new(),
            ended: 0,
            beyond: HashSet::new(),
            other: 0,
            all: SocketTotal::default(),
        }
    }

    /// Adds an interval that ended at `end_ns`.
    pub fn add(&mut self, end_ns: u64, length_ns: u64, socket: &Socket) {
        self.all.add(0, socket);
        let cookie = socket.account.cookie;
        if let Some(line) = self.lines.get_mut(&cookie) {
            line.last = socket.account;
            line.end_ns = end_ns;
            line.total.add(length_ns, socket);
        } else if self.has_room(cookie) {
            let mut total = SocketTotal::default();
            total.add(length_ns, socket);
            self.lines.insert(cookie, SocketLine { last: socket.account, end_ns, total });
        } else {
            self.other += u64::from(self.beyond.insert(cookie));
            if socket.account.ended {
                self.beyond.remove(&cookie);
            }
            return;
        }
        self.ended += usize::from(socket.account.ended);
    }

    fn has_room(&mut self, cookie: u64) -> bool {
        if self.beyond.contains(&cookie) {
            return false;
        }
        // Dropping scans all lines, so it is not done for each connection.
        if self.lines.len() >= self.limit && self.ended > self.limit / 4 {
            self.drop_some();
        }
        self.lines.len() < self.limit
    }

    /// Drops half of the ended connections, those with the fewest bytes.
    fn drop_some(&mut self) {
        let ended = self.lines.iter().filter(|(_, line)| line.last.ended);
        let mut ended: Vec<_> = ended.map(|(&it, line)| (line.total.bytes(), it)).collect();
        ended.sort_unstable();
        let dropped = ended.len().div_ceil(2);
        for (_, cookie) in &ended[..dropped] {
            self.lines.remove(cookie);
        }
        self.ended = ended.len() - dropped;
        self.other += dropped as u64;
    }

    /// Sets the length of the run.
    pub fn set_length(&mut self, length_ns: u64) {
        self.all.length_ns = length_ns;
    }

    /// Returns the connections that are kept apart, in order: at most `order.top`, or else `top` of them.
    pub fn lines(&self, order: SocketOrder, top: usize) -> Vec<&SocketLine> {
        let mut lines: Vec<_> = self.lines.values().collect();
        lines.sort_unstable_by_key(|line| {
            let total = &line.total;
            (Reverse(order.by.of(total.bytes(), &total.sender, total.sender_max_ns)), line.last.cookie)
        });
        lines.truncate(order.top.unwrap_or(top));
        lines
    }

    /// Returns the totals of all connections.
    pub fn all(&self) -> &SocketTotal {
        &self.all
    }

    /// Returns the number of connections.
    pub fn connections(&self) -> u64 {
        self.lines.len() as u64 + self.other
    }

    /// Returns the number of connections without a line.
    pub fn untold(&self) -> u64 {
        self.other
    }
}

impl SocketTotal {
    fn add(&mut self, length_ns: u64, socket: &Socket) {
        let (sender, receiver) = (socket.sender(), socket.receiver());
        let peaks = &socket.account.peaks;
        self.length_ns = self.length_ns.saturating_add(length_ns);
        join(&mut self.sender, &sender);
        join(&mut self.receiver, &receiver);
        self.sender_max_ns = self.sender_max_ns.max(peaks.sender_ns);
        self.receiver_max_ns = self.receiver_max_ns.max(peaks.receiver_ns);
        if let Some(rtt_ns) = socket.rtt_ns() {
            let bytes = socket.bytes();
            let network = Sum { samples: 1, bytes, ns_bytes: rtt_ns as f64 * bytes as f64 };
            join(&mut self.network, &network);
        }
        add(&mut self.acked_bytes, socket.acked_bytes());
        add(&mut self.received_bytes, socket.received_bytes());
        add(&mut self.out_of_order, socket.out_of_order().map(u64::from));
        self.retransmissions += u64::from(socket.retransmissions());
    }

    /// Returns the bytes of both directions.
    pub fn bytes(&self) -> u64 {
        let (acked, received) = (self.acked_bytes, self.received_bytes);
        acked.unwrap_or(0).saturating_add(received.unwrap_or(0))
    }

    /// Returns the shares of the time of bytes, both directions together; `None` without bytes, or if it is unknown of most of them how
    /// long they waited in this host.
    pub fn shares(&self) -> Option<Shares> {
        let network = self.network.ns_bytes / 2.0;
        let whole = self.sender.ns_bytes + network + self.receiver.ns_bytes;
        let bytes = self.bytes();
        let known = self.sender.bytes.saturating_add(self.receiver.bytes);
        (bytes > 0 && whole > 0.0 && known >= bytes / 2).then(|| Shares {
            sender: self.sender.ns_bytes / whole,
            network: network / whole,
            receiver: self.receiver.ns_bytes / whole,
            whole_ns: (whole / bytes as f64) as u64,
        })
    }
}

fn join(to: &mut Sum, more: &Sum) {
    to.samples = to.samples.saturating_add(more.samples);
    to.bytes = to.bytes.saturating_add(more.bytes);
    to.ns_bytes += more.ns_bytes;
}

/// Adds a count; an unknown one adds nothing.
fn add(to: &mut Option<u64>, more: Option<u64>) {
    if let Some(more) = more {
        *to = Some(to.unwrap_or(0).saturating_add(more));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::samples::{socket, socket_idle};

    #[test]
    fn a_wait_that_is_unknown_is_no_share_of_nothing() {
        let mut unknown = socket();
        unknown.account.totals.sender = Sum::default();
        let mut summary = SocketSummary::new(10);
        summary.add(1_000_000_000, 1_000_000_000, &unknown);
        assert!(summary.all().bytes() > 0 && summary.all().shares().is_none());
    }

    #[test]
    fn the_time_of_bytes_is_shared_by_the_places_where_they_are() {
        let mut summary = SocketSummary::new(10);
        summary.add(1_000_000_000, 1_000_000_000, &socket());
        let shares = summary.all().shares().unwrap();
        // 600 ms in the send buffer, half of 380 ms on the way.
        assert_eq!(shares.whole_ns, 790_000_000);
        assert!((shares.sender - 600.0 / 790.0).abs() < 1e-9, "{shares:?}");
        assert!((shares.network - 190.0 / 790.0).abs() < 1e-9, "{shares:?}");
        assert_eq!(shares.receiver, 0.0);
    }

    #[test]
    fn without_bytes_nobody_knows_where_time_goes() {
        let mut summary = SocketSummary::new(10);
        assert_eq!(summary.all().shares(), None);
        summary.add(1_000_000_000, 1_000_000_000, &socket_idle());
        assert_eq!(summary.all().shares(), None);
        assert!(!socket_idle().is_active() && socket().is_active());
    }

    #[test]
    fn a_connection_beyond_the_limit_is_counted_once_in_the_whole() {
        let mut summary = SocketSummary::new(2);
        for round in 0..3 {
            for cookie in 1..=5 {
                let mut socket = socket();
                socket.account.cookie = cookie;
                socket.account.ended = round == 2;
                summary.add(1_000_000_000, 1_000_000_000, &socket);
            }
        }
        assert_eq!(summary.lines(SocketOrder::default(), 9).len(), 2);
        assert_eq!((summary.connections(), summary.untold()), (5, 3));
        assert_eq!(summary.all().acked_bytes, Some(15 * 1_200_000));
    }

    #[test]
    fn the_busiest_keep_their_lines() {
        let mut summary = SocketSummary::new(8);
        for cookie in 1..=100 {
            let mut socket = socket();
            socket.account.cookie = cookie;
            socket.account.totals.acked_bytes = if cookie == 3 { 1 << 30 } else { cookie };
            socket.account.ended = true;
            summary.add(1_000_000_000, 1_000_000_000, &socket);
        }
        let lines: Vec<u64> = summary.lines(SocketOrder::default(), 9).iter().map(|line| line.last.cookie).collect();
        assert_eq!((lines[0], lines[1]), (3, 100), "{lines:?}");
        assert_eq!(summary.connections(), 100);
    }

    #[test]
    fn lines_are_sorted_by_a_figure_and_cut() {
        let mut summary = SocketSummary::new(8);
        for (cookie, bytes, max_ns) in [(1, 300, Some(5)), (2, 200, None), (3, 100, Some(50))] {
            let mut socket = socket();
            socket.account.cookie = cookie;
            socket.account.totals.acked_bytes = bytes;
            socket.account.peaks.sender_ns = max_ns;
            summary.add(1_000_000_000, 1_000_000_000, &socket);
        }
        let cookies = |by, top| -> Vec<u64> {
            summary.lines(SocketOrder { by, top }, 9).iter().map(|line| line.last.cookie).collect()
        };
        assert_eq!(cookies(SocketFigure::Bytes, None), [1, 2, 3]);
        assert_eq!(cookies(SocketFigure::Max, None), [3, 1, 2], "what is unknown comes last");
        assert_eq!(cookies(SocketFigure::Max, Some(1)), [3]);
    }

    #[test]
    fn what_was_counted_before_the_interval_is_not_of_it() {
        let mut socket = socket();
        socket.before = SocketCounts::from(&socket.account);
        assert_eq!((socket.bytes(), socket.retransmissions()), (0, 0));
        assert_eq!(socket.sender().mean_ns(), None);
    }
}
