//! STUs land, Blocks and Transfers are complete.

use landfall_placement::{Duration, Instant};

use super::{Kind, Receive, State};
use crate::connection::{NONE, Question};
use crate::endpoint::Endpoint;
use crate::error::{Ended, Error};
use crate::event::Event;
use crate::ids::ReceiveId;
use crate::offload::{Arrival, Seats};
use crate::wire::Reason;
use crate::wire::message::{Ids, Message, State as Answer};

impl Endpoint {
    /// Data was accepted, and is being placed.
    #[inline]
    pub(crate) fn note_data(&mut self, now: Instant, seats: Seats, hold: Duration) {
        let grant = &mut self.granted.grants[usize::from(seats.first.block)];
        grant.active = now;
        let Some(link) = self.links.get_mut(grant.link) else { return };
        link.active = now;
        link.strikes = 0;
        // How long the network took is known where it is clear which grant this
        // answers.
        let issued = link.granted_at(seats);
        let news = &mut link.traffic().news;
        news.granted = issued.unwrap_or(grant.at);
        if let Some(at) = issued {
            news.sent = Some(at + hold);
        }
        self.paths[usize::from(link.path)].last_link = Some(grant.link);
        let (index, is_in_doubt) = (grant.link, link.size.is_in_doubt());
        if seats.first.stu < grant.asked_below {
            self.note_late(now, seats.first.block);
        }
        if is_in_doubt {
            self.note_doubtful(index, seats);
        }
    }

    #[inline]
    pub(crate) fn land_stus(
        &mut self,
        now: Instant,
        seats: Seats,
        is_in_place: bool,
        is_memory_gone: bool,
    ) {
        let block = seats.first.block;
        match self.granted.table().landed(seats, is_in_place) {
            Arrival::Bytes(len) => {
                self.note_landed(block, seats.count, len);
                if self.granted.block(block).holes() > 0 {
                    self.note_hole(now, block);
                }
            }
            Arrival::Complete(len) => {
                self.note_landed(block, seats.count, len);
                self.complete_block(now, block);
            }
            Arrival::Lost if is_memory_gone => {
                let receive = self.granted.grants[usize::from(block)].receive;
                self.begin_ending_receive(now, receive, Ended::MemoryFailed);
            }
            Arrival::Lost | Arrival::Stale => {}
            Arrival::Released => self.release_block(now, block),
        }
    }

    #[inline]
    fn note_landed(&mut self, block: u16, stus: u16, len: u32) {
        self.stats.stus_received += u64::from(stus);
        self.stats.bytes_received += u64::from(len);
        self.grants_due = true;
        let index = self.granted.grants[usize::from(block)].link;
        let window = self.config.window;
        if let Some(link) = self.links.get_mut(index) {
            let traffic = link.traffic();
            traffic.news.bytes += u64::from(len);
            traffic.usage.note_arrived(u64::from(len), window);
            if !link.is_fresh {
                link.is_fresh = true;
                self.fresh_links.push(index);
            }
        }
        self.return_room(block, len);
    }

    /// Marks that a Block came with, as bytes.
    fn note_marks(&mut self, block: u16) {
        let marked = self.granted.table().take_marked(block);
        if marked == 0 {
            return;
        }
        self.stats.stus_marked += u64::from(marked);
        let bytes = u64::from(marked) * u64::from(self.granted.block(block).stu());
        let link = self.granted.grants[usize::from(block)].link;
        if let Some(link) = self.links.get_mut(link) {
            link.traffic().news.marked += bytes;
        }
    }

    fn complete_block(&mut self, now: Instant, block: u16) {
        self.stats.block_notifications += 1;
        self.note_marks(block);
        let overtaken = self.overtaken_by(block);
        // It is given up before anything else is done: what is asked for again may end its
        // Transfer, and that gives up all Blocks which the Transfer still has.
        let index = self.granted.grants[usize::from(block)].receive;
        self.take_from_link(block);
        self.granted.give_back(block, true);
        self.free_what_left();
        if let Some(receive) = self.receives.get_mut(index) {
            receive.open.retain(|open| *open != block);
            receive.retries = 0;
        }
        self.ask_for_overtaken(now, &overtaken);
        let Some(receive) = self.receives.get_mut(index) else { return };
        if receive.state != State::Open {
            return;
        }
        if receive.open.is_empty() && receive.next_block == receive.blocks {
            return self.complete_receive(now, index);
        }
        self.tell_progress(index);
        self.make_ready(index);
    }

    /// How many bytes from the start are in place.
    pub(super) fn contiguous(&self, receive: &Receive) -> u64 {
        let acked = receive.acked(|block| self.granted.number_of(block));
        receive.position_of(acked).min(receive.len)
    }

    /// Tells of the progress of one Transfer that is being received (of a read or Get, too),
    /// Block by Block, or does so no more: [`Event::ReceiveProgress`]. Gives how many bytes,
    /// from the start, are in place. [`Config::progress`](crate::Config::progress) does it for
    /// all but Gets.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn watch_receive(&mut self, id: ReceiveId, is_watched: bool) -> Result<u64, Error> {
        let receive = self.receives.named(id.index, id.generation).ok_or(Error::Unknown)?;
        let is_open = receive.state == State::Open && receive.blocks > 0;
        let len = if is_open { self.contiguous(receive) } else { 0 };
        if let Some(receive) = self.receives.get_mut(id.index) {
            receive.is_watched = is_watched;
            receive.told = receive.told.max(len);
        }
        Ok(len)
    }

    fn tell_progress(&mut self, index: u32) {
        let Some(receive) = self.receives.get(index) else { return };
        let is_of_all = self.config.progress && !matches!(receive.kind, Kind::Get { .. });
        if !is_of_all && !receive.is_watched {
            return;
        }
        let len = self.contiguous(receive);
        if len <= receive.told {
            return;
        }
        let connection = self.id_of(receive.connection);
        if let Some(receive) = self.receives.get_mut(index) {
            receive.told = len;
        }
        let receive = self.receive_id(index);
        let last = self.events.back_mut().map(|told| &mut told.event);
        if let Some(Event::ReceiveProgress { receive: same, len: told, .. }) = last
            && *same == receive
        {
            *told = len;
        } else {
            self.tell(Event::ReceiveProgress { receive, connection, len });
        }
    }

    /// All of it is in place.
    pub(super) fn complete_receive(&mut self, now: Instant, index: u32) {
        let Some(receive) = self.receives.get(index) else { return };
        let connection = receive.connection;
        if !matches!(receive.kind, Kind::Get { .. }) {
            let answer = Answer::Transfer {
                ids: Ids { d_id: receive.peer_id, s_id: index as u16 },
                serial: receive.serial,
                acked: receive.blocks,
                len: receive.len,
                is_complete: true,
            };
            self.say(connection, &Message::RequestStateResponse(answer));
        }
        self.finish_receive(index, Ok(()));
        self.disconnect_if_idle(now, connection);
    }

    /// It is over: its number is used up, and its memory the user's again.
    pub(crate) fn finish_receive(&mut self, index: u32, result: Result<(), Ended>) {
        let reason = match result {
            Err(Ended::There(reason)) => reason,
            Err(Ended::Here) => Reason::Cancelled,
            Err(Ended::MemoryFailed) => Reason::MemoryFailed,
            Err(Ended::DoesNotFit) => Reason::TooLong,
            Err(Ended::Silent) => Reason::Silent,
            Err(Ended::ConnectionGone | Ended::Unreachable) | Ok(()) => Reason::Gone,
        };
        self.finish_receive_as(index, result, reason);
    }

    /// The same; whoever asks again is told this reason, where it ended early.
    pub(super) fn finish_receive_as(
        &mut self,
        index: u32,
        result: Result<(), Ended>,
        reason: Reason,
    ) {
        let Some(receive) = self.receives.get(index) else { return };
        // Where its Blocks were taken back, what had come before that was noted.
        let is_ending = matches!(receive.state, State::Ending(_));
        let len = if is_ending { receive.told } else { self.contiguous(receive) };
        let id = self.receive_id(index);
        self.receive_timers.remove(index);
        self.ready.forget(index);
        let Some(receive) = self.receives.remove(index) else { return };
        self.unlist_receive(index, &receive);
        let connection = self.id_of(receive.connection);
        if receive.is_transfer()
            && let Some(known) = self.connections.get_mut(receive.connection)
        {
            known.sends_seen.end(receive.serial, result.map_err(|_| reason));
        }
        if let (State::Asking, Kind::Read(serial)) = (receive.state, receive.kind)
            && matches!(result, Err(Ended::Here | Ended::Silent))
        {
            let question = Question { serial, len: receive.len, opaque: receive.opaque };
            self.leave_read_unsettled(receive.connection, question);
        }
        self.remove_if_gone(receive.connection);
        let event = match (result, receive.kind, receive.memory) {
            (Ok(()), Kind::Get { .. }, Some(memory)) => {
                Event::GetDone { receive: id, connection, memory }
            }
            (Ok(()), _, Some(memory)) => {
                let (len, offered, opaque) = (receive.len, receive.offered, receive.opaque);
                Event::Received { receive: id, connection, memory, len, offered, opaque }
            }
            (Err(why), _, memory) => {
                let len = if receive.state == State::Asking { 0 } else { len };
                Event::ReceiveEnded { receive: id, connection, memory, len, why }
            }
            (Ok(()), _, None) => return,
        };
        self.tell(event);
    }

    fn unlist_receive(&mut self, index: u32, receive: &Receive) {
        let Some(known) = self.connections.get_mut(receive.connection) else { return };
        if known.first_receive == index {
            known.first_receive = receive.next_in_connection;
            return;
        }
        let mut before = known.first_receive;
        while before != NONE {
            let Some(other) = self.receives.get_mut(before) else { return };
            if other.next_in_connection == index {
                other.next_in_connection = receive.next_in_connection;
                return;
            }
            before = other.next_in_connection;
        }
    }
}
