//! A format and a sink, together.

use std::borrow::Cow;

use crate::{Flush, Format, Keep, Record, Sink, SinkError, Source, counted};

/// The output of a verb. After an error nothing more is written, unless the sink goes on.
pub struct Output {
    format: Box<dyn Format>,
    sink: Sink,
    source: Source,
    keep: Option<Box<dyn Keep>>,
}

impl Output {
    /// Writes records of `source` to `sink` in `format`, coloured and broken into lines where a person looks at it.
    pub fn new(mut format: Box<dyn Format>, sink: Sink, source: Source) -> Output {
        format.set_colour(sink.is_coloured());
        format.set_width(sink.width());
        Output { format, sink, source, keep: None }
    }

    /// Creates an output that prints no record of this source.
    pub fn nothing(source: Source) -> Output {
        struct Nothing;
        impl Format for Nothing {
            fn write(&mut self, _record: &Record<'_>, _source: &Source, _out: &mut Vec<u8>) {}
        }
        let sink = Sink::new("nothing", Box::new(std::io::sink()), Flush::Full);
        Output { format: Box::new(Nothing), sink, source, keep: None }
    }

    /// Has each record kept too.
    #[must_use]
    pub fn keeping(mut self, keep: Option<Box<dyn Keep>>) -> Output {
        self.keep = keep;
        self
    }

    /// The source.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// The source, for changes: the next interface of a capture, a fresh offset of the clock.
    pub fn source_mut(&mut self) -> &mut Source {
        &mut self.source
    }

    /// Writes and keeps a record.
    pub fn write(&mut self, record: &Record<'_>) -> Result<(), SinkError> {
        self.keep(record);
        self.sink.record(|out| self.format.write(record, &self.source, out))
    }

    /// Keeps a record that is not to be printed.
    pub fn keep(&mut self, record: &Record<'_>) {
        if let Some(keep) = &mut self.keep {
            keep.keep(record, &self.source);
        }
    }

    /// Adds counters of what could not be written or kept, but for what is 0.
    pub fn count_kept(&self, counters: &mut Vec<(Cow<'static, str>, u64)>) {
        let lines_lost = self.lost_lines();
        if lines_lost > 0 {
            counters.push(("lines_lost".into(), lines_lost));
        }
        if let Some(keep) = &self.keep {
            keep.count(counters);
        }
    }

    /// Returns how many lines could not be written to a file that goes on after errors.
    pub fn lost_lines(&self) -> u64 {
        self.sink.lost_lines().1
    }

    /// Keeps what is left. Returns what is missing, for a person, if anything is. Later records are not kept.
    fn finish_keeping(&mut self) -> Option<String> {
        self.keep.take().and_then(|mut keep| keep.finish(&self.source))
    }

    /// Ends what is kept. Returns what is missing in a file that goes on after errors, and there, for a person.
    pub fn finish(&mut self) -> impl Iterator<Item = String> + use<> {
        [self.missing_lines(), self.finish_keeping()].into_iter().flatten()
    }

    /// Returns what is missing in a file that goes on after errors, for a person, if anything is.
    pub fn missing_lines(&self) -> Option<String> {
        let (output, lost) = self.sink.lost_lines();
        (lost > 0).then(|| format!("{} could not be written to {output}", counted(lost, "line", "lines")))
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

/// What was kept is complete also where the reader of the output has seen enough.
impl Drop for Output {
    fn drop(&mut self) {
        self.finish_keeping();
    }
}
