//! How long the product takes to build from clean, and the tests of one crate after a change.

use std::{
    fs::{self, File},
    path::Path,
    process::{Command, Stdio},
    time::{Instant, SystemTime},
};

use anyhow::{Context, Result, ensure};

use super::{
    Options, installed,
    limits::{self, Finding, unknown},
    stop::Stop,
};

/// Where the tests' change is made: the crate whose tests are most.
const CHANGED: &str = "crates/engine/src/lib.rs";
const PRODUCT: &str =
    "build --release --locked --offline -p dwell-cli -p libdwell -p libdwell-preload -p libdwell-calls";
const TESTS: &str = "test --locked --offline -p dwell-engine";

pub fn run(options: &Options, stop: &Stop) -> Result<Vec<Finding>> {
    let why = match installed("cargo") {
        _ if options.quick => "it takes long, so not with --quick",
        None => "cargo is not installed",
        Some(_) if !Path::new(CHANGED).is_file() => "this is not the folder of dwell's sources",
        Some(_) => return measure(stop),
    };
    Ok(unknown([&limits::BUILD, &limits::TESTS], why))
}

fn measure(stop: &Stop) -> Result<Vec<Finding>> {
    println!("Seconds that cargo takes, in a new folder; downloads before that do not count.");
    // Not in /tmp, which is often memory.
    fs::create_dir_all("target")?;
    let folder = tempfile::Builder::new().prefix("cost-build-").tempdir_in("target")?;
    let cargo = |arguments: &str| -> Result<f64> {
        stop.check()?;
        let begun = Instant::now();
        let mut command = Command::new("cargo");
        command.args(arguments.split(' ')).env("CARGO_TARGET_DIR", fs::canonicalize(folder.path())?);
        let output = command.stdin(Stdio::null()).output().with_context(|| format!("run cargo {arguments}"))?;
        stop.check()?;
        let told = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "cargo {arguments} ({}): {}", output.status, told.trim_end());
        Ok(begun.elapsed().as_secs_f64())
    };
    cargo("fetch --locked")?;
    let product = cargo(PRODUCT)?;
    println!("{product:>7.1}  cargo {PRODUCT}");
    cargo(TESTS)?;
    File::options().append(true).open(CHANGED)?.set_modified(SystemTime::now())?;
    let tests = cargo(TESTS)?;
    println!("{tests:>7.1}  cargo {TESTS}, after a change");
    Ok(vec![limits::BUILD.judge("", Ok(product)), limits::TESTS.judge("", Ok(tests))])
}
