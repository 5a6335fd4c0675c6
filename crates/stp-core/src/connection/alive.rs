//! Is the other side alive? And by which links can it be reached?

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::hash::{Hash, Hasher};

use landfall_congestion::Arrived;
use landfall_placement::{Duration, Instant, PathId, Peer, Refusal, Unit};
use siphasher::sip::SipHasher24;

use super::close::ids_of;
use super::{Connection, MOST_LINKS, State, Unsettled};
use crate::connection::Effect;
use crate::context::Context;
use crate::error::{Ended, Error};
use crate::event::Event;
use crate::ids::ConnectionId;
use crate::link::NO_BLOCK;
use crate::network::{Network, NewAddress};
use crate::wire::message::State as Answer;
use crate::wire::message::{Ids, Message, Question};

/// What came back later than this says nothing of the network.
const MOST_ROUND_TRIP: Duration = Duration::from_secs(10);

/// How often the other side is proved that a link is ours, each time that this
/// side asks by itself: somebody between the two who gives every packet another
/// address does not make them speak for ever.
const CHALLENGES: u8 = 2 * MOST_LINKS as u8;

/// A time in units of 64 ms, for what is remembered of every connection. It begins anew after
/// 70 minutes; a question that is late or early then costs nothing.
const fn moment(at: Instant) -> u16 {
    (at.as_nanos() >> 26) as u16
}

/// A link of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLink {
    /// The path that it goes over.
    pub path: PathId,
    /// Where the other side is on that path.
    pub peer: Peer,
    /// Is it usable?
    pub is_up: bool,
}

impl Network {
    /// Adds a link to a connection: Transfers to this side are striped over all of its links, and
    /// control operations go over the first that is up.
    pub(crate) fn add_link(
        &mut self,
        cx: &mut Context,
        id: ConnectionId,
        path: PathId,
        peer: Peer,
    ) -> Result<(), Error> {
        if !self.connection(id)?.is_open() {
            return Err(Error::NotOpen);
        }
        let path = self.path_index(path).ok_or(Error::PathDown)?;
        if !self.paths[path].is_usable() {
            return Err(Error::PathDown);
        }
        let link = self.attach_link(cx, id.index, path as u8, peer)?;
        let known = self.connection_mut(id)?;
        known.unheard |= 1 << known.more_links.len();
        known.challenges = CHALLENGES;
        self.probe_alive_over(cx, id.index, link);
        // Answered soon, or asked again.
        self.connections.timers.set(id.index, cx.now + cx.config.retry_after);
        Ok(())
    }

    /// Returns whether Data for this side may come over a link.
    pub(crate) fn set_data_link(
        &mut self,
        id: ConnectionId,
        path: PathId,
        peer: Peer,
        carries_data: bool,
    ) -> Result<(), Error> {
        let path = self.path_index(path).ok_or(Error::Unknown)? as u8;
        let link = self.links.find(path, peer).ok_or(Error::Unknown)?;
        let known = self.connection_mut(id)?;
        let nth = known.links().position(|own| own == link).ok_or(Error::Unknown)?;
        known.spared =
            if carries_data { known.spared & !(1 << nth) } else { known.spared | 1 << nth };
        Ok(())
    }

    /// The links of a connection.
    pub(crate) fn links_of(&self, id: ConnectionId) -> Result<Vec<ConnectionLink>, Error> {
        let known = self.connection(id)?;
        let links = known.links().filter_map(|link| self.links.get(link));
        let found = links.map(|link| ConnectionLink {
            path: self.paths[usize::from(link.path)].id,
            peer: link.peer,
            is_up: link.is_up,
        });
        Ok(found.collect())
    }

    /// Can Transfers be begun on it?
    pub(crate) fn is_open(&self, id: ConnectionId) -> bool {
        self.connection(id).is_ok_and(super::Connection::is_open)
    }

    /// Is it open, or on its way there?
    pub(crate) fn is_opening(&self, id: ConnectionId) -> bool {
        self.connection(id)
            .is_ok_and(|known| matches!(known.state, State::RequestSent | State::RequestsCrossed))
    }

    fn attach_link(
        &mut self,
        cx: &mut Context,
        index: u32,
        path: u8,
        peer: Peer,
    ) -> Result<u32, Error> {
        let Some(known) = self.connections.get(index) else { return Err(Error::Unknown) };
        let found = self.links.find(path, peer);
        if found.is_some_and(|link| known.links().any(|own| own == link)) {
            return Err(Error::Taken);
        }
        if known.links().count() >= MOST_LINKS {
            return Err(Error::Busy);
        }
        let link = self.join_link(cx, path, peer).ok_or(Error::Busy)?;
        if let Some(known) = self.connections.get_mut(index) {
            known.more_links.push(link);
        }
        self.weigh_link(link);
        Ok(link)
    }

    /// The other side says, with a proof, that it can be reached here too. It is
    /// believed once it says so with the token that it can have heard only here;
    /// until then it gets one packet for each of its own, as long as that is, and
    /// nothing is remembered. Returns the link, if it is known now.
    pub(crate) fn learn_link(
        &mut self,
        cx: &mut Context,
        unit: &Unit<'_>,
        index: u32,
        address: &NewAddress,
    ) -> Result<Option<u32>, Refusal> {
        let NewAddress { ids, token, has_moved } = *address;
        let path = self.path_index(unit.path).ok_or(Refusal::WrongAddress)?;
        let from = unit.from;
        let Some(known) = self.connections.get(index) else { return Err(Refusal::UnknownId) };
        if !known.is_live() {
            return Err(Refusal::Unexpected);
        }
        let is_new = self.links.find(path as u8, from).is_none();
        let has_room =
            !known.has_all_links() || has_moved && self.left_behind(index, path as u8).is_some();
        if !has_room || is_new && !self.links.has_room() {
            return Err(Refusal::NoRoom);
        }
        let challenge = self.challenge(index, path as u8, from);
        if token != challenge {
            let sender = known.as_sender();
            let ids = Ids { d_id: ids.s_id, s_id: index as u16 };
            let wants_proof = Answer::Connection { ids, is_link: true, token: challenge };
            let message = Message::RequestStateResponse(wants_proof);
            self.send_message_to(cx, path, from, sender, &message);
            return Ok(None);
        }
        let is_full = self.connections.get(index).is_some_and(Connection::has_all_links);
        let dropped = if is_full { self.drop_link_left_behind(index, path as u8) } else { None };
        let link = self.attach_link(cx, index, path as u8, from).map_err(|_| Refusal::NoRoom)?;
        if let Some(old) = dropped
            && let Some(known) = self.connections.get_mut(index)
            && let Some(remote) = known.remote.as_deref_mut()
        {
            remote.outgoing.flight.replace_link(old, link);
        }
        Ok(Some(link))
    }

    /// The other side has moved to this link: those on the same path lead nowhere.
    pub(crate) fn left_for(&self, index: u32, link: u32) -> Vec<u32> {
        let Some(path) = self.links.assumed(link).map(|link| link.path) else { return Vec::new() };
        let Some(known) = self.connections.assumed(index) else { return Vec::new() };
        let is_left =
            |old: &u32| *old != link && self.links.get(*old).is_some_and(|old| old.path == path);
        known.links().filter(is_left).collect()
    }

    /// A connection has a further link, which its other side chose.
    pub(crate) fn begin_link(&mut self, cx: &mut Context, index: u32, link: u32) {
        self.find_size(cx, index, link);
        let is_told = self.connections.get(index).is_some_and(|known| known.is_told);
        if let Some(known) = self.links.get(link).filter(|_| is_told) {
            let (path, peer) = (self.paths[usize::from(known.path)].id, known.peer);
            cx.emit(Event::LinkUp { connection: self.id_of(index), path, peer });
        }
    }

    /// Something came over a link. Returns whether it counted as dead.
    pub(crate) fn note_received_over(&mut self, cx: &Context, link: u32) -> bool {
        let Some(known) = self.links.assumed_mut(link) else { return false };
        known.note_heard(cx.now);
        known.size.note_short();
        !known.is_up
    }

    /// The other side uses one of our links: it knows it, unless it says that it
    /// does not. Returns whether that is new.
    pub(crate) fn note_received(
        &mut self,
        cx: &Context,
        index: u32,
        link: u32,
        message: &Message,
    ) -> bool {
        let Some(known) = self.connections.assumed_mut(index) else { return false };
        known.heard = cx.now;
        let is_challenge = matches!(
            message,
            Message::RequestStateResponse(Answer::Connection { is_link: true, .. })
        );
        if is_challenge {
            return false;
        }
        known.moved = 0;
        if known.unheard == 0 {
            return false;
        }
        let nth = known.links().position(|own| own == link).unwrap_or_default();
        let is_new = known.unheard >> nth & 1 == 1;
        known.unheard &= !(1 << nth);
        is_new
    }

    /// An idle time is over: was anything heard, and do all links answer?
    pub(super) fn check_alive(&mut self, cx: &mut Context, index: u32) -> Effect {
        let Some(known) = self.connections.get(index) else { return Effect::None };
        let silent_since = cx.config.keep_alive.map(|idle| known.heard + idle);
        let links: Vec<u32> = known.links().collect();
        let down = |link: &u32| {
            let is_known = known.known_links().any(|known| known == *link);
            !is_known || self.links.get(*link).is_some_and(|link| !link.is_up)
        };
        let suspects: Vec<u32> = links.iter().copied().filter(down).collect();
        for link in &suspects {
            self.probe_alive_over(cx, index, *link);
        }
        let Some(known) = self.connections.get_mut(index) else { return Effect::None };
        known.challenges = CHALLENGES;
        if silent_since.is_none_or(|at| at > cx.now) && known.retries == 0 {
            if known.is_held_up() {
                self.connections.timers.set(index, cx.now + cx.config.retry_after);
                self.remind_of_unsettled(cx, index);
                return Effect::None;
            }
            let again = (!suspects.is_empty()).then(|| cx.now + cx.config.retry_after * 8);
            match again.or(silent_since) {
                Some(at) => self.connections.timers.set(index, at),
                None => {
                    self.connections.timers.remove(index);
                }
            }
            return Effect::None;
        }
        known.retries = known.retries.saturating_add(1);
        let (retries, heard) = (known.retries, known.heard);
        // What it is asked may be lost, where what it says is not.
        let is_heard = heard + self.retry_after(cx, retries) > cx.now;
        if cx.config.gives_up(retries, is_heard) {
            return Effect::failed(index, Ended::Silent);
        }
        for link in links {
            self.probe_alive_over(cx, index, link);
        }
        if retries > 1 {
            self.suspect_move(cx, index);
        }
        self.arm_connection(cx, index);
        Effect::None
    }

    /// A user was refused because of what is unsettled. The other side is reminded, once in each wait
    /// for an answer, however often the user tries and whether or not it does; and one that is
    /// gone is found to be.
    pub(crate) fn remind_of_unsettled(&mut self, cx: &mut Context, index: u32) {
        let Some(known) = self.connections.assumed_mut(index) else { return };
        let is_due =
            |unsettled: &mut Box<Unsettled>| unsettled.reminds(cx.now, cx.config.retry_after);
        if !known.unsettled.as_mut().is_some_and(is_due) {
            return;
        }
        let asks = known.retries == 0;
        known.retries = known.retries.max(1);
        self.send_unsettled_send(cx, index);
        self.send_unsettled_read(cx, index);
        self.send_unsettled_region(cx, index);
        if asks {
            self.probe_alive(cx, index);
            self.arm_connection(cx, index);
        }
    }

    pub(crate) fn probe_alive(&mut self, cx: &mut Context, index: u32) {
        let Some(known) = self.connections.assumed(index) else { return };
        let ids = crate::wire::message::Ids { d_id: known.remote_id, s_id: index as u16 };
        let token = cx.now.as_nanos();
        let question = Question::Connection { ids, is_link: false, token };
        self.send_message(cx, index, &Message::RequestState(question));
    }

    /// A further link on a path that the other side left: what it is among the further links.
    fn left_behind(&self, index: u32, path: u8) -> Option<usize> {
        let known = self.connections.get(index)?;
        let is_idle = |link: u32| {
            known.remote.as_deref().is_none_or(|remote| remote.outgoing.flight.is_idle_on(link))
        };
        known.more_links.iter().position(|index| {
            self.links.get(*index).is_some_and(|link| {
                !link.is_up && link.path == path && link.first == NO_BLOCK && is_idle(*index)
            })
        })
    }

    /// Who moves often leaves many links behind: one of them makes room.
    fn drop_link_left_behind(&mut self, index: u32, path: u8) -> Option<u32> {
        let nth = self.left_behind(index, path)?;
        let link = self.connections.get_mut(index)?.forget_link(nth);
        self.leave_link(link);
        Some(link)
    }

    /// Something was asked, and nothing is heard: perhaps packets of this side come from
    /// another address now, since a translator on the way forgot it or this host moved.
    /// Then the other side takes nothing but this question.
    pub(crate) fn suspect_move(&mut self, cx: &mut Context, index: u32) {
        let silence = cx.config.retry_after.saturating_mul(2);
        let Some(known) = self.connections.assumed_mut(index) else { return };
        // Since it was asked as long as never, or for as long as that.
        let since = moment(cx.now).wrapping_sub(known.asked_moved);
        let is_again = known.moved != 0 && since <= moment(Instant::ZERO + silence);
        let is_due = known.heard + silence <= cx.now && !is_again;
        if !known.serves() || !is_due {
            return;
        }
        known.asked_moved = moment(cx.now);
        known.challenges = CHALLENGES;
        let ids = ids_of(known.remote_id, index);
        let links: Vec<u32> = known.links().collect();
        known.moved = ((1_u16 << links.len()) - 1) as u8;
        for link in links {
            let question = Question::Moved { ids, token: cx.now.as_nanos() };
            self.send_message_over(cx, link, index, &Message::RequestState(question));
        }
    }

    /// What somebody must have heard at an address to have a link there: nobody
    /// else can tell it, and it need not be remembered.
    fn challenge(&self, index: u32, path: u8, peer: Peer) -> u64 {
        let [first, second] = self.link_secret;
        let mut hasher = SipHasher24::new_with_keys(first.0, second.0);
        let key = self.connections.get(index).map(|known| known.local_key);
        (index, self.connections.table.generation(index), key, path, peer).hash(&mut hasher);
        hasher.finish()
    }

    /// The other side wants to hear over one of our links that we hear it there.
    pub(crate) fn answer_challenge(
        &mut self,
        cx: &mut Context,
        unit: &Unit<'_>,
        index: u32,
        token: u64,
    ) -> Result<(), Refusal> {
        let path = self.path_index(unit.path).unwrap_or_default() as u8;
        let link = self.links.find(path, unit.from).ok_or(Refusal::WrongAddress)?;
        let Some(known) = self.connections.get_mut(index) else { return Err(Refusal::UnknownId) };
        let nth = known.links().position(|own| own == link).unwrap_or_default();
        let (is_new, has_moved) = (known.unheard >> nth & 1 == 1, known.moved >> nth & 1 == 1);
        if !is_new && !has_moved {
            return Err(Refusal::Duplicate);
        }
        known.challenges = known.challenges.checked_sub(1).ok_or(Refusal::Unexpected)?;
        let ids = ids_of(known.remote_id, index);
        let question = if is_new {
            Question::Connection { ids, is_link: true, token }
        } else {
            Question::Moved { ids, token }
        };
        self.send_message_over(cx, link, index, &Message::RequestState(question));
        Ok(())
    }

    pub(crate) fn probe_alive_over(&mut self, cx: &mut Context, index: u32, link: u32) {
        let Some(known) = self.connections.assumed(index) else { return };
        let ids = ids_of(known.remote_id, index);
        let is_link = known.link != link;
        let question = Question::Connection { ids, is_link, token: cx.now.as_nanos() };
        self.send_message_over(cx, link, index, &Message::RequestState(question));
    }

    /// Anyone who asks is answered over the link that it asked on.
    pub(crate) fn answer_probe(
        &mut self,
        cx: &mut Context,
        unit: &Unit<'_>,
        index: u32,
        ids: Ids,
        token: u64,
    ) {
        let path = self.path_index(unit.path).unwrap_or_default() as u8;
        if let Some(link) = self.links.find(path, unit.from) {
            let ids = Ids { d_id: ids.s_id, s_id: index as u16 };
            let answer = Answer::Connection { ids, is_link: false, token };
            self.send_message_over(cx, link, index, &Message::RequestStateResponse(answer));
        }
    }

    /// It is alive; and how long the network took there and back.
    pub(crate) fn handle_probe_answer(
        &mut self,
        cx: &mut Context,
        unit: &Unit<'_>,
        index: u32,
        token: u64,
    ) {
        let path = self.path_index(unit.path).unwrap_or_default() as u8;
        let (config, sent) = (cx.config.usual_congestion(), Instant::from_nanos(token));
        let is_plausible = sent <= cx.now && cx.now.since(sent) < MOST_ROUND_TRIP;
        if let Some(link) = self.links.find(path, unit.from)
            && let Some(link) = self.links.get_mut(link)
            && is_plausible
        {
            let arrived = Arrived { bytes: 0, sent, timed: true, marked: false, under_way: 0 };
            link.window.handle_arrived(&config, cx.now, &arrived);
        }
        let Some(known) = self.connections.assumed_mut(index) else { return };
        known.heard = cx.now;
        if known.state != State::Closing {
            known.retries = 0;
            self.arm_connection(cx, index);
        }
    }
}
