//! Long packets do not come any more: Blocks are laid out in shorter STUs.

use alloc::vec::Vec;

use super::Receives;
use crate::context::Context;
use crate::network::Network;
use crate::offload::StuRange;

impl Receives {
    /// STUs of a Block come over a link of which long ones were lost.
    pub(super) fn note_doubtful(&mut self, net: &mut Network, link: u32, stus: StuRange) {
        let block = self.granted.block(stus.first.block);
        // But for the last of a Block, none is longer than the first.
        let (_, first) = block.stu_at(stus.first.stu);
        let sure = self.sure_stu_for(net, stus.first.block, link).unwrap_or(u16::MAX);
        let Some(known) = net.links.assumed_mut(link) else { return };
        if first > sure.into() {
            known.size.note_long();
        } else {
            known.size.note_short();
        }
    }

    /// Something of a Block did not come. Where its STUs are longer than is sure, that may be
    /// why. Returns the Blocks of its link, where long packets do not come any more: they are to
    /// be [laid out anew](Self::shorten_stus).
    pub(super) fn note_long_lost(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        block: u16,
    ) -> Option<Vec<u16>> {
        let grant = self.granted.grants[usize::from(block)];
        let stu = self.granted.block(block).stu();
        let floor = cx.config.retry_floor;
        if self.sure_stu_for(net, block, grant.link).is_none_or(|sure| stu <= sure) {
            return None;
        }
        let link = net.links.get_mut(grant.link)?;
        let round = link.window.rtt().smoothed().unwrap_or(floor);
        let lost_at = core::mem::replace(&mut link.traffic().long_lost_at, cx.now);
        if link.size.is_in_doubt() && cx.now < lost_at + round {
            link.traffic().long_lost_at = lost_at;
            return None;
        }
        if link.size.note_long_lost() {
            return Some(self.fall_back(net, cx, grant.link));
        }
        // Does anything come?
        if let Some(receive) = self.table.get(grant.receive) {
            net.probe_alive_over(cx, receive.connection, grant.link);
        }
        None
    }

    /// Only what is sure is granted over a link from now on, until more is proven again. Returns
    /// the Blocks that are granted over it.
    fn fall_back(&mut self, net: &mut Network, cx: &mut Context, link: u32) -> Vec<u16> {
        let (retry_after, floor) = (cx.config.retry_after, cx.config.retry_floor);
        let mut blocks = Vec::new();
        let Some(known) = net.links.get_mut(link) else { return blocks };
        cx.stats.sizes_lost += 1;
        known.size.begin_anew();
        let (first, patience) = (known.first, known.patience(retry_after, floor));
        // What is in the way of long packets is there for a while.
        net.links.size_timers.set(link, cx.now + patience);
        let mut block = first;
        while let Some(grant) = self.granted.grants.get(usize::from(block)) {
            blocks.push(block);
            block = grant.behind;
        }
        blocks
    }

    /// Lays a Block out in STUs that surely come over a link. False where it is as it was.
    pub(super) fn shorten_stus(&mut self, net: &mut Network, block: u16, link: u32) -> bool {
        let known = self.granted.block(block).stu();
        let from = self.granted.grants[usize::from(block)].from;
        let stu = self.sure_stu_for(net, block, link).and_then(|sure| equal_part(known, sure));
        let from = stu.and_then(|stu| self.granted.table().shorten(block, stu, from));
        // Nothing is sure of the link, or no equal part of its STUs goes over it.
        let Some(from) = from else { return false };
        let grant = self.granted.grant(block);
        grant.from = from;
        grant.passed = 0;
        // All of it is asked for anew, by anyone who lays it out.
        grant.asked_below = 0;
        true
    }

    /// The longest STU that surely comes over a link, for the connection of a Block.
    fn sure_stu_for(&self, net: &Network, block: u16, link: u32) -> Option<u16> {
        let receive = self.table.get(self.granted.grants[usize::from(block)].receive)?;
        net.sure_stu_on(receive.connection, link)
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
