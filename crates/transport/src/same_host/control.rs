//! [`ControlSocket`]: where neighbours write messages to, and [`ControlMessage`]: what they write.
//!
//! It is a Unix datagram socket, whose name says at which UDP address its owner is. The name
//! is abstract: it exists in this network namespace, as the UDP address does, goes with its
//! socket, and is nobody else's meanwhile. Who sent a message the kernel says: the name, the
//! process and its user.

use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use crate::inet::{nothing_came, set_option};
use crate::shm::close_aside;
use crate::shm::rendezvous::take_fds;

/// Both ends must say the same things in the same way.
const VERSION: u8 = 1;
/// How long a message is.
const MESSAGE_LEN: usize = 88;
/// A name is the start of an abstract one and a UDP address.
const NAME_ROOM: usize = 80;

/// The name of a control socket.
#[derive(Clone, Copy)]
pub(super) struct Name {
    address: libc::sockaddr_un,
    len: libc::socklen_t,
}

impl Name {
    /// That of anyone who is at this UDP address.
    pub(super) fn of(at: SocketAddr) -> Self {
        let text = format!("\0landfall-udp-{}", SocketAddr::new(at.ip(), at.port()));
        // SAFETY: an address of zeros is one.
        let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
        address.sun_family = libc::AF_UNIX as libc::sa_family_t;
        let bytes = &text.as_bytes()[..text.len().min(NAME_ROOM)];
        for (to, from) in address.sun_path.iter_mut().zip(bytes) {
            *to = libc::c_char::from_ne_bytes([*from]);
        }
        let start = std::mem::offset_of!(libc::sockaddr_un, sun_path);
        Self { address, len: (start + bytes.len()) as libc::socklen_t }
    }

    /// Those that somebody may have who is reached at this address.
    pub(super) fn candidates(at: SocketAddr) -> impl Iterator<Item = Self> {
        let any = |ip: IpAddr| SocketAddr::new(ip, at.port());
        let v4 = at.is_ipv4().then_some(any(Ipv4Addr::UNSPECIFIED.into()));
        // A socket of IPv6 hears IPv4 too.
        let all = [Some(at), v4, Some(any(Ipv6Addr::UNSPECIFIED.into()))];
        all.into_iter().flatten().map(Self::of)
    }

    fn bytes(&self) -> &[libc::c_char] {
        let start = std::mem::offset_of!(libc::sockaddr_un, sun_path);
        let len = (self.len as usize).saturating_sub(start).min(self.address.sun_path.len());
        &self.address.sun_path[..len]
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.bytes() == other.bytes()
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes: Vec<u8> = self.bytes().iter().map(|byte| byte.to_ne_bytes()[0]).collect();
        write!(f, "Name({})", bytes.escape_ascii())
    }
}

/// What neighbours write to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ControlMessage {
    /// Here is my queue, with its descriptor.
    Hello(Hello),
    /// A file by its number, with its descriptor: frames in this queue will name it.
    File { id: u64, queue: u64 },
    /// None will name it any more.
    Forget { id: u64, queue: u64 },
    /// Something was written or read.
    Wake,
    /// What was written in the queue of this number counts no more.
    Bye(u64),
}

/// How neighbours begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    /// The number of this queue: another one each time.
    pub(super) nonce: u64,
    /// The number of the other's queue, once it is known.
    pub(super) yours: u64,
    /// Where in the sender's memory its number is: anyone who finds it there can read that
    /// memory.
    pub(super) probe: u64,
    /// The sender does not know whether the receiver has its queue.
    pub(super) wants_answer: bool,
    /// The UDP address of the sender, as the receiver sees it.
    pub(super) from: SocketAddr,
    /// The UDP address of the receiver, as the sender sees it.
    pub(super) to: SocketAddr,
}

impl ControlMessage {
    /// The number of the queue that it speaks of.
    pub(super) const fn queue(&self) -> Option<u64> {
        match self {
            Self::Hello(hello) => Some(hello.nonce),
            Self::File { queue, .. } | Self::Forget { queue, .. } | Self::Bye(queue) => {
                Some(*queue)
            }
            Self::Wake => None,
        }
    }

    fn encode(&self) -> [u8; MESSAGE_LEN] {
        let mut bytes = [0; MESSAGE_LEN];
        let kind = match self {
            Self::Hello(_) => 1,
            Self::File { .. } => 2,
            Self::Forget { .. } => 3,
            Self::Wake => 4,
            Self::Bye(_) => 5,
        };
        (bytes[0], bytes[1]) = (kind, VERSION);
        let mut set =
            |at: usize, value: u64| bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        match self {
            Self::Hello(hello) => {
                set(8, hello.nonce);
                set(16, hello.yours);
                set(24, hello.probe);
                set(80, hello.wants_answer.into());
                bytes[32..56].copy_from_slice(&encode_address(hello.from));
                bytes[56..80].copy_from_slice(&encode_address(hello.to));
            }
            Self::File { id, queue } | Self::Forget { id, queue } => {
                set(8, *id);
                set(16, *queue);
            }
            Self::Bye(queue) => set(8, *queue),
            Self::Wake => {}
        }
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; MESSAGE_LEN] = bytes.try_into().ok()?;
        let number = |at: usize| bytes[at..].first_chunk().copied().map(u64::from_le_bytes);
        if bytes[1] != VERSION {
            return None;
        }
        Some(match bytes[0] {
            1 => Self::Hello(Hello {
                nonce: number(8)?,
                yours: number(16)?,
                probe: number(24)?,
                wants_answer: number(80)? != 0,
                from: decode_address(&bytes[32..56])?,
                to: decode_address(&bytes[56..80])?,
            }),
            2 => Self::File { id: number(8)?, queue: number(16)? },
            3 => Self::Forget { id: number(8)?, queue: number(16)? },
            4 => Self::Wake,
            5 => Self::Bye(number(8)?),
            _ => return None,
        })
    }
}

fn encode_address(address: SocketAddr) -> [u8; 24] {
    let mut bytes = [0; 24];
    bytes[2..4].copy_from_slice(&address.port().to_le_bytes());
    match address.ip() {
        IpAddr::V4(ip) => {
            bytes[0] = 4;
            bytes[4..8].copy_from_slice(&ip.octets());
        }
        IpAddr::V6(ip) => {
            bytes[0] = 6;
            bytes[4..20].copy_from_slice(&ip.octets());
        }
    }
    bytes
}

fn decode_address(bytes: &[u8]) -> Option<SocketAddr> {
    let port = u16::from_le_bytes(*bytes.get(2..)?.first_chunk()?);
    let ip: IpAddr = match bytes.first()? {
        4 => Ipv4Addr::from(*bytes.get(4..)?.first_chunk::<4>()?).into(),
        6 => Ipv6Addr::from(*bytes.get(4..)?.first_chunk::<16>()?).into(),
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

/// A message that came.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) message: ControlMessage,
    pub(super) from: Name,
    pub(super) pid: i32,
    pub(super) file: Option<OwnedFd>,
}

/// Why a message was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotSent {
    /// Nobody has that name.
    Nobody,
    /// The other side has many messages that it has not read.
    Full,
}

/// The Unix datagram socket at which this driver is found by its UDP address.
#[derive(Debug)]
pub(super) struct ControlSocket {
    socket: OwnedFd,
    name: Name,
    user: libc::uid_t,
}

impl ControlSocket {
    /// Takes the name of this UDP address, which is bound.
    pub(super) fn open(at: SocketAddr) -> io::Result<Self> {
        // SAFETY: these cannot fail, and touch no memory.
        let (user, effective) = unsafe { (libc::getuid(), libc::geteuid()) };
        if user != effective {
            let why = "the process acts for another user than the one who started it";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: three numbers; gives a descriptor or -1.
        let fd = unsafe { libc::socket(libc::AF_UNIX, kind, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and nobody else's.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        set_option(fd, libc::SOL_SOCKET, libc::SO_PASSCRED, 1)?;
        let name = Name::of(at);
        // SAFETY: the address lives through the call, with its length.
        if unsafe { libc::bind(fd, (&raw const name.address).cast(), name.len) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { socket, name, user })
    }

    /// Its own name.
    pub(super) const fn name(&self) -> &Name {
        &self.name
    }

    /// Sends a message, with a descriptor or without.
    pub(super) fn send(
        &self,
        to: &Name,
        message: &ControlMessage,
        file: Option<BorrowedFd<'_>>,
    ) -> Result<(), NotSent> {
        let bytes = message.encode();
        let mut part =
            libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        let mut control = Control([MaybeUninit::zeroed(); CONTROL]);
        // SAFETY: a header of zeros is one that names nothing.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_name = (&raw const to.address).cast_mut().cast();
        header.msg_namelen = to.len;
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        if let Some(file) = file {
            let len = size_of::<RawFd>() as libc::c_uint;
            header.msg_control = control.0.as_mut_ptr().cast();
            // SAFETY: these compute from numbers; the buffer has room for a header and more,
            // of which the first is taken.
            unsafe {
                header.msg_controllen = libc::CMSG_SPACE(len) as _;
                let first = &mut *libc::CMSG_FIRSTHDR(&raw const header);
                first.cmsg_level = libc::SOL_SOCKET;
                first.cmsg_type = libc::SCM_RIGHTS;
                first.cmsg_len = libc::CMSG_LEN(len) as _;
                libc::CMSG_DATA(first).cast::<RawFd>().write_unaligned(file.as_raw_fd());
            }
        }
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: the header names buffers that live, with their lengths.
        if unsafe { libc::sendmsg(self.socket.as_raw_fd(), &raw const header, flags) } >= 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        // No descriptor may be passed, or no memory is there: as good as no room.
        let is_gone = matches!(error.raw_os_error(), Some(libc::ECONNREFUSED | libc::ENOENT));
        Err(if is_gone { NotSent::Nobody } else { NotSent::Full })
    }

    /// The next message of this user, if there is one. What others write is
    /// thrown away.
    pub(super) fn receive(&self) -> io::Result<Option<Result<Received, Unread>>> {
        let mut bytes = [0; MESSAGE_LEN + 1];
        let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        let mut control = Control([MaybeUninit::zeroed(); CONTROL]);
        let mut from = Name::of(SocketAddr::from(([0, 0, 0, 0], 0)));
        // SAFETY: a header of zeros is one that names nothing.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_name = (&raw mut from.address).cast();
        header.msg_namelen = size_of::<libc::sockaddr_un>() as libc::socklen_t;
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        header.msg_control = control.0.as_mut_ptr().cast();
        header.msg_controllen = CONTROL as _;
        let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
        // SAFETY: the header names buffers that live, with their lengths.
        let len = unsafe { libc::recvmsg(self.socket.as_raw_fd(), &raw mut header, flags) };
        let Ok(len) = usize::try_from(len) else {
            return match io::Error::last_os_error() {
                error if nothing_came(&error) => Ok(None),
                error => Err(error),
            };
        };
        from.len = header.msg_namelen;
        // First of all they get an owner, whatever is said below.
        let mut files = take_fds(&header);
        let sender = credentials(&header).filter(|sender| sender.uid == self.user);
        let is_cut = header.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0;
        let message = bytes.get(..len).and_then(ControlMessage::decode);
        match (sender, message) {
            (Some(sender), Some(message)) if sender.pid > 0 && files.len() <= 1 && !is_cut => {
                Ok(Some(Ok(Received { message, from, pid: sender.pid, file: files.pop() })))
            }
            _ => {
                close_aside(files);
                Ok(Some(Err(Unread)))
            }
        }
    }
}

/// A message of another user, or none at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unread;

impl AsFd for ControlSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Room for credentials, and for as many descriptors as the kernel lets pass (`SCM_MAX_FD`):
/// those that found no room it would close itself, on this thread, and that may take time.
const CONTROL: usize = 64 + 16 + 256 * size_of::<RawFd>();

#[repr(align(8))]
struct Control([MaybeUninit<u8>; CONTROL]);

/// Who sent it, as the kernel says.
fn credentials(header: &libc::msghdr) -> Option<libc::ucred> {
    // SAFETY: the kernel filled the control buffer in, and said how far.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(header) };
    // SAFETY: null, or a header within the buffer.
    while let Some(control) = unsafe { next.as_ref() } {
        // SAFETY: this computes from a number.
        let whole = unsafe { libc::CMSG_LEN(size_of::<libc::ucred>() as libc::c_uint) } as usize;
        let len: usize = control.cmsg_len as _;
        let is_it = (control.cmsg_level, control.cmsg_type)
            == (libc::SOL_SOCKET, libc::SCM_CREDENTIALS)
            && len >= whole;
        if is_it {
            // SAFETY: this many bytes are there, by its length; they need not be aligned.
            return Some(unsafe {
                ptr::read_unaligned(libc::CMSG_DATA(control).cast::<libc::ucred>())
            });
        }
        // SAFETY: as above.
        next = unsafe { libc::CMSG_NXTHDR(header, control) };
    }
    None
}

#[cfg(all(test, not(miri), not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn letters_come_out_as_they_went_in() {
        let (v4, v6) = ("127.0.0.1:17".parse().unwrap(), "[::1]:65535".parse().unwrap());
        let (nonce, yours, probe, wants_answer) = (1, u64::MAX, 3, true);
        let hello = Hello { nonce, yours, probe, wants_answer, from: v4, to: v6 };
        let (id, queue) = (7, 8);
        let files = [ControlMessage::File { id, queue }, ControlMessage::Forget { id, queue }];
        for message in [
            ControlMessage::Hello(hello),
            files[0],
            files[1],
            ControlMessage::Wake,
            ControlMessage::Bye(9),
        ] {
            let mut bytes = message.encode();
            assert_eq!(ControlMessage::decode(&bytes), Some(message));
            assert_eq!(ControlMessage::decode(&bytes[..MESSAGE_LEN - 1]), None);
            bytes[1] += 1;
            assert_eq!(ControlMessage::decode(&bytes), None, "another version");
        }
        assert_eq!(ControlMessage::decode(&[9; MESSAGE_LEN]), None);
    }

    #[test]
    fn a_name_is_of_one_and_says_its_address() {
        // Nobody else's, for nobody has such a process number at the same time.
        let [high, middle, low] = *std::process::id().to_be_bytes().last_chunk().unwrap();
        let at = SocketAddr::from(([127, high, middle, low], 1));
        let control = ControlSocket::open(at).unwrap();
        assert!(ControlSocket::open(at).is_err(), "taken");
        let mut candidates = Name::candidates(at);
        assert_eq!(candidates.next().as_ref(), Some(control.name()));
        assert_eq!(candidates.count(), 2, "those of all addresses");
        let to = SocketAddr::new(at.ip(), 2);
        assert_eq!(control.send(&Name::of(to), &ControlMessage::Wake, None), Err(NotSent::Nobody));
        control.send(control.name(), &ControlMessage::Wake, Some(control.as_fd())).unwrap();
        let received = control.receive().unwrap().unwrap().unwrap();
        assert_eq!((received.message, &received.from), (ControlMessage::Wake, control.name()));
        assert_eq!(received.pid.cast_unsigned(), std::process::id());
        assert!(received.file.is_some());
        assert!(control.receive().unwrap().is_none());
    }
}
