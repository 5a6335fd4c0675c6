//! [`ByteStream`]: a byte stream, like [`std::net::TcpStream`], and its two directions. What
//! is for tasks alone is in `tokio/stream.rs`.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::marker::PhantomData;
use std::net::Shutdown;
use std::sync::Arc;
use std::time::Duration;

use crate::Address;
use crate::duplex::Duplex;
use crate::family::{Blocking, Family, Mode};

/// A byte stream of a family; the names to use are
#[cfg_attr(feature = "clan", doc = "[`ClanStream`](crate::ClanStream),")]
#[cfg_attr(feature = "qpip", doc = "[`QpStream`](crate::QpStream),")]
#[cfg_attr(feature = "stp", doc = "[`StpStream`](crate::StpStream),")]
/// which have their own ways to connect.
///
/// It reads and writes like [`std::net::TcpStream`], by `&` too. Clones
/// ([`try_clone`](Self::try_clone)) are the same socket, with the same options. The
/// connection is closed when the last handle is dropped; what was written before still
/// arrives.
///
/// There is no `AsRawFd`: below is memory and an engine of this process, and not a
/// descriptor that a kernel could read, write or poll for these bytes.
pub struct ByteStream<F: Family, M: Mode = Blocking> {
    pub(crate) duplex: Arc<Duplex>,
    kind: PhantomData<fn() -> (F, M)>,
}

impl<F: Family, M: Mode> ByteStream<F, M> {
    pub(crate) const fn of(duplex: Arc<Duplex>) -> Self {
        Self { duplex, kind: PhantomData }
    }

    /// Where the other side is.
    ///
    /// # Errors
    /// None that is known.
    pub fn peer_addr(&self) -> io::Result<Address> {
        Ok(self.duplex.peer.clone())
    }

    /// Where this side is.
    ///
    /// # Errors
    /// None that is known.
    pub fn local_addr(&self) -> io::Result<Address> {
        Ok(self.duplex.local.clone())
    }

    /// What went wrong behind a write that had returned, as `SO_ERROR`.
    ///
    /// # Errors
    /// None that is known.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(self.duplex.take_error())
    }

    /// Each direction by itself, for as long as this handle is borrowed.
    pub const fn split(&mut self) -> (ReadHalf<'_, F, M>, WriteHalf<'_, F, M>) {
        (ReadHalf(self), WriteHalf(self))
    }

    /// Each direction by itself, for two threads or tasks. Dropping the writing half ends
    /// that direction, as with tokio's.
    #[must_use]
    pub fn into_split(self) -> (OwnedReadHalf<F, M>, OwnedWriteHalf<F, M>) {
        let reader = OwnedReadHalf(Self::of(Arc::clone(&self.duplex)));
        (reader, OwnedWriteHalf { stream: self, ends: true })
    }

    pub(crate) const fn stream(&self) -> &Self {
        self
    }
}

impl<F: Family> ByteStream<F> {
    /// Another handle to the same socket.
    ///
    /// # Errors
    /// None that is known; it is there for the likeness to `std`.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self::of(Arc::clone(&self.duplex)))
    }

    /// Ends one direction, or both. What was written before still arrives, and behind it
    /// the other side reads the end. What had come before is still read.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.duplex.shutdown(how)
    }

    /// Reads without taking: the next read gives the same bytes.
    ///
    /// # Errors
    /// Those of a read.
    pub fn peek(&self, into: &mut [u8]) -> io::Result<usize> {
        self.duplex.peek(into)
    }

    /// Whether reads and writes give [`io::ErrorKind::WouldBlock`] instead of waiting.
    ///
    /// # Errors
    /// None that is known.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.duplex.options.set_nonblocking(nonblocking);
        Ok(())
    }

    /// How long a read waits; then it gives [`io::ErrorKind::WouldBlock`], as `std` on
    /// Linux. `None` waits for ever.
    ///
    /// # Errors
    /// A timeout of zero, as with `std`.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.duplex.options.set_read_timeout(timeout)
    }

    /// How long a write waits for room: see [`set_read_timeout`](Self::set_read_timeout).
    ///
    /// # Errors
    /// A timeout of zero, as with `std`.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.duplex.options.set_write_timeout(timeout)
    }

    /// See [`set_read_timeout`](Self::set_read_timeout).
    ///
    /// # Errors
    /// None that is known.
    pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.duplex.options.read_timeout())
    }

    /// See [`set_write_timeout`](Self::set_write_timeout).
    ///
    /// # Errors
    /// None that is known.
    pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.duplex.options.write_timeout())
    }
}

impl<F: Family> Read for &ByteStream<F> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.duplex.read(&mut [IoSliceMut::new(into)])
    }

    fn read_vectored(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.duplex.read(into)
    }
}

impl<F: Family> Write for &ByteStream<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.duplex.write(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        self.duplex.write(from)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.duplex.flush()
    }
}

/// What is a handle to a stream reads and writes as that does.
macro_rules! through {
    (read $type:ty) => {
        impl<F: Family> Read for $type {
            fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
                self.stream().read(into)
            }

            fn read_vectored(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
                self.stream().read_vectored(into)
            }
        }
    };
    (write $type:ty) => {
        impl<F: Family> Write for $type {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.stream().write(bytes)
            }

            fn write_vectored(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize> {
                self.stream().write_vectored(from)
            }

            fn flush(&mut self) -> io::Result<()> {
                self.stream().flush()
            }
        }
    };
}

through!(read ByteStream<F>);
through!(write ByteStream<F>);
through!(read ReadHalf<'_, F>);
through!(write WriteHalf<'_, F>);
through!(read OwnedReadHalf<F>);
through!(write OwnedWriteHalf<F>);

/// The reading direction of a borrowed stream.
#[derive(Debug)]
pub struct ReadHalf<'a, F: Family, M: Mode = Blocking>(&'a ByteStream<F, M>);

impl<F: Family, M: Mode> ReadHalf<'_, F, M> {
    pub(crate) const fn stream(&self) -> &ByteStream<F, M> {
        self.0
    }
}

/// The writing direction of a borrowed stream.
#[derive(Debug)]
pub struct WriteHalf<'a, F: Family, M: Mode = Blocking>(&'a ByteStream<F, M>);

impl<F: Family, M: Mode> WriteHalf<'_, F, M> {
    pub(crate) const fn stream(&self) -> &ByteStream<F, M> {
        self.0
    }
}

impl<F: Family> WriteHalf<'_, F> {
    /// Ends this direction.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn finish(&mut self) -> io::Result<()> {
        self.0.shutdown(Shutdown::Write)
    }
}

/// The reading direction of a stream.
#[derive(Debug)]
pub struct OwnedReadHalf<F: Family, M: Mode = Blocking>(ByteStream<F, M>);

impl<F: Family, M: Mode> OwnedReadHalf<F, M> {
    /// The whole stream, for its addresses and options.
    #[must_use]
    pub const fn stream(&self) -> &ByteStream<F, M> {
        &self.0
    }

    /// The stream again.
    ///
    /// # Errors
    /// Both halves, where they are of two streams.
    pub fn reunite(
        self,
        mut other: OwnedWriteHalf<F, M>,
    ) -> Result<ByteStream<F, M>, (Self, OwnedWriteHalf<F, M>)> {
        if Arc::ptr_eq(&self.0.duplex, &other.stream.duplex) {
            other.ends = false;
            Ok(self.0)
        } else {
            Err((self, other))
        }
    }
}

/// The writing direction of a stream. Dropped, it ends that direction.
#[derive(Debug)]
pub struct OwnedWriteHalf<F: Family, M: Mode = Blocking> {
    stream: ByteStream<F, M>,
    /// Its end ends the direction.
    ends: bool,
}

impl<F: Family, M: Mode> OwnedWriteHalf<F, M> {
    /// The whole stream, for its addresses and options.
    #[must_use]
    pub const fn stream(&self) -> &ByteStream<F, M> {
        &self.stream
    }
}

impl<F: Family, M: Mode> Drop for OwnedWriteHalf<F, M> {
    fn drop(&mut self) {
        if self.ends {
            // A connection that is broken has no direction left to end.
            let _ = self.stream.duplex.shutdown(Shutdown::Write);
        }
    }
}

impl<F: Family, M: Mode> fmt::Debug for ByteStream<F, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(F::STREAM)
            .field("local", &format_args!("{}", self.duplex.local))
            .field("peer", &format_args!("{}", self.duplex.peer))
            .finish()
    }
}
