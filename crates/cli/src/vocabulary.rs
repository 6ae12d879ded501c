//! An option of one name is the same option in every verb: a test over the commands as clap knows them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use clap::{Arg, Command, CommandFactory};

use crate::Cli;

/// Options that differ between verbs, what of them may, and why.
const EXCEPTIONS: &[(&str, Part, &str)] = &[
    ("format", Part::Default, "collect runs as a service and prints nothing unless asked"),
    ("max-flows", Part::Default, "a flow of stack and agent takes 5 KB in each interval, one of rtt 600 bytes in all"),
    ("summary", Part::ValueName, "that of response may say what a line is about"),
    ("set", Part::Meaning, "the constants of an estimator, and the variants of run"),
    ("store", Part::Meaning, "collect writes it, and report reads it"),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Short,
    ValueName,
    Default,
    /// The first three words of the help.
    Meaning,
}

/// What an option is in one verb, by part; `None` where it has no such part.
fn parts(option: &Arg) -> [(Part, Option<String>); 4] {
    let takes_values = option.get_action().takes_values();
    let help = option.get_help().map(ToString::to_string).unwrap_or_default();
    let words: Vec<_> = help.split_whitespace().take(3).collect();
    let meaning = words.join(" ").trim_end_matches([',', ':', ';']).to_owned();
    let default = option.get_default_values().last().map(|value| value.to_string_lossy().into_owned());
    [
        (Part::Short, option.get_short().map(String::from)),
        (Part::ValueName, option.get_value_names().filter(|_| takes_values).map(|names| names.concat())),
        (Part::Default, default.filter(|_| takes_values)),
        (Part::Meaning, Some(meaning)),
    ]
}

/// Adds the options of a command and of those below it, by their long names, each with the verb that has it.
fn collect(command: &Command, verb: &str, options: &mut BTreeMap<String, Vec<(String, Arg)>>) {
    for option in command.get_arguments() {
        if let Some(name) = option.get_long() {
            options.entry(name.to_owned()).or_default().push((verb.to_owned(), option.clone()));
        }
    }
    for below in command.get_subcommands() {
        collect(below, &format!("{verb} {}", below.get_name()), options);
    }
}

#[test]
fn an_option_is_the_same_in_every_verb() {
    let mut options = BTreeMap::new();
    collect(&Cli::command(), "dwell", &mut options);
    let (mut clashes, mut unused) = (Vec::new(), EXCEPTIONS.to_vec());
    for (name, verbs) in &options {
        let (first_verb, first) = &verbs[0];
        for (verb, option) in &verbs[1..] {
            for ((part, there), (_, here)) in parts(first).into_iter().zip(parts(option)) {
                // A default may be said in words, where it depends on other options.
                let is_said_in_words = part == Part::Default && (there.is_none() || here.is_none());
                if there == here || is_said_in_words {
                    continue;
                }
                unused.retain(|(known, of, _)| known != name || *of != part);
                if !EXCEPTIONS.iter().any(|(known, of, _)| known == name && *of == part) {
                    clashes.push(format!("--{name}, {part:?}: {there:?} in {first_verb}, {here:?} in {verb}"));
                }
            }
        }
    }
    assert!(clashes.is_empty(), "{clashes:#?}");
    assert!(unused.is_empty(), "no exception any more: {unused:?}");
}

/// `-p` is a port and `-f` a filter, whatever the verb.
#[test]
fn a_short_form_is_one_option_in_every_verb() {
    let mut options = BTreeMap::new();
    collect(&Cli::command(), "dwell", &mut options);
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
