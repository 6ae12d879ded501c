//! The collector's side of connections: admission, registration, and one session per agent.

mod admission;
mod registry;

use std::{
    io,
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use admission::{Admission, Permit};
use dwell_socket::acceptor;
use registry::Registry;

use crate::{
    Error, Identity, Secret,
    link::Link,
    wire::{AgentMessage, AgentName, Batch, CollectorMessage, FrameError, MAX_FRAME_BYTES, RunId},
};

pub use admission::Refusals;

/// Maximum length of a hello. Longer frames are accepted only after it.
const MAX_HELLO_BYTES: usize = 1024;
/// Silence after which an agent counts as gone.
const IDLE_TIMEOUT: Duration = Duration::from_secs(12);

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

    /// Stores a batch, unless it is stored already. The batch is acknowledged when this returns.
    ///
    /// # Errors
    ///
    /// Why the batch was not stored; the agent receives this text and keeps the batch.
    fn store(&self, agent: &Agent, batch: Batch) -> Result<(), String>;

    /// Runs when a welcomed agent has disconnected.
    fn disconnected(&self, agent: &Agent, reason: &str);
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
    is_stopping: AtomicBool,
}

impl Server {
    /// Starts to listen for agents.
    ///
    /// # Errors
    ///
    /// [`Error::Listen`] or [`Error::Thread`].
    pub fn start(address: SocketAddr, identity: Identity, handler: Arc<impl Handler>) -> Result<Server, Error> {
        let listen = |source| Error::Listen { address, source };
        let listener = TcpListener::bind(address).map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let shared = Arc::new(Shared {
            identity,
            admission: Arc::default(),
            registry: Arc::default(),
            is_stopping: AtomicBool::new(false),
        });
        let for_thread = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("agents".into())
            .spawn(move || accept(&listener, &for_thread, &handler))
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
    let greeted = Link::accept(stream, &shared.identity).and_then(|mut link| match link.receive(MAX_HELLO_BYTES)? {
        AgentMessage::Hello(hello) => Ok((link, hello)),
        _ => Err(FrameError::Turn),
    });
    let (mut link, hello) = match greeted {
        Ok(greeted) => greeted,
        Err(error) => return shared.admission.count_failure(&permit, &error),
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
    };
    let registration = match shared.registry.register(&agent, copy) {
        Ok(registration) => registration,
        Err(reason) => {
            shared.admission.count_duplicate_name();
            return refuse(&mut link, reason);
        }
    };
    let through = match handler.hello(&agent) {
        Ok(through) => through,
        Err(reason) => return refuse(&mut link, reason),
    };
    let reason = match session(&mut link, &agent, through, handler) {
        Ok(never) => match never {},
        Err(FrameError::End) => "it left".to_owned(),
        Err(error) => error.to_string(),
    };
    drop(registration);
    handler.disconnected(&agent, &reason);
}

fn refuse(link: &mut Link, reason: String) {
    link.set_idle_timeout(IDLE_TIMEOUT);
    // An agent that does not receive this connects again.
    let _ = link.send(&CollectorMessage::Refused(reason));
}

enum Never {}

/// Welcomes an agent and stores its batches until it disconnects.
fn session(link: &mut Link, agent: &Agent, mut through: u64, handler: &impl Handler) -> Result<Never, FrameError> {
    // The handler may have taken longer to admit the agent than the handshake allows.
    link.set_idle_timeout(IDLE_TIMEOUT);
    link.send(&CollectorMessage::Welcome { through })?;
    handler.welcomed(agent);
    loop {
        link.set_idle_timeout(IDLE_TIMEOUT);
        match link.receive(MAX_FRAME_BYTES)? {
            AgentMessage::Hello(_) => {
                return Err(FrameError::Turn);
            }
            AgentMessage::KeepAlive => {}
            AgentMessage::Batch(batch) => {
                let number = batch.number;
                if let Err(reason) = handler.store(agent, *batch) {
                    link.set_idle_timeout(IDLE_TIMEOUT);
                    link.send(&CollectorMessage::Refused(reason.clone()))?;
                    return Err(FrameError::Io(io::Error::other(reason)));
                }
                through = through.max(number);
            }
        }
        link.set_idle_timeout(IDLE_TIMEOUT);
        link.send(&CollectorMessage::Stored { through })?;
    }
}
