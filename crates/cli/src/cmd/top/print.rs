//! `--once`, and what `s` saves.

use std::{fs::File, io::Write, mem};

use clap::ValueEnum;
use dwell_balancer::api::Status as BalancerStatus;
use dwell_engine::top::{Metric, Row, View};
use dwell_records::{Header, Output, Record, Sink, Status, Top, TopRow, Verb, Verdict, entry, print, write_object};

use super::{
    app::{App, Page},
    backends::{self, Balancer, By},
    label::{line, names_of},
    shown::Shown,
};
use crate::{
    exit::{Exit, Failure},
    names::reverse_counters,
    source::{cost, host_name},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Text,
    Jsonl,
}

/// Prints one table: the first of these rows.
pub fn once(
    shown: &Shown,
    view: View,
    by: Metric,
    rows: (&[Row], usize),
    format: Format,
    verdict: Option<Verdict>,
) -> Result<(), Failure> {
    let format = match format {
        Format::Text => "text",
        Format::Jsonl => "jsonl",
    };
    let format = entry(format).expect("a format of this name");
    let mut output = Output::new((format.new)(), Sink::stdout()?, shown.source.clone());
    let status = Status { verdict, ..status(shown) };
    write(shown, view, by, rows, true, |record| output.write(record))?;
    output.write(&Record::Status(&status))?;
    Ok(output.flush()?)
}

/// Prints the table of a balancer's backends, or its status as `dwell lb status` does.
pub fn backends(balancer: &Balancer, by: By, limit: usize, format: Format) -> Result<Exit, Failure> {
    match (format, balancer.status()) {
        (Format::Text, _) => print(backends::print(balancer, by, limit))?,
        (Format::Jsonl, Some(status)) => print(object(status))?,
        (Format::Jsonl, None) => {}
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

/// Saves the rows as they are on the screen. Returns what to tell the user.
pub fn save(shown: &Shown, app: &App) -> String {
    let (text, view, what) = match (&app.page, shown.balancer.as_ref().and_then(Balancer::status)) {
        (Page::Backends(_), None) => return "there is no balancer to save anything of".into(),
        (Page::Backends(_), Some(status)) => (object(status), "backends", "the status is".to_owned()),
        _ => (rows(shown, app), app.view.name(), format!("{} rows are", app.rows.len())),
    };
    let path = format!("dwell-top-{view}-{}.jsonl", shown.time().replace(':', ""));
    match File::create_new(&path).and_then(|mut file| file.write_all(&text)) {
        Ok(()) => format!("{what} in {path}"),
        Err(error) => format!("cannot save to {path}: {error}; start dwell where it may write"),
    }
}

/// The rows on the screen as JSON Lines.
fn rows(shown: &Shown, app: &App) -> Vec<u8> {
    let format = entry("jsonl").expect("a format of this name");
    let (mut format, mut text, source) = ((format.new)(), Vec::new(), shown.source.clone());
    let written = write(shown, app.view, app.by, (&app.rows, usize::MAX), shown.saves_labels(), |record| {
        format.write(record, &source, &mut text);
        Ok::<_, std::convert::Infallible>(())
    });
    let Ok(()) = written;
    format.write(&Record::Status(&status(shown)), &source, &mut text);
    text
}

fn write<E>(
    shown: &Shown,
    view: View,
    by: Metric,
    (rows, limit): (&[Row], usize),
    has_labels: bool,
    mut write: impl FnMut(&Record<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let named: Vec<TopRow> = rows
        .iter()
        .take(limit)
        .map(|row| {
            let mut names = names_of(row, shown);
            names.label = names.label.filter(|_| has_labels);
            TopRow { row: *row, line: line(row, &names), names }
        })
        .collect();
    let ((end_ns, length_ns), omitted) = (shown.interval, shown.table.omitted());
    write(&Record::Top(&Top { end_ns, length_ns, view, by, rows: &named, cut: rows.len() - named.len(), omitted }))
}

fn status(shown: &Shown) -> Status {
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
            .map(|(name, count)| (name.into(), count))
            .chain(shown.losses.iter().cloned())
            .collect(),
        verdict: None,
    }
}
