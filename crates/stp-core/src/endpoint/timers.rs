//! Time passed.

use landfall_placement::{Instant, Timeout};
use landfall_tables::IndexedHeap;

use super::Endpoint;

/// How many timers fire in one call; the rest in the next, which is due at once.
const BUDGET: usize = 256;

impl Endpoint {
    pub(super) fn next_timer(&self) -> Option<Timeout> {
        let timers: [(&IndexedHeap<Instant>, &'static str); 7] = [
            (&self.net.links.timers, "granted data"),
            (&self.net.links.size_timers, "size of a link"),
            (&self.net.connections.timers, "connection"),
            (&self.sends.timers, "transfer to send"),
            (&self.receives.timers, "transfer to receive"),
            (&self.streams.timers, "put or fetch"),
            (&self.regions.timers, "memory region"),
        ];
        let firsts = timers.into_iter().filter_map(|(heap, timer)| {
            let (at, _) = heap.first()?;
            Some(Timeout { at, timer })
        });
        firsts.min_by_key(|timeout| timeout.at)
    }

    pub(super) fn fire_timers(&mut self) {
        for _ in 0..BUDGET {
            if let Some(link) = due(&mut self.net.links.timers, self.cx.now) {
                if self.receives.time_out_link(&mut self.net, &mut self.cx, link) {
                    self.lose_link(link);
                }
            } else if let Some(link) = due(&mut self.net.links.size_timers, self.cx.now) {
                self.net.time_out_size(&mut self.cx, link);
            } else if let Some(connection) = due(&mut self.net.connections.timers, self.cx.now) {
                self.time_out_connection(connection);
            } else if let Some(send) = due(&mut self.sends.timers, self.cx.now) {
                self.sends.time_out_send(&mut self.net, &mut self.cx, send);
            } else if let Some(receive) = due(&mut self.receives.timers, self.cx.now) {
                self.receives.time_out_receive(&mut self.net, &mut self.cx, receive);
            } else if let Some(connection) = due(&mut self.streams.timers, self.cx.now) {
                self.time_out_puts(connection);
            } else if let Some(request) = due(&mut self.regions.timers, self.cx.now) {
                self.regions.time_out_request(&mut self.net, &mut self.cx, request);
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
