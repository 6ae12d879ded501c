use std::{
    fs::File,
    io::{self, Read, Write},
    path::Path,
};

use crate::{
    classic::Classic,
    copy::{PcapngCopy, append_block},
    error::{Error, Fault},
    link::LinkType,
    pcapng::{self, Pcapng},
    record::Step,
    window::Window,
};

/// One packet, borrowed from the [`Reader`] until the next one is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Capture time in nanoseconds since 1970, by the clock of the capturing host: it may step backwards, and a wrong
    /// clock gives wrong times. A pcapng time outside 1970 to 2554 is clamped to that range.
    pub time_ns: u64,
    /// False for a pcapng "simple packet", which records no time: `time_ns` is then that of the packet before it, or 0.
    pub is_timed: bool,
    /// Number of the capturing interface from 0, in order of appearance over the whole file, so that the interfaces of
    /// two pcapng sections differ. It is always 0 in a classic pcap file.
    pub interface: u32,
    /// Name of that interface, if the capture gives one (pcapng only).
    pub interface_name: Option<&'a str>,
    /// The header that `data` begins with.
    pub link: LinkType,
    /// The captured bytes, possibly fewer than were sent. They end with the frame check sequence where the capture has
    /// one.
    pub data: &'a [u8],
    /// Length of the packet on the wire in bytes, never below `data.len()`: a shorter length in the file is corrected.
    pub wire_len: u32,
}

/// A packet that is in memory and has not been returned yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Upcoming<'a> {
    /// What [`Reader::packets`] will be once it is returned.
    pub number: u64,
    /// As in [`Packet`].
    pub interface: u32,
    /// As in [`Packet`].
    pub link: LinkType,
    /// As in [`Packet`].
    pub data: &'a [u8],
    /// As in [`Packet`].
    pub wire_len: u32,
}

/// Reads the packets of a capture.
pub struct Reader {
    name: String,
    window: Window,
    format: Format,
    size: Option<u64>,
    packets: u64,
    /// Offset in the decompressed capture up to which packets were looked at, and how many of them there are up to there.
    seen: (u64, u64),
    finished: bool,
    copy: Option<PcapngCopy>,
}

impl Reader {
    /// Opens a file and reads its header.
    ///
    /// # Errors
    ///
    /// Any [`Error`] except [`Error::Read`]: `Truncated` if the file ends within its header.
    pub fn open(path: &Path) -> Result<Reader, Error> {
        Reader::open_with(path, None)
    }

    /// Opens a file as [`Reader::open`], and writes it again to `copy` while it is read: as pcapng, each packet with the
    /// comments that [`Reader::comment`] adds to it. Of a pcapng file all other blocks are copied as they are.
    ///
    /// The writer is given whole blocks, one per call, so that what it has is a valid capture whatever ends the copy:
    /// damage, which is not copied, or a caller that reads no further. A packet is written when the next one is read, or by
    /// [`Reader::finish_copy`]. In memory is one block, of at most 16 MiB.
    ///
    /// # Errors
    ///
    /// As [`Reader::open`]; nothing is written before the first packet is asked for.
    pub fn open_copying(path: &Path, copy: Box<dyn Write>) -> Result<Reader, Error> {
        Reader::open_with(path, Some(copy))
    }

    fn open_with(path: &Path, copy: Option<Box<dyn Write>>) -> Result<Reader, Error> {
        let name = path.display().to_string();
        let opened = File::open(path).and_then(|file| Ok((file.metadata()?, file)));
        let (metadata, file) = match opened {
            Ok(opened) => opened,
            Err(io) => return Err(Error::Open { path: name, io }),
        };
        let mut reader = Reader::from_read_with(&name, Box::new(file), copy)?;
        reader.size = metadata.is_file().then_some(metadata.len());
        Ok(reader)
    }

    /// Reads a capture from any source; error messages call it `name`. Reads are large, so `read` needs no buffer of its
    /// own.
    ///
    /// # Errors
    ///
    /// As [`Reader::open`].
    pub fn from_read(name: &str, read: Box<dyn Read>) -> Result<Reader, Error> {
        Reader::from_read_with(name, read, None)
    }

    /// Reads a capture from any source as [`Reader::from_read`], and writes it again as [`Reader::open_copying`].
    ///
    /// # Errors
    ///
    /// As [`Reader::open`].
    pub fn from_read_copying(name: &str, read: Box<dyn Read>, copy: Box<dyn Write>) -> Result<Reader, Error> {
        Reader::from_read_with(name, read, Some(copy))
    }

    fn from_read_with(name: &str, read: Box<dyn Read>, copy: Option<Box<dyn Write>>) -> Result<Reader, Error> {
        let mut window = match Window::new(read) {
            Ok(window) => window,
            Err(fault) => return Err(error_at_start(name, fault)),
        };
        if copy.is_some() {
            window.keep();
        }
        let format = match Format::open(&mut window) {
            Ok(Some(format)) => format,
            Ok(None) => return Err(not_a_capture(name, window.rest())),
            Err(fault) => return Err(error_at_start(name, fault)),
        };
        let copy = copy.map(PcapngCopy::new);
        Ok(Reader {
            name: name.to_owned(),
            window,
            format,
            size: None,
            packets: 0,
            seen: (0, 0),
            finished: false,
            copy,
        })
    }

    /// Returns the next packet, or `None` at the end of the capture.
    ///
    /// # Errors
    ///
    /// `Truncated`, `Corrupt`, `Read` or `Copy`, once: reading ends there, and later calls return `None`.
    #[inline]
    pub fn next_packet(&mut self) -> Result<Option<Packet<'_>>, Error> {
        let record = loop {
            if self.finished {
                return Ok(None);
            }
            if self.copy.is_some() {
                self.write_copy()?;
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
                    self.window.forget();
                    return Err(error(&self.name, self.packets, offset, fault));
                }
            }
        };
        self.packets += 1;
        Ok(Some(Packet {
            time_ns: record.time_ns,
            is_timed: record.is_timed,
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

    /// Looks at the next of the packets that [`Reader::next_packet`] will return, up to `most` of them ahead. Nothing is read for
    /// that: `None` where the next one is not in memory, or follows something else than a packet. Each is returned once, and some
    /// never are.
    #[inline]
    pub fn look_ahead(&mut self, most: u64) -> Option<Upcoming<'_>> {
        let offset = self.window.offset();
        if self.seen.0 <= offset {
            self.seen = (offset, self.packets);
        }
        let (from, packets) = self.seen;
        if packets >= self.packets + most {
            return None;
        }
        let bytes = self.window.rest().get((from - offset) as usize..)?;
        let glance = match &self.format {
            Format::Classic(classic) => classic.glance(bytes),
            Format::Pcapng(pcapng) => pcapng.glance(bytes),
        }?;
        self.seen = (from + glance.len as u64, packets + 1);
        Some(Upcoming {
            number: packets + 1,
            interface: glance.interface,
            link: glance.link,
            data: bytes.get(glance.data)?,
            wire_len: glance.wire_len,
        })
    }

    /// Returns true if the format distinguishes interfaces (pcapng).
    pub fn distinguishes_interfaces(&self) -> bool {
        matches!(self.format, Format::Pcapng(_))
    }

    /// Adds a comment to the packet that was returned last, for the copy. A pcapng "simple packet" has no room for one.
    pub fn comment(&mut self, text: impl Into<String>) {
        if let Some(copy) = &mut self.copy {
            copy.comments.push(text.into());
        }
    }

    /// Completes the copy, if there is one, with the packet that was returned last, and flushes it.
    ///
    /// # Errors
    ///
    /// [`Error::Copy`], once.
    pub fn finish_copy(&mut self) -> Result<(), Error> {
        self.write_copy()?;
        let Some(mut copy) = self.copy.take() else {
            return Ok(());
        };
        self.window.keep_nothing();
        copy.flush().map_err(|io| Error::Copy { io })
    }

    /// Writes the block that was read last. After an error there is no copy any more, and nothing more to read.
    fn write_copy(&mut self) -> Result<(), Error> {
        let (block, format) = (self.window.kept(), &self.format);
        let Some(copy) = self.copy.as_mut().filter(|_| !block.is_empty()) else {
            return Ok(());
        };
        let written = copy.write(|is_head, comments, out| format.append(block, is_head, comments, out));
        self.window.forget();
        written.map_err(|io| {
            self.copy = None;
            self.window.keep_nothing();
            self.finished = true;
            Error::Copy { io }
        })
    }

    /// Returns how many bytes of the file on disk have been consumed (compressed bytes in a gzip file). Divided by
    /// [`Reader::size`] it is the progress.
    pub fn position(&self) -> u64 {
        self.window.position()
    }

    /// Returns the size of the file on disk in bytes when it was opened, or `None` for pipes, devices and standard input.
    pub fn size(&self) -> Option<u64> {
        self.size
    }

    /// Returns how many packets have been delivered so far.
    pub fn packets(&self) -> u64 {
        self.packets
    }
}

enum Format {
    Classic(Classic),
    Pcapng(Pcapng),
}

impl Format {
    /// Recognises the format by the first bytes. Returns `None` if they belong to neither format.
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

    /// Appends in pcapng what a copy has of a block or a record; `is_head` of the first, which is the file header of a
    /// classic file.
    fn append(&self, block: &[u8], is_head: bool, comments: &[String], out: &mut Vec<u8>) -> io::Result<()> {
        match self {
            Format::Classic(classic) if is_head => return classic.append_head(out),
            Format::Classic(classic) => classic.append_packet(block, comments, out),
            Format::Pcapng(pcapng) => append_block(pcapng.order(), block, comments, out),
        }
        Ok(())
    }
}

/// Converts a fault at the first bytes, where a read error means that the path is, for instance, a directory.
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
