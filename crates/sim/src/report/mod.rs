//! What a study found, for people and for programs: tables, a page of HTML, and JSON Lines.

mod page;
mod text;

pub use page::page;
pub use text::{policies, resumed, table};

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

/// One JSON object per line and summary, each with the name of its part.
pub fn jsonl(parts: &[Part]) -> String {
    let mut lines = String::new();
    for part in parts {
        for summary in &part.summaries {
            let mut line = summary.line();
            line["part"] = part.name.into();
            lines += &line.to_string();
            lines.push('\n');
        }
    }
    lines
}
