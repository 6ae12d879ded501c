//! `--set KEY=VALUE`: constants of a method, which experiments vary and operators leave alone.

/// A key, and the parser of its values.
pub type Key<T> = (&'static str, fn(&str) -> Result<T, String>);

/// Parses `KEY=VALUE` for a verb that has these keys. An error message names the keys or says what the value must be.
pub fn setting<T>(text: &str, keys: &[Key<T>]) -> Result<T, String> {
    let names = || keys.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let Some((name, value)) = text.split_once('=') else {
        return Err(format!("write KEY=VALUE, where KEY is one of: {}", names()));
    };
    match keys.iter().find(|(known, _)| *known == name) {
        Some((_, parse)) => parse(value),
        None => Err(format!("'{name}' is not a key; the keys are: {}", names())),
    }
}

/// Parses the name of one of a few values.
pub fn one_of<T: Clone>(text: &str, values: &[(&str, T)]) -> Result<T, String> {
    match values.iter().find(|(name, _)| *name == text) {
        Some((_, value)) => Ok(value.clone()),
        None => {
            let names: Vec<&str> = values.iter().map(|(name, _)| *name).collect();
            Err(format!("write {}", names.join(" | ")))
        }
    }
}

/// Parses "true" or "false".
pub fn boolean(text: &str) -> Result<bool, String> {
    one_of(text, &[("true", true), ("false", false)])
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: &[Key<u8>] =
        &[("modes", |text| text.parse().map_err(|_| "write a number".to_owned())), ("rto", |_| Ok(0))];

    #[test]
    fn a_value_is_parsed_by_its_key() {
        assert_eq!(setting("modes=7", KEYS), Ok(7));
        assert_eq!(setting("rto=a=b", KEYS), Ok(0), "a value may hold an equals sign");
        assert_eq!(setting("modes=many", KEYS), Err("write a number".to_owned()));
    }

    #[test]
    fn an_unknown_key_is_answered_with_the_known_ones() {
        assert_eq!(setting("mode=7", KEYS), Err("'mode' is not a key; the keys are: modes, rto".to_owned()));
        assert_eq!(setting("modes", KEYS), Err("write KEY=VALUE, where KEY is one of: modes, rto".to_owned()));
    }

    #[test]
    fn a_wrong_value_is_answered_with_the_right_ones() {
        assert_eq!(boolean("true"), Ok(true));
        assert_eq!(boolean("yes"), Err("write true | false".to_owned()));
    }
}
