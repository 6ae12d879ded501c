//! A QUIC server on one thread, so that the CPU time of the thread is the server's.

use std::{
    collections::HashMap,
    net::{SocketAddr, UdpSocket},
    sync::{Arc, Mutex, PoisonError},
    thread::JoinHandle,
    time::Duration,
};

use dwell_engine::quic_lb::Config;
use dwell_quic::{Cids, Counts, Limits, Secrets, Setup, SingleUseSessions, WaitingTimes};
use dwell_testbed::{Error, Namespace, Result};
use nix::time::{ClockId, clock_gettime};
use quinn::{Connection, Endpoint, RecvStream, SendStream, TokioRuntime};
use rustls::server::StoresServerSessions;
use tokio::sync::{Mutex as Turn, mpsc, oneshot};

use super::{enlarge_buffer, identity::Identity};
use crate::loads::{
    quic::block_on,
    random::{exponential, generator},
};

/// Configuration of a server.
#[derive(Debug, Clone)]
pub(super) struct ServerPlan {
    /// Its number in connection IDs.
    pub(super) number: u16,
    pub(super) address: SocketAddr,
    pub(super) identity: Arc<Identity>,
    pub(super) cids: Config,
    /// Tickets per connection.
    pub(super) tickets: usize,
    /// Mean service time of a request, which is exponential, at the one worker; zero: no service time and no worker.
    pub(super) work: Duration,
    pub(super) seed: u64,
    /// Interval at which lasting connections get new IDs.
    pub(super) heartbeat: Duration,
}

/// A running server. It ends when this is dropped.
pub(super) struct Server {
    control: mpsc::UnboundedSender<Control>,
    thread: Option<JoinHandle<Result<Result<()>>>>,
    sessions: Arc<SingleUseSessions>,
    executions: Executions,
}

/// Executions of each request, by its number.
type Executions = Arc<Mutex<HashMap<u64, u32>>>;

enum Control {
    Rotate(Box<Config>),
    Cpu(oneshot::Sender<Duration>),
}

/// Octets of a request: its number, the length of the answer, and whether it comes slowly.
pub(super) const REQUEST: usize = 17;
/// Size of the pieces of a slow answer, of which one is sent per [`PACE`].
pub(super) const PIECE: usize = 4 << 10;
const PACE: Duration = Duration::from_millis(5);

impl Server {
    /// Starts a server, which can be reached when this returns.
    pub(super) fn start(namespace: &Namespace, plan: ServerPlan) -> Result<Server> {
        let address = plan.address;
        let socket =
            namespace.enter(|| UdpSocket::bind(address))?.map_err(Error::io(format!("listen at {address}")))?;
        enlarge_buffer(&socket)?;
        let (control, commands) = mpsc::unbounded_channel();
        let sessions = SingleUseSessions::new(Limits::default());
        let own_sessions = Arc::clone(&sessions);
        let executions = Executions::default();
        let own_executions = Arc::clone(&executions);
        let thread =
            namespace.spawn_thread(move || block_on(serve(socket, plan, own_sessions, own_executions, commands)));
        Ok(Server { control, thread: Some(thread), sessions, executions })
    }

    /// CPU time of the server so far.
    pub(super) fn cpu(&self) -> Result<Duration> {
        let (reply, replied) = oneshot::channel();
        let sent = self.control.send(Control::Cpu(reply));
        sent.ok()
            .and_then(|()| replied.blocking_recv().ok())
            .ok_or_else(|| Error::Timeout("a reply of a server's thread".to_owned()))
    }

    /// Makes new connection IDs by another configuration.
    pub(super) fn rotate(&self, config: Config) {
        // A thread that has failed returns its error when it is joined.
        let _ = self.control.send(Control::Rotate(Box::new(config)));
    }

    pub(super) fn sessions(&self) -> Counts {
        self.sessions.counts()
    }

    /// Removes and returns all sessions that the server holds.
    pub(super) fn take_sessions(&self) -> Secrets {
        self.sessions.drain()
    }

    /// Adds sessions as if the server had issued them.
    pub(super) fn add_sessions(&self, secrets: &Secrets) {
        for (id, secret) in secrets {
            self.sessions.put(id.clone(), secret.to_vec());
        }
    }

    /// The number of times that this server executed each request.
    pub(super) fn all_executions(&self) -> HashMap<u64, u32> {
        self.executions.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The number of times that this server executed a request.
    pub(super) fn executions(&self, number: u64) -> u32 {
        let executions = self.executions.lock().unwrap_or_else(PoisonError::into_inner);
        executions.get(&number).copied().unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let (closed, _) = mpsc::unbounded_channel();
        self.control = closed;
        if let Some(thread) = self.thread.take() {
            // Clients report what went wrong.
            let _ = thread.join();
        }
    }
}

async fn serve(
    socket: UdpSocket,
    plan: ServerPlan,
    sessions: Arc<SingleUseSessions>,
    executions: Executions,
    mut commands: mpsc::UnboundedReceiver<Control>,
) -> Result<()> {
    let wrong = |why: dwell_quic::Error| Error::invalid("QUIC server", why);
    let waiting = WaitingTimes::new(1);
    let reported = waiting.clone();
    let wait = move || reported.wait();
    let cids = Cids::new(plan.number, plan.cids.clone(), Some(plan.heartbeat), wait).map_err(wrong)?;
    let setup = Setup { tickets: plan.tickets, ..Setup::new(cids.clone(), sessions) };
    let (server, endpoint) = setup.configs(plan.identity.tls()?).map_err(wrong)?;
    let endpoint = Endpoint::new(endpoint, Some(server), socket, Arc::new(TokioRuntime))
        .map_err(Error::io("open a QUIC endpoint"))?;
    let worker = Arc::new(Worker {
        number: plan.number,
        work: plan.work,
        turn: Turn::new(generator(plan.seed, 21, plan.number.into())),
        waiting,
        executions,
    });
    loop {
        tokio::select! {
            Some(incoming) = endpoint.accept() => {
                let worker = Arc::clone(&worker);
                tokio::spawn(async move {
                    // Clients report failures; the connection of a replay fails by design.
                    if let Ok((connection, _)) = dwell_quic::accept(incoming).await {
                        worker.converse(connection).await;
                    }
                });
            }
            command = commands.recv() => match command {
                Some(Control::Rotate(config)) => cids.rotate(*config).map_err(wrong)?,
                // The caller may have stopped waiting.
                Some(Control::Cpu(reply)) => drop(reply.send(cpu()?)),
                None => return Ok(()),
            }
        }
    }
}

fn cpu() -> Result<Duration> {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
    time.map(Duration::from).map_err(Error::os("read a thread's processor time"))
}

struct Worker {
    number: u16,
    work: Duration,
    /// The request that holds this lock is being served.
    turn: Turn<rand::rngs::Xoshiro256PlusPlus>,
    waiting: WaitingTimes,
    executions: Executions,
}

impl Worker {
    async fn converse(self: Arc<Self>, connection: Connection) {
        while let Ok((response, request)) = connection.accept_bi().await {
            let worker = Arc::clone(&self);
            // A client that closes the connection gets no answer.
            tokio::spawn(async move { worker.answer(response, request).await });
        }
    }

    async fn answer(&self, mut response: SendStream, mut request: RecvStream) -> Option<()> {
        let bytes: [u8; REQUEST] = request.read_to_end(REQUEST).await.ok()?.try_into().ok()?;
        let (number, rest) = bytes.split_first_chunk::<8>()?;
        let (length, slow) = rest.split_first_chunk::<8>()?;
        {
            let mut executions = self.executions.lock().unwrap_or_else(PoisonError::into_inner);
            *executions.entry(u64::from_be_bytes(*number)).or_default() += 1;
        }
        let request = self.waiting.arrived();
        if !self.work.is_zero() {
            let mut random = self.turn.lock().await;
            let _service = request.begin();
            let work = exponential(&mut random, self.work.as_secs_f64());
            tokio::time::sleep(Duration::from_secs_f64(work)).await;
        }
        response.write_all(&self.number.to_be_bytes()).await.ok()?;
        let mut left = u64::from_be_bytes(*length);
        while left > 0 {
            let piece = left.min(PIECE as u64);
            response.write_all(&[b'r'; PIECE][..piece as usize]).await.ok()?;
            left -= piece;
            if slow == [1] {
                tokio::time::sleep(PACE).await;
            }
        }
        response.finish().ok()
    }
}
