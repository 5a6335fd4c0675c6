//! The way to another carrier: batches of frames, over the Scheduled Transfer Protocol or over
//! a queue pair, for all connections between two hosts.
//!
//! Over a queue pair a batch is a record of a byte stream, sealed ([`super::seals`]); over STP,
//! which is encrypted below, it is a Transfer. Transfers may overtake each other, so each has a number, as
//! those of a byte stream of `sockets-compat` have: such a stream can speak to a carrier. The
//! topmost bit says that it is no batch: many bytes of one connection go beside the batches, from
//! the ring of one program to the same place of the other's ring. They have their place before
//! they leave, since no more leave than that ring has room for. The four bytes beside such a
//! Transfer name the connection and the place.

use std::collections::{BTreeMap, VecDeque};
use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use landfall::qpip::{Adapter, Link as Tunnel};
use landfall::stp::{
    self, Config as StpConfig, Connection, Endpoint, EndpointDriver, Memory, Message, Operation,
    Part, Peer, Reason, Received, Region, Sent, Transport, Wait,
};
use sockets_compat::tokio::{QpListener, QpStream};
use sockets_compat::{QpHost, QpOptions};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::config::Config;
use super::frame::BATCH;
use super::handshake;
use super::mapping::Mapping;
use super::seals::{OVERHEAD, Seals};
use crate::segment::CARRIED_CAPACITY;

/// The port of STP at which carriers hear each other: protocol 118 is STP's own.
const STP_PORT: u16 = 118;
/// The port of TCP within the tunnel.
const QP_PORT: u16 = 118;
/// The other carrier may have filled a batch, and then told of each connection once more.
const LONGEST_BATCH: usize = 4 * BATCH;

pub(super) type Opening = Pin<Box<dyn Future<Output = io::Result<Link>>>>;

/// Where links come from.
pub(super) enum Network {
    Stp { endpoint: Endpoint, listener: stp::Listener, driver: EndpointDriver, udp: u16 },
    Qpip { host: QpHost, listener: QpListener },
}

impl Network {
    pub(super) fn open(config: &Config) -> io::Result<Self> {
        let listen = SocketAddr::new(config.listen.ip().to_canonical(), config.listen.port());
        if config.over == landfall_socket_rules::Transport::Qpip {
            let host = queue_pairs(listen, config)?;
            let listener = host.listen(SocketAddr::new(listen.ip(), QP_PORT))?;
            let listener = QpListener::from_std(listener)?;
            return Ok(Self::Qpip { host, listener });
        }
        let builder = Endpoint::builder().path(Transport::udp(listen)).wait(Wait::Block);
        let builder = builder.config(StpConfig::shared_network());
        let builder = builder.preshared_key(handshake::sealing_key(&config.key));
        let (endpoint, driver) = builder.bind_without_thread().map_err(io::Error::other)?;
        let listener = endpoint.listen(STP_PORT).map_err(io::Error::other)?;
        Ok(Self::Stp { endpoint, listener, driver, udp: config.port })
    }

    /// What has to be watched for it, if anything is to be done when that is readable.
    pub(super) const fn driver(&self) -> Option<&EndpointDriver> {
        match self {
            Self::Stp { driver, .. } => Some(driver),
            Self::Qpip { .. } => None,
        }
    }

    /// Calls the carrier of another host.
    pub(super) fn connect(&self, host: IpAddr) -> Opening {
        let host = host.to_canonical();
        match self {
            Self::Stp { endpoint, udp, .. } => {
                let (endpoint, there) = (endpoint.clone(), SocketAddr::new(host, *udp));
                Box::pin(async move {
                    let connected = endpoint.connect(Peer::Socket(there), STP_PORT).await;
                    let connection = connected.map_err(io::Error::other)?;
                    Ok(Link::Stp(StpLink::new(endpoint, connection)))
                })
            }
            Self::Qpip { host: own, .. } => {
                let (own, there) = (own.clone(), SocketAddr::new(host, QP_PORT));
                Box::pin(
                    async move { Ok(Link::Qp(QpLink::new(QpStream::connect(&own, there).await?))) },
                )
            }
        }
    }

    /// The next carrier that calls.
    pub(super) fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<Link>> {
        match self {
            Self::Stp { endpoint, listener, .. } => {
                // Dropped, this future loses nothing: a connection leaves its queue when it is
                // ready.
                let accept = std::pin::pin!(listener.accept());
                let accepted = ready!(accept.poll(cx)).map_err(io::Error::other)?;
                Poll::Ready(Ok(Link::Stp(StpLink::new(endpoint.clone(), accepted))))
            }
            Self::Qpip { listener, .. } => {
                let (stream, _) = ready!(listener.poll_accept(cx))?;
                Poll::Ready(Ok(Link::Qp(QpLink::new(stream))))
            }
        }
    }
}

/// An adapter of a tunnel in which each host has the address that it has outside.
fn queue_pairs(listen: SocketAddr, config: &Config) -> io::Result<QpHost> {
    let link = Tunnel::tunnel(listen, config.peers.iter().copied());
    // All that can be reached is at the other end of the tunnel.
    let address = format!("{}/0", listen.ip());
    let adapter = Adapter::builder().link(link).address(address).mac(station_of(listen)).open();
    QpHost::new(adapter.map_err(io::Error::other)?, QpOptions::default())
}

/// One that takes the place of another is the same station: others need not find out first.
fn station_of(listen: SocketAddr) -> [u8; 6] {
    const IS_GROUP: u8 = 1;
    const IS_LOCAL: u8 = 2;
    let [first, rest @ ..] = *blake3::hash(listen.to_string().as_bytes()).as_bytes();
    let mut station = [first & !IS_GROUP | IS_LOCAL; 6];
    station[1..].copy_from_slice(&rest[..5]);
    station
}

/// Who takes what comes over a link.
pub(super) trait Receiver {
    /// Takes a batch of frames.
    fn batch(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Where this many bytes of a connection belong that lie at this place of a ring, and their
    /// position in its stream.
    fn place(&mut self, connection: u32, place: u64, len: u64) -> Option<(u64, Part)>;
    /// They are there.
    fn landed(&mut self, connection: u32, at: u64, len: u64);
}

/// The way to one other carrier.
pub(super) enum Link {
    Stp(StpLink),
    Qp(QpLink),
}

impl Link {
    /// Whether there is room for one more batch. Where there is none, the waker is woken once
    /// there is.
    pub(super) fn has_room(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        match self {
            Self::Stp(link) => link.has_room(cx),
            Self::Qp(link) => link.has_room(cx),
        }
    }

    /// What is said from here on is sealed, where nothing below does that.
    pub(super) fn seal(&mut self, seals: Seals) {
        match self {
            Self::Stp(_) => {}
            Self::Qp(link) => link.seals = Some(seals),
        }
    }

    /// Puts a batch on its way.
    pub(super) fn send(&mut self, cx: &mut Context<'_>, batch: Vec<u8>) -> io::Result<()> {
        match self {
            Self::Stp(link) => {
                link.send(batch);
                Ok(())
            }
            Self::Qp(link) => link.send(cx, &batch),
        }
    }

    /// Registers the rings of a connection, where bytes can go from ring to ring.
    pub(super) fn register(&self, memory: &Arc<Mapping>) -> Option<Region> {
        match self {
            Self::Stp(link) => link.endpoint.register_mapped(&memory.rings()?).ok(),
            Self::Qp(_) => None,
        }
    }

    /// Sends bytes from the ring of a connection to the same place of the ring there; nothing
    /// where that cannot be.
    pub(super) fn send_part(
        &self,
        part: Part,
        connection: u32,
        place: u64,
    ) -> Option<Operation<Sent>> {
        match self {
            Self::Stp(link) if connection < CONNECTIONS => {
                let opaque = BESIDE | connection << PLACE_BITS | place as u32;
                Some(link.connection.send(part).opaque(opaque).start())
            }
            _ => None,
        }
    }

    /// The next batch, and all that came beside it, handed to the receiver; false at the end.
    pub(super) fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        receiver: &mut impl Receiver,
    ) -> Poll<io::Result<bool>> {
        match self {
            Self::Stp(link) => match ready!(link.poll_receive(cx, receiver))? {
                Some(batch) => Poll::Ready(receiver.batch(&batch).map(|()| true)),
                None => Poll::Ready(Ok(false)),
            },
            Self::Qp(link) => match ready!(link.poll_record(cx, LONGEST_BATCH))? {
                Some(batch) => Poll::Ready(receiver.batch(batch).map(|()| true)),
                None => Poll::Ready(Ok(false)),
            },
        }
    }

    /// Sends something before there are batches.
    pub(super) async fn send_message(&mut self, bytes: Vec<u8>) -> io::Result<()> {
        poll_fn(|cx| match self.has_room(cx) {
            Ok(true) => Poll::Ready(self.send(cx, bytes.clone())),
            Ok(false) => Poll::Pending,
            Err(why) => Poll::Ready(Err(why)),
        })
        .await?;
        // Anyone who ends the link after that does not take it back.
        poll_fn(|cx| match self.has_room(cx) {
            Ok(_) if self.has_sent_all() => Poll::Ready(Ok(())),
            Ok(_) => Poll::Pending,
            Err(why) => Poll::Ready(Err(why)),
        })
        .await
    }

    /// Whether nothing is on its way any more.
    pub(super) fn has_sent_all(&self) -> bool {
        match self {
            Self::Stp(link) => link.under_way.is_empty(),
            Self::Qp(link) => link.output.is_empty(),
        }
    }

    /// Ends the link, so that the other carrier hears of it and need not wait for silence.
    pub(super) async fn close(self) {
        match self {
            // Whether it was graceful is of no use to anybody any more.
            Self::Stp(link) => drop(link.connection.close().await),
            Self::Qp(mut link) => {
                let _ = poll_fn(|cx| Pin::new(&mut link.stream).poll_shutdown(cx)).await;
                // Until the other has closed as well: it has the end then.
                while let Ok(Some(_)) = poll_fn(|cx| {
                    link.poll_record(cx, LONGEST_BATCH).map_ok(|record| record.map(<[u8]>::len))
                })
                .await
                {}
            }
        }
    }

    /// Receives something of that length before there are batches.
    pub(super) async fn receive_message<const LEN: usize>(&mut self) -> io::Result<[u8; LEN]> {
        let wrong = || io::Error::from(io::ErrorKind::InvalidData);
        poll_fn(|cx| match self {
            Self::Stp(link) => {
                let received = ready!(link.poll_receive(cx, &mut NoReceiver))?;
                let message = received.ok_or(io::ErrorKind::UnexpectedEof)?;
                Poll::Ready(message[..].try_into().map_err(|_| wrong()))
            }
            Self::Qp(link) => {
                let message = ready!(link.poll_record(cx, LEN))?;
                let message = message.ok_or(io::ErrorKind::UnexpectedEof)?;
                Poll::Ready(message.try_into().map_err(|_| wrong()))
            }
        })
        .await
    }
}

/// This many batches are under way at a time: while they are, the next one fills.
const MOST_UNDER_WAY: usize = 8;
/// This many may arrive before the one that is due.
const MOST_ARRIVALS: usize = 64;
/// This many Transfers from ring to ring may be on their way here.
const MOST_BESIDE: usize = 16_384;
/// In the four bytes beside a Transfer: it is no batch. Of a connection there are then its
/// number and the place in the ring; and without bytes it is the end of all.
const BESIDE: u32 = 1 << 31;
const PLACE_BITS: u32 = CARRIED_CAPACITY.trailing_zeros();
const _: () = assert!(CARRIED_CAPACITY.is_power_of_two());
/// Connections with smaller numbers than this can send so.
pub(super) const CONNECTIONS: u32 = 1 << (31 - PLACE_BITS);
/// Shorter memory is the heap's.
const PAGE: usize = 4096;

/// A connection of STP.
pub(super) struct StpLink {
    endpoint: Endpoint,
    connection: Connection,
    next: u32,
    under_way: VecDeque<Operation<Sent>>,
    due: u32,
    coming: Vec<(u32, Operation<Message>)>,
    here: BTreeMap<u32, Message>,
    /// Of which connection, at which position, and what is on its way.
    beside: Vec<(u32, u64, Operation<Received>)>,
    has_ended: bool,
}

/// The number after this one; zero is none.
const fn after(number: u32) -> u32 {
    if number == BESIDE - 1 { 1 } else { number + 1 }
}

impl StpLink {
    const fn new(endpoint: Endpoint, connection: Connection) -> Self {
        Self {
            endpoint,
            connection,
            next: 1,
            under_way: VecDeque::new(),
            due: 1,
            coming: Vec::new(),
            here: BTreeMap::new(),
            beside: Vec::new(),
            has_ended: false,
        }
    }

    fn has_room(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        while let Some(oldest) = self.under_way.front_mut() {
            match Pin::new(oldest).poll(cx) {
                Poll::Pending => break,
                Poll::Ready(sent) => {
                    sent.map_err(io::Error::other)?;
                    self.under_way.pop_front();
                }
            }
        }
        Ok(self.under_way.len() < MOST_UNDER_WAY)
    }

    fn send(&mut self, batch: Vec<u8>) {
        let operation = self.connection.send(batch).opaque(self.next).start();
        self.next = after(self.next);
        self.under_way.push_back(operation);
    }

    /// Accepts what is offered.
    fn accept(&mut self, cx: &mut Context<'_>, receiver: &mut impl Receiver) -> io::Result<()> {
        while self.coming.len() + self.here.len() < MOST_ARRIVALS {
            // Dropped, this future loses nothing: an offer leaves its queue when it is ready.
            let next = std::pin::pin!(self.connection.offer());
            let offer = match next.poll(cx) {
                Poll::Pending => return Ok(()),
                Poll::Ready(Ok(offer)) => offer,
                Poll::Ready(Err(why)) if why.is_graceful_close() => {
                    self.has_ended = true;
                    return Ok(());
                }
                Poll::Ready(Err(why)) => return Err(io::Error::other(why)),
            };
            let number = offer.opaque();
            let len = usize::try_from(offer.len()).unwrap_or(usize::MAX);
            if number & BESIDE != 0 && len > 0 && self.beside.len() < MOST_BESIDE {
                let (connection, place) =
                    (number >> PLACE_BITS & (CONNECTIONS - 1), number % (1 << PLACE_BITS));
                match receiver.place(connection, place.into(), len as u64) {
                    Some((at, part)) => {
                        self.beside.push((connection, at, offer.accept_into(&part)));
                    }
                    // It is over here, and its other end will hear of that.
                    None => offer.refuse(Reason::Refused),
                }
                continue;
            }
            if number & BESIDE != 0 || len > LONGEST_BATCH {
                self.has_ended = true;
                return Ok(());
            }
            let memory = match len {
                ..PAGE => Memory::zeroed(len),
                _ => self.endpoint.memory(len).map_err(io::Error::other)?,
            };
            self.coming.push((number, offer.accept(memory)));
        }
        Ok(())
    }

    /// The next batch; nothing at the end.
    fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        receiver: &mut impl Receiver,
    ) -> Poll<io::Result<Option<Message>>> {
        if !self.has_ended {
            self.accept(cx, receiver)?;
        }
        self.beside.retain_mut(|(connection, at, operation)| {
            match Pin::new(operation).poll(cx) {
                Poll::Pending => true,
                Poll::Ready(Ok(received)) => {
                    receiver.landed(*connection, *at, received.len);
                    false
                }
                // Its sender has given it up, and the connection with it.
                Poll::Ready(Err(_)) => false,
            }
        });
        let mut at = 0;
        while let Some((number, operation)) = self.coming.get_mut(at) {
            match Pin::new(operation).poll(cx) {
                Poll::Pending => at += 1,
                Poll::Ready(message) => {
                    let (number, message) = (*number, message.map_err(io::Error::other)?);
                    drop(self.coming.remove(at));
                    self.here.insert(number, message);
                }
            }
        }
        match self.here.remove(&self.due) {
            Some(message) => {
                self.due = after(self.due);
                Poll::Ready(Ok(Some(message)))
            }
            None if self.has_ended && self.coming.is_empty() => Poll::Ready(Ok(None)),
            None => Poll::Pending,
        }
    }
}

/// Before there are connections.
struct NoReceiver;

impl Receiver for NoReceiver {
    fn batch(&mut self, _: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::InvalidData.into())
    }

    fn place(&mut self, _: u32, _: u64, _: u64) -> Option<(u64, Part)> {
        None
    }

    fn landed(&mut self, _: u32, _: u64, _: u64) {}
}

/// This many bytes may wait to be written.
const MOST_WAITING: usize = 2 * BATCH;
/// This many are read at once.
const INPUT: usize = 2 * (LONGEST_BATCH + OVERHEAD);

/// A byte stream of a queue pair.
pub(super) struct QpLink {
    stream: QpStream,
    /// Nothing until both ends know each other.
    seals: Option<Seals>,
    /// What could not be written yet.
    output: Vec<u8>,
    written: usize,
    /// What was read, and up to where it was used.
    input: Vec<u8>,
    start: usize,
    end: usize,
}

impl QpLink {
    fn new(stream: QpStream) -> Self {
        let (output, input) = (Vec::new(), vec![0; INPUT]);
        Self { stream, seals: None, output, written: 0, input, start: 0, end: 0 }
    }

    fn has_room(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        while self.written < self.output.len() {
            match Pin::new(&mut self.stream).poll_write(cx, &self.output[self.written..]) {
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(written) => self.written += written?,
                Poll::Pending => return Ok(self.output.len() - self.written < MOST_WAITING),
            }
        }
        self.output.clear();
        self.written = 0;
        Ok(true)
    }

    fn send(&mut self, cx: &mut Context<'_>, batch: &[u8]) -> io::Result<()> {
        self.output.drain(..self.written);
        self.written = 0;
        match &mut self.seals {
            Some(seals) => seals.seal(batch, &mut self.output)?,
            None => self.output.extend_from_slice(batch),
        }
        self.has_room(cx).map(drop)
    }

    /// The contents of the next record, which are no longer than `most`; this many bytes as they
    /// are until there are seals. Nothing at the end.
    fn poll_record(
        &mut self,
        cx: &mut Context<'_>,
        most: usize,
    ) -> Poll<io::Result<Option<&[u8]>>> {
        let is_sealed = self.seals.is_some();
        let enough = |bytes: &[u8]| match is_sealed {
            true => Seals::record_len(bytes, most),
            false => Ok(if bytes.len() < most { 0 } else { most }),
        };
        let len = ready!(self.poll_fill(cx, enough))?;
        if len == 0 {
            return Poll::Ready(Ok(None));
        }
        let record = &mut self.input[self.start..self.start + len];
        self.start += len;
        Poll::Ready(match &mut self.seals {
            Some(seals) => seals.open(record).map(Some),
            None => Ok(Some(record)),
        })
    }

    /// Reads until `enough` of it is there; how much that is, and zero at the end.
    fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        enough: impl Fn(&[u8]) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            match enough(&self.input[self.start..self.end])? {
                0 => {}
                len => return Poll::Ready(Ok(len)),
            }
            self.input.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            let mut room = ReadBuf::new(&mut self.input[self.end..]);
            ready!(Pin::new(&mut self.stream).poll_read(cx, &mut room))?;
            match room.filled().len() {
                0 => return Poll::Ready(Ok(0)),
                read => self.end += read,
            }
        }
    }
}
