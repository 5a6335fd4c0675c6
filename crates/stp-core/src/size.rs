//! How long packets may be over a link: who receives Data finds it out.
//!
//! A path says which packets every peer gets (`PathLimits::sure`). Whether a peer's longer
//! ones come, the receiver asks: a short question for each size, whose answer is as long as
//! that size ([RFC 8899](https://www.rfc-editor.org/rfc/rfc8899) with the roles of STP: the
//! receiver grants the STU, and sees what is lost). What came whole is proven, and STUs that
//! fit are granted; the sender keeps nothing. A question or an answer that is lost counts
//! against nothing but its size.
//!
//! | when | what |
//! | --- | --- |
//! | a connection has a new link | each size that is not proven is asked for, [`ROUNDS`] times |
//! | that is over, and sizes are left | they are asked for again after [`RAISE_AFTER`] |
//! | long STUs are lost [`LOSSES`] times in a row, and short packets come | nothing is proven any more, Blocks under way are laid out anew, and the search begins again |

use landfall_placement::{Area, Duration, PathId, Peer, Refusal, Unit};

use crate::connection::{Connection, NONE};
use crate::context::Context;
use crate::error::{Error, check_memory};
use crate::ids::ConnectionId;
use crate::network::Network;
use crate::path::ControlTail;
use crate::wire::HEADER_LEN;
use crate::wire::message::{Ids, Message, Question, State};

/// How often each size is asked for (`MAX_PROBES` of RFC 8899).
const ROUNDS: u8 = 3;

/// When sizes that did not come are tried again (`PMTU_RAISE_TIMER`).
const RAISE_AFTER: Duration = Duration::from_secs(600);

/// What packets may have over links that are common, less the headers of UDP and IP: 1500
/// bytes less those of a tunnel, 1500 over IPv6 and IPv4, 9000 over both.
const COMMON: [u32; 5] = [1372, 1452, 1472, 8952, 8972];

/// How many losses in a row, a round trip apart, say that long packets do not come any more.
const LOSSES: u8 = 3;

/// What is known of the size of packets that come over a link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkSize {
    /// The longest packet that came whole, of those that were asked for.
    proven: u32,
    /// What the questions of this search carry.
    token: u64,
    /// How often they were asked; 0 when nothing is being asked.
    rounds: u8,
    /// The connection whose other side is asked; one that there never is for none.
    asks: ConnectionId,
    /// How often in a row long STUs were lost; when last is in the link's traffic.
    losses: u8,
    /// Something short came since the first of them.
    short_came: bool,
}

impl Default for LinkSize {
    fn default() -> Self {
        let asks = ConnectionId { index: NONE, generation: 0 };
        Self { proven: 0, token: 0, rounds: 0, asks, losses: 0, short_came: false }
    }
}

impl LinkSize {
    /// The longest packet that may be granted where a path is sure of this one.
    pub(crate) fn or_sure(&self, sure: u32) -> u32 {
        sure.max(self.proven)
    }

    /// Something came that is no long STU.
    #[inline]
    pub(crate) fn note_short(&mut self) {
        self.short_came |= self.losses > 0;
    }

    /// A long STU came.
    pub(crate) const fn note_long(&mut self) {
        self.losses = 0;
    }

    /// Long STUs were lost. Returns whether that was so often in a row, while short packets
    /// came, that long ones do not come any more.
    pub(crate) const fn note_long_lost(&mut self) -> bool {
        self.short_came &= self.losses > 0;
        self.losses = self.losses.saturating_add(1);
        self.losses >= LOSSES && self.short_came
    }

    /// Nothing is proven any more.
    pub(crate) fn begin_anew(&mut self) {
        *self = Self { asks: self.asks, ..Self::default() };
    }

    /// Were long STUs lost, and none came since?
    #[inline]
    pub(crate) const fn is_in_doubt(&self) -> bool {
        self.losses > 0
    }
}

impl Network {
    /// Lends memory whose contents do not matter, for as long as the endpoint lives: what packets
    /// are filled up with that a peer asks for, to find out how long they may be.
    pub(crate) fn set_padding(&mut self, memory: Area) -> Result<(), Error> {
        check_memory(memory)?;
        self.padding = Some(memory);
        Ok(())
    }

    /// The longest packet that may come over a link, as far as is known.
    pub(crate) fn proven_unit(&self, path: PathId, peer: Peer) -> Option<u32> {
        let path = self.path_index(path)?;
        let link = self.links.get(self.links.find(path as u8, peer)?)?;
        let limits = self.paths[path].limits.as_ref()?;
        Some(link.size.or_sure(limits.sure).min(limits.unit))
    }

    // ---- The search -------------------------------------------------------------

    /// A connection has a link: finds out how long packets over it may be, unless that is
    /// known or being found out.
    pub(crate) fn find_size(&mut self, cx: &mut Context, connection: u32, link: u32) {
        let asks = self.id_of(connection);
        let is_known = self.links.size_timers.key_of(link).is_some();
        let Some(known) = self.links.assumed_mut(link) else { return };
        known.size.asks = asks;
        if !is_known {
            self.begin_search(cx, link);
        }
    }

    /// The same for the link that a connection begins with.
    pub(crate) fn find_size_of(&mut self, cx: &mut Context, connection: u32) {
        if let Some(known) = self.connections.get(connection) {
            let link = known.link;
            self.find_size(cx, connection, link);
        }
    }

    /// Its path carries something else now.
    pub(crate) fn forget_size(&mut self, cx: &mut Context, link: u32) {
        let Some(known) = self.links.assumed_mut(link) else { return };
        known.size.begin_anew();
        self.begin_search(cx, link);
    }

    fn begin_search(&mut self, cx: &mut Context, link: u32) {
        // The tables of adapters are made for Blocks that stay as they are.
        if cx.config.has_adapters() || self.next_size(cx, link, 0).is_none() {
            self.links.size_timers.remove(link);
            return;
        }
        let token = cx.random.next_u64();
        if let Some(known) = self.links.get_mut(link) {
            known.size.token = token;
            known.size.rounds = 0;
        }
        self.ask_sizes(cx, link);
    }

    /// The next packet to be tried behind one of `size` bytes, and behind what is granted:
    /// what common links carry, or twice as large an STU, up to what this path carries.
    fn next_size(&self, cx: &Context, link: u32, size: u32) -> Option<u32> {
        let known = self.links.get(link)?;
        let path = &self.paths[usize::from(known.path)];
        let limits = path.limits.as_ref()?;
        let size = known.size.or_sure(limits.sure).max(size);
        let (header, stu) = (HEADER_LEN as u32, path.stu_of(size, 0)?);
        // The longest STU that a packet of this connection's side has, and its tail.
        let most = header + (1 << cx.config.max_stu) + u32::from(cx.config.tail);
        let most = most.min(limits.unit);
        // Where nothing more fits into a longer packet, there is nothing to find out.
        if path.stu_of(most, 0)? <= stu {
            return None;
        }
        let twice = u32::from(stu) * 2 + header;
        let common = COMMON.into_iter().filter(|common| *common > size);
        Some(common.chain([twice]).min().unwrap_or(most).min(most))
    }

    /// Asks for each size once.
    fn ask_sizes(&mut self, cx: &mut Context, link: u32) {
        let (retry_after, floor) = (cx.config.retry_after, cx.config.retry_floor);
        let asking = self.asking(link);
        let Some(known) = self.links.assumed_mut(link) else { return };
        let Some(connection) = asking else {
            // The next connection begins it again.
            known.size.rounds = 0;
            self.links.size_timers.remove(link);
            return;
        };
        let patience = known.time_out(retry_after, floor).saturating_mul(1 << known.size.rounds);
        known.size.rounds += 1;
        let token = known.size.token;
        let ids = Ids { d_id: self.remote_id(connection), s_id: connection as u16 };
        let mut size = 0;
        while let Some(next) = self.next_size(cx, link, size) {
            size = next;
            let question = Question::Size { ids, size, token };
            self.send_message_over(cx, link, connection, &Message::RequestState(question));
        }
        self.links.size_timers.set(link, cx.now + patience);
    }

    fn remote_id(&self, connection: u32) -> u16 {
        self.connections.get(connection).map_or(0, |known| known.remote_id)
    }

    /// A connection that the other side of a link can be asked by.
    fn asking(&self, link: u32) -> Option<u32> {
        let is_live = |index: u32| self.connections.get(index).is_some_and(Connection::is_live);
        let asks = self.links.get(link)?.size.asks;
        let is_known = self.connection(asks).is_ok() && is_live(asks.index);
        is_known
            .then_some(asks.index)
            .or_else(|| self.users_of(link).into_iter().find(|index| is_live(*index)))
    }

    /// Not all sizes came in time; or it is time to try again.
    pub(crate) fn time_out_size(&mut self, cx: &mut Context, link: u32) {
        let Some(known) = self.links.assumed_mut(link) else { return };
        match known.size.rounds {
            0 => self.begin_search(cx, link),
            ROUNDS.. => {
                known.size.rounds = 0;
                self.links.size_timers.set(link, cx.now + RAISE_AFTER);
            }
            _ => self.ask_sizes(cx, link),
        }
    }

    /// What was asked for came, and is as long as it was to be.
    pub(crate) fn handle_size(
        &mut self,
        cx: &mut Context,
        unit: &Unit<'_>,
        size: u32,
        token: u64,
    ) -> Result<(), Refusal> {
        let path = self.path_index(unit.path).ok_or(Refusal::WrongAddress)? as u8;
        let link = self.links.find(path, unit.from).ok_or(Refusal::WrongAddress)?;
        let Some(known) = self.links.get_mut(link) else { return Err(Refusal::WrongAddress) };
        if known.size.rounds == 0 || known.size.token != token {
            return Err(Refusal::Duplicate);
        }
        known.size.proven = known.size.proven.max(size);
        if self.next_size(cx, link, 0).is_none() {
            if let Some(known) = self.links.get_mut(link) {
                known.size.rounds = 0;
            }
            self.links.size_timers.remove(link);
        }
        Ok(())
    }

    /// The other side asks for a packet of this size.
    pub(crate) fn answer_size(
        &mut self,
        cx: &mut Context,
        unit: &Unit<'_>,
        connection: u32,
        ids: Ids,
        size: u32,
        token: u64,
    ) -> Result<(), Refusal> {
        let path = self.path_index(unit.path).ok_or(Refusal::WrongAddress)?;
        let filled = size.checked_sub(HEADER_LEN as u32).ok_or(Refusal::Malformed)?;
        let padding = self.padding.ok_or(Refusal::Unsupported)?;
        let longest = self.paths[path].limits.as_ref().map_or(0, |limits| limits.unit);
        if size > longest || u64::from(filled) > padding.len {
            return Err(Refusal::OutOfBounds);
        }
        if !self.paths[path].has_room_for_grants(cx.config.queue) {
            return Err(Refusal::NoRoom);
        }
        let Some(known) = self.connections.get(connection) else { return Err(Refusal::UnknownId) };
        let sender = known.as_sender();
        let ids = Ids { d_id: ids.s_id, s_id: connection as u16 };
        let answer = Message::RequestStateResponse(State::Size { ids, size, token });
        let behind = ControlTail::Padding(filled);
        self.queue_control(cx, path, unit.from, sender, &answer, behind);
        Ok(())
    }
}
