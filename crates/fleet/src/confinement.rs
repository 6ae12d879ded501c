//! Files that are out of reach of a process that speaks to strangers, by Landlock (landlock(7)).

use std::{
    env,
    path::{Path, PathBuf},
};

use landlock::{
    ABI, Access, AccessFs, BitFlags, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetStatus, path_beneath_rules,
};

use crate::Error;

/// What every process reads: the system's configuration, libraries, certificates of authorities, and what the kernel
/// tells.
const SYSTEM: [&str; 14] = [
    "/etc",
    "/usr",
    "/lib",
    "/lib64",
    "/nix/store",
    "/gnu/store",
    "/var/lib/ca-certificates",
    "/run",
    "/proc",
    "/sys",
    // Not the disks, which root could read.
    "/dev/null",
    "/dev/zero",
    "/dev/random",
    "/dev/urandom",
];

/// Where SQLite puts what does not fit into memory, and what names another place for it.
const TEMPORARY: [&str; 2] = ["/var/tmp", "/tmp"];
const NAMED_TEMPORARY: [&str; 2] = ["SQLITE_TMPDIR", "TMPDIR"];

/// Takes all files from this thread, and from those that it starts from now on, but for what the system needs and what is
/// named here. None of them can start a program from a file any more, nor gain privileges by one. What is open stays open.
/// UNIX sockets can still be connected to, and a program can be run that is in memory alone (memfd_create(2)).
///
/// A kernel before Linux 5.13, or without Landlock, restricts nothing; one before 6.2 restricts what it knows. Returns whether
/// anything is restricted.
///
/// # Errors
///
/// [`Error::Confinement`], if the kernel refuses the rules.
pub fn confine(confinement: &Confinement) -> Result<bool, Error> {
    let Confinement { reads, writes } = confinement;
    // Truncation, of Linux 6.2, is the last kind of access to files that concerns dwell.
    let abi = ABI::V3;
    let (read, all) = (AccessFs::ReadFile | AccessFs::ReadDir, AccessFs::from_all(abi));
    let write = all & !BitFlags::from(AccessFs::Execute);
    let system = SYSTEM.iter().map(Path::new).chain(reads.iter().map(PathBuf::as_path));
    let temporary = NAMED_TEMPORARY.into_iter().filter_map(env::var_os).map(PathBuf::from);
    let own = TEMPORARY.map(PathBuf::from).into_iter().chain(temporary).chain(writes.iter().cloned());
    let restricted = Ruleset::default()
        .handle_access(all)
        .and_then(Ruleset::create)
        .and_then(|rules| rules.add_rules(path_beneath_rules(system, read)))
        .and_then(|rules| rules.add_rules(path_beneath_rules(own, write)))
        .and_then(|rules| rules.restrict_self());
    let status = restricted.map_err(|error| Error::Confinement(error.to_string()))?;
    Ok(status.ruleset != RulesetStatus::NotEnforced)
}

/// The files that stay within reach. Paths that do not exist are left out.
#[derive(Debug, Clone, Default)]
pub struct Confinement {
    /// Files, and folders with all that is in them, to read.
    pub reads: Vec<PathBuf>,
    /// Files, and folders with all that is in them, to read and change.
    pub writes: Vec<PathBuf>,
}

impl Confinement {
    /// Keeps the folder of a file within reach, where files beside it are made, replaced and removed; and if it is a
    /// symbolic link, that of the file too.
    #[must_use]
    pub fn beside(mut self, file: &Path) -> Confinement {
        self.writes.extend(folders(file));
        self
    }

    /// Keeps a file within reach to read, also if another one takes its place.
    #[must_use]
    pub fn reading(mut self, file: &Path) -> Confinement {
        self.reads.extend(folders(file));
        self
    }
}

/// The folder of a file, and that of the file which it links to.
fn folders(file: &Path) -> impl Iterator<Item = PathBuf> {
    let linked = file.canonicalize().ok().map(|file| folder_of(&file).to_owned());
    [folder_of(file).to_owned()].into_iter().chain(linked)
}

/// Returns the folder of a file, which is this one for a bare name.
pub fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use std::{fs, io::ErrorKind, process::Command, thread};

    use super::*;
    use crate::skip::skip;

    #[test]
    fn a_thread_that_is_confined_has_its_folder_and_the_system_and_starts_nothing() {
        // Not in the folder of temporary files, which is within reach.
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let [own, other, read] = ["own", "other", "read"].map(|name| folder.path().join(name));
        for folder in [&own, &other, &read] {
            fs::create_dir(folder).unwrap();
            fs::write(folder.join("file"), "secret").unwrap();
        }
        let linked = folder.path().join("linked");
        fs::create_dir(&linked).unwrap();
        fs::write(linked.join("store"), "").unwrap();
        std::os::unix::fs::symlink(linked.join("store"), own.join("link")).unwrap();
        let (own, other, linked, read) = (&own, &other, &linked, &read);
        thread::scope(|scope| {
            let confined = scope.spawn(move || {
                let kept = Confinement::default().beside(&own.join("link")).reading(&read.join("cert"));
                let is_confined = confine(&kept).unwrap();
                if !is_confined {
                    return false;
                }
                let check = || {
                    fs::write(own.join("link"), "beyond the link").unwrap();
                    fs::write(linked.join("store-wal"), "beside it").unwrap();
                    fs::rename(own.join("file"), own.join("renamed")).unwrap();
                    fs::write(own.join("file"), fs::read("/etc/passwd").unwrap()).unwrap();
                    fs::read(read.join("file")).unwrap();
                    let denied = [
                        fs::read(other.join("file")).err(),
                        fs::write(read.join("file"), "").err(),
                        fs::write(other.join("file"), "").err(),
                        fs::remove_file(other.join("file")).err(),
                        fs::write("/etc/dwell-test", "").err(),
                        Command::new("/bin/true").spawn().err(),
                        // As a disk is.
                        fs::File::open("/dev/full").err(),
                    ];
                    let denied = denied.map(|error| error.map(|error| error.kind()));
                    assert_eq!(denied, [Some(ErrorKind::PermissionDenied); 7]);
                    fs::File::open("/dev/urandom").unwrap();
                };
                check();
                thread::scope(|scope| scope.spawn(check).join()).unwrap();
                true
            });
            if !confined.join().unwrap() {
                skip("this kernel has no Landlock");
            }
        });
        assert_eq!(fs::read(other.join("file")).unwrap(), b"secret");
    }
}
