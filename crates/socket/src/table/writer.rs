//! The side of a process that is watched. It allocates nothing, takes no lock and does not panic.
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
    Orders, SLOTS,
    layout::{Layout, MAGIC, Owner, Poller, Slot, VERSION},
};
use crate::sys::{self, Errno};

/// The table, as libraries write it. It stays mapped until the process ends, unless it is released.
#[derive(Clone, Copy)]
pub struct Writer {
    layout: &'static Layout,
}

/// The number of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seat(u32);

/// Whose slot a socket has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// The asking process'.
    Mine(Seat),
    /// Another process writes it.
    Others(Seat),
    /// None is free.
    Full,
}

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Count {
    /// A process opened the table.
    Process = 0,
    /// A connection ended before it was looked at.
    TooShort = 1,
    /// A connection found no free place.
    NoPlace = 2,
    /// A process could not start a poller.
    NoPoller = 3,
    /// The program sets itself what a controller would.
    HandsOff = 4,
}

/// A setting that is asked of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Wish {
    /// `TCP_CONGESTION`.
    Congestion = 1,
    /// `TCP_NOTSENT_LOWAT`.
    NotsentLowat = 2,
    /// `SO_SNDBUF`.
    SendBuffer = 3,
}

/// A poller is taken for dead if its number is free, and it has written nothing for so long: in a container it has
/// another number, which may be free here. It looks at a socket in which nothing happens twice a second, or as often
/// as it is asked to where that is rarer.
const GONE_NS: u64 = 1_500_000_000;
const GONE_POLLS: u64 = 3;

/// And whatever its number tells, as it may be another's here, after this.
const SILENT_NS: u64 = 30_000_000_000;
const SILENT_POLLS: u64 = 20;

impl Writer {
    /// Maps the table at `path`. It holds no descriptor afterwards.
    pub fn open(path: &CStr) -> Result<Writer, Errno> {
        let file = sys::open(path)?;
        let mapped = sys::map(size_of::<Layout>(), Some(file));
        let is_whole = sys::size(file).is_ok_and(|size| size >= size_of::<Layout>() as u64);
        sys::close(file);
        // What is shorter than mapped would be a bus error to read.
        let address = mapped?;
        let writer = is_whole.then(|| Writer {
            // SAFETY: mapped for good, as long as the type, and of atomics, for which any content is valid.
            layout: unsafe { &*address.cast::<Layout>() },
        });
        match writer {
            Some(writer) if writer.is_of_this_version() => Ok(writer),
            _ => {
                // SAFETY: mapped above, and nobody has a reference.
                unsafe { sys::unmap(address, size_of::<Layout>()) };
                Err(Errno(libc::EPROTO))
            }
        }
    }

    /// A table that nobody shares, for a process that watches its own sockets.
    pub fn alone(orders: &Orders) -> Result<Writer, Errno> {
        let address = sys::map(size_of::<Layout>(), None)?;
        let writer = Writer {
            // SAFETY: mapped for good, as long as the type, and zeroes are valid.
            layout: unsafe { &*address.cast::<Layout>() },
        };
        writer.layout.begin(orders);
        Ok(writer)
    }

    /// Gives back the memory of [`Writer::alone`].
    ///
    /// # Safety
    /// No copy of it is used any more.
    pub unsafe fn release(self) {
        // SAFETY: mapped with this length, and the caller's promise.
        unsafe { sys::unmap(self.into_raw().cast(), size_of::<Layout>()) };
    }

    /// An address that stands for it.
    pub fn into_raw(self) -> *mut () {
        std::ptr::from_ref(self.layout).cast_mut().cast()
    }

    /// What [`Writer::into_raw`] gave the address of.
    ///
    /// # Safety
    /// It gave this one, in this process or one that it was forked from.
    pub unsafe fn from_raw(address: *mut ()) -> Writer {
        Writer {
            // SAFETY: the caller's promise; it stays mapped.
            layout: unsafe { &*address.cast::<Layout>() },
        }
    }

    /// What is to be done.
    pub fn orders(&self) -> Orders {
        self.layout.orders()
    }

    /// False if it is sure that nobody reads the table any more. In a name space of its own, a process cannot know,
    /// and the number may be another's.
    pub fn is_read(&self) -> bool {
        let reader = self.layout.header.reader.load(Relaxed);
        reader == 0 || sys::is_thread(reader as u32)
    }

    /// What share of a core one poller may take: they share what they all may.
    pub fn share(&self, orders: &Orders) -> f64 {
        let pollers = self.layout.header.pollers.load(Relaxed);
        orders.budget / pollers.max(1) as f64
    }

    /// Counts one.
    pub fn count(&self, count: Count) {
        if let Some(place) = self.layout.header.counts.get(count as usize) {
            place.fetch_add(1, Relaxed);
        }
    }

    /// Counts a setting that the kernel refused.
    pub fn refused(&self, wish: Wish, why: Errno) {
        let what = (wish as u64) << 32 | u64::from(why.0.unsigned_abs());
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
        if let Some(seat) = self.find(cookie) {
            return if self.take_over(seat, cookie, me, now_ns) { Claim::Mine(seat) } else { Claim::Others(seat) };
        }
        let Some(seat) = self.take_free(cookie) else {
            return Claim::Full;
        };
        let Some((key, slot)) = self.at(seat) else {
            return Claim::Full;
        };
        slot.beat_ns.store(now_ns, Relaxed);
        slot.owner.store(Owner::Poller(me).word(), Release);
        // Two processes that have a socket may take a slot for it at once. The later gives way: each put its cookie
        // before it looks.
        fence(SeqCst);
        match self.find(cookie) {
            Some(first) if first != seat => {
                slot.owner.store(Owner::Nobody.word(), Relaxed);
                key.store(0, Release);
                Claim::Others(first)
            }
            _ => Claim::Mine(seat),
        }
    }

    /// The same for a socket whose slot was this.
    pub fn claim_again(&self, seat: Seat, cookie: u64, me: Poller, now_ns: u64) -> Claim {
        let is_there = self.at(seat).is_some_and(|(key, _)| key.load(Acquire) == cookie);
        if !is_there {
            self.claim(cookie, me, now_ns)
        } else if self.take_over(seat, cookie, me, now_ns) {
            Claim::Mine(seat)
        } else {
            Claim::Others(seat)
        }
    }

    /// Makes the caller the one that writes a slot, if it is, or if the one that did has let go or is dead.
    pub fn take_over(&self, seat: Seat, cookie: u64, me: Poller, now_ns: u64) -> bool {
        let Some((key, slot)) = self.at(seat) else {
            return false;
        };
        let word = slot.owner.load(Acquire);
        let is_free = match Owner::from_word(word) {
            Owner::Nobody => true,
            // A process runs another program, or begins to watch again.
            Owner::Poller(owner) => owner.pid == me.pid || slot.is_abandoned(owner, now_ns, self.layout.poll_ns()),
            Owner::Reader => false,
        };
        let mine = Owner::Poller(me).word();
        let taken =
            is_free && key.load(Acquire) == cookie && slot.owner.compare_exchange(word, mine, AcqRel, Relaxed).is_ok();
        if taken {
            slot.beat_ns.store(now_ns, Relaxed);
        }
        taken
    }

    /// Writes what is known of a socket. False if the slot is not the caller's, or not any more.
    pub fn publish(&self, seat: Seat, me: Poller, account: &Account) -> bool {
        let Some(slot) = self.mine(seat, account.cookie, me) else {
            return false;
        };
        slot.beat_ns.store(account.reading.time_ns, Relaxed);
        slot.raise_peaks(account.peaks);
        slot.write(account);
        true
    }

    /// Leaves a slot to who may have the socket too. If nobody has, the socket has ended.
    pub fn let_go(&self, seat: Seat, cookie: u64, me: Poller, now_ns: u64) {
        if let Some(slot) = self.mine(seat, cookie, me) {
            slot.beat_ns.store(now_ns, Relaxed);
            let mine = Owner::Poller(me).word();
            let nobody = Owner::Nobody.word();
            let _ = slot.owner.compare_exchange(mine, nobody, Release, Relaxed);
        }
    }

    /// Frees a slot at once: its socket is the caller's alone.
    pub fn free(&self, seat: Seat, cookie: u64, me: Poller) {
        if let (Some(slot), Some((key, _))) = (self.mine(seat, cookie, me), self.at(seat)) {
            slot.owner.store(Owner::Nobody.word(), Relaxed);
            let _ = key.compare_exchange(cookie, 0, Release, Relaxed);
        }
    }

    /// What was written of a socket last.
    pub fn last(&self, seat: Seat, cookie: u64) -> Option<Account> {
        let (_, slot) = self.at(seat)?;
        slot.read().filter(|account| account.cookie == cookie)
    }

    /// The slot of a socket.
    pub fn find(&self, cookie: u64) -> Option<Seat> {
        let farthest = self.layout.header.farthest.load(SeqCst) as usize;
        probe(cookie)
            .take(farthest.saturating_add(1))
            .find(|&at| {
                let key = self.layout.keys.get(at as usize);
                key.is_some_and(|key| key.load(SeqCst) == cookie)
            })
            .map(Seat)
    }

    fn take_free(&self, cookie: u64) -> Option<Seat> {
        for (steps, at) in probe(cookie).enumerate() {
            let key = self.layout.keys.get(at as usize)?;
            let is_free = key.load(Relaxed) == 0;
            if !is_free {
                continue;
            }
            // Before the key: who looks for it must go as far.
            self.layout.header.farthest.fetch_max(steps as u64, SeqCst);
            if key.compare_exchange(0, cookie, SeqCst, Relaxed).is_ok() {
                return Some(Seat(at));
            }
        }
        None
    }

    fn mine(&self, seat: Seat, cookie: u64, me: Poller) -> Option<&'static Slot> {
        let (key, slot) = self.at(seat)?;
        let mine = Owner::Poller(me).word();
        (key.load(Relaxed) == cookie && slot.owner.load(Acquire) == mine).then_some(slot)
    }

    fn at(&self, seat: Seat) -> Option<(&'static AtomicU64, &'static Slot)> {
        let at = seat.0 as usize;
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
    /// True if the process that wrote it does so no more.
    pub(super) fn is_abandoned(&self, owner: Poller, now_ns: u64, poll_ns: u64) -> bool {
        let beat_ns = now_ns.saturating_sub(self.beat_ns.load(Relaxed));
        let is_silent_for = |ns: u64, polls: u64| beat_ns > ns.max(poll_ns.saturating_mul(polls));
        is_silent_for(SILENT_NS, SILENT_POLLS) || is_silent_for(GONE_NS, GONE_POLLS) && !sys::is_thread(owner.thread)
    }
}

impl Layout {
    pub(super) fn begin(&self, orders: &Orders) {
        for (place, word) in self.header.orders.iter().zip(orders.words()) {
            place.store(word, Relaxed);
        }
        self.header.size.store(size_of::<Layout>() as u64, Relaxed);
        self.header.version.store(VERSION, Relaxed);
        self.header.magic.store(MAGIC, Release);
    }

    /// How often sockets are looked at.
    pub(super) fn poll_ns(&self) -> u64 {
        self.orders().poll_ns
    }

    pub(super) fn orders(&self) -> Orders {
        Orders::from_words(self.header.orders.each_ref().map(|word| word.load(Relaxed)))
    }
}

/// Where the slot of a socket may be, the likeliest first. Cookies are given one after another, mostly.
fn probe(cookie: u64) -> impl Iterator<Item = u32> {
    let home = cookie as usize % SLOTS;
    (home..SLOTS).chain(0..home).map(|at| at as u32)
}
