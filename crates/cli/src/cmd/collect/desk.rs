//! Between the threads of agents and the one that writes.

use std::{
    sync::{
        Arc,
        mpsc::{self, Receiver, RecvTimeoutError, SyncSender},
    },
    time::Duration,
};

use dwell_fleet::{Agent, Desk, wire::Batch};

/// Batches that wait to be stored; agents wait beyond.
const QUEUE: usize = 1024;

/// What is to be done.
pub enum Job {
    /// An agent comes: which batch is the last that is stored?
    Hello(Agent, SyncSender<u64>),
    /// A batch; answered when it is on the disk.
    Store(Agent, Batch, SyncSender<()>),
    /// An agent is gone, and why.
    Gone(Agent, String),
}

/// The side of agents.
pub struct Front(SyncSender<Job>);

/// The side that writes.
pub struct Jobs(Receiver<Job>);

/// Both sides.
pub fn desk() -> (Arc<Front>, Jobs) {
    let (front, jobs) = mpsc::sync_channel(QUEUE);
    (Arc::new(Front(front)), Jobs(jobs))
}

impl Jobs {
    /// Waits for a job, and takes all that are there, up to `most`.
    pub fn next(&self, patience: Duration, most: usize) -> Result<Vec<Job>, RecvTimeoutError> {
        let first = self.0.recv_timeout(patience)?;
        let more = self.0.try_iter().take(most - 1);
        Ok(std::iter::once(first).chain(more).collect())
    }
}

const CLOSED: &str = "the collector is about to end";

impl Desk for Front {
    fn hello(&self, agent: &Agent) -> Result<u64, String> {
        let (answer, answered) = mpsc::sync_channel(1);
        let job = Job::Hello(agent.clone(), answer);
        let sent = self.0.send(job).map_err(|_| CLOSED);
        sent.and_then(|()| answered.recv().map_err(|_| CLOSED))
            .map_err(str::to_owned)
    }

    fn store(&self, agent: &Agent, batch: Batch) -> Result<(), String> {
        let (answer, answered) = mpsc::sync_channel(1);
        let job = Job::Store(agent.clone(), batch, answer);
        let sent = self.0.send(job).map_err(|_| CLOSED);
        sent.and_then(|()| answered.recv().map_err(|_| CLOSED))
            .map_err(str::to_owned)
    }

    fn gone(&self, agent: &Agent, why: &str) {
        let _ = self.0.send(Job::Gone(agent.clone(), why.to_owned()));
    }
}
