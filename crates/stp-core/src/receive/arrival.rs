//! STUs land, Blocks and Transfers are complete.

use landfall_placement::{Check, Duration, Placement, Refusal, RunPlacement, Spans, Unit, UnitRun};

use super::{Kind, State};
use crate::context::Context;
use crate::error::{Ended, Error};
use crate::event::Event;
use crate::ids::ReceiveId;
use crate::mirror::Owner;
use crate::network::Network;
use crate::offload::{Arrival, Hit, Incoming, StuRange};
use crate::receive::Receives;
use crate::ticket::Purpose;
use crate::wire::{Flags, HEADER_LEN, Header, hold};

impl Receives {
    /// Data: the offload seam says where it belongs.
    #[inline]
    pub(crate) fn place_data(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        unit: &Unit<'_>,
        header: &Header,
        into: &mut Spans,
    ) -> Result<Placement, Refusal> {
        if cx.config.checksum && !header.flags().has(Flags::SUM) {
            return Err(Refusal::BadChecksum);
        }
        let (path, from, ecn) = (unit.path, unit.from, unit.ecn);
        let data = Incoming { header, len: unit.len, path, from, ecn };
        let hit = self.place_here(&data)?;
        // One span always fits: the list comes empty.
        into.push(hit.span).map_err(|_| Refusal::NoRoom)?;
        self.note_data(net, cx, hit.stu_id.into(), hold::decode(header.param.get()));
        let check = if header.flags().has(Flags::SUM) {
            let len = HEADER_LEN as u32 + hit.span.len;
            Check::InternetSum { from: 0, len, seed: 0 }
        } else {
            Check::None
        };
        let ticket = Purpose::Stus(hit.stu_id.into()).pack();
        Ok(Placement::Into { at: HEADER_LEN as u16, check, ticket })
    }

    /// A run of Data: the seam says where its leading part belongs. What adapters have, what
    /// is summed and whatever is not expected goes the way of single packets.
    #[inline]
    pub(crate) fn place_data_run(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        run: &UnitRun<'_>,
    ) -> Option<RunPlacement> {
        if self.granted.mirror.is_on() || cx.config.checksum || cx.is_full() {
            return None;
        }
        let hit = self.granted.table().place_run(run)?;
        self.note_data(net, cx, hit.stus, hold::decode(hit.hold));
        Some(RunPlacement {
            units: hit.stus.count,
            at: HEADER_LEN as u16,
            span: hit.span,
            ticket: Purpose::Stus(hit.stus).pack(),
        })
    }

    /// Asks the table, for a Block that the engine itself has. What an adapter has
    /// is not taken here, though the table would: the adapter refused it, before
    /// something was granted that is by now.
    #[inline]
    fn place_here(&mut self, data: &Incoming<'_>) -> Result<Hit, Refusal> {
        if self.granted.mirror.is_on() {
            let (stu_id, _) = self.granted.table().check(data)?;
            if self.granted.mirror.owner(stu_id.block) != Owner::Engine {
                return Err(Refusal::Unexpected);
            }
        }
        self.granted.table().place(data)
    }

    /// Data was accepted, and is being placed.
    #[inline]
    pub(crate) fn note_data(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        stus: StuRange,
        hold: Duration,
    ) {
        let grant = &mut self.granted.grants[usize::from(stus.first.block)];
        grant.active = cx.now;
        let Some(link) = net.links.assumed_mut(grant.link) else {
            return;
        };
        link.active = cx.now;
        link.strikes = 0;
        // How long the network took is known where it is clear which grant this
        // answers.
        let issued = link.granted_at(stus);
        let update = &mut link.traffic().update;
        update.granted = issued.unwrap_or(grant.at);
        if let Some(at) = issued {
            update.sent = Some(at + hold);
        }
        net.paths[usize::from(link.path)].last_link = Some(grant.link);
        let (index, is_in_doubt) = (grant.link, link.size.is_in_doubt());
        if stus.first.stu < grant.asked_below {
            self.note_late(net, cx, stus.first.block);
        }
        if is_in_doubt {
            self.note_doubtful(net, index, stus);
        }
    }

    #[inline]
    pub(crate) fn land_stus(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        stus: StuRange,
        is_in_place: bool,
        is_memory_gone: bool,
    ) {
        let block = stus.first.block;
        match self.granted.table().landed(stus, is_in_place) {
            Arrival::Bytes(len) => {
                self.note_landed(net, cx, block, stus.count, len);
                if self.granted.block(block).holes() > 0 {
                    self.note_hole(net, cx, block);
                }
            }
            Arrival::Complete(len) => {
                self.note_landed(net, cx, block, stus.count, len);
                self.complete_block(net, cx, block);
            }
            Arrival::Lost if is_memory_gone => {
                let receive = self.granted.grants[usize::from(block)].receive;
                self.begin_ending_receive(net, cx, receive, Ended::MemoryFailed);
            }
            Arrival::Lost | Arrival::Stale => {}
            Arrival::Released => self.release_block(net, cx, block),
        }
    }

    #[inline]
    fn note_landed(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        block: u16,
        stus: u16,
        len: u32,
    ) {
        cx.stats.stus_received += u64::from(stus);
        cx.stats.bytes_received += u64::from(len);
        self.grants_due = true;
        self.land_in_room(net, cx, block, len);
    }

    /// Marks that a Block came with, as bytes.
    fn note_marks(&mut self, net: &mut Network, cx: &mut Context, block: u16) {
        let marked = self.granted.table().take_marked(block);
        if marked == 0 {
            return;
        }
        cx.stats.stus_marked += u64::from(marked);
        let bytes = u64::from(marked) * u64::from(self.granted.block(block).stu());
        let link = self.granted.grants[usize::from(block)].link;
        if let Some(link) = net.links.get_mut(link) {
            link.traffic().update.marked += bytes;
        }
    }

    fn complete_block(&mut self, net: &mut Network, cx: &mut Context, block: u16) {
        cx.stats.block_notifications += 1;
        self.note_marks(net, cx, block);
        let overtaken = self.overtaken_by(net, block);
        // It is given up before anything else is done: what is asked for again may end its
        // Transfer, and that gives up all Blocks which the Transfer still has.
        let index = self.granted.grants[usize::from(block)].receive;
        self.take_from_link(net, block);
        self.granted.give_back(block, true);
        self.free_what_left();
        if let Some(receive) = self.table.get_mut(index) {
            receive.open.retain(|open| *open != block);
            receive.retries = 0;
        }
        self.ask_for_overtaken(net, cx, &overtaken);
        if let Some(receive) = self.table.get_mut(index) {
            if receive.state != State::Open {
                return;
            }
            if receive.open.is_empty() && receive.next_block == receive.blocks {
                return self.complete_receive(net, cx, index);
            }
            self.report_progress(net, cx, index);
            self.make_ready(net, index);
        }
    }

    /// Tells of the progress of one Transfer that is being received (of a read or Get, too), Block
    /// by Block, or does so no more: [`Event::ReceiveProgress`].
    pub(crate) fn watch_receive(&mut self, id: ReceiveId, is_watched: bool) -> Result<u64, Error> {
        let receive = self.table.named(id.index, id.generation).ok_or(Error::Unknown)?;
        let is_open = receive.state == State::Open && receive.blocks > 0;
        let len = if is_open { self.contiguous(receive) } else { 0 };
        if let Some(receive) = self.table.get_mut(id.index) {
            receive.is_watched = is_watched;
            receive.reported = receive.reported.max(len);
        }
        Ok(len)
    }

    fn report_progress(&mut self, net: &mut Network, cx: &mut Context, index: u32) {
        let Some(receive) = self.assumed(index) else {
            return;
        };
        let is_of_all = cx.config.progress && !matches!(receive.kind, Kind::Get { .. });
        if !is_of_all && !receive.is_watched {
            return;
        }
        let len = self.contiguous(receive);
        if len <= receive.reported {
            return;
        }
        let connection = net.id_of(receive.connection);
        if let Some(receive) = self.table.get_mut(index) {
            receive.reported = len;
        }
        let receive = self.receive_id(index);
        let last = cx.last_event();
        if let Some(Event::ReceiveProgress { receive: same, len: reported, .. }) = last
            && *same == receive
        {
            *reported = len;
        } else {
            cx.emit(Event::ReceiveProgress { receive, connection, len });
        }
    }
}
