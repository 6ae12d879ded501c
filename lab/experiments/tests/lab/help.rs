//! What the help says. `INSTA_UPDATE=always cargo test -p dwell-experiments help` writes the snapshots again after
//! a wanted change.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    process::Command,
};

use dwell_app::vocabulary::first_words;

use crate::support::{lab, programs, run};

fn help(arguments: &[&str]) -> String {
    let run = lab(arguments);
    assert_eq!((run.status, run.stderr.as_str()), (Some(0), ""), "{run}");
    run.stdout
}

#[test]
fn dwell_lab_help() {
    insta::assert_snapshot!(help(&["--help"]));
}

#[test]
fn up_help() {
    insta::assert_snapshot!(help(&["up", "--help"]));
}

#[test]
fn load_web_help() {
    insta::assert_snapshot!(help(&["load", "web", "--help"]));
}

#[test]
fn rtt_help() {
    insta::assert_snapshot!(help(&["rtt", "--help"]));
}

#[test]
fn run_help() {
    insta::assert_snapshot!(help(&["run", "--help"]));
}

#[test]
fn socket_help() {
    insta::assert_snapshot!(help(&["socket", "--help"]));
}

#[test]
fn socket_video_help() {
    insta::assert_snapshot!(help(&["socket", "video", "--help"]));
}

#[test]
fn socket_tools_help() {
    insta::assert_snapshot!(help(&["socket", "tools", "--help"]));
}

#[test]
fn lb_help() {
    insta::assert_snapshot!(help(&["lb", "--help"]));
}

#[test]
fn lb_several_help() {
    insta::assert_snapshot!(help(&["lb", "several", "--help"]));
}

#[test]
fn lb_compare_help() {
    insta::assert_snapshot!(help(&["lb", "compare", "--help"]));
}

#[test]
fn quic_help() {
    insta::assert_snapshot!(help(&["quic", "--help"]));
}

#[test]
fn quic_policies_help() {
    insta::assert_snapshot!(help(&["quic", "policies", "--help"]));
}

#[test]
fn stack_help() {
    insta::assert_snapshot!(help(&["stack", "--help"]));
}

#[test]
fn fleet_help() {
    insta::assert_snapshot!(help(&["fleet", "--help"]));
}

#[test]
fn sim_paper_help() {
    insta::assert_snapshot!(help(&["sim", "paper", "--help"]));
}

#[test]
fn sim_tail_help() {
    insta::assert_snapshot!(help(&["sim", "tail", "--help"]));
}

#[test]
fn no_line_of_any_help_is_wider_than_the_terminal() {
    for verb in [
        &["--help"][..],
        &["up", "--help"],
        &["load", "web", "--help"],
        &["load", "memcached", "--help"],
        &["response", "--help"],
        &["cost", "--help"],
    ] {
        for line in help(verb).lines() {
            assert!(line.chars().count() <= 100, "{verb:?}: {line}");
        }
    }
}

/// As `make install-lab` does.
#[test]
fn each_verb_has_a_manual_page_and_hidden_ones_have_none() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(lab(&["man", folder.path().to_str().unwrap()]).status, Some(0));
    let has = |verb: &str| folder.path().join(format!("dwell-lab{verb}.1")).is_file();
    assert!(["", "-quic-policies", "-cost", "-completions"].iter().all(|verb| has(verb)));
    assert!(!["-load-part", "-emulate"].iter().any(|verb| has(verb)));
}

/// A part of an experiment, which nobody starts by hand.
const PART: &str = "an option of a hidden verb";

/// What may differ between an option of `dwell` and one of the same name of `dwell-lab`.
const DIFFERS: [(&str, &str); 5] = [
    ("agents", PART),
    ("buffer", PART),
    ("flows", PART),
    ("duration", "an experiment lasts, and a measurement ends"),
    ("minimize", "the laboratory compares it with other settings"),
];

/// An option as a program's completions have it: its letter, whether it takes a value, and how its help begins.
type Shown = (Option<String>, bool, String);

fn options(program: &Path) -> BTreeMap<String, BTreeSet<Shown>> {
    let run = run(Command::new(program).args(["completions", "fish"]), b"");
    assert_eq!(run.status, Some(0), "{run}");
    let mut options: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for line in run.stdout.lines() {
        let Some((before, after)) = line.strip_prefix("complete ").and_then(|line| line.split_once(" -l ")) else {
            continue;
        };
        let (name, rest) = after.split_once(" -d '").unwrap_or((after, ""));
        let short = before.rsplit_once(" -s ").map(|(_, letter)| letter.to_owned());
        let help = rest.split("' ").next().unwrap_or_default().trim_end_matches('\'');
        let shown = (short, rest.contains("' -r"), first_words(help, 2));
        options.entry(name.to_owned()).or_default().insert(shown);
    }
    options
}

#[test]
fn an_option_of_dwell_lab_is_the_same_as_in_dwell() {
    let programs = programs();
    let [ours, others] = [&programs.lab, &programs.dwell].map(|program| options(program));
    let both = ours.iter().filter_map(|(name, ours)| Some((name, ours, others.get(name)?)));
    let differing: BTreeMap<_, _> = both
        .filter(|(_, ours, others)| !ours.is_subset(others))
        .map(|(name, ours, others)| (&**name, (ours, others)))
        .collect();
    let wanted: BTreeSet<_> = DIFFERS.iter().map(|(name, _)| *name).collect();
    assert_eq!(differing.keys().copied().collect::<BTreeSet<_>>(), wanted, "{differing:#?}");
}
