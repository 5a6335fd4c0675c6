//! The kernel as the diag of who is at the other end of a connection.
//!
//! Memory and names in a folder can be exchanged by anyone who may write there; what the
//! kernel knows of its sockets cannot. Each socket has a number that no other has
//! (`SO_COOKIE`), and `sock_diag` tells, to everybody, the number, the user and the state of
//! the socket that has the two addresses of a connection the other way round. So each end
//! writes its own number into the memory, and each end believes the other only if the kernel
//! says the same of the socket at the other end of its own TCP connection.
//!
//! The numbers of sockets mean something within a namespace of networks only, so both ends say in
//! which they are, and must be in the same. Those of processes may differ, as those of two
//! containers in a pod do: no end asks for the process of the other. A carrier does, and who
//! inherits an end for those that had it before.
//!
//! Where the kernel does not answer nothing is proven, and bytes go by TCP.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::{fmt, ptr};

use crate::kernel::{Errno, Outcome, call};
use crate::registry::Name;
use crate::segment::{End, Role};
use crate::{kernel, process};

/// Why the other end of a connection is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnprovenReason {
    /// The kernel does not say who is there.
    Silent(Errno),
    /// There is no such end any more.
    Gone,
    /// Another socket is there than the memory says.
    Another,
    /// It belongs to this user.
    OfUser(u32),
    /// It is in another namespace of networks (to a carrier, or of processes), or that is not known.
    Apart,
}

impl UnprovenReason {
    /// Whether it may be otherwise the next time: descriptors or memory were missing.
    pub(crate) const fn may_pass(self) -> bool {
        matches!(
            self,
            Self::Silent(Errno(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM))
        )
    }
}

impl fmt::Display for UnprovenReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silent(why) => {
                write!(f, "the kernel does not say who is at the other end (errno {})", why.0)
            }
            Self::Gone => f.write_str("the other end has gone"),
            Self::Another => f.write_str("another socket is at the other end"),
            Self::OfUser(user) => write!(f, "the other end belongs to user {user}"),
            Self::Apart => f.write_str("the other end is in another namespace"),
        }
    }
}

/// Whatever its number.
pub(crate) const ANY: u64 = u64::MAX;

/// What the kernel knows of a socket that somebody asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    /// Of TCP's states.
    state: u8,
    pub(crate) user: u32,
    pub(crate) cookie: u64,
    /// Whether a process has it, or will accept it: else it is the kernel's alone.
    pub(crate) has_file: bool,
}

impl Known {
    /// Whether it is one end of a connection still.
    pub(crate) const fn is_connected(&self) -> bool {
        const TIME_WAIT: u8 = 6;
        const CLOSED: u8 = 7;
        const LISTENS: u8 = 10;
        !matches!(self.state, TIME_WAIT | CLOSED | LISTENS)
    }

    /// Whether it belongs to this user. Of root's are sockets that were accepted for another, and
    /// those that nobody has open. Where the connection is for a group, the rights of its
    /// folder have decided.
    fn is_ours(&self, name: &Name) -> Result<(), UnprovenReason> {
        if name.group().is_some() {
            return Ok(());
        }
        if self.user != 0 && self.user != kernel::user() {
            return Err(UnprovenReason::OfUser(self.user));
        }
        Ok(())
    }
}

/// A socket that answers questions about sockets of this network namespace.
#[derive(Debug)]
pub(crate) struct SocketDiag {
    fd: i32,
}

impl SocketDiag {
    pub(crate) fn open() -> Result<Self, Errno> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        call!(libc::SYS_socket, libc::AF_NETLINK, kind, libc::NETLINK_SOCK_DIAG)
            .map(|fd| Self { fd: fd as i32 })
    }

    /// What this host's kernel knows of one end of a connection; nothing, if that has
    /// another number. `interface` is the one that it is bound to.
    pub(crate) fn end_of(
        &self,
        name: &Name,
        role: Role,
        cookie: u64,
        interface: u32,
    ) -> Result<Option<Known>, Errno> {
        let seen_from = match role {
            Role::Connector => *name,
            Role::Acceptor => name.turned(),
        };
        match self.ask(&question(&seen_from, cookie, interface)) {
            Err(Errno(libc::ESTALE)) => Ok(None),
            known => known,
        }
    }

    /// Sees to it that an end is what it says in the memory.
    pub(crate) fn vouches(&self, name: &Name, role: Role, end: &End) -> Result<(), UnprovenReason> {
        if !is_in_same_network(end, self.fd) {
            return Err(UnprovenReason::Apart);
        }
        let interface = end.interface.load(Ordering::Relaxed);
        let known = self.connected(name, role, interface)?;
        if known.cookie != end.cookie.load(Ordering::Acquire) {
            return Err(UnprovenReason::Another);
        }
        known.is_ours(name)
    }

    /// What the kernel knows of one end, if it is that of a connection still.
    fn connected(&self, name: &Name, role: Role, interface: u32) -> Result<Known, UnprovenReason> {
        let known = self.end_of(name, role, ANY, interface).map_err(UnprovenReason::Silent)?;
        known.filter(Known::is_connected).ok_or(UnprovenReason::Gone)
    }

    /// Says in the memory where a carrier is, which has no socket of the connection.
    pub(crate) fn introduces(&self, end: &End) {
        introduce(end, self.fd);
    }

    /// Whether an end is where numbers of processes mean what they mean here, too.
    pub(crate) fn is_beside(&self, end: &End) -> bool {
        is_beside(end, self.fd)
    }

    /// The socket that is asked for; `None` if there is none.
    fn ask(&self, question: &[u8; QUESTION]) -> Result<Option<Known>, Errno> {
        const ERROR: u16 = 2;
        let part = kernel::Part { base: question.as_ptr().cast_mut(), len: question.len() };
        // SAFETY: a slice of the caller's.
        unsafe { kernel::send(self.fd, &[part], 0) }?;
        let mut answer = [0_u8; 512];
        let len = self.hear(&mut answer)?;
        let word = |at: usize| {
            let mut word = [0; 4];
            word.copy_from_slice(&answer[at..at + 4]);
            u32::from_ne_bytes(word)
        };
        match answer[..len] {
            [_, _, _, _, low, high, ..] if u16::from_ne_bytes([low, high]) == ERROR => {
                let why = word(16).cast_signed();
                if why == -libc::ENOENT { Ok(None) } else { Err(Errno(-why)) }
            }
            // Whom it speaks of: one at the port that was asked for.
            _ if len >= 88 && answer[20..22] == question[24..26] => Ok(Some(Known {
                state: answer[17],
                user: word(80),
                cookie: u64::from(word(60)) | u64::from(word(64)) << 32,
                has_file: word(84) != 0,
            })),
            _ => Err(Errno(libc::EBADMSG)),
        }
    }

    /// The answer, which is there when the question has been asked. Nobody but the kernel
    /// is listened to.
    fn hear(&self, answer: &mut [u8]) -> Outcome {
        // SAFETY: an address of zeros is a valid one.
        let mut from: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
        let mut len = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
        let (into, most) = (answer.as_mut_ptr(), answer.len());
        let (from_at, len_at) = (ptr::from_mut(&mut from), ptr::from_mut(&mut len));
        let flags = libc::MSG_DONTWAIT;
        let got = call!(libc::SYS_recvfrom, self.fd, into, most, flags, from_at, len_at)?;
        if from.nl_pid == 0 { Ok(got) } else { Err(Errno(libc::EBADMSG)) }
    }
}

impl Drop for SocketDiag {
    fn drop(&mut self) {
        let _ = kernel::close(self.fd);
    }
}

/// Bytes of a question: the head, and `struct inet_diag_req_v2`.
const QUESTION: usize = 72;

/// `SOCK_DIAG_BY_FAMILY` for one connection, seen from its connector.
fn question(name: &Name, cookie: u64, interface: u32) -> [u8; QUESTION] {
    const BY_FAMILY: u16 = 20;
    const REQUEST: u16 = 1;
    let mut bytes = [0; QUESTION];
    bytes[..4].copy_from_slice(&(QUESTION as u32).to_ne_bytes());
    bytes[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
    bytes[6..8].copy_from_slice(&REQUEST.to_ne_bytes());
    let short = name.connector.short_address().zip(name.acceptor.short_address());
    bytes[16] = if short.is_some() { libc::AF_INET } else { libc::AF_INET6 } as u8;
    bytes[17] = libc::IPPROTO_TCP as u8;
    bytes[20..24].fill(0xFF);
    bytes[24..26].copy_from_slice(&name.connector.port().to_be_bytes());
    bytes[26..28].copy_from_slice(&name.acceptor.port().to_be_bytes());
    if let Some((connector, acceptor)) = short {
        bytes[28..32].copy_from_slice(&connector);
        bytes[44..48].copy_from_slice(&acceptor);
    } else {
        bytes[28..44].copy_from_slice(name.connector.address());
        bytes[44..60].copy_from_slice(name.acceptor.address());
    }
    bytes[60..64].copy_from_slice(&interface.to_ne_bytes());
    // In two words, the low one first, whatever the processor.
    bytes[64..68].copy_from_slice(&(cookie as u32).to_ne_bytes());
    bytes[68..72].copy_from_slice(&((cookie >> 32) as u32).to_ne_bytes());
    bytes
}

/// Says in the memory where this end is; its number is for the caller to say.
pub(crate) fn introduce(end: &End, fd: i32) {
    end.network.store(kernel::network_of(fd), Ordering::Relaxed);
    end.processes.store(processes(), Ordering::Relaxed);
    end.interface.store(kernel::interface_of(fd), Ordering::Relaxed);
}

/// Whether an end, as it says, is where numbers of processes and of networks mean what they
/// mean here; `fd` is a socket of ours.
pub(crate) fn is_beside(end: &End, fd: i32) -> bool {
    is_in_same_network(end, fd) && is_among_same_processes(end)
}

/// Whether numbers of sockets mean there what they mean here.
fn is_in_same_network(end: &End, fd: i32) -> bool {
    let network = kernel::network_of(fd);
    // Where the kernel does not tell networks apart, who has another sees other processes, as a rule.
    end.network.load(Ordering::Relaxed) == network && (network != 0 || is_among_same_processes(end))
}

fn is_among_same_processes(end: &End) -> bool {
    let processes = processes();
    processes != 0 && end.processes.load(Ordering::Relaxed) == processes
}

/// Sees to it that the end at `side`, which has said in the memory who it is, is that end of
/// this connection, as the kernel knows it; `fd` is the socket of the one who asks.
pub(crate) fn vouch(fd: i32, name: &Name, role: Role, end: &End) -> Result<(), UnprovenReason> {
    let diag = SocketDiag::open().map_err(UnprovenReason::Silent)?;
    // It answers for the network of the thread that asks.
    if kernel::network_of(diag.fd) != kernel::network_of(fd) {
        return Err(UnprovenReason::Apart);
    }
    diag.vouches(name, role, end)
}

/// The number of the socket at that end of the connection of `fd`, if this user may have it.
pub(crate) fn number_of(fd: i32, name: &Name, role: Role) -> Result<u64, UnprovenReason> {
    let diag = SocketDiag::open().map_err(UnprovenReason::Silent)?;
    if kernel::network_of(diag.fd) != kernel::network_of(fd) {
        return Err(UnprovenReason::Apart);
    }
    let known = diag.connected(name, role, 0)?;
    known.is_ours(name)?;
    Ok(known.cookie)
}

/// The namespace of processes that this one is in; zero where that is not known. It is asked
/// for once: another one begins with a fork.
pub(crate) fn processes() -> u64 {
    static KNOWN: AtomicU64 = AtomicU64::new(0);
    static IN_EPOCH: AtomicU32 = AtomicU32::new(u32::MAX);
    let epoch = process::epoch();
    if IN_EPOCH.load(Ordering::Acquire) == epoch {
        return KNOWN.load(Ordering::Relaxed);
    }
    let number = kernel::status_of(c"/proc/self/ns/pid").map_or(0, |status| status.st_ino);
    KNOWN.store(number, Ordering::Relaxed);
    IN_EPOCH.store(epoch, Ordering::Release);
    number
}

// What TCP itself has counted: who read or wrote past us is found out by it.

/// How many bytes the program took, as TCP says; `None` where that cannot be told now.
pub(crate) fn received(fd: i32) -> Option<u64> {
    // Bytes may come between the two questions: then they are asked again.
    for _ in 0..4 {
        let before = kernel::counted(fd).ok()?.received;
        let waiting = kernel::queued(fd, libc::FIONREAD).ok()?;
        if kernel::counted(fd).ok()?.received == before {
            return Some(before.wrapping_sub(waiting));
        }
    }
    None
}

/// How many bytes the program sent, as TCP says.
pub(crate) fn sent(fd: i32, role: Role) -> Option<u64> {
    // Of who called, the SYN was acknowledged, too.
    let of_handshake = u64::from(role == Role::Connector);
    for _ in 0..4 {
        let before = kernel::counted(fd).ok()?.acknowledged;
        let waiting = kernel::queued(fd, libc::TIOCOUTQ).ok()?;
        if kernel::counted(fd).ok()?.acknowledged == before {
            return (before + waiting).checked_sub(of_handshake);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::Segment;
    use crate::segment::tests::two_mappings;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    /// A connection whose connector has said in the memory who it is.
    struct Met {
        connector: TcpStream,
        acceptor: TcpStream,
        name: Name,
        memory: Segment,
    }

    impl Met {
        fn new(listens: &str, calls: &str) -> Self {
            let listener = TcpListener::bind(listens).unwrap();
            let port = listener.local_addr().unwrap().port();
            let connector = TcpStream::connect((calls, port)).unwrap();
            let (acceptor, _) = listener.accept().unwrap();
            let name = Name::of(acceptor.as_raw_fd(), Role::Acceptor).unwrap();
            let met = Self { connector, acceptor, name, memory: two_mappings().0 };
            introduce(met.end(), met.connector.as_raw_fd());
            let cookie = kernel::cookie(met.connector.as_raw_fd()).unwrap();
            met.end().cookie.store(cookie, Ordering::Release);
            met
        }

        fn end(&self) -> &'static End {
            self.memory.end(Role::Connector)
        }

        /// What the acceptor hears of the connector.
        fn asked(&self) -> Result<(), UnprovenReason> {
            vouch(self.acceptor.as_raw_fd(), &self.name, Role::Connector, self.end())
        }
    }

    #[test]
    fn the_kernel_vouches_for_the_other_end() {
        for (listens, calls) in
            [("127.0.0.1:0", "127.0.0.1"), ("[::1]:0", "::1"), ("[::]:0", "127.0.0.1")]
        {
            assert_eq!(Met::new(listens, calls).asked(), Ok(()), "{calls} calls {listens}");
        }
    }

    #[test]
    fn a_socket_of_another_connection_is_not_the_other_end() {
        let (one, other) =
            (Met::new("127.0.0.1:0", "127.0.0.1"), Met::new("127.0.0.1:0", "127.0.0.1"));
        let of_other = other.end().cookie.load(Ordering::Relaxed);
        one.end().cookie.store(of_other, Ordering::Relaxed);
        assert_eq!(one.asked(), Err(UnprovenReason::Another));
        // Nor is the one that asks.
        let own = kernel::cookie(one.acceptor.as_raw_fd()).unwrap();
        one.end().cookie.store(own, Ordering::Relaxed);
        assert_eq!(one.asked(), Err(UnprovenReason::Another));
        assert_eq!(other.asked(), Ok(()));
    }

    #[test]
    fn the_number_of_the_other_end_is_known_before_it_says_so() {
        let met = Met::new("127.0.0.1:0", "127.0.0.1");
        let number = number_of(met.acceptor.as_raw_fd(), &met.name, Role::Connector).unwrap();
        assert_eq!(number, met.end().cookie.load(Ordering::Relaxed));
        let awaited = &met.memory.own().awaited;
        assert!(!awaited.is(met.end()), "nobody was asked");
        awaited.is_now(number, met.end());
        assert!(awaited.is(met.end()));
        for word in [&met.end().cookie, &met.end().network, &met.end().processes] {
            let before = word.fetch_add(1, Ordering::Relaxed);
            assert!(!awaited.is(met.end()));
            word.store(before, Ordering::Relaxed);
        }
    }

    #[test]
    fn an_end_in_another_network_is_not_believed() {
        let met = Met::new("127.0.0.1:0", "127.0.0.1");
        let word = &met.end().network;
        let before = word.fetch_add(1, Ordering::Relaxed);
        assert_eq!(met.asked(), Err(UnprovenReason::Apart));
        word.store(before, Ordering::Relaxed);
        assert_eq!(met.asked(), Ok(()));
    }

    #[test]
    fn an_end_among_other_processes_is_believed_but_not_beside_us() {
        let met = Met::new("127.0.0.1:0", "127.0.0.1");
        let fd = met.acceptor.as_raw_fd();
        assert!(is_beside(met.end(), fd));
        met.end().processes.fetch_add(1, Ordering::Relaxed);
        assert!(!is_beside(met.end(), fd));
        // Unless the kernel tells nothing of networks.
        let is_told = kernel::network_of(fd) != 0;
        assert_eq!(met.asked(), if is_told { Ok(()) } else { Err(UnprovenReason::Apart) });
    }

    #[test]
    fn an_end_that_has_gone_is_not_believed() {
        let Met { connector, acceptor, name, memory } = Met::new("127.0.0.1:0", "127.0.0.1");
        let at_once = libc::linger { l_onoff: 1, l_linger: 0 };
        kernel::set_option(connector.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, &at_once)
            .unwrap();
        drop(connector);
        let end = memory.end(Role::Connector);
        assert_eq!(
            vouch(acceptor.as_raw_fd(), &name, Role::Connector, end),
            Err(UnprovenReason::Gone)
        );
    }
}
