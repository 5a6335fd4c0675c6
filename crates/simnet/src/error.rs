//! What can go wrong with a simulation itself, and the bounds it keeps to.

use alloc::string::String;
use core::fmt;

use landfall_placement::Instant;

use crate::link::DirectionId;
use crate::node::NodeId;

/// The bounds of a simulation. At each there is an [`Error`], never growth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Nodes in the network.
    pub nodes: usize,
    /// Links in the network.
    pub links: usize,
    /// Frames that wait in queues or are on their way, in the whole network.
    pub frames: usize,
    /// Link changes and delayed frames that are scheduled.
    pub scheduled: usize,
    /// Events at one and the same moment: more, and the network does not get
    /// on, because two nodes answer each other in no time.
    pub events_per_instant: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            nodes: 4_096,
            links: 16_384,
            frames: 1 << 20,
            scheduled: 1 << 20,
            events_per_instant: 1 << 22,
        }
    }
}

/// Why a network could not be built, or a run could not go on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// [`Limits::nodes`] is reached.
    TooManyNodes {
        /// The bound.
        limit: usize,
    },
    /// [`Limits::links`] is reached, or a node has no port left.
    TooManyLinks {
        /// The bound.
        limit: usize,
    },
    /// [`Limits::frames`] is reached.
    TooManyFrames {
        /// The bound.
        limit: usize,
    },
    /// [`Limits::scheduled`] is reached.
    TooManyScheduled {
        /// The bound.
        limit: usize,
    },
    /// [`Limits::events_per_instant`] is reached: time stands still.
    Stuck {
        /// When.
        at: Instant,
    },
    /// There is no such node, or it is of another type.
    NoSuchNode(NodeId),
    /// There is no such link.
    NoSuchLink(DirectionId),
    /// A node ended the run: it found something that must not be.
    Broken {
        /// Which node.
        node: NodeId,
        /// When.
        at: Instant,
        /// What it found.
        what: String,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooManyNodes { limit } => write!(f, "more than {limit} nodes"),
            Self::TooManyLinks { limit } => write!(f, "more than {limit} links"),
            Self::TooManyFrames { limit } => write!(f, "more than {limit} frames under way"),
            Self::TooManyScheduled { limit } => write!(f, "more than {limit} events scheduled"),
            Self::Stuck { at } => write!(f, "time stands still at {at}: nodes act in no time"),
            Self::NoSuchNode(node) => write!(f, "there is no {node}, or it is of another type"),
            Self::NoSuchLink(direction) => write!(f, "there is no link with {direction}"),
            Self::Broken { node, at, what } => write!(f, "{node} at {at}: {what}"),
        }
    }
}

impl core::error::Error for Error {}
