//! Neighbours: processes of this host and user, which are found behind UDP addresses. What is
//! sent to one goes with one copy, out of the sender's memory to the place that the receiver's
//! engine names, and the kernel sees none of it.
//!
//! To an engine nothing differs: a peer is who it was, at the address that it had, and what is
//! said of a unit is checked as before. A UDP driver has a [`SameHost`] beside its socket, which
//! takes what is for a neighbour and gives what comes from one. When a neighbour is gone, or
//! has fallen silent, the same units take the socket again.
//!
//! | file | what is there |
//! | --- | --- |
//! | `control` | where neighbours write messages to: a Unix socket named by the UDP address |
//! | `frame_queue` | memory in which each side says what it has for the other, in frames |
//! | `neighbour` | both queues, the files that each knows of the other, and what is under way |
//! | `placer` | the one copy, and what the engine is told of it |
//!
//! # How neighbours find each other
//!
//! The first unit for an address of this host makes the driver write to the one who has that
//! address's name, in this network namespace: *here is my queue*. The kernel says who wrote: a
//! process of another user is not heard. Its name says at which UDP address it is, and it can
//! only have taken that name if nobody else had it; the engine checks the keys of each unit as
//! it does for what came by UDP. Until both know the other's queue, units take the socket.
//!
//! # Who may touch what
//!
//! Each side has its own queue, and writes nothing else; the other maps it to be read. Files of
//! memory are sealed before they are handed out: they keep their length, so no copy ends with
//! a `SIGBUS`, and nobody but their owner can write them. A file without those seals is not
//! taken. What a frame names is looked up and checked against the length of the file; a frame
//! that names what was not handed over is lost, as a packet is.
//!
//! Memory that was told of is pinned until it was read. A neighbour that reads nothing for a
//! second is left alone: the queue is closed, then the memory is free. It looks at that after
//! each copy, and what it copied later counts as lost.

mod control;
mod frame_queue;
mod neighbour;
mod placer;
#[cfg(all(test, not(miri), not(loom)))]
mod tests;

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use landfall_placement::{Duration, Engine, Instant, PathId, Peer};

use self::control::{ControlMessage, ControlSocket, Hello, Name, NotSent, Received};
use self::frame_queue::{Broken, FrameQueueView, Place};
use self::neighbour::{Neighbour, Sent};
use self::placer::{Arrived, Placer, Source};
use crate::driver::{Counters, Interest};
use crate::exchange::{Outbox, Turn};
use crate::interfaces::own_addresses;
use crate::memory::{PieceView, Pins, Regions};
use crate::shm::close_aside;
use crate::shm::rendezvous::Readiness;

/// This many neighbours a driver has at most; others are reached by UDP.
const MOST_NEIGHBOURS: usize = 64;
/// This many addresses it remembers at which nobody is.
const MOST_ABSENT: usize = 1024;
/// Letters that are read in one turn.
const LETTERS_PER_TURN: usize = 64;
/// Frames and bytes that are taken of one neighbour in one turn, so that acknowledgements
/// leave.
const FRAMES_PER_TURN: usize = 64;
const BYTES_PER_TURN: usize = 256 << 10;
/// A thread that spins looks for messages each this many turns: that is a system call.
const LOOK_EVERY: u32 = 32;
/// And at the socket, while neighbours are busy.
const SOCKET_EVERY: u32 = 16;
/// For this many turns after something moved they are likely to go on.
const BUSY_TURNS: u32 = 4096;
/// How often it is looked whether a neighbour that owes something still reads.
const TICK: Duration = Duration::from_millis(20);
/// An address at which nobody was, or nobody answers, is asked again after so long; each time
/// it is twice that, up to the longest.
const ABSENT: Duration = Duration::from_secs(1);
const MOST_DOUBLINGS: u32 = 6;
/// So often a neighbour is asked that does not answer.
const MOST_ASKED: u32 = 4;
/// The number of the control socket among what is waited for; those of neighbours follow.
const CONTROL: u64 = 0;

/// An address at which no neighbour is, until it is asked again.
#[derive(Clone, Copy, Debug)]
struct Absent {
    until: Instant,
    doublings: u32,
}

/// The neighbours of one UDP path.
#[derive(Debug)]
pub(crate) struct SameHost {
    control: ControlSocket,
    readiness: Readiness,
    local: SocketAddr,
    /// The addresses of this host when the path was opened.
    addresses: Vec<IpAddr>,
    pins: Pins,
    placer: Placer,
    heads: Vec<u8>,
    /// The numbers of neighbours, by what they are to the engine.
    near: HashMap<SocketAddr, usize>,
    absent: HashMap<SocketAddr, Absent>,
    neighbours: Vec<Option<Neighbour>>,
    /// The neighbour that was sent to last.
    last: Option<(SocketAddr, usize)>,
    /// Neighbours may ring: the thread was about to sleep.
    armed: AtomicBool,
    epoch: AtomicU64,
    turns: u32,
    /// This many turns more neighbours are likely to go on.
    busy: u32,
    /// A message is awaited.
    is_meeting: bool,
    /// The last turn found that a thread had slept.
    has_slept: bool,
    tick_at: Instant,
}

impl SameHost {
    /// Takes the name of this UDP address, at which the path is.
    pub(crate) fn open(path: PathId, local: SocketAddr, regions: &Regions) -> io::Result<Self> {
        let control = ControlSocket::open(local)?;
        let readiness = Readiness::new().map_err(io::Error::other)?;
        readiness.add(interest_in(control.as_fd()), CONTROL).map_err(io::Error::other)?;
        Ok(Self {
            control,
            readiness,
            local,
            addresses: own_addresses()?,
            pins: Pins::new(regions),
            placer: Placer::new(path),
            heads: Vec::new(),
            near: HashMap::new(),
            absent: HashMap::new(),
            neighbours: Vec::new(),
            last: None,
            armed: AtomicBool::new(false),
            epoch: AtomicU64::new(0),
            turns: 0,
            busy: 0,
            is_meeting: false,
            has_slept: false,
            tick_at: Instant::ZERO,
        })
    }

    /// How many neighbours are met.
    pub(crate) fn met(&self) -> usize {
        self.neighbours.iter().flatten().filter(|neighbour| neighbour.is_up()).count()
    }

    // ---- A turn -----------------------------------------------------------------

    /// Takes what neighbours have told of. Returns the number of units.
    pub(crate) fn receive<E: Engine>(
        &mut self,
        engine: &mut E,
        now: Instant,
        counters: &mut Counters,
    ) -> u32 {
        self.turns = self.turns.wrapping_add(1);
        self.has_slept = self.armed.swap(false, Ordering::Relaxed);
        if self.has_slept {
            self.neighbours.iter().flatten().for_each(Neighbour::wake);
        }
        if self.has_slept || self.is_meeting || self.turns.is_multiple_of(LOOK_EVERY) {
            self.is_meeting = false;
            self.look(engine, now);
        }
        let mut received = 0;
        for number in 0..self.neighbours.len() {
            received += self.receive_from(number, engine, now, counters);
        }
        self.busy = if received > 0 { BUSY_TURNS } else { self.busy.saturating_sub(1) };
        received
    }

    /// Need the socket not be looked at in this turn?
    pub(crate) fn skips_socket(&self) -> bool {
        self.busy > 0 && !self.has_slept && !self.turns.is_multiple_of(SOCKET_EVERY)
    }

    /// Tells a neighbour of the next units, if they are for one. Returns how many; none where it
    /// has no room. Nothing: they are not for a neighbour.
    pub(crate) fn send<E: Engine>(
        &mut self,
        outbox: &mut Outbox,
        engine: &mut E,
        now: Instant,
        counters: &mut Counters,
    ) -> Option<usize> {
        let Peer::Socket(to) = outbox.front()?.to else { return None };
        let number = self.route(to, now)?;
        let run = outbox.front_run()?;
        let neighbour = self.neighbours.get_mut(number)?.as_mut()?;
        if neighbour.reap(engine, now).is_err() {
            self.end(number, engine, now);
            return None;
        }
        let said = (&self.control, counters);
        match neighbour.tell(outbox, &run, (engine, now), said) {
            Sent::Queued => {
                self.busy = BUSY_TURNS;
                Some(run.count)
            }
            Sent::Later => Some(0),
            Sent::NotHere => None,
        }
    }

    /// The end of a turn: rings anyone who sleeps, and sees whether all still read.
    pub(crate) fn finish<E: Engine>(&mut self, engine: &mut E, now: Instant) {
        let is_tick = now >= self.tick_at;
        if is_tick {
            self.tick_at = now + TICK;
        }
        for number in 0..self.neighbours.len() {
            let Some(neighbour) = &mut self.neighbours[number] else { continue };
            let mut is_gone = neighbour.ring(&self.control).is_err();
            if is_tick {
                is_gone |= neighbour.reap(engine, now).is_err() || neighbour.is_stalled(now);
            }
            if is_gone {
                self.end(number, engine, now);
            }
        }
    }

    /// When a turn makes sense, even if nothing comes.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let is_owed = self.neighbours.iter().flatten().any(Neighbour::is_owing);
        is_owed.then_some(self.tick_at)
    }

    /// A thread is about to sleep at the descriptor: neighbours ring from here on. What they
    /// did before they did silently, so it is looked once more.
    pub(crate) fn fall_asleep(&self) {
        let epoch = self.epoch.fetch_add(1, Ordering::Relaxed) + 1;
        for neighbour in self.neighbours.iter().flatten() {
            neighbour.fall_asleep(epoch);
        }
        self.armed.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.neighbours.iter().flatten().any(Neighbour::has_more) {
            // It is full only where there is a message that wakes.
            let _ = self.control.send(self.control.name(), &ControlMessage::Wake, None);
        }
    }

    // ---- Frames -----------------------------------------------------------------

    fn receive_from<E: Engine>(
        &mut self,
        number: usize,
        engine: &mut E,
        now: Instant,
        counters: &mut Counters,
    ) -> u32 {
        let Some(Some(neighbour)) = self.neighbours.get_mut(number) else { return 0 };
        if neighbour.reap(engine, now).is_err() {
            self.end(number, engine, now);
            return 0;
        }
        let (mut units, mut bytes) = (0, 0);
        for _ in 0..FRAMES_PER_TURN {
            if bytes >= BYTES_PER_TURN {
                break;
            }
            match self.receive_frame(number, engine, now, counters) {
                Ok(Some((count, len))) => {
                    units += count;
                    bytes += len;
                }
                Ok(None) => break,
                Err(Broken) => {
                    counters.malformed += 1;
                    self.end(number, engine, now);
                    break;
                }
            }
        }
        self.pins.release();
        if self.neighbour(number).is_some_and(Neighbour::has_ended) {
            self.end(number, engine, now);
        }
        units
    }

    /// Deals with the next frame of a neighbour. Returns how many units and bytes it had.
    fn receive_frame<E: Engine>(
        &mut self,
        number: usize,
        engine: &mut E,
        now: Instant,
        counters: &mut Counters,
    ) -> Result<Option<(u32, usize)>, Broken> {
        let Some(Some(neighbour)) = self.neighbours.get_mut(number) else { return Ok(None) };
        let Some((frame, payload_at)) = neighbour.next(&mut self.heads)? else { return Ok(None) };
        let file: Option<PieceView> = match frame.place {
            Place::File { id, .. } => {
                if neighbour.file(id).is_none() {
                    // The message with it was sent before the frame was written.
                    self.read_letters(engine, now);
                }
                self.neighbour(number).and_then(|neighbour| neighbour.file(id)).cloned()
            }
            _ => None,
        };
        let Some(Some(neighbour)) = self.neighbours.get_mut(number) else { return Ok(None) };
        let Some(queue) = neighbour.their_queue() else { return Ok(None) };
        let source = match (frame.place, &file) {
            (Place::Inline, _) => Some(Source::Mapped(queue.view(), payload_at)),
            (Place::File { offset, .. }, Some(file)) => {
                let end = offset.checked_add(frame.payload as u64);
                let fits = end.is_some_and(|end| end <= file.len());
                fits.then_some(Source::Mapped(file, offset as usize))
            }
            (Place::File { .. }, None) => None,
            (Place::Address(address), _) => neighbour
                .process()
                .map(|process| Source::Process(neighbour.pid(), process.as_fd(), address)),
        };
        let mut units = frame.units as u32;
        if let Some(source) = source {
            let (heads, from) = (&self.heads[..], Peer::Socket(neighbour.at));
            let arrived = Arrived { frame, heads, source, from, queue };
            let mut turn = Turn { engine, now, pins: &mut self.pins, counters };
            units = self.placer.settle(&mut turn, &arrived);
        } else {
            // It names what it was not given, or did not give: the units are lost.
            counters.malformed += u64::from(units);
        }
        neighbour.advance(&frame);
        Ok(Some((units, frame.payload)))
    }

    fn neighbour(&self, number: usize) -> Option<&Neighbour> {
        self.neighbours.get(number)?.as_ref()
    }

    // ---- Letters, and who is gone -----------------------------------------------

    fn look<E: Engine>(&mut self, engine: &mut E, now: Instant) {
        let Ok(ready) = self.readiness.wait(std::time::Duration::ZERO) else { return };
        for number in ready {
            if number == CONTROL {
                self.read_letters(engine, now);
            } else {
                // Its process has ended. What it wrote is still there, and is read first.
                let number = number as usize - 1;
                let has_more = self.neighbour(number).and_then(Neighbour::their_queue);
                if !has_more.is_some_and(FrameQueueView::has_more) {
                    self.end(number, engine, now);
                }
            }
        }
    }

    fn read_letters<E: Engine>(&mut self, engine: &mut E, now: Instant) {
        for _ in 0..LETTERS_PER_TURN {
            match self.control.receive() {
                Ok(Some(Ok(received))) => self.take_message(received, engine, now),
                Ok(Some(Err(_))) => {}
                Ok(None) | Err(_) => break,
            }
        }
    }

    fn take_message<E: Engine>(&mut self, received: Received, engine: &mut E, now: Instant) {
        let Received { message, from, pid, file } = received;
        if let ControlMessage::Hello(hello) = message {
            if let Some(file) = file {
                self.handle_hello(&hello, &from, pid, file, (engine, now));
            }
            return;
        }
        let is_its = |neighbour: &Option<Neighbour>| {
            neighbour.as_ref().is_some_and(|known| {
                (known.name == from && known.pid() == pid)
                    && message.queue().is_some_and(|nonce| known.has_shown(nonce))
            })
        };
        let found = self.neighbours.iter().position(is_its);
        let neighbour = found.and_then(|number| self.neighbours[number].as_mut());
        match (message, neighbour, file) {
            (ControlMessage::File { id, .. }, Some(neighbour), Some(file)) => {
                neighbour.take_file(id, file);
            }
            (ControlMessage::Forget { id, .. }, Some(neighbour), None) => neighbour.forget_file(id),
            (ControlMessage::Bye(_), Some(_), None) => {
                self.end(found.unwrap_or_default(), engine, now);
            }
            (_, _, file) => close_aside(file),
        }
    }

    /// Somebody shows its queue.
    fn handle_hello<E: Engine>(
        &mut self,
        hello: &Hello,
        from: &Name,
        pid: i32,
        file: OwnedFd,
        (engine, now): (&mut E, Instant),
    ) {
        let is_named = Name::candidates(hello.from).any(|name| name == *from);
        let is_for_us = hello.to.port() == self.local.port()
            && (self.local.ip().is_unspecified() || hello.to.ip() == self.local.ip())
            && self.is_local(hello.to.ip());
        if !is_named || !is_for_us || !self.is_local(hello.from.ip()) {
            return close_aside([file]);
        }
        let known = self.near.get(&hello.from).copied();
        let is_other = |number: &usize| {
            self.neighbour(*number).is_some_and(|known| {
                let has_post = known.their_queue().is_some();
                has_post && (!known.has_shown(hello.nonce) || known.pid() != pid)
            })
        };
        if let Some(number) = known.filter(is_other) {
            // It has begun anew, or another process has come in its place.
            self.end(number, engine, now);
        }
        let number = match self.near.get(&hello.from) {
            Some(number) => Some(*number),
            None => self.add(hello.from, hello.to, *from, now),
        };
        let Some(number) = number else { return close_aside([file]) };
        let Some(Some(neighbour)) = self.neighbours.get_mut(number) else { return };
        // The one who answers may have the name of all addresses.
        neighbour.name = *from;
        let was_watched = neighbour.process().is_some();
        let answer = neighbour.handle_hello(hello, pid, file);
        let is_watched = match neighbour.process() {
            Some(process) if !was_watched => {
                self.readiness.add(interest_in(process.as_fd()), number as u64 + 1).is_ok()
            }
            process => process.is_some(),
        };
        let is_answered = match answer {
            Ok(true) => neighbour.ask(&self.control, now) != Err(NotSent::Nobody),
            Ok(false) => true,
            Err(Broken) => false,
        };
        if !is_watched || !is_answered {
            self.end(number, engine, now);
        }
    }

    // ---- Who is at which address ------------------------------------------------

    /// The neighbour that this address leads to, if it is one that was met. If it may be one,
    /// it is asked.
    fn route(&mut self, to: SocketAddr, now: Instant) -> Option<usize> {
        if let Some((at, number)) = self.last
            && at == to
        {
            return Some(number);
        }
        if !self.is_local(to.ip()) {
            return None;
        }
        let Some(number) = self.near.get(&to).copied() else {
            let is_absent = self.absent.get(&to).is_some_and(|absent| now < absent.until);
            if !is_absent {
                self.seek(to, now);
            }
            return None;
        };
        let neighbour = self.neighbours.get_mut(number)?.as_mut()?;
        if neighbour.is_up() {
            self.absent.remove(&to);
            self.last = Some((to, number));
            return Some(number);
        }
        self.is_meeting = true;
        if neighbour.is_overdue(now) {
            let is_enough = neighbour.asked >= MOST_ASKED;
            if is_enough || neighbour.ask(&self.control, now) == Err(NotSent::Nobody) {
                self.remove(number, now);
            }
        }
        None
    }

    /// Asks anyone who may be at this address to hello.
    fn seek(&mut self, to: SocketAddr, now: Instant) {
        let Some(here) = self.source_for(to) else { return self.note_absent(to, now) };
        // There is no queue for it before somebody is there.
        let mut names = Name::candidates(to);
        let is_there = |name: &Name| {
            *name != *self.control.name()
                && self.control.send(name, &ControlMessage::Wake, None) != Err(NotSent::Nobody)
        };
        let Some(name) = names.find(is_there) else { return self.note_absent(to, now) };
        let Some(number) = self.add(to, here, name, now) else {
            return self.note_absent(to, now);
        };
        let Some(Some(neighbour)) = self.neighbours.get_mut(number) else { return };
        if neighbour.ask(&self.control, now) == Err(NotSent::Nobody) {
            self.remove(number, now);
        }
    }

    /// A neighbour that was not met yet, if there is room for one more.
    fn add(&mut self, at: SocketAddr, here: SocketAddr, name: Name, now: Instant) -> Option<usize> {
        let number = match self.neighbours.iter().position(Option::is_none) {
            Some(number) => number,
            None if self.neighbours.len() < MOST_NEIGHBOURS => {
                self.neighbours.push(None);
                self.neighbours.len() - 1
            }
            None => return None,
        };
        self.neighbours[number] = Some(Neighbour::new(at, here, name, now)?);
        self.near.insert(at, number);
        Some(number)
    }

    /// Takes a neighbour out of the table. For a while its address leads to the socket.
    fn remove(&mut self, number: usize, now: Instant) -> Option<Neighbour> {
        let neighbour = self.neighbours.get_mut(number)?.take()?;
        if let Some(process) = neighbour.process() {
            self.readiness.remove(interest_in(process.as_fd()));
        }
        self.near.remove(&neighbour.at);
        self.last = None;
        self.note_absent(neighbour.at, now);
        Some(neighbour)
    }

    /// A neighbour is gone, or not to be relied on: what it was told of is free.
    fn end<E: Engine>(&mut self, number: usize, engine: &mut E, now: Instant) {
        if let Some(neighbour) = self.remove(number, now) {
            neighbour.end(engine, now, &self.control);
        }
    }

    fn note_absent(&mut self, at: SocketAddr, now: Instant) {
        if self.absent.len() >= MOST_ABSENT {
            self.absent.clear();
        }
        let absent = self.absent.entry(at).or_insert(Absent { until: now, doublings: 0 });
        absent.until = now + ABSENT.saturating_mul(1 << absent.doublings);
        absent.doublings = (absent.doublings + 1).min(MOST_DOUBLINGS);
    }

    fn is_local(&self, ip: IpAddr) -> bool {
        ip.is_loopback() || self.addresses.contains(&ip)
    }

    /// From which address packets come there.
    fn source_for(&self, to: SocketAddr) -> Option<SocketAddr> {
        if !self.local.ip().is_unspecified() {
            return Some(self.local);
        }
        let any: IpAddr = match to {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = UdpSocket::bind((any, 0)).ok()?;
        socket.connect(to).ok()?;
        Some(SocketAddr::new(socket.local_addr().ok()?.ip(), self.local.port()))
    }
}

impl AsFd for SameHost {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.readiness.as_fd()
    }
}

fn interest_in(fd: BorrowedFd<'_>) -> Interest {
    Interest { fd: fd.as_raw_fd(), readable: true, writable: false }
}
