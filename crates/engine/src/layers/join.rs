//! The same byte on two hosts: its passage down the one joined with its passage up
//! the other, as they come in.
//!
//! Each passage is looked at once. How many wait for their other half is bounded, by
//! number and by time, and what did not find it is counted. Nothing here depends on
//! when it is called, only on the times that it is told: the same passages in the
//! same order give the same paths.

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::{Direction, Ends, Layer, Leg, Passage, Segment};
use crate::histogram::Histogram;

/// How long to wait, and for how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Length of the intervals in which paths are told.
    pub window_ns: u64,
    /// A half waits so long at most for the other.
    pub wait_ns: u64,
    /// So long after both halves are there, a byte is taken to be told in full: until
    /// then the sender may tell that TCP sent it again.
    pub settle_ns: u64,
    /// Bytes that may wait at once, at some 300 bytes of memory each.
    pub halves: usize,
    /// Times between hosts that may be wrong by more than this are counted as doubtful.
    pub doubt_ns: u64,
    /// Flows that are told by themselves in an interval; of others only the sums are.
    pub flows: usize,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            window_ns: 1_000_000_000,
            wait_ns: 30_000_000_000,
            settle_ns: 1_000_000_000,
            halves: 1 << 18,
            doubt_ns: u64::MAX,
            flows: 1 << 12,
        }
    }
}

impl Config {
    /// When the interval ends that holds this time.
    pub fn next_end(&self, time_ns: u64) -> u64 {
        (time_ns / self.window_ns + 1) * self.window_ns
    }
}

/// A passage, with what is to be known to compare it with one of another host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Half {
    /// A number for the host.
    pub host: u32,
    /// What was seen there.
    pub passage: Passage,
    /// When the byte was at this host's driver, on the common clock.
    pub edge_ns: u64,
    /// By how much that may be wrong.
    pub bound_ns: u64,
    /// When it was told, on the common clock.
    pub arrived_ns: u64,
}

impl Half {
    /// The passage's stamp that `edge_ns` is of: where it left the host, or came in.
    /// `None` if it has none.
    pub fn edge_of(passage: &Passage) -> Option<u64> {
        passage.stamp_ns(match passage.direction {
            Direction::Tx => Layer::TxDriver,
            Direction::Rx => Layer::RxDriver,
        })
    }
}

/// Whose way a path is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PathKey {
    /// Who sent.
    pub tx_host: u32,
    /// Who received.
    pub rx_host: u32,
    /// One direction of a connection; `None`: all.
    pub flow: Option<Ends>,
    /// Of bytes that TCP sent more than once, or that came more than once.
    pub resent: bool,
}

/// What the legs took of the bytes that were read in an interval.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Path {
    /// In the order of [`Leg::ALL`]. All of the same bytes.
    pub legs: [Histogram; Leg::ALL.len()],
    /// The greatest error of a byte's time between the hosts.
    pub bound_ns: u64,
    /// Bytes whose time between the hosts came out below 0, by no more than it may be
    /// wrong. It is taken as 0.
    pub clamped: u64,
    /// Bytes whose time between the hosts may be wrong by more than [`Config::doubt_ns`].
    pub doubtful: u64,
}

impl Path {
    /// What a leg took.
    pub fn leg(&self, leg: Leg) -> &Histogram {
        let index = Leg::ALL.iter().position(|other| *other == leg);
        &self.legs[index.expect("all legs are in the list")]
    }
}

/// Paths of an interval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// When it ended, on the common clock.
    pub end_ns: u64,
    /// In the order of their keys.
    pub paths: Vec<(PathKey, Path)>,
}

/// What became of passages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Bytes that were seen on both hosts.
    pub matched: u64,
    /// Those of them that were sent or came more than once.
    pub resent: u64,
    /// Those of them whose time between the hosts was taken as 0.
    pub clamped: u64,
    /// Those of them whose time between the hosts may be wrong by more than
    /// [`Config::doubt_ns`].
    pub doubtful: u64,
    /// Bytes that were read before they were sent, by more than the clocks may be
    /// wrong: in no path.
    pub clock_faults: u64,
    /// Bytes sent that no other host has told of.
    pub unmatched_tx: u64,
    /// Bytes read that no other host has told of.
    pub unmatched_rx: u64,
    /// Those of both that were given up early, as too many waited.
    pub crowded: u64,
    /// Bytes of flows that there was no room for: in the sums only.
    pub flows_untold: u64,
}

/// What was told before a restart, and must not be told again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Told {
    /// Bytes that had settled by then ...
    pub at_ns: u64,
    /// ... and were read before this: the end of an interval, whatever its length was.
    pub until_ns: u64,
}

type Key = (Ends, u32);

#[derive(Debug, Clone, Copy, Default)]
struct Waiting {
    tx: Option<Half>,
    rx: Option<Half>,
    resent: bool,
    /// When it is taken to be told in full, once both are there.
    settles_ns: Option<u64>,
}

/// Joins passages.
#[derive(Debug)]
pub struct Joiner {
    config: Config,
    told: Told,
    /// Two generations, so that what is too old goes all at once.
    young: HashMap<Key, Waiting>,
    old: HashMap<Key, Waiting>,
    turned_ns: u64,
    settling: VecDeque<(u64, Key)>,
    windows: BTreeMap<u64, HashMap<PathKey, Path>>,
    counters: Counters,
}

impl Joiner {
    /// With nothing waiting. `told` is what an earlier one has told of the passages
    /// that this one is given again.
    pub fn new(config: Config, told: Told) -> Joiner {
        Joiner {
            config,
            told,
            young: HashMap::new(),
            old: HashMap::new(),
            turned_ns: 0,
            settling: VecDeque::new(),
            windows: BTreeMap::new(),
            counters: Counters::default(),
        }
    }

    /// Takes a passage. They come in the order of `arrived_ns`.
    pub fn add(&mut self, half: Half) {
        self.advance(half.arrived_ns);
        let key = (half.passage.ends, half.passage.seq);
        let mut waiting = self.old.remove(&key);
        let waiting = self.young.entry(key).or_insert_with(|| waiting.take().unwrap_or_default());
        let passage = &half.passage;
        match waiting.take_in(half, passage.again || passage.sent > 1) {
            Some(Direction::Tx) => self.counters.unmatched_tx += 1,
            Some(Direction::Rx) => self.counters.unmatched_rx += 1,
            None => {}
        }
        if waiting.tx.is_some() && waiting.rx.is_some() && waiting.settles_ns.is_none() {
            let settles_ns = half.arrived_ns + self.config.settle_ns;
            waiting.settles_ns = Some(settles_ns);
            self.settling.push_back((settles_ns, key));
        }
        if self.young.len() > self.config.halves / 2 {
            self.counters.crowded += self.turn(half.arrived_ns);
        }
    }

    /// Ends what has waited long enough at this time.
    pub fn advance(&mut self, now_ns: u64) {
        while let Some((settles_ns, key)) = self.settling.front().copied() {
            if settles_ns > now_ns {
                break;
            }
            self.settling.pop_front();
            let waiting = self.young.remove(&key).or_else(|| self.old.remove(&key));
            // Gone if it had to make room.
            if let Some(waiting) = waiting.filter(|it| it.settles_ns == Some(settles_ns)) {
                self.tell(&waiting);
            }
        }
        if now_ns.saturating_sub(self.turned_ns) > self.config.wait_ns / 2 {
            self.turn(now_ns);
        }
    }

    /// The intervals that ended by `until_ns`, each once, but for what comes in later
    /// still.
    pub fn take(&mut self, now_ns: u64, until_ns: u64) -> Vec<Window> {
        self.advance(now_ns);
        let later = self.windows.split_off(&(until_ns + 1));
        let ended = std::mem::replace(&mut self.windows, later);
        let ended = ended.into_iter().map(|(end_ns, paths)| {
            let mut paths: Vec<_> = paths.into_iter().collect();
            paths.sort_by_key(|(key, _)| *key);
            Window { end_ns, paths }
        });
        ended.collect()
    }

    /// What was counted so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Gives up the older generation; returns how many waited in it for their other
    /// half.
    fn turn(&mut self, now_ns: u64) -> u64 {
        self.turned_ns = now_ns;
        let gone = std::mem::replace(&mut self.old, std::mem::take(&mut self.young));
        let mut alone = 0;
        for waiting in gone.into_values() {
            match (waiting.tx, waiting.rx) {
                (Some(_), Some(_)) => self.tell(&waiting),
                (Some(_), None) => self.counters.unmatched_tx += 1,
                (None, _) => self.counters.unmatched_rx += 1,
            }
            alone += u64::from(waiting.settles_ns.is_none());
        }
        alone
    }

    /// Counts a byte that both hosts have told of.
    fn tell(&mut self, waiting: &Waiting) {
        let (Some(tx), Some(rx)) = (waiting.tx, waiting.rx) else {
            return;
        };
        let bound_ns = tx.bound_ns.saturating_add(rx.bound_ns);
        let network_ns = rx.edge_ns.saturating_sub(tx.edge_ns);
        let below_ns = tx.edge_ns.saturating_sub(rx.edge_ns);
        let (down, up) = (Way::of(&tx.passage), Way::of(&rx.passage));
        let read_ns = rx.edge_ns.saturating_add(up.total_ns).min(rx.arrived_ns);
        let settled_ns = waiting.settles_ns.unwrap_or(u64::MAX);
        if settled_ns <= self.told.at_ns && read_ns < self.told.until_ns {
            return;
        }
        let end_ns = self.config.next_end(read_ns);
        if below_ns > bound_ns {
            self.counters.clock_faults += 1;
            return;
        }
        self.counters.matched += 1;
        self.counters.resent += u64::from(waiting.resent);
        self.counters.clamped += u64::from(below_ns > 0);
        let is_doubtful = bound_ns > self.config.doubt_ns;
        self.counters.doubtful += u64::from(is_doubtful);
        let sums = PathKey { tx_host: tx.host, rx_host: rx.host, flow: None, resent: waiting.resent };
        let flow = PathKey { flow: Some(tx.passage.ends), ..sums };
        let paths = self.windows.entry(end_ns).or_default();
        let is_told = paths.contains_key(&flow) || paths.len() < self.config.flows;
        self.counters.flows_untold += u64::from(!is_told);
        for key in [Some(sums), is_told.then_some(flow)].into_iter().flatten() {
            let path = paths.entry(key).or_default();
            path.bound_ns = path.bound_ns.max(bound_ns);
            path.clamped += u64::from(below_ns > 0);
            path.doubtful += u64::from(is_doubtful);
            for (leg, histogram) in Leg::ALL.iter().zip(&mut path.legs) {
                let ns = match leg {
                    Leg::Network => Some(network_ns),
                    Leg::EndToEnd => Some(down.total_ns + network_ns + up.total_ns),
                    Leg::Host(segment) => match segment.direction() {
                        Direction::Tx => down.segment_ns(*segment),
                        Direction::Rx => up.segment_ns(*segment),
                    },
                };
                ns.into_iter().for_each(|ns| histogram.record(ns));
            }
        }
    }
}

impl Waiting {
    /// Of copies of a byte the first counts: the first that left, the first that came. Says
    /// which half of a byte long ago had to go.
    fn take_in(&mut self, half: Half, again: bool) -> Option<Direction> {
        let before = match half.passage.direction {
            Direction::Tx => &self.tx,
            Direction::Rx => &self.rx,
        };
        let displaced = before.map(|before| before.passage.direction);
        let mut is_taken = false;
        match half.passage.direction {
            Direction::Tx => {
                // A copy that left after the byte had come is none that it came by. If it is the
                // only one, what came is of the byte that had the number 4 GiB before.
                let is_late =
                    self.rx.is_some_and(|rx| rx.edge_ns.saturating_add(rx.bound_ns + half.bound_ns) < half.edge_ns);
                if self.tx.is_none() && is_late {
                    if again {
                        return None;
                    }
                    (self.tx, self.rx, self.resent) = (Some(half), None, false);
                    return Some(Direction::Rx);
                }
                self.resent |= again && (self.tx.is_none() || !is_late);
                // A first copy that is later is of the byte that has the number now, 4 GiB after
                // the one that nobody has read.
                if self.tx.is_none() || !again && !is_late {
                    (self.tx, is_taken) = (Some(half), true);
                }
            }
            Direction::Rx => {
                self.resent |= again;
                if self.rx.is_none() || !again && self.tx.is_none() {
                    (self.rx, is_taken) = (Some(half), true);
                }
            }
        }
        displaced.filter(|_| is_taken)
    }
}

/// A byte's way through one side of a host.
struct Way<'a> {
    passage: &'a Passage,
    /// From the first layer that stamped it to the last.
    total_ns: u64,
    /// Of the total, what is in no segment.
    unexplained_ns: u64,
}

impl Way<'_> {
    fn of(passage: &Passage) -> Way<'_> {
        let mut stamps = passage.stamps.iter().flatten().map(|stamp| stamp.get());
        let first = stamps.next();
        let total_ns = first.and_then(|first| stamps.next_back().map(|last| last - first.min(last)));
        let total_ns = total_ns.unwrap_or(0);
        let way = Way { passage, total_ns, unexplained_ns: 0 };
        let explained_ns: u64 = Segment::ALL
            .iter()
            .filter(|segment| segment.direction() == passage.direction)
            .filter(|segment| Leg::Host(**segment).is_addend() && !segment.is_whole())
            .filter_map(|segment| way.segment_ns(*segment))
            .sum();
        Way { unexplained_ns: total_ns.saturating_sub(explained_ns), ..way }
    }

    fn segment_ns(&self, segment: Segment) -> Option<u64> {
        match segment {
            Segment::TxTotal | Segment::RxTotal => Some(self.total_ns),
            Segment::TxUnexplained | Segment::RxUnexplained => (self.unexplained_ns > 0).then_some(self.unexplained_ns),
            // As on the host itself: it ends at IP where TCP's time is not told.
            Segment::SocketTcp if self.passage.stamp_ns(Layer::TxTcp).is_none() => {
                let at_ip = self.passage.stamp_ns(Layer::TxIp)?;
                at_ip.checked_sub(self.passage.stamp_ns(Layer::TxSocket)?)
            }
            _ => self.passage.segment_ns(segment),
        }
    }
}
