//! How a link begins, and begins anew.
//!
//! Each end names its beginning by a number and repeats it until it hears
//! `Ready` with that number. A link keeps order, so what came before that is
//! from an earlier time, and what comes behind it is not. An end that hears a
//! beginning that it does not know says its own again: who begins anew has
//! forgotten the other's.

use landfall_placement::{Duration, Instant};

use crate::address::HostId;
use crate::error::{Ended, Reason};
use crate::native::wire::Symbol;

/// Whether packets may pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// No, and why.
    Down(Ended),
    /// Not yet: the two ends are finding each other.
    Starting,
    /// Yes.
    Up,
}

/// A beginning is repeated after this time, and ever less often.
const RETRY: Duration = Duration::from_millis(1);
const MOST_RETRY: Duration = Duration::from_secs(1);

/// What a symbol meant for the beginning.
pub(super) enum SymbolMeaning {
    /// It is from before this end began.
    Stale,
    /// Go on.
    Nothing,
    /// The other end began anew: all counts are zero.
    Restarted,
}

#[derive(Clone, Debug)]
pub(super) struct Handshake {
    /// Why the link is down; else it is starting or up.
    down: Option<Ended>,
    session: u32,
    /// The other end has heard of our session: what it sends belongs to it.
    hearing: bool,
    /// The other end, and the session that it began.
    peer: Option<(Option<HostId>, u32)>,
    owe_fault: Option<Reason>,
    owe_begin: bool,
    owe_ready: bool,
    repeat_at: Instant,
    pause: Duration,
}

impl Handshake {
    pub(super) const fn new() -> Self {
        Self {
            down: Some(Ended::LinkGone),
            session: 0,
            hearing: false,
            peer: None,
            owe_fault: None,
            owe_begin: false,
            owe_ready: false,
            repeat_at: Instant::ZERO,
            pause: RETRY,
        }
    }

    pub(super) const fn state(&self) -> State {
        match self.down {
            Some(why) => State::Down(why),
            None if self.hearing && self.peer.is_some() => State::Up,
            None => State::Starting,
        }
    }

    pub(super) const fn peer(&self) -> Option<Option<HostId>> {
        match self.peer {
            Some((host, _)) => Some(host),
            None => None,
        }
    }

    /// Whether packets that come belong to this session.
    pub(super) const fn is_hearing(&self) -> bool {
        self.down.is_none() && self.hearing
    }

    pub(super) fn begin(&mut self, now: Instant, session: u32) {
        let owe_fault = self.owe_fault;
        *self = Self { down: None, session, owe_fault, owe_begin: true, ..Self::new() };
        self.repeat_at = now + self.pause;
    }

    pub(super) fn end(&mut self, why: Ended) {
        *self = Self { down: Some(why), session: self.session, ..Self::new() };
    }

    /// Ends the link, and the other end is told.
    pub(super) fn fault(&mut self, why: Ended) {
        let tell = self.is_hearing();
        self.end(why);
        self.owe_fault = tell.then_some(match why {
            Ended::Damaged => Reason::Malformed,
            Ended::Silent => Reason::NoRoom,
            _ => Reason::Refused,
        });
    }

    pub(super) fn handle(&mut self, now: Instant, symbol: Symbol) -> SymbolMeaning {
        if self.down.is_some() {
            return SymbolMeaning::Stale;
        }
        match symbol {
            Symbol::Begin { host, session } => self.handle_begin(now, host, session),
            Symbol::Ready { session, .. } => {
                if session != self.session {
                    return SymbolMeaning::Stale;
                }
                self.hearing = true;
                SymbolMeaning::Nothing
            }
            _ if self.hearing => SymbolMeaning::Nothing,
            _ => SymbolMeaning::Stale,
        }
    }

    fn handle_begin(&mut self, now: Instant, host: Option<HostId>, session: u32) -> SymbolMeaning {
        self.owe_ready = true;
        let before = self.peer.replace((host, session));
        if before.is_some_and(|(_, known)| known == session) {
            return SymbolMeaning::Nothing;
        }
        self.owe_begin = true;
        if before.is_none() || !self.hearing {
            return SymbolMeaning::Nothing;
        }
        // It knows nothing of what we counted: neither do we.
        self.session = self.session.wrapping_add(1);
        self.hearing = false;
        self.pause = RETRY;
        self.repeat_at = now + self.pause;
        SymbolMeaning::Restarted
    }

    /// The next symbol of the handshake. What is owed is said before anything else.
    pub(super) fn poll(&mut self, now: Instant, host: Option<HostId>) -> Option<Symbol> {
        if let Some(reason) = self.owe_fault.take() {
            return Some(Symbol::Fault(reason));
        }
        if self.down.is_some() {
            return None;
        }
        if self.poll_timeout().is_some_and(|at| at <= now) {
            self.owe_begin = true;
            self.pause = (self.pause * 2).min(MOST_RETRY);
            self.repeat_at = now + self.pause;
        }
        if core::mem::take(&mut self.owe_begin) {
            return Some(Symbol::Begin { host, session: self.session });
        }
        let (_, session) = self.peer?;
        core::mem::take(&mut self.owe_ready).then_some(Symbol::Ready { host, session })
    }

    /// When the beginning is said again.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        (self.down.is_none() && !self.hearing).then_some(self.repeat_at)
    }
}
