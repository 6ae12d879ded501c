//! Controllers that keep bytes from waiting in the send buffer of a socket.

mod element;
mod lowat;

use super::{Delay, Reading};

pub use element::Element;
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
    /// The average of the delays of Algorithm 1; `None` if its calls are not observed, or before the first delay.
    pub average_ns: Option<f64>,
    /// The size of the socket's send buffer (SO_SNDBUF) in bytes; 0 unless the controller is `Element`, which alone
    /// needs it.
    pub send_buffer: u32,
}

/// Changes to a socket. `None` leaves the value as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Setting {
    /// `TCP_NOTSENT_LOWAT` in bytes: with more unsent bytes, the socket is not ready for writing.
    pub notsent_lowat: Option<u32>,
    /// `SO_SNDBUF` in bytes, as setsockopt takes it (the kernel doubles it). Setting it ends the kernel's autotuning.
    pub send_buffer: Option<u32>,
    /// Writing calls pass bytes to the kernel in pieces of this size, between which it examines `TCP_NOTSENT_LOWAT`:
    /// with segmentation offload it otherwise does so only each 64 KB. 0: in one piece.
    pub piece_bytes: Option<u32>,
    /// Writing calls are held back by [`Element::sleep_ns`] while more bytes than this are unsent.
    pub hold_above: Option<u64>,
}

/// Decides on changes to one socket after each poll.
pub trait Controller {
    /// Returns the changes after a poll.
    fn update(&mut self, state: &State<'_>) -> Setting;
}
