//! Servers that come and go, and keys that change, while clients are there.

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
    client::{Client, Early, Mode, PATIENCE, Request, Visit, begin_to_read},
    config, failed,
    stage::{FIRST_KEY, Key, Like, Stage, bind, everyone, id},
    watch::Watch,
};
use crate::{lb::Star, loads::quic::block_on};

/// What to run.
#[derive(Debug, Clone)]
pub struct ChangeOptions {
    /// Connections that last from beginning to end.
    pub lasting: usize,
    /// Clients that come back, a connection after the other.
    pub returning: usize,
    /// Between two changes; longer where connections still have IDs by a key that goes.
    pub pause: Duration,
}

/// What happens, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Nothing yet.
    Begin,
    /// The balancer gets a second key; then the servers make connection IDs with it.
    Rotate,
    /// The balancer loses the first key.
    Forget,
    /// The balancer loses a server.
    Remove,
    /// It gets the server again.
    Add,
}

impl Change {
    /// All, in their order.
    pub const ALL: [Change; 5] = [Change::Begin, Change::Rotate, Change::Forget, Change::Remove, Change::Add];

    /// Short.
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

/// What clients saw from a change to the next one.
#[derive(Debug, Clone, Default)]
pub struct Changed {
    /// Requests on connections that last.
    pub lasting: usize,
    /// Connections that lasted until then, and broke.
    pub broken: usize,
    /// Connections of clients that come back, answered.
    pub visits: usize,
    /// Of these, with a ticket.
    pub eligible: usize,
    /// Of these, answered as 0-RTT data.
    pub early: usize,
    /// Connections of clients that come back, not answered.
    pub failed: usize,
    /// Visits to the server that is removed.
    pub at_removed: usize,
    /// Why the first connection broke or was not answered.
    pub why: Option<String>,
}

impl Changed {
    fn add(&mut self, other: Changed) {
        self.lasting += other.lasting;
        self.broken += other.broken;
        self.visits += other.visits;
        self.eligible += other.eligible;
        self.early += other.early;
        self.failed += other.failed;
        self.at_removed += other.at_removed;
        self.why = self.why.take().or(other.why);
    }
}

const SECOND_KEY: Key = Key { rotation: 1, key: *b"the next lab key" };
/// Connections that last must have IDs by the second key before the first one goes. Shorter than it should be elsewhere
/// (see [`dwell_quic::Cids::new`]), but longer than quinn takes to send anew what was lost three times at the beginning.
const HEARTBEAT: Duration = Duration::from_secs(8);
/// By then they have, on any machine: quinn renews IDs at every second heartbeat.
const RENEWED: Duration = Duration::from_secs(90);
/// The server that goes.
const GOES: usize = 3;
/// Between requests of a lasting connection, and between visits.
const THINK: Duration = Duration::from_millis(100);

/// Runs all changes. Gives what clients saw after each.
///
/// # Errors
///
/// If servers or balancer do not come up or refuse a change, or a signal asked to stop.
pub fn changes(scene: Scene<'_>, options: &ChangeOptions) -> Result<Vec<(Change, Changed)>> {
    let signals = Signals::watch()?;
    let star = scene.star;
    let like = Like { heartbeat: HEARTBEAT, ..Like::idle(TICKETS) };
    let stage = Stage::start(scene, Policy::ZeroRtt, like)?;
    let watch = Watch::default();
    let turns = Arc::new(Turns::new(options.lasting));
    let mut crowds = Vec::new();
    for (number, namespace) in star.clients.iter().enumerate() {
        let of = |all: usize| (0..all).filter(move |client| client % star.clients.len() == number);
        let client = || Client::new(&stage.identity.certificate, Mode::ZeroRtt);
        let crowd = Crowd {
            number,
            watch: watch.clone(),
            lasting: of(options.lasting)
                .map(|place| {
                    let turns = Arc::clone(&turns);
                    Ok((Turn { turns, place }, client()?))
                })
                .collect::<Result<_>>()?,
            returning: of(options.returning).map(|_| client()).collect::<Result<_>>()?,
        };
        let (orders, ordered) = tokio::sync::mpsc::unbounded_channel();
        let (tell, told) = std::sync::mpsc::channel();
        let thread = namespace.spawn_thread(move || block_on(crowd.run(ordered, tell)));
        crowds.push((orders, told, thread));
    }
    let mut all = Vec::new();
    for change in Change::ALL {
        stage.change(change)?;
        turns.begin();
        signals.pause(options.pause)?;
        if change == Change::Rotate {
            wait_for_renewal(&watch, &signals)?;
        }
        while !turns.all_are_answered() {
            signals.pause(Duration::from_millis(50))?;
        }
        let mut changed = Changed::default();
        for (orders, told, _) in &crowds {
            // One that has failed tells so below.
            let _ = orders.send(());
            if let Ok(part) = told.recv() {
                changed.add(part);
            }
        }
        all.push((change, changed));
    }
    let (_, last) = all.last_mut().expect("there are changes");
    for (orders, told, thread) in crowds {
        drop(orders);
        // What was still waited for.
        told.into_iter().for_each(|part| last.add(part));
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))??;
    }
    stage.stop()?;
    Ok(all)
}

/// Which lasting connections were answered what they asked since the last change.
struct Turns {
    change: AtomicUsize,
    /// The change since which each has asked, or that it has ended.
    answered: Vec<AtomicUsize>,
}

const ENDED: usize = usize::MAX;

impl Turns {
    fn new(lasting: usize) -> Turns {
        Turns { change: AtomicUsize::new(0), answered: (0..lasting).map(|_| AtomicUsize::new(0)).collect() }
    }

    fn begin(&self) {
        self.change.fetch_add(1, Ordering::Relaxed);
    }

    /// Each is answered, or has ended, within [`PATIENCE`].
    fn all_are_answered(&self) -> bool {
        let change = self.change.load(Ordering::Relaxed);
        let is_answered = |since: &AtomicUsize| since.load(Ordering::Relaxed) >= change;
        self.answered.iter().all(is_answered)
    }
}

/// That of a connection, which ends with it.
struct Turn {
    turns: Arc<Turns>,
    place: usize,
}

impl Turn {
    fn change(&self) -> usize {
        self.turns.change.load(Ordering::Relaxed)
    }

    fn is_answered(&self, since: usize) {
        self.turns.answered[self.place].store(since, Ordering::Relaxed);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.is_answered(ENDED);
    }
}

/// Until no client sends to connection IDs by the first key.
fn wait_for_renewal(watch: &Watch, signals: &Signals) -> Result<()> {
    let begun = Instant::now();
    loop {
        match watch.of_others_than(SECOND_KEY.rotation) {
            0 => return Ok(()),
            others if begun.elapsed() > RENEWED => {
                let what = format!("connection IDs by the second key for {others} connections");
                return Err(Error::Timeout(what));
            }
            _ => signals.pause(Duration::from_millis(50))?,
        }
    }
}

impl Stage<'_> {
    fn change(&self, change: Change) -> Result<()> {
        let others: Vec<usize> = everyone().into_iter().filter(|server| *server != GOES).collect();
        match change {
            Change::Begin => Ok(()),
            Change::Rotate => {
                self.reload(&everyone(), &[FIRST_KEY, SECOND_KEY])?;
                for server in &self.servers {
                    server.rotate(config(SECOND_KEY.rotation, SECOND_KEY.key)?);
                }
                Ok(())
            }
            Change::Forget => self.reload(&everyone(), &[SECOND_KEY]),
            Change::Remove => self.reload(&others, &[SECOND_KEY]),
            Change::Add => self.reload(&everyone(), &[SECOND_KEY]),
        }
    }
}

/// The clients of a namespace.
struct Crowd {
    number: usize,
    watch: Watch,
    lasting: Vec<(Turn, Client)>,
    returning: Vec<Client>,
}

type Seen = Arc<std::sync::Mutex<Changed>>;

impl Crowd {
    /// Tells what was seen each time that it is asked, until nobody asks any more.
    async fn run(
        self,
        mut ordered: tokio::sync::mpsc::UnboundedReceiver<()>,
        tell: std::sync::mpsc::Sender<Changed>,
    ) -> Result<()> {
        let seen = Seen::default();
        let stop = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        for (host, (turn, client)) in (1..).zip(self.lasting) {
            let address = Star::client_address(self.number, host);
            let way = Way { address, watch: self.watch.clone() };
            tasks.spawn(last(client, way, turn, Arc::clone(&seen), Arc::clone(&stop)));
        }
        for (host, client) in (1..=250).rev().zip(self.returning) {
            let address = Star::client_address(self.number, host);
            let way = Way { address, watch: self.watch.clone() };
            tasks.spawn(come_back(client, way, Arc::clone(&seen), Arc::clone(&stop)));
        }
        while ordered.recv().await.is_some() {
            let part = std::mem::take(&mut *lock(&seen));
            let _ = tell.send(part);
        }
        stop.store(true, Ordering::Relaxed);
        while let Some(done) = tasks.join_next().await {
            done.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))?;
        }
        let _ = tell.send(std::mem::take(&mut *lock(&seen)));
        Ok(())
    }
}

/// How a client gets to servers.
struct Way {
    address: Ipv4Addr,
    watch: Watch,
}

impl Way {
    async fn visit(&self, client: &Client) -> Result<Visit> {
        let endpoint = self.watch.endpoint(bind(self.address)?)?;
        client.visit_from(endpoint, Stage::vip(), Request::short(0)).await
    }
}

fn lock(seen: &Seen) -> std::sync::MutexGuard<'_, Changed> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Asks on one connection until it breaks, or is to stop.
async fn last(client: Client, way: Way, turn: Turn, seen: Seen, stop: Arc<AtomicBool>) -> Result<()> {
    let visit = way.visit(&client).await?;
    while !stop.load(Ordering::Relaxed) {
        let since = turn.change();
        match timeout(PATIENCE, ask(&visit.connection)).await {
            Ok(Ok(())) => {
                lock(&seen).lasting += 1;
                turn.is_answered(since);
            }
            other => {
                let mut seen = lock(&seen);
                seen.broken += 1;
                seen.why.get_or_insert(match other {
                    Ok(Err(error)) => error.to_string(),
                    _ => "no answer on a connection that lasts".to_owned(),
                });
                return Ok(());
            }
        }
        tokio::time::sleep(THINK).await;
    }
    client.leave(visit).await;
    Ok(())
}

async fn ask(connection: &quinn::Connection) -> Result<()> {
    let (_, mut answer) = begin_to_read(connection, Request::short(0)).await?;
    let read = answer.read_to_end(64).await;
    read.map(drop).map_err(|why| failed(&why))
}

async fn come_back(client: Client, way: Way, seen: Seen, stop: Arc<AtomicBool>) -> Result<()> {
    while !stop.load(Ordering::Relaxed) {
        let had_ticket = client.has_ticket();
        match way.visit(&client).await {
            Ok(visit) => {
                {
                    let mut seen = lock(&seen);
                    seen.visits += 1;
                    seen.eligible += usize::from(had_ticket);
                    seen.early += usize::from(visit.early == Early::Accepted);
                    seen.at_removed += usize::from(visit.server == id(GOES));
                }
                client.leave(visit).await;
            }
            Err(error) => {
                let mut seen = lock(&seen);
                seen.failed += 1;
                seen.why.get_or_insert(error.to_string());
            }
        }
        tokio::time::sleep(THINK).await;
    }
    Ok(())
}
