//! [`Cookie`]: the opaque descriptor of an aperture (an RDMA cookie); and what may be done with
//! an aperture, and was done.

use crate::address::{Address, HostId, Key, Kind, WHOLE, WORD};

/// Describes an aperture of some host to anyone who shall use it (section 3.2 of
/// the paper). It is 32 bytes that can be passed on like any others, in memory,
/// in a message, on paper: anyone who has them may map the aperture.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cookie {
    pub(crate) host: HostId,
    pub(crate) slot: u16,
    pub(crate) rights: Rights,
    pub(crate) key: Key,
    pub(crate) len: u64,
}

/// Why 32 bytes are no cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("these 32 bytes are no cookie: were they copied whole, from memory that holds one?")]
pub struct NoCookie;

/// "CLAN", and the version of what follows.
const MARK: [u8; 4] = *b"CLN1";

impl Cookie {
    /// Bytes of a cookie.
    pub const LEN: usize = 32;

    /// A cookie of what another adapter (shared memory, for one) keeps its own
    /// table of: the holder of the key may do what the rights say.
    #[must_use]
    pub const fn new(host: HostId, slot: u16, rights: Rights, key: Key, len: u64) -> Self {
        Self { host, slot, rights, key, len }
    }

    /// The host that the memory belongs to.
    #[must_use]
    pub const fn host(&self) -> HostId {
        self.host
    }

    /// Which of the host's apertures.
    #[must_use]
    pub const fn slot(&self) -> u16 {
        self.slot
    }

    /// What the holder may do.
    #[must_use]
    pub const fn rights(&self) -> Rights {
        self.rights
    }

    /// The proof of it.
    #[must_use]
    pub const fn key(&self) -> Key {
        self.key
    }

    /// How many bytes the aperture has.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "an aperture is never empty")]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// The header for a burst to word `word`.
    #[must_use]
    pub const fn address(&self, word: u32) -> Address {
        let Self { host, slot, key, .. } = *self;
        Address { kind: Kind::Burst, host, slot, word, mask: WHOLE, key }
    }

    /// As bytes, to be passed on.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..4].copy_from_slice(&MARK);
        bytes[4..6].copy_from_slice(&self.host.number().to_be_bytes());
        bytes[6..8].copy_from_slice(&self.slot.to_be_bytes());
        bytes[8] = self.rights as u8;
        bytes[16..24].copy_from_slice(&self.key.bits().to_be_bytes());
        bytes[24..].copy_from_slice(&self.len.to_be_bytes());
        bytes
    }

    /// From bytes that were passed on. Whether the aperture (still) exists, its
    /// host says when it is used.
    ///
    /// # Errors
    /// These bytes never were a cookie.
    pub fn from_bytes(bytes: &[u8; Self::LEN]) -> Result<Self, NoCookie> {
        let short = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let long = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_be_bytes(word)
        };
        let host = HostId::new(short(4)).ok_or(NoCookie)?;
        let rights = Rights::from_bits(bytes[8]).ok_or(NoCookie)?;
        let (key, len) = (long(16), long(24));
        let longest = (u64::from(u32::MAX) + 1) * u64::from(WORD);
        let is_whole = bytes[..4] == MARK
            && bytes[9..16] == [0; 7]
            && key >> 56 == 0
            && (1..=longest).contains(&len);
        if !is_whole {
            return Err(NoCookie);
        }
        Ok(Self { host, slot: short(6), rights, key: Key::from_bits(key), len })
    }
}

/// The key is a secret: it is not shown.
impl core::fmt::Debug for Cookie {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { host, slot, rights, len, .. } = self;
        write!(f, "Cookie({host}, aperture {slot}, {rights:?}, {len} bytes)")
    }
}

/// What the holder of a cookie may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Rights {
    /// Read.
    Read = 1,
    /// Write.
    Write = 2,
    /// Both, and read-modify-write of words.
    ReadWrite = 3,
}

impl Rights {
    /// Every combination there is.
    pub const ALL: [Self; 3] = [Self::Read, Self::Write, Self::ReadWrite];

    /// From its number.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Option<Self> {
        match bits {
            1 => Some(Self::Read),
            2 => Some(Self::Write),
            3 => Some(Self::ReadWrite),
            _ => None,
        }
    }

    /// Do these allow all that `needed` asks for?
    #[must_use]
    pub const fn allow(self, needed: Self) -> bool {
        self as u8 & needed as u8 == needed as u8
    }
}

/// How memory is touched; what a tripwire waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// It is read.
    Read,
    /// It is written.
    Write,
    /// Either.
    Both,
}

impl Access {
    /// Does a tripwire for this hear of that?
    #[must_use]
    pub const fn hears(self, touched: Self) -> bool {
        matches!(
            (self, touched),
            (Self::Both, _)
                | (_, Self::Both)
                | (Self::Read, Self::Read)
                | (Self::Write, Self::Write)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_survives_the_journey_and_nothing_else_does() {
        let host = HostId::new(7).unwrap();
        for rights in Rights::ALL {
            let cookie = Cookie::new(host, 9, rights, Key::from_bits(u64::MAX), 4096);
            assert_eq!(Cookie::from_bytes(&cookie.to_bytes()), Ok(cookie));
        }
        assert_eq!(Cookie::from_bytes(&[0; 32]), Err(NoCookie));
        let mut bytes = Cookie::new(host, 9, Rights::Read, Key::default(), 1).to_bytes();
        bytes[8] = 4;
        assert_eq!(Cookie::from_bytes(&bytes), Err(NoCookie));
    }

    #[test]
    fn a_log_never_shows_the_key() {
        let key = Key::from_bits(0x00c0_ffee);
        let cookie = Cookie::new(HostId::default(), 1, Rights::Write, key, 64);
        assert!(!std::format!("{cookie:?}").contains("12648430"));
    }
}
