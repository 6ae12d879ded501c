//! The buffer in front of a file, pipe or terminal, and its errors.

use std::{
    fs::File,
    io::{self, ErrorKind, IsTerminal, Write},
    os::fd::AsFd,
};

use crate::counted;

/// When a sink writes its buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flush {
    /// After each record, for a person who is watching.
    Record,
    /// When it holds 64 KiB, and on [`Sink::flush`].
    Full,
}

/// Why an output ended.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// The reader closed its end, as `head` does. This is not a failure.
    #[error("{output} was closed by its reader")]
    Closed {
        /// The output's name.
        output: String,
    },
    /// A write failed.
    #[error("cannot write to {output}: {io}; later output is missing there{remedy}")]
    Failed {
        /// The output's name.
        output: String,
        /// The system's error.
        io: io::Error,
        /// What to do about it, or nothing.
        remedy: String,
    },
}

/// Prints a text to standard output.
///
/// # Errors
///
/// [`SinkError`], also if the reader has seen enough ([`SinkError::Closed`]): then the verb ends, successfully.
pub fn print(text: impl AsRef<[u8]>) -> Result<(), SinkError> {
    let mut sink = Sink::stdout()?;
    sink.record(|out| out.extend_from_slice(text.as_ref()))?;
    sink.flush()
}

/// A buffer of whole records in front of a file, pipe or terminal. It ends at its first error, which the caller gets:
/// later records are dropped silently; one that is [`Sink::lasting`] goes on. Dropping a sink writes the rest and ignores
/// failures, so flush first.
pub struct Sink {
    name: String,
    /// `None` after an error.
    write: Option<Box<dyn Write + Send>>,
    flush: Flush,
    buffer: Vec<u8>,
    is_coloured: bool,
    width: Option<usize>,
    lasting: Option<Lasting>,
}

/// How a sink goes on after errors.
struct Lasting {
    report: fn(&str),
    /// Whether the last write failed, so that the next failure is no news.
    is_failing: bool,
    /// Lines that were never written.
    lost_lines: u64,
}

const FULL: usize = 64 * 1024;

impl Sink {
    /// Creates a sink in front of any writer. `name` stands for it in errors.
    pub fn new(name: impl Into<String>, write: Box<dyn Write + Send>, flush: Flush) -> Sink {
        Sink {
            name: name.into(),
            write: Some(write),
            flush,
            buffer: Vec::with_capacity(2 * FULL),
            is_coloured: false,
            width: None,
            lasting: None,
        }
    }

    /// Lets text be as wide as this stream if that is a terminal, and be coloured if it can show that and the environment does
    /// not say otherwise (`NO_COLOR`, `CLICOLOR`, `TERM=dumb`).
    pub fn shown_on(mut self, stream: &(impl anstream::stream::RawStream + AsFd)) -> Sink {
        self.is_coloured = anstream::AutoStream::choice(stream) != anstream::ColorChoice::Never;
        self.width = terminal_size::terminal_size_of(stream).map(|(width, _)| width.0.into());
        self
    }

    /// Lets the sink go on after errors, unless its reader has closed it: lines that cannot be written are counted, and `report` gets
    /// a sentence at the first error after a success, and one when writing works again.
    #[must_use]
    pub fn lasting(mut self, report: fn(&str)) -> Sink {
        self.lasting = Some(Lasting { report, is_failing: false, lost_lines: 0 });
        self
    }

    /// Returns the output's name and the number of lines that are missing there so far; 0 if it does not go on after errors.
    pub fn lost_lines(&self) -> (&str, u64) {
        (&self.name, self.lasting.as_ref().map_or(0, |lasting| lasting.lost_lines))
    }

    /// Returns the width of the terminal in characters. `None` if it is not a terminal.
    pub fn width(&self) -> Option<usize> {
        self.width
    }

    /// Returns true if text may be coloured.
    pub fn is_coloured(&self) -> bool {
        self.is_coloured
    }

    /// Creates a sink for standard output, unbuffered if that is a terminal. It bypasses the standard library's line
    /// buffer.
    ///
    /// # Errors
    ///
    /// [`SinkError::Failed`] where standard output was closed from the start.
    pub fn stdout() -> Result<Sink, SinkError> {
        let stdout = io::stdout();
        let flush = match stdout.is_terminal() {
            true => Flush::Record,
            false => Flush::Full,
        };
        let name = "standard output";
        match stdout.as_fd().try_clone_to_owned() {
            Ok(fd) => Ok(Sink::new(name, Box::new(File::from(fd)), flush).shown_on(&stdout)),
            Err(io) => Err(classify(name, io)),
        }
    }

    /// Appends one record by calling `append`, which must end it with a line feed.
    ///
    /// # Errors
    ///
    /// [`SinkError`], once, if the buffer had to be written and that failed.
    pub fn record(&mut self, append: impl FnOnce(&mut Vec<u8>)) -> Result<(), SinkError> {
        append(&mut self.buffer);
        if self.flush == Flush::Record || self.buffer.len() >= FULL {
            self.flush()?;
        }
        Ok(())
    }

    /// Writes the buffer.
    ///
    /// # Errors
    ///
    /// [`SinkError`], once, if that failed.
    pub fn flush(&mut self) -> Result<(), SinkError> {
        let (mut left, mut result) = (&self.buffer[..], Ok(()));
        if let Some(write) = self.write.as_mut().filter(|_| !self.buffer.is_empty()) {
            result = write_all(write, &mut left).and_then(|()| write.flush());
            if let (Some(lasting), false) = (&mut self.lasting, is_closed(&result)) {
                lasting.follow(&self.name, &result, left);
                result = Ok(());
            }
        }
        self.buffer.clear();
        result.map_err(|io| {
            self.write = None;
            classify(&self.name, io)
        })
    }
}

impl Lasting {
    /// Counts the lines in what is left after a write, and reports a change.
    fn follow(&mut self, output: &str, result: &io::Result<()>, left: &[u8]) {
        self.lost_lines += left.iter().filter(|byte| **byte == b'\n').count() as u64;
        let was_failing = std::mem::replace(&mut self.is_failing, result.is_err());
        match result {
            Err(io) if !was_failing => {
                let remedy = remedy(io).map_or(String::new(), |remedy| format!(": {remedy}"));
                (self.report)(&format!(
                    "cannot write to {output}: {io}; measuring goes on, and lines are missing there until that works{remedy}"
                ));
            }
            Ok(()) if was_failing => {
                let lines = counted(self.lost_lines, "line is", "lines are");
                (self.report)(&format!("writing to {output} works again: {lines} missing there"));
            }
            _ => {}
        }
    }
}

/// Writes all, and leaves in `left` what could not be written.
fn write_all(write: &mut impl Write, left: &mut &[u8]) -> io::Result<()> {
    while !left.is_empty() {
        match write.write(left) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => *left = &left[written..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn is_closed(result: &io::Result<()>) -> bool {
    matches!(result, Err(error) if error.kind() == ErrorKind::BrokenPipe)
}

impl Drop for Sink {
    fn drop(&mut self) {
        let _ = self.flush();
    }
}

fn classify(output: &str, io: io::Error) -> SinkError {
    let output = output.to_string();
    if io.kind() == ErrorKind::BrokenPipe {
        return SinkError::Closed { output };
    }
    let remedy = remedy(&io).map_or(String::new(), |remedy| format!(": {remedy}, or write elsewhere"));
    SinkError::Failed { output, io, remedy }
}

fn remedy(io: &io::Error) -> Option<&'static str> {
    match io.kind() {
        ErrorKind::StorageFull => Some("free some space"),
        ErrorKind::QuotaExceeded => Some("raise the quota"),
        ErrorKind::FileTooLarge => Some("raise the limit (ulimit -f)"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::OpenOptions,
        io::{Read, pipe},
        sync::{Arc, Mutex},
    };

    use super::*;

    /// Remembers each write.
    #[derive(Clone, Default)]
    struct Writes(Arc<Mutex<Vec<String>>>);

    impl Write for Writes {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let text = String::from_utf8(bytes.to_vec()).unwrap();
            self.0.lock().unwrap().push(text);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn line(sink: &mut Sink) -> Result<(), SinkError> {
        sink.record(|out| out.extend_from_slice(b"line\n"))
    }

    #[test]
    fn a_terminal_gets_each_record_and_a_file_gets_them_when_told() {
        for (flush, want) in [(Flush::Record, vec!["line\n", "line\n"]), (Flush::Full, vec!["line\nline\n"])] {
            let writes = Writes::default();
            let mut sink = Sink::new("x", Box::new(writes.clone()), flush);
            line(&mut sink).unwrap();
            line(&mut sink).unwrap();
            sink.flush().unwrap();
            sink.flush().unwrap();
            assert_eq!(*writes.0.lock().unwrap(), want);
        }
    }

    #[test]
    fn a_full_buffer_is_written_in_whole_records() {
        let writes = Writes::default();
        let mut sink = Sink::new("x", Box::new(writes.clone()), Flush::Full);
        (0..20_000).for_each(|_| line(&mut sink).unwrap());
        drop(sink);
        let writes = writes.0.lock().unwrap();
        assert_eq!(writes.len(), 2);
        assert_eq!(writes.concat(), "line\n".repeat(20_000));
        assert!(writes.iter().all(|write| write.ends_with("line\n")));
    }

    #[test]
    fn a_closed_pipe_is_reported_once() {
        let (mut reader, writer) = pipe().unwrap();
        let mut sink = Sink::new("standard output", Box::new(writer), Flush::Record);
        line(&mut sink).unwrap();
        let mut bytes = [0; 5];
        reader.read_exact(&mut bytes).unwrap();
        drop(reader);
        let error = line(&mut sink).unwrap_err();
        assert!(matches!(&error, SinkError::Closed { output } if output == "standard output"));
        line(&mut sink).unwrap();
    }

    #[test]
    fn a_full_disk_is_a_failure_that_names_the_output() {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut sink = Sink::new("rtt.jsonl", Box::new(full), Flush::Full);
        line(&mut sink).unwrap();
        let error = sink.flush().unwrap_err();
        assert!(matches!(error, SinkError::Failed { .. }));
        assert_eq!(
            error.to_string(),
            "cannot write to rtt.jsonl: No space left on device (os error 28); later output is missing there: free some space, or write elsewhere"
        );
    }
}
