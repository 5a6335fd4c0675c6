//! What happens when nothing comes: repetition, giving up, telling late.

use landfall_placement::{Instant, Timeout};

use super::{Event, Numbered};
use super::{incoming, outgoing};

impl Numbered {
    pub(super) fn find_next_timer(&self) -> Option<Timeout> {
        let sends = self.outgoing.iter().map(|out| (out.deadline, "retransmit"));
        let asks = self.asked.iter().flatten().map(|asked| (asked.deadline, "word operation"));
        let receives = self.incoming.iter().map(|place| (place.deadline, "silent sender"));
        // Where something is due already only the path keeps it back, not the time.
        let untold = self.connections.iter().filter(|c| !self.paths_due(c.path));
        let dones = untold.map(|known| (known.done_at, "tell what is done"));
        let (at, timer) =
            sends.chain(asks).chain(receives).chain(dones).min_by_key(|(at, _)| *at)?;
        (at != Instant::FAR_FUTURE).then_some(Timeout { at, timer })
    }

    fn paths_due(&self, path: usize) -> bool {
        self.paths.get(path).is_some_and(|path| path.is_control_due)
    }

    pub(super) fn fire_timers(&mut self, now: Instant) {
        for slot in 0..self.outgoing.len() {
            if self.outgoing[slot].deadline <= now {
                self.repeat_message(now, slot);
            }
        }
        for index in 0..self.asked.len() {
            if self.asked[index].as_ref().is_some_and(|asked| asked.deadline <= now) {
                self.repeat_fetch(now, index);
            }
        }
        for slot in 0..self.incoming.len() {
            let place = &self.incoming[slot];
            if place.deadline <= now && place.state != incoming::State::Free {
                self.fail_connection(place.connection);
            }
        }
        for known in self.connections.iter().filter(|known| known.done_at <= now) {
            self.paths[known.path].is_control_due = true;
        }
    }

    fn repeat_message(&mut self, now: Instant, slot: usize) {
        let out = &mut self.outgoing[slot];
        let connection = out.connection;
        if !out.is_live() {
            out.deadline = Instant::FAR_FUTURE;
            return;
        }
        out.retries += 1;
        if out.retries > self.config.give_up_after {
            return self.fail_connection(connection);
        }
        out.time_out();
        out.arm(now, self.config.retransmit_after);
        self.paths[self.connections[connection].path].is_control_due = true;
    }

    fn repeat_fetch(&mut self, now: Instant, index: usize) {
        let Some(asked) = &mut self.asked[index] else { return };
        let connection = asked.connection;
        asked.retries += 1;
        if asked.retries > self.config.give_up_after {
            return self.fail_connection(connection);
        }
        let known = &mut self.connections[connection];
        if known.remote_key.is_some() {
            asked.is_due = true;
        } else {
            known.is_greeting = true;
        }
        asked.deadline = now + self.config.retransmit_after * (1 << asked.retries.min(4));
        self.paths[known.path].is_control_due = true;
    }

    /// All that is under way with this peer has failed, and the keys with it.
    fn fail_connection(&mut self, connection: usize) {
        for slot in 0..self.outgoing.len() {
            let out = &mut self.outgoing[slot];
            if out.is_live() && out.connection == connection {
                out.state = outgoing::State::Failed;
                out.deadline = Instant::FAR_FUTURE;
                self.end_outgoing(slot);
            }
        }
        for index in 0..self.asked.len() {
            let asked = self.asked[index].take_if(|asked| asked.connection == connection);
            if let Some(asked) = asked {
                self.tell(Event::FetchFailed { fetch: asked.id });
            }
        }
        for slot in 0..self.incoming.len() {
            let place = &mut self.incoming[slot];
            if place.connection != connection {
                continue;
            }
            match place.state {
                incoming::State::Waiting => place.free(),
                incoming::State::Open => {
                    place.state = incoming::State::Closing;
                    place.deadline = Instant::FAR_FUTURE;
                    self.end_closing(slot);
                }
                incoming::State::Free | incoming::State::Closing => {}
            }
        }
        let known = &mut self.connections[connection];
        known.is_open = false;
        known.done_at = Instant::FAR_FUTURE;
    }

    /// Gives the memory of a failed message back once no driver writes to it.
    pub(super) fn end_closing(&mut self, slot: usize) {
        let place = &mut self.incoming[slot];
        if place.is_under_way() {
            return;
        }
        let known = &self.connections[place.connection];
        let event = Event::ReceiveFailed {
            path: self.paths[known.path].id,
            from: known.peer,
            posted: place.posted,
        };
        place.free();
        self.tell(event);
    }
}
