//! Colour, where a person looks: sparingly, for what the eye should find first.

use std::fmt::Display;

use anstyle::{AnsiColor, Style};

const WORST: Style = AnsiColor::Yellow.on_default().bold();
const ALARM: Style = AnsiColor::Red.on_default().bold();
const VERDICT: Style = Style::new().bold();

/// Whether text is coloured. Colour comes after a cell was padded, because its codes have a length and no width.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Colour {
    is_on: bool,
}

impl Colour {
    pub(super) fn new(is_on: bool) -> Colour {
        Colour { is_on }
    }

    /// Marks the worst of several values.
    pub(super) fn worst(self, text: impl Display) -> String {
        self.paint(WORST, text)
    }

    /// Marks what has changed for the worse, or at all where that would go unnoticed.
    pub(super) fn alarm(self, text: impl Display) -> String {
        self.paint(ALARM, text)
    }

    /// Marks the sentence that says what follows from the figures.
    pub(super) fn verdict(self, text: impl Display) -> String {
        self.paint(VERDICT, text)
    }

    fn paint(self, style: Style, text: impl Display) -> String {
        match self.is_on {
            true => format!("{style}{text}{style:#}"),
            false => text.to_string(),
        }
    }
}

/// Returns the place of the greatest value, if there are at least two and one is greater than the others.
pub(super) fn place_of_worst(values: impl IntoIterator<Item = Option<u64>>) -> Option<usize> {
    let values: Vec<_> = values.into_iter().collect();
    let worst = values.iter().flatten().max()?;
    let mut places =
        values.iter().enumerate().filter(|(_, value)| value.as_ref() == Some(worst)).map(|(place, _)| place);
    let place = places.next()?;
    (values.iter().flatten().count() > 1 && places.next().is_none()).then_some(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_of_values_is_the_one_that_is_greater_than_all_others() {
        for (values, place) in [
            (&[Some(3), None, Some(7), Some(5)][..], Some(2)),
            (&[Some(7), Some(7), Some(1)], None),
            (&[None, Some(7)], None),
            (&[None, None], None),
            (&[], None),
        ] {
            assert_eq!(place_of_worst(values.iter().copied()), place, "{values:?}");
        }
    }

    #[test]
    fn without_colour_a_text_is_itself() {
        assert_eq!(Colour::default().worst("5 ms"), "5 ms");
        assert_eq!(Colour::new(true).verdict("why"), "\u{1b}[1mwhy\u{1b}[0m");
    }
}
