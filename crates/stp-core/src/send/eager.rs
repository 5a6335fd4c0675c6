//! Short messages leave with their request: one packet, and no round trip for the grant.
//!
//! Who receives says how long they may be, in each of its grants; so the first message of a
//! connection is granted, and what speaks no such thing is never sent it. Nothing of that is
//! relied on: a request that is repeated is repeated without them, and they are granted where
//! the other side did not take them.

use landfall_placement::{Span, assumed};

use crate::context::Context;
use crate::network::Network;
use crate::path::ControlTail;
use crate::send::Sends;
use crate::wire::HEADER_LEN;
use crate::wire::message::Message;

impl Sends {
    /// Sends a request, and what it is for with it where that is short.
    pub(super) fn send_request(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        index: u32,
        mut request: Message,
    ) {
        let Some(send) = self.assumed(index) else {
            return;
        };
        let connection = send.connection;
        let Some(link) = assumed(net.link_for_control(connection), "a connection has a link")
        else {
            return;
        };
        let fits_in_request = self.fits_in_request(net, cx, index, link);
        let Message::RequestToSend { is_eager, .. } = &mut request else {
            debug_assert!(false, "only requests to send leave this way");
            return;
        };
        *is_eager = fits_in_request;
        let behind = match fits_in_request {
            true => ControlTail::Transfer { index, generation: self.table.generation(index) },
            false => ControlTail::Nothing,
        };
        net.send_message_with(cx, link, connection, &request, behind);
    }

    /// Can a Transfer leave with its request over this link?
    fn fits_in_request(&self, net: &Network, cx: &Context, index: u32, link: u32) -> bool {
        let Some(send) = self.assumed(index) else {
            return false;
        };
        let Some(known) = net.connections.assumed(send.connection) else {
            return false;
        };
        let Some(link) = net.links.assumed(link) else { return false };
        // The path is down: nothing goes with a request that waits.
        let Some(limits) = &net.paths[usize::from(link.path)].limits else { return false };
        let most = known.eager.min(cx.config.eager);
        let len = send.memory.len;
        let is_first = send.retries == 0 && send.answers.is_none();
        let fits = len + HEADER_LEN as u64 + u64::from(known.tail) <= u64::from(limits.sure);
        is_first && fits && (1..=u64::from(most)).contains(&len)
    }

    /// A Transfer leaves with its request: its memory, unless it has ended.
    pub(crate) fn begin_eager(
        &mut self,
        cx: &mut Context,
        index: u32,
        generation: u32,
    ) -> Option<Span> {
        let send = self.table.named_mut(index, generation).filter(|send| send.is_live())?;
        send.held += 1;
        let span = send.memory.span(0, send.memory.len as u32);
        cx.stats.eager_sent += 1;
        cx.stats.bytes_sent += u64::from(span.len);
        Some(span)
    }
}
