//! Where flows come from: the sockets of this host, a capture, or a store.

pub mod replay;
mod responses;
mod stored;

use std::path::Path;

use dwell_engine::{filter::Filter, measure::Protocol, top::SocketReading};
use dwell_records::Source;
use dwell_socket::{
    clock::monotonic_ns,
    outside::{self, Census},
};

pub use self::stored::StoredNames;
use self::{responses::Responses, stored::StoreFile};
use super::{Args, shown::Screenful};
use crate::{
    exit::{Exit, Failure},
    source::{clock, host_name},
};

/// Sources of flows, and what they have shown.
pub struct Sources {
    from: From,
    pub shown: Screenful,
    /// What is not watched, for people to read.
    pub notice: Option<String>,
}

enum From {
    /// The sockets of this host, and their packets where they are watched.
    Host(Census, Option<Box<Responses>>),
    /// A capture that was read: nothing changes any more.
    Capture,
    Store(StoreFile),
}

impl Sources {
    /// Opens those of this host.
    pub fn open(args: &Args, filter: Filter) -> Result<Sources, Failure> {
        let source = Source { clock: clock(), host: Some(host_name()), ..Source::default() };
        let census = Census::open().map_err(host_cannot)?;
        let (responses, notice) = match args.has_responses() {
            true => Responses::attach(args, &filter),
            false => (None, None),
        };
        let shown = Screenful::new(args.settings(), filter, &args.names, source)?;
        let mut sources = Sources { from: From::Host(census, responses.map(Box::new)), shown, notice };
        sources.find_processes()?;
        Ok(sources)
    }

    /// Shows the flows of a capture that was read.
    pub fn of_capture(shown: Screenful) -> Sources {
        Sources { from: From::Capture, shown, notice: None }
    }

    /// Opens a store, and shows its last interval.
    pub fn of_store(args: &Args, path: &Path, filter: Filter) -> Result<Sources, Failure> {
        let (file, shown) = StoreFile::open(args, path, filter)?;
        Ok(Sources { from: From::Store(file), shown, notice: None })
    }

    /// Finds the processes of the connections that are there.
    fn find_processes(&mut self) -> Result<(), Failure> {
        let (From::Host(census, _), shown) = (&mut self.from, &mut self.shown) else {
            return Ok(());
        };
        shown.names.begin_interval();
        census
            .poll(|polled| {
                let _ = shown.names.pid(polled.inode, &polled.ends);
                // One table has the names that are there by then.
                if shown.names.resolves() && shown.admits(&polled.ends, Protocol::TCP) {
                    shown.names.host(polled.ends.dst.address);
                }
            })
            .map_err(host_cannot)?;
        shown.names.search(monotonic_ns());
        Ok(())
    }

    /// Shows only flows of a filter, as [`Screenful::set_filter`].
    ///
    /// # Errors
    ///
    /// If the filter or the store cannot be read: a message for the user.
    pub fn set_filter(&mut self, text: &str) -> Result<(), String> {
        self.shown.set_filter(text)?;
        match &mut self.from {
            From::Store(file) => file
                .read_again(&mut self.shown)
                .map_err(|failure| failure.error.map_or_else(String::new, |error| error.to_string())),
            From::Host(..) | From::Capture => Ok(()),
        }
    }

    /// Reads the responses that are there, so that more have room; while the screen is frozen, nobody sees them.
    pub fn read_responses(&mut self, is_frozen: bool) -> Result<(), Failure> {
        if let From::Host(_, Some(responses)) = &mut self.from {
            responses.read(Some(&mut self.shown.table).filter(|_| !is_frozen))?;
        }
        Ok(())
    }

    /// Polls everything, and ends the interval; of a store, if it has another one.
    pub fn end_interval(&mut self) -> Result<(), Failure> {
        let shown = &mut self.shown;
        let (census, responses) = match &mut self.from {
            From::Host(census, responses) => (census, responses),
            From::Store(file) => return file.update(shown),
            From::Capture => return Ok(()),
        };
        shown.source.clock = clock();
        shown.names.begin_interval();
        shown.listening = census.listening_ports().map_err(host_cannot)?;
        census
            .poll(|polled| {
                if shown.admits(&polled.ends, Protocol::TCP) {
                    let pid = shown.names.pid(polled.inode, &polled.ends);
                    shown.table.socket(&SocketReading {
                        ends: polled.ends,
                        cookie: polled.cookie,
                        pid,
                        unit: pid.and_then(|pid| shown.units.of(&shown.names, pid, &polled.ends)),
                        reading: &polled.reading,
                    });
                }
            })
            .map_err(host_cannot)?;
        if let Some(responses) = responses {
            let lost = responses.end_interval(&mut shown.table)?;
            shown.losses = Vec::from_iter((lost > 0).then_some(("response_epochs_lost".into(), lost)));
        }
        let now_ns = monotonic_ns();
        shown.names.search(now_ns);
        shown.end_interval(now_ns);
        Ok(())
    }
}

fn host_cannot(error: outside::Error) -> Failure {
    Failure::new(Exit::Host, error)
}
