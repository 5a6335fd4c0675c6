use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

use proptest::prelude::*;

use super::*;
use crate::segment::Segment;

/// A connection whose other program sends by memory already.
fn carried() -> CarriedConnection {
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).mode(0o600);
    let file = options.custom_flags(libc::O_TMPFILE).open("/dev/shm").unwrap();
    let name = Name::from_bytes(&[7; Name::LEN]);
    let segment =
        Segment::create(file.as_raw_fd(), &name, Role::Connector, CARRIED_CAPACITY).unwrap();
    let connection =
        CarriedConnection::new(Mapping::of(segment), Role::Connector, name, Instant::now());
    connection.theirs().sending.switched.store(1, Ordering::SeqCst);
    connection
}

fn bytes(at: u64, len: u64) -> Vec<u8> {
    (at..at + len).map(|at| (at % 251) as u8).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// In whatever order parts of a stream land, the program has those before the first
    /// that is missing, and no others.
    #[test]
    fn a_program_has_what_came_before_the_first_gap(
        lens in prop::collection::vec(1..40_000_u64, 1..40), seed: u64,
    ) {
        let mut due = DueBells::default();
        let mut connection = carried();
        let mut parts = Vec::new();
        let mut end = 0;
        for len in lens {
            parts.push((end, len));
            end += len;
        }
        let mut noise = seed | 1;
        let mut landed = vec![false; parts.len()];
        let mut left: Vec<usize> = (0..parts.len()).collect();
        while !left.is_empty() {
            noise = noise.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(17);
            let which = left.swap_remove((noise >> 33) as usize % left.len());
            let (at, len) = parts[which];
            prop_assert_eq!(connection.may_come(at, len), Ok(()));
            connection.rings().0.prepares(at, len).unwrap();
            connection.rings().0.place(at, &bytes(at, len));
            connection.landed(at, len, &mut due).unwrap();
            landed[which] = true;
            let first_gap = landed.iter().position(|landed| !landed);
            let has = first_gap.map_or(end, |gap| parts[gap].0);
            let (_, incoming) = ring::ends(**connection.memory, Role::Connector);
            prop_assert_eq!(incoming.available(), Ok(has));
        }
        let mut all = vec![0; end as usize];
        ring::ends(**connection.memory, Role::Connector).1.copy(0, &mut all);
        prop_assert_eq!(all, bytes(0, end));
    }

    /// What is not within the room that was given is refused, wherever it is said to be.
    #[test]
    fn nothing_comes_where_there_is_no_room(
        place in 0..CARRIED_CAPACITY, len in prop_oneof![Just(0), 1..CARRIED_CAPACITY * 2],
        received in 0..CARRIED_CAPACITY * 3, untaken in 0..CARRIED_CAPACITY,
    ) {
        let mut connection = carried();
        connection.received = received;
        connection.taken_told = received.saturating_sub(untaken);
        let most = connection.taken_told + CARRIED_CAPACITY;
        let at = received + place.wrapping_sub(received) % CARRIED_CAPACITY;
        let fits = at + len <= most;
        prop_assert_eq!(connection.may_come(at, len).is_ok(), fits);
        // Without a region there is no place, but what is refused is refused before that.
        prop_assert!(connection.place(place, len).is_none());
    }
}

#[test]
fn an_end_waits_for_the_bytes_before_it() {
    let (mut connection, mut due) = (carried(), DueBells::default());
    let ended = Frame::Ended { how: CLOSED, at: 10 };
    connection.handle(ended, &[], &mut due).unwrap();
    let how = |connection: &CarriedConnection| {
        connection.theirs().sending.has_ended.load(Ordering::SeqCst)
    };
    assert_eq!(how(&connection), 0);
    let late = Frame::Bytes { len: 5, at: 5 };
    connection.handle(late, b"later", &mut due).unwrap();
    assert_eq!(how(&connection), 0);
    let behind = Frame::Bytes { len: 1, at: 10 };
    assert_eq!(connection.handle(behind, b"x", &mut due), Err(Broken::ByCarrier));
    let first = Frame::Bytes { len: 5, at: 0 };
    connection.handle(first, b"first", &mut due).unwrap();
    assert_eq!(how(&connection), CLOSED);
    assert_eq!(connection.rings().0.backlog(), Ok(10));
}
