//! Programs of others that a user gives, to be measured next to dwell.

use std::{
    fs,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::fs::PermissionsExt,
    },
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use libbpf_rs::{Program, ProgramType};

/// At most one of each kind.
#[derive(Debug, Default)]
pub struct Peers {
    /// A program for tc that is in the kernel.
    pub tc: Option<OwnedFd>,
    /// A program for XDP that is in the kernel.
    pub xdp: Option<OwnedFd>,
    /// A program to start with the name of the interface that it is to watch, until SIGTERM.
    pub watcher: Option<PathBuf>,
}

impl Peers {
    /// Opens them. Their kinds follow from the files.
    pub fn open(paths: &[PathBuf]) -> Result<Peers> {
        let mut peers = Peers::default();
        for path in paths {
            let is_second = match Program::fd_from_pinned_path(path) {
                Ok(program) if is_of(ProgramType::SchedCls, &program) => peers.tc.replace(program).is_some(),
                Ok(program) if is_of(ProgramType::Xdp, &program) => peers.xdp.replace(program).is_some(),
                Err(_) if is_executable(path) => peers.watcher.replace(path.clone()).is_some(),
                Ok(_) => bail!("--peer {}: the pinned program is neither for tc nor for XDP", path.display()),
                Err(error) => {
                    return Err(error).with_context(|| {
                        format!("--peer {}: neither a pinned BPF program nor an executable file", path.display())
                    });
                }
            };
            if is_second {
                bail!("--peer {}: another peer of its kind was given before", path.display());
            }
        }
        Ok(peers)
    }
}

fn is_of(kind: ProgramType, program: &OwnedFd) -> bool {
    let described = fs::read_to_string(format!("/proc/self/fdinfo/{}", program.as_raw_fd())).unwrap_or_default();
    let found = described.lines().find_map(|line| line.strip_prefix("prog_type:"));
    found.is_some_and(|found| found.trim() == (kind as u32).to_string())
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_a_program_that_can_be_run_or_it_is_refused() {
        let this = std::env::current_exe().unwrap();
        assert_eq!(Peers::open(std::slice::from_ref(&this)).unwrap().watcher, Some(this.clone()));
        let refused = |paths: &[PathBuf]| format!("{:#}", Peers::open(paths).unwrap_err());
        assert!(refused(&[this.clone(), this]).ends_with("another peer of its kind was given before"));
        assert!(refused(&["/proc/self/status".into()]).contains("neither a pinned BPF program nor an executable file"));
    }
}
