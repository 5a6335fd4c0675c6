//! Commands of one initiator: what they are answered, and what a device is asked for.

use landfall_scsi::{
    Code, Disk, Failure, Key, Lun, NexusId, Response, Sense, Status, Step, Target, TaskManagement,
    Work,
};

const LUN: [u8; 8] = [0; 8];

/// A target with one disk of 1 MiB, and an initiator that knows that it is new.
pub(crate) fn target() -> (Target, NexusId) {
    let mut target = Target::new("iqn.2026-01.example:test");
    assert!(target.add(Lun::new(0).unwrap(), Disk::of_bytes("serial", 1 << 20)));
    let nexus = attach(&mut target, "iqn.2026-01.example:one");
    (target, nexus)
}

pub(crate) fn attach(target: &mut Target, name: &str) -> NexusId {
    let nexus = target.attach(name);
    let told = failed(&done(target, nexus, &[0; 6], &[]));
    assert_eq!((told.key, told.code), (Key::UnitAttention, Code::POWER_ON_OR_RESET));
    nexus
}

/// Has a command answered that no device has to do with.
pub(crate) fn done(target: &mut Target, nexus: NexusId, cdb: &[u8], data: &[u8]) -> Response {
    match step(target, nexus, cdb, data) {
        Step::Done(response) => response,
        other => panic!("{cdb:02x?}: {other:?}"),
    }
}

pub(crate) fn step(target: &mut Target, nexus: NexusId, cdb: &[u8], data: &[u8]) -> Step {
    match target.begin(nexus, LUN, cdb, data.len() as u64) {
        Step::Data(pending) => target.supply(nexus, pending, data),
        other => other,
    }
}

pub(crate) fn work(target: &mut Target, nexus: NexusId, cdb: &[u8], data: &[u8]) -> Work {
    match step(target, nexus, cdb, data) {
        Step::Work(_, work) => work,
        other => panic!("{cdb:02x?}: {other:?}"),
    }
}

pub(crate) fn failed(response: &Response) -> Sense {
    assert_eq!(response.status, Status::CheckCondition, "{response:?}");
    response.sense.unwrap()
}

fn code(target: &mut Target, nexus: NexusId, cdb: &[u8]) -> Code {
    failed(&done(target, nexus, cdb, &[])).code
}

#[test]
fn reads_and_writes_of_every_form_are_bytes_of_the_device() {
    let (mut target, nexus) = target();
    let wanted = Work::Read { offset: 5 * 512, length: 3 * 512 };
    let forms: [&[u8]; 4] = [
        &[0x08, 0, 0, 5, 3, 0],
        &[0x28, 0, 0, 0, 0, 5, 0, 0, 3, 0],
        &[0xa8, 0, 0, 0, 0, 5, 0, 0, 0, 3, 0, 0],
        &[0x88, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 3, 0, 0],
    ];
    for cdb in forms {
        assert_eq!(work(&mut target, nexus, cdb, &[]), wanted);
        let mut write = cdb.to_vec();
        write[0] += 2;
        let Step::Data(pending) = target.begin(nexus, LUN, &write, 1536) else {
            panic!("{write:02x?}")
        };
        assert_eq!(pending.data_out(), 3 * 512);
        let Step::Work(_, work) = target.supply(nexus, pending, &[7; 3 * 512]) else { panic!() };
        assert_eq!(work, Work::Write { offset: 5 * 512, fua: false, verify: false });
    }
    // No number of blocks is 256 of them in the shortest form, and none in the others.
    let all = Work::Read { offset: 0, length: 256 * 512 };
    assert_eq!(work(&mut target, nexus, &[0x08, 0, 0, 0, 0, 0], &[]), all);
    assert_eq!(done(&mut target, nexus, &[0x28, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[]), Response::good());
}

#[test]
fn what_makes_no_sense_is_refused_with_the_code_that_the_standard_names() {
    let (mut target, nexus) = target();
    let read = |lba: u32, count: u16| {
        let mut cdb = vec![0x28, 0];
        cdb.extend(lba.to_be_bytes());
        cdb.push(0);
        cdb.extend(count.to_be_bytes());
        cdb.push(0);
        cdb
    };
    assert_eq!(code(&mut target, nexus, &read(2047, 2)), Code::LBA_OUT_OF_RANGE);
    assert_eq!(code(&mut target, nexus, &read(u32::MAX, 1)), Code::LBA_OUT_OF_RANGE);
    assert_eq!(code(&mut target, nexus, &[0xff; 16]), Code::INVALID_OPCODE);
    assert_eq!(code(&mut target, nexus, &[0x28, 0]), Code::INVALID_FIELD_IN_CDB);
    // Protection is not offered.
    let mut protected = read(0, 1);
    protected[1] = 0x20;
    let sense = failed(&done(&mut target, nexus, &protected, &[]));
    assert_eq!(sense, Sense::invalid_field(1, 5));
    let overflow = [0x88, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1, 0, 0];
    assert_eq!(code(&mut target, nexus, &overflow), Code::LBA_OUT_OF_RANGE);
    let none = target.begin(nexus, Lun::new(1).unwrap().encode(), &[0; 6], 0);
    let none =
        matches!(none, Step::Done(response) if failed(&response).code == Code::UNIT_NOT_SUPPORTED);
    assert!(none);
}

#[test]
fn a_read_only_disk_is_not_written() {
    let mut target = Target::new("iqn.2026-01.example:test");
    let disk = Disk { read_only: true, ..Disk::of_bytes("serial", 1 << 20) };
    target.add(Lun::new(0).unwrap(), disk);
    let nexus = attach(&mut target, "one");
    for cdb in [
        &[0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0][..],
        &[0x41, 0, 0, 0, 0, 0, 0, 0, 1, 0],
        &[0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0],
    ] {
        assert_eq!(code(&mut target, nexus, cdb), Code::WRITE_PROTECTED);
    }
    let sense = done(&mut target, nexus, &[0x1a, 0, 0x3f, 0, 0xff, 0], &[]);
    assert_eq!(sense.data[2] & 0x80, 0x80);
}

#[test]
fn inquiry_and_its_pages_say_what_it_is() {
    let (mut target, nexus) = target();
    let standard = done(&mut target, nexus, &[0x12, 0, 0, 0, 96, 0], &[]).data;
    assert_eq!((standard.len(), standard[0], usize::from(standard[4])), (96, 0, 91));
    assert_eq!(&standard[8..16], b"LANDFALL");
    let pages = done(&mut target, nexus, &[0x12, 1, 0, 0, 0xff, 0], &[]).data;
    for page in &pages[4..] {
        let data = done(&mut target, nexus, &[0x12, 1, *page, 0, 0xff, 0], &[]).data;
        assert_eq!((data[1], usize::from(data[3])), (*page, data.len() - 4), "{page:#x}");
    }
    assert_eq!(code(&mut target, nexus, &[0x12, 1, 0x42, 0, 0xff, 0]), Code::INVALID_FIELD_IN_CDB);
    let short = done(&mut target, nexus, &[0x12, 0, 0, 0, 5, 0], &[]).data;
    assert_eq!(short, standard[..5]);
}

#[test]
fn a_capacity_is_the_last_block_and_the_size_of_blocks() {
    let (mut target, nexus) = target();
    let short = done(&mut target, nexus, &[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[]).data;
    assert_eq!(short, [0, 0, 7, 255, 0, 0, 2, 0]);
    let mut cdb = [0; 16];
    (cdb[0], cdb[1], cdb[13]) = (0x9e, 0x10, 32);
    let long = done(&mut target, nexus, &cdb, &[]).data;
    assert_eq!(long[..12], [0, 0, 0, 0, 0, 0, 7, 255, 0, 0, 2, 0]);
    assert_eq!(long[14], 0xc0, "it can be unmapped, and is zero then");
    target.resize(Lun::new(0).unwrap(), 1 << 33);
    assert_eq!(code(&mut target, nexus, &[0; 6]), Code::CAPACITY_CHANGED);
    let short = done(&mut target, nexus, &[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[]).data;
    assert_eq!(short[..4], [0xff; 4]);
}

#[test]
fn an_unmap_is_of_all_its_ranges_or_of_none() {
    let (mut target, nexus) = target();
    let list = |ranges: &[(u64, u32)]| {
        let len = ranges.len() as u16 * 16;
        let mut list = (len + 6).to_be_bytes().to_vec();
        list.extend(len.to_be_bytes());
        list.extend([0; 4]);
        for (lba, count) in ranges {
            list.extend(lba.to_be_bytes());
            list.extend(count.to_be_bytes());
            list.extend([0; 4]);
        }
        list
    };
    let cdb = |list: &[u8]| [0x42, 0, 0, 0, 0, 0, 0, 0, list.len() as u8, 0];
    let two = list(&[(1, 2), (5, 0), (2040, 8)]);
    let ranges = vec![(512, 1024), (2040 * 512, 8 * 512)];
    assert_eq!(work(&mut target, nexus, &cdb(&two), &two), Work::Unmap(ranges));
    let beyond = list(&[(1, 2), (2040, 9)]);
    let sense = failed(&done(&mut target, nexus, &cdb(&beyond), &beyond));
    assert_eq!(sense.code, Code::LBA_OUT_OF_RANGE);
    let short = failed(&done(&mut target, nexus, &cdb(&[0; 7]), &[0; 7]));
    assert_eq!(short.code, Code::PARAMETER_LIST_LENGTH);
}

#[test]
fn mode_pages_are_changed_where_they_can_be_and_others_are_told() {
    let (mut target, nexus) = target();
    let other = attach(&mut target, "two");
    let control = [0x1a, 0x08, 0x0a, 0, 0xff, 0];
    let current = done(&mut target, nexus, &control, &[]).data;
    let mut list = current.clone();
    (list[0], list[2]) = (0, 0);
    list[4 + 4] |= 0x08;
    let select = [0x15, 0x10, 0, 0, list.len() as u8, 0];
    assert_eq!(done(&mut target, nexus, &select, &list), Response::good());
    assert_eq!(code(&mut target, other, &[0; 6]), Code::MODE_CHANGED);
    let write = [0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0];
    assert_eq!(code(&mut target, nexus, &write), Code::WRITE_PROTECTED);
    // What cannot be changed is as it was.
    list[4 + 3] ^= 0x10;
    let refused = failed(&done(&mut target, nexus, &select, &list));
    assert_eq!(refused, Sense::invalid_parameter(4 + 3));
    assert_eq!(code(&mut target, nexus, &[0x1a, 0, 0xca, 0, 0xff, 0]), Code::SAVING_NOT_SUPPORTED);
    // A reset brings the default back.
    assert!(target.manage(nexus, LUN, TaskManagement::UnitReset));
    assert_eq!(code(&mut target, nexus, &[0; 6]), Code::UNIT_RESET);
    assert_eq!(done(&mut target, nexus, &control, &[]).data, current);
}

#[test]
fn every_failure_of_a_device_has_sense_data_of_its_own() {
    let (mut target, nexus) = target();
    let Step::Work(pending, _) = target.begin(nexus, LUN, &[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0], 0)
    else {
        panic!("a read is work")
    };
    let told = |failure| failed(&target.finish(nexus, &pending, Err(failure)));
    assert_eq!(told(Failure::Read), Sense::new(Key::MediumError, Code::READ_ERROR));
    assert_eq!(told(Failure::Write), Sense::new(Key::MediumError, Code::WRITE_ERROR));
    assert_eq!(told(Failure::NoSpace), Sense::new(Key::DataProtect, Code::NO_SPACE));
    assert_eq!(told(Failure::Protected), Sense::new(Key::DataProtect, Code::WRITE_PROTECTED));
    assert_eq!(told(Failure::Miscompare(77)).information, Some(77));
}

#[test]
fn luns_are_reported_and_named_in_one_level() {
    let (mut target, nexus) = target();
    target.add(Lun::new(300).unwrap(), Disk::of_bytes("other", 1 << 20));
    let cdb = [0xa0, 0, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0];
    let data = done(&mut target, nexus, &cdb, &[]).data;
    assert_eq!(data[..8], [0, 0, 0, 16, 0, 0, 0, 0]);
    assert_eq!(data[8..], [0, 0, 0, 0, 0, 0, 0, 0, 0x41, 44, 0, 0, 0, 0, 0, 0]);
    for number in [0, 1, 255, 256, 16_383] {
        let lun = Lun::new(number).unwrap();
        assert_eq!(Lun::decode(lun.encode()), Some(lun));
    }
    assert_eq!(Lun::new(16_384), None);
    assert_eq!(Lun::decode([0, 0, 0, 1, 0, 0, 0, 0]), None);
    assert_eq!(Lun::decode([0xc1, 0, 0, 0, 0, 0, 0, 0]), None);
}

#[test]
fn tasks_of_others_that_a_reset_ends_are_told_so() {
    let (mut target, nexus) = target();
    let other = attach(&mut target, "two");
    let read = [0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0];
    let Step::Work(pending, _) = target.begin(other, LUN, &read, 0) else { panic!("it is work") };
    assert!(target.manage(nexus, LUN, TaskManagement::ClearTaskSet));
    let told = target.finish(other, &pending, Ok(vec![0; 512]));
    assert_eq!(told, Response::status(Status::TaskAborted));
    let Step::Work(pending, _) = target.begin(other, LUN, &read, 0) else { panic!("it is work") };
    assert!(target.manage(nexus, LUN, TaskManagement::AbortTaskSet), "of its own alone");
    let told = target.finish(other, &pending, Ok(vec![0; 512]));
    assert_eq!(told.status, Status::Good);
    assert!(!target.manage(nexus, [0, 9, 0, 0, 0, 0, 0, 0], TaskManagement::UnitReset));
}
