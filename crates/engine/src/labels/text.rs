//! What of a stranger's bytes may be shown on a terminal.

use std::sync::Arc;

/// The longest label in bytes of UTF-8. What is cut off is replaced by an ellipsis, which counts.
pub const LONGEST: usize = 64;
const ELLIPSIS: char = '…';
/// What replaces bytes that are not text and characters that would do something to a terminal.
const REPLACEMENT: char = char::REPLACEMENT_CHARACTER;
const REPLACEMENT_TEXT: &str = "\u{fffd}";

/// Joins what was asked for and its kind to a label: `GET /index.html`. `is_cut` says that more bytes of it follow, which
/// were not captured.
pub(super) fn label(kind: &str, asked: &[u8], is_cut: bool) -> Arc<str> {
    let head = &asked[..asked.len().min(2 * LONGEST)];
    let is_cut = is_cut || head.len() < asked.len();
    let text = String::from_utf8_lossy(head);
    // The last character may have been cut in the middle.
    let text = if is_cut { text.trim_end_matches(REPLACEMENT) } else { &text };
    let mut label = String::with_capacity(LONGEST);
    label.extend([kind, " "]);
    label.push_str(&text.replace(|character| !is_narrow(character), REPLACEMENT_TEXT));
    if is_cut || label.len() > LONGEST {
        let room = LONGEST - ELLIPSIS.len_utf8();
        while label.len() > room {
            label.pop();
        }
        label.push(ELLIPSIS);
    }
    label.into()
}

/// Returns true of characters that every terminal shows in one column. A stranger who chooses others moves the figures that
/// stand behind them.
fn is_narrow(character: char) -> bool {
    matches!(character,
        ' '..='~' | '\u{a1}'..='\u{ac}' | '\u{ae}'..='\u{24f}' | '\u{370}'..='\u{482}' | '\u{48a}'..='\u{52f}' | REPLACEMENT)
}

/// Returns what a terminal may be given of a stranger's text.
pub fn harmless(text: &str) -> String {
    text.replace(|character| !is_harmless(character), "\u{fffd}")
}

/// Returns at most the first `longest` characters of a stranger's text, as a terminal may be given them.
pub fn excerpt(text: &str, longest: usize) -> String {
    harmless(&text.chars().take(longest).collect::<String>())
}

/// Returns false of characters that would move a terminal's cursor, change its state or the order of its text, or that are
/// not seen.
pub fn is_harmless(character: char) -> bool {
    !character.is_control()
        && !matches!(character,
            '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_label_takes_one_column_for_each_character() {
        let label = label("GET", "/a漢🇪\u{1160}\u{2800}\u{ad}e\u{301}ßλЖ".as_bytes(), false);
        assert_eq!(&*label, "GET /a\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}e\u{fffd}ßλЖ");
    }

    #[test]
    fn a_label_is_cut_at_the_boundary_of_a_character() {
        let long = "/ä".repeat(100);
        for kind in ["GET", "PUT ", "POST"] {
            let shown = label(kind, long.as_bytes(), false);
            assert!(shown.ends_with('…') && (LONGEST - 3..=LONGEST).contains(&shown.len()), "{shown}");
        }
        let exact = "x".repeat(LONGEST - 4);
        assert_eq!(&*label("GET", exact.as_bytes(), false), format!("GET {exact}"));
        assert_eq!(&*label("GET", "/käse".as_bytes().split_at(3).0, true), "GET /k…");
    }

    #[test]
    fn what_a_terminal_would_obey_is_replaced() {
        let shown = label("GET", b"/\x1b[2J\x07\xc2\x9b\r\n\xe2\x80\xae\xff", false);
        assert_eq!(&*shown, "GET /\u{fffd}[2J\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}");
    }

    proptest! {
        #[test]
        fn no_bytes_give_a_long_label_or_a_control_character(
            asked in proptest::collection::vec(any::<u8>(), 0..300), is_cut: bool
        ) {
            let shown = label("GET", &asked, is_cut);
            prop_assert!(shown.len() <= LONGEST && shown.chars().all(is_harmless));
        }
    }
}
