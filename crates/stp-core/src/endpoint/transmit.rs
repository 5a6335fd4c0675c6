//! What is sent next: first what carries no payload, for somebody waits for
//! it; then Puts and FetchOps, which are short; then Data.

use landfall_placement::{Ecn, Instant, Spans, SumSlot, Transmit};
use zerocopy::IntoBytes;

use super::Endpoint;
use crate::path::Source;
use crate::ticket::Purpose;
use crate::wire::header::SUM_OFFSET;
use crate::wire::{HEADER_LEN, LONGEST_HEAD, hold};

/// Where the driver puts a checksum over header and payload.
pub(crate) const SUM_SLOT: SumSlot = SumSlot { start: 0, offset: SUM_OFFSET };

impl Endpoint {
    #[inline]
    pub(super) fn next_transmit(
        &mut self,
        now: Instant,
        path: usize,
        head: &mut [u8],
        from: &mut Spans,
    ) -> Option<Transmit> {
        if head.len() < LONGEST_HEAD || self.paths[path].limits.is_none() {
            return None;
        }
        if let Some(control) = self.paths[path].control.pop_front() {
            let len = usize::from(control.len);
            head[..len].copy_from_slice(&control.bytes[..len]);
            self.stats.control_sent += 1;
            let known = &self.paths[path];
            if !known.waiting.is_empty() && known.has_room_for_grants(self.config.queue) {
                self.wake_path(path);
            }
            return Some(Transmit {
                to: control.to,
                head_len: u16::from(control.len),
                segment: None,
                checksum: None,
                sum_only: 0,
                ecn: Ecn::NotCapable,
                ticket: Purpose::Control.pack(),
            });
        }
        if let Some(transmit) = self.next_operation(now, path, head, from) {
            return Some(transmit);
        }
        self.next_data(now, path, head, from)
    }

    #[inline]
    fn next_data(
        &mut self,
        now: Instant,
        path: usize,
        head: &mut [u8],
        from: &mut Spans,
    ) -> Option<Transmit> {
        loop {
            let order = self.paths[path].orders.front_mut()?;
            // The Transfer was ended, or the region revoked, since it was granted.
            let ticket = match order.source {
                Source::Send { index, generation } => self
                    .sends
                    .named(index, generation)
                    .is_some_and(crate::send::Send::is_live)
                    .then_some(Purpose::Send { index, generation }),
                Source::Exposed { index, generation } => self
                    .exposed
                    .named(index, generation)
                    .is_some_and(|exposed| !exposed.is_revoked)
                    .then_some(Purpose::Exposed { index, generation }),
            };
            let taken = ticket.and_then(|ticket| Some((ticket, order.take()?)));
            let Some((ticket, (offset, span))) = taken else {
                self.paths[path].orders.pop_front();
                continue;
            };
            let mut header = order.header;
            header.offset = offset.into();
            header.flags = order.flags(offset.wrapping_add(span.len), self.config.checksum);
            header.param = hold::encode(now.since(order.since)).into();
            let to = order.to;
            if order.is_done() {
                self.paths[path].orders.pop_front();
            }
            head[..HEADER_LEN].copy_from_slice(header.as_bytes());
            from.push(span).ok()?;
            self.note_sent(ticket, span.len);
            return Some(Transmit {
                to,
                head_len: HEADER_LEN as u16,
                segment: None,
                checksum: self.config.checksum.then_some(SUM_SLOT),
                sum_only: 0,
                ecn: self.ecn(),
                ticket: ticket.pack(),
            });
        }
    }

    /// Payload of ours says that it yields to congestion, where it does.
    pub(crate) const fn ecn(&self) -> Ecn {
        if self.config.congestion.is_some() { Ecn::Capable0 } else { Ecn::NotCapable }
    }

    #[inline]
    fn note_sent(&mut self, purpose: Purpose, len: u32) {
        self.stats.stus_sent += 1;
        self.stats.bytes_sent += u64::from(len);
        match purpose {
            Purpose::Send { index, .. } => {
                if let Some(send) = self.sends.get_mut(index) {
                    send.held += 1;
                }
            }
            Purpose::Exposed { index, .. } => {
                if let Some(exposed) = self.exposed.get_mut(index) {
                    exposed.in_use += 1;
                }
            }
            _ => {}
        }
    }
}
