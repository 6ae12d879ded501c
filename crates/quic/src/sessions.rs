//! Sessions that clients may resume, each once.

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

/// How much is remembered, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Sessions; where one more comes, the oldest goes. One takes some 400 bytes, and more with client certificates.
    pub most: usize,
    /// A session that is older is forgotten. Until then, whoever takes the server can read 0-RTT data that was sent
    /// with its ticket and that this server has not accepted. Shorter than a day, which rustls tells clients.
    pub ttl: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { most: 100_000, ttl: Duration::from_secs(6 * 3600) }
    }
}

/// What has become of sessions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Now remembered.
    pub held: usize,
    /// Given to clients as tickets.
    pub stored: u64,
    /// Tickets that came back and were good.
    pub taken: u64,
    /// Tickets that came back and were not: used before, expired, or of another server.
    pub missed: u64,
    /// Forgotten for their age.
    pub expired: u64,
    /// Forgotten for others.
    pub displaced: u64,
    /// Not stored as they were too long.
    pub refused: u64,
}

/// The secrets of sessions, each by the name that is its ticket.
pub type Secrets = Vec<(Vec<u8>, Zeroizing<Vec<u8>>)>;

/// A session's secrets are in the memory of one server, are deleted by their first use, and overwritten where they
/// are not used. So a replayed ticket finds nothing, and neither does who takes the server later.
///
/// rustls gets the secrets of a session that is used, and frees them without overwriting them.
pub struct SingleUseSessions {
    limits: Limits,
    store: Mutex<Store>,
    /// Ends the thread that forgets, when this is dropped.
    _end: mpsc::Sender<()>,
}

#[derive(Default)]
struct Store {
    sessions: HashMap<Arc<[u8]>, Session>,
    /// By the order in which they came.
    order: BTreeMap<u64, Arc<[u8]>>,
    next: u64,
    counts: Counts,
}

struct Session {
    secrets: Zeroizing<Vec<u8>>,
    number: u64,
    since: Instant,
}

/// What rustls tells clients, and what the ticket is sent with.
const ADVERTISED: Duration = Duration::from_secs(24 * 3600);
/// Longer ones, as of long chains of client certificates, are not stored.
const LONGEST: usize = 16 << 10;
/// Forgotten under one lock, so that no handshake waits long.
const BATCH: usize = 256;
/// How much older than they may be sessions get, at most, over their age.
const LOOKS: u32 = 16;

impl SingleUseSessions {
    /// An empty store, and a thread that forgets what has expired. It ends with the store.
    ///
    /// A TTL of more than a day is a day.
    pub fn new(limits: Limits) -> Arc<SingleUseSessions> {
        let (end, ended) = mpsc::channel();
        let limits = Limits { most: limits.most.max(1), ttl: limits.ttl.min(ADVERTISED) };
        let sessions = Arc::new(SingleUseSessions { limits, store: Mutex::default(), _end: end });
        let weak = Arc::downgrade(&sessions);
        thread::spawn(move || forget_expired(&weak, limits.ttl / LOOKS, &ended));
        sessions
    }

    /// What has become of sessions.
    pub fn counts(&self) -> Counts {
        let store = self.lock();
        Counts { held: store.sessions.len(), ..store.counts }
    }

    /// Forgets everything: tickets that clients have are good no more.
    pub fn clear(&self) {
        drop(self.give_up());
    }

    /// All names of tickets with their secrets, which are forgotten here: what somebody finds who takes the server.
    pub fn give_up(&self) -> Secrets {
        let mut store = self.lock();
        store.order.clear();
        let sessions = std::mem::take(&mut store.sessions);
        sessions.into_iter().map(|(id, session)| (id.to_vec(), session.secrets)).collect()
    }

    fn put_at(&self, id: Vec<u8>, mut secrets: Vec<u8>, now: Instant) -> bool {
        let mut store = self.lock();
        if secrets.len() > LONGEST {
            secrets.zeroize();
            store.counts.refused += 1;
            return false;
        }
        store.remove(&id);
        if store.sessions.len() >= self.limits.most && store.forget_oldest() {
            store.counts.displaced += 1;
        }
        let id: Arc<[u8]> = id.into();
        let number = store.next;
        store.next += 1;
        store.counts.stored += 1;
        store.order.insert(number, Arc::clone(&id));
        let session = Session { secrets: Zeroizing::new(secrets), number, since: now };
        store.sessions.insert(id, session);
        true
    }

    fn take_at(&self, id: &[u8], now: Instant) -> Option<Vec<u8>> {
        let mut store = self.lock();
        let found = store.remove(id);
        let is_old = |session: &Session| now.saturating_duration_since(session.since) >= self.limits.ttl;
        match found {
            Some(session) if is_old(&session) => {
                store.counts.expired += 1;
                store.counts.missed += 1;
                None
            }
            Some(mut session) => {
                store.counts.taken += 1;
                Some(std::mem::take(&mut *session.secrets))
            }
            None => {
                store.counts.missed += 1;
                None
            }
        }
    }

    /// Forgets some that have expired. Whether there may be more.
    fn forget_some(&self, now: Instant) -> bool {
        let mut store = self.lock();
        for _ in 0..BATCH {
            let oldest = store.order.first_key_value();
            let session = oldest.and_then(|(_, id)| store.sessions.get(id));
            let is_old = |session: &Session| now.saturating_duration_since(session.since) >= self.limits.ttl;
            if !session.is_some_and(is_old) {
                return false;
            }
            store.forget_oldest();
            store.counts.expired += 1;
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, Store> {
        // What a panic left is whole: nothing in here panics between two changes.
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store {
    fn remove(&mut self, id: &[u8]) -> Option<Session> {
        let session = self.sessions.remove(id)?;
        self.order.remove(&session.number);
        Some(session)
    }

    fn forget_oldest(&mut self) -> bool {
        match self.order.pop_first() {
            Some((_, id)) => self.sessions.remove(&id).is_some(),
            None => false,
        }
    }
}

fn forget_expired(sessions: &Weak<SingleUseSessions>, each: Duration, ended: &mpsc::Receiver<()>) {
    let each = each.max(Duration::from_millis(1));
    while ended.recv_timeout(each) == Err(RecvTimeoutError::Timeout) {
        let Some(sessions) = sessions.upgrade() else {
            return;
        };
        while sessions.forget_some(Instant::now()) {}
    }
}

impl StoresServerSessions for SingleUseSessions {
    fn put(&self, id: Vec<u8>, secrets: Vec<u8>) -> bool {
        self.put_at(id, secrets, Instant::now())
    }

    /// Nothing: what is read without being deleted could be used twice. Only TLS 1.2 asks.
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

    fn sessions(most: usize) -> Arc<SingleUseSessions> {
        SingleUseSessions::new(Limits { most, ttl: TTL })
    }

    #[test]
    fn a_ticket_is_good_once() {
        let sessions = sessions(10);
        assert!(sessions.put(vec![1], vec![7; 32]));
        assert_eq!(sessions.get(&[1]), None);
        assert_eq!(sessions.take(&[1]), Some(vec![7; 32]));
        assert_eq!(sessions.take(&[1]), None);
        let expected = Counts { stored: 1, taken: 1, missed: 1, ..Counts::default() };
        assert_eq!(sessions.counts(), expected);
        assert!(sessions.lock().order.is_empty());
    }

    #[test]
    fn the_oldest_goes_where_there_is_no_room() {
        let sessions = sessions(3);
        for id in 1..=5 {
            sessions.put(vec![id], vec![id]);
        }
        let counts = sessions.counts();
        assert_eq!((counts.held, counts.displaced), (3, 2));
        assert_eq!(sessions.take(&[2]), None);
        assert_eq!(sessions.take(&[3]), Some(vec![3]));
        // room that a use made is room
        sessions.put(vec![6], vec![6]);
        assert_eq!(sessions.take(&[4]), Some(vec![4]));
        assert_eq!(sessions.lock().order.len(), 2);
    }

    #[test]
    fn a_million_that_are_used_take_no_room() {
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
    fn what_is_too_old_is_not_taken_and_is_forgotten_without_being_asked_for() {
        let sessions = sessions(1_000);
        let begin = Instant::now();
        for id in 0..600_u16 {
            let at = begin + Duration::from_secs(u64::from(id / 300));
            sessions.put_at(id.to_be_bytes().to_vec(), vec![1], at);
        }
        let id = |id: u16| id.to_be_bytes();
        let just_before = begin + TTL - Duration::from_nanos(1);
        assert!(sessions.take_at(&id(0), just_before).is_some());
        assert!(!sessions.forget_some(just_before));
        assert_eq!(sessions.take_at(&id(1), begin + TTL), None);
        // 298 of the first second are left: a batch, and the rest
        assert!(sessions.forget_some(begin + TTL));
        assert!(!sessions.forget_some(begin + TTL));
        let counts = sessions.counts();
        assert_eq!((counts.held, counts.expired), (300, 299));
    }

    #[test]
    fn the_thread_forgets_and_ends_with_the_store() {
        let ttl = Duration::from_millis(5);
        let sessions = SingleUseSessions::new(Limits { most: 10, ttl });
        sessions.put(vec![1], vec![1]);
        let begun = Instant::now();
        while sessions.counts().held > 0 {
            assert!(begun.elapsed() < Duration::from_secs(60));
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(sessions.counts().expired, 1);
        let weak = Arc::downgrade(&sessions);
        drop(sessions);
        // The thread may look just now.
        while weak.upgrade().is_some() {
            assert!(begun.elapsed() < Duration::from_secs(60));
        }
    }

    #[test]
    fn a_ttl_is_shorter_than_what_clients_are_told_and_long_ones_are_refused() {
        let sessions = SingleUseSessions::new(Limits { most: 0, ttl: Duration::from_secs(30 * 24 * 3600) });
        assert_eq!(sessions.limits.ttl, ADVERTISED);
        assert_eq!(sessions.limits.most, 1);
        assert!(!sessions.put(vec![1], vec![0; LONGEST + 1]));
        assert!(sessions.put(vec![1], vec![0; LONGEST]));
        assert_eq!(sessions.counts().refused, 1);
    }

    #[test]
    fn what_is_given_up_is_what_was_not_used_and_is_not_there_any_more() {
        let sessions = sessions(10);
        for id in 1..=3 {
            sessions.put(vec![id], vec![id; 32]);
        }
        sessions.take(&[2]);
        let mut found = sessions.give_up();
        found.sort_by(|a, b| a.0.cmp(&b.0));
        let expected = [1, 3].map(|id| (vec![id], Zeroizing::new(vec![id; 32])));
        assert_eq!(found, expected);
        assert_eq!((sessions.counts().held, sessions.take(&[1])), (0, None));
        assert!(sessions.lock().order.is_empty());
    }

    #[test]
    fn nothing_of_a_session_is_shown() {
        let sessions = sessions(10);
        sessions.put(vec![171; 32], vec![205; 32]);
        let shown = format!("{sessions:?}");
        assert!(!shown.contains("171") && !shown.contains("205"), "{shown}");
    }
}
