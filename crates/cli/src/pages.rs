//! The command lines on pages and in help texts are ones that dwell accepts: verbs, options, values, and which of them
//! go together.

use std::{collections::BTreeSet, fs};

use clap::{Command, CommandFactory, Parser, error::ErrorKind};
use dwell_testbed::pages::{CommandLine, assert_accepted, command_lines, of_text, root};

use crate::Cli;

/// Why dwell would refuse these words.
fn refusal(words: &[String]) -> Option<String> {
    let error = Cli::try_parse_from(words).err()?;
    let is_help = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    (!is_help).then(|| error.to_string())
}

#[test]
fn every_command_line_on_a_page_is_accepted() {
    let commands = command_lines("dwell");
    assert!(commands.len() > 60, "{}", commands.len());
    assert_accepted(&commands, refusal);
}

/// The first command of each page, or a sentence why it is not the first.
#[test]
fn a_page_of_a_problem_begins_with_dwell_why_or_says_that_it_cannot_help() {
    let commands = command_lines("dwell");
    let pages: BTreeSet<&str> = commands.iter().filter_map(|command| command.place.split(':').next()).collect();
    let pages: Vec<_> = pages.into_iter().filter(|page| page.starts_with("docs/problems/")).collect();
    assert!(pages.len() >= 12, "{pages:?}");
    for page in pages {
        let first = commands.iter().find(|command| command.place.starts_with(page)).unwrap();
        let text = fs::read_to_string(root().join(page)).unwrap();
        let is_asked = first.words.get(1).is_some_and(|verb| verb == "why");
        assert!(is_asked || text.contains("`dwell why` cannot help here"), "{}: {:?}", first.place, first.words);
    }
}

#[test]
fn every_example_in_a_help_text_is_accepted() {
    let mut examples = Vec::new();
    add_examples(&Cli::command(), &mut examples);
    assert!(examples.len() > 40, "{}", examples.len());
    assert_accepted(&examples, refusal);
}

#[test]
fn no_line_of_any_help_is_wider_than_the_terminal() {
    let mut root = Cli::command();
    root.build();
    let mut commands = vec![root];
    while let Some(mut command) = commands.pop() {
        for help in [command.render_help(), command.render_long_help()] {
            for line in help.to_string().lines() {
                assert!(line.chars().count() <= 100, "{}: {line}", command.get_name());
            }
        }
        commands.extend(command.get_subcommands().cloned());
    }
}

/// The examples of a verb and of those below it. A remark follows an example after two spaces or more.
fn add_examples(command: &Command, examples: &mut Vec<CommandLine>) {
    let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    for line in text.replace("\\\n", " ").lines() {
        let line = line.trim();
        let example =
            line.split_once("  ").map_or(line, |(example, remark)| match remark.trim_start().starts_with('-') {
                true => line,
                false => example,
            });
        examples.extend(of_text("dwell", command.get_name(), &format!("    {example}")));
    }
    for verb in command.get_subcommands() {
        add_examples(verb, examples);
    }
}

#[test]
fn a_misspelled_option_is_refused() {
    for line in
        ["dwell rtt -i eth0 --agregate", "dwell rtt -i eth0 -r x.pcap", "dwell stack --interval soon", "dwell rtx"]
    {
        assert!(
            of_text("dwell", "page.md", &format!("    {line}")).iter().any(|command| refusal(&command.words).is_some()),
            "{line}"
        );
    }
}
