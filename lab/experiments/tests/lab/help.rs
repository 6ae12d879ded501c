//! What the help says. `INSTA_UPDATE=always cargo test -p dwell-experiments help` writes the snapshots again after
//! a wanted change.

use crate::support::lab;

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
