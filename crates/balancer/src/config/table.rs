//! Tables of a TOML file, read key by key: each fault is noted with its line, and reading goes on, so
//! that all are told at once.

use std::{cell::RefCell, collections::BTreeSet, fmt, ops::Range, path::PathBuf};

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

/// Something wrong in a configuration, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The file.
    pub path: PathBuf,
    /// The line, from 1.
    pub line: usize,
    /// The key with the tables that it stands in, as in `vip.health.interval`; empty if the file is
    /// no TOML there.
    pub key: String,
    /// What is wrong.
    pub what: String,
    /// What to write instead.
    pub remedy: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: ", self.path.display(), self.line)?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        write!(f, "{}; {}", self.what, self.remedy)
    }
}

/// What is wrong with a value by itself, and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wrong {
    pub what: String,
    pub remedy: String,
}

impl Wrong {
    pub(super) fn new(what: impl Into<String>, remedy: impl Into<String>) -> Wrong {
        Wrong { what: what.into(), remedy: remedy.into() }
    }
}

/// The file, and its faults so far.
#[derive(Debug)]
pub(super) struct Source {
    path: PathBuf,
    /// Where each line begins.
    lines: Vec<usize>,
    faults: RefCell<Vec<Fault>>,
}

impl Source {
    pub(super) fn new(path: PathBuf, text: &str) -> Source {
        let after = text.match_indices('\n').map(|(at, _)| at + 1);
        Source { path, lines: std::iter::once(0).chain(after).collect(), faults: RefCell::default() }
    }

    pub(super) fn line(&self, at: usize) -> usize {
        self.lines.partition_point(|begin| *begin <= at)
    }

    pub(super) fn fault(&self, line: usize, key: impl Into<String>, wrong: Wrong) {
        let Wrong { what, remedy } = wrong;
        self.faults.borrow_mut().push(Fault { path: self.path.clone(), line, key: key.into(), what, remedy });
    }

    /// All that was found, in the order of the file.
    pub(super) fn into_faults(self) -> Vec<Fault> {
        let mut faults = self.faults.into_inner();
        faults.sort_by_key(|fault| fault.line);
        faults
    }
}

/// A table that is being read.
#[derive(Debug)]
pub(super) struct Table<'a> {
    source: &'a Source,
    entries: &'a DeTable<'a>,
    /// With the tables that it stands in; empty for the file.
    name: String,
    line: usize,
    known: BTreeSet<&'static str>,
}

impl<'a> Table<'a> {
    pub(super) fn new(
        source: &'a Source,
        name: impl Into<String>,
        entries: &'a DeTable<'a>,
        span: Range<usize>,
    ) -> Table<'a> {
        Table { source, entries, name: name.into(), line: source.line(span.start), known: BTreeSet::new() }
    }

    /// The value of a key, as `read` takes it; none if it is not there or wrong.
    pub(super) fn get<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&DeValue<'_>) -> Result<T, Wrong>,
    ) -> Option<T> {
        let value = self.value(key)?;
        read(value.get_ref())
            .map_err(|wrong| {
                let line = self.source.line(value.span().start);
                self.source.fault(line, self.path_of(key), wrong);
            })
            .ok()
    }

    /// The same of a key that must be there.
    pub(super) fn require<T>(
        &mut self,
        key: &'static str,
        example: &str,
        read: impl FnOnce(&DeValue<'_>) -> Result<T, Wrong>,
    ) -> Option<T> {
        if !self.entries.contains_key(key) {
            self.known.insert(key);
            let wrong = Wrong::new("it is missing", format!("write {key} = {example}"));
            self.fault(wrong, key);
            return None;
        }
        self.get(key, read)
    }

    /// A table in this one.
    pub(super) fn table(&mut self, key: &'static str) -> Option<Table<'a>> {
        let value = self.value(key)?;
        match value.get_ref() {
            DeValue::Table(entries) => Some(Table::new(self.source, self.path_of(key), entries, value.span())),
            _ => {
                let path = self.path_of(key);
                let remedy = format!("write [{path}] on a line of its own, and its keys below");
                self.fault(Wrong::new("it is a value, not a table", remedy), key);
                None
            }
        }
    }

    /// Tables of one name, in their order.
    pub(super) fn tables(&mut self, key: &'static str) -> Vec<Table<'a>> {
        let Some(value) = self.value(key) else {
            return Vec::new();
        };
        let path = self.path_of(key);
        let wrong =
            Wrong::new("it is no list of tables", format!("write [[{path}]] on a line of its own, and its keys below"));
        let DeValue::Array(array) = value.get_ref() else {
            self.fault(wrong, key);
            return Vec::new();
        };
        let tables = array.iter().filter_map(|entry| match entry.get_ref() {
            DeValue::Table(entries) => Some(Table::new(self.source, &path, entries, entry.span())),
            _ => {
                let line = self.source.line(entry.span().start);
                self.source.fault(line, &path, wrong.clone());
                None
            }
        });
        tables.collect()
    }

    /// The line of a key, or of the table where it is not there.
    pub(super) fn has(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    pub(super) fn line_of(&self, key: &str) -> usize {
        let value = self.entries.get(key);
        value.map_or(self.line, |value| self.source.line(value.span().start))
    }

    /// Notes what is wrong with a key.
    pub(super) fn fault(&self, wrong: Wrong, key: &str) {
        self.source.fault(self.line_of(key), self.path_of(key), wrong);
    }

    /// The same of another table's key, whose line is known.
    pub(super) fn fault_at(&self, line: usize, path: &str, wrong: Wrong) {
        self.source.fault(line, path, wrong);
    }

    /// All keys were asked for: tells those that nobody knows.
    pub(super) fn finish(self) {
        for key in self.entries.keys() {
            let name: &str = key.get_ref();
            if self.known.contains(name) {
                continue;
            }
            let near = self.known.iter().min_by_key(|known| distance(known, name));
            let remedy = match near.filter(|near| distance(near, name) <= 2) {
                Some(near) => format!("did you mean '{near}'?"),
                None => {
                    let known: Vec<_> = self.known.iter().copied().collect();
                    format!("there are: {}", known.join(", "))
                }
            };
            let line = self.source.line(key.span().start);
            let wrong = Wrong::new("no such key", remedy);
            self.source.fault(line, self.path_of(name), wrong);
        }
    }

    fn value(&mut self, key: &'static str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.known.insert(key);
        self.entries.get(key)
    }

    fn path_of(&self, key: &str) -> String {
        match self.name.as_str() {
            "" => key.to_owned(),
            name => format!("{name}.{key}"),
        }
    }
}

/// Letters to put in, leave out or change (Levenshtein).
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, letter) in one.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, another) in other.iter().enumerate() {
            let changed = diagonal + usize::from(letter != *another);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[other.len()]
}
