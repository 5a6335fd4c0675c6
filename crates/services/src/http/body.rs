//! What is sent behind a head: nothing, text, or a part of a file, read piece by piece.

use std::fs::File;
use std::future::Future;
use std::io::{self, IoSliceMut};
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use rustix::io::{ReadWriteFlags, preadv2};
use tokio::task::{JoinHandle, spawn_blocking};

use super::site::Lookup;

/// This much of a file is in memory at a time, for each response.
pub(super) const PIECE: usize = 128 << 10;

/// The body of a response.
#[derive(Debug)]
pub(super) struct Body {
    /// What comes next.
    next: Next,
    /// What is left, `next` included.
    left: u64,
}

#[derive(Debug)]
enum Next {
    /// Bytes that are here, and where they begin if they are of a file.
    Ready(Bytes, Option<Rest>),
    Unread(Rest),
    /// A task that may block reads.
    Reading(JoinHandle<io::Result<Bytes>>, Rest),
    End,
}

/// What of a file is to be read.
#[derive(Debug)]
struct Rest {
    file: Arc<File>,
    at: u64,
}

impl Body {
    pub(super) const fn empty() -> Self {
        Self { next: Next::End, left: 0 }
    }

    pub(super) fn text(text: impl Into<Bytes>) -> Self {
        let text = text.into();
        Self { left: text.len() as u64, next: Next::Ready(text, None) }
    }

    /// This many bytes of a file from here on; reads the first piece, and blocks for that if it
    /// may.
    pub(super) fn file(file: File, at: u64, len: u64, lookup: Lookup) -> io::Result<Self> {
        if len == 0 {
            return Ok(Self::empty());
        }
        let first = match lookup {
            Lookup::Cached => read_cached(&file, at, len)?,
            Lookup::Blocking => read(&file, at, len)?,
        };
        let rest = Rest { at, file: Arc::new(file) };
        Ok(Self { next: Next::Ready(first, Some(rest)), left: len })
    }

    /// These bytes go out, and then what is behind them where they begin in a file.
    fn emit(&mut self, bytes: Bytes, rest: Option<Rest>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let len = bytes.len() as u64;
        self.left = self.left.saturating_sub(len);
        self.next = match rest {
            Some(Rest { file, at }) if self.left > 0 => Next::Unread(Rest { file, at: at + len }),
            _ => Next::End,
        };
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }
}

impl Rest {
    /// Reads the next piece of what is left, in a task of its own.
    fn start_reading(self, left: u64) -> Next {
        let (file, at) = (Arc::clone(&self.file), self.at);
        Next::Reading(spawn_blocking(move || read(&file, at, left)), self)
    }
}

/// One piece, zeroed.
fn piece(left: u64) -> Vec<u8> {
    vec![0; (PIECE as u64).min(left) as usize]
}

/// One piece. A file that has become shorter is an error: the head has told its length.
fn read(file: &File, at: u64, left: u64) -> io::Result<Bytes> {
    let mut piece = piece(left);
    file.read_exact_at(&mut piece, at)?;
    Ok(piece.into())
}

/// The same where all of it is in the page cache, an error where it is not.
fn read_cached(file: &File, at: u64, left: u64) -> io::Result<Bytes> {
    let mut piece = piece(left);
    let into = &mut [IoSliceMut::new(&mut piece)];
    match preadv2(file, into, at, ReadWriteFlags::NOWAIT)? {
        len if len == piece.len() => Ok(piece.into()),
        _ => Err(io::ErrorKind::WouldBlock.into()),
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match std::mem::replace(&mut self.next, Next::End) {
            Next::Ready(bytes, rest) => self.emit(bytes, rest),
            Next::Unread(rest) => match read_cached(&rest.file, rest.at, self.left) {
                Ok(bytes) => self.emit(bytes, Some(rest)),
                Err(_) => {
                    self.next = rest.start_reading(self.left);
                    self.poll_frame(cx)
                }
            },
            Next::Reading(mut task, rest) => match Pin::new(&mut task).poll(cx) {
                Poll::Pending => {
                    self.next = Next::Reading(task, rest);
                    Poll::Pending
                }
                Poll::Ready(read) => match read.map_err(io::Error::other).and_then(|read| read) {
                    Ok(bytes) => self.emit(bytes, Some(rest)),
                    Err(why) => Poll::Ready(Some(Err(why))),
                },
            },
            Next::End => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.next, Next::End)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    async fn all_of(body: Body) -> Vec<u8> {
        body.collect().await.expect("it can be read").to_bytes().to_vec()
    }

    #[tokio::test]
    async fn what_is_in_memory_is_read_at_once_and_what_is_not_by_a_task() {
        let mut bytes: Vec<u8> = (0..3 * PIECE + 7).map(|at| (at / 251) as u8).collect();
        let path = std::env::temp_dir().join(format!("landfall-body-{}", std::process::id()));
        std::fs::write(&path, &bytes).unwrap();
        let file = File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let len = bytes.len() as u64;
        let rest = Rest { file: Arc::new(file.try_clone().unwrap()), at: 5 };
        for lookup in [Lookup::Cached, Lookup::Blocking] {
            let body = Body::file(file.try_clone().unwrap(), 0, len, lookup).unwrap();
            assert!(all_of(body).await == bytes, "{lookup:?}");
        }
        bytes.drain(..5);
        let body = Body { next: rest.start_reading(len - 5), left: len - 5 };
        assert!(all_of(body).await == bytes);
    }

    #[tokio::test]
    async fn a_file_system_that_always_blocks_is_read_by_a_task() {
        // The kernel makes these bytes up when they are read, and offers no other way.
        let open = || File::open("/proc/version").unwrap();
        let bytes = std::fs::read("/proc/version").unwrap();
        let len = bytes.len() as u64;
        assert!(Body::file(open(), 0, len, Lookup::Cached).is_err());
        assert_eq!(all_of(Body::file(open(), 0, len, Lookup::Blocking).unwrap()).await, bytes);
        let rest = Rest { file: Arc::new(open()), at: 4 };
        let body = Body { next: Next::Unread(rest), left: len - 4 };
        assert_eq!(all_of(body).await, bytes[4..]);
    }

    #[tokio::test]
    async fn a_file_that_has_become_shorter_is_an_error() {
        let rest = Rest { file: Arc::new(File::open("/proc/version").unwrap()), at: 1 << 20 };
        let body = Body { next: Next::Unread(rest), left: 1 };
        assert!(body.collect().await.is_err());
    }
}
