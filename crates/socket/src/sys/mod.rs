//! System calls without libc. They set no errno and touch no thread-local storage, so the program whose code they
//! interrupt does not notice them, and a thread that libc does not know may make them.
#![allow(unsafe_code)]

#[cfg(target_arch = "aarch64")]
mod aarch64;
mod descriptor;
mod thread;
#[cfg(target_arch = "x86_64")]
mod x86_64;

use std::{ffi::CStr, fmt, sync::atomic::AtomicU32};

#[cfg(target_arch = "aarch64")]
use aarch64 as arch;
#[cfg(target_arch = "x86_64")]
use x86_64 as arch;

pub use descriptor::*;
pub use thread::*;

/// The error number of a failed system call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub i32);

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", std::io::Error::from_raw_os_error(self.0))
    }
}

/// Makes a system call.
///
/// # Safety
/// The safety requirements of the system call: its pointers must point to what it reads and writes.
pub unsafe fn call(number: libc::c_long, arguments: [usize; 6]) -> Result<usize, Errno> {
    // SAFETY: the caller's promise.
    let returned = unsafe { arch::call(number as usize, arguments) };
    if (-4095..0).contains(&returned) { Err(Errno(-returned as i32)) } else { Ok(returned as usize) }
}

/// Returns the time on CLOCK_MONOTONIC, the clock of every timestamp of the kernel programs and of libdwell.
pub fn monotonic_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// Returns the time on CLOCK_REALTIME, since 1970. It steps when the clock is set.
pub fn realtime_ns() -> u64 {
    clock_ns(libc::CLOCK_REALTIME)
}

/// Returns the CPU time that the calling thread has used.
pub fn thread_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Returns the CPU time that all threads of the process have used.
pub fn process_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it writes one timespec. This is the only libc function called here: it reads CLOCK_MONOTONIC without a
    // system call, and sets errno only on failure, which does not happen for these clocks.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

/// Sets the timer slack: sleeps of the calling thread may end later by up to this, so that the kernel can combine
/// wake-ups.
pub fn set_slack(time_ns: u64) {
    let to = [libc::PR_SET_TIMERSLACK as usize, time_ns as usize, 0, 0, 0, 0];
    // SAFETY: it takes no pointer.
    let _ = unsafe { call(libc::SYS_prctl, to) };
}

/// Returns the effective user of the calling thread.
pub fn effective_user() -> u32 {
    // SAFETY: it takes nothing.
    unsafe { call(libc::SYS_geteuid, [0; 6]) }.unwrap_or_default() as u32
}

/// Returns the seccomp(2) mode of the calling thread; 0 means unrestricted.
pub fn seccomp_mode() -> u32 {
    // SAFETY: it takes no pointer.
    unsafe { call(libc::SYS_prctl, [libc::PR_GET_SECCOMP as usize, 0, 0, 0, 0, 0]) }.unwrap_or_default() as u32
}

/// Returns the number of this process.
pub fn pid() -> u32 {
    // SAFETY: it takes nothing.
    unsafe { call(libc::SYS_getpid, [0; 6]) }.unwrap_or_default() as u32
}

/// Returns the number of the calling thread.
pub fn thread() -> u32 {
    // SAFETY: it takes nothing.
    unsafe { call(libc::SYS_gettid, [0; 6]) }.unwrap_or_default() as u32
}

/// Returns false only if certainly no thread has this number in the caller's PID namespace.
pub fn is_thread(number: u32) -> bool {
    // SAFETY: signal 0 only checks for existence.
    let sent = unsafe { call(libc::SYS_tkill, [number as usize, 0, 0, 0, 0, 0]) };
    sent != Err(Errno(libc::ESRCH))
}

/// Returns false if no thread of this process has this number any more.
pub fn is_own_thread(number: u32) -> bool {
    // SAFETY: signal 0 only checks for existence.
    let sent = unsafe { call(libc::SYS_tgkill, [pid() as usize, number as usize, 0, 0, 0, 0]) };
    sent != Err(Errno(libc::ESRCH))
}

/// Opens a file for reading and writing.
pub fn open(path: &CStr) -> Result<i32, Errno> {
    let flags = libc::O_RDWR | libc::O_CLOEXEC | libc::O_NOCTTY;
    let to = [libc::AT_FDCWD as isize as usize, path.as_ptr() as usize, flags as usize, 0, 0, 0];
    // SAFETY: the path ends with a NUL.
    unsafe { call(libc::SYS_openat, to) }.map(|fd| fd as i32)
}

/// Returns the size of a file.
pub fn size(fd: i32) -> Result<u64, Errno> {
    // SAFETY: it takes no pointer. The table is accessed by mappings only, so nobody depends on the offset.
    unsafe { call(libc::SYS_lseek, [fd as usize, 0, libc::SEEK_END as usize, 0, 0, 0]) }.map(|size| size as u64)
}

/// Closes a descriptor.
pub fn close(fd: i32) {
    // SAFETY: it takes no pointer.
    let _ = unsafe { call(libc::SYS_close, [fd as usize, 0, 0, 0, 0, 0]) };
}

/// Maps the first bytes of a file as shared memory, or private memory without a file.
pub fn map(length: usize, file: Option<i32>) -> Result<*mut u8, Errno> {
    let flags = match file {
        Some(_) => libc::MAP_SHARED,
        None => libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
    };
    let to = [
        0,
        length,
        (libc::PROT_READ | libc::PROT_WRITE) as usize,
        flags as usize,
        file.unwrap_or(-1) as isize as usize,
        0,
    ];
    // SAFETY: without MAP_FIXED it replaces no memory in use.
    unsafe { call(libc::SYS_mmap, to) }.map(|address| address as *mut u8)
}

/// Unmaps memory.
///
/// # Safety
/// `address` came from [`map`] with this length, and nothing refers to it.
pub unsafe fn unmap(address: *mut u8, length: usize) {
    // SAFETY: the caller's promise.
    let _ = unsafe { call(libc::SYS_munmap, [address as usize, length, 0, 0, 0, 0]) };
}

/// Calls madvise(2) for memory from [`map`]. Returns false if the kernel does not know the advice.
pub fn advise(address: *mut u8, length: usize, advice: i32) -> bool {
    let to = [address as usize, length, advice as usize, 0, 0, 0];
    // SAFETY: the advice in use changes what a forked child finds, and no memory of this process.
    unsafe { call(libc::SYS_madvise, to) }.is_ok()
}

/// Sleeps while `word` has `value`, until another thread wakes it, and at most `timeout_ns`.
pub fn wait(word: &AtomicU32, value: u32, timeout_ns: u64) {
    wait_by(libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG, word, value, timeout_ns);
}

/// As [`wait`], for a word that the kernel clears when a thread ends: it looks for those who wait as in memory that
/// processes share.
pub fn wait_for_end(word: &AtomicU32, value: u32, timeout_ns: u64) {
    wait_by(libc::FUTEX_WAIT, word, value, timeout_ns);
}

fn wait_by(operation: i32, word: &AtomicU32, value: u32, timeout_ns: u64) {
    let timeout =
        libc::timespec { tv_sec: (timeout_ns / 1_000_000_000) as i64, tv_nsec: (timeout_ns % 1_000_000_000) as i64 };
    let to = [word.as_ptr() as usize, operation as usize, value as usize, (&raw const timeout) as usize, 0, 0];
    // SAFETY: the word and the timeout outlive the call.
    let _ = unsafe { call(libc::SYS_futex, to) };
}

/// Wakes one thread that waits for `word`.
pub fn wake(word: &AtomicU32) {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    let to = [word.as_ptr() as usize, operation as usize, 1, 0, 0, 0];
    // SAFETY: it reads no memory.
    let _ = unsafe { call(libc::SYS_futex, to) };
}

/// Sleeps. Returns false if a signal ended it.
pub fn sleep(time_ns: u64) -> bool {
    let time = libc::timespec { tv_sec: (time_ns / 1_000_000_000) as i64, tv_nsec: (time_ns % 1_000_000_000) as i64 };
    let to = [(&raw const time) as usize, 0, 0, 0, 0, 0];
    // SAFETY: it reads one timespec.
    unsafe { call(libc::SYS_nanosleep, to) }.is_ok()
}
