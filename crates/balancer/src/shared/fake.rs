//! A store in memory, for tests.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use super::store::{Entry, Lease, Operation, Outcome, Store, StoreError, Transaction};

/// A connection to a store in memory, which can fail.
#[derive(Debug, Clone, Default)]
pub struct Fake {
    state: Arc<Mutex<State>>,
    is_away: Arc<Mutex<bool>>,
}

#[derive(Debug, Default)]
struct State {
    revision: i64,
    leases: BTreeSet<i64>,
    /// How often a lease was kept.
    kept: u64,
    entries: BTreeMap<String, (Entry, Option<Lease>)>,
}

impl Fake {
    /// Returns another connection to the same store.
    pub fn connect(&self) -> Fake {
        Fake { state: Arc::clone(&self.state), is_away: Arc::default() }
    }

    /// Returns the same connection, which fails when this one does.
    pub fn connect_same(&self) -> Fake {
        self.clone()
    }

    /// Whether this connection fails from now on.
    pub fn set_away(&self, is_away: bool) {
        *self.is_away.lock().expect("no test panics with it") = is_away;
    }

    /// Ends a lease, as if its time had passed.
    pub fn expire(&self, lease: Lease) {
        let mut state = self.state();
        state.leases.remove(&lease.0);
        state.entries.retain(|_, (_, of)| *of != Some(lease));
    }

    /// Returns how often a lease was kept.
    pub fn kept(&self) -> u64 {
        self.state().kept
    }

    /// Begins anew, as another store at the same place.
    pub fn wipe(&self) {
        *self.state() = State::default();
    }

    /// Returns the lease of a key.
    pub fn lease_of(&self, key: &str) -> Lease {
        let state = self.state();
        state.entries[key].1.expect("it has a lease")
    }

    /// Puts a value as a stranger.
    pub fn put(&self, key: &str, value: &[u8]) {
        self.state().put(key, value, None);
    }

    /// Returns the keys.
    pub fn keys(&self) -> Vec<String> {
        self.state().entries.keys().cloned().collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test panics with it")
    }

    fn reached(&self) -> Result<MutexGuard<'_, State>, StoreError> {
        match *self.is_away.lock().expect("no test panics with it") {
            true => Err(StoreError::Away("no route".into())),
            false => Ok(self.state()),
        }
    }
}

impl State {
    fn put(&mut self, key: &str, value: &[u8], lease: Option<Lease>) {
        self.revision += 1;
        let created = self.entries.get(key).map_or(self.revision, |(entry, _)| entry.created);
        let entry = Entry { key: key.into(), value: value.into(), created, modified: self.revision };
        self.entries.insert(key.into(), (entry, lease));
    }

    fn carry_out(&mut self, operation: &Operation) -> Vec<Entry> {
        match operation {
            Operation::Put { key, value, lease } => self.put(key, value, *lease),
            Operation::Delete { from, until } => self.entries.retain(|key, _| !(from..until).contains(&key)),
            Operation::Get { key } => {
                return self.entries.get(key).map(|(entry, _)| entry.clone()).into_iter().collect();
            }
            Operation::List { prefix, after, most } => {
                let all = self.entries.values().map(|(entry, _)| entry);
                let listed = all.filter(|entry| entry.key.starts_with(prefix) && entry.modified > *after);
                let mut listed: Vec<_> = listed.cloned().collect();
                listed.sort_by_key(|entry| std::cmp::Reverse(entry.modified));
                listed.truncate(*most);
                return listed;
            }
        }
        Vec::new()
    }
}

impl Store for Fake {
    fn transact(&mut self, transaction: &Transaction) -> Result<Outcome, StoreError> {
        let mut state = self.reached()?;
        let created = |key: &str| state.entries.get(key).map_or(0, |(entry, _)| entry.created);
        let holds = transaction.expected.iter().all(|expected| created(&expected.key) == expected.created);
        let operations = if holds { &transaction.then } else { &transaction.otherwise };
        let is_gone = |operation: &Operation| matches!(operation, Operation::Put { lease: Some(lease), .. } if !state.leases.contains(&lease.0));
        if operations.iter().any(is_gone) {
            return Err(StoreError::LeaseGone);
        }
        let read = operations.iter().map(|operation| state.carry_out(operation)).collect();
        Ok(Outcome { holds, revision: state.revision, read })
    }

    fn grant(&mut self, _: Duration) -> Result<Lease, StoreError> {
        let mut state = self.reached()?;
        state.revision += 1;
        let lease = state.revision;
        state.leases.insert(lease);
        Ok(Lease(lease))
    }

    fn keep(&mut self, lease: Lease) -> Result<(), StoreError> {
        let mut state = self.reached()?;
        state.kept += 1;
        if state.leases.contains(&lease.0) { Ok(()) } else { Err(StoreError::LeaseGone) }
    }

    fn revoke(&mut self, lease: Lease) -> Result<(), StoreError> {
        drop(self.reached()?);
        self.expire(lease);
        Ok(())
    }
}
