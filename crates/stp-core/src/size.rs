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

use alloc::vec::Vec;

use landfall_placement::{Area, Duration, Instant, PathId, Peer, Refusal, Unit};

use crate::connection::{Connection, NONE};
use crate::endpoint::Endpoint;
use crate::error::{Error, check_memory};
use crate::ids::ConnectionId;
use crate::offload::Seats;
use crate::path::Behind;
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

    /// Were long STUs lost, and none came since?
    #[inline]
    pub(crate) const fn is_in_doubt(&self) -> bool {
        self.losses > 0
    }
}

impl Endpoint {
    /// Lends memory whose contents do not matter, for as long as the endpoint lives: what
    /// packets are filled up with that a peer asks for, to find out how long they may be. It
    /// is sent to peers. Without it, or beyond its length, none are sent, and peers go by
    /// what their paths are sure of.
    ///
    /// # Errors
    /// [`Error::BadMemory`].
    pub fn set_padding(&mut self, memory: Area) -> Result<(), Error> {
        check_memory(memory)?;
        self.padding = Some(memory);
        Ok(())
    }

    /// The longest packet that may come over a link, as far as is known. None where there is
    /// no such link.
    #[must_use]
    pub fn proven_unit(&self, path: PathId, peer: Peer) -> Option<u32> {
        let path = self.path_index(path)?;
        let link = self.links.get(self.links.find(path as u8, peer)?)?;
        let limits = self.paths[path].limits.as_ref()?;
        Some(link.size.or_sure(limits.sure).min(limits.unit))
    }

    // ---- The search -------------------------------------------------------------

    /// A connection has a link: finds out how long packets over it may be, unless that is
    /// known or being found out.
    pub(crate) fn find_size(&mut self, now: Instant, connection: u32, link: u32) {
        let asks = self.id_of(connection);
        let is_known = self.size_timers.key_of(link).is_some();
        let Some(known) = self.links.get_mut(link) else { return };
        known.size.asks = asks;
        if !is_known {
            self.begin_search(now, link);
        }
    }

    /// The same for the link that a connection begins with.
    pub(crate) fn find_size_of(&mut self, now: Instant, connection: u32) {
        if let Some(known) = self.connections.get(connection) {
            let link = known.link;
            self.find_size(now, connection, link);
        }
    }

    /// Its path carries something else now.
    pub(crate) fn forget_size(&mut self, now: Instant, link: u32) {
        let Some(known) = self.links.get_mut(link) else { return };
        known.size = LinkSize { asks: known.size.asks, ..LinkSize::default() };
        self.begin_search(now, link);
    }

    fn begin_search(&mut self, now: Instant, link: u32) {
        // The tables of adapters are made for Blocks that stay as they are.
        if self.granted.mirror.is_on() || self.next_size(link, 0).is_none() {
            self.size_timers.remove(link);
            return;
        }
        let token = self.random.next_u64();
        if let Some(known) = self.links.get_mut(link) {
            known.size.token = token;
            known.size.rounds = 0;
        }
        self.ask_sizes(now, link);
    }

    /// The next packet to be tried behind one of `size` bytes, and behind what is granted:
    /// what common links carry, or twice as large an STU, up to what this path carries.
    fn next_size(&self, link: u32, size: u32) -> Option<u32> {
        let known = self.links.get(link)?;
        let path = &self.paths[usize::from(known.path)];
        let limits = path.limits.as_ref()?;
        let size = known.size.or_sure(limits.sure).max(size);
        let (header, stu) = (HEADER_LEN as u32, path.stu_of(size, 0)?);
        // The longest STU that a packet of this connection's side has, and its tail.
        let most = header + (1 << self.config.max_stu) + u32::from(self.config.tail);
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
    fn ask_sizes(&mut self, now: Instant, link: u32) {
        let (retry_after, floor) = (self.config.retry_after, self.config.retry_floor);
        let asking = self.asking(link);
        let Some(known) = self.links.get_mut(link) else { return };
        let Some(connection) = asking else {
            // The next connection begins it again.
            known.size.rounds = 0;
            self.size_timers.remove(link);
            return;
        };
        let patience = known.time_out(retry_after, floor).saturating_mul(1 << known.size.rounds);
        known.size.rounds += 1;
        let token = known.size.token;
        let ids = Ids { d_id: self.remote_id(connection), s_id: connection as u16 };
        let mut size = 0;
        while let Some(next) = self.next_size(link, size) {
            size = next;
            let question = Question::Size { ids, size, token };
            self.say_over(link, connection, &Message::RequestState(question));
        }
        self.size_timers.set(link, now + patience);
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
    pub(crate) fn time_out_size(&mut self, now: Instant, link: u32) {
        let Some(known) = self.links.get_mut(link) else { return };
        match known.size.rounds {
            0 => self.begin_search(now, link),
            ROUNDS.. => {
                known.size.rounds = 0;
                self.size_timers.set(link, now + RAISE_AFTER);
            }
            _ => self.ask_sizes(now, link),
        }
    }

    /// What was asked for came, and is as long as it was to be.
    pub(crate) fn take_size(
        &mut self,
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
        if self.next_size(link, 0).is_none() {
            if let Some(known) = self.links.get_mut(link) {
                known.size.rounds = 0;
            }
            self.size_timers.remove(link);
        }
        Ok(())
    }

    /// The other side asks for a packet of this size.
    pub(crate) fn answer_size(
        &mut self,
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
        if !self.paths[path].has_room_for_grants(self.config.queue) {
            return Err(Refusal::NoRoom);
        }
        let Some(known) = self.connections.get(connection) else { return Err(Refusal::UnknownId) };
        let (envelope, secrets) = (known.envelope(), known.secrets_out());
        let ids = Ids { d_id: ids.s_id, s_id: connection as u16 };
        let answer = Message::RequestStateResponse(State::Size { ids, size, token });
        let behind = Behind::Padding(filled);
        self.queue_control(path, unit.from, (envelope, secrets), &answer, behind);
        Ok(())
    }

    // ---- Long packets do not come any more ---------------------------------------

    /// STUs of a Block come over a link of which long ones were lost.
    pub(crate) fn note_doubtful(&mut self, link: u32, seats: Seats) {
        let block = self.granted.block(seats.first.block);
        // But for the last of a Block, none is longer than the first.
        let (_, first) = block.stu_at(seats.first.stu);
        let sure = self.sure_stu_for(seats.first.block, link).unwrap_or(u16::MAX);
        let Some(known) = self.links.get_mut(link) else { return };
        if first > sure.into() {
            known.size.losses = 0;
        } else {
            known.size.note_short();
        }
    }

    /// Something of a Block did not come. Where its STUs are longer than is sure, that may be
    /// why. Says whether nothing is left to be asked for as it is laid out.
    pub(crate) fn note_long_lost(&mut self, now: Instant, block: u16) -> bool {
        let grant = self.granted.grants[usize::from(block)];
        let stu = self.granted.block(block).stu();
        let floor = self.config.retry_floor;
        if self.sure_stu_for(block, grant.link).is_none_or(|sure| stu <= sure) {
            return false;
        }
        let Some(link) = self.links.get_mut(grant.link) else { return false };
        let round = link.window.rtt().smoothed().unwrap_or(floor);
        let lost_at = core::mem::replace(&mut link.traffic().long_lost_at, now);
        let size = &mut link.size;
        if size.losses > 0 && now < lost_at + round {
            link.traffic().long_lost_at = lost_at;
            return false;
        }
        size.short_came &= size.losses > 0;
        size.losses = size.losses.saturating_add(1);
        if size.losses >= LOSSES && size.short_came {
            self.fall_back(now, grant.link);
            let known = self.granted.block(block);
            return !known.is_open() || known.stu() < stu;
        }
        // Does anything come?
        if let Some(receive) = self.receives.get(grant.receive) {
            self.ask_over(now, receive.connection, grant.link);
        }
        false
    }

    /// Only what is sure is granted over a link from now on, until more is proven again.
    fn fall_back(&mut self, now: Instant, link: u32) {
        let (retry_after, floor) = (self.config.retry_after, self.config.retry_floor);
        let Some(known) = self.links.get_mut(link) else { return };
        self.stats.sizes_lost += 1;
        known.size = LinkSize { asks: known.size.asks, ..LinkSize::default() };
        let (first, patience) = (known.first, known.patience(retry_after, floor));
        // What is in the way of long packets is there for a while.
        self.size_timers.set(link, now + patience);
        let (mut blocks, mut block) = (Vec::new(), first);
        while let Some(grant) = self.granted.grants.get(usize::from(block)) {
            blocks.push(block);
            block = grant.behind;
        }
        for block in blocks {
            // To ask for one may end its Transfer, and with it others.
            if self.shorten_stus(block, link) {
                self.ask_again(now, block);
            }
        }
    }

    /// Lays a Block out in STUs that surely come over a link. False where it is as it was.
    pub(crate) fn shorten_stus(&mut self, block: u16, link: u32) -> bool {
        let Some(sure) = self.sure_stu_for(block, link) else { return false };
        let Some(stu) = equal_part(self.granted.block(block).stu(), sure) else { return false };
        let from = self.granted.grants[usize::from(block)].from;
        let Some(from) = self.granted.table().shorten(block, stu, from) else { return false };
        let grant = self.granted.grant(block);
        grant.from = from;
        grant.passed = 0;
        // All of it is asked for anew, by whoever lays it out.
        grant.asked_below = 0;
        true
    }

    /// The longest STU that surely comes over a link, for the connection of a Block.
    fn sure_stu_for(&self, block: u16, link: u32) -> Option<u16> {
        let receive = self.receives.get(self.granted.grants[usize::from(block)].receive)?;
        self.sure_stu_on(receive.connection, link)
    }
}

/// The longest equal part of an STU that is no longer than another and longer than half of
/// it. What has landed is whole parts then, and comes not again.
fn equal_part(stu: u16, most: u16) -> Option<u16> {
    let least = u32::from(stu).div_ceil(u32::from(most.max(1)));
    let parts = (least..=2 * least).find(|parts| u32::from(stu).is_multiple_of(*parts))?;
    Some((u32::from(stu) / parts) as u16)
}

#[cfg(test)]
mod tests {
    use super::equal_part;
    use crate::path::whole_stu;

    /// What fills a packet has such parts for every link that carries 1024 bytes, and for
    /// each that carries an eighth of it.
    #[test]
    fn an_stu_has_equal_parts_for_every_narrower_link() {
        for packet in (8..=65_535).step_by(7) {
            let stu = whole_stu(packet);
            assert!(u32::from(stu) <= packet && packet - u32::from(stu) < 8.max(packet / 512));
            for sure in [stu / 8, 1_024, 1_160, 1_328, 1_408, 1_432, 8_928] {
                if sure >= stu || sure < stu / 8 && sure < 1_024 || sure == 0 {
                    continue;
                }
                let part = equal_part(stu, sure).expect("there is one");
                assert!(part <= sure && 2 * u32::from(part) > sure.into(), "{stu} {sure} {part}");
                assert!(stu.is_multiple_of(part));
            }
        }
    }
}
