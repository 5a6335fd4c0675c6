//! Streams of messages that come in the order in which they were sent.

use std::collections::BTreeMap;

use super::connection::{Connection, Offer};
use super::error::Error;
use super::memory::Payload;
use super::operation::{Operation, Sent};

/// Sends Transfers that an [`OrderedReceiver`] gives in the order of these calls.
///
/// Their numbers are the four bytes ([`Operation::opaque`]) of each, so both sides of a
/// connection use the pair for all Transfers of that direction, or for none. A Transfer that
/// is cancelled or fails leaves a gap, behind which nothing comes: close the connection then.
///
/// ```
/// use landfall::stp::{Memory, OrderedReceiver, OrderedSender, Transport, blocking::Endpoint};
///
/// let server = Endpoint::bind(Transport::udp("127.0.0.1:0".parse()?))?;
/// let client = Endpoint::bind(Transport::udp("127.0.0.1:0".parse()?))?;
/// let listener = server.listen(7)?;
/// let connection = client.connect(server.local().unwrap(), 7)?;
/// let mut sender = OrderedSender::new(connection.as_async());
/// let mut receiver = OrderedReceiver::new(listener.accept()?.as_async());
///
/// let sending = [sender.send("one").start(), sender.send("two").start()];
/// for expected in ["one", "two"] {
///     let offer = server.wait(receiver.offer())?;
///     let memory = Memory::zeroed(offer.len() as usize);
///     assert_eq!(&*offer.accept(memory).wait()?, expected.as_bytes());
/// }
/// for sent in sending {
///     sent.wait()?;
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct OrderedSender {
    connection: Connection,
    next: u32,
}

impl OrderedSender {
    /// Of a connection on which nothing else is sent.
    #[must_use]
    pub fn new(connection: &Connection) -> Self {
        Self { connection: connection.clone(), next: 0 }
    }

    /// The next message. It is under way beside those before it.
    pub fn send(&mut self, payload: impl Into<Payload>) -> Operation<Sent> {
        let number = self.next;
        self.next = number.wrapping_add(1);
        self.connection.send(payload).opaque(number)
    }
}

/// Returns what an [`OrderedSender`] sends in the order in which it was sent, whatever the
/// network makes of it.
#[derive(Debug)]
pub struct OrderedReceiver {
    connection: Connection,
    next: u32,
    /// Came before their turn. They are no more than the slots of a connection.
    early: BTreeMap<u32, Offer>,
}

impl OrderedReceiver {
    /// Of a connection on which nothing else is received.
    #[must_use]
    pub fn new(connection: &Connection) -> Self {
        Self { connection: connection.clone(), next: 0, early: BTreeMap::new() }
    }

    /// The next message, for which memory is to be found. The one behind it can be asked for
    /// while this is still under way. Dropped while it waits, it loses nothing.
    ///
    /// # Errors
    /// [`Error::Closed`] where none will come.
    pub async fn offer(&mut self) -> Result<Offer, Error> {
        loop {
            if let Some(offer) = self.early.remove(&self.next) {
                self.next = self.next.wrapping_add(1);
                return Ok(offer);
            }
            let offer = self.connection.offer().await?;
            self.early.insert(offer.opaque(), offer);
        }
    }
}
