//! What a controller wants, done to a socket, unless its program sets the same itself.
#![cfg_attr(test, allow(unsafe_code))]

use dwell_engine::socket::control::{Controller, Element, ElementConfig, Lowat, Setting, State};

use crate::{
    sys::{self, Errno},
    table::{ControllerKind, Count, Orders, Wish, Writer},
};

/// The controller of a socket, and what it has set.
#[derive(Debug, Clone)]
pub struct Adjuster {
    mind: Mind,
    /// The program sets what it would.
    hands_off: bool,
    done: Setting,
}

#[derive(Debug, Clone)]
enum Mind {
    None,
    Lowat(Lowat),
    Element(Element),
}

impl Adjuster {
    /// For a socket that was just found.
    pub fn new(fd: i32, orders: &Orders, table: &Writer) -> Adjuster {
        let mind = match orders.controller {
            None => Mind::None,
            Some(ControllerKind::Lowat) => Mind::Lowat(Lowat::new(orders.target_ns)),
            Some(ControllerKind::Element) => Mind::Element(Element::new(ElementConfig {
                threshold_ns: orders.target_ns,
                wireless: orders.wireless,
                ..ElementConfig::default()
            })),
        };
        if orders.congestion != [0; 16]
            && let Err(why) = sys::set_congestion(fd, &orders.congestion)
        {
            table.refused(Wish::Congestion, why);
        }
        Adjuster { mind, hands_off: false, done: Setting::default() }
    }

    /// Another process has set this of the socket: what is found of it is not the program's.
    pub fn resume(&mut self, before: Setting) {
        self.done = Setting {
            notsent_lowat: before.notsent_lowat.or(self.done.notsent_lowat),
            send_buffer: before.send_buffer.or(self.done.send_buffer),
            hold_above: self.done.hold_above,
        };
    }

    /// After a look. `asked` is what somebody else wants of it, who goes first.
    pub fn step(&mut self, fd: i32, state: &State<'_>, asked: Option<Setting>, table: &Writer) {
        let wanted = asked.unwrap_or_else(|| match &mut self.mind {
            Mind::None => Setting::default(),
            Mind::Lowat(lowat) => lowat.update(state),
            Mind::Element(element) => element.update(state),
        });
        // Who is asked says what is to be; the own controllers say what is to change.
        if asked.is_some() || wanted.hold_above.is_some() {
            self.done.hold_above = wanted.hold_above;
        }
        if self.hands_off {
            return;
        }
        let lowat = wanted.notsent_lowat.map(|bytes| self.lowat(fd, bytes));
        let buffer = wanted.send_buffer.map(|bytes| self.send_buffer(fd, bytes));
        for (wish, outcome) in [(Wish::NotsentLowat, lowat), (Wish::SendBuffer, buffer)] {
            match outcome {
                Some(Outcome::Refused(why)) => table.refused(wish, why),
                Some(Outcome::Programs) => {
                    self.hands_off = true;
                    table.count(Count::HandsOff);
                }
                Some(Outcome::Done) | None => {}
            }
        }
    }

    /// What is set.
    pub fn setting(&self) -> Setting {
        self.done
    }

    fn lowat(&mut self, fd: i32, bytes: u32) -> Outcome {
        if sys::notsent_lowat(fd) != Some(self.done.notsent_lowat.unwrap_or(0)) {
            return Outcome::Programs;
        }
        match sys::set_notsent_lowat(fd, bytes) {
            Ok(()) => {
                self.done.notsent_lowat = Some(bytes);
                Outcome::Done
            }
            Err(why) => Outcome::Refused(why),
        }
    }

    fn send_buffer(&mut self, fd: i32, bytes: u32) -> Outcome {
        if self.done.send_buffer.is_none() && sys::has_set_send_buffer(fd) {
            return Outcome::Programs;
        }
        match sys::set_send_buffer(fd, bytes) {
            Ok(()) => {
                self.done.send_buffer = Some(bytes);
                Outcome::Done
            }
            Err(why) => Outcome::Refused(why),
        }
    }
}

enum Outcome {
    Done,
    /// The program has set it: it is left alone from now on.
    Programs,
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
        let orders = Orders::new(&Config::default()).unwrap();
        let table = Writer::alone(&orders).unwrap();
        let reading = Reading::default();
        let state = State { reading: &reading, delay: None, waiting_ns: None };
        let hold = Hold { unsent_bytes: 1, times: 2, factor_permille: 3 };
        let mut parent = Adjuster::new(fd, &orders, &table);
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
        // SAFETY: nobody has a copy.
        unsafe { table.release() };
    }
}
