//! Peers that do not speak as an agent does: garbage, other versions, frames that never end, one byte per second.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{Ipv4Addr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use dwell_fleet::wire::{self, AgentMessage, AgentName, Batch, Content, Hello, MAX_FRAME_BYTES, Version};
use dwell_testbed::{Namespace, Result};
use rustls::{ClientConfig, ClientConnection, StreamOwned, pki_types::ServerName};

use super::super::{PORT, traffic::nth_address};

/// The first address of a peer; each has one of its own.
const FIRST: Ipv4Addr = Ipv4Addr::new(10, 160, 0, 1);
/// How long a peer waits for an answer before it looks whether it is to end.
const PATIENCE: Duration = Duration::from_secs(2);
/// Time between two connections of a peer.
const REST: Duration = Duration::from_millis(20);
/// Answers are not longer.
const MAX_ANSWER_BYTES: usize = 4096;

/// TLS to the collector.
pub(super) type Stream = StreamOwned<ClientConnection, TcpStream>;

/// What a peer is, and for how long.
pub(super) struct Peer {
    number: usize,
    /// An agent's certificate, which speaks the newest version, and the same with none that the collector knows.
    configs: [Arc<ClientConfig>; 2],
    is_over: Arc<AtomicBool>,
    acts: Arc<AtomicU64>,
}

/// Peers that connect again and again, until this is ended.
pub(super) struct Peers {
    is_over: Arc<AtomicBool>,
    acts: Arc<AtomicU64>,
    threads: Vec<JoinHandle<Result<()>>>,
}

/// What a peer does with one connection.
pub(super) type Act = fn(&Peer) -> io::Result<()>;

/// The address of a peer.
pub(super) fn address(number: usize) -> Ipv4Addr {
    nth_address(FIRST, number)
}

/// The name of the agent whose certificate a peer has.
pub(super) fn name(number: usize) -> String {
    format!("peer-{number:05}")
}

impl Peers {
    /// Starts one peer per pair of configurations.
    pub(super) fn start(namespace: &Namespace, configs: Vec<[Arc<ClientConfig>; 2]>, act: Act) -> Peers {
        let (is_over, acts) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let start = |(number, configs)| {
            let peer = Peer { number, configs, is_over: Arc::clone(&is_over), acts: Arc::clone(&acts) };
            namespace.spawn_thread(move || {
                while !peer.is_over() {
                    // It is meant to fail.
                    let _ = act(&peer);
                    peer.rest(REST);
                }
            })
        };
        let threads = configs.into_iter().enumerate().map(start).collect();
        Peers { is_over, acts, threads }
    }

    /// Ends them. Returns how often they have done what they do.
    pub(super) fn end(self) -> Result<u64> {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        Ok(self.acts.load(Ordering::Relaxed))
    }
}

impl Peer {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn rest(&self, time: Duration) {
        const STEP: Duration = Duration::from_millis(50);
        let mut left = time;
        while !left.is_zero() && !self.is_over() {
            std::thread::sleep(left.min(STEP));
            left = left.saturating_sub(STEP);
        }
    }

    fn count(&self) {
        self.acts.fetch_add(1, Ordering::Relaxed);
    }

    fn dial(&self) -> io::Result<TcpStream> {
        let stream = TcpStream::connect((address(self.number), PORT))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(stream)
    }

    fn tls(&self, config: &Arc<ClientConfig>) -> io::Result<Stream> {
        tls(self.dial()?, config, address(self.number))
    }

    fn greeted(&self, run: u128) -> io::Result<Stream> {
        let mut stream = self.tls(&self.configs[0])?;
        greet(&mut stream, &name(self.number), run)?;
        Ok(stream)
    }

    /// Writes bytes, one per second, until the other side has enough of them.
    fn trickle(&self, to: &mut impl Write, bytes: impl IntoIterator<Item = u8>) -> io::Result<()> {
        for byte in bytes {
            to.write_all(&[byte])?;
            to.flush()?;
            self.count();
            self.rest(Duration::from_secs(1));
            if self.is_over() {
                break;
            }
        }
        Ok(())
    }
}

/// Makes a connection one of TLS.
pub(super) fn tls(mut stream: TcpStream, config: &Arc<ClientConfig>, address: Ipv4Addr) -> io::Result<Stream> {
    let name = ServerName::from(std::net::IpAddr::from(address));
    let mut tls = ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
    while tls.is_handshaking() {
        tls.complete_io(&mut stream)?;
    }
    Ok(StreamOwned::new(tls, stream))
}

/// Introduces an agent. Returns the collector's answer.
pub(super) fn greet(stream: &mut Stream, name: &str, run: u128) -> io::Result<Vec<u8>> {
    let hello = Hello {
        name: AgentName::try_from(name.to_owned()).map_err(io::Error::other)?,
        run: run.to_be_bytes(),
        boot: format!("boot-of-{name}"),
        sync_port: None,
        is_past: false,
        confirmed: 0,
    };
    ask(stream, &encode(&AgentMessage::Hello(hello)))
}

/// Sends a frame and waits for the answer.
pub(super) fn ask(stream: &mut Stream, content: &[u8]) -> io::Result<Vec<u8>> {
    wire::write(stream, content).map_err(io::Error::other)?;
    wire::read(stream, MAX_ANSWER_BYTES).map_err(io::Error::other)
}

/// A message of the newest version.
pub(super) fn encode(message: &AgentMessage) -> Vec<u8> {
    wire::encode(Version::NEWEST, message).expect("it is short")
}

fn random(bytes: usize) -> Vec<u8> {
    let mut all = vec![0; bytes];
    rand::fill(&mut all);
    all
}

/// Says something else than the protocol: instead of TLS, of a hello, or of a batch.
pub(super) fn garbage(peer: &Peer) -> io::Result<()> {
    peer.count();
    match peer.number % 3 {
        0 => {
            let mut stream = peer.dial()?;
            stream.write_all(&random(70_000))?;
            stream.read(&mut [0]).map(drop)
        }
        1 => ask(&mut peer.tls(&peer.configs[0])?, &random(4000)).map(drop),
        _ => {
            let mut stream = peer.greeted(rand::random())?;
            loop {
                ask(&mut stream, &random(4000))?;
            }
        }
    }
}

/// Speaks a version that is not known yet, or not any more.
pub(super) fn other_versions(peer: &Peer) -> io::Result<()> {
    peer.count();
    if peer.number.is_multiple_of(2) {
        return peer.tls(&peer.configs[1]).map(drop);
    }
    let mut stream = peer.tls(&peer.configs[0])?;
    let mut hello = encode(&AgentMessage::KeepAlive);
    hello[0] = if rand::random() { 2 } else { 200 };
    ask(&mut stream, &hello).map(drop)
}

/// Sends frames that are as long as can be, for ever: batches that are none.
pub(super) fn long_frames(peer: &Peer) -> io::Result<()> {
    let mut stream = peer.greeted(rand::random())?;
    for number in 1.. {
        let mut frame = encode(&AgentMessage::Batch(Box::new(Batch { number, content: Content::default() })));
        // The list of intervals is longer than any.
        frame.pop();
        frame.resize(MAX_FRAME_BYTES, 0xff);
        peer.count();
        match ask(&mut stream, &frame) {
            Err(error) if error.kind() == ErrorKind::WouldBlock && !peer.is_over() => {}
            answered => drop(answered?),
        }
    }
    Ok(())
}

/// Says one byte per second: instead of TLS, of a hello, or in the middle of a batch.
pub(super) fn one_byte_a_second(peer: &Peer) -> io::Result<()> {
    // A handshake of TLS 1.3 of 512 bytes, and a frame of as many as can be.
    let begun = [0x16, 0x03, 0x01, 0x02, 0x00];
    let frame = (MAX_FRAME_BYTES as u32).to_be_bytes();
    match peer.number % 3 {
        0 => peer.trickle(&mut peer.dial()?, begun.into_iter().chain(std::iter::repeat(1))),
        1 => peer.trickle(&mut peer.tls(&peer.configs[0])?, [0, 0, 4, 0].into_iter().chain(std::iter::repeat(1))),
        _ => {
            let mut stream = peer.greeted(rand::random())?;
            peer.trickle(&mut stream, frame.into_iter().chain(std::iter::repeat(1)))
        }
    }
}
