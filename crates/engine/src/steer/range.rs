//! The values that constants of a policy may have: the one table for checks, configuration files and documentation.

/// A constant of the configuration `C`, and its valid range.
#[derive(Debug, Clone, Copy)]
pub struct Constant<C: 'static> {
    /// The key in configuration files.
    pub name: &'static str,
    /// The least valid value.
    pub least: f64,
    /// The greatest valid value.
    pub most: f64,
    /// Only whole numbers are valid.
    pub is_whole: bool,
    /// Reads the constant.
    pub get: fn(&C) -> f64,
    /// Sets the constant. The value must be in the range, and whole if `is_whole`.
    pub set: fn(&mut C, f64),
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

/// Lists the constants of a configuration: one line for each, with its field, its range and, for whole numbers, its
/// type.
macro_rules! constants {
    ($config:ty: $($name:ident in $least:literal ..= $most:tt $(as $whole:ty)?;)*) => {
        [$($crate::steer::range::Constant {
            name: stringify!($name),
            least: $least as f64,
            most: $most as f64,
            is_whole: constants!(@whole $($whole)?),
            get: |config: &$config| config.$name.into(),
            set: |config: &mut $config, value| config.$name = value $(as $whole)?,
        },)*]
    };
    (@whole) => { false };
    (@whole $whole:ty) => { true };
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
