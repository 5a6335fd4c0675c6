//! The two directions of a stream over shared memory, on this host or across hosts.

use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use landfall::clan::layer::stream::{Reader, Stream, Writer};
use landfall::clan::{Error, Fabric};

use crate::address::Address;
use crate::duplex::{Duplex, Sink, Source};
use crate::errors;
use crate::linger::see_off;
use crate::listener::Accept;
use crate::waiting::poll_once;

/// A stream, and what has to be there for as long.
pub(super) struct Joined<F: Fabric> {
    pub(super) stream: Stream<F>,
    pub(super) keep: Arc<dyn Send + Sync>,
    /// The longest message that the other side takes, where messages are what it is for.
    pub(super) most: u64,
    /// How long last bytes may take.
    pub(super) linger: Duration,
    /// Does it take time until what was written is there?
    pub(super) is_distant: bool,
}

/// Both directions of a connection that was made.
pub(super) struct Ends {
    pub(super) source: Box<dyn Source>,
    pub(super) sink: Box<dyn Sink>,
    pub(super) local: Address,
    pub(super) peer: Address,
    pub(super) most: u64,
    pub(super) linger: Duration,
}

impl Ends {
    pub(super) fn new<F>(joined: Joined<F>, local: Address, peer: Address) -> Self
    where
        F: Fabric + Send,
        Reader<F>: Send,
        Writer<F>: Send,
    {
        let Joined { stream, keep, most, linger, is_distant } = joined;
        let (reader, writer) = stream.into_split();
        let last = is_distant.then_some(linger);
        let source = ClanSource(Some(KeptEnd { end: reader, _keep: Arc::clone(&keep) }), last);
        let sink = ClanSink(Some(KeptEnd { end: writer, _keep: keep }), last);
        Self { source: Box::new(source), sink: Box::new(sink), local, peer, most, linger }
    }

    pub(super) fn duplex(self) -> Arc<Duplex> {
        Duplex::new((self.source, self.sink), self.local, self.peer)
    }
}

/// Where connections come in.
pub(super) trait Arrivals: Send {
    fn poll_ends(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Ends>>;
}

/// Of which each becomes a stream.
pub(super) struct Streams<A>(pub(super) A);

impl<A: Arrivals> Accept<Duplex> for Streams<A> {
    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Arc<Duplex>>> {
        self.0.poll_ends(cx).map_ok(Ends::duplex)
    }
}

/// One direction. What it needs goes behind it.
struct KeptEnd<E> {
    end: E,
    _keep: Arc<dyn Send + Sync>,
}

/// What comes; and how long its last word may take, where that takes time.
struct ClanSource<F>(Option<KeptEnd<Reader<F>>>, Option<Duration>)
where
    F: Fabric + Send,
    Reader<F>: Send;

/// What goes; likewise.
struct ClanSink<F>(Option<KeptEnd<Writer<F>>>, Option<Duration>)
where
    F: Fabric + Send,
    Writer<F>: Send;

/// As a socket would say it.
pub(super) fn failed(error: Error) -> io::Error {
    match error {
        gone if gone.is_gone() => errors::reset(),
        Error::Closed | Error::NodeGone => errors::broken_pipe(),
        other => other.into(),
    }
}

impl<F> ClanSource<F>
where
    F: Fabric + Send,
    Reader<F>: Send,
{
    fn reader(&mut self) -> io::Result<&mut Reader<F>> {
        self.0.as_mut().map(|leaving| &mut leaving.end).ok_or_else(errors::broken_pipe)
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
        let reader = self.reader()?;
        let mut filled = 0;
        for buffer in into.iter_mut().filter(|buffer| !buffer.is_empty()) {
            let read = if filled > 0 {
                // What goes wrong behind bytes that are here is told by the next read.
                reader.try_read(buffer).unwrap_or(None).unwrap_or(0)
            } else {
                // Dropped, this future loses nothing: its waker stays.
                match ready!(poll_once(cx, reader.read_some_async(buffer))) {
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

/// Over shared memory the other side knows at once. Over a network it has to be seen to,
/// behind the socket, that it hears of the end though the way is full just now.
impl<F> Drop for ClanSource<F>
where
    F: Fabric + Send,
    Reader<F>: Send,
{
    fn drop(&mut self) {
        if let (Some(mut leaving), Some(linger)) = (self.0.take(), self.1) {
            see_off(linger, async move {
                // Who is gone needs not be told.
                let _ = leaving.end.close_async().await;
                drop(leaving);
            });
        }
    }
}

impl<F> ClanSink<F>
where
    F: Fabric + Send,
    Writer<F>: Send,
{
    fn writer(&mut self) -> io::Result<&mut Writer<F>> {
        self.0.as_mut().map(|leaving| &mut leaving.end).ok_or_else(errors::broken_pipe)
    }

    /// What could not be published yet is, when there is room on the way: nobody has to
    /// flush for that.
    fn on_its_way(&mut self, cx: &mut Context<'_>, taken: usize) -> Poll<io::Result<usize>> {
        let _ = self.poll_flush(cx);
        Poll::Ready(Ok(taken))
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
                    self.writer()?.try_write(rest).unwrap_or(None).unwrap_or(0)
                } else {
                    let written = poll_once(cx, self.writer()?.write_some_async(rest));
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
        poll_once(cx, self.writer()?.flush_async()).map_err(failed)
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        poll_once(cx, self.writer()?.finish_async()).map_err(failed)
    }
}

/// What was written, and the end behind it, arrives though the socket is gone: until then
/// this side's memory and node stay.
impl<F> Drop for ClanSink<F>
where
    F: Fabric + Send,
    Writer<F>: Send,
{
    fn drop(&mut self) {
        if let (Some(mut leaving), Some(linger)) = (self.0.take(), self.1) {
            see_off(linger, async move {
                if leaving.end.finish_async().await.is_ok() {
                    let _ = leaving.end.delivered_async().await;
                }
                drop(leaving);
            });
        }
    }
}
