//! What a connection says next.

use landfall_placement::{Ecn, Instant, Spans};

use super::config::{Mapping, TcpConfig};
use super::ecn::Ace;
use super::immediate::Agreement;
use super::receiver::Receiver;
use super::segment;
use super::segment::{Draft, Room};
use super::sender::{Plan, Posted, Sizes};
use super::state::ConnectionState as State;
use super::tcb::Tcb;
use crate::queue::{Hold, Queues};
use crate::wire::tcp::Flags;
use crate::wire::tcp_options;
use crate::wire::tcp_options::{AccurateOption, Blocks, ImmediateOption, Options};

/// What of a plan the next segment carries.
#[derive(Clone, Copy)]
struct PlannedData {
    plan: Plan,
    /// Its data ends here: no further than the memory that is posted.
    reached: u64,
    takes_fin: bool,
}

/// A TCP header without options.
const HEADER: u32 = 20;

impl Tcb {
    /// The next segment to send, if there is one. The payload's spans go to
    /// `from`, which comes empty.
    #[inline]
    pub(crate) fn poll_transmit(
        &mut self,
        now: Instant,
        room: &Room,
        config: &TcpConfig,
        queues: &mut Queues,
        from: &mut Spans,
    ) -> Option<Draft> {
        match self.state {
            State::Closed => return None,
            State::SynSent | State::SynReceived => {
                let draft = self.opening_segment(now, room, config, queues, from);
                if draft.is_some() || !self.is_fast_server() {
                    return draft;
                }
            }
            _ => {}
        }
        // What came is told first where there is more to it than a number:
        // blocks do not fit beside a full payload.
        let says_more = self.receiver.has_blocks() || self.receiver.asks_again();
        if self.receiver.is_owed_now() && (says_more || self.owes_marks()) {
            return Some(self.ack_segment(now, queues));
        }
        if let Some(draft) = self.data_segment(now, room, config, queues, from) {
            return Some(draft);
        }
        if core::mem::take(&mut self.is_probe_due)
            || core::mem::take(&mut self.sender.is_window_probe_due)
        {
            return Some(self.probe_segment(now, queues));
        }
        self.receiver.is_owed_now().then(|| self.ack_segment(now, queues))
    }

    /// A draft without payload.
    pub(super) fn bare(&self, flags: Flags, seq: u32) -> Draft {
        let acknowledges = flags.contains(Flags::ACK);
        Draft {
            seq,
            ack: if acknowledges { self.receiver.next_number() } else { 0 },
            flags,
            has_ae: false,
            window: 0,
            options: Options::default(),
            payload: 0,
            cut: None,
            is_message: false,
            probes_path: false,
            hold: Hold::default(),
            ecn: Ecn::NotCapable,
        }
    }

    /// A reset. Where both sides send timestamps it has one, too (RFC 7323, 3.2).
    pub(super) fn reset(&self, now: Instant, flags: Flags, seq: u32) -> Draft {
        Draft { options: self.plain_options(now), ..self.bare(flags, seq) }
    }

    fn opening_segment(
        &mut self,
        now: Instant,
        room: &Room,
        config: &TcpConfig,
        queues: &mut Queues,
        from: &mut Spans,
    ) -> Option<Draft> {
        if !core::mem::take(&mut self.opening.is_due) {
            return None;
        }
        if self.opening.tries == 0 {
            self.opening.sent_at = now;
        }
        self.opening.tries += 1;
        let mss = self.opening.mss;
        let seq = self.terms.local_first;
        let window = Receiver::first_window(&queues.receive);
        if self.state == State::SynReceived {
            let (ecn, has_ae, accurate) = self.answer_marks();
            let is_scaled = self.terms.local_scale > 0 || self.terms.remote_scale > 0;
            let options = self.terms.answer(now, mss, is_scaled);
            let draft = self.bare(Flags::SYN | Flags::ACK | ecn, seq);
            // What came with their opening is acknowledged, and takes its part of the window.
            let used = self.receiver.next_number().wrapping_sub(self.terms.remote_first) - 1;
            let window = window.saturating_sub(u16::try_from(used).unwrap_or(u16::MAX));
            self.receiver.acknowledged();
            // Beside the longest cookie there is no room.
            let has_room =
                |option: &AccurateOption| options.len() + option.len() <= tcp_options::LEN_MAX;
            let options = Options { accurate: accurate.filter(has_room), ..options };
            return Some(Draft { has_ae, window, options, ..draft });
        }
        // RFC 3168, 6.1.1.1: an opening that went unanswered may have been
        // dropped for asking.
        let (ecn, has_ae) = Ace::question(config, self.opening.tries).flags();
        let offset = self.terms.stamps.map_or(0, |stamps| stamps.clock_offset);
        let options = Options {
            mss: Some(mss),
            window_scale: config.scale(),
            sack_permitted: config.sack,
            timestamp: config.timestamps.then(|| (segment::timestamp_clock(offset, now), 0)),
            ..Options::default()
        };
        let asks = if self.wants_words(config) { ImmediateOption::Plain.len() } else { 0 };
        let first = self.first_data(room, options.len() + asks, queues, from);
        let mut options = Options { fast_open: first.cookie, ..options };
        if self.ask_for_words(config, tcp_options::LEN_MAX.saturating_sub(options.len())) {
            options.immediate = Some(ImmediateOption::Plain);
        }
        let (payload, hold) = (first.payload, first.hold);
        Some(Draft {
            has_ae,
            window,
            options,
            payload,
            hold,
            ..self.bare(Flags::SYN | ecn | first.flags, seq)
        })
    }

    fn data_segment(
        &mut self,
        now: Instant,
        room: &Room,
        config: &TcpConfig,
        queues: &mut Queues,
        from: &mut Spans,
    ) -> Option<Draft> {
        let sizes = self.sizes(room, config);
        let posted =
            Posted { end: queues.send.end(), is_last: self.is_shut && self.is_synchronized() };
        let is_stream = matches!(self.mapping, Mapping::Stream);
        let plan = self.sender.plan(now, posted, sizes, |position| {
            if is_stream { None } else { queues.send.message_end(position) }
        })?;
        let data_end = plan.end.min(posted.end).max(plan.start);
        let (reached, hold) = queues.send.gather(plan.start, data_end, from);
        if reached == plan.start && reached < data_end {
            return None; // Nothing is there any more: the queue was flushed.
        }
        let takes_fin = plan.end > data_end && reached == data_end;
        let end = if takes_fin { plan.end } else { reached };
        self.sender.sent(now, plan, end);
        if sizes.paces {
            self.sender.sent_paced(now, end - plan.start);
        }
        if takes_fin {
            self.note_fin(data_end);
        }
        // Where memory is in many pieces it may have become a segment like any other.
        let probes_path = plan.probes_path && reached - plan.start > u64::from(sizes.mss);
        if probes_path {
            let ends_message = queues.send.is_message_end(reached).then_some(reached);
            let said = self.immediate_of(ends_message, queues).map_or(0, ImmediateOption::len);
            let packet = self.usual_header_len() + said as u32 + (reached - plan.start) as u32;
            self.sender.sent_mtu_probe(plan.start, reached, packet);
        }
        let plan = Plan { probes_path, ..plan };
        let data = PlannedData { plan, reached, takes_fin };
        Some(self.data_draft(now, data, sizes, hold, queues))
    }

    fn data_draft(
        &mut self,
        now: Instant,
        data: PlannedData,
        sizes: Sizes,
        hold: Hold,
        queues: &Queues,
    ) -> Draft {
        let PlannedData { plan, reached, takes_fin } = data;
        let payload = (reached - plan.start) as u32;
        let mut flags = Flags::ACK;
        if takes_fin {
            flags = flags | Flags::FIN;
        }
        let ends_message = match self.mapping {
            Mapping::Stream => reached == queues.send.end(),
            _ => queues.send.is_message_end(reached),
        };
        if payload > 0 && ends_message {
            flags = flags | Flags::PSH;
        }
        flags = flags | self.ecn.echo;
        // RFC 3168, 6.1.5: what is sent again is not marked.
        let is_new = !plan.is_again && payload > 0;
        let mut ecn = if self.ecn.is_capable && is_new { Ecn::Capable0 } else { Ecn::NotCapable };
        if is_new && core::mem::take(&mut self.ecn.says_reduced) {
            flags = flags | Flags::CWR;
        }
        let is_cut = payload > sizes.mss && !sizes.whole_messages && !plan.probes_path;
        let window = self.receiver.window(&queues.receive);
        let mut options = self.plain_options(now);
        if self.immediates.agreement != Agreement::Nothing {
            let end = (payload > 0 && ends_message).then_some(reached);
            options.immediate = self.immediate_of(end, queues);
        }
        if self.ecn.is_accurate {
            let longest = if is_cut { sizes.mss } else { payload };
            ecn = self.sent_accurate(longest, ecn);
        }
        let draft = Draft {
            has_ae: self.ecn.echo_ae,
            window,
            options,
            payload,
            cut: is_cut.then_some(sizes.mss as u16),
            is_message: sizes.whole_messages,
            probes_path: plan.probes_path,
            hold,
            ecn,
            ..self.bare(flags, self.sender.number_of(plan.start))
        };
        self.receiver.acknowledged();
        draft
    }

    /// The end of our stream was sent.
    fn note_fin(&mut self, position: u64) {
        self.sender.sent_fin(position);
        self.state = match self.state {
            State::Established => State::FinWait1,
            State::CloseWait => State::LastAck,
            other => other,
        };
    }

    fn plain_options(&self, now: Instant) -> Options {
        let timestamp = self.stamps.as_ref().map(|stamps| stamps.option(now));
        Options { timestamp, ..Options::default() }
    }

    pub(super) fn ack_segment(&mut self, now: Instant, queues: &Queues) -> Draft {
        let mut options = self.plain_options(now);
        if self.immediates.agreement != Agreement::Nothing {
            options.immediate = self.immediates.greeting();
        }
        if self.terms.sack {
            options.sack = Blocks::NONE;
            let most = if options.timestamp.is_some() { 3 } else { Blocks::MAX };
            for (start, end) in self.receiver.blocks().take(most) {
                options.sack.push(start, end);
            }
        }
        let (mut echo, mut has_ae) = (self.ecn.echo, self.ecn.echo_ae);
        if self.ecn.is_accurate {
            (echo, has_ae) = self.say_marks(&mut options);
        }
        // Nobody else sets PSH where there is no payload, and anyone who gets it sees
        // nothing in it but an acknowledgement; a queue pair sends again.
        let again = if self.receiver.asks_again() { Flags::PSH } else { Flags::NONE };
        let window = self.receiver.window(&queues.receive);
        let draft = self.bare(Flags::ACK | echo | again, self.sender.next_number());
        self.receiver.acknowledged();
        Draft { has_ae, window, options, ..draft }
    }

    /// Asks whether the other side is there, or its window open: by a number
    /// that it has acknowledged already (RFC 9293, 3.8.4 and 3.8.6.1).
    fn probe_segment(&mut self, now: Instant, queues: &Queues) -> Draft {
        let draft = self.ack_segment(now, queues);
        let before = self.sender.number_of(self.sender.acknowledged().wrapping_sub(1));
        Draft { seq: before, ..draft }
    }

    /// How much a segment may hold now.
    fn sizes(&self, room: &Room, config: &TcpConfig) -> Sizes {
        let options = self.header_len() - HEADER;
        let wanted = u32::from(self.terms.remote_mss);
        let payload =
            |packet: u32| packet.saturating_sub(HEADER).min(wanted).saturating_sub(options);
        let mss = payload(room.packet).max(1);
        let whole_messages = matches!(self.mapping, Mapping::Segment);
        let most = room.super_packet.saturating_sub(HEADER + options);
        let pieces = u64::from(room.pieces.max(1));
        let most = u64::from(most).min(u64::from(mss) * pieces).max(u64::from(mss)) as u32;
        // Devices that cut leave CWR on the first piece alone, where it is a bit of a counter.
        let is_cut = most > mss && !self.ecn.echo.contains(Flags::CWR);
        let most = if is_cut { most / mss * mss } else { mss };
        let probe = if whole_messages { 0 } else { payload(room.probe) };
        let paces = self.sender.paces(config.pacing);
        Sizes { mss, most, probe, whole_messages, corks: config.corks, paces }
    }
}
