//! How two carriers find out that they have the same key, before either believes a word.
//!
//! | who | says |
//! | --- | --- |
//! | who calls | what this is, and 32 random bytes |
//! | who is called | 32 random bytes of its own, and a proof over both |
//! | who calls | a proof over both |
//! | who is called | that it is welcome |
//!
//! A proof is a keyed hash; the two differ in their first byte, so that none can be sent
//! back. STP below is encrypted and authenticated by the same secret ([`sealing_key`]), so who
//! does not have it does not get here. Queue pairs are not: what follows there is as safe as
//! TCP would be on the same network.

use std::io;

use super::link::Link;

/// Another version of what carriers say has another number.
const MAGIC: [u8; 8] = *b"LFcarry2";

const CALLED: u8 = 1;
const CALLS: u8 = 2;

fn proof(key: &[u8; 32], who: u8, random: [&[u8; 32]; 2]) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new_keyed(key);
    hasher.update(&MAGIC).update(&[who]).update(random[0]).update(random[1]);
    hasher.finalize()
}

/// The pre-shared key of the endpoints below, separate from the key of the proofs.
pub(super) fn sealing_key(key: &[u8; 32]) -> [u8; 32] {
    blake3::derive_key("landfall 2026-11 encryption between two carriers", key)
}

fn random() -> io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    // SAFETY: memory of ours, of that length.
    match unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) } {
        32 => Ok(bytes),
        _ => Err(io::Error::last_os_error()),
    }
}

fn has_another_key() -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, "it has another key")
}

/// Greets a carrier that was called.
pub(super) async fn call(mut link: Link, key: [u8; 32]) -> io::Result<Link> {
    let ours = random()?;
    link.send_message([&MAGIC[..], &ours].concat()).await?;
    let answer: [u8; 64] = link.receive_message().await?;
    let (theirs, said) = (half(&answer, 0), half(&answer, 1));
    if proof(&key, CALLED, [&ours, &theirs]) != blake3::Hash::from_bytes(said) {
        return Err(has_another_key());
    }
    link.send_message(proof(&key, CALLS, [&ours, &theirs]).as_bytes().to_vec()).await?;
    match link.receive_message::<1>().await? {
        [1] => Ok(link),
        _ => Err(io::ErrorKind::ConnectionRefused.into()),
    }
}

/// Greets a carrier that has called.
pub(super) async fn answer(mut link: Link, key: [u8; 32]) -> io::Result<Link> {
    let hello: [u8; 40] = link.receive_message().await?;
    if hello[..8] != MAGIC {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is no carrier of this version"));
    }
    let mut theirs = [0; 32];
    theirs.copy_from_slice(&hello[8..]);
    let ours = random()?;
    let own = proof(&key, CALLED, [&theirs, &ours]);
    link.send_message([&ours[..], own.as_bytes()].concat()).await?;
    let said: [u8; 32] = link.receive_message().await?;
    if proof(&key, CALLS, [&theirs, &ours]) != blake3::Hash::from_bytes(said) {
        return Err(has_another_key());
    }
    link.send_message(vec![1]).await?;
    Ok(link)
}

fn half(bytes: &[u8; 64], which: usize) -> [u8; 32] {
    let mut half = [0; 32];
    half.copy_from_slice(&bytes[32 * which..32 * (which + 1)]);
    half
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_proof_is_good_for_anything_else() {
        let (key, one, other) = ([1; 32], [2; 32], [3; 32]);
        let good = proof(&key, CALLS, [&one, &other]);
        assert_eq!(good, proof(&key, CALLS, [&one, &other]));
        for bad in [
            proof(&[9; 32], CALLS, [&one, &other]),
            proof(&key, CALLED, [&one, &other]),
            proof(&key, CALLS, [&other, &one]),
        ] {
            assert_ne!(good, bad);
        }
        assert_ne!(random().unwrap(), random().unwrap());
    }
}
