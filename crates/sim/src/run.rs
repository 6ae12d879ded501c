//! A run: connections of a trace, events in the order of their times, until all is answered.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use dwell_engine::{quic_lb::Stamp, steer::OutOfRange};

use crate::{
    Job, Outcome, Sample, Scenario,
    clients::Clients,
    random::Random,
    route::{CONTROL_INTERVAL, Client, Router},
    server::Server,
    trace::{Flow, Trace},
};

/// Runs a job. None if it was stopped.
///
/// # Errors
///
/// A constant of the policy is out of its range.
pub fn simulate(
    scenario: &Scenario,
    trace: &Trace,
    job: &Job,
    stop: &AtomicBool,
) -> Result<Option<Outcome>, OutOfRange> {
    let started = Instant::now();
    let mut run = Run::new(scenario, job)?;
    let mut flows = trace.flows(job.seed, job.times_faster);
    let mut next = flows.next();
    let mut steps = 0u32;
    loop {
        steps = steps.wrapping_add(1);
        if steps.is_multiple_of(1 << 16) && stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        // what begins at a time comes before what happens then
        let first = run.events.peek().map(|Reverse((time_ns, _))| *time_ns);
        match (next, first) {
            (Some(flow), first) if first.is_none_or(|first| flow.start_ns <= first) => {
                run.open(&flow);
                next = flows.next();
            }
            (_, Some(_)) => run.step(next.is_some()),
            (_, None) => break,
        }
    }
    Ok(Some(run.end(started.elapsed())))
}

/// What happens at the balancer at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The first datagrams of a connection come.
    First(u32),
    /// The next request of a connection comes.
    Packet(u32),
    /// The handshake is over for the server; the client's connection ID is one that the server made.
    Settled(u32),
    /// The client uses a connection ID that the server made later.
    Told(u32),
}

#[derive(Debug)]
struct Connection {
    client: u32,
    port: u16,
    server: u16,
    /// Requests that are still to come.
    left: u32,
    is_short: bool,
    is_answered: bool,
    is_resumed: bool,
    trip_ns: u64,
    start_ns: u64,
    gap_ns: f64,
    extra_ns: u64,
    /// Of service and gaps: the same under all policies.
    random: Random,
    /// When the next request comes, and when all so far is done, if nobody waits for others;
    /// from when the first could be at the server.
    ideal_ns: (u64, u64),
    stamp: Option<Stamp>,
    stamped_ns: u64,
    /// Events that are still to come.
    pending: u32,
}

struct Run<'a> {
    scenario: &'a Scenario,
    job: &'a Job,
    events: BinaryHeap<Reverse<(u64, Event)>>,
    connections: Vec<Connection>,
    free: Vec<u32>,
    opened: u64,
    clients: Clients,
    servers: Vec<Server>,
    router: Router,
    service_ns: (u64, u64),
    handshake_ns: u64,
    restamp_ns: u64,
    sample_ns: u64,
    next_sample_ns: u64,
    next_interval_ns: u64,
    present_ns: u128,
    now_ns: u64,
    outcome: Outcome,
}

fn to_ns(ms: f64) -> u64 {
    (ms * 1e6).round() as u64
}

impl<'a> Run<'a> {
    fn new(scenario: &'a Scenario, job: &'a Job) -> Result<Run<'a>, OutOfRange> {
        let window = job.policy.needs_loads().then_some(scenario.server.window);
        let sample_ns = to_ns(scenario.interval_ms);
        Ok(Run {
            scenario,
            job,
            events: BinaryHeap::new(),
            connections: Vec::new(),
            free: Vec::new(),
            opened: 0,
            clients: Clients::default(),
            servers: (0..job.servers).map(|_| Server::new(window)).collect(),
            router: Router::new(job.policy, scenario, job.servers, job.seed)?,
            service_ns: (to_ns(scenario.server.service_ms[0]), to_ns(scenario.server.service_ms[1])),
            handshake_ns: to_ns(scenario.server.handshake_ms),
            restamp_ns: to_ns(scenario.server.restamp_ms),
            sample_ns,
            next_sample_ns: sample_ns,
            next_interval_ns: CONTROL_INTERVAL.as_nanos() as u64,
            present_ns: 0,
            now_ns: 0,
            outcome: Outcome::default(),
        })
    }

    fn open(&mut self, flow: &Flow) {
        let trip = self.scenario.network.trip_ms;
        let mut of_client = Random::of(self.job.seed ^ 0x7472_6970, flow.client.into());
        let trip_ns = of_client.between((to_ns(trip[0]), to_ns(trip[1])));
        let connection = Connection {
            client: flow.client,
            port: (self.opened % 64_512) as u16 + 1024,
            server: 0,
            left: flow.packets.max(1),
            is_short: flow.packets <= self.scenario.short,
            is_answered: false,
            is_resumed: false,
            trip_ns,
            start_ns: flow.start_ns,
            gap_ns: flow.gap_ns,
            extra_ns: (flow.bytes as f64 * self.scenario.server.byte_ns / f64::from(flow.packets.max(1))) as u64,
            random: Random::of(self.job.seed, self.opened),
            ideal_ns: (0, 0),
            stamp: None,
            stamped_ns: 0,
            pending: 0,
        };
        self.opened += 1;
        let at = match self.free.pop() {
            Some(at) => {
                self.connections[at as usize] = connection;
                at
            }
            None => {
                self.connections.push(connection);
                self.connections.len() as u32 - 1
            }
        };
        self.after(flow.start_ns + trip_ns, Event::First(at));
    }

    fn after(&mut self, time_ns: u64, event: Event) {
        let (Event::First(at) | Event::Packet(at) | Event::Settled(at) | Event::Told(at)) = event;
        self.connections[at as usize].pending += 1;
        self.events.push(Reverse((time_ns, event)));
    }

    fn step(&mut self, has_more: bool) {
        let Some(Reverse((time_ns, event))) = self.events.pop() else {
            return;
        };
        self.pass_to(time_ns, has_more);
        let at = match event {
            Event::First(at) => {
                self.first(at);
                at
            }
            Event::Packet(at) => {
                self.packet(at);
                at
            }
            Event::Settled(at) => {
                self.settled(at);
                at
            }
            Event::Told(at) => {
                self.told(at);
                at
            }
        };
        let connection = &mut self.connections[at as usize];
        connection.pending -= 1;
        if connection.pending == 0 {
            self.router.opened(connection.server.into(), -1);
            self.free.push(at);
        }
    }

    /// Intervals that end before this.
    fn pass_to(&mut self, time_ns: u64, has_more: bool) {
        self.now_ns = time_ns;
        while self.next_interval_ns <= time_ns {
            self.router.interval(self.next_interval_ns);
            self.next_interval_ns += CONTROL_INTERVAL.as_nanos() as u64;
        }
        while self.next_sample_ns <= time_ns && has_more {
            let end_ns = self.next_sample_ns;
            let busy = self.servers.iter_mut().map(|server| server.busy(end_ns));
            let (sum, most) = busy.fold((0, 0), |(sum, most), ns| (sum + ns, ns.max(most)));
            let mean = sum as f64 / self.job.servers as f64;
            self.outcome.samples.push(Sample {
                time_s: end_ns as f64 / 1e9,
                load: mean / self.sample_ns as f64,
                imbalance: (sum > 0).then(|| most as f64 / mean),
            });
            self.next_sample_ns += self.sample_ns;
        }
    }

    fn first(&mut self, at: u32) {
        let now_ns = self.now_ns;
        let connection = &mut self.connections[at as usize];
        let client = Client::new(connection.client, connection.port);
        let server = self.router.route(client, now_ns, &self.servers);
        connection.server = server as u16;
        self.router.opened(server, 1);
        let (start_ns, trip_ns) = (connection.start_ns, connection.trip_ns);
        // the first flight, the answer, what ends the handshake, the ticket
        let ticket_ns = start_ns + 4 * trip_ns;
        let could = self.clients.could(connection.client, start_ns, ticket_ns);
        let ticket = match self.job.policy.has_zero_rtt() {
            true => self.clients.take(connection.client, start_ns),
            false => None,
        };
        let is_resumed = ticket == Some(server as u16);
        let counts = match connection.is_short {
            true => &mut self.outcome.short,
            false => &mut self.outcome.long,
        };
        counts.connections += 1;
        counts.possible += u64::from(could);
        counts.tried += u64::from(ticket.is_some());
        counts.used += u64::from(is_resumed);
        connection.stamp = self.servers[server].stamp(now_ns);
        connection.stamped_ns = now_ns;
        connection.is_resumed = is_resumed;
        if is_resumed {
            self.packet(at);
            self.after(now_ns + 2 * trip_ns, Event::Settled(at));
            return;
        }
        let done_ns = self.servers[server].serve(now_ns, self.handshake_ns);
        self.router.busy_until(server, done_ns);
        let round_trips = match self.job.policy.is_tcp() {
            true => u64::from(self.scenario.network.tcp_round_trips),
            false => 1,
        };
        let ready_ns = done_ns + 2 * trip_ns * round_trips;
        self.after(ready_ns, Event::Packet(at));
        self.after(ready_ns, Event::Settled(at));
    }

    fn packet(&mut self, at: u32) {
        let now_ns = self.now_ns;
        let connection = &mut self.connections[at as usize];
        let server = usize::from(connection.server);
        let service_ns = connection.random.between(self.service_ns) + connection.extra_ns;
        let done_ns = self.servers[server].serve(now_ns, service_ns);
        let client = Client::new(connection.client, connection.port);
        self.router.packet(client, server, now_ns, done_ns);
        self.router.busy_until(server, done_ns);
        self.present_ns += u128::from(done_ns - now_ns);
        self.outcome.packets += 1;
        let (comes_ns, free_ns) = connection.ideal_ns;
        let ideal_ns = free_ns.max(comes_ns) + service_ns;
        connection.ideal_ns.1 = ideal_ns;
        let took_ns = done_ns + connection.trip_ns - connection.start_ns;
        let ratio = took_ns as f64 / (ideal_ns + 2 * connection.trip_ns) as f64;
        if !connection.is_answered {
            connection.is_answered = true;
            self.outcome.first_byte.add(ratio);
        }
        connection.left -= 1;
        if connection.left == 0 {
            self.outcome.completion.add(ratio);
            return;
        }
        let gap_ns = connection.random.exponential(connection.gap_ns);
        connection.ideal_ns.0 += gap_ns;
        let trip_ns = connection.trip_ns;
        if self.restamp_ns > 0 && now_ns - connection.stamped_ns >= self.restamp_ns {
            connection.stamp = self.servers[server].stamp(now_ns);
            connection.stamped_ns = now_ns;
            self.after(now_ns + 2 * trip_ns, Event::Told(at));
        }
        self.after(now_ns + gap_ns, Event::Packet(at));
    }

    fn settled(&mut self, at: u32) {
        self.told(at);
        let connection = &self.connections[at as usize];
        let has_closed = connection.is_resumed && connection.left == 0;
        if self.scenario.network.closes_early && has_closed {
            return;
        }
        let count = self.scenario.server.tickets;
        let since_ns = self.now_ns + connection.trip_ns;
        self.clients.give(connection.client, connection.server, since_ns, count);
    }

    fn told(&mut self, at: u32) {
        let connection = &self.connections[at as usize];
        if let Some(stamp) = connection.stamp {
            self.router.told(connection.server.into(), stamp, self.now_ns);
        }
    }

    fn end(mut self, elapsed: Duration) -> Outcome {
        let server_ns = self.now_ns as f64 * self.job.servers as f64;
        self.outcome.present = self.present_ns as f64 / server_ns.max(1.0);
        self.outcome.diverted = self.router.diverted;
        self.outcome.time = Duration::from_nanos(self.now_ns);
        self.outcome.elapsed = elapsed;
        self.outcome
    }
}
