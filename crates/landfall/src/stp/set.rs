//! [`OperationSet`]: several operations, posted together and awaited as they end.

use std::fmt;
use std::future::Future as _;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::error::Failed;
use super::operation::{Operation, Output};

/// Operations that are under way together, each with a name of the user's. They come out as
/// they end, whatever their order. Dropped, it cancels those that are left.
///
/// ```
/// use landfall::stp::{Memory, OperationSet, Transport, blocking::Endpoint};
///
/// let server = Endpoint::bind(Transport::udp("127.0.0.1:0".parse()?))?;
/// let client = Endpoint::bind(Transport::udp("127.0.0.1:0".parse()?))?;
/// let listener = server.listen(7)?;
/// let connection = client.connect(server.local().unwrap(), 7)?;
/// let there = listener.accept()?;
///
/// let mut sends = OperationSet::new();
/// let mut receives = OperationSet::new();
/// for nth in 0..10u8 {
///     receives.push(nth, there.receive(Memory::zeroed(100)));
///     sends.push(nth, connection.send(vec![nth; 100]));
/// }
/// while let Some((nth, result)) = client.wait(sends.next()) {
///     println!("the {nth}. has arrived: {} bytes", result?.len);
/// }
/// let mut count = 0;
/// while let Some((_, result)) = server.wait(receives.next()) {
///     assert_eq!(result?.len(), 100);
///     count += 1;
/// }
/// assert_eq!(count, 10);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropped, it cancels what is in it"]
pub struct OperationSet<K, T> {
    under_way: Vec<(K, Operation<T>)>,
    /// Where the next look begins, so that none is always first.
    turn: usize,
}

impl<K, T: Output> OperationSet<K, T> {
    /// None.
    pub const fn new() -> Self {
        Self { under_way: Vec::new(), turn: 0 }
    }

    /// Begins one more, now.
    pub fn push(&mut self, name: K, operation: Operation<T>) {
        self.under_way.push((name, operation.start()));
    }

    /// How many are under way.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.under_way.len()
    }

    /// Are there none?
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Waits for the next that is over; nothing where none is left. Dropped, it loses nothing.
    pub async fn next(&mut self) -> Option<(K, Result<T, Failed>)> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<(K, Result<T, Failed>)>> {
        let count = self.under_way.len();
        if count == 0 {
            return Poll::Ready(None);
        }
        self.turn = (self.turn + 1) % count;
        for at in (self.turn..count).chain(0..self.turn) {
            if let Poll::Ready(result) = Pin::new(&mut self.under_way[at].1).poll(cx) {
                let (name, _) = self.under_way.swap_remove(at);
                return Poll::Ready(Some((name, result)));
            }
        }
        Poll::Pending
    }
}

impl<K, T: Output> Default for OperationSet<K, T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K, T> fmt::Debug for OperationSet<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OperationSet").field("under_way", &self.under_way.len()).finish()
    }
}
