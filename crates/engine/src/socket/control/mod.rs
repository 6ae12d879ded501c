//! What keeps bytes from waiting in the send buffer: controllers of a socket.

mod element;
mod lowat;

use super::{Delay, Reading};

pub use element::{Element, ElementConfig};
pub use lowat::Lowat;

/// What a controller is told of its socket.
#[derive(Debug, Clone, Copy)]
pub struct State<'a> {
    /// The last look.
    pub reading: &'a Reading,
    /// What bytes waited in the send buffer that have left since the look before; `None` if none have.
    pub delay: Option<Delay>,
    /// For how long the oldest byte that has not left has been waiting.
    pub waiting_ns: Option<u64>,
}

/// What is to be done to a socket. `None`: leave it as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Setting {
    /// `TCP_NOTSENT_LOWAT`, in bytes: with more than that unsent, the socket is not ready for more.
    pub notsent_lowat: Option<u32>,
    /// `SO_SNDBUF`, in bytes, as setsockopt takes it (the kernel doubles it). It ends the kernel's own tuning.
    pub send_buffer: Option<u32>,
    /// A call that writes is held while more than these bytes are unsent.
    pub hold_above: Option<Hold>,
}

/// How a call that writes is held back: up to `times` sleeps, the n-th of `factor`^n milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hold {
    /// While so many bytes are unsent.
    pub unsent_bytes: u64,
    /// At most so often.
    pub times: u8,
    /// In thousandths.
    pub factor_permille: u32,
}

/// Decides, after each look at a socket, what is to be done to it. One a socket.
pub trait Controller {
    /// After a look.
    fn update(&mut self, state: &State<'_>) -> Setting;
}
