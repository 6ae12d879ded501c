//! A thread that libc knows nothing of: the process ends without it, no signal is delivered to it, and it can be
//! started wherever a system call can be made.

use std::sync::atomic::AtomicU32;

use super::{Errno, advise, arch, call, map, unmap};

/// Its memory: below is a page that nobody may touch, above what stands for its thread-local storage.
const MEMORY: usize = 256 << 10;
const GUARD: usize = 4096;
const STORAGE: usize = 8192;

/// What a thread runs in. It gives it back with [`leave`].
#[derive(Debug)]
#[repr(transparent)]
pub struct Memory(usize);

/// Runs `body(argument, ..)` in a new thread. `word` has its number while it runs, and 0 afterwards; the kernel sees to
/// that, however it ends. The caller has put something else there before.
///
/// It shares memory and descriptors, has all signals blocked and no capability.
///
/// # Safety
/// `body` never returns but ends by [`leave`]. It must not panic, and not call what uses thread-local storage: so
/// next to nothing of libc. `argument` stays valid as long as it runs.
pub unsafe fn spawn(
    body: unsafe extern "C-unwind" fn(usize, Memory) -> !,
    argument: usize,
    word: &'static AtomicU32,
) -> Result<(), Errno> {
    let memory = map(MEMORY, None)?;
    // A forked child has not the thread, and needs not its memory.
    advise(memory, MEMORY, libc::MADV_DONTFORK);
    protect(memory, GUARD);
    // SAFETY: within the mapping.
    let storage = unsafe { memory.add(MEMORY - STORAGE / 2) };
    // SAFETY: aligned, and nobody else has it. On x86-64 the first word of a thread's storage points to itself.
    unsafe { storage.cast::<usize>().write(storage as usize) };
    // SAFETY: within the mapping.
    let top = unsafe { memory.add(MEMORY - STORAGE) }.cast::<usize>();
    // SAFETY: four words below the top are within the mapping, and nobody else has it.
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
    // SAFETY: the stack is as `arch` wants it, and the rest is the caller's promise.
    let spawned = unsafe { arch::spawn(flags as usize, stack as usize, word.as_ptr() as usize, storage as usize) };
    block_signals(before);
    if spawned < 0 {
        // SAFETY: nobody uses it.
        unsafe { unmap(memory, MEMORY) };
        return Err(Errno(-spawned as i32));
    }
    Ok(())
}

/// Ends the calling thread, and gives back its memory.
///
/// # Safety
/// It is the one that `memory` was given to.
#[expect(clippy::needless_pass_by_value, reason = "it is given back")]
pub unsafe fn leave(memory: Memory) -> ! {
    let Memory(address) = memory;
    // SAFETY: nothing of the stack is used afterwards.
    unsafe { arch::leave(address, MEMORY) }
}

/// Has the kernel put 0 at `word` when the calling thread ends; at none if there is none.
pub fn clear_at_end(word: Option<&AtomicU32>) {
    let address = word.map_or(0, |word| word.as_ptr() as usize);
    // SAFETY: the caller's word is static.
    let _ = unsafe { call(libc::SYS_set_tid_address, [address, 0, 0, 0, 0, 0]) };
}

/// Gives up all capabilities of the calling thread.
pub fn drop_capabilities() {
    const VERSION_3: u32 = 0x2008_0522;
    let header = [VERSION_3, 0];
    let none = [0_u32; 6];
    let to = [header.as_ptr() as usize, none.as_ptr() as usize, 0, 0, 0, 0];
    // SAFETY: it reads two and six words.
    let _ = unsafe { call(libc::SYS_capset, to) };
}

/// Blocks these signals for the calling thread, and gives those that were.
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
    // SAFETY: the caller's own memory, which nobody uses.
    let _ = unsafe { call(libc::SYS_mprotect, to) };
}
