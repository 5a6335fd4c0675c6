//! How two carriers know that they have the same key, before either believes a word.
//!
//! | who | says |
//! | --- | --- |
//! | who calls | what this is, and 32 bytes of chance |
//! | who is called | 32 bytes of its own, and a proof over both |
//! | who calls | the name of the connection, and a proof over all of that |
//! | who is called | whether it takes it |
//!
//! A proof is a keyed hash; the two differ in their first byte, so that none can be sent
//! back. What follows on the stream is as safe as TCP would be on the same network: it is
//! neither encrypted nor signed.

use std::io::{self, Read, Write};
use std::time::Duration;

use super::roads::Road;
use crate::registry::Name;

/// Another version of what carriers say has another number.
const MAGIC: [u8; 8] = *b"LFcarry1";
/// Who does not get to the point is nobody.
const PATIENCE: Duration = Duration::from_secs(10);

const CALLED: u8 = 1;
const CALLS: u8 = 2;

type Chance = [u8; 32];

/// What is said to one who has shown that it has the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Welcome {
    No = 0,
    Yes = 1,
}

/// One that has the key, and what it wants.
pub(super) struct Caller {
    pub(super) name: Name,
}

impl Caller {
    pub(super) fn answer(&self, mut road: &Road, welcome: Welcome) -> io::Result<()> {
        road.write_all(&[welcome as u8])
    }
}

fn proof(key: &[u8; 32], who: u8, parts: [&[u8]; 3]) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new_keyed(key);
    hasher.update(&MAGIC).update(&[who]);
    for part in parts {
        hasher.update(part);
    }
    hasher.finalize()
}

fn chance() -> io::Result<Chance> {
    let mut bytes = [0; 32];
    // SAFETY: memory of ours, of that length.
    match unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) } {
        32 => Ok(bytes),
        _ => Err(io::Error::last_os_error()),
    }
}

fn heard<const LEN: usize>(mut road: impl Read) -> io::Result<[u8; LEN]> {
    let mut bytes = [0; LEN];
    road.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn begins(road: &Road) -> io::Result<()> {
    road.hears_within(PATIENCE)?;
    road.writes_within(PATIENCE)
}

/// Greets a carrier that was called, and tells it what is offered.
pub(super) fn call(mut road: &Road, key: &[u8; 32], name: &Name) -> io::Result<Welcome> {
    begins(road)?;
    let ours = chance()?;
    road.write_all(&[&MAGIC[..], &ours].concat())?;
    let (theirs, said): (Chance, [u8; 32]) = (heard(road)?, heard(road)?);
    if proof(key, CALLED, [&ours, &theirs, &[]]) != blake3::Hash::from_bytes(said) {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it has another key"));
    }
    let name = name.to_bytes();
    let own = proof(key, CALLS, [&ours, &theirs, &name]);
    road.write_all(&[&name[..], own.as_bytes()].concat())?;
    match heard::<1>(road)? {
        [1] => Ok(Welcome::Yes),
        _ => Ok(Welcome::No),
    }
}

/// Greets a carrier that has called, and hears what it offers.
pub(super) fn hear(mut road: &Road, key: &[u8; 32]) -> io::Result<Caller> {
    begins(road)?;
    if heard::<8>(road)? != MAGIC {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is no carrier of this version"));
    }
    let (theirs, ours) = (heard::<32>(road)?, chance()?);
    let own = proof(key, CALLED, [&theirs, &ours, &[]]);
    road.write_all(&[&ours[..], own.as_bytes()].concat())?;
    let (name, said): ([u8; Name::LEN], [u8; 32]) = (heard(road)?, heard(road)?);
    if proof(key, CALLS, [&theirs, &ours, &name]) != blake3::Hash::from_bytes(said) {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it has another key"));
    }
    Ok(Caller { name: Name::from_bytes(&name) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_proof_is_good_for_anything_else() {
        let (key, one, other, name) = ([1; 32], [2; 32], [3; 32], [4; Name::LEN]);
        let good = proof(&key, CALLS, [&one, &other, &name]);
        assert_eq!(good, proof(&key, CALLS, [&one, &other, &name]));
        for bad in [
            proof(&[9; 32], CALLS, [&one, &other, &name]),
            proof(&key, CALLED, [&one, &other, &name]),
            proof(&key, CALLS, [&other, &one, &name]),
            proof(&key, CALLS, [&one, &other, &[5; Name::LEN]]),
        ] {
            assert_ne!(good, bad);
        }
        assert_ne!(chance().unwrap(), chance().unwrap());
    }
}
