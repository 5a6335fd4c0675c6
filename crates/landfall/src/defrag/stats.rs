//! What receivers and senders count.

use spec_defrag::{Stats, reassembly};

/// What a receiver did since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverStats {
    /// Packets that were handed out.
    pub packets: u64,
    /// Frames and packets, by how they were joined.
    pub joined: Stats,
    /// What became of pieces that went the conventional way.
    pub gathered: reassembly::Counters,
    /// Bytes that were copied to hand packets out: none unless delivery is by copy.
    pub bytes_handed: u64,
    /// Frames that the kernel had for this receiver, and those that it dropped
    /// since there was no room for them.
    pub kernel_frames: u64,
    /// See [`kernel_frames`](Self::kernel_frames).
    pub kernel_drops: u64,
    /// Bursts: calls, or blocks of a ring.
    pub bursts: u64,
    /// Turns that found no page free.
    pub starved: u64,
    /// Packets that had to wait until their user gave others back.
    pub held_up: u64,
    /// Packets that could not be handed out.
    pub lost: u64,
    /// Senders that were told (ICMP) that a packet did not become whole in time.
    pub answers: u64,
}

impl ReceiverStats {
    /// Bytes that were copied in user space: to join packets, and to hand them out.
    #[must_use]
    pub const fn bytes_copied(&self) -> u64 {
        self.joined.bytes_copied + self.bytes_handed
    }

    /// The share of packets that were joined without a copy, among those that came in
    /// pieces.
    #[must_use]
    pub fn hit_rate(&self) -> f64 {
        let hits = self.joined.speculated + self.joined.lent;
        let all = hits + self.joined.conventional;
        if all == 0 { 0.0 } else { hits as f64 / all as f64 }
    }
}

/// What a sender did since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderStats {
    /// Packets that left.
    pub packets: u64,
    /// Of those, the ones that the kernel cut.
    pub cut_by_kernel: u64,
    /// Frames that left.
    pub frames: u64,
    /// Frames that could not be sent, as if they were lost on the way.
    pub failed: u64,
    /// Calls that sent something.
    pub calls: u64,
    /// Times that it had to wait for room in the kernel.
    pub blocked: u64,
    /// Times that admission control made it wait.
    pub throttled: u64,
}
