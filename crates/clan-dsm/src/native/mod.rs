//! One end of a native link: a wire that neither loses nor reorders (section 2.2
//! of the paper).
//!
//! Two kinds of flow control are combined, as the paper planned. *Credits* say
//! how much the other end has room for, so that nothing is ever sent that would
//! have to be dropped. *Xoff* stops a sender at once whatever its credit, and
//! *Xon* lets it go on. Symbols need no credit themselves, so neither can wait
//! for the other.
//!
//! Nothing is repeated: a damaged unit ends the link as an exception, told to
//! both sides, and so does an end that makes no progress for longer than both
//! sides' patience. After either, the link can begin anew: both ends count from
//! zero, and what is still on the way from before is ignored.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `state` | how it begins, and begins anew; how much may be on the way |
//! | `burst` | [`Burst`]: a packet is split at any word, and joined again; [`admit`]: what of it belongs to this host; [`Fifo`]: a few words on their way |
//! | [`wire`] | what stands on the wire, bit by bit |
//! | [`switch`] | a worm-hole switch between such links |
//!
//! What does not live here: packets that wait (the adapter and the
//! [`switch`] have them), and what is in them.

mod burst;
mod state;
pub mod switch;
pub mod wire;

#[cfg(test)]
mod tests;

use landfall_placement::{Duration, Instant, Refusal, Serial32, Timeout};

use crate::address::{Address, HostId, WORD};
use crate::error::Ended;
pub use burst::{
    Admitted, Burst, Fifo, HEADER_WORDS, MOST_INDIVISIBLE, ReceiveWindow, Word, admit,
    due as credit_due,
};
use burst::{Inbound, Outbound};
pub use state::State;
use state::{Handshake, SymbolMeaning};
use wire::{Symbol, Unit};

/// What one end of a link is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The host at this end; `None` for a switch.
    pub host: Option<HostId>,
    /// How many words, headers included, this end takes before it has used the
    /// first of them; no less than a packet that cannot be split.
    pub room: u32,
    /// How long something may wait to be sent before the other end counts as
    /// gone. Who says Xoff says Xon sooner.
    pub patience: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self { host: None, room: 1024, patience: Duration::from_secs(1) }
    }
}

/// What came over the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// A packet. [`NativeLink::handle_taken`] is due once it is out of the way.
    Packet(Burst),
    /// News between the ends of the link.
    Symbol,
    /// Something from before this link began (again): it means nothing.
    Stale,
}

/// One end of a native link, as a state machine.
#[derive(Clone, Debug)]
pub struct NativeLink {
    settings: Settings,
    handshake: Handshake,
    outbound: Outbound,
    inbound: Inbound,
    /// This side refuses packets for the time being.
    hold: bool,
    /// The other end began anew, and nobody was told.
    restarted: bool,
    /// Since when there has been something to send and no leave to send it.
    blocked: Option<Instant>,
}

impl NativeLink {
    /// One end of a link that is not up yet. Its room is at least [`Fifo::LEAST`].
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        debug_assert!(settings.room >= Fifo::LEAST, "configurations are validated before");
        Self {
            settings,
            handshake: Handshake::new(),
            outbound: Outbound::default(),
            inbound: Inbound::new(settings.room),
            hold: false,
            restarted: false,
            blocked: None,
        }
    }

    /// Whether packets may pass, and if not, why.
    #[must_use]
    pub const fn state(&self) -> State {
        self.handshake.state()
    }

    /// Who is at the other end, once it has said so: a host, or (`Some(None)`) a switch.
    #[must_use]
    pub const fn peer(&self) -> Option<Option<HostId>> {
        self.handshake.peer()
    }

    /// Whether the other end began anew since this was last asked: what was sent
    /// and not taken yet is lost.
    pub fn take_restarted(&mut self) -> bool {
        core::mem::take(&mut self.restarted)
    }

    /// The path is there: the link begins (anew). `session` is a number that the
    /// other end has not seen from here before: a random one.
    pub fn handle_up(&mut self, now: Instant, session: u32) {
        self.forget();
        self.handshake.begin(now, session);
    }

    /// The path is gone.
    pub fn handle_down(&mut self) {
        self.end(Ended::LinkGone);
    }

    /// Ends the link, and tells the other side.
    pub fn close(&mut self) {
        self.fault(Ended::Here);
    }

    /// A unit came. `head` is its beginning, `len` the length of the whole.
    /// Where the link has a [trailer](wire::Trailer) it was looked at before, and
    /// is not counted; if it was wrong, [`handle_damage`](Self::handle_damage) is due instead.
    ///
    /// # Errors
    /// It made no sense, or was sent without leave: the link is down now, and
    /// the other side is told.
    pub fn handle_unit(&mut self, now: Instant, head: &[u8], len: u32) -> Result<Arrival, Refusal> {
        match Unit::parse(head, len) {
            Ok(Unit::Symbol(symbol)) => Ok(self.handle_symbol(now, symbol)),
            _ if !self.handshake.is_hearing() => Ok(Arrival::Stale),
            Ok(Unit::Packet(burst)) => {
                if self.inbound.arrived(burst.cost()) {
                    Ok(Arrival::Packet(burst))
                } else {
                    self.fault(Ended::Damaged);
                    Err(Refusal::NoRoom)
                }
            }
            Err(refusal) => {
                self.fault(Ended::Damaged);
                Err(refusal)
            }
        }
    }

    /// An adapter has put a packet into its place that counts as arrived only now. It may
    /// have told the other end that there is room up to some word.
    pub(crate) fn handle_landed(&mut self, burst: &Burst, told: Option<Serial32>) {
        if self.handshake.is_hearing() && self.inbound.arrived(burst.cost()) {
            self.handle_taken(burst);
            if let Some(edge) = told {
                self.inbound.advertised(edge);
            }
        }
    }

    /// How many words have come, and up to which one may come, since the link began;
    /// `None` where nothing counts that comes.
    pub(crate) fn window(&self) -> Option<ReceiveWindow> {
        self.handshake.is_hearing().then(|| self.inbound.window())
    }

    /// A unit came whose trailer was wrong.
    pub fn handle_damage(&mut self) {
        if self.handshake.is_hearing() {
            self.fault(Ended::Damaged);
        }
    }

    /// Frees words, headers included, of what came.
    pub fn handle_freed(&mut self, words: u32) {
        self.inbound.freed(words);
    }

    /// Words, headers included, of an earlier session still take room.
    /// Due before the next symbol is asked for.
    pub fn handle_occupied(&mut self, words: u32) {
        self.inbound.occupied(words);
    }

    /// A packet is out of the way: in its place, or refused.
    pub fn handle_taken(&mut self, burst: &Burst) {
        self.handle_freed(burst.cost());
    }

    /// Whether the other side is to stop, whatever its credit.
    pub fn hold(&mut self, hold: bool) {
        self.hold = hold;
    }

    /// How many words the next packet may have, in a unit of `unit` bytes without
    /// its trailer. Zero: nothing may be sent now.
    #[must_use]
    pub fn room(&self, unit: u32) -> u32 {
        if self.state() != State::Up {
            return 0;
        }
        let fits = unit.saturating_sub(Address::LEN as u32) / WORD;
        self.outbound.room().min(fits)
    }

    /// A packet was sent.
    pub fn handle_sent(&mut self, burst: &Burst) {
        self.outbound.sent(burst.cost());
        self.blocked = None;
    }

    /// Whether something waits that [`room`](Self::room) gives no leave for. Only
    /// then does patience run out.
    pub fn handle_waiting(&mut self, now: Instant, waits: bool) {
        match (waits && self.state() == State::Up, self.blocked) {
            (true, None) => self.blocked = Some(now),
            (true, Some(_)) => {}
            (false, _) => self.blocked = None,
        }
    }

    /// The next symbol to send, before any packet.
    pub fn poll_symbol(&mut self, now: Instant) -> Option<Symbol> {
        if let Some(symbol) = self.handshake.poll(now, self.settings.host) {
            return Some(symbol);
        }
        if self.state() != State::Up {
            return None;
        }
        self.inbound.poll(self.hold)
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Timeout> {
        if let Some(at) = self.handshake.poll_timeout() {
            return Some(Timeout { at, timer: "native link: begin again" });
        }
        let since = self.blocked?;
        Some(Timeout { at: since + self.settings.patience, timer: "native link: patience" })
    }

    /// Time passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        let is_gone = self.blocked.is_some_and(|since| now >= since + self.settings.patience);
        if is_gone {
            self.fault(Ended::Silent);
        }
    }

    fn handle_symbol(&mut self, now: Instant, symbol: Symbol) -> Arrival {
        match self.handshake.handle(now, symbol) {
            SymbolMeaning::Stale => return Arrival::Stale,
            SymbolMeaning::Nothing => {}
            SymbolMeaning::Restarted => {
                self.forget();
                self.restarted = true;
            }
        }
        match symbol {
            Symbol::Xoff => self.outbound.stop(true),
            Symbol::Xon => {
                self.outbound.stop(false);
                self.blocked = None;
            }
            Symbol::Credit(edge) => {
                if self.outbound.credit(edge) {
                    self.blocked = None;
                }
            }
            Symbol::Fault(reason) => self.end(Ended::There(reason)),
            Symbol::Begin { .. } | Symbol::Ready { .. } => {}
        }
        Arrival::Symbol
    }

    /// Ends the link, and the other side is told.
    fn fault(&mut self, why: Ended) {
        self.forget();
        self.handshake.fault(why);
    }

    fn end(&mut self, why: Ended) {
        self.forget();
        self.handshake.end(why);
    }

    /// Counts from zero. What the other end still has of the packets from before
    /// is its own matter: it counts from zero as well.
    fn forget(&mut self) {
        self.outbound = Outbound::default();
        self.inbound = Inbound::new(self.settings.room);
        self.blocked = None;
    }
}
