//! [`SeqPacket`]: a socket for messages. What is for tasks alone is in
//! `tokio/seqpacket.rs`.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::marker::PhantomData;
use std::net::Shutdown;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::Address;
use crate::family::{Blocking, Messages, Mode, sealed};
use crate::listener::Accepted;
use crate::packets::Packets;

/// A socket for messages of a family, like one of the kernel's with `SOCK_SEQPACKET`; the
/// names to use are
#[cfg_attr(feature = "clan", doc = "[`ClanSeqPacket`](crate::ClanSeqPacket),")]
#[cfg_attr(feature = "stp", doc = "[`StpSeqPacket`](crate::StpSeqPacket),")]
/// which have their own ways to connect. Each write is one message, and each read takes a
/// whole one.
///
/// - **A message that is longer than the other side takes** is "Message too long"
///   (`EMSGSIZE`) at its writer, and the connection goes on.
/// - **A buffer that is too short for the message that is there** is the same error at the
///   reader. Nothing is cut off: the message stays for a longer one.
/// - **An empty message** is one, and a read of it gives 0, as the end does;
///   [`recv_message`](Self::recv_message) tells the two apart.
///
/// It reads and writes by `&`, too. Clones ([`try_clone`](Self::try_clone)) are the same
/// socket, with the same options.
pub struct SeqPacket<F: Messages, M: Mode = Blocking> {
    pub(crate) packets: Arc<Packets>,
    kind: PhantomData<fn() -> (F, M)>,
}

impl<F: Messages, M: Mode> SeqPacket<F, M> {
    pub(crate) const fn of(packets: Arc<Packets>) -> Self {
        Self { packets, kind: PhantomData }
    }

    /// The longest message that this side takes.
    #[must_use]
    pub fn message_limit(&self) -> usize {
        self.packets.most()
    }

    /// The longest message that the other side takes, where it has said so; with STP its
    /// writer hears of it.
    #[must_use]
    pub fn peer_message_limit(&self) -> Option<usize> {
        self.packets.peer_most
    }

    /// Where the other side is.
    ///
    /// # Errors
    /// None that is known.
    pub fn peer_addr(&self) -> io::Result<Address> {
        Ok(self.packets.peer.clone())
    }

    /// Where this side is.
    ///
    /// # Errors
    /// None that is known.
    pub fn local_addr(&self) -> io::Result<Address> {
        Ok(self.packets.local.clone())
    }

    /// What went wrong behind a write that had returned, or with a message that no call
    /// waited for.
    ///
    /// # Errors
    /// None that is known.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(self.packets.take_error())
    }
}

impl<F: Messages, M: Mode> Clone for SeqPacket<F, M> {
    fn clone(&self) -> Self {
        Self::of(Arc::clone(&self.packets))
    }
}

impl<F: Messages> SeqPacket<F> {
    /// Sends a message, and waits for as long as a write of this family does.
    ///
    /// # Errors
    /// `EMSGSIZE`: it is longer than the other side takes. `EAGAIN`: the time is over;
    /// where the message was on its way, it still is. Else the connection is over.
    pub fn send(&self, message: &[u8]) -> io::Result<usize> {
        self.send_vectored(&[IoSlice::new(message)])
    }

    /// Sends one message from several buffers.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_vectored(&self, message: &[IoSlice<'_>]) -> io::Result<usize> {
        self.packets.send(message)
    }

    /// Receives a whole message; 0 bytes at the end, too.
    ///
    /// # Errors
    /// `EMSGSIZE`: it is longer than the buffer, and stays. `EAGAIN`: nothing came in
    /// time. Else the connection broke.
    pub fn recv(&self, into: &mut [u8]) -> io::Result<usize> {
        self.recv_vectored(&mut [IoSliceMut::new(into)])
    }

    /// Receives a whole message into several buffers.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub fn recv_vectored(&self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.packets.receive(into, true)
    }

    /// Looks at a whole message without taking it.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub fn peek(&self, into: &mut [u8]) -> io::Result<usize> {
        self.packets.receive(&mut [IoSliceMut::new(into)], false)
    }

    /// Receives a message where it landed, however long it is; nothing at the end.
    ///
    /// # Errors
    /// As [`recv`](Self::recv), but never for its length.
    pub fn recv_message(&self) -> io::Result<Option<Bytes>> {
        self.packets.message()
    }

    /// Ends one direction, or both: behind the last message the other side reads 0.
    ///
    /// # Errors
    /// None that is known; it is there for the likeness to `std`.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.packets.shutdown(how);
        Ok(())
    }

    /// Another handle to the same socket.
    ///
    /// # Errors
    /// None that is known; it is there for the likeness to `std`.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(self.clone())
    }

    /// Whether calls give [`io::ErrorKind::WouldBlock`] instead of waiting.
    ///
    /// # Errors
    /// None that is known.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.packets.options.set_nonblocking(nonblocking);
        Ok(())
    }

    /// How long a read waits; then it gives [`io::ErrorKind::WouldBlock`].
    ///
    /// # Errors
    /// A timeout of zero, as with `std`.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.packets.options.set_read_timeout(timeout)
    }

    /// How long a write waits: see [`set_read_timeout`](Self::set_read_timeout).
    ///
    /// # Errors
    /// A timeout of zero, as with `std`.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.packets.options.set_write_timeout(timeout)
    }
}

impl<F: Messages> Read for &SeqPacket<F> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.recv(into)
    }

    fn read_vectored(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.recv_vectored(into)
    }
}

impl<F: Messages> Write for &SeqPacket<F> {
    fn write(&mut self, message: &[u8]) -> io::Result<usize> {
        self.send(message)
    }

    fn write_vectored(&mut self, message: &[IoSlice<'_>]) -> io::Result<usize> {
        self.send_vectored(message)
    }

    /// Waits until all that was begun is where this family wants it.
    fn flush(&mut self) -> io::Result<()> {
        self.packets.flush()
    }
}

impl<F: Messages> Read for SeqPacket<F> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        (&*self).read(into)
    }

    fn read_vectored(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&*self).read_vectored(into)
    }
}

impl<F: Messages> Write for SeqPacket<F> {
    fn write(&mut self, message: &[u8]) -> io::Result<usize> {
        (&*self).write(message)
    }

    fn write_vectored(&mut self, message: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self).write_vectored(message)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&*self).flush()
    }
}

impl<F: Messages, M: Mode> fmt::Debug for SeqPacket<F, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(F::SEQPACKET)
            .field("local", &format_args!("{}", self.packets.local))
            .field("peer", &format_args!("{}", self.packets.peer))
            .finish()
    }
}

impl<F: Messages, M: Mode> sealed::Sealed for SeqPacket<F, M> {}

impl<F: Messages, M: Mode> Accepted for SeqPacket<F, M> {
    type Mode = M;
    type State = Packets;
    const LISTENER: &'static str = F::SEQPACKET_LISTENER;

    fn accepted(packets: Arc<Packets>) -> (Self, Address) {
        let peer = packets.peer.clone();
        (Self::of(packets), peer)
    }
}
