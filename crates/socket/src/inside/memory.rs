//! Memory straight from the kernel: zeroes, taken only where they are touched.
#![allow(unsafe_code)]

use crate::sys::{self, Errno};

/// Types of which zeroes are a valid value.
///
/// # Safety
/// They are: numbers, pointers that may be null, and arrays and structs of them.
pub unsafe trait Zeroes {}

/// What a forked child finds in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forked {
    /// Nothing: the addresses are not mapped.
    Absent,
    /// Zeroes.
    Zeroes,
}

/// Memory for a `T`. `None` in `Forked::Zeroes` on kernels older than 4.14, too.
pub fn zeroed<T: Zeroes>(forked: Forked) -> Result<*mut T, Errno> {
    let address = sys::map(size_of::<T>(), None)?;
    let advice = match forked {
        Forked::Absent => libc::MADV_DONTFORK,
        Forked::Zeroes => libc::MADV_WIPEONFORK,
    };
    if sys::advise(address, size_of::<T>(), advice) {
        return Ok(address.cast());
    }
    // SAFETY: mapped above, and nobody uses it.
    unsafe { sys::unmap(address, size_of::<T>()) };
    Err(Errno(libc::ENOSYS))
}

/// Gives it back.
///
/// # Safety
/// [`zeroed`] gave it, and nothing refers to it.
pub unsafe fn release<T>(address: *mut T) {
    // SAFETY: the caller's promise.
    unsafe { sys::unmap(address.cast(), size_of::<T>()) };
}
