//! [`AccurateOption`]: the option of accurate ECN (RFC 9768).

/// Counters of received payload by the code points of ECN, 24 bits of each (RFC 9768, section
/// 3.2.3): ECT(0), CE and ECT(1), or the other way around, as many of them as have moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccurateOption {
    pub(super) fields: [[u8; 3]; 3],
    pub(super) count: u8,
    /// ECT(1) stands first.
    pub(super) is_reverse: bool,
}

impl AccurateOption {
    /// The bits of a counter.
    pub const MASK: u32 = 0x00ff_ffff;

    /// The first `count` of the counters of ECT(0), CE and ECT(1), or, in reverse, of ECT(1),
    /// CE and ECT(0).
    #[must_use]
    pub fn new(counters: [u32; 3], count: u8, is_reverse: bool) -> Self {
        let mut fields = counters.map(|counter| {
            let [_, a, b, c] = counter.to_be_bytes();
            [a, b, c]
        });
        if is_reverse {
            fields.reverse();
        }
        let count = count.min(3);
        for unsaid in fields.iter_mut().skip(usize::from(count)) {
            *unsaid = [0; 3];
        }
        Self { fields, count, is_reverse }
    }

    /// The counters of ECT(0), CE and ECT(1), where they are said.
    #[must_use]
    pub fn counters(&self) -> [Option<u32>; 3] {
        let mut counters = [None; 3];
        for (counter, [a, b, c]) in
            counters.iter_mut().zip(self.fields).take(usize::from(self.count))
        {
            *counter = Some(u32::from_be_bytes([0, a, b, c]));
        }
        if self.is_reverse {
            counters.reverse();
        }
        counters
    }

    /// How long it is on the wire, in whole words.
    #[must_use]
    pub fn len(&self) -> usize {
        (2 + 3 * usize::from(self.count)).next_multiple_of(4)
    }

    /// Never: an option has at least its kind.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Section 3.2.3: whole fields count, and what is behind them is padding.
    pub(super) fn read(body: &[u8], is_reverse: bool) -> Self {
        let (whole, _) = body.as_chunks::<3>();
        let mut fields = [[0; 3]; 3];
        for (field, said) in fields.iter_mut().zip(whole) {
            *field = *said;
        }
        Self { fields, count: whole.len().min(3) as u8, is_reverse }
    }
}
