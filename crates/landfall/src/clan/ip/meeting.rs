//! How a connection is made: cookies of four queue ends are exchanged, each side
//! reading those of the other once.

use std::time::Instant;

use clan_dsm::{ConnectRequest, Cookie, HostId, Notice, Port, PortAddress, Rights};

use super::incoming::Incoming;
use super::outgoing::Outgoing;
use super::terms::{PORT, Terms};
use crate::clan::layer::Half;
use crate::clan::layer::queue::{Receiver, Sender};
use crate::clan::network::{Aperture, Endpoint, Node};
use crate::clan::{Error, Fabric, Local, Remote};

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
    /// Gives cookies away.
    offers: Half<Node, Sender<Node>>,
    /// Gets cookies of the other side.
    offered: Half<Node, Receiver<Node>>,
    /// Says what was filled there.
    filling: Half<Node, Sender<Node>>,
    /// Hears what was filled here.
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
    fn join(
        self,
        endpoint: Endpoint,
        theirs: &Cookie,
        deadline: Instant,
    ) -> Result<Connection, Error> {
        let Self { node, terms, offers, offered, filling, filled, greeting, .. } = self;
        let mut bytes = [0; GREETING];
        node.map(theirs)?.read(0, &mut bytes, Some(deadline))?;
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

/// Asks the doorman of another host for a connection. There is a link to it.
pub(super) fn ask(
    node: &Node,
    terms: Terms,
    host: HostId,
    deadline: Instant,
) -> Result<Connection, Error> {
    let ends = Ends::open(node, terms)?;
    let endpoint = node.endpoint(None)?;
    endpoint.connect(PortAddress { host, port: Port(PORT) }, terms.greeting(&ends.cookie))?;
    loop {
        match endpoint.wait_next(Some(deadline))?.ok_or(Error::TimedOut)? {
            Notice::Accepted { body, .. } => {
                let theirs = terms.greeted(&body)?;
                return ends.join(endpoint, &theirs, deadline);
            }
            Notice::Ended { why: clan_dsm::Ended::There(reason), .. }
            | Notice::Undelivered { reason, .. } => return Err(Error::Refused(reason)),
            Notice::Ended { .. } => return Err(Error::PeerLost),
            _ => {}
        }
    }
}

/// Answers one who asked.
pub(super) fn answer(
    node: &Node,
    terms: Terms,
    request: &ConnectRequest,
    deadline: Instant,
) -> Result<Connection, Error> {
    let theirs = terms.greeted(&request.body)?;
    let ends = Ends::open(node, terms)?;
    let greeting = terms.greeting(&ends.cookie);
    let endpoint = node.endpoint(None)?;
    let connection = ends.join(endpoint, &theirs, deadline)?;
    connection.endpoint.accept(request, greeting)?;
    Ok(connection)
}
