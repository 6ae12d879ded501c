//! The table of backends, on the screen and in print.

use dwell_balancer::api::Status;
use dwell_records::counted;
use ratatui_crossterm::crossterm::event::KeyCode;

use super::{Balancer, By, Row};
use crate::cmd::top::{
    app::{Cursor, after},
    columns::{fit, latency, sparkline},
    draw::{Canvas, DIM, PLAIN},
};

/// The page: how backends are ranked, and where the cursor is.
#[derive(Debug)]
pub struct Backends {
    by: By,
    cursor: Cursor,
    /// How many there were, as it was drawn last.
    rows: usize,
}

/// The width of each column with the space before it, and of the trend.
const WIDTH: usize = 8;
const TREND: usize = 13;
/// Names are not cut below this width for the sake of another column.
const NAME: usize = 20;
/// Lines above the table, and those below it that say why the backend at the cursor has its weight.
const ABOVE: usize = 3;
const BELOW: usize = 3;

impl Backends {
    pub fn new(by: By) -> Backends {
        Backends { by, cursor: Cursor::default(), rows: 0 }
    }

    /// Moves the cursor, or ranks by another column. Returns false for all other keys.
    pub fn key(&mut self, key: KeyCode) -> bool {
        match key {
            KeyCode::Right | KeyCode::Char('>') | KeyCode::F(6) => self.by = after(&By::ALL, self.by, 1),
            KeyCode::Left | KeyCode::Char('<') => self.by = after(&By::ALL, self.by, By::ALL.len() - 1),
            _ => return self.cursor.key(key, self.rows),
        }
        true
    }

    /// Draws the table below the title, and what is known of the backend at the cursor.
    pub fn draw(&mut self, balancer: &Balancer, canvas: &mut Canvas<'_>) {
        let rows = balancer.rows(self.by);
        self.rows = rows.len();
        let height = canvas.height().saturating_sub(ABOVE + BELOW);
        let first = self.cursor.scroll(height, self.rows);
        let columns = Columns::of(canvas.width(), self.by);
        canvas.heading(2, &columns.headings(self.by));
        for (at, row) in rows.iter().enumerate().skip(first).take(height) {
            let line = ABOVE + at - first;
            canvas.line(line, &columns.line(balancer, row, self.by));
            if at == self.cursor.at {
                canvas.reverse(line);
            }
        }
        match (rows.get(self.cursor.at), balancer.error()) {
            (Some(row), _) => {
                let line = canvas.height().saturating_sub(BELOW);
                canvas.write(0, line, &format!("{}: {}", row.name(), row.why), PLAIN);
                canvas.write(0, line + 1, &waiting(row), PLAIN);
            }
            (None, Some(error)) => canvas.write(0, ABOVE, &error.to_string(), DIM),
            (None, None) if balancer.socket.is_none() => {
                canvas.write(0, ABOVE, "The store has no backends: `dwell lb run --store` writes them.", DIM);
            }
            (None, None) => canvas.write(0, ABOVE, "The balancer has no backends.", DIM),
        }
    }
}

/// The requests that wait at a backend, if that is known.
fn waiting(row: &Row) -> String {
    match row.pending {
        (requests, Some(oldest_ns)) => format!(
            "{} for an answer, the oldest for {} or more",
            counted(requests, "request waits", "requests wait"),
            latency(oldest_ns)
        ),
        (_, None) => String::new(),
    }
}

/// The columns that fit a width: after the name the state, the one by which rows are ranked, the others, and the trend.
struct Columns {
    name: usize,
    shown: Vec<By>,
    has_trend: bool,
}

impl Columns {
    fn of(width: usize, by: By) -> Columns {
        let mut name = width.saturating_sub(1 + WIDTH);
        let mut shown = Vec::new();
        for column in [by].into_iter().chain(By::ALL) {
            if !shown.contains(&column) && name >= NAME + WIDTH {
                name -= WIDTH;
                shown.push(column);
            }
        }
        shown.sort_by_key(|column| *column as usize);
        let has_trend = name >= NAME + TREND;
        name -= if has_trend { TREND } else { 0 };
        Columns { name, shown, has_trend }
    }

    fn headings(&self, by: By) -> String {
        let mut line = format!("{:<name$} {:<WIDTH$}", "BACKEND", "STATE", name = self.name);
        for column in &self.shown {
            let mark = if *column == by { "▼" } else { "" };
            line += &format!("{:>WIDTH$}", format!("{mark}{}", column.heading()));
        }
        line + &if self.has_trend { format!("{:>TREND$}", "TREND") } else { String::new() }
    }

    fn line(&self, balancer: &Balancer, row: &Row, by: By) -> String {
        let name = fit(&row.name(), self.name);
        let mut line = format!("{name:<width$} {:<WIDTH$}", row.state, width = self.name);
        for column in &self.shown {
            line += &format!("{:>WIDTH$}", cell(row, *column));
        }
        let trend = |width| sparkline(balancer.trend(row, by), width);
        line + &if self.has_trend { format!("{:>TREND$}", trend(TREND - 1)) } else { String::new() }
    }
}

fn cell(row: &Row, by: By) -> String {
    let Some(value) = row.value(by) else {
        return "-".into();
    };
    match by {
        By::Response => latency(value as u64),
        By::Share => format!("{:.1} %", 100.0 * value),
        By::Pending | By::Active | By::Connections | By::Packets => format!("{value:.0}"),
    }
}

/// What the title says of the balancer.
pub fn title(status: &Status) -> String {
    let is_stale = status.plane.heartbeat.is_some_and(|heartbeat| heartbeat.is_stale);
    let stale = if is_stale { "  STALE" } else { "" };
    format!("{} on {}  {} connections{stale}", status.config, status.interface, status.plane.connections)
}

/// The table for scripts: all columns, of the first `limit` backends.
pub fn print(balancer: &Balancer, by: By, limit: usize) -> String {
    const WIDE: usize = 40;
    let columns = Columns { name: WIDE, shown: By::ALL.into(), has_trend: false };
    let rows = balancer.rows(by);
    let mut text = columns.headings(by) + "\n";
    for row in rows.iter().take(limit) {
        text += columns.line(balancer, row, by).trim_end();
        text.push('\n');
    }
    if let Some(more) = rows.len().checked_sub(limit).filter(|more| *more > 0) {
        text += &format!("and {more} more\n");
    }
    text
}
