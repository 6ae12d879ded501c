//! Completions of a binary's verbs and options for a shell, made from its help.

use clap::{Command, ValueEnum};
use clap_complete::aot;

/// A shell for which completions can be written.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Shell {
    /// For /usr/share/bash-completion/completions
    Bash,
    /// For a folder of $fpath, as the file _NAME
    Zsh,
    /// For /usr/share/fish/vendor_completions.d
    Fish,
}

/// The completions of `command`, as a script for `shell`.
pub fn script(shell: Shell, mut command: Command) -> Vec<u8> {
    let name = command.get_name().to_owned();
    let generator = match shell {
        Shell::Bash => aot::Shell::Bash,
        Shell::Zsh => aot::Shell::Zsh,
        Shell::Fish => aot::Shell::Fish,
    };
    let mut text = Vec::new();
    aot::generate(generator, &mut command, name, &mut text);
    text
}
