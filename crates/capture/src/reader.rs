use std::{fs::File, io::Read, ops::Range, path::Path};

use crate::{
    classic::Classic,
    error::{Error, Fault},
    link::LinkType,
    pcapng::{self, Pcapng},
    window::Window,
};

/// The most bytes one packet may hold. A file that claims more is damaged: this is the limit
/// that capture tools set themselves for network interfaces.
pub const MAX_PACKET_BYTES: u32 = 256 * 1024;

/// One packet, borrowed from the [`Reader`] until the next one is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Nanoseconds since 1970, as the capturing host saw them: captures may step backwards. The
    /// lie of a wrong clock is passed on. A pcapng "simple packet" has no time of its own and gets
    /// that of the packet before it, or 0. A pcapng time outside 1970 to 2554 becomes the nearest
    /// end of that range.
    pub time_ns: u64,
    /// Number of the capturing interface from 0, in order of appearance over the whole file, so
    /// that the interfaces of two pcapng sections differ. Always 0 in a classic pcap file.
    pub interface: u32,
    /// What the capture calls it (pcapng).
    pub interface_name: Option<&'a str>,
    /// What `data` begins with.
    pub link: LinkType,
    /// The captured bytes, possibly fewer than were sent. A frame check sequence at the end is
    /// part of it where the capture has one.
    pub data: &'a [u8],
    /// Length of the packet on the wire in bytes, never below `data.len()`: files that claim a
    /// shorter one are corrected.
    pub wire_len: u32,
}

/// A capture being read.
pub struct Reader {
    name: String,
    window: Window,
    format: Format,
    size: Option<u64>,
    packets: u64,
    finished: bool,
}

impl Reader {
    /// Opens a file and reads its header.
    ///
    /// # Errors
    ///
    /// Any [`Error`] but [`Error::Read`]: `Truncated` when the file ends within its header.
    pub fn open(path: &Path) -> Result<Reader, Error> {
        let name = path.display().to_string();
        let opened = File::open(path).and_then(|file| Ok((file.metadata()?, file)));
        let (metadata, file) = match opened {
            Ok(opened) => opened,
            Err(io) => return Err(Error::Open { path: name, io }),
        };
        let mut reader = Reader::from_read(&name, Box::new(file))?;
        reader.size = metadata.is_file().then_some(metadata.len());
        Ok(reader)
    }

    /// Reads a capture from anywhere; `name` stands for it in error messages. Reads are large, so
    /// a buffer below is a waste.
    ///
    /// # Errors
    ///
    /// As [`Reader::open`].
    pub fn from_read(name: &str, read: Box<dyn Read>) -> Result<Reader, Error> {
        let mut window = match Window::new(read) {
            Ok(window) => window,
            Err(fault) => return Err(error_at_start(name, fault)),
        };
        let format = match Format::open(&mut window) {
            Ok(Some(format)) => format,
            Ok(None) => return Err(not_a_capture(name, window.rest())),
            Err(fault) => return Err(error_at_start(name, fault)),
        };
        Ok(Reader { name: name.to_owned(), window, format, size: None, packets: 0, finished: false })
    }

    /// The next packet, or `None` at the end of the capture.
    ///
    /// # Errors
    ///
    /// `Truncated`, `Corrupt` or `Read`, once: it is over then, and later calls give `None`.
    #[inline]
    pub fn next_packet(&mut self) -> Result<Option<Packet<'_>>, Error> {
        let record = loop {
            if self.finished {
                return Ok(None);
            }
            let offset = self.window.offset();
            let step = match &mut self.format {
                Format::Classic(classic) => classic.step(&mut self.window),
                Format::Pcapng(pcapng) => pcapng.step(&mut self.window),
            };
            match step {
                Ok(Step::Packet(record)) => break record,
                Ok(Step::NoPacket) => {}
                Ok(Step::End) => self.finished = true,
                Err(fault) => {
                    self.finished = true;
                    return Err(error(&self.name, self.packets, offset, fault));
                }
            }
        };
        self.packets += 1;
        Ok(Some(Packet {
            time_ns: record.time_ns,
            interface: record.interface,
            interface_name: match &self.format {
                Format::Classic(_) => None,
                Format::Pcapng(pcapng) => pcapng.interface_name(record.interface),
            },
            link: record.link,
            data: self.window.slice(record.data),
            wire_len: record.wire_len,
        }))
    }

    /// True if the format can tell interfaces apart (pcapng).
    pub fn tells_interfaces(&self) -> bool {
        matches!(self.format, Format::Pcapng(_))
    }

    /// Bytes of the file consumed as it lies on disk, so packed bytes in a gzip file: together
    /// with [`Reader::size`] the progress.
    pub fn position(&self) -> u64 {
        self.window.position()
    }

    /// Size of the file on disk in bytes when it was opened; `None` for pipes, devices and
    /// standard input.
    pub fn size(&self) -> Option<u64> {
        self.size
    }

    /// Packets delivered so far.
    pub fn packets(&self) -> u64 {
        self.packets
    }
}

/// What a format parser found at the current place.
pub(crate) enum Step {
    Packet(Record),
    /// A block that holds no packet.
    NoPacket,
    End,
}

/// A packet whose bytes lie in the window.
pub(crate) struct Record {
    pub(crate) time_ns: u64,
    pub(crate) interface: u32,
    pub(crate) link: LinkType,
    pub(crate) wire_len: u32,
    pub(crate) data: Range<usize>,
}

enum Format {
    Classic(Classic),
    Pcapng(Pcapng),
}

impl Format {
    /// `None` when the first bytes are those of neither format.
    fn open(window: &mut Window) -> Result<Option<Format>, Fault> {
        window.try_fill(4)?;
        let Some(&magic) = window.rest().first_chunk::<4>() else {
            return Ok(None);
        };
        if let Some(kind) = Classic::recognise(magic) {
            return Ok(Some(Format::Classic(Classic::open(kind, window)?)));
        }
        if magic == pcapng::MAGIC {
            return Ok(Some(Format::Pcapng(Pcapng::open(window)?)));
        }
        Ok(None)
    }
}

/// Failing to read the very first bytes is how a directory shows itself.
fn error_at_start(name: &str, fault: Fault) -> Error {
    match fault {
        Fault::Io(io) => Error::Open { path: name.to_owned(), io },
        fault => error(name, 0, 0, fault),
    }
}

#[cold]
fn error(name: &str, packets: u64, offset: u64, fault: Fault) -> Error {
    let path = name.to_owned();
    match fault {
        Fault::Cut => Error::Truncated { path, packets, offset },
        Fault::Corrupt(what) => Error::Corrupt { path, packets, offset, what },
        Fault::Io(io) => Error::Read { path, packets, io },
    }
}

fn not_a_capture(name: &str, content: &[u8]) -> Error {
    let magic = content[..content.len().min(4)].to_vec();
    let hint = match magic[..] {
        [] => "is empty".to_owned(),
        [0x28, 0xb5, 0x2f, 0xfd] => "is packed with zstd, unpack it first".to_owned(),
        [0xfd, b'7', b'z', b'X'] => "is packed with xz, unpack it first".to_owned(),
        [b'B', b'Z', b'h', _] => "is packed with bzip2, unpack it first".to_owned(),
        [0x04, 0x22, 0x4d, 0x18] => "is packed with lz4, unpack it first".to_owned(),
        [b'P', b'K', 3, 4] => "is a zip archive, unpack it first".to_owned(),
        _ if magic.iter().all(|byte| matches!(byte, b' '..=b'~' | b'\t' | b'\r' | b'\n')) => {
            format!("starts with '{}'", magic.escape_ascii())
        }
        _ => {
            let hex: Vec<String> = magic.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("starts with the bytes {}", hex.join(" "))
        }
    };
    Error::NotACapture { path: name.to_owned(), magic, hint }
}
