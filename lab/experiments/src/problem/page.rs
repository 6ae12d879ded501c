//! What a page tells its reader to run, and what it shows of that.

use anyhow::{Result, bail};
use dwell_testbed::pages::{Block, blocks};

/// The blocks of a page that run dwell.
pub fn steps(text: &str) -> Vec<Block> {
    let mut steps = blocks(text);
    steps.retain(|step| step.runs("dwell") || step.runs("dwell-lab"));
    steps
}

/// The script in which durations are a quarter of what the page has, at least 2 s, and intervals not longer than that. A
/// baseline needs its intervals.
pub fn shortened(script: &str) -> String {
    if script.contains(" --baseline ") {
        return script.to_owned();
    }
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
    const UNITS: [&str; 16] =
        ["ns", "µs", "ms", "s", "%", "-", "B", "KB", "kB", "MB", "GB", "bit/s", "kbit/s", "Mbit/s", "mean", "×"];
    // Why the other epochs have no estimate differs too.
    let line = line.split("; mostly ").next().unwrap_or_default();
    line.split_whitespace()
        .map(|word| word.trim_matches(['(', ')', ',', ';']))
        .filter(|word| !word.contains(|letter: char| letter.is_ascii_digit() || ('▀'..='▟').contains(&letter)))
        .filter(|word| !word.is_empty() && !UNITS.contains(word))
        .collect()
}

/// What two lines that say the same have in common: their words, or the number of figures where there are none.
fn gist(line: &str) -> Vec<&str> {
    let words = words(line);
    match words.is_empty() {
        true => line.split_whitespace().map(|_| "").collect(),
        false => words,
    }
}

/// What the page shows and the run did not print: of the first line, of lines without figures, and of more than a third of
/// the others.
pub fn differences(step: &Block, printed: &str) -> Result<()> {
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

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "\
# A page

    sudo dwell a --duration 10s |
      jq .

```
The peer is late: 12 % of the time.
  ████ bar
...
   12 ms  mean wait
```

    tc qdisc

text

    dwell b

    dwell c
";

    #[test]
    fn blocks_that_run_dwell_are_steps_with_their_output() {
        let found = steps(PAGE);
        let scripts: Vec<&str> = found.iter().map(|step| step.script.as_str()).collect();
        assert_eq!(scripts, ["sudo dwell a --duration 10s |\n  jq .", "dwell b", "dwell c"]);
        assert_eq!((found[0].line, found[0].shown.len(), found[1].shown.len()), (3, 3, 0));
    }

    #[test]
    fn output_differs_by_its_words_and_not_by_its_figures() {
        let step = &steps(PAGE)[0];
        assert!(differences(step, "The peer is late: 99 % of the time.\n 1.25 s  mean wait\nmore\n").is_ok());
        assert!(differences(step, "The path is long: 12 % of the time.\n 12 ms  mean wait\n").is_err());
        assert!(differences(step, "The peer is late: 12 % of the time.\n").is_err());
        assert!(differences(step, "").is_err());
        let figures = Block { shown: vec!["10:00 10.0.0.5 12.5".to_owned()], ..step.clone() };
        assert!(differences(&figures, "dwell: 1 packet\n11:00 10.0.0.7 1\n").is_ok());
        assert!(differences(&figures, "dwell: 1 packet\n").is_err());
    }

    #[test]
    fn a_walk_in_short_has_a_quarter_of_each_duration() {
        assert_eq!(shortened("dwell a --interval 10s --duration 40s"), "dwell a --interval 2s --duration 10s");
        assert_eq!(shortened("dwell a --duration 5s\ndwell b 10s"), "dwell a --duration 2s\ndwell b 10s");
        assert_eq!(shortened("dwell stack --duration 10s --baseline x"), "dwell stack --duration 10s --baseline x");
    }
}
