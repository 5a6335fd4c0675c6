//! What a driver did: the figures that show whether placement works.

/// Counters of one driver since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// System calls (or submissions) that received something.
    pub receive_calls: u64,
    /// Receive calls that found nothing.
    pub empty_calls: u64,
    /// Units received.
    pub units_received: u64,
    /// Payload bytes that were given a place and arrived there.
    pub payload_bytes: u64,
    /// Units whose payload was received straight into its place.
    pub guessed_right: u64,
    /// Units whose payload was received into a guessed span and belonged elsewhere.
    pub guessed_wrong: u64,
    /// Payloads that the engine had kept and that were written to their place.
    pub deposits: u64,
    /// Bytes of payload that this process copied, each copy counted.
    pub bytes_copied: u64,
    /// Bytes summed to verify or fill in a checksum in software.
    pub bytes_summed: u64,
    /// Receives that looked at the first head before they chose a place.
    pub peeks: u64,
    /// Units that the engine refused.
    pub refused: u64,
    /// Units that the path cut short, or that no engine could read.
    pub malformed: u64,
    /// Payloads whose check failed.
    pub corrupt: u64,
    /// Payloads that could not be put into place, or word operations that the grant forbade.
    pub misplaced: u64,
    /// System calls (or submissions) that sent something.
    pub send_calls: u64,
    /// Units sent.
    pub units_sent: u64,
    /// Units that could not be sent: the network or the kernel refused them,
    /// or their memory was gone. To the engine they are lost on the way.
    pub send_failed: u64,
    /// Times that sending had to wait for room.
    pub send_blocked: u64,
    /// Times that a waiting thread was woken.
    pub wakeups: u64,
}

impl Counters {
    /// Units per receive call; zero if there was none.
    #[must_use]
    pub fn units_per_receive(&self) -> f64 {
        ratio(self.units_received, self.receive_calls)
    }

    /// The share of the payload bytes that reached their place without a copy by this process.
    #[must_use]
    pub fn share_uncopied(&self) -> f64 {
        let touched = self.bytes_copied.min(self.payload_bytes);
        ratio(self.payload_bytes - touched, self.payload_bytes)
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
