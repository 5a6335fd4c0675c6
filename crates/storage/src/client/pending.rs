//! [`Pending`]: an operation that was asked for.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use landfall_nbd::Extent;

use super::{Client, Error};

/// What an operation and those who wait for it share.
pub(super) struct Operation(Mutex<Data>);

pub(super) struct Data {
    /// What is read comes here.
    pub(super) buffer: Vec<u8>,
    /// What is written, for as long as somebody may send it: a reply may overtake the end of the
    /// call that sends.
    pub(super) sent: Option<Arc<Vec<u8>>>,
    pub(super) extents: Vec<Extent>,
    /// Bytes of a read that have not come.
    pub(super) unread: usize,
    result: Option<Result<(), Error>>,
    ended: Option<Instant>,
    waker: Option<Waker>,
}

impl Operation {
    pub(super) fn new(buffer: Vec<u8>) -> Self {
        let (extents, result) = (Vec::new(), None);
        let (sent, unread, ended, waker) = (None, 0, None, None);
        Self(Mutex::new(Data { buffer, sent, extents, unread, result, ended, waker }))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Data> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn finish(&self, result: Result<(), Error>) {
        let mut data = self.lock();
        data.result = Some(result);
        data.ended = Some(Instant::now());
        let waker = data.waker.take();
        drop(data);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn take<T: Outcome>(&self) -> Option<Result<T, Error>> {
        let mut data = self.lock();
        let result = data.result.take()?;
        Some(result.map(|()| T::of(&mut data)))
    }
}

/// What an operation gives.
pub trait Outcome: sealed::Sealed {}

mod sealed {
    use super::Data;

    pub trait Sealed: Sized {
        #[expect(private_interfaces, reason = "nobody else calls it")]
        fn of(data: &mut Data) -> Self;
    }
}

macro_rules! outcome {
    ($type:ty, |$data:ident| $of:expr) => {
        impl Outcome for $type {}
        impl sealed::Sealed for $type {
            #[expect(private_interfaces, reason = "nobody else calls it")]
            fn of($data: &mut Data) -> Self {
                $of
            }
        }
    };
}

outcome!((), |_data| ());
outcome!(Vec<u8>, |data| match data.sent.take() {
    // A reply that came before the sender knew that it had sent everything.
    Some(sent) => Arc::try_unwrap(sent).unwrap_or_else(|sent| sent.to_vec()),
    None => std::mem::take(&mut data.buffer),
});
outcome!(Vec<Extent>, |data| std::mem::take(&mut data.extents));

/// An operation that was asked for: a future, and something to wait for. Dropped, it is
/// carried out all the same, and nobody hears how it went.
#[must_use = "how it goes is told to those who wait"]
pub struct Pending<T> {
    /// Keeps the connection.
    client: Client,
    state: Result<Arc<Operation>, Option<Error>>,
    outcome: PhantomData<fn() -> T>,
}

impl<T: Outcome> Pending<T> {
    pub(super) fn of(client: &Client, operation: Arc<Operation>) -> Self {
        Self { client: client.clone(), state: Ok(operation), outcome: PhantomData }
    }

    pub(super) fn refused(client: &Client, error: Error) -> Self {
        Self { client: client.clone(), state: Err(Some(error)), outcome: PhantomData }
    }

    /// Waits until it is over.
    ///
    /// # Errors
    /// How it failed.
    pub fn wait(self) -> Result<T, Error> {
        self.wait_with_time().0
    }

    /// The same, and when it was over: that may be long before somebody waits.
    pub fn wait_with_time(mut self) -> (Result<T, Error>, Instant) {
        let operation = match &mut self.state {
            Ok(operation) => Arc::clone(operation),
            Err(error) => {
                let error = error.take().unwrap_or_else(|| Error::Gone("it is over".into()));
                return (Err(error), Instant::now());
            }
        };
        let shared = &self.client.shared;
        shared.send();
        let mut state = shared.state();
        loop {
            if let Some(result) = operation.take() {
                let ended = operation.lock().ended.unwrap_or_else(Instant::now);
                return (result, ended);
            }
            state = if state.input.is_some() {
                shared.receive(state)
            } else {
                shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
            };
        }
    }

    /// Is it over?
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.state.as_ref().map_or(true, |operation| operation.lock().result.is_some())
    }
}

impl<T: Outcome> Future for Pending<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let operation = match &mut self.state {
            Ok(operation) => Arc::clone(operation),
            Err(error) => {
                return Poll::Ready(Err(error.take().expect("it is polled after its end")));
            }
        };
        {
            let mut data = operation.lock();
            if data.result.is_none() {
                data.waker = Some(cx.waker().clone());
            }
        }
        if let Some(result) = operation.take() {
            self.state = Err(None);
            return Poll::Ready(result);
        }
        let shared = &self.client.shared;
        shared.send();
        shared.start_thread();
        Poll::Pending
    }
}

impl<T> std::fmt::Debug for Pending<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pending").finish_non_exhaustive()
    }
}
