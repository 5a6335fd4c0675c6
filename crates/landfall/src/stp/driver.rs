//! [`EndpointDriver`]: the turns of an endpoint that has no thread of its own.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use super::state::EndpointState;
use crate::runtime::{ReactorHandle, TurnReport};

/// Makes the turns of an endpoint, in a reactor of your own: `poll`, `epoll`, mio, the loop of
/// a graphical toolkit. [`Builder::bind_without_thread`](super::Builder::bind_without_thread)
/// gives it, with the endpoint.
///
/// Its descriptor is readable when there is something to do: a packet came, a path has room
/// again, a timer is due, or a handle asked for something. Then call [`turn`](Self::turn); after
/// that, look at what you wait for. Futures of the endpoint need no executor for that:
///
/// ```
/// use std::future::Future;
/// use std::pin::pin;
/// use std::task::{Context, Poll, Waker};
///
/// use landfall::stp::{Endpoint, Memory, Transport};
/// use rustix::event::{PollFd, PollFlags, poll};
///
/// let local = "127.0.0.1:0".parse()?;
/// let (server, serving) = Endpoint::builder().path(Transport::udp(local)).bind_without_thread()?;
/// let (client, sending) = Endpoint::builder().path(Transport::udp(local)).bind_without_thread()?;
/// let (listener, to) = (server.listen(7)?, server.local().unwrap());
///
/// let mut conversation = pin!(async {
///     let connection = client.connect(to, 7).await?;
///     let sent = connection.send("every byte has its place").start();
///     let message = listener.accept().await?.receive(Memory::zeroed(100)).await?;
///     sent.await?;
///     Ok::<_, landfall::stp::Error>(message)
/// });
/// let mut context = Context::from_waker(Waker::noop());
/// let message = loop {
///     if let Poll::Ready(message) = conversation.as_mut().poll(&mut context) {
///         break message?;
///     }
///     let flags = PollFlags::IN;
///     poll(&mut [PollFd::new(&serving, flags), PollFd::new(&sending, flags)], None)?;
///     serving.turn();
///     sending.turn();
/// };
/// assert_eq!(&*message, b"every byte has its place");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Handles may be used on any thread: what they ask for leaves on theirs, and makes the
/// descriptor readable where more is to be done. Who waits in a [`blocking`](super::blocking)
/// handle makes turns as well. Who forgets to make turns loses nothing but time: what came
/// waits in the kernel, what is due is done late, and what the network or the other side lose
/// over it is sent again, until the other side gives this one up.
///
/// The driver keeps the endpoint from nothing: when the last of the other handles is dropped
/// the endpoint closes its connections, and turns have to be made until
/// [`TurnReport::is_over`]. Where the driver is dropped before, they are ended at once.
#[derive(Debug)]
pub struct EndpointDriver(ReactorHandle<EndpointState>);

impl EndpointDriver {
    pub(crate) const fn new(turns: ReactorHandle<EndpointState>) -> Self {
        Self(turns)
    }

    /// Does what is due now, and never waits: takes what came, sends what there is room for,
    /// lets timers fire. It stops after some turns though more is to be done; then the
    /// descriptor stays readable.
    pub fn turn(&self) -> TurnReport {
        self.0.turn()
    }
}

/// Readable when [`turn`](EndpointDriver::turn) has something to do. It may be readable for
/// once though there is nothing. It is for waiting only, and stays the same.
impl AsFd for EndpointDriver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for EndpointDriver {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}
