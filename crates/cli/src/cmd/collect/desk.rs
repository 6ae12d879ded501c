//! Between the threads of agents and the one that writes.

use std::{
    sync::{
        Arc,
        mpsc::{self, Receiver, RecvTimeoutError, SyncSender},
    },
    time::Duration,
};

use dwell_fleet::{Agent, Handler, wire::Batch};

use super::clocks::{Clocks, Sight};

/// Batches that wait to be stored, of up to 8 MiB each on the wire; agents wait beyond.
const QUEUE: usize = 64;

/// What is to be done.
pub enum Job {
    /// An agent comes: which batch is the last that is stored?
    Hello(Agent, SyncSender<u64>),
    /// A batch; answered when it is on the disk.
    Store(Agent, Batch, SyncSender<()>),
    /// An agent is gone, and why.
    Gone(Agent, String),
    /// A clock was looked at.
    Clock(Sight),
}

/// The side of agents.
pub struct Front {
    jobs: SyncSender<Job>,
    clocks: Clocks,
}

/// The side that writes.
pub struct Jobs(Receiver<Job>);

/// Both sides.
pub fn desk(clocks: Clocks) -> (Arc<Front>, Jobs) {
    let (front, jobs) = mpsc::sync_channel(QUEUE);
    let front = Front { jobs: front, clocks };
    (Arc::new(front), Jobs(jobs))
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

impl Handler for Front {
    fn hello(&self, agent: &Agent) -> Result<u64, String> {
        let (answer, answered) = mpsc::sync_channel(1);
        let job = Job::Hello(agent.clone(), answer);
        let sent = self.jobs.send(job).map_err(|_| CLOSED);
        sent.and_then(|()| answered.recv().map_err(|_| CLOSED)).map_err(str::to_owned)
    }

    fn welcomed(&self, agent: &Agent) {
        let jobs = self.jobs.clone();
        self.clocks.watch(agent, move |sight| {
            // Nobody is there to write it at the end.
            let _ = jobs.send(Job::Clock(sight));
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
        let _ = self.jobs.send(Job::Gone(agent.clone(), reason.to_owned()));
    }
}
