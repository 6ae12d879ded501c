//! A format and a sink, together.

use crate::{Flush, Format, Record, Sink, SinkError, Source};

/// The output of a verb. After an error nothing more is written.
pub struct Output {
    format: Box<dyn Format>,
    sink: Sink,
    source: Source,
}

impl Output {
    /// Writes records of `source` to `sink` in `format`, coloured where a person looks at it.
    pub fn new(mut format: Box<dyn Format>, sink: Sink, source: Source) -> Output {
        format.set_colour(sink.is_coloured());
        Output { format, sink, source }
    }

    /// Creates an output that drops every record.
    pub fn nothing() -> Output {
        struct Nothing;
        impl Format for Nothing {
            fn write(&mut self, _record: &Record<'_>, _source: &Source, _out: &mut Vec<u8>) {}
        }
        let sink = Sink::new("nothing", Box::new(std::io::sink()), Flush::Full);
        Output { format: Box::new(Nothing), sink, source: Source::default() }
    }

    /// The source.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// The source, for changes: the next interface of a capture, a fresh offset of the clock.
    pub fn source_mut(&mut self) -> &mut Source {
        &mut self.source
    }

    /// Writes a record.
    pub fn write(&mut self, record: &Record<'_>) -> Result<(), SinkError> {
        self.sink.record(|out| self.format.write(record, &self.source, out))
    }

    /// Writes lines of the caller's own, whatever the format.
    pub fn lines(&mut self, append: impl FnOnce(&mut String)) -> Result<(), SinkError> {
        let mut lines = String::new();
        append(&mut lines);
        self.sink.record(|out| out.extend_from_slice(lines.as_bytes()))
    }

    /// Writes what is still in the buffer: at the end of each interval, and of the run.
    pub fn flush(&mut self) -> Result<(), SinkError> {
        self.sink.flush()
    }
}
