//! Paths come, change and go, and links with them.

use landfall_placement::{PathId, PathState};

use super::Network;
use crate::context::Context;
use crate::event::Event;
use crate::path::Path;

/// What became of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathChange {
    /// Nothing: there are as many paths as may be, and it is none of them.
    None,
    /// Its links can be used. It is new, or carries something else than before.
    Up { index: u8, is_new: bool },
    /// Its links can't be used.
    Down { index: u8 },
}

impl Network {
    /// A path comes, changes or goes.
    pub(crate) fn change_path(
        &mut self,
        cx: &Context,
        path: PathId,
        state: PathState,
    ) -> PathChange {
        let place = match self.path_index(path) {
            Some(place) => place,
            None if self.paths.len() < cx.config.paths => {
                self.paths.push(Path::new(path));
                self.paths.len() - 1
            }
            None => return PathChange::None,
        };
        let index = place as u8;
        let known = &mut self.paths[place];
        if let PathState::Up(limits) = state {
            let is_new = known.limits.replace(limits) != Some(limits);
            // Packets too small for a header and a payload carry nothing.
            if known.is_usable() {
                return PathChange::Up { index, is_new };
            }
        }
        for connection in known.clear() {
            if let Some(known) = self.connections.get_mut(connection) {
                known.remote_mut().outgoing.queued &= !(1 << index);
            }
        }
        PathChange::Down { index }
    }

    /// The link's path is up, and something was heard over it, or may be. Returns whether it was
    /// down.
    pub(crate) fn revive_link(&mut self, cx: &mut Context, index: u32) -> bool {
        let Some(link) = self.links.assumed_mut(index) else { return false };
        if self.paths[usize::from(link.path)].limits.is_none() {
            return false;
        }
        link.strikes = 0;
        if core::mem::replace(&mut link.is_up, true) {
            return false;
        }
        self.report_link(cx, index, true);
        true
    }

    /// Nothing goes over this link. Returns whether it was up.
    pub(crate) fn lose_link(&mut self, cx: &mut Context, index: u32) -> bool {
        let Some(link) = self.links.assumed_mut(index) else { return false };
        if !core::mem::replace(&mut link.is_up, false) {
            return false;
        }
        self.report_link(cx, index, false);
        true
    }

    /// Tells the users of a link what became of it.
    pub(crate) fn report_link(&mut self, cx: &mut Context, link: u32, is_up: bool) {
        let Some(known) = self.links.assumed(link) else { return };
        let (path, peer) = (self.paths[usize::from(known.path)].id, known.peer);
        for index in self.users_of(link) {
            // Anyone who has not heard of a connection need not hear of its links.
            let known = self.connections.get(index);
            if !known.is_some_and(|known| known.is_live() && known.is_told) {
                continue;
            }
            let connection = self.id_of(index);
            cx.emit(if is_up {
                Event::LinkUp { connection, path, peer }
            } else {
                Event::LinkDown { connection, path, peer }
            });
        }
    }
}
