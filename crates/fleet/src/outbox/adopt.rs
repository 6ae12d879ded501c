//! Batches for collectors that an agent does not have any more.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::disk::{BufferError, lock, segment_path, segments_in};

/// Moves the segments that are in a folder, and in folders in it, to `into`, after those that are there: all but those in `kept`,
/// whose collectors the agent still has. Folders that do not exist are created. Returns how many segments were moved.
///
/// # Errors
///
/// [`BufferError`], if a folder cannot be used, or another agent uses it.
pub fn adopt(folder: &Path, kept: &[PathBuf], into: &Path) -> Result<u64, BufferError> {
    let _own = lock(into)?;
    let mut next = segments_in(into)?.last().map_or(0, |(number, _)| number + 1);
    let mut moved = 0;
    for from in folders(folder)?.into_iter().filter(|from| from != into && !kept.contains(from)) {
        let _theirs = lock(&from)?;
        for (_, path) in segments_in(&from)? {
            let renamed = fs::rename(&path, segment_path(into, next));
            renamed.map_err(|source| BufferError::File { operation: "move", path, source })?;
            (next, moved) = (next + 1, moved + 1);
        }
    }
    Ok(moved)
}

/// Returns a folder and those in it, in the order of their names.
fn folders(folder: &Path) -> Result<Vec<PathBuf>, BufferError> {
    let failed = |source| BufferError::File { operation: "read", path: folder.into(), source };
    let mut all = vec![folder.to_owned()];
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        all.extend(Some(path).filter(|path| path.is_dir() && !path.is_symlink()));
    }
    all.sort();
    Ok(all)
}
