//! An option of one name is the same option in every verb: a test over the commands as clap knows them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use clap::{Command, CommandFactory};
use dwell_app::vocabulary::{Exception, Part, clashes, options};

use crate::Cli;

const EXCEPTIONS: &[Exception] = &[
    ("format", Part::Default, "collect runs as a service and prints nothing unless asked"),
    ("max-flows", Part::Default, "a flow of stack and agent takes 5 KB in each interval, one of rtt 600 bytes in all"),
    ("read", Part::Meaning, "report reads stores, and no capture"),
    ("summary", Part::ValueName, "that of response may say what a line is about"),
];

#[test]
fn an_option_is_the_same_in_every_verb() {
    let parts = [Part::Short, Part::ValueName, Part::Default, Part::Meaning];
    let clashes = clashes(&Cli::command(), &parts, 3, EXCEPTIONS);
    assert!(clashes.is_empty(), "{clashes:#?}");
}

/// `-p` is a port and `-f` a filter, whatever the verb.
#[test]
fn a_short_form_is_one_option_in_every_verb() {
    let options = options(&Cli::command());
    let mut shorts: BTreeMap<char, &String> = BTreeMap::new();
    for (name, verbs) in &options {
        for short in verbs.iter().filter_map(|(_, option)| option.get_short()) {
            assert_eq!(shorts.entry(short).or_insert(name), &name, "-{short}");
        }
    }
    assert_eq!((shorts[&'p'], shorts[&'f'], shorts[&'i']), (&"port".into(), &"filter".into(), &"interface".into()));
}

/// The verbs that have no guide of their own.
const WITHOUT_GUIDE: [&str; 5] = ["completions", "help", "lab", "man", "schema"];

/// The options of a verb and of those below it that its help shows, by their long names.
fn shown_options(verb: &Command) -> BTreeSet<String> {
    let shown = verb.get_arguments().filter(|option| !option.is_hide_set());
    let own = shown.filter_map(|option| option.get_long()).filter(|name| !["help", "version"].contains(name));
    let below = verb.get_subcommands().filter(|below| !below.is_hide_set()).flat_map(shown_options);
    own.map(str::to_owned).chain(below).collect()
}

/// The long options in a text.
fn options_in(text: &str) -> BTreeSet<String> {
    let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
    let words = text.split(|letter: char| !is_of_name(letter));
    let names = words.filter_map(|word| word.strip_prefix("--"));
    names.filter(|name| name.starts_with(|letter: char| letter.is_ascii_lowercase())).map(str::to_owned).collect()
}

/// The long options in the first cells of the tables of options of a page.
fn options_in_tables(page: &str) -> BTreeSet<String> {
    let (mut options, mut is_table) = (BTreeSet::new(), false);
    for line in page.lines() {
        is_table = line.starts_with("| Option |") || is_table && line.starts_with('|');
        // A bar that ends no cell is escaped.
        let first = line.trim_start_matches('|').replace("\\|", "/");
        if is_table {
            options.extend(options_in(first.split('|').next().unwrap_or_default()));
        }
    }
    options
}

#[test]
fn each_option_is_in_the_guide_of_its_verb_and_no_table_has_another() {
    let mut guides: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let cli = Cli::command();
    for verb in cli.get_subcommands().filter(|verb| !verb.is_hide_set() && !WITHOUT_GUIDE.contains(&verb.get_name())) {
        let guide = if verb.get_name() == "agent" { "collect" } else { verb.get_name() };
        guides.entry(guide).or_default().extend(shown_options(verb));
    }
    let (mut missing, mut unknown) = (Vec::new(), Vec::new());
    for (guide, options) in &guides {
        let path = format!("{}/../../docs/guide/{guide}.md", env!("CARGO_MANIFEST_DIR"));
        let page = fs::read_to_string(&path).expect(&path);
        missing.extend(options.difference(&options_in(&page)).map(|option| format!("{guide}.md: --{option}")));
        unknown.extend(options_in_tables(&page).difference(options).map(|option| format!("{guide}.md: --{option}")));
    }
    assert!(missing.is_empty(), "not in the guide: {missing:#?}");
    assert!(unknown.is_empty(), "not an option of the verb: {unknown:#?}");
    assert!(
        guides.len() > 10 && options_in_tables("| Option | |\n|---|---|\n| `--a-b text\\|x`, `--c` | --d |").len() == 2
    );
}
