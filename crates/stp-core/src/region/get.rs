//! Get, at the side that has the region. A Get is a grant: it names the asker's buffer, and Data
//! comes back as it does for a granted Block, with the same recovery and within
//! the same windows.

use landfall_placement::{Refusal, Serial32, Unit};

use crate::context::Context;
use crate::ids::Rights;
use crate::network::Network;
use crate::path::{Order, Source, Wanted};
use crate::region::Regions;
use crate::wire::message::State as Answer;
use crate::wire::message::{Get, Message};
use crate::wire::{Header, Op, header};

impl Regions {
    /// The other side wants to read a region.
    pub(crate) fn handle_get(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        unit: &Unit<'_>,
        connection: u32,
        get: &Get,
    ) -> Result<(), Refusal> {
        let path = net.path_index(unit.path).ok_or(Refusal::WrongAddress)?;
        let Some(known) = net.connections.get_mut(connection) else {
            return Err(Refusal::UnknownId);
        };
        let fits = net.paths[path].carries(get.stu, known.tail);
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
        let usable = self.usable(net, connection, get.handle, Rights::GET, get.at, get.len.into());
        let index = match usable {
            Ok(index) => index,
            Err(reason) => {
                let (d_id, serial) = (get.s_id, get.serial);
                let refused = Answer::GetRefused { d_id, serial, reason };
                net.send_message(cx, connection, &Message::RequestStateResponse(refused));
                return Err(Refusal::Forbidden);
            }
        };
        if net.paths[path].orders.len() >= cx.config.queue {
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
            since: cx.now,
        };
        net.paths[path].queue_order(order);
        Ok(())
    }
}
