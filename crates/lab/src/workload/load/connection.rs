//! One connection of a load: what it may send, what it waits for, and what it notes.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, send};

use super::pace::Pace;
use super::truth::{Flow, Record, monotonic_ns};
use super::{Dialect, Task};
use crate::{Error, Result};

/// How all connections of a load behave.
#[derive(Debug, Clone, Copy)]
pub(super) struct Manner {
    /// Requests that may be outstanding.
    pub(super) depth: usize,
    /// A round follows the round before it without waiting for its last answers.
    pub(super) endless: bool,
    /// Requests that may go at the same time go in one write.
    pub(super) coalesce: bool,
    /// Between the numbers of two requests of one connection.
    pub(super) stride: u64,
}

pub(super) struct Connection {
    pub(super) stream: TcpStream,
    dialect: Box<dyn Dialect>,
    manner: Manner,
    pace: Pace,
    next_id: u64,
    /// The next round, which has its time in the schedule.
    coming: Vec<Task>,
    /// Of the round that is under way.
    tasks: Vec<Task>,
    /// Tasks that may be sent as soon as fewer than the depth are outstanding.
    may_go: VecDeque<usize>,
    unanswered: usize,
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
    pub(super) fn new(
        stream: TcpStream,
        dialect: Box<dyn Dialect>,
        manner: Manner,
        pace: Pace,
        first_id: u64,
    ) -> Self {
        let mut connection = Self {
            stream,
            dialect,
            manner,
            pace,
            next_id: first_id,
            coming: Vec::new(),
            tasks: Vec::new(),
            may_go: VecDeque::new(),
            unanswered: 0,
            outstanding: VecDeque::new(),
            unsent: Vec::new(),
            records: Vec::new(),
            completed: Vec::new(),
        };
        connection.draw_round();
        connection
    }

    /// When the next round starts; None while one is under way.
    pub(super) fn next_round_ns(&self) -> Option<u64> {
        (self.unanswered == 0).then(|| self.pace.next_ns())
    }

    pub(super) fn is_idle(&self) -> bool {
        self.outstanding.is_empty()
    }

    pub(super) fn wants_to_write(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Starts a round if it is time for one, and gives the number of the first request sent.
    pub(super) fn start_round(&mut self, now_ns: u64) -> Result<Option<u64>> {
        if self.unanswered > 0 || self.pace.next_ns() > now_ns {
            return Ok(None);
        }
        self.tasks.clear();
        self.begin_round();
        self.send_what_may_go()
    }

    fn draw_round(&mut self) {
        self.coming = self.dialect.round();
        self.pace.schedule(self.coming.len());
    }

    fn begin_round(&mut self) {
        let first = self.tasks.len();
        for (n, task) in (first..).zip(&mut self.coming) {
            task.parent = task.parent.map(|parent| first + parent);
            if task.parent.is_none() {
                self.may_go.push_back(n);
            }
        }
        self.unanswered += self.coming.len();
        self.tasks.append(&mut self.coming);
        self.draw_round();
    }

    /// Gives the number of the first request that went.
    fn send_what_may_go(&mut self) -> Result<Option<u64>> {
        let first = self.next_id;
        let mut together = Vec::new();
        // Requests of one write have one time.
        let mut sent_ns = monotonic_ns();
        while self.outstanding.len() < self.manner.depth && !self.wants_to_write() {
            if self.may_go.is_empty() && self.manner.endless {
                self.begin_round();
            }
            let Some(task) = self.may_go.pop_front() else {
                break;
            };
            let id = self.next_id;
            self.next_id += self.manner.stride;
            self.dialect.request(&self.tasks[task], id, &mut together);
            if !self.manner.coalesce {
                sent_ns = monotonic_ns();
            }
            self.note(task, id, sent_ns);
            if !self.manner.coalesce {
                self.send(&together)?;
                together.clear();
            }
        }
        if !together.is_empty() {
            self.send(&together)?;
        }
        Ok((self.next_id != first).then_some(first))
    }

    fn note(&mut self, task: usize, id: u64, sent_ns: u64) {
        let Task { class, bytes, .. } = self.tasks[task];
        self.outstanding.push_back(Outstanding {
            task,
            record: self.records.len(),
        });
        self.records.push(Record {
            id,
            class,
            bytes,
            sent_ns,
            done_ns: 0,
            triggers: None,
        });
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
                return Err(Error::invalid(
                    "answer",
                    "the server has closed the connection",
                ));
            }
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(Error::io("read answers")(error)),
        };
        let done_ns = monotonic_ns();
        let mut completed = std::mem::take(&mut self.completed);
        self.dialect.answers(&buffer[..length], &mut completed)?;
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
        let asked = self.tasks[task].bytes;
        if let Some(bytes) = bytes.filter(|&bytes| bytes != asked) {
            let reason = format!("{bytes} bytes of {asked}");
            return Err(Error::invalid("answer", reason));
        }
        self.records[record].done_ns = done_ns;
        self.unanswered -= 1;
        self.may_go.extend(children(&self.tasks, task));
        if ending {
            return Ok(());
        }
        let mut first = self.send_what_may_go()?;
        if self.unanswered == 0 {
            self.pace.finished(done_ns);
            first = first.or(self.start_round(done_ns)?);
        }
        self.records[record].triggers = first;
        Ok(())
    }

    /// What it did, once everything is answered.
    pub(super) fn into_flow(self, source: SocketAddr, destination: SocketAddr) -> Flow {
        Flow {
            source,
            destination,
            records: self.records,
        }
    }
}

fn children(tasks: &[Task], parent: usize) -> impl Iterator<Item = usize> {
    // Where the last task has no parent, none has: an endless stretch, which would be long to search.
    let is_tree = tasks.last().is_some_and(|last| last.parent.is_some());
    let searched = if is_tree {
        parent + 1..tasks.len()
    } else {
        0..0
    };
    searched.filter(move |&n| tasks[n].parent == Some(parent))
}
