//! Whether sending without a copy is worth trying.

/// When payload is sent without a copy in the kernel.
///
/// The kernel then reads the payload while the device sends it, and says when
/// it is through; setting that up costs more than copying a short payload. It
/// cannot scatter one packet over more than 17 pieces of memory, so long
/// batches of short units are always copied. Loopback and veth copy in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ZeroCopy {
    /// The kernel copies what is sent.
    Never,
    /// Where it is long enough, and as long as the kernel does not report that
    /// it copied after all.
    #[default]
    Auto,
    /// Wherever the kernel can, however short, and whatever it reports.
    Always,
}

/// What became of sends that were to go without a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZeroCopyUse {
    /// Sends whose payload the device took from where it lies.
    pub uncopied: u64,
    /// Sends whose payload the kernel copied after all, as it reported.
    pub copied: u64,
    /// Sends that the kernel would not do without a copy.
    pub refused: u64,
}

/// The most pieces of memory in one packet of the kernel (`MAX_SKB_FRAGS`).
const MAX_PIECES: usize = 17;
/// So many disappointments in a row are no accident.
const DISAPPOINTMENTS: u32 = 8;
/// Then copy so many sends before the next attempt: routes change.
const REST: u32 = 1 << 16;

/// Learns from what the kernel reports.
#[derive(Clone, Copy, Debug)]
pub(super) struct Policy {
    mode: ZeroCopy,
    /// A shorter send is copied.
    from: usize,
    disappointments: u32,
    /// Sends to copy before the next attempt.
    rest: u32,
    seen: ZeroCopyUse,
}

impl Policy {
    pub(super) const fn new(mode: ZeroCopy, from: usize) -> Self {
        Self {
            mode,
            from,
            disappointments: 0,
            rest: 0,
            seen: ZeroCopyUse { uncopied: 0, copied: 0, refused: 0 },
        }
    }

    /// May anything be sent without a copy?
    pub(super) const fn is_on(&self) -> bool {
        !matches!(self.mode, ZeroCopy::Never)
    }

    pub(super) const fn seen(&self) -> ZeroCopyUse {
        self.seen
    }

    /// Shall a send of so many bytes in so many pieces go without a copy?
    pub(super) fn wants(&mut self, bytes: usize, pieces: usize) -> bool {
        let able = pieces <= MAX_PIECES;
        match self.mode {
            ZeroCopy::Never => false,
            ZeroCopy::Always => able,
            ZeroCopy::Auto if !able || bytes < self.from => false,
            ZeroCopy::Auto if self.rest > 0 => {
                self.rest -= 1;
                false
            }
            ZeroCopy::Auto => true,
        }
    }

    /// The kernel would not do it.
    pub(super) fn refused(&mut self) {
        self.seen.refused += 1;
        self.disappoint();
    }

    /// The kernel reports what it did.
    pub(super) fn reported(&mut self, copied: bool) {
        if copied {
            self.seen.copied += 1;
            self.disappoint();
        } else {
            self.seen.uncopied += 1;
            self.disappointments = 0;
        }
    }

    fn disappoint(&mut self) {
        self.disappointments += 1;
        if self.disappointments >= DISAPPOINTMENTS {
            self.disappointments = 0;
            self.rest = REST;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: usize = 60_000;

    #[test]
    fn auto_gives_up_where_the_kernel_copies_and_tries_again_later() {
        let mut policy = Policy::new(ZeroCopy::Auto, 16_384);
        for _ in 0..DISAPPOINTMENTS {
            assert!(policy.wants(LONG, 2));
            policy.reported(true);
        }
        for _ in 0..REST {
            assert!(!policy.wants(LONG, 2));
        }
        assert!(policy.wants(LONG, 2), "the route may be another by now");
        assert_eq!(policy.seen().copied, u64::from(DISAPPOINTMENTS));
    }

    #[test]
    fn one_success_makes_up_for_some_disappointments() {
        let mut policy = Policy::new(ZeroCopy::Auto, 16_384);
        for _ in 0..100 {
            policy.refused();
            policy.reported(false);
            assert!(policy.wants(LONG, 2));
        }
        let seen = ZeroCopyUse { uncopied: 100, copied: 0, refused: 100 };
        assert_eq!(policy.seen(), seen);
    }

    #[test]
    fn what_no_packet_can_hold_is_never_tried() {
        for mode in [ZeroCopy::Always, ZeroCopy::Auto] {
            assert!(Policy::new(mode, 0).wants(LONG, MAX_PIECES));
            assert!(!Policy::new(mode, 0).wants(LONG, MAX_PIECES + 1));
        }
        assert!(!Policy::new(ZeroCopy::Auto, 16_384).wants(16_383, 2));
        assert!(Policy::new(ZeroCopy::Always, 16_384).wants(1, 2));
        assert!(!Policy::new(ZeroCopy::Never, 0).wants(LONG, 2));
        let mut always = Policy::new(ZeroCopy::Always, 0);
        (0..100).for_each(|_| always.reported(true));
        assert!(always.wants(1, 1));
    }
}
