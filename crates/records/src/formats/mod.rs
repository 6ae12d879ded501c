//! The formats that a user can ask for. Each is one file or folder here, and one entry in [`FORMATS`].

mod jsonl;
mod ppviz;
#[cfg(test)]
pub(crate) mod samples;
mod text;

use crate::{Kind, Record, Source};

pub use jsonl::{
    End, EndNamesObject, EstimateObject, FlowObject, Header, Jsonl, LatencyObject, NamesObject, Object, SCHEMA,
    add_objects, write_object,
};
pub(crate) use jsonl::{socket_latencies, total_latencies};
pub use ppviz::Ppviz;
pub use text::{Latency, Lines, Rate, Text, counted};

/// A way to write records.
pub trait Format: Send {
    /// Appends `record` to `out` as whole lines; nothing if the format does not write such records ([`Entry::writes`]).
    fn write(&mut self, record: &Record<'_>, source: &Source, out: &mut Vec<u8>);

    /// Chooses whether to colour what a person should see first. Formats for programs are never coloured.
    fn set_colour(&mut self, _is_coloured: bool) {}

    /// Tells the width of the terminal in characters, into which sentences are to be broken; `None` if there is none.
    fn set_width(&mut self, _width: Option<usize>) {}
}

/// A format as a user chooses it.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// Its name, the value of an option.
    pub name: &'static str,
    /// A description, for help.
    pub about: &'static str,
    /// Whether the format writes records of a kind. Asking for records that it does not write is an error of usage, not
    /// an empty output.
    pub writes: fn(Kind) -> bool,
    /// Creates the format.
    pub new: fn() -> Box<dyn Format>,
}

/// All formats. The first is the default.
pub const FORMATS: &[Entry] = &[
    Entry {
        name: "text",
        about: "One line per sample, one table per interval",
        // Counters, and who comes and goes, are not for the same reader: they go to standard error.
        writes: |kind| !matches!(kind, Kind::Status | Kind::Agent),
        new: || Box::new(Text::default()),
    },
    Entry { name: "jsonl", about: "One object per line", writes: |_| true, new: || Box::new(Jsonl::default()) },
    Entry {
        name: "ppviz",
        about: "One line per sample as pping -m and ePPing write it, for ppviz",
        writes: |kind| kind == Kind::Sample,
        new: || Box::new(Ppviz),
    },
];

/// Finds a format by name.
pub fn entry(name: &str) -> Option<&'static Entry> {
    FORMATS.iter().find(|entry| entry.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Interval, Summary};

    #[test]
    fn a_format_writes_the_kinds_of_records_that_it_says() {
        let (sample, flow) = (samples::tcp4(), samples::flows()[0]);
        let interval = Interval { end_ns: 0, length_ns: 1_000_000_000, groups: &[] };
        let mut summary = Summary::new(1);
        summary.add(&sample);
        let status = samples::status();
        for entry in FORMATS {
            for record in
                [Record::Sample(&sample), Record::Flow(&flow), Record::Summary(&summary), Record::Status(&status)]
            {
                let mut out = Vec::new();
                (entry.new)().write(&record, &samples::source(), &mut out);
                assert_eq!(!out.is_empty(), (entry.writes)(record.kind()), "{} {:?}", entry.name, record.kind());
            }
            let writes_intervals = (entry.writes)(Record::Interval(&interval).kind());
            assert_eq!(writes_intervals, entry.name != "ppviz");
        }
    }
}
