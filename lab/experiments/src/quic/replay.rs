//! An attacker who records the first flights of clients and sends them again from other addresses.

use std::{
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use dwell_testbed::{Error, Result};

use super::{
    Policy, Scene,
    client::{ANSWER_TIMEOUT, Client, Early, Mode, Request},
    stage::{ServerOptions, Stage, bind},
    theft::{Theft, Thief},
};
use crate::{lb::Star, loads::quic::block_on};

/// Options of an experiment with replays.
#[derive(Debug, Clone)]
pub struct ReplayOptions {
    /// Number of 0-RTT requests that are recorded.
    pub requests: usize,
    /// Replays of each request, each from another address.
    pub times: usize,
}

/// What became of the replays.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReplayResult {
    /// Requests that were accepted as 0-RTT data and recorded.
    pub recorded: usize,
    /// First flights that were sent again.
    pub tries: usize,
    /// Tickets of replays that servers looked up in vain, which is how far a replay gets.
    pub missed: u64,
    /// Requests that were executed more than once.
    pub repeated: usize,
    /// Executions of requests by another server than the first.
    pub elsewhere: usize,
    /// What an attacker decrypted with a copy of all servers' sessions from before each request.
    pub copied: Theft,
    /// What attackers decrypted with the sessions that each server held at the end.
    pub stolen: Vec<Theft>,
}

/// Records and replays first flights through the balancer.
///
/// # Errors
///
/// If servers or balancer do not come up, or a genuine request gets no answer.
pub fn replay(scene: Scene<'_>, options: &ReplayOptions) -> Result<ReplayResult> {
    let star = scene.star;
    let stage = Stage::start(scene, Policy::ZeroRtt, ServerOptions::without_work(2))?;
    let client = Client::new(&stage.identity.certificate, Mode::ZeroRtt)?;
    let requests = options.requests;
    let mut copyist = Thief::start(&star.clients[1], &stage.identity)?;
    let flights = record(&stage, &client, requests, &mut copyist)?;
    let misses = || stage.servers.iter().map(|server| server.sessions().missed).sum::<u64>();
    // Servers must have forgotten the recorded connections, which takes three PTO: a replay would count as their packet.
    std::thread::sleep(Duration::from_secs(2));
    let before = misses();
    let mut result = ReplayResult { recorded: flights.len(), copied: copyist.stop(), ..ReplayResult::default() };
    for round in 0..options.times {
        let address = Star::client_address(1, 1 + (round % 250) as u8);
        star.clients[1].enter(|| send(address, &flights))??;
        result.tries += flights.len();
    }
    wait_for_silence(misses);
    result.missed = misses() - before;
    for number in 1..=requests as u64 {
        let executions: Vec<u32> = stage.servers.iter().map(|server| server.executions(number)).collect();
        result.repeated += usize::from(executions.iter().sum::<u32>() > 1);
        result.elsewhere += executions.iter().filter(|count| **count > 0).count().saturating_sub(1);
    }
    for server in &stage.servers {
        let mut thief = Thief::start(&star.clients[1], &stage.identity)?;
        thief.add_sessions(&server.take_sessions());
        for (flight, number) in flights.iter().zip(1..) {
            thief.try_to_decrypt(flight, number)?;
        }
        result.stolen.push(thief.stop());
    }
    stage.stop()?;
    Ok(result)
}

/// Waits until a count no longer changes.
fn wait_for_silence(count: impl Fn() -> u64) {
    let start = Instant::now();
    let mut last = count();
    loop {
        std::thread::sleep(Duration::from_millis(500));
        let now = count();
        if now == last || start.elapsed() > ANSWER_TIMEOUT {
            return;
        }
        last = now;
    }
}

/// The first datagrams of a connection, in the order in which the client sent them.
pub(super) type Flight = Vec<Vec<u8>>;

/// Makes requests 1 to `requests` as 0-RTT data, and returns what the client sent before each first answer. The copyist
/// gets all servers' sessions before each request, and decrypts it at once.
fn record(stage: &Stage<'_>, client: &Client, requests: usize, copyist: &mut Thief<'_>) -> Result<Vec<Flight>> {
    let home = &stage.star.clients[0];
    home.enter(|| visit(client, Stage::vip(), 0))??;
    let mut flights = Vec::new();
    for number in 1..=requests as u64 {
        for server in &stage.servers {
            let sessions = server.take_sessions();
            copyist.add_sessions(&sessions);
            server.add_sessions(&sessions);
        }
        let flight = home.enter(|| record_one(client, number))??;
        copyist.try_to_decrypt(&flight, number)?;
        flights.push(flight);
    }
    Ok(flights)
}

fn record_one(client: &Client, number: u64) -> Result<Flight> {
    let recorder = Recorder::start(genuine())?;
    match visit(client, recorder.address, number)? {
        Early::Accepted => Ok(recorder.stop()),
        _ => {
            let what = format!("0-RTT data of request {number} through the balancer");
            Err(Error::Timeout(what))
        }
    }
}

/// The address of the client whose requests are recorded.
fn genuine() -> Ipv4Addr {
    Star::client_address(0, 1)
}

fn visit(client: &Client, to: SocketAddr, number: u64) -> Result<Early> {
    let socket = bind(genuine())?;
    block_on(async {
        let visit = client.visit(socket, to, Request::short(number)).await?;
        let early = visit.early;
        client.leave(visit).await;
        // Leaves time to send the close.
        tokio::time::sleep(Duration::from_millis(20)).await;
        Ok(early)
    })
}

fn send(address: Ipv4Addr, flights: &[Flight]) -> Result<()> {
    for flight in flights {
        // Each flight comes from a port of its own.
        let socket = bind(address)?;
        for datagram in flight {
            let sent = socket.send_to(datagram, Stage::vip());
            sent.map_err(Error::io("send a recorded datagram"))?;
        }
        // Limits the rate to what servers can keep up with.
        std::thread::sleep(Duration::from_millis(3));
    }
    Ok(())
}

/// A forwarder in the client's namespace that records the client's datagrams. It ends when this is dropped.
struct Recorder {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    flight: Arc<Mutex<Flight>>,
}

impl Recorder {
    /// Forwards to and from the VIP by another socket of the same address.
    fn start(address: Ipv4Addr) -> Result<Recorder> {
        let (near, far) = (bind(address)?, bind(address)?);
        let failed = |what: &str| Error::io(format!("{what} for a recorder"));
        far.connect(Stage::vip()).map_err(failed("connect"))?;
        for socket in [&near, &far] {
            let timeout = Some(Duration::from_millis(50));
            socket.set_read_timeout(timeout).map_err(failed("set a time"))?;
        }
        let recorder = Recorder {
            address: near.local_addr().map_err(failed("look up a port"))?,
            stop: Arc::default(),
            flight: Arc::default(),
        };
        let (near, far) = (Arc::new(near), Arc::new(far));
        let client = Arc::new(Mutex::new(None));
        let out = Forwarder {
            stop: Arc::clone(&recorder.stop),
            flight: Arc::clone(&recorder.flight),
            has_answer: Arc::default(),
            client,
        };
        let back = out.clone();
        let (near2, far2) = (Arc::clone(&near), Arc::clone(&far));
        std::thread::spawn(move || out.forward(&near, &far));
        std::thread::spawn(move || back.forward_back(&far2, &near2));
        Ok(recorder)
    }

    /// Stops, and returns what the client sent before the first answer.
    fn stop(self) -> Flight {
        self.stop.store(true, Ordering::Relaxed);
        let mut flight = self.flight.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut flight)
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

#[derive(Clone)]
struct Forwarder {
    stop: Arc<AtomicBool>,
    flight: Arc<Mutex<Flight>>,
    has_answer: Arc<AtomicBool>,
    client: Arc<Mutex<Option<SocketAddr>>>,
}

impl Forwarder {
    fn forward(&self, near: &UdpSocket, far: &UdpSocket) {
        let mut bytes = [0; 2048];
        while !self.stop.load(Ordering::Relaxed) {
            // Nothing has arrived before the timeout.
            let Ok((count, from)) = near.recv_from(&mut bytes) else {
                continue;
            };
            *self.client.lock().unwrap_or_else(PoisonError::into_inner) = Some(from);
            if !self.has_answer.load(Ordering::Relaxed) {
                let mut flight = self.flight.lock().unwrap_or_else(PoisonError::into_inner);
                flight.push(bytes[..count].to_vec());
            }
            // QUIC retransmits what is lost.
            let _ = far.send(&bytes[..count]);
        }
    }

    fn forward_back(&self, far: &UdpSocket, near: &UdpSocket) {
        let mut bytes = [0; 2048];
        while !self.stop.load(Ordering::Relaxed) {
            let Ok(count) = far.recv(&mut bytes) else {
                continue;
            };
            self.has_answer.store(true, Ordering::Relaxed);
            let client = *self.client.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(client) = client {
                let _ = near.send_to(&bytes[..count], client);
            }
        }
    }
}
