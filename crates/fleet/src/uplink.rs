//! An agent's connection to its collector, which is made again whenever it is lost.

use std::{
    fmt, io,
    net::{Shutdown, SocketAddr, TcpStream, ToSocketAddrs},
    str::FromStr,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread,
    time::Duration,
};

use crate::{
    Backlog, Error, Identity, Outbox, Secret,
    link::{HANDSHAKE, Link},
    outbox::Next,
    wire::{Content, FrameError, FromAgent, FromCollector, Hello, MAX_FRAME_BYTES},
};

/// Between two attempts; from the first to the last they double.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LAST_PAUSE: Duration = Duration::from_secs(5);
/// After so long without a batch, an agent says that it is there.
const ALIVE: Duration = Duration::from_secs(3);
/// A collector may take so long to store a batch, once it has it.
const STORING: Duration = Duration::from_secs(60);

/// A collector looks into its store before it answers a hello.
const GREETING: Duration = Duration::from_secs(20);
/// To say goodbye to it.
const GOODBYE: Duration = Duration::from_millis(500);

/// Where a collector is: HOST:PORT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CollectorName(String);

impl CollectorName {
    /// Its port.
    pub fn port(&self) -> u16 {
        let port = self.0.rsplit_once(':').map(|(_, port)| port.parse());
        port.and_then(Result::ok).expect("a name has a port, or it would not have been parsed")
    }

    fn host(&self) -> &str {
        let (host, _) = self.0.rsplit_once(':').unwrap_or_default();
        host.trim_matches(['[', ']'])
    }
}

impl FromStr for CollectorName {
    type Err = Error;

    fn from_str(text: &str) -> Result<CollectorName, Error> {
        let is_place = |(host, port): (&str, &str)| !host.is_empty() && port.parse::<u16>().is_ok();
        match text.rsplit_once(':').is_some_and(is_place) {
            true => Ok(CollectorName(text.into())),
            false => Err(Error::Collector(text.into())),
        }
    }
}

impl fmt::Display for CollectorName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What becomes of the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// It has shown who it is. From now on it may ask for more than is sent, by what both
    /// know.
    Met {
        /// Where it is.
        collector: SocketAddr,
        /// Known to both.
        secret: Secret,
    },
    /// The collector takes what is sent.
    Connected {
        /// Where it is.
        collector: SocketAddr,
    },
    /// It does not, or not any more.
    Lost {
        /// Why.
        why: String,
        /// The reason is another than the last time.
        is_new: bool,
    },
}

/// Sends what is pushed, as long as it lives.
#[derive(Debug)]
pub struct Uplink {
    outbox: Arc<Outbox>,
    stream: Arc<Mutex<Option<TcpStream>>>,
    stop: Sender<()>,
    /// Fails when the thread ends.
    ends: Receiver<()>,
}

impl Uplink {
    /// Begins to look for the collector. At most `most_bytes` wait for it.
    ///
    /// # Errors
    ///
    /// [`Error::Thread`], if no thread can be started.
    pub fn start(
        collector: CollectorName,
        identity: Identity,
        hello: Hello,
        most_bytes: usize,
        tell: impl FnMut(Event) + Send + 'static,
    ) -> Result<Uplink, Error> {
        let (stop, stopped) = mpsc::channel();
        let (at_end, ends) = mpsc::channel();
        let uplink = Uplink { outbox: Arc::new(Outbox::new(most_bytes)), stream: Arc::default(), stop, ends };
        let mut sender = Sending {
            collector,
            identity,
            hello,
            outbox: Arc::clone(&uplink.outbox),
            stream: Arc::clone(&uplink.stream),
            stopped,
            tell: Box::new(tell),
        };
        thread::Builder::new()
            .name("uplink".into())
            .spawn(move || {
                sender.run();
                drop(at_end);
            })
            .map_err(Error::Thread)?;
        Ok(uplink)
    }

    /// Sends this, now or later.
    pub fn push(&self, content: Content) {
        self.outbox.push(content);
    }

    /// What waits.
    pub fn backlog(&self) -> Backlog {
        self.outbox.backlog()
    }

    /// Waits until all that was pushed is stored, for so long at most. Returns what is not.
    pub fn finish(self, patience: Duration) -> Backlog {
        self.outbox.close();
        if self.outbox.empties(patience) {
            let _ = self.stop.send(());
            let _ = self.ends.recv_timeout(GOODBYE);
        }
        self.outbox.backlog()
    }
}

impl Drop for Uplink {
    fn drop(&mut self) {
        let stream = self.stream.lock();
        if let Some(stream) = stream.unwrap_or_else(PoisonError::into_inner).take() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// The thread's side.
struct Sending {
    collector: CollectorName,
    identity: Identity,
    hello: Hello,
    outbox: Arc<Outbox>,
    stream: Arc<Mutex<Option<TcpStream>>>,
    stopped: Receiver<()>,
    tell: Box<dyn FnMut(Event) + Send>,
}

impl Sending {
    fn run(&mut self) {
        let mut pause = FIRST_PAUSE;
        let mut told = None;
        loop {
            let mut was_welcome = false;
            let Err(why) = self.session(&mut was_welcome) else {
                return;
            };
            if was_welcome {
                (pause, told) = (FIRST_PAUSE, None);
            }
            let is_new = told.as_ref() != Some(&why);
            told = Some(why.clone());
            (self.tell)(Event::Lost { why, is_new });
            // Agents that lost a collector together do not come back together.
            match self.stopped.recv_timeout(pause.mul_f64(rand::random_range(0.5..1.0))) {
                Err(RecvTimeoutError::Timeout) => pause = LAST_PAUSE.min(pause * 2),
                _ => return,
            }
        }
    }

    /// One connection, until it is lost; without an error, all was sent.
    fn session(&mut self, was_welcome: &mut bool) -> Result<(), String> {
        let (mut link, collector) = self.connect()?;
        let secret = link.secret;
        (self.tell)(Event::Met { collector, secret });
        link.set_idle_timeout(GREETING);
        link.send(&FromAgent::Hello(self.hello.clone())).map_err(|error| said(&error))?;
        let through = match receive(&mut link)? {
            FromCollector::Welcome { through } => through,
            FromCollector::Refused(why) => return Err(format!("it refuses: {why}")),
            FromCollector::Stored { .. } => return Err("it speaks out of turn".into()),
        };
        *was_welcome = true;
        self.outbox.stored(through);
        (self.tell)(Event::Connected { collector });
        loop {
            match self.outbox.next(ALIVE) {
                Next::Over => return Ok(()),
                Next::Batch(bytes) => {
                    link.set_idle_timeout(STORING);
                    link.send_encoded(&bytes).map_err(|error| said(&error))?;
                }
                Next::Nothing => {
                    link.set_idle_timeout(STORING);
                    link.send(&FromAgent::Alive).map_err(|error| said(&error))?;
                }
            }
            match receive(&mut link)? {
                FromCollector::Stored { through } => self.outbox.stored(through),
                FromCollector::Refused(why) => return Err(format!("it refuses: {why}")),
                FromCollector::Welcome { .. } => return Err("it speaks out of turn".into()),
            }
        }
    }

    fn connect(&mut self) -> Result<(Link, SocketAddr), String> {
        let name = self.identity.collector(self.collector.host());
        let name = name.map_err(|error| error.to_string())?;
        let stream = dial(&self.collector.0).map_err(|io| io.to_string())?;
        let address = stream.peer_addr().map_err(|io| io.to_string())?;
        let copy = stream.try_clone().map_err(|io| io.to_string())?;
        *self.stream.lock().unwrap_or_else(PoisonError::into_inner) = Some(copy);
        let link = Link::connect(stream, &self.identity, name).map_err(|error| said(&error))?;
        Ok((link, address))
    }
}

/// Each address that the name has.
fn dial(collector: &str) -> io::Result<TcpStream> {
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "its name has no address");
    for address in collector.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, HANDSHAKE / 2) {
            Ok(stream) => return Ok(stream),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

fn receive(link: &mut Link) -> Result<FromCollector, String> {
    link.receive(MAX_FRAME_BYTES).map_err(|error| said(&error))
}

/// What went wrong, and what that may mean.
fn said(error: &FrameError) -> String {
    let FrameError::Io(io) = error else {
        return error.to_string();
    };
    use rustls::Error::{AlertReceived, InvalidCertificate, PeerIncompatible};
    let tls = io.get_ref().and_then(|inner| inner.downcast_ref());
    match tls {
        Some(InvalidCertificate(_)) => format!("it is a stranger: its key is another ({io})"),
        Some(AlertReceived(_) | PeerIncompatible(_)) => {
            format!("it takes us for a stranger: see that both sides have the same key ({io})")
        }
        _ if io.kind() == io::ErrorKind::UnexpectedEof => "it has hung up".into(),
        _ => io.to_string(),
    }
}
