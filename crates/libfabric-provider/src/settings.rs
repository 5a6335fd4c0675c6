//! What users choose by the environment.

use std::fmt;
use std::time::Duration;

use landfall::stp::{Builder, Config};

/// Encrypts nothing: `1`.
pub(crate) const PLAINTEXT: &str = "FI_LANDFALL_PLAINTEXT";
/// 64 hexadecimal digits that all ranks have: encrypts with them.
pub(crate) const KEY: &str = "FI_LANDFALL_KEY";
/// The interface, or the address, to be used.
pub(crate) const INTERFACE: &str = "FI_LANDFALL_IFACE";

/// How many seconds a peer may be silent before it is given up.
pub(crate) const PATIENCE: &str = "FI_LANDFALL_PATIENCE";

/// What the environment says.
#[derive(Clone, Default)]
pub(crate) struct Settings {
    is_plain: bool,
    key: Option<[u8; 32]>,
    pub(crate) interface: Option<String>,
    patience: Option<u32>,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").field("is_plain", &self.is_plain).finish_non_exhaustive()
    }
}

impl Settings {
    /// What the environment of this process says.
    ///
    /// # Errors
    /// What makes no sense.
    pub(crate) fn of_environment() -> Result<Self, String> {
        let get = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let is_plain = match get(PLAINTEXT).as_deref() {
            None | Some("0" | "no" | "false") => false,
            Some("1" | "yes" | "true") => true,
            Some(other) => return Err(format!("{PLAINTEXT} is '{other}': 1 or 0 is meant")),
        };
        let key = match get(KEY) {
            None => None,
            Some(digits) => {
                Some(key(&digits).ok_or(format!("{KEY} has no 64 hexadecimal digits"))?)
            }
        };
        let patience = match get(PATIENCE).map(|seconds| seconds.parse()) {
            None => None,
            Some(Ok(seconds @ 1..=86_400)) => Some(seconds),
            Some(_) => return Err(format!("{PATIENCE} is no number of seconds, 1 to 86400")),
        };
        Ok(Self { is_plain, key, interface: get(INTERFACE), patience })
    }

    /// The bounds of an endpoint's engine.
    fn config(&self) -> Config {
        let config = Config {
            connections: 1 << 14,
            half_open: 1 << 10,
            links: 1 << 15,
            sends: 1 << 13,
            receives: 1 << 13,
            operations: 512,
            exposed: 0xffff,
            ..Config::shared_network()
        };
        let Some(seconds) = self.patience else { return config };
        let patience = Duration::from_secs(seconds.into());
        // Repetitions take twice as long each time, up to 16 times: ten of them 127 times as
        // long as the first.
        let retry_after = (patience / 256).max(config.retry_floor);
        Config { retry_after, keep_alive: Some(patience / 4), ..config }
    }

    pub(crate) fn apply(&self, builder: Builder) -> Builder {
        let builder = builder.config(self.config());
        match self.key {
            _ if self.is_plain => builder.plaintext(),
            Some(key) => builder.preshared_key(key),
            None => builder,
        }
    }
}

fn key(digits: &str) -> Option<[u8; 32]> {
    let mut key = [0; 32];
    let digits = digits.as_bytes();
    if digits.len() != 64 {
        return None;
    }
    for (byte, pair) in key.iter_mut().zip(digits.chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_64_digits() {
        assert_eq!(key(&"0a".repeat(32)), Some([10; 32]));
        assert_eq!(key(&"0g".repeat(32)), None);
        assert_eq!(key("0a"), None);
    }
}
