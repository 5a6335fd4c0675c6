//! What carriers say to each other on a stream: a byte that says what it is, a number, and
//! behind [`Frame::Bytes`] so many bytes.
//!
//! First both show that they have the same key, before either believes a word:
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
//!
//! Streams between carriers: over the Scheduled Transfer Protocol, or over queue pairs.

use std::io;
use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::time::Duration;

use landfall::qpip::{Adapter, Link};
use landfall_socket_rules::Way;
use sockets_compat::{
    Address, QpHost, QpListener, QpOptions, QpStream, StpHost, StpOptions, StpStream,
    StpStreamListener,
};

use super::{Config, of_host};
use crate::connection::{CLOSED, SHUT};
use crate::far::LEFT;
use crate::registry::Name;

/// Bytes before those of the program.
pub(super) const HEAD: usize = 9;
/// So many bytes of a program at most go in one piece.
pub(super) const PIECE: usize = 64 * 1024;

/// One thing that is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// Nothing has happened, and somebody is here.
    Alive,
    /// The program here knows of the memory.
    Here,
    /// The program has changed its way; the number is as in memory, never zero.
    Switched(u64),
    /// The program there can know of that now: a byte by TCP is a ring.
    Known,
    /// So many bytes follow.
    Bytes(usize),
    /// Nothing more comes from the program, and how it ended; see `has_ended`.
    Ended(u32),
    /// The program takes nothing more.
    Unwanted(u32),
    /// The program has not taken the memory, and will not.
    Nobody,
}

/// It makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Nonsense;

impl Frame {
    pub(super) fn to_bytes(self) -> [u8; HEAD] {
        let (kind, number) = match self {
            Self::Alive => (0, 0),
            Self::Here => (1, 0),
            Self::Switched(number) => (2, number),
            Self::Known => (3, 0),
            Self::Bytes(len) => (4, len as u64),
            Self::Ended(how) => (5, how.into()),
            Self::Unwanted(how) => (6, how.into()),
            Self::Nobody => (7, 0),
        };
        let mut bytes = [kind; HEAD];
        bytes[1..].copy_from_slice(&number.to_be_bytes());
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8; HEAD]) -> Result<Self, Nonsense> {
        let [kind, number @ ..] = *bytes;
        let number = u64::from_be_bytes(number);
        let within = |first: u64, last: u64| (first..=last).contains(&number).then_some(number);
        let of_word = |number: u64| number as u32;
        let alone = |frame| (number == 0).then_some(frame);
        match kind {
            0 => alone(Self::Alive),
            1 => alone(Self::Here),
            2 => within(1, u64::MAX).map(Self::Switched),
            3 => alone(Self::Known),
            4 => within(1, PIECE as u64).map(|len| Self::Bytes(len as usize)),
            5 => within(SHUT.into(), LEFT.into()).map(|how| Self::Ended(of_word(how))),
            6 => within(SHUT.into(), CLOSED.into()).map(|how| Self::Unwanted(of_word(how))),
            7 => alone(Self::Nobody),
            _ => None,
        }
        .ok_or(Nonsense)
    }
}

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

/// The port of STP at which carriers hear each other: protocol 118 is STP's own.
const STP_PORT: u16 = 118;
/// The port of TCP within the tunnel.
const QP_PORT: u16 = 118;

/// Where streams come from.
pub(super) enum Roads {
    Stp { host: StpHost, listener: StpStreamListener, udp: u16 },
    Qpip { host: QpHost, listener: QpListener },
}

impl Roads {
    pub(super) fn open(config: &Config) -> io::Result<Self> {
        let listen = SocketAddr::new(of_host(config.listen.ip()), config.listen.port());
        if config.over == Way::Qpip {
            let host = queue_pairs(listen, config)?;
            let listener = host.listen(SocketAddr::new(listen.ip(), QP_PORT))?;
            return Ok(Self::Qpip { host, listener });
        }
        let mut options = StpOptions::default();
        // Those that were closed a moment ago count, too.
        options.connections = config.most.saturating_mul(4).max(64);
        let host = StpHost::bind_udp(listen, options)?;
        let listener = host.listen_streams(STP_PORT)?;
        Ok(Self::Stp { host, listener, udp: config.port })
    }

    pub(super) fn connect(&self, host: IpAddr) -> io::Result<Road> {
        let to = of_host(host);
        match self {
            Self::Stp { host, udp, .. } => {
                let carrier = sockets_compat::Carrier::Udp(*udp);
                let there = Address::Stp { host: to, port: STP_PORT, carrier };
                host.connect_stream(there).map(Road::Stp)
            }
            Self::Qpip { host, .. } => host.connect(SocketAddr::new(to, QP_PORT)).map(Road::Qpip),
        }
    }

    pub(super) fn accept(&self) -> io::Result<Road> {
        match self {
            Self::Stp { listener, .. } => listener.accept().map(|(stream, _)| Road::Stp(stream)),
            Self::Qpip { listener, .. } => listener.accept().map(|(stream, _)| Road::Qpip(stream)),
        }
    }
}

/// An adapter of a tunnel in which each host has the address that it has outside.
fn queue_pairs(listen: SocketAddr, config: &Config) -> io::Result<QpHost> {
    let link = Link::tunnel(listen, config.peers.iter().copied());
    // All that can be reached is at the other end of the tunnel.
    let address = format!("{}/0", listen.ip());
    let adapter = Adapter::builder().link(link).address(address).mac(station_of(listen)).open();
    QpHost::new(adapter.map_err(io::Error::other)?, QpOptions::default())
}

/// One that takes the place of another is the same station: others need not find out first.
fn station_of(listen: SocketAddr) -> [u8; 6] {
    const IS_GROUP: u8 = 1;
    const IS_LOCAL: u8 = 2;
    let [first, rest @ ..] = *blake3::hash(listen.to_string().as_bytes()).as_bytes();
    let mut station = [first & !IS_GROUP | IS_LOCAL; 6];
    station[1..].copy_from_slice(&rest[..5]);
    station
}

/// A stream to another carrier.
pub(super) enum Road {
    Stp(StpStream),
    Qpip(QpStream),
}

macro_rules! either {
    ($road:expr, $stream:ident => $does:expr) => {
        match $road {
            Road::Stp($stream) => $does,
            Road::Qpip($stream) => $does,
        }
    };
}

impl Road {
    pub(super) fn hears_within(&self, limit: Duration) -> io::Result<()> {
        either!(self, stream => stream.set_read_timeout(Some(limit)))
    }

    pub(super) fn writes_within(&self, limit: Duration) -> io::Result<()> {
        either!(self, stream => stream.set_write_timeout(Some(limit)))
    }

    pub(super) fn shut(&self, how: Shutdown) {
        let _ = either!(self, stream => stream.shutdown(how));
    }
}

impl Read for &Road {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        either!(self, stream => (&mut &*stream).read(into))
    }
}

impl Write for &Road {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        either!(self, stream => (&mut &*stream).write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        either!(self, stream => (&mut &*stream).flush())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// What is understood is what was meant, to the last bit.
        #[test]
        fn each_text_has_one_meaning(kind in 0_u8..10, number in prop_oneof![0..70_000_u64, any::<u64>()]) {
            let mut bytes = [kind; HEAD];
            bytes[1..].copy_from_slice(&number.to_be_bytes());
            if let Ok(frame) = Frame::from_bytes(&bytes) {
                prop_assert_eq!(frame.to_bytes(), bytes);
            }
        }
    }

    #[test]
    fn all_that_is_said_is_understood() {
        for frame in [
            Frame::Alive,
            Frame::Here,
            Frame::Switched(1),
            Frame::Switched(u64::MAX),
            Frame::Known,
            Frame::Bytes(1),
            Frame::Bytes(PIECE),
            Frame::Ended(SHUT),
            Frame::Ended(LEFT),
            Frame::Unwanted(CLOSED),
            Frame::Nobody,
        ] {
            assert_eq!(Frame::from_bytes(&frame.to_bytes()), Ok(frame));
        }
        for wrong in [Frame::Switched(0), Frame::Bytes(PIECE + 1), Frame::Ended(9)] {
            assert_eq!(Frame::from_bytes(&wrong.to_bytes()), Err(Nonsense));
        }
    }

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
