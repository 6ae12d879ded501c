//! Clients that get another address in the middle of an answer.

use std::time::{Duration, Instant};

use dwell_testbed::{Error, Result};
use quinn::RecvStream;
use rand::{RngExt, rngs::Xoshiro256PlusPlus};
use tokio::{task::JoinSet, time::timeout};

use super::{
    Policy, Scene,
    client::{Client, Mode, PATIENCE, Request, Visit, begin_to_read},
    failed, quantile,
    server::PIECE,
    stage::{Like, Stage, bind},
};
use crate::{
    lb::Star,
    loads::{quic::block_on, random::generator},
};

/// What to run.
#[derive(Debug, Clone)]
pub struct MoveOptions {
    /// Connections side by side: 2 to 200.
    pub connections: usize,
    /// Moves of each.
    pub moves: usize,
    /// Of all that is random.
    pub seed: u64,
}

/// What came of it.
#[derive(Debug, Clone, Default)]
pub struct Moved {
    /// Moves after which the answer went on.
    pub survived: usize,
    /// Moves after which it did not; a connection that breaks does not move any more.
    pub broken: usize,
    /// From a move until the answer went on, in ascending order.
    pub took: Vec<Duration>,
}

impl Moved {
    /// The time below or at which that share lies (nearest rank).
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        quantile(&self.took, share)
    }
}

/// More than is ever read.
const ENDLESS: u64 = 1 << 40;
/// Of an answer, after each move, so that packets to the new address have come and been acknowledged.
const PIECES: usize = 3 * PIECE;

/// Moves clients from address to address and port to port, under a policy.
///
/// # Errors
///
/// If servers or balancer do not come up, or a connection does not before it moves.
pub fn moves(scene: Scene<'_>, policy: Policy, options: &MoveOptions) -> Result<Moved> {
    let star = scene.star;
    let stage = Stage::start(scene, policy, Like::idle(1))?;
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
    let mut all = Moved::default();
    for crowd in crowds {
        let moved = crowd.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))??;
        all.add(moved);
    }
    all.took.sort_unstable();
    stage.stop()?;
    Ok(all)
}

impl Moved {
    fn add(&mut self, other: Moved) {
        self.survived += other.survived;
        self.broken += other.broken;
        self.took.extend(other.took);
    }
}

async fn crowd(number: usize, clients: Vec<Client>, times: usize, seed: u64) -> Result<Moved> {
    let mut tasks = JoinSet::new();
    for (place, client) in clients.into_iter().enumerate() {
        let random = generator(seed, 23, (number << 16 | place) as u64);
        tasks.spawn(travel(number, client, times, random));
    }
    let mut all = Moved::default();
    while let Some(done) = tasks.join_next().await {
        all.add(done.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))?);
    }
    Ok(all)
}

/// The socket is of a random address of the client's network.
fn somewhere(number: usize, random: &mut Xoshiro256PlusPlus) -> Result<std::net::UdpSocket> {
    bind(Star::client_address(number, random.random_range(1..=250)))
}

async fn travel(number: usize, client: Client, times: usize, mut random: Xoshiro256PlusPlus) -> Result<Moved> {
    let socket = somewhere(number, &mut random)?;
    let visit = client.visit(socket, Stage::vip(), Request::short(0)).await?;
    let request = Request { bytes: ENDLESS, is_slow: true, ..Request::short(0) };
    let (_, mut answer) = begin_to_read(&visit.connection, request).await?;
    read_on(&mut answer).await?;
    let mut moved = Moved::default();
    for _ in 0..times {
        match step(&visit, somewhere(number, &mut random)?, &mut answer).await {
            Ok(took) => {
                moved.survived += 1;
                moved.took.push(took);
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

async fn step(visit: &Visit, to: std::net::UdpSocket, answer: &mut RecvStream) -> Result<Duration> {
    let begun = Instant::now();
    visit.endpoint.rebind(to).map_err(Error::io("move to another address"))?;
    read_on(answer).await?;
    Ok(begun.elapsed())
}

async fn read_on(answer: &mut RecvStream) -> Result<()> {
    let reading = async {
        let mut bytes = vec![0; PIECES];
        answer.read_exact(&mut bytes).await
    };
    match timeout(PATIENCE, reading).await {
        Ok(read) => read.map_err(|why| failed(&why)),
        Err(_) => Err(Error::Timeout("more of an answer".to_owned())),
    }
}
