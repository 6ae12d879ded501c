//! Failures are the same with the library as without it.

use std::{path::Path, process::Command};

use dwell_socket::table::{Config, VARIABLE};

use super::{
    harness::{compile, library, program, run, run_with, text, watch},
    skip::skip,
};

#[test]
fn errors_are_what_they_are_without_the_library() {
    run("errors", &[], &Config::default()).succeeded();
}

#[test]
fn calls_of_allocators_before_the_constructor_look_up_nothing() {
    let early = compile("early", &format!("early-{}", std::process::id()), &["-O1", "-rdynamic", "-ldl"]);
    let library = library("libdwell_preload.so").display().to_string();
    let outcome = watch(&early, &[], &Config::default(), &library, |accounts| accounts.len() == 2).succeeded();
    assert!(outcome.accounts.contains_key(&outcome.numbers("sender")[0]));
}

#[test]
fn a_connection_that_is_reset_is_reported_to_its_end() {
    let outcome = run("reset", &[], &Config::default()).succeeded();
    assert_eq!(outcome.numbers("times"), [5]);
    assert!(outcome.accounts.contains_key(&outcome.numbers("sender")[0]));
}

#[test]
fn a_process_that_may_have_no_thread_goes_on_without_one() {
    let outcome = run("no_thread", &[], &Config::default()).succeeded();
    assert_eq!(outcome.counts.no_poller, 1);
    assert!(outcome.accounts.is_empty());
}

#[test]
fn two_preloaded_libraries_both_see_the_calls() {
    let other = compile("other", "other.so", &["-shared", "-fPIC"]);
    let dwell = library("libdwell_preload.so");
    for (first, second) in [(&other, &dwell), (&dwell, &other)] {
        let preload = format!("{}:{}", first.display(), second.display());
        let outcome = run_with(&program("ways"), &[], &Config::default(), &preload).succeeded();
        assert_eq!(outcome.numbers("others"), [1]);
        assert_eq!(outcome.socket("sender").totals.written_bytes, outcome.numbers("total")[0]);
    }
}

#[test]
fn without_a_table_all_passes_through() {
    for path in [None, Some("/proc/1/fd/99999"), Some("/dev/null"), Some("")] {
        let mut command = Command::new(program("main_exits"));
        command.env("LD_PRELOAD", library("libdwell_preload.so"));
        if let Some(path) = path {
            command.env(VARIABLE, path);
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "{path:?}");
        assert_eq!(text(&output.stderr), "", "{path:?}");
    }
}

#[test]
fn a_program_that_outlives_dwell_is_left_alone() {
    use std::io::{BufRead, BufReader, Read, Write};
    // The reader of the table is a separate process, which can be ended before the program.
    let mut reader = Command::new("sleep").arg("600").spawn().unwrap();
    let mut table = dwell_socket::table::Table::create(&Config::default()).unwrap();
    table.read_by(reader.id());
    let mut child = Command::new(program("orphan"))
        .env("LD_PRELOAD", library("libdwell_preload.so"))
        .env(VARIABLE, table.path())
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "watched 1\n");
    // A poller that has published a socket knows its reader, and can notice that it is gone.
    let mut sockets = 0;
    for _ in 0..1000 {
        let Ok(()) = dwell_socket::Watch::visit(&mut table, &mut |_| sockets += 1);
        if sockets > 0 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(sockets > 0, "no socket was published");
    reader.kill().unwrap();
    reader.wait().unwrap();
    child.stdin.take().unwrap().write_all(b"x").unwrap();
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    assert!(child.wait().unwrap().success(), "{rest}");
}

#[test]
fn a_program_that_checks_its_memory_or_threads_runs_as_without() {
    for (sanitizer, is_watched) in [("address", true), ("thread", false)] {
        let flags = ["-O1", "-pthread", &format!("-fsanitize={sanitizer}")];
        let ways = compile("ways", &format!("ways-{sanitizer}-{}", std::process::id()), &flags);
        if !Command::new(&ways).output().unwrap().status.success() {
            skip(format!("-fsanitize={sanitizer} does not run here"));
            continue;
        }
        for name in ["libdwell_preload.so", "libdwell_calls.so"] {
            let preload = library(name).display().to_string();
            let outcome = run_with(&ways, &[], &Config::default(), &preload).succeeded();
            assert_eq!(!outcome.accounts.is_empty(), is_watched, "{sanitizer}, {name}");
        }
    }
}

#[test]
fn programs_of_the_system_run_unchanged() {
    for (program, arguments, expected) in
        [("/bin/echo", vec!["a b"], "a b\n"), ("/bin/sh", vec!["-c", "echo x | cat; exec echo y"], "x\ny\n")]
    {
        let library = library("libdwell_preload.so").display().to_string();
        let outcome = run_with(Path::new(program), &arguments, &Config::default(), &library);
        assert_eq!(outcome.output, expected);
        assert!(outcome.status.success());
    }
}
