//! What two hosts agree on, what stands in the two queues between them, and how their
//! connection is made: cookies of four queue ends are exchanged, each side reading those
//! of the other once.

use std::time::Duration;

use clan_dsm::{ConnectRequest, Cookie, HostId, Notice, Port, PortAddress, Rights};
use landfall_transport::Wait;

use super::incoming::Incoming;
use super::outgoing::{HEADER, Outgoing, ROOM};

use crate::clan::layer::queue::{Receiver, Sender};
use crate::clan::layer::{Half, queue};
use crate::clan::network::{Aperture, Endpoint, Node};
use crate::clan::{Error, Fabric, Local, WORD};

/// The port at which every host listens.
pub(super) const PORT: u32 = 1;

/// Room for a packet. A super-packet is longer than any MTU.
pub(super) const BUFFER: u64 = ROOM as u64;

/// The same at both ends of a connection: else there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Terms {
    pub(super) mtu: u32,
    /// Buffers at each receiver.
    pub(super) buffers: u32,
}

impl Terms {
    /// Room for all of them.
    pub(super) const fn memory(self) -> u64 {
        BUFFER * self.buffers as u64
    }

    /// Both queues hold two elements for each buffer: they never are what one waits
    /// for, though their receivers tell of what they took only now and then.
    fn queue(self, element: usize) -> queue::Config {
        let (batch, within) = (16, Duration::from_micros(20));
        queue::Config::new(element as u32, 2 * self.buffers).batch(batch, within)
    }

    pub(super) fn cookies(self) -> queue::Config {
        self.queue(Offer::LEN).wait(Wait::Block)
    }

    pub(super) fn completions(self) -> queue::Config {
        self.queue(Completion::LEN).wait(Wait::BALANCED)
    }

    /// What is said when a connection is asked for, and when it is accepted: a cookie,
    /// and these terms.
    pub(super) fn greeting(self, cookie: &Cookie) -> [u8; 40] {
        let mut body = [0; 40];
        body[..Cookie::LEN].copy_from_slice(&cookie.to_bytes());
        body[32..36].copy_from_slice(&self.mtu.to_be_bytes());
        body[36..].copy_from_slice(&self.buffers.to_be_bytes());
        body
    }

    /// The other side's cookie, if its terms are ours.
    pub(super) fn greeted(self, body: &[u8; 40]) -> Result<Cookie, Error> {
        let cookie = cookie_in(body)?;
        if self.greeting(&cookie) != *body {
            return Err(Error::BadConfig(
                "MTU and number of buffers have to be the same at both ends",
            ));
        }
        Ok(cookie)
    }
}

fn cookie_in(bytes: &[u8]) -> Result<Cookie, Error> {
    let mut cookie = [0; Cookie::LEN];
    cookie.copy_from_slice(&bytes[..Cookie::LEN]);
    Ok(Cookie::from_bytes(&cookie)?)
}

fn word_in(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

/// A buffer that may be filled: the cookie of its memory, and where in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Offer {
    pub(super) cookie: Cookie,
    pub(super) at: u64,
}

impl Offer {
    pub(super) const LEN: usize = Cookie::LEN + 8;

    pub(super) fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..Cookie::LEN].copy_from_slice(&self.cookie.to_bytes());
        bytes[Cookie::LEN..].copy_from_slice(&self.at.to_le_bytes());
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8; Self::LEN]) -> Result<Self, Error> {
        Ok(Self { cookie: cookie_in(bytes)?, at: word_in(bytes, Cookie::LEN) })
    }
}

/// A buffer was filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Completion {
    /// Which.
    pub(super) at: u64,
    /// How long the packet is.
    pub(super) len: u16,
    /// What stands in front of it.
    pub(super) header: [u8; HEADER],
}

impl Completion {
    /// Whole words: elements that fill their places are written together.
    pub(super) const LEN: usize = (8 + 2 + HEADER).next_multiple_of(WORD as usize);

    pub(super) fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&self.at.to_le_bytes());
        bytes[8..10].copy_from_slice(&self.len.to_le_bytes());
        bytes[10..10 + HEADER].copy_from_slice(&self.header);
        bytes
    }

    /// No length that can be said is too long for a buffer.
    pub(super) fn from_bytes(bytes: &[u8; Self::LEN]) -> Self {
        let mut header = [0; HEADER];
        header.copy_from_slice(&bytes[10..10 + HEADER]);
        Self { at: word_in(bytes, 0), len: u16::from_le_bytes([bytes[8], bytes[9]]), header }
    }
}

/// Both directions, and the endpoint that tells the other side of their end.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) endpoint: Endpoint,
    pub(super) outgoing: Outgoing,
    pub(super) incoming: Incoming,
    /// The other side reads it once: it stays for as long as the connection.
    pub(super) _greeting: Aperture,
}

/// What stands in the greeting, in this order.
const ENDS: usize = 4;
const GREETING: usize = ENDS * Cookie::LEN;

/// This side's ends, before they know the others.
struct Ends {
    node: Node,
    terms: Terms,
    /// Returns cookies away.
    offers: Half<Node, Sender<Node>>,
    /// Gets cookies of the other side.
    offered: Half<Node, Receiver<Node>>,
    /// Says what was filled there.
    filling: Half<Node, Sender<Node>>,
    /// Receives what was filled here.
    filled: Half<Node, Receiver<Node>>,
    greeting: Aperture,
    cookie: Cookie,
}

impl Ends {
    fn open(node: &Node, terms: Terms) -> Result<Self, Error> {
        let offers = Sender::open(node, terms.cookies())?;
        let offered = Receiver::open(node, terms.cookies())?;
        let filling = Sender::open(node, terms.completions())?;
        let filled = Receiver::open(node, terms.completions())?;
        let (greeting, cookie) = node.expose(GREETING as u64, Rights::Read)?;
        let ends = [offers.cookie(), offered.cookie(), filling.cookie(), filled.cookie()];
        greeting.copy_in(0, &ends.map(Cookie::to_bytes).concat())?;
        let node = node.clone();
        Ok(Self { node, terms, offers, offered, filling, filled, greeting, cookie })
    }

    /// Joins each end with its counterpart.
    async fn join(self, endpoint: Endpoint, theirs: &Cookie) -> Result<Connection, Error> {
        let Self { node, terms, offers, offered, filling, filled, greeting, .. } = self;
        let mut bytes = [0; GREETING];
        let (copy, _) = node.expose(GREETING as u64, Rights::Read)?;
        node.map(theirs)?.read_into(0, &copy, 0..GREETING as u64).await?;
        copy.copy_out(0, &mut bytes)?;
        let nth = |nth: usize| {
            let mut cookie = [0; Cookie::LEN];
            cookie.copy_from_slice(&bytes[nth * Cookie::LEN..][..Cookie::LEN]);
            Cookie::from_bytes(&cookie)
        };
        let (their_offers, their_offered, their_filling, their_filled) =
            (nth(0)?, nth(1)?, nth(2)?, nth(3)?);
        let cookies = offered.connect(&their_offers)?;
        let completions = filling.connect(&their_filled)?;
        let buffers = node.expose(terms.memory(), Rights::Write)?;
        let queues = (offers.connect(&their_offered)?, filled.connect(&their_filling)?);
        Ok(Connection {
            endpoint,
            outgoing: Outgoing::new(node, cookies, completions),
            incoming: Incoming::new(terms, buffers, queues)?,
            _greeting: greeting,
        })
    }
}

/// Asks the listener of another host for a connection. There is a link to it.
pub(super) async fn ask(node: &Node, terms: Terms, host: HostId) -> Result<Connection, Error> {
    let ends = Ends::open(node, terms)?;
    let endpoint = node.endpoint(None)?;
    endpoint.connect(PortAddress { host, port: Port(PORT) }, terms.greeting(&ends.cookie))?;
    loop {
        match endpoint.next().await? {
            Notice::Accepted { body, .. } => {
                let theirs = terms.greeted(&body)?;
                return ends.join(endpoint, &theirs).await;
            }
            Notice::Ended { why: clan_dsm::Ended::There(reason), .. }
            | Notice::Undelivered { reason, .. } => return Err(Error::Refused(reason)),
            Notice::Ended { .. } => return Err(Error::PeerLost),
            _ => {}
        }
    }
}

/// Answers a request.
pub(super) async fn answer(
    node: &Node,
    terms: Terms,
    request: &ConnectRequest,
) -> Result<Connection, Error> {
    let theirs = terms.greeted(&request.body)?;
    let ends = Ends::open(node, terms)?;
    let greeting = terms.greeting(&ends.cookie);
    let endpoint = node.endpoint(None)?;
    let connection = ends.join(endpoint, &theirs).await?;
    connection.endpoint.accept(request, greeting)?;
    Ok(connection)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clan_dsm::{HostId, Key, Rights};

    const TERMS: Terms = Terms { mtu: 1500, buffers: 4 };

    fn cookie() -> Cookie {
        Cookie::new(HostId::new(5).unwrap(), 6, Rights::Write, Key::from_bits(7), 8)
    }

    #[test]
    fn elements_survive_the_journey() {
        let offer = Offer { cookie: cookie(), at: 1504 };
        assert_eq!(Offer::from_bytes(&offer.to_bytes()).unwrap(), offer);
        assert!(Offer::from_bytes(&[0; Offer::LEN]).is_err());
        let completion = Completion { at: 3008, len: 1500, header: [9; HEADER] };
        assert_eq!(Completion::from_bytes(&completion.to_bytes()), completion);
    }

    #[test]
    fn only_equal_terms_are_agreed_on() {
        let body = TERMS.greeting(&cookie());
        assert_eq!(TERMS.greeted(&body).unwrap(), cookie());
        let other = Terms { mtu: 9000, ..TERMS };
        assert!(matches!(other.greeted(&body), Err(Error::BadConfig(_))));
        assert!(TERMS.greeted(&[0; 40]).is_err());
    }
}
