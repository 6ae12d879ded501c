//! Connection IDs that tell a balancer their server and its load.

use std::{
    fmt,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use dwell_engine::quic_lb::{Config, Load, Stamp, TOKEN_PREFIX, TokenStamp};
use quinn::{ConnectionId, ConnectionIdGenerator};
use quinn_proto::InvalidCid;
use ring::rand::{SecureRandom, SystemRandom};

use crate::{Error, Result};

/// The connection IDs of one server. Each holds the server's ID, the waiting time of requests when it was generated, and a
/// number that never repeats. They are encrypted: without the key, nobody can tell whether two IDs belong to one client.
///
/// All endpoints of a server share one instance by cloning it.
#[derive(Clone)]
pub struct Cids(Arc<Shared>);

struct Shared {
    server: u16,
    heartbeat: Option<Duration>,
    wait: Box<Wait>,
    /// The first configuration encodes new IDs. The others decode the IDs of older connections.
    configs: RwLock<Vec<Config>>,
}

/// Default lifetime of connection IDs. It exceeds quinn's idle timeout of 30 s, as [`Cids::new`] explains. quinn renews IDs
/// at every second heartbeat, so a balancer receives a report of a connection's server at least every 80 s; its
/// `load_lifetime` of 100 s is longer.
pub const HEARTBEAT: Duration = Duration::from_secs(40);

type Wait = dyn Fn() -> Option<Duration> + Send + Sync;

/// The freshness of the latest ID of this process, over all its servers.
static LAST: AtomicU64 = AtomicU64::new(0);

impl Cids {
    /// Creates the connection IDs of the server that the balancer knows by this number. `wait` is called for each new ID
    /// and returns the current waiting time, or `None` if it is unknown.
    ///
    /// With a heartbeat, the IDs of a connection are renewed at this interval. So a balancer receives reports of a server
    /// that gets no new connections, and an old key goes out of use. A renewal costs one packet in each direction.
    ///
    /// The heartbeat must not be shorter than the idle timeout of connections (`max_idle_timeout`, 30 s). quinn-proto
    /// 0.11.19 retransmits lost IDs together with a request to retire all IDs that have expired since. If the
    /// retransmitted ID is itself among these, the client's library takes that for a protocol violation and closes the
    /// connection.
    ///
    /// # Errors
    ///
    /// [`Error::Layout`], if the configuration was not made by [`Config::own`].
    pub fn new(
        server: u16,
        config: Config,
        heartbeat: Option<Duration>,
        wait: impl Fn() -> Option<Duration> + Send + Sync + 'static,
    ) -> Result<Cids> {
        init_freshness();
        Ok(Cids(Arc::new(Shared {
            server,
            heartbeat,
            wait: Box::new(wait),
            configs: RwLock::new(vec![require_stamped(config)?]),
        })))
    }

    /// Encodes new IDs by another configuration, which the balancer must know before. Existing IDs stay valid on their
    /// connections until a heartbeat renews them, or until a configuration of the same rotation follows.
    ///
    /// # Errors
    ///
    /// [`Error::Layout`], if the configuration was not made by [`Config::own`].
    pub fn rotate(&self, config: Config) -> Result<()> {
        let config = require_stamped(config)?;
        let mut configs = self.0.configs.write().unwrap_or_else(PoisonError::into_inner);
        configs.retain(|old| old.rotation() != config.rotation());
        configs.insert(0, config);
        Ok(())
    }

    /// Decodes the server and its load report, if the ID was encoded by a known configuration.
    pub fn read(&self, cid: &[u8]) -> Option<(u16, Stamp)> {
        let configs = self.0.configs.read().unwrap_or_else(PoisonError::into_inner);
        configs.iter().find_map(|config| config.decode_stamped(cid))
    }

    /// Returns the server's number.
    pub fn server(&self) -> u16 {
        self.0.server
    }

    /// Returns a generator for one endpoint, as [`quinn::EndpointConfig::cid_generator`] needs it.
    pub fn generator(&self) -> CidGenerator {
        CidGenerator(self.clone())
    }

    /// Decodes the server that a token names, if the token was made with the key of a known configuration. It may have
    /// expired.
    pub fn read_token(&self, token: &[u8]) -> Option<(u16, TokenStamp)> {
        let configs = self.0.configs.read().unwrap_or_else(PoisonError::into_inner);
        configs.iter().find_map(|config| config.decode_token(token))
    }

    /// Returns an unused beginning of a token, which a balancer follows for this many minutes.
    pub(crate) fn token_prefix(&self, lifetime_minutes: u16) -> [u8; TOKEN_PREFIX] {
        let stamp = TokenStamp { freshness: next_freshness(seconds()), lifetime_minutes };
        let configs = self.0.configs.read().unwrap_or_else(PoisonError::into_inner);
        configs[0].encode_token(self.0.server, stamp)
    }

    fn generate(&self) -> ConnectionId {
        let stamp = Stamp {
            freshness: next_freshness(seconds()),
            load: (self.0.wait)().map_or(Load::UNKNOWN, Load::from_wait),
        };
        let configs = self.0.configs.read().unwrap_or_else(PoisonError::into_inner);
        ConnectionId::new(&configs[0].encode_stamped(self.0.server, stamp))
    }
}

fn require_stamped(config: Config) -> Result<Config> {
    match config.is_stamped() {
        true => Ok(config),
        false => Err(Error::Layout),
    }
}

/// Starts the freshness of this process above that of earlier ones, in the next second. Two processes that start in the
/// same second most likely start apart, by a random offset.
fn init_freshness() {
    let mut random = [0; 2];
    // Stays zero if the system has no randomness, in which case rustls fails too.
    let _ = SystemRandom::new().fill(&mut random);
    let start = (seconds() + 1) << COUNT_BITS | u64::from(u16::from_ne_bytes(random));
    // Only the first call in a process has an effect.
    let _ = LAST.compare_exchange(0, start, Ordering::Relaxed, Ordering::Relaxed);
}

/// Returns a freshness above all earlier ones, and not below the current time.
fn next_freshness(seconds: u64) -> u64 {
    let next = |last: u64| (last + 1).max(seconds << COUNT_BITS);
    let last = LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(next(last)));
    match last {
        Ok(last) | Err(last) => next(last) & ((1 << 48) - 1),
    }
}

/// Bits that count the IDs within a second. More IDs than that run ahead of the clock.
const COUNT_BITS: u32 = 16;

fn seconds() -> u64 {
    // With a clock before 1970, the balancer rejects the IDs as old.
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::from(now.unwrap_or_default().as_secs() as u32)
}

/// Generates the connection IDs of an endpoint.
#[derive(Debug)]
pub struct CidGenerator(Cids);

impl ConnectionIdGenerator for CidGenerator {
    fn generate_cid(&mut self) -> ConnectionId {
        self.0.generate()
    }

    /// Accepts IDs of this server only, so that misdirected packets of other servers get no stateless reset.
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
    fn an_id_holds_the_load_at_its_generation() {
        let wait_us = Arc::new(AtomicU64::new(0));
        let shared = Arc::clone(&wait_us);
        let cids = cids(move || match shared.load(Ordering::Relaxed) {
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
    fn freshness_never_repeats_across_threads_and_servers() {
        let all = cids(|| None);
        let others = cids(|| None);
        let workers: Vec<_> = (0..4)
            .map(|number| {
                let mut generator = if number % 2 == 0 { &all } else { &others }.generator();
                let read = all.clone();
                thread::spawn(move || -> Vec<u64> {
                    let cids = (0..10_000).map(|_| generator.generate_cid());
                    cids.map(|cid| read.read(&cid).unwrap().1.freshness).collect()
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
    fn only_ids_of_this_server_are_valid_for_a_reset() {
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
    fn old_ids_stay_valid_until_their_rotation_has_another_key() {
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
    fn debug_output_does_not_contain_the_key() {
        let output = format!("{:?}", cids(|| None).generator());
        assert!(output.contains("server: 7") && !output.contains("5, 5"), "{output}");
    }
}
