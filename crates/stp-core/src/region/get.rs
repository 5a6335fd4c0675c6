//! Get, on both sides. A Get is a grant: it names the asker's buffer, and Data
//! comes back as it does for a granted Block, with the same recovery and within
//! the same windows.

use landfall_placement::{Area, Instant, Refusal, Serial32, Unit};

use crate::endpoint::Endpoint;
use crate::error::{Ended, Error, check_memory};
use crate::ids::{ConnectionId, ReceiveId, RemoteRegion, Rights};
use crate::path::{Order, Source, Wanted};
use crate::receive::{Kind, Receive, State};
use crate::wire::message::{Get, Message, State as Answer};
use crate::wire::{Header, Op, Reason, header};

impl Endpoint {
    /// Reads part of a region of the other side into memory, as much as that
    /// has. It sees every Put and FetchOp of this connection that was begun
    /// before; those begun later may be seen or not.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::NotOpen`], [`Error::BadMemory`],
    /// [`Error::OutOfBounds`], [`Error::Forbidden`], [`Error::TooLong`],
    /// [`Error::Busy`] at the bound.
    pub fn get(
        &mut self,
        now: Instant,
        id: ConnectionId,
        region: &RemoteRegion,
        at: u64,
        memory: Area,
    ) -> Result<ReceiveId, Error> {
        check_memory(memory)?;
        if !region.rights.has(Rights::GET) {
            return Err(Error::Forbidden);
        }
        if at.checked_add(memory.len).is_none_or(|end| end > region.len) {
            return Err(Error::OutOfBounds);
        }
        let known = self.connection_mut(id)?;
        if !known.is_open() {
            return Err(Error::NotOpen);
        }
        let (first, priority) = (known.first_receive, known.priority);
        let after = known.remote_mut().outgoing.next;
        let kind = Kind::Get { handle: region.handle, at, after };
        let mut receive = Receive::new(id.index, 0, kind, State::Offered);
        receive.memory = Some(memory);
        receive.priority = priority;
        receive.offered = memory.len;
        receive.len = memory.len;
        receive.next_in_connection = first;
        let (index, generation) = self.receives.insert(receive).ok_or(Error::Busy)?;
        let known = self.connection_mut(id)?;
        known.first_receive = index;
        if let Some(receive) = self.receives.get_mut(index) {
            receive.serial = generation;
        }
        if !self.begin_receive(now, index) {
            self.finish_receive(index, Err(Ended::Here));
            return Err(Error::TooLong);
        }
        Ok(ReceiveId::new((index, generation)))
    }

    /// The other side wants to read a region.
    pub(crate) fn take_get(
        &mut self,
        now: Instant,
        unit: &Unit<'_>,
        connection: u32,
        get: &Get,
    ) -> Result<(), Refusal> {
        let path = self.path_index(unit.path).ok_or(Refusal::WrongAddress)?;
        let Some(known) = self.connections.get_mut(connection) else {
            return Err(Refusal::UnknownId);
        };
        let fits = self.paths[path].carries(get.stu, known.tail);
        // It may end at 2^32.
        let end = u64::from(get.offset) + u64::from(get.len);
        if get.len == 0 || end > 1 << 32 || !fits {
            return Err(Refusal::Malformed);
        }
        if !known.serves() {
            return Err(Refusal::Unexpected);
        }
        let applied = known.remote_mut().incoming.applied;
        let (d_port, s_port) = (known.remote_port, known.local_port);
        let priority = known.priority;
        let d_key = known.remote_key;
        if Serial32(applied).precedes(Serial32(get.after)) {
            // What was asked for before has not taken effect: it asks again.
            return Err(Refusal::Unexpected);
        }
        let usable = self.usable(connection, get.handle, Rights::GET, get.at, get.len.into());
        let index = match usable {
            Ok(index) => index,
            Err(reason) => {
                let (d_id, serial) = (get.s_id, get.serial);
                let refused = Answer::GetRefused { d_id, serial, reason };
                self.say(connection, &Message::RequestStateResponse(refused));
                return Err(Refusal::Forbidden);
            }
        };
        if self.paths[path].orders.len() >= self.config.queue {
            return Err(Refusal::NoRoom);
        }
        let Some(memory) = self.exposed.get(index).map(|known| known.memory) else {
            return Err(Refusal::UnknownId);
        };
        let header = Header {
            op: Op::Data as u8,
            d_port: d_port.into(),
            s_port: s_port.into(),
            d_key: d_key.into(),
            sync: (get.serial as u16).into(),
            b_num: get.block.into(),
            bufx: get.bufx.into(),
            t_len: header::two_words(get.serial, 0).into(),
            d_id: get.s_id.into(),
            ..Header::default()
        };
        let generation = self.exposed.generation(index);
        let order = Order {
            source: Source::Exposed { index, generation },
            to: unit.from,
            priority,
            header,
            region: memory.region,
            at: memory.offset.wrapping_add(get.at),
            origin: get.offset,
            stu: get.stu,
            next: 0,
            end: get.len,
            block_end: get.len,
            wanted: Wanted::All,
            since: now,
        };
        self.paths[path].queue_order(order);
        Ok(())
    }

    pub(crate) fn take_get_refused(
        &mut self,
        now: Instant,
        connection: u32,
        d_id: u16,
        serial: u32,
        reason: Reason,
    ) -> Result<(), Refusal> {
        let index = u32::from(d_id);
        let receive = self.receives.get(index).ok_or(Refusal::UnknownId)?;
        let is_get = matches!(receive.kind, Kind::Get { .. });
        if receive.connection != connection || receive.serial != serial || !is_get {
            return Err(Refusal::UnknownId);
        }
        self.begin_ending_receive(now, index, Ended::There(reason));
        Ok(())
    }
}
