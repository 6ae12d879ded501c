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
    // SAFETY: the kernel changes rax, rcx and r11 alone, and the memory that the caller answers for.
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
