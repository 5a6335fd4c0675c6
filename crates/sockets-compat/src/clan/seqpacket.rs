//! [`ClanSeqPacket`]: messages over shared memory, on this host or across hosts.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use super::messages::{Incoming, Outgoing};
use super::stream::{Arrivals, Ends};
use crate::address::Address;
use crate::family::Clan;
use crate::listener::{Accept, Listener};
use crate::packets::Packets;
use crate::seqpacket::SeqPacket;

/// A socket for messages over shared memory, like `SOCK_SEQPACKET` of Unix: to a process of
/// this host, or to another host. Each write is one message, and each read takes a whole one.
///
/// - **A message that is longer than the other side takes** is "Message too long"
///   (`EMSGSIZE`) at its writer, and the connection goes on. How long they may be each side
///   says when they meet ([`ClanOptions::message`](crate::ClanOptions::message)).
/// - **A buffer that is too short for the message that is there** is the same error at the
///   reader. Nothing is cut off: the message stays for a longer one.
/// - **A write** returns when its message is on its way: as many as fit into the ring are, and
///   one more. [`flush`](io::Write::flush) waits until that is in it, too.
/// - **An empty message** is one, and a read of it gives 0, as the end does;
///   [`recv_message`](Self::recv_message) tells the two apart.
///
/// ```
/// use sockets_compat::{ClanSeqPacket, ClanSeqPacketListener};
///
/// let listener = ClanSeqPacketListener::bind("clan://127.0.0.1:7/udp/0")?;
/// let client = ClanSeqPacket::connect(listener.local_addr()?)?;
/// let (server, _) = listener.accept()?;
///
/// assert_eq!(client.send(b"hello")?, 5);
/// assert!(server.recv(&mut [0; 4]).is_err(), "it is longer than that, and stays");
/// let mut message = [0; 16];
/// assert_eq!(server.recv(&mut message)?, 5);
/// # Ok::<(), std::io::Error>(())
/// ```
pub type ClanSeqPacket = SeqPacket<Clan>;

/// Where [`ClanSeqPacket`]s come in. Dropped, none do any more.
pub type ClanSeqPacketListener = Listener<ClanSeqPacket>;

/// A socket of both directions, which takes messages of up to `most_here` bytes.
pub(super) fn socket(ends: Ends, most_here: u64) -> ClanSeqPacket {
    SeqPacket::of(packets(ends, most_here))
}

fn packets(ends: Ends, most_here: u64) -> Arc<Packets> {
    let Ends { source, sink, local, peer, most, linger } = ends;
    let incoming = Box::new(Incoming::new(source, most_here));
    let outgoing = Box::new(Outgoing::new(sink, most, linger));
    Packets::new((incoming, outgoing), local, peer, Some(most as usize))
}

/// Where such come in.
pub(super) fn listener(
    arrivals: impl Arrivals + 'static,
    local: Address,
    most: u64,
) -> ClanSeqPacketListener {
    Listener::open(Letters { arrivals, most }, local)
}

/// Connections of which each becomes a socket for messages.
struct Letters<A> {
    arrivals: A,
    most: u64,
}

impl<A: Arrivals> Accept<Packets> for Letters<A> {
    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Arc<Packets>>> {
        let ends = ready!(self.arrivals.poll_ends(cx))?;
        Poll::Ready(Ok(packets(ends, self.most)))
    }
}
