//! Command lines on the pages of this repository, with the output that a page shows for them.
//!
//! A page shows commands in blocks that are indented by four spaces or fenced as `sh`, and output in fenced blocks
//! without a language. Tests parse each command line, and run those that only read a capture.

#![allow(clippy::unwrap_used, missing_docs, reason = "what does not hold fails the test")]

use std::{
    fs,
    iter::Peekable,
    path::{Path, PathBuf},
    str::Chars,
};

/// One command of a program, as a page has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandLine {
    /// Page and line, as in `docs/guide/rtt.md:20`.
    pub place: String,
    /// The words from the program's name on. What a shell would substitute, as `$(pidof nginx)`, is a `1`.
    pub words: Vec<String>,
    /// Whether its output goes to another program or to a file.
    pub redirected: bool,
    /// The lines of the output that follows, without those that are only `...`.
    pub output: Vec<String>,
}

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The commands of a program on `README.md` and on all pages below `docs`, in their order.
pub fn command_lines(program: &str) -> Vec<CommandLine> {
    let mut pages = vec![root().join("README.md")];
    let mut folders = vec![root().join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false if path.extension().is_some_and(|extension| extension == "md") => pages.push(path),
                false => {}
            }
        }
    }
    pages.sort();
    let of_page = |path: &PathBuf| {
        let name = path.strip_prefix(root()).unwrap().display().to_string();
        of_text(program, &name, &fs::read_to_string(path).unwrap())
    };
    pages.iter().flat_map(of_page).collect()
}

/// Fails with all command lines for which `refusal` returns the program's message.
#[track_caller]
pub fn assert_accepted(commands: &[CommandLine], refusal: impl Fn(&[String]) -> Option<String>) {
    let refused: Vec<_> = commands
        .iter()
        .filter_map(|command| {
            let message = refusal(&command.words)?;
            Some(format!("{}: {}\n{message}", command.place, command.words.join(" ")))
        })
        .collect();
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

/// A block of commands on a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// The line of the page at which it begins.
    pub line: usize,
    /// The commands, for a shell.
    pub script: String,
    /// The lines that the page shows of their output, without those that are only `...`.
    pub shown: Vec<String>,
}

impl Block {
    /// Returns true if it runs a program.
    pub fn runs(&self, program: &str) -> bool {
        self.script.lines().any(|line| !commands_of_line(program, line).is_empty())
    }
}

/// The blocks of commands on a page. The output of one is the fenced block right after it.
pub fn blocks(text: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    // The language of the fenced block that a line is in.
    let mut fence: Option<&str> = None;
    // Whether the commands of the last block, or its output, may go on.
    let (mut is_command, mut has_output) = (false, false);
    for (line, text) in (1..).zip(text.lines()) {
        if let Some(language) = text.trim_start().strip_prefix("```") {
            has_output &= fence.map_or(language.is_empty(), |closed| closed == "sh");
            fence = if fence.is_none() { Some(language) } else { None };
            is_command = false;
            continue;
        }
        let command = match fence {
            None => text.strip_prefix("    "),
            Some(language) => (language == "sh").then_some(text),
        };
        if let Some(command) = command {
            match blocks.last_mut().filter(|_| is_command) {
                Some(block) => block.script += &format!("\n{command}"),
                None => blocks.push(Block { line, script: command.to_owned(), shown: Vec::new() }),
            }
            (is_command, has_output) = (true, true);
        } else if fence == Some("") {
            if let Some(block) = blocks.last_mut().filter(|_| has_output)
                && text.trim() != "..."
            {
                block.shown.push(text.to_owned());
            }
        } else {
            is_command = false;
            has_output &= text.trim().is_empty();
        }
    }
    blocks
}

/// The commands of a program on one page.
pub fn of_text(program: &str, page: &str, text: &str) -> Vec<CommandLine> {
    let mut found: Vec<CommandLine> = Vec::new();
    for Block { line, script, shown } in blocks(text) {
        let mut continued = String::new();
        // Whether the output is that of the last command.
        let mut has_output = false;
        for (number, text) in (line..).zip(script.lines()) {
            continued += text.trim();
            if continued.ends_with('\\') {
                continued.pop();
                continue;
            }
            let before = found.len();
            let place = format!("{page}:{number}");
            found.extend(commands_of_line(program, &continued).into_iter().map(|(words, redirected)| CommandLine {
                place: place.clone(),
                words,
                redirected,
                output: Vec::new(),
            }));
            has_output = found.len() > before;
            continued.clear();
        }
        if let Some(command) = found.last_mut().filter(|_| has_output) {
            command.output = shown;
        }
    }
    found
}

/// The commands of a program in a line of shell, each with whether its output is redirected.
fn commands_of_line(program: &str, line: &str) -> Vec<(Vec<String>, bool)> {
    let mut found = Vec::new();
    let mut words: Vec<String> = Vec::new();
    let mut redirected = false;
    let mut letters = line.chars().peekable();
    loop {
        let next = token(&mut letters);
        match &next {
            Token::Word(word) => words.push(word.clone()),
            Token::Redirection => {
                redirected = true;
                let _target = token(&mut letters);
            }
            Token::Separator | Token::Pipe | Token::End => {
                let command = without_prefix(&words);
                if command.first().is_some_and(|word| word.rsplit('/').next() == Some(program)) {
                    found.push((command.to_vec(), redirected || next == Token::Pipe));
                }
                words.clear();
                redirected = false;
            }
        }
        if next == Token::End {
            return found;
        }
    }
}

/// A simple command without what starts it for another user or in another namespace.
fn without_prefix(words: &[String]) -> &[String] {
    let text: Vec<&str> = words.iter().map(String::as_str).collect();
    match text[..] {
        ["sudo" | "time", ..] => without_prefix(&words[1..]),
        ["ip", "netns", "exec", _, ..] => without_prefix(&words[4..]),
        ["nsenter", "-t", _, "-n", ..] => without_prefix(&words[4..]),
        [first, ..]
            if first
                .split_once('=')
                .is_some_and(|(name, _)| name.chars().all(|c| c.is_ascii_uppercase() || c == '_')) =>
        {
            without_prefix(&words[1..])
        }
        _ => words,
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Word(String),
    /// What follows is a file.
    Redirection,
    Pipe,
    /// Another command follows.
    Separator,
    /// The end of the line, or a comment.
    End,
}

fn token(letters: &mut Peekable<Chars<'_>>) -> Token {
    while letters.next_if(|letter| letter.is_whitespace()).is_some() {}
    let mut word = String::new();
    let mut is_word = false;
    while let Some(&letter) = letters.peek() {
        match letter {
            '#' if !is_word => return Token::End,
            ' ' | '\t' => break,
            '|' | '&' | ';' | '>' | '<' | ')' if is_word && !(letter == '>' && word == "2") => break,
            '>' | '<' => {
                letters.next();
                while letters.next_if(|next| matches!(next, '>' | '&' | '1')).is_some() {}
                return Token::Redirection;
            }
            '|' | '&' | ';' | ')' => {
                letters.next();
                let is_double = letters.next_if_eq(&letter).is_some();
                return if letter == '|' && !is_double { Token::Pipe } else { Token::Separator };
            }
            '\'' | '"' => {
                letters.next();
                word.extend(letters.by_ref().take_while(|&inner| inner != letter));
                is_word = true;
            }
            '$' => {
                letters.next();
                if letters.next_if_eq(&'(').is_some() {
                    letters.by_ref().take_while(|&inner| inner != ')').for_each(drop);
                } else {
                    while letters.next_if(|next| next.is_ascii_alphanumeric() || *next == '_').is_some() {}
                }
                word.push('1');
                is_word = true;
            }
            _ => {
                letters.next();
                word.push(letter);
                is_word = true;
            }
        }
    }
    if is_word { Token::Word(word) } else { Token::End }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        commands_of_line("dwell", line).into_iter().map(|(words, _)| words.join("~")).collect()
    }

    #[test]
    fn a_line_of_shell_is_split_as_a_shell_does() {
        assert_eq!(words("sudo dwell rtt -i eth0   # comment, and dwell rtt"), ["dwell~rtt~-i~eth0"]);
        assert_eq!(words("tcpdump -w - | target/release/dwell rtt -r -"), ["target/release/dwell~rtt~-r~-"]);
        assert_eq!(
            words("dwell stack --filter 'port 443 and tcp' >x 2>/dev/null"),
            ["dwell~stack~--filter~port 443 and tcp"]
        );
        assert_eq!(words("dwell run --pid $(pidof -s rsync) && dwell doctor"), ["dwell~run~--pid~1", "dwell~doctor"]);
        assert_eq!(words("RUST=1 ip netns exec a dwell lb reload; ls"), ["dwell~lb~reload"]);
        assert_eq!(words("sudo ln -s /opt/dwell/bin/dwell /usr/local/bin"), [""; 0]);
    }

    #[test]
    fn output_belongs_to_the_command_right_above() {
        let page =
            "text\n\n    dwell a | jq .\n    dwell b\n\n```\none\n...\n two\n```\n\n```\nnot mine\n```\ndwell c\n";
        let found = of_text("dwell", "page.md", page);
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].place.as_str(), found[0].redirected, found[0].output.len()), ("page.md:3", true, 0));
        assert_eq!((found[1].redirected, &found[1].output[..]), (false, &["one".to_owned(), " two".to_owned()][..]));
    }

    #[test]
    fn a_fenced_block_of_shell_has_commands_over_several_lines() {
        let found = of_text("dwell", "page.md", "```sh\ndwell a \\\n  --b c\n```\n\n```\nout\n```\n");
        assert_eq!(found[0].words, ["dwell", "a", "--b", "c"]);
        assert_eq!(found[0].output, ["out"]);
    }
}
