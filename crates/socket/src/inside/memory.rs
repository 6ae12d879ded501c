//! Memory directly from the kernel: zeroed, and backed by pages only where it is touched.
#![allow(unsafe_code)]

use crate::sys::{self, Errno};

/// A type for which all zeroes is a valid value.
///
/// # Safety
/// The type consists of numbers, pointers that may be null, and arrays and structs of them.
pub unsafe trait Zeroable {}

/// The content of the memory in a forked child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnFork {
    /// The addresses are not mapped.
    Absent,
    /// The memory is there and zeroed.
    Zeroed,
}

/// Allocates zeroed memory for a `T`. On kernels older than 4.14 `OnFork::Zeroed` fails.
pub fn zeroed<T: Zeroable>(forked: OnFork) -> Result<*mut T, Errno> {
    let address = sys::map(size_of::<T>(), None)?;
    let advice = match forked {
        OnFork::Absent => libc::MADV_DONTFORK,
        OnFork::Zeroed => libc::MADV_WIPEONFORK,
    };
    if sys::advise(address, size_of::<T>(), advice) {
        return Ok(address.cast());
    }
    // SAFETY: mapped above, and not in use.
    unsafe { sys::unmap(address, size_of::<T>()) };
    Err(Errno(libc::ENOSYS))
}

/// Releases the memory.
///
/// # Safety
/// The memory comes from [`zeroed`], and nothing refers to it.
pub unsafe fn release<T>(address: *mut T) {
    // SAFETY: the caller's promise.
    unsafe { sys::unmap(address.cast(), size_of::<T>()) };
}
