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

/// Walks a page; once more if other programs disturbed it.
fn walk(page: &str) -> Run {
    let walk = || lab(&["problem", page, "--quick"]);
    let first = walk();
    if first.status == Some(0) { first } else { walk() }
}

#[test]
fn root_pages_by_problem_show_what_their_commands_print() {
    if skipped() {
        return;
    }
    let (left, failed) = (Mutex::new(pages()), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..WALKS {
            scope.spawn(|| {
                loop {
                    let Some(page) = left.lock().unwrap().pop() else {
                        return;
                    };
                    let run = walk(&page);
                    if run.status != Some(0) {
                        failed.lock().unwrap().push(format!("{page}: {run}"));
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn a_page_that_is_not_there_is_told_with_those_that_are() {
    let run = lab(&["problem", "slow-universe"]);
    assert_eq!(run.status, Some(2), "{run}");
    assert!(run.stderr.contains("slow-api"), "{run}");
}
