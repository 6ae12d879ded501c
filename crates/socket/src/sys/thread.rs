//! A thread that libc does not know: the process ends without it, no signal is delivered to it, and it can be started
//! wherever a system call can be made.

use std::sync::atomic::AtomicU32;

use super::{Errno, advise, arch, call, map, unmap};

/// Sizes of the thread's memory: at the bottom a guard page, at the top a stand-in for thread-local storage.
const MEMORY: usize = 256 << 10;
const GUARD: usize = 4096;
const STORAGE: usize = 8192;

/// The memory of a thread, which [`leave`] releases.
#[derive(Debug)]
#[repr(transparent)]
pub struct ThreadMemory(usize);

/// Runs `body(argument, ..)` in a new thread. `word` holds its number while it runs, and 0 afterwards; the kernel
/// ensures this however the thread ends. The caller has stored a value other than 0 before.
///
/// The thread shares memory and descriptors, blocks all signals and has no capability.
///
/// # Safety
/// `body` never returns but ends by [`leave`]. It must not panic, nor call anything that uses thread-local storage,
/// which is most of libc. `argument` is valid as long as the thread runs.
pub unsafe fn spawn(
    body: unsafe extern "C-unwind" fn(usize, ThreadMemory) -> !,
    argument: usize,
    word: &'static AtomicU32,
) -> Result<(), Errno> {
    let memory = map(MEMORY, None)?;
    // A forked child does not have the thread and does not need its memory.
    advise(memory, MEMORY, libc::MADV_DONTFORK);
    protect(memory, GUARD);
    // SAFETY: within the mapping.
    let storage = unsafe { memory.add(MEMORY - STORAGE / 2) };
    // SAFETY: aligned, and nobody else has it. On x86-64 the first word of a thread's storage points to itself.
    unsafe { storage.cast::<usize>().write(storage as usize) };
    // SAFETY: within the mapping.
    let top = unsafe { memory.add(MEMORY - STORAGE) }.cast::<usize>();
    // SAFETY: four words below the top are within the mapping, which has no other user.
    let stack = unsafe {
        let stack = top.sub(4);
        stack.write(body as usize);
        stack.add(1).write(argument);
        stack.add(2).write(memory as usize);
        stack
    };
    let flags = libc::CLONE_VM
        | libc::CLONE_FILES
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD
        | libc::CLONE_SETTLS
        | libc::CLONE_PARENT_SETTID
        | libc::CLONE_CHILD_CLEARTID;
    let before = block_signals(u64::MAX);
    // SAFETY: the stack is as `arch` requires, and the rest is the caller's promise.
    let spawned = unsafe { arch::spawn(flags as usize, stack as usize, word.as_ptr() as usize, storage as usize) };
    block_signals(before);
    if spawned < 0 {
        // SAFETY: the memory is not in use.
        unsafe { unmap(memory, MEMORY) };
        return Err(Errno(-spawned as i32));
    }
    Ok(())
}

/// Ends the calling thread and releases its memory.
///
/// # Safety
/// `memory` is the calling thread's.
#[expect(clippy::needless_pass_by_value, reason = "it is given back")]
pub unsafe fn leave(memory: ThreadMemory) -> ! {
    let ThreadMemory(address) = memory;
    // SAFETY: nothing on the stack is used afterwards.
    unsafe { arch::leave(address, MEMORY) }
}

/// Tells the kernel which word to clear when the calling thread ends, or to clear none.
pub fn clear_at_end(word: Option<&AtomicU32>) {
    let address = word.map_or(0, |word| word.as_ptr() as usize);
    // SAFETY: the caller's word is static.
    let _ = unsafe { call(libc::SYS_set_tid_address, [address, 0, 0, 0, 0, 0]) };
}

/// Gives up all capabilities of the calling thread but these, for itself and whatever it starts. It gets none that it did
/// not have, and cannot get them back, nor by executing another program.
pub fn keep_capabilities(kept: &[u32]) -> Result<(), Errno> {
    const VERSION_3: u32 = 0x2008_0522;
    /// More than any kernel has.
    const ALL: u32 = 64;
    let is_kept = |capability: u32| kept.contains(&capability);
    for capability in (0..ALL).filter(|capability| !is_kept(*capability)) {
        // Needs CAP_SETPCAP, and fails for numbers that the kernel does not know. The sets below matter more.
        let to = [libc::PR_CAPBSET_DROP as usize, capability as usize, 0, 0, 0, 0];
        // SAFETY: it takes no pointer.
        let _ = unsafe { call(libc::SYS_prctl, to) };
    }
    let to = [libc::PR_CAP_AMBIENT as usize, libc::PR_CAP_AMBIENT_CLEAR_ALL as usize, 0, 0, 0, 0];
    // SAFETY: it takes no pointer.
    let _ = unsafe { call(libc::SYS_prctl, to) };
    let header = [VERSION_3, 0];
    // Effective, permitted and inheritable ones, of 32 capabilities each time.
    let mut sets = [[0_u32; 3]; 2];
    let to = [header.as_ptr() as usize, sets.as_mut_ptr() as usize, 0, 0, 0, 0];
    // SAFETY: it reads two words and writes six.
    unsafe { call(libc::SYS_capget, to) }?;
    for ([effective, permitted, inheritable], first) in sets.iter_mut().zip([0, 32]) {
        let mask = (0..32).filter(|bit| is_kept(first + bit)).fold(0, |mask, bit| mask | 1 << bit);
        *permitted &= mask;
        *effective = *permitted;
        *inheritable = 0;
    }
    // SAFETY: it reads two and six words.
    unsafe { call(libc::SYS_capset, to) }?;
    let to = [libc::PR_SET_NO_NEW_PRIVS as usize, 1, 0, 0, 0, 0];
    // SAFETY: it takes no pointer.
    unsafe { call(libc::SYS_prctl, to) }.map(|_| ())
}

/// Gives up all capabilities of the calling thread.
pub fn drop_capabilities() -> Result<(), Errno> {
    const VERSION_3: u32 = 0x2008_0522;
    let header = [VERSION_3, 0];
    let none = [0_u32; 6];
    let to = [header.as_ptr() as usize, none.as_ptr() as usize, 0, 0, 0, 0];
    // SAFETY: it reads two and six words.
    unsafe { call(libc::SYS_capset, to) }.map(|_| ())
}

/// Blocks these signals for the calling thread, and returns the mask before.
fn block_signals(signals: u64) -> u64 {
    let mut before = 0_u64;
    let to =
        [libc::SIG_SETMASK as usize, (&raw const signals) as usize, (&raw mut before) as usize, size_of::<u64>(), 0, 0];
    // SAFETY: it reads one word and writes one.
    let _ = unsafe { call(libc::SYS_rt_sigprocmask, to) };
    before
}

fn protect(address: *mut u8, length: usize) {
    let to = [address as usize, length, libc::PROT_NONE as usize, 0, 0, 0];
    // SAFETY: the caller's own memory, which is not in use.
    let _ = unsafe { call(libc::SYS_mprotect, to) };
}
