//! Events of the engine, and the handles they concern.

use std::sync::Arc;

use clan_dsm::{Ended, Event, GroupKey, HostId, LinkId, WindowId};
use landfall_placement::{Engine as _, Instant, Peer};

use super::{Attached, NodeState};
use crate::clan::network::back_pressure::WindowState;

impl NodeState {
    /// Takes every event out of the engine. Returns whether there was one.
    pub(super) fn handle_events(&mut self, now: Instant) -> bool {
        let mut heard = false;
        self.end_unkeyed(now);
        while let Some(event) = self.engine.poll_event() {
            heard = true;
            self.take(now, event);
        }
        self.serve_names(now);
        heard
    }

    fn take(&mut self, now: Instant, event: Event) {
        match event {
            Event::Tripwire { tripwire } => self.tripped(tripwire),
            Event::Written { write, result } => {
                if let Some(record) = self.writes.remove(write) {
                    self.written(record, result);
                }
            }
            Event::Dma { endpoint, dma, result } => self.chain_done(endpoint, dma, result),
            Event::Read { read, result } => {
                if let Some((answer, source)) = self.reads.remove(read) {
                    self.after.wake.extend(answer.complete(result));
                    self.after.free.push(source);
                    self.has_answers = true;
                }
            }
            Event::Word { operation, result } => {
                if let Some(answer) = self.operations.remove(operation) {
                    self.after.wake.extend(answer.complete(result));
                    self.has_answers = true;
                }
            }
            Event::Barrier { barrier, result } => {
                self.closing_barriers.retain(|closing_barriers| *closing_barriers != barrier);
                if let Some(record) = self.barriers.remove(barrier) {
                    self.barrier_reached(record, result);
                    self.has_answers = true;
                }
            }
            Event::OutOfBand { endpoint } => self.notice_at(endpoint),
            Event::LinkUp { link, host } => self.link_up(now, link, host),
            Event::LinkDown { link, why } => self.link_down(link, why),
            Event::Contested { link, path, peer } => self.contested(now, link, path, peer),
            Event::Exception { window: Some(window), host, reason, .. } => {
                if let Some(state) = self.window_at(window, host) {
                    state.refuse(reason);
                    let waker = state.take_waker();
                    self.after.wake.extend(waker);
                }
            }
            Event::Overflow { lost } => self.lost(lost),
            Event::GroupKey { key: GroupKey { number, secret } } => {
                // Without room what is sealed with it is not heard, and comes as copies.
                self.engine.join_group(now, number, secret);
            }
            Event::GroupKeyOver { number } => self.engine.forget(Peer::Node(number)),
            // A window that is gone was refused something.
            _ => {}
        }
    }

    /// What that host is of a window: of a group, each member is one.
    fn window_at(&mut self, window: WindowId, host: HostId) -> Option<&Arc<WindowState>> {
        if self.windows.get_mut(window).is_some() {
            return self.windows.get_mut(window).map(|state| &*state);
        }
        let members = self.groups.get_mut(window)?;
        members.iter().find(|(member, _)| *member == host).map(|(_, state)| state)
    }

    /// All windows, and those of each member of each group.
    fn all_windows(&self) -> impl Iterator<Item = &Arc<WindowState>> {
        self.windows.iter().chain(self.groups.iter().flatten().map(|(_, state)| state))
    }

    /// It is there for handles, unless another engine of the node has a link to that host: then
    /// it ends, as one does where a single engine has another.
    fn link_up(&mut self, now: Instant, link: LinkId, host: HostId) {
        let neighbour = self.neighbour_of(link);
        if !self.hosts.claim(host, self.nth) {
            // What the engine has ended already it will tell of.
            let _ = self.engine.close_link(now, link);
            return;
        }
        self.after.wake.append(&mut neighbour.set_up(host));
        self.after.wake.append(&mut self.link_waiters);
    }

    /// All that goes over it is lost; its waiters are woken.
    fn link_down(&mut self, link: LinkId, why: Ended) {
        let Some(neighbour) = self.links.remove(link) else { return };
        self.retire(&neighbour);
        self.after.wake.append(&mut neighbour.set_down(why));
        if let Some(host) = neighbour.host()
            && self.engine.link_to(host).is_none()
        {
            self.hosts.release(host, self.nth);
        }
        let about = self.all_windows().filter(|state| state.is_about(&neighbour));
        let wakers: Vec<_> = about.filter_map(|state| state.take_waker()).collect();
        self.after.wake.extend(wakers);
        for record in self.tripwires.iter().filter(|record| record.state.is_about(&neighbour)) {
            if let Some((event_sender, _)) = &record.events {
                self.after.wake.extend(event_sender.notify());
            }
            self.after.wake.extend(record.state.take_waker());
        }
        self.has_answers = true;
    }

    /// The engine had no room for events. All sources are looked at.
    fn lost(&mut self, lost: u64) {
        self.trip_all();
        self.fire_all_once();
        for record in self.tripwires.iter() {
            if let Some((event_sender, _)) = &record.events {
                event_sender.record_overflow(lost);
                self.after.wake.extend(event_sender.notify());
            }
        }
        for record in self.endpoints.iter() {
            self.after.wake.extend(record.notify());
        }
        self.names.touch_all();
    }

    /// The node has ended: all waiters are woken.
    pub(super) fn lose_all(&mut self) -> Vec<Attached> {
        let links = self.links.take_all();
        for neighbour in &links {
            self.after.wake.append(&mut neighbour.set_down(Ended::Here));
        }
        for record in self.writes.take_all() {
            self.written(record, Err(Ended::Here));
        }
        for (answer, source) in self.reads.take_all() {
            self.after.wake.extend(answer.complete(Err(Ended::Here)));
            self.after.free.push(source);
        }
        for answer in self.operations.take_all() {
            self.after.wake.extend(answer.complete(Err(Ended::Here)));
        }
        for record in self.barriers.take_all() {
            self.barrier_reached(record, Err(Ended::Here));
        }
        self.lose_chains();
        let wakers: Vec<_> = self.all_windows().filter_map(|state| state.take_waker()).collect();
        self.after.wake.extend(wakers);
        let mut events = Vec::new();
        for record in self.tripwires.take_all() {
            self.after.wake.extend(record.state.take_waker());
            events.extend(record.events);
        }
        for record in self.endpoints.iter() {
            self.after.wake.extend(record.notify());
        }
        self.after.wake.append(&mut self.link_waiters);
        self.end_names();
        for (event_sender, _) in &events {
            self.after.wake.extend(event_sender.notify());
        }
        events
    }
}
