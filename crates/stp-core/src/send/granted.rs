//! Clear_To_Send: which STUs may go, and where they belong.

use landfall_placement::{Refusal, Unit};

use super::{Send, State, Tiling};
use crate::context::Context;
use crate::network::Network;
use crate::path::{Order, Source, Wanted};
use crate::send::Sends;
use crate::wire::message::{ClearToSend, Ending, Granted, Ids, Message};
use crate::wire::{Header, Op, Reason, header};

/// A Block, as its grant and its Transfer say.
struct Layout {
    /// Where in the Transfer it begins.
    position: u64,
    /// Where in the receiver's buffer it begins, and its length: it may end at 2^32.
    start: u32,
    len: u32,
}

impl Sends {
    pub(crate) fn handle_grant(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        unit: &Unit<'_>,
        connection: u32,
        grant: &ClearToSend,
    ) -> Result<(), Refusal> {
        let index = u32::from(grant.ids.d_id);
        let path = net.path_index(unit.path).ok_or(Refusal::WrongAddress)?;
        let tail = net.connections.get(connection).map_or(0, |known| known.tail);
        let fits = net.paths[path].carries(grant.stu, tail);
        let is_meant = |send: &Send| {
            send.connection == connection
                && send.serial as u16 == grant.sync
                && !matches!(send.state, State::Over(_))
        };
        let Some(send) = self.table.get_mut(index).filter(|send| is_meant(send)) else {
            self.answer_grant_of_nothing(net, cx, connection, grant);
            return Err(Refusal::UnknownId);
        };
        if !send.is_live() || grant.is_limited && !send.knows_limit {
            // How much is taken is asked for when nothing else is heard.
            return Err(Refusal::Unexpected);
        }
        if !fits || 1 << grant.block_size < u32::from(grant.stu) {
            return Err(Refusal::Malformed);
        }
        let layout = send.layout(grant)?;
        let (next, end, wanted) = granted_range(grant, &layout)?;
        if net.paths[path].orders.len() >= cx.config.queue {
            return Err(Refusal::NoRoom);
        }
        if let Granted::Next { behind, lead, .. } = grant.granted {
            if u32::from(behind) > grant.block {
                return Err(Refusal::Malformed);
            }
            send.tiling = Some(Tiling { block_size: grant.block_size, lead });
        }
        if !send.is_new_grant(grant.block, grant.attempt) {
            return Err(Refusal::Duplicate);
        }
        send.accept(grant.ids.s_id);
        send.asked = 0;
        send.is_end_granted |= layout.position + u64::from(end) >= send.len;
        let priority = send.priority;
        if let Some(known) = net.connections.get_mut(connection) {
            known.eager = grant.eager;
        }
        let order = Order {
            source: Source::Send { index, generation: self.table.generation(index) },
            to: unit.from,
            priority,
            header: self.data_header(net, connection, index, grant),
            region: self.region_of_send(index),
            at: self.place_in_send(index, layout.position),
            origin: layout.start,
            stu: grant.stu,
            next,
            end,
            block_end: layout.len,
            wanted,
            since: cx.now,
        };
        let acked = match grant.granted {
            Granted::Next { behind, .. } => grant.block - u32::from(behind),
            Granted::Again(_) => 0,
        };
        self.queue_order(net, path, order);
        self.note_acked(net, cx, index, acked);
        self.wait_for_news(net, cx, index);
        Ok(())
    }

    /// The receiver grants what is over here: it did not receive that, or this side gave up
    /// when nothing was heard of it. Unless it is told, it keeps room for what never comes.
    fn answer_grant_of_nothing(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        connection: u32,
        grant: &ClearToSend,
    ) {
        let Some(known) = net.connections.assumed(connection) else {
            return;
        };
        // Of the serial number, grants say half: it is the newest that was given out.
        let behind = (known.next_send as u16).wrapping_sub(grant.sync);
        let serial = known.next_send.wrapping_sub(u32::from(behind));
        let is_over = |index: u32| {
            let send = self.table.get(index);
            send.is_none_or(|send| send.serial != serial || matches!(send.state, State::Over(_)))
        };
        if behind as i16 <= 0 || !self.sends_of(net, connection).into_iter().all(is_over) {
            return;
        }
        let ids = Ids { d_id: grant.ids.s_id, s_id: grant.ids.d_id };
        let ending = Ending { ids, serial, by_receiver: false };
        net.send_message(cx, connection, &Message::End { ending, reason: Reason::Gone });
    }

    /// What was asked for again goes first: the receiver waits for it. What
    /// still waits to be sent need not be sent twice.
    fn queue_order(&mut self, net: &mut Network, path: usize, order: Order) {
        if order.wanted == Wanted::All {
            net.paths[path].queue_order(order);
            return;
        }
        let orders = &mut net.paths[path].orders;
        let still_waits = orders.iter().any(|other| {
            other.source == order.source
                && other.header.bufx == order.header.bufx
                && other.wanted == Wanted::All
                && other.next <= order.next
                && order.next < other.end
        });
        if !still_waits {
            // Behind what was begun, for a run that is broken costs the receiver its guess.
            let place = orders.iter().take_while(|other| other.wanted != Wanted::All).count();
            orders.insert(place, order);
        }
    }

    /// What all Data of a grant has in its header.
    fn data_header(
        &self,
        net: &Network,
        connection: u32,
        index: u32,
        grant: &ClearToSend,
    ) -> Header {
        let (mut header, mut serial, mut opaque) = (Header::default(), 0, 0);
        if let Some(send) = self.table.get(index) {
            (serial, opaque) = (send.serial, send.opaque);
        }
        if let Some(known) = net.connections.get(connection) {
            header.d_port = known.remote_port.into();
            header.s_port = known.local_port.into();
            header.d_key = known.remote_key.into();
        }
        header.op = Op::Data as u8;
        header.sync = (serial as u16).into();
        header.b_num = grant.block.into();
        header.bufx = grant.bufx.into();
        header.t_len = header::two_words(serial, opaque).into();
        header.d_id = grant.ids.s_id.into();
        header
    }

    fn region_of_send(&self, index: u32) -> landfall_placement::RegionId {
        self.table.get(index).map(|send| send.memory.region).unwrap_or_default()
    }

    fn place_in_send(&self, index: u32, position: u64) -> u64 {
        self.table.get(index).map_or(0, |send| send.memory.offset.wrapping_add(position))
    }
}

impl Send {
    /// Where the Block of a grant lies, if that agrees with what was granted before.
    fn layout(&self, grant: &ClearToSend) -> Result<Layout, Refusal> {
        let lead = match (grant.granted, self.tiling) {
            (Granted::Next { lead, .. }, None) => lead,
            (Granted::Next { lead, .. }, Some(known)) => {
                if known != (Tiling { block_size: grant.block_size, lead }) {
                    return Err(Refusal::Malformed);
                }
                lead
            }
            (Granted::Again(_), Some(known)) => {
                if known.block_size != grant.block_size {
                    return Err(Refusal::Malformed);
                }
                known.lead
            }
            // The grant that says where Blocks begin has not come yet.
            (Granted::Again(_), None) => return Err(Refusal::Unexpected),
        };
        let size = 1u64 << grant.block_size;
        if u64::from(lead) >= size {
            return Err(Refusal::Malformed);
        }
        let position = (u64::from(grant.block) << grant.block_size).saturating_sub(lead.into());
        if position >= self.len {
            return Err(Refusal::OutOfBounds);
        }
        let base = u64::from(grant.offset) & !(size - 1);
        let start = if grant.block == 0 { base + u64::from(lead) } else { base };
        let len = (base + size - start).min(self.len - position);
        let (Ok(start), Ok(len)) = (u32::try_from(start), u32::try_from(len)) else {
            return Err(Refusal::OutOfBounds);
        };
        Ok(Layout { position, start, len })
    }
}

/// Where in the Block the granted STUs begin and end, and which of them are wanted.
fn granted_range(grant: &ClearToSend, layout: &Layout) -> Result<(u32, u32, Wanted), Refusal> {
    let stu = u64::from(grant.stu);
    let from = grant.offset.checked_sub(layout.start).filter(|from| *from < layout.len);
    let from = from.ok_or(Refusal::OutOfBounds)?;
    if !from.is_multiple_of(grant.stu.into()) {
        return Err(Refusal::OutOfBounds);
    }
    let (stus, wanted) = match grant.granted {
        Granted::Next { count, .. } => (u64::from(count), Wanted::All),
        Granted::Again(bits) => (64 - u64::from(bits.leading_zeros()), Wanted::Bits(bits)),
    };
    // The last of the granted STUs must begin inside of the Block.
    let last = u64::from(from) + (stus - 1) * stu;
    if last >= u64::from(layout.len) {
        return Err(Refusal::OutOfBounds);
    }
    Ok((from, (last + stu).min(u64::from(layout.len)) as u32, wanted))
}
