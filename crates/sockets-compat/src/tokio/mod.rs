//! The same sockets for tokio: its traits, on any executor.
//!
//! Nothing here needs tokio's reactor: wakers are called by what carries the socket.
//! Every future and every `poll_` call is cancel safe: what was not finished is as if
//! it had not begun, except where it says otherwise.

mod connect;
#[cfg(feature = "qpip")]
mod datagram;
mod listener;
#[cfg(feature = "clan")]
mod messages;
#[cfg(feature = "stp")]
mod seqpacket;
mod stream;

#[cfg(feature = "qpip")]
pub use datagram::QpDatagram;
pub use listener::Listener;
#[cfg(feature = "clan")]
pub use messages::{ClanSeqPacket, ClanSeqPacketListener};
#[cfg(feature = "stp")]
pub use seqpacket::{StpListener, StpSeqPacket};
pub use stream::{ByteStream, OwnedReadHalf, OwnedWriteHalf, ReadHalf, WriteHalf};

/// [`ClanStream`](crate::ClanStream) for tokio.
#[cfg(feature = "clan")]
pub type ClanStream = ByteStream<crate::Clan>;
/// [`ClanListener`](crate::ClanListener) for tokio.
#[cfg(feature = "clan")]
pub type ClanListener = Listener<crate::Clan>;
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
