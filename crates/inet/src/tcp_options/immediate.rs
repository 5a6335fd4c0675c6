//! [`ImmediateOption`]: words that arrive with messages, an experiment of our own (RFC 6994).

/// What is said of 32-bit words that arrive with the ends of messages: an experimental option
/// (RFC 6994) of kind 253 with the identifier 0x4c46, between two ends that both speak it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImmediateOption {
    /// Four bytes. In an opening: I take words. In a message's last segment: it has none.
    Plain,
    /// Five bytes, the last of which is zero: I asked, and heard no answer.
    Declined,
    /// Eight bytes: the word of the message that ends here, in network order.
    Word([u8; 4]),
}

impl ImmediateOption {
    /// The longest, in whole words.
    pub const LEN_MAX: u32 = 8;

    /// How long it is on the wire, in whole words.
    #[must_use]
    pub const fn len(self) -> usize {
        match self {
            Self::Plain => 4,
            Self::Declined | Self::Word(_) => 8,
        }
    }

    /// Never: an option has at least its kind.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        false
    }

    /// What these bytes behind the identifier say; of another length nothing.
    pub(super) const fn read(body: &[u8]) -> Option<Self> {
        match *body {
            [] => Some(Self::Plain),
            [0] => Some(Self::Declined),
            [a, b, c, d] => Some(Self::Word([a, b, c, d])),
            _ => None,
        }
    }
}
