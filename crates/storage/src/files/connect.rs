//! How clients and servers meet: at a port of a node, over a network, or by a name, within a host.
//!
//! Both say the same to each other: the cookie of the memory in which they want to be written to,
//! and how much room for data it has.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use landfall::clan::network::{
    Body, ConnectRequest, Endpoint, Node, Notice, Port, PortAddress, Reason,
};
use landfall::clan::shared::{Admit, NameRequest, Offer, SharedConfig, SharedNode};
use landfall::clan::{Cookie, Error};
use landfall_files::{Errno, Layout};

use super::channel::{Channel, Connection, Half};
use super::client::Client;
use super::server::{Server, ServerState};
use super::{FilesError, Options};

/// What begins a greeting of this protocol.
const MAGIC: [u8; 4] = *b"FIL1";

/// How long a thread waits for a client before it looks whether the server has ended.
const SLICE: Duration = Duration::from_millis(200);

/// A cookie, what protocol it is for, and how much data it has room for.
fn greeting(cookie: &Cookie, layout: Layout) -> Body {
    let mut body = [0; 40];
    body[..32].copy_from_slice(&cookie.to_bytes());
    body[32..36].copy_from_slice(&MAGIC);
    body[36..].copy_from_slice(&layout.data().to_le_bytes());
    body
}

fn greeted(body: &[u8]) -> Result<(Cookie, u32), Error> {
    let body: &[u8; 40] = body.try_into().map_err(|_| Error::BadConfig(NOT_OURS))?;
    let (cookie, rest) = body.split_at(32);
    let (magic, data) = rest.split_at(4);
    if magic != MAGIC {
        return Err(Error::BadConfig(NOT_OURS));
    }
    let data = u32::from_le_bytes(data.try_into().unwrap_or_default());
    Ok((Cookie::from_bytes(&cookie.try_into().map_err(|_| Error::BadConfig(NOT_OURS))?)?, data))
}

const NOT_OURS: &str = "a greeting is not one of the protocol of files";

/// A connection of two endpoints.
struct Connected(Endpoint);

impl Connection for Connected {
    fn is_over(&self) -> bool {
        while let Some(notice) = self.0.try_next() {
            if matches!(notice, Notice::Disconnected { .. }) || notice.is_last() {
                return true;
            }
        }
        false
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        // The other side learns that it is over; where there is no room it learns that it broke.
        let _ = self.0.disconnect([0; 40]);
    }
}

/// Two processes of a host: the memory that they share tells when one is gone.
struct SameHost;

impl Connection for SameHost {
    fn is_over(&self) -> bool {
        false
    }
}

impl Client {
    /// Connects to a server at a port of a node, to which there is a link already.
    ///
    /// # Errors
    /// There is no link, nobody listens there, or the server refuses.
    pub fn connect(node: &Node, to: PortAddress, options: &Options) -> Result<Self, FilesError> {
        Self::over(options, |layout| {
            let half = Half::open(node, layout)?;
            let endpoint = node.endpoint(None)?;
            endpoint.connect(to, greeting(&half.cookie, layout))?;
            let deadline = Some(Instant::now() + options.patience);
            let body = loop {
                match endpoint.wait_next(deadline)?.ok_or(Error::TimedOut)? {
                    Notice::Accepted { body, .. } => break body,
                    Notice::Undelivered { reason, .. } => {
                        return Err(Error::Refused(reason).into());
                    }
                    notice if notice.is_last() => {
                        return Err(Error::Refused(Reason::Refused).into());
                    }
                    _ => {}
                }
            };
            let (theirs, _) = greeted(&body)?;
            Ok(half.join(&theirs, options.spin, Box::new(Connected(endpoint)))?)
        })
    }

    /// Connects to a server in another process of this host, by the name that it
    /// [listens](Server::listen_on_host) at in this folder.
    ///
    /// # Errors
    /// Nobody offers that name, or the server refuses.
    pub fn connect_on_host(
        folder: &Path,
        name: &str,
        options: &Options,
    ) -> Result<Self, FilesError> {
        let node = SharedNode::open(SharedConfig::new(folder))?;
        let found = node.find(name, Some(Instant::now() + options.patience.min(FIND)))?;
        Self::over(options, |layout| {
            let half = Half::open(&node, layout)?;
            let deadline = Some(Instant::now() + options.patience);
            let answer = found.ask(&greeting(&half.cookie, layout), deadline)?;
            let (theirs, _) = greeted(&answer)?;
            Ok(half.join(&theirs, options.spin, Box::new(SameHost))?)
        })
    }
}

/// How long a client waits for a name that nobody offers yet.
const FIND: Duration = Duration::from_secs(2);

impl Server {
    /// Answers clients at a port of this node, until the server ends.
    ///
    /// # Errors
    /// The port is taken.
    pub fn listen(&self, node: &Node, port: Port) -> Result<(), FilesError> {
        let endpoint = node.endpoint(Some(port))?;
        endpoint.listen()?;
        let node = node.clone();
        self.shared().spawn(move |shared| {
            while !shared.is_over() {
                match endpoint.wait_next(Some(Instant::now() + SLICE)) {
                    Ok(Some(Notice::Request(request))) => {
                        accept(shared, &node, &endpoint, &request);
                    }
                    Ok(_) => {}
                    // The node has ended, and nobody comes any more.
                    Err(_) => return,
                }
            }
        })
    }

    /// Answers clients in other processes of this host that find this name in this folder, of the
    /// same user and of the superuser, until the server ends.
    ///
    /// # Errors
    /// The folder is not there, or the name is taken.
    pub fn listen_on_host(&self, folder: &Path, name: &str) -> Result<(), FilesError> {
        self.listen_on_host_to(folder, name, Admit::SameUser)
    }

    /// The same for these processes.
    ///
    /// # Errors
    /// Those of [`listen_on_host`](Self::listen_on_host).
    pub fn listen_on_host_to(
        &self,
        folder: &Path,
        name: &str,
        admit: Admit,
    ) -> Result<(), FilesError> {
        let config = SharedConfig { admit: admit.clone(), ..SharedConfig::new(folder) };
        let node = SharedNode::open(config)?;
        let offer: Offer = node.offer_to(name, admit)?;
        self.shared().spawn(move |shared| {
            while !shared.is_over() {
                match offer.accept(Some(Instant::now() + SLICE)) {
                    Ok(request) => accept_on_host(shared, &node, request),
                    Err(Error::TimedOut) => {}
                    // The node has ended.
                    Err(_) => return,
                }
            }
        })
    }
}

/// A client at a port. One that cannot be served is told so.
fn accept(shared: &Arc<ServerState>, node: &Node, listener: &Endpoint, request: &ConnectRequest) {
    let accepted = half_for(shared, node, &request.body).and_then(|(half, theirs, layout)| {
        let place = shared.place().ok_or(Errno::new(11)).map_err(FilesError::Refused)?;
        let endpoint = node.endpoint(None)?;
        let body = greeting(&half.cookie, layout);
        let channel: Channel<Node> =
            half.join(&theirs, shared.spin(), Box::new(Connected(endpoint.clone())))?;
        endpoint.accept(request, body)?;
        shared.serve(place, channel)
    });
    if let Err(error) = accepted {
        let reason = match error {
            FilesError::Clan(Error::Mismatch { .. } | Error::NoCookie(_) | Error::BadConfig(_)) => {
                Reason::Malformed
            }
            _ => Reason::NoRoom,
        };
        // One that is gone hears nothing.
        let _ = listener.refuse(request, reason, [0; 40]);
    }
}

/// The memory for a client that sends this greeting.
fn half_for<F: landfall::clan::Fabric>(
    shared: &ServerState,
    fabric: &F,
    body: &[u8],
) -> Result<(Half<F>, Cookie, Layout), FilesError> {
    let (theirs, data) = greeted(body)?;
    let layout = shared.layout(data).map_err(FilesError::Refused)?;
    Ok((Half::open(fabric, layout)?, theirs, layout))
}

/// A client that has found the name; one that cannot be served is refused by the drop of its
/// request.
fn accept_on_host(shared: &Arc<ServerState>, node: &SharedNode, request: NameRequest) {
    let Ok((half, theirs, layout)) = half_for(shared, node, request.greeting()) else {
        // It is refused.
        return;
    };
    let Some(place) = shared.place() else {
        // Likewise.
        return;
    };
    let answer = greeting(&half.cookie, layout);
    if let Ok(channel) = half.join(&theirs, shared.spin(), Box::new(SameHost))
        && request.answer(&answer).is_ok()
    {
        // Without a thread its memory goes, which the client notices.
        let _ = shared.serve(place, channel);
    }
}
