//! The settings of a run that must be the same in the baseline and now.

use std::{collections::BTreeMap, fmt::Display, time::Duration};

use clap::ValueEnum;

/// Settings by the name of their option, or of what they are: in the order in which differences are reported.
pub struct Settings(Vec<(String, String)>);

/// A setting without a value.
const NONE: &str = "none";

impl Settings {
    /// Creates the settings of a verb that measured this host, or a capture.
    pub fn new(verb: &str, host: Option<String>) -> Settings {
        Settings(Vec::new()).with("verb", verb).with_option("host", host)
    }

    /// Adds a setting.
    pub fn with(mut self, name: impl Into<String>, value: impl Display) -> Settings {
        self.0.push((name.into(), value.to_string()));
        self
    }

    /// Adds a setting that may have no value.
    pub fn with_option(self, name: impl Into<String>, value: Option<impl Display>) -> Settings {
        match value {
            Some(value) => self.with(name, value),
            None => self.with(name, NONE),
        }
    }

    /// Adds an option that may be given several times.
    pub fn with_list(self, name: &str, values: &[String]) -> Settings {
        self.with_option(name, (!values.is_empty()).then(|| values.join(" ")))
    }

    /// Adds an option that is one of a few words.
    pub fn with_name(self, name: &str, value: &impl ValueEnum) -> Settings {
        self.with_option(name, value.to_possible_value().map(|value| value.get_name().to_owned()))
    }

    /// Adds a length of time.
    pub fn with_time(self, name: &str, time: Duration) -> Settings {
        self.with(name, format!("{time:?}"))
    }

    /// Adds an option without a value.
    pub fn with_flag(self, name: &str, is_given: bool) -> Settings {
        self.with(name, if is_given { "given" } else { "not given" })
    }

    /// Returns the settings as they are written to a file.
    pub fn named(self) -> BTreeMap<String, String> {
        self.0.into_iter().collect()
    }

    /// Describes the first setting that is not as it was recorded.
    pub fn difference(&self, recorded: &BTreeMap<String, String>) -> Option<String> {
        let was = |name: &String| recorded.get(name).map_or(NONE, String::as_str);
        let (name, is) = self.0.iter().find(|(name, is)| was(name) != is)?;
        let article = if name.starts_with("--") { "" } else { "the " };
        Some(format!("{article}{name} was {} and is {is}", was(name)))
    }
}
