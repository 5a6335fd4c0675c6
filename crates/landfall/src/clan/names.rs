//! Nodes find each other by names: one program text, between processes of a host and over
//! networks.
//!
//! A node [offers](Names::offer) a name. Another one [finds](Names::find) it, and sends a few
//! bytes, mostly the cookies of its halves; the one that offers the name gets them with the proof
//! of who has come, and answers with a few bytes, or refuses. So a cookie goes only to those who
//! are meant to have it.
//!
//! ```
//! use landfall::clan::layer::queue::{Config, Receiver, Sender};
//! use landfall::clan::names::{Found, NameRequest, Names, Offer};
//! use landfall::clan::Error;
//!
//! /// Gives a price to the first who asks.
//! fn sell<N: Names>(node: &N, price: f64) -> Result<(), Error> {
//!     let offer = node.offer("prices")?;
//!     let sender = Sender::open(node, Config::new(8, 64).singly())?;
//!     let mut sender = offer.accept(None)?.join(sender)?;
//!     sender.put(&price.to_le_bytes(), None)
//! }
//!
//! /// The price that somebody offers.
//! fn buy<N: Names>(node: &N) -> Result<f64, Error> {
//!     let receiver = Receiver::open(node, Config::new(8, 64))?;
//!     let mut receiver = node.find("prices", None)?.join(receiver, None)?;
//!     let mut price = [0; 8];
//!     receiver.get(&mut price, None)?;
//!     Ok(f64::from_le_bytes(price))
//! }
//! ```
//!
//! What does not live here: how a name is found, and who proves what: that is told at
//! [`shared::SharedNode::offer`](super::shared::SharedNode::offer) and
//! [`network::Discovery`](super::network::Discovery).

use std::fmt::Debug;
use std::task::{Context, Poll};
use std::time::Instant;

use arrayvec::ArrayVec;
pub(crate) use clan_dsm::discovery::{MAX_NAME, Name};

use super::layer::{Connect, Half, publish, stream};
use super::{Cookie, Error, Fabric};

/// The most bytes that are sent to who offers a name, and answered.
pub const MAX_GREETING: usize = 128;

/// What a node that finds a name sends, and the answer.
pub(crate) type Greeting = ArrayVec<u8, MAX_GREETING>;

/// A fabric whose nodes find each other by names.
pub trait Names: Fabric {
    /// A name that this node offers.
    type Offer: Offer<Fabric = Self>;
    /// A node that offers a name.
    type Found: Found<Fabric = Self>;

    /// Offers a name of 1 to 64 bytes, until the offer is dropped or the process ends, however
    /// it does.
    ///
    /// # Errors
    /// The name is taken or none, or the node has ended.
    fn offer(&self, name: &str) -> Result<Self::Offer, Error>;

    /// Finds who offers a name, and waits for it if nobody does yet: at most until the
    /// deadline.
    ///
    /// # Errors
    /// Nobody offers it until then, who offers it is not admitted, or the node has ended.
    fn find(&self, name: &str, deadline: Option<Instant>) -> Result<Self::Found, Error>;
}

/// A name that this node offers.
pub trait Offer: Debug + Send + Sync {
    /// The fabric of the node.
    type Fabric: Fabric;
    /// Somebody who has found it.
    type Request: NameRequest<Fabric = Self::Fabric>;

    /// The name.
    fn name(&self) -> &str;

    /// The next who has found the name, if one has come.
    ///
    /// # Errors
    /// The node has ended.
    fn try_accept(&self) -> Result<Option<Self::Request>, Error>;

    /// The next who has found the name, once one has come.
    ///
    /// # Errors
    /// The node has ended, or the deadline is over.
    fn accept(&self, deadline: Option<Instant>) -> Result<Self::Request, Error>;

    /// The same for a task. One task waits at a time.
    ///
    /// # Errors
    /// The node has ended.
    fn poll_accept(&self, context: &mut Context<'_>) -> Poll<Result<Self::Request, Error>>;
}

/// Somebody who has found a name. Dropped without an answer, it is refused.
pub trait NameRequest: Debug + Send + Sized {
    /// The fabric of the node.
    type Fabric: Fabric;

    /// What it says.
    fn greeting(&self) -> &[u8];

    /// Answers it.
    ///
    /// # Errors
    /// The answer has more than 128 bytes, or who has asked is gone.
    fn answer(self, answer: &[u8]) -> Result<(), Error>;

    /// Connects this half to the half that it has sent, which it has by [`Found::join`].
    ///
    /// # Errors
    /// What it says is no cookie, those of [`Half::connect`] and of [`answer`](Self::answer).
    fn join<P: Connect<Self::Fabric>>(self, half: Half<Self::Fabric, P>) -> Result<P, Error> {
        let [theirs] = cookies(self.greeting())?;
        let ours = half.cookie();
        let joined = half.connect(&theirs)?;
        self.answer(&ours.to_bytes())?;
        Ok(joined)
    }

    /// Connects both directions of a stream, with [`Found::join_stream`].
    ///
    /// # Errors
    /// Those of [`join`](Self::join).
    fn join_stream(
        self,
        opening: stream::Opening<Self::Fabric>,
    ) -> Result<stream::Stream<Self::Fabric>, Error> {
        let theirs = cookies(self.greeting())?;
        let ours = opening.cookies();
        let joined = opening.connect(&theirs)?;
        self.answer(&ours.map(Cookie::to_bytes).concat())?;
        Ok(joined)
    }

    /// Makes it a subscriber, which it becomes by [`Found::join`].
    ///
    /// # Errors
    /// Those of [`publish::Publisher::add`] and of [`answer`](Self::answer).
    fn subscribe(self, publisher: &mut publish::Publisher<Self::Fabric>) -> Result<(), Error> {
        let [subscriber] = cookies(self.greeting())?;
        publisher.add(&subscriber)?;
        self.answer(&publisher.cookie().to_bytes())
    }
}

/// A node that offers a name.
pub trait Found: Debug + Send + Sync {
    /// The fabric of both nodes.
    type Fabric: Fabric;

    /// Says a few bytes to who offers the name, and gives the answer: at most 128 bytes each.
    ///
    /// # Errors
    /// It refuses ([`Error::Refused`]), the deadline is over, or it is gone.
    fn ask(&self, greeting: &[u8], deadline: Option<Instant>) -> Result<Vec<u8>, Error>;

    /// Connects this half to the half of who offers the name, who does [`NameRequest::join`]
    /// (or, for subscribers, [`NameRequest::subscribe`]).
    ///
    /// # Errors
    /// Those of [`ask`](Self::ask) and of [`Half::connect`].
    fn join<P: Connect<Self::Fabric>>(
        &self,
        half: Half<Self::Fabric, P>,
        deadline: Option<Instant>,
    ) -> Result<P, Error> {
        let answer = self.ask(&half.cookie().to_bytes(), deadline)?;
        let [theirs] = cookies(&answer)?;
        half.connect(&theirs)
    }

    /// Connects both directions of a stream, with [`NameRequest::join_stream`].
    ///
    /// # Errors
    /// Those of [`join`](Self::join).
    fn join_stream(
        &self,
        opening: stream::Opening<Self::Fabric>,
        deadline: Option<Instant>,
    ) -> Result<stream::Stream<Self::Fabric>, Error> {
        let answer = self.ask(&opening.cookies().map(Cookie::to_bytes).concat(), deadline)?;
        opening.connect(&cookies(&answer)?)
    }
}

/// What is said, or answered, within its bound.
pub(crate) fn bounded(bytes: &[u8]) -> Result<Greeting, Error> {
    let (len, most) = (bytes.len() as u64, MAX_GREETING as u64);
    Greeting::try_from(bytes).map_err(|_| Error::TooLong { len, most })
}

/// Cookies that were said, this many and nothing else.
fn cookies<const N: usize>(said: &[u8]) -> Result<[Cookie; N], Error> {
    let none = || Error::NoCookie(clan_dsm::NoCookie);
    let (parts, []) = said.as_chunks::<{ Cookie::LEN }>() else { return Err(none()) };
    let parts: &[_; N] = parts.try_into().map_err(|_| none())?;
    let mut cookies = ArrayVec::<_, N>::new();
    for bytes in parts {
        cookies.push(Cookie::from_bytes(bytes)?);
    }
    cookies.into_inner().map_err(|_| none())
}

/// A name of 1 to 64 bytes.
pub(crate) fn named(name: &str) -> Result<Name, Error> {
    let name = Name::try_from(name.as_bytes()).ok().filter(|name| !name.is_empty());
    name.ok_or(Error::BadConfig("a name has 1 to 64 bytes"))
}

/// What nodes of every kind have under its own name: `$node`, `Offer`, `NameRequest` and `Found`
/// of the module that says this do as they do.
macro_rules! as_names {
    ($node:ty) => {
        impl $crate::clan::names::Names for $node {
            type Offer = Offer;
            type Found = Found;

            fn offer(&self, name: &str) -> Result<Offer, Error> {
                Self::offer(self, name)
            }

            fn find(&self, name: &str, deadline: Option<Instant>) -> Result<Found, Error> {
                Self::find(self, name, deadline)
            }
        }

        impl $crate::clan::names::Offer for Offer {
            type Fabric = $node;
            type Request = NameRequest;

            fn name(&self) -> &str {
                Self::name(self)
            }

            fn try_accept(&self) -> Result<Option<NameRequest>, Error> {
                Self::try_accept(self)
            }

            fn accept(&self, deadline: Option<Instant>) -> Result<NameRequest, Error> {
                Self::accept(self, deadline)
            }

            fn poll_accept(&self, context: &mut Context<'_>) -> Poll<Result<NameRequest, Error>> {
                Self::poll_accept(self, context)
            }
        }

        impl $crate::clan::names::NameRequest for NameRequest {
            type Fabric = $node;

            fn greeting(&self) -> &[u8] {
                Self::greeting(self)
            }

            fn answer(self, answer: &[u8]) -> Result<(), Error> {
                Self::answer(self, answer)
            }
        }

        impl $crate::clan::names::Found for Found {
            type Fabric = $node;

            fn ask(&self, greeting: &[u8], deadline: Option<Instant>) -> Result<Vec<u8>, Error> {
                Self::ask(self, greeting, deadline)
            }
        }
    };
}
pub(crate) use as_names;
