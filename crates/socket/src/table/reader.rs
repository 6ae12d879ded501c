//! dwell's side of the table.
#![allow(unsafe_code)]

use std::{
    collections::HashSet,
    convert::Infallible,
    ffi::c_void,
    fmt, io,
    num::NonZeroUsize,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    path::PathBuf,
    ptr::NonNull,
    sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release},
};

use dwell_engine::socket::Account;
use nix::{
    fcntl::{FcntlArg, SealFlag, fcntl},
    sys::{
        memfd::{MFdFlags, memfd_create},
        mman::{MapFlags, ProtFlags, mmap, munmap},
    },
    unistd::ftruncate,
};

use super::{
    Config, Count, Counts, Error, RawConfig, Refused, SocketOption,
    layout::{Layout, Owner, Slot},
};
use crate::{Watch, sys};

/// The table as dwell holds it. Libraries keep their mapping when it is dropped, but nobody reads it then.
pub struct Table {
    file: OwnedFd,
    address: NonNull<c_void>,
}

/// The least number of an inherited descriptor: shells and scripts choose small ones for their own. The next one is for processes that
/// may have no descriptor with the one before.
const INHERITED_FROM: [i32; 2] = [100, 3];

/// A socket that its process released has ended if no other process takes it over within this time.
const GRACE_NS: u64 = 300_000_000;

// SAFETY: the content consists of atomics, and the mapping moves with its owner.
unsafe impl Send for Table {}

impl Table {
    /// Creates an empty table.
    pub fn create(config: &Config) -> Result<Table, Error> {
        let raw_config = RawConfig::new(config)?;
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let file = memfd_create(c"dwell", flags).map_err(failed("memfd_create"))?;
        let length = size_of::<Layout>();
        ftruncate(&file, length as i64).map_err(failed("ftruncate"))?;
        // Without seals, a program could shrink the file and so kill dwell by a bus error.
        let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
        fcntl(&file, FcntlArg::F_ADD_SEALS(seals)).map_err(failed("fcntl(F_ADD_SEALS)"))?;
        let length = NonZeroUsize::new(length).ok_or(nix::Error::EINVAL);
        let length = length.map_err(failed("mmap"))?;
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let address = unsafe { mmap(None, length, access, MapFlags::MAP_SHARED, &file, 0) };
        let address = address.map_err(failed("mmap"))?;
        let table = Table { file, address };
        table.read_by(std::process::id());
        table.layout().begin(&raw_config);
        Ok(table)
    }

    /// Returns the path that processes of the same user can open while the table exists: the value of
    /// [`VARIABLE`](super::VARIABLE).
    pub fn path(&self) -> PathBuf {
        let process = std::process::id();
        PathBuf::from(format!("/proc/{process}/fd/{}", self.file.as_raw_fd()))
    }

    /// Returns a descriptor of the table that programs inherit, and the path by which a program that has it can open the
    /// table, whatever its user: the value of [`INHERITED_VARIABLE`](super::INHERITED_VARIABLE).
    pub fn inheritable(&self) -> Result<(OwnedFd, PathBuf), Error> {
        let [least, fallback] = INHERITED_FROM.map(FcntlArg::F_DUPFD);
        let number = fcntl(&self.file, least).or_else(|error| match error {
            nix::Error::EINVAL => fcntl(&self.file, fallback),
            error => Err(error),
        });
        let number = number.map_err(failed("fcntl(F_DUPFD)"))?;
        // SAFETY: the descriptor is new.
        let file = unsafe { OwnedFd::from_raw_fd(number) };
        Ok((file, PathBuf::from(format!("/proc/self/fd/{number}"))))
    }

    /// Names the process that reads the table, by default the one that created it. Libraries stop when it ends.
    pub fn read_by(&self, pid: u32) {
        let reader = &self.layout().header.reader;
        reader.store(u64::from(pid), Relaxed);
    }

    /// Returns the events in all processes.
    pub fn counts(&self) -> Counts {
        let header = &self.layout().header;
        let count = |count: Count| {
            let place = header.counts.get(count as usize);
            place.map_or(0, |place| place.load(Relaxed))
        };
        let refused = header.refusals.iter().filter_map(|refusal| {
            let what = refusal.what.load(Relaxed);
            Some(Refused {
                option: SocketOption::from_word(what >> 32)?,
                errno: what as u32 as i32,
                times: refusal.times.load(Relaxed),
            })
        });
        Counts {
            processes: count(Count::Process),
            too_short: count(Count::TooShort),
            no_slot: count(Count::NoSlot),
            no_poller: count(Count::NoPoller),
            hands_off: count(Count::HandsOff),
            refused: refused.collect(),
        }
    }

    /// Counts the pollers, so that each knows its share of the budget. The caller repeats it now and then.
    pub fn share_out(&self) {
        let layout = self.layout();
        let used = layout.keys.iter().zip(&layout.slots);
        let used = used.filter(|(key, _)| key.load(Relaxed) != 0);
        let pollers = used.filter_map(|(_, slot)| match Owner::from_word(slot.owner.load(Relaxed)) {
            Owner::Poller(poller) => Some(poller.thread),
            _ => None,
        });
        let pollers: HashSet<u32> = pollers.collect();
        layout.header.pollers.store(pollers.len() as u64, Relaxed);
    }

    /// Does what [`Watch::visit`] does, at a given time.
    pub(super) fn visit_at(&mut self, now_ns: u64, each: &mut dyn FnMut(&Account)) {
        let layout = self.layout();
        let poll_ns = layout.poll_ns();
        for (key, slot) in layout.keys.iter().zip(&layout.slots) {
            let cookie = key.load(Acquire);
            if cookie == 0 {
                continue;
            }
            let has_ended = slot.end(now_ns, poll_ns);
            let account = slot.read().filter(|account| account.cookie == cookie);
            if let Some(mut account) = account {
                account.peaks = slot.take_peaks();
                account.ended = has_ended;
                each(&account);
            }
            if has_ended {
                let _ = key.compare_exchange(cookie, 0, Release, Relaxed);
                slot.owner.store(Owner::Nobody.word(), Release);
            }
        }
    }

    fn layout(&self) -> &Layout {
        // SAFETY: as long as the type, mapped until `self` is dropped, and of atomics, for which any content is valid.
        unsafe { self.address.cast::<Layout>().as_ref() }
    }
}

impl Watch for Table {
    type Error = Infallible;

    fn visit(&mut self, each: &mut dyn FnMut(&Account)) -> Result<(), Infallible> {
        self.visit_at(sys::monotonic_ns(), each);
        Ok(())
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        // SAFETY: mapped in `create` with this length, and references to it borrow `self`.
        let _ = unsafe { munmap(self.address, size_of::<Layout>()) };
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("path", &self.path()).finish()
    }
}

impl Slot {
    /// Makes the reader the slot's owner, if nobody writes it any more.
    fn end(&self, now_ns: u64, poll_ns: u64) -> bool {
        let word = self.owner.load(Acquire);
        let is_over = match Owner::from_word(word) {
            Owner::Nobody => {
                let silent_ns = now_ns.saturating_sub(self.heartbeat_ns.load(Relaxed));
                silent_ns > grace_ns(poll_ns)
            }
            Owner::Poller(owner) => self.is_abandoned(owner, now_ns, poll_ns),
            Owner::Reader => true,
        };
        let reader = Owner::Reader.word();
        is_over && self.owner.compare_exchange(word, reader, AcqRel, Relaxed).is_ok()
    }
}

/// Returns the time by which another process with the same socket has polled it, even if the socket is quiet.
fn grace_ns(poll_ns: u64) -> u64 {
    let longest_ns = (2 * GRACE_NS).max(poll_ns).saturating_mul(2);
    poll_ns.saturating_mul(20).clamp(GRACE_NS, longest_ns)
}

impl SocketOption {
    fn from_word(word: u64) -> Option<SocketOption> {
        [SocketOption::Congestion, SocketOption::NotsentLowat, SocketOption::SendBuffer]
            .into_iter()
            .find(|&option| option as u64 == word)
    }
}

fn failed(operation: &'static str) -> impl FnOnce(nix::Error) -> Error {
    move |error| Error::Memory { operation, source: io::Error::from(error) }
}
