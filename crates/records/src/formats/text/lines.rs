//! Sentences in lines, where a person looks at them in a terminal.

/// The width of a terminal that is narrower, or says nothing sensible.
const LEAST: usize = 20;
/// Lines go on below their text in terminals that are wider, and near the margin in others.
const ROOMY: usize = 60;
const MARGIN: usize = 4;

/// How long lines may be. Without a width they are not broken.
#[derive(Debug, Clone, Copy, Default)]
pub struct Lines {
    width: Option<usize>,
}

impl Lines {
    /// Lines of a terminal of this width.
    pub fn of(width: Option<usize>) -> Lines {
        Lines { width: width.map(|width| width.max(LEAST)) }
    }

    /// Returns how much of a picture of this width there is room for behind an indentation.
    pub(super) fn room(self, wanted: usize, indent: usize) -> usize {
        self.width.map_or(wanted, |width| wanted.min(width - indent.min(LEAST - 1)))
    }

    /// Breaks a text that begins at a column between words. What does not fit goes on at the column `indent`. Only words that are
    /// longer than the terminal is wide do not fit.
    pub fn fit(self, text: &str, from: usize, indent: usize) -> String {
        let Some(width) = self.width else {
            return text.to_owned();
        };
        let indent = if width < ROOMY { indent.min(MARGIN) } else { indent };
        let (mut lines, mut column) = (String::new(), from);
        for (place, word) in text.split(' ').enumerate() {
            let (length, gap) = (word.chars().count(), usize::from(place > 0));
            if length > 0 && column + gap + length > width && column > indent {
                lines.truncate(lines.trim_end_matches(' ').len());
                column = indent.min(width.saturating_sub(length));
                lines.push('\n');
                lines.push_str(&" ".repeat(column));
            } else if gap > 0 {
                lines.push(' ');
                column += 1;
            }
            lines.push_str(word);
            column += length;
        }
        lines
    }

    /// The same for things whose words stay together.
    pub(super) fn fit_all(self, things: &[String], from: usize, indent: usize) -> String {
        const NO_BREAK: &str = "\u{a0}";
        let joined = things.iter().map(|thing| thing.replace(' ', NO_BREAK)).collect::<Vec<_>>().join("  ");
        self.fit(&joined, from, indent).replace(NO_BREAK, " ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_broken_between_words_and_only_in_a_terminal() {
        let text = "one two three four five six seven eight nine ten";
        assert_eq!(Lines::of(None).fit(text, 2, 2), text);
        assert_eq!(Lines::of(Some(24)).fit(text, 2, 2), "one two three four\n  five six seven eight\n  nine ten");
        assert_eq!(Lines::of(Some(0)).fit("one two three four five", 0, 0), "one two three four\nfive");
        let long = "a/word/that/is/longer/than/the/terminal/is/wide b";
        assert_eq!(Lines::of(Some(24)).fit(long, 16, 16), format!("\n{}", long.replace(' ', "\n    ")));
        let things = ["█ one 1 %".to_owned(), "▒ two 22 %".to_owned(), "▓ three 77 %".to_owned()];
        assert_eq!(Lines::of(Some(24)).fit_all(&things, 2, 2), "█ one 1 %  ▒ two 22 %\n  ▓ three 77 %");
        assert_eq!(Lines::of(None).fit_all(&things, 2, 2), "█ one 1 %  ▒ two 22 %  ▓ three 77 %");
    }

    #[test]
    fn a_picture_is_as_wide_as_there_is_room() {
        for (width, room) in [(None, 60), (Some(200), 60), (Some(40), 38), (Some(10), 18), (Some(0), 18)] {
            assert_eq!(Lines::of(width).room(60, 2), room);
        }
    }
}
