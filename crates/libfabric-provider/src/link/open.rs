//! A connection begins: the two sides give each other a ring to write to.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use landfall::stp::{
    Connection, Ended, Error, Exposed, Memory, Operation, PathId, Peer, Reason, RegionRequest,
    RemoteMemory, RemoteRights,
};

use super::{Link, failure, nonsense, poll, poll_once};
use crate::abi::FI_ECONNREFUSED;
use crate::address::Name;
use crate::completion::Failure;
use crate::core::EndpointState;
use crate::notify::Ready;
use crate::ring::{RING, ReceiveRing, SendRing};
use crate::world::{MOST_KEY, World};

/// The port of STP where providers listen.
pub(crate) const PORT: u16 = 0xfab1;
/// The same for endpoints that listen for connections: `FI_EP_MSG`.
pub(crate) const CONNECTED_PORT: u16 = 0xfab2;
/// What providers of this version greet each other with.
pub(crate) const HELLO: u64 = 0x6c66_6669_0000_0003;
/// What the greetings of all versions have in common; the rest is the version.
const HELLO_OF_ALL: u64 = HELLO & !0xffff_ffff;
const VERSION: u32 = HELLO as u32;
/// What the other side calls the ring that it writes.
const RING_NAME: u32 = 0xffff_ff01;

const _: () = assert!(RING_NAME as u64 >= MOST_KEY, "no key of memory leads to a ring");

/// What is said of a peer that greets otherwise, or that does so of us.
pub(super) fn other_version(greeting: Option<u64>) -> Failure {
    let found = match greeting {
        None => "another version of this provider's protocol".to_owned(),
        Some(greeting) if greeting & !0xffff_ffff == HELLO_OF_ALL => {
            format!("version {} of this provider's protocol", greeting as u32)
        }
        Some(greeting) => format!("something else than this provider ({greeting:#x})"),
    };
    let text = format!(
        "the peer speaks {found}, and this side version {VERSION}: install the same at both ends"
    );
    Failure::new(FI_ECONNREFUSED, text)
}

type Connecting = Pin<Box<dyn Future<Output = Result<Connection, Error>> + Send>>;

/// How far the two sides are.
pub(super) enum Opening {
    Connecting(Connecting),
    /// Each has asked for the ring of the other.
    Asking {
        ring: Operation<RemoteMemory>,
        shown: Option<Exposed>,
    },
    /// It can be received from; the other side's ring is not there yet.
    Open {
        ring: RemoteMemory,
        shown: Option<Exposed>,
    },
}

impl fmt::Debug for Opening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connecting(_) => "connecting",
            Self::Asking { .. } => "asking",
            Self::Open { .. } => "open",
        })
    }
}

/// Memory for a ring.
fn ring(core: &EndpointState) -> Result<landfall::stp::Region, Failure> {
    let memory = core.stp.memory(RING as usize).or_else(|_| {
        Memory::try_zeroed(RING as usize)
            .map_err(|error| Failure::new(crate::abi::FI_ENOMEM, error.to_string()))
    })?;
    core.stp.register(memory).map_err(|failed| failure(&failed))
}

impl Link {
    /// Begins to connect to a peer.
    pub(crate) fn connect(
        core: &EndpointState,
        number: usize,
        peer: usize,
        to: Name,
        port: u16,
    ) -> Result<Self, Failure> {
        let stp = core.stp.as_async().clone();
        let connecting = async move {
            let first = stp.connect_over(PathId(0), Peer::Socket(to.address), port, HELLO).await;
            match (first, to.second) {
                // One that answers is there, whatever it says.
                (Err(why), Some(second))
                    if !matches!(why, Error::NotConnected(Ended::There(_))) =>
                {
                    let second = Peer::Socket(second.into());
                    let connected = stp.connect_over(PathId(1), second, port, HELLO).await;
                    connected.map_err(|_| why)
                }
                (first, _) => first,
            }
        };
        Self::new(core, number, peer, port, Opening::Connecting(Box::pin(connecting)))
    }

    /// A peer has connected.
    pub(crate) fn accept(
        core: &EndpointState,
        number: usize,
        peer: usize,
        connection: Connection,
        port: u16,
    ) -> Result<Self, Failure> {
        if connection.hello() != HELLO {
            let greeting = connection.hello();
            connection.refuse(Reason::Incompatible);
            return Err(other_version(Some(greeting)));
        }
        let mut link = Self::new(core, number, peer, port, Self::ask(&connection))?;
        link.connection = Some(connection);
        link.may_add_rails = false;
        link.tell_rails(core);
        Ok(link)
    }

    fn ask(connection: &Connection) -> Opening {
        let ring = connection.request_region(RING_NAME, RING, RemoteRights::PUT).start();
        Opening::Asking { ring, shown: None }
    }

    fn new(
        core: &EndpointState,
        number: usize,
        peer: usize,
        port: u16,
        opening: Opening,
    ) -> Result<Self, Failure> {
        Ok(Self {
            number,
            peer,
            waker: Ready::waker(&core.ready, number),
            is_attended: false,
            is_paused: false,
            opening,
            connection: None,
            staging: ring(core)?,
            send: SendRing::default(),
            puts: VecDeque::new(),
            own: ring(core)?,
            receive: ReceiveRing::default(),
            outgoing: VecDeque::new(),
            acknowledges: VecDeque::new(),
            transmitted: VecDeque::new(),
            next_id: 0,
            offered: HashMap::new(),
            answers: Vec::new(),
            readings: Vec::new(),
            waiting: VecDeque::new(),
            keys: HashMap::new(),
            under_way: Vec::new(),
            shown: Vec::new(),
            held: VecDeque::new(),
            heard: (port == CONNECTED_PORT).then(VecDeque::new),
            may_add_rails: true,
        })
    }

    /// Goes on with the opening. Is there a connection?
    pub(super) fn open(&mut self, core: &EndpointState) -> Result<bool, Failure> {
        let waker = self.waker();
        if let Opening::Connecting(connecting) = &mut self.opening {
            let mut context = Context::from_waker(&waker);
            let Poll::Ready(connected) = connecting.as_mut().poll(&mut context) else {
                return Ok(false);
            };
            let connection = connected.map_err(|error| failure(&error))?;
            self.opening = Self::ask(&connection);
            self.tell_name(core, &connection);
            self.connection = Some(connection);
        }
        if let Opening::Asking { ring, shown } = &mut self.opening
            && let Poll::Ready(asked) = poll(ring, &waker)
        {
            let ring = match asked {
                Ok(ring) => ring,
                Err(failed) => return Err(self.no_ring(failed.why())),
            };
            if ring.len() < RING {
                return Err(nonsense("its ring is too short"));
            }
            self.opening = Opening::Open { ring, shown: shown.take() };
        }
        Ok(true)
    }

    /// The other side gives no ring. Where it has ended the connection, that says more.
    fn no_ring(&self, why: &Error) -> Failure {
        let over = self.check_open().err();
        match over {
            Some(refused) if refused.error == FI_ECONNREFUSED => refused,
            over => {
                // Providers up to version 3 of the protocol say no more than that.
                let why = over.map_or_else(|| why.to_string(), |over| over.text);
                let text = format!(
                    "the peer gives no ring, as one with another version of this provider does \
                     (here its protocol has version {VERSION}): {why}"
                );
                Failure::new(FI_ECONNREFUSED, text)
            }
        }
    }

    /// The ring of the other side, once it is there.
    pub(super) const fn ring(&self) -> Option<&RemoteMemory> {
        match &self.opening {
            Opening::Open { ring, .. } => Some(ring),
            _ => None,
        }
    }

    /// The ring of this side, once the other side has it.
    pub(super) const fn shown(&self) -> Option<&Exposed> {
        match &self.opening {
            Opening::Asking { shown, .. } | Opening::Open { shown, .. } => shown.as_ref(),
            Opening::Connecting(_) => None,
        }
    }

    /// Gives the other side the memory that it asks for, and what it wants to read.
    pub(super) fn answer_requests(
        &mut self,
        core: &mut EndpointState,
        world: &mut World,
    ) -> Result<(), Failure> {
        let Some(connection) = self.connection.clone() else { return Ok(()) };
        let waker = self.waker.requests.clone();
        while let Poll::Ready(Ok(request)) = poll_once(connection.region_request(), &waker) {
            if request.name() == RING_NAME {
                self.show_ring(request)?;
            } else {
                self.show_memory(core, world, request);
            }
        }
        while let Poll::Ready(Ok(request)) = poll_once(connection.read_request(), &waker) {
            self.answer_read(core, world, request);
        }
        Ok(())
    }

    fn show_ring(&mut self, request: RegionRequest) -> Result<(), Failure> {
        let (own, len) = (self.own.whole(), request.len());
        let (Opening::Asking { shown, .. } | Opening::Open { shown, .. }) = &mut self.opening
        else {
            return Ok(());
        };
        if len != RING || shown.is_some() {
            return Err(nonsense("it wants another ring"));
        }
        *shown = Some(request.expose(&own, RemoteRights::PUT).map_err(|error| failure(&error))?);
        Ok(())
    }

    /// Is the connection still there?
    pub(super) fn check_open(&self) -> Result<(), Failure> {
        let Some(connection) = &self.connection else { return Ok(()) };
        match poll_once(connection.closed(), &self.waker.requests) {
            Poll::Pending => Ok(()),
            Poll::Ready(Ok(())) => Err(failure(&Error::Closed { why: None })),
            Poll::Ready(Err(error)) => Err(failure(&error)),
        }
    }
}
