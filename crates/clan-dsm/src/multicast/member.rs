//! What the writer knows of one member of a group.

use alloc::collections::VecDeque;
use alloc::sync::Arc;

use landfall_placement::{Duration, Instant, Serial32};

use super::GroupFrame;
use crate::address::{HostId, LinkId, WriteId};
use crate::error::Ended;

/// After this many time-outs in a row nobody waits for a member.
const MOST_TIMEOUTS: u8 = 2;

/// What a member may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    pub(crate) frames: usize,
    pub(crate) bytes: u64,
}

/// When a member is given up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    pub(crate) give_up_after: u8,
    pub(crate) silence: Duration,
}

/// How far a member takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// It was told of the stream, and nobody knows yet whether the network reaches it.
    Invited,
    /// It hears the group's address, and gets nothing by it now.
    Reachable,
    /// What is published goes to it.
    Attached,
    /// It gets nothing more, until it has what it was sent.
    Draining,
}

/// What a host is to a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Membership {
    Unknown,
    Member,
    /// It gets the rest of what it was sent.
    Leaving,
    /// Its link is gone, and a driver still holds memory of what was sent to it.
    Gone,
}

/// Something that was published, as one member sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Publication {
    /// Its frames.
    pub(crate) first: Serial32,
    pub(crate) last: Serial32,
    /// Which of the things it is that barriers of the member's link wait for.
    pub(crate) link: LinkId,
    pub(crate) number: u64,
    /// The write from memory that it is, and its length.
    pub(crate) write: Option<(WriteId, u64)>,
}

/// A frame that a member is to get again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Repair {
    pub(crate) member: HostId,
    pub(crate) seq: Serial32,
}

/// A frame that a member is not known to have.
#[derive(Debug)]
pub(super) struct Unacked {
    pub(super) frame: Arc<GroupFrame>,
    /// When it left for this member last. `None`: not yet.
    pub(super) sent: Option<Instant>,
    /// How often it was sent again.
    pub(super) repairs: u8,
    pub(super) has_arrived: bool,
    pub(super) is_queued: bool,
    /// The frame's flight counts this member.
    pub(super) is_counted: bool,
}

#[derive(Debug)]
pub(super) struct Member {
    pub(super) mode: Mode,
    /// Its window of the group is gone: it ends once it has all.
    pub(super) is_leaving: bool,
    /// The frames before this one have arrived.
    pub(super) acked: Serial32,
    pub(super) unacked: VecDeque<Unacked>,
    pub(super) bytes: u64,
    pub(super) publications: VecDeque<Publication>,
    /// Since when nothing new has arrived, or something was sent again.
    pub(super) since: Instant,
    pub(super) heard: Instant,
    pub(super) backoff: u8,
    pub(super) marks: u8,
    pub(super) most_frames: usize,
    pub(super) most_bytes: u64,
    /// The link that it was invited over.
    pub(super) link: LinkId,
    /// That link is gone.
    pub(super) gone: Option<Ended>,
}

impl Member {
    /// Nobody waits for it, until it says something new.
    pub(super) const fn is_silent(&self) -> bool {
        self.backoff > MOST_TIMEOUTS
    }
}

/// The first frames that a member does not have: more each time. Where it said of the first that
/// it has it, and what said that it is in its place got lost, the first asks for that.
pub(super) fn queue_again(
    repairs: &mut VecDeque<Repair>,
    host: HostId,
    member: &mut Member,
    left: Serial32,
) {
    if member.acked.precedes(left)
        && let Some(first) = member.unacked.front_mut()
        && first.has_arrived
        && !first.is_queued
    {
        first.is_queued = true;
        repairs.push_back(Repair { member: host, seq: member.acked });
    }
    let mut most = (1 << member.backoff.min(5)).min(member.most_frames);
    for (n, unacked) in (0..).zip(&mut member.unacked) {
        let seq = member.acked.plus(n);
        if most == 0 || !seq.precedes(left) {
            return;
        }
        if !unacked.has_arrived && !unacked.is_queued {
            unacked.is_queued = true;
            repairs.push_back(Repair { member: host, seq });
            most -= 1;
        }
    }
}
