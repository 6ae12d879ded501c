//! What the balancers of the same VIPs share through a store: who is there, what each has seen, and the set of weights that
//! all build their tables from. A thread speaks to the store, so that the control loop never waits for it.

mod etcd;
pub mod exchange;
#[cfg(test)]
mod fake;
pub mod member;
pub mod quic;
pub mod report;
pub mod set;
pub mod store;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    io,
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread,
    time::{Duration, Instant},
};

use dwell_metrics::tls::NoAuthorities;
use dwell_socket::{clock::realtime_ns, privilege};

use self::{
    etcd::Etcd,
    member::{Identity, LEASE, Member, News},
    quic::QuicReport,
    report::Report,
    set::{VipWeights, WeightSet},
    store::{Store, StoreError},
};
use crate::config::SharedSettings;

/// The time between two polls of the store.
const POLL: Duration = Duration::from_millis(200);
/// How long the start waits for the store where it can go on without, and where it cannot.
const FIRST: [Duration; 2] = [Duration::from_secs(3), Duration::from_secs(20)];
/// How long the end waits for the thread to leave.
const LAST: Duration = Duration::from_secs(1);

/// Why balancers cannot be joined.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// No certificate of an authority was found.
    #[error("cannot check the certificates of the store of [shared]: {0}; or name a file in shared.ca")]
    Authorities(#[from] NoAuthorities),
    /// No thread could be started.
    #[error("cannot start a thread: {0}; does this service have a limit on tasks?")]
    Thread(#[from] io::Error),
}

/// The link to the other balancers. Dropping it leaves them.
#[derive(Debug)]
pub struct Shared {
    commands: Option<Sender<Command>>,
    news: Receiver<News>,
    /// Disconnected once the thread has ended.
    ended: Receiver<()>,
}

/// The seed of all balancers and the sets that the store kept at the start, the newest first; or why the store is away.
pub type Begun = Result<(u64, Vec<WeightSet>), StoreError>;

enum Command {
    Report(Report),
    Quic(QuicReport),
    Propose(BTreeMap<String, VipWeights>),
}

impl Shared {
    /// Asks the store for seed and weights, for a few seconds, and starts a thread that takes part. `offered` becomes the
    /// seed if there is none, `interval` is the time between two reports. With `has_to_answer`, it waits longer.
    ///
    /// # Errors
    ///
    /// If this host has no authorities to check certificates by, or no thread can be started.
    pub fn join(
        settings: &SharedSettings,
        interval: Duration,
        offered: u64,
        has_to_answer: bool,
    ) -> Result<(Shared, Begun), JoinError> {
        let identity = Identity {
            prefix: settings.prefix.clone(),
            name: settings.name.clone(),
            instance: realtime_ns() ^ u64::from(std::process::id()) << 32,
            silence: LEASE + 3 * interval,
        };
        let mut member = Member::new(Etcd::new(settings)?, identity, Instant::now());
        let deadline = Instant::now() + FIRST[usize::from(has_to_answer)];
        let begun = loop {
            match member.begin(offered) {
                Err(StoreError::Away(_)) if Instant::now() + POLL < deadline => thread::sleep(POLL),
                begun => break begun,
            }
        };
        let (commands, received) = channel();
        let (sender, news) = channel();
        let (ending, ended) = channel::<()>();
        thread::Builder::new().name("shared".into()).spawn(move || {
            // It speaks to the network.
            let _ = privilege::keep(&[]);
            run(&mut member, &received, &sender);
            drop(ending);
        })?;
        Ok((Shared { commands: Some(commands), news, ended }, begun))
    }

    /// Tells the others what this balancer has seen.
    pub fn report(&self, report: Report) {
        self.send(Command::Report(report));
    }

    /// Tells the others what this balancer knows of QUIC servers.
    pub fn report_quic(&self, report: QuicReport) {
        self.send(Command::Quic(report));
    }

    /// Proposes weights, which become a set if this balancer leads.
    pub fn propose(&self, vips: BTreeMap<String, VipWeights>) {
        self.send(Command::Propose(vips));
    }

    /// Returns what is new, if anything is.
    pub fn news(&self) -> Option<News> {
        self.news.try_recv().ok()
    }

    fn send(&self, command: Command) {
        if let Some(commands) = &self.commands {
            // The thread ends with this.
            let _ = commands.send(command);
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.commands = None;
        // A thread that waits for a store that does not answer ends with the process.
        let _ = self.ended.recv_timeout(LAST);
    }
}

fn run<S: Store>(member: &mut Member<S>, commands: &Receiver<Command>, news: &Sender<News>) {
    let mut last = None;
    loop {
        let mut next = commands.recv_timeout(POLL);
        while let Ok(command) = next {
            match command {
                Command::Report(report) => member.report(&report, Instant::now()),
                Command::Quic(report) => member.report_quic(&report),
                Command::Propose(vips) => member.propose(vips),
            }
            next = commands.try_recv().map_err(|_| RecvTimeoutError::Timeout);
        }
        if next.is_err_and(|error| error == RecvTimeoutError::Disconnected) {
            return member.leave();
        }
        let found = member.poll(Instant::now(), realtime_ns() / 1_000_000);
        let has_news = found.set.is_some() || found.reports.is_some() || found.quic.is_some();
        let is_new = last.as_ref() != Some(&found.situation) || has_news;
        last = Some(found.situation.clone());
        if is_new && news.send(found).is_err() {
            return member.leave();
        }
    }
}
