//! HTTP/1.1 on persistent connections: clients that fetch pages, and a server whose answers take time.

mod http;
mod limit;
mod plan;
mod server;
mod service;

use dwell_testbed::Result;
use http::Answers;
use plan::Plan;

use super::{Dialect, Mode, Task};

pub(crate) use limit::{Limit, follow};
pub use server::Discipline;
pub use service::ServiceModel;

pub(super) use server::{ServerConfig, serve};
pub(super) use service::Service;
pub(crate) use service::Utilisation;

/// One connection's side of the talk.
#[derive(Debug)]
pub(super) struct Web {
    plan: Plan,
    answers: Answers,
}

impl Web {
    pub(super) fn new(mode: Mode, depth: usize, seed: u64, connection: u64) -> Self {
        Self { plan: Plan::new(mode, depth, seed, connection), answers: Answers::default() }
    }
}

impl Dialect for Web {
    fn round(&mut self) -> Vec<Task> {
        self.plan.round()
    }

    fn request(&mut self, task: &Task, id: u64, out: &mut Vec<u8>) {
        http::write_request(task, id, out);
    }

    fn answers(&mut self, bytes: &[u8], done: &mut Vec<Option<u64>>) -> Result<()> {
        self.answers.feed(bytes, done)
    }
}
