//! Requests that a server refuses, and why.

use landfall_nbd::server::{Config, Negotiation, Session, Step};
use landfall_nbd::{BlockSizes, Command, Errno, Export, Features, ProtocolError};

const SIZE: u64 = 1 << 20;

fn session(features: Features, extended: bool) -> Session {
    let mut export = Export::new("disk", SIZE);
    export.features = features;
    export.blocks = BlockSizes { maximum: 1 << 16, ..BlockSizes::BYTES };
    let mut server = Negotiation::new(Config::default());
    let exports = vec![export];
    server.handle(&[0, 0, 0, 3], &exports).unwrap();
    if extended {
        server.handle(b"IHAVEOPT\0\0\0\x0b\0\0\0\0", &exports).unwrap();
    }
    let name = b"IHAVEOPT\0\0\0\x01\0\0\0\x04disk";
    let (_, Step::Transmission(session)) = server.handle(name, &exports).unwrap() else { panic!() };
    session
}

fn head(extended: bool, flags: u16, kind: u16, offset: u64, length: u64) -> Vec<u8> {
    let magic: u32 = if extended { 0x21e4_1c71 } else { 0x2560_9513 };
    let mut head = magic.to_be_bytes().to_vec();
    head.extend(flags.to_be_bytes());
    head.extend(kind.to_be_bytes());
    head.extend(7u64.to_be_bytes());
    head.extend(offset.to_be_bytes());
    if extended {
        head.extend(length.to_be_bytes());
    } else {
        head.extend(u32::try_from(length).unwrap().to_be_bytes());
    }
    head
}

const ALL: Features =
    Features::FLUSH.with(Features::FUA).with(Features::TRIM).with(Features::WRITE_ZEROES);

fn errno(features: Features, flags: u16, kind: u16, offset: u64, length: u64) -> Option<Errno> {
    let session = session(features, false);
    let incoming = session.request(&head(false, flags, kind, offset, length), SIZE).unwrap();
    assert_eq!(incoming.ticket.cookie, 7);
    incoming.command.err().map(|refusal| refusal.errno)
}

#[test]
fn requests_are_refused_for_the_reason_that_the_protocol_names() {
    let table = [
        ("a read at the end", ALL, 0, 0, SIZE - 1, 1, None),
        ("a read beyond it", ALL, 0, 0, SIZE, 1, Some(Errno::INVALID)),
        ("an offset that overflows", ALL, 0, 0, u64::MAX, 1, Some(Errno::INVALID)),
        ("a write beyond the end", ALL, 0, 1, SIZE, 1, Some(Errno::NO_SPACE)),
        ("zeroes beyond the end", ALL, 0, 6, SIZE, 1, Some(Errno::NO_SPACE)),
        ("a write that is too long", ALL, 0, 1, 0, 1 << 17, Some(Errno::INVALID)),
        ("long zeroes", ALL, 0, 6, 0, SIZE, None),
        ("FUA", ALL, 1, 1, 0, 1, None),
        ("FUA with a read", ALL, 1, 0, 0, 1, None),
        ("FUA that was not offered", Features::FLUSH, 1, 1, 0, 1, Some(Errno::INVALID)),
        ("a flag that nobody knows", ALL, 1 << 9, 1, 0, 1, Some(Errno::INVALID)),
        ("one piece without chunks", ALL, 4, 0, 0, 1, Some(Errno::INVALID)),
        ("a write, read-only", Features::READ_ONLY, 0, 1, 0, 1, Some(Errno::NOT_PERMITTED)),
        (
            "a trim, read-only",
            ALL.with(Features::READ_ONLY),
            0,
            4,
            0,
            1,
            Some(Errno::NOT_PERMITTED),
        ),
        ("a trim that was not offered", Features::FLUSH, 0, 4, 0, 1, Some(Errno::INVALID)),
        ("fast zeroes that were not offered", ALL, 16, 6, 0, 1, Some(Errno::INVALID)),
        ("a status without a context", ALL, 0, 7, 0, 1, Some(Errno::INVALID)),
        ("a new size that was not offered", ALL, 0, 8, 1, 0, Some(Errno::INVALID)),
        ("a command that nobody knows", ALL, 0, 99, 0, 0, Some(Errno::INVALID)),
    ];
    for (what, features, flags, kind, offset, length, expected) in table {
        assert_eq!(errno(features, flags, kind, offset, length), expected, "{what}");
    }
}

#[test]
fn a_new_size_is_the_offset_and_has_no_length() {
    let session = session(ALL.with(Features::RESIZE), false);
    let request = |length| session.request(&head(false, 0, 8, 99, length), SIZE).unwrap().command;
    assert_eq!(request(0), Ok(Command::Resize { size: 99 }));
    assert_eq!(request(1).unwrap_err().errno, Errno::INVALID);
}

#[test]
fn the_payload_of_a_refused_write_is_skipped() {
    let session = session(Features::READ_ONLY, false);
    let incoming = session.request(&head(false, 0, 1, 0, 4096), SIZE).unwrap();
    assert_eq!((incoming.payload, incoming.command.is_err()), (4096, true));
}

#[test]
fn a_payload_beyond_all_bounds_ends_the_connection() {
    let session = session(ALL, false);
    let error = session.request(&head(false, 0, 1, 0, 1 << 30), SIZE).unwrap_err();
    assert_eq!(error, ProtocolError::TooLong(1 << 30));
    let error = session.request(&head(true, 0, 1, 0, 1), SIZE).unwrap_err();
    assert_eq!(error, ProtocolError::Magic(0x21e4_1c71), "those heads were not agreed on");
}

#[test]
fn extended_heads_have_64_bits_and_say_whether_data_follows() {
    let session = session(ALL, true);
    let request = |flags, kind, length| {
        session.request(&head(true, flags, kind, 0, length), 1 << 40).unwrap()
    };
    assert_eq!(session.head_len(), 32);
    let long = request(0, 6, 1 << 39);
    assert!(matches!(long.command, Ok(Command::WriteZeroes { length: 0x80_0000_0000, .. })));
    let write = request(32, 1, 512);
    assert_eq!((write.payload, write.command.is_ok()), (512, true));
    // Data with a command that has none is skipped, and refused.
    let status = request(32, 7, 512);
    assert_eq!((status.payload, status.command.is_err()), (512, true));
    // A read is never longer than 32 bits, whatever its head can say.
    assert!(request(0, 0, 1 << 33).command.is_err());
}
