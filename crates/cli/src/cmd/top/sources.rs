//! Where flows come from: the sockets of this host, a capture, or a store.

use std::path::Path;

use dwell_engine::{
    filter::Filter,
    measure::Protocol,
    top::{Settings, SocketReading},
};
use dwell_records::Source;
use dwell_socket::{
    clock::monotonic_ns,
    outside::{self, Census},
};

use super::{Args, shown::Shown, stored::StoreFile};
use crate::{
    exit::{Exit, Failure},
    names::NamesArgs,
    source::{clock, host_name},
};

const TCP: Protocol = Protocol(6);

/// Sources of flows, and what they have shown.
pub struct Sources {
    from: From,
    pub shown: Shown,
}

enum From {
    /// The sockets of this host.
    Host(Census),
    /// A capture that was read: nothing changes any more.
    Capture,
    Store(StoreFile),
}

impl Sources {
    /// Opens the sources. Nothing is attached to the kernel.
    pub fn open(settings: Settings, filter: Filter, names: &NamesArgs) -> Result<Sources, Failure> {
        let source = Source { clock: clock(), host: Some(host_name()), ..Source::default() };
        let from = From::Host(Census::open().map_err(host_cannot)?);
        let mut sources = Sources { from, shown: Shown::new(settings, filter, names, source)? };
        sources.find_processes()?;
        Ok(sources)
    }

    /// Shows the flows of a capture that was read.
    pub fn of_capture(shown: Shown) -> Sources {
        Sources { from: From::Capture, shown }
    }

    /// Opens a store, and shows its last interval.
    pub fn of_store(args: &Args, path: &Path, filter: Filter) -> Result<Sources, Failure> {
        let (file, shown) = StoreFile::open(args, path, filter)?;
        Ok(Sources { from: From::Store(file), shown })
    }

    /// Finds the processes of the connections that are there.
    fn find_processes(&mut self) -> Result<(), Failure> {
        let (From::Host(census), shown) = (&mut self.from, &mut self.shown) else {
            return Ok(());
        };
        shown.names.begin_interval();
        census
            .poll(|polled| {
                let _ = shown.names.pid(polled.inode, &polled.ends);
                // One table has the names that are there by then.
                if shown.names.resolves() && shown.admits(&polled.ends, TCP) {
                    shown.names.host(polled.ends.dst.address);
                }
            })
            .map_err(host_cannot)?;
        shown.names.search(monotonic_ns());
        Ok(())
    }

    /// Shows only flows of a filter, as [`Shown::set_filter`].
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
            From::Host(_) | From::Capture => Ok(()),
        }
    }

    /// Polls everything, and ends the interval; of a store, if it has another one.
    pub fn end_interval(&mut self) -> Result<(), Failure> {
        let shown = &mut self.shown;
        let census = match &mut self.from {
            From::Host(census) => census,
            From::Store(file) => return file.update(shown),
            From::Capture => return Ok(()),
        };
        shown.source.clock = clock();
        shown.names.begin_interval();
        census
            .poll(|polled| {
                if shown.admits(&polled.ends, TCP) {
                    let pid = shown.names.pid(polled.inode, &polled.ends);
                    shown.table.socket(&SocketReading {
                        ends: polled.ends,
                        cookie: polled.cookie,
                        pid,
                        unit: pid.and_then(|pid| shown.units.of(&shown.names, pid)),
                        reading: &polled.reading,
                    });
                }
            })
            .map_err(host_cannot)?;
        let now_ns = monotonic_ns();
        shown.names.search(now_ns);
        shown.end_interval(now_ns);
        Ok(())
    }
}

fn host_cannot(error: outside::Error) -> Failure {
    Failure::new(Exit::Host, error)
}
