//! Connection IDs by which a balancer knows their server, and its load.

use std::{
    fmt,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use dwell_engine::quic_lb::{Config, Load, Stamp};
use quinn::{ConnectionId, ConnectionIdGenerator};
use quinn_proto::InvalidCid;
use ring::rand::{SecureRandom, SystemRandom};

use crate::{Error, Result};

/// Connection IDs of one server: who it is, how long requests wait there as each ID is made, and a number that never
/// comes again. They are encrypted, so that nobody without the key can tell whether two are of one client.
///
/// All endpoints of a server share one, by clones.
#[derive(Clone)]
pub struct Cids(Arc<Shared>);

struct Shared {
    server: u16,
    heartbeat: Option<Duration>,
    wait: Box<Wait>,
    /// The first makes new ones; the others are of connections that began before.
    configs: RwLock<Vec<Config>>,
}

/// Longer than quinn lets a connection be silent (30 s): see [`Cids::new`]. As quinn renews IDs at every second
/// heartbeat, a balancer hears of a connection's server each 80 s at least: its `load_lifetime` is longer (100 s).
pub const HEARTBEAT: Duration = Duration::from_secs(40);

type Wait = dyn Fn() -> Option<Duration> + Send + Sync;

/// Freshness that was last given, by whichever server of this process.
static LAST: AtomicU64 = AtomicU64::new(0);

impl Cids {
    /// Those of a server by its number, which the balancer knows it by. What it waits for is asked each time that an
    /// ID is made; none is that it is not known.
    ///
    /// With a heartbeat, the IDs of a connection are made anew that often, so that a balancer has news of a server
    /// that gets no new connections, and an old key has an end. It costs a packet to and fro.
    ///
    /// It must not be shorter than connections may be silent (`max_idle_timeout`, 30 s). quinn-proto 0.11.19 sends IDs
    /// that were lost again, and with them asks for the retirement of all that have expired since: of an ID that is
    /// itself among these, the client's library takes that for a fault and closes the connection.
    ///
    /// # Errors
    ///
    /// If the configuration is not that of [`Config::own`].
    pub fn new(
        server: u16,
        config: Config,
        heartbeat: Option<Duration>,
        wait: impl Fn() -> Option<Duration> + Send + Sync + 'static,
    ) -> Result<Cids> {
        begin_freshness();
        Ok(Cids(Arc::new(Shared { server, heartbeat, wait: Box::new(wait), configs: RwLock::new(vec![own(config)?]) })))
    }

    /// Makes new IDs by another configuration. The balancer must have it before. Those made before stay good on their
    /// connections, until a heartbeat has made them anew, or until a configuration of the same rotation comes.
    ///
    /// # Errors
    ///
    /// If the configuration is not that of [`Config::own`].
    pub fn rotate(&self, config: Config) -> Result<()> {
        let config = own(config)?;
        let mut configs = self.0.configs.write().unwrap_or_else(PoisonError::into_inner);
        configs.retain(|old| old.rotation() != config.rotation());
        configs.insert(0, config);
        Ok(())
    }

    /// The server and what it said, if the ID is by a configuration that is known here.
    pub fn read(&self, cid: &[u8]) -> Option<(u16, Stamp)> {
        let configs = self.0.configs.read().unwrap_or_else(PoisonError::into_inner);
        configs.iter().find_map(|config| config.decode_stamped(cid))
    }

    /// The server's number.
    pub fn server(&self) -> u16 {
        self.0.server
    }

    /// For one endpoint: what [`quinn::EndpointConfig::cid_generator`] asks for.
    pub fn generator(&self) -> CidGenerator {
        CidGenerator(self.clone())
    }

    fn make(&self) -> ConnectionId {
        let stamp = Stamp {
            freshness: next_freshness(seconds()),
            load: (self.0.wait)().map_or(Load::UNKNOWN, Load::from_wait),
        };
        let configs = self.0.configs.read().unwrap_or_else(PoisonError::into_inner);
        ConnectionId::new(&configs[0].encode_stamped(self.0.server, stamp))
    }
}

fn own(config: Config) -> Result<Config> {
    match config.to_core().stamped {
        1 => Ok(config),
        _ => Err(Error::Layout),
    }
}

/// Above all that a process before this one gave: it starts in the second after this one. Where two start in a second,
/// they start apart, most likely.
fn begin_freshness() {
    let mut random = [0; 2];
    // All zero if there is none; then rustls fails too.
    let _ = SystemRandom::new().fill(&mut random);
    let begin = (seconds() + 1) << COUNT_BITS | u64::from(u16::from_ne_bytes(random));
    // Only the first time.
    let _ = LAST.compare_exchange(0, begin, Ordering::Relaxed, Ordering::Relaxed);
}

/// Larger than all before, and no less than the time.
fn next_freshness(seconds: u64) -> u64 {
    let next = |last: u64| (last + 1).max(seconds << COUNT_BITS);
    let last = LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(next(last)));
    match last {
        Ok(last) | Err(last) => next(last) & ((1 << 48) - 1),
    }
}

/// Connection IDs of a second that are told apart; more reach into the next.
const COUNT_BITS: u32 = 16;

fn seconds() -> u64 {
    // A clock before 1970 gives IDs that the balancer takes for old.
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::from(now.unwrap_or_default().as_secs() as u32)
}

/// Makes the connection IDs of an endpoint.
#[derive(Debug)]
pub struct CidGenerator(Cids);

impl ConnectionIdGenerator for CidGenerator {
    fn generate_cid(&mut self) -> ConnectionId {
        self.0.make()
    }

    /// A stateless reset is only for IDs of this server: packets that came here by mistake are another's.
    fn validate(&self, cid: &ConnectionId) -> Result<(), InvalidCid> {
        match self.0.read(cid) {
            Some((server, _)) if server == self.0.0.server => Ok(()),
            _ => Err(InvalidCid),
        }
    }

    fn cid_len(&self) -> usize {
        17
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        self.0.0.heartbeat
    }
}

impl fmt::Debug for Cids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cids")
            .field("server", &self.0.server)
            .field("heartbeat", &self.0.heartbeat)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, thread};

    use super::*;

    fn cids(wait: impl Fn() -> Option<Duration> + Send + Sync + 'static) -> Cids {
        Cids::new(7, Config::own(2, [5; 16]).unwrap(), None, wait).unwrap()
    }

    #[test]
    fn the_load_is_that_of_the_moment() {
        let wait_us = Arc::new(AtomicU64::new(0));
        let asked = Arc::clone(&wait_us);
        let cids = cids(move || match asked.load(Ordering::Relaxed) {
            0 => None,
            wait_us => Some(Duration::from_micros(wait_us)),
        });
        let mut generator = cids.generator();
        let mut load = || cids.read(&generator.generate_cid()).unwrap().1.load.wait();
        assert_eq!(load(), None);
        wait_us.store(1, Ordering::Relaxed);
        assert_eq!(load(), Some(Duration::from_micros(1)));
        wait_us.store(70_000, Ordering::Relaxed);
        let wait = load().unwrap().as_secs_f64();
        assert!((wait / 0.07 - 1.0).abs() <= 0.001, "{wait}");
    }

    #[test]
    fn freshness_never_comes_again_whoever_asks() {
        let all = cids(|| None);
        let others = cids(|| None);
        let workers: Vec<_> = (0..4)
            .map(|number| {
                let mut generator = if number % 2 == 0 { &all } else { &others }.generator();
                let read = all.clone();
                thread::spawn(move || -> Vec<u64> {
                    let made = (0..10_000).map(|_| generator.generate_cid());
                    made.map(|cid| read.read(&cid).unwrap().1.freshness).collect()
                })
            })
            .collect();
        let mut seen = HashSet::new();
        for worker in workers {
            let freshness = worker.join().unwrap();
            assert!(freshness.is_sorted());
            assert!(freshness[0] >> COUNT_BITS >= seconds() - 60);
            seen.extend(freshness);
        }
        assert_eq!(seen.len(), 40_000);
    }

    #[test]
    fn only_ids_of_this_server_are_good_for_a_reset() {
        let mine = cids(|| None);
        let config = Config::own(2, [5; 16]).unwrap();
        let other = Cids::new(8, config, None, || None).unwrap();
        let cid = other.generator().generate_cid();
        assert!(mine.read(&cid).is_some());
        assert!(mine.generator().validate(&cid).is_err());
        assert!(other.generator().validate(&cid).is_ok());
        let foreign = ConnectionId::new(&[0x50; 17]);
        assert!(mine.generator().validate(&foreign).is_err());
        assert!(mine.generator().validate(&ConnectionId::new(&[])).is_err());
    }

    #[test]
    fn old_ids_are_known_until_their_rotation_has_another_key() {
        let cids = cids(|| None);
        let mut generator = cids.generator();
        let first = generator.generate_cid();
        cids.rotate(Config::own(3, [6; 16]).unwrap()).unwrap();
        let second = generator.generate_cid();
        assert_eq!((first[0] >> 5, second[0] >> 5), (2, 3));
        assert!(generator.validate(&first).is_ok() && generator.validate(&second).is_ok());
        cids.rotate(Config::own(2, [7; 16]).unwrap()).unwrap();
        assert!(generator.validate(&first).is_err() && generator.validate(&second).is_ok());
        assert_eq!(generator.generate_cid()[0] >> 5, 2);
    }

    #[test]
    fn a_layout_without_a_stamp_is_refused() {
        let config = || Config::new(0, 2, 14, Some([1; 16])).unwrap();
        assert!(Cids::new(1, config(), None, || None).is_err());
        assert!(cids(|| None).rotate(config()).is_err());
    }

    #[test]
    fn the_key_is_not_shown() {
        let shown = format!("{:?}", cids(|| None).generator());
        assert!(shown.contains("server: 7") && !shown.contains("5, 5"), "{shown}");
    }
}
