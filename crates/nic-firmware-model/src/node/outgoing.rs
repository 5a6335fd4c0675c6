//! What the engine sends goes down behind the commands that it gave before.

use landfall_placement::{Instant, PathId, Peer, Span, Spans, Transmit};
use landfall_simnet::{Frame, Outbox, PortId};

use super::{NicNode, Offloaded};
use crate::firmware::Firmware;
use crate::machine::Send;

/// A unit that the engine gave out and no adapter has taken.
#[derive(Debug)]
pub(super) struct Outgoing {
    path: PathId,
    head: Vec<u8>,
    spans: Vec<Span>,
    transmit: Transmit,
}

impl<F, E> NicNode<F, E>
where
    E: Offloaded + 'static,
    F: Firmware<Command = E::Command, Report = E::Report> + 'static,
{
    /// Hands an adapter the engine's commands, then what waits to be sent.
    pub(super) fn give_orders(&mut self, now: Instant, index: usize) -> bool {
        let mut is_busy = false;
        let adapter = &mut self.adapters[index];
        loop {
            if !adapter.has_room_for_orders() {
                return is_busy;
            }
            let Some(command) = self.host.engine.poll_command(index as u8) else { break };
            // There is room.
            let _ = adapter.command(command);
            is_busy = true;
        }
        let Some(unit) = &self.waiting[index] else { return is_busy };
        let send = Send {
            path: unit.path,
            to: unit.transmit.to,
            ecn: unit.transmit.ecn,
            head: &unit.head,
            from: &unit.spans,
            checksum: unit.transmit.checksum,
            sum_only: unit.transmit.sum_only,
            ticket: unit.transmit.ticket.raw(),
        };
        if adapter.send(&send).is_ok() {
            self.waiting[index] = None;
            return true;
        }
        if adapter.has_room_for_frames() {
            // It is too long for any slot: what cannot be sent is let go.
            let ticket = unit.transmit.ticket;
            self.waiting[index] = None;
            self.host.counted.unsendable += 1;
            self.host.engine.handle_sent(now, ticket);
            return true;
        }
        is_busy
    }

    /// Takes what the engine has to send, for as long as there is room.
    pub(super) fn poll_transmits(
        &mut self,
        now: Instant,
        out: &mut Outbox<'_>,
        budget: &mut usize,
    ) {
        let mut spans = Spans::new();
        for index in 0..self.host.paths.len() {
            let Some(limits) = self.host.paths[index] else { continue };
            let port = PortId(index as u16);
            let adapter = self.adapter_of(port);
            while *budget > 0 && self.waiting.get(adapter).is_some_and(Option::is_none) {
                if !self.adapters[adapter].has_room_for_frames() {
                    break; // It goes on when one has left.
                }
                if !out.has_room(port) {
                    out.call_when_room(port);
                    break;
                }
                let mut head = vec![0; usize::from(limits.head)];
                spans.clear();
                let path = PathId(port.0);
                let transmit = self.host.engine.poll_transmit(now, path, &mut head, &mut spans);
                let Some(transmit) = transmit else { break };
                *budget -= 1;
                self.host.counted.transmits += 1;
                if transmit.segment.is_some() {
                    return out.fail("a unit to be cut, which this adapter does not do");
                }
                head.truncate(usize::from(transmit.head_len));
                let unit = Outgoing { path, head, spans: spans.to_vec(), transmit };
                self.waiting[adapter] = Some(unit);
                self.push_down(now, adapter, out);
            }
            // What was opened or closed, and has nothing to be sent with it.
            if adapter < self.adapters.len() && self.give_orders(now, adapter) {
                *budget = budget.saturating_sub(1);
            }
        }
    }

    /// What waits goes as far as it can now, before more is asked for.
    fn push_down(&mut self, now: Instant, adapter: usize, out: &mut Outbox<'_>) {
        loop {
            let is_busy = self.give_orders(now, adapter);
            self.run_adapter(now, adapter);
            self.send_departures(now, adapter, out);
            self.take_sent(now, adapter);
            if !is_busy || self.waiting[adapter].is_none() {
                return;
            }
        }
    }

    /// What has been fetched leaves, for as long as its link has room.
    pub(super) fn send_departures(
        &mut self,
        _now: Instant,
        index: usize,
        out: &mut Outbox<'_>,
    ) -> bool {
        let mut is_busy = false;
        while let Some(departure) = self.adapters[index].departure() {
            let port = PortId(departure.path.0);
            if !out.has_room(port) {
                out.call_when_room(port);
                break;
            }
            // Frames with their addresses among their bytes have none beside them.
            let from = match departure.to {
                Peer::Unaddressed => Peer::Unaddressed,
                _ => self.host.config.address.unwrap_or(out.node().peer()),
            };
            let frame = Frame {
                bytes: [departure.route.bytes(), departure.bytes].concat(),
                from,
                to: departure.to,
                ecn: departure.ecn,
            };
            self.host.counted.frames += 1;
            out.send(port, frame);
            self.adapters[index].departed();
            is_busy = true;
        }
        is_busy
    }

    /// The engine hears which memory is not needed any more.
    pub(super) fn take_sent(&mut self, now: Instant, index: usize) -> bool {
        let mut is_busy = false;
        while let Some(ticket) = self.adapters[index].poll_sent() {
            is_busy = true;
            self.host.engine.handle_sent(now, landfall_placement::Ticket::from_raw(ticket));
        }
        is_busy
    }
}
