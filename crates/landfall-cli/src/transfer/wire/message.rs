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
    /// The file that begins next has holes, and about this many bytes beside them.
    Sparse {
        index: u64,
        bytes: u64,
    },
    /// Instead of pieces: this many zeros that need no room.
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

/// This many ways at most.
const MOST_WAYS: usize = 8;

/// Messages for one transfer.
#[derive(Debug, Default)]
pub(crate) struct TransferMessages(pub(crate) Vec<u8>);

impl TransferMessages {
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

/// What was said is heard, and nothing that was not said is.
#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::transfer::wire::SMALL;

    /// Texts as they come out: safe to print.
    fn text() -> impl Strategy<Value = String> {
        ".{0,40}".prop_map(|text| crate::printable::printable(&text))
    }

    fn entries() -> impl Strategy<Value = Entry> {
        let kind = prop_oneof![
            any::<u64>().prop_map(|size| Kind::File { size }),
            Just(Kind::Folder),
            Just(Kind::Stream),
            prop::collection::vec(any::<u8>(), 0..50).prop_map(|target| Kind::Link { target }),
        ];
        let path = prop::collection::vec(b'a'..=b'z', 1..20);
        (any::<u64>(), kind, 0u16..0o1000, any::<i64>(), 0u32..1_000_000_000, path).prop_map(
            |(index, kind, mode, seconds, nanos, path)| Entry {
                index,
                kind,
                mode,
                modified: FileTime { seconds, nanos },
                path: RelPath::parse(&path),
            },
        )
    }

    fn to_receiver(contents: &'static [u8]) -> impl Strategy<Value = ToReceiver<'static>> {
        let (index, hash) = (any::<u64>, any::<Hash>);
        prop_oneof![
            (index(), index()).prop_map(|(files, bytes)| ToReceiver::Plan { files, bytes }),
            entries().prop_map(ToReceiver::Entry),
            (index(), hash()).prop_map(|(index, hash)| ToReceiver::Small {
                index,
                hash,
                bytes: contents
            }),
            (index(), index()).prop_map(|(index, from)| ToReceiver::Begin { index, from }),
            (index(), index(), hash()).prop_map(|(index, len, hash)| ToReceiver::End {
                index,
                len,
                hash
            }),
            (index(), hash()).prop_map(|(index, hash)| ToReceiver::Compare { index, hash }),
            (index(), index()).prop_map(|(index, bytes)| ToReceiver::Sparse { index, bytes }),
            (index(), index()).prop_map(|(index, len)| ToReceiver::Hole { index, len }),
            (index(), text()).prop_map(|(index, why)| ToReceiver::Leave { index, why }),
            Just(ToReceiver::Finish),
            text().prop_map(|why| ToReceiver::Abort { why }),
        ]
    }

    fn to_sender() -> impl Strategy<Value = ToSender> {
        let answers = prop_oneof![
            (any::<u64>(), any::<Hash>()).prop_map(|(have, hash)| Answer::Want { have, hash }),
            Just(Answer::There),
            Just(Answer::Same),
            any::<bool>().prop_map(|may_replace| Answer::Other { may_replace }),
            Just(Answer::Made),
            text().prop_map(|why| Answer::Refused { why }),
        ];
        let ways = prop_oneof![
            any::<[u8; 4]>().prop_map(IpAddr::from),
            any::<[u8; 16]>().prop_map(IpAddr::from)
        ];
        let ways = (ways, any::<u16>()).prop_map(|(ip, port)| SocketAddr::new(ip, port));
        prop_oneof![
            prop::collection::vec(ways, 0..MOST_WAYS).prop_map(|ways| ToSender::Ready { ways }),
            (any::<u64>(), answers).prop_map(|(index, answer)| ToSender::Answer { index, answer }),
            (any::<u64>(), any::<u64>())
                .prop_map(|(files, bytes)| ToSender::Finished { files, bytes }),
            text().prop_map(|why| ToSender::Abort { why }),
        ]
    }

    proptest! {
        #[test]
        fn messages_survive_the_wire(
            to_receiver in prop::collection::vec(to_receiver(b"contents"), 0..8),
            to_sender in prop::collection::vec(to_sender(), 0..8),
        ) {
            let (mut there, mut back) = (TransferMessages::default(), TransferMessages::default());
            to_receiver.iter().for_each(|message| there.push_to_receiver(message));
            to_sender.iter().for_each(|message| back.push_to_sender(message));
            let heard: Result<Vec<_>, _> = ToReceiver::all(&there.0).collect();
            prop_assert_eq!(heard, Ok(to_receiver));
            let heard: Result<Vec<_>, _> = ToSender::all(&back.0).collect();
            prop_assert_eq!(heard, Ok(to_sender));
        }

        /// The list ends, whatever it is made of, and there is at most one message a byte.
        #[test]
        fn no_bytes_make_it_panic_or_grow(
            which in prop_oneof![1u8..12, 0x81u8..0x85, any::<u8>()],
            bytes in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            let bytes = [&[which][..], &bytes].concat();
            prop_assert!(ToReceiver::all(&bytes).count() <= bytes.len());
            prop_assert!(ToSender::all(&bytes).count() <= bytes.len());
        }

        /// Damage is noticed, or is another message: it never reaches beyond the bundle.
        #[test]
        fn damaged_messages_are_refused_or_others(
            message in to_receiver(b"contents"),
            at in any::<prop::sample::Index>(),
            flip in 1u8..,
        ) {
            let mut bundle = TransferMessages::default();
            bundle.push_to_receiver(&message);
            let at = at.index(bundle.len());
            bundle.0[at] ^= flip;
            let heard: Result<Vec<_>, _> = ToReceiver::all(&bundle.0).collect();
            // Bits that are not kept of a mode are the only ones that change nothing.
            let is_mode = matches!(message, ToReceiver::Entry(_));
            prop_assert!(is_mode || heard != Ok(vec![message]));
        }
    }

    /// Bytes that are no text are replaced by something longer: the bound holds for that, too.
    #[test]
    fn a_text_is_no_longer_than_a_text_may_be() {
        let mut bundle = TransferMessages::default();
        bundle.push_to_receiver(&ToReceiver::Abort { why: "x".repeat(MOST_TEXT) });
        bundle.0[3..].fill(0xff);
        let Some(Ok(ToReceiver::Abort { why })) = ToReceiver::all(&bundle.0).next() else {
            panic!("an end")
        };
        assert!(why.len() <= MOST_TEXT, "{} bytes", why.len());
    }

    #[test]
    fn lengths_that_lie_are_refused() {
        let mut bundle = TransferMessages::default();
        bundle.push_to_receiver(&ToReceiver::Small { index: 1, hash: [0; 32], bytes: b"abc" });
        // One more than there is, as many as a u32 has, and more than is small.
        for len in [4, u32::MAX, SMALL as u32 + 1] {
            let mut lying = bundle.0.clone();
            lying[41..45].copy_from_slice(&len.to_le_bytes());
            assert!(ToReceiver::all(&lying).next().unwrap().is_err(), "{len}");
        }
        let entry = Entry {
            index: 0,
            kind: Kind::Folder,
            mode: 0o7777,
            modified: FileTime::default(),
            path: RelPath::parse(b"../x"),
        };
        let mut bundle = TransferMessages::default();
        bundle.push_to_receiver(&ToReceiver::Entry(entry));
        // Rights of others are not kept; a bad name is the entry's fault, not the bundle's.
        let Some(Ok(ToReceiver::Entry(heard))) = ToReceiver::all(&bundle.0).next() else {
            panic!("an entry")
        };
        assert_eq!((heard.mode, heard.path), (0o777, Err(BadPath::Empty)));
    }

    #[test]
    fn texts_that_command_a_terminal_come_out_as_escapes() {
        let mut bundle = TransferMessages::default();
        let why = "\x1b[2J\u{9b}31m\u{202e}\n".to_owned();
        bundle.push_to_receiver(&ToReceiver::Abort { why });
        let Some(Ok(ToReceiver::Abort { why })) = ToReceiver::all(&bundle.0).next() else {
            panic!("it is understood")
        };
        assert_eq!(why, "\\u{1b}[2J\\u{9b}31m\\u{202e}\\n");
    }
}
