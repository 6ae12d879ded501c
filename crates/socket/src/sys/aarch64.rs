//! AArch64.

use std::arch::asm;

/// Makes a system call.
///
/// # Safety
/// As the call that it is.
#[inline]
pub unsafe fn call(number: usize, arguments: [usize; 6]) -> isize {
    let [first, second, third, fourth, fifth, sixth] = arguments;
    let returned: isize;
    // SAFETY: the kernel changes only x0, and memory that the caller answers for.
    unsafe {
        asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") first as isize => returned,
            in("x1") second,
            in("x2") third,
            in("x3") fourth,
            in("x4") fifth,
            in("x5") sixth,
            options(nostack),
        );
    }
    returned
}

/// Starts a thread. The words at `stack` are a function, its two arguments, and one unused word; above them the stack
/// is aligned to 16 bytes.
///
/// # Safety
/// The function does not return, and the caller upholds the meaning of the flags.
pub unsafe fn spawn(flags: usize, stack: usize, word: usize, storage: usize) -> isize {
    let returned: isize;
    // SAFETY: the new thread leaves this function at once, on its own stack.
    unsafe {
        asm!(
            "svc 0",
            "cbnz x0, 2f",
            "mov x29, xzr",
            "mov x30, xzr",
            "ldp x9, x0, [sp], #16",
            "ldp x1, x2, [sp], #16",
            "blr x9",
            "brk 1",
            "2:",
            in("x8") libc::SYS_clone,
            inlateout("x0") flags as isize => returned,
            in("x1") stack,
            in("x2") word,
            in("x3") storage,
            in("x4") word,
        );
    }
    returned
}

/// Unmaps the stack of the calling thread, and ends it.
///
/// # Safety
/// The memory is the stack of the calling thread.
pub unsafe fn leave(memory: usize, length: usize) -> ! {
    // SAFETY: no instruction uses the stack.
    unsafe {
        asm!(
            "svc 0",
            "mov x0, xzr",
            "mov x8, {exit}",
            "svc 0",
            "brk 1",
            exit = const libc::SYS_exit,
            in("x8") libc::SYS_munmap,
            in("x0") memory,
            in("x1") length,
            options(noreturn, nostack),
        );
    }
}
