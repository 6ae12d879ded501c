//! Numbers with the things that they count.

/// Formats a number and what it counts, in the singular or the plural: "1 flow", "2 flows".
pub fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}
