//! Clients whose address changes in the middle of an answer.

use std::time::{Duration, Instant};

use dwell_engine::stats;
use dwell_testbed::{Error, Result};
use quinn::RecvStream;
use rand::{RngExt, rngs::Xoshiro256PlusPlus};
use tokio::{task::JoinSet, time::timeout};

use super::{
    Policy, Scene,
    client::{ANSWER_TIMEOUT, Client, Mode, Request, Visit, begin_to_read},
    failed,
    server::PIECE,
    stage::{ServerOptions, Stage, bind},
};
use crate::{
    lb::Star,
    loads::{quic::block_on, random::generator},
};

/// Options of an experiment with moving clients.
#[derive(Debug, Clone)]
pub struct MoveOptions {
    /// Simultaneous connections, 2 to 200.
    pub connections: usize,
    /// Moves per connection.
    pub moves: usize,
    /// Random seed.
    pub seed: u64,
}

/// What became of the connections that moved.
#[derive(Debug, Clone, Default)]
pub struct MoveResult {
    /// Moves after which the answer continued.
    pub survived: usize,
    /// Moves that broke their connection, which then moves no more.
    pub broken: usize,
    /// Times from a move until the answer continued, in ascending order.
    pub interruptions: Vec<Duration>,
}

impl MoveResult {
    /// A quantile of the interruptions, by nearest rank.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        stats::quantile(&self.interruptions, share)
    }
}

/// Length of an answer that is never read to its end.
const ENDLESS: u64 = 1 << 40;
/// Bytes that are read after each move: enough that packets to the new address arrive and are acknowledged.
const BYTES_PER_MOVE: usize = 3 * PIECE;

/// Moves clients from address to address and port to port, under a policy.
///
/// # Errors
///
/// If servers or balancer do not come up, or a connection does not before it moves.
pub fn moves(scene: Scene<'_>, policy: Policy, options: &MoveOptions) -> Result<MoveResult> {
    let star = scene.star;
    let stage = Stage::start(scene, policy, ServerOptions::without_work(1))?;
    let certificate = &stage.identity.certificate;
    let crowds: Vec<_> = star
        .clients
        .iter()
        .enumerate()
        .map(|(number, namespace)| {
            let own = (0..options.connections).filter(|client| client % star.clients.len() == number);
            let clients = own.map(|_| Client::new(certificate, Mode::Full));
            let clients = clients.collect::<Result<Vec<_>>>()?;
            let (times, seed) = (options.moves, options.seed);
            Ok(namespace.spawn_thread(move || block_on(crowd(number, clients, times, seed))))
        })
        .collect::<Result<_>>()?;
    let mut all = MoveResult::default();
    for crowd in crowds {
        all.add(crowd.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))??);
    }
    all.interruptions.sort_unstable();
    stage.stop()?;
    Ok(all)
}

impl MoveResult {
    fn add(&mut self, other: MoveResult) {
        self.survived += other.survived;
        self.broken += other.broken;
        self.interruptions.extend(other.interruptions);
    }
}

async fn crowd(number: usize, clients: Vec<Client>, times: usize, seed: u64) -> Result<MoveResult> {
    let mut tasks = JoinSet::new();
    for (index, client) in clients.into_iter().enumerate() {
        let random = generator(seed, 23, (number << 16 | index) as u64);
        tasks.spawn(move_around(number, client, times, random));
    }
    let mut all = MoveResult::default();
    while let Some(done) = tasks.join_next().await {
        all.add(done.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))?);
    }
    Ok(all)
}

/// Binds a socket to a random address of the client's network.
fn random_socket(number: usize, random: &mut Xoshiro256PlusPlus) -> Result<std::net::UdpSocket> {
    bind(Star::client_address(number, random.random_range(1..=250)))
}

/// Moves a client, and returns what became of its connection.
async fn move_around(
    number: usize,
    client: Client,
    times: usize,
    mut random: Xoshiro256PlusPlus,
) -> Result<MoveResult> {
    let socket = random_socket(number, &mut random)?;
    let visit = client.visit(socket, Stage::vip(), Request::short(0)).await?;
    let request = Request { bytes: ENDLESS, is_slow: true, ..Request::short(0) };
    let (_, mut answer) = begin_to_read(&visit.connection, request).await?;
    read_on(&mut answer).await?;
    let mut moved = MoveResult::default();
    for _ in 0..times {
        match move_once(&visit, random_socket(number, &mut random)?, &mut answer).await {
            Ok(interruption) => {
                moved.survived += 1;
                moved.interruptions.push(interruption);
            }
            Err(_) => {
                moved.broken += 1;
                break;
            }
        }
    }
    client.leave(visit).await;
    Ok(moved)
}

async fn move_once(visit: &Visit, to: std::net::UdpSocket, answer: &mut RecvStream) -> Result<Duration> {
    let start = Instant::now();
    visit.endpoint.rebind(to).map_err(Error::io("move to another address"))?;
    read_on(answer).await?;
    Ok(start.elapsed())
}

async fn read_on(answer: &mut RecvStream) -> Result<()> {
    let reading = async {
        let mut bytes = vec![0; BYTES_PER_MOVE];
        answer.read_exact(&mut bytes).await
    };
    match timeout(ANSWER_TIMEOUT, reading).await {
        Ok(read) => read.map_err(|why| failed(&why)),
        Err(_) => Err(Error::Timeout("more of an answer".to_owned())),
    }
}
