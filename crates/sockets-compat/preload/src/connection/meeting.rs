//! How the two ends of a connection find each other.
//!
//! Within one host the connector's offer is there before its first bytes are; to another
//! host the carriers bring it, a little later. So the one is looked for with the first
//! calls, the other for a while.

use std::sync::atomic::Ordering;

use landfall_socket_rules::Way;

use super::{Connection, Shared, Stage};
use crate::counts;
use crate::far::{self, Answer};
use crate::kernel::{self, Errno};
use crate::log::Verdict;
use crate::registry::{self, Name};
use crate::segment::{Far, Segment, Side};

/// How often an acceptor looks for an offer. The first bytes of one that speaks are sent
/// after the offer was made: one look would do, if nobody read past us.
const LOOKS: u32 = 4;
/// Stands for the acceptor's cookie where no acceptor may come any more.
pub(crate) const NOBODY: u64 = u64::MAX;
/// Stands for the cookie of an end that is on another host.
pub(crate) const ELSEWHERE: u64 = u64::MAX - 1;
/// After so many calls without an answer a connector takes its offer back,
const PATIENCE: u32 = 64;
/// but not before the other has said something, or for so long: it may read late, however much
/// is sent meanwhile.
const SILENT_MS: u64 = 10_000;
/// How long an acceptor looks for an offer from another host, which the carriers bring.
const FAR_OFFER_MS: u64 = 10_000;

impl Connection {
    /// Offers memory to whoever accepts the connection that `fd` has just begun: on this
    /// host, or on another by way of the carriers.
    pub(crate) fn offer(fd: i32, name: Name, way: Way) -> Result<(), Verdict> {
        let name = if way == Way::Memory { name } else { name.for_the_carrier() };
        let cookie = kernel::cookie(fd).map_err(Verdict::NoMemory)?;
        let file = name.create().map_err(Verdict::NoMemory)?;
        let made = Segment::create(file);
        let _ = kernel::close(file);
        let Ok(segment) = made else {
            name.forget();
            return Err(Verdict::NoMemory(Errno(libc::ENOMEM)));
        };
        let own = segment.end(Side::Connector);
        own.cookie.store(cookie, Ordering::Relaxed);
        own.holders.store(1, Ordering::Release);
        if way != Way::Memory
            && let Err(verdict) = hand_to_the_carrier(segment, &name, way)
        {
            name.forget();
            // SAFETY: nobody else uses this mapping.
            unsafe { segment.unmap() };
            return Err(verdict);
        }
        crate::table::insert(fd, |connection| {
            connection.begin(Side::Connector, Stage::Plain, name, way);
            connection.adopt(segment);
        });
        Ok(())
    }

    /// A connection was accepted: its bytes are counted, and an offer looked for.
    pub(crate) fn accepted(fd: i32, name: Name, way: Way) {
        crate::table::insert(fd, |connection| {
            connection.begin(Side::Acceptor, Stage::Seeking, name, way);
        });
    }

    /// Bytes came by TCP, before there is memory: now an acceptor looks for it.
    pub(crate) fn early_received(&self, fd: i32, bytes: usize) {
        self.early_received.fetch_add(bytes as u64, Ordering::SeqCst);
        self.looks_for_an_offer(fd);
    }

    /// The memory of one who is about to send: an offer of another host may have come
    /// behind the first bytes, so an acceptor looks again.
    pub(crate) fn shared_to_send(&self, fd: i32) -> Option<Shared<'_>> {
        if self.stage() == Stage::Seeking
            && self.far_way.load(Ordering::Relaxed) != 0
            && self.early_received.load(Ordering::SeqCst) > 0
        {
            self.looks_for_an_offer(fd);
        }
        self.shared()
    }

    fn looks_for_an_offer(&self, fd: i32) {
        if self.stage() != Stage::Seeking
            || self.joining.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err()
        {
            return;
        }
        if self.stage() == Stage::Seeking
            && self.may_look()
            && !self.claim(fd)
            && self.has_looked_enough()
        {
            self.stage.store(Stage::Plain as u8, Ordering::Release);
            self.tells(Verdict::NoOffer);
        }
        self.joining.store(0, Ordering::Release);
    }

    /// What comes from another host is looked for by time, not with each call.
    fn may_look(&self) -> bool {
        let now = kernel::milliseconds();
        self.far_way.load(Ordering::Relaxed) == 0
            || self.looked_at.swap(now, Ordering::Relaxed) != now
    }

    fn has_looked_enough(&self) -> bool {
        if self.far_way.load(Ordering::Relaxed) == 0 {
            return self.looks.fetch_add(1, Ordering::Relaxed) + 1 >= LOOKS;
        }
        self.age() >= FAR_OFFER_MS
    }

    /// Whether the offer was there, and we have said that we are here.
    fn claim(&self, fd: i32) -> bool {
        let (received, sent) =
            (self.early_received.load(Ordering::SeqCst), self.early_sent.load(Ordering::SeqCst));
        // Who read or wrote past us makes counting worthless: then it stays what it is.
        if self.early_in_flight.load(Ordering::SeqCst) != 0
            || counts::received(fd) != Some(received)
        {
            return false;
        }
        let Some(segment) = self.name().as_ref().and_then(find) else { return false };
        let (own, shared) = (segment.end(Side::Acceptor), Shared::new(segment, Side::Acceptor));
        let is_of_this_way =
            segment.far().way.load(Ordering::Relaxed) == self.far_way.load(Ordering::Relaxed);
        let is_mine = is_of_this_way
            && kernel::cookie(fd).is_ok_and(|cookie| {
                own.cookie.compare_exchange(0, cookie, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            });
        if !is_mine {
            // SAFETY: nobody else knows of this mapping.
            unsafe { segment.unmap() };
            return false;
        }
        own.holders.store(1, Ordering::Relaxed);
        shared.receives.receiving.by_tcp.store(received, Ordering::Relaxed);
        shared.sends.sending.by_tcp.store(sent, Ordering::Relaxed);
        self.adopt(segment);
        own.is_here.store(1, Ordering::Release);
        if let Some(far) = shared.far {
            far.has_news();
            far.tell_carrier();
        }
        crate::watched::became_shared(fd);
        self.tells(shared.together());
        true
    }

    /// One more call of a connector whose offer nobody has taken yet.
    pub(crate) fn waits_for_an_answer(&self, shared: &Shared<'_>) {
        if shared.are_both_here() {
            if !self.has_told.load(Ordering::Relaxed) {
                self.tells(shared.together());
            }
            return;
        }
        if shared.side != Side::Connector {
            return;
        }
        if let Some(far) = shared.far {
            return self.waits_for_the_carriers(far);
        }
        let acceptor = &shared.segment.end(Side::Acceptor).cookie;
        let has_heard = || shared.receives.receiving.by_tcp.load(Ordering::Relaxed) > 0;
        if self.looks.fetch_add(1, Ordering::Relaxed) >= PATIENCE
            && acceptor.load(Ordering::Relaxed) == 0
            && (has_heard() || self.age() >= SILENT_MS)
            && let Some(name) = self.name()
        {
            // Whoever accepted it would have looked by now. Nobody can come any more.
            name.forget();
            if acceptor.compare_exchange(0, NOBODY, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                self.stage.store(Stage::Plain as u8, Ordering::Release);
                self.tells(Verdict::NoAnswer);
            }
        }
    }

    /// Milliseconds since it was made.
    fn age(&self) -> u64 {
        kernel::milliseconds().saturating_sub(self.began_at.load(Ordering::Relaxed))
    }

    /// One more call of a connector whose offer has gone to another host.
    fn waits_for_the_carriers(&self, far: &Far) {
        const LOOKS_AT_THE_CARRIER: u32 = 64;
        let Some(way) = far.way() else { return };
        let answer = Answer::of(&far.verdict);
        let looks = self.looks.fetch_add(1, Ordering::Relaxed);
        let verdict = if answer.is_no() {
            Verdict::NotCarried(way, answer)
        } else if looks.is_multiple_of(LOOKS_AT_THE_CARRIER) && far.has_lost_its_carrier() {
            Verdict::LostCarrier(way)
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
    pub(crate) fn looks_for_the_other(&self, shared: &Shared<'_>, fd: i32) {
        self.waits_for_an_answer(shared);
        if shared.far.is_some() && !shared.is_sending_switched() {
            shared.switch_sending(fd);
        }
    }
}

/// Asks this host's carrier to take an offer to the other host.
fn hand_to_the_carrier(segment: Segment, name: &Name, way: Way) -> Result<(), Verdict> {
    let far = segment.far();
    far.way.store(far::number_of(way), Ordering::Relaxed);
    far.has_news();
    far.process.store(crate::process::owner(), Ordering::Relaxed);
    let carrier = registry::carrier(way).ok_or(Verdict::NoCarrier(way))?;
    kernel::send_note(carrier.as_c_str(), &name.to_bytes()).map_err(|_| Verdict::NoCarrier(way))
}

/// The memory that was offered for a connection.
pub(crate) fn find(name: &Name) -> Option<Segment> {
    let file = name.open().ok()?;
    let opened = Segment::open(file);
    let _ = kernel::close(file);
    opened.ok()
}
