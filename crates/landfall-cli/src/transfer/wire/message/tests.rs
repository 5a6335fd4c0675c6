//! What was said is heard, and nothing that was not said is.

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
        (any::<u64>(), any::<u64>()).prop_map(|(files, bytes)| ToSender::Finished { files, bytes }),
        text().prop_map(|why| ToSender::Abort { why }),
    ]
}

proptest! {
    #[test]
    fn messages_survive_the_wire(
        to_receiver in prop::collection::vec(to_receiver(b"contents"), 0..8),
        to_sender in prop::collection::vec(to_sender(), 0..8),
    ) {
        let (mut there, mut back) = (Bundle::default(), Bundle::default());
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
        let mut bundle = Bundle::default();
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
    let mut bundle = Bundle::default();
    bundle.push_to_receiver(&ToReceiver::Abort { why: "x".repeat(MOST_TEXT) });
    bundle.0[3..].fill(0xff);
    let Some(Ok(ToReceiver::Abort { why })) = ToReceiver::all(&bundle.0).next() else {
        panic!("an end")
    };
    assert!(why.len() <= MOST_TEXT, "{} bytes", why.len());
}

#[test]
fn lengths_that_lie_are_refused() {
    let mut bundle = Bundle::default();
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
    let mut bundle = Bundle::default();
    bundle.push_to_receiver(&ToReceiver::Entry(entry));
    // Rights of others are not kept; a bad name is the entry's fault, not the bundle's.
    let Some(Ok(ToReceiver::Entry(heard))) = ToReceiver::all(&bundle.0).next() else {
        panic!("an entry")
    };
    assert_eq!((heard.mode, heard.path), (0o777, Err(BadPath::Empty)));
}

#[test]
fn texts_that_command_a_terminal_come_out_as_escapes() {
    let mut bundle = Bundle::default();
    let why = "\x1b[2J\u{9b}31m\u{202e}\n".to_owned();
    bundle.push_to_receiver(&ToReceiver::Abort { why });
    let Some(Ok(ToReceiver::Abort { why })) = ToReceiver::all(&bundle.0).next() else {
        panic!("it is understood")
    };
    assert_eq!(why, "\\u{1b}[2J\\u{9b}31m\\u{202e}\\n");
}
