//! [`Endpoint`]: an endpoint of libfabric, with its connections.

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use crate::abi::{FI_ECANCELED, FI_ECONNRESET, FI_ENOMSG};
use crate::address::Name;
use crate::carrier::{Carrier, LINGER, Listener};
use crate::channel::Role;
use crate::completion::{Failure, MOST_POSTED};
use crate::core::{EndpointState, Envelope, Options};
use crate::link::{Access, CONNECTED_PORT, Link, PORT, Send};
use crate::matching::{Arrived, Receive};
use crate::notify::{LinkWaker, Notify, Ready};
use crate::world::World;

/// Stands for the listener among those that are woken.
const LISTENER: usize = usize::MAX;
/// So often connections are looked at in one go: more may have happened meanwhile.
const ROUNDS: usize = 8;

/// An endpoint.
pub(crate) struct Endpoint {
    pub(crate) core: EndpointState,
    pub(crate) carrier: Arc<Carrier>,
    pub(crate) role: Role,
    listener: Option<(Listener, LinkWaker)>,
    pub(crate) links: Vec<Option<Box<Link>>>,
    woken: Vec<usize>,
    /// Once is enough.
    has_warned: bool,
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("name", &self.name()).finish_non_exhaustive()
    }
}

impl Endpoint {
    /// Opens one, which listens if that is its role.
    pub(crate) fn open(
        number: usize,
        carrier: Arc<Carrier>,
        notify: &Arc<Notify>,
        options: Options,
        role: Role,
    ) -> Result<Self, Failure> {
        let ready = Ready::new(Arc::clone(notify));
        let listen = |port| {
            let listener = carrier.listen(port)?;
            let accepting = ready.waker(LISTENER);
            // The first look begins to wait.
            accepting.requests.wake_by_ref();
            Ok::<_, Failure>(Some((listener, accepting)))
        };
        let listener = match &role {
            Role::Unconnected => listen(PORT)?,
            Role::Listening(_) => listen(CONNECTED_PORT)?,
            Role::Connected(_) => None,
        };
        let core =
            EndpointState::new(number, (carrier.network.clone(), carrier.name()), ready, options);
        let (links, woken) = (Vec::new(), Vec::new());
        Ok(Self { core, carrier, role, listener, links, woken, has_warned: false })
    }

    /// Where peers reach it.
    pub(crate) fn name(&self) -> SocketAddr {
        self.carrier.name()
    }

    /// What programs hand on: of one that others connect to by themselves with its second rail.
    pub(crate) fn full_name(&self) -> Name {
        match self.role {
            Role::Unconnected => self.carrier.full_name(),
            _ => self.name().into(),
        }
    }

    /// Makes a turn of the network, unless one was made in this round, and looks at all that
    /// came of it.
    pub(crate) fn progress(&mut self, world: &mut World, round: u64) {
        self.carrier.turn(round);
        self.look(world);
    }

    fn progress_now(&mut self, world: &mut World) {
        self.carrier.turn_now();
        self.look(world);
    }

    pub(crate) fn look(&mut self, world: &mut World) {
        if !self.core.paused.is_empty() && !self.core.must_pause(world) {
            let paused = std::mem::take(&mut self.core.paused);
            paused.into_iter().for_each(|link| self.serve(world, link));
        }
        for _ in 0..ROUNDS {
            let mut woken = std::mem::take(&mut self.woken);
            self.core.ready.take(&mut woken);
            if woken.is_empty() {
                self.woken = woken;
                break;
            }
            for link in woken.drain(..) {
                match link {
                    LISTENER => self.accept(world),
                    link => self.serve(world, link),
                }
            }
            self.woken = woken;
        }
    }

    fn accept(&mut self, world: &mut World) {
        loop {
            let Some((listener, accepting)) = &mut self.listener else { return };
            accepting.begin();
            let accepted = listener.poll_accept(&accepting.requests);
            let Poll::Ready(Some(connection)) = accepted else { return };
            let Some(address) = connection.peer() else { continue };
            let Some(number) = self.free_place() else {
                connection.abort();
                continue;
            };
            let peer = match &self.role {
                // Anyone may come, and nobody stays.
                Role::Listening(_) => self.core.peer_of_link(number, address),
                _ => self.core.peer(address),
            };
            let port = self.role.port();
            let link = match Link::accept(&self.core, number, peer, connection, port) {
                Ok(link) => link,
                Err(why) => {
                    self.warn(address, &why);
                    continue;
                }
            };
            self.links.resize_with(self.links.len().max(number + 1), || None);
            self.links[number] = Some(Box::new(link));
            let known = &mut self.core.peers[peer];
            known.link = known.link.or(Some(number));
            self.serve(world, number);
        }
    }

    /// No operation of this side fails where a peer cannot connect: people are told.
    fn warn(&mut self, peer: SocketAddr, why: &Failure) {
        if !std::mem::replace(&mut self.has_warned, true) {
            eprintln!("landfall: {peer} cannot connect: {}", why.text);
        }
    }

    pub(crate) fn serve(&mut self, world: &mut World, number: usize) {
        self.with_link(world, number, Link::serve);
        self.tell_that_it_is_taken(number);
        self.heed(world, number);
    }

    /// Does something with a connection; where that fails the connection is over.
    pub(crate) fn with_link<T>(
        &mut self,
        world: &mut World,
        number: usize,
        what: impl FnOnce(&mut Link, &mut EndpointState, &mut World) -> Result<T, Failure>,
    ) -> Option<T> {
        let mut link = self.links.get_mut(number)?.take()?;
        match what(&mut link, &mut self.core, world) {
            Ok(result) => {
                self.links[number] = Some(link);
                Some(result)
            }
            Err(failure) => {
                let peer = &mut self.core.peers[link.peer];
                if peer.link == Some(number) {
                    peer.link = None;
                }
                let heard = std::iter::from_fn(|| link.heard()).collect();
                link.fail(&self.core, world, &failure);
                self.lost(world, number, heard, failure);
                None
            }
        }
    }

    /// The connection by which a peer is sent to; it begins to connect where there is none.
    fn link_to(&mut self, world: &mut World, peer: usize) -> Result<usize, Failure> {
        if let Some(link) = self.core.peers[peer].link {
            return Ok(link);
        }
        let number = self.links.len();
        let crate::core::Peer { address, second, .. } = self.core.peers[peer];
        // Endpoints that are connected have one, or none any more.
        if !matches!(self.role, Role::Unconnected) {
            return Err(gone());
        }
        let to = Name { address, second };
        let link = Link::connect(&self.core, number, peer, to, PORT)?;
        self.links.push(Some(Box::new(link)));
        self.core.peers[peer].link = Some(number);
        self.serve(world, number);
        Ok(number)
    }

    /// Is there room for one more operation to a peer?
    pub(crate) fn has_room(&self, peer: usize) -> bool {
        let link = self.core.peers[peer].link.and_then(|link| self.links.get(link)?.as_ref());
        link.is_none_or(|link| !link.is_full())
    }

    pub(crate) fn send(&mut self, world: &mut World, peer: usize, send: Send) {
        match self.link_to(world, peer) {
            Ok(link) if self.links[link].is_some() => {
                self.with_link(world, link, |link, core, world| link.send(core, world, send));
            }
            Ok(_) => self.core.report(world, &send.report, Some(gone())),
            Err(failure) => self.core.report(world, &send.report, Some(failure)),
        }
    }

    pub(crate) fn access(&mut self, world: &mut World, peer: usize, access: Access) {
        match self.link_to(world, peer) {
            Ok(link) if self.links[link].is_some() => {
                self.with_link(world, link, |link, core, world| link.access(core, world, access));
            }
            Ok(_) => self.core.report(world, &access.report, Some(gone())),
            Err(failure) => self.core.report(world, &access.report, Some(failure)),
        }
    }

    /// May one more receive be posted?
    pub(crate) fn has_room_to_receive(&self) -> bool {
        self.core.matching.posted() < MOST_POSTED
    }

    pub(crate) fn receive(&mut self, world: &mut World, receive: Receive) {
        if self.is_over() && self.core.matching.look_for(&receive.wanted).is_none() {
            return self.refuse_receive(world, &receive);
        }
        let mut rest = Some(receive);
        while let Some(receive) = rest.take()
            && let Some((arrived, receive, left)) = self.core.matching.meet(receive)
        {
            self.deliver(world, receive, arrived);
            rest = left;
        }
    }

    fn deliver(&mut self, world: &mut World, receive: Receive, arrived: Arrived) {
        let envelope = envelope_of(&arrived);
        let number = arrived.link;
        if self.links.get(number).is_some_and(Option::is_some) {
            self.with_link(world, number, |link, core, world| {
                link.deliver(core, world, receive, arrived);
                link.flush(core, world)
            });
            return;
        }
        let failure = match arrived.body {
            crate::matching::Body::Here(bytes, _) => {
                receive.buffer.fill(&bytes);
                None
            }
            crate::matching::Body::There(_) => Some(gone()),
        };
        self.core.received(world, &receive, &envelope, failure);
    }

    /// Looks for a message, and says so in a completion; it may set it aside for a receive
    /// with the same context, or drop it.
    pub(crate) fn peek(&mut self, world: &mut World, receive: &Receive, claims: bool, drops: bool) {
        self.progress_now(world);
        let Some(arrived) = self.core.matching.look_for(&receive.wanted) else {
            let completion = crate::completion::Completion::new(
                receive.context,
                crate::abi::FI_RECV | crate::abi::FI_TAGGED,
            );
            let failure = Failure::new(FI_ENOMSG, "no such message has come");
            world.tell(self.core.options.receive, completion, Some(failure));
            return;
        };
        let completion = self.core.completion(world, receive.context, &envelope_of(arrived));
        world.tell(self.core.options.receive, completion, None);
        if drops {
            if let Some(arrived) = self.core.matching.message_for(&receive.wanted) {
                self.discard(world, &arrived);
            }
        } else if claims {
            self.core.matching.claim(&receive.wanted, receive.context);
        }
    }

    fn discard(&mut self, world: &mut World, arrived: &Arrived) {
        self.with_link(world, arrived.link, |link, core, world| {
            link.discard(&arrived.body);
            link.flush(core, world)
        });
    }

    /// Receives, or drops, a message that was set aside. Was there one?
    pub(crate) fn take_claimed(
        &mut self,
        world: &mut World,
        receive: Receive,
        drops: bool,
    ) -> bool {
        let Some(arrived) = self.core.matching.take_claimed(receive.context) else { return false };
        if drops {
            self.discard(world, &arrived);
            let completion = self.core.completion(world, receive.context, &envelope_of(&arrived));
            world.tell(self.core.options.receive, completion, None);
        } else {
            self.deliver(world, receive, arrived);
        }
        true
    }

    /// Takes back a receive. Was it there?
    pub(crate) fn cancel(&mut self, world: &mut World, context: usize) -> bool {
        let Some(receive) = self.core.matching.cancel(context) else { return false };
        let tag = receive.wanted.tag.map(|(tag, _)| tag);
        let envelope = Envelope { tag, data: None, peer: usize::MAX, len: 0 };
        let failure = Failure::new(FI_ECANCELED, "the receive was cancelled");
        self.core.received(world, &receive, &envelope, Some(failure));
        true
    }

    /// Ends what peers may do with memory of this key, and waits until they do nothing.
    pub(crate) fn hide(&mut self, key: u32) {
        let hidden = self.links.iter_mut().flatten().flat_map(|link| link.hide(key));
        for shown in hidden.collect::<Vec<_>>() {
            self.wait_for(shown.revoke());
        }
    }

    /// Makes turns until the future is done, for so long at most.
    fn wait_for<F: Future>(&self, future: F) -> Option<F::Output> {
        let until = Instant::now() + LINGER;
        let mut future = std::pin::pin!(future);
        let mut context = Context::from_waker(std::task::Waker::noop());
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                return Some(output);
            }
            if Instant::now() >= until {
                return None;
            }
            self.carrier.turn_now();
        }
    }

    /// Lets what was sent arrive, for a while, and ends all connections.
    pub(crate) fn close(&mut self, world: &mut World) {
        let until = Instant::now() + LINGER;
        let is_quiet = |endpoint: &Self| {
            let mut links = endpoint.links.iter().flatten();
            // Nobody waits for a connection that is not there yet.
            !endpoint.role.may_linger() || links.all(|link| link.is_quiet())
        };
        while !is_quiet(self) && Instant::now() < until {
            self.progress_now(world);
        }
        self.withdraw_receives(world);
        self.listener = None;
        self.links.clear();
        self.role.forget();
        world.forget_endpoint(self.core.number);
    }
}

const fn envelope_of(arrived: &Arrived) -> Envelope {
    let Arrived { tag, data, peer, len, .. } = *arrived;
    Envelope { tag, data, peer, len }
}

pub(crate) fn gone() -> Failure {
    Failure::new(FI_ECONNRESET, "the connection is gone")
}
