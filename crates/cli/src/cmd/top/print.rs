//! `--once`, and what `s` saves.

use std::{fs::File, io::Write};

use clap::ValueEnum;
use dwell_engine::top::{Metric, Row, View};
use dwell_records::{Output, Record, Sink, Status, Top, TopRow, Verb, entry};

use super::{
    app::App,
    label::{line, names_of},
    shown::Shown,
};
use crate::{
    exit::{Exit, Failure},
    source::cost,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Text,
    Jsonl,
}

/// Prints one table.
pub fn once(shown: &Shown, view: View, by: Metric, limit: usize, format: Format) -> Result<Exit, Failure> {
    let format = match format {
        Format::Text => "text",
        Format::Jsonl => "jsonl",
    };
    let format = entry(format).expect("a format of this name");
    let rows = shown.rows(view, by);
    let mut output = Output::new((format.new)(), Sink::stdout()?, shown.source.clone());
    write(shown, view, by, &rows, limit, |record| output.write(record))?;
    output.flush()?;
    Ok(Exit::Done)
}

/// Saves the rows as they are on the screen. Returns what to tell the user.
pub fn save(shown: &Shown, app: &App) -> String {
    let time = shown.time().replace(':', "");
    let path = format!("dwell-top-{}-{time}.jsonl", app.view.name());
    let format = entry("jsonl").expect("a format of this name");
    let (mut format, mut text, source) = ((format.new)(), Vec::new(), shown.source.clone());
    let written = write(shown, app.view, app.by, &app.rows, usize::MAX, |record| {
        format.write(record, &source, &mut text);
        Ok::<_, std::convert::Infallible>(())
    });
    let Ok(()) = written;
    match File::create_new(&path).and_then(|mut file| file.write_all(&text)) {
        Ok(()) => format!("{} rows are in {path}", app.rows.len()),
        Err(error) => format!("cannot save to {path}: {error}; start dwell where it may write"),
    }
}

fn write<E>(
    shown: &Shown,
    view: View,
    by: Metric,
    rows: &[Row],
    limit: usize,
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
    write(&Record::Top(&Top { end_ns, length_ns, view, by, rows: &named, cut: rows.len() - named.len(), omitted }))?;
    write(&Record::Status(&status(shown)))
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
        counters: counters.map(|(name, count)| (name.into(), count)).into(),
        verdict: None,
    }
}
