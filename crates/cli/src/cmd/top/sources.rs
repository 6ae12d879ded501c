//! Where flows come from: the sockets of this host, or a capture.

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

use super::shown::Shown;
use crate::{
    exit::{Exit, Failure},
    names::NamesArgs,
    source::{clock, host_name},
};

const TCP: Protocol = Protocol(6);

/// Sources of flows, and what they have shown.
pub struct Sources {
    /// `None` where nothing changes any more.
    census: Option<Census>,
    pub shown: Shown,
}

impl Sources {
    /// Opens the sources. Nothing is attached to the kernel.
    pub fn open(settings: Settings, filter: Filter, names: &NamesArgs) -> Result<Sources, Failure> {
        let source = Source { clock: clock(), host: Some(host_name()), ..Source::default() };
        let census = Some(Census::open().map_err(host_cannot)?);
        let mut sources = Sources { census, shown: Shown::new(settings, filter, names, source)? };
        sources.find_processes()?;
        Ok(sources)
    }

    /// Shows the flows of a capture that was read.
    pub fn of_capture(shown: Shown) -> Sources {
        Sources { census: None, shown }
    }

    /// Finds the processes of the connections that are there.
    fn find_processes(&mut self) -> Result<(), Failure> {
        let (Some(census), names) = (&mut self.census, &mut self.shown.names) else {
            return Ok(());
        };
        names.begin_interval();
        census
            .poll(|polled| {
                let _ = names.pid(polled.inode);
                // One table has the names that are there by then.
                if names.resolves() {
                    names.host(polled.ends.dst.address);
                }
            })
            .map_err(host_cannot)?;
        names.search(monotonic_ns());
        Ok(())
    }

    /// Polls everything, and ends the interval.
    pub fn end_interval(&mut self) -> Result<(), Failure> {
        let (Some(census), shown) = (&mut self.census, &mut self.shown) else {
            return Ok(());
        };
        shown.source.clock = clock();
        shown.names.begin_interval();
        census
            .poll(|polled| {
                if shown.admits(&polled.ends, TCP) {
                    let pid = shown.names.pid(polled.inode);
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
