//! Writes the seeds into the corpus of each target.

use std::{fs, io};

use dwell_fuzz::{TARGETS, corpus, seeds};

fn main() -> io::Result<()> {
    for (target, _) in TARGETS {
        let folder = corpus(target);
        fs::create_dir_all(&folder)?;
        for (name, bytes) in seeds::of(target) {
            fs::write(folder.join(format!("seed-{name}")), bytes)?;
        }
    }
    Ok(())
}
