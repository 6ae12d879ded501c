use std::{
    io::{self, BufReader, Cursor, Read},
    ops::Range,
};

use flate2::bufread::MultiGzDecoder;

use crate::error::Fault;

/// Capacity of the window, and so the largest record that is parsed as a whole. It fits the second-level cache of common
/// processors, which makes the copy out of the page cache cheap.
pub(crate) const WINDOW_BYTES: usize = 512 * 1024;
/// Most bytes that are decompressed per read of a gzip file.
const DECOMPRESS_BYTES: usize = 4096;

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
const GZIP_INPUT_BYTES: usize = 128 * 1024;

/// A fixed buffer that slides over the decompressed capture.
pub(crate) struct Window {
    input: Input,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    offset: u64,
    /// What was consumed since [`Window::forget`], for a copy of the capture.
    kept: Option<Vec<u8>>,
}

impl Window {
    /// Reads the first bytes, and inserts a decompressor if they are gzip.
    pub(crate) fn new(input: Box<dyn Read>) -> Result<Window, Fault> {
        let mut window = Window {
            input: Input::Plain(input),
            buffer: vec![0; WINDOW_BYTES].into_boxed_slice(),
            start: 0,
            end: 0,
            offset: 0,
            kept: None,
        };
        if window.try_fill(GZIP_MAGIC.len())? && window.rest().starts_with(&GZIP_MAGIC) {
            window.decompress();
        }
        Ok(window)
    }

    fn decompress(&mut self) {
        let head = self.rest().to_vec();
        let Input::Plain(rest) = std::mem::replace(&mut self.input, Input::Plain(Box::new(io::empty()))) else {
            return;
        };
        let counted = CountedRead { head: Cursor::new(head), rest, bytes: 0 };
        let buffered = BufReader::with_capacity(GZIP_INPUT_BYTES, counted);
        self.input = Input::Gzip(Box::new(MultiGzDecoder::new(buffered)));
        (self.start, self.end) = (0, 0);
    }

    /// Returns the number of decompressed bytes consumed.
    #[inline]
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the number of bytes consumed of the file on disk.
    pub(crate) fn position(&self) -> u64 {
        match &self.input {
            Input::Plain(_) => self.offset,
            Input::Gzip(gzip) => {
                let buffered = gzip.get_ref();
                buffered.get_ref().bytes - buffered.buffer().len() as u64
            }
        }
    }

    /// Returns the bytes that are read and not consumed.
    #[inline]
    pub(crate) fn rest(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Returns the bytes of a range from [`Window::take`], which is valid until the next fill.
    #[inline]
    pub(crate) fn slice(&self, range: Range<usize>) -> &[u8] {
        &self.buffer[range]
    }

    /// Makes the first `n` bytes of a record available. Returns false if the input ended cleanly before the record.
    #[inline]
    pub(crate) fn begin(&mut self, n: usize) -> Result<bool, Fault> {
        if self.try_fill(n)? {
            Ok(true)
        } else if self.start == self.end {
            Ok(false)
        } else {
            Err(Fault::Cut)
        }
    }

    /// Makes `n` bytes available, or fails with [`Fault::Cut`].
    #[inline]
    pub(crate) fn need(&mut self, n: usize) -> Result<(), Fault> {
        if self.try_fill(n)? { Ok(()) } else { Err(Fault::Cut) }
    }

    /// Consumes `n` available bytes and returns their position.
    #[inline]
    pub(crate) fn take(&mut self, n: usize) -> Range<usize> {
        let from = self.start;
        self.start += n;
        self.offset += n as u64;
        debug_assert!(self.start <= self.end, "consumed bytes that were not read");
        if let Some(kept) = &mut self.kept {
            kept.extend_from_slice(&self.buffer[from..self.start]);
        }
        from..self.start
    }

    /// Keeps what is consumed from now on.
    pub(crate) fn keep(&mut self) {
        self.kept = Some(Vec::new());
    }

    /// Keeps nothing any more.
    pub(crate) fn keep_nothing(&mut self) {
        self.kept = None;
    }

    /// Returns what was consumed and kept since it was forgotten last.
    pub(crate) fn kept(&self) -> &[u8] {
        self.kept.as_deref().unwrap_or_default()
    }

    /// Forgets what was kept, and releases the memory of an unusually large block.
    pub(crate) fn forget(&mut self) {
        if let Some(kept) = &mut self.kept {
            kept.clear();
            kept.shrink_to(WINDOW_BYTES);
        }
    }

    /// Consumes `n` bytes, which may be more than the window can hold.
    pub(crate) fn skip(&mut self, mut n: usize) -> Result<(), Fault> {
        while n > 0 {
            self.need(1)?;
            let step = n.min(self.rest().len());
            self.take(step);
            n -= step;
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn try_fill(&mut self, n: usize) -> Result<bool, Fault> {
        if self.end - self.start >= n { Ok(true) } else { self.refill(n) }
    }

    /// Stops as soon as `n` bytes are available, so that a live pipe is not delayed.
    #[cold]
    fn refill(&mut self, n: usize) -> Result<bool, Fault> {
        debug_assert!(n <= WINDOW_BYTES, "record larger than the window");
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        while self.end < n {
            match self.input.read(&mut self.buffer[self.end..]) {
                Ok(0) => return Ok(false),
                Ok(got) => self.end += got,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.input.fault(error)),
            }
        }
        Ok(true)
    }
}

enum Input {
    Plain(Box<dyn Read>),
    Gzip(Box<MultiGzDecoder<BufReader<CountedRead>>>),
}

impl Input {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Input::Plain(plain) => plain.read(into),
            // Bytes that a call has decompressed before it finds damage are lost: read little at a time.
            Input::Gzip(gzip) => {
                let bytes = into.len().min(DECOMPRESS_BYTES);
                gzip.read(&mut into[..bytes])
            }
        }
    }

    /// Classifies an error: the decompressor reports a cut or damaged file by the same type as a failing disk.
    fn fault(&self, error: io::Error) -> Fault {
        match (self, error.kind()) {
            (Input::Gzip(_), io::ErrorKind::UnexpectedEof) => Fault::Cut,
            (Input::Gzip(_), io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput) => {
                Fault::Corrupt(format!("the gzip packing is broken ({error})"))
            }
            _ => Fault::Io(error),
        }
    }
}

/// The compressed file, starting with the bytes that were read to recognise it.
struct CountedRead {
    head: Cursor<Vec<u8>>,
    rest: Box<dyn Read>,
    bytes: u64,
}

impl Read for CountedRead {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut got = self.head.read(into)?;
        if got == 0 {
            got = self.rest.read(into)?;
        }
        self.bytes += got as u64;
        Ok(got)
    }
}
