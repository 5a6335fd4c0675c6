//! [`Stream`]: what a connection runs over.

use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// A stream of bytes that one thread reads while others write.
pub trait Stream: Send + Sync {
    /// Reads some bytes; 0 at the end. One thread at a time.
    ///
    /// # Errors
    /// Those of the connection.
    fn read(&self, into: &mut [u8]) -> io::Result<usize>;

    /// Writes all of these, one after another. One thread at a time.
    ///
    /// # Errors
    /// Those of the connection.
    fn write(&self, head: &[u8], payload: &[u8]) -> io::Result<()>;

    /// How long a read may take; without a bound if none is said.
    ///
    /// # Errors
    /// Those of the connection.
    fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()>;

    /// How long a write may wait for the other side; without a bound if none is said.
    ///
    /// # Errors
    /// Those of the connection.
    fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()>;

    /// Nothing more is sent and nothing more is received: anyone who reads or writes returns.
    fn shut_down(&self);

    /// Memory of this length from which the stream sends without a copy, if it has such.
    ///
    /// # Errors
    /// There could be, but not now.
    #[cfg(feature = "family")]
    fn send_memory(&self, len: usize) -> io::Result<Option<sockets_compat::SendMemory>> {
        let _ = len;
        Ok(None)
    }

    /// Reads some bytes where they have landed, this many at most, and gives how many; 0 at the
    /// end. None: this stream has no memory where they land. One thread at a time.
    ///
    /// # Errors
    /// Those of the connection.
    #[cfg(feature = "family")]
    fn read_landed(
        &self,
        most: usize,
        take: &mut dyn FnMut(sockets_compat::Landed<'_>),
    ) -> io::Result<Option<usize>> {
        let _ = (most, take);
        Ok(None)
    }

    /// The address of this end, where clients of TCP can come in.
    fn local(&self) -> Option<SocketAddr> {
        None
    }
}

/// Writes two parts with as few calls as possible.
pub(crate) fn write_both(mut out: impl Write, head: &[u8], payload: &[u8]) -> io::Result<()> {
    let mut parts = [IoSlice::new(head), IoSlice::new(payload)];
    let mut parts = &mut parts[..];
    IoSlice::advance_slices(&mut parts, 0);
    while !parts.is_empty() {
        match out.write_vectored(parts) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => IoSlice::advance_slices(&mut parts, count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

macro_rules! of_socket {
    ($type:ty, $local:expr $(, { $($more:tt)* })?) => {
        impl Stream for $type {
            fn read(&self, into: &mut [u8]) -> io::Result<usize> {
                let mut socket = self;
                loop {
                    match Read::read(&mut socket, into) {
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                        other => return other,
                    }
                }
            }

            fn write(&self, head: &[u8], payload: &[u8]) -> io::Result<()> {
                write_both(self, head, payload)
            }

            fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
                self.set_read_timeout(timeout)
            }

            fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
                self.set_write_timeout(timeout)
            }

            fn shut_down(&self) {
                // It may be gone.
                let _ = self.shutdown(Shutdown::Both);
            }

            fn local(&self) -> Option<SocketAddr> {
                let local: fn(&Self) -> Option<SocketAddr> = $local;
                local(self)
            }

            $($($more)*)?
        }
    };
}

of_socket!(TcpStream, |stream| stream.local_addr().ok());
of_socket!(UnixStream, |_| None);

// Below the macro, which is known from there on.
#[cfg(feature = "family")]
mod family;
#[cfg(feature = "family")]
pub use family::queue_pair_options;
#[cfg(feature = "tls")]
pub(crate) mod tls;
