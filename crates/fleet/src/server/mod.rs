//! A collector's side: who may come in, and what becomes of what they tell.

mod gate;
mod seats;

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

use dwell_socket::acceptor;
use gate::Gate;
use seats::Seats;

use crate::{
    Error, Identity, Secret,
    link::Link,
    wire::{AgentName, Batch, FrameError, FromAgent, FromCollector, MAX_FRAME_BYTES, Run},
};

pub use gate::Refusals;

/// A hello is short; longer frames are taken of agents only.
const MAX_HELLO_BYTES: usize = 1024;
/// An agent of which nothing comes for so long is gone.
const SILENCE: Duration = Duration::from_secs(12);

/// An agent that was let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    /// Its name; no other agent that is here has it.
    pub name: AgentName,
    /// Its run.
    pub run: Run,
    /// The boot_id of its kernel.
    pub boot: String,
    /// Where it is.
    pub address: SocketAddr,
    /// The address of ours that it knows.
    pub own: IpAddr,
    /// The UDP port at which its clock can be asked, if it can.
    pub sync_port: Option<u16>,
    /// Known to it and us.
    pub secret: Secret,
}

/// What a collector does with what it is told. Called from many threads.
pub trait Desk: Send + Sync + 'static {
    /// An agent comes: which batch of its run is the last that is stored?
    ///
    /// # Errors
    ///
    /// Why it cannot be let in; it is told.
    fn hello(&self, agent: &Agent) -> Result<u64, String>;

    /// The agent was let in and knows it. It may send, but nothing is read until this returns.
    fn welcomed(&self, agent: &Agent);

    /// Stores a batch, unless it is there. It is acknowledged when this returns.
    ///
    /// # Errors
    ///
    /// Why it was not stored; the agent is told, and keeps it.
    fn store(&self, agent: &Agent, batch: Batch) -> Result<(), String>;

    /// An agent is gone.
    fn gone(&self, agent: &Agent, why: &str);
}

/// Takes agents in until it is dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    identity: Identity,
    gate: Arc<Gate>,
    seats: Arc<Seats>,
    is_stopping: AtomicBool,
}

impl Server {
    /// Listens for agents.
    ///
    /// # Errors
    ///
    /// [`Error`], if it cannot.
    pub fn start(address: SocketAddr, identity: Identity, desk: Arc<impl Desk>) -> Result<Server, Error> {
        let listen = |io| Error::Listen { address, io };
        let listener = TcpListener::bind(address).map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let shared = Arc::new(Shared {
            identity,
            gate: Arc::default(),
            seats: Arc::default(),
            is_stopping: AtomicBool::new(false),
        });
        let for_thread = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("agents".into())
            .spawn(move || accept(&listener, &for_thread, &desk))
            .map_err(Error::Thread)?;
        Ok(Server { address, shared, thread: Some(thread) })
    }

    /// Where it listens: with port 0 asked for, the port that was given.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Who was not let in, so far.
    pub fn refusals(&self) -> Refusals {
        self.shared.gate.refusals()
    }

    /// How many agents are here.
    pub fn agents(&self) -> usize {
        self.shared.seats.taken()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.is_stopping.store(true, Ordering::SeqCst);
        self.shared.seats.clear();
        if acceptor::wake(self.address)
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>, desk: &Arc<impl Desk>) {
    loop {
        let stream = listener.accept();
        if shared.is_stopping.load(Ordering::SeqCst) {
            return;
        }
        let Ok((stream, address)) = stream else {
            // Out of descriptors, or the like: it passes.
            thread::sleep(Duration::from_millis(100));
            continue;
        };
        let Ok(copy) = stream.try_clone() else {
            continue;
        };
        let Some(pass) = shared.gate.enter(address.ip(), copy) else {
            continue;
        };
        let (shared, desk) = (Arc::clone(shared), Arc::clone(desk));
        // Without a thread the connection is dropped, and the agent comes again.
        let _ =
            thread::Builder::new().name("agent".into()).spawn(move || serve(stream, address, &shared, pass, &*desk));
    }
}

/// A connection, from its first byte to its last.
fn serve(stream: TcpStream, address: SocketAddr, shared: &Shared, pass: gate::Pass, desk: &impl Desk) {
    let (Ok(copy), Ok(own)) = (stream.try_clone(), stream.local_addr()) else {
        return;
    };
    let greeted = Link::accept(stream, &shared.identity).and_then(|mut link| match link.receive(MAX_HELLO_BYTES)? {
        FromAgent::Hello(hello) => Ok((link, hello)),
        _ => Err(FrameError::Turn),
    });
    let (mut link, hello) = match greeted {
        Ok(greeted) => greeted,
        Err(error) => return shared.gate.refuse(&pass, &error),
    };
    drop(pass);
    let agent = Agent {
        name: hello.name,
        run: hello.run,
        boot: hello.boot,
        address,
        own: own.ip(),
        sync_port: hello.sync_port,
        secret: link.secret,
    };
    let seat = match shared.seats.take(&agent, copy) {
        Ok(seat) => seat,
        Err(why) => {
            shared.gate.refuse_name();
            return refuse(&mut link, why);
        }
    };
    let through = match desk.hello(&agent) {
        Ok(through) => through,
        Err(why) => return refuse(&mut link, why),
    };
    let why = match converse(&mut link, &agent, through, desk) {
        Ok(never) => match never {},
        Err(FrameError::End) => "it left".to_owned(),
        Err(error) => error.to_string(),
    };
    drop(seat);
    desk.gone(&agent, &why);
}

fn refuse(link: &mut Link, why: String) {
    link.set_idle_timeout(SILENCE);
    // Who does not hear it comes again.
    let _ = link.send(&FromCollector::Refused(why));
}

enum Never {}

/// What an agent says, until it is gone.
fn converse(link: &mut Link, agent: &Agent, mut through: u64, desk: &impl Desk) -> Result<Never, FrameError> {
    // What was asked of others meanwhile may have taken long.
    link.set_idle_timeout(SILENCE);
    link.send(&FromCollector::Welcome { through })?;
    desk.welcomed(agent);
    loop {
        link.set_idle_timeout(SILENCE);
        match link.receive(MAX_FRAME_BYTES)? {
            FromAgent::Hello(_) => {
                return Err(FrameError::Turn);
            }
            FromAgent::Alive => {}
            FromAgent::Batch(batch) => {
                let number = batch.number;
                if let Err(why) = desk.store(agent, *batch) {
                    link.set_idle_timeout(SILENCE);
                    link.send(&FromCollector::Refused(why.clone()))?;
                    return Err(FrameError::Io(io::Error::other(why)));
                }
                through = through.max(number);
            }
        }
        link.set_idle_timeout(SILENCE);
        link.send(&FromCollector::Stored { through })?;
    }
}
