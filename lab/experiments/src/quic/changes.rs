//! Keys that rotate, and a server that is removed and added, while clients are connected.

use std::{
    net::Ipv4Addr,
    sync::{
        Arc, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use dwell_quic::TICKETS;
use dwell_testbed::{Error, Result, signals::Signals};
use tokio::{task::JoinSet, time::timeout};

use super::{
    Policy, Scene,
    client::{ANSWER_TIMEOUT, Client, Early, Mode, Request, Visit, begin_to_read},
    config, failed,
    stage::{FIRST_KEY, Key, ServerOptions, Stage, all_servers, bind, id},
    watch::Watch,
};
use crate::{lb::Star, loads::quic::block_on};

/// Options of an experiment with changes.
#[derive(Debug, Clone)]
pub struct ChangeOptions {
    /// Number of connections that last from start to end.
    pub lasting: usize,
    /// Number of clients that connect again and again.
    pub returning: usize,
    /// Pause between two changes; it is longer while connections still have IDs made with a key to be removed.
    pub pause: Duration,
}

/// The changes, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Nothing yet.
    Begin,
    /// A second key is added to the balancer; then the servers make connection IDs with it.
    Rotate,
    /// The first key is removed from the balancer.
    Forget,
    /// A server is removed from the balancer.
    Remove,
    /// The server is added again.
    Add,
}

impl Change {
    /// All changes, in their order.
    pub const ALL: [Change; 5] = [Change::Begin, Change::Rotate, Change::Forget, Change::Remove, Change::Add];

    /// The name in tables and records.
    pub fn name(self) -> &'static str {
        match self {
            Change::Begin => "begin",
            Change::Rotate => "key rotated",
            Change::Forget => "old key gone",
            Change::Remove => "server removed",
            Change::Add => "server added",
        }
    }
}

/// What clients measured from one change to the next.
#[derive(Debug, Clone, Default)]
pub struct ChangeResult {
    /// Answered requests on lasting connections.
    pub lasting: usize,
    /// Lasting connections that broke.
    pub broken: usize,
    /// Answered connections of returning clients.
    pub connections: usize,
    /// Answered connections whose client had a ticket.
    pub eligible: usize,
    /// Eligible connections whose request was accepted as 0-RTT data.
    pub early: usize,
    /// Connections of returning clients that got no answer.
    pub failed: usize,
    /// Answered connections to the server that is removed.
    pub at_removed: usize,
    /// The first error of a connection.
    pub error: Option<String>,
}

impl ChangeResult {
    fn add(&mut self, other: ChangeResult) {
        self.lasting += other.lasting;
        self.broken += other.broken;
        self.connections += other.connections;
        self.eligible += other.eligible;
        self.early += other.early;
        self.failed += other.failed;
        self.at_removed += other.at_removed;
        self.error = self.error.take().or(other.error);
    }
}

const SECOND_KEY: Key = Key { rotation: 1, key: *b"the next lab key" };
/// Interval at which lasting connections get new IDs: they must have IDs made with the second key before the first one
/// is removed. It is shorter than it should be in production (see [`dwell_quic::Cids::new`]), but longer than quinn
/// needs to retransmit what was lost three times at the start.
const HEARTBEAT: Duration = Duration::from_secs(8);
/// Longest time until lasting connections have IDs made with a new key; quinn renews IDs at every second heartbeat.
const RENEWAL_TIMEOUT: Duration = Duration::from_secs(90);
/// The index of the server that is removed.
const REMOVED_SERVER: usize = 3;
/// Pause between two requests of a lasting connection, and between two connections of a returning client.
const THINK: Duration = Duration::from_millis(100);

/// Makes all changes, and returns what clients measured after each.
///
/// # Errors
///
/// If servers or balancer do not come up or refuse a change, or a signal asked to stop.
pub fn changes(scene: Scene<'_>, options: &ChangeOptions) -> Result<Vec<(Change, ChangeResult)>> {
    let signals = Signals::watch()?;
    let star = scene.star;
    let serving = ServerOptions { heartbeat: HEARTBEAT, ..ServerOptions::without_work(TICKETS) };
    let stage = Stage::start(scene, Policy::ZeroRtt, serving)?;
    let watch = Watch::default();
    let progress = Arc::new(Progress::new(options.lasting));
    let mut crowds = Vec::new();
    for (number, namespace) in star.clients.iter().enumerate() {
        let of = |all: usize| (0..all).filter(move |client| client % star.clients.len() == number);
        let client = || Client::new(&stage.identity.certificate, Mode::ZeroRtt);
        let crowd = Crowd {
            number,
            watch: watch.clone(),
            lasting: of(options.lasting)
                .map(|index| {
                    let progress = Arc::clone(&progress);
                    Ok((ConnectionProgress { progress, index }, client()?))
                })
                .collect::<Result<_>>()?,
            returning: of(options.returning).map(|_| client()).collect::<Result<_>>()?,
        };
        let (requests, requested) = tokio::sync::mpsc::unbounded_channel();
        let (results, received) = std::sync::mpsc::channel();
        let thread = namespace.spawn_thread(move || block_on(crowd.run(requested, results)));
        crowds.push((requests, received, thread));
    }
    let mut all = Vec::new();
    for change in Change::ALL {
        stage.change(change)?;
        progress.start_change();
        signals.pause(options.pause)?;
        if change == Change::Rotate {
            wait_for_renewal(&watch, &signals)?;
        }
        while !progress.all_are_answered() {
            signals.pause(Duration::from_millis(50))?;
        }
        let mut total = ChangeResult::default();
        for (requests, received, _) in &crowds {
            // The error of a crowd that has failed is returned when it is joined below.
            let _ = requests.send(());
            if let Ok(part) = received.recv() {
                total.add(part);
            }
        }
        all.push((change, total));
    }
    let (_, last) = all.last_mut().expect("there are changes");
    for (requests, received, thread) in crowds {
        drop(requests);
        // Results of requests that were outstanding.
        received.into_iter().for_each(|part| last.add(part));
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))??;
    }
    stage.stop()?;
    Ok(all)
}

/// Which lasting connections have had an answer since the last change.
struct Progress {
    /// Number of the latest change.
    change: AtomicUsize,
    /// Of each connection, the change before its latest answered request, or [`ENDED`].
    answered: Vec<AtomicUsize>,
}

const ENDED: usize = usize::MAX;

impl Progress {
    fn new(lasting: usize) -> Progress {
        Progress { change: AtomicUsize::new(0), answered: (0..lasting).map(|_| AtomicUsize::new(0)).collect() }
    }

    fn start_change(&self) {
        self.change.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether each connection has an answer or has ended, which takes at most [`ANSWER_TIMEOUT`].
    fn all_are_answered(&self) -> bool {
        let change = self.change.load(Ordering::Relaxed);
        let is_answered = |since: &AtomicUsize| since.load(Ordering::Relaxed) >= change;
        self.answered.iter().all(is_answered)
    }
}

/// The progress of one connection, which has ended when this is dropped.
struct ConnectionProgress {
    progress: Arc<Progress>,
    index: usize,
}

impl ConnectionProgress {
    fn change(&self) -> usize {
        self.progress.change.load(Ordering::Relaxed)
    }

    fn set_answered(&self, since: usize) {
        self.progress.answered[self.index].store(since, Ordering::Relaxed);
    }
}

impl Drop for ConnectionProgress {
    fn drop(&mut self) {
        self.set_answered(ENDED);
    }
}

/// Waits until no client sends to connection IDs made with the first key.
fn wait_for_renewal(watch: &Watch, signals: &Signals) -> Result<()> {
    let start = Instant::now();
    loop {
        match watch.count_with_other_rotation(SECOND_KEY.rotation) {
            0 => return Ok(()),
            others if start.elapsed() > RENEWAL_TIMEOUT => {
                let what = format!("connection IDs made with the second key for {others} connections");
                return Err(Error::Timeout(what));
            }
            _ => signals.pause(Duration::from_millis(50))?,
        }
    }
}

impl Stage<'_> {
    fn change(&self, change: Change) -> Result<()> {
        let others: Vec<usize> = all_servers().into_iter().filter(|server| *server != REMOVED_SERVER).collect();
        match change {
            Change::Begin => Ok(()),
            Change::Rotate => {
                self.reload(&all_servers(), &[FIRST_KEY, SECOND_KEY])?;
                for server in &self.servers {
                    server.rotate(config(SECOND_KEY.rotation, SECOND_KEY.key)?);
                }
                Ok(())
            }
            Change::Forget => self.reload(&all_servers(), &[SECOND_KEY]),
            Change::Remove => self.reload(&others, &[SECOND_KEY]),
            Change::Add => self.reload(&all_servers(), &[SECOND_KEY]),
        }
    }
}

/// The clients of a namespace.
struct Crowd {
    number: usize,
    watch: Watch,
    lasting: Vec<(ConnectionProgress, Client)>,
    returning: Vec<Client>,
}

type SharedResult = Arc<std::sync::Mutex<ChangeResult>>;

impl Crowd {
    /// Sends what was measured since the last request for it, until the channel of requests is closed.
    async fn run(
        self,
        mut requested: tokio::sync::mpsc::UnboundedReceiver<()>,
        results: std::sync::mpsc::Sender<ChangeResult>,
    ) -> Result<()> {
        let shared = SharedResult::default();
        let stop = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        for (host, (progress, client)) in (1..).zip(self.lasting) {
            let address = Star::client_address(self.number, host);
            let origin = Origin { address, watch: self.watch.clone() };
            tasks.spawn(request_until_stopped(client, origin, progress, Arc::clone(&shared), Arc::clone(&stop)));
        }
        for (host, client) in (1..=250).rev().zip(self.returning) {
            let address = Star::client_address(self.number, host);
            let origin = Origin { address, watch: self.watch.clone() };
            tasks.spawn(return_often(client, origin, Arc::clone(&shared), Arc::clone(&stop)));
        }
        while requested.recv().await.is_some() {
            let _ = results.send(std::mem::take(&mut *lock(&shared)));
        }
        stop.store(true, Ordering::Relaxed);
        while let Some(done) = tasks.join_next().await {
            done.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))?;
        }
        let _ = results.send(std::mem::take(&mut *lock(&shared)));
        Ok(())
    }
}

/// Where a client connects from.
struct Origin {
    address: Ipv4Addr,
    watch: Watch,
}

impl Origin {
    async fn visit(&self, client: &Client) -> Result<Visit> {
        let endpoint = self.watch.endpoint(bind(self.address)?)?;
        client.visit_from(endpoint, Stage::vip(), Request::short(0)).await
    }
}

fn lock(shared: &SharedResult) -> std::sync::MutexGuard<'_, ChangeResult> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sends requests on one connection until it breaks or `stop` is set.
async fn request_until_stopped(
    client: Client,
    origin: Origin,
    progress: ConnectionProgress,
    shared: SharedResult,
    stop: Arc<AtomicBool>,
) -> Result<()> {
    let visit = origin.visit(&client).await?;
    while !stop.load(Ordering::Relaxed) {
        let change = progress.change();
        match timeout(ANSWER_TIMEOUT, request(&visit.connection)).await {
            Ok(Ok(())) => {
                lock(&shared).lasting += 1;
                progress.set_answered(change);
            }
            other => {
                let mut result = lock(&shared);
                result.broken += 1;
                result.error.get_or_insert(match other {
                    Ok(Err(error)) => error.to_string(),
                    _ => "no answer on a lasting connection".to_owned(),
                });
                return Ok(());
            }
        }
        tokio::time::sleep(THINK).await;
    }
    client.leave(visit).await;
    Ok(())
}

async fn request(connection: &quinn::Connection) -> Result<()> {
    let (_, mut answer) = begin_to_read(connection, Request::short(0)).await?;
    let read = answer.read_to_end(64).await;
    read.map(drop).map_err(|why| failed(&why))
}

/// Connects again and again until `stop` is set.
async fn return_often(client: Client, origin: Origin, shared: SharedResult, stop: Arc<AtomicBool>) -> Result<()> {
    while !stop.load(Ordering::Relaxed) {
        let had_ticket = client.has_ticket();
        match origin.visit(&client).await {
            Ok(visit) => {
                {
                    let mut result = lock(&shared);
                    result.connections += 1;
                    result.eligible += usize::from(had_ticket);
                    result.early += usize::from(visit.early == Early::Accepted);
                    result.at_removed += usize::from(visit.server == id(REMOVED_SERVER));
                }
                client.leave(visit).await;
            }
            Err(error) => {
                let mut result = lock(&shared);
                result.failed += 1;
                result.error.get_or_insert(error.to_string());
            }
        }
        tokio::time::sleep(THINK).await;
    }
    Ok(())
}
