//! An option of one name is the same option in every verb: what the tests of `dwell` and of `dwell-lab` ask of their commands.

use std::collections::BTreeMap;

use clap::{Arg, Command};

/// What an option may differ in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The letter.
    Short,
    /// The name of its value; a list has that of what is in it.
    ValueName,
    /// The value where it is not given.
    Default,
    /// The first words of the help.
    Meaning,
}

/// An option that differs between verbs, what of it may, and why.
pub type Exception = (&'static str, Part, &'static str);

/// The options of a command and of all below it, by their long names, each with the verb that has it.
pub fn options(command: &Command) -> BTreeMap<String, Vec<(String, Arg)>> {
    let mut options = BTreeMap::new();
    collect(command, command.get_name(), &mut options);
    options
}

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

/// What options of one name differ in between verbs: in `parts`, of the help in the first `words`. Says also which exceptions
/// are none any more.
pub fn clashes(command: &Command, parts: &[Part], words: usize, exceptions: &[Exception]) -> Vec<String> {
    let (mut clashes, mut unused) = (Vec::new(), exceptions.to_vec());
    for (name, verbs) in options(command) {
        let (first_verb, first) = &verbs[0];
        for (verb, option) in &verbs[1..] {
            for part in parts {
                let [there, here] = [first, option].map(|option| part.of(option, words));
                // A default may be said in words, where it depends on other options.
                let is_said_in_words = *part == Part::Default && (there.is_none() || here.is_none());
                if there == here || is_said_in_words {
                    continue;
                }
                unused.retain(|(known, of, _)| *known != name || of != part);
                if !exceptions.iter().any(|(known, of, _)| *known == name && of == part) {
                    clashes.push(format!("--{name}, {part:?}: {there:?} in {first_verb}, {here:?} in {verb}"));
                }
            }
        }
    }
    clashes.extend(unused.iter().map(|unused| format!("no exception any more: {unused:?}")));
    clashes
}

impl Part {
    /// What an option has; `None` where it has no such part.
    fn of(self, option: &Arg, words: usize) -> Option<String> {
        let takes_values = option.get_action().takes_values();
        match self {
            Part::Short => option.get_short().map(String::from),
            Part::ValueName => {
                let names = option.get_value_names().filter(|_| takes_values)?;
                Some(names.concat().trim_end_matches(",...").to_owned())
            }
            Part::Default => {
                let default = option.get_default_values().last().filter(|_| takes_values)?;
                Some(default.to_string_lossy().into_owned())
            }
            Part::Meaning => Some(first_words(&option.get_help().map(ToString::to_string).unwrap_or_default(), words)),
        }
    }
}

/// The first words of a help, by which two of them are compared.
pub fn first_words(help: &str, words: usize) -> String {
    let words: Vec<_> = help.split_whitespace().take(words).collect();
    words.join(" ").trim_end_matches([',', ':', ';', '.']).to_owned()
}
