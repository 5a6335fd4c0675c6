//! A connection begins: over STP the two sides give each other a ring to write to, and over QPIP
//! they greet each other.

use std::collections::{HashMap, VecDeque};
use std::task::Poll;

use landfall::stp::Reason;

use super::queue::{QueueWire, greeting};
use super::stp::{RING_NAME, StpWire};
use super::wire::{Progress, Wire};
use super::{Link, poll_once};
use crate::abi::FI_ECONNREFUSED;
use crate::address::Name;
use crate::carrier::{Incoming, Network};
use crate::completion::Failure;
use crate::core::EndpointState;
use crate::notify::Ready;
use crate::ring::{ReceiveRing, SendRing};
use crate::world::World;

/// The port of STP where providers listen.
pub(crate) const PORT: u16 = 0xfab1;
/// The same for endpoints that listen for connections: `FI_EP_MSG`.
pub(crate) const CONNECTED_PORT: u16 = 0xfab2;
/// What providers of this version greet each other with.
pub(crate) const HELLO: u64 = 0x6c66_6669_0000_0003;
/// What the greetings of all versions have in common; the rest is the version.
const HELLO_OF_ALL: u64 = HELLO & !0xffff_ffff;
pub(super) const VERSION: u32 = HELLO as u32;

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

impl Link {
    /// Begins to connect to a peer.
    pub(crate) fn connect(
        core: &EndpointState,
        number: usize,
        peer: usize,
        to: Name,
        port: u16,
    ) -> Result<Self, Failure> {
        let wire = match &core.network {
            Network::Stp(endpoint) => Wire::Stp(StpWire::connect(endpoint, to, port)?),
            Network::Qpip(host) => {
                Wire::Qpip(Box::new(QueueWire::connect(host, to.address, port)?))
            }
        };
        Ok(Self::new(core, number, peer, port, wire))
    }

    /// A peer has connected.
    pub(crate) fn accept(
        core: &EndpointState,
        number: usize,
        peer: usize,
        incoming: Incoming,
        port: u16,
    ) -> Result<Self, Failure> {
        let mut link = match incoming {
            Incoming::Stp(connection) => {
                if connection.hello() != HELLO {
                    let greeting = connection.hello();
                    connection.refuse(Reason::Incompatible);
                    return Err(other_version(Some(greeting)));
                }
                let wire = Wire::Stp(StpWire::accept(core.network.stp()?, connection)?);
                let mut link = Self::new(core, number, peer, port, wire);
                link.tell_rails(core);
                link
            }
            Incoming::Qpip(queue) => {
                let wire = Wire::Qpip(Box::new(QueueWire::accept(*queue, port)?));
                let mut link = Self::new(core, number, peer, port, wire);
                link.greet(greeting(port, None))?;
                link
            }
        };
        link.may_add_rails = false;
        Ok(link)
    }

    fn new(core: &EndpointState, number: usize, peer: usize, port: u16, wire: Wire) -> Self {
        Self {
            number,
            peer,
            waker: Ready::waker(&core.ready, number),
            is_attended: false,
            is_paused: false,
            wire,
            send: SendRing::default(),
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
        }
    }

    /// Goes on with the opening. Is there a connection?
    pub(super) fn open(&mut self, core: &EndpointState) -> Result<bool, Failure> {
        match self.wire.open(&self.waker)? {
            Progress::Connecting => Ok(false),
            Progress::Begun => self.introduce(core).map(|()| true),
            Progress::Open => Ok(true),
        }
    }

    /// Gives the other side the memory that it asks for, and what it wants to read.
    pub(super) fn answer_requests(
        &mut self,
        core: &mut EndpointState,
        world: &mut World,
    ) -> Result<(), Failure> {
        let Some(connection) = self.wire.connection().cloned() else { return Ok(()) };
        let waker = self.waker.requests.clone();
        while let Poll::Ready(Ok(request)) = poll_once(connection.region_request(), &waker) {
            match &mut self.wire {
                Wire::Stp(stp) if request.name() == RING_NAME => stp.show_ring(request)?,
                _ => self.show_memory(core, world, request),
            }
        }
        while let Poll::Ready(Ok(request)) = poll_once(connection.read_request(), &waker) {
            self.answer_read(core, world, request);
        }
        Ok(())
    }
}
