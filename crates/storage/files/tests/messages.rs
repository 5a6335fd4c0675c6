//! Requests and replies as bytes, and what of them is refused.

use landfall_files::model::withstand;
use landfall_files::{
    Attributes, Caller, Entries, Entry, EntryName, Envelope, Errno, FileKind, Layout,
    MOST_RELEASES, Name, ProtocolError, Release, Reply, Request, SetTime, Space, Target, Time,
    VERSION,
};

const CALLER: Caller = Caller { user: 1000, group: 100 };

fn name(text: &[u8]) -> Name {
    Name::new(text).unwrap()
}

fn attributes() -> Attributes {
    let time = Time { seconds: -5, nanoseconds: 999_999_999 };
    Attributes {
        node: u64::MAX,
        kind: FileKind::BlockDevice,
        permissions: 0o7777,
        links: 3,
        user: 1,
        group: 2,
        device: 0x0801,
        block_size: 4096,
        size: 1 << 60,
        blocks: 8,
        accessed: time,
        modified: Time { seconds: i64::MAX, ..time },
        changed: time,
    }
}

/// One of each.
fn requests() -> Vec<Request> {
    let (parent, node, handle, offset) = (1, 77, 5, 1 << 40);
    let long = name(&[b'n'; 255]);
    vec![
        Request::Hello { version: VERSION, session: [9; 16] },
        Request::Lookup { parent, name: long.clone() },
        Request::GetAttributes { node },
        Request::SetAttributes {
            node,
            handle: Some(handle),
            permissions: Some(0o4755),
            user: Some(0),
            group: None,
            size: Some(i64::MAX as u64),
            accessed: Some(SetTime::Now),
            modified: Some(SetTime::To(Time { seconds: 1, nanoseconds: 2 })),
        },
        Request::ReadLink { node },
        Request::MakeNode { parent, name: name(b"fifo"), mode: 0o010_644, device: 0 },
        Request::MakeDirectory { parent, name: name(b"d"), mode: 0o755 },
        Request::MakeSymlink {
            parent,
            name: long.clone(),
            target: Target::new(&[b'/'; 4095]).unwrap(),
        },
        Request::Link { node, parent, name: name(b"\xff\xfe") },
        Request::Unlink { parent, name: name(b"...") },
        Request::RemoveDirectory { parent, name: name(b".hidden") },
        Request::Rename { parent, name: long.clone(), new_parent: 2, new_name: long, flags: 2 },
        Request::Open { node, flags: 3 },
        Request::Create { parent, name: name(b"new"), mode: 0o644, flags: 11 },
        Request::Read { handle, offset, len: 1 << 20 },
        Request::Write { handle, offset, len: 1, append: true },
        Request::Sync { handle, data_only: false },
        Request::OpenDirectory { node },
        Request::ReadDirectory { handle, cookie: 12, len: 4096, attributes: true },
        Request::Space {},
        Request::Allocate { handle, offset, len: 1, mode: 3 },
        Request::Seek { handle, offset, data: true },
        Request::Copy { from: 1, from_offset: 2, to: 3, to_offset: 4, len: 5 },
        Request::GetExtended { node, name: name(b"user.x"), len: 0 },
        Request::SetExtended { node, name: name(b"user.x"), len: 7, flags: 1 },
        Request::ListExtended { node, len: 100 },
        Request::RemoveExtended { node, name: name(b"user.x") },
        Request::Nothing {},
    ]
}

fn replies() -> Vec<Reply> {
    let (attributes, handle) = (attributes(), 1 << 50);
    let space = Space {
        block_size: 4096,
        blocks: 1,
        free_blocks: 2,
        available_blocks: 3,
        nodes: 4,
        free_nodes: 5,
        longest_name: 255,
    };
    vec![
        Reply::Failed { error: Errno::NO_ENTRY },
        Reply::Done {},
        Reply::Welcome { version: 1, session: [3; 16], read_only: true, root: attributes },
        Reply::Found { attributes },
        Reply::Known { attributes },
        Reply::Leads { target: Target::new(b"../over/there").unwrap() },
        Reply::Opened { handle },
        Reply::Created { attributes, handle },
        Reply::Bytes { len: 1 << 20 },
        Reply::Place { offset: 7 },
        Reply::Room { space },
    ]
}

#[test]
fn each_message_is_read_as_it_was_written() {
    let node = Release::Node { node: 3, count: 4 };
    let mut releases = vec![node; MOST_RELEASES - 1];
    releases.push(Release::Handle { handle: 9 });
    for request in requests() {
        for releases in [vec![], releases.clone()] {
            let envelope = Envelope { caller: CALLER, request: request.clone(), releases };
            let bytes = envelope.encode();
            assert!(bytes.len() <= Layout::MESSAGE, "{envelope:?}");
            assert_eq!(Envelope::decode(&bytes).as_ref(), Ok(&envelope));
            assert_eq!(withstand(&bytes), Vec::<String>::new());
        }
    }
    for reply in replies() {
        assert_eq!(Reply::decode(&reply.encode()).as_ref(), Ok(&reply));
    }
}

#[test]
fn no_part_of_a_message_and_no_more_than_it_is_understood() {
    for request in requests() {
        let bytes = Envelope::new(CALLER, request.clone()).encode();
        for len in 0..bytes.len() {
            assert!(Envelope::decode(&bytes[..len]).is_err(), "{request:?}, {len} bytes");
        }
        let longer = [&bytes[..], &[0]].concat();
        assert_eq!(Envelope::decode(&longer), Err(ProtocolError::Remainder(1)), "{request:?}");
    }
    for reply in replies() {
        let bytes = reply.encode();
        assert!((0..bytes.len()).all(|len| Reply::decode(&bytes[..len]).is_err()), "{reply:?}");
    }
}

#[test]
fn names_that_lead_elsewhere_are_refused() {
    for bad in [&b""[..], b".", b"..", b"/", b"a/b", b"../x", b"nul\0", &[b'x'; 256]] {
        assert_eq!(Name::new(bad), Err(ProtocolError::Name));
    }
    assert!(Target::new(&[]).is_err() && Target::new(&[b'x'; 4096]).is_err());
    assert!(Target::new(b"a\0b").is_err() && Target::new(b"../../etc").is_ok());
    // Also where a stranger writes them around the constructor.
    let good = Envelope::new(CALLER, Request::Unlink { parent: 1, name: name(b"ab") }).encode();
    for bad in [b"..", b"/x", b"x\0"] {
        let mut bytes = good.clone();
        let end = bytes.len();
        bytes[end - 2..].copy_from_slice(bad);
        assert_eq!(Envelope::decode(&bytes), Err(ProtocolError::Name));
    }
}

#[test]
fn values_out_of_range_are_refused() {
    let all = 1 << 8;
    let handle = 1;
    for request in [
        Request::Open { node: 1, flags: all },
        Request::Create { parent: 1, name: name(b"a"), mode: 0, flags: all },
        Request::Rename {
            parent: 1,
            name: name(b"a"),
            new_parent: 1,
            new_name: name(b"b"),
            flags: 4,
        },
        Request::Read { handle, offset: i64::MAX as u64, len: 1 },
        Request::Write { handle, offset: u64::MAX, len: 1, append: false },
        Request::Allocate { handle, offset: 1, len: u64::MAX, mode: 0 },
        Request::Seek { handle, offset: u64::MAX, data: true },
        Request::Copy { from: 1, from_offset: 0, to: 1, to_offset: u64::MAX, len: 1 },
    ] {
        let read = Envelope::decode(&Envelope::new(CALLER, request.clone()).encode());
        assert!(matches!(read, Err(ProtocolError::Value { .. })), "{request:?}: {read:?}");
    }
    assert_eq!(Reply::decode(&[1, 0, 0, 0]), Err(wrong("error", 0)));
    assert_eq!(Reply::decode(&[99, 0]), Err(ProtocolError::Kind(99)));
    assert!(Layout::new(100).is_err() && Layout::new(32 << 20).is_err());
    assert!(Layout::read_flag(Layout::flag(1, Layout::MESSAGE + 1), 1).is_err());
}

const fn wrong(what: &'static str, value: u64) -> ProtocolError {
    ProtocolError::Value { what, value }
}

#[test]
fn entries_are_read_until_the_first_that_is_none() {
    let entry = |nth: u64| Entry {
        node: nth + 2,
        cookie: nth,
        kind: Some(FileKind::Regular),
        attributes: nth.is_multiple_of(2).then(attributes),
        name: EntryName::new(format!("entry {nth}").as_bytes()).unwrap(),
    };
    let mut bytes = Vec::new();
    let fitting = (0..).take_while(|nth| entry(*nth).append(&mut bytes, 4096)).count();
    let read: Result<Vec<_>, _> = Entries::new(&bytes).collect();
    assert_eq!(read.unwrap(), (0..fitting as u64).map(entry).collect::<Vec<_>>());
    assert!(fitting > 30 && bytes.len() <= 4096);
    let cut: Vec<_> = Entries::new(&bytes[..bytes.len() - 1]).collect();
    assert_eq!(cut.len(), fitting);
    assert!(cut[..fitting - 1].iter().all(Result::is_ok) && cut[fitting - 1].is_err());
    let largest = Entry { name: EntryName::Named(name(&[b'l'; 255])), ..entry(0) };
    assert!(largest.append(&mut Vec::new(), Entry::MOST));
}
