//! Proportional rate reduction (RFC 9937): what may be sent in a recovery.
//!
//! While more is under way than the new window allows, it sends in the
//! proportion of the new window to the old one; below that it sends what was
//! delivered, and a segment more for each acknowledgement that shows progress.

/// What one acknowledgement in a recovery tells.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delivery {
    /// Bytes delivered: acknowledged or selectively acknowledged for the first
    /// time.
    pub(crate) bytes: u64,
    /// Bytes under way after it.
    pub(crate) pipe: u64,
    /// It moved the acknowledged position and showed no further loss
    /// (`safeACK`).
    pub(crate) is_safe: bool,
}

/// The counters of one recovery: 32 bits, as no window is larger, and a sum that
/// stops at their end is as good as a larger one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prr {
    /// `RecoverFS`: bytes that the recovery can deliver.
    flight: u32,
    delivered: u32,
    sent: u32,
    window: u32,
    threshold: u32,
    mss: u32,
}

impl Prr {
    /// A recovery begins. `flight` is all that was sent and not acknowledged,
    /// less what had been selectively acknowledged, both before this
    /// acknowledgement. `threshold` is the new slow start threshold.
    pub(crate) fn new(flight: u64, threshold: u64, mss: u32) -> Self {
        let (flight, threshold) = (bounded(flight).max(1), bounded(threshold));
        Self { flight, delivered: 0, sent: 0, window: 0, threshold, mss: mss.max(1) }
    }

    /// RFC 9937, section 6, for each acknowledgement in the recovery, also for
    /// the one that began it.
    pub(crate) fn on_ack(&mut self, ack: &Delivery) {
        let (bytes, pipe) = (bounded(ack.bytes), bounded(ack.pipe));
        self.delivered = self.delivered.saturating_add(bytes);
        let mut may_send = if bytes == 0 {
            0
        } else if pipe > self.threshold {
            let share = u64::from(self.delivered) * u64::from(self.threshold);
            bounded(share.div_ceil(u64::from(self.flight))).saturating_sub(self.sent)
        } else {
            let behind = self.delivered.saturating_sub(self.sent).max(bytes);
            let behind = if ack.is_safe { behind.saturating_add(self.mss) } else { behind };
            behind.min(self.threshold - pipe)
        };
        if self.sent == 0 {
            // The first retransmission is not held back.
            may_send = may_send.max(self.mss);
        }
        self.window = pipe.saturating_add(may_send);
    }

    /// Bytes were sent, new or again.
    pub(crate) fn on_sent(&mut self, bytes: u64) {
        self.sent = self.sent.saturating_add(bounded(bytes));
    }

    /// How many bytes may be under way now, in place of the controller's window.
    pub(crate) fn window(&self) -> u64 {
        u64::from(self.window)
    }
}

fn bounded(bytes: u64) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u64 = 1_000;

    /// Plays one recovery: 20 segments under way, the first one lost, the others
    /// acknowledged one by one. Returns what was sent on each acknowledgement.
    fn sent_per_ack(threshold: u64, safe: bool) -> std::vec::Vec<u64> {
        let mut prr = Prr::new(20 * MSS, threshold, 1_000);
        let mut pipe = 19 * MSS;
        (0..19)
            .map(|_| {
                pipe -= MSS;
                prr.on_ack(&Delivery { bytes: MSS, pipe, is_safe: safe });
                let sent = prr.window().saturating_sub(pipe) / MSS * MSS;
                prr.on_sent(sent);
                pipe += sent;
                sent / MSS
            })
            .collect()
    }

    #[test]
    fn half_the_window_means_a_segment_for_every_second_one() {
        let sent = sent_per_ack(10 * MSS, false);
        assert_eq!(sent[0], 1, "the first retransmission leaves at once");
        assert_eq!(sent.iter().sum::<u64>(), 10);
        assert!(sent.iter().all(|&sent| sent <= 1), "no bursts: {sent:?}");
    }

    #[test]
    fn below_the_threshold_it_sends_what_was_delivered() {
        // RFC 9937, section 6: conservative without `safeACK`.
        let mut prr = Prr::new(20 * MSS, 10 * MSS, 1_000);
        prr.on_ack(&Delivery { bytes: MSS, pipe: 2 * MSS, is_safe: false });
        assert_eq!(prr.window(), 3 * MSS);
        prr.on_sent(MSS);
        // And one more for an acknowledgement that shows progress.
        prr.on_ack(&Delivery { bytes: MSS, pipe: 2 * MSS, is_safe: true });
        assert_eq!(prr.window(), 4 * MSS);
        // Never above the threshold.
        prr.on_ack(&Delivery { bytes: 50 * MSS, pipe: 2 * MSS, is_safe: true });
        assert_eq!(prr.window(), 10 * MSS);
    }

    #[test]
    fn no_number_overflows() {
        let mut prr = Prr::new(0, u64::MAX, 0);
        for pipe in [0, u64::MAX] {
            prr.on_sent(u64::MAX);
            prr.on_ack(&Delivery { bytes: u64::MAX, pipe, is_safe: true });
            assert!(prr.window() >= u64::from(u32::MAX).min(pipe));
        }
    }

    #[test]
    fn no_delivery_sends_nothing_more() {
        let mut prr = Prr::new(20 * MSS, 10 * MSS, 1_000);
        prr.on_sent(MSS);
        prr.on_ack(&Delivery { bytes: 0, pipe: 5 * MSS, is_safe: false });
        assert_eq!(prr.window(), 5 * MSS);
    }
}
