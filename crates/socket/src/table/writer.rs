//! The watched process's side of the table. It allocates nothing, takes no lock and does not panic.
#![allow(unsafe_code)]

use std::{
    ffi::CStr,
    sync::atomic::{
        AtomicU64,
        Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
        fence,
    },
};

use dwell_engine::socket::Account;

use super::{
    RawConfig, SLOTS,
    layout::{Layout, MAGIC, Owner, Poller, Slot, VERSION},
};
use crate::sys::{self, Errno};

/// The table as libraries write it. It stays mapped until the process ends, unless it is released.
#[derive(Clone, Copy)]
pub struct Writer {
    layout: &'static Layout,
}

/// Index of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotIndex(u32);

/// Result of claiming a slot for a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// The calling process writes this slot.
    Mine(SlotIndex),
    /// Another process writes this slot.
    Others(SlotIndex),
    /// No slot is free.
    Full,
}

/// A counter of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Count {
    /// A process opened the table.
    Process = 0,
    /// A connection ended before it was looked at.
    TooShort = 1,
    /// A connection found no free slot.
    NoSlot = 2,
    /// A process could not start a poller.
    NoPoller = 3,
    /// The program sets an option that a controller would set.
    HandsOff = 4,
}

/// A socket option that dwell sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum SocketOption {
    /// `TCP_CONGESTION`.
    Congestion = 1,
    /// `TCP_NOTSENT_LOWAT`.
    NotsentLowat = 2,
    /// `SO_SNDBUF`.
    SendBuffer = 3,
}

/// A poller is considered dead if no thread has its number and it has written nothing for this long: a poller in a
/// container has another number, which may be unused here. A living poller polls even a quiet socket twice a second, or
/// as often as configured if that is less.
const GONE_NS: u64 = 1_500_000_000;
const GONE_POLLS: u64 = 3;

/// After this time without a write a poller is considered dead even if its number is in use, as that may be another
/// thread.
const SILENT_NS: u64 = 30_000_000_000;
const SILENT_POLLS: u64 = 20;

impl Writer {
    /// Maps the table at `path`. No descriptor stays open.
    pub fn open(path: &CStr) -> Result<Writer, Errno> {
        let file = sys::open(path)?;
        let mapped = sys::map(size_of::<Layout>(), Some(file));
        let is_whole = sys::size(file).is_ok_and(|size| size >= size_of::<Layout>() as u64);
        sys::close(file);
        // Reading a mapping beyond the end of a short file would be a bus error.
        let address = mapped?;
        let writer = is_whole.then(|| Writer {
            // SAFETY: mapped for good, as long as the type, and of atomics, for which any content is valid.
            layout: unsafe { &*address.cast::<Layout>() },
        });
        match writer {
            Some(writer) if writer.is_of_this_version() => Ok(writer),
            _ => {
                // SAFETY: mapped above, and nothing refers to it.
                unsafe { sys::unmap(address, size_of::<Layout>()) };
                Err(Errno(libc::EPROTO))
            }
        }
    }

    /// Creates a private table, for a process that watches its own sockets.
    pub fn alone(config: &RawConfig) -> Result<Writer, Errno> {
        let address = sys::map(size_of::<Layout>(), None)?;
        let writer = Writer {
            // SAFETY: mapped until `release`, whose caller has no copy left; as long as the type, and zeroes are valid.
            layout: unsafe { &*address.cast::<Layout>() },
        };
        writer.layout.begin(config);
        Ok(writer)
    }

    /// Releases the memory of [`Writer::alone`].
    ///
    /// # Safety
    /// No copy of the writer is in use.
    pub unsafe fn release(self) {
        // SAFETY: mapped with this length, and the caller's promise.
        unsafe { sys::unmap(self.into_raw().cast(), size_of::<Layout>()) };
    }

    /// Returns an address that represents the table.
    pub fn into_raw(self) -> *mut () {
        std::ptr::from_ref(self.layout).cast_mut().cast()
    }

    /// Converts an address back that [`Writer::into_raw`] returned.
    ///
    /// # Safety
    /// The address was returned in this process, or in one that it was forked from.
    pub unsafe fn from_raw(address: *mut ()) -> Writer {
        Writer {
            // SAFETY: the caller's promise; it stays mapped.
            layout: unsafe { &*address.cast::<Layout>() },
        }
    }

    /// Returns the configuration.
    pub fn config(&self) -> RawConfig {
        self.layout.config()
    }

    /// Returns false only if certainly nobody reads the table any more. In a PID namespace of its own a process cannot
    /// know, and the number may be another thread's.
    pub fn is_read(&self) -> bool {
        let reader = self.layout.header.reader.load(Relaxed);
        reader == 0 || sys::is_thread(reader as u32)
    }

    /// Returns the share of a core that one poller may use: all pollers divide the budget.
    pub fn share(&self, config: &RawConfig) -> f64 {
        let pollers = self.layout.header.pollers.load(Relaxed);
        config.budget / pollers.max(1) as f64
    }

    /// Increments a counter.
    pub fn count(&self, count: Count) {
        if let Some(place) = self.layout.header.counts.get(count as usize) {
            place.fetch_add(1, Relaxed);
        }
    }

    /// Counts an option that the kernel refused.
    pub fn refused(&self, option: SocketOption, why: Errno) {
        let what = (option as u64) << 32 | u64::from(why.0.unsigned_abs());
        for place in &self.layout.header.refusals {
            let is = place.what.compare_exchange(0, what, Relaxed, Relaxed);
            if is.is_ok() || is == Err(what) {
                place.times.fetch_add(1, Relaxed);
                return;
            }
        }
    }

    /// Finds the slot of a socket, or takes a free one for it.
    pub fn claim(&self, cookie: u64, me: Poller, now_ns: u64) -> Claim {
        if let Some(index) = self.find(cookie) {
            return if self.take_over(index, cookie, me, now_ns) { Claim::Mine(index) } else { Claim::Others(index) };
        }
        let Some(index) = self.take_free(cookie) else {
            return Claim::Full;
        };
        let Some((key, slot)) = self.at(index) else {
            return Claim::Full;
        };
        slot.heartbeat_ns.store(now_ns, Relaxed);
        slot.owner.store(Owner::Poller(me).word(), Release);
        // Two processes that have the same socket may take a slot for it at the same time. The later one yields: each
        // stores its cookie before it checks.
        fence(SeqCst);
        match self.find(cookie) {
            Some(first) if first != index => {
                slot.owner.store(Owner::Nobody.word(), Relaxed);
                key.store(0, Release);
                Claim::Others(first)
            }
            _ => Claim::Mine(index),
        }
    }

    /// Claims a socket again whose slot is probably still this one.
    pub fn reclaim(&self, index: SlotIndex, cookie: u64, me: Poller, now_ns: u64) -> Claim {
        let is_there = self.at(index).is_some_and(|(key, _)| key.load(Acquire) == cookie);
        if !is_there {
            self.claim(cookie, me, now_ns)
        } else if self.take_over(index, cookie, me, now_ns) {
            Claim::Mine(index)
        } else {
            Claim::Others(index)
        }
    }

    /// Makes the caller the slot's owner, if it is already, or if the previous owner released it or is dead.
    pub fn take_over(&self, index: SlotIndex, cookie: u64, me: Poller, now_ns: u64) -> bool {
        let Some((key, slot)) = self.at(index) else {
            return false;
        };
        let word = slot.owner.load(Acquire);
        let is_free = match Owner::from_word(word) {
            Owner::Nobody => true,
            // The process executed another program, or started to watch again.
            Owner::Poller(owner) => owner.pid == me.pid || slot.is_abandoned(owner, now_ns, self.layout.poll_ns()),
            Owner::Reader => false,
        };
        let mine = Owner::Poller(me).word();
        let taken =
            is_free && key.load(Acquire) == cookie && slot.owner.compare_exchange(word, mine, AcqRel, Relaxed).is_ok();
        if taken {
            slot.heartbeat_ns.store(now_ns, Relaxed);
        }
        taken
    }

    /// Writes the record of a socket. Returns false if the slot is not, or no longer, the caller's.
    pub fn publish(&self, index: SlotIndex, me: Poller, account: &Account) -> bool {
        let Some(slot) = self.mine(index, account.cookie, me) else {
            return false;
        };
        slot.heartbeat_ns.store(account.reading.time_ns, Relaxed);
        slot.raise_peaks(account.peaks);
        slot.write(account);
        true
    }

    /// Releases a slot to another process that has the socket too. If there is none, the socket has ended.
    pub fn vacate(&self, index: SlotIndex, cookie: u64, me: Poller, now_ns: u64) {
        if let Some(slot) = self.mine(index, cookie, me) {
            slot.heartbeat_ns.store(now_ns, Relaxed);
            let mine = Owner::Poller(me).word();
            let nobody = Owner::Nobody.word();
            let _ = slot.owner.compare_exchange(mine, nobody, Release, Relaxed);
        }
    }

    /// Frees a slot at once, because only the caller has its socket.
    pub fn free(&self, index: SlotIndex, cookie: u64, me: Poller) {
        if let (Some(slot), Some((key, _))) = (self.mine(index, cookie, me), self.at(index)) {
            slot.owner.store(Owner::Nobody.word(), Relaxed);
            let _ = key.compare_exchange(cookie, 0, Release, Relaxed);
        }
    }

    /// Returns the last record of a socket.
    pub fn last(&self, index: SlotIndex, cookie: u64) -> Option<Account> {
        let (_, slot) = self.at(index)?;
        slot.read().filter(|account| account.cookie == cookie)
    }

    /// Finds the slot of a socket.
    pub fn find(&self, cookie: u64) -> Option<SlotIndex> {
        let max_probe_length = self.layout.header.max_probe_length.load(SeqCst) as usize;
        probe(cookie)
            .take(max_probe_length.saturating_add(1))
            .find(|&at| {
                let key = self.layout.keys.get(at as usize);
                key.is_some_and(|key| key.load(SeqCst) == cookie)
            })
            .map(SlotIndex)
    }

    fn take_free(&self, cookie: u64) -> Option<SlotIndex> {
        for (steps, at) in probe(cookie).enumerate() {
            let key = self.layout.keys.get(at as usize)?;
            let is_free = key.load(Relaxed) == 0;
            if !is_free {
                continue;
            }
            // The bound is raised before the key is stored, so that every search goes far enough.
            self.layout.header.max_probe_length.fetch_max(steps as u64, SeqCst);
            if key.compare_exchange(0, cookie, SeqCst, Relaxed).is_ok() {
                return Some(SlotIndex(at));
            }
        }
        None
    }

    fn mine(&self, index: SlotIndex, cookie: u64, me: Poller) -> Option<&'static Slot> {
        let (key, slot) = self.at(index)?;
        let mine = Owner::Poller(me).word();
        (key.load(Relaxed) == cookie && slot.owner.load(Acquire) == mine).then_some(slot)
    }

    fn at(&self, index: SlotIndex) -> Option<(&'static AtomicU64, &'static Slot)> {
        let at = index.0 as usize;
        Some((self.layout.keys.get(at)?, self.layout.slots.get(at)?))
    }

    fn is_of_this_version(&self) -> bool {
        let header = &self.layout.header;
        header.magic.load(Acquire) == MAGIC
            && header.version.load(Relaxed) == VERSION
            && header.size.load(Relaxed) == size_of::<Layout>() as u64
    }
}

impl Slot {
    /// Returns true if the owner does not write the slot any more.
    pub(super) fn is_abandoned(&self, owner: Poller, now_ns: u64, poll_ns: u64) -> bool {
        let heartbeat_ns = now_ns.saturating_sub(self.heartbeat_ns.load(Relaxed));
        let is_silent_for = |ns: u64, polls: u64| heartbeat_ns > ns.max(poll_ns.saturating_mul(polls));
        is_silent_for(SILENT_NS, SILENT_POLLS) || is_silent_for(GONE_NS, GONE_POLLS) && !sys::is_thread(owner.thread)
    }
}

impl Layout {
    pub(super) fn begin(&self, config: &RawConfig) {
        for (place, word) in self.header.config.iter().zip(config.words()) {
            place.store(word, Relaxed);
        }
        self.header.size.store(size_of::<Layout>() as u64, Relaxed);
        self.header.version.store(VERSION, Relaxed);
        self.header.magic.store(MAGIC, Release);
    }

    /// Returns the time between two polls of a socket.
    pub(super) fn poll_ns(&self) -> u64 {
        self.config().poll_ns
    }

    pub(super) fn config(&self) -> RawConfig {
        RawConfig::from_words(self.header.config.each_ref().map(|word| word.load(Relaxed)))
    }
}

/// Lists the possible indexes of a socket's slot, the most likely first. The kernel mostly assigns cookies one after
/// another.
fn probe(cookie: u64) -> impl Iterator<Item = u32> {
    let home = cookie as usize % SLOTS;
    (home..SLOTS).chain(0..home).map(|at| at as u32)
}
