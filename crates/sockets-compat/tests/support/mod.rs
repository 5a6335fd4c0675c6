//! What the tests of every kind of stream share: bounds on time, and the same questions
//! to all of them and to `std::net::TcpStream`.
#![allow(dead_code, reason = "each test uses a part of it")]

pub(crate) mod likeness;
pub(crate) mod model;
#[cfg(any(feature = "clan", feature = "stp"))]
pub(crate) mod packets;
#[cfg(feature = "tokio")]
pub(crate) mod tasks;

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use landfall_testkit::TemporaryFolder;
use sockets_compat::{ByteStream, Family};

/// Nothing here takes so long on the slowest machine; a test that hangs fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// "Message too long".
pub(crate) const TOO_LONG: Option<i32> = Some(90);

/// Runs a test on a thread of its own, for a bounded time.
pub(crate) fn within<T: Send + 'static>(test: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, waits) = mpsc::channel();
    let thread = std::thread::spawn(move || _ = done.send(test()));
    match waits.recv_timeout(PATIENCE) {
        Ok(result) => result,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it takes far too long"),
        Err(mpsc::RecvTimeoutError::Disconnected) => match thread.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(()) => unreachable!("it sends before it ends"),
        },
    }
}

/// A folder that goes with its test.
#[derive(Debug)]
pub(crate) struct Folder(TemporaryFolder);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        Self(TemporaryFolder::new(name))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn address(&self, name: &str) -> String {
        format!("clan://{}#{name}", self.path().display())
    }
}

/// Anyone who panicked under the lock has left nothing half done.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How many descriptors this process has.
pub(crate) fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("there is /proc").count()
}

/// Waits for something that happens in the background.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "it never comes to that: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// What a stream of bytes can be asked, of whatever kind.
pub(crate) trait Socket: Send + Sync + Sized + 'static {
    fn read(&self, into: &mut [u8]) -> io::Result<usize>;
    fn write(&self, bytes: &[u8]) -> io::Result<usize>;
    fn read_vectored(&self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize>;
    fn write_vectored(&self, from: &[IoSlice<'_>]) -> io::Result<usize>;
    fn flush(&self) -> io::Result<()>;
    fn peek(&self, into: &mut [u8]) -> io::Result<usize>;
    fn shutdown(&self, how: Shutdown) -> io::Result<()>;
    fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()>;
    fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()>;
    fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()>;
    fn read_timeout(&self) -> io::Result<Option<Duration>>;
    fn try_clone(&self) -> io::Result<Self>;

    fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            bytes = &bytes[self.write(bytes)?..];
        }
        Ok(())
    }

    fn read_exact(&self, mut into: &mut [u8]) -> io::Result<()> {
        while !into.is_empty() {
            let read = self.read(into)?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            into = &mut into[read..];
        }
        Ok(())
    }

    fn read_to_end(&self) -> io::Result<Vec<u8>> {
        let (mut bytes, mut some) = (Vec::new(), [0; 4096]);
        loop {
            match self.read(&mut some)? {
                0 => return Ok(bytes),
                read => bytes.extend_from_slice(&some[..read]),
            }
        }
    }
}

macro_rules! socket {
    ($type:ty, $($generics:tt)*) => {
        impl<$($generics)*> Socket for $type {
            fn read(&self, into: &mut [u8]) -> io::Result<usize> {
                Read::read(&mut &*self, into)
            }
            fn write(&self, bytes: &[u8]) -> io::Result<usize> {
                Write::write(&mut &*self, bytes)
            }
            fn read_vectored(&self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
                Read::read_vectored(&mut &*self, into)
            }
            fn write_vectored(&self, from: &[IoSlice<'_>]) -> io::Result<usize> {
                Write::write_vectored(&mut &*self, from)
            }
            fn flush(&self) -> io::Result<()> {
                Write::flush(&mut &*self)
            }
            fn peek(&self, into: &mut [u8]) -> io::Result<usize> {
                self.peek(into)
            }
            fn shutdown(&self, how: Shutdown) -> io::Result<()> {
                self.shutdown(how)
            }
            fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
                self.set_nonblocking(nonblocking)
            }
            fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
                self.set_read_timeout(timeout)
            }
            fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
                self.set_write_timeout(timeout)
            }
            fn read_timeout(&self) -> io::Result<Option<Duration>> {
                self.read_timeout()
            }
            fn try_clone(&self) -> io::Result<Self> {
                self.try_clone()
            }
        }
    };
}

socket!(TcpStream,);
socket!(ByteStream<F>, F: Family);

/// Two ends of a kernel's connection.
pub(crate) fn kernel_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let client = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
    let (server, _) = listener.accept().expect("it has connected");
    (client, server)
}
