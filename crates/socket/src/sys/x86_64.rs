//! x86-64.

use std::arch::asm;

/// Makes a system call.
///
/// # Safety
/// As the call that it is.
#[inline]
pub unsafe fn call(number: usize, arguments: [usize; 6]) -> isize {
    let [first, second, third, fourth, fifth, sixth] = arguments;
    let returned: isize;
    // SAFETY: the kernel changes only rax, rcx and r11, and memory that the caller answers for.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => returned,
            in("rdi") first,
            in("rsi") second,
            in("rdx") third,
            in("r10") fourth,
            in("r8") fifth,
            in("r9") sixth,
            lateout("rcx") _,
            lateout("r11") _,
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
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "pop rax",
            "pop rdi",
            "pop rsi",
            "pop rdx",
            "call rax",
            "ud2",
            "2:",
            inlateout("rax") libc::SYS_clone as isize => returned,
            in("rdi") flags,
            in("rsi") stack,
            in("rdx") word,
            in("r10") word,
            in("r8") storage,
            lateout("rcx") _,
            lateout("r11") _,
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
            "syscall",
            "xor edi, edi",
            "mov eax, {exit}",
            "syscall",
            "ud2",
            exit = const libc::SYS_exit,
            in("rax") libc::SYS_munmap,
            in("rdi") memory,
            in("rsi") length,
            options(noreturn, nostack),
        );
    }
}
