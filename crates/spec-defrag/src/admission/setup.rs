//! What can be wrong with a configuration, or with a call.

use landfall_placement::Duration;

use super::frame::{Mac, is_station};

/// A configuration that cannot work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The address of a station is the address of a group, or of nobody.
    #[error("an address is not the address of one station")]
    Address,
    /// Both addresses are the same.
    #[error("the sender and the receiver have the same address")]
    SameAddress,
    /// A number must be within these bounds.
    #[error("`{name}` must be from {least} to {most}")]
    Number {
        /// Which one.
        name: &'static str,
        /// The least that works.
        least: u64,
        /// The most that works.
        most: u64,
    },
    /// A time must be within these bounds.
    #[error("`{name}` must be from {least:?} to {most:?}")]
    Time {
        /// Which one.
        name: &'static str,
        /// The shortest that works.
        least: Duration,
        /// The longest that works.
        most: Duration,
    },
}

/// There are as many transfers as the configuration allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no more than {most} transfers at once")]
pub struct TooMany {
    /// The configured bound.
    pub most: u16,
}

/// Longer than any time that means something here; it fits the field of a frame.
pub(super) const LONGEST: Duration = Duration::from_secs(3_600);

/// Shorter ones would be over before a frame could cross a network.
pub(super) const SHORTEST: Duration = Duration::from_micros(10);

pub(super) fn address(address: Mac) -> Result<(), ConfigError> {
    if is_station(address) { Ok(()) } else { Err(ConfigError::Address) }
}

pub(super) fn number(
    name: &'static str,
    value: u64,
    least: u64,
    most: u64,
) -> Result<(), ConfigError> {
    if (least..=most).contains(&value) {
        Ok(())
    } else {
        Err(ConfigError::Number { name, least, most })
    }
}

pub(super) fn time(
    name: &'static str,
    value: Duration,
    least: Duration,
) -> Result<(), ConfigError> {
    let most = LONGEST;
    if (least..=most).contains(&value) {
        Ok(())
    } else {
        Err(ConfigError::Time { name, least, most })
    }
}
