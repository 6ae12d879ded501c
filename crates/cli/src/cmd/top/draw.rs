//! The pages of the screen.

use std::iter;

use dwell_engine::top::View;
use dwell_records::{Lines, counted};
use ratatui_core::{
    buffer::Buffer,
    layout::Rect,
    style::{Modifier, Style},
    terminal::Frame,
};

use super::{
    app::{App, Page},
    backends::{self, Balancer},
    columns::{Column, Columns, cell, fit, sparkline},
    detail,
    label::{line_in, names_of},
    shown::{Origin, Screenful},
};

pub const PLAIN: Style = Style::new();
const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
pub const DIM: Style = Style::new().add_modifier(Modifier::DIM);
const REVERSED: Style = Style::new().add_modifier(Modifier::REVERSED);

const KEYS: &[(&str, &str)] = &[
    ("1 2 3 4 5 6, Tab", "flows, peers, prefixes, processes, units, backends"),
    ("< >, ← →", "rank by another column"),
    ("↑ ↓, j k, PgUp PgDn", "move the cursor; g and G: to the first and last row"),
    ("Enter", "where the time of a row goes, and why"),
    ("f, /", "only flows of a filter, as with --filter"),
    ("p, Space", "freeze the screen, and go on"),
    ("s", "save the flows as a store, in this directory"),
    ("n", "names on and off"),
    ("?, h", "this page"),
    ("q, Ctrl-C", "quit"),
];

const COLUMNS: &[(&str, &str)] = &[
    ("RTT", "round trip; grey: of an earlier interval"),
    ("RESP", "how long the server took to respond; grey: in doubt"),
    ("SNDBUF", "wait of bytes in the send buffer"),
    ("RETR", "segments that were sent again"),
    ("BIT/S", "rate in both directions"),
    ("TREND", "the column that rows are ranked by, newest last"),
];

/// Draws the screen.
pub fn page(app: &mut App, shown: &Screenful, frame: &mut Frame<'_>) {
    let area = frame.area();
    let mut canvas = Canvas { area, buffer: frame.buffer_mut() };
    draw(app, shown, &mut canvas);
}

/// A part of the screen to write lines on. What does not fit is cut.
pub struct Canvas<'a> {
    area: Rect,
    buffer: &'a mut Buffer,
}

impl Canvas<'_> {
    pub fn width(&self) -> usize {
        self.area.width.into()
    }

    pub fn height(&self) -> usize {
        self.area.height.into()
    }

    /// Writes a text from a column of a line on.
    pub fn write(&mut self, column: usize, line: usize, text: &str, style: Style) {
        if column < self.width() && line < self.height() {
            let (x, y) = (self.area.x + column as u16, self.area.y + line as u16);
            self.buffer.set_stringn(x, y, text, self.width() - column, style);
        }
    }

    /// Writes a line in bold.
    pub fn heading(&mut self, line: usize, text: &str) {
        self.write(0, line, text, BOLD);
    }

    /// Writes a line.
    pub fn line(&mut self, line: usize, text: &str) {
        self.write(0, line, text, PLAIN);
    }

    /// Writes a message in the last lines, as many as it needs, over what is there.
    fn message(&mut self, text: &str) {
        let (lines, width) = (wrapped(text, self.width(), 0), self.width());
        for (line, text) in (self.height().saturating_sub(lines.len())..).zip(lines) {
            self.write(0, line, &format!("{text:<width$}"), BOLD);
        }
    }

    /// Marks a whole line.
    pub fn reverse(&mut self, line: usize) {
        if line < self.height() {
            let row = Rect { y: self.area.y + line as u16, height: 1, ..self.area };
            self.buffer.set_style(row, REVERSED);
        }
    }
}

fn draw(app: &mut App, shown: &Screenful, canvas: &mut Canvas<'_>) {
    let last = canvas.height().saturating_sub(1);
    if matches!(app.page, Page::Help { .. }) {
        return help(app, canvas);
    }
    title(app, shown, canvas);
    if let Page::Detail { .. } = app.page {
        app.cursor.height = canvas.height().saturating_sub(3);
        detail::draw(app, shown, canvas);
        canvas.write(0, last, "Esc back  ↑↓ scroll  p freeze  q quit", DIM);
        return;
    }
    if let Page::Backends(backends) = &mut app.page {
        match &shown.balancer {
            Some(balancer) => backends.draw(balancer, canvas),
            None => canvas.write(0, 3, "A capture has no balancer.", DIM),
        }
        match &app.message {
            Some(message) => canvas.message(message),
            None => canvas.write(0, last, "? keys  </> rank  1 flows  p freeze  s save  q quit", DIM),
        }
        return;
    }
    table(app, shown, canvas);
    match (&app.page, &app.message) {
        (Page::Filter(text), _) => {
            let room = canvas.width().saturating_sub(9);
            let start = text.chars().count().saturating_sub(room);
            let shown: String = text.chars().skip(start).collect();
            canvas.write(0, last, &format!("Filter: {shown}█"), BOLD);
        }
        (_, Some(message)) => canvas.message(message),
        _ => canvas.write(0, last, "? keys  Enter why  </> rank  f filter  p freeze  s save  q quit", DIM),
    }
}

/// The first two lines: what is watched, and the views.
fn title(app: &App, shown: &Screenful, canvas: &mut Canvas<'_>) {
    let is_of_backends = matches!(app.page, Page::Backends(_));
    let balancer = shown.balancer.as_ref().filter(|_| is_of_backends);
    let (status, stored) = (balancer.and_then(Balancer::status), balancer.and_then(Balancer::stored_interval));
    let (time, what) = match (status, stored) {
        (Some(status), _) => (shown.time(), backends::title(status)),
        (None, Some((end_ns, rows))) => (shown.time_at(end_ns), counted(rows as u64, "backend", "backends")),
        (None, None) => (shown.time(), counted(shown.table.flows() as u64, "flow", "flows")),
    };
    let mut title = format!(
        "dwell top  {}  {time}  {what}",
        shown.source.host.as_deref().unwrap_or(if shown.origin == Origin::Store { "store" } else { "capture" })
    );
    if shown.table.omitted() > 0 {
        title.push_str(&format!(", {} beyond --max-flows", shown.table.omitted()));
    }
    if !shown.filter_text().is_empty() {
        title.push_str(&format!("  of {}", shown.filter_text()));
    }
    canvas.write(0, 0, &fit(&title, canvas.width()), BOLD);
    let mut column = 0;
    for (number, view) in View::ALL.into_iter().enumerate() {
        let tab = format!(" {} {} ", number + 1, view.name());
        canvas.write(column, 1, &tab, if view == app.view && !is_of_backends { REVERSED } else { DIM });
        column += tab.chars().count();
    }
    if app.has_backends || is_of_backends {
        let tab = " 6 backends ";
        canvas.write(column, 1, tab, if is_of_backends { REVERSED } else { DIM });
        column += tab.len();
    }
    if app.is_frozen {
        canvas.write(column.min(canvas.width().saturating_sub(8)), 1, " FROZEN ", REVERSED);
    }
}

fn table(app: &mut App, shown: &Screenful, canvas: &mut Canvas<'_>) {
    const ABOVE: usize = 3;
    let columns = Columns::of(canvas.width(), app.view, app.by);
    headings(app, &columns, canvas);
    let height = canvas.height().saturating_sub(ABOVE + 1);
    let first = app.cursor.scroll(height, app.rows.len());
    for (at, row) in app.rows.iter().enumerate().skip(first).take(height) {
        let name = line_in(row, &names_of(row, shown), columns.name);
        let line = ABOVE + at - first;
        canvas.write(0, line, &name, PLAIN);
        let mut end = columns.name;
        for column in &columns.others {
            end += column.width();
            let (text, style) = match column {
                Column::Flows => (row.flows.to_string(), PLAIN),
                Column::Metric(metric) => {
                    let (text, is_old) = cell(row, *metric);
                    (text, if is_old { DIM } else { PLAIN })
                }
                Column::Trend => {
                    let past = shown.past(&row.key).map(|past| past.of(app.by));
                    (sparkline(past.into_iter().flatten(), column.width() - 1), PLAIN)
                }
            };
            canvas.write(end.saturating_sub(text.chars().count()), line, &text, style);
        }
        if at == app.cursor.at {
            canvas.reverse(line);
        }
    }
    if app.rows.is_empty() && height > 0 {
        let why = match shown.origin {
            Origin::Live => "No TCP connections; those of other network namespaces are seen from there.",
            Origin::Capture => "No flow of the capture has a round trip or a response.",
            Origin::Store => "The last interval of the store has no flow with a round trip or a response.",
        };
        canvas.write(0, ABOVE, why, DIM);
    }
}

fn headings(app: &App, columns: &Columns, canvas: &mut Canvas<'_>) {
    let name = match app.view {
        View::Flows => "FLOW",
        View::Peers => "PEER",
        View::Prefixes => "PREFIX",
        View::Processes => "PROCESS",
        View::Units => "UNIT",
    };
    canvas.heading(2, name);
    let mut end = columns.name;
    for column in &columns.others {
        end += column.width();
        let is_rank = *column == Column::Metric(app.by);
        let text = if is_rank { format!("▼{}", column.heading()) } else { column.heading().to_owned() };
        canvas.write(end.saturating_sub(text.chars().count()), 2, &text, BOLD);
    }
}

/// Breaks a text into lines of a width. Those after the first begin at the column `indent`.
pub fn wrapped(text: &str, width: usize, indent: usize) -> Vec<String> {
    let lines = Lines::of(Some(width));
    text.lines().flat_map(|line| lines.fit(line, 0, indent).lines().map(str::to_owned).collect::<Vec<_>>()).collect()
}

fn help(app: &mut App, canvas: &mut Canvas<'_>) {
    let Page::Help { scroll, last, .. } = &mut app.page else {
        return;
    };
    // Each line, and how many columns of it are bold.
    let mut lines: Vec<(String, usize)> = Vec::new();
    for (heading, indent, entries) in [("dwell top: keys", 22, KEYS), ("Columns; - is unknown", 10, COLUMNS)] {
        lines.push((heading.into(), heading.len()));
        for (name, what) in entries {
            let bold = 1 + name.chars().count();
            let entry = format!(" {name}{:pad$}{what}", "", pad = indent - bold);
            lines.extend(
                wrapped(&entry, canvas.width(), indent).into_iter().zip([bold].into_iter().chain(iter::repeat(0))),
            );
        }
    }
    let room = canvas.height().saturating_sub(1);
    app.cursor.height = room;
    *last = lines.len().saturating_sub(room);
    *scroll = (*scroll).min(*last);
    for (line, (text, bold)) in lines.iter().skip(*scroll).take(room).enumerate() {
        canvas.line(line, text);
        canvas.write(0, line, &text.chars().take(*bold).collect::<String>(), BOLD);
    }
    let keys = if *last > 0 { "↑↓ scroll  any other key: back" } else { "any key: back" };
    canvas.write(0, room, keys, DIM);
}
