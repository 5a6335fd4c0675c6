//! One TCP connection of the program, and how it comes to be shared memory.
//!
//! It begins as TCP, and both ends count what they send and receive. The connector offers
//! memory when it speaks for the second time, or when many bytes have gone; the acceptor looks
//! for the offer then, and says that it is here; the connector sees that and says so, too.
//! From then on each sender may change its own direction from TCP to the ring: it
//! writes down how many bytes went by TCP, and the receiver takes just as many from there
//! before it looks at the ring. Not one byte goes by TCP that the program did not send,
//! unless both ends are here; who is alone keeps his TCP connection.
//!
//! How they find each other is in the modules below. What does not live here: bytes
//! ([`crate::transfer`]), readiness ([`crate::readiness`]).

mod early;
mod pairing;
mod verdict;
mod view;

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};

use early::EarlyBytes;
use landfall_socket_rules::Transport;
use pairing::proof_of_inherited;
pub(crate) use pairing::{ELSEWHERE, NOBODY, Offer, make};
pub(crate) use view::{CLOSED, RESET, SHUT, SegmentView};

use crate::kernel::{self, Errno, Outcome};
use crate::log::Verdict;
use crate::messages::{Holder, Socket};
use crate::patience::Patience;
use crate::registry::{Name, NameCell};
use crate::segment::{Role, Segment, Unusable};
use crate::{between_hosts, process, socket_diag, status};

/// Set in a count of calls under way: nobody sends by TCP any more, or just now.
const GATE: u32 = 1 << 31;

/// To the program it is as if the other end had died.
const UNREADABLE: Errno = Errno(libc::ECONNRESET);

static SERIALS: AtomicU64 = AtomicU64::new(0);

/// Where a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Stage {
    /// TCP, now and for ever.
    Plain,
    /// TCP so far: a connector that has not offered memory yet, or an acceptor that has not
    /// seen an offer.
    Early,
    /// There is memory; whether both are here is written there.
    Shared,
    /// There is memory, as another version of the library made it: which way bytes go is not known
    /// here.
    Unreadable,
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
    early: EarlyBytes,
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

/// For how many connections memory is made at once, where several are shared with another
/// process: a fork must not take long because there are thousands. The others stay TCP.
#[derive(Debug)]
pub(crate) struct Means(u32);

impl Means {
    pub(crate) const fn of_a_fork() -> Self {
        Self(256)
    }

    fn spend(&mut self) -> bool {
        let is_enough = self.0 > 0;
        self.0 = self.0.saturating_sub(1);
        is_enough
    }
}

/// What a call is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Sends,
    Receives,
}

/// Which way the bytes of a call have gone, or go.
pub(crate) enum Sending<'a> {
    ByTcp(Outcome),
    ByMemory(SegmentView<'a>),
}

impl Connection {
    pub(crate) const fn new() -> Self {
        Self {
            stage: AtomicU8::new(Stage::Plain as u8),
            is_acceptor: AtomicU8::new(0),
            base: AtomicPtr::new(std::ptr::null_mut()),
            name: NameCell::new(),
            messages: Holder::new(),
            early: EarlyBytes::new(),
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
        self.early.begin_at(0, 0);
        for counter in [&self.looks, &self.joining, &self.was_full] {
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
            stage if stage == Stage::Early as u8 => Stage::Early,
            stage if stage == Stage::Shared as u8 => Stage::Shared,
            stage if stage == Stage::Unreadable as u8 => Stage::Unreadable,
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

    /// The same of one that was TCP so far; `false` if another thread has given that up meanwhile.
    fn adopt_early(&self, segment: Segment, proof: Proof) -> bool {
        self.is_proven.store(proof == Proof::Done, Ordering::Relaxed);
        self.base.store(segment.base(), Ordering::Release);
        let is_so = self.leaves_early(Stage::Shared);
        if !is_so {
            self.base.store(std::ptr::null_mut(), Ordering::Release);
        }
        is_so
    }

    /// Goes on from where it is open whether there will be memory.
    fn leaves_early(&self, stage: Stage) -> bool {
        let (early, stage) = (Stage::Early as u8, stage as u8);
        self.stage.compare_exchange(early, stage, Ordering::AcqRel, Ordering::Acquire).is_ok()
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
            let offer = match Offer::find(&name, role) {
                Ok(offer) => offer,
                Err(why @ Verdict::Unusable(Unusable::Unknown)) => {
                    return Self::inherited_unreadable(fd, role, name, why);
                }
                Err(_) => continue,
            };
            let said = offer.end(role).cookie.load(Ordering::Acquire);
            if kernel::cookie(fd) != Ok(said) {
                continue;
            }
            let Some(proof) = proof_of_inherited(fd, role, &name, &offer) else { continue };
            let holders = &offer.own().holders;
            if !is_held_by_message && !holders.has(process::owner()) {
                // Nobody counts who is started by `vfork`.
                offer.end(role).holders.fetch_add(1, Ordering::AcqRel);
            }
            holders.enters(process::owner());
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
        Self::inherited_early(fd, as_connector);
    }

    /// Another version of the library has made its memory. What of its bytes goes where only that
    /// knows, so this process hears of a reset if it sends or receives; for others that have the
    /// connection it stays what it is.
    fn inherited_unreadable(fd: i32, role: Role, name: Name, why: Verdict) {
        crate::table::insert(fd, |connection| {
            connection.begin(role, Stage::Unreadable, name, Transport::Memory);
            connection.tells(why);
        });
    }

    /// Another program began it, and this one has it now; there is no memory of this end yet. Within
    /// one host that may still be made before the first byte: who has exchanged some may do so
    /// again. What another host offers may be on its way, and whatever went until now went by TCP,
    /// which has counted it.
    fn inherited_early(fd: i32, as_connector: Name) {
        let Some(received) = socket_diag::received(fd) else { return };
        // Of one who called, and has said nothing, the kernel counts that it called.
        let has_called = (received, socket_diag::sent(fd, Role::Connector)) == (0, Some(0));
        let role = if has_called { Role::Connector } else { Role::Acceptor };
        let name = if has_called { as_connector } else { as_connector.turned() };
        let Some(sent) = socket_diag::sent(fd, role) else { return };
        let transport = match crate::rules::allow(&name) {
            Ok(transport) => transport,
            Err(verdict) => return status::left_to_tcp(fd, role, &name, verdict),
        };
        if match transport {
            Transport::Memory => (received, sent) == (0, 0),
            _ => role == Role::Acceptor,
        } {
            crate::table::insert(fd, |connection| {
                connection.begin(role, Stage::Early, name, transport);
                connection.early.begin_at(sent, received);
            });
        }
    }

    /// Whether `fd` is this very socket.
    fn is_of(&self, fd: i32) -> bool {
        let Some(shared) = self.shared() else {
            return self.stage() == Stage::Early && self.name() == Name::of(fd, self.role());
        };
        let known = shared.own_end().cookie.load(Ordering::Acquire);
        kernel::cookie(fd) == Ok(known)
    }

    /// A child will have it, too, or who gets a message. It is said before that. Memory that it
    /// needs for it is made out of `means`.
    pub(crate) fn is_held_once_more(&self, fd: i32, means: &mut Means) {
        self.settles(fd, means);
        if let Some(shared) = self.shared() {
            shared.own_end().holders.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// It did not come to that.
    pub(crate) fn is_held_once_less(&self) {
        if let Some(shared) = self.shared() {
            shared.own_end().holders.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// In the child: what other threads of the parent were about is not done here.
    pub(crate) fn after_fork(&self) {
        self.early.after_fork();
        self.joining.store(0, Ordering::Relaxed);
        if let Some(shared) = self.shared() {
            shared.own.holders.enters(process::owner());
        }
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
            let has_looked = self.role() == Role::Acceptor && self.early.turns.count() > 0;
            return self.tells(if has_looked { Verdict::NoOffer } else { Verdict::TooShort });
        };
        if fd >= 0 {
            // A byte that is left unread would make the kernel reset the connection.
            let is_last = shared.own_end().holders.load(Ordering::Acquire) == 1;
            shared.take_rings_away_at_last(fd, is_last);
        }
        shared.own.holders.leaves(process::owner());
        if shared.own_end().holders.fetch_sub(1, Ordering::AcqRel) == 1 {
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
        loop {
            let Some(shared) = self.shared_to_send(fd) else {
                match self.early_send(wanted, &mut by_tcp) {
                    Some(sent) => return Sending::ByTcp(sent),
                    None => continue,
                }
            };
            if shared.is_sending_switched() {
                return Sending::ByMemory(shared);
            }
            self.waits_for_an_answer(&shared, fd, Call::Sends);
            shared.switch_sending(fd);
            if let Some(sent) = shared.send_by_tcp(&mut by_tcp) {
                self.notes_fullness(sent, wanted);
                return Sending::ByTcp(sent);
            }
            // Another closes the gate, to change the way. If it cannot, nobody looks at the ring.
            shared.waits_for_the_gate();
        }
    }

    /// Bytes are about to go by TCP, before there is memory; `None` if there is some now.
    pub(crate) fn early_send(
        &self,
        wanted: usize,
        send: impl FnOnce() -> Outcome,
    ) -> Option<Outcome> {
        if self.stage() == Stage::Unreadable {
            return Some(Err(UNREADABLE));
        }
        let sent = self.early.send(|| self.stage() == Stage::Shared, send)?;
        self.notes_fullness(sent, wanted);
        Some(sent)
    }

    /// The same of a call that receives. While it is under way there will be no memory.
    pub(crate) fn early_receive(
        &self,
        fd: i32,
        receive: impl FnOnce() -> Outcome,
    ) -> Option<Outcome> {
        if self.stage() == Stage::Unreadable {
            return Some(Err(UNREADABLE));
        }
        let received = self.early.receive(|| self.stage() == Stage::Shared, receive)?;
        if received.is_ok_and(|bytes| bytes > 0) {
            self.has_received_early(fd);
        }
        Some(received)
    }

    /// A call that receives where no memory will come; `None` if there is some.
    pub(crate) fn plain_receive(&self, receive: impl FnOnce() -> Outcome) -> Option<Outcome> {
        match self.stage() {
            Stage::Shared => None,
            Stage::Unreadable => Some(Err(UNREADABLE)),
            Stage::Plain | Stage::Early => Some(receive()),
        }
    }

    /// Whether what goes by TCP now may go by memory later.
    pub(crate) fn is_early(&self) -> bool {
        self.stage() == Stage::Early
    }

    /// Whether calls wait, before there is memory.
    pub(crate) fn waits_early(&self, fd: i32) -> bool {
        crate::patience::do_they(&self.early.waits, || !kernel::is_nonblocking(fd))
    }

    /// Somebody has said whether calls shall wait.
    pub(crate) fn forget_whether_it_waits(&self) {
        crate::patience::forget(&self.early.waits);
        if let Some(shared) = self.shared() {
            crate::patience::forget(&shared.own_end().waits);
        }
    }

    /// A half of it was shut down.
    pub(crate) fn shut(&self, sending: bool, receiving: bool) {
        match self.shared() {
            Some(shared) => shared.shut(sending, receiving),
            // What is said once more is not worth memory, and its end is TCP's to tell.
            None if self.role() == Role::Connector => self.gives_up(Verdict::TooShort),
            None => {}
        }
    }

    /// TCP had no room for all: that it has, or a ring instead, is an edge.
    fn notes_fullness(&self, sent: Outcome, wanted: usize) {
        if sent.map_or_else(|why| why == Errno(libc::EAGAIN), |sent| sent < wanted) {
            self.was_full.fetch_add(1, Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
mod tests;
