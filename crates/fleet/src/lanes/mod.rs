//! Several collectors of one agent.
//!
//! Each collector has a lane: an [`Uplink`] with an outbox, a run and a folder of its own. What both ends of a flow report goes to
//! the collector that both find by rendezvous hashing of the flow, and what is of the host alone to the one of the agent's name.
//! While a collector is down, others get its share, also what it has not been sent; only the batch that it may have stored
//! without saying so stays for it.

mod route;

use std::{
    collections::HashMap,
    iter, mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use dwell_engine::layers::{Ends, Isns};

use self::route::{Health, connection, flow, winner};
use crate::{
    Backlog, CollectorAddress, Error, Event, Identity, Outbox, Uplink,
    wire::{Content, FlowReport, FlowRtt, Hello, IntervalReport, MAX_FLOWS, MAX_RTTS},
};

/// Collectors of one agent at most.
pub const MAX_COLLECTORS: usize = 16;

/// One of an agent's collectors, and what it is sent.
#[derive(Debug)]
pub struct Lane {
    /// The collector.
    pub collector: CollectorAddress,
    /// How the agent introduces itself. The run is this lane's alone.
    pub hello: Hello,
    /// What waits for the collector, of that run.
    pub outbox: Outbox,
}

/// The ways to all collectors of an agent.
#[derive(Debug)]
pub struct Lanes {
    lanes: Vec<Running>,
    /// What stands for the agent itself.
    name: String,
    /// The lanes that get something.
    open: Vec<usize>,
}

#[derive(Debug)]
struct Running {
    address: String,
    uplink: Uplink,
    health: Arc<Mutex<Health>>,
}

impl Lanes {
    /// Starts to connect to each collector. `on_event` is called with each change of a connection and the number of its lane, from
    /// the threads of the lanes, one at a time.
    ///
    /// # Errors
    ///
    /// As [`Uplink::start`].
    ///
    /// # Panics
    ///
    /// If there is no lane.
    pub fn start(
        lanes: Vec<Lane>,
        identity: &Identity,
        on_event: impl FnMut(usize, Event) + Send + 'static,
    ) -> Result<Lanes, Error> {
        let name = lanes.first().expect("an agent has a collector").hello.name.to_string();
        let on_event = Arc::new(Mutex::new(on_event));
        let start = |(number, Lane { collector, hello, outbox })| {
            let health = Arc::new(Mutex::new(Health::new(Instant::now())));
            let (address, noted, on_event) = (collector.to_string(), Arc::clone(&health), Arc::clone(&on_event));
            let on_event = move |event| {
                match event {
                    Event::Connected { .. } => lock(&noted).note(true, Instant::now()),
                    Event::Disconnected { .. } => lock(&noted).note(false, Instant::now()),
                    _ => {}
                }
                lock(&on_event)(number, event);
            };
            let uplink = Uplink::start(collector, identity.clone(), hello, outbox, on_event)?;
            Ok(Running { address, uplink, health })
        };
        let lanes = lanes.into_iter().enumerate().map(start).collect::<Result<Vec<_>, Error>>()?;
        let open = (0..lanes.len()).collect();
        Ok(Lanes { lanes, name, open })
    }

    /// Number of lanes.
    pub(crate) fn len(&self) -> usize {
        self.lanes.len()
    }

    /// The lane of a flow at present. Its initial sequence numbers, if they are known, find the same one at both of its hosts though
    /// addresses are translated between them.
    pub(crate) fn of_flow(&self, ends: &Ends, isns: Option<Isns>) -> usize {
        match (&self.open[..], isns) {
            ([only], _) => *only,
            (_, Some(isns)) => self.winner(&connection(isns)),
            (_, None) => self.winner(&flow(ends)),
        }
    }

    /// The lane of what is of the host alone.
    pub(crate) fn home(&self) -> usize {
        self.winner(self.name.as_bytes())
    }

    fn winner(&self, subject: &[u8]) -> usize {
        let open = self.open.iter().map(|number| (*number, self.lanes[*number].address.as_str()));
        winner(open, subject).expect("a lane is open")
    }

    /// Queues a batch for a lane.
    pub(crate) fn push(&self, lane: usize, content: Content) {
        self.lanes[lane].uplink.push(content);
    }

    /// Looks which collectors are down at a time, and gives others what waits for those.
    pub(crate) fn tend(&mut self, now: Instant) {
        if self.lanes.len() == 1 {
            return;
        }
        let is_down = |lane: &Running| lock(&lane.health).is_down(now);
        let (down, up): (Vec<usize>, Vec<usize>) =
            (0..self.lanes.len()).partition(|number| is_down(&self.lanes[*number]));
        if up.is_empty() {
            // Each waits for its own, as if all were there.
            self.open = down;
            return;
        }
        self.open = up;
        for number in down {
            self.lanes[number].uplink.move_unsent(|content| self.distribute(content));
        }
    }

    /// Queues what was measured for the lanes that it belongs to now, in batches of a limited size.
    pub(crate) fn distribute(&self, content: Content) {
        let mut parts = vec![Content::default(); self.lanes.len()];
        let home = self.home();
        let Content { intervals, traces, counters, lost: _, is_last } = content;
        (parts[home].counters, parts[home].is_last) = (counters, is_last);
        for trace in traces.0 {
            parts[self.of_flow(&trace.ends, trace.isns)].traces.0.push(trace);
        }
        for interval in intervals {
            let IntervalReport { segments, flows, rtts, .. } = interval;
            let empty = IntervalReport { segments: Vec::new(), flows: Vec::new(), rtts: Vec::new(), ..interval };
            let mut of_lanes = vec![empty; self.lanes.len()];
            let mut lanes = HashMap::new();
            for flow in flows {
                let lane = self.of_flow(&flow.ends, flow.isns);
                lanes.insert(flow.ends, lane);
                of_lanes[lane].flows.push(flow);
            }
            for rtt in rtts {
                let lane = lanes.get(&rtt.ends).copied().unwrap_or_else(|| self.of_flow(&rtt.ends, None));
                of_lanes[lane].rtts.push(rtt);
            }
            of_lanes[home].segments = segments;
            for (part, of_lane) in parts.iter_mut().zip(of_lanes) {
                part.intervals.extend(pieces(of_lane));
            }
        }
        for (number, mut part) in parts.into_iter().enumerate() {
            let further = part.intervals.split_off(part.intervals.len().min(1));
            if !part.is_empty() {
                self.push(number, part);
            }
            for interval in further {
                self.push(number, Content { intervals: vec![interval], ..Content::default() });
            }
        }
    }

    /// Returns the size and the losses of all outboxes.
    pub fn backlog(&self) -> Backlog {
        sum(self.lanes.iter().map(|lane| lane.uplink.backlog()))
    }

    /// Tells each collector that it is the end of this run, and waits at most `timeout` until all batches are stored. Returns what
    /// is left. A collector that is down and has nothing to get is not waited for.
    pub(crate) fn finish(self, timeout: Duration) -> Backlog {
        let deadline = Instant::now() + timeout;
        // All are told before any is waited for: the first may take all of the time.
        let mut awaited = Vec::new();
        for (number, lane) in self.lanes.iter().enumerate() {
            let is_awaited = self.open.contains(&number) || lane.uplink.backlog().batches > 0;
            if is_awaited {
                lane.uplink.push(Content { is_last: true, ..Content::default() });
            }
            lane.uplink.close();
            awaited.push(is_awaited);
        }
        sum(self.lanes.into_iter().zip(awaited).map(|(lane, is_awaited)| match is_awaited {
            true => lane.uplink.finish(deadline.saturating_duration_since(Instant::now())),
            false => lane.uplink.finish(Duration::ZERO),
        }))
    }
}

/// Divides an interval into reports that a batch can hold, each with the round-trip times of its flows: none if it is empty.
fn pieces(interval: IntervalReport) -> impl Iterator<Item = IntervalReport> {
    let IntervalReport { mut segments, flows, rtts, .. } = interval;
    let (mut flows, mut rtts) = (flows.into_iter(), rtts.into_iter().peekable());
    iter::from_fn(move || {
        let (segments, flows) = (mem::take(&mut segments), flows.by_ref().take(MAX_FLOWS).collect::<Vec<FlowReport>>());
        let is_of_these = |rtt: &FlowRtt| flows.is_empty() || flows.iter().any(|flow| flow.ends == rtt.ends);
        let rtts: Vec<_> = iter::from_fn(|| rtts.next_if(is_of_these)).take(MAX_RTTS).collect();
        let is_empty = segments.is_empty() && flows.is_empty() && rtts.is_empty();
        (!is_empty).then_some(IntervalReport { segments, flows, rtts, ..interval })
    })
}

fn sum(backlogs: impl Iterator<Item = Backlog>) -> Backlog {
    let none = Backlog { is_on_disk: true, ..Backlog::default() };
    backlogs.fold(none, |sum, backlog| Backlog {
        batches: sum.batches + backlog.batches,
        bytes: sum.bytes + backlog.bytes,
        dropped: sum.dropped + backlog.dropped,
        is_on_disk: sum.is_on_disk && (backlog.is_on_disk || backlog.batches == 0),
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
