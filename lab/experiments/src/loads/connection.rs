//! One connection of a load: what it may send, what it waits for, and what it notes.

use std::{
    collections::VecDeque,
    io::{ErrorKind, Read},
    net::{SocketAddr, TcpStream},
    os::fd::AsRawFd,
};

use dwell_socket::clock::monotonic_ns;
use dwell_testbed::{Error, Result};
use nix::{
    errno::Errno,
    sys::socket::{MsgFlags, send},
};

use super::{
    Task,
    agenda::Agenda,
    truth::{Flow, Record},
};

pub(super) struct Connection {
    pub(super) stream: TcpStream,
    agenda: Agenda,
    outstanding: VecDeque<Outstanding>,
    /// Of requests that the socket did not take.
    unsent: Vec<u8>,
    records: Vec<Record>,
    completed: Vec<Option<u64>>,
}

struct Outstanding {
    task: usize,
    record: usize,
}

impl Connection {
    pub(super) fn new(stream: TcpStream, agenda: Agenda) -> Self {
        Self {
            stream,
            agenda,
            outstanding: VecDeque::new(),
            unsent: Vec::new(),
            records: Vec::new(),
            completed: Vec::new(),
        }
    }

    /// When the next round starts; None while one is under way.
    pub(super) fn next_round_ns(&self) -> Option<u64> {
        self.agenda.next_round_ns()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.outstanding.is_empty()
    }

    pub(super) fn wants_to_write(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Starts a round if it is time for one.
    pub(super) fn start_round(&mut self, now_ns: u64) -> Result<()> {
        if self.agenda.start_round(now_ns) {
            self.send_what_may_go()?;
        }
        Ok(())
    }

    /// Gives the number of the first request that went.
    fn send_what_may_go(&mut self) -> Result<Option<u64>> {
        let first = self.agenda.next_id();
        let mut together = Vec::new();
        // Requests of one write have one time.
        let mut sent_ns = monotonic_ns();
        while !self.wants_to_write()
            && let Some((task, id)) = self.agenda.next()
        {
            let asked = self.agenda.task(task);
            self.agenda.dialect.request(&asked, id, &mut together);
            if !self.agenda.manner.coalesce {
                sent_ns = monotonic_ns();
            }
            self.note(task, id, sent_ns);
            if !self.agenda.manner.coalesce {
                self.send(&together)?;
                together.clear();
            }
        }
        if !together.is_empty() {
            self.send(&together)?;
        }
        Ok((self.agenda.next_id() != first).then_some(first))
    }

    fn note(&mut self, task: usize, id: u64, sent_ns: u64) {
        let Task { class, bytes, .. } = self.agenda.task(task);
        self.outstanding.push_back(Outstanding { task, record: self.records.len() });
        self.records.push(Record { id, class, bytes, sent_ns, done_ns: 0, triggers: None });
    }

    /// The end of each write is the end of a packet: the kernel joins nothing to it that is written later, as it would
    /// where the congestion window holds packets back.
    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        match send(self.stream.as_raw_fd(), bytes, MsgFlags::MSG_EOR) {
            Ok(sent) => self.unsent.extend_from_slice(&bytes[sent..]),
            Err(Errno::EAGAIN) => self.unsent.extend_from_slice(bytes),
            Err(errno) => return Err(Error::os("send a request")(errno)),
        }
        Ok(())
    }

    /// The socket takes more. What was held back meanwhile goes too, unless nothing is to be sent any more.
    pub(super) fn resume(&mut self, ending: bool) -> Result<()> {
        let bytes = std::mem::take(&mut self.unsent);
        self.send(&bytes)?;
        if !ending && !self.wants_to_write() {
            self.send_what_may_go()?;
        }
        Ok(())
    }

    /// Reads answers, and sends what each lets go: not in the end, when only answers are waited for.
    pub(super) fn receive(&mut self, buffer: &mut [u8], ending: bool) -> Result<()> {
        let length = match self.stream.read(buffer) {
            Ok(0) => {
                return Err(Error::invalid("answer", "the server has closed the connection"));
            }
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(Error::io("read answers")(error)),
        };
        let done_ns = monotonic_ns();
        let mut completed = std::mem::take(&mut self.completed);
        self.agenda.dialect.answers(&buffer[..length], &mut completed)?;
        for &bytes in &completed {
            self.answered(bytes, done_ns, ending)?;
        }
        completed.clear();
        self.completed = completed;
        Ok(())
    }

    fn answered(&mut self, bytes: Option<u64>, done_ns: u64, ending: bool) -> Result<()> {
        let unasked = || Error::invalid("answer", "nothing was asked");
        let Outstanding { task, record } = self.outstanding.pop_front().ok_or_else(unasked)?;
        let asked = self.agenda.task(task).bytes;
        if let Some(bytes) = bytes.filter(|&bytes| bytes != asked) {
            let reason = format!("{bytes} bytes of {asked}");
            return Err(Error::invalid("answer", reason));
        }
        self.records[record].done_ns = done_ns;
        self.agenda.answered(task);
        if ending {
            return Ok(());
        }
        let mut first = self.send_what_may_go()?;
        if self.agenda.conclude_round(done_ns) {
            first = first.or(self.send_what_may_go()?);
        }
        self.records[record].triggers = first;
        Ok(())
    }

    /// What it did, once everything is answered.
    pub(super) fn into_flow(self, source: SocketAddr, destination: SocketAddr) -> Flow {
        Flow { source, destination, records: self.records }
    }
}
