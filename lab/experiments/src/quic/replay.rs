//! Somebody who records what clients send first, and sends it again from elsewhere.

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
    client::{Client, Early, Mode, PATIENCE, Request},
    stage::{Like, Stage, bind},
    theft::{Theft, Thief},
};
use crate::{lb::Star, loads::quic::block_on};

/// What to run.
#[derive(Debug, Clone)]
pub struct ReplayOptions {
    /// 0-RTT requests that are recorded.
    pub requests: usize,
    /// How often each is sent again, each time from another address.
    pub times: usize,
}

/// What came of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Requests that were done as 0-RTT data.
    pub recorded: usize,
    /// First flights that were sent again.
    pub tries: usize,
    /// Tickets of these that servers looked for in vain: tries that came as far as that.
    pub missed: u64,
    /// Requests that were done more than once.
    pub repeated: usize,
    /// Times that requests were done by another server than the first.
    pub elsewhere: usize,
    /// Of a thief with a copy of what all servers remembered before each request: that flights can be read.
    pub copied: Theft,
    /// Of thieves who took what is left at the end, by server.
    pub stolen: Vec<Theft>,
}

/// Records and replays, through the balancer.
///
/// # Errors
///
/// If servers or balancer do not come up, or a genuine request gets no answer.
pub fn replay(scene: Scene<'_>, options: &ReplayOptions) -> Result<Replayed> {
    let star = scene.star;
    let stage = Stage::start(scene, Policy::ZeroRtt, Like::idle(2))?;
    let client = Client::new(&stage.identity.certificate, Mode::ZeroRtt)?;
    let requests = options.requests;
    let mut copyist = Thief::start(&star.clients[1], &stage.identity)?;
    let flights = record(&stage, &client, requests, &mut copyist)?;
    let misses = || stage.servers.iter().map(|server| server.sessions().missed).sum::<u64>();
    // Connections that a replay would be taken for a packet of have to be forgotten: three PTO.
    std::thread::sleep(Duration::from_secs(2));
    let before = misses();
    let mut replayed = Replayed { recorded: flights.len(), copied: copyist.stop(), ..Replayed::default() };
    for round in 0..options.times {
        let address = Star::client_address(1, 1 + (round % 250) as u8);
        star.clients[1].enter(|| send(address, &flights))??;
        replayed.tries += flights.len();
    }
    wait_for_silence(misses);
    replayed.missed = misses() - before;
    for number in 1..=requests as u64 {
        let done: Vec<u32> = stage.servers.iter().map(|server| server.done(number)).collect();
        replayed.repeated += usize::from(done.iter().sum::<u32>() > 1);
        replayed.elsewhere += done.iter().filter(|done| **done > 0).count().saturating_sub(1);
    }
    for server in &stage.servers {
        let mut thief = Thief::start(&star.clients[1], &stage.identity)?;
        thief.take(&server.give_up());
        for (flight, number) in flights.iter().zip(1..) {
            thief.try_to_read(flight, number)?;
        }
        replayed.stolen.push(thief.stop());
    }
    stage.stop()?;
    Ok(replayed)
}

/// Until a count stays.
fn wait_for_silence(count: impl Fn() -> u64) {
    let begun = Instant::now();
    let mut last = count();
    loop {
        std::thread::sleep(Duration::from_millis(500));
        let now = count();
        if now == last || begun.elapsed() > PATIENCE {
            return;
        }
        last = now;
    }
}

/// The first datagrams of each connection of a client.
pub(super) type Flight = Vec<Vec<u8>>;

/// Has requests 1 to so many done as 0-RTT data, and gives what was sent before each first answer. The copyist takes
/// what servers remember before each, and reads it at once.
fn record(stage: &Stage<'_>, client: &Client, requests: usize, copyist: &mut Thief<'_>) -> Result<Vec<Flight>> {
    let home = &stage.star.clients[0];
    home.enter(|| visit(client, Stage::vip(), 0))??;
    let mut flights = Vec::new();
    for number in 1..=requests as u64 {
        for server in &stage.servers {
            let remembered = server.give_up();
            copyist.take(&remembered);
            server.remember(&remembered);
        }
        let flight = home.enter(|| record_one(client, number))??;
        copyist.try_to_read(&flight, number)?;
        flights.push(flight);
    }
    Ok(flights)
}

fn record_one(client: &Client, number: u64) -> Result<Flight> {
    let wire = Wire::start(genuine())?;
    match visit(client, wire.address, number)? {
        Early::Accepted => Ok(wire.stop()),
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
        // The close has to leave.
        tokio::time::sleep(Duration::from_millis(20)).await;
        Ok(early)
    })
}

fn send(address: Ipv4Addr, flights: &[Flight]) -> Result<()> {
    for flight in flights {
        // A port of its own each time.
        let socket = bind(address)?;
        for datagram in flight {
            let sent = socket.send_to(datagram, Stage::vip());
            sent.map_err(Error::io("send a recorded datagram"))?;
        }
        // As much as servers keep up with.
        std::thread::sleep(Duration::from_millis(3));
    }
    Ok(())
}

/// What a client's datagrams pass, in the client's namespace. It ends when this is dropped.
struct Wire {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    flight: Arc<Mutex<Flight>>,
}

impl Wire {
    /// To and from the VIP, by another socket of the same address.
    fn start(address: Ipv4Addr) -> Result<Wire> {
        let (near, far) = (bind(address)?, bind(address)?);
        let failed = |what: &str| Error::io(format!("{what} for a wire"));
        far.connect(Stage::vip()).map_err(failed("connect"))?;
        for socket in [&near, &far] {
            let look = Some(Duration::from_millis(50));
            socket.set_read_timeout(look).map_err(failed("set a time"))?;
        }
        let wire = Wire {
            address: near.local_addr().map_err(failed("look up a port"))?,
            stop: Arc::default(),
            flight: Arc::default(),
        };
        let (near, far) = (Arc::new(near), Arc::new(far));
        let client = Arc::new(Mutex::new(None));
        let out =
            Out { stop: Arc::clone(&wire.stop), flight: Arc::clone(&wire.flight), has_answer: Arc::default(), client };
        let back = out.clone();
        let (near2, far2) = (Arc::clone(&near), Arc::clone(&far));
        std::thread::spawn(move || out.forward(&near, &far));
        std::thread::spawn(move || back.back(&far2, &near2));
        Ok(wire)
    }

    /// What was sent before anything came back.
    fn stop(self) -> Flight {
        self.stop.store(true, Ordering::Relaxed);
        let mut flight = self.flight.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut flight)
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

#[derive(Clone)]
struct Out {
    stop: Arc<AtomicBool>,
    flight: Arc<Mutex<Flight>>,
    has_answer: Arc<AtomicBool>,
    client: Arc<Mutex<Option<SocketAddr>>>,
}

impl Out {
    fn forward(&self, near: &UdpSocket, far: &UdpSocket) {
        let mut bytes = [0; 2048];
        while !self.stop.load(Ordering::Relaxed) {
            // Nothing, for now.
            let Ok((count, from)) = near.recv_from(&mut bytes) else {
                continue;
            };
            *self.client.lock().unwrap_or_else(PoisonError::into_inner) = Some(from);
            if !self.has_answer.load(Ordering::Relaxed) {
                let mut flight = self.flight.lock().unwrap_or_else(PoisonError::into_inner);
                flight.push(bytes[..count].to_vec());
            }
            // What is lost is sent again.
            let _ = far.send(&bytes[..count]);
        }
    }

    fn back(&self, far: &UdpSocket, near: &UdpSocket) {
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
