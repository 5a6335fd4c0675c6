//! Paths come, change and go.

use landfall_placement::{PathId, PathState};

use super::Endpoint;
use crate::error::Ended;
use crate::path::Path;
use crate::region::{TimedOut, Turn};

impl Endpoint {
    /// A link is up again, or down: what was under way over it goes over others, if there are.
    fn move_streams(&mut self, link: u32, is_up: bool) {
        for connection in self.net.users_of(link) {
            if !is_up {
                if !self.streams.give_up_link(&mut self.net, connection, link) {
                    continue;
                }
                self.tell_outgoing_windows(connection, 0);
            }
            self.streams.queue_stream(&mut self.net, &mut self.cx, connection);
        }
    }

    /// Something was heard of a stream.
    pub(super) fn end_stream_turn(&mut self, connection: u32, turn: Turn) {
        self.tell_outgoing_windows(connection, turn.marked);
        self.streams.finish_turn(&mut self.net, &mut self.cx, connection, turn.is_progress);
    }

    /// Windows learn what became of Puts; a link that was silent for long counts as dead.
    fn tell_outgoing_windows(&mut self, connection: u32, marked: u16) {
        if let Some(link) =
            self.streams.tell_outgoing(&mut self.net, &mut self.cx, connection, marked)
        {
            self.lose_link(link);
        }
    }

    /// Nothing was heard of a stream for a while.
    pub(super) fn time_out_puts(&mut self, connection: u32) {
        match self.streams.time_out_stream(&mut self.net, &mut self.cx, connection) {
            TimedOut::Idle => {}
            TimedOut::GivesUp => self.fail_connection(connection, Some(Ended::Silent)),
            TimedOut::AsksAgain => {
                self.tell_outgoing_windows(connection, 0);
                self.streams.ask_what_applied(&mut self.net, &mut self.cx, connection);
            }
        }
    }

    pub(super) fn change_path(&mut self, path: PathId, state: PathState) {
        let index = match self.net.path_index(path) {
            Some(index) => index,
            None if self.net.paths.len() < self.cx.config.paths => {
                self.net.paths.push(Path::new(path));
                self.net.paths.len() - 1
            }
            None => return,
        };
        match state {
            PathState::Up(limits) => {
                let is_new = self.net.paths[index].limits.replace(limits) != Some(limits);
                if !self.net.paths[index].is_usable() {
                    // Packets too small for a header and a payload carry nothing.
                    self.net.paths[index].limits = None;
                    return self.lose_path(index);
                }
                for link in self.net.links.on_path(index as u8) {
                    self.revive_link(link);
                    if is_new {
                        self.net.forget_size(&mut self.cx, link);
                    }
                }
            }
            PathState::Down => {
                self.net.paths[index].limits = None;
                self.lose_path(index);
            }
        }
    }

    fn lose_path(&mut self, index: usize) {
        let path = &mut self.net.paths[index];
        path.control.clear();
        path.orders.clear();
        for connection in core::mem::take(&mut path.streams) {
            if let Some(known) = self.net.connections.get_mut(connection) {
                known.remote_mut().outgoing.queued &= !(1 << index);
            }
        }
        for link in self.net.links.on_path(index as u8) {
            self.lose_link(link);
        }
    }

    /// The link's path is up, and something was heard over it, or may be.
    pub(crate) fn revive_link(&mut self, index: u32) {
        let Some(link) = self.net.links.get_mut(index) else { return };
        if self.net.paths[usize::from(link.path)].limits.is_none() {
            return;
        }
        let was_up = core::mem::replace(&mut link.is_up, true);
        link.strikes = 0;
        if was_up {
            return;
        }
        self.net.tell_links(&mut self.cx, index, true);
        self.receives.resume_link(&mut self.net, &mut self.cx, index);
        self.move_streams(index, true);
    }

    /// Nothing goes over this link: what it had goes over others. Of connections without
    /// another it stays, and what waited for its room has that now.
    pub(crate) fn lose_link(&mut self, index: u32) {
        let Some(link) = self.net.links.get_mut(index) else { return };
        if !core::mem::replace(&mut link.is_up, false) {
            return;
        }
        self.net.tell_links(&mut self.cx, index, false);
        self.receives.move_blocks(&mut self.net, &mut self.cx, index);
        self.receives.wake_waiting(&mut self.net, index);
        self.move_streams(index, false);
    }
}
