//! A QUIC server on one thread, so that the thread's processor time is the server's.

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

use super::{identity::Identity, widen};
use crate::loads::{
    quic::block_on,
    random::{exponential, generator},
};

/// What a server is to do.
#[derive(Debug, Clone)]
pub(super) struct ServerPlan {
    /// Its number in connection IDs.
    pub(super) number: u16,
    pub(super) address: SocketAddr,
    pub(super) identity: Arc<Identity>,
    pub(super) cids: Config,
    /// Tickets a connection.
    pub(super) tickets: usize,
    /// Mean of the exponential time that a request takes the one worker; zero: none, and no worker.
    pub(super) work: Duration,
    pub(super) seed: u64,
    /// How often connections that last get new IDs.
    pub(super) heartbeat: Duration,
}

/// A running server. It ends when this is dropped.
pub(super) struct Server {
    control: mpsc::UnboundedSender<Control>,
    thread: Option<JoinHandle<Result<Result<()>>>>,
    sessions: Arc<SingleUseSessions>,
    done: Done,
}

/// How often each request was done, by its number.
type Done = Arc<Mutex<HashMap<u64, u32>>>;

enum Control {
    Rotate(Box<Config>),
    Cpu(oneshot::Sender<Duration>),
}

/// Octets of a request: its number, how long the answer is to be, and whether it comes slowly.
pub(super) const REQUEST: usize = 17;
/// A slow answer comes in pieces, one each [`PACE`].
pub(super) const PIECE: usize = 4 << 10;
const PACE: Duration = Duration::from_millis(5);

impl Server {
    /// Is there when it returns.
    pub(super) fn start(namespace: &Namespace, plan: ServerPlan) -> Result<Server> {
        let address = plan.address;
        let socket =
            namespace.enter(|| UdpSocket::bind(address))?.map_err(Error::io(format!("listen at {address}")))?;
        widen(&socket)?;
        let (control, orders) = mpsc::unbounded_channel();
        let sessions = SingleUseSessions::new(Limits::default());
        let held = Arc::clone(&sessions);
        let done = Done::default();
        let book = Arc::clone(&done);
        let thread = namespace.spawn_thread(move || block_on(serve(socket, plan, held, book, orders)));
        Ok(Server { control, thread: Some(thread), sessions, done })
    }

    /// Processor time that it took so far.
    pub(super) fn cpu(&self) -> Result<Duration> {
        let (tell, told) = oneshot::channel();
        let sent = self.control.send(Control::Cpu(tell));
        sent.ok()
            .and_then(|()| told.blocking_recv().ok())
            .ok_or_else(|| Error::Timeout("an answer of a server's thread".to_owned()))
    }

    /// New connection IDs are by another configuration.
    pub(super) fn rotate(&self, config: Config) {
        // One that has failed tells so when it is asked to end.
        let _ = self.control.send(Control::Rotate(Box::new(config)));
    }

    pub(super) fn sessions(&self) -> Counts {
        self.sessions.counts()
    }

    /// All sessions that it holds, and loses by that.
    pub(super) fn give_up(&self) -> Secrets {
        self.sessions.drain()
    }

    /// As if it had made them.
    pub(super) fn remember(&self, secrets: &Secrets) {
        for (id, secret) in secrets {
            self.sessions.put(id.clone(), secret.to_vec());
        }
    }

    /// How often a request was done here.
    pub(super) fn done(&self, number: u64) -> u32 {
        let done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        done.get(&number).copied().unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let (closed, _) = mpsc::unbounded_channel();
        self.control = closed;
        if let Some(thread) = self.thread.take() {
            // Clients tell of what went wrong.
            let _ = thread.join();
        }
    }
}

async fn serve(
    socket: UdpSocket,
    plan: ServerPlan,
    sessions: Arc<SingleUseSessions>,
    done: Done,
    mut orders: mpsc::UnboundedReceiver<Control>,
) -> Result<()> {
    let wrong = |why: dwell_quic::Error| Error::invalid("QUIC server", why);
    let waiting = WaitingTimes::new(1);
    let asked = waiting.clone();
    let wait = move || asked.wait();
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
        done,
    });
    loop {
        tokio::select! {
            Some(incoming) = endpoint.accept() => {
                let worker = Arc::clone(&worker);
                tokio::spawn(async move {
                    // Clients tell of failures; a replay's connection comes to nothing.
                    if let Ok((connection, _)) = dwell_quic::accept(incoming).await {
                        worker.converse(connection).await;
                    }
                });
            }
            order = orders.recv() => match order {
                Some(Control::Rotate(config)) => cids.rotate(*config).map_err(wrong)?,
                // Who asked may have gone.
                Some(Control::Cpu(tell)) => drop(tell.send(cpu()?)),
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
    /// Whoever has it is worked for.
    turn: Turn<rand::rngs::Xoshiro256PlusPlus>,
    waiting: WaitingTimes,
    done: Done,
}

impl Worker {
    async fn converse(self: Arc<Self>, connection: Connection) {
        while let Ok((response, request)) = connection.accept_bi().await {
            let worker = Arc::clone(&self);
            // A client that goes away gets no answer.
            tokio::spawn(async move { worker.answer(response, request).await });
        }
    }

    async fn answer(&self, mut response: SendStream, mut request: RecvStream) -> Option<()> {
        let asked: [u8; REQUEST] = request.read_to_end(REQUEST).await.ok()?.try_into().ok()?;
        let (number, rest) = asked.split_first_chunk::<8>()?;
        let (length, slow) = rest.split_first_chunk::<8>()?;
        {
            let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
            *done.entry(u64::from_be_bytes(*number)).or_default() += 1;
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
