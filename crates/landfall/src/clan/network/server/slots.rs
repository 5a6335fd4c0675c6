//! Where messages and their flags lie in the memory of one direction.

use clan_dsm::Cookie;

use crate::clan::network::memory::Aperture;
use crate::clan::{Error, Local, Misbehaviour, WORD};

/// How messages of a connection lie in memory; client and server agree on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The most bytes of one message.
    pub size: u32,
    /// The most messages that wait for a reply.
    pub depth: u32,
}

impl Shape {
    /// The most that anybody sensible wants: a gigabyte.
    const MOST: u64 = 1 << 30;

    pub(super) fn check(self) -> Result<(), Error> {
        let is_good = self.size > 0 && self.depth > 0 && self.bytes() <= Self::MOST;
        let what = "a message has at least one byte, one is under way, and all fit into a gigabyte";
        if is_good { Ok(()) } else { Err(Error::BadConfig(what)) }
    }

    pub(super) const fn bytes(self) -> u64 {
        self.depth as u64 * (WORD + (self.size as u64).next_multiple_of(WORD))
    }

    /// Where the flags end.
    pub(super) const fn flags(self) -> u64 {
        self.depth as u64 * WORD
    }

    pub(super) const fn flag_at(self, message: u64) -> u64 {
        message % self.depth as u64 * WORD
    }

    pub(super) const fn place_at(self, message: u64) -> u64 {
        let place = (self.size as u64).next_multiple_of(WORD);
        self.flags() + message % self.depth as u64 * place
    }

    /// Does a message of this length end with a word? Part of a word is a packet of its
    /// own on the wire, so what does not is filled up: its place has room, and its flag
    /// says where it ends.
    pub(super) const fn is_whole(len: usize) -> bool {
        len.is_multiple_of(WORD as usize)
    }

    pub(super) fn make_whole(message: &mut Vec<u8>) {
        message.resize(message.len().next_multiple_of(WORD as usize), 0);
    }

    /// What the flag of a message of this length is.
    pub(super) const fn flag(message: u64, len: usize) -> u64 {
        (message + 1) << 32 | len as u64
    }

    /// Is this message there? How long is it?
    pub(super) fn find(self, memory: &Aperture, message: u64) -> Result<Option<usize>, Error> {
        let flag = memory.load(self.flag_at(message))?;
        let (number, len) = ((flag >> 32) as u32, flag as u32);
        // The flag of the message before it in that place, or of none.
        let before = (message + 1).saturating_sub(u64::from(self.depth)) as u32;
        let is_first = message < u64::from(self.depth);
        if number == before && (!is_first || flag == 0) {
            return Ok(None);
        }
        if number != (message + 1) as u32 {
            return Err(Error::PeerMisbehaved(Misbehaviour::Flag(flag)));
        }
        if len > self.size {
            let (len, most) = (u64::from(len), u64::from(self.size));
            return Err(Error::PeerMisbehaved(Misbehaviour::Length { len, most }));
        }
        Ok(Some(len as usize))
    }

    /// The first words of a connection: a cookie and the shape.
    pub(super) fn greeting(self, cookie: &Cookie) -> [u8; 40] {
        let mut body = [0; 40];
        body[..32].copy_from_slice(&cookie.to_bytes());
        body[32..36].copy_from_slice(&self.size.to_be_bytes());
        body[36..].copy_from_slice(&self.depth.to_be_bytes());
        body
    }

    /// The cookie of the other side, if it is of this shape.
    pub(super) fn greeted(self, body: &[u8; 40]) -> Result<Cookie, Error> {
        let (cookie, shape) = body.split_at(Cookie::LEN);
        let expected = self.bytes();
        let same = shape[..4] == self.size.to_be_bytes() && shape[4..] == self.depth.to_be_bytes();
        let bytes = cookie.try_into().map_err(|_| clan_dsm::NoCookie)?;
        let cookie = Cookie::from_bytes(&bytes)?;
        if same && cookie.len() == expected {
            Ok(cookie)
        } else {
            Err(Error::Mismatch { expected, found: cookie.len() })
        }
    }
}
