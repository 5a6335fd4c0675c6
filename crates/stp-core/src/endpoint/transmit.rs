//! What is sent next: first what carries no payload, for somebody waits for
//! it; then Puts and FetchOps, which are short; then Data.

use landfall_placement::{Ecn, RunRoom, Spans, SumSlot, Transmit, TransmitRun};
use zerocopy::IntoBytes;

use super::Endpoint;
use crate::path::{Behind, Source};
use crate::ticket::Purpose;
use crate::wire::header::{SUM_OFFSET, SUM_RANGE};
use crate::wire::{HEADER_LEN, LONGEST_HEAD};

/// Where the driver puts a checksum over header and payload.
pub(crate) const SUM_SLOT: SumSlot = SumSlot { start: 0, offset: SUM_OFFSET };

impl Endpoint {
    #[inline]
    pub(super) fn next_transmit(
        &mut self,
        path: usize,
        head: &mut [u8],
        from: &mut Spans,
    ) -> Option<Transmit> {
        if head.len() < LONGEST_HEAD || self.net.paths[path].limits.is_none() {
            return None;
        }
        while let Some(control) = self.net.paths[path].control.pop_front() {
            let len = usize::from(control.len);
            head[..len].copy_from_slice(&control.bytes[..len]);
            let (ticket, span, checksum) = match control.behind {
                Behind::Nothing => (Purpose::Control, None, None),
                Behind::Padding(len) => {
                    (Purpose::Control, self.net.padding.map(|padding| padding.span(0, len)), None)
                }
                Behind::Transfer { index, generation } => {
                    // It may have ended since.
                    let Some(span) = self.sends.begin_eager(&mut self.cx, index, generation) else {
                        continue;
                    };
                    head[SUM_RANGE].fill(0);
                    (Purpose::Send { index, generation }, Some(span), Some(SUM_SLOT))
                }
            };
            if let Some(span) = span {
                from.push(span).ok()?;
            }
            self.cx.stats.control_sent += 1;
            let known = &self.net.paths[path];
            if !known.waiting.is_empty() && known.has_room_for_grants(self.cx.config.queue) {
                self.receives.wake_path(&mut self.net, path);
            }
            return Some(Transmit {
                to: control.to,
                head_len: u16::from(control.len),
                segment: None,
                checksum,
                sum_only: 0,
                ecn: Ecn::NotCapable,
                ticket: ticket.pack(),
            });
        }
        if let Some(transmit) =
            self.streams.next_operation(&mut self.net, &mut self.cx, path, head, from)
        {
            return Some(transmit);
        }
        self.next_data(path, head, from)
    }

    /// What became due since something was sent last.
    #[inline]
    pub(super) fn prepare_transmit(&mut self) {
        if self.receives.grants_due {
            self.receives.grant_more(&mut self.net, &mut self.cx);
        }
        if !self.net.connections.ending.is_empty() {
            self.net.disconnect_idle(&mut self.cx);
        }
    }

    #[inline]
    fn next_data(&mut self, path: usize, head: &mut [u8], from: &mut Spans) -> Option<Transmit> {
        loop {
            let ticket = self.first_order(path)?;
            let is_summed = self.cx.config.checksum;
            let order = self.net.paths[path].orders.front_mut()?;
            let to = order.to;
            let Some((from_start, span)) = order.take() else {
                self.net.paths[path].orders.pop_front();
                continue;
            };
            let header = order.header_at(self.cx.now, from_start, span.len, is_summed);
            if order.is_done() {
                self.net.paths[path].orders.pop_front();
            }
            head[..HEADER_LEN].copy_from_slice(header.as_bytes());
            from.push(span).ok()?;
            self.note_sent(ticket, 1, span.len);
            return Some(Transmit {
                to,
                head_len: HEADER_LEN as u16,
                segment: None,
                checksum: is_summed.then_some(SUM_SLOT),
                sum_only: 0,
                ecn: self.cx.ecn(),
                ticket: ticket.pack(),
            });
        }
    }

    /// Puts or Data that are sent next, if nothing comes before them and they are a run.
    #[inline]
    pub(super) fn next_run(&mut self, path: usize, room: &mut RunRoom<'_>) -> Option<TransmitRun> {
        let known = &self.net.paths[path];
        if !known.control.is_empty() || known.limits.is_none() || self.cx.config.checksum {
            return None;
        }
        if known.streams.is_empty() {
            self.next_data_run(path, room)
        } else {
            self.streams.next_put_run(&mut self.net, &mut self.cx, path, room)
        }
    }

    #[inline]
    fn next_data_run(&mut self, path: usize, room: &mut RunRoom<'_>) -> Option<TransmitRun> {
        let ticket = self.first_order(path)?;
        let order = self.net.paths[path].orders.front_mut()?;
        let run = order.take_run(self.cx.now, room)?;
        let to = order.to;
        if order.is_done() {
            self.net.paths[path].orders.pop_front();
        }
        self.note_sent(ticket, run.stus, run.span.len);
        Some(TransmitRun {
            to,
            units: run.stus,
            head_len: HEADER_LEN as u16,
            payload_len: run.stu_len,
            span: run.span,
            ecn: self.cx.ecn(),
            ticket: ticket.pack(),
        })
    }

    /// Whose memory the first order of a path is for, once those before it are gone whose
    /// Transfer was ended, or whose region was revoked, since they were granted.
    #[inline]
    fn first_order(&mut self, path: usize) -> Option<Purpose> {
        loop {
            let purpose = match self.net.paths[path].orders.front()?.source {
                Source::Send { index, generation } => self
                    .sends
                    .table
                    .named(index, generation)
                    .is_some_and(crate::send::Send::is_live)
                    .then_some(Purpose::Send { index, generation }),
                Source::Exposed { index, generation } => self
                    .regions
                    .exposed
                    .named(index, generation)
                    .is_some_and(|exposed| !exposed.is_revoked)
                    .then_some(Purpose::Exposed { index, generation }),
            };
            if purpose.is_some() {
                return purpose;
            }
            self.net.paths[path].orders.pop_front();
        }
    }

    #[inline]
    fn note_sent(&mut self, purpose: Purpose, stus: u16, len: u32) {
        self.cx.stats.stus_sent += u64::from(stus);
        self.cx.stats.bytes_sent += u64::from(len);
        match purpose {
            Purpose::Send { index, .. } => {
                if let Some(send) = self.sends.table.get_mut(index) {
                    send.held += 1;
                }
            }
            Purpose::Exposed { index, .. } => {
                if let Some(exposed) = self.regions.exposed.get_mut(index) {
                    exposed.sending += 1;
                }
            }
            _ => {}
        }
    }
}
