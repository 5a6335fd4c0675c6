//! How two carriers find out that they have the same key, before either believes a word.
//!
//! | who | says |
//! | --- | --- |
//! | who calls | what this is, and the first message of `Noise_NNpsk0` |
//! | who is called | the second one: it has the key |
//! | who calls | 32 bytes that only the keys of this handshake give: it has the key, and is no recording |
//! | who is called | that it is welcome |
//!
//! STP below is encrypted and authenticated by the same secret ([`sealing_key`]), so who does not
//! have it does not get here. Queue pairs are not: what follows there is sealed with the keys of
//! the handshake, from the welcome on ([`Seals`]).

use std::io;

use landfall_seal::{Handshake as _, HandshakeError, Keys, Noise, NoiseConfig, Role, Secret, Seed};

use super::link::Link;
use super::seals::{SUITE, Seals};

/// Another version of what carriers say has another number.
const MAGIC: [u8; 8] = *b"LFcarry3";
/// A message of Noise: an ephemeral key and a tag.
const NOISE: usize = 48;
const HELLO: usize = MAGIC.len() + NOISE;
const WELCOME: [u8; 1] = [1];

/// One end of the handshake.
fn noise(key: &[u8; 32], role: Role) -> io::Result<Noise> {
    let key = blake3::derive_key("landfall 2026-11 greeting of two carriers", key);
    let config = NoiseConfig::PresharedKey(&Secret::new(key));
    Ok(Noise::new(&config, role, &MAGIC, SUITE, Seed::new(random()?)))
}

/// What who calls proves itself with, once both have the keys.
fn proof(keys: &Keys) -> blake3::Hash {
    blake3::Hash::from_bytes(*keys.export("carrier that calls", &[]).as_bytes())
}

/// The pre-shared key of the endpoints below, separate from the key of the greeting.
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

fn refused(why: HandshakeError) -> io::Error {
    let kind = io::ErrorKind::PermissionDenied;
    match why {
        HandshakeError::NotProven => io::Error::new(kind, "it has another key"),
        why => io::Error::new(kind, why),
    }
}

/// The message that is due. Without one the handshake is over before its time.
fn due(noise: &mut Noise) -> io::Result<Vec<u8>> {
    noise.poll_message().ok_or_else(|| refused(HandshakeError::Unfinished))
}

/// Greets a carrier that was called.
pub(super) async fn call(mut link: Link, key: [u8; 32]) -> io::Result<Link> {
    let mut noise = noise(&key, Role::Initiator)?;
    link.send_message([&MAGIC[..], &due(&mut noise)?].concat()).await?;
    noise.handle_message(&link.receive_message::<NOISE>().await?).map_err(refused)?;
    let keys = noise.finish().map_err(refused)?.keys;
    link.send_message(proof(&keys).as_bytes().to_vec()).await?;
    link.seal(Seals::new(keys));
    match link.receive_message().await? {
        WELCOME => Ok(link),
        _ => Err(io::ErrorKind::ConnectionRefused.into()),
    }
}

/// Greets a carrier that has called.
pub(super) async fn answer(mut link: Link, key: [u8; 32]) -> io::Result<Link> {
    let hello: [u8; HELLO] = link.receive_message().await?;
    let Some(message) = hello.strip_prefix(&MAGIC) else {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is no carrier of this version"));
    };
    let mut noise = noise(&key, Role::Responder)?;
    noise.handle_message(message).map_err(refused)?;
    let second = due(&mut noise)?;
    let keys = noise.finish().map_err(refused)?.keys;
    link.send_message(second).await?;
    let said: [u8; 32] = link.receive_message().await?;
    // Equality of hashes takes the same time wherever they differ.
    if proof(&keys) != blake3::Hash::from_bytes(said) {
        return Err(refused(HandshakeError::NotProven));
    }
    link.seal(Seals::new(keys));
    link.send_message(WELCOME.to_vec()).await?;
    Ok(link)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The second message and the proof of a handshake; nothing where they do not have the same
    /// key.
    fn both(keys: [u8; 2]) -> Option<[Keys; 2]> {
        let [one, other] = keys.map(|byte| [byte; 32]);
        let (mut here, mut there) =
            (noise(&one, Role::Initiator).unwrap(), noise(&other, Role::Responder).unwrap());
        let first = due(&mut here).unwrap();
        assert_eq!(first.len(), NOISE);
        there.handle_message(&first).ok()?;
        let second = due(&mut there).unwrap();
        assert_eq!(second.len(), NOISE);
        here.handle_message(&second).unwrap();
        Some([here.finish().unwrap().keys, there.finish().unwrap().keys])
    }

    #[test]
    fn a_proof_is_good_for_one_greeting() {
        let [here, there] = both([1, 1]).unwrap();
        assert_eq!(proof(&here), proof(&there));
        let [again, _] = both([1, 1]).unwrap();
        assert_ne!(proof(&here), proof(&again));
        assert!(both([1, 2]).is_none());
        assert_ne!(random().unwrap(), random().unwrap());
    }
}
