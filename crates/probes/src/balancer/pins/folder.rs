//! A folder that nobody else can exchange, write to, or open: whoever could, might swap pinned maps, or hold its lock.

use std::{
    fs::File,
    io,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    fcntl::{AT_FDCWD, AtFlags, OFlag, openat},
    sys::stat::{FileStat, Mode, SFlag, fchmod, fstat, fstatat, mkdirat},
    unistd::geteuid,
};

use crate::Error;

/// The mode bits of others who may write.
const WRITABLE: u32 = 0o022;
/// Entries of a folder with this mode bit can be removed and renamed by their owners only.
const STICKY: u32 = 0o1000;
/// The mode of a folder that only its owner can open.
const OWNERS: u32 = 0o700;

/// Opens a folder, after creating it and those above it that are missing. The folder must belong to the user who runs
/// dwell, and those above to him or to root. Nobody else may write to them, except to one above with the sticky bit, such
/// as /tmp. No part of the path may be a symbolic link. Afterwards only the owner can open the folder.
pub(super) fn open_private(path: &Path) -> Result<File, Error> {
    let fail = |operation, at: &Path, io: io::Error, remedy: String| Error::Pin {
        operation,
        path: at.into(),
        io,
        remedy: remedy.into(),
    };
    let path =
        std::path::absolute(path).map_err(|io| fail("find", path, io, "name a folder below /sys/fs/bpf".into()))?;
    let mut at = PathBuf::new();
    let mut opened: Option<OwnedFd> = None;
    for part in path.components() {
        at.push(part);
        let parent = opened.as_ref().map_or(AT_FDCWD, AsFd::as_fd);
        let name = Path::new(part.as_os_str());
        let is_last = at == path;
        let next = open(parent, name, is_last).map_err(|errno| match is_link(parent, name) {
            true => {
                let what = io::Error::other("it is a symbolic link");
                fail("trust", &at, what, "name the folder that it leads to".into())
            }
            false => fail("open", &at, errno.into(), super::pin_remedy("this needs root").into_owned()),
        })?;
        let stat = fstat(&next).map_err(|errno| fail("inspect", &at, errno.into(), "this needs root".into()))?;
        if let Some((what, remedy)) = fault(&stat, &at, is_last) {
            return Err(fail("trust", &at, io::Error::other(what), remedy));
        }
        if is_last && stat.st_mode & 0o777 & !OWNERS != 0 {
            fchmod(&next, Mode::from_bits_truncate(OWNERS))
                .map_err(|errno| fail("close to others", &at, errno.into(), "this needs root".into()))?;
        }
        opened = Some(next);
    }
    let folder = opened.expect("an absolute path has a part");
    Ok(File::from(folder))
}

/// Opens a part of the path, after creating it if it is missing.
fn open(parent: impl AsFd, name: &Path, is_last: bool) -> Result<OwnedFd, Errno> {
    let parent = parent.as_fd();
    // Those above need not be readable.
    let access = if is_last { OFlag::O_RDONLY } else { OFlag::O_PATH };
    let flags = access | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let opened = openat(parent, name, flags, Mode::empty());
    if !matches!(opened, Err(Errno::ENOENT)) {
        return opened;
    }
    match mkdirat(parent, name, Mode::from_bits_truncate(OWNERS)) {
        Ok(()) | Err(Errno::EEXIST) => openat(parent, name, flags, Mode::empty()),
        Err(errno) => Err(errno),
    }
}

fn is_link(parent: impl AsFd, name: &Path) -> bool {
    let found = fstatat(parent, name, AtFlags::AT_SYMLINK_NOFOLLOW);
    found.is_ok_and(|stat| stat.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFLNK.bits())
}

/// Says what is wrong with a folder, and the remedy.
fn fault(stat: &FileStat, path: &Path, is_last: bool) -> Option<(String, String)> {
    let me = geteuid().as_raw();
    let mode = stat.st_mode & 0o7777;
    let name = path.display();
    if stat.st_uid != me && (is_last || stat.st_uid != 0) {
        let owner = stat.st_uid;
        let what = format!("it belongs to the user {owner}, and dwell runs as the user {me}");
        let remedy = format!(
            "somebody else may have pinned there what is not a balancer's: remove it (rm -r {name}), and let nobody else \
             pin anything: chmod 700 /sys/fs/bpf"
        );
        return Some((what, remedy));
    }
    if mode & WRITABLE != 0 && (is_last || mode & STICKY == 0) {
        let what = format!("its mode {mode:04o} lets its group or others write to it");
        let remedy = format!("if all that is in it is yours: chmod go-w {name}; else remove it (rm -r {name})");
        return Some((what, remedy));
    }
    None
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, Permissions},
        os::unix::fs::{PermissionsExt, chown, symlink},
    };

    use super::*;

    fn refusal(path: &Path) -> String {
        open_private(path).err().map(|error| error.to_string()).unwrap_or_default()
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn a_folder_is_created_and_closed_to_others() {
        let base = tempfile::tempdir().unwrap();
        let folder = base.path().join("dwell/lb-eth0");
        open_private(&folder).unwrap();
        assert_eq!((mode(&folder), mode(&base.path().join("dwell"))), (0o700, 0o700));
        set_mode(&folder, 0o755);
        open_private(&folder).unwrap();
        assert_eq!(mode(&folder), 0o700);
    }

    #[test]
    fn a_folder_that_others_may_write_to_is_refused() {
        let base = tempfile::tempdir().unwrap();
        let above = base.path().join("dwell");
        let folder = above.join("lb-eth0");
        open_private(&folder).unwrap();
        for mode in [0o770, 0o702, 0o1777] {
            set_mode(&folder, mode);
            let refusal = refusal(&folder);
            let wanted =
                format!("cannot trust '{}': its mode {mode:04o} lets its group or others write", folder.display());
            assert!(refusal.starts_with(&wanted) && refusal.contains("chmod go-w"), "{refusal}");
        }
        set_mode(&folder, 0o700);
        // Above it, the sticky bit protects it.
        set_mode(&above, 0o1777);
        open_private(&folder).unwrap();
        set_mode(&above, 0o777);
        let refusal = refusal(&folder);
        assert!(refusal.starts_with(&format!("cannot trust '{}': its mode 0777", above.display())), "{refusal}");
    }

    #[test]
    fn a_symbolic_link_is_refused_wherever_it_is() {
        let base = tempfile::tempdir().unwrap();
        let real = base.path().join("real");
        open_private(&real.join("folder")).unwrap();
        symlink(&real, base.path().join("link")).unwrap();
        symlink(real.join("folder"), real.join("last")).unwrap();
        for (path, link) in [("link/folder", "link"), ("real/last", "real/last"), ("link", "link")] {
            let refusal = refusal(&base.path().join(path));
            let link = base.path().join(link);
            let wanted = format!("cannot trust '{}': it is a symbolic link; name the folder", link.display());
            assert!(refusal.starts_with(&wanted), "{refusal}");
        }
    }

    #[test]
    fn root_a_folder_of_somebody_else_is_refused() {
        if !geteuid().is_root() {
            return;
        }
        let base = tempfile::tempdir().unwrap();
        let folder = base.path().join("dwell/lb-eth0");
        open_private(&folder).unwrap();
        for theirs in [folder.as_path(), folder.parent().unwrap()] {
            chown(theirs, Some(1234), None).unwrap();
            let refusal = refusal(&folder);
            let wanted = format!("cannot trust '{}': it belongs to the user 1234, and dwell runs as", theirs.display());
            assert!(refusal.starts_with(&wanted) && refusal.contains("chmod 700 /sys/fs/bpf"), "{refusal}");
            chown(theirs, Some(0), None).unwrap();
        }
        open_private(&folder).unwrap();
    }
}
