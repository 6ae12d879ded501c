//! Packets of a capture, one after the other.

use std::{
    borrow::Cow,
    collections::BTreeSet,
    io::{IsTerminal, stderr},
    path::Path,
};

use anyhow::anyhow;
use dwell_capture::{Error, LinkType, Packet, Reader};
use dwell_engine::{
    observe::{Observation, knows_link},
    rtt::{Counter, Counters},
};
use dwell_records::{Interfaces, Source, counted};
use indicatif::{ProgressBar, ProgressStyle};

use super::input::{Input, NoInput};
use crate::{
    exit::{Exit, Failure},
    stop::Stop,
};

/// Files from this size on show their progress.
const PROGRESS_BYTES: u64 = 8 << 20;
/// Interfaces that are called by name; those of later sections by number.
const MAX_NAMES: u32 = 65_536;
/// Packets between two steps of the progress bar.
const STRIDE: u64 = 4096;

/// A capture that is read.
pub struct Capture<'a> {
    path: &'a Path,
    input: Input,
    /// Of the last packet.
    interface: Option<u32>,
    unknown_links: BTreeSet<LinkType>,
}

impl<'a> Capture<'a> {
    /// Opens a file, a pipe, or with "-" standard input, as [`Input::open`].
    pub fn open(path: &'a Path, stop: &Stop, quiet: impl FnMut() -> bool + 'static) -> Result<Capture<'a>, NoInput> {
        Ok(Capture { path, input: Input::open(path, stop, quiet)?, interface: None, unknown_links: BTreeSet::new() })
    }

    /// Hands on each packet, and the packet of each change of interface first to
    /// `name`, until the capture ends, a signal comes, or `take` returns false.
    pub fn read(
        &mut self,
        stop: &Stop,
        mut name: impl FnMut(&mut dyn FnMut(&mut Source)),
        mut take: impl FnMut(&Observation<'_>) -> bool,
    ) -> Result<(), Error> {
        let progress = Progress(progress(&self.input.reader));
        let distinguishes_interfaces = self.input.reader.distinguishes_interfaces();
        while let Some(packet) = self.input.reader.next_packet()? {
            if !knows_link(packet.link.0) {
                self.unknown_links.insert(packet.link);
            }
            if self.interface.replace(packet.interface) != Some(packet.interface) {
                name(&mut |source| name_interface(source, &packet, distinguishes_interfaces));
            }
            let observation = Observation {
                time_ns: packet.time_ns,
                interface: packet.interface,
                link: packet.link.0,
                data: packet.data,
                wire_len: packet.wire_len,
            };
            if !take(&observation) {
                break;
            }
            if self.input.is_file && stop.is_asked() {
                self.input.cut();
                break;
            }
            if self.input.reader.packets().is_multiple_of(STRIDE) {
                progress.0.set_position(self.input.reader.position());
            }
        }
        Ok(())
    }

    /// What reading it came to, once its results are told.
    pub fn verdict(&self, read: Result<(), Error>, counters: &Counters) -> Result<Exit, Failure> {
        if self.input.is_cut() {
            return Err(interrupted(self.path, self.input.reader.packets()));
        }
        read?;
        if self.unknown_links.is_empty() {
            return Ok(Exit::Done);
        }
        let names: Vec<_> = self.unknown_links.iter().map(LinkType::to_string).collect();
        let skipped = counters.get(Counter::UnknownLink);
        let error = anyhow!(
            "{}: {skipped} of {} packets have a link type that is not known: {}; capture on \
             another interface, or convert it with a tool that knows it",
            name_of(self.path),
            counters.get(Counter::Packets),
            names.join(", ")
        );
        let all = skipped == counters.get(Counter::Packets);
        Err(Failure::new(if all { Exit::Usage } else { Exit::Incomplete }, error))
    }
}

/// The run was ended after so many packets.
pub fn interrupted(path: &Path, packets: u64) -> Failure {
    let error = anyhow!(
        "interrupted: the results are of the first {} of {}",
        counted(packets, "packet", "packets"),
        name_of(path)
    );
    Failure::new(Exit::Incomplete, error)
}

fn name_of(path: &Path) -> Cow<'_, str> {
    match path.as_os_str() == "-" {
        true => Cow::Borrowed("standard input"),
        false => path.to_string_lossy(),
    }
}

/// Classic pcap does not tell interfaces apart, unless each packet does.
fn name_interface(source: &mut Source, packet: &Packet<'_>, distinguishes_interfaces: bool) {
    match packet.interface_name {
        Some(name) if packet.interface < MAX_NAMES => {
            source.interfaces.insert(packet.interface, name);
        }
        None if !distinguishes_interfaces && packet.link != LinkType::LINUX_SLL2 => {
            source.interfaces = Interfaces::unknown();
        }
        _ => {}
    }
}

/// Removed from the terminal whatever ends the reading.
struct Progress(ProgressBar);

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

fn progress(reader: &Reader) -> ProgressBar {
    match reader.size() {
        Some(size) if size >= PROGRESS_BYTES && stderr().is_terminal() => {
            let style = "{bar:40} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left";
            let bar = ProgressBar::new(size);
            match ProgressStyle::with_template(style) {
                Ok(style) => bar.with_style(style),
                Err(_) => bar,
            }
        }
        _ => ProgressBar::hidden(),
    }
}
