//! Room: how much is granted and has not arrived, of a Block, over a link and over all.
//!
//! The counts change together, in `take_room`, `return_room` and `land_in_room` and nowhere
//! else. So what a link has granted is at all times the sum of what its open Blocks have, and
//! a Block that is given up returns all that it had. The window has granted what all links have,
//! but for what their
//! senders do not use. The model checks that after each operation.

use super::Grant;
use crate::context::Context;
use crate::link::NO_BLOCK;
use crate::network::Network;
use crate::receive::Receives;

impl Receives {
    /// Bytes of a Block are granted over its link.
    pub(super) fn take_room(&mut self, net: &mut Network, cx: &Context, block: u16, bytes: u32) {
        let grant = self.granted.grant(block);
        grant.granted += bytes;
        net.links.note_granted(cx, grant.link, bytes.into());
    }

    /// Bytes of a Block are not expected over its link any more. Gives how many of them counted
    /// against nobody.
    pub(super) fn return_room(&mut self, net: &mut Network, block: u16, bytes: u32) -> u64 {
        let grant = self.granted.grant(block);
        debug_assert!(grant.granted >= bytes, "Block {block} returns more than it has");
        grant.granted = grant.granted.saturating_sub(bytes);
        net.links.note_returned(grant.link, bytes.into())
    }

    /// Bytes of a Block have arrived.
    #[inline]
    pub(super) fn land_in_room(&mut self, net: &mut Network, cx: &Context, block: u16, bytes: u32) {
        let grant = self.granted.grant(block);
        debug_assert!(grant.granted >= bytes, "of Block {block} lands more than was granted");
        grant.granted = grant.granted.saturating_sub(bytes);
        let index = grant.link;
        if net.links.note_landed(index, bytes.into(), cx.config.window) {
            self.fresh_links.push(index);
        }
    }

    /// Takes back from the window what is granted over a link and not used. Its sender may
    /// still send it, and gets nothing else until it has.
    pub(super) fn take_unused(&mut self, net: &mut Network, cx: &mut Context, link: u32) {
        let more = net.links.take_unused(cx, link);
        self.note_unused(cx, more);
    }

    /// The same where nothing came in time.
    pub(super) fn take_unused_of_silent(&mut self, net: &mut Network, cx: &mut Context, link: u32) {
        let more = net.links.take_unused_of_silent(cx, link);
        self.note_unused(cx, more);
    }

    fn note_unused(&mut self, cx: &mut Context, more: u64) {
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
        let Some(link) = net.links.assumed_mut(index) else {
            return;
        };
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
        let Some(known) = net.links.assumed_mut(link) else {
            return;
        };
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

    /// The Block goes from its link to another, with what is granted of it. What counted
    /// against nobody there does not count here, or all links would have more than the window.
    pub(super) fn move_to_link(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        block: u16,
        link: u32,
    ) {
        let granted = self.granted.grant(block).granted;
        let uncounted = self.return_room(net, block, granted);
        self.take_from_link(net, block);
        self.append_to_link(net, cx, link, block);
        self.take_room(net, cx, block, granted);
        net.links.note_uncounted(link, uncounted);
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
