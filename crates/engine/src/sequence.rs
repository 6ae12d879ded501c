//! Sequence numbers of TCP, which wrap.

/// How far `later` is after `earlier` in the sequence; 0 if it is not.
pub(crate) fn distance(later: u32, earlier: u32) -> u32 {
    if is_after(later, earlier) { later.wrapping_sub(earlier) } else { 0 }
}

pub(crate) fn is_after(later: u32, earlier: u32) -> bool {
    later.wrapping_sub(earlier) as i32 > 0
}
