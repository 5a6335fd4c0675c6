//! SCSI over STP: data as Transfers, from buffer to buffer.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Waker};
use std::{io, iter};

use landfall::stp::{Endpoint, Memory, Transport, blocking};
use landfall_storage::Features;
use landfall_storage::device::{BlockDevice, Fault, MemoryDevice, Volatile};
use landfall_storage::scsi::sst::{
    Answer, Completion, GOOD, Initiator, InitiatorError, MESSAGE, Pending, Request,
};
use landfall_storage::scsi::{Code, Key, Lun, Sense, Server, Status, TaskManagement};

use crate::initiator::TARGET;
use crate::support::{pattern, until};

fn endpoint() -> Endpoint {
    Endpoint::bind(Transport::udp("127.0.0.1:0".parse().unwrap())).unwrap()
}

/// An initiator that knows that unit 0 is new, at a server with this device.
fn connect(target: &Endpoint, own: &Endpoint, name: &str) -> Initiator {
    let near = landfall::stp::blocking::Endpoint::from(own.clone());
    let connection = near.connect(target.local().unwrap(), 3260).unwrap();
    let initiator = Initiator::new(connection.as_async().clone(), name).unwrap();
    assert_eq!(sense(initiator.ready(UNIT).wait()).code, Code::POWER_ON_OR_RESET);
    initiator
}

fn serve(device: Arc<dyn BlockDevice>) -> (Server, Endpoint) {
    let server = Server::builder(TARGET).shared_unit(0, device).start().unwrap();
    let endpoint = endpoint();
    server.listen_sst(&endpoint, 3260).unwrap();
    (server, endpoint)
}

fn sense<T: std::fmt::Debug>(outcome: Result<T, InitiatorError>) -> Sense {
    match outcome.unwrap_err() {
        InitiatorError::Failed { sense: Some(sense), .. } => sense,
        other => panic!("{other}"),
    }
}

const UNIT: Lun = match Lun::new(0) {
    Some(unit) => unit,
    None => panic!("there is a first one"),
};

#[test]
fn data_land_in_the_buffers_of_the_initiator() {
    let (server, far) = serve(Arc::new(MemoryDevice::new(64 << 20)));
    let near = endpoint();
    let initiator = connect(&far, &near, "iqn.2026-01.example:one");
    let inquiry = initiator.inquiry(UNIT).wait().unwrap();
    assert_eq!(&inquiry.memory[8..16], b"LANDFALL");
    let capacity = initiator.capacity(UNIT).wait().unwrap();
    assert_eq!(capacity.memory[..8], ((64_u64 << 20) / 512 - 1).to_be_bytes());
    // More than are under way at a time.
    let len = 256 << 10;
    let blocks = len as u64 / 512;
    let writes: Vec<_> = (0..80)
        .map(|nth| initiator.write(UNIT, nth * blocks, Memory::from_bytes(&pattern(nth, len))))
        .collect();
    for write in writes {
        write.wait().unwrap();
    }
    initiator.flush(UNIT).wait().unwrap();
    let copied = near.stats().bytes_copied_in;
    let reads: Vec<_> =
        (0..80).map(|nth| initiator.read(UNIT, nth * blocks, Memory::zeroed(len))).collect();
    for (nth, read) in (0..).zip(reads) {
        let read = read.wait().unwrap();
        assert!(read.len == len && *read.memory == pattern(nth, len), "{nth}");
    }
    // Messages alone were copied, and no data.
    assert!(near.stats().bytes_copied_in - copied < 80 * 100);
    assert!(far.stats().bytes_copied_in < 200 * 100);
    let stats = server.stats();
    assert_eq!((stats.reads, stats.writes, stats.flushes), (80, 80, 1));
}

#[test]
fn errors_over_stp_are_sense_data_and_are_no_end() {
    let device = Arc::new(Volatile::new(1 << 20));
    device.fail(Fault::Read, 4096..8192);
    device.fail(Fault::NoSpace, 12_288..16_384);
    let (_server, far) = serve(device);
    let near = endpoint();
    let initiator = connect(&far, &near, "one");
    let failed = sense(initiator.read(UNIT, 0, Memory::zeroed(8192)).wait());
    assert_eq!((failed.key, failed.code), (Key::MediumError, Code::READ_ERROR));
    let failed = sense(initiator.write(UNIT, 24, Memory::zeroed(512)).wait());
    assert_eq!((failed.key, failed.code), (Key::DataProtect, Code::NO_SPACE));
    // The data of these are not taken.
    let beyond = sense(initiator.write(UNIT, 2048, Memory::zeroed(65_536)).wait());
    assert_eq!(beyond.code, Code::LBA_OUT_OF_RANGE);
    let unknown = initiator.command(UNIT, &[0xff; 6], Some(Memory::zeroed(512)), Memory::zeroed(0));
    assert_eq!(sense(unknown.wait()).code, Code::INVALID_OPCODE);
    initiator.write(UNIT, 0, Memory::from_bytes(&pattern(1, 4096))).wait().unwrap();
    let read = initiator.read(UNIT, 0, Memory::zeroed(4096)).wait().unwrap();
    assert_eq!(*read.memory, pattern(1, 4096));
}

#[test]
fn what_became_of_a_command_is_told_once() {
    let (_server, far) = serve(Arc::new(MemoryDevice::new(1 << 20)));
    let near = endpoint();
    let initiator = connect(&far, &near, "one");
    let mut inquiry = initiator.inquiry(UNIT);
    let mut context = Context::from_waker(Waker::noop());
    let mut outcome = Poll::Pending;
    until("the command is over", || {
        outcome = Pin::new(&mut inquiry).poll(&mut context);
        outcome.is_ready()
    });
    assert!(matches!(outcome, Poll::Ready(Ok(_))));
    let again = Pin::new(&mut inquiry).poll(&mut context);
    assert!(matches!(again, Poll::Ready(Err(InitiatorError::Gone(_)))));
    assert!(matches!(inquiry.wait(), Err(InitiatorError::Gone(_))));
}

#[test]
fn iscsi_and_stp_are_doors_to_one_target() {
    let (server, far) = serve(Arc::new(MemoryDevice::new(1 << 20)));
    let address = server.listen("127.0.0.1:0").unwrap();
    let near = endpoint();
    let direct = connect(&far, &near, "direct");
    let stream = std::net::TcpStream::connect(address).unwrap();
    let mut other = crate::initiator::Initiator::log_in(Arc::new(stream), "other");
    direct.write(UNIT, 3, Memory::from_bytes(&pattern(1, 512))).wait().unwrap();
    assert_eq!(other.read(0, 3, 512).data, pattern(1, 512));
    // A reservation of one bars the other, until it goes.
    direct.command(UNIT, &[0x16, 0, 0, 0, 0, 0], None, Memory::zeroed(0)).wait().unwrap();
    assert_eq!(other.read(0, 3, 512).status, 0x18);
    drop(direct);
    until("its reservation is gone", || other.read(0, 3, 512).status == 0);
}

#[test]
fn an_initiator_hears_that_its_target_is_gone() {
    let (server, far) = serve(Arc::new(MemoryDevice::new(1 << 20)));
    let near = endpoint();
    let initiator = connect(&far, &near, "one");
    drop(server);
    until("it is gone", || matches!(initiator.ready(UNIT).wait(), Err(InitiatorError::Gone(_))));
}

/// Transfers overtake each other: what was sent behind the initiator's name may come before it.
#[test]
fn a_command_that_overtakes_its_initiators_name_waits_for_it() {
    let (_server, far) = serve(Arc::new(MemoryDevice::new(1 << 20)));
    let near = blocking::Endpoint::from(endpoint());
    let early = near.connect(far.local().unwrap(), 3260).unwrap();
    let ready = Request::Command { tag: 1, lun: [0; 8], data_out: 0, data_in: 0, cdb: [0; 16] };
    let name = Request::Name("early".into());
    for (request, tag) in [(ready, 1), (name, 0)] {
        let message = Memory::from_bytes(&request.encode());
        early.send(message).opaque(MESSAGE | tag).wait().unwrap();
    }
    let answer = early.receive(Memory::zeroed(1024)).wait().unwrap();
    let answer = Answer::decode(&answer).expect("an answer");
    assert_eq!((answer.tag, answer.status), (1, 2), "the unit is new to it");
    // Of those that never say who they are few wait.
    let nobody = near.connect(far.local().unwrap(), 3260).unwrap();
    let flood = || {
        let again = Request::Command { tag: 1, lun: [0; 8], data_out: 0, data_in: 0, cdb: [0; 16] };
        nobody.send(Memory::from_bytes(&again.encode())).opaque(MESSAGE | 1).wait().is_err()
    };
    until("it is over", flood);
}

#[test]
fn strangers_over_stp_and_initiators_that_vanish_disturb_nobody() {
    let (_server, far) = serve(Arc::new(MemoryDevice::new(1 << 20)));
    let near = endpoint();
    let honest = connect(&far, &near, "honest");
    let peer = far.local().unwrap();
    let connect = || blocking::Endpoint::from(near.clone()).connect(peer, 3260).unwrap();
    let name = || Memory::from_bytes(&Request::Name("other".into()).encode());
    // What makes no sense, what is too long, and a second name end their connections.
    let command =
        Request::Command { tag: 1, lun: [0; 8], data_out: 512, data_in: 0, cdb: [0x2a; 16] };
    for message in [vec![7; 40], vec![1; 4096], command.encode()] {
        let stranger = connect();
        // It may be over before that has come.
        let _ = stranger.send(Memory::from_bytes(&message)).opaque(MESSAGE).wait();
        until("it is over", || stranger.send(name()).opaque(MESSAGE).wait().is_err());
    }
    // A write whose data do not come.
    let mut cdb = [0; 16];
    (cdb[0], cdb[8]) = (0x2a, 1);
    let command = Request::Command { tag: 1, lun: [0; 8], data_out: 512, data_in: 0, cdb };
    let gone = connect();
    gone.send(name()).opaque(MESSAGE).wait().unwrap();
    gone.send(Memory::from_bytes(&command.encode())).opaque(MESSAGE | 1).wait().unwrap();
    gone.abort();
    honest.write(UNIT, 0, Memory::from_bytes(&pattern(2, 4096))).wait().unwrap();
    assert_eq!(
        *honest.read(UNIT, 0, Memory::zeroed(4096)).wait().unwrap().memory,
        pattern(2, 4096)
    );
}

/// Writes wait until they may go on.
struct Held {
    device: MemoryDevice,
    /// How many writes wait, and whether they may go on.
    state: Mutex<(usize, bool)>,
    changed: Condvar,
}

impl Held {
    fn new() -> Arc<Self> {
        let device = MemoryDevice::new(1 << 20);
        Arc::new(Self { device, state: Mutex::default(), changed: Condvar::new() })
    }

    fn waiting(&self) -> usize {
        self.state.lock().unwrap().0
    }

    fn release(&self) {
        self.state.lock().unwrap().1 = true;
        self.changed.notify_all();
    }
}

impl BlockDevice for Held {
    fn size(&self) -> u64 {
        self.device.size()
    }

    fn features(&self) -> Features {
        self.device.features()
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.device.read(offset, into)
    }

    fn write(&self, offset: u64, from: &[u8]) -> io::Result<()> {
        let mut state = self.state.lock().unwrap();
        state.0 += 1;
        drop(self.changed.wait_while(state, |(_, may_go_on)| !*may_go_on).unwrap());
        self.device.write(offset, from)
    }

    fn flush(&self) -> io::Result<()> {
        self.device.flush()
    }

    fn write_zeroes(&self, offset: u64, len: u64, punch: bool, fast: bool) -> io::Result<()> {
        self.device.write_zeroes(offset, len, punch, fast)
    }
}

fn is_over(pending: &mut Pending) -> bool {
    Pin::new(pending).poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

fn is_aborted(outcome: &Result<Completion, InitiatorError>) -> bool {
    let aborted = Status::TaskAborted.byte();
    matches!(outcome, Err(InitiatorError::Failed { status, sense: None }) if *status == aborted)
}

#[test]
fn an_abort_over_stp_is_over_when_the_device_has_ended() {
    let device = Held::new();
    let (_server, far) = serve(device.clone());
    let near = endpoint();
    let initiator = connect(&far, &near, "one");
    let mut write = initiator.write(UNIT, 8, Memory::from_bytes(&pattern(1, 4096)));
    until("the device writes", || device.waiting() == 1);
    let mut abort = initiator.abort(&write);
    // A command that is begun later comes later, and is not meant.
    initiator.ready(UNIT).wait().unwrap();
    assert!(!is_over(&mut abort) && !is_over(&mut write), "the device may still write");
    device.release();
    abort.wait().unwrap();
    assert!(is_aborted(&write.wait()));
    // What a device had begun it has done.
    let read = initiator.read(UNIT, 8, Memory::zeroed(4096)).wait().unwrap();
    assert_eq!(*read.memory, pattern(1, 4096));
    // One that is over ends as it did.
    let read = initiator.read(UNIT, 0, Memory::zeroed(512));
    until("it is read", || initiator.ready(UNIT).wait().is_ok());
    initiator.abort(&read).wait().unwrap();
    let _ = read.wait();
}

#[test]
fn a_reset_over_stp_ends_what_is_under_way_and_what_waits() {
    let device = Held::new();
    let (_server, far) = serve(device.clone());
    let (near, elsewhere) = (endpoint(), endpoint());
    let (one, other) = (connect(&far, &near, "one"), connect(&far, &elsewhere, "other"));
    // More than are under way at a time.
    let write = || one.write(UNIT, 0, Memory::from_bytes(&pattern(1, 512)));
    let mut writes: Vec<_> = iter::repeat_with(write).take(40).collect();
    until("the device writes", || device.waiting() > 0);
    let mut reset = one.manage(UNIT, TaskManagement::UnitReset);
    until("what waited has ended", || is_over(writes.last_mut().unwrap()));
    drop(writes.pop());
    // It arrives behind the others, and the other initiator hears of it.
    until("the unit is reset", || match other.ready(UNIT).wait() {
        Err(InitiatorError::Failed { sense: Some(sense), .. }) => sense.code == Code::UNIT_RESET,
        _ => false,
    });
    assert!(!is_over(&mut reset), "the device may still write");
    device.release();
    reset.wait().unwrap();
    for (nth, write) in writes.into_iter().enumerate() {
        assert!(is_aborted(&write.wait()), "{nth}");
    }
    assert_eq!(sense(one.ready(UNIT).wait()).code, Code::UNIT_RESET);
    one.ready(UNIT).wait().unwrap();
    let elsewhere = Lun::new(9).unwrap();
    assert!(one.manage(elsewhere, TaskManagement::AbortTaskSet).wait().is_err(), "no such unit");
    one.write(UNIT, 0, Memory::from_bytes(&pattern(2, 512))).wait().unwrap();
}

#[test]
fn a_command_whose_data_do_not_come_can_be_aborted() {
    let (_server, far) = serve(Arc::new(MemoryDevice::new(1 << 20)));
    let near = blocking::Endpoint::from(endpoint());
    let connection = near.connect(far.local().unwrap(), 3260).unwrap();
    let say = |request: &Request, tag: u32| {
        let message = Memory::from_bytes(&request.encode());
        connection.send(message).opaque(MESSAGE | tag).wait().unwrap();
    };
    let hear = || {
        let answer = connection.receive(Memory::zeroed(1024)).wait().unwrap();
        let Answer { tag, status, .. } = Answer::decode(&answer).expect("an answer");
        (tag, status)
    };
    say(&Request::Name("one".into()), 0);
    say(&Request::Command { tag: 1, lun: [0; 8], data_out: 0, data_in: 0, cdb: [0; 16] }, 1);
    assert_eq!(hear(), (1, Status::CheckCondition.byte()), "the unit is new to it");
    let mut cdb = [0; 16];
    (cdb[0], cdb[8]) = (0x2a, 1);
    say(&Request::Command { tag: 2, lun: [0; 8], data_out: 512, data_in: 0, cdb }, 2);
    say(&Request::Abort { tag: 3, task: 2 }, 3);
    let mut heard = [hear(), hear()];
    heard.sort_unstable();
    assert_eq!(heard, [(2, Status::TaskAborted.byte()), (3, Status::Good.byte())]);
    // One that is not there has ended.
    say(&Request::Abort { tag: 4, task: 2 }, 4);
    assert_eq!(hear(), (4, Status::Good.byte()));
}

#[test]
fn data_bring_the_status_good_and_other_data_do_not() {
    let device = Arc::new(MemoryDevice::new(1 << 20));
    device.write(1024, &pattern(3, 512)).unwrap();
    let (_server, far) = serve(device);
    let near = blocking::Endpoint::from(endpoint());
    let connection = near.connect(far.local().unwrap(), 3260).unwrap();
    let say = |request: &Request, tag: u32| {
        let message = Memory::from_bytes(&request.encode());
        connection.send(message).opaque(MESSAGE | tag).wait().unwrap();
    };
    let hear = || connection.receive(Memory::zeroed(4096)).wait().unwrap();
    say(&Request::Name("one".into()), 0);
    say(&Request::Command { tag: 1, lun: [0; 8], data_out: 0, data_in: 0, cdb: [0; 16] }, 1);
    assert_eq!(hear().opaque(), MESSAGE | 1);
    let mut cdb = [0; 16];
    (cdb[0], cdb[5], cdb[8]) = (0x28, 2, 1);
    let read = |tag, data_in, cdb| Request::Command { tag, lun: [0; 8], data_out: 0, data_in, cdb };
    say(&read(2, 512, cdb), 2);
    let data = hear();
    assert_eq!((data.opaque(), &data[..]), (GOOD | 2, &pattern(3, 512)[..]));
    // Without room for data their status comes by itself, and so does one that is not good.
    say(&read(3, 0, cdb), 3);
    let answer = hear();
    let told = Answer::decode(&answer).expect("an answer");
    assert_eq!((answer.opaque(), told.status, told.data_in), (MESSAGE | 3, 0, 0));
    cdb[2] = 0x7f;
    say(&read(4, 512, cdb), 4);
    let answer = hear();
    let told = Answer::decode(&answer).expect("an answer");
    assert_eq!((answer.opaque(), told.status, told.data_in), (MESSAGE | 4, 2, 0));
}

#[test]
fn more_data_than_there_is_room_for_end_the_connection() {
    let far = blocking::Endpoint::from(endpoint());
    let listener = far.listen(3260).unwrap();
    let near = blocking::Endpoint::from(endpoint());
    let connection = near.connect(far.local().unwrap(), 3260).unwrap();
    let initiator = Initiator::new(connection.as_async().clone(), "one").unwrap();
    let read = initiator.read(UNIT, 0, Memory::zeroed(512));
    let target = listener.accept().unwrap();
    let mut tag = None;
    while tag.is_none() {
        let message = target.receive(Memory::zeroed(256)).wait().unwrap();
        if let Some(Request::Command { tag: told, .. }) = Request::decode(&message) {
            tag = Some(told);
        }
    }
    let more = target.send(Memory::zeroed(513)).opaque(GOOD | tag.unwrap()).start();
    assert!(matches!(read.wait(), Err(InitiatorError::Gone(_))));
    drop(more);
}
