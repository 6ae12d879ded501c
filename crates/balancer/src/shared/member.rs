//! A balancer as one of those that agree through a store: its lease, its reports, who leads, and the sets of weights.
//!
//! Keys, below the prefix: `seed`; `members/NAME`, `seen/NAME`, `quic/NAME` and `leader`, which end with the lease of the balancer; and
//! `sets/NUMBER`. The leader is whoever has made the key `leader`; it writes sets only as long as the key is the one that it
//! has made, which the store checks.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    exchange::Exchange,
    quic::QuicReport,
    report::Report,
    set::{FORMAT, VipWeights, WeightSet},
    store::{Entry, Expected, Lease, Operation, Outcome, Store, StoreError, Transaction},
};

/// The time after which a balancer that does not keep its lease is gone.
pub const LEASE: Duration = Duration::from_secs(3);
/// The time after the last keeping when the lease is kept again.
const KEEP_AFTER: Duration = Duration::from_secs(1);
/// The time without an answer after which the store is away.
const AWAY_AFTER: Duration = Duration::from_secs(1);
/// The time from writing a set until it counts: each balancer has read it by then.
pub const LEAD_TIME: Duration = Duration::from_millis(500);
/// The number of sets that are kept, where no more fit, and where all fit: those of ten minutes if weights move at each
/// second. A balancer that starts makes tables of them, which connections of others have followed.
const KEPT_SETS: [u64; 2] = [16, 600];
/// The size of the sets that are kept, more or less: they are read at once.
const KEPT_BYTES: u64 = 8 << 20;
/// The number of sets that are read at once: the newest, and others in case it cannot be used.
const READ_SETS: usize = 4;
/// The greatest size of a set and of a report; and of what is known of QUIC servers, which may be written at once with a report:
/// etcd takes requests of 1.5 MiB.
const MOST_BYTES: usize = 1 << 20;
const MOST_QUIC_BYTES: usize = 384 << 10;
/// The greatest number of balancers.
pub const MOST_MEMBERS: usize = 32;

/// Who this balancer is among the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// What all keys begin with.
    pub prefix: String,
    /// The name.
    pub name: String,
    /// A number of this process, which tells it from an earlier one and from another one of the same name.
    pub instance: u64,
    /// The time without a report after which the control loop counts as stopped: then the lease is not kept.
    pub silence: Duration,
}

/// What a balancer knows of the others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Situation {
    /// Why the store is away; `None` if it is not.
    pub problem: Option<String>,
    /// The names of the balancers that are there, with this one.
    pub members: Vec<String>,
    /// The name of the one that leads.
    pub leader: Option<String>,
    /// Whether this one leads.
    pub leads: bool,
    /// Whether another process has the name of this one.
    pub is_name_taken: bool,
    /// Values of the store that could not be used.
    pub refused: u64,
}

/// What a poll has found out.
#[derive(Debug, Default)]
pub struct News {
    /// The situation now.
    pub situation: Situation,
    /// The newest set, if there is a new one.
    pub set: Option<WeightSet>,
    /// Those between that one and the last, the newest first: others may have seen them in time.
    pub skipped: Vec<WeightSet>,
    /// The reports of all others, for the one that leads: those that it finds first, and then if one is new.
    pub reports: Option<BTreeMap<String, Arc<Report>>>,
    /// What all others know of QUIC servers, for each that has such servers: likewise.
    pub quic: Option<BTreeMap<String, Arc<QuicReport>>>,
}

/// A balancer among the others.
pub struct Member<S> {
    store: S,
    identity: Identity,
    lease: Option<(Lease, Instant)>,
    /// The revision at which this balancer became leader.
    led_since: Option<i64>,
    situation: Situation,
    /// Since when the store has not answered.
    failing_since: Option<Instant>,
    /// The revision of the store as of the last answer.
    revision: i64,
    /// The revision up to which sets are known.
    sets_until: i64,
    last_number: u64,
    reports: Exchange<Report>,
    quic: Exchange<QuicReport>,
    /// Whether this balancer has QUIC servers, of which the others may know something.
    has_quic: bool,
    reported: Instant,
    proposed: Option<BTreeMap<String, VipWeights>>,
}

impl<S: Store> Member<S> {
    /// Starts outside, without a lease.
    pub fn new(store: S, identity: Identity, now: Instant) -> Member<S> {
        Member {
            reports: Exchange::new(identity.prefix.clone() + "seen/", MOST_BYTES),
            quic: Exchange::new(identity.prefix.clone() + "quic/", MOST_QUIC_BYTES),
            has_quic: false,
            store,
            identity,
            lease: None,
            led_since: None,
            situation: Situation::default(),
            failing_since: None,
            revision: 0,
            sets_until: 0,
            last_number: 0,
            reported: now,
            proposed: None,
        }
    }

    /// Returns the seed that all balancers have, and the sets that are kept, the newest first. Without a seed in the store, it
    /// is the one that is offered.
    ///
    /// # Errors
    ///
    /// If the store cannot be reached, refuses, or has something else as the seed.
    pub fn begin(&mut self, offered: u64) -> Result<(u64, Vec<WeightSet>), StoreError> {
        let seed = self.key("seed");
        let read = vec![Operation::Get { key: seed.clone() }, self.list_sets(KEPT_SETS[1] as usize)];
        let put = Operation::Put { key: seed.clone(), value: offered.to_string().into_bytes(), lease: None };
        let outcome = self.store.transact(&Transaction {
            expected: vec![Expected { key: seed.clone(), created: 0 }],
            then: [vec![put], read.clone()].concat(),
            otherwise: read,
        })?;
        let [.., seeds, sets] = outcome.read.as_slice() else {
            return Err(StoreError::Away("the store's answer is too short".into()));
        };
        let text = seeds.first().and_then(|entry| std::str::from_utf8(&entry.value).ok());
        let number = text.and_then(|text| text.trim().parse().ok());
        let number = number.ok_or_else(|| StoreError::Refused(format!("the store's key {seed} is not a number")))?;
        Ok((number, self.take_sets(sets)))
    }

    /// Sets what the others are told.
    pub fn report(&mut self, report: &Report, now: Instant) {
        self.reported = now;
        self.situation.refused += u64::from(!self.reports.set(report));
    }

    /// Sets what this balancer publishes of QUIC servers.
    pub fn report_quic(&mut self, report: &QuicReport) {
        self.has_quic = !report.vips.is_empty();
        self.situation.refused += u64::from(!self.quic.set(report));
    }

    /// Proposes weights. They become a set if this balancer leads.
    pub fn propose(&mut self, vips: BTreeMap<String, VipWeights>) {
        self.proposed = Some(vips);
    }

    /// Does what is due, and reads what is new. `unix_ms` is the Unix time in milliseconds.
    pub fn poll(&mut self, now: Instant, unix_ms: u64) -> News {
        let mut news = News::default();
        match self.try_poll(now, unix_ms, &mut news) {
            Ok(()) => {
                self.failing_since = None;
                self.situation.problem = None;
            }
            Err(StoreError::LeaseGone) => self.forget_lease(),
            Err(StoreError::Away(why) | StoreError::Refused(why)) => {
                let since = *self.failing_since.get_or_insert(now);
                if now.duration_since(since) >= AWAY_AFTER {
                    // Nobody knows who is there.
                    let refused = self.situation.refused;
                    self.situation = Situation { problem: Some(why), refused, ..Situation::default() };
                    self.led_since = None;
                    self.quic.read_again();
                }
            }
        }
        news.situation = self.situation.clone();
        news
    }

    /// Ends membership at once, so that others need not wait for the end of the lease.
    pub fn leave(&mut self) {
        if let Some((lease, _)) = self.lease.take() {
            let _ = self.store.revoke(lease);
        }
    }

    fn try_poll(&mut self, now: Instant, unix_ms: u64, news: &mut News) -> Result<(), StoreError> {
        self.keep_lease(now)?;
        self.write_set(unix_ms)?;
        self.read(news)?;
        let is_alive = self.is_alive(now);
        if let Some((lease, _)) = self.lease.filter(|_| is_alive) {
            let is_registered = self.situation.members.contains(&self.identity.name);
            if !is_registered && !self.situation.is_name_taken {
                self.register(lease)?;
            } else if is_registered && self.situation.leader.is_none() {
                self.campaign(lease)?;
            }
        }
        Ok(())
    }

    fn is_alive(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.reported) < self.identity.silence
    }

    /// Keeps the lease, or gets one, as long as the control loop shows signs of life.
    fn keep_lease(&mut self, now: Instant) -> Result<(), StoreError> {
        if !self.is_alive(now) {
            return Ok(());
        }
        match self.lease {
            Some((lease, kept)) if now.saturating_duration_since(kept) >= KEEP_AFTER => {
                self.store.keep(lease)?;
                self.lease = Some((lease, now));
            }
            Some(_) => {}
            None => self.lease = Some((self.store.grant(LEASE)?, now)),
        }
        Ok(())
    }

    fn forget_lease(&mut self) {
        self.lease = None;
        (self.led_since, self.situation.leads) = (None, false);
        self.reports.put_again();
        self.quic.put_again();
    }

    /// Writes the weights that were proposed as a set, if this balancer still leads.
    fn write_set(&mut self, unix_ms: u64) -> Result<(), StoreError> {
        let (Some(vips), Some(led_since)) = (self.proposed.take(), self.led_since) else {
            return Ok(());
        };
        let Some(number) = self.last_number.checked_add(1) else {
            self.situation.refused += 1;
            return Ok(());
        };
        let from_ms = unix_ms + LEAD_TIME.as_millis() as u64;
        let set = WeightSet { format: FORMAT, number, by: self.identity.name.clone(), from_ms, vips };
        let value = serde_json::to_vec(&set).unwrap_or_default();
        if value.is_empty() || value.len() > MOST_BYTES {
            self.situation.refused += 1;
            return Ok(());
        }
        let bytes = value.len() as u64;
        let mut then = vec![Operation::Put { key: self.set_key(number), value, lease: None }];
        let kept = (KEPT_BYTES / bytes).clamp(KEPT_SETS[0], KEPT_SETS[1]);
        let until = self.set_key((number + 1).saturating_sub(kept));
        then.push(Operation::Delete { from: self.key("sets/"), until });
        let expected = vec![
            Expected { key: self.key("leader"), created: led_since },
            Expected { key: self.set_key(number), created: 0 },
        ];
        match self.store.transact(&Transaction { expected, then, otherwise: Vec::new() }) {
            Ok(Outcome { holds: true, .. }) => Ok(()),
            // Another one leads, which the next read tells.
            Ok(_) => {
                (self.led_since, self.situation.leads) = (None, false);
                Ok(())
            }
            Err(error) => {
                self.proposed = Some(set.vips);
                Err(error)
            }
        }
    }

    /// Reads who is there, who leads and what is new, and stores the report.
    fn read(&mut self, news: &mut News) -> Result<(), StoreError> {
        let led_since = self.led_since;
        let mut then = vec![
            Operation::Get { key: self.key("leader") },
            Operation::List { prefix: self.key("members/"), after: 0, most: MOST_MEMBERS + 1 },
            self.list_sets(READ_SETS),
            self.reports.list(led_since.is_some(), MOST_MEMBERS + 1),
            self.quic.list(self.has_quic, MOST_MEMBERS + 1),
        ];
        let is_registered = self.situation.members.contains(&self.identity.name);
        let lease = self.lease.filter(|_| is_registered);
        if let Some((lease, _)) = lease {
            let name = &self.identity.name;
            then.extend(self.reports.put(name, lease).into_iter().chain(self.quic.put(name, lease)));
        }
        let outcome = self.store.transact(&Transaction { then, ..Transaction::default() })?;
        let [leader, members, sets, reports, quic, ..] = outcome.read.as_slice() else {
            return Err(StoreError::Away("the store's answer is too short".into()));
        };
        if lease.is_some() {
            self.reports.note_put();
            self.quic.note_put();
        }
        if outcome.revision < self.revision {
            // It is another store, or one from a backup.
            (self.sets_until, self.last_number) = (0, 0);
            self.reports.read_again();
            self.quic.read_again();
        }
        self.revision = outcome.revision;
        self.take_members(members);
        self.take_leader(leader.first());
        let mut sets = self.take_sets(sets).into_iter();
        news.set = sets.next();
        news.skipped = sets.collect();
        if led_since.is_some() && led_since == self.led_since {
            let (reports, refused) = self.reports.take(reports, &self.situation.members, &self.identity.name);
            news.reports = reports;
            self.situation.refused += refused;
        }
        if self.has_quic {
            let (quic, refused) = self.quic.take(quic, &self.situation.members, &self.identity.name);
            news.quic = quic;
            self.situation.refused += refused;
        }
        Ok(())
    }

    fn take_members(&mut self, entries: &[Entry]) {
        let prefix = self.key("members/");
        let own = self.identity.instance.to_string();
        self.situation.is_name_taken = false;
        let mut names = Vec::new();
        for entry in entries.iter().take(MOST_MEMBERS) {
            let Some(name) = entry.key.strip_prefix(&prefix).filter(|name| is_name(name)) else {
                self.situation.refused += 1;
                continue;
            };
            if name == self.identity.name && entry.value != own.as_bytes() {
                self.situation.is_name_taken = true;
                continue;
            }
            names.push(name.to_owned());
        }
        self.situation.refused += entries.len().saturating_sub(MOST_MEMBERS) as u64;
        names.sort_unstable();
        self.situation.members = names;
    }

    fn take_leader(&mut self, entry: Option<&Entry>) {
        let value = entry.and_then(|entry| std::str::from_utf8(&entry.value).ok());
        let name = value.and_then(|value| value.split(' ').next()).filter(|name| is_name(name));
        self.situation.leader = name.map(str::to_owned);
        if entry.is_some() && name.is_none() {
            self.situation.refused += 1;
            // Whatever it is, it is in the way of another leader.
            self.situation.leader = Some("?".into());
        }
        let led_since = entry.filter(|_| value == Some(&self.leader_value())).map(|entry| entry.created);
        if led_since.is_none() || led_since != self.led_since {
            self.proposed = None;
            self.reports.read_again();
        }
        (self.led_since, self.situation.leads) = (led_since, led_since.is_some());
    }

    /// Returns the sets that can be used, the newest first.
    fn take_sets(&mut self, entries: &[Entry]) -> Vec<WeightSet> {
        let prefix = self.key("sets/");
        let mut sets = Vec::new();
        for entry in entries {
            self.sets_until = self.sets_until.max(entry.modified);
            let number = entry.key.strip_prefix(&prefix).and_then(|number| number.parse().ok());
            self.last_number = self.last_number.max(number.unwrap_or(0));
            let set = Some(&entry.value).filter(|value| value.len() <= MOST_BYTES);
            let set = set.and_then(|value| WeightSet::parse(value)).filter(|set| Some(set.number) == number);
            match set {
                Some(set) => sets.push(set),
                None => self.situation.refused += 1,
            }
        }
        sets
    }

    fn register(&mut self, lease: Lease) -> Result<(), StoreError> {
        let key = self.key("members/") + &self.identity.name;
        let value = self.identity.instance.to_string().into_bytes();
        let outcome = self.put_if_absent(key, value, lease)?;
        if outcome.holds {
            self.situation.members.push(self.identity.name.clone());
            self.situation.members.sort_unstable();
        }
        Ok(())
    }

    fn campaign(&mut self, lease: Lease) -> Result<(), StoreError> {
        let outcome = self.put_if_absent(self.key("leader"), self.leader_value().into_bytes(), lease)?;
        if outcome.holds {
            self.led_since = Some(outcome.revision);
            self.reports.read_again();
            (self.situation.leads, self.situation.leader) = (true, Some(self.identity.name.clone()));
        }
        Ok(())
    }

    fn put_if_absent(&mut self, key: String, value: Vec<u8>, lease: Lease) -> Result<Outcome, StoreError> {
        self.store.transact(&Transaction {
            expected: vec![Expected { key: key.clone(), created: 0 }],
            then: vec![Operation::Put { key, value, lease: Some(lease) }],
            otherwise: Vec::new(),
        })
    }

    fn list_sets(&self, most: usize) -> Operation {
        Operation::List { prefix: self.key("sets/"), after: self.sets_until, most }
    }

    fn leader_value(&self) -> String {
        format!("{} {}", self.identity.name, self.identity.instance)
    }

    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.identity.prefix)
    }

    /// Returns the key of a set: keys have the order of numbers.
    fn set_key(&self, number: u64) -> String {
        format!("{}sets/{number:020}", self.identity.prefix)
    }
}

/// Whether a balancer can have this name.
fn is_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_.:".contains(letter))
}
