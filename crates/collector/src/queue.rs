//! The queue between the threads of agents and the thread that writes.

use std::{
    sync::{
        Arc,
        mpsc::{self, Receiver, RecvTimeoutError, SyncSender},
    },
    time::Duration,
};

use dwell_fleet::{Agent, Handler, wire::Batch};

use crate::clocks::{ClockSample, Clocks};

/// Jobs that may wait, among them batches of up to 8 MiB each on the wire; agents wait beyond.
const QUEUE: usize = 64;

/// What the writing thread is asked to do.
pub enum Job {
    /// An agent connected; answered with the number of its last stored batch.
    Hello(Agent, SyncSender<u64>),
    /// Store a batch; answered when it is on disk.
    Store(Agent, Batch, SyncSender<()>),
    /// An agent disconnected, and why.
    Disconnected(Agent, String),
    /// A clock was compared.
    Clock(ClockSample),
}

/// The end that agents use.
pub struct Front {
    jobs: SyncSender<Job>,
    clocks: Clocks,
}

/// The end of the writing thread.
pub struct Jobs(Receiver<Job>);

/// Both ends of a new queue.
pub fn queue(clocks: Clocks) -> (Arc<Front>, Jobs) {
    let (front, jobs) = mpsc::sync_channel(QUEUE);
    let front = Front { jobs: front, clocks };
    (Arc::new(front), Jobs(jobs))
}

impl Jobs {
    /// Waits for a job, and takes up to `most` that are there.
    pub fn next(&self, patience: Duration, most: usize) -> Result<Vec<Job>, RecvTimeoutError> {
        let first = self.0.recv_timeout(patience)?;
        let more = self.0.try_iter().take(most - 1);
        Ok(std::iter::once(first).chain(more).collect())
    }
}

const CLOSED: &str = "the collector is about to end";

impl Handler for Front {
    fn hello(&self, agent: &Agent) -> Result<u64, String> {
        let (answer, answered) = mpsc::sync_channel(1);
        let job = Job::Hello(agent.clone(), answer);
        let sent = self.jobs.send(job).map_err(|_| CLOSED);
        sent.and_then(|()| answered.recv().map_err(|_| CLOSED)).map_err(str::to_owned)
    }

    fn welcomed(&self, agent: &Agent) {
        let jobs = self.jobs.clone();
        self.clocks.watch(agent, move |sample| {
            // At the end nobody is left to write it.
            let _ = jobs.send(Job::Clock(sample));
        });
    }

    fn store(&self, agent: &Agent, batch: Batch) -> Result<(), String> {
        let (answer, answered) = mpsc::sync_channel(1);
        let job = Job::Store(agent.clone(), batch, answer);
        let sent = self.jobs.send(job).map_err(|_| CLOSED);
        sent.and_then(|()| answered.recv().map_err(|_| CLOSED)).map_err(str::to_owned)
    }

    fn disconnected(&self, agent: &Agent, reason: &str) {
        self.clocks.leave(agent);
        let _ = self.jobs.send(Job::Disconnected(agent.clone(), reason.to_owned()));
    }
}
