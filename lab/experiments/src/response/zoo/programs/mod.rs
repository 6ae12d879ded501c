//! The clients and servers of the zoo: small programs in the languages whose libraries they try, kept in this binary.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Mutex,
};

use dwell_testbed::{
    Error, Result,
    error::{find_program, run},
};

const FILES: &[(&str, &str)] = &[
    ("Client.java", include_str!("clients/Client.java")),
    ("ab.sh", include_str!("clients/ab.sh")),
    ("client.go", include_str!("clients/client.go")),
    ("client.js", include_str!("clients/client.js")),
    ("client.py", include_str!("clients/client.py")),
    ("curl.py", include_str!("clients/curl.py")),
    ("events_client.py", include_str!("clients/events_client.py")),
    ("grpc_client.py", include_str!("clients/grpc_client.py")),
    ("pipeline.py", include_str!("clients/pipeline.py")),
    ("plan.py", include_str!("clients/plan.py")),
    ("psycopg_client.py", include_str!("clients/psycopg_client.py")),
    ("redis_client.py", include_str!("clients/redis_client.py")),
    ("talk_client.py", include_str!("clients/talk_client.py")),
    ("websocket_client.py", include_str!("clients/websocket_client.py")),
    ("wrk.lua", include_str!("clients/wrk.lua")),
    ("wrk.sh", include_str!("clients/wrk.sh")),
    ("Server.java", include_str!("servers/Server.java")),
    ("grpc_server.py", include_str!("servers/grpc_server.py")),
    ("postgres.sh", include_str!("servers/postgres.sh")),
    ("redis.sh", include_str!("servers/redis.sh")),
    ("server.go", include_str!("servers/server.go")),
    ("server.js", include_str!("servers/server.js")),
    ("server.py", include_str!("servers/server.py")),
    ("talk_server.py", include_str!("servers/talk_server.py")),
    ("websocket_server.py", include_str!("servers/websocket_server.py")),
];

/// The status with which a program of the zoo ends where something it needs is not installed (EX_UNAVAILABLE).
const UNAVAILABLE: &str = "exit status: 69";

/// Why there is nothing to measure.
#[derive(Debug)]
pub(super) enum Lack {
    /// This host lacks something; the reason.
    Skipped(String),
    /// Something broke.
    Failed(Error),
}

impl From<Error> for Lack {
    fn from(error: Error) -> Self {
        match error {
            Error::Command { status, stderr, .. } if status == UNAVAILABLE => {
                Self::Skipped(stderr.lines().last().unwrap_or("something is not installed").to_owned())
            }
            error => Self::Failed(error),
        }
    }
}

/// The programs in a folder, compiled as they are needed.
pub(super) struct ZooPrograms {
    folder: PathBuf,
    python: PathBuf,
    /// How each program that was asked for is started, or why it cannot be.
    commands: Mutex<HashMap<String, std::result::Result<Vec<PathBuf>, String>>>,
}

impl ZooPrograms {
    /// Writes the programs into a folder. `python` runs those in Python.
    pub(super) fn write(folder: &Path, python: &Path) -> Result<Self> {
        for (name, text) in FILES {
            let file = folder.join(name);
            fs::write(&file, text).map_err(Error::file("write", &file))?;
        }
        Ok(Self { folder: folder.to_owned(), python: python.to_owned(), commands: Mutex::default() })
    }

    /// What starts a program: an executable and its first arguments.
    pub(super) fn command(&self, name: &str) -> std::result::Result<Vec<PathBuf>, Lack> {
        let mut commands = self.commands.lock().expect("no thread panics while it holds the lock");
        let command = match commands.get(name) {
            Some(command) => command.clone(),
            None => {
                let command = self.prepare(name).map_err(|error| error.to_string());
                commands.entry(name.to_owned()).or_insert(command).clone()
            }
        };
        command.map_err(Lack::Skipped)
    }

    fn prepare(&self, name: &str) -> Result<Vec<PathBuf>> {
        let file = self.folder.join(name);
        let (stem, extension) = name.rsplit_once('.').unwrap_or((name, ""));
        match extension {
            "py" => Ok(vec![self.python.clone(), file]),
            "js" => Ok(vec![installed("node")?, file]),
            "sh" => Ok(vec![PathBuf::from("/bin/sh"), file]),
            "java" => {
                let java = installed("java")?;
                let compiler = ["-m", "jdk.compiler/com.sun.tools.javac.Main", "-d"];
                run(Command::new(&java).args(compiler).arg(&self.folder).arg(&file), "")?;
                Ok(vec![java, "-XX:TieredStopAtLevel=1".into(), "-cp".into(), self.folder.clone(), stem.into()])
            }
            "go" => {
                let executable = self.folder.join(format!("{stem}-go"));
                run(Command::new(installed("go")?).arg("build").arg("-o").arg(&executable).arg(&file), "")?;
                Ok(vec![executable])
            }
            _ => Err(Error::invalid(name, "is a program in no language that the zoo knows")),
        }
    }
}

fn installed(program: &str) -> Result<PathBuf> {
    find_program(program).ok_or_else(|| Error::Host {
        wanted: "run a program of the zoo",
        fact: format!("there is no program {program}"),
        remedy: "`make test` installs what the zoo needs.",
    })
}
