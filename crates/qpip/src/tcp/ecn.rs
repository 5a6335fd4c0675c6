//! Explicit congestion notification: what openings agree on (RFC 3168, RFC 9768), and what a
//! connection says of marks. Counting them is `accurate_ecn`.

use landfall_placement::Ecn;

use super::accurate_ecn::AccurateEcn;
use super::config::TcpConfig;
use super::listen::Terms;
use super::segment::Segment;
use super::state::ConnectionState as State;
use super::tcb::Tcb;
use crate::wire::tcp::Flags;
use crate::wire::tcp_options::{AccurateOption, Blocks, LEN_MAX, Options};

/// What three flags say of an opening, of the mark of an opening, or of a counter: AE is the
/// highest bit, ECE the lowest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ace(pub(super) u8);

impl Ace {
    /// An opening that asks for accurate ECN, or a broken answer.
    const ALL: Self = Self(7);
    /// An answer that agrees to classic ECN alone.
    const CLASSIC_ANSWER: Self = Self(1);
    /// An opening that asks for classic ECN alone.
    const CLASSIC_OPENING: Self = Self(3);

    /// What our opening says. One that went unanswered twice may have been dropped for asking.
    pub(crate) const fn question(config: &TcpConfig, tries: u8) -> Self {
        match (config.ecn && tries <= 2, config.accurate_ecn) {
            (false, _) => Self(0),
            (true, false) => Self::CLASSIC_OPENING,
            (true, true) => Self::ALL,
        }
    }

    pub(crate) const fn of(segment: &Segment) -> Self {
        let cwr = segment.flags.contains(Flags::CWR) as u8;
        let ece = segment.flags.contains(Flags::ECE) as u8;
        Self((segment.has_ae as u8) << 2 | cwr << 1 | ece)
    }

    /// That an opening, or its answer, came with this code point (tables 2 and 3).
    pub(crate) const fn of_opening(ecn: Ecn) -> Self {
        Self(match ecn {
            Ecn::NotCapable => 0b010,
            Ecn::Capable1 => 0b011,
            Ecn::Capable0 => 0b100,
            Ecn::CongestionExperienced => 0b110,
        })
    }

    /// With which code point it came; nothing where that is not said.
    pub(super) const fn opening(self) -> Option<Ecn> {
        match self.0 {
            0b010 => Some(Ecn::NotCapable),
            0b011 => Some(Ecn::Capable1),
            0b100 => Some(Ecn::Capable0),
            0b110 => Some(Ecn::CongestionExperienced),
            _ => None,
        }
    }

    pub(super) const fn of_count(packets: u32) -> Self {
        Self(packets as u8 & 7)
    }

    pub(crate) const fn flags(self) -> (Flags, bool) {
        let cwr = if self.0 & 2 != 0 { Flags::CWR } else { Flags::NONE };
        let ece = if self.0 & 1 != 0 { Flags::ECE } else { Flags::NONE };
        (cwr.union(ece), self.0 & 4 != 0)
    }
}

/// How two ends tell each other of marks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EcnFeedback {
    /// Not at all.
    #[default]
    None,
    /// Whether there was one (RFC 3168).
    Classic,
    /// How many (RFC 9768).
    Accurate,
}

impl EcnFeedback {
    /// What follows from an opening (tables 2, and section 3.1.3).
    pub(crate) const fn of_question(ace: Ace, accurate: bool) -> Self {
        match ace.0 {
            0b000 => Self::None,
            0b011 => Self::Classic,
            // Who does not speak it sees both flags of RFC 3168, and passes AE over.
            0b111 if !accurate => Self::Classic,
            _ if accurate => Self::Accurate,
            _ => Self::None,
        }
    }

    /// What follows from the answer to ours.
    pub(crate) const fn of_answer(ace: Ace, accurate: bool) -> Self {
        match ace.0 {
            0b001 => Self::Classic,
            0b101 if !accurate => Self::Classic,
            // What comes back as it was said was not understood.
            0b000 | 0b111 => Self::None,
            _ if accurate => Self::Accurate,
            _ => Self::None,
        }
    }
}

impl EcnFeedback {
    /// What a proof brings back of an answer of which nothing was kept (table 4, note 3).
    pub(crate) const fn of_proof(config: &TcpConfig, classic: bool, proof: &Segment) -> Self {
        match (config.ecn, classic, config.accurate_ecn && Ace::of(proof).0 > 1) {
            (true, true, _) => Self::Classic,
            (true, false, true) => Self::Accurate,
            _ => Self::None,
        }
    }

    /// What an answer says to an opening that came with this code point. The third try leaves
    /// accurate ECN out (RFC 9768, section 3.2.3.2.2).
    pub(crate) const fn answer(self, opening: Ecn, tries: u8) -> Ace {
        match self {
            Self::Classic => Ace::CLASSIC_ANSWER,
            Self::Accurate if tries < 2 => Ace::of_opening(opening),
            Self::Accurate | Self::None => Ace(0),
        }
    }
}

/// Explicit congestion notification of a connection (RFC 3168).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EcnState {
    pub(super) is_on: bool,
    /// Marks are counted (RFC 9768): see the sender's [`AccurateEcn`].
    pub(super) is_accurate: bool,
    /// New data leaves as capable.
    pub(super) is_capable: bool,
    /// The flags of each header that echo: of one mark, or the bits of a counter; and AE.
    pub(super) echo: Flags,
    pub(super) echo_ae: bool,
    /// Each mark is echoed (RFC 8257, 3.2).
    pub(super) echoes_each: bool,
    /// We have reduced the window: the next new data says so.
    pub(super) says_reduced: bool,
}

impl EcnState {
    pub(super) fn new(config: &TcpConfig, terms: &Terms) -> Self {
        let is_on = terms.ecn != EcnFeedback::None;
        let is_accurate = terms.ecn == EcnFeedback::Accurate;
        Self {
            is_on,
            is_accurate,
            is_capable: is_on,
            echoes_each: config.congestion.echoes_each_mark() && !is_accurate,
            ..Self::default()
        }
    }

    /// Is a mark echoed (RFC 3168)?
    #[inline]
    pub(super) const fn echoes(&self) -> bool {
        self.echo.contains(Flags::ECE)
    }

    pub(super) const fn set_echo(&mut self, echoes: bool) {
        self.echo = if echoes { Flags::ECE } else { Flags::NONE };
    }
}

// Where a connection counts, and says so.

impl Tcb {
    /// A segment came that counts: what it says of our packets, and with what mark it came.
    pub(super) fn count_marks(&mut self, segment: &Segment) {
        // What opens says nothing of packets, and neither does data that came with it.
        if self.state == State::SynReceived || segment.has(Flags::SYN) {
            if segment.has(Flags::SYN | Flags::ACK) {
                self.note_answer_again(segment);
            }
            return;
        }
        let Some(accurate) = &mut self.sender.accurate else {
            debug_assert!(false, "both sides agreed on counting");
            return;
        };
        accurate.hear(segment);
        if accurate.receive(segment) {
            self.receiver.owe_now();
        }
        (self.ecn.echo, self.ecn.echo_ae) = accurate.ace().flags();
    }

    /// May it tell of marks?
    pub(super) const fn may_tell_marks(&self, segment: &Segment) -> bool {
        !segment.flags.contains(Flags::SYN)
            && (self.ecn.is_accurate || segment.flags.contains(Flags::ECE))
    }

    /// Their opening, or their answer to ours, was agreed to. Returns whether ours was marked.
    pub(super) fn begin_to_count_marks(&mut self, segment: &Segment) -> bool {
        if !self.ecn.is_accurate {
            return false;
        }
        let is_answer = segment.has(Flags::ACK);
        let mut accurate = AccurateEcn::new(!is_answer);
        let was_marked = is_answer && accurate.handle_answer(segment);
        accurate.note_opening(segment.ecn);
        self.ecn.is_capable &= accurate.sends_capable;
        (self.ecn.echo, self.ecn.echo_ae) = accurate.ace().flags();
        self.sender.count_marks_of(accurate);
        was_marked
    }

    /// The answer to our opening came again.
    pub(super) fn note_answer_again(&mut self, segment: &Segment) {
        if let Some(accurate) = &mut self.sender.accurate {
            accurate.note_answer(segment.ecn);
            (self.ecn.echo, self.ecn.echo_ae) = accurate.ace().flags();
        }
    }

    /// With what mark an opening came that is answered.
    pub(super) fn note_opening(&mut self, segment: &Segment) {
        if let Some(accurate) = &mut self.sender.accurate {
            accurate.note_opening(segment.ecn);
        }
    }

    /// What our answer says: flags, AE, and the option the first time.
    pub(super) fn answer_marks(&mut self) -> (Flags, bool, Option<AccurateOption>) {
        let tries = self.opening.tries.saturating_sub(1);
        let opening = self.sender.accurate.as_ref().map_or(Ecn::NotCapable, |own| own.opening());
        let ace = self.terms.ecn.answer(opening, tries);
        if self.ecn.is_accurate && ace == Ace::default() {
            self.ecn.is_capable = false;
        }
        let (flags, has_ae) = ace.flags();
        let tells = self.ecn.is_accurate && tries == 0;
        let option = AccurateEcn::first_option();
        (flags, has_ae, tells.then_some(option))
    }

    /// Does an acknowledgement have to leave before data, for what it says of marks?
    #[inline]
    pub(super) fn owes_marks(&self) -> bool {
        self.ecn.is_accurate && self.sender.accurate.as_ref().is_some_and(|own| own.owes_bare())
    }

    /// Data leaves, with packets of so much at most. Returns how it is sent that would be sent
    /// so.
    pub(super) fn sent_accurate(&mut self, longest: u32, ecn: Ecn) -> Ecn {
        let Some(accurate) = &mut self.sender.accurate else {
            debug_assert!(false, "both sides agreed on counting");
            return Ecn::NotCapable;
        };
        accurate.sent(longest);
        accurate.said();
        if accurate.sends_capable { ecn } else { Ecn::NotCapable }
    }

    /// What an acknowledgement says of marks: flags and AE, and the option where it has room,
    /// and two blocks have too (section 3.2.3.3).
    pub(super) fn say_marks(&mut self, options: &mut Options) -> (Flags, bool) {
        let Some(accurate) = &mut self.sender.accurate else {
            debug_assert!(false, "both sides agreed on counting");
            return (Flags::NONE, false);
        };
        let blocks = options.sack.len().min(2);
        let blocks = if blocks > 0 { 4 + 8 * blocks } else { 0 };
        let fixed = Options { sack: Blocks::NONE, ..*options }.len();
        options.accurate = accurate.take_option(LEN_MAX.saturating_sub(fixed + blocks));
        let said = accurate.say(!options.sack.is_empty()).flags();
        self.ecn.is_capable &= accurate.sends_capable;
        said
    }
}
