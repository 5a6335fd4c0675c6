//! [`NodeDriver`]: the turns of a node that has no thread of its own.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use super::state::NodeState;
use crate::runtime::{ReactorHandle, TurnReport};

/// Makes the turns of a node, in a reactor of your own: `poll`, `epoll`, mio, the loop of a
/// graphical toolkit. [`Builder::open_without_thread`](super::Builder::open_without_thread)
/// gives it, with the node.
///
/// Its descriptor is readable when there is something to do: a frame came, a path has room
/// again, a timer is due, or a handle asked for something. Then call [`turn`](Self::turn);
/// after that, look at what you wait for:
///
/// ```
/// use landfall::clan::network::{HostId, Node, Transport};
/// use landfall::clan::{Fabric, Local, Remote, Rights};
/// use rustix::event::{PollFd, PollFlags, poll};
///
/// let open = |host| {
///     let path = Transport::udp(([127, 0, 0, 1], 0).into());
///     Node::builder(HostId::new(host).unwrap()).path(path).open_without_thread()
/// };
/// let ((here, owner), (there, writer)) = (open(1)?, open(2)?);
/// let (memory, cookie) = here.expose(4096, Rights::Write)?;
/// let _link = there.link(here.local().unwrap())?;
///
/// let (mut window, mut is_written) = (None, false);
/// while memory.load(0)? != 12 {
///     // A window can be mapped once the link is up.
///     if window.is_none() && there.link_to(here.host()).is_some() {
///         window = Some(there.map(&cookie)?);
///     }
///     if let Some(window) = &mut window
///         && !is_written
///     {
///         window.store(0, 12)?;
///         window.commit()?;
///         is_written = true;
///         // What was written may have arrived already.
///         continue;
///     }
///     let flags = PollFlags::IN;
///     poll(&mut [PollFd::new(&owner, flags), PollFd::new(&writer, flags)], None)?;
///     owner.turn();
///     writer.turn();
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Handles may be used on any thread: what they ask for leaves on theirs, and makes the
/// descriptor readable where more is to be done. A thread in a `wait_…` method makes turns as
/// well. Late turns lose nothing but time: what came waits in the kernel, and peers repeat
/// what the kernel had no room for, until they give this node up.
///
/// When the last of the other handles is dropped the node sends what was written, within
/// [`Builder::linger`](super::Builder::linger), and turns have to be made until
/// [`TurnReport::is_over`]. Where the driver is dropped before, the node ends at once.
#[derive(Debug)]
pub struct NodeDriver(ReactorHandle<NodeState>);

impl NodeDriver {
    pub(crate) const fn new(turns: ReactorHandle<NodeState>) -> Self {
        Self(turns)
    }

    /// Does what is due now, and never waits: takes what came, sends what there is room for,
    /// lets timers fire. It stops after some turns though more is to be done; then the
    /// descriptor stays readable.
    pub fn turn(&self) -> TurnReport {
        self.0.turn()
    }
}

/// Readable when [`turn`](NodeDriver::turn) has something to do. It may be readable for
/// once though there is nothing. It is for waiting only, and stays the same.
impl AsFd for NodeDriver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for NodeDriver {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}
