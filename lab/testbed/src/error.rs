//! Errors of labs, and how programs are run and found.

use std::{
    io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Why a lab could not be made, driven or removed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The host cannot do what a lab needs; names the missing fact and its remedy.
    #[error("cannot {wanted}: {fact}. {remedy}")]
    Host {
        /// What was asked for.
        wanted: &'static str,
        /// The fact that stands in the way.
        fact: String,
        /// What to do about it.
        remedy: &'static str,
    },
    /// A system call failed.
    #[error("{operation}: {source}")]
    Io {
        /// What was being done, and to which object.
        operation: String,
        /// The system's answer.
        source: io::Error,
    },
    /// A program exited with an error.
    #[error("`{command}` failed ({status}): {stderr}")]
    Command {
        /// The command line.
        command: String,
        /// How it ended.
        status: String,
        /// Its standard error, trimmed.
        stderr: String,
    },
    /// A configuration, trace or state file that cannot be read.
    #[error("{object}: {reason}")]
    Invalid {
        /// The file or value.
        object: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A lab of that name exists.
    #[error("a lab named {0} exists; `dwell-lab down {0}` removes it")]
    Exists(String),
    /// No lab of that name exists.
    #[error("no lab named {0}")]
    Unknown(String),
    /// Something did not happen within its time.
    #[error("{0} did not happen in time")]
    Timeout(String),
    /// A signal asked to stop.
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    /// Turns an error of the system into one that names the operation.
    pub fn io(operation: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let operation = operation.into();
        move |source| Self::Io { operation, source }
    }

    /// Turns an error number into one that names the operation.
    pub fn os(operation: impl Into<String>) -> impl FnOnce(nix::Error) -> Self {
        let operation = operation.into();
        move |errno| Self::Io { operation, source: errno.into() }
    }

    /// Turns an error of the system into one that names the operation and the file.
    pub fn file(verb: &str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        Self::io(format!("{verb} {}", path.display()))
    }

    /// Returns an error about a file or value.
    pub fn invalid(object: impl Into<String>, reason: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Invalid { object: object.into(), reason: reason.into().to_string() }
    }
}

/// Runs a program to its end with `input` on its standard input, and returns its standard output.
pub fn run(command: &mut Command, input: &str) -> crate::Result<String> {
    let line = command_line(command);
    let failed = || format!("run `{line}`");
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(Error::io(failed()))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that ends before it has read everything reports the reason by its status.
        let _ = io::Write::write_all(&mut stdin, input.as_bytes());
    }
    let output = child.wait_with_output().map_err(Error::io(failed()))?;
    if !output.status.success() {
        return Err(Error::Command {
            command: line,
            status: output.status.to_string(),
            stderr: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns a command as a person would type it, without quotes.
pub fn command_line(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|word| word.to_string_lossy().into_owned()));
    words.join(" ")
}

/// Finds a program in PATH, and in the folders of system programs, which the PATH of an unprivileged user often lacks.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}
