//! At whom a name is asked for: nodes that there are links with, those of the list, and those
//! that announce the name.
//!
//! Each of them is a candidate, and all are asked at once: one that is mute, or pretends to be
//! somebody else, holds nobody up. Those that announce are bounded, in all and from each address,
//! so that strangers who announce much keep the others from being asked no longer than their
//! handshakes take.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use clan_dsm::LinkId;
use clan_dsm::discovery::Announcement;
use landfall_placement::Peer;
use landfall_seal::Fingerprint;
use landfall_transport::interfaces::is_of_this_host;

use super::ask::{Kind, ask};
use super::discovery::Inquiry;
use super::{Found, fingerprint_of};
use crate::clan::Error;
use crate::clan::names::{Name, named};
use crate::clan::network::neighbour::Link;
use crate::clan::network::node::Node;
use crate::clan::network::state::NodeState;

/// The most candidates that were announced, in all and from one address.
const MOST_ANNOUNCED: usize = 64;
const MOST_OF_ONE_ADDRESS: usize = 8;

type Asking = Pin<Box<dyn Future<Output = Result<Found, Error>> + Send>>;

/// Who may offer the name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    peer: Peer,
    /// Whose key it has to have.
    key: Option<Fingerprint>,
    /// From where it was announced.
    announced: Option<SocketAddr>,
}

/// Finds a name, however long it takes.
pub(super) async fn find(
    node: &Node,
    name: &str,
    key: Option<Fingerprint>,
) -> Result<Found, Error> {
    let mut search = Search::new(node, named(name)?, key);
    poll_fn(|context| search.poll(context)).await
}

struct Search {
    node: Node,
    name: Name,
    /// The key that the user wants.
    key: Option<Fingerprint>,
    inquiry: Option<Arc<Inquiry>>,
    /// Links whose hosts are asked, or were: the engine, and what it calls them.
    links: BTreeSet<(usize, LinkId)>,
    by_link: Vec<Asking>,
    /// The list, and what was announced; nothing is under way where it failed.
    places: Vec<(Place, Option<Asking>)>,
    /// The tick of the discoverer at which what failed was tried last.
    tick: Option<u64>,
}

impl Search {
    fn new(node: &Node, name: Name, key: Option<Fingerprint>) -> Self {
        let discoverer = node.handle().discoverer();
        let inquiry = discoverer.map(|discoverer| discoverer.inquire(&name));
        let listed = discoverer.into_iter().flat_map(|discoverer| discoverer.list().iter());
        let places = listed
            .filter(|(_, listed)| key.is_none() || listed.is_none() || *listed == key)
            .map(|(peer, listed)| {
                (Place { peer: *peer, key: key.or(*listed), announced: None }, None)
            })
            .collect();
        let (links, by_link) = (BTreeSet::new(), Vec::new());
        Self { node: node.clone(), name, key, inquiry, links, by_link, places, tick: None }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Found, Error>> {
        if self.node.handle().has_ended() {
            return Poll::Ready(Err(Error::NodeGone));
        }
        if let Some(inquiry) = self.inquiry.clone() {
            let (tick, heard) = inquiry.take(context.waker());
            heard.iter().for_each(|(said, from)| self.add_announced(said, *from));
            if self.tick != Some(tick) {
                self.tick = Some(tick);
                self.try_places();
            }
        }
        self.ask_new_links(context);
        // One that has failed is forgotten: of its link nothing more comes.
        let mut found = None;
        self.by_link.retain_mut(|asking| match asking.as_mut().poll(context) {
            Poll::Pending => true,
            Poll::Ready(asked) => {
                found = found.take().or(asked.ok());
                false
            }
        });
        // Those that announce themselves do so again; those of the list are tried again.
        self.places.retain_mut(|(place, asking)| {
            let polled = asking.as_mut().map(|asking| asking.as_mut().poll(context));
            let Some(Poll::Ready(asked)) = polled else { return true };
            *asking = None;
            found = found.take().or(asked.ok());
            place.announced.is_none()
        });
        found.map_or(Poll::Pending, |found| Poll::Ready(Ok(found)))
    }

    /// Links that are up, and were not before.
    fn ask_new_links(&mut self, context: &Context<'_>) {
        let handle = self.node.handle();
        let up = handle.engines().iter().enumerate().flat_map(|(nth, engine)| {
            let up: Vec<_> = engine.look(|core| {
                let before = NodeState::watch(&mut core.link_waiters, context.waker());
                core.after.wake.extend(before);
                core.links.iter().filter(|link| link.is_up()).cloned().collect()
            });
            up.into_iter().map(move |neighbour| (nth, neighbour))
        });
        for (nth, neighbour) in up {
            if self.links.insert((nth, neighbour.link)) {
                let link = Link::new(handle.engine(nth), neighbour);
                let (node, name, key) = (self.node.clone(), self.name.clone(), self.key);
                self.by_link.push(Box::pin(async move { ask_at(&node, link, name, key).await }));
            }
        }
    }

    /// A host says that it offers the name. It is believed nothing but where it may be asked.
    fn add_announced(&mut self, said: &Announcement, from: SocketAddr) {
        let said_key = said.fingerprint.map(Fingerprint);
        let is_other = self.key.is_some() && said_key != self.key;
        if is_other || said.host == self.node.host() {
            return;
        }
        for peer in &said.peers {
            let Some(peer) = reached(*peer, from) else { continue };
            let place = Place { peer, key: said_key, announced: Some(from) };
            let count = |is_one: &dyn Fn(&Place) -> bool| {
                self.places.iter().filter(|(place, _)| is_one(place)).count()
            };
            let is_known = |known: &Place| known.peer == peer && known.key == said_key;
            let is_of_address =
                |place: &Place| place.announced.is_some_and(|at| at.ip() == from.ip());
            let is_full = count(&|place| place.announced.is_some()) >= MOST_ANNOUNCED
                || count(&is_of_address) >= MOST_OF_ONE_ADDRESS;
            // Where there is no room, those that are there come to their end first.
            if is_full || count(&is_known) > 0 {
                continue;
            }
            let asking = self.ask_place(&place);
            self.places.push((place, Some(asking)));
        }
    }

    /// Tries again what has failed, for it may have come since.
    fn try_places(&mut self) {
        for at in 0..self.places.len() {
            if self.places[at].1.is_none() {
                let asking = self.ask_place(&self.places[at].0);
                self.places[at].1 = Some(asking);
            }
        }
    }

    fn ask_place(&self, place: &Place) -> Asking {
        let (node, name, place) = (self.node.clone(), self.name.clone(), place.clone());
        let is_wanted = self.key.is_some();
        Box::pin(async move { ask_anew(&node, name, &place, is_wanted).await })
    }
}

/// Where it is reached that announced itself from there.
fn reached(peer: Peer, from: SocketAddr) -> Option<Peer> {
    let Peer::Socket(mut socket) = peer else { return Some(peer) };
    if socket.ip().is_unspecified() {
        // All of its addresses: of these it has used one.
        socket.set_ip(from.ip());
    } else if socket.ip().is_loopback() && !is_of_this_host(from.ip()) {
        return None;
    }
    Some(Peer::Socket(socket))
}

/// Asks a host that may have no link with this one yet. A link that leads to nobody who offers
/// the name is closed again.
async fn ask_anew(node: &Node, name: Name, place: &Place, is_wanted: bool) -> Result<Found, Error> {
    if let Some(link) = node.link_with(place.peer) {
        link.up().await?;
        return ask_at(node, link, name, place.key).await;
    }
    let link = match place.key {
        Some(key) => match node.link_pinned(place.peer, key) {
            // On the host itself nothing is encrypted, unless it is wanted.
            Err(Error::NotEncrypted { .. }) if !is_wanted => node.link(place.peer)?,
            linked => linked?,
        },
        None => node.link(place.peer)?,
    };
    let mut opened = CloseOnDrop(Some(link.clone()));
    link.up().await?;
    let found = ask_at(node, link, name, place.key).await?;
    opened.0 = None;
    Ok(found)
}

/// Waits until the host at the other end offers the name.
async fn ask_at(
    node: &Node,
    link: Link,
    name: Name,
    key: Option<Fingerprint>,
) -> Result<Found, Error> {
    let host = link.host().ok_or(Error::PeerLost)?;
    let proven = fingerprint_of(link.peer_identity());
    if key.is_some() && link.is_encrypted() && proven != key {
        return Err(Error::NotProven { peer: link.peer().unwrap_or_default() });
    }
    let handle = node.handle().clone();
    ask(&handle, (host, Kind::Await), &name, &[]).await?;
    Ok(Found { handle, link, host, name })
}

/// A link that was opened to ask.
struct CloseOnDrop(Option<Link>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        if let Some(link) = self.0.take() {
            link.close();
        }
    }
}
