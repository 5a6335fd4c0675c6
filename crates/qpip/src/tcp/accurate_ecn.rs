//! Accurate ECN (RFC 9768): how many packets and bytes the network marked, and not only
//! whether it did.
//!
//! Each end counts as a receiver what comes, by the code point of its IP header, and tells
//! the other: the low three bits of the number of marked packets in each header (ACE), in the
//! place of AE, CWR and ECE; and the bytes of each code point in an option ([`AccurateOption`]).
//! As a sender it follows those counters, and believes them only where nothing speaks against
//! that.

use landfall_placement::Ecn;

use super::ecn::Ace;
use super::segment::Segment;
use crate::wire::tcp_options::AccurateOption;

/// Counters that one end keeps, and the other follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counters {
    /// Marked packets, with or without payload.
    packets: u32,
    /// Payload by code point: ECT(0), CE, ECT(1).
    bytes: [u32; 3],
}

/// Where [`Counters`] have the bytes of each code point.
const CAPABLE0: usize = 0;
const MARKED: usize = 1;
const CAPABLE1: usize = 2;

/// Section 3.2.1: not zero, so that it is seen where somebody sets all to zero.
const FIRST: Counters = Counters { packets: 5, bytes: [1, 0, 1] };

/// Marked packets without data are answered when three have come, with data each second one
/// (section 3.2.2.5.1).
const MARKS_WITHOUT_DATA: u8 = 3;
const MARKS_WITH_DATA: u8 = 2;

/// Where all of what left in the first four round trips was marked, somebody marks everything
/// (section 3.2.2.3).
const MOST_MARKED_ROUNDS: u8 = 4;

/// What is known of the option of the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OptionState {
    /// None has come: there may be somebody who takes them out.
    Unseen,
    Seen,
    /// Its first counters were zero: somebody writes into it.
    Mangled,
}

/// What a segment says of our packets.
#[derive(Clone, Copy, Debug)]
struct AckFeedback {
    ace: Ace,
    option: Option<AccurateOption>,
    /// It has neither payload nor blocks.
    is_pure: bool,
}

/// What is to be done about marks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Marks {
    pub(super) any: bool,
    pub(super) bytes: u64,
}

/// What an acknowledgement covers, as its sender's other half knows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Covered {
    /// All in front of it has come, and the position of the segment that says so.
    pub(super) upto: u64,
    pub(super) at: u64,
    /// Bytes that it says for the first time to have come, in order or not.
    pub(super) bytes: u64,
    /// Where what was sent ends.
    pub(super) sent: u64,
}

/// Accurate ECN of one connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct AccurateEcn {
    // As a receiver.
    received: Counters,
    /// The counters of bytes that have ever moved.
    moved: [bool; 3],
    /// One has moved since an option told of them, or an option is due anyway.
    is_option_due: bool,
    /// All of them are told, for the other side looks whether that comes through.
    tells_all: bool,
    /// The last packet was marked.
    was_marked: bool,
    /// Marked packets since the last acknowledgement.
    unanswered: u8,
    /// With what the answer to our opening came: bare acknowledgements of it say so.
    greeting: Option<Ace>,
    /// With what their opening came: our answer says so.
    opening: Ecn,

    // As a sender.
    told: Counters,
    heard: Option<AckFeedback>,
    /// The newest acknowledgement that counted: up to where, and at which position.
    newest: (u64, u64),
    /// The first acknowledgement may say with what our answer came.
    awaits_greeting: bool,
    /// No counter has come so far.
    is_first: bool,
    options: OptionState,
    /// Marked packets, and bytes that came, since an option told of bytes.
    since_option: (u32, u64),
    /// The last one that counted told of marks.
    tells_marks: bool,
    /// The payload of the longest packet that left, and of the shortest that had any.
    longest: u32,
    shortest: u32,
    /// Round trips of which all was marked, from the first on; then nobody asks any more.
    marked_rounds: Option<u8>,
    round_end: u64,
    is_all_marked: bool,
    /// May packets be sent as capable?
    pub(super) sends_capable: bool,
    /// Are marks believed?
    responds: bool,
}

impl AccurateEcn {
    /// Of an end whose opening was answered, or that answers one.
    pub(super) const fn new(awaits_greeting: bool) -> Self {
        Self {
            received: FIRST,
            moved: [false; 3],
            is_option_due: true,
            tells_all: true,
            was_marked: false,
            unanswered: 0,
            greeting: None,
            opening: Ecn::NotCapable,
            told: FIRST,
            heard: None,
            newest: (0, 0),
            awaits_greeting,
            is_first: true,
            options: OptionState::Unseen,
            since_option: (0, 0),
            tells_marks: false,
            longest: 0,
            shortest: u32::MAX,
            marked_rounds: Some(0),
            round_end: 0,
            is_all_marked: true,
            sends_capable: true,
            responds: true,
        }
    }

    /// Their opening came so: our answer says that.
    pub(super) const fn note_opening(&mut self, ecn: Ecn) {
        self.opening = ecn;
    }

    /// With what mark their opening came.
    pub(super) const fn opening(&self) -> Ecn {
        self.opening
    }

    /// What an answer says of counters, with few bytes.
    pub(super) fn first_option() -> AccurateOption {
        AccurateOption::new(FIRST.bytes, 1, false)
    }

    /// The answer to our opening came, which was not capable. Returns whether it says that the
    /// opening was marked.
    pub(super) fn handle_answer(&mut self, segment: &Segment) -> bool {
        self.note_answer(segment.ecn);
        let came = Ace::of(segment).opening();
        // What is not capable becomes nothing else on an honest path.
        self.sends_capable &= came.is_none_or(|ecn| ecn == Ecn::NotCapable);
        self.check_first_option(segment.options.accurate);
        came == Some(Ecn::CongestionExperienced)
    }

    /// An answer to our opening came, maybe not for the first time: what acknowledges it says
    /// with which mark. It counts once.
    pub(super) fn note_answer(&mut self, ecn: Ecn) {
        self.greeting = Some(Ace::of_opening(ecn));
        if ecn == Ecn::CongestionExperienced {
            self.received.packets = self.received.packets.max(FIRST.packets + 1);
        }
    }

    /// Section 3.2.3.2.4: the first counters are not zero, unless somebody made them so.
    fn check_first_option(&mut self, option: Option<AccurateOption>) {
        // Nothing to be looked at, or it was.
        let Some(option) = option.filter(|_| self.options == OptionState::Unseen) else { return };
        let fields = option.counters();
        let is_zero = |nth: usize| fields[nth] == Some(0);
        let is_mangled = is_zero(CAPABLE0) || is_zero(CAPABLE1);
        self.options = if is_mangled { OptionState::Mangled } else { OptionState::Seen };
    }

    /// What came so far, and what is known of what the other side counted.
    #[cfg(test)]
    pub(super) const fn counted(&self) -> (u32, [u32; 3]) {
        (self.received.packets, self.received.bytes)
    }

    #[cfg(test)]
    pub(super) const fn followed(&self) -> (u32, [u32; 3]) {
        (self.told.packets, self.told.bytes)
    }

    // What comes.

    /// A segment came that counts. Returns whether it is to be acknowledged at once.
    pub(super) fn receive(&mut self, segment: &Segment) -> bool {
        let is_marked = segment.ecn == Ecn::CongestionExperienced;
        let has_data = segment.payload > 0;
        if is_marked {
            let of_piece = u32::from(segment.coalesced.unwrap_or(0));
            let packets = if of_piece > 0 { segment.payload.div_ceil(of_piece).max(1) } else { 1 };
            self.received.packets = self.received.packets.wrapping_add(packets);
            let packets = u8::try_from(packets).unwrap_or(u8::MAX);
            self.unanswered = self.unanswered.saturating_add(packets);
        }
        let counter = match segment.ecn {
            Ecn::NotCapable => None,
            Ecn::Capable0 => Some(CAPABLE0),
            Ecn::CongestionExperienced => Some(MARKED),
            Ecn::Capable1 => Some(CAPABLE1),
        };
        if let Some(counter) = counter.filter(|_| has_data) {
            let bytes = &mut self.received.bytes[counter];
            *bytes = bytes.wrapping_add(segment.payload);
            self.moved[counter] = true;
            self.is_option_due = true;
        }
        let most = if has_data { MARKS_WITH_DATA } else { MARKS_WITHOUT_DATA };
        let begins = has_data && is_marked && !self.was_marked;
        self.was_marked = is_marked;
        begins || self.unanswered >= most
    }

    /// Does an acknowledgement have to leave before data does: for what it says beside a
    /// number?
    pub(super) const fn owes_bare(&self) -> bool {
        self.greeting.is_some() || self.is_option_due && self.moved[MARKED]
    }

    /// What each header says.
    pub(super) const fn ace(&self) -> Ace {
        Ace::of_count(self.received.packets)
    }

    /// What a bare acknowledgement says that leaves now.
    pub(super) fn say(&mut self, has_blocks: bool) -> Ace {
        self.unanswered = 0;
        if has_blocks {
            return self.ace();
        }
        self.greeting.take().unwrap_or_else(|| self.ace())
    }

    /// Something left that acknowledges, with data.
    pub(super) const fn said(&mut self) {
        self.unanswered = 0;
    }

    /// The option of an acknowledgement, where it is due and has room: what has moved, and
    /// nothing behind that.
    pub(super) fn take_option(&mut self, room: usize) -> Option<AccurateOption> {
        if !self.is_option_due {
            return None;
        }
        let [zero, marked, one] = self.moved;
        let is_reverse = one && !zero;
        let fields = match (self.tells_all, zero && one, marked) {
            (true, ..) | (_, true, _) => 3,
            (_, _, true) => 2,
            _ => 1,
        };
        let option = AccurateOption::new(self.received.bytes, fields, is_reverse);
        if option.len() > room {
            return None;
        }
        (self.is_option_due, self.tells_all) = (false, false);
        Some(option)
    }

    // What is said of our packets.

    /// A packet left with so much payload.
    pub(super) fn sent(&mut self, payload: u32) {
        self.longest = self.longest.max(payload);
        self.shortest = self.shortest.min(payload.max(1));
    }

    /// What a segment says: it counts when it is known what it acknowledges.
    pub(super) fn hear(&mut self, segment: &Segment) {
        let is_pure = segment.payload == 0 && segment.options.sack.is_empty();
        let (ace, option) = (Ace::of(segment), segment.options.accurate);
        self.heard = Some(AckFeedback { ace, option, is_pure });
    }

    /// How much of what left was marked, by what was heard.
    pub(super) fn count(&mut self, covered: &Covered) -> Marks {
        let newest = (covered.upto, covered.at);
        // What says nothing new may be older than what said the same before.
        let is_new = newest > self.newest || newest == self.newest && covered.bytes > 0;
        let Some(heard) = self.heard.take().filter(|_| is_new || self.is_first) else {
            return Marks::default();
        };
        self.newest = newest;
        let is_greeting = core::mem::take(&mut self.awaits_greeting);
        let before = self.options;
        self.check_first_option(heard.option);
        if is_greeting && heard.is_pure {
            self.follow_bytes(heard.option);
            return self.handle_greeting(heard.ace);
        }
        if core::mem::take(&mut self.is_first) && heard.ace == Ace::default() {
            // Section 3.2.2.4: no counter begins so.
            (self.sends_capable, self.responds) = (false, false);
        }
        let least = u32::from(heard.ace.0.wrapping_sub(self.told.packets as u8) & 7);
        let longest = self.longest.max(1);
        let packets = covered.bytes.div_ceil(u64::from(longest));
        let packets = u32::try_from(packets).unwrap_or(u32::MAX);
        let bytes = match (before, self.options) {
            (_, OptionState::Unseen | OptionState::Mangled) => None,
            _ => self.follow_bytes(heard.option),
        };
        let marked = match bytes {
            // The fewest that have this many bytes, and these three bits.
            Some(bytes) => self.reconcile(least, bytes, covered),
            // The next option tells.
            None if self.options == OptionState::Seen => least,
            // Section 3.2.2.5.2: as many as there may have been, where some are marked.
            None if packets > 7 && (least > 0 || self.tells_marks) => {
                packets - (packets.wrapping_sub(least) & 7)
            }
            None => least,
        };
        if bytes.is_none() {
            let (packets, came) = self.since_option;
            self.since_option = (packets.saturating_add(marked), came + covered.bytes);
        }
        self.told.packets = self.told.packets.wrapping_add(marked);
        self.tells_marks = marked > 0;
        self.look_for_marks_everywhere(marked, packets, covered);
        let guess = u64::from(marked) * u64::from(longest);
        let bytes = bytes.map_or(guess.min(covered.bytes), u64::from);
        if self.responds { Marks { any: marked > 0, bytes } } else { Marks::default() }
    }

    /// How many packets were marked, of which three bits are `least`, where an option tells of
    /// this many marked bytes.
    fn reconcile(&mut self, least: u32, bytes: u32, covered: &Covered) -> u32 {
        let (known, came) = core::mem::take(&mut self.since_option);
        let needed = bytes.div_ceil(self.longest.max(1)).saturating_sub(known);
        let most = (came + covered.bytes).div_ceil(u64::from(self.shortest));
        if needed > least && most < 8 {
            // Section 3.2.3.2.5: two counters of the same packets contradict each other.
            self.sends_capable = false;
            return least;
        }
        at_least(least, needed)
    }

    /// The first acknowledgement says with what our answer came, which was not capable
    /// (table 4).
    fn handle_greeting(&mut self, ace: Ace) -> Marks {
        let came = ace.opening();
        if ace == Ace::default() {
            self.responds = false;
            self.sends_capable = false;
        }
        self.sends_capable &= came.is_none_or(|ecn| ecn == Ecn::NotCapable);
        let any = came == Some(Ecn::CongestionExperienced);
        self.told.packets += u32::from(any);
        Marks { any, bytes: 0 }
    }

    /// Takes over counters of bytes. Returns how many more were marked, where that is known.
    fn follow_bytes(&mut self, option: Option<AccurateOption>) -> Option<u32> {
        let fields = option.filter(|_| self.options == OptionState::Seen)?.counters();
        let mut more = [0; 3];
        for (nth, field) in fields.into_iter().enumerate() {
            let Some(field) = field else { continue };
            let known = &mut self.told.bytes[nth];
            more[nth] = field.wrapping_sub(*known) & AccurateOption::MASK;
            *known = known.wrapping_add(more[nth]);
        }
        Some(more[MARKED])
    }

    /// Section 3.2.2.3: a path that marks all says nothing by that.
    fn look_for_marks_everywhere(&mut self, marked: u32, packets: u32, covered: &Covered) {
        // Nobody asks any more.
        let Some(rounds) = self.marked_rounds else { return };
        if packets == 0 {
            return;
        }
        self.is_all_marked &= marked >= packets;
        if covered.upto < self.round_end {
            return;
        }
        let is_first_round = self.round_end == 0;
        self.round_end = covered.sent;
        if !self.is_all_marked {
            self.marked_rounds = None;
        } else if !is_first_round {
            self.marked_rounds = Some(rounds + 1);
            if rounds + 1 >= MOST_MARKED_ROUNDS {
                (self.sends_capable, self.responds) = (false, false);
                self.marked_rounds = None;
            }
        }
    }
}

/// The least number from `least` on that has its low three bits and is not below another.
const fn at_least(least: u32, other: u32) -> u32 {
    if other <= least { least } else { least + (other - least).next_multiple_of(8) }
}
