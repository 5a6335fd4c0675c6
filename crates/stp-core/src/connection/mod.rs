//! What is known of one connection.
//!
//! | file | what happens there |
//! | --- | --- |
//! | `open` | Request_Connection and Connection_Answer |
//! | `close` | Request_Disconnect, Disconnect_Answer, Disconnect_Complete |
//! | `effect` | what follows from all that for what is under way on a connection |
//! | `alive` | keep-alive, and further links |
//! | `unsettled` | requests that were given up, and of which the other side may not know |
//! | `record` | the record of a connection: entered, timed, removed |
//! | `table` | finding a connection by key, or by what its other side calls it |

mod alive;
mod close;
mod effect;
mod open;
mod record;
mod table;
mod unsettled;

use alloc::boxed::Box;
use alloc::vec::Vec;

use landfall_placement::Instant;

use crate::network::Sender;
use crate::preference::Priority;
use crate::region::Remote;
use crate::seen::Seen;
use crate::wire::proof::{Secret, Secrets};
use crate::wire::{Envelope, Reason};

pub use alive::ConnectionLink;
pub(crate) use effect::{ConnectionOver, Effect, RecordFate, Refused};
pub use open::Connect;
pub(crate) use table::Connections;
pub(crate) use unsettled::{ReadRequest, Unsettled, UnsettledCount, is_near};

/// Nothing, at the ends of lists.
pub(crate) const NONE: u32 = u32::MAX;

/// The most links of one connection.
pub(crate) const MOST_LINKS: usize = 8;

/// Where a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// This side sent a request, and waits for the answer.
    RequestSent,
    /// A request of the other side crossed ours, and was answered. It may belong to another
    /// request of ours: nothing begins before a proof or an answer.
    RequestsCrossed,
    /// A request came in, and the user has not decided.
    RequestReceived,
    /// A request came in and was answered; the other side has not proved that it received
    /// the answer.
    AnswerSent,
    /// It can be used.
    Open,
    /// The user closes: what is under way goes on to its end.
    Draining,
    /// This side asked to disconnect, and waits for the answer.
    Closing,
    /// The other side asked to disconnect; what is under way goes on to its end.
    PeerClosing,
    /// This side answered that, and waits for the confirmation.
    Confirming,
    /// It is over; the other side may not know.
    Lingering,
    /// Its record is only kept because a driver still holds memory of it.
    Gone,
}

/// What a listener does with a connection that comes in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Admission {
    /// It is admitted at once.
    #[default]
    Open,
    /// The user is asked.
    Ask,
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) state: State,
    /// The other side opened it.
    pub(crate) came_in: bool,
    /// The user knows of it, and will be told when it is no more.
    pub(crate) is_told: bool,
    /// Something came that was made with the secrets of both sides: the other side is who
    /// answered.
    pub(crate) is_proved: bool,
    /// How often what waits for an answer was repeated.
    pub(crate) retries: u8,
    /// The largest STU that both sides can receive.
    pub(crate) max_stu: u16,
    /// How many bytes of each packet with Data stay free.
    pub(crate) tail: u8,
    /// What the user wants of its Transfers, beside those of others.
    pub(crate) priority: Priority,
    pub(crate) weight: u16,
    /// The other side takes messages of up to this many bytes with their request.
    pub(crate) eager: u16,
    /// How many requests the other side lets us have unanswered.
    pub(crate) slots: u8,
    pub(crate) local_port: u16,
    pub(crate) remote_port: u16,
    /// What the other side calls this connection.
    pub(crate) remote_id: u16,
    /// What packets to us must say.
    pub(crate) local_key: u32,
    /// What the other side wants to hear; zero before it told.
    pub(crate) remote_key: u32,
    /// What this side drew, and the other, for their proofs; zero before it told.
    pub(crate) local_secret: Secret,
    pub(crate) remote_secret: Secret,
    /// What the names of regions are mixed with, so that only this connection's
    /// other side can tell them.
    pub(crate) handle_mask: u32,
    /// The link that control operations take.
    pub(crate) link: u32,
    /// By the order of `links`: these carry no Data for us while others can.
    pub(crate) spared: u8,
    /// By the same numbers: links that we added, and the other side has not
    /// answered over. It may not know them yet.
    pub(crate) unheard: u8,
    /// By the same numbers: links over which the other side was asked whether it knows us
    /// there, since nothing was heard.
    pub(crate) moved: u8,
    /// When that was, in short: see `alive::moment`.
    pub(crate) asked_moved: u16,
    /// How often the other side may still want a proof that a link is ours, before
    /// this side asks again by itself.
    pub(crate) challenges: u8,
    /// Further links.
    pub(crate) more_links: Vec<u32>,
    /// Eight bytes for the user at the other side, and from there.
    pub(crate) own_hello: u64,
    pub(crate) hello: u64,
    /// When something was heard last.
    pub(crate) heard: Instant,
    pub(crate) next_send: u32,
    pub(crate) next_read: u32,
    /// Transfers and reads of the other side that are over.
    pub(crate) sends_seen: Seen,
    pub(crate) reads_seen: Seen,
    /// Lists: our sends, our receives, posted memory.
    pub(crate) first_send: u32,
    pub(crate) first_receive: u32,
    pub(crate) first_posted: u32,
    pub(crate) last_posted: u32,
    /// Reads that the other side asked for and that wait for the user.
    pub(crate) reads_waiting: u16,
    /// Requests of ours that were given up, and of which the other side may not know.
    pub(crate) unsettled: Option<Box<Unsettled>>,
    /// Why we abort, to be repeated.
    pub(crate) abort: Option<Reason>,
    /// What has to do with memory of the other side, once that is used.
    pub(crate) remote: Option<Box<Remote>>,
}

impl Connection {
    pub(crate) const fn new(
        state: State,
        link: u32,
        local_key: u32,
        local_secret: Secret,
        handle_mask: u32,
        now: Instant,
    ) -> Self {
        Self {
            state,
            came_in: false,
            is_told: false,
            is_proved: false,
            retries: 0,
            max_stu: 0,
            tail: 0,
            priority: Priority::Normal,
            weight: 1,
            eager: 0,
            slots: 0,
            local_port: 0,
            remote_port: 0,
            remote_id: 0,
            local_key,
            remote_key: 0,
            local_secret,
            remote_secret: Secret(0),
            handle_mask,
            link,
            spared: 0,
            unheard: 0,
            moved: 0,
            asked_moved: 0,
            challenges: 0,
            more_links: Vec::new(),
            own_hello: 0,
            hello: 0,
            heard: now,
            next_send: 0,
            next_read: 0,
            sends_seen: Seen::new(),
            reads_seen: Seen::new(),
            first_send: NONE,
            first_receive: NONE,
            first_posted: NONE,
            last_posted: NONE,
            reads_waiting: 0,
            unsettled: None,
            abort: None,
            remote: None,
        }
    }

    /// What its packets to the other side carry.
    pub(crate) const fn envelope(&self) -> Envelope {
        Envelope { d_port: self.remote_port, s_port: self.local_port, d_key: self.remote_key }
    }

    /// What its packets to the other side are proved with.
    pub(crate) const fn secrets_out(&self) -> Secrets {
        Secrets { receiver: self.remote_secret, sender: self.local_secret }
    }

    /// What packets from there are.
    pub(crate) const fn secrets_in(&self) -> Secrets {
        Secrets { receiver: self.local_secret, sender: self.remote_secret }
    }

    /// Whether a user was refused because of requests that are [`Unsettled`].
    pub(crate) fn is_held_up(&self) -> bool {
        self.unsettled.as_ref().is_some_and(|unsettled| unsettled.holds_up())
    }

    /// Its links, the one for control operations first.
    pub(crate) fn links(&self) -> impl Iterator<Item = u32> + '_ {
        core::iter::once(self.link).chain(self.more_links.iter().copied())
    }

    /// Those that the other side knows.
    pub(crate) fn known_links(&self) -> impl Iterator<Item = u32> + '_ {
        self.links_without(self.unheard)
    }

    /// The links that Data for us comes over.
    pub(crate) fn data_links(&self) -> impl Iterator<Item = u32> + '_ {
        self.links_without(self.unheard | self.spared)
    }

    /// Has it as many links as it may have?
    pub(crate) fn has_all_links(&self) -> bool {
        self.links().count() >= MOST_LINKS
    }

    /// One of the further links goes; gives it. Those behind it move up.
    pub(crate) fn forget_link(&mut self, nth: usize) -> u32 {
        let below = (1 << (nth + 1)) - 1;
        for bits in [&mut self.spared, &mut self.unheard, &mut self.moved] {
            *bits = *bits & below | *bits >> 1 & !below;
        }
        self.more_links.remove(nth)
    }

    /// Its links, but for those whose bits are set.
    fn links_without(&self, bits: u8) -> impl Iterator<Item = u32> + '_ {
        self.links().enumerate().filter(move |(nth, _)| bits >> nth & 1 == 0).map(|(_, link)| link)
    }

    /// May the user begin something new?
    pub(crate) const fn is_open(&self) -> bool {
        matches!(self.state, State::Open | State::AnswerSent)
    }

    /// Does what is under way go on?
    pub(crate) const fn is_live(&self) -> bool {
        matches!(self.state, State::Open | State::AnswerSent | State::Draining | State::PeerClosing)
    }

    /// Is what the other side has under way still served? Who asks for the end has nothing
    /// more to begin; the other side may have, until it answers.
    pub(crate) const fn serves(&self) -> bool {
        self.is_live() || matches!(self.state, State::Closing)
    }

    /// Is a driver at something of it, or holds memory of it? Until it gives all
    /// tickets back, the record stays: they are what the memory waits for.
    pub(crate) fn is_in_use(&self) -> bool {
        let is_left = |remote: &Remote| {
            !remote.outgoing.operations.is_empty() || !remote.incoming.under_way.is_empty()
        };
        self.first_send != NONE
            || self.first_receive != NONE
            || self.remote.as_deref().is_some_and(is_left)
    }

    /// Has neither side begun anything on it?
    pub(crate) fn is_untouched(&self) -> bool {
        !self.is_in_use()
            && (self.next_send, self.next_read, self.reads_waiting) == (0, 0, 0)
            && (&self.sends_seen, &self.reads_seen) == (&Seen::new(), &Seen::new())
            && self.remote.is_none()
            && self.more_links.is_empty()
    }

    /// As who its messages leave.
    pub(crate) fn as_sender(&self) -> Sender {
        Sender { envelope: self.envelope(), secrets: self.secrets_out() }
    }

    /// What it needs of the memory part, made when it is needed first.
    pub(crate) fn remote_mut(&mut self) -> &mut Remote {
        self.remote.get_or_insert_with(Box::default)
    }
}
