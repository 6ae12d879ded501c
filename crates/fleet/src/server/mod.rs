//! The collector's side of connections: admission, registration, and one session per agent.

mod admission;
mod budget;
mod registry;

use std::{
    io,
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use admission::{Admission, Permit};
use budget::{Budget, BudgetShare};
use dwell_socket::{
    acceptor,
    privilege::{self, Capability},
};
use registry::Registry;

use crate::{
    Error, Identity, Secret,
    link::{Link, is_close},
    wire::{
        self, AgentMessage, AgentName, Batch, CollectorMessage, FrameError, Hello, MAX_FRAME_BYTES, RunId, Version,
    },
};

pub use admission::{Refusal, Refusals, peer_host};

/// Maximum length of a hello. Longer frames are accepted only after it.
const MAX_HELLO_BYTES: usize = 4096;
/// Silence after which an agent counts as gone.
const IDLE_TIMEOUT: Duration = Duration::from_secs(12);

/// Time between two checks that the key or certificate of a connected agent is still accepted.
const CHECK: Duration = Duration::from_secs(10);

/// Batches of a connection that may be invalid; an agent with more of them is disconnected.
const MAX_REJECTED: u32 = 16;

/// Time after which an agent sends a batch again for which there was no memory.
const MEMORY_RETRY: Duration = Duration::from_secs(2);
const NO_CONNECTION_LEFT: &str = "the collector has no connection left for another agent";

/// What a server can hold at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connections that have authenticated. Each has a thread and two descriptors.
    pub connections: usize,
    /// Connections that have not authenticated yet; one more displaces the oldest. Each has a thread and three
    /// descriptors.
    pub unauthenticated: usize,
    /// Bytes of batches that are being received or wait to be stored, in memory.
    pub batch_bytes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { connections: 8192, unauthenticated: 128, batch_bytes: 64 << 20 }
    }
}

/// Why a batch is not stored now, and when the agent is to come back with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Busy {
    /// The reason, for people to read.
    pub reason: String,
    /// How long the agent waits before it sends a batch again.
    pub retry: Duration,
}

/// An agent that has authenticated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    /// Its name, which no other connected agent has.
    pub name: AgentName,
    /// Its run.
    pub run: RunId,
    /// The boot_id of its kernel.
    pub boot: String,
    /// The agent's address and port.
    pub address: SocketAddr,
    /// The local address that the agent connected to.
    pub own: IpAddr,
    /// The UDP port that answers clock requests, if the agent has one.
    pub sync_port: Option<u16>,
    /// The secret of this connection.
    pub secret: Secret,
    /// Whether the run has ended, and these are the batches that it left behind.
    pub is_past: bool,
    /// The number through which a collector has confirmed batches of the run: no earlier one will come.
    pub confirmed: u64,
}

/// What a collector does when agents connect, send and leave. Each agent has a thread of its own, which calls this.
pub trait Handler: Send + Sync + 'static {
    /// Admits an agent. Returns the number of the last batch of its run that is stored, 0 if there is none.
    ///
    /// # Errors
    ///
    /// Why the agent is refused; the agent receives this text.
    fn hello(&self, agent: &Agent) -> Result<u64, String>;

    /// Runs after the agent has been sent its welcome. Nothing that the agent sends is read until this returns.
    fn welcomed(&self, agent: &Agent);

    /// Tells an agent that has nothing to send, or waits, whether a batch would be stored now.
    ///
    /// # Errors
    ///
    /// [`Busy`] if not; the agent keeps its batches and its connection.
    fn ready(&self, agent: &Agent) -> Result<(), Busy>;

    /// Stores a batch that had `bytes` on the wire, unless it is stored already. The batch is acknowledged when this
    /// returns.
    ///
    /// # Errors
    ///
    /// [`Busy`] if the batch was not stored; the agent keeps it, and its connection.
    fn store(&self, agent: &Agent, batch: Batch, bytes: usize) -> Result<(), Busy>;

    /// Runs when somebody has connected who speaks no version of the protocol that this dwell speaks. It may not have
    /// authenticated. The text says which these are.
    fn incompatible(&self, address: SocketAddr, reason: &str);

    /// Runs when files of the collector's credentials were replaced and cannot be used. Those that were there before stay in use.
    fn unusable(&self, error: &Error);

    /// Runs when an agent has been sent its key for a token, or has not: the text says why.
    fn enrolled(&self, address: SocketAddr, outcome: Result<AgentName, String>);

    /// Runs when a connection of a welcomed agent has ended. `None` instead of a reason: the agent has another one by now.
    fn disconnected(&self, agent: &Agent, reason: Option<&str>);
}

/// Accepts agents until it is dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    identity: Identity,
    admission: Arc<Admission>,
    registry: Arc<Registry>,
    budget: Budget,
    is_stopping: AtomicBool,
}

impl Server {
    /// Starts to listen for agents. Of the capabilities that this thread has, those that serve them keep these at most.
    ///
    /// # Errors
    ///
    /// [`Error::NotCollector`], [`Error::Listen`] or [`Error::Thread`].
    pub fn start(
        address: SocketAddr,
        identity: Identity,
        limits: Limits,
        handler: Arc<impl Handler>,
        capabilities: &'static [Capability],
    ) -> Result<Server, Error> {
        identity.server()?;
        let listen = |source| Error::Listen { address, source };
        let listener = TcpListener::bind(address).map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let shared = Arc::new(Shared {
            identity,
            admission: Arc::new(Admission::new(limits)),
            registry: Arc::default(),
            budget: Budget::new(limits.batch_bytes),
            is_stopping: AtomicBool::new(false),
        });
        let for_thread = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("agents".into())
            .spawn(move || {
                // Strangers speak to it, and to each thread that it starts.
                let _ = privilege::keep(capabilities);
                accept(&listener, &for_thread, &handler);
            })
            .map_err(Error::Thread)?;
        Ok(Server { address, shared, thread: Some(thread) })
    }

    /// The address that the server listens on, with the port that the system assigned if port 0 was requested.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the numbers of connections refused so far.
    pub fn refusals(&self) -> Refusals {
        self.shared.admission.refusals()
    }

    /// Returns the number of batches so far that were not read for lack of memory; their agents keep them.
    pub fn skipped(&self) -> u64 {
        self.shared.budget.skipped()
    }

    /// Number of connected agents.
    pub fn agents(&self) -> usize {
        self.shared.registry.len()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.is_stopping.store(true, Ordering::SeqCst);
        self.shared.registry.disconnect_all();
        if acceptor::wake(self.address)
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>, handler: &Arc<impl Handler>) {
    loop {
        let stream = listener.accept();
        if shared.is_stopping.load(Ordering::SeqCst) {
            return;
        }
        let Ok((stream, address)) = stream else {
            // A transient failure, such as running out of file descriptors.
            thread::sleep(Duration::from_millis(100));
            continue;
        };
        let Ok(copy) = stream.try_clone() else {
            continue;
        };
        let Some(permit) = shared.admission.enter(address.ip(), copy) else {
            continue;
        };
        let (shared, handler) = (Arc::clone(shared), Arc::clone(handler));
        // If no thread can be started, the connection is dropped and the agent connects again.
        let _ = thread::Builder::new()
            .name("agent".into())
            .spawn(move || serve(stream, address, &shared, permit, &*handler));
    }
}

/// Serves a connection from its first byte to its last.
fn serve(stream: TcpStream, address: SocketAddr, shared: &Shared, permit: Permit, handler: &impl Handler) {
    let (Ok(copy), Ok(own)) = (stream.try_clone(), stream.local_addr()) else {
        return;
    };
    let accepted = Link::accept(stream, &shared.identity);
    report_problem(&shared.identity, handler);
    let (mut link, hello) = match accepted.and_then(greet) {
        Ok((link, Some(hello))) => (link, hello),
        Ok((link, None)) => return enroll(link, address, shared, permit, handler),
        Err(error) => {
            shared.admission.count_failure(&permit, &error);
            if matches!(error, FrameError::NoVersion | FrameError::Version(_)) {
                handler.incompatible(address, &error.to_string());
            }
            return;
        }
    };
    if let Err(reason) = shared.identity.check_agent(&link.presented, &hello.name) {
        shared.admission.count(Refusal::Impostor);
        return refuse(&mut link, reason);
    }
    let Some(_session) = shared.admission.begin_session() else {
        return refuse(&mut link, NO_CONNECTION_LEFT.into());
    };
    drop(permit);
    let agent = Agent {
        name: hello.name,
        run: hello.run,
        boot: hello.boot,
        address,
        own: own.ip(),
        sync_port: hello.sync_port,
        secret: link.secret,
        is_past: hello.is_past,
        confirmed: hello.confirmed,
    };
    let registration = match shared.registry.register(&agent, copy) {
        Ok(registration) => registration,
        Err(reason) => {
            shared.admission.count(Refusal::Name);
            return refuse(&mut link, reason);
        }
    };
    let mut through = match handler.hello(&agent) {
        Ok(through) => through,
        Err(reason) => {
            shared.admission.count(Refusal::Busy);
            let has_replaced = registration.has_replaced;
            if registration.end() && has_replaced {
                handler.disconnected(&agent, Some(&format!("it connected again, and was refused: {reason}")));
            }
            return refuse(&mut link, reason);
        }
    };
    let error = session(&mut link, &agent, &mut through, handler, shared).err();
    let is_garbage =
        |error: &FrameError| !matches!(error, FrameError::End | FrameError::Io(_) | FrameError::Unauthenticated(_));
    if error.as_ref().is_some_and(is_garbage) {
        shared.admission.count(Refusal::Garbage);
    }
    let reason = departure(error.as_ref());
    handler.disconnected(&agent, registration.end().then_some(reason.as_str()));
    if error.is_none() {
        // Only now may the agent come again under another run.
        link.set_idle_timeout(IDLE_TIMEOUT);
        let _ = link.send(&CollectorMessage::Stored { through });
    }
}

/// Reads the hello of a client that has authenticated; `None` instead of one if it asks for its key.
fn greet(mut link: Link) -> Result<(Link, Option<Hello>), FrameError> {
    match link.receive(MAX_HELLO_BYTES) {
        Ok(AgentMessage::Hello(hello)) => Ok((link, Some(hello))),
        Ok(AgentMessage::Enroll) => Ok((link, None)),
        Ok(_) => Err(FrameError::Turn),
        Err(error @ FrameError::Version(_)) => {
            // It cannot read the text, but from the answer's version it knows why it is refused.
            refuse(&mut link, error.to_string());
            Err(error)
        }
        Err(error) => Err(error),
    }
}

/// Says why a session has ended, by its error.
fn departure(error: Option<&FrameError>) -> String {
    match error {
        None | Some(FrameError::End) => "it left".into(),
        Some(FrameError::Io(io)) if is_close(io) => {
            "its connection was closed without signing off: it was killed or has given up, or the network reset it"
                .into()
        }
        Some(error) => error.to_string(),
    }
}

/// Gives an agent its key, if it has authenticated by a token.
fn enroll(mut link: Link, address: SocketAddr, shared: &Shared, permit: Permit, handler: &impl Handler) {
    let Some(_session) = shared.admission.begin_session() else {
        return refuse(&mut link, NO_CONNECTION_LEFT.into());
    };
    drop(permit);
    let outcome = match shared.identity.enroll(&link.presented) {
        Ok((name, key)) => {
            link.set_idle_timeout(IDLE_TIMEOUT);
            let sent = link.send(&CollectorMessage::Enrolled { key });
            let left =
                |error| format!("{name} has used its token and left before it had the key ({error}): make a new token");
            sent.map_err(left).map(|()| name.clone())
        }
        Err(reason) => {
            shared.admission.count(Refusal::Busy);
            refuse(&mut link, reason.clone());
            Err(reason)
        }
    };
    handler.enrolled(address, outcome);
}

fn report_problem(identity: &Identity, handler: &impl Handler) {
    if let Some(error) = identity.take_problem() {
        handler.unusable(&error);
    }
}

fn no_memory() -> Busy {
    Busy { reason: "the collector has no memory left for another batch".into(), retry: MEMORY_RETRY }
}

fn refuse(link: &mut Link, reason: String) {
    link.set_idle_timeout(IDLE_TIMEOUT);
    // An agent that does not receive this connects again.
    let _ = link.send(&CollectorMessage::Refused(reason));
}

/// What a message asked for, and what became of it.
enum Handled {
    /// A batch is stored, or would be.
    Ready(Result<(), Busy>),
    /// A batch is not valid.
    Rejected { number: u64, reason: String },
    /// The agent takes leave.
    Left,
}

/// Welcomes an agent and stores its batches until it takes leave.
fn session(
    link: &mut Link,
    agent: &Agent,
    through: &mut u64,
    handler: &impl Handler,
    Shared { identity, admission, budget, .. }: &Shared,
) -> Result<(), FrameError> {
    // The handler may have taken longer to admit the agent than the handshake allows.
    link.set_idle_timeout(IDLE_TIMEOUT);
    link.send(&CollectorMessage::Welcome { through: *through })?;
    handler.welcomed(agent);
    let (mut rejected, address) = (0, peer_host(agent.address.ip()));
    let mut checked = Instant::now();
    loop {
        link.set_idle_timeout(IDLE_TIMEOUT);
        let mut share = budget.share(address);
        let (mut bytes, mut is_busy) = (0, None);
        let frame = link.receive_frame(MAX_FRAME_BYTES, |more| {
            // Only a batch is longer, and none is read further that will not be stored.
            if bytes > 0 && is_busy.is_none() {
                is_busy = Some(handler.ready(agent));
            }
            bytes += more;
            is_busy.as_ref().is_none_or(Result::is_ok) && share.grow(more)
        })?;
        if checked.elapsed() >= CHECK {
            checked = Instant::now();
            let accepted = identity.check_agent(&link.presented, &agent.name);
            report_problem(identity, handler);
            if let Err(reason) = accepted {
                admission.count(Refusal::Impostor);
                refuse(link, reason.clone());
                return Err(FrameError::Unauthenticated(io::Error::other(reason)));
            }
        }
        let handled = match (frame, is_busy) {
            (Some(frame), _) => handle(link.version, &frame, agent, through, handler, &mut share)?,
            (None, Some(Err(busy))) => Handled::Ready(Err(busy)),
            (None, _) => Handled::Ready(Err(no_memory())),
        };
        if matches!(&handled, Handled::Ready(Err(busy)) if *busy == no_memory()) {
            budget.count_skipped();
        }
        let answer = match handled {
            Handled::Left => return Ok(()),
            Handled::Ready(Ok(())) => CollectorMessage::Stored { through: *through },
            Handled::Ready(Err(Busy { reason, retry })) => {
                let retry_ms = u32::try_from(retry.as_millis()).unwrap_or(u32::MAX);
                CollectorMessage::Busy { reason, retry_ms }
            }
            Handled::Rejected { number, reason } => {
                rejected += 1;
                if rejected > MAX_REJECTED {
                    return Err(FrameError::Rejected(MAX_REJECTED));
                }
                admission.count(Refusal::Garbage);
                CollectorMessage::Rejected { number, reason }
            }
        };
        link.set_idle_timeout(IDLE_TIMEOUT);
        link.send(&answer)?;
    }
}

/// Does what a message asks for. Fails if no agent would send it.
fn handle(
    version: Version,
    frame: &[u8],
    agent: &Agent,
    through: &mut u64,
    handler: &impl Handler,
    share: &mut BudgetShare<'_>,
) -> Result<Handled, FrameError> {
    let message = match wire::decode(version, frame) {
        Ok(message) => message,
        Err(error @ FrameError::Content(_)) => match wire::batch_number(version, frame) {
            // Without this the agent would send it for ever.
            Some(number) => return Ok(Handled::Rejected { number, reason: error.to_string() }),
            None => return Err(error),
        },
        Err(error) => return Err(error),
    };
    match message {
        AgentMessage::Hello(_) | AgentMessage::Enroll => Err(FrameError::Turn),
        AgentMessage::Leave => Ok(Handled::Left),
        AgentMessage::KeepAlive => Ok(Handled::Ready(handler.ready(agent))),
        AgentMessage::Batch(batch) => {
            let number = batch.number;
            // What is compact on the wire may be large in memory.
            if !share.grow(batch.content.memory_bytes().saturating_sub(frame.len())) {
                return Ok(Handled::Ready(Err(no_memory())));
            }
            let stored = handler.store(agent, *batch, frame.len());
            if stored.is_ok() {
                *through = number.max(*through);
            }
            Ok(Handled::Ready(stored))
        }
    }
}
