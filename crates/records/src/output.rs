//! A format and a sink, together.

use dwell_engine::{
    layers::Passage,
    measure::{Event, FlowEvent, Sample},
};

use crate::{
    Format, Interval, PathTable, Response, Sink, SinkError, SocketEnd, Sockets, Source, Stack, StackShift, Status,
    Summary,
};

/// Where records go, and how. After an error nothing more is written.
pub struct Output {
    format: Box<dyn Format>,
    sink: Sink,
    source: Source,
}

impl Output {
    /// Writes records of `source` to `sink`.
    pub fn new(format: Box<dyn Format>, sink: Sink, source: Source) -> Output {
        Output { format, sink, source }
    }

    /// For a source that changes: a capture's next interface, a fresh offset
    /// of the clock.
    pub fn source_mut(&mut self) -> &mut Source {
        &mut self.source
    }

    /// Writes what a packet caused.
    pub fn event(&mut self, event: &Event) -> Result<(), SinkError> {
        match event {
            Event::Sample(sample) => self.sample(sample),
            Event::Flow(event) => self.flow(event),
        }
    }

    /// Writes a latency.
    pub fn sample(&mut self, sample: &Sample) -> Result<(), SinkError> {
        self.write(|format, source, out| format.sample(sample, source, out))
    }

    /// Writes a change in the life of a flow.
    pub fn flow(&mut self, event: &FlowEvent) -> Result<(), SinkError> {
        self.write(|format, source, out| format.flow(event, source, out))
    }

    /// Writes an epoch of a flow.
    pub fn response(&mut self, response: &Response<'_>) -> Result<(), SinkError> {
        self.write(|format, source, out| format.response(response, source, out))
    }

    /// Writes one byte that `dwell stack` stamped on this host.
    pub fn passage(&mut self, host: &str, passage: &Passage) -> Result<(), SinkError> {
        self.write(|format, source, out| format.passage(host, passage, source, out))
    }

    /// Writes an interval of `dwell stack`.
    pub fn stack(&mut self, stack: &Stack<'_>) -> Result<(), SinkError> {
        self.write(|format, source, out| format.stack(stack, source, out))
    }

    /// Writes what bytes took from one host to another.
    pub fn path(&mut self, path: &PathTable<'_>) -> Result<(), SinkError> {
        self.write(|format, source, out| format.path(path, source, out))
    }

    /// Writes segments of `dwell stack` beside their baseline.
    pub fn shift(&mut self, shift: &StackShift<'_>) -> Result<(), SinkError> {
        self.write(|format, source, out| format.shift(shift, source, out))
    }

    /// Writes an interval of `dwell run`.
    pub fn sockets(&mut self, sockets: &Sockets<'_>) -> Result<(), SinkError> {
        self.write(|format, source, out| format.sockets(sockets, source, out))
    }

    /// Writes what `dwell run` has measured.
    pub fn socket_end(&mut self, end: &SocketEnd<'_>) -> Result<(), SinkError> {
        self.write(|format, source, out| format.socket_end(end, source, out))
    }

    /// Writes the groups of an interval.
    pub fn interval(&mut self, interval: &Interval<'_>) -> Result<(), SinkError> {
        self.write(|format, source, out| format.interval(interval, source, out))
    }

    /// Writes the distributions of a run.
    pub fn summary(&mut self, summary: &Summary) -> Result<(), SinkError> {
        self.write(|format, source, out| format.summary(summary, source, out))
    }

    /// Writes what was counted.
    pub fn status(&mut self, status: &Status) -> Result<(), SinkError> {
        self.write(|format, source, out| format.status(status, source, out))
    }

    /// Writes lines that no format has a say in.
    pub fn lines(&mut self, write: impl FnOnce(&mut String)) -> Result<(), SinkError> {
        let mut lines = String::new();
        write(&mut lines);
        self.sink.record(|out| out.extend_from_slice(lines.as_bytes()))
    }

    /// Hands on what is still in the buffer: at the end of each interval, and of the run.
    pub fn flush(&mut self) -> Result<(), SinkError> {
        self.sink.flush()
    }

    fn write(&mut self, record: impl FnOnce(&mut dyn Format, &Source, &mut Vec<u8>)) -> Result<(), SinkError> {
        let (format, source) = (&mut *self.format, &self.source);
        self.sink.record(|out| record(format, source, out))
    }
}
