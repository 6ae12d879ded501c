//! Applies the settings of a controller to a socket, unless the program sets the same options itself.
#![cfg_attr(test, allow(unsafe_code))]

use dwell_engine::socket::control::{Controller, Element, Lowat, Setting, State};

use crate::{
    sys::{self, Errno},
    table::{ControllerKind, Count, RawConfig, SocketOption, Writer},
};

/// Counts settings that could not be applied.
pub trait Refusals {
    /// The kernel refused an option.
    fn refused(&self, option: SocketOption, why: Errno);
    /// A socket is left alone, because its program sets the same options.
    fn set_by_program(&self);
}

impl Refusals for Writer {
    fn refused(&self, option: SocketOption, why: Errno) {
        Writer::refused(self, option, why);
    }

    fn set_by_program(&self) {
        self.count(Count::HandsOff);
    }
}

/// The controller of one socket, and the settings it has applied.
#[derive(Debug, Clone)]
pub struct Adjuster {
    builtin: Builtin,
    /// True once the program was found to set these options itself.
    hands_off: bool,
    applied: Setting,
}

#[derive(Debug, Clone)]
enum Builtin {
    None,
    Lowat(Lowat),
    Element(Element),
}

impl Adjuster {
    /// Creates the controller of a newly found socket.
    pub fn new(config: &RawConfig) -> Adjuster {
        Adjuster { builtin: Builtin::new(config), hands_off: false, applied: Setting::default() }
    }

    /// Forgets the connection that the socket was before. Its options stay as they are.
    pub fn restart(&mut self, config: &RawConfig) {
        self.builtin = Builtin::new(config);
        self.applied.hold_above = None;
    }

    /// Continues after another process that set these options, so that they are not mistaken for the program's.
    pub fn resume(&mut self, before: Setting) {
        self.applied = Setting {
            notsent_lowat: before.notsent_lowat.or(self.applied.notsent_lowat),
            send_buffer: before.send_buffer.or(self.applied.send_buffer),
            piece_bytes: before.piece_bytes.or(self.applied.piece_bytes),
            hold_above: self.applied.hold_above,
        };
    }

    /// Runs after each poll. `requested` is the decision of the program's own controller, which takes precedence.
    pub fn step(&mut self, fd: i32, state: &State<'_>, requested: Option<Setting>, refusals: &dyn Refusals) {
        let wanted = requested.unwrap_or_else(|| self.decide(state));
        // A program's controller decides the whole setting; the built-in ones only report changes.
        if requested.is_some() || wanted.hold_above.is_some() {
            self.applied.hold_above = wanted.hold_above;
        }
        self.apply(fd, &wanted, refusals);
    }

    /// Returns the changes that the built-in controller wants after a poll.
    pub fn decide(&mut self, state: &State<'_>) -> Setting {
        match &mut self.builtin {
            Builtin::None => Setting::default(),
            Builtin::Lowat(lowat) => lowat.update(state),
            Builtin::Element(element) => element.update(state),
        }
    }

    /// Sets the socket's options.
    pub fn apply(&mut self, fd: i32, wanted: &Setting, refusals: &dyn Refusals) {
        if self.hands_off {
            return;
        }
        if wanted.piece_bytes.is_some() {
            self.applied.piece_bytes = wanted.piece_bytes;
        }
        let lowat = wanted.notsent_lowat.map(|bytes| self.lowat(fd, bytes));
        let buffer = wanted.send_buffer.map(|bytes| self.send_buffer(fd, bytes));
        for (option, outcome) in [(SocketOption::NotsentLowat, lowat), (SocketOption::SendBuffer, buffer)] {
            match outcome {
                Some(Outcome::Refused(why)) => refusals.refused(option, why),
                Some(Outcome::SetByProgram) => {
                    self.hands_off = true;
                    self.applied.piece_bytes = None;
                    refusals.set_by_program();
                }
                Some(Outcome::Applied) | None => {}
            }
        }
    }

    /// Returns the applied setting.
    pub fn setting(&self) -> Setting {
        self.applied
    }

    fn lowat(&mut self, fd: i32, bytes: u32) -> Outcome {
        if self.applied.notsent_lowat.unwrap_or(0) != sys::notsent_lowat(fd).map_or(u32::MAX, unlimited_is_unset) {
            return Outcome::SetByProgram;
        }
        match sys::set_notsent_lowat(fd, bytes) {
            Ok(()) => {
                self.applied.notsent_lowat = Some(bytes);
                Outcome::Applied
            }
            Err(why) => Outcome::Refused(why),
        }
    }

    fn send_buffer(&mut self, fd: i32, bytes: u32) -> Outcome {
        if self.applied.send_buffer.is_none() && sys::has_set_send_buffer(fd) {
            return Outcome::SetByProgram;
        }
        match sys::set_send_buffer(fd, bytes) {
            Ok(()) => {
                self.applied.send_buffer = Some(bytes);
                Outcome::Applied
            }
            Err(why) => Outcome::Refused(why),
        }
    }
}

/// Sets the congestion control of a newly found socket, if the configuration names one and it has another.
pub fn set_congestion(fd: i32, config: &RawConfig, refusals: &dyn Refusals) {
    if config.congestion != [0; 16]
        && sys::congestion(fd) != Some(config.congestion)
        && let Err(why) = sys::set_congestion(fd, &config.congestion)
    {
        refusals.refused(SocketOption::Congestion, why);
    }
}

impl Builtin {
    fn new(config: &RawConfig) -> Builtin {
        match config.controller {
            None => Builtin::None,
            Some(ControllerKind::Lowat) => Builtin::Lowat(Lowat::new(config.target_ns)),
            Some(ControllerKind::Element) => Builtin::Element(Element::new(config.target_ns, config.wireless)),
        }
    }
}

/// The kernel gives the greatest limit to connections that a socket of MPTCP has accepted, as those of Go servers are: it is
/// none.
fn unlimited_is_unset(bytes: u32) -> u32 {
    if bytes == u32::MAX { 0 } else { bytes }
}

enum Outcome {
    Applied,
    /// The program has set the option itself, so the socket is left alone from now on.
    SetByProgram,
    Refused(Errno),
}

#[cfg(test)]
mod tests {
    use std::{
        net::{TcpListener, TcpStream},
        os::fd::AsRawFd,
    };

    use dwell_engine::socket::Reading;

    use super::*;
    use crate::table::Config;

    fn wanted(lowat: u32, hold_above: Option<u64>) -> Option<Setting> {
        Some(Setting { notsent_lowat: Some(lowat), hold_above, ..Setting::default() })
    }

    #[test]
    fn what_another_process_has_set_is_not_the_programs() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let fd = stream.as_raw_fd();
        let config = RawConfig::new(&Config::default()).unwrap();
        let table = Writer::alone(&config).unwrap();
        let reading = Reading::default();
        let state = State { reading: &reading, delay: None, waiting_ns: None, average_ns: None, send_buffer: 0 };
        let hold = 1;
        let mut parent = Adjuster::new(&config);
        let mut child = parent.clone();
        let mut stranger = parent.clone();
        parent.step(fd, &state, wanted(5000, Some(hold)), &table);
        assert_eq!(sys::notsent_lowat(fd), Some(5000));
        assert_eq!(parent.setting().hold_above, Some(hold));
        parent.step(fd, &state, wanted(5000, None), &table);
        assert_eq!(parent.setting().hold_above, None, "it was taken back");
        stranger.step(fd, &state, wanted(6000, None), &table);
        assert_eq!(sys::notsent_lowat(fd), Some(5000), "it is another's");
        child.resume(parent.setting());
        child.step(fd, &state, wanted(6000, None), &table);
        assert_eq!(sys::notsent_lowat(fd), Some(6000));
        // SAFETY: no copy is in use.
        unsafe { table.release() };
    }

    #[test]
    fn a_connection_without_a_limit_is_not_the_programs() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let fd = stream.as_raw_fd();
        sys::set_notsent_lowat(fd, u32::MAX).unwrap();
        let mut adjuster = Adjuster::new(&RawConfig::new(&Config::default()).unwrap());
        let outcome = adjuster.lowat(fd, 5000);
        assert!(matches!(outcome, Outcome::Applied) && sys::notsent_lowat(fd) == Some(5000));
    }
}
