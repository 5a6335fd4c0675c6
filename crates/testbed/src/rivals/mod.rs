//! What the kernel offers, measured as the best honest version of each: the
//! rivals that a transport of ours is compared with.
//!
//! Each rival runs as two threads on cores of their own, a sender and a
//! receiver (or an asker and an answerer), with sockets in the namespaces of
//! its [`Endpoints`]. Each counts every byte, and each ends within its limit,
//! whatever happens.

pub mod far;
mod many;
mod measure;
mod overhead;
mod ping_pong;
mod stream;
mod tcp;
mod udp_bulk;
pub(crate) use udp_bulk::UDP_SEGMENT;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use overhead::TcpOverhead;
pub use stream::StreamShape;
pub use tcp::{
    Congestion, TcpLatency, TcpOptions, TcpThroughput, UnixLatency, UnixThroughput,
    retransmitted_segments, set_receive_buffer,
};
pub use udp_bulk::{Scatter, UdpLatency, UdpThroughput};

use crate::cpu;
use crate::error::Error;
use crate::idle_meter::{IdleMeter, Reading};
use crate::namespace::Namespace;
use crate::sample::CoresBusy;
use crate::veth::{VethEnd, VethPair};

/// Where one thread of a rival works.
#[derive(Clone, Debug)]
pub struct WorkerPlace {
    /// The namespace of its socket; `None`: that of the caller.
    pub namespace: Option<Namespace>,
    /// The address of its socket.
    pub address: IpAddr,
    /// The core on which it is pinned; `None`: wherever.
    pub core: Option<usize>,
}

/// Where both threads work.
#[derive(Clone, Debug)]
pub struct Endpoints {
    /// The sender, or who asks.
    pub send: WorkerPlace,
    /// The receiver, or who answers.
    pub receive: WorkerPlace,
}

impl Endpoints {
    /// Over loopback, on the first two cores that may be used.
    pub fn loopback() -> Result<Self, Error> {
        let side =
            |core| WorkerPlace { namespace: None, address: Ipv4Addr::LOCALHOST.into(), core };
        let [send, receive] = two_cores()?;
        Ok(Self { send: side(send), receive: side(receive) })
    }

    /// From `a` to `b` of a veth pair by IPv4, on the first two cores that
    /// may be used.
    pub fn over(pair: &VethPair) -> Result<Self, Error> {
        Self::by_address(pair, |end| end.ipv4.into())
    }

    /// As [`over`](Self::over), by IPv6.
    pub fn over_ipv6(pair: &VethPair) -> Result<Self, Error> {
        Self::by_address(pair, |end| end.ipv6.into())
    }

    /// The same over IPv6 loopback.
    pub fn loopback_ipv6() -> Result<Self, Error> {
        let mut endpoints = Self::loopback()?;
        endpoints.send.address = Ipv6Addr::LOCALHOST.into();
        endpoints.receive.address = Ipv6Addr::LOCALHOST.into();
        Ok(endpoints)
    }

    fn by_address(pair: &VethPair, address: impl Fn(&VethEnd) -> IpAddr) -> Result<Self, Error> {
        let side = |end: &VethEnd, core| WorkerPlace {
            namespace: Some(end.namespace.clone()),
            address: address(end),
            core,
        };
        let [send, receive] = two_cores()?;
        Ok(Self { send: side(&pair.a, send), receive: side(&pair.b, receive) })
    }

    /// Whether both threads share one core, so that spinning must give way.
    fn share_a_core(&self) -> bool {
        self.send.core.is_some() && self.send.core == self.receive.core
    }
}

impl WorkerPlace {
    /// Runs `work` where the side's sockets are made.
    fn enter<T: Send>(&self, work: impl FnOnce() -> Result<T, Error> + Send) -> Result<T, Error> {
        match &self.namespace {
            Some(namespace) => namespace.enter(work)?,
            None => work(),
        }
    }
}

/// The first two cores that may be used, or the only one twice.
fn two_cores() -> Result<[Option<usize>; 2], Error> {
    let cores = cpu::allowed_cores()?;
    let first = cores.first().copied();
    Ok([first, cores.get(1).copied().or(first)])
}

/// How much a run moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// As much as fits into this time.
    Time(Duration),
    /// This many payload bytes.
    Bytes(u64),
    /// This many messages: sends, or round trips.
    Messages(u64),
}

impl Amount {
    /// Is it enough, with this many messages of this length begun since then?
    #[must_use]
    pub fn is_reached(self, started: Instant, begun: u64, message: u64) -> bool {
        match self {
            Self::Time(time) => started.elapsed() >= time,
            Self::Messages(most) => begun >= most,
            Self::Bytes(most) => begun * message >= most,
        }
    }
}

/// How a thread waits for its socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Polling {
    /// It sleeps in the kernel.
    #[default]
    Block,
    /// It tries again and again.
    Spin,
}

/// What happens to the bytes at both ends of a throughput run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Workload {
    /// From memory into memory.
    #[default]
    Plain,
    /// From a file in the page cache by `sendfile`, into memory.
    Sendfile,
    /// From memory; the receiver throws the bytes away (`MSG_TRUNC`).
    Trunc,
    /// From a file in the page cache by `sendfile`; the receiver throws the bytes away.
    SendfileTrunc,
    /// From memory into memory, where the receiver then reads every byte.
    Touch,
}

impl Workload {
    /// The name that tables and programs know it by.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Sendfile => "sendfile",
            Self::Trunc => "trunc",
            Self::SendfileTrunc => "sendfile-trunc",
            Self::Touch => "touch",
        }
    }

    /// The sender's bytes come from a file.
    #[must_use]
    pub const fn sends_a_file(self) -> bool {
        matches!(self, Self::Sendfile | Self::SendfileTrunc)
    }

    /// The receiver throws the bytes away.
    #[must_use]
    pub const fn throws_away(self) -> bool {
        matches!(self, Self::Trunc | Self::SendfileTrunc)
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What all rivals have in common.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where.
    pub endpoints: Endpoints,
    /// How much.
    pub amount: Amount,
    /// How both threads wait.
    pub polling: Polling,
    /// How long the run may take, beyond the time of [`Amount::Time`].
    pub limit: Duration,
    /// Measures the processors from outside meanwhile.
    pub idle_meter: Option<Arc<IdleMeter>>,
}

impl Plan {
    /// A plan that blocks, with a limit of 30 seconds.
    #[must_use]
    pub fn new(endpoints: Endpoints, amount: Amount) -> Self {
        let limit = Duration::from_secs(30);
        Self { endpoints, amount, polling: Polling::Block, limit, idle_meter: None }
    }

    /// The same plan with another way of waiting.
    #[must_use]
    pub fn polling(self, polling: Polling) -> Self {
        Self { polling, ..self }
    }

    /// What the idle meter has had so far, for [`busy_since`](Self::busy_since).
    #[must_use]
    pub fn idle_reading(&self) -> Option<Reading> {
        self.idle_meter.as_ref().map(|idle_meter| idle_meter.read())
    }

    /// How busy the cores of both sides were since then, in percent. Nothing without a
    /// idle meter, or where a side has no core of its own.
    #[must_use]
    pub fn busy_since(&self, start: Option<&Reading>) -> Option<CoresBusy> {
        let (idle_meter, start) = (self.idle_meter.as_ref()?, start?);
        let now = idle_meter.read();
        let percent = |side: &WorkerPlace| idle_meter.busy_percent(side.core?, start, &now);
        let Endpoints { send, receive } = &self.endpoints;
        Some(CoresBusy { send_percent: percent(send)?, receive_percent: percent(receive)? })
    }
}
