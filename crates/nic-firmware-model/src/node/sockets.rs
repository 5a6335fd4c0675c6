//! [`SocketCosts`]: what a host spends where it runs TCP itself.

use landfall_placement::Duration;

/// What TCP costs a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketCosts {
    /// A packet with data, sent or received, but for its copy.
    pub packet: Duration,
    /// A bare acknowledgement, sent or received.
    pub ack: Duration,
    /// To copy a mebibyte to or from a program.
    pub copy: Duration,
}

impl SocketCosts {
    /// To copy this many bytes.
    #[must_use]
    pub fn copy_of(&self, len: u32) -> Duration {
        Duration::from_nanos((self.copy.as_nanos() as u64 * u64::from(len)) >> 20)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_takes_as_long_as_it_is() {
        let costs = SocketCosts { copy: Duration::from_millis(8), ..SocketCosts::default() };
        assert_eq!(costs.copy_of(1 << 19), Duration::from_millis(4));
        assert_eq!(costs.copy_of(0), Duration::ZERO);
    }
}
