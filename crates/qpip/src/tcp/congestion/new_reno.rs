//! NewReno: one segment more per window, half of it after a loss (RFC 5681).

/// Bytes acknowledged since the window last grew.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NewReno {
    acked: u32,
}

impl NewReno {
    /// What a window in congestion avoidance grows by: a segment for each window
    /// of acknowledged bytes (RFC 3465, section 2.1).
    pub(super) fn growth(&mut self, window: u32, mss: u32, bytes: u32) -> u32 {
        let acked = self.acked.saturating_add(bytes);
        self.acked = acked % window;
        // One acknowledgement never covers much more than a window.
        if acked >= window { mss } else { 0 }
    }

    /// RFC 5681, equation 4.
    pub(super) fn on_congestion(&mut self, used: u32) -> u32 {
        self.acked = 0;
        used / 2
    }
}
