//! `--once`, and what `s` saves.

use std::{
    fs::{self, File},
    io::{self, ErrorKind, Write},
    mem,
    path::Path,
    time::Duration,
};

use dwell_balancer::api::Status as BalancerStatus;
use dwell_engine::{
    names::FlowNames,
    top::{Figures, Metric, PAST, Past, Row, View},
};
use dwell_records::{
    Header, Keep, Output, Record, Sink, Status, Top, TopRow, Verb, Verdict, counted, entry, print, write_object,
};
use dwell_store::{Origin, Recorder, Recording};

use super::{
    app::{App, Page},
    backends::{self, Balancer, By},
    label::{line, names_of},
    shown::Screenful,
};
use crate::{
    args::FormatOrNone,
    exit::{Exit, Failure},
    names::reverse_counters,
    source::{cost, host_name},
};

/// The longest time that the screen waits for the end of a store, once all of it is on its way to the disk.
const LONGEST_SAVE: Duration = Duration::from_secs(30);
/// How many files of one time there may be.
const MOST_SAVES: u32 = 100;

/// Prints one table: the first of these rows.
pub fn once(
    shown: &Screenful,
    view: View,
    by: Metric,
    rows: (&[Row], usize),
    format: FormatOrNone,
    verdict: Option<Verdict>,
) -> Result<(), Failure> {
    let source = shown.source.clone();
    let mut output = match entry(format.name()) {
        Some(format) => Output::new((format.new)(), Sink::stdout()?, source),
        None => Output::nothing(source),
    };
    let status = Status { verdict, ..status(shown) };
    write(shown, view, by, rows, |record| output.write(record))?;
    output.write(&Record::Status(&status))?;
    Ok(output.flush()?)
}

/// Prints the table of a balancer's backends, or its status as `dwell lb status` does.
pub fn backends(balancer: &Balancer, by: By, limit: usize, format: FormatOrNone) -> Result<Exit, Failure> {
    match (format, balancer.status()) {
        (FormatOrNone::Text, _) => print(backends::print(balancer, by, limit))?,
        (FormatOrNone::Jsonl, Some(status)) => print(object(status))?,
        (FormatOrNone::Jsonl, None) | (FormatOrNone::None, _) => {}
    }
    Ok(Exit::Done)
}

/// The status as a line of JSON.
fn object(status: &BalancerStatus) -> Vec<u8> {
    let mut status = status.clone();
    let time = mem::take(&mut status.time);
    let mut line = Vec::new();
    write_object(Header { time: Some(&time), host: Some(&host_name()) }, &status, &mut line);
    line
}

/// Saves the flows of all intervals that rows have values of, as a store; of backends, the status. Returns what to tell the
/// user.
pub fn save(shown: &Screenful, app: &App) -> String {
    let time = shown.time().replace(':', "");
    let (path, saved) = match (&app.page, shown.balancer.as_ref().and_then(Balancer::status)) {
        (Page::Backends(_), None) => return "there is no balancer whose status could be saved".into(),
        (Page::Backends(_), Some(status)) => {
            let (path, file) = create(&format!("dwell-top-backends-{time}"), "jsonl");
            let written = file.and_then(|mut file| file.write_all(&object(status)));
            (path, written.map(|()| "the status is".to_owned()).map_err(|error| error.to_string()))
        }
        _ => {
            let (path, file) = create(&format!("dwell-top-{time}"), "db");
            let saved = file.map_err(|error| error.to_string()).and_then(|_| {
                let saved = store(shown, Path::new(&path));
                // What is half written would be taken for a store.
                saved.inspect_err(|_| drop(fs::remove_file(&path)))
            });
            (path, saved.map(|flows| counted(flows as u64, "flow is", "flows are")))
        }
    };
    match saved {
        Ok(what) => format!("{what} in {path}"),
        Err(error) => format!("cannot save to {path}: {error}; start dwell where it may write"),
    }
}

/// Creates a file that did not exist, with a number behind its name if there was one of that name.
fn create(stem: &str, extension: &str) -> (String, io::Result<File>) {
    let mut number = 1;
    loop {
        let behind = if number > 1 { format!("-{number}") } else { String::new() };
        let path = format!("{stem}{behind}.{extension}");
        match File::create_new(&path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists && number < MOST_SAVES => number += 1,
            created => return (path, created),
        }
    }
}

/// Writes what rows of flows have into an empty file. Returns how many flows have something.
fn store(shown: &Screenful, path: &Path) -> Result<usize, String> {
    const KEPT: [Metric; 3] = [Metric::Rtt, Metric::Response, Metric::SendBuffer];
    let recording = Recording {
        path: path.to_owned(),
        interval_ns: shown.interval.1,
        retain: None,
        // Nothing else is read meanwhile.
        origin: Origin::Capture,
        longest_end: LONGEST_SAVE,
        // The screen has no room for more than how it ends.
        log: |_| (),
    };
    let mut recorder = Recorder::start(recording).map_err(|error| error.to_string())?;
    let (view, by) = (View::Flows, Metric::Rtt);
    let mut rows: Vec<TopRow> = shown
        .rows(view, by)
        .into_iter()
        .map(|row| TopRow { row, line: String::new(), names: FlowNames { label: None, ..names_of(&row, shown) } })
        .collect();
    let has_some = |past: &Past| KEPT.into_iter().any(|metric| past.of(metric).flatten().next().is_some());
    let kept = rows.iter().filter(|row| shown.past(&row.row.key).is_some_and(has_some)).count();
    for (age, (end_ns, length_ns)) in shown.intervals().enumerate().take(PAST) {
        for row in &mut rows {
            let past = shown.past(&row.row.key);
            let then = |metric| past.and_then(|past| past.of(metric).nth(PAST - 1 - age)?).map(|value| value as u64);
            let [rtt_ns, response_ns, send_buffer_ns] = KEPT.map(then);
            row.row.figures = Figures { rtt_ns, response_ns, send_buffer_ns, ..Figures::default() };
        }
        let (cut, omitted) = (0, shown.table.omitted());
        recorder.keep(&Record::Top(&Top { end_ns, length_ns, view, by, rows: &rows, cut, omitted }), &shown.source);
    }
    recorder.finish(&shown.source).map_or(Ok(kept), Err)
}

fn write<E>(
    shown: &Screenful,
    view: View,
    by: Metric,
    (rows, limit): (&[Row], usize),
    mut write: impl FnMut(&Record<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let named: Vec<TopRow> = rows
        .iter()
        .take(limit)
        .map(|row| {
            let names = names_of(row, shown);
            TopRow { row: *row, line: line(row, &names), names }
        })
        .collect();
    let ((end_ns, length_ns), omitted) = (shown.interval, shown.table.omitted());
    write(&Record::Top(&Top { end_ns, length_ns, view, by, rows: &named, cut: rows.len() - named.len(), omitted }))
}

fn status(shown: &Screenful) -> Status {
    let names = shown.names.counts();
    let counters = [
        ("flows", shown.table.flows() as u64),
        ("process_searches", names.searches),
        ("unknown_processes", names.unknown),
        ("omitted_processes", names.omitted),
        ("omitted_names", names.left_out),
    ];
    Status {
        verb: Verb::Top,
        time_ns: Some(shown.interval.0),
        last: true,
        lost: shown.table.omitted(),
        cost: cost(&[]),
        counters: counters
            .into_iter()
            .chain(reverse_counters(names.reverse).into_iter().filter(|(_, count)| *count > 0))
            .chain(Some(("name_notes_lost", names.notes_lost)).filter(|(_, count)| *count > 0))
            .map(|(name, count)| (name.into(), count))
            .chain(shown.losses.iter().cloned())
            .collect(),
        verdict: None,
    }
}
