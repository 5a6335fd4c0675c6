//! What a driver could switch on here, and in clear words what not, and why.

use std::fmt;

/// Something that a path may offer beyond moving one unit at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Feature {
    /// Many units leave with one call (UDP_SEGMENT, `sendmmsg`).
    BatchedSend,
    /// Many units arrive with one call (UDP_GRO, `recvmmsg`).
    BatchedReceive,
    /// The device or kernel cuts long TCP segments (`PACKET_VNET_HDR`).
    TcpSegmentation,
    /// The device or kernel fills in and verifies Internet checksums.
    ChecksumOffload,
    /// Payload leaves without a copy in the kernel (`SendZc`).
    ZeroCopySend,
    /// Receiving straight into guessed spans.
    DirectPlacement,
    /// The whole link-layer frame is the engine's.
    RawFrames,
    /// The device receives into, and sends from, the memory of mapped rings
    /// (AF_XDP), without a copy by the kernel.
    ZeroCopyRings,
    /// The congestion marks of the IP header are seen and can be set.
    Ecn,
    /// Processes of this host and user are reached through shared memory.
    SameHost,
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BatchedSend => "batched send",
            Self::BatchedReceive => "batched receive",
            Self::TcpSegmentation => "TCP segmentation offload (PACKET_VNET_HDR)",
            Self::ChecksumOffload => "checksum offload",
            Self::ZeroCopySend => "zero-copy send (io_uring SendZc)",
            Self::DirectPlacement => "direct placement",
            Self::RawFrames => "raw link-layer frames",
            Self::ZeroCopyRings => "zero-copy rings (XDP_ZEROCOPY)",
            Self::Ecn => "ECN marks",
            Self::SameHost => "neighbours on the same host",
        })
    }
}

/// A feature that is not there, why, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{feature} is not available on {driver}: {why}")]
pub struct Missing {
    /// What was asked for.
    pub feature: Feature,
    /// Of which driver.
    pub driver: &'static str,
    /// Why it is not there, and what would help.
    pub why: String,
}

/// What a driver found when it was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    driver: &'static str,
    present: Vec<Feature>,
    missing: Vec<Missing>,
}

impl Capabilities {
    /// An empty list, to be filled while a driver is opened.
    #[must_use]
    pub fn of(driver: &'static str) -> Self {
        Self { driver, present: Vec::new(), missing: Vec::new() }
    }

    /// The feature is there.
    pub fn add(&mut self, feature: Feature) {
        self.missing.retain(|missing| missing.feature != feature);
        if !self.has(feature) {
            self.present.push(feature);
        }
    }

    /// The feature is not there, because `why`.
    pub fn lack(&mut self, feature: Feature, why: impl Into<String>) {
        self.present.retain(|present| *present != feature);
        self.missing.retain(|missing| missing.feature != feature);
        self.missing.push(Missing { feature, driver: self.driver, why: why.into() });
    }

    /// Is it there?
    #[must_use]
    pub fn has(&self, feature: Feature) -> bool {
        self.present.contains(&feature)
    }

    /// Insists on a feature.
    ///
    /// # Errors
    /// [`Missing`] says why it is not there and what would help.
    pub fn require(&self, feature: Feature) -> Result<(), Missing> {
        if self.has(feature) {
            return Ok(());
        }
        let found = self.missing.iter().find(|missing| missing.feature == feature).cloned();
        Err(found.unwrap_or_else(|| Missing {
            feature,
            driver: self.driver,
            why: "this driver has no such thing; choose another driver".into(),
        }))
    }

    /// The name of the driver.
    #[must_use]
    pub fn driver(&self) -> &'static str {
        self.driver
    }

    /// What is there.
    #[must_use]
    pub fn present(&self) -> &[Feature] {
        &self.present
    }

    /// What was looked for and is not there.
    #[must_use]
    pub fn missing(&self) -> &[Missing] {
        &self.missing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_says_why() {
        let mut found = Capabilities::of("udp");
        found.add(Feature::BatchedSend);
        found.lack(Feature::BatchedReceive, "the kernel is older than 5.0");
        assert_eq!(found.require(Feature::BatchedSend), Ok(()));
        let missing = found.require(Feature::BatchedReceive).unwrap_err();
        assert_eq!(
            missing.to_string(),
            "batched receive is not available on udp: the kernel is older than 5.0"
        );
        let unknown = found.require(Feature::RawFrames).unwrap_err();
        assert!(unknown.to_string().contains("choose another driver"));
    }

    #[test]
    fn a_feature_can_be_lost_and_found() {
        let mut found = Capabilities::of("udp");
        found.add(Feature::BatchedSend);
        found.lack(Feature::BatchedSend, "the device refused it");
        assert!(!found.has(Feature::BatchedSend));
        found.add(Feature::BatchedSend);
        assert!(found.has(Feature::BatchedSend) && found.missing().is_empty());
    }
}
