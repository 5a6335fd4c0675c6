//! Transfers that this side receives, and Gets.
//!
//! | file | what happens there |
//! | --- | --- |
//! | `offered` | Request_To_Send, and what the user says to it |
//! | `posted` | memory that waits for Transfers |
//! | `begin` | a Transfer and its memory come together: it begins, or is too long |
//! | `answers` | what the sender of a Transfer is told of it |
//! | `early` | what came with its request waits for its memory |
//! | `reading` | what this side asks for: Request_To_Receive, and Get |
//! | `schedule` | who gets the next grant, and who waits for what |
//! | `grant` | granting as much as there is room for: opening Blocks, Clear_To_Send |
//! | `room` | what is granted and has not arrived, and in which order on a link |
//! | `granted` | the granted Blocks: what an adapter knows, and what only the engine knows |
//! | `arrival` | Data comes and lands; Blocks and Transfers are complete |
//! | `adapter` | adapters that take Data off the engine |
//! | `recovery` | what did not come is asked for again |
//! | `shorten` | long packets do not come any more: Blocks are laid out in shorter STUs |
//! | `ending` | a Transfer is over, or ends early |

mod adapter;
mod answers;
mod arrival;
mod begin;
mod early;
mod ending;
mod grant;
mod granted;
mod offered;
mod posted;
mod reading;
mod recovery;
mod room;
mod schedule;
mod shorten;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use landfall_placement::{Area, Instant, assumed};
use landfall_tables::{IndexedHeap, Table};

use crate::config::Config;
use crate::connection::NONE;
use crate::error::Ended;
use crate::ids::ReceiveId;
use crate::link::NO_BLOCK;
use crate::network::Network;
use crate::preference::Priority;

pub(crate) use granted::Granted;
pub(crate) use posted::Posted;
pub(crate) use schedule::Ready;

/// What this side receives, by Transfers and Gets.
#[derive(Debug)]
pub(crate) struct Receives {
    pub(crate) table: Table<Receive>,
    pub(crate) timers: IndexedHeap<Instant>,
    /// Memory that waits for Transfers.
    pub(crate) posted: Table<Posted>,
    /// Transfers that came with their request and are to be deposited, and the one that is.
    pub(crate) early: VecDeque<(u32, u32)>,
    deposited: Vec<u8>,
    pub(crate) granted: Granted,
    /// Transfers that may get the next grant.
    pub(crate) ready: Ready,
    /// Something arrived: more may be granted.
    pub(crate) grants_due: bool,
    /// The links that something arrived over.
    fresh_links: Vec<u32>,
}

impl Receives {
    pub(crate) fn new(config: &Config, granted: Granted) -> Self {
        Self {
            table: Table::new(config.receives),
            timers: IndexedHeap::new(),
            posted: Table::new(config.posted),
            early: VecDeque::new(),
            deposited: Vec::new(),
            granted,
            ready: Ready::new(config.policy),
            grants_due: false,
            fresh_links: Vec::new(),
        }
    }

    /// One that is known to be there: a Transfer that goes on is in the table.
    #[inline]
    #[track_caller]
    pub(crate) fn assumed(&self, index: u32) -> Option<&Receive> {
        assumed(self.table.get(index), "a Transfer that goes on is in the table")
    }

    /// The same, to change it.
    #[inline]
    #[track_caller]
    pub(crate) fn assumed_mut(&mut self, index: u32) -> Option<&mut Receive> {
        assumed(self.table.get_mut(index), "a Transfer that goes on is in the table")
    }

    pub(crate) fn receive_id(&self, index: u32) -> ReceiveId {
        ReceiveId::of(self.table.key(index))
    }

    /// The Transfer of the other side with this serial number.
    pub(crate) fn find_receive(&self, net: &Network, connection: u32, serial: u32) -> Option<u32> {
        let mut index = net.connections.get(connection)?.first_receive;
        while let Some(receive) = self.table.get(index) {
            if receive.serial == serial && receive.is_transfer() {
                return Some(index);
            }
            index = receive.next_in_connection;
        }
        None
    }

    /// The Transfers that a connection receives.
    pub(crate) fn receives_of(&self, net: &Network, connection: u32) -> Vec<u32> {
        let mut found = Vec::new();
        let mut index = net.connections.get(connection).map_or(NONE, |known| known.first_receive);
        while let Some(receive) = self.table.get(index) {
            found.push(index);
            index = receive.next_in_connection;
        }
        found
    }

    /// How many bytes from the start are in place.
    pub(crate) fn contiguous(&self, receive: &Receive) -> u64 {
        let acked = receive.acked(|block| self.granted.number_of(block));
        receive.position_of(acked).min(receive.len)
    }
}

/// What is received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// What the other side wanted to send.
    Write,
    /// What we asked for; the serial number of the question.
    Read(u32),
    /// Part of a region of the other side.
    Get { handle: u32, at: u64, after: u32 },
}

/// Where a Transfer stands at its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// This side sent a Request_To_Receive; the sender has not begun.
    RequestSent,
    /// It waits for the user to say where it belongs.
    Offered,
    /// It has memory: Blocks are granted.
    Open,
    /// It ends early: End was not acknowledged, or payloads are under way.
    Ending(Ended),
}

/// What the schedule knows of a Transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScheduleState {
    /// There is nothing to grant, or as many Blocks are granted as may be.
    None,
    /// It is among those that may get the next grant.
    Ready,
    /// It waits for room on a link.
    Waiting,
}

/// A Transfer that this side receives.
#[derive(Debug)]
pub(crate) struct Receive {
    pub(crate) connection: u32,
    pub(crate) serial: u32,
    pub(crate) kind: Kind,
    pub(crate) state: State,
    /// What the sender calls it.
    pub(crate) peer_id: u16,
    pub(crate) memory: Option<Area>,
    /// How much the sender has, and how much of that is taken.
    pub(crate) offered: u64,
    pub(crate) len: u64,
    /// The most that shall be taken, where that was said before there was memory.
    pub(crate) limit: Option<u64>,
    pub(crate) opaque: u32,
    /// The size of a Block, as a power of two.
    pub(crate) block_size: u8,
    /// The largest Block that the sender can send.
    pub(crate) most_block: u8,
    /// How far into its first Block the Transfer begins: Blocks lie at
    /// multiples of their size, as buffers do.
    pub(crate) lead: u32,
    /// How many Blocks it has.
    pub(crate) blocks: u32,
    /// The next Block to be opened.
    pub(crate) next_block: u32,
    /// The Blocks that are open, in the order of their numbers.
    pub(crate) open: Vec<u16>,
    /// Bytes that were not granted.
    pub(crate) rest: u64,
    pub(crate) turn: ScheduleState,
    pub(crate) priority: Priority,
    /// The link that its Data shall come over while that is up; or any.
    pub(crate) link: u32,
    /// How many more Blocks it is granted in this turn.
    pub(crate) more_in_turn: u16,
    /// Blocks that were taken back while payloads were under way to them.
    pub(crate) releasing: u16,
    /// The End was acknowledged, or need not be.
    pub(crate) is_told: bool,
    pub(crate) retries: u8,
    /// How many bytes from the start the user knows of.
    pub(crate) reported: u64,
    /// All of it, where it came with its request and its memory is not known yet.
    pub(crate) early: Option<Box<[u8]>>,
    /// The user wants to know how far it is.
    pub(crate) is_watched: bool,
    pub(crate) next_in_connection: u32,
}

impl Receive {
    pub(crate) const fn new(connection: u32, serial: u32, kind: Kind, state: State) -> Self {
        Self {
            connection,
            serial,
            kind,
            state,
            peer_id: 0,
            memory: None,
            offered: 0,
            len: 0,
            limit: None,
            opaque: 0,
            block_size: 0,
            most_block: 31,
            lead: 0,
            blocks: 0,
            next_block: 0,
            open: Vec::new(),
            rest: 0,
            turn: ScheduleState::None,
            priority: Priority::Normal,
            link: NONE,
            more_in_turn: 0,
            releasing: 0,
            is_told: true,
            retries: 0,
            reported: 0,
            early: None,
            is_watched: false,
            next_in_connection: NONE,
        }
    }

    /// All Blocks below this one are complete.
    pub(crate) fn acked(&self, number_of: impl Fn(u16) -> u32) -> u32 {
        self.open.first().map_or(self.next_block, |block| number_of(*block))
    }

    /// Where in the Transfer a Block begins.
    pub(crate) fn position_of(&self, block: u32) -> u64 {
        (u64::from(block) << self.block_size).saturating_sub(u64::from(self.lead))
    }

    /// How much there must be memory for.
    pub(crate) fn wanted(&self) -> u64 {
        self.limit.map_or(self.offered, |limit| limit.min(self.offered))
    }

    /// Does it take less than was offered?
    pub(crate) const fn is_limited(&self) -> bool {
        self.len < self.offered
    }

    /// Is it a Transfer of the other side, with a serial number of its own?
    pub(crate) const fn is_transfer(&self) -> bool {
        matches!(self.kind, Kind::Write | Kind::Read(_))
            && !matches!(self.state, State::RequestSent)
    }
}

/// What the engine knows of a granted Block beside what an adapter knows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    pub(crate) receive: u32,
    pub(crate) link: u32,
    /// Its neighbours in the order of grants on the link.
    pub(crate) before: u16,
    pub(crate) behind: u16,
    /// Granted and not arrived, in bytes.
    pub(crate) granted: u32,
    /// When it was granted first, or something of it came.
    pub(crate) active: Instant,
    /// When the last grant went out, and from which STU on it was.
    pub(crate) at: Instant,
    pub(crate) from: u16,
    /// Counts the grants.
    pub(crate) attempt: u8,
    /// How often something of it was asked for again.
    pub(crate) asked: u8,
    /// When that was last.
    pub(crate) asked_at: Instant,
    /// What is missing before this STU was asked for again.
    pub(crate) asked_below: u16,
    /// How many STUs came of Blocks that were granted later.
    pub(crate) passed: u16,
}

impl Grant {
    pub(crate) const fn new(receive: u32, link: u32, now: Instant) -> Self {
        Self {
            receive,
            link,
            before: NO_BLOCK,
            behind: NO_BLOCK,
            granted: 0,
            active: now,
            at: now,
            from: 0,
            attempt: 0,
            asked: 0,
            asked_at: Instant::ZERO,
            asked_below: 0,
            passed: 0,
        }
    }
}
