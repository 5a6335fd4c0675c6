//! Two interfaces that the kernel joins by itself, for the frames that need nobody in user space.
//!
//! What the *upper* one sends and the *lower* one can carry leaves by the lower one, and what
//! arrives there arrives at the upper one, except what is to be joined first. Both are decided by
//! a program of a few dozen steps that the kernel runs at the hooks of traffic control (TCX,
//! Linux 6.6). Super-packets of TCP and UDP pass whole, with unfinished checksums, if their
//! segments fit: cutting them is left to the lower interface, as ever.
//!
//! | what | where it goes |
//! | --- | --- |
//! | sent by the upper one, fits into a frame of the lower one | the lower one |
//! | a TCP segment with SYN | the usual way: it says how long others may be |
//! | sent by the upper one, longer | the usual way |
//! | arrives at the lower one | the upper one |
//! | a fragment of IP, a frame of a VLAN or for another station | the usual way |
//!
//! Each frame is handed to the upper interface by itself, which costs, so the kernel joins what
//! arrives at the lower one before (GRO), as it does by itself above most adapters.
//!
//! It ends with the guard that [`Redirect::start`] gives, and with the process.
//!
//! What does not live here: what becomes of frames that go the usual way.

mod joining;
mod program;

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use socket2::{Domain, Socket, Type};

use crate::OpenError;
use crate::bpf::{self, ProgramKind};
use crate::packet::{Interface, find_interface};
use joining::Joining;

/// Numbers of `linux/bpf.h`.
const SCHED_CLS: u32 = 3;
const TCX_INGRESS: u32 = 46;
const TCX_EGRESS: u32 = 47;

/// The kernel passes frames between two interfaces as long as this lives.
///
/// ```no_run
/// use landfall_transport::redirect::Redirect;
///
/// // The number of one interface of this namespace, and the name of another.
/// let redirect = Redirect::start(7, "eth1")?;
/// println!("{:?}", redirect.counts()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Redirect {
    counters: bpf::Array<COUNTER>,
    _joining: Option<Joining>,
    /// They are detached when these are closed.
    _links: [OwnedFd; 2],
}

/// Packets and bytes: eight bytes each.
const COUNTER: usize = 16;

/// What passed one way since the start. A super-packet is one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// How many packets.
    pub packets: u64,
    /// Their bytes, from the Ethernet header on.
    pub bytes: u64,
}

/// What passed both ways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// From the upper interface to the lower one.
    pub out: Passed,
    /// From the lower one to the upper one.
    pub into: Passed,
}

impl Redirect {
    /// Begins, between the interface with this number and the one with this name in the network
    /// namespace that the calling thread is in, where it is to be dropped.
    ///
    /// # Errors
    /// The kernel has no such hooks (before Linux 6.6), or the process may not load programs.
    pub fn start(upper: u32, lower: &str) -> Result<Self, OpenError> {
        let socket =
            Socket::new(Domain::IPV4, Type::DGRAM, None).map_err(failed("open a socket"))?;
        let found = find_interface(&socket, &Interface::Name(lower.to_owned()))?;
        Self::between(upper, found.index, Joining::switch_on(socket, lower))
            .map_err(failed("pass frames between two interfaces (TCX, Linux 6.6)"))
    }

    fn between(upper: u32, lower: u32, joining: Option<Joining>) -> io::Result<Self> {
        let counters = bpf::Array::new(2)?;
        let map = counters.as_raw_fd();
        let number = |index: u32| i32::try_from(index).map_err(io::Error::other);
        let attach = |interface, kind, program: &[_]| {
            let program =
                bpf::load(ProgramKind { number: SCHED_CLS, attach_type: kind }, program, 0)?;
            bpf::link(&program, interface, kind, 0)
        };
        let out = attach(upper, TCX_EGRESS, &program::outwards(map, number(lower)?))?;
        let into = attach(lower, TCX_INGRESS, &program::inwards(map, number(upper)?))?;
        Ok(Self { counters, _joining: joining, _links: [out, into] })
    }

    /// What passed so far.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn counts(&self) -> io::Result<Counts> {
        let of = |key: i32| {
            let value = self.counters.get(key.cast_unsigned())?;
            let [packets, bytes] = *value.as_chunks::<8>().0 else { return Ok(Passed::default()) };
            let (packets, bytes) = (u64::from_ne_bytes(packets), u64::from_ne_bytes(bytes));
            io::Result::Ok(Passed { packets, bytes })
        };
        Ok(Counts { out: of(program::OUT)?, into: of(program::IN)? })
    }
}

fn failed(what: &'static str) -> impl FnOnce(io::Error) -> OpenError {
    OpenError::system(what)
}
