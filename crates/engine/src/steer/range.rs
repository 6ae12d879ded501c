//! The values that constants of a policy may have: the one table for checks, configuration files and documentation.

use std::time::Duration;

/// A constant of the configuration `C`, and its valid range.
#[derive(Debug, Clone, Copy)]
pub struct Constant<C: 'static> {
    /// The key in configuration files.
    pub name: &'static str,
    /// The least valid value.
    pub least: f64,
    /// The greatest valid value.
    pub most: f64,
    /// What kind of value it is.
    pub kind: Kind,
    /// Reads the constant.
    pub get: fn(&C) -> f64,
    /// Sets the constant. The value must be in the range and of the kind.
    pub set: fn(&mut C, f64),
}

/// The kind of a constant's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Any number.
    Number,
    /// A whole number.
    Whole,
    /// A time, in seconds.
    Time,
}

impl<C> Constant<C> {
    /// Checks the constant in a configuration.
    pub(super) fn check(&self, config: &C) -> Result<(), OutOfRange> {
        in_range(self.name, (self.get)(config), self.least, self.most)
    }
}

/// Checks all constants of a configuration. Returns the first one that is out of its range.
pub(super) fn check_all<C>(constants: &[Constant<C>], config: &C) -> Result<(), OutOfRange> {
    constants.iter().try_for_each(|constant| constant.check(config))
}

/// Checks a value against its range, bounds included.
pub(super) fn in_range(name: &'static str, value: f64, least: f64, most: f64) -> Result<(), OutOfRange> {
    match (least..=most).contains(&value) {
        true => Ok(()),
        false => Err(OutOfRange { name, value, least, most }),
    }
}

/// Lists the constants of a configuration: one line for each, with its field, its range and, unless it is a `f64`, its
/// type: `u32`, or `Duration` with a range in seconds.
macro_rules! constants {
    ($config:ty: $($name:ident in $least:literal ..= $most:tt $(as $type:ident)?;)*) => {
        [$($crate::steer::range::Constant {
            name: stringify!($name),
            least: $least as f64,
            most: $most as f64,
            kind: constants!(@kind $($type)?),
            get: |config: &$config| constants!(@get config.$name, $($type)?),
            set: |config: &mut $config, value| config.$name = constants!(@set value, $($type)?),
        },)*]
    };
    (@kind) => { $crate::steer::range::Kind::Number };
    (@kind Duration) => { $crate::steer::range::Kind::Time };
    (@kind u32) => { $crate::steer::range::Kind::Whole };
    (@get $value:expr, Duration) => { $value.as_secs_f64() };
    (@get $value:expr, $(u32)?) => { $value.into() };
    (@set $value:expr, Duration) => { std::time::Duration::from_secs_f64($value) };
    (@set $value:expr, u32) => { $value as u32 };
    (@set $value:expr,) => { $value };
}

/// Returns how many intervals a time lasts, at least 1.
pub(super) fn intervals(time: Duration, interval: Duration) -> u32 {
    (time.as_secs_f64() / interval.as_secs_f64() - 1e-9).ceil().max(1.0) as u32
}

pub(super) use constants;

/// A constant is out of its range.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{name} is {value}, and must be from {least} to {most}")]
pub struct OutOfRange {
    /// The key in configuration files.
    pub name: &'static str,
    /// The invalid value.
    pub value: f64,
    /// The least valid value.
    pub least: f64,
    /// The greatest valid value.
    pub most: f64,
}
