//! Room: how much is granted and has not arrived, of a Block, over a link and over all.
//!
//! The counts change together, in [`Endpoint::take_room`] and
//! [`Endpoint::return_room`] and nowhere else. So what a link has granted
//! is at all times the sum of what its open Blocks have, and a Block that is given up
//! returns all that it had. The window has granted what all links have, but for what their
//! senders do not use. The model checks that after each operation.

use super::Grant;
use crate::context::Context;
use crate::link::NO_BLOCK;
use crate::network::Network;
use crate::receive::Receives;
use crate::usage::Standing;

impl Receives {
    /// Bytes of a Block are granted over its link: they are expected within its patience.
    pub(super) fn take_room(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        block: u16,
        bytes: u32,
    ) {
        let (retry_after, floor) = (cx.config.retry_after, cx.config.retry_floor);
        let config = net.congestion(cx);
        let grant = self.granted.grant(block);
        grant.granted += bytes;
        let index = grant.link;
        let Some(measure) = net.measure(cx, index) else { return };
        let Some(link) = net.links.get_mut(index) else { return };
        link.note_granted(cx.now, u64::from(bytes), &measure);
        if link.granted == u64::from(bytes) {
            link.window.handle_start(&config, cx.now);
            link.active = cx.now;
        }
        let patience = link.patience(retry_after, floor);
        if net.links.timers.key_of(index).is_none() {
            net.links.timers.set(index, cx.now + patience);
        }
        net.recount(index);
    }

    /// Bytes of a Block have arrived, or are not expected over its link any more.
    #[inline]
    pub(super) fn return_room(&mut self, net: &mut Network, block: u16, bytes: u32) {
        let grant = self.granted.grant(block);
        debug_assert!(grant.granted >= bytes, "Block {block} returns more than it has");
        grant.granted = grant.granted.saturating_sub(bytes);
        let index = grant.link;
        let link = net.links.get_mut(index);
        debug_assert!(link.is_some(), "Block {block} is of a link that is gone");
        let Some(link) = link else { return };
        link.note_returned(u64::from(bytes));
        net.recount(index);
    }

    /// Takes back from the window what is granted over a link and not used. Its sender may
    /// still send it, and gets nothing else until it has.
    pub(super) fn take_unused(&mut self, net: &mut Network, cx: &mut Context, link: u32) {
        let Some(measure) = net.measure(cx, link) else { return };
        let Some(known) = net.links.get_mut(link) else { return };
        let granted = known.granted;
        let more = known.traffic().usage.judge(cx.now, granted, &measure);
        self.note_unused(net, cx, link, more);
    }

    /// The same where nothing came in time. Of who sent before it may have been this machine
    /// that paused: it is asked once.
    pub(super) fn take_unused_of_silent(&mut self, net: &mut Network, cx: &mut Context, link: u32) {
        let Some(measure) = net.measure(cx, link) else { return };
        let Some(known) = net.links.get_mut(link) else { return };
        let (granted, strikes) = (known.granted, known.strikes);
        let usage = &mut known.traffic().usage;
        if usage.standing == Standing::New || strikes > 1 {
            let more = usage.handle_silence(cx.now, granted, &measure);
            self.note_unused(net, cx, link, more);
        }
    }

    fn note_unused(&mut self, net: &mut Network, cx: &mut Context, link: u32, more: u64) {
        net.recount(link);
        cx.stats.bytes_unused += more;
        self.grants_due |= more > 0;
    }

    // ---- The order of grants on a link ---------------------------------------

    /// The Block is the last that was granted over a link.
    pub(super) fn append_to_link(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        index: u32,
        block: u16,
    ) {
        let Some(link) = net.links.get_mut(index) else { return };
        let last = core::mem::replace(&mut link.last, block);
        if last == NO_BLOCK {
            link.first = block;
            link.active = cx.now;
        } else {
            self.granted.grant(last).behind = block;
        }
        let path = usize::from(link.path);
        let grant = self.granted.grant(block);
        grant.before = last;
        grant.behind = NO_BLOCK;
        grant.link = index;
        // If the path has no link that it expects Data from, it is this one.
        let known = net.paths[path].last_link;
        let is_idle =
            known.and_then(|link| net.links.get(link)).is_none_or(|l| l.first == NO_BLOCK);
        if is_idle {
            net.paths[path].last_link = Some(index);
        }
    }

    /// The Block is among those of its link no longer.
    pub(super) fn take_from_link(&mut self, net: &mut Network, block: u16) {
        let Grant { link, before, behind, .. } = self.granted.grants[usize::from(block)];
        if before != NO_BLOCK {
            self.granted.grant(before).behind = behind;
        }
        if behind != NO_BLOCK {
            self.granted.grant(behind).before = before;
        }
        let Some(known) = net.links.get_mut(link) else { return };
        if known.first == block {
            known.first = behind;
        }
        if known.last == block {
            known.last = before;
        }
        if known.first == NO_BLOCK {
            net.links.timers.remove(link);
        }
    }

    /// The Block goes from its link to another.
    pub(super) fn move_to_link(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        block: u16,
        link: u32,
    ) {
        self.take_from_link(net, block);
        self.append_to_link(net, cx, link, block);
    }

    /// Places of Blocks that nobody has any more are free.
    pub(crate) fn free_what_left(&mut self) {
        while let Some(block) = self.granted.mirror.next_free() {
            self.granted.free.push(block);
            // Somebody may wait for a place in the table.
            self.grants_due = true;
        }
    }
}
