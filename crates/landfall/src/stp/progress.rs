//! [`Progress`]: how far a Transfer is.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use landfall_placement::Duration;

use super::operation::{Operation, Receives, Sent};
use super::state::{Handle, Submission, Ticket};

/// How far a Transfer is, Block by Block: a stream of numbers of bytes, each greater than the
/// one before. [`Operation::progress`] gives it.
///
/// Of a send they are the bytes, from the start, that are in place at the other side and will
/// not be needed again; of a receive, a read or a Get those, from the start, that are in
/// place here. Blocks beyond a gap are not counted before the gap is closed. The last number
/// of an operation that succeeds is all of its bytes, then the stream ends; of one that fails
/// it ends with the last that was known.
///
/// Only what is looked at is counted: without a `Progress` a Transfer tells nobody. Who looks
/// seldom sees the newest number alone.
///
/// ```
/// use landfall::stp::{Memory, Transport, blocking::Endpoint};
///
/// let server = Endpoint::bind(Transport::udp("127.0.0.1:0".parse()?))?;
/// let client = Endpoint::bind(Transport::udp("127.0.0.1:0".parse()?))?;
/// let listener = server.listen(7)?;
/// let connection = client.connect(server.local().unwrap(), 7)?;
/// let sending = connection.send(Memory::zeroed(8 << 20)).start();
///
/// let mut receiving = listener.accept()?.receive(Memory::zeroed(8 << 20));
/// let mut progress = receiving.progress();
/// let mut last = 0;
/// while let Some(bytes) = progress.wait() {
///     assert!(bytes > last);
///     last = bytes;
/// }
/// assert_eq!(last, 8 << 20);
/// receiving.wait()?;
/// sending.wait()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Progress {
    handle: Arc<Handle>,
    ticket: Arc<Ticket>,
    /// The last number that was given.
    seen: u64,
}

impl Progress {
    fn new(handle: &Arc<Handle>, ticket: &Arc<Ticket>) -> Self {
        if ticket.begin_looking() {
            handle.submit(Submission::WatchProgress(Arc::clone(ticket), true));
        }
        Self { handle: Arc::clone(handle), ticket: Arc::clone(ticket), seen: 0 }
    }

    /// How many bytes are in place by now.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.ticket.progress()
    }

    /// The next number, once it is greater than the last one that was given; nothing more
    /// when the operation is over. For those who write a `Stream`.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<u64>> {
        let next = self.ticket.poll_progress(self.seen, cx.waker());
        if let Poll::Ready(Some(bytes)) = next {
            self.seen = bytes;
        }
        next
    }

    /// Waits for the next number; nothing more when the operation is over. May be dropped at
    /// any moment: no number is lost.
    pub async fn next(&mut self) -> Option<u64> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// The same for threads: this one drives the endpoint meanwhile.
    pub fn wait(&mut self) -> Option<u64> {
        let handle = Arc::clone(&self.handle);
        handle.wait_for(self.next())
    }

    /// The same for so long at most. The error: no more bytes came in that time.
    ///
    /// # Errors
    /// [`Stalled`].
    pub fn wait_for(&mut self, limit: Duration) -> Result<Option<u64>, Stalled> {
        let handle = Arc::clone(&self.handle);
        let until = handle.clock.now() + limit;
        handle.wait_until(self.next(), until).ok_or(Stalled)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        let (was_last, wakers) = self.ticket.end_looking();
        if was_last {
            let ticket = Arc::clone(&self.ticket);
            self.handle.submit(Submission::WatchProgress(ticket, false));
        }
        drop(wakers);
    }
}

/// No more bytes of a Transfer came in the time that was allowed for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no more bytes came in that time")]
pub struct Stalled;

impl Operation<Sent> {
    /// How far it is. Begins it, if it has not.
    pub fn progress(&mut self) -> Progress {
        let (handle, ticket) = self.looked_at();
        Progress::new(handle, &ticket)
    }
}

impl<T: Receives> Operation<T> {
    /// How far it is. Begins it, if it has not.
    pub fn progress(&mut self) -> Progress {
        let (handle, ticket) = self.looked_at();
        Progress::new(handle, &ticket)
    }
}
