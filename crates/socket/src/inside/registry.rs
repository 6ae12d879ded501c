//! The sockets of a process that are known, and the looks at them.
#![allow(unsafe_code)]

use dwell_engine::socket::{
    Account,
    control::{Setting, State},
};

use super::{
    entry::{Begun, Entry, Means, New, Outcome},
    memory::{Forked, Zeroes, release, zeroed},
    pending::{DESCRIPTORS, Pending},
};
use crate::{
    sys::{self, Errno},
    table::{Count, SLOTS},
};

/// So many sockets a process.
const PLACES: usize = SLOTS;

/// Chains of places whose cookies are alike.
const CHAINS: usize = 4096;

/// Entries that take memory together.
const BLOCK: usize = 64;

/// How far beyond the greatest known descriptor others are looked for.
const GAP: i32 = 1024;

/// Descriptors are looked through once in so long at least, and at most.
const SCAN_SOONEST_NS: u64 = 100_000_000;
const SCAN_LATEST_NS: u64 = 1_000_000_000;

/// And take a part of the time that is one in so many.
const SCAN_SHARE: u64 = 100;

/// What is told after each look at a socket; what it gives is done instead of what the own controller wants.
pub type Looked<'a> = &'a mut dyn FnMut(&Account, &State<'_>) -> Option<Setting>;

/// All sockets. Zeroes are none of them. One thread at a time uses it.
#[repr(C)]
pub struct Registry {
    /// Of each entry; 0 if its place is free.
    cookies: [u64; PLACES],
    /// Places by cookie: of each chain the first, and of each place the next; one more than the place, 0: none.
    chains: [u16; CHAINS],
    next: [u16; PLACES],
    /// The place of the socket at each descriptor, and 1; 0: none is known.
    by_fd: [u16; DESCRIPTORS],
    blocks: [*mut Block; PLACES / BLOCK],
    /// Places from here on have never been used.
    used: usize,
    /// Places below are in use.
    first_free: usize,
    live: usize,
    lost: usize,
    /// One more than the greatest descriptor of which is known that it is open.
    end_fd: i32,
    scanned_ns: u64,
    next_scan_ns: u64,
}

#[repr(C)]
struct Block([std::mem::MaybeUninit<Entry>; BLOCK]);

// SAFETY: numbers, and pointers that may be null.
unsafe impl Zeroes for Registry {}
// SAFETY: of `MaybeUninit` anything is valid.
unsafe impl Zeroes for Block {}

impl Registry {
    /// How many are known.
    pub fn live(&self) -> usize {
        self.live
    }

    /// Watches the socket at a descriptor, if it is a connection. False if it is none, or there is no place.
    pub fn adopt(&mut self, fd: i32, begun: Begun, means: Means<'_>, now_ns: u64) -> bool {
        let Ok(cookie) = sys::cookie(fd) else {
            return false;
        };
        self.end_fd = self.end_fd.max(fd.saturating_add(1));
        if self.place_at(fd, cookie).is_some() {
            return true;
        }
        if let Some(place) = self.find(cookie) {
            self.found_again(place, fd, means, now_ns);
            return true;
        }
        if !sys::is_tcp(fd) {
            return false;
        }
        let is_kept = match Entry::open(cookie, fd, begun, means, now_ns) {
            New::Entry(entry) => self.keep(entry),
            New::NotOne => return false,
            New::NoPlace => false,
        };
        if !is_kept && begun != Begun::Before {
            means.table.count(Count::NoPlace);
        }
        is_kept
    }

    /// Looks at each socket whose time has come, and tells the descriptors that have another now. Returns when the
    /// next one's comes, if there is one.
    pub fn look(
        &mut self,
        means: Means<'_>,
        now_ns: u64,
        looked: Looked<'_>,
        lost: &mut dyn FnMut(i32),
    ) -> Option<u64> {
        // A round for several whose times are near each other.
        let near_ns = now_ns + means.orders.poll_ns / 10;
        let mut next_ns = None;
        for place in 0..self.used {
            let Some(entry) = self.entry(place) else {
                continue;
            };
            let is_due = entry.due_ns <= near_ns;
            if is_due && entry.look(means, now_ns, looked) == Outcome::Lost {
                let fd = entry.fd;
                self.forget_fd(fd, place);
                self.lost += 1;
                lost(fd);
            } else if !entry.is_lost() {
                let due_ns = entry.due_ns;
                next_ns = Some(next_ns.map_or(due_ns, |next_ns: u64| next_ns.min(due_ns)));
            }
        }
        next_ns
    }

    /// Looks at one, whether its time has come or not.
    pub fn look_at(&mut self, cookie: u64, means: Means<'_>, now_ns: u64, looked: Looked<'_>) {
        let Some(place) = self.find(cookie) else {
            return;
        };
        if let Some(entry) = self.entry(place)
            && entry.look(means, now_ns, looked) == Outcome::Lost
        {
            let fd = entry.fd;
            self.forget_fd(fd, place);
            self.lost += 1;
        }
    }

    /// Looks through all descriptors, if it is time: for sockets that came without a hook, and those whose
    /// descriptor was lost. Such as are not found are given up.
    pub fn scan(&mut self, means: Means<'_>, now_ns: u64, pending: &Pending) {
        let is_due = now_ns >= self.next_scan_ns;
        let is_wanted = self.lost > 0 && now_ns >= self.scanned_ns;
        if !is_due && !is_wanted {
            return;
        }
        let began = sys::thread_cpu_ns();
        self.end_fd = self.end_fd.max(pending.end());
        let mut end = self.end_fd.saturating_add(GAP);
        let mut last = 0;
        let mut fd = 0;
        while fd < end {
            match sys::cookie(fd) {
                Err(why) if why.0 == libc::EBADF => {}
                Err(_) => last = fd,
                Ok(cookie) => {
                    last = fd;
                    // Of those that are pending it is known how they began.
                    if self.place_at(fd, cookie).is_none() && !pending.has(fd) {
                        self.adopt(fd, Begun::Before, means, now_ns);
                    }
                }
            }
            end = end.max(last.saturating_add(GAP)).min(MOST_DESCRIPTORS);
            fd += 1;
        }
        self.end_fd = last.saturating_add(1);
        self.give_up_lost(means, now_ns, &mut |_| ());
        let cost_ns = sys::thread_cpu_ns().saturating_sub(began).saturating_mul(SCAN_SHARE);
        self.scanned_ns = now_ns + cost_ns.max(SCAN_SOONEST_NS);
        self.next_scan_ns = now_ns + cost_ns.max(SCAN_LATEST_NS);
    }

    /// Gives up those whose descriptor was lost, and tells their cookies.
    pub fn give_up_lost(&mut self, means: Means<'_>, now_ns: u64, each: &mut dyn FnMut(u64)) {
        if self.lost == 0 {
            return;
        }
        for place in 0..self.used {
            let lost = self.entry(place).filter(|entry| entry.is_lost());
            if let Some(cookie) = lost.map(|entry| entry.cookie) {
                self.remove(place, means, now_ns);
                each(cookie);
            }
        }
        self.lost = 0;
    }

    /// The program wrote to a descriptor.
    pub fn wrote(&mut self, fd: i32, time_ns: u64, bytes: u64) {
        let place = self.by_fd.get(fd as usize).copied().unwrap_or(0);
        let place = usize::from(place).checked_sub(1);
        if let Some(entry) = place.and_then(|place| self.entry(place)) {
            entry.wrote(time_ns, bytes);
        }
    }

    /// The cookie of the socket that is watched at a descriptor, without asking the kernel.
    pub fn cookie_at(&self, fd: i32) -> Option<u64> {
        let place = usize::from(*self.by_fd.get(usize::try_from(fd).ok()?)?).checked_sub(1)?;
        self.cookies.get(place).copied().filter(|&cookie| cookie != 0)
    }

    fn found_again(&mut self, place: usize, fd: i32, means: Means<'_>, now_ns: u64) {
        let Some(entry) = self.entry(place) else {
            return;
        };
        if entry.is_lost() {
            entry.find_again(fd, means, now_ns);
            self.remember_fd(fd, place);
            self.lost = self.lost.saturating_sub(1);
        }
    }

    fn keep(&mut self, entry: Entry) -> bool {
        let Some(place) = self.free_place() else {
            return false;
        };
        let (cookie, fd) = (entry.cookie, entry.fd);
        let Some(block) = self.blocks.get_mut(place / BLOCK) else {
            return false;
        };
        if block.is_null() {
            match zeroed::<Block>(Forked::Absent) {
                Ok(memory) => *block = memory,
                Err(_) => return false,
            }
        }
        // SAFETY: not null, so mapped for good, and `&mut self` has it alone.
        let block = unsafe { &mut **block };
        let (Some(memory), Some(key)) = (block.0.get_mut(place % BLOCK), self.cookies.get_mut(place)) else {
            return false;
        };
        memory.write(entry);
        *key = cookie;
        self.chain(cookie, place);
        self.used = self.used.max(place + 1);
        self.live += 1;
        self.remember_fd(fd, place);
        true
    }

    fn free_place(&mut self) -> Option<usize> {
        let from = self.first_free.min(PLACES);
        let free = self.cookies.get(from..)?.iter().position(|&cookie| cookie == 0)?;
        self.first_free = from + free + 1;
        Some(from + free)
    }

    fn remove(&mut self, place: usize, means: Means<'_>, now_ns: u64) {
        if let Some(entry) = self.entry(place) {
            entry.let_go(means, now_ns);
            let cookie = entry.cookie;
            self.unchain(cookie, place);
            // Entries have nothing to drop.
            if let Some(key) = self.cookies.get_mut(place) {
                *key = 0;
            }
            self.first_free = self.first_free.min(place);
            self.live = self.live.saturating_sub(1);
        }
    }

    fn entry(&mut self, place: usize) -> Option<&mut Entry> {
        if self.cookies.get(place).is_none_or(|&cookie| cookie == 0) {
            return None;
        }
        let block = *self.blocks.get(place / BLOCK)?;
        // SAFETY: a place with a cookie is in a block that is mapped, and `&mut self` has it alone.
        let memory = unsafe { (*block).0.get_mut(place % BLOCK)? };
        // SAFETY: a place with a cookie was written.
        Some(unsafe { memory.assume_init_mut() })
    }

    /// The place of the socket at `fd`, if that is known and its cookie is this.
    fn place_at(&self, fd: i32, cookie: u64) -> Option<usize> {
        let place = *self.by_fd.get(usize::try_from(fd).ok()?)?;
        let place = usize::from(place).checked_sub(1)?;
        (self.cookies.get(place) == Some(&cookie)).then_some(place)
    }

    fn find(&self, cookie: u64) -> Option<usize> {
        let mut link = *self.chains.get(cookie as usize % CHAINS)?;
        while let Some(place) = usize::from(link).checked_sub(1) {
            if self.cookies.get(place) == Some(&cookie) {
                return Some(place);
            }
            link = *self.next.get(place)?;
        }
        None
    }

    fn chain(&mut self, cookie: u64, place: usize) {
        let first = self.chains.get_mut(cookie as usize % CHAINS);
        if let (Some(first), Some(next)) = (first, self.next.get_mut(place)) {
            *next = *first;
            *first = place as u16 + 1;
        }
    }

    fn unchain(&mut self, cookie: u64, place: usize) {
        let after = self.next.get(place).copied().unwrap_or(0);
        let wanted = place as u16 + 1;
        let Some(mut link) = self.chains.get_mut(cookie as usize % CHAINS) else {
            return;
        };
        while *link != wanted {
            let Some(before) = usize::from(*link).checked_sub(1) else {
                return;
            };
            let Some(next) = self.next.get_mut(before) else {
                return;
            };
            link = next;
        }
        *link = after;
    }

    fn remember_fd(&mut self, fd: i32, place: usize) {
        if let Some(known) = self.by_fd.get_mut(fd as usize) {
            *known = place as u16 + 1;
        }
    }

    fn forget_fd(&mut self, fd: i32, place: usize) {
        if let Some(known) = self.by_fd.get_mut(fd as usize)
            && usize::from(*known) == place + 1
        {
            *known = 0;
        }
    }

    /// Gives back the memory of entries. Only where there are none.
    pub fn release_blocks(&mut self) {
        if self.live == 0 {
            self.release_all();
        }
    }

    /// Whatever there is. Entries have nothing to drop.
    fn release_all(&mut self) {
        for block in &mut self.blocks {
            if !block.is_null() {
                // SAFETY: mapped by `keep`, and the caller has no use for what is in it.
                unsafe { release(*block) };
                *block = std::ptr::null_mut();
            }
        }
        self.used = 0;
        self.first_free = 0;
    }
}

/// A registry of one's own, for a thread that may allocate.
pub struct Watched(std::ptr::NonNull<Registry>);

// SAFETY: nobody else has its memory.
unsafe impl Send for Watched {}

impl Watched {
    /// An empty one.
    pub fn new() -> Result<Watched, Errno> {
        let memory = zeroed::<Registry>(Forked::Zeroes)?;
        Ok(Watched(std::ptr::NonNull::new(memory).ok_or(Errno(libc::ENOMEM))?))
    }

    /// It.
    pub fn get(&mut self) -> &mut Registry {
        // SAFETY: mapped until `self` is dropped, and nobody else has it.
        unsafe { self.0.as_mut() }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.get().release_all();
        // SAFETY: mapped in `new`, and nothing refers to it.
        unsafe { release(self.0.as_ptr()) };
    }
}

/// Descriptors beyond this are not looked for.
const MOST_DESCRIPTORS: i32 = 1 << 20;
