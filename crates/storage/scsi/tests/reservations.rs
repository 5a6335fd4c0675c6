//! Reservations: who may do what while a unit is reserved, and what others are told.

use landfall_scsi::{Code, NexusId, ReservationKind, Response, Status, Step, Target};

use crate::commands::{attach, done, failed, step, target};

const READ: [u8; 10] = [0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0];
const WRITE: [u8; 10] = [0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0];

/// PERSISTENT RESERVE OUT.
fn out(target: &mut Target, nexus: NexusId, action: u8, kind: u8, keys: [u64; 2]) -> Response {
    let mut list = keys.map(u64::to_be_bytes).concat();
    list.resize(24, 0);
    done(target, nexus, &[0x5f, action, kind, 0, 0, 0, 0, 0, 24, 0], &list)
}

fn is_barred(target: &mut Target, nexus: NexusId, cdb: &[u8]) -> bool {
    match step(target, nexus, cdb, &[0; 512]) {
        Step::Done(response) => {
            assert_eq!(response.status, Status::ReservationConflict, "{response:?}");
            true
        }
        _ => false,
    }
}

const CONFLICT: Response = Response::status(Status::ReservationConflict);

#[test]
fn each_kind_bars_what_the_standard_says() {
    use ReservationKind::{
        ExclusiveAccess, ExclusiveAccessAll, ExclusiveAccessRegistrants, WriteExclusive,
        WriteExclusiveAll, WriteExclusiveRegistrants,
    };
    // The kind; whether one who is registered and one who is not can read and write.
    let kinds = [
        (WriteExclusive, [true, false], [true, false]),
        (ExclusiveAccess, [false, false], [false, false]),
        (WriteExclusiveRegistrants, [true, true], [true, false]),
        (ExclusiveAccessRegistrants, [true, true], [false, false]),
        (WriteExclusiveAll, [true, true], [true, false]),
        (ExclusiveAccessAll, [true, true], [false, false]),
    ];
    for (kind, registered, stranger) in kinds {
        let (mut target, holder) = target();
        let (member, other) = (attach(&mut target, "two"), attach(&mut target, "three"));
        assert_eq!(out(&mut target, holder, 0, 0, [0, 1]), Response::good());
        assert_eq!(out(&mut target, member, 0, 0, [0, 2]), Response::good());
        assert_eq!(out(&mut target, other, 1, kind as u8, [0, 0]), CONFLICT, "not registered");
        assert_eq!(out(&mut target, holder, 1, kind as u8, [1, 0]), Response::good());
        for (nexus, [reads, writes]) in
            [(holder, [true, true]), (member, registered), (other, stranger)]
        {
            assert_eq!(is_barred(&mut target, nexus, &READ), !reads, "{kind:?}");
            assert_eq!(is_barred(&mut target, nexus, &WRITE), !writes, "{kind:?}");
            assert_eq!(done(&mut target, nexus, &[0; 6], &[]), Response::good());
        }
    }
}

#[test]
fn a_registration_needs_the_key_that_it_has() {
    let (mut target, nexus) = target();
    assert_eq!(out(&mut target, nexus, 0, 0, [9, 1]), CONFLICT);
    assert_eq!(out(&mut target, nexus, 0, 0, [0, 1]), Response::good());
    assert_eq!(out(&mut target, nexus, 0, 0, [0, 2]), CONFLICT);
    assert_eq!(out(&mut target, nexus, 6, 0, [0, 3]), Response::good());
    let keys = done(&mut target, nexus, &[0x5e, 0, 0, 0, 0, 0, 0, 0, 64, 0], &[]).data;
    assert_eq!(keys, [0, 0, 0, 2, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 3]);
    assert_eq!(out(&mut target, nexus, 0, 0, [3, 0]), Response::good());
    let keys = done(&mut target, nexus, &[0x5e, 0, 0, 0, 0, 0, 0, 0, 64, 0], &[]).data;
    assert_eq!(keys, [0, 0, 0, 3, 0, 0, 0, 0]);
}

#[test]
fn who_preempts_takes_over_and_the_other_is_told() {
    let (mut target, one) = target();
    let two = attach(&mut target, "two");
    out(&mut target, one, 0, 0, [0, 1]);
    out(&mut target, two, 0, 0, [0, 2]);
    assert_eq!(out(&mut target, one, 1, 1, [1, 0]), Response::good());
    let Step::Work(pending, _) = target.begin(one, [0; 8], &READ, 0) else { panic!("it is work") };
    assert_eq!(out(&mut target, two, 5, 3, [2, 1]), Response::good());
    let ended = target.finish(one, &pending, Ok(vec![0; 512]));
    assert_eq!(ended.status, Status::TaskAborted);
    let told = failed(&done(&mut target, one, &[0; 6], &[]));
    assert_eq!(told.code, Code::REGISTRATIONS_PREEMPTED);
    assert!(is_barred(&mut target, one, &READ) && !is_barred(&mut target, two, &WRITE));
    assert_eq!(out(&mut target, two, 4, 1, [2, 77]), CONFLICT, "nobody has that key");
}

#[test]
fn a_release_tells_those_who_are_registered() {
    let (mut target, one) = target();
    let two = attach(&mut target, "two");
    out(&mut target, one, 0, 0, [0, 1]);
    out(&mut target, two, 0, 0, [0, 2]);
    out(&mut target, one, 1, 5, [1, 0]);
    let wrong = failed(&out(&mut target, one, 2, 6, [1, 0]));
    assert_eq!(wrong.code, Code::INVALID_RELEASE);
    assert_eq!(out(&mut target, two, 2, 5, [2, 0]), Response::good(), "it holds none");
    assert_eq!(out(&mut target, one, 2, 5, [1, 0]), Response::good());
    let told = failed(&done(&mut target, two, &[0; 6], &[]));
    assert_eq!(told.code, Code::RESERVATIONS_RELEASED);
    out(&mut target, one, 3, 0, [1, 0]);
    let told = failed(&done(&mut target, two, &[0; 6], &[]));
    assert_eq!(told.code, Code::RESERVATIONS_PREEMPTED);
    assert_eq!(out(&mut target, two, 1, 5, [2, 0]), CONFLICT, "it is not registered any more");
}

#[test]
fn the_older_reservation_goes_with_its_initiator() {
    let (mut target, one) = target();
    let two = attach(&mut target, "two");
    let (reserve, release) = ([0x16, 0, 0, 0, 0, 0], [0x17, 0, 0, 0, 0, 0]);
    assert_eq!(done(&mut target, one, &reserve, &[]), Response::good());
    assert_eq!(done(&mut target, two, &[0; 6], &[]), CONFLICT);
    assert_eq!(done(&mut target, two, &release, &[]), Response::good(), "and nothing happens");
    assert!(is_barred(&mut target, two, &READ));
    target.detach(one);
    assert!(!is_barred(&mut target, two, &READ));
}

#[test]
fn a_persistent_reservation_outlives_its_initiator() {
    let (mut target, one) = target();
    let two = attach(&mut target, "two");
    out(&mut target, one, 0, 0, [0, 1]);
    out(&mut target, one, 1, 1, [1, 0]);
    target.detach(one);
    assert!(is_barred(&mut target, two, &WRITE));
    let again = attach(&mut target, "iqn.2026-01.example:one");
    assert!(!is_barred(&mut target, again, &WRITE));
    let data = done(&mut target, two, &[0x5e, 1, 0, 0, 0, 0, 0, 0, 64, 0], &[]).data;
    assert_eq!(data, [0, 0, 0, 1, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0]);
}
