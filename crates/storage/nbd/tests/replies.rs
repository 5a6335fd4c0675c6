//! Replies that a client refuses: what a server must not send.

use landfall_nbd::client::{Event, IssueError, Negotiation, Session, Step, Wanted};
use landfall_nbd::{Command, Errno, Extent, Features, ProtocolError};

/// The size of the device with structured replies.
const LARGE: u64 = 1 << 21;

/// A client in transmission with a server that knows the old option only, or structured
/// replies.
fn session(structured: bool) -> Session {
    let mut client = Negotiation::new(Wanted::export("disk"));
    let flags = (Features::FLUSH, 0x0005u16.to_be_bytes());
    let size = if structured { LARGE } else { 4096 };
    if !structured {
        client.handle(b"NBDMAGICIHAVEOPT\0\x02").unwrap();
        let told = [&size.to_be_bytes()[..], &flags.1].concat();
        let (_, Step::Transmission(session)) = client.handle(&told).unwrap() else { panic!() };
        return session;
    }
    client.handle(b"NBDMAGICIHAVEOPT\0\x03").unwrap();
    let mut reply = |option: u32, kind: u32, data: &[u8]| {
        let mut bytes = 0x0003_e889_0455_65a9u64.to_be_bytes().to_vec();
        for number in [option, kind, data.len() as u32] {
            bytes.extend(number.to_be_bytes());
        }
        bytes.extend(data);
        client.handle(&bytes).unwrap().1
    };
    reply(11, 1 << 31 | 1, &[]);
    reply(8, 1, &[]);
    reply(10, 4, b"\0\0\0\x2abase:allocation");
    reply(10, 1, &[]);
    reply(7, 3, &[&[0, 0][..], &size.to_be_bytes(), &flags.1].concat());
    let Step::Transmission(session) = reply(7, 1, &[]) else { panic!() };
    session
}

fn read(session: &mut Session, offset: u64, length: u32) -> u64 {
    session.issue(&Command::Read { offset, length, dont_fragment: false }, &mut Vec::new()).unwrap()
}

fn chunk(last: bool, kind: u16, cookie: u64, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x66, 0x8e, 0x33, 0xef, 0, u8::from(last)];
    bytes.extend(kind.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend((payload.len() as u32).to_be_bytes());
    bytes.extend(payload);
    bytes
}

fn hole(last: bool, cookie: u64, offset: u64, len: u32) -> Vec<u8> {
    chunk(last, 2, cookie, &[&offset.to_be_bytes()[..], &len.to_be_bytes()].concat())
}

#[test]
fn pieces_of_a_read_come_in_any_order_and_none_twice() {
    let mut session = session(true);
    let cookie = read(&mut session, 1024, 1024);
    let heard = session.handle(&hole(false, cookie, 1536, 512)).unwrap().unwrap().1;
    assert_eq!(heard, Event::Hole { cookie, at: 512, len: 512 });
    let twice = session.handle(&hole(false, cookie, 1535, 2)).unwrap_err();
    assert_eq!(twice, ProtocolError::Malformed("the same data twice"));
    for (offset, len) in [(1023, 1), (2048, 1), (1024, 1025), (u64::MAX, 2)] {
        assert!(session.handle(&hole(false, cookie, offset, len)).is_err(), "{offset} {len}");
    }
}

#[test]
fn a_read_that_claims_success_has_all_of_its_data() {
    let mut session = session(true);
    let cookie = read(&mut session, 0, 1024);
    session.handle(&hole(false, cookie, 0, 512)).unwrap();
    assert!(session.handle(&chunk(true, 0, cookie, &[])).is_err());
}

/// A data chunk has at least a byte, and a simple reply is no answer to a read here.
#[test]
fn a_read_of_nothing_is_answered_by_a_chunk_without_data() {
    let mut session = session(true);
    let cookie = read(&mut session, 0, 0);
    assert!(session.handle(&chunk(true, 1, cookie, &[0; 8])).is_err());
    let event = session.handle(&chunk(true, 0, cookie, &[])).unwrap().unwrap().1;
    assert_eq!(event, Event::Done { cookie, result: Ok(()) });
}

#[test]
fn a_failed_read_says_where_and_goes_on() {
    let mut session = session(true);
    let cookie = read(&mut session, 0, 1024);
    let error = [&5u32.to_be_bytes()[..], &[0, 3], b"bad", &512u64.to_be_bytes()].concat();
    let event = session.handle(&chunk(false, 1 << 15 | 2, cookie, &error)).unwrap().unwrap().1;
    assert_eq!(event, Event::Failing { cookie });
    let event = session.handle(&chunk(true, 0, cookie, &[])).unwrap().unwrap().1;
    let Event::Done { result: Err(failed), .. } = event else { panic!("{event:?}") };
    assert_eq!((failed.errno, failed.offset), (Errno::IO, Some(512)));
    assert_eq!(failed.to_string(), "input or output failed: bad");
}

#[test]
fn a_reply_to_nothing_is_seen() {
    let mut session = session(true);
    let cookie = read(&mut session, 0, 512);
    session.handle(&hole(true, cookie, 0, 512)).unwrap();
    assert!(matches!(session.handle(&[]).unwrap(), Some((0, Event::Done { .. }))));
    // Its place has another request by now.
    let other = read(&mut session, 0, 512);
    assert_eq!(Session::index_of(other), Session::index_of(cookie));
    let error = session.handle(&hole(true, cookie, 0, 512)).unwrap_err();
    assert_eq!(error, ProtocolError::UnknownCookie(cookie));
}

#[test]
fn a_status_is_of_the_context_that_was_chosen_and_no_longer_than_asked() {
    let mut session = session(true);
    let command = Command::BlockStatus { offset: 0, length: 1024, one: false };
    let cookie = session.issue(&command, &mut Vec::new()).unwrap();
    let status = |id: u32, lens: &[u32]| {
        let mut payload = id.to_be_bytes().to_vec();
        for len in lens {
            payload.extend(len.to_be_bytes());
            payload.extend(3u32.to_be_bytes());
        }
        chunk(true, 5, cookie, &payload)
    };
    for (id, lens) in [(1, &[1024][..]), (42, &[]), (42, &[0]), (42, &[1024, 1])] {
        assert!(session.handle(&status(id, lens)).is_err(), "{id} {lens:?}");
    }
    // The last extent may reach beyond.
    let event = session.handle(&status(42, &[512, 4096])).unwrap().unwrap().1;
    let Event::Status { extents, .. } = event else { panic!("{event:?}") };
    let lens: Vec<u64> = extents.iter().map(|extent| extent.len).collect();
    assert_eq!(lens, [512, 512]);
    assert!(extents.iter().all(|extent| extent.is_hole && extent.is_zero));
}

/// It may be far longer than a client has room for, so what is here is told of at once.
#[test]
fn a_status_has_as_many_extents_as_servers_send_and_no_more() {
    const MOST: u32 = 1 << 20;
    let mut session = session(true);
    for (count, room) in [(9_000, 28), (9_000, 9_999), (MOST, 300_001)] {
        let command = Command::BlockStatus { offset: 0, length: LARGE, one: false };
        let cookie = session.issue(&command, &mut Vec::new()).unwrap();
        let mut payload = 42u32.to_be_bytes().to_vec();
        for nth in 0..count {
            payload.extend((1 + nth % 2).to_be_bytes());
            payload.extend((3 * (nth % 2)).to_be_bytes());
        }
        let bytes = chunk(true, 5, cookie, &payload);
        let (mut at, mut all) = (0, Vec::new());
        loop {
            // No more than there is room for at a time.
            let here = &bytes[at..bytes.len().min(at + room.max(32))];
            let (used, event) = session.handle(here).unwrap().expect("there is enough to go on");
            at += used;
            match event {
                Event::Status { extents, .. } => all.extend(extents),
                Event::Done { result, .. } => break assert_eq!(result, Ok(())),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((at, all.len()), (bytes.len(), count as usize));
        let is_right = |(nth, extent): (usize, &Extent)| {
            (extent.len, extent.is_hole) == (1 + nth as u64 % 2, nth % 2 == 1)
        };
        assert!(all.iter().enumerate().all(is_right));
    }
    let command = Command::BlockStatus { offset: 0, length: LARGE, one: false };
    let cookie = session.issue(&command, &mut Vec::new()).unwrap();
    let mut head = chunk(true, 5, cookie, &[]);
    head[16..].copy_from_slice(&(4 + 8 * (MOST + 1)).to_be_bytes());
    assert!(matches!(session.handle(&head), Err(ProtocolError::TooLong(_))));
}

#[test]
fn a_simple_reply_has_all_data_or_an_error() {
    let mut session = session(false);
    let cookie = read(&mut session, 0, 512);
    let mut reply = vec![0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0];
    reply.extend(cookie.to_be_bytes());
    let event = session.handle(&reply).unwrap().unwrap();
    assert_eq!(event, (16, Event::Data { cookie, at: 0, len: 512 }));
    let cookie = read(&mut session, 0, 512);
    assert!(matches!(session.handle(&[]).unwrap(), Some((0, Event::Done { .. }))), "the first");
    reply[7] = 28;
    reply[8..].copy_from_slice(&cookie.to_be_bytes());
    let event = session.handle(&reply).unwrap().unwrap().1;
    let Event::Done { result: Err(failed), .. } = event else { panic!("{event:?}") };
    assert_eq!(failed.errno, Errno::NO_SPACE);
}

#[test]
fn what_a_server_would_refuse_is_not_sent() {
    let mut session = session(false);
    let mut issue = |command| {
        let mut out = Vec::new();
        let issued = session.issue(&command, &mut out);
        assert_eq!(issued.is_err(), out.is_empty());
        issued.map(|_| ())
    };
    let write = |offset, fua| Command::Write { offset, length: 1, fua };
    assert_eq!(issue(write(4095, false)), Ok(()));
    assert_eq!(issue(write(4096, false)), Err(IssueError::BeyondEnd));
    assert_eq!(issue(write(0, true)), Err(IssueError::NotOffered));
    let trim = Command::Trim { offset: 0, length: 1, fua: false };
    assert_eq!(issue(trim), Err(IssueError::NotOffered));
    assert_eq!(issue(Command::Flush), Ok(()));
}
