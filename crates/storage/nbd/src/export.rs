//! What a server offers: [`Export`] and its limits.

use alloc::string::String;

/// What an export can do, as the server says it.
///
/// ```
/// use landfall_nbd::Features;
///
/// let features = Features::READ_ONLY.with(Features::FLUSH);
/// assert!(features.has(Features::FLUSH) && !features.has(Features::TRIM));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features(u16);

impl Features {
    /// Nothing can be written.
    pub const READ_ONLY: Self = Self(1 << 1);
    /// Flushes are understood.
    pub const FLUSH: Self = Self(1 << 2);
    /// Requests that reach the medium before they are answered.
    pub const FUA: Self = Self(1 << 3);
    /// Access in order is faster.
    pub const ROTATIONAL: Self = Self(1 << 4);
    /// What is not needed any more can be said.
    pub const TRIM: Self = Self(1 << 5);
    /// Zeroes are written without being sent.
    pub const WRITE_ZEROES: Self = Self(1 << 6);
    /// Reads in one piece where that is asked. Servers set it by themselves where replies
    /// can have several pieces.
    pub const DONT_FRAGMENT: Self = Self(1 << 7);
    /// Several connections see one device: a flush by one is for all.
    pub const MULTI_CONN: Self = Self(1 << 8);
    /// The size can be changed (the protocol's experimental extension).
    pub const RESIZE: Self = Self(1 << 9);
    /// What will be read soon can be said.
    pub const CACHE: Self = Self(1 << 10);
    /// A write of zeroes that would be slow can be refused.
    pub const FAST_ZERO: Self = Self(1 << 11);

    /// Set in all that a server sends.
    const HAS_FLAGS: u16 = 1;

    /// The names of those that are there, in words of the protocol's document.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        const NAMES: [(Features, &str); 11] = [
            (Features::READ_ONLY, "read-only"),
            (Features::FLUSH, "flush"),
            (Features::FUA, "fua"),
            (Features::ROTATIONAL, "rotational"),
            (Features::TRIM, "trim"),
            (Features::WRITE_ZEROES, "write-zeroes"),
            (Features::DONT_FRAGMENT, "dont-fragment"),
            (Features::MULTI_CONN, "multi-conn"),
            (Features::RESIZE, "resize"),
            (Features::CACHE, "cache"),
            (Features::FAST_ZERO, "fast-zero"),
        ];
        NAMES.into_iter().filter_map(move |(feature, name)| self.has(feature).then_some(name))
    }

    /// Both.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// These without those.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Has it all of these?
    #[must_use]
    pub const fn has(self, all: Self) -> bool {
        self.0 & all.0 == all.0
    }

    pub(crate) const fn to_wire(self) -> u16 {
        self.0 | Self::HAS_FLAGS
    }

    /// A client ignores flags it does not know: they stay what they are.
    pub(crate) const fn from_wire(flags: u16) -> Self {
        Self(flags & !Self::HAS_FLAGS)
    }
}

/// The sizes of blocks that a server asks its clients to keep to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSizes {
    /// Offsets and lengths are multiples of it.
    pub minimum: u32,
    /// Requests of this size, and at multiples of it, are fast.
    pub preferred: u32,
    /// The longest read or write.
    pub maximum: u32,
}

impl BlockSizes {
    /// Any offset and length, blocks of 4 KiB preferred, at most 32 MiB.
    pub const BYTES: Self = Self { minimum: 1, preferred: 4096, maximum: 32 << 20 };

    /// Does the protocol allow these?
    #[must_use]
    pub const fn is_valid(&self) -> bool {
        self.minimum.is_power_of_two()
            && self.minimum <= 1 << 16
            && self.preferred.is_power_of_two()
            && self.preferred >= self.minimum
            && self.preferred >= 512
            && self.maximum >= self.preferred
            && self.maximum.is_multiple_of(self.minimum)
    }
}

impl Default for BlockSizes {
    fn default() -> Self {
        Self::BYTES
    }
}

/// A device that a server offers under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// Its name. An empty one is the default export.
    pub name: String,
    /// A few words for people.
    pub description: String,
    /// Its size in bytes.
    pub size: u64,
    /// What it can do.
    pub features: Features,
    /// What clients shall keep to.
    pub blocks: BlockSizes,
    /// Only for those that have TLS.
    pub tls_only: bool,
}

impl Export {
    /// An export that can only be read, until more [features](Self::features) are given.
    #[must_use]
    pub fn new(name: impl Into<String>, size: u64) -> Self {
        Self {
            name: name.into(),
            description: String::new(),
            size,
            features: Features::READ_ONLY,
            blocks: BlockSizes::BYTES,
            tls_only: false,
        }
    }
}

/// How a server answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Replies {
    /// Each with one header, and data of a read behind it.
    #[default]
    Simple,
    /// In chunks.
    Structured,
    /// In chunks, and with lengths of 64 bits both ways.
    Extended,
}

impl Replies {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Simple => "simple",
            Self::Structured => "structured",
            Self::Extended => "extended",
        }
    }
}

/// The only context of metadata that the protocol itself defines.
pub const BASE_ALLOCATION: &str = "base:allocation";

/// A stretch of an export that is all alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// How many bytes.
    pub len: u64,
    /// Nothing is allocated for them.
    pub is_hole: bool,
    /// They read as zeroes.
    pub is_zero: bool,
}

impl Extent {
    /// Bytes of which nothing is known but that they are there.
    #[must_use]
    pub const fn data(len: u64) -> Self {
        Self { len, is_hole: false, is_zero: false }
    }

    /// A hole, which reads as zeroes.
    #[must_use]
    pub const fn hole(len: u64) -> Self {
        Self { len, is_hole: true, is_zero: true }
    }

    pub(crate) const fn flags(self) -> u32 {
        self.is_hole as u32 | (self.is_zero as u32) << 1
    }

    pub(crate) const fn from_wire(len: u64, flags: u64) -> Self {
        Self { len, is_hole: flags & 1 != 0, is_zero: flags & 2 != 0 }
    }
}
