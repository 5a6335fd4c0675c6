//! Packets of one Put that leave together, and that come together.
//!
//! As with Data, what is expected goes in runs: new packets of one Put whose payloads lie
//! behind one another. What is repeated, void, summed, out of order or of no payload goes
//! packet by packet, through the checks of `answer`.

use landfall_placement::{RunPlacement, RunRoom, Serial32, Span, TransmitRun, UnitRun};

use super::packets::NextPacket;
use super::{UnderWay, Work};
use crate::context::Context;
use crate::ids::Rights;
use crate::network::Network;
use crate::region::{Regions, Streams};
use crate::ticket::{Purpose, Step};
use crate::wire::message::Message;
use crate::wire::{Envelope, Flags, HEADER_LEN, Header, Op};

/// The most packets that are placed together.
const LONGEST_RUN: usize = 64;

/// Packets of a run of Puts that came.
struct Run {
    /// The first of them.
    serial: u32,
    handle: u32,
    at: u64,
    /// How many there are, and the length of their payloads together.
    count: u16,
    len: u32,
    /// One of them wants an answer.
    wants_answer: bool,
}

/// A run of Puts that may be placed.
pub(crate) struct ExpectedRun {
    pub(crate) connection: u32,
    /// The link that it came over, and the first of its packets.
    pub(crate) link: u32,
    pub(crate) message: Message,
    puts: Run,
    exposed: u32,
    span: Span,
}

impl Streams {
    /// The next packets of a stream, if they are new ones of a Put, and several may leave.
    pub(crate) fn next_put_run(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        path: usize,
        room: &mut RunRoom<'_>,
    ) -> Option<TransmitRun> {
        let puts_ahead = cx.config.puts_ahead;
        let connection = net.paths[path].streams.front().copied()?;
        let outgoing = &mut net.connections.get_mut(connection)?.remote.as_deref_mut()?.outgoing;
        let first = outgoing.next_packet(puts_ahead)?;
        let operation = *outgoing.operations.get(outgoing.operation_at(first)?)?;
        let Work::Put { memory, .. } = operation.work else { return None };
        if first != outgoing.flight.end() || operation.ended.is_some() || memory.len == 0 {
            return None;
        }
        let (unit, nth) = (HEADER_LEN as u32 + u32::from(operation.stu), first - operation.first);
        let left = operation.count - nth;
        let taken_in = outgoing.window(puts_ahead).saturating_sub(outgoing.flight.len());
        let most = left.min(taken_in).min(room.units_of(unit).try_into().unwrap_or(u32::MAX));
        if most < 2 || room.head_len() < HEADER_LEN {
            return None;
        }
        let link = self.link_for(net, cx, connection, path, first, &operation)?;
        let config = self.congestion_of_puts(net, cx, link);
        let (generation, ecn) = (net.connections.table.generation(connection), cx.ecn());
        let known = net.connections.get_mut(connection)?;
        let envelope = known.envelope();
        let outgoing = &mut known.remote_mut().outgoing;
        let known = net.links.get_mut(link)?;
        let to = known.peer;
        let puts = known.outgoing(&config);
        let may_leave = puts.window.room(&config, puts.under_way) / u64::from(unit);
        let count = most.min(may_leave.try_into().unwrap_or(u32::MAX)).min(u16::MAX.into());
        if count < 2 {
            return None;
        }
        let window = puts.window.bytes();
        let serials = (0..count).map(|more| first.wrapping_add(more));
        for (serial, head) in serials.zip(room.heads()) {
            let (message, _) = operation.packet(serial);
            let len = operation.packet_len(serial);
            puts.under_way += u64::from(len);
            let room = puts.window.room(&config, puts.under_way);
            let packet = NextPacket { serial, link, len, window, room };
            let wants_answer = outgoing.send(cx, &operation, packet);
            // There is room for the head of a Put.
            message.wanting_answer(wants_answer).encode(envelope, head)?;
        }
        let place = outgoing.operation_at(first)?;
        outgoing.operations.get_mut(place)?.held += 1;
        let from = u64::from(nth) * u64::from(operation.stu);
        let whole = u64::from(count) * u64::from(operation.stu);
        let span = memory.span(from, whole.min(memory.len - from) as u32);
        self.arm_stream(net, cx, connection);
        let step = Step::new(connection, generation, operation.number);
        Some(TransmitRun {
            to,
            units: count as u16,
            head_len: HEADER_LEN as u16,
            payload_len: operation.stu.into(),
            span,
            ecn,
            ticket: Purpose::Operation(step).pack(),
        })
    }
}

impl Regions {
    /// A run of Puts: the leading part that is expected next, where that is several packets.
    pub(crate) fn expected_run(
        &self,
        net: &Network,
        cx: &Context,
        run: &UnitRun<'_>,
    ) -> Option<ExpectedRun> {
        let first = run.heads.first();
        let may_be = Header::read(first)?.op == Op::Put as u8 && !run.ecn.is_congested();
        let goes_by_packet = cx.config.has_adapters() || cx.config.checksum;
        if !may_be || goes_by_packet || cx.is_full() {
            return None;
        }
        let (envelope, message) = plain_put(first)?;
        let connection = net.connection_of(envelope, &message).ok()?;
        let path = net.path_index(run.path)? as u8;
        let link = net.link_from(connection, path, run.from)?;
        net.check_proof(connection, first, &message).ok()?;
        let most = self.expected_puts(net, cx, connection, &message)?;
        let puts = Run::of(envelope, &message, run, most)?;
        let (handle, at, len) = (puts.handle, puts.at, puts.len);
        let exposed = self.usable(net, connection, handle, Rights::PUT, at, len.into()).ok()?;
        let span = self.exposed.get(exposed)?.memory.span(at, len);
        Some(ExpectedRun { connection, link, message, puts, exposed, span })
    }

    /// Places it.
    pub(crate) fn place_run(&mut self, net: &mut Network, run: &ExpectedRun) -> RunPlacement {
        let under_way = UnderWay {
            serial: run.puts.serial,
            count: run.puts.count,
            exposed: run.exposed,
            wants_answer: run.puts.wants_answer,
            is_doubtful: false,
            is_fetch: false,
            notice: None,
        };
        let ticket = Purpose::Put(self.begin_applying(net, run.connection, under_way)).pack();
        let (units, span) = (run.puts.count, run.span);
        RunPlacement { units, at: HEADER_LEN as u16, span, ticket }
    }

    /// How many packets from this one on are taken in, if it is the next one and nothing is
    /// missing before it or came ahead of it.
    fn expected_puts(
        &self,
        net: &Network,
        cx: &Context,
        connection: u32,
        message: &Message,
    ) -> Option<usize> {
        let Message::Put { serial, .. } = *message else { return None };
        let known = net.connections.get(connection)?;
        let incoming = &known.remote.as_deref()?.incoming;
        let is_next = serial == incoming.expected && incoming.ahead.is_empty();
        if !known.serves() || !is_next || incoming.doubtful > 0 {
            return None;
        }
        let beyond = Serial32(serial).offset_from(Serial32(incoming.applied));
        usize::try_from(i32::from(cx.config.puts_ahead) - beyond).ok()
    }
}

impl Run {
    /// The packets that follow on the first, each behind the one before: up to `most`, and
    /// at least two.
    fn of(envelope: Envelope, first: &Message, run: &UnitRun<'_>, most: usize) -> Option<Self> {
        let Message::Put { serial, handle, at, len: stu, .. } = *first else { return None };
        let mut puts = Self { serial, handle, at, count: 0, len: 0, wants_answer: false };
        let last = run.heads.count() - 1;
        for (nth, head) in run.heads.iter().enumerate().take(most.min(LONGEST_RUN)) {
            let Some((same, message)) = plain_put(head) else { break };
            let Message::Put { serial, handle, at, len, wants_answer, .. } = message else { break };
            let unit = if nth == last { run.last_len } else { run.unit_len };
            let is_whole = unit.checked_sub(HEADER_LEN as u32) == Some(len);
            let follows = serial == puts.serial.wrapping_add(puts.count.into())
                && handle == puts.handle
                && Some(at) == puts.at.checked_add(puts.len.into());
            // Only the last may be shorter: what follows would not lie behind it.
            if same != envelope || !is_whole || !follows || len > stu {
                break;
            }
            puts.len = puts.len.checked_add(len)?;
            (puts.count, puts.wants_answer) = (puts.count + 1, puts.wants_answer || wants_answer);
            if len < stu {
                break;
            }
        }
        (puts.count > 1).then_some(puts)
    }
}

/// A Put that carries payload and of which the user is not to be told, without a checksum.
fn plain_put(head: &[u8]) -> Option<(Envelope, Message)> {
    if Header::read(head)?.flags().has(Flags::SUM) {
        return None;
    }
    let (envelope, message) = Message::decode(head).ok()?;
    let Message::Put { len, wants_notice, is_void, .. } = message else { return None };
    (len > 0 && !wants_notice && !is_void).then_some((envelope, message))
}
