use super::*;
use crate::segment::CAPACITY;
use crate::segment::tests::two_mappings;
use proptest::prelude::*;
use std::collections::VecDeque;

fn part(bytes: &mut [u8]) -> Part {
    Part { base: bytes.as_mut_ptr(), len: bytes.len() }
}

#[derive(Clone, Debug)]
enum Step {
    Put(Vec<usize>),
    Take(Vec<usize>, ReceiveMode),
}

fn lengths() -> impl Strategy<Value = Vec<usize>> {
    let len = prop_oneof![0..100_usize, 0..400_000_usize];
    prop::collection::vec(len, 0..4)
}

fn step() -> impl Strategy<Value = Step> {
    let taking =
        prop_oneof![Just(ReceiveMode::Take), Just(ReceiveMode::Peek), Just(ReceiveMode::Discard)];
    prop_oneof![
        lengths().prop_map(Step::Put),
        (lengths(), taking).prop_map(|(lengths, how)| Step::Take(lengths, how)),
    ]
}

/// Puts bytes of a running number, into the ring and into the model; how many fitted.
fn put(outgoing: &Outgoing<'_>, model: &mut VecDeque<u8>, next: &mut u8, lengths: &[usize]) {
    let mut buffers: Vec<Vec<u8>> = lengths
        .iter()
        .map(|&len| {
            let from = *next;
            *next = next.wrapping_add(len as u8);
            (0..len).map(|at| from.wrapping_add(at as u8)).collect()
        })
        .collect();
    let all: Vec<u8> = buffers.concat();
    let parts: Vec<Part> = buffers.iter_mut().map(|buffer| part(buffer)).collect();
    // SAFETY: the buffers live.
    let done = unsafe { outgoing.put(&parts) }.unwrap();
    assert_eq!(done, all.len().min(CAPACITY as usize - model.len()));
    model.extend(&all[..done]);
}

fn take(incoming: &Incoming<'_>, model: &mut VecDeque<u8>, lengths: &[usize], how: ReceiveMode) {
    let mut buffers: Vec<Vec<u8>> = lengths.iter().map(|&len| vec![0xEE; len]).collect();
    let parts: Vec<Part> = buffers.iter_mut().map(|buffer| part(buffer)).collect();
    // SAFETY: the buffers live.
    let done = unsafe { incoming.take(&parts, how) }.unwrap();
    let wanted: usize = lengths.iter().sum();
    assert_eq!(done, wanted.min(model.len()));
    let expected: Vec<u8> = model.iter().copied().take(done).collect();
    let got = &buffers.concat()[..done];
    if how == ReceiveMode::Discard {
        assert!(got.iter().all(|&byte| byte == 0xEE), "memory was written");
    } else {
        assert!(got == expected, "other bytes came out than went in");
    }
    if how != ReceiveMode::Peek {
        model.drain(..done);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn it_is_a_queue_of_bytes_with_a_bound(steps in prop::collection::vec(step(), 0..40)) {
        let (first, second) = two_mappings();
        let (outgoing, _) = ends(first, Role::Connector);
        let (_, incoming) = ends(second, Role::Acceptor);
        let (mut model, mut next) = (VecDeque::new(), 0_u8);
        for step in steps {
            match step {
                Step::Put(lengths) => put(&outgoing, &mut model, &mut next, &lengths),
                Step::Take(lengths, how) => take(&incoming, &mut model, &lengths, how),
            }
            prop_assert_eq!(incoming.available(), Ok(model.len() as u64));
            prop_assert_eq!(outgoing.room(), Ok(CAPACITY - model.len() as u64));
        }
    }

    /// Whatever a peer writes into its counters: a refusal, or as much as the ring has.
    #[test]
    fn counters_of_a_liar_lead_nowhere(head: u64, tail: u64, of_both: u64) {
        let (first, second) = two_mappings();
        let (outgoing, _) = ends(first, Role::Connector);
        let (_, incoming) = ends(second, Role::Acceptor);
        let direction = first.direction_from(Role::Connector);
        direction.sending.head.store(of_both.wrapping_add(head), Ordering::Relaxed);
        direction.receiving.tail.store(of_both.wrapping_add(tail), Ordering::Relaxed);
        let mut bytes = vec![0; 2 * CAPACITY as usize];
        let is_sound = head.wrapping_sub(tail) <= CAPACITY;
        // SAFETY: the buffer lives.
        let done = unsafe { incoming.take(&[part(&mut bytes)], ReceiveMode::Take) };
        prop_assert_eq!(done.is_ok(), is_sound);
        direction.receiving.tail.store(of_both.wrapping_add(tail), Ordering::Relaxed);
        // SAFETY: the buffer lives.
        let done = unsafe { outgoing.put(&[part(&mut bytes)]) };
        prop_assert_eq!(done.is_ok(), is_sound);
    }
}

/// A peer that writes into the ring while this end reads it: whatever comes out, what lies
/// beside it in this end's memory stays.
#[test]
fn a_peer_that_writes_meanwhile_changes_bytes_of_the_ring_alone() {
    let (first, second) = two_mappings();
    let (outgoing, _) = ends(first, Role::Connector);
    let (_, incoming) = ends(second, Role::Acceptor);
    let peer = first.base().expose_provenance();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // SAFETY: the base of one of the two, which stay mapped.
            let segment =
                unsafe { Segment::from_base(std::ptr::with_exposed_provenance_mut(peer)) };
            // SAFETY: as above.
            let ring = unsafe { words((segment.bytes_from(Role::Connector), CAPACITY)) };
            for at in (0..ring.len()).cycle() {
                ring[at].store(u64::MAX, Ordering::Relaxed);
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        for len in (1..2000).chain([65_536, CAPACITY as usize]) {
            let mut bytes = vec![0x11; len + 2];
            let inside = Part { base: bytes[1..].as_mut_ptr(), len };
            // SAFETY: the buffer lives, here and below.
            assert_eq!(unsafe { outgoing.put(&[inside]) }, Ok(len));
            assert!(bytes.iter().all(|&byte| byte == 0x11));
            let inside = Part { base: bytes[1..].as_mut_ptr(), len };
            // SAFETY: as above.
            assert_eq!(unsafe { incoming.take(&[inside], ReceiveMode::Take) }, Ok(len));
            assert!(bytes.iter().all(|byte| matches!(byte, 0x11 | 0xFF)));
            assert_eq!((bytes[0], bytes[len + 1]), (0x11, 0x11));
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_wish_is_fulfilled_once() {
    let (first, second) = two_mappings();
    let (outgoing, _) = ends(first, Role::Connector);
    let (_, incoming) = ends(second, Role::Acceptor);
    // The first bytes always ring: anyone who waits does so on TCP alone.
    assert!(outgoing.takes_the_wish_to_be_rung());
    assert!(!outgoing.takes_the_wish_to_be_rung());
    incoming.own.wishes.make();
    assert_eq!(incoming.available(), Ok(0));
    assert!(outgoing.takes_the_wish_to_be_rung());

    let mut bytes = vec![7; CAPACITY as usize];
    // SAFETY: the buffer lives, here and below.
    assert_eq!(unsafe { outgoing.put(&[part(&mut bytes)]) }, Ok(bytes.len()));
    assert_eq!(outgoing.wants_room(ROOM_BY_TCP), Ok(false));
    let (little, much) = bytes.split_at_mut((CAPACITY / WORTH_A_WAKE) as usize - 1);
    // SAFETY: what the program gave, as libc asks for it.
    unsafe { incoming.take(&[part(little)], ReceiveMode::Take) }.unwrap();
    assert_eq!(incoming.takes_the_wish_for_room(), 0, "too little to wake somebody");
    // SAFETY: what the program gave, as libc asks for it.
    unsafe { incoming.take(&[part(&mut much[..1])], ReceiveMode::Take) }.unwrap();
    assert_eq!(incoming.takes_the_wish_for_room(), ROOM_BY_TCP);
    assert_eq!(incoming.takes_the_wish_for_room(), 0);
}

#[test]
fn a_wish_is_taken_back_unless_it_was_fulfilled() {
    let (first, second) = two_mappings();
    let (outgoing, _) = ends(first, Role::Connector);
    let (_, incoming) = ends(second, Role::Acceptor);
    assert!(outgoing.takes_the_wish_to_be_rung());
    let (one, other) = (incoming.own.wishes.make(), incoming.own.wishes.make());
    incoming.own.wishes.take_back(one);
    assert!(outgoing.takes_the_wish_to_be_rung(), "the other still sleeps");
    let next = incoming.own.wishes.make();
    incoming.own.wishes.take_back(other);
    assert!(outgoing.takes_the_wish_to_be_rung(), "a fulfilled wish took another with it");
    incoming.own.wishes.take_back(next);
    let last = incoming.own.wishes.make();
    incoming.own.wishes.take_back(last);
    assert!(!outgoing.takes_the_wish_to_be_rung(), "nobody wishes anything");
}

/// Two that sleep and one that sends: none of them sleeps while there is news. A ring
/// is a number that grows; who slept too long would sleep for ever.
#[test]
fn nobody_sleeps_while_there_is_news() {
    const BYTES: u64 = 20_000;
    let (first, second) = two_mappings();
    let (first, second) = (first.base().expose_provenance(), second.base().expose_provenance());
    let of = |base, role| {
        // SAFETY: the base of one of the two, which stay mapped.
        let segment = unsafe { Segment::from_base(std::ptr::with_exposed_provenance_mut(base)) };
        ends(segment, role)
    };
    let (rings, rung) = (std::sync::Mutex::new(0_u64), std::sync::Condvar::new());
    let watch = || {
        let (_, incoming) = of(second, Role::Acceptor);
        let mut seen = 0;
        while seen < BYTES {
            let heard = *rings.lock().unwrap();
            let wish = incoming.own.wishes.make();
            if incoming.position() == seen {
                let still = |now: &mut u64| *now == heard;
                let limit = std::time::Duration::from_secs(30);
                let waited = rung.wait_timeout_while(rings.lock().unwrap(), limit, still);
                assert!(!waited.unwrap().1.timed_out(), "slept at {seen} of {BYTES}");
            }
            incoming.own.wishes.take_back(wish);
            seen = incoming.position();
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(watch);
        scope.spawn(watch);
        scope.spawn(|| {
            let (outgoing, _) = of(first, Role::Connector);
            let (_, incoming) = of(second, Role::Acceptor);
            for _ in 0..BYTES {
                // SAFETY: the byte lives.
                unsafe { outgoing.put(&[part(&mut [7])]) }.unwrap();
                if outgoing.takes_the_wish_to_be_rung() {
                    *rings.lock().unwrap() += 1;
                    rung.notify_all();
                }
                // SAFETY: nothing is written.
                unsafe { incoming.take(&[part(&mut [0])], ReceiveMode::Discard) }.unwrap();
            }
        });
    });
}
