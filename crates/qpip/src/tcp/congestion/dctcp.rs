//! DCTCP (RFC 8257): the window is reduced by as much as of it was marked.
//!
//! For networks whose switches mark early and whose hosts all do so: a receiver tells of
//! each mark ([`CongestionControl::echoes_each_mark`](super::CongestionControl)), which
//! nobody negotiates. Where nothing is marked, and for losses, it is NewReno.

use super::NewReno;

/// All of a window was marked.
const ALL: u32 = 1 << 20;
/// `g`: a sixteenth of what the last window says counts (section 4.2).
const WEIGHT_BITS: u32 = 4;

/// The state of DCTCP beside the window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dctcp {
    pub(super) reno: NewReno,
    /// `DCTCP.Alpha`: the part of what is sent that is marked, of [`ALL`].
    alpha: u32,
    /// `DCTCP.BytesAcked` and `DCTCP.BytesMarked`.
    acked: u32,
    marked: u32,
    /// `DCTCP.WindowEnd`.
    window_end: u64,
}

impl Default for Dctcp {
    /// Section 3.3: `Alpha` is one at first, so the first mark halves the window.
    fn default() -> Self {
        Self { reno: NewReno::default(), alpha: ALL, acked: 0, marked: 0, window_end: 0 }
    }
}

impl Dctcp {
    /// Section 3.3, steps 1 to 7, for each acknowledgement: `bytes` of what was sent up to
    /// `next` are acknowledged, all up to `acknowledged`, and `marked` of them were marked.
    pub(super) fn count(&mut self, bytes: u64, marked: u64, acknowledged: u64, next: u64) {
        let marked = u32::try_from(marked).unwrap_or(u32::MAX);
        self.marked = self.marked.saturating_add(marked);
        if bytes == 0 {
            return; // It acknowledges nothing new.
        }
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.acked = self.acked.saturating_add(bytes);
        if acknowledged <= self.window_end {
            return;
        }
        let part = u64::from(self.marked) * u64::from(ALL) / u64::from(self.acked.max(1));
        let part = u32::try_from(part).unwrap_or(ALL).min(ALL);
        self.alpha = self.alpha - (self.alpha >> WEIGHT_BITS) + (part >> WEIGHT_BITS);
        (self.acked, self.marked, self.window_end) = (0, 0, next);
    }

    /// Section 3.3, step 9: what is left of a window of which something was marked.
    pub(super) fn on_mark(&mut self, used: u32) -> u32 {
        self.reno.on_congestion(used);
        let less = u64::from(used) * u64::from(self.alpha) / u64::from(2 * ALL);
        used - u32::try_from(less).unwrap_or(used)
    }
}
