//! An agent's connection to its collector, which is re-established whenever it is lost.

use std::{
    collections::VecDeque,
    fmt, io,
    net::{Shutdown, SocketAddr, TcpStream, ToSocketAddrs},
    num::NonZeroU16,
    str::FromStr,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use dwell_socket::privilege::{self, Capability};

use crate::{
    Backlog, Error, Identity, NewKey, Outbox, Secret, Token,
    identity::refusal,
    link::{HANDSHAKE_TIMEOUT, Link, is_close},
    outbox::{Next, Run},
    wire::{AgentMessage, CollectorMessage, Content, FrameError, Hello, MAX_FRAME_BYTES},
};

/// Pause before the first new attempt to connect. It doubles with each attempt, up to [`MAX_PAUSE`].
const MIN_PAUSE: Duration = Duration::from_millis(200);
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// Longest pause that a busy collector is granted.
const MAX_BUSY_PAUSE: Duration = Duration::from_secs(60);
/// Time without a batch after which an agent sends a keep-alive.
const KEEP_ALIVE: Duration = Duration::from_secs(3);
/// Time that a collector may take to store a batch after receiving it.
const STORE_TIMEOUT: Duration = Duration::from_secs(60);
/// Time that a collector may take to answer a hello: it searches its store first.
const HELLO_TIMEOUT: Duration = Duration::from_secs(20);
/// Time between two checks that the collector's certificate is still accepted.
const CHECK: Duration = Duration::from_secs(10);
/// Time to close the connection in order.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);

/// The address of a collector: HOST:PORT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CollectorAddress(String);

impl CollectorAddress {
    /// The port.
    pub fn port(&self) -> u16 {
        let port = self.0.rsplit_once(':').map(|(_, port)| port.parse());
        port.and_then(Result::ok).expect("parsing rejects an address without a port")
    }

    fn host(&self) -> &str {
        let (host, _) = self.0.rsplit_once(':').unwrap_or_default();
        host.trim_matches(['[', ']'])
    }
}

impl FromStr for CollectorAddress {
    type Err = Error;

    fn from_str(text: &str) -> Result<CollectorAddress, Error> {
        let is_valid = |(host, port): (&str, &str)| !host.is_empty() && port.parse::<NonZeroU16>().is_ok();
        match text.rsplit_once(':').is_some_and(is_valid) {
            true => Ok(CollectorAddress(text.into())),
            false => Err(Error::Collector(text.into())),
        }
    }
}

impl fmt::Display for CollectorAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A change of the connection to the collector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The collector has authenticated. From now on it may send clock requests keyed by the secret.
    Authenticated {
        /// The collector's address.
        collector: SocketAddr,
        /// The secret of this connection.
        secret: Secret,
    },
    /// The collector accepts batches.
    Connected {
        /// The collector's address.
        collector: SocketAddr,
        /// Whether these are batches that an earlier run has left on disk.
        is_past: bool,
    },
    /// The collector will never store a batch, which is given up.
    Rejected {
        /// Why, for people to read.
        reason: String,
    },
    /// A batch cannot be sent, and is given up: it was damaged on disk, or is too long in the collector's version.
    GivenUp {
        /// Why, for people to read.
        reason: String,
    },
    /// Files of the agent's credentials were replaced and cannot be used, for this reason. Those that were there before stay in use.
    Unusable(String),
    /// The disk that batches are kept on has failed, or works again.
    Disk(String),
    /// The collector stores nothing at present, and the agent waits as it was asked to.
    Busy {
        /// Why, for people to read.
        reason: String,
        /// Whether the reason differs from that of the previous time, or something was stored in between.
        is_new: bool,
    },
    /// An attempt to connect failed, or the connection was lost.
    Disconnected {
        /// Why, for people to read.
        reason: String,
        /// Whether none of the previous failures had this reason, since a collector last accepted the agent.
        is_new: bool,
    },
}

/// Sends batches to a collector from a thread of its own, until it is dropped.
#[derive(Debug)]
pub struct Uplink {
    outbox: Arc<Outbox>,
    stream: Arc<Mutex<Option<TcpStream>>>,
    stop: Sender<()>,
    /// Disconnects when the thread ends.
    ended: Receiver<()>,
}

impl Uplink {
    /// Starts to connect to the collector, to send what is in `outbox`, which is of the run of `hello`. The thread calls
    /// `on_event` with each change of the connection.
    ///
    /// # Errors
    ///
    /// [`Error::NotAgent`], if these are not the credentials of an agent; [`Error::Thread`], if the thread cannot be started.
    pub fn start(
        collector: CollectorAddress,
        identity: Identity,
        hello: Hello,
        outbox: Outbox,
        on_event: impl FnMut(Event) + Send + 'static,
    ) -> Result<Uplink, Error> {
        identity.client()?;
        let (stop, stopped) = mpsc::channel();
        let (running, ended) = mpsc::channel();
        let uplink = Uplink { outbox: Arc::new(outbox), stream: Arc::default(), stop, ended };
        let mut worker = Worker {
            collector,
            identity,
            hello,
            outbox: Arc::clone(&uplink.outbox),
            stream: Arc::clone(&uplink.stream),
            stopped,
            on_event: Box::new(on_event),
        };
        thread::Builder::new()
            .name("uplink".into())
            .spawn(move || {
                // It speaks to the network. On kernels before 5.19, whoever admits the collector to a map needs this one.
                let _ = privilege::keep(&[Capability::Bpf]);
                worker.run();
                drop(running);
            })
            .map_err(Error::Thread)?;
        Ok(uplink)
    }

    /// Queues a batch for sending.
    pub fn push(&self, content: Content) {
        self.outbox.push(content);
    }

    /// Returns the size and the losses of the outbox.
    pub fn backlog(&self) -> Backlog {
        self.outbox.backlog()
    }

    /// Takes out what the collector has not been sent, and hands it to `each`, batch by batch.
    pub(crate) fn move_unsent(&self, mut each: impl FnMut(Content)) {
        self.outbox.move_unsent(|batch| each(batch.content));
    }

    /// Marks the end: nothing more will be pushed.
    pub(crate) fn close(&self) {
        self.outbox.close();
    }

    /// Waits at most `timeout` until all batches are stored, and disconnects. Returns what is left.
    pub fn finish(self, timeout: Duration) -> Backlog {
        self.close();
        if self.outbox.wait_until_empty(timeout) {
            let _ = self.stop.send(());
            let _ = self.ended.recv_timeout(CLOSE_TIMEOUT);
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

/// How a connection ended in order.
enum SessionEnd {
    /// The outbox is closed, and all its batches are stored.
    Finished,
    /// The batches of this run are stored; those of another are next.
    OtherRun,
}

/// The thread's side of an [`Uplink`].
struct Worker {
    collector: CollectorAddress,
    identity: Identity,
    hello: Hello,
    outbox: Arc<Outbox>,
    stream: Arc<Mutex<Option<TcpStream>>>,
    stopped: Receiver<()>,
    on_event: Box<dyn FnMut(Event) + Send>,
}

/// A time in which a busy collector is sent no batches, kept until it has stored one again.
struct Pause {
    until: Instant,
    reason: String,
}

impl Worker {
    fn run(&mut self) {
        let mut pause = MIN_PAUSE;
        let mut reasons = Reasons::default();
        loop {
            let mut was_welcome = false;
            let reason = match self.session(&mut was_welcome) {
                Ok(SessionEnd::Finished) => return,
                Ok(SessionEnd::OtherRun) => continue,
                Err(reason) => reason,
            };
            self.tend();
            if was_welcome {
                (pause, reasons) = (MIN_PAUSE, Reasons::default());
            }
            let is_new = reasons.add(&reason);
            (self.on_event)(Event::Disconnected { reason, is_new });
            // A random pause, so that agents that lost a collector together do not return together.
            match self.stopped.recv_timeout(pause.mul_f64(rand::random_range(0.5..1.0))) {
                Err(RecvTimeoutError::Timeout) => pause = MAX_PAUSE.min(pause * 2),
                _ => return,
            }
        }
    }

    /// Runs one connection, for the batches of one run, until it is lost or has nothing left to do.
    fn session(&mut self, was_welcome: &mut bool) -> Result<SessionEnd, String> {
        let (mut link, collector) = self.connect()?;
        let (run, confirmed) = self.outbox.next_run();
        let is_past = !self.outbox.is_live(&run);
        let secret = link.secret;
        (self.on_event)(Event::Authenticated { collector, secret });
        link.set_idle_timeout(HELLO_TIMEOUT);
        let hello = self.hello_of(&run, confirmed);
        link.send(&AgentMessage::Hello(hello)).map_err(|error| describe_unwelcome(&error))?;
        let through = match link.receive(MAX_FRAME_BYTES).map_err(|error| describe_unwelcome(&error))? {
            CollectorMessage::Welcome { through } => through,
            CollectorMessage::Refused(reason) => return Err(refused(&reason)),
            _ => return Err(FrameError::Turn.to_string()),
        };
        *was_welcome = true;
        self.outbox.acknowledge(&run, through);
        (self.on_event)(Event::Connected { collector, is_past });
        let mut pause: Option<Pause> = None;
        let mut checked = Instant::now();
        loop {
            if checked.elapsed() >= CHECK {
                checked = Instant::now();
                self.identity.check_collector(&link.presented, self.collector.host())?;
            }
            let next = self.next(&run, pause.as_ref());
            self.tend();
            link.set_idle_timeout(STORE_TIMEOUT);
            let is_batch = matches!(next, Next::Batch(..));
            match next {
                Next::Closed => return leave(&mut link).map(|()| SessionEnd::Finished),
                Next::OtherRun => return leave(&mut link).map(|()| SessionEnd::OtherRun),
                Next::Batch(number, bytes) => match link.send_encoded(&bytes) {
                    Err(error @ (FrameError::Content(_) | FrameError::Length(_) | FrameError::Version(_))) => {
                        self.outbox.reject(&run, number);
                        (self.on_event)(Event::GivenUp { reason: error.to_string() });
                        continue;
                    }
                    sent => sent,
                },
                Next::Timeout => link.send(&AgentMessage::KeepAlive),
            }
            .map_err(|error| describe(&error))?;
            match receive(&mut link)? {
                CollectorMessage::Stored { through } => {
                    self.outbox.acknowledge(&run, through);
                    pause = pause.filter(|_| !is_batch);
                }
                CollectorMessage::Busy { reason, retry_ms } => pause = Some(self.pause(reason, retry_ms, pause)),
                CollectorMessage::Rejected { number, reason } => {
                    self.outbox.reject(&run, number);
                    (self.on_event)(Event::Rejected { reason });
                }
                CollectorMessage::Refused(reason) => return Err(refused(&reason)),
                CollectorMessage::Welcome { .. } | CollectorMessage::Enrolled { .. } => {
                    return Err(FrameError::Turn.to_string());
                }
            }
        }
    }

    /// Introduces this agent as the one that made the batches of a run.
    fn hello_of(&self, run: &Run, confirmed: u64) -> Hello {
        let is_past = !self.outbox.is_live(run);
        Hello {
            run: run.id,
            boot: run.boot.clone(),
            // Another boot had another clock, which nobody can compare any more.
            sync_port: self.hello.sync_port.filter(|_| run.boot == self.hello.boot),
            is_past,
            confirmed: if is_past { confirmed } else { confirmed.max(self.hello.confirmed) },
            ..self.hello.clone()
        }
    }

    fn tend(&mut self) {
        if let Some(notice) = self.outbox.tend_disk() {
            (self.on_event)(Event::Disk(notice));
        }
        if let Some(error) = self.identity.take_problem() {
            (self.on_event)(Event::Unusable(error.to_string()));
        }
    }

    /// Returns what to send next: while the collector is busy, nothing but keep-alives.
    fn next(&self, run: &Run, pause: Option<&Pause>) -> Next {
        let left = pause.map_or(Duration::ZERO, |pause| pause.until.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            return self.outbox.next(run, KEEP_ALIVE);
        }
        match self.stopped.recv_timeout(left.min(KEEP_ALIVE)) {
            Err(RecvTimeoutError::Timeout) => Next::Timeout,
            _ => Next::Closed,
        }
    }

    /// Reports that the collector is busy, and returns until when to wait: a little longer than it asks for, so that
    /// agents that were told the same do not return together.
    fn pause(&mut self, reason: String, retry_ms: u32, before: Option<Pause>) -> Pause {
        let is_new = before.is_none_or(|before| before.reason != reason);
        (self.on_event)(Event::Busy { reason: reason.clone(), is_new });
        let asked = Duration::from_millis(retry_ms.into()).clamp(MIN_PAUSE, MAX_BUSY_PAUSE);
        Pause { until: Instant::now() + asked.mul_f64(rand::random_range(1.0..1.5)), reason }
    }

    fn connect(&mut self) -> Result<(Link, SocketAddr), String> {
        let name = self.identity.collector_name(self.collector.host());
        let name = name.map_err(|error| error.to_string())?;
        let stream = dial(&self.collector.0).map_err(|io| io.to_string())?;
        let address = stream.peer_addr().map_err(|io| io.to_string())?;
        let copy = stream.try_clone().map_err(|io| io.to_string())?;
        *self.stream.lock().unwrap_or_else(PoisonError::into_inner) = Some(copy);
        let link = Link::connect(stream, &self.identity, name).map_err(|error| describe_unwelcome(&error))?;
        Ok((link, address))
    }
}

/// Asks a collector for the key of the agent of a token, which is used up then.
///
/// # Errors
///
/// [`Error::Enrolment`], if the collector cannot be reached, or refuses.
pub fn ask_for_key(collector: &CollectorAddress, token: &Token) -> Result<NewKey, Error> {
    let ask = || {
        let identity = Identity::from_token(token);
        let name = identity.collector_name(collector.host()).map_err(|error| error.to_string())?;
        let stream = dial(&collector.0).map_err(|io| io.to_string())?;
        let refused = |error: FrameError| match &error {
            FrameError::Io(io) if io.get_ref().is_some_and(|inner| inner.is::<rustls::Error>()) => {
                Error::Token.to_string()
            }
            FrameError::Io(io) if is_close(io) => {
                format!("it closed the connection, most likely because {}", Error::Token)
            }
            _ => describe(&error),
        };
        let mut link = Link::connect(stream, &identity, name).map_err(refused)?;
        link.set_idle_timeout(HELLO_TIMEOUT);
        link.send(&AgentMessage::Enroll).map_err(refused)?;
        match link.receive(MAX_FRAME_BYTES).map_err(refused)? {
            CollectorMessage::Enrolled { key } => NewKey::parse(key).ok_or_else(|| FrameError::Turn.to_string()),
            CollectorMessage::Refused(reason) => Err(reason),
            _ => Err(FrameError::Turn.to_string()),
        }
    };
    ask().map_err(|reason| Error::Enrolment { collector: collector.to_string(), reason })
}

/// Connects to the first reachable address of a collector's name.
fn dial(collector: &str) -> io::Result<TcpStream> {
    let mut last_error = io::Error::new(io::ErrorKind::NotFound, "its name has no address");
    for address in collector.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, HANDSHAKE_TIMEOUT / 2) {
            Ok(stream) => return Ok(stream),
            Err(error) => last_error = error,
        }
    }
    Err(last_error)
}

fn receive(link: &mut Link) -> Result<CollectorMessage, String> {
    link.receive(MAX_FRAME_BYTES).map_err(|error| describe(&error))
}

/// Takes leave, and waits until the collector has forgotten this connection.
fn leave(link: &mut Link) -> Result<(), String> {
    link.send(&AgentMessage::Leave).map_err(|error| describe(&error))?;
    receive(link).map(|_| ())
}

fn refused(reason: &str) -> String {
    format!("it refuses this agent: {reason}")
}

/// Reasons of failures that were reported.
#[derive(Default)]
struct Reasons(VecDeque<String>);

impl Reasons {
    /// Most reasons that are remembered: refusals alternate between a few.
    const MOST: usize = 8;

    /// Remembers a reason. Returns whether it is new.
    fn add(&mut self, reason: &str) -> bool {
        if self.0.iter().any(|known| known == reason) {
            return false;
        }
        if self.0.len() == Reasons::MOST {
            self.0.pop_front();
        }
        self.0.push_back(reason.to_owned());
        true
    }
}

/// Describes an error of a connection before the collector has accepted the agent.
fn describe_unwelcome(error: &FrameError) -> String {
    match error {
        FrameError::Io(io) if is_close(io) => {
            "it closed the connection before it accepted this agent: it may not accept our key, or is about to end"
                .into()
        }
        error => describe(error),
    }
}

/// What to do about two versions of dwell that do not understand each other.
pub const VERSION_REMEDY: &str = "update the older of the two, the collector first";

/// Describes an error of a connection, and what it probably means.
fn describe(error: &FrameError) -> String {
    let io = match error {
        FrameError::Io(io) => io,
        FrameError::NoVersion | FrameError::Version(_) => return format!("{error}: {VERSION_REMEDY}"),
        error => return error.to_string(),
    };
    use rustls::{
        AlertDescription::{CertificateExpired, DecryptError, UnknownCA},
        Error::{AlertReceived, InvalidCertificate, PeerIncompatible},
    };
    let tls = io.get_ref().and_then(|inner| inner.downcast_ref());
    match tls {
        Some(error @ InvalidCertificate(_)) => match refusal(error) {
            Some(why) => format!("the collector's certificate is not accepted: {why}"),
            None => format!("the collector's key does not match ours ({io})"),
        },
        // Also of one that is not valid yet.
        Some(AlertReceived(CertificateExpired)) => {
            "the collector does not accept our certificate: it has expired or is not valid yet, or a clock is wrong: renew it, or \
             set the clock"
                .into()
        }
        Some(AlertReceived(UnknownCA | DecryptError)) => {
            "the collector does not accept our certificate: no authority in its --ca has signed it".into()
        }
        Some(AlertReceived(_) | PeerIncompatible(_)) => {
            format!(
                "the collector does not accept our key or certificate ({io}): a key must be in its list of agents, or the same on \
                 both sides; `dwell collect --new-agent NAME` makes another"
            )
        }
        _ if is_close(io) => "it closed the connection".into(),
        _ => io.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use rustls::{AlertDescription, CertificateError, pki_types::UnixTime};

    use super::{Duration, FrameError, Reasons, describe};

    /// An agent tries again every few seconds, and tells each reason once.
    #[test]
    fn a_certificate_that_is_out_of_date_is_called_that_in_the_same_words_each_time() {
        let at = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let told = |error| describe(&FrameError::Io(io::Error::new(io::ErrorKind::InvalidData, error)));
        let refused = |why| told(rustls::Error::InvalidCertificate(why));
        let expired = [8, 9].map(|now| refused(CertificateError::ExpiredContext { time: at(now), not_after: at(7) }));
        let early =
            [5, 6].map(|now| refused(CertificateError::NotValidYetContext { time: at(now), not_before: at(7) }));
        let ours = told(rustls::Error::AlertReceived(AlertDescription::CertificateExpired));
        for ([first, second], says) in
            [(expired, "it has expired"), (early, "not valid yet"), ([ours.clone(), ours], "our")]
        {
            assert_eq!(first, second);
            assert!(first.contains("certificate is not accepted: ") || first.contains("our certificate: "), "{first}");
            assert!(first.contains(says) && first.contains("or a clock is wrong"), "{first}");
        }
    }

    #[test]
    fn reasons_that_alternate_are_told_once_each() {
        let mut reasons = Reasons::default();
        assert_eq!(
            ["closed", "no key", "closed", "no key"].map(|reason| reasons.add(reason)),
            [true, true, false, false]
        );
        // Whoever makes up new ones occupies no more memory.
        (0..100).for_each(|number| assert!(reasons.add(&number.to_string())));
        assert_eq!(reasons.0.len(), Reasons::MOST);
    }
}
