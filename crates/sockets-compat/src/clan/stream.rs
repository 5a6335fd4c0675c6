//! The two directions of a stream over shared memory.

use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use landfall::clan::layer::stream::{Reader, Stream, Writer};
use landfall::clan::{Error, Fabric};

use crate::address::Address;
use crate::duplex::{Duplex, Sink, Source};
use crate::errors;
use crate::waiting::poll_once;

/// A stream, and what has to be there for as long.
pub(super) struct Joined<F: Fabric> {
    pub(super) stream: Stream<F>,
    pub(super) keep: Arc<dyn Send + Sync>,
}

/// A socket of a stream.
pub(super) fn duplex<F>(joined: Joined<F>, local: Address, peer: Address) -> Arc<Duplex>
where
    F: Fabric + Send,
    Reader<F>: Send,
    Writer<F>: Send,
{
    let Joined { stream, keep } = joined;
    let (reader, writer) = stream.into_split();
    let source = Box::new(ClanSource { reader, _keep: Arc::clone(&keep) });
    let sink = Box::new(ClanSink { writer, _keep: keep });
    Duplex::new((source, sink), local, peer)
}

/// What comes. What it needs goes behind it.
struct ClanSource<F: Fabric> {
    reader: Reader<F>,
    _keep: Arc<dyn Send + Sync>,
}

/// What goes.
struct ClanSink<F: Fabric> {
    writer: Writer<F>,
    _keep: Arc<dyn Send + Sync>,
}

/// As a socket would say it.
fn failed(error: Error) -> io::Error {
    match error {
        Error::PeerLost | Error::Refused(_) | Error::StaleCookie => errors::reset(),
        Error::Closed | Error::NodeGone => errors::broken_pipe(),
        other => other.into(),
    }
}

impl<F> Source for ClanSource<F>
where
    F: Fabric + Send,
    Reader<F>: Send,
{
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        into: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut filled = 0;
        for buffer in into.iter_mut().filter(|buffer| !buffer.is_empty()) {
            let read = if filled > 0 {
                // What goes wrong behind bytes that are here is told by the next read.
                self.reader.try_read(buffer).unwrap_or(None).unwrap_or(0)
            } else {
                // Dropped, this future loses nothing: its waker stays.
                match ready!(poll_once(cx, self.reader.read_some_async(buffer))) {
                    Ok(read) => read,
                    Err(Error::Closed) => return Poll::Ready(Ok(0)),
                    Err(error) => return Poll::Ready(Err(failed(error))),
                }
            };
            filled += read;
            if read < buffer.len() {
                break;
            }
        }
        Poll::Ready(Ok(filled))
    }
}

impl<F> Sink for ClanSink<F>
where
    F: Fabric + Send,
    Writer<F>: Send,
{
    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        from: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut taken = 0;
        for buffer in from.iter().filter(|buffer| !buffer.is_empty()) {
            let mut rest = &buffer[..];
            while !rest.is_empty() {
                let written = if taken > 0 {
                    self.writer.try_write(rest).unwrap_or(None).unwrap_or(0)
                } else {
                    let written = poll_once(cx, self.writer.write_some_async(rest));
                    match ready!(written) {
                        Ok(written) => written,
                        Err(error) => return Poll::Ready(Err(failed(error))),
                    }
                };
                if written == 0 {
                    return self.on_its_way(cx, taken);
                }
                taken += written;
                rest = &rest[written..];
            }
        }
        self.on_its_way(cx, taken)
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        poll_once(cx, self.writer.flush_async()).map_err(failed)
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        poll_once(cx, self.writer.finish_async()).map_err(failed)
    }
}

impl<F> ClanSink<F>
where
    F: Fabric + Send,
    Writer<F>: Send,
{
    /// What could not be published yet is, when there is room on the way: nobody has to
    /// flush for that.
    fn on_its_way(&mut self, cx: &mut Context<'_>, taken: usize) -> Poll<io::Result<usize>> {
        let _ = self.poll_flush(cx);
        Poll::Ready(Ok(taken))
    }
}
