//! Applies the settings of a controller to a socket, unless the program sets the same options itself.
#![cfg_attr(test, allow(unsafe_code))]

use dwell_engine::socket::control::{Controller, Element, ElementConfig, Lowat, Setting, State};

use crate::{
    sys::{self, Errno},
    table::{ControllerKind, Count, RawConfig, SocketOption, Writer},
};

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
    /// Creates the controller of a newly found socket, and sets the congestion control.
    pub fn new(fd: i32, config: &RawConfig, table: &Writer) -> Adjuster {
        let builtin = match config.controller {
            None => Builtin::None,
            Some(ControllerKind::Lowat) => Builtin::Lowat(Lowat::new(config.target_ns)),
            Some(ControllerKind::Element) => Builtin::Element(Element::new(ElementConfig {
                threshold_ns: config.target_ns,
                wireless: config.wireless,
                ..ElementConfig::default()
            })),
        };
        if config.congestion != [0; 16]
            && let Err(why) = sys::set_congestion(fd, &config.congestion)
        {
            table.refused(SocketOption::Congestion, why);
        }
        Adjuster { builtin, hands_off: false, applied: Setting::default() }
    }

    /// Continues after another process that set these options, so that they are not mistaken for the program's.
    pub fn resume(&mut self, before: Setting) {
        self.applied = Setting {
            notsent_lowat: before.notsent_lowat.or(self.applied.notsent_lowat),
            send_buffer: before.send_buffer.or(self.applied.send_buffer),
            hold_above: self.applied.hold_above,
        };
    }

    /// Runs after each poll. `requested` is the decision of the program's own controller, which takes precedence.
    pub fn step(&mut self, fd: i32, state: &State<'_>, requested: Option<Setting>, table: &Writer) {
        let wanted = requested.unwrap_or_else(|| match &mut self.builtin {
            Builtin::None => Setting::default(),
            Builtin::Lowat(lowat) => lowat.update(state),
            Builtin::Element(element) => element.update(state),
        });
        // A program's controller decides the whole setting; the built-in ones only report changes.
        if requested.is_some() || wanted.hold_above.is_some() {
            self.applied.hold_above = wanted.hold_above;
        }
        if self.hands_off {
            return;
        }
        let lowat = wanted.notsent_lowat.map(|bytes| self.lowat(fd, bytes));
        let buffer = wanted.send_buffer.map(|bytes| self.send_buffer(fd, bytes));
        for (option, outcome) in [(SocketOption::NotsentLowat, lowat), (SocketOption::SendBuffer, buffer)] {
            match outcome {
                Some(Outcome::Refused(why)) => table.refused(option, why),
                Some(Outcome::SetByProgram) => {
                    self.hands_off = true;
                    table.count(Count::HandsOff);
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
        if sys::notsent_lowat(fd) != Some(self.applied.notsent_lowat.unwrap_or(0)) {
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

    use dwell_engine::socket::{Reading, control::Hold};

    use super::*;
    use crate::table::Config;

    fn wanted(lowat: u32, hold_above: Option<Hold>) -> Option<Setting> {
        Some(Setting { notsent_lowat: Some(lowat), send_buffer: None, hold_above })
    }

    #[test]
    fn what_another_process_has_set_is_not_the_programs() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let fd = stream.as_raw_fd();
        let config = RawConfig::new(&Config::default()).unwrap();
        let table = Writer::alone(&config).unwrap();
        let reading = Reading::default();
        let state = State { reading: &reading, delay: None, waiting_ns: None };
        let hold = Hold { unsent_bytes: 1, times: 2, factor_permille: 3 };
        let mut parent = Adjuster::new(fd, &config, &table);
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
}
