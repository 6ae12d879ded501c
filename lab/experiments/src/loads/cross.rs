//! Other traffic on the same links: datagrams that come at random, both ways, and that nobody answers.

use std::{
    net::{SocketAddr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use dwell_testbed::{BitsPerSecond, Bytes, Error, Lab, Namespace, Result, Role};

use super::random::{exponential, generator};

/// Payload of a datagram, and its IP packet.
const PAYLOAD: usize = 1_400;
const PACKET: Bytes = Bytes(PAYLOAD as u64 + 28);
/// Discard.
const PORT: u16 = 9;
/// So that sending ends in time.
const LONGEST_SLEEP: Duration = Duration::from_millis(50);

/// Datagrams between client and server, until it is dropped.
pub(super) struct Cross {
    stop: Arc<AtomicBool>,
    senders: Vec<JoinHandle<Result<()>>>,
    /// Where they arrive. Nobody reads: what does not fit is dropped, and no error is sent back.
    _sinks: [UdpSocket; 2],
}

impl Cross {
    /// Starts sending at that mean rate in each direction.
    pub(super) fn start(lab: &Lab, rate: BitsPerSecond, seed: u64) -> Result<Self> {
        let client = SocketAddr::from((Lab::address_v4(Role::Client), PORT));
        let server = SocketAddr::from((Lab::address_v4(Role::Server), PORT));
        let sinks = [bind(lab.client(), client)?, bind(lab.server(), server)?];
        let mut cross = Self { stop: Arc::default(), senders: Vec::new(), _sinks: sinks };
        let mean_s = Duration::from(rate.serialization(PACKET)).as_secs_f64();
        for (way, (from, to)) in (0..).zip([(client, server), (server, client)]) {
            let socket = cross._sinks[way as usize].try_clone();
            let socket = socket.map_err(Error::io(format!("send from {from}")))?;
            let stop = Arc::clone(&cross.stop);
            let sender = thread::spawn(move || send(&socket, to, mean_s, seed, way, &stop));
            cross.senders.push(sender);
        }
        Ok(cross)
    }
}

impl Drop for Cross {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for sender in self.senders.drain(..) {
            // What it could not send is missing from the background only.
            let _ = sender.join();
        }
    }
}

fn bind(namespace: &Namespace, address: SocketAddr) -> Result<UdpSocket> {
    namespace.enter(|| UdpSocket::bind(address))?.map_err(Error::io(format!("bind {address}")))
}

/// At random times, as many a second as the mean asks for: those missed in a sleep go together after it.
fn send(socket: &UdpSocket, to: SocketAddr, mean_s: f64, seed: u64, way: u64, stop: &AtomicBool) -> Result<()> {
    let mut random = generator(seed, 6, way);
    let payload = [0x5a; PAYLOAD];
    let begun = Instant::now();
    let mut next_s = 0.0;
    while !stop.load(Ordering::Relaxed) {
        let early = Duration::from_secs_f64(next_s).saturating_sub(begun.elapsed());
        if !early.is_zero() {
            thread::sleep(early.min(LONGEST_SLEEP));
            continue;
        }
        socket.send_to(&payload, to).map_err(Error::io(format!("send to {to}")))?;
        next_s += exponential(&mut random, mean_s);
    }
    Ok(())
}
