//! What the service does for one socket: connects, lets in, and carries messages to and fro.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::{Pin, pin};
use std::rc::{Rc, Weak};
use std::task::Poll;
use std::time::Duration;

use sockets_compat::tokio::{StpListener, StpSeqPacket};
use sockets_compat::{Address, Carrier, StpHost, StpOptions};
use tokio::io::AsyncWrite;

use super::exchange::{Mapped, State};
use super::packets::{self, File, Kind, LONGEST};
use super::service::{LingerGuard, Order, ServiceEnd, StpCarrier, is_ending, ready, spawn, within};
use crate::kernel::{Errno, Part};

/// How long the last messages of a socket that was closed may take to arrive.
const LINGER: Duration = Duration::from_secs(60);
/// After an error that may pass: a listener takes breath.
const BREATH: Duration = Duration::from_millis(20);

/// Which endpoint carries what: one for all that connect, one for each address that
/// listens, by version of IP and way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Role {
    Client(bool, bool),
    Server(IpAddr, StpCarrier),
}

/// The endpoints of this process; each ends with its last socket.
#[derive(Default)]
pub(super) struct Hosts(BTreeMap<Role, Weak<StpHost>>);

impl Hosts {
    fn get(&mut self, role: Role) -> io::Result<Rc<StpHost>> {
        if let Some(host) = self.0.get(&role).and_then(Weak::upgrade) {
            return Ok(host);
        }
        let any = |is_v6| -> IpAddr {
            if is_v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() }
        };
        let mut options = StpOptions::default();
        options.linger = LINGER;
        let host = Rc::new(match role {
            Role::Client(is_v6, true) => StpHost::bind_udp((any(is_v6), 0).into(), options),
            Role::Server(host, StpCarrier::Udp(port)) => {
                StpHost::bind_udp((host, port).into(), options)
            }
            Role::Client(is_v6, false) => StpHost::bind_ip(any(is_v6), options),
            Role::Server(host, StpCarrier::Ip) => StpHost::bind_ip(host, options),
        }?);
        self.0.retain(|_, host| host.strong_count() > 0);
        self.0.insert(role, Rc::downgrade(&host));
        Ok(host)
    }
}

/// The number that C knows an error by.
fn number(error: &io::Error) -> Errno {
    let of_kind = || match error.kind() {
        io::ErrorKind::AddrInUse => libc::EADDRINUSE,
        io::ErrorKind::ConnectionRefused => libc::ECONNREFUSED,
        io::ErrorKind::TimedOut => libc::ETIMEDOUT,
        io::ErrorKind::PermissionDenied => libc::EACCES,
        io::ErrorKind::AddrNotAvailable => libc::EADDRNOTAVAIL,
        io::ErrorKind::QuotaExceeded => libc::ENOBUFS,
        _ => libc::EIO,
    };
    Errno(error.raw_os_error().unwrap_or_else(of_kind))
}

/// Begins what was ordered.
pub(super) fn begin(hosts: &mut Hosts, order: Order) {
    match order {
        Order::Connect { service_end, page, address, transport } => {
            let host = hosts.get(Role::Client(address.is_ipv6(), transport != StpCarrier::Ip));
            spawn(connect(host, ServiceEnd::new(service_end), page, address, transport));
        }
        Order::Listen { service_end, page, address, transport, tell } => {
            let opened = hosts.get(Role::Server(address.ip(), transport)).and_then(|host| {
                let listener = StpListener::from_std(host.listen(address.port())?)?;
                let port = listener.local_addr()?.port().unwrap_or_default();
                Ok((host, listener, SocketAddr::new(address.ip(), port)))
            });
            let told = match opened {
                Ok((host, listener, here)) => {
                    spawn(let_in(host, listener, ServiceEnd::new(service_end), page, here));
                    (Ok(here), None)
                }
                Err(error) => (Err(number(&error)), Some((service_end, page))),
            };
            let _ = tell.send(told);
        }
    }
}

/// Connects, and then carries.
async fn connect(
    host: io::Result<Rc<StpHost>>,
    service_end: ServiceEnd,
    page: Mapped,
    address: SocketAddr,
    transport: StpCarrier,
) {
    let carrier = match transport {
        StpCarrier::Udp(port) => Carrier::Udp(port),
        StpCarrier::Ip => Carrier::Ip,
    };
    let to = Address::Stp { host: address.ip(), port: address.port(), carrier };
    let connecting = async {
        let host = host?;
        StpSeqPacket::connect_by(&host, to).await.map(|packets| (host, packets))
    };
    // A program that closes the socket does not want it any more.
    let gone = async { while ready(service_end.fd(), 0).await & libc::POLLHUP == 0 {} };
    match either(connecting, gone).await {
        Some(Ok((host, packets))) => {
            page.set_state(State::Connected);
            carry(host, packets, service_end, page);
        }
        Some(Err(error)) => {
            page.leave_trouble(number(&error));
            page.set_state(State::Over);
        }
        None => {}
    }
}

/// The first of the two; nothing if it is the second.
async fn either<T>(one: impl Future<Output = T>, other: impl Future<Output = ()>) -> Option<T> {
    let (mut one, mut other) = (pin!(one), pin!(other));
    poll_fn(|cx| match one.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => other.as_mut().poll(cx).map(|()| None),
    })
    .await
}

/// Hands in what comes, until the program closes its listener.
async fn let_in(
    host: Rc<StpHost>,
    listener: StpListener,
    service_end: ServiceEnd,
    page: Mapped,
    here: SocketAddr,
) {
    loop {
        let over = async {
            ready(service_end.fd(), libc::POLLIN).await;
        };
        let Some(accepted) = either(listener.accept(), over).await else { return };
        let handed = match accepted {
            Ok((packets, from)) => {
                hand_in(&host, packets, &from, (&service_end, &page), here).await
            }
            Err(_) => Err(Errno(libc::EAGAIN)),
        };
        if handed == Err(Errno(libc::EPIPE)) {
            return;
        }
        if handed.is_err() {
            // For want of descriptors, say: anyone who came is gone, and others may come.
            let _ = within(BREATH, std::future::pending::<()>()).await;
        }
    }
}

/// Gives the program a socket for a connection that came in.
async fn hand_in(
    host: &Rc<StpHost>,
    packets: StpSeqPacket,
    from: &Address,
    (service_end, page): (&ServiceEnd, &Mapped),
    here: SocketAddr,
) -> Result<(), Errno> {
    let there = match from {
        Address::Stp { host, port, .. } => SocketAddr::new(*host, *port),
        _ => here,
    };
    let (near, its_service_end) = packets::pair(libc::SOCK_CLOEXEC)?;
    let (its_page, file) = Mapped::create()?;
    if let Some(limit) = page.limit() {
        its_page.set_limit(limit);
    }
    its_page.set_state(State::Connected);
    let names = packets::write(here, there);
    loop {
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        match packets::send_bytes(service_end.fd(), &[&names], &[&near, &file], flags) {
            Err(Errno(libc::EAGAIN)) => ready(service_end.fd(), libc::POLLOUT).await,
            Err(why) => return Err(why),
            Ok(_) => break,
        };
    }
    carry(Rc::clone(host), packets, ServiceEnd::new(its_service_end), its_page);
    Ok(())
}

/// What the two directions of a connection share.
struct Link {
    #[expect(dead_code, reason = "the endpoint lives as long as its connections")]
    host: Rc<StpHost>,
    packets: StpSeqPacket,
    service_end: ServiceEnd,
    page: Mapped,
}

fn carry(host: Rc<StpHost>, packets: StpSeqPacket, service_end: ServiceEnd, page: Mapped) {
    if let Some(limit) = page.limit() {
        packets.set_message_limit(limit as usize);
    }
    let link = Rc::new(Link { host, packets, service_end, page });
    spawn(carry_in(Rc::clone(&link)));
    spawn(carry_out(link, LingerGuard::new()));
}

/// Messages that come, to the program.
async fn carry_in(link: Rc<Link>) {
    let service_end = link.service_end.fd();
    loop {
        match link.packets.recv_message().await {
            Ok(Some(message)) => loop {
                match packets::deliver(service_end, &message) {
                    Err(Errno(libc::EAGAIN)) => ready(service_end, libc::POLLOUT).await,
                    Err(Errno(libc::EPIPE | libc::ECONNRESET)) => return,
                    Err(Errno(libc::EMFILE | libc::ENFILE | libc::ENOMEM)) => {
                        let _ = within(BREATH, std::future::pending::<()>()).await;
                        continue;
                    }
                    Err(why) => return give_up(&link, why),
                    Ok(_) => break,
                };
            },
            Ok(None) => return packets::shut(service_end, libc::SHUT_WR),
            Err(error) => return give_up(&link, number(&error)),
        }
    }
}

/// The connection is broken: the program hears why, and that it is over.
fn give_up(link: &Link, why: Errno) {
    link.page.leave_trouble(why);
    link.page.set_state(State::Over);
    packets::shut(link.service_end.fd(), libc::SHUT_RDWR);
}

/// Messages of the program, to the other side, until it ends.
async fn carry_out(link: Rc<Link>, _alive: LingerGuard) {
    let service_end = link.service_end.fd();
    let mut scratch = vec![0; LONGEST];
    loop {
        let part = Part { base: scratch.as_mut_ptr(), len: scratch.len() };
        // SAFETY: memory of this task.
        match unsafe { packets::receive(service_end, &[part], libc::MSG_DONTWAIT) } {
            Err(Errno(libc::EAGAIN)) => {
                ready(service_end, libc::POLLIN | libc::POLLRDHUP).await;
            }
            // The program has closed it with messages unread; what it sent is still here.
            Err(Errno(libc::ECONNRESET | libc::EINTR)) => {}
            Err(_) => break,
            Ok(packet) if packet.len == 0 => {
                if ready(service_end, libc::POLLIN | libc::POLLRDHUP).await & libc::POLLRDHUP != 0 {
                    break;
                }
            }
            Ok(packet) => {
                let [first, second] = packet.files;
                obey(&link, &scratch[..packet.len.min(LONGEST)], first, second).await;
            }
        }
    }
    // Behind its last message the other side is told of the end.
    let mut packets = link.packets.clone();
    let _ = within(LINGER, poll_fn(|cx| Pin::new(&mut packets).poll_shutdown(cx))).await;
    while !is_ending() && ready(service_end, 0).await & (libc::POLLHUP | libc::POLLERR) == 0 {}
    // Nobody reads any more: anyone who waits for a message hears of it.
    if let Ok(packets) = packets.into_std() {
        let _ = packets.shutdown(std::net::Shutdown::Read);
    }
}

/// Does what one packet of the program asks for.
async fn obey(link: &Link, body: &[u8], first: Option<File>, second: Option<File>) {
    let Some(file) = first else {
        // As it stands, and nobody waits.
        let sent = link.packets.send(body).await;
        return untold(link, sent);
    };
    let Some((kind, rest)) =
        body.split_first().and_then(|(kind, rest)| Some((Kind::of(*kind)?, rest)))
    else {
        return;
    };
    match kind {
        Kind::Filler => {}
        Kind::Message => answer(&file, link.packets.send(rest).await),
        Kind::Limit => {
            if let Ok(limit) = rest.try_into().map(u32::from_ne_bytes) {
                link.packets.set_message_limit(limit as usize);
                answer(&file, Ok(0));
            }
        }
        Kind::File => {
            let sent = match content(&file) {
                Ok(message) => link.packets.send(&message).await,
                Err(why) => Err(io::Error::from_raw_os_error(why.0)),
            };
            match second {
                Some(waits) => answer(&waits, sent),
                None => untold(link, sent),
            }
        }
    }
}

fn answer(to: &File, sent: io::Result<usize>) {
    let why = sent.err().map_or(0, |error| number(&error).0);
    to.count(1 + u64::try_from(why).unwrap_or(0));
}

fn untold(link: &Link, sent: io::Result<usize>) {
    if let Err(error) = sent {
        link.page.leave_trouble(number(&error));
    }
}

fn content(file: &File) -> Result<Vec<u8>, Errno> {
    let mut message = vec![0; file.len()?];
    let part = Part { base: message.as_mut_ptr(), len: message.len() };
    // SAFETY: memory of ours.
    unsafe { file.read(&[part]) }?;
    Ok(message)
}
