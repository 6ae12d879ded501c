//! Controllers that keep bytes from waiting in the send buffer of a socket.

mod element;
mod lowat;

use super::{Delay, Reading};

pub use element::{Element, ElementConfig};
pub use lowat::Lowat;

/// The input of a controller.
#[derive(Debug, Clone, Copy)]
pub struct State<'a> {
    /// The last poll.
    pub reading: &'a Reading,
    /// The delay in the send buffer of the bytes that left since the previous poll; `None` if none have.
    pub delay: Option<Delay>,
    /// The age of the oldest byte that has not left.
    pub waiting_ns: Option<u64>,
}

/// Changes to a socket. `None` leaves the value as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Setting {
    /// `TCP_NOTSENT_LOWAT` in bytes: with more unsent bytes, the socket is not ready for writing.
    pub notsent_lowat: Option<u32>,
    /// `SO_SNDBUF` in bytes, as setsockopt takes it (the kernel doubles it). Setting it ends the kernel's autotuning.
    pub send_buffer: Option<u32>,
    /// Writing calls are held while more bytes than this are unsent.
    pub hold_above: Option<Hold>,
}

/// How a writing call is held back: by up to `times` sleeps, the n-th of `factor`^n milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hold {
    /// The call is held while more bytes than this are unsent.
    pub unsent_bytes: u64,
    /// The greatest number of sleeps.
    pub times: u8,
    /// The factor in thousandths.
    pub factor_permille: u32,
}

/// Decides on changes to one socket after each poll.
pub trait Controller {
    /// Returns the changes after a poll.
    fn update(&mut self, state: &State<'_>) -> Setting;
}
