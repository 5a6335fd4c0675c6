//! [`Neighbour`]: a process of this host and user at the other end of a UDP address: the queues
//! of both, the files that each knows of the other, and what it has been told of and has not
//! read yet.

use std::collections::VecDeque;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::sync::atomic::{Ordering, fence};

use landfall_placement::{Duration, Engine, Instant, Ticket};

use super::control::{ControlMessage, ControlSocket, Hello, Name, NotSent};
use super::frame_queue::{Broken, Frame, FrameQueue, FrameQueueView, Place, RING_LEN};
use super::placer::read_process;
use crate::driver::Counters;
use crate::exchange::{FrontRun, Outbox};
use crate::memory::{
    ExportedFile, PieceView, Pinned, RawSpan, SharedView, exported_changes, file_at, is_mapped,
};

/// Up to here payloads are copied into the ring: to look up where they lie takes as long.
const INLINE: usize = 2048;
/// The most files that one side knows of the other.
const MOST_FILES: usize = 64;
/// A neighbour that reads nothing for so long is left alone: it was stopped, or its path is
/// down. What it was told of is taken back.
const PATIENCE: Duration = Duration::from_secs(1);
/// While the ring is full and nothing is read for so long, units take the socket.
const ROOM_PATIENCE: Duration = Duration::from_millis(20);

/// A frame that the neighbour has not read yet, whose payload it takes from its place.
#[derive(Debug)]
struct PendingFrame {
    /// Where in the queue its frame ends.
    end: u64,
    ticket: Option<Ticket>,
    _pinned: Pinned,
}

/// The other side, once it has shown its queue.
#[derive(Debug)]
struct NeighbourQueue {
    nonce: u64,
    queue: FrameQueueView,
    /// It knows ours.
    has_ours: bool,
}

/// An endpoint of this host that was met, with the memory that is shared with it.
#[derive(Debug)]
pub(super) struct Neighbour {
    /// What it is to the engine.
    pub(super) at: SocketAddr,
    /// What this side is to it.
    here: SocketAddr,
    pub(super) name: Name,
    /// Readable when it has ended.
    process: Option<OwnedFd>,
    pid: i32,
    nonce: Box<u64>,
    queue: FrameQueue,
    theirs: Option<NeighbourQueue>,
    pending: VecDeque<PendingFrame>,
    /// When it last read something, or had nothing to read.
    read_at: Instant,
    /// How far it had read then.
    read: u64,
    /// The numbers of our files that it has.
    given: Vec<u64>,
    /// The state of the table of files when those were looked at.
    given_at: u64,
    /// The file that was used last, and the state of the table then.
    last_file: Option<(ExportedFile, u64)>,
    got: Vec<(u64, PieceView)>,
    /// Something was written or read that it may not have noticed.
    wrote: bool,
    was_read: bool,
    /// It was told that there was no room.
    wants_room: bool,
    /// It was rung for this sleep.
    rung: u64,
    /// When it was last asked to hello, and how often.
    asked_at: Instant,
    pub(super) asked: u32,
}

/// What became of a run of units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// It is in the queue.
    Queued,
    /// There will be room.
    Later,
    /// Let it take the socket.
    NotHere,
}

impl Neighbour {
    pub(super) fn new(at: SocketAddr, here: SocketAddr, name: Name, now: Instant) -> Option<Self> {
        let mut nonce = [0; 8];
        // SAFETY: room for this many bytes.
        let got = unsafe { libc::getrandom(nonce.as_mut_ptr().cast(), nonce.len(), 0) };
        let nonce = u64::from_ne_bytes(nonce);
        if got != 8 || nonce == 0 {
            return None;
        }
        Some(Self {
            at,
            here,
            name,
            process: None,
            pid: 0,
            nonce: Box::new(nonce),
            queue: FrameQueue::new().ok()?,
            theirs: None,
            pending: VecDeque::new(),
            read_at: now,
            read: 0,
            given: Vec::new(),
            given_at: 0,
            last_file: None,
            got: Vec::new(),
            wrote: false,
            was_read: false,
            wants_room: false,
            rung: 0,
            asked_at: now,
            asked: 0,
        })
    }

    // ---- Meeting ----------------------------------------------------------------

    /// Shows it our queue.
    pub(super) fn ask(&mut self, control: &ControlSocket, now: Instant) -> Result<(), NotSent> {
        let hello = Hello {
            nonce: *self.nonce,
            yours: self.theirs.as_ref().map_or(0, |theirs| theirs.nonce),
            probe: std::ptr::from_ref(&*self.nonce) as u64,
            wants_answer: !self.is_up(),
            from: self.here,
            to: self.at,
        };
        (self.asked_at, self.asked) = (now, self.asked + 1);
        control.send(&self.name, &ControlMessage::Hello(hello), Some(self.queue.memory().fd()))
    }

    /// It has shown a queue. Returns whether it has to be shown ours.
    pub(super) fn handle_hello(
        &mut self,
        hello: &Hello,
        pid: i32,
        file: OwnedFd,
    ) -> Result<bool, Broken> {
        let has_ours = hello.yours == *self.nonce;
        if let Some(theirs) = &mut self.theirs {
            if theirs.nonce != hello.nonce {
                // It has begun anew.
                return Err(Broken);
            }
            theirs.has_ours |= has_ours;
            return Ok(hello.wants_answer);
        }
        let process = process_of(pid).ok_or(Broken)?;
        let queue = FrameQueueView::new(&SharedView::from_sealed_fd(file).map_err(|_| Broken)?)?;
        if can_read(pid, hello) {
            self.queue.set_reads_addresses();
        }
        (self.process, self.pid) = (Some(process), pid);
        self.theirs = Some(NeighbourQueue { nonce: hello.nonce, queue, has_ours });
        Ok(true)
    }

    pub(super) fn process(&self) -> Option<&OwnedFd> {
        self.process.as_ref()
    }

    /// Does each know the other?
    pub(super) fn is_up(&self) -> bool {
        self.theirs.as_ref().is_some_and(|theirs| theirs.has_ours)
    }

    /// Is it this queue of which a message speaks?
    pub(super) fn has_shown(&self, nonce: u64) -> bool {
        self.theirs.as_ref().is_some_and(|theirs| theirs.nonce == nonce)
    }

    /// Was it asked long ago, without an answer?
    pub(super) fn is_overdue(&self, now: Instant) -> bool {
        !self.is_up() && now.since(self.asked_at) > Duration::from_millis(50)
    }

    /// It handed over a file, of which it will tell.
    pub(super) fn take_file(&mut self, id: u64, file: OwnedFd) {
        let is_known = self.got.iter().any(|(known, _)| *known == id);
        if self.got.len() < MOST_FILES
            && !is_known
            && let Ok(view) = SharedView::from_sealed_fd(file)
        {
            self.got.push((id, PieceView::whole(&view)));
        }
    }

    pub(super) fn forget_file(&mut self, id: u64) {
        self.got.retain(|(known, _)| *known != id);
    }

    /// A file that it handed over.
    pub(super) fn file(&self, id: u64) -> Option<&PieceView> {
        self.got.iter().find(|(known, _)| *known == id).map(|(_, view)| view)
    }

    pub(super) const fn pid(&self) -> i32 {
        self.pid
    }

    // ---- Reading what it says ---------------------------------------------------

    pub(super) fn next(&mut self, heads: &mut Vec<u8>) -> Result<Option<(Frame, usize)>, Broken> {
        self.theirs.as_mut().map_or(Ok(None), |theirs| theirs.queue.next(heads))
    }

    pub(super) fn their_queue(&self) -> Option<&FrameQueueView> {
        self.theirs.as_ref().map(|theirs| &theirs.queue)
    }

    /// This frame is dealt with: its memory is the neighbour's again.
    pub(super) fn advance(&mut self, frame: &Frame) {
        let Some(theirs) = &mut self.theirs else { return };
        theirs.queue.advance(frame);
        self.queue.set_read(theirs.queue.position());
        self.was_read = true;
    }

    /// Has it closed its queue, and was all read that it wrote before?
    pub(super) fn has_ended(&self) -> bool {
        self.their_queue().is_some_and(|queue| queue.is_closed() && !queue.has_more())
    }

    /// Is there more to read or more room than is known, or has it ended?
    pub(super) fn has_more(&self) -> bool {
        let has_room =
            |queue: &FrameQueueView| queue.has_read(self.queue.written()) != Ok(self.read);
        self.their_queue().is_some_and(|queue| {
            queue.has_more() || queue.is_closed() || self.wants_room && has_room(queue)
        })
    }

    // ---- Telling it -------------------------------------------------------------

    /// What it has read is free.
    pub(super) fn reap<E: Engine>(&mut self, engine: &mut E, now: Instant) -> Result<(), Broken> {
        let Some(theirs) = &self.theirs else { return Ok(()) };
        let read = theirs.queue.has_read(self.queue.written())?;
        if read < self.read {
            return Err(Broken);
        }
        if read > self.read {
            (self.read, self.read_at) = (read, now);
        }
        while self.pending.front().is_some_and(|pending| pending.end <= read) {
            if let Some(ticket) = self.pending.pop_front().and_then(|pending| pending.ticket) {
                engine.handle_sent(now, ticket);
            }
        }
        Ok(())
    }

    /// Tells it of the first units that wait.
    pub(super) fn tell<E: Engine>(
        &mut self,
        outbox: &mut Outbox,
        run: &FrontRun,
        (engine, now): (&mut E, Instant),
        (control, counters): (&ControlSocket, &mut Counters),
    ) -> Sent {
        let (place, pinned) = self.place_of(outbox, run, control);
        let (units, head_len, each, payload) = (run.count, run.head_len, run.each, run.payload);
        let frame = Frame { place, ecn: run.ecn, units, head_len, each, payload };
        if frame.len() > RING_LEN / 2 {
            return Sent::NotHere;
        }
        if !self.queue.has_room(&frame, self.read) {
            self.set_wants_room(true);
            let has_patience = now.since(self.read_at) < ROOM_PATIENCE;
            return if has_patience { Sent::Later } else { Sent::NotHere };
        }
        self.set_wants_room(false);
        if self.queue.written() == self.read {
            self.read_at = now;
        }
        let at = self.queue.begin(&frame);
        self.queue.write_heads(at, outbox.each().take(units).map(|(_, head, _)| head));
        let is_inline = place == Place::Inline;
        let is_there =
            !is_inline || outbox.copy_payloads(units, self.queue.words(), at + frame.payload_at());
        let ticket = outbox.hand_over(units);
        if is_there {
            self.queue.commit(&frame);
            self.wrote = true;
            counters.units_sent += units as u64;
            counters.bytes_copied += if is_inline { payload as u64 } else { 0 };
        } else {
            // Its grant has ended since it was polled: to the engine it is lost on the way.
            counters.send_failed += units as u64;
        }
        match (pinned, ticket) {
            (Some(pinned), ticket) => {
                let end = self.queue.written();
                self.pending.push_back(PendingFrame { end, ticket, _pinned: pinned });
            }
            (None, Some(ticket)) => engine.handle_sent(now, ticket),
            (None, None) => {}
        }
        Sent::Queued
    }

    fn set_wants_room(&mut self, wants: bool) {
        if self.wants_room != wants {
            self.wants_room = wants;
            self.queue.want_room(wants);
        }
    }

    /// How it is told where the payloads of a run are: by their place where it can read them
    /// there, and what that is worth it. They are held then.
    fn place_of(
        &mut self,
        outbox: &Outbox,
        run: &FrontRun,
        control: &ControlSocket,
    ) -> (Place, Option<Pinned>) {
        let span = run.span.filter(|_| run.payload > INLINE);
        let Some((pinned, place)) = span.and_then(|span| outbox.pin(&span)) else {
            return (Place::Inline, None);
        };
        if let Some(place) = self.place_in_file(place, control) {
            return (place, Some(pinned));
        }
        if self.their_queue().is_some_and(FrameQueueView::reads_addresses) {
            return (Place::Address(place.ptr.as_ptr() as u64), Some(pinned));
        }
        (Place::Inline, None)
    }

    /// Where it finds these bytes in a file that it has, or is given now.
    fn place_in_file(&mut self, place: RawSpan, control: &ControlSocket) -> Option<Place> {
        let changes = exported_changes();
        let offset_in =
            |file: &ExportedFile| file.offset_of(place.ptr, place.len).map(|at| (file.id, at));
        if let Some((file, at)) = &self.last_file
            && *at == changes
            && let Some((id, offset)) = offset_in(file)
        {
            return Some(Place::File { id, offset });
        }
        let file = file_at(place.ptr, place.len)?;
        if self.given_at != changes {
            self.given_at = changes;
            self.given.retain(|id| {
                let forget = ControlMessage::Forget { id: *id, queue: *self.nonce };
                is_mapped(*id) || control.send(&self.name, &forget, None).is_err()
            });
        }
        if !self.given.contains(&file.id) {
            let message = ControlMessage::File { id: file.id, queue: *self.nonce };
            let has_room = self.given.len() < MOST_FILES;
            if !has_room || control.send(&self.name, &message, Some(file.as_fd())).is_err() {
                return None;
            }
            self.given.push(file.id);
        }
        let (id, offset) = offset_in(&file)?;
        self.last_file = Some((file, changes));
        Some(Place::File { id, offset })
    }

    // ---- Sleeping and ending ----------------------------------------------------

    pub(super) fn fall_asleep(&self, epoch: u64) {
        self.queue.fall_asleep(epoch);
    }

    pub(super) fn wake(&self) {
        self.queue.wake();
    }

    /// Rings where it sleeps and something was written, or read for which it waits.
    pub(super) fn ring(&mut self, control: &ControlSocket) -> Result<(), Broken> {
        let Some(theirs) = &self.theirs else { return Ok(()) };
        let (wrote, was_read) = (mem::take(&mut self.wrote), mem::take(&mut self.was_read));
        if !wrote && !was_read {
            return Ok(());
        }
        // What was written is seen by anyone who looks once more before it sleeps, or it is
        // seen here that it sleeps.
        fence(Ordering::SeqCst);
        let asleep = theirs.queue.asleep();
        let is_due = asleep != 0 && asleep != self.rung && (wrote || theirs.queue.wants_room());
        if !is_due {
            return Ok(());
        }
        self.rung = asleep;
        match control.send(&self.name, &ControlMessage::Wake, None) {
            // Full: there is something that wakes it.
            Ok(()) | Err(NotSent::Full) => Ok(()),
            Err(NotSent::Nobody) => Err(Broken),
        }
    }

    /// Has it something to read?
    pub(super) const fn is_owing(&self) -> bool {
        self.queue.written() > self.read
    }

    /// Has it read nothing for a long time?
    pub(super) fn is_stalled(&self, now: Instant) -> bool {
        self.is_owing() && now.since(self.read_at) > PATIENCE
    }

    /// Nothing that it was told of counts any more, and its memory is free.
    pub(super) fn end<E: Engine>(mut self, engine: &mut E, now: Instant, control: &ControlSocket) {
        self.queue.close();
        let _ = control.send(&self.name, &ControlMessage::Bye(*self.nonce), None);
        for pending in self.pending.drain(..) {
            if let Some(ticket) = pending.ticket {
                engine.handle_sent(now, ticket);
            }
        }
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        // Before the pins go: from here on the memory may be used for something else.
        self.queue.close();
    }
}

/// A descriptor that becomes readable when the process ends.
fn process_of(pid: i32) -> Option<OwnedFd> {
    // SAFETY: two numbers, gives a descriptor or -1. The kernel marks it to be closed on exec.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let fd = libc::c_int::try_from(fd).ok().filter(|fd| *fd >= 0)?;
    // SAFETY: the descriptor is new and nobody else's.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Is its memory to be read, and is it this process that wrote the message?
fn can_read(pid: i32, hello: &Hello) -> bool {
    let mut word = [0; 8];
    let into = libc::iovec { iov_base: word.as_mut_ptr().cast(), iov_len: word.len() };
    // SAFETY: the buffer is ours.
    let is_read = unsafe { read_process(pid, hello.probe, into) }.is_ok();
    is_read && u64::from_ne_bytes(word) == hello.nonce
}
