//! A process of the same user that means no good, played by the test: it has a control socket
//! and a queue, and says with them what no driver says.

use std::fs::File;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::Ordering;

use landfall_placement::{
    Check, Ecn, Engine, Guess, Instant, Landing, PathId, PathState, Placement, Refusal, Refusals,
    RegionId, Spans, Ticket, Timeout, Transmit, Unit,
};

use super::control::{ControlMessage, ControlSocket, Hello, Name};
use super::frame_queue::{Frame, FrameQueue, Place};
use crate::Driver;
use crate::memory::{Memory, Regions, Rights, copy_into_words};
use crate::udp::{UdpConfig, UdpDriver};

/// Puts the payload of each unit behind a head of one byte at the start of a region.
struct Keeper {
    region: RegionId,
    units: usize,
    landings: Vec<Landing>,
    refusals: Refusals,
}

impl Engine for Keeper {
    type Event = ();

    fn handle_path(&mut self, _: Instant, _: PathId, _: PathState) {}

    fn guess(&self, _: PathId, _: usize) -> Option<Guess> {
        None
    }

    fn place(
        &mut self,
        _: Instant,
        unit: &Unit<'_>,
        into: &mut Spans,
    ) -> Result<Placement, Refusal> {
        self.units += 1;
        if unit.head.is_empty() {
            return Err(Refusal::Truncated);
        }
        into.push(self.region.span(0, unit.len - 1)).unwrap();
        Ok(Placement::Into { at: 1, check: Check::None, ticket: Ticket::from_raw(1) })
    }

    fn handle_placed(&mut self, _: Instant, _: Ticket, landing: Landing) {
        self.landings.push(landing);
    }

    fn poll_transmit(
        &mut self,
        _: Instant,
        _: PathId,
        _: &mut [u8],
        _: &mut Spans,
    ) -> Option<Transmit> {
        None
    }

    fn handle_sent(&mut self, _: Instant, _: Ticket) {}

    fn handle_timeout(&mut self, _: Instant) {}

    fn poll_timeout(&self) -> Option<Timeout> {
        None
    }

    fn poll_event(&mut self) -> Option<()> {
        None
    }

    fn refusals(&self) -> &Refusals {
        &self.refusals
    }
}

const LEN: usize = 1 << 16;

/// Who is attacked.
struct Victim {
    driver: UdpDriver,
    engine: Keeper,
    regions: Regions,
}

impl Victim {
    fn new() -> Self {
        let regions = Regions::new(16);
        let region = regions.lend(Memory::zeroed(LEN), Rights::WRITE | Rights::READ).unwrap();
        let config = UdpConfig::discover(([127, 0, 0, 1], 0).into());
        let driver = UdpDriver::open(PathId(0), config, &regions).unwrap();
        let refusals = Refusals::new();
        let engine = Keeper { region, units: 0, landings: Vec::new(), refusals };
        Self { driver, engine, regions }
    }

    /// Enough turns for it to have looked at everything.
    fn turn(&mut self) {
        for _ in 0..2 * super::LOOK_EVERY {
            self.driver.turn(&mut self.engine, Instant::ZERO).unwrap();
        }
    }

    fn bytes(&self, len: u32) -> Vec<u8> {
        let mut bytes = vec![0; len as usize];
        self.regions.read(&self.engine.region.span(0, len), &mut bytes).unwrap();
        bytes
    }

    fn malformed(&self) -> u64 {
        self.driver.counters().malformed
    }
}

/// Who attacks.
struct Hostile {
    _socket: UdpSocket,
    at: SocketAddr,
    control: ControlSocket,
    queue: FrameQueue,
    nonce: Box<u64>,
    to: SocketAddr,
}

impl Hostile {
    fn new(victim: &Victim) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let at = socket.local_addr().unwrap();
        Self {
            control: ControlSocket::open(at).unwrap(),
            queue: FrameQueue::new().unwrap(),
            nonce: Box::new(4711),
            to: victim.driver.local_address(),
            at,
            _socket: socket,
        }
    }

    fn message(&self, yours: u64) -> Hello {
        let probe = std::ptr::from_ref(&*self.nonce) as u64;
        let wants_answer = yours == 0;
        Hello { nonce: *self.nonce, yours, probe, wants_answer, from: self.at, to: self.to }
    }

    fn send(&self, message: ControlMessage, file: Option<&OwnedFd>) {
        self.control.send(&Name::of(self.to), &message, file.map(AsFd::as_fd)).unwrap();
    }

    /// What it was told of the other's queue.
    fn answer(&self) -> Option<u64> {
        let received = self.control.receive().unwrap()?.unwrap();
        let ControlMessage::Hello(hello) = received.message else {
            panic!("{:?}", received.message)
        };
        Some(hello.nonce)
    }

    /// As a driver does it.
    fn met(victim: &mut Victim) -> Self {
        let hostile = Self::new(victim);
        let queue = hostile.queue.memory().fd().try_clone_to_owned().unwrap();
        hostile.send(ControlMessage::Hello(hostile.message(0)), Some(&queue));
        victim.turn();
        let theirs = hostile.answer().expect("it answers");
        hostile.send(ControlMessage::Hello(hostile.message(theirs)), Some(&queue));
        victim.turn();
        assert_eq!(victim.driver.neighbours(), 1);
        hostile
    }

    /// Says that there is a unit of this many bytes.
    fn say(&mut self, place: Place, payload: usize) {
        let (ecn, units, head_len) = (Ecn::NotCapable, 1, 1);
        let frame = Frame { place, ecn, units, head_len, each: payload, payload };
        let at = self.queue.begin(&frame);
        self.queue.write_heads(at, [&b"x"[..]].into_iter());
        if place == Place::Inline {
            copy_into_words(self.queue.words(), at + frame.payload_at(), &vec![9; payload]);
        }
        self.queue.commit(&frame);
    }

    fn hand_over(&self, id: u64, file: &OwnedFd) {
        self.send(ControlMessage::File { id, queue: *self.nonce }, Some(file));
    }
}

/// A file that is memory, with these seals.
fn file(len: u64, seals: libc::c_int) -> OwnedFd {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name is a C string.
    let fd = unsafe { libc::memfd_create(c"hostile".as_ptr(), flags) };
    assert!(fd >= 0);
    // SAFETY: the descriptor is new and nobody else's.
    let file = unsafe { OwnedFd::from_raw_fd(fd) };
    resize(&file, len).unwrap();
    // SAFETY: an open descriptor and a number.
    assert_eq!(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) }, 0);
    file
}

fn resize(file: &OwnedFd, len: u64) -> std::io::Result<()> {
    File::from(file.try_clone().unwrap()).set_len(len)
}

const SEALED: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;

/// After whatever was tried, what is said as it should be arrives.
#[track_caller]
fn is_unharmed(victim: &mut Victim, hostile: &mut Hostile) {
    victim.engine.landings.clear();
    hostile.say(Place::Inline, 100);
    victim.turn();
    assert_eq!(victim.engine.landings, [Landing::Unchecked]);
    assert_eq!(victim.bytes(100), [9; 100]);
}

#[test]
fn what_was_not_handed_over_cannot_be_named() {
    let mut victim = Victim::new();
    let mut hostile = Hostile::met(&mut victim);
    hostile.hand_over(5, &file(8192, SEALED));
    let mut lost = 0;
    for (id, offset, len) in [
        (6, 0, 100),
        (0, 0, 100),
        (5, 8192, 1),
        (5, 8193, 1),
        (5, 8000, 193),
        (5, u64::MAX, 2),
        (5, u64::MAX - 50, 100),
        (5, 0, 60_000),
    ] {
        hostile.say(Place::File { id, offset }, len);
        victim.turn();
        lost += 1;
        assert_eq!(victim.malformed(), lost, "{id} {offset} {len}");
        assert_eq!(victim.engine.units, 0, "the engine is not asked");
    }
    is_unharmed(&mut victim, &mut hostile);
    // What was handed over can, up to its last byte.
    hostile.say(Place::File { id: 5, offset: 8000 }, 192);
    victim.turn();
    assert_eq!(victim.engine.landings, [Landing::Unchecked; 2]);
    assert_eq!(victim.bytes(192), [0; 192]);
    // And no more once it was taken back.
    hostile.send(ControlMessage::Forget { id: 5, queue: *hostile.nonce }, None);
    victim.turn();
    hostile.say(Place::File { id: 5, offset: 8000 }, 192);
    victim.turn();
    assert_eq!(victim.malformed(), lost + 1);
}

#[test]
fn a_file_that_can_shrink_is_not_taken() {
    let mut victim = Victim::new();
    let mut hostile = Hostile::met(&mut victim);
    for (id, seals) in [(1, 0), (2, libc::F_SEAL_GROW), (3, libc::F_SEAL_SHRINK)] {
        let file = file(8192, seals);
        hostile.hand_over(id, &file);
        victim.turn();
        // Nothing was sealed by the one who took it.
        let shrinks = seals & libc::F_SEAL_SHRINK == 0;
        assert_eq!(resize(&file, 0).is_ok(), shrinks);
        hostile.say(Place::File { id, offset: 0 }, 4096);
        victim.turn();
        assert_eq!((victim.malformed(), victim.engine.units), (id, 0));
    }
    is_unharmed(&mut victim, &mut hostile);
}

#[test]
fn descriptors_of_anything_else_are_not_taken() {
    let mut victim = Victim::new();
    let mut hostile = Hostile::met(&mut victim);
    let null = OwnedFd::from(File::open("/dev/zero").unwrap());
    let this = OwnedFd::from(File::open(std::env::current_exe().unwrap()).unwrap());
    for (id, file) in [(1, &null), (2, &this)] {
        hostile.hand_over(id, file);
        hostile.say(Place::File { id, offset: 0 }, 64);
        victim.turn();
        assert_eq!((victim.malformed(), victim.engine.units), (id, 0));
    }
    is_unharmed(&mut victim, &mut hostile);
}

#[test]
fn a_post_that_can_change_its_length_is_no_post() {
    let mut victim = Victim::new();
    let hostile = Hostile::new(&victim);
    let long = hostile.queue.memory().len();
    for file in [
        file(long, 0),
        file(long, libc::F_SEAL_SHRINK),
        file(long - 8, SEALED),
        file(4096, SEALED),
        OwnedFd::from(File::open("/dev/zero").unwrap()),
    ] {
        hostile.send(ControlMessage::Hello(hostile.message(0)), Some(&file));
        victim.turn();
        assert_eq!(victim.driver.neighbours(), 0);
        while let Some(Ok(received)) = hostile.control.receive().unwrap() {
            assert!(!matches!(received.message, ControlMessage::Hello(_)), "it is not answered");
        }
    }
    // Nor is one without a descriptor, or with one that is somebody else's by its name.
    hostile.send(ControlMessage::Hello(hostile.message(0)), None);
    let queue = hostile.queue.memory().fd().try_clone_to_owned().unwrap();
    let other = SocketAddr::from(([127, 0, 0, 1], 1));
    hostile.send(ControlMessage::Hello(Hello { from: other, ..hostile.message(0) }), Some(&queue));
    hostile.send(ControlMessage::Hello(Hello { to: other, ..hostile.message(0) }), Some(&queue));
    let elsewhere = SocketAddr::from(([192, 0, 2, 1], hostile.at.port()));
    hostile
        .send(ControlMessage::Hello(Hello { from: elsewhere, ..hostile.message(0) }), Some(&queue));
    victim.turn();
    assert!(hostile.control.receive().unwrap().is_none());
}

#[test]
fn a_neighbour_that_writes_nonsense_is_left_alone_and_may_begin_anew() {
    for (nth, nonsense) in [u64::MAX, 0, 4, 1 << 40 | 1, 65 << 16 | 1].into_iter().enumerate() {
        let mut victim = Victim::new();
        let mut hostile = Hostile::met(&mut victim);
        hostile.say(Place::Inline, 100);
        // The head of the next frame, and that there is one.
        let words = hostile.queue.words();
        let next = 4096 / 8 + hostile.queue.written() as usize / 8;
        words[next].store(nonsense, Ordering::Relaxed);
        words[0].store(hostile.queue.written() + 64, Ordering::Release);
        victim.turn();
        assert_eq!(victim.engine.landings, [Landing::Unchecked], "{nth}: what came before it");
        assert_eq!((victim.malformed(), victim.driver.neighbours()), (1, 0), "{nth}");
        drop(hostile);
        let mut again = Hostile::met(&mut victim);
        is_unharmed(&mut victim, &mut again);
    }
}

#[test]
fn who_has_read_more_than_was_written_is_left_alone() {
    let mut victim = Victim::new();
    let hostile = Hostile::met(&mut victim);
    hostile.queue.set_read(64);
    victim.turn();
    assert_eq!(victim.driver.neighbours(), 0);
}

#[test]
fn what_is_at_no_address_is_lost_and_nothing_else_is() {
    let mut victim = Victim::new();
    let mut hostile = Hostile::met(&mut victim);
    let mut expected = Vec::new();
    for address in [0, 8, u64::MAX, u64::MAX - 4095, 1 << 47] {
        hostile.say(Place::Address(address), 5000);
        expected.push(Landing::Corrupt);
    }
    victim.turn();
    assert_eq!(victim.engine.landings, expected);
    assert_eq!(victim.bytes(5000), [0; 5000]);
    is_unharmed(&mut victim, &mut hostile);
}

#[test]
fn bytes_that_change_after_they_were_placed_change_nothing() {
    let mut victim = Victim::new();
    let mut hostile = Hostile::met(&mut victim);
    let file = file(8192, SEALED);
    hostile.hand_over(1, &file);
    let mut writer = File::from(file);
    std::io::Write::write_all(&mut writer, &[7; 8192]).unwrap();
    hostile.say(Place::File { id: 1, offset: 0 }, 8000);
    victim.turn();
    std::os::unix::fs::FileExt::write_all_at(&writer, &[8; 8192], 0).unwrap();
    assert_eq!(victim.engine.landings, [Landing::Unchecked]);
    assert_eq!(victim.bytes(8000), [7; 8000]);
}

#[test]
fn what_was_taken_back_before_it_was_read_is_lost_as_on_a_network() {
    let mut victim = Victim::new();
    let mut hostile = Hostile::met(&mut victim);
    hostile.say(Place::Inline, 5000);
    // From here on the sender uses its memory for something else.
    hostile.queue.close();
    victim.turn();
    // It comes again: its place here is as good as before.
    assert_eq!(victim.engine.landings, [Landing::Corrupt]);
    assert_eq!(victim.driver.counters().payload_bytes, 0);
}

#[test]
fn letters_about_posts_of_others_do_nothing() {
    let mut victim = Victim::new();
    let mut hostile = Hostile::met(&mut victim);
    let stranger = Hostile::new(&victim);
    let file = file(8192, SEALED);
    for queue in [*hostile.nonce, 0, u64::MAX] {
        stranger.send(ControlMessage::Bye(queue), None);
        stranger.send(ControlMessage::File { id: 1, queue }, Some(&file));
        stranger.send(ControlMessage::Forget { id: 1, queue }, None);
        victim.turn();
    }
    stranger.send(ControlMessage::Wake, Some(&file));
    hostile.send(ControlMessage::Bye(*hostile.nonce + 1), None);
    victim.turn();
    assert_eq!(victim.driver.neighbours(), 1);
    hostile.say(Place::File { id: 1, offset: 0 }, 64);
    victim.turn();
    assert_eq!(victim.malformed(), 1, "it was handed over by somebody else");
    is_unharmed(&mut victim, &mut hostile);
    hostile.send(ControlMessage::Bye(*hostile.nonce), None);
    victim.turn();
    assert_eq!(victim.driver.neighbours(), 0);
}
