//! What a page tells its reader to run, and what it shows of that.

use anyhow::{Result, bail};

/// A block of commands on a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The line of the page at which it begins.
    pub line: usize,
    /// The commands, for a shell.
    pub script: String,
    /// The lines that the page shows of their output, without `...`.
    pub shown: Vec<String>,
}

/// The blocks of a page that run dwell. A block is indented by four spaces; the fenced block right after it is its output.
pub fn steps(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut is_fenced = false;
    // Whether a command, or its output, may go on.
    let (mut is_command, mut has_output) = (false, false);
    for (line, text) in (1..).zip(text.lines()) {
        if text.starts_with("```") {
            is_fenced = !is_fenced;
            has_output &= is_fenced;
        } else if is_fenced {
            if let Some(step) = steps.last_mut().filter(|_| has_output)
                && text.trim() != "..."
            {
                step.shown.push(text.to_owned());
            }
        } else if let Some(command) = text.strip_prefix("    ") {
            match steps.last_mut().filter(|_| is_command) {
                Some(step) => step.script += &format!("\n{command}"),
                None => steps.push(Step { line, script: command.to_owned(), shown: Vec::new() }),
            }
            (is_command, has_output) = (true, true);
        } else {
            is_command = false;
            has_output &= text.is_empty();
        }
    }
    steps.retain(|step| step.script.lines().any(|line| runs_dwell(line)));
    steps
}

fn runs_dwell(line: &str) -> bool {
    line.split(['|', ';', '&']).any(|command| {
        command
            .split_whitespace()
            .find(|word| *word != "sudo")
            .is_some_and(|word| matches!(word, "dwell" | "dwell-lab"))
            || command.contains(" -n dwell ")
    })
}

/// The script in which durations are a quarter of what the page has, at least 2 s, and intervals not longer than that.
pub fn shortened(script: &str) -> String {
    let words: Vec<&str> = script.split(' ').collect();
    let mut short = Vec::new();
    for (index, word) in words.iter().enumerate() {
        let option = index.checked_sub(1).map_or("", |before| words[before]);
        let (number, unit) = word.split_once('s').map_or((*word, None), |(number, rest)| (number, Some(rest)));
        let seconds = unit.and(number.parse::<u64>().ok()).filter(|_| matches!(option, "--duration" | "--interval"));
        short.push(match (seconds, unit) {
            (Some(seconds), Some(rest)) => format!("{}s{rest}", seconds.min((seconds / 4).max(2))),
            _ => (*word).to_owned(),
        });
    }
    short.join(" ")
}

/// The words of a line without what differs from run to run: figures, their units, names with digits, bars.
fn words(line: &str) -> Vec<&str> {
    const UNITS: [&str; 14] =
        ["ns", "µs", "ms", "s", "%", "-", "B", "KB", "kB", "MB", "GB", "bit/s", "kbit/s", "Mbit/s"];
    line.split_whitespace()
        .map(|word| word.trim_matches(['(', ')', ',', ';']))
        .filter(|word| !word.contains(|letter: char| letter.is_ascii_digit() || ('▀'..='▟').contains(&letter)))
        .filter(|word| !word.is_empty() && !UNITS.contains(word))
        .collect()
}

/// What two lines that say the same have in common: their words, or the number of figures where there are none. The reasons of
/// left-out epochs differ from run to run.
fn gist(line: &str) -> Vec<&str> {
    let line = line.split_once("; mostly ").map_or(line, |(before, _)| before);
    let words = words(line);
    match words.is_empty() {
        true => line.split_whitespace().map(|_| "").collect(),
        false => words,
    }
}

/// What the page shows and the run did not print: of the first line, of lines without figures, and of more than a third of
/// the others.
pub fn differences(step: &Step, printed: &str) -> Result<()> {
    let is_bar = |line: &str| line.contains(|letter: char| ('▀'..='▟').contains(&letter));
    let printed: Vec<Vec<&str>> = printed.lines().map(gist).collect();
    let shown: Vec<&String> = step.shown.iter().filter(|line| !is_bar(line) && !line.trim().is_empty()).collect();
    let missing: Vec<&&String> = shown.iter().filter(|line| !printed.contains(&gist(line))).collect();
    let has_figures = |line: &str| line.contains(|letter: char| letter.is_ascii_digit());
    let Some(worst) = missing
        .iter()
        .find(|line| shown.first() == Some(**line) || !has_figures(line))
        .or_else(|| missing.first().filter(|_| missing.len() * 3 > shown.len()))
    else {
        return Ok(());
    };
    bail!("line {} runs what does not print '{worst}', as it shows", step.line)
}
