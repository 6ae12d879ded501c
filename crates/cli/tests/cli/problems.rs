//! What pages show of the captures in this repository is what dwell prints of them.

use std::process::Command;

use dwell_testbed::pages::{CommandLine, command_lines, root};

use crate::support::{DWELL, run};

fn reads_a_capture_of_ours(command: &CommandLine) -> bool {
    let file = command.words.iter().skip_while(|word| !matches!(word.as_str(), "-r" | "--read")).nth(1);
    !command.redirected && file.is_some_and(|file| file.starts_with("tests/captures/"))
}

#[test]
fn the_output_that_a_page_shows_of_a_capture_is_real() {
    let commands: Vec<_> = command_lines("dwell").into_iter().filter(reads_a_capture_of_ours).collect();
    assert!(!commands.is_empty());
    for command in commands {
        let run = run(Command::new(DWELL).args(&command.words[1..]).current_dir(root()), b"");
        assert_eq!(run.status, Some(0), "{}: {run}", command.place);
        let printed = format!("{}{}", run.stdout, run.stderr);
        let mut printed = printed.lines();
        for shown in &command.output {
            let is_there = printed.any(|line| line.trim_end() == shown.trim_end());
            assert!(is_there, "{} shows '{shown}', which this does not print there:\n{run}", command.place);
        }
    }
}
