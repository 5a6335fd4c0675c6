//! Kernel TCP.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use socket2::{Domain, Socket, Type};

use super::many::pump_many;
use super::ping_pong::{Kind, PingPong};
use super::stream::{StreamShape, pump};
use super::{Endpoints, Plan};
use crate::error::{Error, Tried};
use crate::sample::Sample;
use crate::sys;

/// A bulk transfer over TCP.
#[derive(Clone, Debug)]
pub struct TcpThroughput {
    /// Where, how much, how.
    pub plan: Plan,
    /// Buffers and workload.
    pub shape: StreamShape,
    /// Socket options.
    pub options: TcpOptions,
    /// Over this many connections at a time, all served by the same two threads.
    pub connections: u32,
}

impl TcpThroughput {
    /// The plain loop of 128 KiB, with the kernel's own choice of buffers.
    #[must_use]
    pub fn new(plan: Plan) -> Self {
        let (shape, options) = (StreamShape::default(), TcpOptions::default());
        Self { plan, shape, options, connections: 1 }
    }

    /// The settings that are worth trying when TCP's best is wanted, with
    /// labels: which of them wins differs from machine to machine.
    ///
    /// The congestion control matters most: on a veth, `bbr` (the setting of
    /// some machines) was seen to send thousands of segments again and to
    /// reach half the goodput of `reno` and `cubic`. A variant that this
    /// kernel does not have fails when run.
    #[must_use]
    pub fn variants(plan: &Plan) -> Vec<(String, Self)> {
        let mut variants = Vec::new();
        for congestion in [None, Some(Congestion::Reno), Some(Congestion::Cubic)] {
            for window in [None, Some(1 << 20)] {
                let mut tcp = Self::new(plan.clone());
                tcp.options.congestion = congestion;
                tcp.options.receive_buffer = window;
                let name = congestion.map_or("as the machine has it", Congestion::name);
                let window = window.map_or("", |_| ", window 1 MiB");
                variants.push((format!("{name}{window}"), tcp));
            }
        }
        variants
    }

    /// One run over new connections.
    pub fn run(&self) -> Result<Sample, Error> {
        if self.connections > 1 {
            return self.run_many();
        }
        let connection = Connection::new(&self.plan, &self.options)?;
        let sample = pump(&self.plan, self.shape, &connection.client, &connection.server)?;
        connection.add_retransmissions(sample)
    }

    fn run_many(&self) -> Result<Sample, Error> {
        let new = |_| Connection::new(&self.plan, &self.options);
        let connections: Vec<Connection> =
            (0..self.connections).map(new).collect::<Result<_, _>>()?;
        let from: Vec<&Socket> = connections.iter().map(|it| &it.client).collect();
        let to: Vec<&Socket> = connections.iter().map(|it| &it.server).collect();
        let sample = pump_many(&self.plan, self.shape, &from, &to)?;
        connections.iter().try_fold(sample, |sample, one| one.add_retransmissions(sample))
    }
}

/// Round trips over TCP.
#[derive(Clone, Debug)]
pub struct TcpLatency {
    /// Where, how much, how.
    pub plan: Plan,
    /// Bytes per message.
    pub message: usize,
    /// Rounds at the start that are not recorded.
    pub warm_up: u64,
    /// Socket options.
    pub options: TcpOptions,
}

impl TcpLatency {
    /// Messages of `message` bytes without Nagle's delay, after a warm-up of
    /// 1000 rounds.
    #[must_use]
    pub fn new(plan: Plan, message: usize) -> Self {
        let options = TcpOptions { no_delay: true, ..TcpOptions::default() };
        Self { plan, message, warm_up: 1000, options }
    }

    /// One run over a new connection.
    pub fn run(&self) -> Result<Sample, Error> {
        let connection = Connection::new(&self.plan, &self.options)?;
        let conversation = PingPong {
            plan: &self.plan,
            kind: Kind::Stream,
            message: self.message,
            warm_up: self.warm_up,
        };
        let sample = conversation.run(&connection.client, &connection.server)?;
        connection.add_retransmissions(sample)
    }
}

/// Socket options of both ends.
#[derive(Clone, Copy, Debug, Default)]
pub struct TcpOptions {
    /// `TCP_NODELAY`.
    pub no_delay: bool,
    /// Send buffer in bytes; `None` leaves it to the kernel, which tunes it.
    pub send_buffer: Option<usize>,
    /// Receive buffer, and so the window; `None` leaves it to the kernel,
    /// which tunes it.
    pub receive_buffer: Option<usize>,
    /// Which congestion control; `None` leaves it to the machine's setting.
    pub congestion: Option<Congestion>,
    /// `SO_RCVLOWAT`: the receiver is not woken for less.
    pub low_water: Option<usize>,
    /// `TCP_MAXSEG`: segments of at most this many bytes, timestamps included, whatever the
    /// link would carry. What a link of another MTU would have, on one that cannot have it.
    pub segment: Option<u16>,
}

/// A congestion control of the kernel (`tcp_available_congestion_control`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Congestion {
    /// Always there.
    Reno,
    /// The default of most machines.
    Cubic,
    /// Paces what it sends by measured rate and delay.
    Bbr,
}

impl Congestion {
    /// The kernel's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Reno => "reno",
            Self::Cubic => "cubic",
            Self::Bbr => "bbr",
        }
    }
}

impl TcpOptions {
    /// Before the connection is made: the window scale is settled then.
    fn apply(&self, socket: &Socket) -> Result<(), Error> {
        socket.set_tcp_nodelay(self.no_delay).tried("set TCP_NODELAY")?;
        if let Some(congestion) = self.congestion {
            socket
                .set_tcp_congestion(congestion.name().as_bytes())
                .tried(&format!("use {} congestion control", congestion.name()))?;
        }
        if let Some(segment) = self.segment {
            let (level, name) = (libc::IPPROTO_TCP, libc::TCP_MAXSEG);
            sys::set_option(socket.as_fd(), level, name, segment.into()).tried("set TCP_MAXSEG")?;
        }
        if let Some(size) = self.send_buffer {
            set_send_buffer(socket, size)?;
        }
        if let Some(size) = self.receive_buffer {
            set_receive_buffer(socket, size)?;
        }
        Ok(())
    }
}

/// Asks for a send buffer, beyond the machine's limit where that is allowed.
pub(super) fn set_send_buffer(socket: &Socket, size: usize) -> Result<(), Error> {
    let forced = libc::SO_SNDBUFFORCE;
    sys::set_option(socket.as_fd(), libc::SOL_SOCKET, forced, as_int(size)?)
        .or_else(|_| socket.set_send_buffer_size(size))
        .tried("set the send buffer")
}

/// Gives a socket a receive buffer of this many bytes, beyond the machine's limit where
/// that is allowed.
///
/// # Errors
/// The kernel refuses, or nobody can count so far.
pub fn set_receive_buffer(socket: &Socket, size: usize) -> Result<(), Error> {
    let forced = libc::SO_RCVBUFFORCE;
    sys::set_option(socket.as_fd(), libc::SOL_SOCKET, forced, as_int(size)?)
        .or_else(|_| socket.set_recv_buffer_size(size))
        .tried("set the receive buffer")
}

fn as_int(size: usize) -> Result<libc::c_int, Error> {
    size.try_into()
        .map_err(|_| Error::BadRequest(format!("{size} bytes are too many for a socket option")))
}

/// Both ends of an established connection.
pub(super) struct Connection {
    pub(super) client: Socket,
    pub(super) server: Socket,
}

impl Connection {
    pub(super) fn new(plan: &Plan, options: &TcpOptions) -> Result<Self, Error> {
        let Endpoints { send, receive } = &plan.endpoints;
        let listener = receive.enter(|| {
            let socket = tcp_socket(SocketAddr::new(receive.address, 0), options)?;
            socket.listen(1).tried("listen")?;
            // Bounds `accept`.
            socket.set_read_timeout(Some(plan.limit)).tried("bound a wait")?;
            Ok(socket)
        })?;
        let address = listener.local_addr().tried("read the listener's address")?;
        let client = send.enter(|| tcp_socket(SocketAddr::new(send.address, 0), options))?;
        client.connect_timeout(&address, plan.limit).tried("connect by TCP")?;
        let (server, _) = listener.accept().tried("accept a connection")?;
        if let Some(low_water) = options.low_water {
            sys::set_option(
                server.as_fd(),
                libc::SOL_SOCKET,
                libc::SO_RCVLOWAT,
                as_int(low_water)?,
            )
            .tried("set SO_RCVLOWAT")?;
        }
        Ok(Self { client, server })
    }

    fn add_retransmissions(&self, sample: Sample) -> Result<Sample, Error> {
        let ends = [&self.client, &self.server];
        let mut retransmitted = sample.retransmitted;
        for end in ends {
            retransmitted += retransmitted_segments(end.as_fd())?;
        }
        Ok(Sample { retransmitted, ..sample })
    }
}

/// How many segments this TCP socket has sent again so far.
pub fn retransmitted_segments(socket: BorrowedFd<'_>) -> Result<u64, Error> {
    let info = sys::tcp_info(socket).tried("read TCP_INFO")?;
    Ok(info.tcpi_total_retrans.into())
}

pub(super) fn tcp_socket(address: SocketAddr, options: &TcpOptions) -> Result<Socket, Error> {
    let socket =
        Socket::new(Domain::for_address(address), Type::STREAM, None).tried("make a TCP socket")?;
    options.apply(&socket)?;
    socket.bind(&address.into()).tried("bind a TCP socket")?;
    Ok(socket)
}

// Unix stream sockets: what two processes of one machine have without any
// network. The endpoints' cores count; their namespaces and addresses do
// not.

/// A bulk transfer over a Unix stream socket.
#[derive(Clone, Debug)]
pub struct UnixThroughput {
    /// Where, how much, how.
    pub plan: Plan,
    /// Buffers and workload.
    pub shape: StreamShape,
    /// Buffer of each socket in bytes; `None` leaves it to the kernel.
    pub buffer: Option<usize>,
    /// Over this many connections at a time, all served by the same two threads.
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
