//! Pages by problem: their commands print what they show.

use std::{fs, path::Path, sync::Mutex, thread};

use crate::support::{Run, lab, skipped};

/// How many pages are walked at the same time. Most of a walk is waiting.
const WALKS: usize = 4;

/// The names of the pages in docs/problems.
fn pages() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/problems");
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut pages: Vec<String> = names
        .filter(|name| name != "README.md")
        .filter_map(|name| Some(name.strip_suffix(".md")?.to_owned()))
        .collect();
    pages.sort();
    pages
}

#[test]
fn root_pages_by_problem_show_what_their_commands_print() {
    if skipped() {
        return;
    }
    let (left, walks) = (Mutex::new(pages()), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..WALKS {
            scope.spawn(|| {
                loop {
                    let Some(page) = left.lock().unwrap().pop() else {
                        return;
                    };
                    let run = lab(&["problem", &page, "--quick"]);
                    walks.lock().unwrap().push((page, run));
                }
            });
        }
    });
    let walks = walks.into_inner().unwrap();
    let steps = |verdict: &str| {
        let count = |run: &Run| run.stdout.lines().filter(|line| line.starts_with(verdict)).count();
        walks.iter().map(|(_, run)| count(run)).sum::<usize>()
    };
    let told = || walks.iter().map(|(page, run)| format!("{page}: {run}")).collect::<Vec<_>>().join("\n");
    // A command that does not run, or a scene that does not come up, ends a walk with another status.
    assert!(walks.iter().all(|(_, run)| matches!(run.status, Some(0 | 1))), "{}", told());
    // A busy machine is one of the causes that `dwell why` names, in place of a page's own.
    assert!(steps("ok") > 2 * steps("FAILS"), "{}", told());
}

#[test]
fn a_page_that_is_not_there_is_told_with_those_that_are() {
    let run = lab(&["problem", "slow-universe"]);
    assert_eq!(run.status, Some(2), "{run}");
    assert!(run.stderr.contains("slow-api"), "{run}");
}
