//! What an interface counts, over all its queues.

use super::super::technique::{ReceiverStats, SenderStats};
use super::admission::AdmissionStats;

/// What an interface did since it was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BigMtuStats {
    /// How packets from the link below were joined.
    pub joined: ReceiverStats,
    /// Packets and bytes of frames that the kernel was given.
    pub to_kernel: Amount,
    /// Packets that the kernel did not take, as when the interface is down.
    pub not_taken: u64,
    /// Packets of a peer on the same machine, whose checksums were left unfinished.
    pub sums_left: u64,
    /// How packets to the link below were cut.
    pub cut: SenderStats,
    /// Packets and bytes of frames that came from the kernel.
    pub from_kernel: Amount,
    /// Of those, packets that cannot be cut.
    pub not_cut: u64,
    /// Times that the link below took nothing for so long that frames were given up.
    pub stuck: u64,
    /// First segments of connections that now announce what fits the link below.
    pub announced: u64,
    /// Packets to the link below that the kernel passed by itself; a super-packet is one.
    pub passed_down: Amount,
    /// The same from the link below.
    pub passed_up: Amount,
    /// What admission control made of packets longer than a frame.
    pub admission: AdmissionStats,
}

/// Packets, and their bytes from the Ethernet header on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// How many packets.
    pub packets: u64,
    /// How many bytes.
    pub bytes: u64,
}

impl std::ops::AddAssign for BigMtuStats {
    fn add_assign(&mut self, other: Self) {
        let Self {
            joined,
            to_kernel,
            not_taken,
            sums_left,
            cut,
            from_kernel,
            not_cut,
            stuck,
            announced,
            passed_down,
            passed_up,
            admission,
        } = other;
        self.joined += joined;
        self.to_kernel = self.to_kernel + to_kernel;
        self.not_taken += not_taken;
        self.sums_left += sums_left;
        self.cut += cut;
        self.from_kernel = self.from_kernel + from_kernel;
        self.not_cut += not_cut;
        self.stuck += stuck;
        self.announced += announced;
        self.passed_down = self.passed_down + passed_down;
        self.passed_up = self.passed_up + passed_up;
        self.admission += admission;
    }
}

impl std::ops::Add for Amount {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { packets: self.packets + other.packets, bytes: self.bytes + other.bytes }
    }
}

impl Amount {
    pub(super) const fn add(&mut self, bytes: usize) {
        self.packets += 1;
        self.bytes += bytes as u64;
    }
}
