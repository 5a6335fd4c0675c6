//! What users of STP began, and what must come of it.

use std::collections::VecDeque;

use landfall_placement::Area;
use stp_core::{ConnectionId, OperationId, ReceiveId, RemoteRegion};

use crate::plan::Work;

/// A Transfer. Its number is what it carries from user to user.
#[derive(Clone, Debug)]
pub(super) struct Transfer {
    pub(super) link: usize,
    pub(super) from: u8,
    pub(super) to: u8,
    pub(super) len: u32,
    /// Where its bytes are.
    pub(super) area: Area,
    /// What its receiver gave for it, once that is known.
    pub(super) into: Option<Area>,
    pub(super) receive: Option<ReceiveId>,
    pub(super) is_offered: bool,
    pub(super) is_delivered: bool,
    /// Somebody ended it, or did not want it.
    pub(super) is_excused: bool,
    /// The engine that it is for was not started anew.
    pub(super) has_receiver: bool,
    /// Its sender was told of its end.
    pub(super) is_over: bool,
}

/// Somebody asked to be sent something.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    pub(super) link: usize,
    pub(super) by: u8,
    pub(super) len: u32,
    pub(super) id: ReceiveId,
    pub(super) area: Area,
    pub(super) is_asked: bool,
    pub(super) is_excused: bool,
    pub(super) is_over: bool,
}

/// A connection, from the call that asked for it on.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) from: u8,
    pub(super) to: u8,
    /// What the side that asked calls it, and the other.
    pub(super) ids: [Option<ConnectionId>; 2],
    pub(super) is_up: [bool; 2],
    pub(super) is_closing: [bool; 2],
    pub(super) is_closed: [bool; 2],
    pub(super) was_accepted: bool,
    /// A side was started anew, or the connection failed.
    pub(super) is_gone: bool,
    /// A user ended it.
    pub(super) is_ended: bool,
    /// What waits until it is open.
    pub(super) queue: VecDeque<(u8, Work)>,
    pub(super) region: Region,
}

/// The memory of the side that was asked, that the side that asked writes to.
#[derive(Debug, Default)]
pub(super) struct Region {
    pub(super) is_asked: bool,
    pub(super) area: Option<Area>,
    pub(super) remote: Option<RemoteRegion>,
    /// What it holds once all operations took effect.
    pub(super) expected: Vec<u8>,
    /// Which operation wrote each byte last.
    pub(super) writers: Vec<u32>,
    pub(super) writes: u32,
    /// What was begun, in order.
    pub(super) operations: VecDeque<Operation>,
    pub(super) gets: Vec<Get>,
    /// An operation failed: it is not known whether it had an effect.
    pub(super) is_uncertain: bool,
    pub(super) notices: VecDeque<(u64, u64)>,
    /// Nothing may be begun any more.
    pub(super) is_refused: bool,
}

/// A Put or FetchOp.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) id: OperationId,
    /// What a word held before.
    pub(super) old: Option<u64>,
    pub(super) area: Option<Area>,
}

/// A Get: what it must bring, but for bytes that later operations write.
#[derive(Debug)]
pub(super) struct Get {
    pub(super) id: ReceiveId,
    pub(super) at: usize,
    pub(super) area: Area,
    pub(super) after: u32,
}

impl Link {
    pub(super) fn new(from: u8, to: u8) -> Self {
        Self {
            from,
            to,
            ids: [None; 2],
            is_up: [false; 2],
            is_closing: [false; 2],
            is_closed: [false; 2],
            was_accepted: false,
            is_gone: false,
            is_ended: false,
            queue: VecDeque::new(),
            region: Region::default(),
        }
    }

    pub(super) fn joins(&self, host: u8) -> bool {
        self.from == host || self.to == host
    }

    /// 0 is the side that asked.
    pub(super) fn side(&self, host: u8) -> usize {
        usize::from(host != self.from)
    }

    pub(super) fn other(&self, host: u8) -> u8 {
        if host == self.from { self.to } else { self.from }
    }

    /// May something be begun on it, now or soon?
    pub(super) fn is_usable(&self) -> bool {
        !self.is_gone && !self.is_ended && self.is_closed == [false; 2]
    }

    /// The connection, where something may be begun at once.
    pub(super) fn open_at(&self, host: u8) -> Option<ConnectionId> {
        let side = self.side(host);
        (self.is_up[side] && !self.is_closing[side] && !self.is_closed[side])
            .then_some(self.ids[side])
            .flatten()
    }

    /// A host was started anew.
    pub(super) fn forget(&mut self, host: u8) {
        let side = self.side(host);
        (self.ids[side], self.is_up[side], self.is_closed[side]) = (None, false, true);
        self.queue.retain(|(by, _)| *by != host);
        self.region.is_uncertain = true;
        if side == 0 {
            self.region.operations.clear();
            self.region.gets.clear();
        } else {
            self.region.area = None;
        }
    }

    /// What was begun on it and is not over.
    pub(super) fn left(&self) -> Option<String> {
        let region = &self.region;
        if !self.is_up[0] && !self.is_closed[0] {
            return Some("it neither opened nor failed".into());
        }
        let count = region.operations.len() + region.gets.len();
        if count > 0 {
            return Some(format!("{count} operations on its region did not end"));
        }
        None
    }
}
