//! What a study found, for people and for programs: tables, a page of HTML, and JSON Lines.

mod object;
mod page;
mod text;

pub use object::RunObject;
pub use page::page;
pub use text::{policies, resumed, table};

use std::{fs, io, path::Path};

use dwell_records::{Header, SinkError, print, write_object};

use crate::study::Summary;

/// Summaries that belong together.
#[derive(Debug, Clone)]
pub struct Part {
    /// Its name in JSON Lines.
    pub name: &'static str,
    /// Its title for people.
    pub title: String,
    /// One summary per policy and number of servers.
    pub summaries: Vec<Summary>,
}

/// Writes the results to standard output, as `text` or as JSON Lines, and a page with charts to the file `plot`. A closed
/// pipe is not an error.
///
/// # Errors
///
/// If standard output or the file cannot be written.
pub fn write(text: &str, parts: &[Part], as_jsonl: bool, plot: Option<&Path>) -> io::Result<()> {
    let printed = match as_jsonl {
        true => print(jsonl(parts)),
        false => print(text),
    };
    if let Some(file) = plot {
        fs::write(file, page(text, parts))
            .map_err(|error| io::Error::new(error.kind(), format!("cannot write '{}': {error}", file.display())))?;
    }
    match printed {
        Err(SinkError::Failed { io, .. }) => Err(io),
        _ => Ok(()),
    }
}

/// One JSON object per line and summary, each with the name of its part. A simulation has no time and no host.
pub fn jsonl(parts: &[Part]) -> Vec<u8> {
    let mut lines = Vec::new();
    for part in parts {
        for summary in &part.summaries {
            write_object(Header::default(), &RunObject::new(part.name, summary), &mut lines);
        }
    }
    lines
}
