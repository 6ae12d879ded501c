//! Time to the first byte and CPU time of connections to one server: Figures 6 and 7 of the paper.

use std::{
    net::{SocketAddr, UdpSocket},
    sync::Arc,
    time::Duration,
};

use dwell_engine::stats;
use dwell_quic::HEARTBEAT;
use dwell_testbed::{Emulation, Error, Lab, LabOptions, Nanos, Result, Role, Topology, signals::Signals};
use tokio::task::JoinSet;

use super::{
    KEY, PORT,
    client::{Client, Early, Mode, Request},
    config,
    identity::{Certificate, Identity},
    server::{Server, ServerPlan},
};
use crate::loads::quic::block_on;

/// Options of an experiment with handshakes.
#[derive(Debug, Clone)]
pub struct HandshakeOptions {
    /// Type of the server's key.
    pub certificate: Certificate,
    /// Round trip between client and server.
    pub rtt: Duration,
    /// Numbers of simultaneous clients, each with one connection at a time.
    pub simultaneous: Vec<usize>,
    /// Connections of each mode at each number of clients.
    pub connections: usize,
    /// Rounds, in each of which every mode runs once.
    pub rounds: usize,
}

/// What was measured of the connections of one mode.
#[derive(Debug, Clone)]
pub struct HandshakeResult {
    /// What clients did with sessions.
    pub mode: Mode,
    /// Number of simultaneous clients.
    pub simultaneous: usize,
    /// Times from the start of each connection to the first byte of its answer, in ascending order.
    pub first_byte: Vec<Duration>,
    /// Connections that resumed a session.
    pub resumed: u64,
    /// Connections whose request was accepted as 0-RTT data.
    pub early: usize,
    /// CPU time of the server for all these connections.
    pub cpu: Duration,
}

impl HandshakeResult {
    fn new(mode: Mode, simultaneous: usize) -> HandshakeResult {
        HandshakeResult { mode, simultaneous, first_byte: Vec::new(), resumed: 0, early: 0, cpu: Duration::ZERO }
    }

    /// The server's CPU time per connection.
    pub fn cpu_each(&self) -> Option<Duration> {
        let connections = u32::try_from(self.first_byte.len()).unwrap_or(u32::MAX);
        (connections > 0).then(|| self.cpu / connections)
    }

    /// The mean time to the first byte.
    pub fn mean(&self) -> Option<Duration> {
        let connections = u32::try_from(self.first_byte.len()).unwrap_or(u32::MAX);
        (connections > 0).then(|| self.first_byte.iter().sum::<Duration>() / connections)
    }

    /// A quantile of the times to the first byte, by nearest rank.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        stats::quantile(&self.first_byte, share)
    }
}

/// Runs all modes with all numbers of clients. A round trip of zero needs no emulation.
///
/// # Errors
///
/// If the lab cannot be made, a connection fails, or a signal asked to stop.
pub fn handshakes(options: &HandshakeOptions, emulation: Emulation) -> Result<Vec<HandshakeResult>> {
    let signals = Signals::watch()?;
    let lab = Lab::start(&LabOptions {
        name: "quic".to_owned(),
        topology: Topology::line(Nanos::from(options.rtt), Nanos::ZERO),
        emulation: match options.rtt.is_zero() {
            true => Emulation::None,
            false => emulation,
        },
    })?;
    let identity = Arc::new(Identity::new(options.certificate)?);
    let address = SocketAddr::from((Lab::address_v4(Role::Server), PORT));
    let plan = ServerPlan {
        number: 1,
        address,
        identity: Arc::clone(&identity),
        cids: config(0, KEY)?,
        tickets: 2,
        work: Duration::ZERO,
        seed: 0,
        heartbeat: HEARTBEAT,
    };
    let server = Server::start(lab.server(), plan)?;
    let mut all = Vec::new();
    for &simultaneous in &options.simultaneous {
        let mut of = Mode::ALL.map(|mode| HandshakeResult::new(mode, simultaneous));
        for round in 0..options.rounds.max(1) {
            let share = options.connections.div_ceil(options.rounds.max(1));
            for turn in 0..of.len() {
                signals.pause(Duration::ZERO)?;
                let handshakes = &mut of[(turn + round) % Mode::ALL.len()];
                let clients =
                    Clients { identity: &identity, to: address, simultaneous, each: share.div_ceil(simultaneous) };
                clients.run(&lab, &server, handshakes)?;
            }
        }
        for mut handshakes in of {
            handshakes.first_byte.sort_unstable();
            all.push(handshakes);
        }
    }
    Ok(all)
}

struct Clients<'a> {
    identity: &'a Identity,
    to: SocketAddr,
    simultaneous: usize,
    /// Connections of each client.
    each: usize,
}

impl Clients<'_> {
    fn run(&self, lab: &Lab, server: &Server, into: &mut HandshakeResult) -> Result<()> {
        let mode = into.mode;
        let clients = (0..self.simultaneous)
            .map(|_| Client::new(&self.identity.certificate, mode))
            .collect::<Result<Vec<_>>>()?;
        // Every client connects once before, so that it has a ticket.
        lab.client().enter(|| block_on(self.visit(&clients, 1)))??;
        let (cpu, sessions) = (server.cpu()?, server.sessions());
        let visits = lab.client().enter(|| block_on(self.visit(&clients, self.each)))??;
        into.cpu += server.cpu()?.saturating_sub(cpu);
        into.resumed += server.sessions().resumed - sessions.resumed;
        into.early += visits.iter().filter(|(early, _)| *early == Early::Accepted).count();
        into.first_byte.extend(visits.into_iter().map(|(_, first_byte)| first_byte));
        Ok(())
    }

    async fn visit(&self, clients: &[Client], times: usize) -> Result<Vec<(Early, Duration)>> {
        let mut tasks = JoinSet::new();
        for client in clients {
            let (client, to) = (client.clone(), self.to);
            tasks.spawn(async move {
                let mut visits = Vec::with_capacity(times);
                for _ in 0..times {
                    let socket = UdpSocket::bind("0.0.0.0:0").map_err(Error::io("make a client's socket"))?;
                    let visit = client.visit(socket, to, Request::short(0)).await?;
                    visits.push((visit.early, visit.first_byte));
                    client.leave(visit).await;
                }
                Ok(visits)
            });
        }
        let mut all = Vec::new();
        while let Some(done) = tasks.join_next().await {
            let visits: Result<_> = done.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
            all.extend(visits?);
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use dwell_testbed::harness::skipped;

    use super::*;

    fn run(rtt: Duration) -> Option<Vec<HandshakeResult>> {
        if skipped() {
            return None;
        }
        let options = HandshakeOptions {
            certificate: Certificate::Ecdsa,
            rtt,
            simultaneous: vec![1, 3],
            connections: 9,
            rounds: 2,
        };
        Some(handshakes(&options, Emulation::Thread).unwrap())
    }

    #[test]
    fn root_each_mode_does_what_its_name_says() {
        let Some(runs) = run(Duration::ZERO) else {
            return;
        };
        let seen: Vec<_> = runs.iter().map(|run| (run.mode, run.first_byte.len(), run.resumed, run.early)).collect();
        // nine connections in two rounds, rounded up to whole connections per client
        let expected = [(Mode::Full, 0, 0), (Mode::Resumed, 1, 0), (Mode::ZeroRtt, 1, 1)];
        let of = |count: usize| {
            expected.map(|(mode, resumed, early)| (mode, count, (resumed * count) as u64, early * count))
        };
        assert_eq!(seen, [of(10), of(12)].concat());
        assert!(runs.iter().all(|run| run.cpu_each() > Some(Duration::from_micros(50))));
    }

    #[test]
    fn root_two_hundred_at_once_are_all_answered() {
        if skipped() {
            return;
        }
        let options = HandshakeOptions {
            certificate: Certificate::Ecdsa,
            rtt: Duration::ZERO,
            simultaneous: vec![200],
            connections: 200,
            rounds: 1,
        };
        let runs = handshakes(&options, Emulation::None).unwrap();
        for run in runs {
            eprintln!("{:?} {:?} {:?}", run.mode, run.quantile(0.5), run.cpu_each());
            assert_eq!(run.first_byte.len(), 200);
        }
    }

    /// No connection is faster than its round trips. The upper bound depends on the machine; the test above checks that
    /// 0-RTT data is accepted.
    #[test]
    fn root_no_mode_is_faster_than_its_round_trips() {
        let rtt = Duration::from_millis(40);
        let Some(runs) = run(rtt) else { return };
        for run in runs {
            let least = match run.mode {
                Mode::ZeroRtt => rtt,
                Mode::Full | Mode::Resumed => 2 * rtt,
            };
            assert!(run.first_byte[0] >= least, "{run:?}");
        }
    }
}
