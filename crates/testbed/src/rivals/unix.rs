//! Unix stream sockets: what two processes of one machine have without any
//! network. The endpoints' cores count; their namespaces and addresses do
//! not.

use socket2::{Domain, Socket, Type};

use super::Plan;
use super::many::pump_many;
use super::ping_pong::{Kind, PingPong};
use super::stream::{StreamShape, pump};
use super::tcp::{set_receive_buffer, set_send_buffer};
use crate::error::{Error, Tried};
use crate::sample::Sample;

/// A bulk transfer over a Unix stream socket.
#[derive(Clone, Debug)]
pub struct UnixThroughput {
    /// Where, how much, how.
    pub plan: Plan,
    /// Buffers and workload.
    pub shape: StreamShape,
    /// Buffer of each socket in bytes; `None` leaves it to the kernel.
    pub buffer: Option<usize>,
    /// Over so many connections at a time, all served by the same two threads.
    pub connections: u32,
}

impl UnixThroughput {
    /// The plain loop of 128 KiB.
    #[must_use]
    pub fn new(plan: Plan) -> Self {
        Self { plan, shape: StreamShape::default(), buffer: None, connections: 1 }
    }

    /// One run over new pairs of sockets.
    pub fn run(&self) -> Result<Sample, Error> {
        if self.shape.workload.throws_away() {
            let why = "MSG_TRUNC on a Unix stream: the kernel copies all the same";
            return Err(Error::Unsupported(why.into()));
        }
        let pairs: Vec<(Socket, Socket)> =
            (0..self.connections).map(|_| self.sockets()).collect::<Result<_, _>>()?;
        if let [(from, to)] = pairs.as_slice() {
            return pump(&self.plan, self.shape, from, to);
        }
        let (from, to): (Vec<&Socket>, Vec<&Socket>) =
            pairs.iter().map(|(from, to)| (from, to)).unzip();
        pump_many(&self.plan, self.shape, &from, &to)
    }

    fn sockets(&self) -> Result<(Socket, Socket), Error> {
        let (from, to) = socket_pair()?;
        if let Some(size) = self.buffer {
            set_send_buffer(&from, size)?;
            set_receive_buffer(&to, size)?;
        }
        Ok((from, to))
    }
}

/// Round trips over a Unix stream socket.
#[derive(Clone, Debug)]
pub struct UnixLatency {
    /// Where, how much, how.
    pub plan: Plan,
    /// Bytes per message.
    pub message: usize,
    /// Rounds at the start that are not recorded.
    pub warm_up: u64,
}

impl UnixLatency {
    /// Messages of `message` bytes, after a warm-up of 1000 rounds.
    #[must_use]
    pub fn new(plan: Plan, message: usize) -> Self {
        Self { plan, message, warm_up: 1000 }
    }

    /// One run over a new pair of sockets.
    pub fn run(&self) -> Result<Sample, Error> {
        let (asker, answerer) = socket_pair()?;
        let conversation = PingPong {
            plan: &self.plan,
            kind: Kind::Stream,
            message: self.message,
            warm_up: self.warm_up,
        };
        conversation.run(&asker, &answerer)
    }
}

fn socket_pair() -> Result<(Socket, Socket), Error> {
    Socket::pair(Domain::UNIX, Type::STREAM, None).tried("make a pair of Unix sockets")
}
