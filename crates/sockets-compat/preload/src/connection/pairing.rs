//! How the two ends of a connection find each other.
//!
//! Within one host the connector's offer is there before its first bytes are; to another
//! host the carriers bring it, a little later. So the one is looked for with the first
//! calls, the other for a while.
//!
//! Neither believes what it finds. The acceptor claims an offer if the kernel says that its
//! connection was called by the socket that offers; the connector goes on if the kernel says
//! that what it has called is the socket which has claimed it. Who is not sure stays with
//! TCP, and then so does the other: nothing goes by memory before both are sure.

use std::ops::Deref;
use std::sync::atomic::Ordering;

use landfall_socket_rules::Transport;

use super::{Connection, Proof, SegmentView, Stage};
use crate::between_hosts::{self, Answer};
use crate::folder::Fault;
use crate::kernel;
use crate::log::Verdict;
use crate::notes::{Kind, Note};
use crate::registry::Name;
use crate::segment::{BetweenHosts, CAPACITY, CARRIED_CAPACITY, End, Role, Segment, Unusable};
use crate::socket_diag::{self, UnprovenReason};
use crate::thread::Section;

/// How often an acceptor looks for an offer. The first bytes of one that speaks are sent
/// after the offer was made: one look would do, if nobody read past us.
const LOOKS: u32 = 4;
/// Stands for the acceptor's cookie where no acceptor may come any more.
pub(crate) const NOBODY: u64 = u64::MAX;
/// Stands for the cookie of an end that is on another host.
pub(crate) const ELSEWHERE: u64 = u64::MAX - 1;
/// After this many calls without an answer a connector takes its offer back,
const PATIENCE: u32 = 64;
/// but not before the other has said something, or for so long: it may read late, however much
/// is sent meanwhile.
const SILENT_MS: u64 = 10_000;
/// How often the kernel is asked who has claimed an offer, while it cannot answer.
const QUESTIONS: u32 = 8;
/// How long an acceptor looks for an offer from another host, which the carriers bring.
const FAR_OFFER_MS: u64 = 10_000;

impl Connection {
    /// Offers memory to anyone who accepts the connection that `fd` has just begun: on this
    /// host, or on another by way of the carriers.
    pub(crate) fn offer(fd: i32, name: Name, transport: Transport) -> Result<(), Verdict> {
        let name = if transport == Transport::Memory { name } else { name.for_the_carrier() };
        let cookie = kernel::cookie(fd).map_err(Verdict::NoMemory)?;
        let segment =
            make(&name, if transport == Transport::Memory { CAPACITY } else { CARRIED_CAPACITY })?;
        let own = segment.end(Role::Connector);
        socket_diag::introduce(own, fd);
        own.holders.store(1, Ordering::Relaxed);
        own.cookie.store(cookie, Ordering::Release);
        let announced = match transport {
            Transport::Memory => Ok(0),
            _ => hand_to_the_carrier(segment, &name, transport),
        };
        let announced = announced.inspect_err(|_| {
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
            connection.begin(Role::Acceptor, Stage::Seeking, name, transport);
        });
    }

    /// Bytes came by TCP, before there is memory: now an acceptor looks for it.
    pub(crate) fn early_received(&self, fd: i32, bytes: usize) {
        self.early_received.fetch_add(bytes as u64, Ordering::SeqCst);
        self.looks_for_an_offer(fd);
    }

    /// The memory of one who is about to send: an offer of another host may have come
    /// behind the first bytes, so an acceptor looks again.
    pub(crate) fn shared_to_send(&self, fd: i32) -> Option<SegmentView<'_>> {
        if self.stage() == Stage::Seeking
            && self.carrier_way.load(Ordering::Relaxed) != 0
            && self.early_received.load(Ordering::SeqCst) > 0
        {
            self.looks_for_an_offer(fd);
        }
        self.shared()
    }

    fn looks_for_an_offer(&self, fd: i32) {
        if self.stage() != Stage::Seeking {
            return;
        }
        self.alone(|| {
            if self.stage() == Stage::Seeking
                && self.may_look()
                && let Err(why) = self.claim(fd)
                && self.has_looked_enough()
            {
                self.stage.store(Stage::Plain as u8, Ordering::Release);
                self.tells(why);
            }
        });
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
        self.carrier_way.load(Ordering::Relaxed) == 0
            || self.looked_at.swap(now, Ordering::Relaxed) != now
    }

    fn has_looked_enough(&self) -> bool {
        if self.carrier_way.load(Ordering::Relaxed) == 0 {
            return self.looks.fetch_add(1, Ordering::Relaxed) + 1 >= LOOKS;
        }
        self.age() >= FAR_OFFER_MS
    }

    /// Says that we are here, if the offer is there and is for this socket; else why not.
    fn claim(&self, fd: i32) -> Result<(), Verdict> {
        self.early_counts(fd).ok_or(Verdict::NoOffer)?;
        let name = self.name().ok_or(Verdict::NoOffer)?;
        let offer = Offer::find(&name, Role::Acceptor)?;
        if offer.between().transport.load(Ordering::Relaxed)
            != self.carrier_way.load(Ordering::Relaxed)
        {
            return Err(Verdict::NoOffer);
        }
        offer.is_for(fd, &name).map_err(Verdict::Unproven)?;
        // Other threads may have gone on while the kernel was asked.
        let (received, sent) = self.early_counts(fd).ok_or(Verdict::NoOffer)?;
        let own = offer.end(Role::Acceptor);
        let is_mine = kernel::cookie(fd).is_ok_and(|cookie| {
            own.cookie.compare_exchange(0, cookie, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        });
        if !is_mine {
            return Err(Verdict::NoOffer);
        }
        let segment = offer.keep();
        let shared = SegmentView::new(segment, Role::Acceptor, &self.is_proven, &self.announced);
        socket_diag::introduce(own, fd);
        own.holders.store(1, Ordering::Relaxed);
        shared.receives.receiving.by_tcp.store(received, Ordering::Relaxed);
        shared.sends.sending.by_tcp.store(sent, Ordering::Relaxed);
        self.adopt(segment, Proof::Done);
        own.is_here.store(1, Ordering::Release);
        if let Some(between) = shared.between {
            between.note_change();
            self.join_carrier(Role::Acceptor, &name);
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

    /// What has been received and sent by TCP. Who read or wrote past us makes counting
    /// worthless: then it stays what it is.
    fn early_counts(&self, fd: i32) -> Option<(u64, u64)> {
        let (received, sent) =
            (self.early_received.load(Ordering::SeqCst), self.early_sent.load(Ordering::SeqCst));
        let is_sure = self.early_in_flight.load(Ordering::SeqCst) == 0
            && socket_diag::received(fd) == Some(received);
        is_sure.then_some((received, sent))
    }

    /// One more call of a connector whose offer nobody has taken yet.
    pub(crate) fn waits_for_an_answer(&self, shared: &SegmentView<'_>, fd: i32) {
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
        if shared.role != Role::Connector {
            return;
        }
        if let Some(between) = shared.between {
            return self.await_carriers(between);
        }
        let acceptor = &shared.segment.end(Role::Acceptor).cookie;
        let has_heard = || shared.receives.receiving.by_tcp.load(Ordering::Relaxed) > 0;
        if self.looks.fetch_add(1, Ordering::Relaxed) >= PATIENCE
            && acceptor.load(Ordering::Relaxed) == 0
            && (has_heard() || self.age() >= SILENT_MS)
            && let Some(name) = self.name()
        {
            // Anyone who accepted it would have looked by now. Nobody can come any more.
            name.forget();
            if acceptor.compare_exchange(0, NOBODY, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                self.stage.store(Stage::Plain as u8, Ordering::Release);
                self.tells(Verdict::NoAnswer);
            }
        }
    }

    /// A connector's offer was claimed: if by the socket that it calls, then both are here.
    fn finds_out_who_has_claimed(&self, shared: &SegmentView<'_>, fd: i32) {
        let Some(name) = self.name() else { return };
        let acceptor = shared.segment.end(Role::Acceptor);
        let doubt = match shared.between {
            None => socket_diag::vouch(fd, &name, Role::Acceptor, acceptor),
            Some(_) if is_a_carrier_beside(acceptor, fd) => Ok(()),
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
        self.stage.store(Stage::Plain as u8, Ordering::Release);
        self.tells(if why == UnprovenReason::Gone {
            Verdict::TooShort
        } else {
            Verdict::Unproven(why)
        });
    }

    /// Milliseconds since it was made.
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
        self.stage.store(Stage::Plain as u8, Ordering::Release);
        self.tells(verdict);
        if let Some(name) = self.name() {
            name.forget();
        }
    }

    /// What a call learns of the other end before it waits: that it is here, or will not
    /// come. To another host one's own way is changed as soon as may be, so that rings can
    /// be sent with the next bytes.
    pub(crate) fn looks_for_the_other(&self, shared: &SegmentView<'_>, fd: i32) {
        self.waits_for_an_answer(shared, fd);
        if shared.between.is_some() && !shared.is_sending_switched() {
            shared.switch_sending(fd);
        }
    }
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
    if role == Role::Acceptor {
        return Some(Proof::Done);
    }
    if offer.own().is_sure.load(Ordering::Acquire) == 0 {
        return Some(Proof::Open);
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
pub(crate) fn make(name: &Name, capacity: u64) -> Result<Segment, Verdict> {
    let file = name.create()?;
    let made = Segment::create(file, name, capacity);
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
        let file = name.open()?;
        match Segment::open(file, name, role) {
            Ok(segment) => Ok(Self { segment, file }),
            Err(why) => {
                let _ = kernel::close(file);
                Err(Verdict::Unusable(why))
            }
        }
    }

    /// Whether it is offered to this socket, by the socket that has called it; by a carrier,
    /// which has asked the kernel for the one that is called, if it comes from another host.
    fn is_for(&self, fd: i32, name: &Name) -> Result<(), UnprovenReason> {
        let connector = self.end(Role::Connector);
        if self.between().transport().is_none() {
            return socket_diag::vouch(fd, name, Role::Connector, connector);
        }
        let addressee = self.identity().addressee.load(Ordering::Relaxed);
        if kernel::cookie(fd) != Ok(addressee) {
            return Err(UnprovenReason::Another);
        }
        if is_a_carrier_beside(connector, fd) { Ok(()) } else { Err(UnprovenReason::Apart) }
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
