//! One TCP connection of the program, and how it comes to be shared memory.
//!
//! The connector offers memory when it connects. The acceptor looks for the offer when the
//! first bytes have come, and says that it is here; the connector sees that and says so,
//! too. From then on each sender may change its own direction from TCP to the ring: it
//! writes down how many bytes went by TCP, and the receiver takes just as many from there
//! before it looks at the ring. Not one byte goes by TCP that the program did not send,
//! unless both ends are here; who is alone keeps his TCP connection.
//!
//! How they find each other is in the module below. What does not live here: bytes
//! ([`crate::transfer`]), readiness ([`crate::readiness`]).

mod pairing;
mod verdict;

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};

use landfall_socket_rules::Transport;
use pairing::proof_of_inherited;
pub(crate) use pairing::{ELSEWHERE, NOBODY, Offer, make};

use crate::kernel::{self, Errno, Outcome};
use crate::lock::{hold_at_once, hold_for_call};
use crate::log::Verdict;
use crate::messages::{Holder, Socket};
use crate::patience::Patience;
use crate::registry::{Name, NameCell};
use crate::ring::{self, Incoming, Outgoing};
use crate::segment::{BetweenHosts, Direction, End, EndState, Role, Segment};
use crate::{between_hosts, socket_diag, status};

/// `has_ended` of a half that was shut down: nothing more comes, or is wanted.
pub(crate) const SHUT: u32 = 1;
/// `has_ended` of an end that nobody has open any more.
pub(crate) const CLOSED: u32 = 2;
/// `has_ended` of an end that was closed so that the other hears of a reset.
pub(crate) const RESET: u32 = 3;

/// Set in `in_flight`: nobody sends by TCP any more, or just now.
const GATE: u32 = 1 << 31;

static SERIALS: AtomicU64 = AtomicU64::new(0);
/// Where a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Stage {
    /// TCP, now and for ever.
    Plain,
    /// An acceptor that has not seen an offer yet.
    Seeking,
    /// There is memory; whether both are here is written there.
    Shared,
}

/// Whether it is known that the two ends of some memory are those of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proof {
    Open,
    Done,
}

/// One connection; a record of the table, used again and again.
#[derive(Debug)]
pub(crate) struct Connection {
    stage: AtomicU8,
    is_acceptor: AtomicU8,
    base: AtomicPtr<u8>,
    name: NameCell,
    /// It is no TCP connection at all, but a socket of messages.
    messages: Holder,
    /// What an acceptor sent and received before.
    early_sent: AtomicU64,
    early_received: AtomicU64,
    early_in_flight: AtomicU32,
    looks: AtomicU32,
    questions: AtomicU32,
    joining: AtomicU32,
    /// The kernel has said that who is at the other end of the memory is at the other end of
    /// the connection. Nothing of it is in the memory that the other end has.
    is_proven: AtomicBool,
    /// When it was made.
    began_at: AtomicU64,
    /// What carries it to another host, as [`between_hosts::number_of`] has it.
    carrier_way: AtomicU32,
    /// With which descriptors the carrier was told of it; see [`crate::bell`].
    announced: AtomicU32,
    looked_at: AtomicU64,
    /// What has become of it stands in the log.
    has_told: AtomicBool,
    /// Its record in [`crate::status`]; zero if it has none.
    record: AtomicU32,
    /// How long its receivers, and its senders, look before they sleep.
    pub(crate) for_bytes: Patience,
    pub(crate) for_room: Patience,
    /// Several epoll descriptors watch it: a ring is for each of them.
    pub(crate) is_watched_twice: AtomicBool,
    /// How often a sender found the ring full: an edge for `epoll` where it changes.
    pub(crate) was_full: AtomicU32,
    /// How often in a row memory alone answered what the kernel might know better.
    pub(crate) answers_by_memory: AtomicU32,
    /// No other connection of this process has it: records are used again.
    pub(crate) serial: AtomicU64,
}

/// Which way the bytes of a call have gone, or go.
pub(crate) enum Sending<'a> {
    ByTcp(Outcome),
    ByMemory(SegmentView<'a>),
}

/// The memory of a connection, seen from one side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SegmentView<'a> {
    segment: Segment,
    role: Role,
    proof: &'a AtomicBool,
    announced: &'a AtomicU32,
    pub(crate) outgoing: Outgoing<'a>,
    pub(crate) incoming: Incoming<'a>,
    /// Counters and locks of what we send, and of what we receive.
    pub(crate) sends: &'a Direction,
    pub(crate) receives: &'a Direction,
    /// What only the processes of this end have.
    pub(crate) own: &'a EndState,
    /// Of a connection between hosts.
    pub(crate) between: Option<&'a BetweenHosts>,
}

impl Connection {
    pub(crate) const fn new() -> Self {
        Self {
            stage: AtomicU8::new(Stage::Plain as u8),
            is_acceptor: AtomicU8::new(0),
            base: AtomicPtr::new(std::ptr::null_mut()),
            name: NameCell::new(),
            messages: Holder::new(),
            early_sent: AtomicU64::new(0),
            early_received: AtomicU64::new(0),
            early_in_flight: AtomicU32::new(0),
            looks: AtomicU32::new(0),
            questions: AtomicU32::new(0),
            joining: AtomicU32::new(0),
            is_proven: AtomicBool::new(false),
            carrier_way: AtomicU32::new(0),
            announced: AtomicU32::new(0),
            began_at: AtomicU64::new(0),
            looked_at: AtomicU64::new(0),
            has_told: AtomicBool::new(false),
            record: AtomicU32::new(0),
            for_bytes: Patience::new(),
            for_room: Patience::new(),
            is_watched_twice: AtomicBool::new(false),
            was_full: AtomicU32::new(0),
            answers_by_memory: AtomicU32::new(0),
            serial: AtomicU64::new(0),
        }
    }

    /// Makes a used record new.
    fn begin(&self, role: Role, stage: Stage, name: Name, transport: Transport) {
        // SAFETY: nobody else knows of the record yet.
        unsafe { self.name.set(name) };
        self.is_acceptor.store(u8::from(role == Role::Acceptor), Ordering::Relaxed);
        for counter in [&self.early_sent, &self.early_received] {
            counter.store(0, Ordering::Relaxed);
        }
        for counter in [&self.early_in_flight, &self.looks, &self.joining, &self.was_full] {
            counter.store(0, Ordering::Relaxed);
        }
        self.questions.store(0, Ordering::Relaxed);
        self.is_proven.store(false, Ordering::Relaxed);
        self.carrier_way.store(between_hosts::number_of(transport), Ordering::Relaxed);
        self.announced.store(0, Ordering::Relaxed);
        self.began_at.store(kernel::milliseconds(), Ordering::Relaxed);
        self.looked_at.store(0, Ordering::Relaxed);
        self.answers_by_memory.store(0, Ordering::Relaxed);
        self.serial.store(SERIALS.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.is_entered(role, &name);
        self.is_watched_twice.store(false, Ordering::Relaxed);
        self.has_told.store(false, Ordering::Relaxed);
        self.for_bytes.reset();
        self.for_room.reset();
        self.base.store(std::ptr::null_mut(), Ordering::Relaxed);
        self.stage.store(stage as u8, Ordering::Release);
    }

    /// Makes a used record new, for a socket of messages.
    pub(crate) fn carry_messages(&self, socket: Box<Socket>) {
        self.messages.put(socket);
        self.stage.store(Stage::Plain as u8, Ordering::Release);
    }

    /// The socket of messages, if it is one.
    pub(crate) fn messages(&self) -> Option<&Socket> {
        self.messages.get()
    }

    fn name(&self) -> Option<Name> {
        self.name.get()
    }

    fn stage(&self) -> Stage {
        match self.stage.load(Ordering::Acquire) {
            stage if stage == Stage::Seeking as u8 => Stage::Seeking,
            stage if stage == Stage::Shared as u8 => Stage::Shared,
            _ => Stage::Plain,
        }
    }

    fn role(&self) -> Role {
        if self.is_acceptor.load(Ordering::Relaxed) == 0 { Role::Connector } else { Role::Acceptor }
    }

    /// The memory, once there is some.
    pub(crate) fn shared(&self) -> Option<SegmentView<'_>> {
        if self.stage() != Stage::Shared {
            return None;
        }
        // SAFETY: stored by `adopt`, out of a segment that lives as long as this record.
        let segment = unsafe { Segment::from_base(self.base.load(Ordering::Acquire)) };
        Some(SegmentView::new(segment, self.role(), &self.is_proven, &self.announced))
    }

    fn adopt(&self, segment: Segment, proof: Proof) {
        self.is_proven.store(proof == Proof::Done, Ordering::Relaxed);
        self.base.store(segment.base(), Ordering::Release);
        self.stage.store(Stage::Shared as u8, Ordering::Release);
    }

    /// A descriptor that came from elsewhere (`exec`, a message): if it is one end of a
    /// connection that is shared already, then it goes on so.
    pub(crate) fn inherited(fd: i32, is_held_by_message: bool) {
        if let Some(twin) = crate::table::find_where(|connection| connection.is_of(fd)) {
            // This process had it already, and holds it once.
            if let Some(guard) = crate::table::find(twin).filter(|_| is_held_by_message) {
                guard.is_held_once_less();
            }
            crate::table::duplicate(twin, fd);
            return;
        }
        let Some(as_connector) = Name::of(fd, Role::Connector) else { return };
        for (role, name) in [
            (Role::Connector, as_connector),
            (Role::Connector, as_connector.for_the_carrier()),
            (Role::Acceptor, as_connector.turned()),
        ] {
            let Ok(offer) = Offer::find(&name, role) else { continue };
            let said = offer.end(role).cookie.load(Ordering::Acquire);
            if kernel::cookie(fd) != Ok(said) {
                if role == Role::Acceptor && said == 0 {
                    return Self::was_accepted(fd, name, |_| true);
                }
                continue;
            }
            let Some(proof) = proof_of_inherited(fd, role, &name, &offer) else { continue };
            let (transport, segment) =
                (offer.between().transport().unwrap_or(Transport::Memory), offer.keep());
            crate::table::insert(fd, |connection| {
                connection.begin(role, Stage::Plain, name, transport);
                connection.adopt(segment, proof);
                connection.join_carrier(role, &name);
                connection.is_decided_already();
            });
            return;
        }
        // What another host offers may be on its way.
        Self::was_accepted(fd, as_connector.turned(), |transport| transport != Transport::Memory);
    }

    /// Another program accepted it, and this one has it now. Whatever went until now went
    /// by TCP, which has counted it.
    fn was_accepted(fd: i32, name: Name, may_be: fn(Transport) -> bool) {
        let transport = match crate::rules::allow(&name) {
            Ok(transport) => transport,
            Err(verdict) => return status::left_to_tcp(fd, Role::Acceptor, &name, verdict),
        };
        if may_be(transport)
            && let (Some(received), Some(sent)) =
                (socket_diag::received(fd), socket_diag::sent(fd, Role::Acceptor))
        {
            crate::table::insert(fd, |connection| {
                connection.begin(Role::Acceptor, Stage::Seeking, name, transport);
                connection.early_received.store(received, Ordering::Relaxed);
                connection.early_sent.store(sent, Ordering::Relaxed);
            });
        }
    }

    /// Whether `fd` is this very socket.
    fn is_of(&self, fd: i32) -> bool {
        let Some(shared) = self.shared() else {
            return self.stage() == Stage::Seeking && self.name() == Name::of(fd, Role::Acceptor);
        };
        let known = shared.segment.end(shared.role).cookie.load(Ordering::Acquire);
        kernel::cookie(fd) == Ok(known)
    }

    /// A child will have it, too, or who gets a message. It is said before that.
    pub(crate) fn is_held_once_more(&self) {
        if let Some(shared) = self.shared() {
            shared.segment.end(shared.role).holders.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// It did not come to that.
    pub(crate) fn is_held_once_less(&self) {
        if let Some(shared) = self.shared() {
            shared.segment.end(shared.role).holders.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// In the child: what other threads of the parent were about is not done here.
    pub(crate) fn after_fork(&self) {
        self.early_in_flight.store(0, Ordering::Relaxed);
        self.joining.store(0, Ordering::Relaxed);
        if let Some(socket) = self.messages() {
            socket.after_fork();
        }
        if let Some(between) = self.shared().and_then(|shared| shared.between) {
            between.note_user();
        }
    }

    /// The last descriptor of this process goes; `fd` is it, if it is still open.
    pub(crate) fn leave(&self, fd: i32) {
        let Some(shared) = self.shared() else {
            return self.tells(Verdict::TooShort);
        };
        if fd >= 0 {
            // A byte that is left unread would make the kernel reset the connection.
            let is_last = shared.own_end().holders.load(Ordering::Acquire) == 1;
            shared.take_rings_away_at_last(fd, is_last);
        }
        if shared.segment.end(shared.role).holders.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.tells(if shared.are_both_here() { shared.together() } else { Verdict::TooShort });
            shared.close(fd);
            if let Some(name) = self.name() {
                name.forget();
            }
        } else if let Some(between) = shared.between {
            between.forget_user();
        }
    }

    /// Nobody uses it any more.
    pub(crate) fn end(&self) {
        status::ends(self.record.swap(0, Ordering::Relaxed));
        self.stage.store(Stage::Plain as u8, Ordering::Release);
        let base = self.base.swap(std::ptr::null_mut(), Ordering::AcqRel);
        if !base.is_null() {
            // SAFETY: `adopt` stored it, and no guard and no descriptor is left.
            unsafe { Segment::from_base(base).unmap() };
        }
        // SAFETY: no guard and no descriptor is left.
        unsafe { self.messages.clear() };
    }

    /// What a call sends that wants to send so much: by TCP, as `by_tcp` does it, as long as
    /// that is the way; then into the ring.
    pub(crate) fn sends(
        &self,
        fd: i32,
        wanted: usize,
        mut by_tcp: impl FnMut() -> Outcome,
    ) -> Sending<'_> {
        let Some(shared) = self.shared_to_send(fd) else {
            return Sending::ByTcp(self.early_send(wanted, by_tcp));
        };
        while !shared.is_sending_switched() {
            self.waits_for_an_answer(&shared, fd);
            shared.switch_sending(fd);
            if let Some(sent) = shared.send_by_tcp(&mut by_tcp) {
                self.notes_fullness(sent, wanted);
                return Sending::ByTcp(sent);
            }
            // Another closes the gate, to change the way. If it cannot, nobody looks at the ring.
            shared.waits_for_the_gate();
        }
        Sending::ByMemory(shared)
    }

    /// Bytes are about to go by TCP, before there is memory.
    pub(crate) fn early_send(&self, wanted: usize, send: impl FnOnce() -> Outcome) -> Outcome {
        self.early_in_flight.fetch_add(1, Ordering::SeqCst);
        let sent = send();
        if let Ok(bytes) = sent {
            self.early_sent.fetch_add(bytes as u64, Ordering::SeqCst);
        }
        self.early_in_flight.fetch_sub(1, Ordering::SeqCst);
        self.notes_fullness(sent, wanted);
        sent
    }

    /// TCP had no room for all: that it has, or a ring instead, is an edge.
    fn notes_fullness(&self, sent: Outcome, wanted: usize) {
        if sent.map_or_else(|why| why == Errno(libc::EAGAIN), |sent| sent < wanted) {
            self.was_full.fetch_add(1, Ordering::AcqRel);
        }
    }
}

impl<'a> SegmentView<'a> {
    fn new(segment: Segment, role: Role, proof: &'a AtomicBool, announced: &'a AtomicU32) -> Self {
        let (outgoing, incoming) = ring::ends(segment, role);
        Self {
            segment,
            role,
            proof,
            announced,
            outgoing,
            incoming,
            sends: segment.direction_from(role),
            receives: segment.direction_from(role.other()),
            own: segment.own(),
            between: Some(segment.between()).filter(|between| between.transport().is_some()),
        }
    }

    /// Whether the carrier wakes this process when there is news.
    pub(crate) fn is_woken_by_carrier(&self) -> bool {
        crate::bell::is_rung_for(self.announced.load(Ordering::Relaxed))
    }

    /// What this end says of itself.
    pub(crate) fn own_end(&self) -> &'a End {
        self.segment.end(self.role)
    }

    /// What has become of it, once both are here.
    fn together(&self) -> Verdict {
        self.between.and_then(BetweenHosts::transport).map_or(Verdict::BothHere, Verdict::Carried)
    }

    /// Whether the other end of the memory is known to be that of the connection.
    fn is_proven(&self) -> bool {
        self.proof.load(Ordering::Relaxed)
    }

    /// Whether somebody has claimed it, no matter who that is.
    fn is_claimed(&self) -> bool {
        self.segment.end(Role::Acceptor).is_here.load(Ordering::Acquire) != 0
    }

    /// A connector is sure of who has claimed its offer, and answers.
    fn is_here_too(&self) {
        self.proof.store(true, Ordering::Relaxed);
        self.own.is_sure.store(1, Ordering::Release);
        self.own_end().is_here.store(1, Ordering::Release);
        self.notify_carrier();
    }

    /// Whether both ends know of each other.
    pub(crate) fn are_both_here(&self) -> bool {
        let is_here = |role| self.segment.end(role).is_here.load(Ordering::Acquire) != 0;
        self.is_proven() && is_here(Role::Acceptor) && is_here(Role::Connector)
    }

    /// Bytes that go by TCP before those of the ring; `None` while all do.
    pub(crate) fn incoming_by_tcp(&self) -> Option<u64> {
        if !self.is_proven() {
            return None;
        }
        self.receives.sending.switched.load(Ordering::SeqCst).checked_sub(1)
    }

    /// Whether all that the other end sends by TCP alone has been taken.
    pub(crate) fn is_done_with_tcp(&self) -> bool {
        let taken = self.receives.receiving.by_tcp.load(Ordering::Relaxed);
        self.incoming_by_tcp().is_some_and(|by_tcp| by_tcp <= taken)
    }

    /// Whether one of the four halves has ended, as far as memory knows.
    pub(crate) fn knows_of_an_end(&self) -> bool {
        [self.sends, self.receives].into_iter().any(|direction| {
            direction.sending.has_ended.load(Ordering::Acquire) != 0
                || direction.receiving.has_ended.load(Ordering::Acquire) != 0
        })
    }

    /// TCP has told of the end of what comes. Who has not said so in memory was killed, or
    /// ended it past us: whether he is there at all is found out when something is sent.
    pub(crate) fn has_ended_by_tcp(&self) {
        // To another host the carriers tell of it, and the end by TCP may overtake them.
        if self.between.is_none() && self.receives.sending.has_ended.load(Ordering::Acquire) == 0 {
            self.receives.receiving.is_doubtful.store(1, Ordering::Relaxed);
        }
    }

    /// Whether the other end may have been killed: the kernel refuses a byte for it.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.receives.receiving.is_doubtful.load(Ordering::Relaxed) != 0
    }

    /// Whether calls on this end wait.
    pub(crate) fn waits(&self, fd: i32) -> bool {
        let word = &self.segment.end(self.role).waits;
        crate::patience::do_they(word, || !kernel::is_nonblocking(fd))
    }

    /// Somebody has said whether calls on this end shall wait.
    pub(crate) fn forget_whether_it_waits(&self) {
        crate::patience::forget(&self.segment.end(self.role).waits);
    }

    /// Whether what we send goes into the ring.
    pub(crate) fn is_sending_switched(&self) -> bool {
        self.sends.sending.switched.load(Ordering::SeqCst) != 0
    }

    /// Lets what we send go into the ring from here on, if that can be.
    pub(crate) fn switch_sending(&self, fd: i32) {
        // Anyone who is gone takes nothing out of a ring, and its kernel says so of bytes by TCP.
        if !self.are_both_here() || (self.between.is_some() && between_hosts::is_over_by_tcp(fd)) {
            return;
        }
        let own = &self.sends.sending;
        // While somebody is at it, the sum is not final: another time.
        let Some(_held) = hold_at_once(&self.own.sending.lock) else { return };
        if own.in_flight.compare_exchange(0, GATE, Ordering::SeqCst, Ordering::SeqCst).is_err() {
            return;
        }
        let by_tcp = own.by_tcp.load(Ordering::SeqCst);
        if socket_diag::sent(fd, self.role) != Some(by_tcp) {
            own.in_flight.fetch_and(!GATE, Ordering::SeqCst);
            return;
        }
        self.sends_at_once(fd);
        own.switched.store(by_tcp + 1, Ordering::SeqCst);
        self.notify_carrier();
    }

    /// Returns when nobody changes the way of what we send. Anyone who does has the lock of that
    /// half; one who has died meanwhile has left the gate closed.
    fn waits_for_the_gate(&self) {
        if let Ok(_held) = hold_for_call(&self.own.sending.lock, || true)
            && !self.is_sending_switched()
        {
            self.sends.sending.in_flight.fetch_and(!GATE, Ordering::SeqCst);
        }
    }

    /// Bytes go by TCP, and are counted; `None` if they must not any more.
    fn send_by_tcp(&self, send: impl FnOnce() -> Outcome) -> Option<Outcome> {
        let own = &self.sends.sending;
        let is_open = own.in_flight.fetch_add(1, Ordering::SeqCst) & GATE == 0;
        let result = is_open.then(|| {
            let sent = send();
            if let Ok(bytes) = sent {
                own.by_tcp.fetch_add(bytes as u64, Ordering::SeqCst);
            }
            sent
        });
        own.in_flight.fetch_sub(1, Ordering::SeqCst);
        result
    }

    /// This half or that is shut down: what the ring has is still taken.
    pub(crate) fn shut(&self, sending: bool, receiving: bool) {
        let raise = |flag: &AtomicU32| flag.fetch_max(SHUT, Ordering::AcqRel);
        if sending {
            raise(&self.sends.sending.has_ended);
        }
        if receiving {
            raise(&self.receives.receiving.has_ended);
        }
        self.notify_carrier();
    }

    /// Nobody has this end open any more.
    fn close(&self, fd: i32) {
        // The kernel resets a connection whose bytes nobody read; so does it for ours.
        let is_unread = self.incoming_by_tcp().is_some() && self.incoming.available() != Ok(0);
        if fd >= 0 && is_unread {
            let at_once = libc::linger { l_onoff: 1, l_linger: 0 };
            let _ = kernel::set_option(fd, libc::SOL_SOCKET, libc::SO_LINGER, &at_once);
        }
        let how = if fd >= 0 && kernel::resets_when_closed(fd) { RESET } else { CLOSED };
        self.sends.sending.has_ended.store(how, Ordering::Release);
        self.receives.receiving.has_ended.store(CLOSED, Ordering::Release);
        kernel::wake(self.incoming.word_of_room(), i32::MAX);
        self.notify_carrier();
    }

    /// Whether the ring still has what came before an end, and the end was no reset on
    /// purpose.
    pub(crate) fn has_bytes_before_the_end(&self) -> bool {
        self.incoming_by_tcp().is_some()
            && self.incoming.available() != Ok(0)
            && self.receives.sending.has_ended.load(Ordering::Acquire) != RESET
    }

    /// Whether the other end closed in peace, whatever the kernel makes of a ring that came
    /// too late for it.
    pub(crate) fn has_ended_in_peace(&self) -> bool {
        matches!(self.receives.sending.has_ended.load(Ordering::Acquire), SHUT | CLOSED)
    }
}

#[cfg(test)]
mod tests;
