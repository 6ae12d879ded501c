//! What the help says. `INSTA_UPDATE=always cargo test -p dwell-cli help` writes the snapshots
//! anew after a wanted change.

use crate::support::{dwell, run};

fn help(arguments: &[&str]) -> String {
    let run = dwell(arguments);
    assert_eq!((run.status, run.stderr.as_str()), (Some(0), ""), "{run}");
    run.stdout
}

#[test]
fn dwell_help() {
    insta::assert_snapshot!(help(&["--help"]));
}

#[test]
fn rtt_help() {
    insta::assert_snapshot!(help(&["rtt", "--help"]));
}

#[test]
fn doctor_help() {
    insta::assert_snapshot!(help(&["doctor", "--help"]));
}

#[test]
fn response_help() {
    insta::assert_snapshot!(help(&["response", "--help"]));
}

#[test]
fn report_help() {
    insta::assert_snapshot!(help(&["report", "--help"]));
}

#[test]
fn stack_help() {
    insta::assert_snapshot!(help(&["stack", "--help"]));
}

#[test]
fn top_help() {
    insta::assert_snapshot!(help(&["top", "--help"]));
}

#[test]
fn why_help() {
    insta::assert_snapshot!(help(&["why", "--help"]));
}

#[test]
fn run_help() {
    insta::assert_snapshot!(help(&["run", "--help"]));
}

#[test]
fn agent_help() {
    insta::assert_snapshot!(help(&["agent", "--help"]));
}

#[test]
fn collect_help() {
    insta::assert_snapshot!(help(&["collect", "--help"]));
}

#[test]
fn the_version_is_the_package_s() {
    let version = format!("dwell {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(help(&["--version"]), version);
}

#[test]
fn called_with_nothing_it_shows_its_help_and_exits_with_2() {
    let run = dwell(&[]);
    assert_eq!((run.status, run.stdout.as_str()), (Some(2), ""));
    assert_eq!(run.stderr, help(&["--help"]));
}

#[test]
fn sim_help() {
    insta::assert_snapshot!(help(&["sim", "--help"]));
}

/// As `make install` does, and man shows it.
#[test]
fn each_verb_has_a_manual_page_without_a_fault() {
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("man1");
    assert_eq!(dwell(&["man", pages.to_str().unwrap()]).status, Some(0));
    let mut found: Vec<_> = std::fs::read_dir(&pages).unwrap().map(|page| page.unwrap().path()).collect();
    found.sort();
    for verb in ["", "-rtt", "-lb-where", "-completions", "-man"] {
        let page = pages.join(format!("dwell{verb}.1"));
        assert!(found.contains(&page), "{found:?}");
    }
    assert!(!pages.join("dwell-lab.1").exists(), "another package has it");
    for (name, arguments) in [("groff", &["-man", "-Tutf8", "-ww", "-z"][..]), ("mandoc", &["-Tlint", "-Werror"])] {
        if dwell_testbed::skip::lacks_program(name) {
            continue;
        }
        let checked = std::process::Command::new(name).args(arguments).args(&found).output().unwrap();
        let said = [checked.stdout, checked.stderr].concat();
        assert_eq!(String::from_utf8_lossy(&said), "", "{name}");
        assert!(checked.status.success(), "{name}");
    }
}

#[test]
fn a_manual_page_keeps_the_lines_of_examples() {
    let folder = tempfile::tempdir().unwrap();
    dwell(&["man", folder.path().to_str().unwrap()]);
    let page = std::fs::read_to_string(folder.path().join("dwell-lb-drain.1")).unwrap();
    let examples = "\n.SH EXAMPLES\n.nf\n  dwell lb drain web/b2\n  dwell lb drain 10.0.0.3 \\-\\-undo\n.fi\n";
    assert!(page.ends_with(examples), "{page}");
    let version = env!("CARGO_PKG_VERSION");
    assert!(page.contains(&format!("\n.TH dwell-lb-drain 1 \" \" \"dwell {version}\" dwell\n")), "{page}");
}

/// What bash proposes after these words, by what `dwell completions bash` prints.
fn proposals(words: &str) -> Vec<String> {
    let script = format!(
        "source /dev/stdin\nCOMP_WORDS=({words}) COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))\n\
         _dwell dwell \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD-1]}}\"\nprintf '%s\\n' \"${{COMPREPLY[@]}}\""
    );
    let completions = help(&["completions", "bash"]);
    let bash = run(std::process::Command::new("bash").args(["-c", &script]), completions.as_bytes());
    assert_eq!((bash.status, bash.stderr.as_str()), (Some(0), ""), "{bash}");
    bash.stdout.lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_verbs_options_and_their_values() {
    assert_eq!(proposals("dwell rt"), ["rtt"]);
    assert_eq!(proposals("dwell lb dr"), ["drain"]);
    assert_eq!(proposals("dwell rtt --agg"), ["--aggregate"]);
    assert_eq!(proposals("dwell completions z"), ["zsh"]);
}

#[test]
fn each_shell_has_completions_of_every_verb() {
    for (shell, line) in [("zsh", "#compdef dwell"), ("fish", "complete -c dwell ")] {
        let completions = help(&["completions", shell]);
        assert!(completions.lines().any(|found| found.starts_with(line)), "{completions}");
        for verb in ["rtt", "response", "stack", "run", "agent", "collect", "report", "lb", "sim", "doctor", "man"] {
            assert!(completions.contains(verb), "{shell} has no {verb}");
        }
    }
    let unknown = dwell(&["completions", "tcsh"]);
    assert_eq!(unknown.status, Some(2));
    assert!(unknown.stderr.contains("[possible values: bash, zsh, fish]"), "{unknown}");
}
