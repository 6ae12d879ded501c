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
    // SAFETY: the kernel changes x0 alone, and the memory that the caller answers for.
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
