//! Reading the tables of a TOML file key by key. Faults are collected with their lines, so that all of them can be
//! reported at once.

use std::{cell::RefCell, collections::BTreeSet, fmt, ops::Range, path::PathBuf};

use strsim::levenshtein;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

/// A fault in a configuration, and how to correct it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The file.
    pub path: PathBuf,
    /// The line number, from 1.
    pub line: usize,
    /// The key with the tables around it, as in `vip.health.interval`; empty if the file is not valid TOML there.
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

/// What is wrong with a value, and how to correct it: a fault without its location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Problem {
    pub what: String,
    pub remedy: String,
}

impl Problem {
    pub(super) fn new(what: impl Into<String>, remedy: impl Into<String>) -> Problem {
        Problem { what: what.into(), remedy: remedy.into() }
    }
}

/// The file, and the faults found so far.
#[derive(Debug)]
pub(super) struct Source {
    path: PathBuf,
    /// The offset of each line's first byte.
    lines: Vec<usize>,
    faults: RefCell<Vec<Fault>>,
    /// What does no harm, but not what its writer expects.
    warnings: RefCell<Vec<Fault>>,
}

impl Source {
    pub(super) fn new(path: PathBuf, text: &str) -> Source {
        let after = text.match_indices('\n').map(|(at, _)| at + 1);
        Source {
            path,
            lines: std::iter::once(0).chain(after).collect(),
            faults: RefCell::default(),
            warnings: RefCell::default(),
        }
    }

    pub(super) fn line(&self, at: usize) -> usize {
        self.lines.partition_point(|begin| *begin <= at)
    }

    pub(super) fn fault(&self, line: usize, key: impl Into<String>, problem: Problem) {
        self.faults.borrow_mut().push(self.at(line, key, problem));
    }

    fn at(&self, line: usize, key: impl Into<String>, problem: Problem) -> Fault {
        let Problem { what, remedy } = problem;
        Fault { path: self.path.clone(), line, key: key.into(), what, remedy }
    }

    /// Returns all faults and all warnings, in the order of the file.
    pub(super) fn into_faults(self) -> (Vec<Fault>, Vec<Fault>) {
        let [faults, warnings] = [self.faults, self.warnings].map(|found| {
            let mut found = found.into_inner();
            found.sort_by_key(|fault| fault.line);
            found
        });
        (faults, warnings)
    }
}

/// A misspelled key gets a suggestion if it is this many edits away from a known one.
const MAX_TYPING_ERRORS: usize = 2;

/// A table that is being read.
#[derive(Debug)]
pub(super) struct Table<'a> {
    source: &'a Source,
    entries: &'a DeTable<'a>,
    /// The name with those of the tables around it; empty for the file itself.
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

    /// Reads the value of a key with `read`. None if the key is missing, or its value has a fault.
    pub(super) fn get<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&DeValue<'_>) -> Result<T, Problem>,
    ) -> Option<T> {
        let value = self.value(key)?;
        read(value.get_ref())
            .map_err(|problem| {
                let line = self.source.line(value.span().start);
                self.source.fault(line, self.path_of(key), problem);
            })
            .ok()
    }

    /// Reads the value of a mandatory key, as [`Table::get`] does. If it is missing, the fault shows `example`.
    pub(super) fn require<T>(
        &mut self,
        key: &'static str,
        example: &str,
        read: impl FnOnce(&DeValue<'_>) -> Result<T, Problem>,
    ) -> Option<T> {
        if !self.has(key) {
            self.known.insert(key);
            let problem = Problem::new("it is missing", format!("write {key} = {example}"));
            self.fault(problem, key);
            return None;
        }
        self.get(key, read)
    }

    /// Opens the table under a key.
    pub(super) fn table(&mut self, key: &'static str) -> Option<Table<'a>> {
        let value = self.value(key)?;
        match value.get_ref() {
            DeValue::Table(entries) => Some(Table::new(self.source, self.path_of(key), entries, value.span())),
            _ => {
                let path = self.path_of(key);
                let remedy = format!("write [{path}] on a line of its own, and its keys below");
                self.fault(Problem::new("it is a value, not a table", remedy), key);
                None
            }
        }
    }

    /// Opens the tables of the array under a key, in their order.
    pub(super) fn tables(&mut self, key: &'static str) -> Vec<Table<'a>> {
        let Some(value) = self.value(key) else {
            return Vec::new();
        };
        let path = self.path_of(key);
        let problem = Problem::new(
            "it is not a list of tables",
            format!("write [[{path}]] on a line of its own, and its keys below"),
        );
        let DeValue::Array(array) = value.get_ref() else {
            self.fault(problem, key);
            return Vec::new();
        };
        let tables = array.iter().filter_map(|entry| match entry.get_ref() {
            DeValue::Table(entries) => Some(Table::new(self.source, &path, entries, entry.span())),
            _ => {
                let line = self.source.line(entry.span().start);
                self.source.fault(line, &path, problem.clone());
                None
            }
        });
        tables.collect()
    }

    /// Whether the table has this key.
    pub(super) fn has(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    /// The line of a key, or of the table if it does not have the key.
    pub(super) fn line_of(&self, key: &str) -> usize {
        let value = self.entries.get(key);
        value.map_or(self.line, |value| self.source.line(value.span().start))
    }

    /// Adds a fault of a key.
    pub(super) fn fault(&self, problem: Problem, key: &str) {
        self.source.fault(self.line_of(key), self.path_of(key), problem);
    }

    /// Warns of a key that the table has although nothing follows from it.
    pub(super) fn warn_of_no_effect(&self, key: &str, why: &str) {
        if self.has(key) {
            let problem = Problem::new(format!("it has no effect, as {why}"), "remove it");
            let warning = self.source.at(self.line_of(key), self.path_of(key), problem);
            self.source.warnings.borrow_mut().push(warning);
        }
    }

    /// Adds a fault of another table's key, whose line and path are known.
    pub(super) fn fault_at(&self, line: usize, path: &str, problem: Problem) {
        self.source.fault(line, path, problem);
    }

    /// Ends reading: every key that was never asked for is a fault.
    pub(super) fn finish(self) {
        for key in self.entries.keys() {
            let name: &str = key.get_ref();
            if self.known.contains(name) {
                continue;
            }
            let near = self.known.iter().min_by_key(|known| levenshtein(known, name));
            let remedy = match near.filter(|near| levenshtein(near, name) <= MAX_TYPING_ERRORS) {
                Some(near) => format!("did you mean '{near}'?"),
                None => {
                    let known: Vec<_> = self.known.iter().copied().collect();
                    format!("the keys are: {}", known.join(", "))
                }
            };
            let line = self.source.line(key.span().start);
            let problem = Problem::new("no such key", remedy);
            self.source.fault(line, self.path_of(name), problem);
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
