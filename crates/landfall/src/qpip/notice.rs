//! [`Notice`]: what an adapter tells that is no completion and no change of a connection.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use qpip::{Event, QueuePairId};

/// As many wait to be taken; the oldest makes room.
const MOST: usize = 1_024;

/// What happened to an adapter. Links are named by their place in
/// [`Adapter::links`](super::Adapter::links).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// A link has an address from now on: it was given, or nobody else had it.
    AddressReady {
        /// Which link.
        link: usize,
        /// The address.
        address: IpAddr,
    },
    /// A link has an address no longer. Connections from it are closed.
    AddressLost {
        /// Which link.
        link: usize,
        /// The address.
        address: IpAddr,
    },
    /// Another station says that it has an address of ours, or one that we asked for.
    AddressConflict {
        /// Which link.
        link: usize,
        /// The address.
        address: IpAddr,
        /// The station.
        station: [u8; 6],
    },
    /// The network says that a datagram did not arrive, which has left and is done.
    Undelivered {
        /// Who sent it.
        queue_pair: QueuePairId,
        /// To whom.
        remote: SocketAddr,
    },
}

impl Notice {
    const fn of(event: &Event) -> Option<Self> {
        Some(match *event {
            Event::AddressReady { path, address } => {
                Self::AddressReady { link: path.0 as usize, address }
            }
            Event::AddressLost { path, address } => {
                Self::AddressLost { link: path.0 as usize, address }
            }
            Event::AddressConflict { path, address, station } => {
                Self::AddressConflict { link: path.0 as usize, address, station }
            }
            Event::Undelivered { queue_pair, remote, .. } => {
                Self::Undelivered { queue_pair, remote }
            }
            _ => return None,
        })
    }
}

/// Those that nobody has taken yet.
#[derive(Debug, Default)]
pub(crate) struct Notices(VecDeque<Notice>);

impl Notices {
    pub(super) fn note(&mut self, event: &Event) {
        if let Some(notice) = Notice::of(event) {
            if self.0.len() >= MOST {
                self.0.pop_front();
            }
            self.0.push_back(notice);
        }
    }

    pub(super) fn take(&mut self) -> Option<Notice> {
        self.0.pop_front()
    }
}
