//! Paths come, change and go.

use landfall_placement::{Instant, PathId, PathState};

use super::Endpoint;
use crate::path::Path;

impl Endpoint {
    pub(super) fn change_path(&mut self, now: Instant, path: PathId, state: PathState) {
        let index = match self.path_index(path) {
            Some(index) => index,
            None if self.paths.len() < self.config.paths => {
                self.paths.push(Path::new(path));
                self.paths.len() - 1
            }
            None => return,
        };
        match state {
            PathState::Up(limits) => {
                let is_new = self.paths[index].limits.replace(limits) != Some(limits);
                if !self.paths[index].is_usable() {
                    // Packets too small for a header and a payload carry nothing.
                    self.paths[index].limits = None;
                    return self.lose_path(now, index);
                }
                for link in self.links.on_path(index as u8) {
                    self.revive_link(now, link);
                    if is_new {
                        self.forget_size(now, link);
                    }
                }
            }
            PathState::Down => {
                self.paths[index].limits = None;
                self.lose_path(now, index);
            }
        }
    }

    fn lose_path(&mut self, now: Instant, index: usize) {
        let path = &mut self.paths[index];
        path.control.clear();
        path.orders.clear();
        for connection in core::mem::take(&mut path.streams) {
            if let Some(known) = self.connections.get_mut(connection) {
                known.remote_mut().outgoing.queued &= !(1 << index);
            }
        }
        for link in self.links.on_path(index as u8) {
            self.lose_link(now, link);
        }
    }

    /// The link's path is up, and something was heard over it, or may be.
    pub(crate) fn revive_link(&mut self, now: Instant, index: u32) {
        let Some(link) = self.links.get_mut(index) else { return };
        if self.paths[usize::from(link.path)].limits.is_none() {
            return;
        }
        let was_up = core::mem::replace(&mut link.is_up, true);
        link.strikes = 0;
        if was_up {
            return;
        }
        self.tell_links(index, true);
        self.resume_link(now, index);
        self.move_streams(now, index, true);
    }

    /// Nothing goes over this link: what it had goes over others. Of connections without
    /// another it stays, and what waited for its room has that now.
    pub(crate) fn lose_link(&mut self, now: Instant, index: u32) {
        let Some(link) = self.links.get_mut(index) else { return };
        if !core::mem::replace(&mut link.is_up, false) {
            return;
        }
        self.tell_links(index, false);
        self.move_blocks(now, index);
        self.wake_waiting(index);
        self.move_streams(now, index, false);
    }
}
