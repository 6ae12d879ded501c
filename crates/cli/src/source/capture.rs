//! The packets of a capture, one after the other.

use std::{borrow::Cow, collections::BTreeSet, io::Write, path::Path};

use anyhow::anyhow;
use dwell_app::progress::Bar;
use dwell_capture::{Error, LinkType, Packet, Reader, Upcoming};
use dwell_engine::{
    filter::Filter,
    missing::Missing,
    observe::{Observation, knows_link},
    rtt::{Counter, Counters},
};
use dwell_records::{Interfaces, Source, counted};

use super::{
    input::{Input, NoInput},
    nothing::{Wanted, why_nothing},
    repeats::Repeats,
};
use crate::{
    exit::{Exit, Failure},
    log::log,
    names::Namer,
    stop::Stop,
};

/// Size from which a file shows its progress.
const PROGRESS_BYTES: u64 = 8 << 20;
/// Interfaces below this number are shown by name, those of later sections by number.
const MAX_NAMES: u32 = 65_536;
/// More than one packet of so many that is cut within its headers is a fault of the capture.
const MOST_CUT: u64 = 10;
/// More than one segment of so many that is missing is one, too.
const MOST_MISSING: u64 = 10;
/// Times of most captures are so exact: packets that are earlier by less may be in order.
const RESOLUTION_NS: u64 = 1_000;
/// Packets between two steps of the progress bar.
const STRIDE: u64 = 4096;
/// Packets between two looks whether the run is to end. Each reads a clock, which takes a fifth of what a packet takes.
const LOOK_STRIDE: u64 = 64;

/// The remedy where segments are missing.
const MORE_OF_ALL: &str = "capture with less load or a larger buffer (tcpdump -B 65536 -s 128), where all packets pass";
/// The remedy where headers are cut.
pub const MORE_OF_EACH: &str = "capture more of each packet (tcpdump -s 128)";

/// What a capture lacks, by the names of counters.
pub type CaptureLosses = Vec<(Cow<'static, str>, u64)>;

const REPEATED: &str = "capture_repeated";
const DISORDERED: &str = "capture_disordered";
const MISSING: &str = "capture_missing";
const CUT_HEADERS: &str = "capture_cut_headers";

/// Writes how many packets a capture has more than once, and how many out of order, to follow the counters of a run.
pub fn left_out(losses: &[(Cow<'static, str>, u64)]) -> String {
    let names = [(REPEATED, "repeated"), (DISORDERED, "out of order"), (MISSING, "missing")];
    let named = names.into_iter().filter_map(|(counter, name)| {
        let (_, count) = losses.iter().find(|(found, _)| found == counter)?;
        Some(format!(", {count} {name}"))
    });
    named.collect()
}

/// What takes the packets of a capture.
pub trait Observer {
    /// How many packets are shown before their turn.
    const AHEAD: u64 = 0;

    /// Is shown a packet that is observed later under this number, unless it is left out, and without its time.
    fn prepare(&mut self, _number: u64, _packet: &Observation<'_>) {}

    /// Takes a packet with a time, and appends the comments that it has in the copy. Returns false to end.
    fn observe(&mut self, number: u64, packet: &Observation<'_>, comments: &mut Vec<String>) -> bool;
}

/// Takes packets one by one.
struct OneByOne<F>(F);

impl<F: FnMut(&Observation<'_>) -> bool> Observer for OneByOne<F> {
    fn observe(&mut self, _number: u64, packet: &Observation<'_>, _comments: &mut Vec<String>) -> bool {
        (self.0)(packet)
    }
}

/// An open capture.
pub struct Capture<'a> {
    path: &'a Path,
    input: Input,
    /// The interface of the last packet.
    interface: Option<u32>,
    unknown_links: BTreeSet<LinkType>,
    /// Packets of which the capture records no time.
    untimed: u64,
    /// Packets of which the capture has only the beginning.
    shortened: u64,
    /// The time of the latest packet of each interface, and packets that are earlier.
    latest_ns: Vec<u64>,
    disordered: u64,
    /// Finds packets that passed before, which are left out.
    repeats: Repeats,
    /// Counts segments that the capture lacks, where that is asked for.
    missing: Option<Missing>,
    /// Learns names from the packets.
    names: Namer,
}

impl<'a> Capture<'a> {
    /// Opens a file, a pipe, or with "-" standard input, as [`Input::open`].
    pub fn open(path: &'a Path, stop: &Stop, on_idle: impl FnMut() -> bool + 'static) -> Result<Capture<'a>, NoInput> {
        Capture::open_copying(path, stop, None, on_idle)
    }

    /// Opens a capture as [`Capture::open`], and copies it to `copy`, if there is one, while it is read.
    pub fn open_copying(
        path: &'a Path,
        stop: &Stop,
        copy: Option<Box<dyn Write>>,
        on_idle: impl FnMut() -> bool + 'static,
    ) -> Result<Capture<'a>, NoInput> {
        let input = Input::open(path, stop, copy, on_idle)?;
        Ok(Capture {
            path,
            input,
            interface: None,
            unknown_links: BTreeSet::new(),
            untimed: 0,
            shortened: 0,
            latest_ns: Vec::new(),
            disordered: 0,
            repeats: Repeats::default(),
            missing: None,
            names: Namer::default(),
        })
    }

    /// Has names learnt from the packets, each before it is passed on.
    pub fn set_names(&mut self, names: Namer) {
        self.names = names;
    }

    /// Has segments counted that the capture lacks, of the flows that a filter admits.
    pub fn count_missing(&mut self, filter: Filter) {
        self.missing = Some(Missing::new(filter));
    }

    /// Passes each packet with a time to `observe` until the capture ends, a signal arrives, or `observe` returns false. When the
    /// interface changes, `change_source` is called first with the change to make.
    pub fn read(
        &mut self,
        stop: &Stop,
        change_source: impl FnMut(&mut dyn FnMut(&mut Source)),
        observe: impl FnMut(&Observation<'_>) -> bool,
    ) -> Result<(), Error> {
        self.read_to(stop, change_source, &mut OneByOne(observe))
    }

    /// Reads as [`Capture::read`]. The copy is complete at the end, as far as the capture was read.
    pub fn read_to(
        &mut self,
        stop: &Stop,
        change_source: impl FnMut(&mut dyn FnMut(&mut Source)),
        observer: &mut impl Observer,
    ) -> Result<(), Error> {
        let read = self.read_packets(stop, change_source, observer);
        let copied = self.input.reader.finish_copy();
        read.and(copied)
    }

    fn read_packets<O: Observer>(
        &mut self,
        stop: &Stop,
        mut change_source: impl FnMut(&mut dyn FnMut(&mut Source)),
        observer: &mut O,
    ) -> Result<(), Error> {
        let progress = progress(&self.input.reader);
        let distinguishes_interfaces = self.input.reader.distinguishes_interfaces();
        let (unknown_links, interface, names) = (&mut self.unknown_links, &mut self.interface, &self.names);
        let (shortened, repeats, missing) = (&mut self.shortened, &mut self.repeats, &mut self.missing);
        let (latest_ns, disordered) = (&mut self.latest_ns, &mut self.disordered);
        let mut comments = Vec::new();
        let mut pass = |number: u64, packet: &Packet<'_>, observer: &mut O, comments: &mut Vec<String>| {
            if !knows_link(packet.link.0) {
                unknown_links.insert(packet.link);
            }
            *shortened += u64::from(packet.data.len() < packet.wire_len as usize);
            if packet.interface < MAX_NAMES {
                let index = packet.interface as usize;
                if index >= latest_ns.len() {
                    latest_ns.resize(index + 1, 0);
                }
                let latest_ns = &mut latest_ns[index];
                *disordered += u64::from(packet.time_ns.saturating_add(RESOLUTION_NS) < *latest_ns);
                *latest_ns = packet.time_ns.max(*latest_ns);
            }
            if interface.replace(packet.interface) != Some(packet.interface) {
                change_source(&mut |source| name_interface(source, packet, distinguishes_interfaces));
            }
            let observation = Observation {
                time_ns: packet.time_ns,
                interface: packet.interface,
                link: packet.link.0,
                data: packet.data,
                wire_len: packet.wire_len,
            };
            if repeats.has(&observation) {
                return true;
            }
            names.observe(&observation);
            missing.iter_mut().for_each(|missing| missing.observe(&observation));
            observer.observe(number, &observation, comments)
        };
        loop {
            while let Some(packet) = self.input.reader.look_ahead(O::AHEAD) {
                observer.prepare(packet.number, &upcoming(&packet));
            }
            let number = self.input.reader.packets() + 1;
            let Some(packet) = self.input.reader.next_packet()? else { break };
            if !packet.is_timed {
                self.untimed += 1;
            } else if !pass(number, &packet, observer, &mut comments) {
                break;
            }
            comments.drain(..).for_each(|comment| self.input.reader.comment(comment));
            if self.input.is_file && number.is_multiple_of(LOOK_STRIDE) && stop.is_asked() {
                self.input.cut();
                break;
            }
            if number.is_multiple_of(STRIDE) {
                progress.advance_to(self.input.reader.position());
            }
        }
        Ok(())
    }

    /// Says why a capture that was read to its end gave nothing, if that is known.
    pub fn explain_nothing(&self, wanted: Wanted, counters: &Counters) {
        let one_way = self.missing.as_ref().and_then(Missing::one_way);
        if let Some(why) = why_nothing(wanted, self.path, counters, one_way) {
            log(format_args!("{}: {why}", name_of(self.path)));
        }
    }

    /// Returns the number of packets that the capture has more than once, but for their first. They do not count.
    pub fn repeated(&self) -> u64 {
        self.repeats.count()
    }

    /// Returns the number of packets that are earlier than one before them on their interface.
    pub fn disordered(&self) -> u64 {
        self.disordered
    }

    /// Returns what the capture lacks, with the names that counters of a status have.
    pub fn losses(&self, read: &Result<(), Error>, counters: &Counters) -> CaptureLosses {
        let is_cut_off = matches!(read, Err(error) if !matches!(error, Error::Copy { .. }));
        let losses = [
            ("capture_untimed", self.untimed),
            ("capture_shortened", self.shortened),
            (REPEATED, self.repeats.count()),
            (DISORDERED, self.disordered),
            (MISSING, self.missing.as_ref().map_or(0, Missing::count)),
            (CUT_HEADERS, self.cut_headers(counters).map_or(0, |(cut, _)| cut)),
            ("capture_cut_off", u64::from(is_cut_off)),
            ("capture_interrupted", u64::from(self.input.is_cut())),
            (Counter::UnknownLink.name(), counters.get(Counter::UnknownLink)),
            (Counter::Truncated.name(), counters.get(Counter::Truncated)),
        ];
        losses.into_iter().filter(|(_, count)| *count > 0).map(|(name, count)| (name.into(), count)).collect()
    }

    /// Returns the outcome of the replay, once its results are written.
    pub fn verdict(&self, read: Result<(), Error>, counters: &Counters) -> Result<Exit, Failure> {
        if self.input.is_cut() {
            return Err(interrupted(self.path, self.input.reader.packets()));
        }
        read?;
        let faults: Vec<_> = self.faults(counters).into_iter().map(|(what, remedy)| what + "; " + &remedy).collect();
        if faults.is_empty() {
            return Ok(Exit::Done);
        }
        let is_nothing = self.untimed + counters.get(Counter::UnknownLink) == self.input.reader.packets();
        let exit = if is_nothing { Exit::Usage } else { Exit::Incomplete };
        Err(Failure::new(exit, anyhow!("{}: {}", name_of(self.path), faults.join("; "))))
    }

    /// Whether most packets are cut within their headers, or passed at several places that the capture does not tell apart, so
    /// that it shows nothing that can be judged.
    pub fn is_unreadable(&self, counters: &Counters) -> bool {
        self.repeats.afar().is_some() || counters.get(Counter::Truncated) * 2 > self.input.reader.packets()
    }

    /// Returns the number of packets that are cut within their headers, and whether that is a fault of the capture.
    pub fn cut(&self, counters: &Counters) -> (u64, bool) {
        let cut = counters.get(Counter::Truncated);
        (cut, cut * MOST_CUT > self.input.reader.packets())
    }

    /// Returns the number of packets of which `response` has read a part of TCP's header, and of those that were looked at for that.
    /// `None` where such packets are not measured at all, as by `rtt`.
    fn cut_headers(&self, counters: &Counters) -> Option<(u64, u64)> {
        self.missing.as_ref().map(Missing::cut).filter(|_| counters.get(Counter::Truncated) == 0)
    }

    /// Returns why packets of a capture that was read to its end were not measured, or not rightly, each with the remedy.
    pub fn faults(&self, counters: &Counters) -> Vec<(String, String)> {
        let (untimed, unknown) = (self.untimed, counters.get(Counter::UnknownLink));
        let packets = self.input.reader.packets();
        let mut faults = Vec::new();
        if untimed > 0 {
            faults.push((
                format!(
                    "{untimed} of {packets} packets have no time (pcapng simple packet blocks) and were not measured"
                ),
                "capture again with a tool that records times, such as tcpdump".into(),
            ));
        }
        if !self.unknown_links.is_empty() {
            let names: Vec<_> = self.unknown_links.iter().map(LinkType::to_string).collect();
            faults.push((
                format!("{unknown} of {packets} packets have an unknown link type: {}", names.join(", ")),
                "capture on another interface, or convert it with a tool that knows it".into(),
            ));
        }
        if let (cut, true) = self.cut(counters) {
            faults.push((
                format!("{cut} of {packets} packets are cut within their headers and were not measured"),
                MORE_OF_EACH.into(),
            ));
        }
        if let Some((cut, looked_at)) = self.cut_headers(counters).filter(|(cut, of)| cut * MOST_CUT > *of) {
            faults.push((
                format!(
                    "{cut} of {looked_at} packets are cut within the header of TCP: without its timestamps fewer epochs have an estimate"
                ),
                MORE_OF_EACH.into(),
            ));
        }
        if let Some(missing) = self.missing.as_ref().filter(|missing| missing.count() * MOST_MISSING > missing.of()) {
            faults.push((
                format!(
                    "{} of {} segments were acknowledged, and the capture lacks them",
                    missing.count(),
                    missing.of()
                ),
                MORE_OF_ALL.into(),
            ));
        }
        if let Some(segments) = self.repeats.afar() {
            faults.push((
                format!(
                    "{segments} segments passed twice and are the same byte by byte: they were captured at two places"
                ),
                "split the capture, or merge those of both places as pcapng, which tells their interfaces apart".into(),
            ));
        }
        faults
    }
}

/// Returns a packet before its turn, without its time.
fn upcoming<'a>(packet: &Upcoming<'a>) -> Observation<'a> {
    Observation {
        time_ns: 0,
        interface: packet.interface,
        link: packet.link.0,
        data: packet.data,
        wire_len: packet.wire_len,
    }
}

/// Fails because a signal ended the replay after `packets` packets.
pub fn interrupted(path: &Path, packets: u64) -> Failure {
    let error = anyhow!(
        "interrupted: the results cover the first {} of {}",
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

fn progress(reader: &Reader) -> Bar {
    reader.size().filter(|size| *size >= PROGRESS_BYTES).map_or_else(Bar::hidden, Bar::of_bytes)
}
