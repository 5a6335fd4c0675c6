//! [`Role`]: what an endpoint has to do with connections of `FI_EP_MSG`: it has one, or listens
//! for them, or neither.
//!
//! The two sides say in records of their rings that a connection is asked for, taken, refused
//! and ended. One that was asked for is the listening endpoint's until it is taken; then it goes
//! over, with its rings, to an endpoint of its own.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use crate::abi::{
    FI_ECANCELED, FI_ECONNREFUSED, FI_EINVAL, FI_EIO, FI_EISCONN, FI_ENOTCONN, FI_EOPBADSTATE,
};
use crate::carrier::Carrier;
use crate::completion::Failure;
use crate::core::{Envelope, Options};
use crate::endpoint::Endpoint;
use crate::events::{Events, Notice, Occurrence, Request};
use crate::link::{CONNECTED_PORT, Link, PORT};
use crate::matching::{Matching, Receive};
use crate::notify::Notify;
use crate::passive::Passive;
use crate::record::Kind;
use crate::world::World;

/// This many connections may wait to be taken; then those that have not said yet what they want
/// make room for others.
const MOST_REQUESTS: usize = 64;

/// What an endpoint has to do with connections.
#[derive(Debug)]
pub(crate) enum Role {
    /// `FI_EP_RDM`: it sends to whomever, and connections are its own matter.
    Unconnected,
    Listening(Listening),
    Connected(Channel),
}

/// Whom to tell of a connection, and what the program knows it by.
#[derive(Clone, Debug)]
pub(crate) struct EventTarget {
    pub(crate) events: Arc<Events>,
    pub(crate) fid: usize,
    pub(crate) context: usize,
}

impl EventTarget {
    fn tell(&self, what: Occurrence, data: Vec<u8>) {
        self.events.push(Notice { fid: self.fid, context: self.context, what, data });
    }
}

/// Who listens, and which connections wait to be taken.
#[derive(Debug)]
pub(crate) struct Listening {
    target: EventTarget,
    passive: Weak<Passive>,
    /// Connections that were asked for, by the numbers that the program knows them by.
    requests: HashMap<u64, usize>,
    next_request: u64,
    /// They have only to hear that they are refused.
    refused: Vec<usize>,
}

/// The connection of an endpoint.
#[derive(Debug)]
pub(crate) struct Channel {
    target: EventTarget,
    step: Step,
    /// It was taken here, and the program is to be told.
    must_tell: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Idle,
    Asked,
    Open,
    Over,
}

/// A connection that is taken from the endpoint that listened for it.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) link: Box<Link>,
    pub(crate) from: SocketAddr,
    pub(crate) carrier: Arc<Carrier>,
}

impl Role {
    pub(crate) fn listening(target: EventTarget) -> Self {
        let (requests, refused, passive) = (HashMap::new(), Vec::new(), Weak::new());
        Self::Listening(Listening { target, passive, requests, next_request: 1, refused })
    }

    pub(crate) const fn connected(target: EventTarget) -> Self {
        Self::Connected(Channel { target, step: Step::Idle, must_tell: false })
    }

    /// Whom requests name as the one that has them.
    pub(crate) fn is_of(&mut self, passive: &Arc<Passive>) {
        if let Self::Listening(listening) = self {
            listening.passive = Arc::downgrade(passive);
        }
    }

    /// Where connections come in.
    pub(crate) const fn port(&self) -> u16 {
        if matches!(self, Self::Unconnected) { PORT } else { CONNECTED_PORT }
    }

    /// May what was sent still arrive?
    pub(crate) fn may_linger(&self) -> bool {
        match self {
            Self::Unconnected => true,
            Self::Listening(listening) => !listening.refused.is_empty(),
            Self::Connected(channel) => matches!(channel.step, Step::Open | Step::Over),
        }
    }

    /// The program closes the handle: nothing is told of it any more.
    pub(crate) fn forget(&self) {
        match self {
            Self::Unconnected => {}
            Self::Listening(Listening { target, .. }) | Self::Connected(Channel { target, .. }) => {
                target.events.forget(target.fid);
            }
        }
    }
}

impl Endpoint {
    /// An endpoint that takes over a connection which was asked for.
    pub(crate) fn take_over(
        number: usize,
        taken: Taken,
        notify: &Arc<Notify>,
        options: Options,
        target: EventTarget,
    ) -> Result<Self, Failure> {
        let Taken { mut link, from, carrier } = taken;
        let mut endpoint = Self::open(number, carrier, notify, options, Role::connected(target))?;
        let peer = endpoint.core.peer(from);
        link.adopt(0, peer, endpoint.core.ready.waker(0));
        endpoint.links.push(Some(link));
        endpoint.core.peers[peer].link = Some(0);
        Ok(endpoint)
    }

    /// Where one more connection has its place. Nothing where there are too many.
    pub(crate) fn free_place(&mut self) -> Option<usize> {
        // Numbers of connections that messages came by are not given out anew.
        let Role::Listening(listening) = &self.role else { return Some(self.links.len()) };
        if let Some(free) = self.links.iter().position(Option::is_none) {
            return Some(free);
        }
        if self.links.len() < MOST_REQUESTS {
            return Some(self.links.len());
        }
        let is_silent = |number: &usize| {
            !listening.refused.contains(number)
                && !listening.requests.values().any(|asked| asked == number)
        };
        let silent = (0..self.links.len()).find(is_silent)?;
        self.links[silent] = None;
        Some(silent)
    }

    /// Looks at what the other side has said of a connection.
    pub(crate) fn heed(&mut self, world: &mut World, number: usize) {
        while let Some(Some(link)) = self.links.get_mut(number)
            && let Some((kind, data)) = link.heard()
        {
            let address = self.core.peers[link.peer].address;
            let is_right = match (&mut self.role, kind) {
                (Role::Listening(listening), Kind::Request) => {
                    listening.is_asked(number, address, data)
                }
                (Role::Connected(channel), kind) => match channel.hear(kind, data) {
                    Some(Step::Over) => {
                        self.withdraw_receives(world);
                        true
                    }
                    heard => heard.is_some(),
                },
                _ => false,
            };
            if !is_right {
                let text = "the peer says of the connection what does not follow";
                let wrong = |_: &mut Link, _: &mut _, _: &mut _| -> Result<(), Failure> {
                    Err(Failure::new(FI_EIO, text))
                };
                self.with_link(world, number, wrong);
            }
        }
        if let Role::Listening(listening) = &mut self.role {
            // Nobody receives here.
            self.core.matching = Matching::default();
            let links = &mut self.links;
            listening.refused.retain(|number| match &mut links[*number] {
                Some(link) if !link.is_quiet() => true,
                place => {
                    *place = None;
                    false
                }
            });
        }
    }

    /// A connection is over; what the other side has said of it before.
    pub(crate) fn lost(
        &mut self,
        world: &mut World,
        number: usize,
        heard: Vec<(Kind, Vec<u8>)>,
        failure: Failure,
    ) {
        match &mut self.role {
            Role::Unconnected => {}
            Role::Listening(listening) => {
                let EventTarget { events, fid, .. } = &listening.target;
                listening.requests.retain(|request, asked| {
                    if *asked == number {
                        events.withdraw(*fid, *request);
                    }
                    *asked != number
                });
                listening.refused.retain(|refused| *refused != number);
            }
            Role::Connected(channel) => {
                for (kind, data) in heard {
                    channel.hear(kind, data);
                }
                channel.lose(failure);
                self.withdraw_receives(world);
            }
        }
    }

    /// Receives of a connection that is over have no message any more.
    pub(crate) fn withdraw_receives(&mut self, world: &mut World) {
        if !matches!(self.role, Role::Connected(_)) {
            return;
        }
        for receive in self.core.matching.take_posted() {
            self.refuse_receive(world, &receive);
        }
    }

    pub(crate) fn refuse_receive(&self, world: &mut World, receive: &Receive) {
        let tag = receive.wanted.tag.map(|(tag, _)| tag);
        let envelope = Envelope { tag, data: None, peer: usize::MAX, len: 0 };
        let failure = Failure::new(FI_ECANCELED, "the connection is over");
        self.core.received(world, receive, &envelope, Some(failure));
    }

    fn channel(&mut self) -> Result<&mut Channel, i32> {
        match &mut self.role {
            Role::Connected(channel) => Ok(channel),
            _ => Err(FI_EOPBADSTATE),
        }
    }

    /// The peer of a connected endpoint; nothing where any may be sent to.
    pub(crate) fn only_peer(&self) -> Result<Option<usize>, i32> {
        match &self.role {
            Role::Connected(channel) if channel.step == Step::Open => Ok(Some(0)),
            Role::Connected(_) => Err(FI_ENOTCONN),
            _ => Ok(None),
        }
    }

    /// Where the other side is.
    pub(crate) fn peer_name(&self) -> Option<SocketAddr> {
        self.only_peer().ok()??;
        self.core.peers.first().map(|peer| peer.address)
    }

    /// Does the connection take receives, or has it ended?
    pub(crate) fn is_over(&self) -> bool {
        matches!(&self.role, Role::Connected(channel) if channel.step == Step::Over)
    }

    /// Asks for a connection.
    pub(crate) fn connect(
        &mut self,
        world: &mut World,
        to: SocketAddr,
        data: Vec<u8>,
    ) -> Result<(), i32> {
        if self.channel()?.step != Step::Idle || !self.links.is_empty() {
            return Err(FI_EISCONN);
        }
        let peer = self.core.peer(to);
        let link = Link::connect(&self.core, 0, peer, to.into(), CONNECTED_PORT);
        let link = link.map_err(|failure| failure.error)?;
        self.links.push(Some(Box::new(link)));
        self.core.peers[peer].link = Some(0);
        self.channel()?.step = Step::Asked;
        self.with_link(world, 0, |link, core, world| link.say(core, world, Kind::Request, data));
        // An operation wakes a connection only when it was looked at since it began.
        self.serve(world, 0);
        Ok(())
    }

    /// Takes the connection that was asked for.
    pub(crate) fn take(&mut self, world: &mut World, data: Vec<u8>) -> Result<(), i32> {
        if self.channel()?.step != Step::Idle || self.links.is_empty() {
            return Err(FI_EOPBADSTATE);
        }
        self.channel()?.step = Step::Open;
        self.channel()?.must_tell = true;
        self.with_link(world, 0, |link, core, world| link.say(core, world, Kind::Accept, data));
        self.serve(world, 0);
        Ok(())
    }

    /// The program is told that a connection is taken once the other side will hear of it: it may
    /// wait for that one then by other means, and make no progress here.
    pub(crate) fn tell_that_it_is_taken(&mut self, number: usize) {
        if let (Role::Connected(channel), Some(Some(link))) =
            (&mut self.role, self.links.get(number))
            && channel.must_tell
            && link.has_said_all()
        {
            channel.must_tell = false;
            channel.target.tell(Occurrence::Connected, Vec::new());
        }
    }

    /// Ends the connection: what was sent arrives, and nothing more is.
    pub(crate) fn shut_down(&mut self, world: &mut World) -> Result<(), i32> {
        let channel = self.channel()?;
        if channel.step != Step::Open {
            return Err(FI_ENOTCONN);
        }
        (channel.step, channel.must_tell) = (Step::Over, false);
        channel.target.tell(Occurrence::Shutdown, Vec::new());
        self.with_link(world, 0, |link, core, world| {
            link.say(core, world, Kind::Shutdown, Vec::new())
        });
        self.withdraw_receives(world);
        Ok(())
    }

    /// Gives a connection that was asked for to an endpoint of its own.
    pub(crate) fn give_away(&mut self, request: u64) -> Result<Taken, i32> {
        let Role::Listening(listening) = &mut self.role else { return Err(FI_EINVAL) };
        let number = listening.requests.remove(&request).ok_or(FI_ECONNREFUSED)?;
        let link = self.links[number].take().ok_or(FI_ECONNREFUSED)?;
        let peer = &mut self.core.peers[link.peer];
        peer.link = None;
        Ok(Taken { from: peer.address, link, carrier: Arc::clone(&self.carrier) })
    }

    /// Tells a connection that was asked for that it is not wanted.
    pub(crate) fn refuse(
        &mut self,
        world: &mut World,
        request: u64,
        data: Vec<u8>,
    ) -> Result<(), i32> {
        let Role::Listening(listening) = &mut self.role else { return Err(FI_EINVAL) };
        let number = listening.requests.remove(&request).ok_or(FI_EINVAL)?;
        listening.refused.push(number);
        self.with_link(world, number, |link, core, world| {
            link.say(core, world, Kind::Reject, data)
        });
        Ok(())
    }
}

impl Listening {
    /// A connection is asked for. Is it the first time?
    fn is_asked(&mut self, number: usize, from: SocketAddr, data: Vec<u8>) -> bool {
        let is_new = !self.refused.contains(&number)
            && !self.requests.values().any(|asked| *asked == number);
        if is_new {
            let id = self.next_request;
            self.next_request += 1;
            self.requests.insert(id, number);
            let passive = self.passive.clone();
            self.target.tell(Occurrence::Request(Request { passive, id, from, info: 0 }), data);
        }
        is_new
    }
}

impl Channel {
    /// The other side says something of the connection. How it stands then; nothing where that
    /// does not follow.
    fn hear(&mut self, kind: Kind, data: Vec<u8>) -> Option<Step> {
        let (step, what) = match (self.step, kind) {
            (Step::Asked, Kind::Accept) => (Step::Open, Occurrence::Connected),
            (Step::Asked, Kind::Reject) => {
                let refused = Failure::new(FI_ECONNREFUSED, "the peer has refused the connection");
                (Step::Over, Occurrence::Failed(refused))
            }
            (Step::Open, Kind::Shutdown) => (Step::Over, Occurrence::Shutdown),
            // Both have ended it at the same time.
            (Step::Over, Kind::Shutdown) => return Some(Step::Over),
            _ => return None,
        };
        self.step = step;
        self.target.tell(what, data);
        Some(step)
    }

    /// The connection is gone.
    fn lose(&mut self, failure: Failure) {
        let is_told = !std::mem::take(&mut self.must_tell);
        match std::mem::replace(&mut self.step, Step::Over) {
            Step::Over => {}
            Step::Open if is_told => self.target.tell(Occurrence::Shutdown, Vec::new()),
            Step::Idle | Step::Asked | Step::Open => {
                self.target.tell(Occurrence::Failed(failure), Vec::new());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn channel(step: Step) -> Channel {
        let target = EventTarget { events: Events::new().unwrap(), fid: 7, context: 8 };
        Channel { target, step, must_tell: false }
    }

    /// What a program is told, in its order.
    fn told(channel: &Channel) -> Vec<String> {
        let mut queued = channel.target.events.lock();
        let name = |notice: Notice| match notice.what {
            Occurrence::Failed(failure) => format!("error {}", failure.error),
            other => format!("{other:?}"),
        };
        queued.notices.drain(..).map(name).collect()
    }

    #[test]
    fn what_does_not_follow_is_refused_and_changes_nothing() {
        const ALL: [Kind; 4] = [Kind::Request, Kind::Accept, Kind::Reject, Kind::Shutdown];
        let steps = [Step::Idle, Step::Asked, Step::Open, Step::Over];
        for (step, kind) in steps.into_iter().flat_map(|step| ALL.map(|kind| (step, kind))) {
            let mut channel = channel(step);
            let follows = matches!(
                (step, kind),
                (Step::Asked, Kind::Accept | Kind::Reject)
                    | (Step::Open | Step::Over, Kind::Shutdown)
            );
            assert_eq!(channel.hear(kind, Vec::new()).is_some(), follows, "{step:?} {kind:?}");
            let is_new = follows && step != Step::Over;
            assert_eq!(told(&channel).len(), usize::from(is_new), "{step:?} {kind:?}");
            assert_eq!(channel.step != step, is_new, "{step:?} {kind:?}");
        }
    }

    #[test]
    fn a_connection_ends_once_whatever_comes_later() {
        let mut open = channel(Step::Asked);
        assert_eq!(open.hear(Kind::Accept, Vec::new()), Some(Step::Open));
        assert_eq!(open.hear(Kind::Shutdown, Vec::new()), Some(Step::Over));
        open.lose(Failure::new(FI_EIO, "gone"));
        assert_eq!(told(&open), ["Connected", "Shutdown"]);
        let mut asked = channel(Step::Asked);
        asked.lose(Failure::new(FI_EIO, "gone"));
        asked.lose(Failure::new(FI_EIO, "gone"));
        assert_eq!(told(&asked), [format!("error {FI_EIO}")]);
        let mut taken = Channel { must_tell: true, ..channel(Step::Open) };
        taken.lose(Failure::new(FI_EIO, "gone"));
        assert_eq!(told(&taken), [format!("error {FI_EIO}")], "nobody was told that it is open");
    }

    #[test]
    fn a_request_is_made_once_and_withdrawn_with_its_connection() {
        let target = EventTarget { events: Events::new().unwrap(), fid: 7, context: 8 };
        let Role::Listening(mut listening) = Role::listening(target) else { unreachable!() };
        let from = ([192, 0, 2, 1], 9).into();
        assert!(listening.is_asked(3, from, vec![1]));
        assert!(!listening.is_asked(3, from, vec![2]), "it was asked for already");
        assert!(listening.is_asked(4, from, vec![3]));
        let events = Arc::clone(&listening.target.events);
        events.withdraw(7, 1);
        let data: Vec<Vec<u8>> = events.lock().notices.drain(..).map(|it| it.data).collect();
        assert_eq!(data, [[3]]);
    }
}
