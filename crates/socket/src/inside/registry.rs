//! The known sockets of a process, and the rounds of polls.
#![allow(unsafe_code)]

use dwell_engine::socket::{
    Account,
    control::{Setting, State},
};

use super::{
    entry::{Context, Entry, New, Origin, Outcome},
    memory::{OnFork, Zeroable, release, zeroed},
    pending::{DESCRIPTORS, Pending},
    stamps::CallEvent,
};
use crate::{
    sys::{self, Errno},
    table::{Count, SLOTS},
};

/// Most sockets per process.
const CAPACITY: usize = SLOTS;

/// Number of hash chains by cookie.
const CHAINS: usize = 4096;

/// Number of entries that are allocated together.
const BLOCK: usize = 64;

/// How many descriptors beyond the greatest open one are scanned.
const GAP: i32 = 1024;
/// Greatest descriptor that is scanned.
const MOST_DESCRIPTORS: i32 = 1 << 20;

/// Shortest and longest time between two scans of all descriptors.
const SCAN_SOONEST_NS: u64 = 100_000_000;
const SCAN_LATEST_NS: u64 = 1_000_000_000;

/// A scan uses one part in this many of the time.
const SCAN_SHARE: u64 = 100;

/// Called after each poll of a socket. A setting that it returns replaces that of the built-in controller.
pub type OnPoll<'a> = &'a mut dyn FnMut(&Account, &State<'_>) -> Option<Setting>;

/// All known sockets. Zeroes are an empty registry. Only one thread at a time uses it.
#[repr(C)]
pub struct Registry {
    /// Cookie of each entry; 0 if the index is free.
    cookies: [u64; CAPACITY],
    /// Hash chains by cookie: the first index of each chain, and the next index of each index; each plus one, so that 0
    /// ends a chain.
    chains: [u16; CHAINS],
    next: [u16; CAPACITY],
    /// Index of the socket at each descriptor, plus one; 0 if unknown.
    by_fd: [u16; DESCRIPTORS],
    blocks: [*mut Block; CAPACITY / BLOCK],
    /// Indexes from here on have never been used.
    used: usize,
    /// All indexes below are in use.
    first_free: usize,
    live: usize,
    lost: usize,
    /// Greatest descriptor that is known to be open, plus one.
    end_fd: i32,
    scanned_ns: u64,
    next_scan_ns: u64,
}

#[repr(C)]
struct Block([std::mem::MaybeUninit<Entry>; BLOCK]);

// SAFETY: numbers, and pointers that may be null.
unsafe impl Zeroable for Registry {}
// SAFETY: any content of `MaybeUninit` is valid.
unsafe impl Zeroable for Block {}

impl Registry {
    /// Returns the number of known sockets.
    pub fn live(&self) -> usize {
        self.live
    }

    /// Watches the socket at a descriptor. Returns false if it is not a connection, or if there is no room.
    pub fn adopt(&mut self, fd: i32, origin: Origin, context: Context<'_>, now_ns: u64) -> bool {
        let Ok(cookie) = sys::cookie(fd) else {
            return false;
        };
        self.end_fd = self.end_fd.max(fd.saturating_add(1));
        if let Some(index) = self.index_at(fd, cookie) {
            if origin != Origin::Preexisting
                && let Some(entry) = self.entry(index)
            {
                entry.reconnected(context, now_ns);
            }
            return true;
        }
        if let Some(index) = self.find(cookie) {
            self.reattach(index, fd, context, now_ns);
            return true;
        }
        if !sys::is_tcp(fd) {
            return false;
        }
        let is_kept = match Entry::open(cookie, fd, origin, context, now_ns) {
            New::Entry(entry) => self.insert(entry),
            New::NotOne => return false,
            New::NoSlot => false,
        };
        if !is_kept && origin != Origin::Preexisting {
            context.table.count(Count::NoSlot);
        }
        is_kept
    }

    /// Polls each socket that is due, and reports descriptors that now belong to another file to `lost`. Returns the
    /// time of the next poll, if there is any socket.
    pub fn poll(
        &mut self,
        context: Context<'_>,
        now_ns: u64,
        on_poll: OnPoll<'_>,
        lost: &mut dyn FnMut(i32),
    ) -> Option<u64> {
        // Sockets that are due at nearly the same time share a round.
        let near_ns = now_ns + context.config.poll_ns / 10;
        let mut next_ns = None;
        for index in 0..self.used {
            let Some(entry) = self.entry(index) else {
                continue;
            };
            let is_due = entry.due_ns <= near_ns;
            if is_due && entry.poll(context, now_ns, on_poll) == Outcome::Lost {
                let fd = entry.fd;
                self.forget_fd(fd, index);
                self.lost += 1;
                lost(fd);
            } else if !entry.is_lost() {
                let due_ns = entry.due_ns;
                next_ns = Some(next_ns.map_or(due_ns, |next_ns: u64| next_ns.min(due_ns)));
            }
        }
        next_ns
    }

    /// Polls one socket, whether it is due or not.
    pub fn poll_one(&mut self, cookie: u64, context: Context<'_>, now_ns: u64, on_poll: OnPoll<'_>) {
        let Some(index) = self.find(cookie) else {
            return;
        };
        if let Some(entry) = self.entry(index)
            && entry.poll(context, now_ns, on_poll) == Outcome::Lost
        {
            let fd = entry.fd;
            self.forget_fd(fd, index);
            self.lost += 1;
        }
    }

    /// Scans all descriptors if it is time: for sockets without a hook, and for sockets that lost their descriptor.
    /// Those that are not found are removed.
    pub fn scan(&mut self, context: Context<'_>, now_ns: u64, pending: &Pending) {
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
                    // For pending descriptors the hooks know how the connection began.
                    if self.index_at(fd, cookie).is_none() && !pending.contains(fd) {
                        self.adopt(fd, Origin::Preexisting, context, now_ns);
                    }
                }
            }
            end = end.max(last.saturating_add(GAP)).min(MOST_DESCRIPTORS);
            fd += 1;
        }
        self.end_fd = last.saturating_add(1);
        self.remove_lost(context, now_ns, &mut |_| ());
        let cost_ns = sys::thread_cpu_ns().saturating_sub(began).saturating_mul(SCAN_SHARE);
        self.scanned_ns = now_ns + cost_ns.max(SCAN_SOONEST_NS);
        self.next_scan_ns = now_ns + cost_ns.max(SCAN_LATEST_NS);
    }

    /// Removes sockets that lost their descriptor, and reports their cookies.
    pub fn remove_lost(&mut self, context: Context<'_>, now_ns: u64, each: &mut dyn FnMut(u64)) {
        if self.lost == 0 {
            return;
        }
        for index in 0..self.used {
            let lost = self.entry(index).filter(|entry| entry.is_lost());
            if let Some(cookie) = lost.map(|entry| entry.cookie) {
                self.remove(index, context, now_ns);
                each(cookie);
            }
        }
        self.lost = 0;
    }

    /// Records a call of the program at a descriptor.
    pub fn called(&mut self, fd: i32, time_ns: u64, event: CallEvent) {
        let index = self.by_fd.get(fd as usize).copied().unwrap_or(0);
        let index = usize::from(index).checked_sub(1);
        if let Some(entry) = index.and_then(|index| self.entry(index)) {
            entry.called(time_ns, event);
        }
    }

    /// Returns the cookie of the socket that is watched at a descriptor, without a system call.
    pub fn cookie_at(&self, fd: i32) -> Option<u64> {
        let index = usize::from(*self.by_fd.get(usize::try_from(fd).ok()?)?).checked_sub(1)?;
        self.cookies.get(index).copied().filter(|&cookie| cookie != 0)
    }

    fn reattach(&mut self, index: usize, fd: i32, context: Context<'_>, now_ns: u64) {
        let Some(entry) = self.entry(index) else {
            return;
        };
        if entry.is_lost() {
            entry.reattach(fd, context, now_ns);
            self.remember_fd(fd, index);
            self.lost = self.lost.saturating_sub(1);
        }
    }

    fn insert(&mut self, entry: Entry) -> bool {
        let Some(index) = self.free_index() else {
            return false;
        };
        let (cookie, fd) = (entry.cookie, entry.fd);
        let Some(block) = self.blocks.get_mut(index / BLOCK) else {
            return false;
        };
        if block.is_null() {
            match zeroed::<Block>(OnFork::Absent) {
                Ok(memory) => *block = memory,
                Err(_) => return false,
            }
        }
        // SAFETY: not null, so mapped for good, and `&mut self` is the only reference.
        let block = unsafe { &mut **block };
        let (Some(memory), Some(key)) = (block.0.get_mut(index % BLOCK), self.cookies.get_mut(index)) else {
            return false;
        };
        memory.write(entry);
        *key = cookie;
        self.chain(cookie, index);
        self.used = self.used.max(index + 1);
        self.live += 1;
        self.remember_fd(fd, index);
        true
    }

    fn free_index(&mut self) -> Option<usize> {
        let from = self.first_free.min(CAPACITY);
        let free = self.cookies.get(from..)?.iter().position(|&cookie| cookie == 0)?;
        self.first_free = from + free + 1;
        Some(from + free)
    }

    fn remove(&mut self, index: usize, context: Context<'_>, now_ns: u64) {
        if let Some(entry) = self.entry(index) {
            entry.stop(context, now_ns);
            let cookie = entry.cookie;
            self.unchain(cookie, index);
            // Entries have nothing to drop.
            if let Some(key) = self.cookies.get_mut(index) {
                *key = 0;
            }
            self.first_free = self.first_free.min(index);
            self.live = self.live.saturating_sub(1);
        }
    }

    fn entry(&mut self, index: usize) -> Option<&mut Entry> {
        if self.cookies.get(index).is_none_or(|&cookie| cookie == 0) {
            return None;
        }
        let block = *self.blocks.get(index / BLOCK)?;
        // SAFETY: the entry of an index with a cookie is in a block that is mapped, and `&mut self` has it alone.
        let memory = unsafe { (*block).0.get_mut(index % BLOCK)? };
        // SAFETY: the entry was written before its cookie.
        Some(unsafe { memory.assume_init_mut() })
    }

    /// Returns the index of the socket at `fd`, if it is known with this cookie.
    fn index_at(&self, fd: i32, cookie: u64) -> Option<usize> {
        let index = *self.by_fd.get(usize::try_from(fd).ok()?)?;
        let index = usize::from(index).checked_sub(1)?;
        (self.cookies.get(index) == Some(&cookie)).then_some(index)
    }

    fn find(&self, cookie: u64) -> Option<usize> {
        let mut link = *self.chains.get(cookie as usize % CHAINS)?;
        while let Some(index) = usize::from(link).checked_sub(1) {
            if self.cookies.get(index) == Some(&cookie) {
                return Some(index);
            }
            link = *self.next.get(index)?;
        }
        None
    }

    fn chain(&mut self, cookie: u64, index: usize) {
        let first = self.chains.get_mut(cookie as usize % CHAINS);
        if let (Some(first), Some(next)) = (first, self.next.get_mut(index)) {
            *next = *first;
            *first = index as u16 + 1;
        }
    }

    fn unchain(&mut self, cookie: u64, index: usize) {
        let after = self.next.get(index).copied().unwrap_or(0);
        let wanted = index as u16 + 1;
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

    fn remember_fd(&mut self, fd: i32, index: usize) {
        if let Some(known) = self.by_fd.get_mut(fd as usize) {
            *known = index as u16 + 1;
        }
    }

    fn forget_fd(&mut self, fd: i32, index: usize) {
        if let Some(known) = self.by_fd.get_mut(fd as usize)
            && usize::from(*known) == index + 1
        {
            *known = 0;
        }
    }

    /// Releases the memory of the entries if there are none.
    pub fn release_blocks(&mut self) {
        if self.live == 0 {
            self.release_all();
        }
    }

    /// Releases the memory of all entries, which have nothing to drop.
    fn release_all(&mut self) {
        for block in &mut self.blocks {
            if !block.is_null() {
                // SAFETY: mapped by `insert`, and the caller does not use the content any more.
                unsafe { release(*block) };
                *block = std::ptr::null_mut();
            }
        }
        self.used = 0;
        self.first_free = 0;
    }
}

/// A registry with an owner, for a thread that may allocate.
pub struct OwnedRegistry(std::ptr::NonNull<Registry>);

// SAFETY: the memory has no other user.
unsafe impl Send for OwnedRegistry {}

impl OwnedRegistry {
    /// Creates an empty registry.
    pub fn new() -> Result<OwnedRegistry, Errno> {
        let memory = zeroed::<Registry>(OnFork::Zeroed)?;
        Ok(OwnedRegistry(std::ptr::NonNull::new(memory).ok_or(Errno(libc::ENOMEM))?))
    }

    /// Returns the registry.
    pub fn get(&mut self) -> &mut Registry {
        // SAFETY: mapped until `self` is dropped, and without another user.
        unsafe { self.0.as_mut() }
    }
}

impl Drop for OwnedRegistry {
    fn drop(&mut self) {
        self.get().release_all();
        // SAFETY: mapped in `new`, and nothing refers to it.
        unsafe { release(self.0.as_ptr()) };
    }
}
