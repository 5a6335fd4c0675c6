//! Time passed.

use landfall_placement::{Instant, Timeout};
use landfall_tables::IndexedHeap;

use super::Endpoint;

/// How many timers fire in one call; the rest in the next, which is due at once.
const BUDGET: usize = 256;

impl Endpoint {
    pub(super) fn next_timer(&self) -> Option<Timeout> {
        let timers: [(&IndexedHeap<Instant>, &'static str); 7] = [
            (&self.link_timers, "granted data"),
            (&self.size_timers, "size of a link"),
            (&self.connections.timers, "connection"),
            (&self.send_timers, "transfer to send"),
            (&self.receive_timers, "transfer to receive"),
            (&self.stream_timers, "put or fetch"),
            (&self.request_timers, "memory region"),
        ];
        let firsts = timers.into_iter().filter_map(|(heap, timer)| {
            let (at, _) = heap.first()?;
            Some(Timeout { at, timer })
        });
        firsts.min_by_key(|timeout| timeout.at)
    }

    pub(super) fn fire_timers(&mut self, now: Instant) {
        for _ in 0..BUDGET {
            if let Some(link) = due(&mut self.link_timers, now) {
                self.time_out_link(now, link);
            } else if let Some(link) = due(&mut self.size_timers, now) {
                self.time_out_size(now, link);
            } else if let Some(connection) = due(&mut self.connections.timers, now) {
                self.time_out_connection(now, connection);
            } else if let Some(send) = due(&mut self.send_timers, now) {
                self.time_out_send(now, send);
            } else if let Some(receive) = due(&mut self.receive_timers, now) {
                self.time_out_receive(now, receive);
            } else if let Some(connection) = due(&mut self.stream_timers, now) {
                self.time_out_stream(now, connection);
            } else if let Some(request) = due(&mut self.request_timers, now) {
                self.time_out_request(now, request);
            } else {
                return;
            }
        }
    }
}

/// The first timer that is due, taken out.
fn due(timers: &mut IndexedHeap<Instant>, now: Instant) -> Option<u32> {
    let (at, index) = timers.first()?;
    if at > now {
        return None;
    }
    timers.remove(index);
    Some(index)
}
