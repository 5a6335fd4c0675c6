//! One connection that is carried: what its program on this host does is told to the other
//! carrier, and what that one tells is done here.
//!
//! What is told is in order: bytes come before the end of them, and a change of ways before
//! what goes the new way. No more bytes are under way than the ring of the other program has
//! room for, so anyone who reads slowly keeps no other connection of the two hosts waiting.

use std::collections::VecDeque;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use landfall::stp::{Operation, Part, Region, Sent};

use super::frame::{Batch, Frame, LONGEST};
use super::link::Link;
use super::mapping::{Broken, Mapping};
use super::waking::{DueBells, ProgramBell};
use crate::between_hosts::{Answer, LEFT};
use crate::connection::{CLOSED, NOBODY, RESET, SHUT};
use crate::kernel;
use crate::registry::Name;
use crate::ring::{self, Incoming, Outgoing, ROOM_BY_BELL, ROOM_BY_MEMORY, ROOM_BY_TCP};
use crate::segment::{CARRIED_CAPACITY, Direction, Role};
use crate::socket_diag::SocketDiag;

/// How long an offer stays that the program here has not taken.
const OFFER: Duration = Duration::from_secs(10);
/// How often is looked at what nobody tells: a program that was killed.
const SELDOM: Duration = Duration::from_millis(500);
/// How many processes of a connection are woken; one more takes the place of the first.
const MOST_BELLS: usize = 8;
/// The other carrier is told of this many bytes that were taken, and not of each.
const WORTH_TELLING: u64 = CARRIED_CAPACITY / 4;

/// From this many bytes on they leave from the ring itself, beside the batches.
const WORTH_A_TRANSFER: u64 = 16 * 1024;
/// This many leave at once.
const LONGEST_TRANSFER: u64 = 256 * 1024;
/// This many parts of a stream are under way at a time.
const MOST_UNDER_WAY: usize = 32;
/// This many parts may have come before one that comes first.
const MOST_EARLY: usize = 64;

/// After this many links that were lost it is left to TCP.
const MOST_LOST_LINKS: u32 = 3;

/// A part of the stream that has left the ring, or is about to.
struct UnderWay {
    end: u64,
    /// The Transfer that carries it; nothing where it was copied into a batch.
    transfer: Option<Operation<Sent>>,
}

/// A program's connection that a carrier carries, with the memory that both share.
pub(super) struct CarriedConnection {
    memory: Arc<Mapping>,
    /// The same for a link whose Transfers go from ring to ring.
    region: Option<Region>,
    /// The end of the program on this host.
    pub(super) role: Role,
    pub(super) name: Name,
    bells: Vec<Rc<ProgramBell>>,
    /// The other carrier has memory for it, too.
    is_open: bool,
    /// What the program had told when its words were looked at last.
    seen: Option<u32>,
    told: Reported,
    /// Bytes that left, of how many the place is free again, and how many the other program
    /// has taken.
    sent: u64,
    released: u64,
    under_way: VecDeque<UnderWay>,
    taken_there: u64,
    /// Bytes that are in the program's ring up to the first that is missing, those behind it,
    /// and of how many it was told that they are taken.
    received: u64,
    early: Vec<Range<u64>>,
    taken_told: u64,
    /// How the other program has ended, and behind how many bytes.
    ends: Option<(u32, u64)>,
    /// What comes is of no use to anybody.
    drops_all: bool,
    owes_known: bool,
    /// The kernel says that no process has the program's end any more.
    has_left: bool,
    /// The other carrier has told how it ended.
    is_all_heard: bool,
    /// The program there has not taken what was offered: nothing is carried.
    is_off: bool,
    is_broken: bool,
    /// Links that were lost before the other carrier had answered.
    lost_links: u32,
    began: Instant,
    asked: Instant,
}

/// What was told of the program until now.
#[derive(Debug, Default)]
struct Reported {
    is_here: bool,
    is_switched: bool,
    ended: u32,
    unwanted: u32,
}

/// Nothing more comes after this.
const fn is_last(how: u32) -> bool {
    matches!(how, CLOSED | RESET | LEFT)
}

impl CarriedConnection {
    pub(super) fn new(memory: Arc<Mapping>, role: Role, name: Name, now: Instant) -> Self {
        Self {
            memory,
            region: None,
            role,
            name,
            bells: Vec::new(),
            // Who is called has memory before it says so.
            is_open: role == Role::Acceptor,
            seen: None,
            told: Reported::default(),
            sent: 0,
            released: 0,
            under_way: VecDeque::new(),
            taken_there: 0,
            received: 0,
            early: Vec::new(),
            taken_told: 0,
            ends: None,
            drops_all: false,
            owes_known: false,
            has_left: false,
            is_all_heard: false,
            is_off: false,
            is_broken: false,
            lost_links: 0,
            began: now,
            asked: now,
        }
    }

    /// One more process that has the program's end.
    pub(super) fn join(&mut self, bell: Rc<ProgramBell>) {
        if self.bells.iter().any(|known| Rc::ptr_eq(known, &bell)) {
            return;
        }
        if self.bells.len() == MOST_BELLS {
            self.bells.remove(0);
        }
        self.bells.push(bell);
    }

    /// Whether nothing is left to carry.
    pub(super) fn is_over(&self) -> bool {
        let is_done = is_last(self.told.ended) && self.is_all_heard && self.under_way.is_empty();
        self.is_broken || self.is_off || is_done
    }

    /// Both programs shall hear of a reset; whether that is new.
    pub(super) fn breaks(&mut self, due: &mut DueBells) -> bool {
        if self.is_over() {
            self.is_broken = true;
            return false;
        }
        self.is_broken = true;
        let between = self.memory.between();
        let _ = between.is_broken.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed);
        let how = &self.theirs().sending.has_ended;
        let _ = how.compare_exchange(0, RESET, Ordering::AcqRel, Ordering::Relaxed);
        self.ours().receiving.has_ended.store(CLOSED, Ordering::Release);
        self.wake_program(due);
        true
    }

    /// It is not carried: the program learns why.
    pub(super) fn refuse(&mut self, answer: Answer, due: &mut DueBells) {
        self.is_off = true;
        self.memory.between().verdict.store(answer as u32, Ordering::Release);
        self.wake_program(due);
    }

    /// The other carrier has made memory for it.
    pub(super) fn opened(&mut self) {
        self.is_open = true;
        self.seen = None;
        self.memory.between().verdict.store(Answer::Offered as u32, Ordering::Release);
    }

    /// Counts one more link that was lost before there was an answer; whether another one is
    /// worth a try.
    pub(super) const fn may_be_called_again(&mut self) -> bool {
        self.lost_links += 1;
        self.lost_links <= MOST_LOST_LINKS
    }

    pub(super) fn is_opening(&self) -> bool {
        !self.is_open && !self.is_over()
    }

    /// The direction in which the program here sends.
    fn ours(&self) -> &Direction {
        self.memory.direction_from(self.role)
    }

    /// The direction in which the other program sends.
    fn theirs(&self) -> &Direction {
        self.memory.direction_from(self.role.other())
    }

    /// The ends of the rings that the other program would have.
    fn rings(&self) -> (Outgoing<'_>, Incoming<'_>) {
        ring::ends(**self.memory, self.role.other())
    }

    /// Wakes anyone who sleeps at this end, however it does.
    fn wake_program(&self, due: &mut DueBells) {
        let (outgoing, incoming) = self.rings();
        kernel::wake(outgoing.word_of_bytes(), i32::MAX);
        kernel::wake(incoming.word_of_room(), i32::MAX);
        due.add(&self.bells);
    }

    /// From here on the program wakes the carrier when it does something; whether it has
    /// already.
    pub(super) fn wants_to_be_woken(&self) -> bool {
        let between = self.memory.between();
        between.carrier_sleeps.store(1, Ordering::SeqCst);
        self.seen != Some(between.bell.load(Ordering::SeqCst))
    }

    /// The carrier is awake.
    pub(super) fn is_looked_after(&self) {
        self.memory.between().carrier_sleeps.store(0, Ordering::Relaxed);
    }

    /// Whether the program has done something since its words were looked at, or something of
    /// its may have arrived.
    pub(super) fn note_change(&self) -> bool {
        let has_done = self.seen != Some(self.memory.between().bell.load(Ordering::Acquire));
        has_done || !self.under_way.is_empty()
    }

    /// Lets Transfers go from ring to ring.
    pub(super) fn register(&mut self, link: &Link) {
        self.region = link.register(&self.memory);
    }

    /// Tells what the program has done since, as far as there is room in the batch; whether
    /// that was something.
    pub(super) fn tell(
        &mut self,
        id: u32,
        link: &Link,
        (batch, due): (&mut Batch, &mut DueBells),
        cx: &mut Context<'_>,
    ) -> Result<bool, Broken> {
        self.release_what_arrived(due, cx)?;
        let bell = self.memory.between().bell.load(Ordering::SeqCst);
        if !self.is_open || self.is_over() {
            self.seen = Some(bell);
            return Ok(false);
        }
        // Each of them is told once, so there is room.
        let mut is_new = false;
        let own = self.ours();
        let is_here = self.memory.end(self.role).is_here.load(Ordering::Acquire) != 0;
        // How it ended is looked at before its last bytes are.
        let ended = match own.sending.has_ended.load(Ordering::Acquire) {
            0 | SHUT if self.has_left => LEFT,
            how @ ..=CLOSED => how,
            _ => RESET,
        };
        let switched = own.sending.switched.load(Ordering::SeqCst);
        let unwanted = self.theirs().receiving.has_ended.load(Ordering::Acquire).min(CLOSED);
        let mut once = |told: &mut bool, is_so: bool, frame: Frame| {
            if is_so && !std::mem::replace(told, true) {
                batch.push(id, frame);
                is_new = true;
            }
        };
        once(&mut self.told.is_here, is_here, Frame::Here);
        once(&mut self.told.is_switched, switched != 0, Frame::Switched(switched));
        let mut known = !self.owes_known;
        once(&mut known, true, Frame::Known);
        self.owes_known = false;
        if unwanted > self.told.unwanted {
            self.told.unwanted = unwanted;
            batch.push(id, Frame::Unwanted(unwanted));
            is_new = true;
        }
        self.drops_all |= unwanted == CLOSED || self.has_left;
        is_new |= self.announce_room(id, batch)?;
        // A change of ways that came since the look above is told before its bytes are.
        let mut is_all = true;
        if self.told.is_switched {
            let (sent, is_left) = self.send_bytes(id, link, batch)?;
            self.release_what_arrived(due, cx)?;
            is_new |= sent;
            is_all = !is_left;
        }
        if is_all && ended > self.told.ended {
            self.told.ended = ended;
            batch.push(id, Frame::Ended { how: ended, at: self.sent });
            is_new = true;
        }
        // Whatever has no room in this batch is looked at again.
        self.seen = (is_all || batch.room() > 0).then_some(bell);
        if is_last(ended) && is_all && self.has_left {
            self.name.forget();
        }
        Ok(is_new)
    }

    /// Sends bytes of the program's ring: short ones are copied into the batch, many go from
    /// where they are. Whether there were some, and whether more are left.
    fn send_bytes(
        &mut self,
        id: u32,
        link: &Link,
        batch: &mut Batch,
    ) -> Result<(bool, bool), Broken> {
        let begin = self.sent;
        loop {
            let head = self.rings().1.put_in(self.released)?;
            let allowed = self.taken_there + CARRIED_CAPACITY - self.sent;
            let most = (head - self.sent).min(allowed);
            let is_room = self.under_way.len() < MOST_UNDER_WAY;
            let sent = match most {
                WORTH_A_TRANSFER.. if is_room => self.send_from_ring(id, link, most),
                _ => None,
            };
            let sent = match sent {
                Some(sent) => sent,
                None if is_room => self.send_in_batch(id, most, batch),
                None => 0,
            };
            if sent == 0 {
                return Ok((self.sent > begin, head > self.sent));
            }
            self.sent += sent;
        }
    }

    /// Lets bytes leave from the ring, in a Transfer; nothing where that cannot be.
    fn send_from_ring(&mut self, id: u32, link: &Link, most: u64) -> Option<u64> {
        let place = self.sent % CARRIED_CAPACITY;
        let len = most.min(CARRIED_CAPACITY - place).min(LONGEST_TRANSFER);
        if len < WORTH_A_TRANSFER {
            return None;
        }
        let from = self.memory.place_of_ring_from(self.role) + place;
        let part = self.region.as_ref()?.part(from..from + len).ok()?;
        let transfer = Some(link.send_part(part, id, place)?);
        self.under_way.push_back(UnderWay { end: self.sent + len, transfer });
        Some(len)
    }

    fn send_in_batch(&mut self, id: u32, most: u64, batch: &mut Batch) -> u64 {
        let most = most.min(LONGEST as u64).min(batch.room() as u64);
        if most > 0 {
            let (_, incoming) = self.rings();
            batch.push_bytes(id, self.sent, most as usize, |into| incoming.copy(self.sent, into));
            self.under_way.push_back(UnderWay { end: self.sent + most, transfer: None });
        }
        most
    }

    /// Gives the program the places back of what has arrived, or was copied.
    fn release_what_arrived(
        &mut self,
        due: &mut DueBells,
        cx: &mut Context<'_>,
    ) -> Result<(), Broken> {
        let before = self.released;
        while let Some(UnderWay { end, transfer }) = self.under_way.front_mut() {
            match transfer.as_mut().map(|transfer| Pin::new(transfer).poll(cx)) {
                None | Some(Poll::Ready(Ok(_))) => {}
                Some(Poll::Ready(Err(_))) => return Err(Broken::There),
                Some(Poll::Pending) => break,
            }
            self.released = *end;
            self.under_way.pop_front();
        }
        if self.released > before {
            let (_, incoming) = self.rings();
            incoming.release(self.released);
            let how = incoming.takes_the_wish_for_room();
            if how & ROOM_BY_MEMORY != 0 {
                kernel::wake(incoming.word_of_room(), i32::MAX);
            }
            if how & ROOM_BY_TCP != 0 {
                due.add(&self.bells);
            }
        }
        Ok(())
    }

    /// How many of the bytes that came the program has taken, or will never want.
    fn taken_here(&self) -> Result<u64, Broken> {
        match self.drops_all {
            true => Ok(self.received),
            false => Ok(self.rings().0.taken()?),
        }
    }

    /// Tells the other carrier of bytes that were taken; asks the program to tell of more, if
    /// the other may soon have none left to send.
    fn announce_room(&mut self, id: u32, batch: &mut Batch) -> Result<bool, Broken> {
        if self.wants_to_know_of_room() {
            // What it says of room is looked at here.
            let _ = self.rings().0.wants_room(ROOM_BY_BELL);
        }
        let taken = self.taken_here()?;
        if taken.saturating_sub(self.taken_told) < WORTH_TELLING {
            return Ok(false);
        }
        self.taken_told = taken;
        batch.push(id, Frame::Taken(taken));
        Ok(true)
    }

    /// Whether so much has come that the other carrier may soon send nothing more.
    const fn wants_to_know_of_room(&self) -> bool {
        self.received - self.taken_told >= CARRIED_CAPACITY / 2
    }

    /// Does what the other carrier tells.
    pub(super) fn handle(
        &mut self,
        frame: Frame,
        tail: &[u8],
        due: &mut DueBells,
    ) -> Result<(), Broken> {
        let between = self.memory.between();
        let other = self.theirs();
        match frame {
            Frame::Here => {
                self.memory.end(self.role.other()).is_here.store(1, Ordering::Release);
                between.note_change();
                self.wake_program(due);
            }
            Frame::Switched(number) => {
                if other.sending.switched.swap(number, Ordering::SeqCst) != 0 {
                    return Err(Broken::ByCarrier);
                }
                between.note_change();
                (self.owes_known, self.seen) = (true, None);
                self.publish(due);
                self.wake_program(due);
            }
            Frame::Known => between.may_ring.store(1, Ordering::Release),
            Frame::Bytes { at, .. } => {
                if other.sending.switched.load(Ordering::Relaxed) == 0 {
                    return Err(Broken::ByCarrier);
                }
                self.may_come(at, tail.len() as u64)?;
                let (outgoing, _) = self.rings();
                if !self.drops_all {
                    outgoing.prepares(at, tail.len() as u64)?;
                    outgoing.place(at, tail);
                }
                return self.landed(at, tail.len() as u64, due);
            }
            Frame::Taken(sum) => {
                if sum < self.taken_there || sum > self.sent {
                    return Err(Broken::ByCarrier);
                }
                (self.taken_there, self.seen) = (sum, None);
            }
            Frame::Ended { how, at } => {
                let is_later = self.ends.is_some_and(|(before, end)| before >= how || end != at);
                if is_later || at < self.received || at > self.taken_told + CARRIED_CAPACITY {
                    return Err(Broken::ByCarrier);
                }
                self.ends = Some((how, at));
                self.end_if_all_came(due);
            }
            Frame::Unwanted(how) => {
                self.ours().receiving.has_ended.fetch_max(how, Ordering::AcqRel);
                self.wake_program(due);
            }
            Frame::Nobody if self.role == Role::Connector => self.refuse(Answer::Nobody, due),
            Frame::Broken => return Err(Broken::There),
            Frame::Nobody | Frame::Alive | Frame::Open | Frame::Opened(_) => {
                return Err(Broken::ByCarrier);
            }
        }
        Ok(())
    }

    /// Where bytes belong that the other carrier sends from ring to ring, and their position.
    pub(super) fn place(&mut self, place: u64, len: u64) -> Option<(u64, Part)> {
        // Less than one round of the ring is under way.
        let at = self.received + place.wrapping_sub(self.received) % CARRIED_CAPACITY;
        let is_within =
            len > 0 && place + len <= CARRIED_CAPACITY && self.may_come(at, len).is_ok();
        if !is_within || self.rings().0.prepares(at, len).is_err() {
            return None;
        }
        let from = self.memory.place_of_ring_from(self.role.other()) + place;
        Some((at, self.region.as_ref()?.part(from..from + len).ok()?))
    }

    /// Whether bytes at this position are within what was allowed, and before the end.
    fn may_come(&self, at: u64, len: u64) -> Result<(), Broken> {
        let end = at.checked_add(len).ok_or(Broken::ByCarrier)?;
        let most = self.ends.map_or(u64::MAX, |(_, at)| at).min(self.taken_told + CARRIED_CAPACITY);
        if at < self.received || end > most || self.early.len() >= MOST_EARLY {
            return Err(Broken::ByCarrier);
        }
        Ok(())
    }

    /// Bytes are in the ring: the program hears of those before the first that is missing.
    pub(super) fn landed(&mut self, at: u64, len: u64, due: &mut DueBells) -> Result<(), Broken> {
        self.early.push(at..at + len);
        let before = self.received;
        while let Some(next) = self.early.iter().position(|part| part.start <= self.received) {
            self.received = self.received.max(self.early.swap_remove(next).end);
        }
        if self.received > before {
            self.publish(due);
            self.end_if_all_came(due);
        }
        Ok(())
    }

    /// Lets the program take what has come, once it knows that it comes by memory.
    fn publish(&mut self, due: &mut DueBells) {
        let other = self.theirs();
        let has_ended = other.receiving.has_ended.load(Ordering::Acquire);
        if other.sending.switched.load(Ordering::Relaxed) == 0 {
            return;
        }
        if self.drops_all || has_ended == CLOSED || self.has_left {
            (self.drops_all, self.seen) = (true, None);
            return;
        }
        let (outgoing, _) = self.rings();
        outgoing.publish(self.received);
        self.memory.between().note_change();
        fence(Ordering::SeqCst);
        if other.receiving.waiters.has_sleepers() {
            kernel::wake(outgoing.word_of_bytes(), i32::MAX);
        }
        if outgoing.takes_the_wish_to_be_rung() {
            due.add(&self.bells);
        }
        if self.wants_to_know_of_room() {
            self.seen = None;
        }
    }

    /// The other program has ended, and all that it sent before is here.
    fn end_if_all_came(&mut self, due: &mut DueBells) {
        let Some((how, _)) = self.ends.filter(|(_, at)| *at == self.received) else { return };
        self.theirs().sending.has_ended.fetch_max(how, Ordering::AcqRel);
        if is_last(how) {
            self.ours().receiving.has_ended.store(CLOSED, Ordering::Release);
            self.is_all_heard = true;
        }
        self.memory.between().note_change();
        self.wake_program(due);
    }

    /// Looks at what nobody tells, now and then; what is to be told of it.
    pub(super) fn look_after(&mut self, now: Instant, diag: &SocketDiag) -> Option<Frame> {
        if self.is_over() || now.duration_since(self.asked) < SELDOM {
            return None;
        }
        self.asked = now;
        // Should the program's word have been lost.
        self.seen = None;
        let end = self.memory.end(self.role);
        let cookie = end.cookie.load(Ordering::Acquire);
        if cookie == 0 {
            let is_late = now.duration_since(self.began) >= OFFER;
            let takes_back =
                || end.cookie.compare_exchange(0, NOBODY, Ordering::AcqRel, Ordering::Relaxed);
            if is_late && takes_back().is_ok() {
                self.name.forget();
                self.is_off = true;
                return Some(Frame::Nobody);
            }
        } else if self.memory.is_left(diag, &self.name, self.role, cookie) {
            self.has_left = true;
        }
        None
    }
}

#[cfg(test)]
mod tests;
