//! Values of a configuration that are out of their range.
//!
//! An engine moves no value to one that it likes better: anyone who asked for it would not know.
//! Its constructor says which value cannot be, and what can.

use core::fmt;
use core::ops::RangeInclusive;

use crate::time::Duration;

/// A value of a configuration is out of its range.
///
/// ```
/// use landfall_placement::ConfigError;
///
/// let error = ConfigError::check("paths", 65_usize, 1..=64).unwrap_err();
/// assert_eq!(error.field, "paths");
/// assert_eq!(error.to_string(), "`paths` is 65, and may be 1 to 64");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// Which field of the configuration.
    pub field: &'static str,
    /// What it is.
    pub value: ConfigValue,
    /// The least that it may be.
    pub least: ConfigValue,
    /// The most that it may be.
    pub most: ConfigValue,
}

impl ConfigError {
    /// Is the value of a field within a range?
    ///
    /// # Errors
    /// It is not.
    #[inline]
    pub fn check<T>(field: &'static str, value: T, range: RangeInclusive<T>) -> Result<(), Self>
    where
        T: Copy + PartialOrd + Into<ConfigValue>,
    {
        if range.contains(&value) {
            return Ok(());
        }
        let (least, most) = ((*range.start()).into(), (*range.end()).into());
        Err(Self { field, value: value.into(), least, most })
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { field, value, least, most } = self;
        write!(f, "`{field}` is {value}, and may be {least}")?;
        if most.is_unbounded() { f.write_str(" or more") } else { write!(f, " to {most}") }
    }
}

impl core::error::Error for ConfigError {}

/// A value of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigValue {
    /// How many.
    Number(u64),
    /// How long.
    Time(Duration),
}

impl ConfigValue {
    fn is_unbounded(self) -> bool {
        match self {
            Self::Number(number) => number == u64::MAX,
            Self::Time(time) => time == Duration::MAX,
        }
    }
}

impl fmt::Display for ConfigValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Time(time) => write!(f, "{time:?}"),
        }
    }
}

impl From<Duration> for ConfigValue {
    fn from(time: Duration) -> Self {
        Self::Time(time)
    }
}

macro_rules! numbers {
    ($($number:ty),*) => {
        $(impl From<$number> for ConfigValue {
            fn from(number: $number) -> Self {
                Self::Number(number.into())
            }
        })*
    };
}

numbers!(u8, u16, u32, u64);

impl From<usize> for ConfigValue {
    fn from(number: usize) -> Self {
        Self::Number(number as u64)
    }
}

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use super::*;

    #[test]
    fn what_is_in_range_is_right() {
        assert_eq!(ConfigError::check("blocks", 1_u16, 1..=1), Ok(()));
        assert_eq!(
            ConfigError::check("wait", Duration::MAX, Duration::ZERO..=Duration::MAX),
            Ok(())
        );
    }

    #[test]
    fn an_error_says_field_value_and_range() {
        let time = Duration::from_millis;
        let error = ConfigError::check("wait", time(1), time(5)..=time(500)).unwrap_err();
        assert_eq!(error.to_string(), "`wait` is 1ms, and may be 5ms to 500ms");
        let error = ConfigError::check("window", 0_u64, 1..=u64::MAX).unwrap_err();
        assert_eq!(error.to_string(), "`window` is 0, and may be 1 or more");
        let numbers = [error.value, error.least, error.most];
        assert_eq!(numbers, [0, 1, u64::MAX].map(ConfigValue::Number));
    }
}
