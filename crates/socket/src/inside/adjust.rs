//! What a controller wants, done to a socket, unless its program sets the same itself.

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
    /// For a socket that was just found. `before` is what dwell has set of it in another process.
    pub fn new(fd: i32, orders: &Orders, before: Setting, table: &Writer) -> Adjuster {
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
        Adjuster {
            mind,
            hands_off: false,
            done: Setting {
                hold_above: None,
                ..before
            },
        }
    }

    /// After a look. `asked` is what somebody else wants of it, who goes first.
    pub fn step(&mut self, fd: i32, state: &State<'_>, asked: Option<Setting>, table: &Writer) {
        let wanted = asked.unwrap_or_else(|| match &mut self.mind {
            Mind::None => Setting::default(),
            Mind::Lowat(lowat) => lowat.update(state),
            Mind::Element(element) => element.update(state),
        });
        if wanted.hold_above.is_some() {
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
