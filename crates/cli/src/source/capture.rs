//! The packets of a capture, one after the other.

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

/// Size from which a file shows its progress.
const PROGRESS_BYTES: u64 = 8 << 20;
/// Interfaces below this number are shown by name, those of later sections by number.
const MAX_NAMES: u32 = 65_536;
/// Packets between two steps of the progress bar.
const STRIDE: u64 = 4096;

/// An open capture.
pub struct Capture<'a> {
    path: &'a Path,
    input: Input,
    /// The interface of the last packet.
    interface: Option<u32>,
    unknown_links: BTreeSet<LinkType>,
}

impl<'a> Capture<'a> {
    /// Opens a file, a pipe, or with "-" standard input, as [`Input::open`].
    pub fn open(path: &'a Path, stop: &Stop, on_idle: impl FnMut() -> bool + 'static) -> Result<Capture<'a>, NoInput> {
        Ok(Capture { path, input: Input::open(path, stop, on_idle)?, interface: None, unknown_links: BTreeSet::new() })
    }

    /// Passes each packet to `observe` until the capture ends, a signal arrives, or `observe` returns false. When the
    /// interface changes, `change_source` is called first with the change to make.
    pub fn read(
        &mut self,
        stop: &Stop,
        mut change_source: impl FnMut(&mut dyn FnMut(&mut Source)),
        mut observe: impl FnMut(&Observation<'_>) -> bool,
    ) -> Result<(), Error> {
        let progress = Progress(progress(&self.input.reader));
        let distinguishes_interfaces = self.input.reader.distinguishes_interfaces();
        while let Some(packet) = self.input.reader.next_packet()? {
            if !knows_link(packet.link.0) {
                self.unknown_links.insert(packet.link);
            }
            if self.interface.replace(packet.interface) != Some(packet.interface) {
                change_source(&mut |source| name_interface(source, &packet, distinguishes_interfaces));
            }
            let observation = Observation {
                time_ns: packet.time_ns,
                interface: packet.interface,
                link: packet.link.0,
                data: packet.data,
                wire_len: packet.wire_len,
            };
            if !observe(&observation) {
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

    /// Returns the outcome of the replay, once its results are written.
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
            "{}: {skipped} of {} packets have an unknown link type: {}; capture on \
             another interface, or convert it with a tool that knows it",
            name_of(self.path),
            counters.get(Counter::Packets),
            names.join(", ")
        );
        let all = skipped == counters.get(Counter::Packets);
        Err(Failure::new(if all { Exit::Usage } else { Exit::Incomplete }, error))
    }
}

/// Fails because a signal ended the replay after `packets` packets.
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

/// Updates the source for a packet's interface. Classic pcap does not record interfaces, unless each packet does.
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

/// A progress bar that is removed from the terminal whatever ends the replay.
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
