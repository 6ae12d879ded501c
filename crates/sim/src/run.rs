//! One run: handles the events of a trace's connections in the order of their times, until all requests are answered.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use dwell_engine::{quic_lb::Stamp, steer::OutOfRange, units::nanos};

use crate::{
    Job, LoadSample, Outcome, Scenario,
    clients::Clients,
    random::Random,
    route::{CONTROL_INTERVAL, Client, Router},
    server::Server,
    trace::{Flow, Trace},
};

/// Simulates one run. Returns `None` if it was stopped.
///
/// # Errors
///
/// [`OutOfRange`], if a parameter of the policy is out of its range.
pub fn simulate(
    scenario: &Scenario,
    trace: &Trace,
    job: &Job,
    stop: &AtomicBool,
) -> Result<Option<Outcome>, OutOfRange> {
    let start = Instant::now();
    let mut run = Run::new(scenario, job)?;
    let mut flows = trace.flows(job.seed, job.speedup);
    let mut next = flows.next();
    let mut steps = 0u32;
    loop {
        steps = steps.wrapping_add(1);
        if steps.is_multiple_of(1 << 16) && stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        // A connection that starts at a time precedes events of the same time.
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
    Ok(Some(run.finish(start.elapsed())))
}

/// An event at the balancer, with the index of its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The first flight of a connection arrives.
    FirstFlight(u32),
    /// The next request of a connection arrives.
    Request(u32),
    /// The handshake is complete at the server, and the client uses a connection ID that the server issued.
    Established(u32),
    /// The client uses a connection ID that the server issued later.
    NewConnectionId(u32),
}

#[derive(Debug)]
struct Connection {
    client: u32,
    port: u16,
    server: u16,
    /// Number of requests that are still to arrive.
    requests_left: u32,
    is_short: bool,
    is_answered: bool,
    is_resumed: bool,
    one_way_ns: u64,
    start_ns: u64,
    gap_ns: f64,
    extra_ns: u64,
    /// Draws service times and gaps, which are the same under all policies.
    random: Random,
    /// Arrival of the next request if no request waited for those of other connections, from the earliest possible
    /// arrival of the first.
    ideal_arrival_ns: u64,
    /// When all requests so far would be done in that case.
    ideal_done_ns: u64,
    /// The load report in the connection's latest ID.
    stamp: Option<Stamp>,
    stamped_ns: u64,
    /// Number of events in the queue.
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

impl<'a> Run<'a> {
    fn new(scenario: &'a Scenario, job: &'a Job) -> Result<Run<'a>, OutOfRange> {
        let window = job.policy.needs_loads().then_some(scenario.server.window);
        let sample_ns = nanos(scenario.interval);
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
            service_ns: scenario.server.service.map(nanos).into(),
            handshake_ns: nanos(scenario.server.handshake),
            restamp_ns: nanos(scenario.server.restamp),
            sample_ns,
            next_sample_ns: sample_ns,
            next_interval_ns: CONTROL_INTERVAL.as_nanos() as u64,
            present_ns: 0,
            now_ns: 0,
            outcome: Outcome::default(),
        })
    }

    fn open(&mut self, flow: &Flow) {
        let one_way = self.scenario.network.one_way;
        let mut client_random = Random::stream(self.job.seed ^ 0x7472_6970, flow.client.into());
        let one_way_ns = client_random.between(one_way.map(nanos).into());
        let connection = Connection {
            client: flow.client,
            port: (self.opened % 64_512) as u16 + 1024,
            server: 0,
            requests_left: flow.packets.max(1),
            is_short: flow.packets <= self.scenario.short,
            is_answered: false,
            is_resumed: false,
            one_way_ns,
            start_ns: flow.start_ns,
            gap_ns: flow.gap_ns,
            extra_ns: flow.extra_ns(self.scenario.server.byte_ns) as u64,
            random: Random::stream(self.job.seed, self.opened),
            ideal_arrival_ns: 0,
            ideal_done_ns: 0,
            stamp: None,
            stamped_ns: 0,
            pending: 0,
        };
        self.opened += 1;
        let index = match self.free.pop() {
            Some(index) => {
                self.connections[index as usize] = connection;
                index
            }
            None => {
                self.connections.push(connection);
                self.connections.len() as u32 - 1
            }
        };
        self.schedule(flow.start_ns + one_way_ns, Event::FirstFlight(index));
    }

    fn schedule(&mut self, time_ns: u64, event: Event) {
        let (Event::FirstFlight(index)
        | Event::Request(index)
        | Event::Established(index)
        | Event::NewConnectionId(index)) = event;
        self.connections[index as usize].pending += 1;
        self.events.push(Reverse((time_ns, event)));
    }

    fn step(&mut self, has_more: bool) {
        let Some(Reverse((time_ns, event))) = self.events.pop() else {
            return;
        };
        self.advance(time_ns, has_more);
        let index = match event {
            Event::FirstFlight(index) => {
                self.first_flight(index);
                index
            }
            Event::Request(index) => {
                self.request(index);
                index
            }
            Event::Established(index) => {
                self.established(index);
                index
            }
            Event::NewConnectionId(index) => {
                self.report_load(index);
                index
            }
        };
        let connection = &mut self.connections[index as usize];
        connection.pending -= 1;
        if connection.pending == 0 {
            self.router.add_open(connection.server.into(), -1);
            self.free.push(index);
        }
    }

    /// Moves the clock to `time_ns`, past the ends of intervals.
    fn advance(&mut self, time_ns: u64, has_more: bool) {
        self.now_ns = time_ns;
        while self.next_interval_ns <= time_ns {
            self.router.end_interval(self.next_interval_ns);
            self.next_interval_ns += CONTROL_INTERVAL.as_nanos() as u64;
        }
        while self.next_sample_ns <= time_ns && has_more {
            let end_ns = self.next_sample_ns;
            let servers = self.job.servers as f64;
            let busy_ns: u64 = self.servers.iter_mut().map(|server| server.take_busy(end_ns)).sum();
            let loads = self.servers.iter().map(|server| server.load_ns(end_ns));
            let (sum, max) = loads.fold((0, 0), |(sum, max), ns| (sum + ns, ns.max(max)));
            let mean_ns = sum as f64 / servers;
            self.outcome.samples.push(LoadSample {
                time_s: end_ns as f64 / 1e9,
                busy: busy_ns as f64 / servers / self.sample_ns as f64,
                load_ms: mean_ns / 1e6,
                imbalance: (sum > 0).then(|| max as f64 / mean_ns),
            });
            self.next_sample_ns += self.sample_ns;
        }
    }

    fn first_flight(&mut self, index: u32) {
        let now_ns = self.now_ns;
        let connection = &mut self.connections[index as usize];
        let client = Client::new(connection.client, connection.port);
        let server = self.router.select(client, now_ns, &self.servers);
        connection.server = server as u16;
        self.router.add_open(server, 1);
        let (start_ns, one_way_ns) = (connection.start_ns, connection.one_way_ns);
        let returns = self.clients.connect(connection.client);
        let ticket = match self.job.policy.has_zero_rtt() {
            true => self.clients.use_ticket(connection.client, start_ns),
            false => None,
        };
        let is_resumed = ticket == Some(server as u16);
        let counts = match connection.is_short {
            true => &mut self.outcome.short,
            false => &mut self.outcome.long,
        };
        counts.connections += 1;
        counts.possible += u64::from(returns);
        counts.tried += u64::from(ticket.is_some());
        counts.used += u64::from(is_resumed);
        connection.stamp = self.servers[server].stamp(now_ns);
        connection.stamped_ns = now_ns;
        connection.is_resumed = is_resumed;
        if is_resumed {
            self.request(index);
            self.schedule(now_ns + 2 * one_way_ns, Event::Established(index));
            return;
        }
        let done_ns = self.servers[server].serve(now_ns, self.handshake_ns);
        self.router.busy_until(server, done_ns);
        let round_trips = match self.job.policy.is_tcp() {
            true => u64::from(self.scenario.network.tcp_round_trips),
            false => 1,
        };
        let ready_ns = done_ns + 2 * one_way_ns * round_trips;
        self.schedule(ready_ns, Event::Request(index));
        self.schedule(ready_ns, Event::Established(index));
    }

    fn request(&mut self, index: u32) {
        let now_ns = self.now_ns;
        let connection = &mut self.connections[index as usize];
        let server = usize::from(connection.server);
        let service_ns = connection.random.between(self.service_ns) + connection.extra_ns;
        let done_ns = self.servers[server].serve(now_ns, service_ns);
        let client = Client::new(connection.client, connection.port);
        // Until the server's answer has come back, packets of 0-RTT carry the connection ID that the client drew.
        let has_servers_id = !connection.is_resumed || now_ns >= connection.start_ns + 3 * connection.one_way_ns;
        self.router.request(client, server, (now_ns, done_ns), has_servers_id);
        self.router.busy_until(server, done_ns);
        self.present_ns += u128::from(done_ns - now_ns);
        self.outcome.packets += 1;
        let ideal_ns = connection.ideal_done_ns.max(connection.ideal_arrival_ns) + service_ns;
        connection.ideal_done_ns = ideal_ns;
        let elapsed_ns = done_ns + connection.one_way_ns - connection.start_ns;
        let ratio = elapsed_ns as f64 / (ideal_ns + 2 * connection.one_way_ns) as f64;
        if !connection.is_answered {
            connection.is_answered = true;
            self.outcome.first_byte.add(ratio);
        }
        connection.requests_left -= 1;
        if connection.requests_left == 0 {
            self.outcome.completion.add(ratio);
            return;
        }
        let gap_ns = connection.random.exponential(connection.gap_ns);
        connection.ideal_arrival_ns += gap_ns;
        let one_way_ns = connection.one_way_ns;
        if self.restamp_ns > 0 && now_ns - connection.stamped_ns >= self.restamp_ns {
            connection.stamp = self.servers[server].stamp(now_ns);
            connection.stamped_ns = now_ns;
            self.schedule(now_ns + 2 * one_way_ns, Event::NewConnectionId(index));
        }
        self.schedule(now_ns + gap_ns, Event::Request(index));
    }

    fn established(&mut self, index: u32) {
        self.report_load(index);
        let connection = &self.connections[index as usize];
        let has_closed = connection.is_resumed && connection.requests_left == 0;
        if self.scenario.network.closes_early && has_closed {
            return;
        }
        let count = self.scenario.server.tickets;
        let received_ns = self.now_ns + connection.one_way_ns;
        self.clients.add_tickets(connection.client, connection.server, received_ns, count);
    }

    fn report_load(&mut self, index: u32) {
        let connection = &self.connections[index as usize];
        if let Some(stamp) = connection.stamp {
            self.router.report(connection.server.into(), stamp, self.now_ns);
        }
    }

    fn finish(mut self, elapsed: Duration) -> Outcome {
        let server_ns = self.now_ns as f64 * self.job.servers as f64;
        self.outcome.present = self.present_ns as f64 / server_ns.max(1.0);
        self.outcome.diverted = self.router.diverted;
        self.outcome.time = Duration::from_nanos(self.now_ns);
        self.outcome.elapsed = elapsed;
        self.outcome
    }
}
