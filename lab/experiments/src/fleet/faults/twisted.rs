//! An agent that sends batches twice, and out of order.

use std::{
    collections::BTreeMap,
    io,
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use dwell_fleet::wire::{AgentMessage, Batch, Content};
use dwell_socket::clock::monotonic_ns;
use dwell_testbed::{Error, Namespace, Result};
use rustls::ClientConfig;

use super::{
    super::{
        PORT,
        agents::{interval_report, unix_ns},
        traffic::{self, Flow},
    },
    figures::{Interval, Truth},
    peers::{self, ask, encode, greet, tls},
};

/// Batches of one run in the order in which they are sent; the connection is new at each 0. Those that come after a later one
/// count as lost, which the collector notes as a gap.
const ORDER: [u64; 16] = [0, 1, 1, 2, 2, 1, 0, 2, 3, 3, 6, 5, 4, 6, 0, 7];
/// How long the collector may take for an answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time between two batches.
const PAUSE: Duration = Duration::from_millis(40);

/// The agent, until it is ended.
pub(super) struct Twisted {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Result<io::Result<(Truth, u64)>>>,
}

struct Agent {
    config: Arc<ClientConfig>,
    flows: Vec<Flow>,
    interval_ns: u64,
    /// What it has sent, by number.
    sent: BTreeMap<u64, Interval>,
    batches: u64,
}

impl Twisted {
    /// Starts it with the certificate of the first peer.
    pub(super) fn start(
        namespace: &Namespace,
        config: Arc<ClientConfig>,
        flows: Vec<Flow>,
        interval_ns: u64,
    ) -> Twisted {
        let is_over = Arc::<AtomicBool>::default();
        let until = Arc::clone(&is_over);
        let thread = namespace.spawn_thread(move || {
            let rows = traffic::rows(&flows);
            let mut agent = Agent { config, flows, interval_ns, sent: BTreeMap::new(), batches: 0 };
            while !until.load(Ordering::Relaxed) {
                agent.run()?;
            }
            Ok((Truth { host: peers::name(0), rows, intervals: agent.sent }, agent.batches))
        });
        Twisted { is_over, thread }
    }

    /// Ends it. Returns what it has sent, and the number of batches, each time counted that one was sent.
    pub(super) fn end(self) -> Result<(Truth, u64)> {
        self.is_over.store(true, Ordering::Relaxed);
        let sent = self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        sent.map_err(Error::io("send batches"))
    }
}

impl Agent {
    /// Sends the batches of one run.
    fn run(&mut self) -> io::Result<()> {
        let (run, first, mut stream) = (rand::random(), self.sent.len() as u64, None);
        let mut frames: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        for number in 1..=ORDER.into_iter().max().unwrap_or(0) {
            let place = first + number - 1;
            let report = interval_report(&self.flows, monotonic_ns(), self.interval_ns + place);
            self.sent.insert(place, Interval { at_unix_ns: unix_ns(), is_promised: !matches!(number, 4 | 5) });
            let content = Content { intervals: vec![report], ..Content::default() };
            frames.insert(number, encode(&AgentMessage::Batch(Box::new(Batch { number, content }))));
            std::thread::sleep(PAUSE);
        }
        for number in ORDER {
            let Some(frame) = frames.get(&number) else {
                drop(stream.take());
                let socket = TcpStream::connect((peers::address(0), PORT))?;
                socket.set_read_timeout(Some(PATIENCE))?;
                let mut new = tls(socket, &self.config, peers::address(0))?;
                greet(&mut new, &peers::name(0), run)?;
                stream = Some(new);
                continue;
            };
            let stream = stream.as_mut().expect("a run begins with a connection");
            ask(stream, frame)?;
            self.batches += 1;
        }
        let leave = encode(&AgentMessage::Leave);
        stream.as_mut().map_or(Ok(()), |stream| ask(stream, &leave).map(drop))
    }
}
