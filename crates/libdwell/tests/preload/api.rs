//! `include/dwell.h`.

use std::{path::Path, process::Command};

use super::harness::{compile, library, text};

fn flags(warnings: &[&str]) -> Vec<String> {
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include");
    let folder = library("libdwell.so");
    let folder = folder.parent().unwrap();
    let mut flags: Vec<_> = warnings.iter().map(|flag| (*flag).to_owned()).collect();
    flags.push(format!("-I{}", include.display()));
    flags.push("-pthread".to_owned());
    flags.push(format!("-L{}", folder.display()));
    flags.push(format!("-Wl,-rpath,{}", folder.display()));
    flags.push("-Wl,--no-as-needed".to_owned());
    flags.push("-ldwell".to_owned());
    flags
}

#[test]
fn each_call_of_the_c_interface_does_what_the_header_says() {
    let flags = flags(&[]);
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    let program = compile("api", &format!("api-{}", std::process::id()), &flags);
    // cargo puts a folder first where an earlier build may have left another library.
    let mut command = Command::new(program);
    let output = command.env_remove("LD_LIBRARY_PATH").output().unwrap();
    assert!(
        output.status.success(),
        "{} {}",
        output.status,
        text(&output.stdout)
    );
}

#[test]
fn the_header_is_c11_and_cpp() {
    for arguments in [["-std=c11", "-xc"], ["-std=c++17", "-xc++"]] {
        let output = Command::new("cc")
            .args(arguments)
            .args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"])
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include/dwell.h"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
}
