//! Manual pages of a binary and its verbs, made from their help.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::Path,
};

use clap::Command;
use clap_mangen::{
    Man,
    roff::{Roff, roman},
};

/// Writes one page per verb that is not hidden into `folder`, which is made if it is not there.
pub fn write_pages(command: Command, folder: &Path) -> io::Result<()> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    fs::create_dir_all(folder)?;
    write_all(&command, folder)
}

fn write_all(command: &Command, folder: &Path) -> io::Result<()> {
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        write_all(verb, folder)?;
    }
    let after = command.get_after_help().map(ToString::to_string);
    // clap_mangen would fill its lines.
    let man = Man::new(command.clone().after_help(None))
        // None would be left out, and what follows taken for it.
        .date(" ")
        .source(concat!("dwell ", env!("CARGO_PKG_VERSION")))
        .manual("dwell");
    let mut file = File::create(folder.join(man.get_filename()))?;
    man.render(&mut file)?;
    sections(&after.unwrap_or_default()).to_writer(&mut file)?;
    file.flush()
}

/// What help says at its end, line by line: "Examples:" and the like begin sections.
fn sections(after: &str) -> Roff {
    let mut page = Roff::new();
    for part in after.split("\n\n").filter(|part| !part.is_empty()) {
        let (heading, text) = part.split_once(':').unwrap_or(("Notes", part));
        page.control("SH", [heading.to_uppercase().as_str()]);
        page.control("nf", []);
        for line in text.trim_start_matches(' ').trim_matches('\n').lines() {
            page.text([roman(line)]);
        }
        page.control("fi", []);
    }
    page
}
