//! The contract of the core: `embed.h` lists, per program, every function that an embedder supplies.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
};

fn core() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("core")
}

/// The text of each header of the core, by its path from there.
fn headers() -> BTreeMap<String, String> {
    let mut headers = BTreeMap::new();
    for folder in fs::read_dir(core()).unwrap() {
        let folder = folder.unwrap().path();
        if !folder.is_dir() {
            continue;
        }
        for file in fs::read_dir(&folder).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "h") {
                let name = path.strip_prefix(core()).unwrap().to_str().unwrap().to_owned();
                headers.insert(name, fs::read_to_string(path).unwrap());
            }
        }
    }
    headers
}

/// The functions that a header declares without defining them: name, and the line above the declaration.
fn declared(text: &str) -> Vec<(String, String)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        if !line.starts_with("static ") || !line.contains('(') {
            continue;
        }
        let end = lines[number..].iter().find(|line| line.ends_with(';') || line.starts_with('{')).unwrap();
        if end.ends_with(");") {
            let name = line.split('(').next().unwrap().rsplit([' ', '*']).next().unwrap();
            found.push((name.to_owned(), lines[number - 1].trim().to_owned()));
        }
    }
    found
}

#[test]
fn what_an_embedder_supplies_is_declared_in_an_embed_header_with_a_comment_and_is_used() {
    let headers = headers();
    for (file, text) in &headers {
        for (name, above) in declared(text) {
            assert!(file.ends_with("embed.h"), "{file} declares {name}, which belongs into an embed.h");
            assert!(above.ends_with("*/"), "{file} does not say what {name} must do");
            let call = format!("{name}(");
            let uses = |(file, text): (&String, &String)| !file.ends_with("embed.h") && text.contains(&call);
            assert!(headers.iter().any(uses), "{file} asks for {name}, which nothing in the core calls");
        }
    }
}

#[test]
fn each_header_of_the_core_compiles_by_itself() {
    let compiler = env::var("CC").unwrap_or_else(|_| "clang".into());
    let files = headers().into_keys().collect::<Vec<_>>();
    let compile = |file: &String| {
        let compiled = Command::new(&compiler)
            .args(["-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-Wno-undefined-internal"])
            .args(["-DDWELL_STORES_IN_ORDER=1", "-xc", "/dev/null", "-include", file, "-I"])
            .arg(core())
            .output()
            .unwrap();
        assert!(compiled.status.success(), "{file}: {}", String::from_utf8_lossy(&compiled.stderr));
    };
    let half = files.len() / 2;
    thread::scope(|scope| {
        scope.spawn(|| files[..half].iter().for_each(compile));
        files[half..].iter().for_each(compile);
    });
}
