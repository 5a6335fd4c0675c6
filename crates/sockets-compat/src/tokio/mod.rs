//! The same sockets for tokio: its traits, on any executor.
//!
//! Nothing here needs tokio's reactor: wakers are called by what carries the socket.
//! Every future and every `poll_` call is cancel safe: what was not finished is as if
//! it had not begun, except where it says otherwise.

mod connect;
#[cfg(feature = "qpip")]
mod datagram;
mod listener;
#[cfg(any(feature = "clan", feature = "stp"))]
mod seqpacket;
mod stream;

#[cfg(feature = "qpip")]
pub use datagram::QpDatagram;
pub use listener::Listener;
#[cfg(any(feature = "clan", feature = "stp"))]
pub use seqpacket::{SeqPacket, SeqPacketListener};
pub use stream::{ByteStream, OwnedReadHalf, OwnedWriteHalf, ReadHalf, WriteHalf};

/// [`ClanStream`](crate::ClanStream) for tokio.
#[cfg(feature = "clan")]
pub type ClanStream = ByteStream<crate::Clan>;
/// [`ClanListener`](crate::ClanListener) for tokio.
#[cfg(feature = "clan")]
pub type ClanListener = Listener<crate::Clan>;
/// [`ClanSeqPacket`](crate::ClanSeqPacket) for tokio.
#[cfg(feature = "clan")]
pub type ClanSeqPacket = SeqPacket<crate::Clan>;
/// [`ClanSeqPacketListener`](crate::ClanSeqPacketListener) for tokio.
#[cfg(feature = "clan")]
pub type ClanSeqPacketListener = SeqPacketListener<crate::Clan>;
/// [`QpStream`](crate::QpStream) for tokio.
#[cfg(feature = "qpip")]
pub type QpStream = ByteStream<crate::Qp>;
/// [`QpListener`](crate::QpListener) for tokio.
#[cfg(feature = "qpip")]
pub type QpListener = Listener<crate::Qp>;
/// [`StpStream`](crate::StpStream) for tokio.
#[cfg(feature = "stp")]
pub type StpStream = ByteStream<crate::Stp>;
/// [`StpStreamListener`](crate::StpStreamListener) for tokio.
#[cfg(feature = "stp")]
pub type StpStreamListener = Listener<crate::Stp>;
/// [`StpSeqPacket`](crate::StpSeqPacket) for tokio.
#[cfg(feature = "stp")]
pub type StpSeqPacket = SeqPacket<crate::Stp>;
/// [`StpListener`](crate::StpListener) for tokio.
#[cfg(feature = "stp")]
pub type StpListener = SeqPacketListener<crate::Stp>;
