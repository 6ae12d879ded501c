//! The state of the screen, and what keys do to it.

use std::mem;

use dwell_engine::top::{Metric, Row, RowKey, View};
use ratatui_crossterm::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::{
    backends::{Backends, Balancer, By},
    look::Look,
    shown::Screenful,
};

/// What is on the screen.
pub struct App {
    pub view: View,
    pub by: Metric,
    /// The rows of the view, the worst first.
    pub rows: Vec<Row>,
    pub cursor: Cursor,
    /// The row at the cursor, once the cursor was moved: it stays with the row.
    followed: Option<RowKey>,
    /// Whether a balancer answers, whose backends are a view.
    pub has_backends: bool,
    pub is_frozen: bool,
    pub page: Page,
    /// A line for the user, until the next key.
    pub message: Option<String>,
    /// The filter that was typed last.
    pub filter: String,
}

/// What takes up the screen.
#[expect(clippy::large_enum_variant, reason = "there is one")]
pub enum Page {
    Table,
    Backends(Backends),
    /// The keys, what was there before, the first line on the screen, and the last one that can be the first.
    Help {
        before: Box<Page>,
        scroll: usize,
        last: usize,
    },
    /// A row, what `dwell why` says of it, and the first line of that on the screen.
    Detail {
        row: Row,
        look: Look,
        scroll: usize,
    },
    /// A filter that is being typed.
    Filter(String),
}

/// What a key asks for, beyond the screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    Nothing,
    /// The rows are to be ranked or grouped anew.
    Update,
    Save,
    Filter(String),
    ToggleNames,
    Quit,
}

/// The longest filter that can be typed.
const MAX_FILTER: usize = 500;

impl App {
    pub fn new(view: View, by: Metric) -> App {
        App {
            view,
            by,
            rows: Vec::new(),
            cursor: Cursor::default(),
            followed: None,
            has_backends: false,
            is_frozen: false,
            page: Page::Table,
            message: None,
            filter: String::new(),
        }
    }

    /// Takes the rows as they are now.
    pub fn update(&mut self, shown: &Screenful) {
        self.set_rows(shown.rows(self.view, self.by));
        self.has_backends = shown.balancer.as_ref().is_some_and(Balancer::is_there);
        if let Page::Detail { row, .. } = &mut self.page
            && let Some(now) = shown.row(&row.key)
        {
            *row = now;
        }
    }

    /// Takes these rows. The cursor stays with its row, once it was moved.
    pub fn set_rows(&mut self, rows: Vec<Row>) {
        self.rows = rows;
        let found = self.followed.and_then(|key| self.rows.iter().position(|row| row.key == key));
        self.cursor.at = found.unwrap_or(self.cursor.at).min(self.rows.len().saturating_sub(1));
    }

    /// Does what a key stands for. Returns what is to be done beyond the screen.
    pub fn key(&mut self, key: impl Into<KeyEvent>) -> Action {
        let KeyEvent { code: key, modifiers, .. } = key.into();
        self.message = None;
        // A terminal sends the same for Alt with a letter as for Escape and the letter, typed one after the other.
        if modifiers.contains(KeyModifiers::ALT) && !matches!(self.page, Page::Filter(_)) {
            return match self.key(KeyCode::Esc) {
                Action::Nothing => self.key(KeyEvent::new(key, modifiers - KeyModifiers::ALT)),
                action => action,
            };
        }
        if let KeyCode::Char(letter) = key
            && modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT)
        {
            self.control(letter);
            return Action::Nothing;
        }
        match &mut self.page {
            Page::Table => self.table_key(key),
            Page::Filter(_) => self.filter_key(key),
            Page::Help { before, scroll, last } => {
                if *last == 0 || !scrolled(scroll, key, self.cursor.height) {
                    self.page = mem::replace(before, Page::Table);
                }
                Action::Nothing
            }
            Page::Backends(backends) => {
                if backends.key(key) {
                    Action::Nothing
                } else {
                    self.backends_key(key)
                }
            }
            Page::Detail { scroll, .. } => {
                match key {
                    KeyCode::Char('q') => return Action::Quit,
                    KeyCode::Char('p' | ' ') => self.is_frozen = !self.is_frozen,
                    key if scrolled(scroll, key, self.cursor.height) => {}
                    _ => self.page = Page::Table,
                }
                Action::Nothing
            }
        }
    }

    fn table_key(&mut self, key: KeyCode) -> Action {
        match key {
            KeyCode::Char('q') | KeyCode::F(10) => return Action::Quit,
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.help(),
            KeyCode::Char('p' | ' ') => self.is_frozen = !self.is_frozen,
            KeyCode::Char('s') => return Action::Save,
            KeyCode::Char('n') => return Action::ToggleNames,
            KeyCode::Char('f' | '/') | KeyCode::F(4) => self.page = Page::Filter(self.filter.clone()),
            KeyCode::Char(digit @ '1'..='5') => return self.show(View::ALL[digit as usize - '1' as usize]),
            KeyCode::Char('6') => self.show_backends(),
            KeyCode::Tab if self.has_backends && View::ALL.ends_with(&[self.view]) => self.show_backends(),
            KeyCode::BackTab if self.has_backends && View::ALL.starts_with(&[self.view]) => self.show_backends(),
            KeyCode::Tab => return self.show(after(&View::ALL, self.view, 1)),
            KeyCode::BackTab => return self.show(after(&View::ALL, self.view, View::ALL.len() - 1)),
            KeyCode::Right | KeyCode::Char('>') | KeyCode::F(6) => return self.rank(after(&Metric::ALL, self.by, 1)),
            KeyCode::Left | KeyCode::Char('<') => {
                return self.rank(after(&Metric::ALL, self.by, Metric::ALL.len() - 1));
            }
            KeyCode::Enter => {
                if let Some(row) = self.rows.get(self.cursor.at) {
                    self.page = Page::Detail { row: *row, look: Look::default(), scroll: 0 };
                }
            }
            _ if self.cursor.key(key, self.rows.len()) => {
                // At the top it stays there: what is worst then is followed.
                let at = self.cursor.at;
                self.followed = (at > 0).then(|| self.rows.get(at).map(|row| row.key)).flatten();
            }
            _ => {}
        }
        Action::Nothing
    }

    fn backends_key(&mut self, key: KeyCode) -> Action {
        match key {
            KeyCode::Char('q') | KeyCode::F(10) => return Action::Quit,
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.help(),
            KeyCode::Char('p' | ' ') => self.is_frozen = !self.is_frozen,
            KeyCode::Char('s') => return Action::Save,
            KeyCode::Char(digit @ '1'..='5') => return self.show(View::ALL[digit as usize - '1' as usize]),
            KeyCode::Tab => return self.show(View::ALL[0]),
            KeyCode::BackTab => return self.show(View::ALL[View::ALL.len() - 1]),
            _ => {}
        }
        Action::Nothing
    }

    fn help(&mut self) {
        let before = mem::replace(&mut self.page, Page::Table);
        self.page = Page::Help { before: Box::new(before), scroll: 0, last: 0 };
    }

    fn show_backends(&mut self) {
        self.page = Page::Backends(Backends::new(By::Response));
    }

    /// Edits a filter as shells edit their line. Other letters with Ctrl or Alt do nothing.
    fn control(&mut self, letter: char) {
        let Page::Filter(text) = &mut self.page else {
            return;
        };
        match letter {
            'u' => text.clear(),
            'w' => text.truncate(text.trim_end().rfind(' ').map_or(0, |space| space + 1)),
            'h' => drop(text.pop()),
            _ => {}
        }
    }

    fn filter_key(&mut self, key: KeyCode) -> Action {
        let Page::Filter(text) = &mut self.page else {
            return Action::Nothing;
        };
        match key {
            KeyCode::Char(letter) if text.len() < MAX_FILTER => text.push(letter),
            KeyCode::Backspace => drop(text.pop()),
            KeyCode::Esc => self.page = Page::Table,
            KeyCode::Enter => {
                self.filter = mem::take(text);
                self.page = Page::Table;
                return Action::Filter(self.filter.clone());
            }
            _ => {}
        }
        Action::Nothing
    }

    fn show(&mut self, view: View) -> Action {
        (self.view, self.page) = (view, Page::Table);
        (self.cursor, self.followed) = (Cursor::default(), None);
        Action::Update
    }

    fn rank(&mut self, by: Metric) -> Action {
        self.by = by;
        Action::Update
    }
}

/// Scrolls lines of which so many fit the screen. Returns false for keys that scroll nothing.
fn scrolled(first: &mut usize, key: KeyCode, height: usize) -> bool {
    *first = match key {
        KeyCode::Up | KeyCode::Char('k') => first.saturating_sub(1),
        KeyCode::Down | KeyCode::Char('j') => *first + 1,
        KeyCode::PageUp => first.saturating_sub(height),
        KeyCode::PageDown => *first + height,
        _ => return false,
    };
    true
}

/// Where the cursor is in a list of rows, and which of them are on the screen.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cursor {
    /// The number of the row at the cursor.
    pub at: usize,
    /// The number of the first row on the screen.
    first: usize,
    /// Rows that fit the screen, as it was drawn last.
    pub height: usize,
}

impl Cursor {
    /// Moves within a list of so many rows. Returns false for keys that move nothing.
    pub fn key(&mut self, key: KeyCode, rows: usize) -> bool {
        let at = match key {
            KeyCode::Up | KeyCode::Char('k') => self.at.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.at + 1,
            KeyCode::PageUp => self.at.saturating_sub(self.height),
            KeyCode::PageDown => self.at + self.height,
            KeyCode::Home | KeyCode::Char('g') => 0,
            KeyCode::End | KeyCode::Char('G') => usize::MAX,
            _ => return false,
        };
        self.at = at.min(rows.saturating_sub(1));
        true
    }

    /// Returns the first of so many rows on a screen with room for `height`, such that the cursor is on it.
    pub fn scroll(&mut self, height: usize, rows: usize) -> usize {
        self.height = height;
        self.at = self.at.min(rows.saturating_sub(1));
        let last = self.at.saturating_sub(height.saturating_sub(1));
        self.first = self.first.clamp(last, self.at).min(rows.saturating_sub(height));
        self.first
    }
}

/// Returns what stands so many places after one of them, around the end.
pub fn after<T: Copy + PartialEq>(all: &[T], one: T, by: usize) -> T {
    let at = all.iter().position(|other| *other == one).unwrap_or(0);
    all[(at + by) % all.len()]
}
