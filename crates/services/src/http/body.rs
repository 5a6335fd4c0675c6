//! What is sent behind a head: nothing, text, or a part of a file, read piece by piece.

use std::fs::File;
use std::future::Future;
use std::io;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::task::{JoinHandle, spawn_blocking};

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
    Ready(Bytes, Option<Rest>),
    /// A task that may block reads.
    Reading(JoinHandle<io::Result<Bytes>>, Rest),
    End,
}

/// What of a file is to be read behind what comes next.
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

    /// This many bytes of a file from here on; reads the first piece, and blocks for that.
    pub(super) fn file(file: File, at: u64, len: u64) -> io::Result<Self> {
        if len == 0 {
            return Ok(Self::empty());
        }
        let first = read(&file, at, len)?;
        let rest = Rest { at: at + first.len() as u64, file: Arc::new(file) };
        Ok(Self { next: Next::Ready(first, Some(rest)), left: len })
    }

    /// The bytes that are here go out; a task reads those behind them meanwhile.
    fn emit(&mut self, bytes: Bytes, rest: Option<Rest>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.left = self.left.saturating_sub(bytes.len() as u64);
        if let Some(Rest { file, at }) = rest.filter(|_| self.left > 0) {
            let (left, next) = (self.left, at + (PIECE as u64).min(self.left));
            let reading = Arc::clone(&file);
            let task = spawn_blocking(move || read(&reading, at, left));
            self.next = Next::Reading(task, Rest { file, at: next });
        }
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }
}

/// One piece. A file that has become shorter is an error: the head has told its length.
fn read(file: &File, at: u64, left: u64) -> io::Result<Bytes> {
    let mut piece = vec![0; (PIECE as u64).min(left) as usize];
    file.read_exact_at(&mut piece, at)?;
    Ok(piece.into())
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
