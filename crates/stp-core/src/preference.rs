//! Who goes first, and who gets more: the wishes of this side's user.
//!
//! Nothing of it is on the wire. At a receiver it decides who is granted next and how much of
//! the window each may have; at a sender whose Data leaves first where that of several peers
//! waits. What one peer is sent over one link leaves in the order of its grants, which its
//! receiver chooses.

use alloc::vec::Vec;

use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::ids::{ConnectionId, ReceiveId, SendId};

/// Which of those that wait goes first.
///
/// It is strict: while something of a higher priority can go on, nothing of a lower one
/// begins. What was granted already stays granted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// What others leave.
    Low,
    /// As usual.
    #[default]
    Normal,
    /// Before all others.
    High,
}

impl Priority {
    /// All of them, the highest first.
    pub(crate) const ALL: [Self; 3] = [Self::High, Self::Normal, Self::Low];

    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

/// The largest weight of a connection.
pub(crate) const MOST_WEIGHT: u16 = 1_000;

impl Endpoint {
    /// Sets the priority of a connection: of Transfers in both directions, and reads, that
    /// begin from now on. Those that have begun keep theirs.
    ///
    /// ```
    /// use landfall_placement::{Engine, Instant, PathId, PathLimits, PathState, Peer};
    /// use stp_core::{Config, Connect, Endpoint, Priority};
    ///
    /// let mut endpoint = Endpoint::new(Config::default(), [7; 32]);
    /// let now = Instant::ZERO;
    /// endpoint.handle_path(now, PathId(0), PathState::Up(PathLimits::plain(1_500)));
    ///
    /// let connection = endpoint.connect(now, PathId(0), Peer::Node(1), Connect::default())?;
    /// endpoint.set_priority(connection, Priority::High)?;
    /// endpoint.set_weight(connection, 4)?;
    /// # Ok::<(), stp_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn set_priority(&mut self, id: ConnectionId, priority: Priority) -> Result<(), Error> {
        self.connection(id)?;
        if let Some(known) = self.connections.get_mut(id.index) {
            known.priority = priority;
        }
        Ok(())
    }

    /// Sets how much a connection may have of the receiver's window beside others of the same
    /// priority, and how many Blocks its Transfers are granted in their turn: 1, as all others
    /// have, to 1,000. Connections to the same peer over the same path share what the largest
    /// of their weights gives. It counts while the [policy](crate::Policy) is to serve each in
    /// turn.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn set_weight(&mut self, id: ConnectionId, weight: u16) -> Result<(), Error> {
        self.connection(id)?;
        if let Some(known) = self.connections.get_mut(id.index) {
            known.weight = weight.clamp(1, MOST_WEIGHT);
        }
        let links: Vec<u32> = self.connection(id)?.links().collect();
        for link in links {
            self.weigh_link(link);
        }
        Ok(())
    }

    /// Sets the priority of one Transfer that is being sent: of what is granted of it from now
    /// on.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn set_send_priority(&mut self, id: SendId, priority: Priority) -> Result<(), Error> {
        self.sends.named(id.index, id.generation).ok_or(Error::Unknown)?;
        if let Some(send) = self.sends.get_mut(id.index) {
            send.priority = priority;
        }
        Ok(())
    }

    /// Sets the priority of one Transfer that is being received, offered or read: of what is
    /// granted of it from now on.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn set_receive_priority(&mut self, id: ReceiveId, priority: Priority) -> Result<(), Error> {
        self.receives.named(id.index, id.generation).ok_or(Error::Unknown)?;
        let is_ready = self.ready.forget(id.index);
        if let Some(receive) = self.receives.get_mut(id.index) {
            receive.priority = priority;
            let rest = receive.rest;
            if is_ready {
                self.ready.enter(id.index, rest, priority);
            }
        }
        Ok(())
    }

    /// A link has the largest weight of the connections that use it.
    pub(crate) fn weigh_link(&mut self, link: u32) {
        let users = self.connections.table.indices();
        let weight_there = |other| {
            let other = self.connections.get(other)?;
            other.links().any(|its| its == link).then_some(other.weight)
        };
        let weight = users.filter_map(weight_there).max().unwrap_or(1);
        if let Some(known) = self.links.get_mut(link)
            && known.weight != weight
        {
            known.weight = weight;
            self.recount(link);
        }
    }
}
