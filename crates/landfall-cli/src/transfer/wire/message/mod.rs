//! Messages after the greeting, and how they stand in bundles: a byte that says which,
//! then its fields.

use std::net::{IpAddr, SocketAddr};

use super::{Cursor, Malformed, put_short_bytes, put_text};
use crate::transfer::path::{BadPath, MOST_PATH, RelPath};

/// No text for people is longer.
pub(crate) const MOST_TEXT: usize = 1024;

/// A hash of BLAKE3, as it crosses the wire.
pub(crate) type Hash = [u8; 32];

/// When a file was modified, since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileTime {
    pub(crate) seconds: i64,
    /// Fewer than a thousand million.
    pub(crate) nanos: u32,
}

/// What an entry is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    File {
        size: u64,
    },
    Folder,
    /// A symbolic link and its target, as yet unchecked.
    Link {
        target: Vec<u8>,
    },
    /// Of a length that nobody knows yet: standard input.
    Stream,
}

/// Something that shall be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Counted from 0 in the order of announcement.
    pub(crate) index: u64,
    pub(crate) kind: Kind,
    /// Permission bits; no others are kept.
    pub(crate) mode: u16,
    pub(crate) modified: FileTime,
    /// The name is the receiver's to check: a bad one is an answer, not an end.
    pub(crate) path: Result<RelPath, BadPath>,
}

/// The permission bits that are kept: not those that give another's rights.
const KEPT_MODE: u16 = 0o777;

/// Where the receiver can be reached: the address is unspecified where it is the one that
/// the sender knows already.
pub(crate) type Address = SocketAddr;

/// What the receiver says about an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Send it, from `have` on, if what comes before hashes to this.
    Want { have: u64, hash: Hash },
    /// There is a file by that name. Whether it is the same, the receiver says after the
    /// sender has shown its hash, and nothing else of it.
    There,
    /// What is there has the hash that was shown.
    Same,
    /// It has not. It may be replaced, or not.
    Other { may_replace: bool },
    /// It is made: a folder, or a link.
    Made,
    /// It is not taken, or did not arrive whole.
    Refused { why: String },
}

/// What the sender says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ToReceiver<'a> {
    /// How much there will be; nothing is known of standard input.
    Plan {
        files: u64,
        bytes: u64,
    },
    Entry(Entry),
    /// A whole file.
    Small {
        index: u64,
        hash: Hash,
        bytes: &'a [u8],
    },
    /// Pieces of this file follow, from an offset on.
    Begin {
        index: u64,
        from: u64,
    },
    /// The file that begins next has holes, and about so many bytes beside them.
    Sparse {
        index: u64,
        bytes: u64,
    },
    /// Instead of pieces: so many zeros that need no room.
    Hole {
        index: u64,
        len: u64,
    },
    /// All pieces of it came: so long is it, and so it hashes.
    End {
        index: u64,
        len: u64,
        hash: Hash,
    },
    /// So hashes the file whose name is taken: is that the same one?
    Compare {
        index: u64,
        hash: Hash,
    },
    /// It is not sent after all.
    Leave {
        index: u64,
        why: String,
    },
    /// Everything was sent.
    Finish,
    /// Nothing more will come.
    Abort {
        why: String,
    },
}

/// What the receiver says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ToSender {
    /// It begins; these are the ways to it.
    Ready {
        ways: Vec<Address>,
    },
    Answer {
        index: u64,
        answer: Answer,
    },
    /// All is in place that will be.
    Finished {
        files: u64,
        bytes: u64,
    },
    /// Nothing more is taken.
    Abort {
        why: String,
    },
}

/// So many ways at most.
const MOST_WAYS: usize = 8;

/// Messages for one transfer.
#[derive(Debug, Default)]
pub(crate) struct Bundle(pub(crate) Vec<u8>);

impl Bundle {
    pub(crate) fn push_to_receiver(&mut self, message: &ToReceiver<'_>) {
        let out = &mut self.0;
        match message {
            ToReceiver::Plan { files, bytes } => put(out, 0x01, &[*files, *bytes]),
            ToReceiver::Entry(entry) => put_entry(out, entry),
            ToReceiver::Small { index, hash, bytes } => {
                put(out, 0x03, &[*index]);
                out.extend_from_slice(hash);
                out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
                out.extend_from_slice(bytes);
            }
            ToReceiver::Begin { index, from } => put(out, 0x04, &[*index, *from]),
            ToReceiver::End { index, len, hash } => {
                put(out, 0x05, &[*index, *len]);
                out.extend_from_slice(hash);
            }
            ToReceiver::Compare { index, hash } => {
                put(out, 0x06, &[*index]);
                out.extend_from_slice(hash);
            }
            ToReceiver::Sparse { index, bytes } => put(out, 0x0a, &[*index, *bytes]),
            ToReceiver::Hole { index, len } => put(out, 0x0b, &[*index, *len]),
            ToReceiver::Leave { index, why } => {
                put(out, 0x07, &[*index]);
                put_text(out, why, MOST_TEXT);
            }
            ToReceiver::Finish => put(out, 0x08, &[]),
            ToReceiver::Abort { why } => {
                put(out, 0x09, &[]);
                put_text(out, why, MOST_TEXT);
            }
        }
    }

    pub(crate) fn push_to_sender(&mut self, message: &ToSender) {
        let out = &mut self.0;
        match message {
            ToSender::Ready { ways } => {
                put(out, 0x81, &[]);
                out.push(ways.len().min(MOST_WAYS) as u8);
                ways.iter().take(MOST_WAYS).for_each(|way| put_address(out, *way));
            }
            ToSender::Answer { index, answer } => {
                put(out, 0x82, &[*index]);
                put_answer(out, answer);
            }
            ToSender::Finished { files, bytes } => put(out, 0x83, &[*files, *bytes]),
            ToSender::Abort { why } => {
                put(out, 0x84, &[]);
                put_text(out, why, MOST_TEXT);
            }
        }
    }

    pub(crate) const fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn put(out: &mut Vec<u8>, which: u8, numbers: &[u64]) {
    out.push(which);
    numbers.iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
}

fn put_entry(out: &mut Vec<u8>, entry: &Entry) {
    put(out, 0x02, &[entry.index]);
    let (kind, size) = match &entry.kind {
        Kind::File { size } => (0, *size),
        Kind::Folder => (1, 0),
        Kind::Link { .. } => (2, 0),
        Kind::Stream => (3, 0),
    };
    out.push(kind);
    out.extend_from_slice(&size.to_le_bytes());
    out.extend_from_slice(&entry.mode.to_le_bytes());
    out.extend_from_slice(&entry.modified.seconds.to_le_bytes());
    out.extend_from_slice(&entry.modified.nanos.to_le_bytes());
    put_short_bytes(out, entry.path.as_ref().map_or(&[], RelPath::as_bytes));
    if let Kind::Link { target } = &entry.kind {
        put_short_bytes(out, target);
    }
}

fn put_answer(out: &mut Vec<u8>, answer: &Answer) {
    match answer {
        Answer::Want { have, hash } => {
            put(out, 0, &[*have]);
            out.extend_from_slice(hash);
        }
        Answer::There => out.push(1),
        Answer::Made => out.push(2),
        Answer::Refused { why } => {
            out.push(3);
            put_text(out, why, MOST_TEXT);
        }
        Answer::Same => out.push(4),
        Answer::Other { may_replace } => out.extend([5, u8::from(*may_replace)]),
    }
}

fn put_address(out: &mut Vec<u8>, address: Address) {
    out.extend_from_slice(&address.port().to_le_bytes());
    match address.ip() {
        IpAddr::V4(ip) => {
            out.push(4);
            out.extend_from_slice(&ip.octets());
        }
        IpAddr::V6(ip) => {
            out.push(6);
            out.extend_from_slice(&ip.octets());
        }
    }
}

impl<'a> ToReceiver<'a> {
    /// The messages of a bundle, up to the first that makes no sense.
    pub(crate) fn all(bundle: &'a [u8]) -> impl Iterator<Item = Result<Self, Malformed>> {
        each(bundle, Self::next)
    }

    fn next(from: &mut Cursor<'a>) -> Result<Self, Malformed> {
        Ok(match from.u8()? {
            0x01 => Self::Plan { files: from.u64()?, bytes: from.u64()? },
            0x02 => Self::Entry(entry(from)?),
            0x03 => {
                let (index, hash, len) = (from.u64()?, from.array()?, from.u32()?);
                if u64::from(len) > super::SMALL {
                    return Err(Malformed("a small file that is not small"));
                }
                Self::Small { index, hash, bytes: from.bytes(len as usize)? }
            }
            0x04 => Self::Begin { index: from.u64()?, from: from.u64()? },
            0x05 => Self::End { index: from.u64()?, len: from.u64()?, hash: from.array()? },
            0x06 => Self::Compare { index: from.u64()?, hash: from.array()? },
            0x07 => Self::Leave { index: from.u64()?, why: from.text(MOST_TEXT)? },
            0x08 => Self::Finish,
            0x09 => Self::Abort { why: from.text(MOST_TEXT)? },
            0x0a => Self::Sparse { index: from.u64()?, bytes: from.u64()? },
            0x0b => Self::Hole { index: from.u64()?, len: from.u64()? },
            _ => return Err(Malformed("an unknown message")),
        })
    }
}

impl ToSender {
    /// The messages of a bundle, up to the first that makes no sense.
    pub(crate) fn all(bundle: &[u8]) -> impl Iterator<Item = Result<Self, Malformed>> {
        each(bundle, Self::next)
    }

    fn next(from: &mut Cursor<'_>) -> Result<Self, Malformed> {
        Ok(match from.u8()? {
            0x81 => {
                let count = usize::from(from.u8()?);
                if count > MOST_WAYS {
                    return Err(Malformed("too many ways"));
                }
                Self::Ready { ways: (0..count).map(|_| address(from)).collect::<Result<_, _>>()? }
            }
            0x82 => Self::Answer { index: from.u64()?, answer: answer(from)? },
            0x83 => Self::Finished { files: from.u64()?, bytes: from.u64()? },
            0x84 => Self::Abort { why: from.text(MOST_TEXT)? },
            _ => return Err(Malformed("an unknown message")),
        })
    }
}

/// Takes messages until the bytes end, or make no sense.
fn each<'a, T>(
    bundle: &'a [u8],
    next: impl Fn(&mut Cursor<'a>) -> Result<T, Malformed>,
) -> impl Iterator<Item = Result<T, Malformed>> {
    let mut cursor = Cursor::new(bundle);
    std::iter::from_fn(move || {
        if cursor.is_empty() {
            return None;
        }
        let message = next(&mut cursor);
        if message.is_err() {
            cursor = Cursor::new(&[]);
        }
        Some(message)
    })
}

fn entry(from: &mut Cursor<'_>) -> Result<Entry, Malformed> {
    let index = from.u64()?;
    let (kind, size, mode) = (from.u8()?, from.u64()?, from.u16()?);
    let modified = FileTime { seconds: from.i64()?, nanos: from.u32()? };
    if modified.nanos >= 1_000_000_000 {
        return Err(Malformed("more nanoseconds than a second has"));
    }
    let path = RelPath::parse(from.short_bytes()?);
    let kind = match kind {
        0 => Kind::File { size },
        1 => Kind::Folder,
        2 => Kind::Link { target: from.short_bytes()?.to_vec() },
        3 => Kind::Stream,
        _ => return Err(Malformed("an unknown kind of entry")),
    };
    if matches!(&kind, Kind::Link { target } if target.len() >= MOST_PATH) {
        return Err(Malformed("the target of a link is too long"));
    }
    Ok(Entry { index, kind, mode: mode & KEPT_MODE, modified, path })
}

fn answer(from: &mut Cursor<'_>) -> Result<Answer, Malformed> {
    Ok(match from.u8()? {
        0 => Answer::Want { have: from.u64()?, hash: from.array()? },
        1 => Answer::There,
        2 => Answer::Made,
        3 => Answer::Refused { why: from.text(MOST_TEXT)? },
        4 => Answer::Same,
        5 => Answer::Other { may_replace: from.u8()? == 1 },
        _ => return Err(Malformed("an unknown answer")),
    })
}

fn address(from: &mut Cursor<'_>) -> Result<Address, Malformed> {
    let port = from.u16()?;
    let ip = match from.u8()? {
        4 => IpAddr::from(from.array::<4>()?),
        6 => IpAddr::from(from.array::<16>()?),
        _ => return Err(Malformed("an unknown kind of address")),
    };
    Ok(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests;
