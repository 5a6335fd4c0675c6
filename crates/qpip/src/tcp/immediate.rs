//! Words that arrive with the ends of messages (immediate data).
//!
//! TCP has no place for them but an option ([`ImmediateOption`]), and options get lost on
//! their way more easily than bytes: a device takes them out of openings, of answers, or of
//! everything. So a word is sent only where both sides have said in their openings that they
//! take some, and then **each** segment that ends a message has the option, be it to say that
//! there is no word. An end of a message without it was tampered with: it is not accepted, as
//! if it were lost, and where that goes on the connection ends and says why. No message
//! is ever told without the word that it was sent with.
//!
//! Who asked says in each segment whether the answer was heard, until the first segment comes
//! that answers that. So the other side knows what was agreed on, also where a device takes
//! the option out of the answer alone.

use landfall_placement::{Instant, Refusal};

use super::config::{Mapping, TcpConfig};
use super::input::SegmentResult;
use super::receiver::Claim;
use super::segment::Segment;
use super::state::ConnectionState as State;
use super::tcb::{CloseReason, Tcb};
use crate::queue::Queues;
use crate::wire::tcp::Flags;
use crate::wire::tcp_options::ImmediateOption;

/// The end of the next message comes without the option so often, and the connection ends.
const MOST_STRIPPED: u8 = 4;

/// How far a connection has agreed on words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Agreement {
    /// It has not, and will not.
    #[default]
    Nothing,
    /// We asked, and were not answered so far: where their opening has come, that is told with
    /// each segment until they say something.
    Declined,
    /// We asked, and they accepted: told in the same way.
    Accepted,
    /// They asked, and were answered: whether they heard, their first segment says.
    Answered,
    /// Both sides know.
    Whole,
}

/// What a connection knows of words, but for the words themselves: those are where the
/// messages are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Immediates {
    pub(super) agreement: Agreement,
    /// How often the next end of a message came without the option.
    stripped: u8,
}

impl Immediates {
    /// After an opening in which the other side said so, or did not. `asked`: our own
    /// opening did.
    pub(super) const fn new(agreed: bool, asked: bool, mapping: Mapping) -> Self {
        let agreement = match (agreed, asked) {
            _ if matches!(mapping, Mapping::Stream) => Agreement::Nothing,
            (true, true) => Agreement::Accepted,
            (true, false) => Agreement::Answered,
            (false, true) => Agreement::Declined,
            (false, false) => Agreement::Nothing,
        };
        Self { agreement, stripped: 0 }
    }

    /// Does every end of a message have the option, theirs and ours?
    pub(super) const fn marks_ends(self) -> bool {
        matches!(self.agreement, Agreement::Accepted | Agreement::Answered | Agreement::Whole)
    }

    /// May words be posted?
    pub(super) const fn takes_words(self) -> bool {
        matches!(self.agreement, Agreement::Accepted | Agreement::Whole)
    }

    /// What each segment says, until they are heard.
    pub(super) const fn greeting(self) -> Option<ImmediateOption> {
        match self.agreement {
            Agreement::Accepted => Some(ImmediateOption::Plain),
            Agreement::Declined => Some(ImmediateOption::Declined),
            Agreement::Nothing | Agreement::Answered | Agreement::Whole => None,
        }
    }

    /// How long the option is at most that a segment may have.
    pub(super) const fn longest_option(self) -> u32 {
        match self.agreement {
            Agreement::Nothing => 0,
            _ => ImmediateOption::LEN_MAX,
        }
    }

    /// Was the option taken out of this segment, which ends a message?
    const fn misses(self, segment: &Segment) -> bool {
        if segment.payload == 0 || !segment.flags.contains(Flags::PSH) || !self.marks_ends() {
            return false;
        }
        match segment.options.immediate {
            Some(ImmediateOption::Plain | ImmediateOption::Word(_)) => false,
            Some(ImmediateOption::Declined) => matches!(self.agreement, Agreement::Whole),
            None => true,
        }
    }
}

impl Tcb {
    /// Should our opening ask for words? Not once it went unanswered: it may have been dropped
    /// for what it says.
    pub(super) const fn wants_words(&self, config: &TcpConfig) -> bool {
        config.immediates && !matches!(self.mapping, Mapping::Stream) && self.opening.tries <= 2
    }

    /// It asks, where there is room: beside a cookie of the longest there is none.
    pub(super) fn ask_for_words(&mut self, config: &TcpConfig, room: usize) -> bool {
        let asks = self.wants_words(config) && room >= ImmediateOption::Plain.len();
        if asks {
            self.immediates.agreement = Agreement::Declined;
        }
        asks
    }

    /// The other side's opening has come, as an answer to ours or at the same time.
    pub(super) fn agree_on_words(&mut self, agreed: bool) {
        let asked = self.immediates.agreement == Agreement::Declined;
        self.immediates = Immediates::new(agreed && asked, asked, self.mapping);
    }

    /// After what decides about options has changed.
    pub(super) const fn set_header_len(&mut self) {
        self.header_len = (self.usual_header_len() + self.immediates.longest_option()) as u8;
    }

    /// May a message be posted with a word?
    pub(crate) const fn takes_words(&self) -> bool {
        self.state.is_synchronized() && self.immediates.takes_words()
    }

    /// What the segment says that ends a message here, or another one.
    pub(super) fn immediate_of(
        &self,
        end: Option<u64>,
        queues: &Queues,
    ) -> Option<ImmediateOption> {
        let Some(end) = end.filter(|_| self.immediates.marks_ends()) else {
            return self.immediates.greeting();
        };
        let word = queues.send.word_at(end).map(u32::to_be_bytes);
        Some(word.map_or(ImmediateOption::Plain, ImmediateOption::Word))
    }

    /// Is the payload of this segment not to be taken, for it ends a message and does not
    /// say with which word?
    #[inline]
    pub(super) fn misses_word(&self, segment: &Segment) -> bool {
        self.immediates.agreement != Agreement::Nothing && self.immediates.misses(segment)
    }

    /// Such a segment counts but for its payload, as if that were lost. It comes again, and
    /// maybe on another path; not for ever.
    #[cold]
    pub(super) fn refuse_without_word(
        &mut self,
        now: Instant,
        segment: &Segment,
        config: &TcpConfig,
        queues: &mut Queues,
    ) -> SegmentResult {
        let at = self.receiver.position_of(segment.seq);
        let next = self.receiver.next() as i64;
        // Of many that are under way the first counts: it comes again before it counts again.
        let is_next = at <= next && next < at + i64::from(segment.payload);
        self.immediates.stripped = self.immediates.stripped.saturating_add(u8::from(is_next));
        if self.immediates.stripped >= MOST_STRIPPED {
            return Ok(self.abort(now, CloseReason::OptionsRemoved, queues));
        }
        let rest = self.handle(now, &segment.without_payload(), config, queues)?;
        if rest.is_some() { Ok(rest) } else { Err(Refusal::Malformed) }
    }

    /// What a segment says of the agreement that comes after both openings.
    pub(super) fn hear_of_words(&mut self, said: Option<ImmediateOption>) {
        let agreement = match self.immediates.agreement {
            Agreement::Answered | Agreement::Accepted
                if said == Some(ImmediateOption::Declined) =>
            {
                Agreement::Nothing
            }
            // What came with an opening is no answer to ours.
            Agreement::Answered if said.is_none() => Agreement::Answered,
            Agreement::Answered | Agreement::Accepted | Agreement::Whole => Agreement::Whole,
            Agreement::Declined | Agreement::Nothing => Agreement::Nothing,
        };
        self.immediates.agreement = agreement;
        self.set_header_len();
    }

    /// A segment counts that came on a connection with words, or that may become one.
    #[cold]
    pub(super) fn handle_immediate(&mut self, segment: &Segment, at: i64, claim: &Claim) {
        let said = segment.options.immediate;
        if self.state != State::SynReceived {
            self.hear_of_words(said);
        }
        if segment.payload == 0 || !segment.has(Flags::PSH) {
            return;
        }
        self.immediates.stripped = 0;
        if let Some(ImmediateOption::Word(word)) = said
            && self.immediates.marks_ends()
        {
            let end = at + i64::from(segment.payload);
            self.receiver.note_word(end, u32::from_be_bytes(word), claim);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::tcp_options::Options;
    use landfall_placement::Ecn;

    fn end_of_message(immediate: Option<ImmediateOption>) -> Segment {
        Segment {
            seq: 1,
            ack: 1,
            flags: Flags::ACK | Flags::PSH,
            has_ae: false,
            window: 100,
            options: Options { immediate, ..Options::default() },
            payload: 10,
            coalesced: None,
            joined: None,
            ecn: Ecn::NotCapable,
        }
    }

    #[test]
    fn what_is_agreed_on_follows_from_the_two_openings() {
        let agreement = |agreed, asked, mapping| Immediates::new(agreed, asked, mapping).agreement;
        for mapping in [Mapping::Message, Mapping::Segment] {
            assert_eq!(agreement(true, true, mapping), Agreement::Accepted);
            assert_eq!(agreement(true, false, mapping), Agreement::Answered);
            assert_eq!(agreement(false, true, mapping), Agreement::Declined);
            assert_eq!(agreement(false, false, mapping), Agreement::Nothing);
        }
        for (agreed, asked) in [(true, true), (true, false), (false, true), (false, false)] {
            assert_eq!(agreement(agreed, asked, Mapping::Stream), Agreement::Nothing);
        }
    }

    #[test]
    fn only_ends_of_messages_have_to_have_the_option() {
        let word = Some(ImmediateOption::Word([0, 0, 0, 7]));
        let (plain, declined) = (Some(ImmediateOption::Plain), Some(ImmediateOption::Declined));
        let of = |agreement| Immediates { agreement, stripped: 0 };
        for agreement in [Agreement::Accepted, Agreement::Answered, Agreement::Whole] {
            let immediates = of(agreement);
            assert!(immediates.misses(&end_of_message(None)), "{agreement:?}");
            assert!(!immediates.misses(&end_of_message(word)));
            assert!(!immediates.misses(&end_of_message(plain)));
            // Only the first that comes may say that the answer was not heard.
            let may_decline = agreement != Agreement::Whole;
            assert_eq!(immediates.misses(&end_of_message(declined)), !may_decline);
            let middle = Segment { flags: Flags::ACK, ..end_of_message(None) };
            assert!(!immediates.misses(&middle));
            let bare = Segment { payload: 0, ..end_of_message(None) };
            assert!(!immediates.misses(&bare));
        }
        for agreement in [Agreement::Nothing, Agreement::Declined] {
            assert!(!of(agreement).misses(&end_of_message(None)));
        }
    }
}
