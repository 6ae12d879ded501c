//! Storage of sessions that clients may resume, each once.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use rustls::server::StoresServerSessions;
use zeroize::{Zeroize, Zeroizing};

use crate::hand_over::{HandOver, HandedSession};

/// Limits on the stored sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of sessions. One more displaces the oldest. A session takes some 400 bytes, and more with client
    /// certificates.
    pub max_sessions: usize,
    /// Maximum age of a session. Until a session is deleted, an attacker who seizes the server can decrypt 0-RTT data that
    /// was sent with its ticket and that this server has not accepted. At most a day, the lifetime that rustls advertises
    /// to clients.
    pub ttl: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { max_sessions: 100_000, ttl: Duration::from_secs(6 * 3600) }
    }
}

/// Counts of sessions by what happened to them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Sessions stored at present.
    pub held: usize,
    /// Sessions that were put into the store: those whose tickets were issued to clients, and those taken over from another
    /// server.
    pub stored: u64,
    /// Sessions that were handed over to another server.
    pub handed_over: u64,
    /// Tickets that clients presented and that were valid.
    pub resumed: u64,
    /// Tickets that clients presented and that were not valid: used before, expired, or of another server.
    pub missed: u64,
    /// Sessions deleted because of their age.
    pub expired: u64,
    /// Sessions deleted to make room for others.
    pub displaced: u64,
    /// Sessions not stored because they were too long.
    pub refused: u64,
}

/// The secrets of sessions, each with the ID that its ticket carries.
pub type Secrets = Vec<(Vec<u8>, Zeroizing<Vec<u8>>)>;

/// A store of sessions in the memory of one server. The first use of a ticket deletes its session, and secrets of unused
/// sessions are overwritten when they are deleted. So a replayed ticket finds no session, and an attacker who seizes the
/// server later finds no secrets of past sessions.
///
/// The secrets of a used session are handed to rustls, which frees them without overwriting them.
pub struct SingleUseSessions {
    limits: Limits,
    store: Mutex<Store>,
    /// Dropping this ends the thread that deletes expired sessions.
    _end: mpsc::Sender<()>,
}

#[derive(Default)]
struct Store {
    sessions: HashMap<Arc<[u8]>, Session>,
    /// Session IDs by the time since which their sessions count, and by their numbers.
    order: BTreeMap<(Instant, u64), Arc<[u8]>>,
    next: u64,
    counts: Counts,
}

struct Session {
    secrets: Zeroizing<Vec<u8>>,
    number: u64,
    since: Instant,
}

/// The ticket lifetime that rustls advertises to clients.
const ADVERTISED_LIFETIME: Duration = Duration::from_secs(24 * 3600);
/// Maximum length of a session's secrets. Long chains of client certificates exceed it.
pub(crate) const MAX_SESSION_BYTES: usize = 16 << 10;
/// Number of sessions deleted under one lock, so that no handshake waits long.
const BATCH: usize = 256;
/// Number of checks for expired sessions per TTL. So sessions outlive their TTL by at most this fraction of it.
const CHECKS_PER_TTL: u32 = 16;

impl SingleUseSessions {
    /// Creates an empty store, and a thread that deletes expired sessions until the store is dropped.
    ///
    /// A TTL of more than a day is reduced to a day.
    ///
    /// # Panics
    ///
    /// If the process may start no more threads.
    pub fn new(limits: Limits) -> Arc<SingleUseSessions> {
        let (end, ended) = mpsc::channel();
        let limits = Limits { max_sessions: limits.max_sessions.max(1), ttl: limits.ttl.min(ADVERTISED_LIFETIME) };
        let sessions = Arc::new(SingleUseSessions { limits, store: Mutex::default(), _end: end });
        let weak = Arc::downgrade(&sessions);
        thread::spawn(move || delete_expired(&weak, limits.ttl / CHECKS_PER_TTL, &ended));
        sessions
    }

    /// Returns the limits that are in force.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Returns the counts.
    pub fn counts(&self) -> Counts {
        let store = self.lock();
        Counts { held: store.sessions.len(), ..store.counts }
    }

    /// Deletes all sessions, so that no issued ticket is valid any longer.
    pub fn clear(&self) {
        drop(self.drain());
    }

    /// Removes and returns all sessions: what an attacker finds who seizes the server.
    pub fn drain(&self) -> Secrets {
        let mut store = self.lock();
        store.order.clear();
        let sessions = std::mem::take(&mut store.sessions);
        sessions.into_iter().map(|(id, session)| (id.to_vec(), session.secrets)).collect()
    }

    /// Removes all sessions, for the server that gets this server's clients from now on: its successor when this one
    /// leaves, or the process that replaces it. From this moment, nobody can resume them until the other server takes them
    /// over. Sessions of tickets that are issued later stay here.
    pub fn hand_over(&self) -> HandOver {
        let now = Instant::now();
        let mut store = self.lock();
        let order = std::mem::take(&mut store.order);
        let mut sessions = std::mem::take(&mut store.sessions);
        let handed = order.into_values().filter_map(|id| {
            let session = sessions.remove(&id)?;
            let age = now.saturating_duration_since(session.since);
            Some(HandedSession { id: id.to_vec(), secrets: session.secrets, age })
        });
        let handed: Vec<HandedSession> = handed.collect();
        store.counts.handed_over += handed.len() as u64;
        HandOver::new(handed)
    }

    /// Takes over the sessions of another server, as old as they are, and returns how many were not expired. If there is not
    /// room for all, the oldest are deleted, of this server's and the others alike.
    pub fn take_over(&self, handed: HandOver) -> usize {
        let now = Instant::now();
        let mut taken = 0;
        for HandedSession { id, mut secrets, age } in handed.into_sessions() {
            // A host that has started a moment ago knows no earlier time.
            let since = now.checked_sub(age).unwrap_or(now);
            if age < self.limits.ttl && self.put_at(id, std::mem::take(&mut *secrets), since) {
                taken += 1;
            }
        }
        taken
    }

    /// Puts a session into the store that counts since this time. Returns false if it is too long.
    fn put_at(&self, id: Vec<u8>, mut secrets: Vec<u8>, since: Instant) -> bool {
        let mut store = self.lock();
        if secrets.len() > MAX_SESSION_BYTES {
            secrets.zeroize();
            store.counts.refused += 1;
            return false;
        }
        store.remove(&id);
        let id: Arc<[u8]> = id.into();
        let number = store.next;
        store.next += 1;
        store.counts.stored += 1;
        store.order.insert((since, number), Arc::clone(&id));
        store.sessions.insert(id, Session { secrets: Zeroizing::new(secrets), number, since });
        if store.sessions.len() > self.limits.max_sessions && store.delete_oldest() {
            store.counts.displaced += 1;
        }
        true
    }

    fn take_at(&self, id: &[u8], now: Instant) -> Option<Vec<u8>> {
        let mut store = self.lock();
        let session = store.remove(id);
        let is_expired = |session: &Session| now.saturating_duration_since(session.since) >= self.limits.ttl;
        match session {
            Some(session) if is_expired(&session) => {
                store.counts.expired += 1;
                store.counts.missed += 1;
                None
            }
            Some(mut session) => {
                store.counts.resumed += 1;
                Some(std::mem::take(&mut *session.secrets))
            }
            None => {
                store.counts.missed += 1;
                None
            }
        }
    }

    /// Deletes up to [`BATCH`] expired sessions. Returns whether there may be more.
    fn delete_batch(&self, now: Instant) -> bool {
        let mut store = self.lock();
        for _ in 0..BATCH {
            let oldest = store.order.first_key_value();
            let session = oldest.and_then(|(_, id)| store.sessions.get(id));
            let is_expired = |session: &Session| now.saturating_duration_since(session.since) >= self.limits.ttl;
            if !session.is_some_and(is_expired) {
                return false;
            }
            store.delete_oldest();
            store.counts.expired += 1;
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, Store> {
        // The store is consistent even after a panic: nothing panics between two changes that belong together.
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store {
    fn remove(&mut self, id: &[u8]) -> Option<Session> {
        let session = self.sessions.remove(id)?;
        self.order.remove(&(session.since, session.number));
        Some(session)
    }

    fn delete_oldest(&mut self) -> bool {
        match self.order.pop_first() {
            Some((_, id)) => self.sessions.remove(&id).is_some(),
            None => false,
        }
    }
}

fn delete_expired(sessions: &Weak<SingleUseSessions>, interval: Duration, ended: &mpsc::Receiver<()>) {
    let interval = interval.max(Duration::from_millis(1));
    while ended.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
        let Some(sessions) = sessions.upgrade() else {
            return;
        };
        while sessions.delete_batch(Instant::now()) {}
    }
}

impl StoresServerSessions for SingleUseSessions {
    fn put(&self, id: Vec<u8>, secrets: Vec<u8>) -> bool {
        self.put_at(id, secrets, Instant::now())
    }

    /// Returns nothing: a session that is read without being deleted could be used twice. Only TLS 1.2 calls this.
    fn get(&self, _id: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn take(&self, id: &[u8]) -> Option<Vec<u8>> {
        self.take_at(id, Instant::now())
    }

    fn can_cache(&self) -> bool {
        true
    }
}

impl fmt::Debug for SingleUseSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SingleUseSessions")
            .field("limits", &self.limits)
            .field("counts", &self.counts())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(100);

    fn sessions(max_sessions: usize) -> Arc<SingleUseSessions> {
        SingleUseSessions::new(Limits { max_sessions, ttl: TTL })
    }

    #[test]
    fn a_ticket_is_valid_once() {
        let sessions = sessions(10);
        assert!(sessions.put(vec![1], vec![7; 32]));
        assert_eq!(sessions.get(&[1]), None);
        assert_eq!(sessions.take(&[1]), Some(vec![7; 32]));
        assert_eq!(sessions.take(&[1]), None);
        let expected = Counts { stored: 1, resumed: 1, missed: 1, ..Counts::default() };
        assert_eq!(sessions.counts(), expected);
        assert!(sessions.lock().order.is_empty());
    }

    #[test]
    fn a_full_store_displaces_the_oldest() {
        let sessions = sessions(3);
        for id in 1..=5 {
            sessions.put(vec![id], vec![id]);
        }
        let counts = sessions.counts();
        assert_eq!((counts.held, counts.displaced), (3, 2));
        assert_eq!(sessions.take(&[2]), None);
        assert_eq!(sessions.take(&[3]), Some(vec![3]));
        // A use makes room.
        sessions.put(vec![6], vec![6]);
        assert_eq!(sessions.take(&[4]), Some(vec![4]));
        assert_eq!(sessions.lock().order.len(), 2);
    }

    #[test]
    fn a_million_used_sessions_take_no_room() {
        let sessions = sessions(10);
        sessions.put(vec![0; 32], vec![0]);
        for number in 0..1_000_000_u64 {
            let id = number.to_be_bytes().to_vec();
            sessions.put(id.clone(), vec![1]);
            assert!(sessions.take(&id).is_some());
        }
        let store = sessions.lock();
        assert_eq!((store.sessions.len(), store.order.len()), (1, 1));
        assert!(store.sessions.capacity() < 100);
    }

    #[test]
    fn expired_sessions_are_refused_and_deleted() {
        let sessions = sessions(1_000);
        let start = Instant::now();
        for id in 0..600_u16 {
            let at = start + Duration::from_secs(u64::from(id / 300));
            sessions.put_at(id.to_be_bytes().to_vec(), vec![1], at);
        }
        let id = |id: u16| id.to_be_bytes();
        let just_before = start + TTL - Duration::from_nanos(1);
        assert!(sessions.take_at(&id(0), just_before).is_some());
        assert!(!sessions.delete_batch(just_before));
        assert_eq!(sessions.take_at(&id(1), start + TTL), None);
        // 298 sessions of the first second are left: one batch, and the rest.
        assert!(sessions.delete_batch(start + TTL));
        assert!(!sessions.delete_batch(start + TTL));
        let counts = sessions.counts();
        assert_eq!((counts.held, counts.expired), (300, 299));
    }

    #[test]
    fn sessions_that_were_taken_over_expire_as_if_they_had_stayed() {
        let (old, new) = (sessions(10), sessions(10));
        let long_ago = Instant::now().checked_sub(TTL - Duration::from_secs(10)).unwrap();
        old.put_at(vec![1], vec![1], long_ago);
        new.put(vec![2], vec![2]);
        assert_eq!(new.take_over(old.hand_over()), 1);
        // The newer one does not keep the older one from being deleted.
        assert!(!new.delete_batch(Instant::now() + Duration::from_secs(11)));
        assert_eq!(new.counts().held, 1);
        assert!(new.lock().sessions.contains_key(&[2][..]));
    }

    #[test]
    fn the_thread_deletes_and_ends_with_the_store() {
        let ttl = Duration::from_millis(5);
        let sessions = SingleUseSessions::new(Limits { max_sessions: 10, ttl });
        sessions.put(vec![1], vec![1]);
        let start = Instant::now();
        while sessions.counts().held > 0 {
            assert!(start.elapsed() < Duration::from_secs(60));
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(sessions.counts().expired, 1);
        let weak = Arc::downgrade(&sessions);
        drop(sessions);
        // The thread may hold a reference at this moment.
        while weak.upgrade().is_some() {
            assert!(start.elapsed() < Duration::from_secs(60));
        }
    }

    #[test]
    fn a_ttl_is_at_most_the_advertised_lifetime_and_long_sessions_are_refused() {
        let sessions = SingleUseSessions::new(Limits { max_sessions: 0, ttl: Duration::from_secs(30 * 24 * 3600) });
        assert_eq!(sessions.limits.ttl, ADVERTISED_LIFETIME);
        assert_eq!(sessions.limits.max_sessions, 1);
        assert!(!sessions.put(vec![1], vec![0; MAX_SESSION_BYTES + 1]));
        assert!(sessions.put(vec![1], vec![0; MAX_SESSION_BYTES]));
        assert_eq!(sessions.counts().refused, 1);
    }

    #[test]
    fn drain_removes_and_returns_the_unused_sessions() {
        let sessions = sessions(10);
        for id in 1..=3 {
            sessions.put(vec![id], vec![id; 32]);
        }
        sessions.take(&[2]);
        let mut drained = sessions.drain();
        drained.sort_by(|a, b| a.0.cmp(&b.0));
        let expected = [1, 3].map(|id| (vec![id], Zeroizing::new(vec![id; 32])));
        assert_eq!(drained, expected);
        assert_eq!((sessions.counts().held, sessions.take(&[1])), (0, None));
        assert!(sessions.lock().order.is_empty());
    }

    #[test]
    fn debug_output_does_not_contain_sessions() {
        let sessions = sessions(10);
        sessions.put(vec![171; 32], vec![205; 32]);
        let output = format!("{sessions:?}");
        assert!(!output.contains("171") && !output.contains("205"), "{output}");
    }
}
