//! Kernel UDP: pairs of connected sockets, and round trips over them.

use std::net::SocketAddr;

use socket2::{Domain, Socket, Type};

use super::ping_pong::{Kind, PingPong};
use super::{Endpoints, Plan};
use crate::error::{Error, Tried};
use crate::sample::Sample;

/// What fits into one IPv4 datagram: 65,535 less the IP and UDP headers.
pub(super) const LARGEST_PAYLOAD: usize = 65_507;

/// Round trips over UDP, one datagram each way.
#[derive(Clone, Debug)]
pub struct UdpLatency {
    /// Where, how much, how.
    pub plan: Plan,
    /// Bytes per message.
    pub message: usize,
    /// Rounds at the start that are not recorded.
    pub warm_up: u64,
}

impl UdpLatency {
    /// Messages of `message` bytes, after a warm-up of 1000 rounds.
    #[must_use]
    pub fn new(plan: Plan, message: usize) -> Self {
        Self { plan, message, warm_up: 1000 }
    }

    /// One run over a new pair of sockets. A lost datagram ends the run with
    /// [`Error::TimedOut`]: nobody sends it again.
    pub fn run(&self) -> Result<Sample, Error> {
        if self.message > LARGEST_PAYLOAD {
            let message = self.message;
            return Err(Error::BadRequest(format!(
                "datagrams of {message} bytes; at most {LARGEST_PAYLOAD} are possible"
            )));
        }
        let (asker, answerer) = connected_pair(&self.plan.endpoints)?;
        let conversation = PingPong {
            plan: &self.plan,
            kind: Kind::Datagram,
            message: self.message,
            warm_up: self.warm_up,
        };
        conversation.run(&asker, &answerer)
    }
}

/// Two sockets that hear only each other.
pub(super) fn connected_pair(endpoints: &Endpoints) -> Result<(Socket, Socket), Error> {
    let Endpoints { send, receive } = endpoints;
    let [from, to] = [send, receive].map(|side| {
        let address = SocketAddr::new(side.address, 0);
        side.enter(|| {
            let socket = Socket::new(Domain::for_address(address), Type::DGRAM, None)
                .tried("make a UDP socket")?;
            socket.bind(&address.into()).tried("bind a UDP socket")?;
            Ok(socket)
        })
    });
    let (from, to) = (from?, to?);
    let connect = |one: &Socket, other: &Socket| one.connect(&other.local_addr()?);
    connect(&from, &to).and_then(|()| connect(&to, &from)).tried("connect UDP sockets")?;
    Ok((from, to))
}
