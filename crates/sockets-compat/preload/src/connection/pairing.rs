//! How the two ends of a connection find each other.
//!
//! Within one host the connector's offer is there before the bytes of its second turn are (module
//! `early`), so its acceptor looks when it counts a turn. To another host it is offered at
//! once, and the carriers bring it, a little later: that is looked for with each call, for a
//! while.
//!
//! Neither believes what it finds. The acceptor claims an offer if the kernel says that its
//! connection was called by the socket that offers; the connector goes on if the kernel says
//! that what it has called is the socket which has claimed it. Who is not sure stays with
//! TCP, and then so does the other: nothing goes by memory before both are sure.

use std::ops::Deref;
use std::sync::atomic::Ordering;

use landfall_socket_rules::Transport;

use super::{Call, Connection, Means, Proof, SegmentView, Stage};
use crate::between_hosts::{self, Answer};
use crate::folder::Fault;
use crate::kernel;
use crate::log::Verdict;
use crate::notes::{Kind, Note};
use crate::registry::Name;
use crate::segment::{BetweenHosts, CAPACITY, CARRIED_CAPACITY, End, Role, Segment, Unusable};
use crate::socket_diag::{self, UnprovenReason};
use crate::thread::Section;

/// How often an acceptor may find an offer that it cannot take.
const REFUSALS: u32 = 4;
/// An acceptor counts turns before its connector does, if that says more before it has heard the
/// answer. So it looks at the first turns, then at those of double numbers, later at each of these,
const FIRST_LOOKS: u32 = 4;
const LOOK_EACH: u32 = 32;
/// and at none after this one.
const LAST_LOOK: u32 = 1024;
/// How often a connector tries to offer, if bytes are under way or went past us.
const TRIES: u32 = 8;
/// Stands for the acceptor's cookie where no acceptor may come any more.
pub(crate) const NOBODY: u64 = u64::MAX;
/// Stands for the cookie of an end that is on another host.
pub(crate) const ELSEWHERE: u64 = u64::MAX - 1;
/// After this many turns without an answer a connector takes its offer back: its acceptor has
/// counted as many, and looked,
const PATIENCE: u32 = 2 * LOOK_EACH;
/// but not before the other has said something since, or for so long: it may read late, however
/// much is sent meanwhile.
const SILENT_MS: u64 = 10_000;
/// How long calls of other threads are waited for where it has to be decided, in milliseconds.
const PAUSES: u32 = 5;
/// How often the kernel is asked who has claimed an offer, while it cannot answer.
const QUESTIONS: u32 = 8;
/// How long an acceptor looks for an offer from another host, which the carriers bring.
const FAR_OFFER_MS: u64 = 10_000;

impl Connection {
    /// The program has called somebody: bytes are counted, and memory is offered later. To
    /// another host, by way of the carriers, it is offered at once.
    pub(crate) fn called(fd: i32, name: Name, transport: Transport) -> Result<(), Verdict> {
        if transport != Transport::Memory {
            return Self::calls_by_carrier(fd, name.for_the_carrier(), transport);
        }
        crate::table::insert(fd, |connection| {
            connection.begin(Role::Connector, Stage::Early, name, transport);
        });
        Ok(())
    }

    fn calls_by_carrier(fd: i32, name: Name, transport: Transport) -> Result<(), Verdict> {
        let cookie = kernel::cookie(fd).map_err(Verdict::NoMemory)?;
        let segment = make(&name, Role::Connector, CARRIED_CAPACITY)?;
        introduce(segment, Role::Connector, fd);
        segment.end(Role::Connector).cookie.store(cookie, Ordering::Release);
        let announced = hand_to_the_carrier(segment, &name, transport).inspect_err(|_| {
            name.forget();
            // SAFETY: nobody else uses this mapping.
            unsafe { segment.unmap() };
        })?;
        crate::table::insert(fd, |connection| {
            connection.begin(Role::Connector, Stage::Plain, name, transport);
            connection.announced.store(announced, Ordering::Relaxed);
            connection.adopt(segment, Proof::Open);
        });
        Ok(())
    }

    /// A connection was accepted: its bytes are counted, and an offer looked for.
    pub(crate) fn accepted(fd: i32, name: Name, transport: Transport) {
        crate::table::insert(fd, |connection| {
            connection.begin(Role::Acceptor, Stage::Early, name, transport);
        });
    }

    /// Bytes came by TCP, before there is memory.
    pub(super) fn has_received_early(&self, fd: i32) {
        if self.stage() != Stage::Early {
            return;
        }
        if self.is_carried() {
            return self.looks_for_an_offer(fd);
        }
        self.counts_a_turn(fd, self.role() == Role::Acceptor);
    }

    /// The memory of one who is about to send, if there is some or it is worth it now.
    pub(crate) fn shared_to_send(&self, fd: i32) -> Option<SegmentView<'_>> {
        if self.stage() == Stage::Early {
            if !self.is_carried() {
                self.counts_a_turn(fd, self.role() == Role::Connector);
            } else if self.early.received() > 0 {
                // An offer of another host may have come behind the first bytes.
                self.looks_for_an_offer(fd);
            }
        }
        self.shared()
    }

    fn is_carried(&self) -> bool {
        self.carrier_way.load(Ordering::Relaxed) != 0
    }

    /// Where a turn has passed a connector offers memory, and an acceptor looks for it.
    fn counts_a_turn(&self, fd: i32, leads: bool) {
        let Some(turn) = self.early.turn(leads) else { return };
        match self.role() {
            Role::Connector => self.alone(|| self.offers(fd)),
            Role::Acceptor if turn > LAST_LOOK => self.gives_up(Verdict::NoOffer),
            Role::Acceptor if is_turn_to_look(turn) => self.looks_for_an_offer(fd),
            Role::Acceptor => {}
        }
    }

    /// It is TCP from here on: memory that was offered is not used.
    fn stays_plain(&self, why: Verdict) {
        self.stage.store(Stage::Plain as u8, Ordering::Release);
        self.tells(why);
    }

    /// The same where there is no memory yet. Another thread may have found some at this moment:
    /// then that holds.
    pub(super) fn gives_up(&self, why: Verdict) {
        if self.leaves_early(Stage::Plain) {
            self.tells(why);
        }
    }

    /// Another process is about to have it, too, and what that sends and receives is not counted
    /// here. So there is memory from now on, or never, whichever end this is; but an acceptor that
    /// has not exchanged a byte may leave it to the other.
    pub(super) fn settles(&self, fd: i32, means: &mut Means) {
        if self.stage() != Stage::Early || self.is_carried() {
            return;
        }
        if self.role() == Role::Acceptor && self.early.sent() == 0 && self.early.received() == 0 {
            return;
        }
        for _ in 0..if means.spend() { PAUSES } else { 0 } {
            self.alone(|| self.offers(fd));
            if self.stage() != Stage::Early {
                return;
            }
            // Another thread is in the middle of a call, as a rule of one that does not wait.
            self.early.pause();
        }
        self.gives_up(Verdict::PassedOn);
    }

    /// Takes the memory that the other end offers, or offers some, if it is known what went
    /// by TCP.
    fn offers(&self, fd: i32) {
        if self.stage() != Stage::Early {
            return;
        }
        crate::io_uring::looks();
        if let Err(why) = crate::rules::is_past_us() {
            return self.gives_up(why);
        }
        let offered = match self.claim(fd) {
            Err(why) if !matches!(why, Verdict::PastUs | Verdict::IoUring) => self.offer(fd),
            claimed => claimed,
        };
        match offered {
            Ok(()) => {}
            Err(Verdict::PastUs) if self.looks.fetch_add(1, Ordering::Relaxed) + 1 < TRIES => {}
            Err(why) => self.gives_up(why),
        }
    }

    fn offer(&self, fd: i32) -> Result<(), Verdict> {
        let (name, role) = (self.name().ok_or(Verdict::PastUs)?, self.role());
        let cookie = kernel::cookie(fd).map_err(Verdict::NoMemory)?;
        // Who is called may lock itself in before somebody takes it: the kernel is asked now.
        let awaited = match role {
            Role::Connector => None,
            Role::Acceptor => Some(
                socket_diag::number_of(fd, &name, Role::Connector).map_err(Verdict::Unproven)?,
            ),
        };
        let segment = make(&name, role, CAPACITY)?;
        introduce(segment, role, fd);
        if let Some(awaited) = awaited {
            segment.own().awaited.is_now(awaited, segment.end(role));
        }
        if !self.adopts_own(segment, fd) {
            name.forget();
            // SAFETY: nobody else uses this mapping.
            unsafe { segment.unmap() };
            return Err(Verdict::PastUs);
        }
        // Nobody takes what does not say whose it is.
        segment.end(role).cookie.store(cookie, Ordering::Release);
        crate::watched::became_shared(fd);
        Ok(())
    }

    /// From here on bytes by TCP are counted in the memory; `false` if it is not sure how many
    /// went.
    fn adopts_own(&self, segment: Segment, fd: i32) -> bool {
        let Some(_gate) = self.early.close_gate() else { return false };
        let Some((received, sent)) = self.counted(fd) else { return false };
        let (sends, receives) =
            (segment.direction_from(self.role()), segment.direction_from(self.role().other()));
        sends.sending.by_tcp.store(sent, Ordering::Relaxed);
        receives.receiving.by_tcp.store(received, Ordering::Relaxed);
        self.looks.store(0, Ordering::Relaxed);
        self.began_at.store(kernel::milliseconds(), Ordering::Relaxed);
        self.early.turns.begin_at(sent, received);
        self.adopt_early(segment, Proof::Open)
    }

    fn looks_for_an_offer(&self, fd: i32) {
        self.alone(|| {
            if self.stage() == Stage::Early && self.may_look() {
                self.looks(fd);
            }
        });
    }

    /// Looks once; what cannot be taken is looked at some times.
    fn looks(&self, fd: i32) {
        if let Err(why) = crate::rules::is_past_us() {
            return self.gives_up(why);
        }
        if self.stage() == Stage::Early
            && let Err(why) = self.claim(fd)
            && (self.is_carried() || !matches!(why, Verdict::NoOffer | Verdict::PastUs))
            && (why == Verdict::IoUring || self.has_looked_enough())
        {
            self.gives_up(why);
        }
    }

    /// Finding each other is for one thread of this process at a time; others go on with TCP
    /// meanwhile. No handler of a signal comes in between: what it received would be
    /// counted too late.
    fn alone(&self, job: impl FnOnce()) {
        let _section = Section::enter();
        if self.joining.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            job();
            self.joining.store(0, Ordering::Release);
        }
    }

    /// What comes from another host is looked for by time, not with each call.
    fn may_look(&self) -> bool {
        let now = kernel::milliseconds();
        !self.is_carried() || self.looked_at.swap(now, Ordering::Relaxed) != now
    }

    fn has_looked_enough(&self) -> bool {
        if !self.is_carried() {
            return self.looks.fetch_add(1, Ordering::Relaxed) + 1 >= REFUSALS;
        }
        self.age() >= FAR_OFFER_MS
    }

    /// Says that we are here, if the offer is there and is for this socket; else why not.
    fn claim(&self, fd: i32) -> Result<(), Verdict> {
        self.early_counts(fd).ok_or(Verdict::PastUs)?;
        let (name, role) = (self.name().ok_or(Verdict::PastUs)?, self.role());
        let offer = Offer::find(&name, role)?;
        if offer.between().transport.load(Ordering::Relaxed)
            != self.carrier_way.load(Ordering::Relaxed)
        {
            return Err(Verdict::NoOffer);
        }
        if offer.end(role.other()).cookie.load(Ordering::Acquire) == 0 {
            // Who makes it says last who that is.
            return Err(Verdict::NoOffer);
        }
        offer.is_for(fd, &name, role).map_err(Verdict::Unproven)?;
        crate::io_uring::looks();
        crate::rules::is_past_us()?;
        // Other threads may have gone on while the kernel was asked.
        let gate = self.early.close_gate().ok_or(Verdict::PastUs)?;
        let (received, sent) = self.counted(fd).ok_or(Verdict::PastUs)?;
        let own = offer.end(role);
        let is_mine = kernel::cookie(fd).is_ok_and(|cookie| {
            own.cookie.compare_exchange(0, cookie, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        });
        if !is_mine {
            return Err(Verdict::NoOffer);
        }
        introduce(*offer, role, fd);
        let shared = SegmentView::new(*offer, role, &self.is_proven, &self.announced);
        shared.receives.receiving.by_tcp.store(received, Ordering::Relaxed);
        shared.sends.sending.by_tcp.store(sent, Ordering::Relaxed);
        shared.own.is_sure.store(1, Ordering::Release);
        if !self.adopt_early(*offer, Proof::Done) {
            own.cookie.store(0, Ordering::Release);
            return Err(Verdict::PastUs);
        }
        drop(gate);
        offer.keep();
        own.is_here.store(1, Ordering::Release);
        if let Some(between) = shared.between {
            between.note_change();
            self.join_carrier(role, &name);
            between.notify_carrier();
        }
        crate::watched::became_shared(fd);
        self.tells(shared.together());
        Ok(())
    }

    /// Lets the carrier wake this process for a connection that goes to another host.
    pub(super) fn join_carrier(&self, role: Role, name: &Name) {
        if let Some(transport) = self.shared().and_then(|shared| shared.between?.transport()) {
            let note = Note { kind: Kind::Joins, role, name: *name };
            let announced = crate::bell::announce(transport, &note).unwrap_or(0);
            self.announced.store(announced, Ordering::Relaxed);
        }
    }

    /// What has been received and sent by TCP, while nobody is at it.
    fn early_counts(&self, fd: i32) -> Option<(u64, u64)> {
        let _gate = self.early.close_gate()?;
        self.counted(fd)
    }

    /// The same where the gate is closed. Who read or wrote past us makes counting worthless:
    /// then it stays what it is.
    fn counted(&self, fd: i32) -> Option<(u64, u64)> {
        let (received, sent) = (self.early.received(), self.early.sent());
        (kernel::is_tcp(fd) && socket_diag::received(fd) == Some(received))
            .then_some((received, sent))
    }

    /// One more call of an end whose offer nobody has taken yet.
    pub(crate) fn waits_for_an_answer(&self, shared: &SegmentView<'_>, fd: i32, call: Call) {
        if shared.is_claimed() && !shared.is_proven() {
            self.alone(|| {
                if self.stage() == Stage::Shared && !shared.is_proven() {
                    self.finds_out_who_has_claimed(shared, fd);
                }
            });
        }
        if shared.are_both_here() {
            if !self.has_told.load(Ordering::Relaxed) {
                self.tells(shared.together());
            }
            return;
        }
        match shared.between {
            Some(between) if shared.role == Role::Connector => return self.await_carriers(between),
            // Who has taken an offer does not take it back.
            Some(_) => return,
            None if shared.is_proven() => return,
            None => {}
        }
        let leads = (call == Call::Sends) == (shared.role == Role::Connector);
        let said = shared.sends.sending.by_tcp.load(Ordering::Relaxed);
        let heard = shared.receives.receiving.by_tcp.load(Ordering::Relaxed);
        let turn = self.early.turns.passed(said, heard, leads);
        let other = &shared.other_end().cookie;
        let has_heard = || heard > self.early.received();
        if turn.is_some_and(|turn| turn >= PATIENCE)
            && other.load(Ordering::Relaxed) == 0
            && (has_heard() || self.age() >= SILENT_MS)
            && let Some(name) = self.name()
        {
            // The other end would have looked by now. Nobody can come any more.
            name.forget();
            if other.compare_exchange(0, NOBODY, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                self.stays_plain(Verdict::NoAnswer);
            }
        }
    }

    /// An offer was claimed: if by the socket at the other end, then both are here.
    fn finds_out_who_has_claimed(&self, shared: &SegmentView<'_>, fd: i32) {
        let Some(name) = self.name() else { return };
        let other = shared.other_end();
        let doubt = match shared.between {
            None if shared.own.awaited.is(other) => Ok(()),
            None => socket_diag::vouch(fd, &name, shared.role.other(), other),
            Some(_) if is_a_carrier_beside(other, fd) => Ok(()),
            Some(_) => Err(UnprovenReason::Apart),
        };
        // Another process of this end may have been told while the other was there, which
        // has left bytes behind, as for one who inherits it.
        let is_sure = shared.own.is_sure.load(Ordering::Acquire) != 0;
        let why = match doubt {
            Ok(()) => return shared.is_here_too(),
            Err(UnprovenReason::Gone | UnprovenReason::Silent(_)) if is_sure => {
                return shared.is_here_too();
            }
            Err(why) => why,
        };
        if why.may_pass() && self.questions.fetch_add(1, Ordering::Relaxed) < QUESTIONS {
            return;
        }
        name.forget();
        self.stays_plain(if why == UnprovenReason::Gone {
            Verdict::TooShort
        } else {
            Verdict::Unproven(why)
        });
    }

    /// Milliseconds since it was made, or offered.
    pub(super) fn age(&self) -> u64 {
        kernel::milliseconds().saturating_sub(self.began_at.load(Ordering::Relaxed))
    }

    /// One more call of a connector whose offer has gone to another host.
    fn await_carriers(&self, between: &BetweenHosts) {
        const LOOKS_AT_THE_CARRIER: u32 = 64;
        let Some(transport) = between.transport() else { return };
        let answer = Answer::of(&between.verdict);
        let looks = self.looks.fetch_add(1, Ordering::Relaxed);
        let verdict = if answer.is_no() {
            Verdict::NotCarried(transport, answer)
        } else if looks.is_multiple_of(LOOKS_AT_THE_CARRIER) && between.has_lost_carrier() {
            Verdict::LostCarrier(transport)
        } else {
            return;
        };
        self.stays_plain(verdict);
        if let Some(name) = self.name() {
            name.forget();
        }
    }

    /// What a call learns of the other end before it waits: that it is here, or will not
    /// come. To another host one's own way is changed as soon as may be, so that rings can
    /// be sent with the next bytes.
    pub(crate) fn looks_for_the_other(&self, shared: &SegmentView<'_>, fd: i32) {
        self.waits_for_an_answer(shared, fd, Call::Receives);
        if shared.between.is_some() && !shared.is_sending_switched() {
            shared.switch_sending(fd);
        }
    }
}

/// Whether an acceptor looks for an offer in this turn.
const fn is_turn_to_look(turn: u32) -> bool {
    turn <= FIRST_LOOKS || turn.is_power_of_two() || turn.is_multiple_of(LOOK_EACH)
}

/// Says in the memory where this end is; its number is for the caller to say.
fn introduce(segment: Segment, role: Role, fd: i32) {
    let own = segment.end(role);
    socket_diag::introduce(own, fd);
    own.holders.store(1, Ordering::Relaxed);
    segment.own().holders.enters(crate::process::owner());
}

/// Asks this host's carrier to take an offer to the other host.
fn hand_to_the_carrier(
    segment: Segment,
    name: &Name,
    transport: Transport,
) -> Result<u32, Verdict> {
    let between = segment.between();
    between.transport.store(between_hosts::number_of(transport), Ordering::Relaxed);
    between.note_change();
    between.process.store(crate::process::owner(), Ordering::Relaxed);
    let note = Note { kind: Kind::Offers, role: Role::Connector, name: *name };
    crate::bell::announce(transport, &note).map_err(|why| match why {
        Fault::Kernel(_) => Verdict::NoCarrier(transport),
        why => Verdict::NoFolder(why),
    })
}

/// Whether a carrier has claimed this end which is where we are.
fn is_a_carrier_beside(end: &End, fd: i32) -> bool {
    end.cookie.load(Ordering::Acquire) == ELSEWHERE && socket_diag::is_beside(end, fd)
}

/// What is known of the other end where this one's number is in the memory; nothing where the
/// kernel says that it is another. An end writes its number only once it is sure of the other,
/// but for a connector that has just made its offer. Who has gone meanwhile may have left
/// bytes behind.
pub(super) fn proof_of_inherited(fd: i32, role: Role, name: &Name, offer: &Offer) -> Option<Proof> {
    if !socket_diag::is_beside(offer.end(role), fd) {
        return None;
    }
    if offer.own().is_sure.load(Ordering::Acquire) == 0 {
        return Some(Proof::Open);
    }
    if role == Role::Acceptor {
        return Some(Proof::Done);
    }
    if offer.between().transport().is_some() {
        return Some(Proof::Done);
    }
    match socket_diag::vouch(fd, name, Role::Acceptor, offer.end(Role::Acceptor)) {
        Err(UnprovenReason::Another | UnprovenReason::Apart | UnprovenReason::OfUser(_)) => None,
        Ok(()) | Err(UnprovenReason::Gone | UnprovenReason::Silent(_)) => Some(Proof::Done),
    }
}

/// Makes memory for a connection, with a name by which the other end finds it.
pub(crate) fn make(name: &Name, role: Role, capacity: u64) -> Result<Segment, Verdict> {
    let file = name.create()?;
    let made = Segment::create(file, name, role, capacity);
    let _ = kernel::close(file);
    made.map_err(|why| {
        name.forget();
        match why {
            Unusable::Kernel(why) => Verdict::NoMemory(why),
            why => Verdict::Unusable(why),
        }
    })
}

/// The memory that was offered for a connection, and its file: until it is kept.
#[derive(Debug)]
pub(crate) struct Offer {
    segment: Segment,
    file: i32,
}

impl Offer {
    /// Looks by name, for the end at `side`. What is found is a file of this user's alone which
    /// says that it is of this connection; whether that is true the kernel knows.
    pub(crate) fn find(name: &Name, role: Role) -> Result<Self, Verdict> {
        let (file, owner) = name.open()?;
        match Segment::open(file, owner, name, role) {
            Ok(segment) => Ok(Self { segment, file }),
            Err(why) => {
                let _ = kernel::close(file);
                Err(match why {
                    Unusable::Unfinished => Verdict::NoOffer,
                    why => Verdict::Unusable(why),
                })
            }
        }
    }

    /// Whether it is offered to this socket, which is the end at this side, by the socket at the
    /// other end; by a carrier, which has asked the kernel for the one that is called, if it
    /// comes from another host.
    fn is_for(&self, fd: i32, name: &Name, role: Role) -> Result<(), UnprovenReason> {
        let other = self.end(role.other());
        if self.between().transport().is_none() {
            return socket_diag::vouch(fd, name, role.other(), other);
        }
        let addressee = self.identity().addressee.load(Ordering::Relaxed);
        if kernel::cookie(fd) != Ok(addressee) {
            return Err(UnprovenReason::Another);
        }
        if is_a_carrier_beside(other, fd) { Ok(()) } else { Err(UnprovenReason::Apart) }
    }

    /// The mapping, which is the caller's from here on.
    pub(crate) fn keep(self) -> Segment {
        let segment = self.segment;
        let _ = kernel::close(self.file);
        std::mem::forget(self);
        segment
    }
}

impl Deref for Offer {
    type Target = Segment;

    fn deref(&self) -> &Segment {
        &self.segment
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        let _ = kernel::close(self.file);
        // SAFETY: nobody else knows of this mapping, and references are borrowed from this.
        unsafe { self.segment.unmap() };
    }
}
