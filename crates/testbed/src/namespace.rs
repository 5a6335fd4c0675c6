//! Network namespaces without names.
//!
//! A namespace is made by a short-lived thread (`unshare` works per thread)
//! and lives as long as somebody holds a descriptor of it, a socket in it or
//! a thread inside it. Nothing is mounted under `/run/netns`, so nothing is
//! left behind, not even after `kill -9`: the kernel takes the namespace, and
//! the veth pairs in it, when the last holder is gone.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::panic;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use crate::error::{Error, Tried};
use crate::netlink::Netlink;

/// A network namespace of our own. Clones name the same namespace.
#[derive(Clone, Debug)]
pub struct Namespace {
    fd: Arc<OwnedFd>,
}

impl Namespace {
    /// Makes an empty namespace whose loopback is up. Needs `CAP_SYS_ADMIN`.
    pub fn new() -> Result<Self, Error> {
        on_fresh_thread("landfall-netns", || {
            // SAFETY: `unshare` takes no pointers; with CLONE_NEWNET it
            // changes only the network namespace of this fresh thread.
            if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
                return Err(Error::last("make a network namespace"));
            }
            let namespace = Self::of_this_thread()?;
            quieten();
            let netlink = Netlink::open()?;
            netlink.set_up(netlink.index_of("lo")?)?;
            Ok(namespace)
        })?
    }

    /// The namespace that the calling thread is in.
    pub fn of_this_thread() -> Result<Self, Error> {
        let file = File::open("/proc/thread-self/ns/net")
            .tried("open the network namespace of this thread")?;
        Ok(Self { fd: Arc::new(file.into()) })
    }

    /// Runs `work` inside the namespace and gives back its result; the caller
    /// waits, and stays where it is. A panic in `work` goes on in the caller.
    ///
    /// Sockets made inside stay in this namespace wherever they are used, so
    /// this is also how to make a socket for use elsewhere.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
        on_fresh_thread("landfall-enter", || {
            self.join_this_thread()?;
            Ok(work())
        })?
    }

    /// Switches an interface in it on or off.
    pub fn set_interface(&self, name: &str, up: bool) -> Result<(), Error> {
        self.enter(|| {
            let netlink = Netlink::open()?;
            let index = netlink.index_of(name)?;
            if up { netlink.set_up(index) } else { netlink.set_down(index) }
        })?
    }

    /// Takes an interface away, under anyone who uses it.
    pub fn remove_interface(&self, name: &str) -> Result<(), Error> {
        self.enter(|| {
            let netlink = Netlink::open()?;
            netlink.remove(netlink.index_of(name)?)
        })?
    }

    /// Starts a named thread that runs `work` inside the namespace. That it
    /// could not get inside shows when it is joined.
    pub fn spawn<T: Send + 'static>(
        &self,
        name: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<JoinHandle<Result<T, Error>>, Error> {
        let namespace = self.clone();
        thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                namespace.join_this_thread()?;
                Ok(work())
            })
            .tried("start a thread")
    }

    /// Moves the calling thread into the namespace, for good. For threads
    /// made for the purpose; everybody else wants [`Namespace::enter`].
    pub fn join_this_thread(&self) -> Result<(), Error> {
        // SAFETY: `setns` takes no pointers; the descriptor is open, as we
        // own it, and the call affects only the calling thread.
        if unsafe { libc::setns(self.fd.as_raw_fd(), libc::CLONE_NEWNET) } != 0 {
            return Err(Error::last("enter a network namespace"));
        }
        Ok(())
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Two handles are equal when they name the same namespace of the kernel.
impl PartialEq for Namespace {
    fn eq(&self, other: &Self) -> bool {
        match (identity(self), identity(other)) {
            (Ok(mine), Ok(theirs)) => mine == theirs,
            _ => Arc::ptr_eq(&self.fd, &other.fd),
        }
    }
}

impl Eq for Namespace {}

/// Device and inode of the namespace file: what the kernel knows it by.
fn identity(namespace: &Namespace) -> io::Result<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    let file = File::from(namespace.fd.try_clone()?);
    file.metadata().map(|data| (data.dev(), data.ino()))
}

/// Runs `work` on a thread with mounts of its own, as the processes that it starts have them:
/// nobody else sees what they mount, and the kernel takes it when the last of them has ended.
/// Needs `CAP_SYS_ADMIN`.
pub fn with_own_mounts<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, Error> {
    on_fresh_thread("landfall-mounts", || {
        // SAFETY: `unshare` takes no pointers; with CLONE_NEWNS it changes only the mounts and
        // the working directory of this fresh thread.
        if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
            return Err(Error::last("make a mount namespace"));
        }
        let (none, root) = (std::ptr::null(), c"/".as_ptr());
        let private = libc::MS_REC | libc::MS_PRIVATE;
        // SAFETY: the path is a string with its zero; a change of propagation uses nothing else.
        if unsafe { libc::mount(none, root, none, private, none.cast()) } != 0 {
            return Err(Error::last("keep mounts to this namespace"));
        }
        Ok(work())
    })?
}

/// Runs `work` on a thread of its own, whose namespace dies with it.
fn on_fresh_thread<T: Send>(name: &str, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
    thread::scope(|scope| {
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn_scoped(scope, work)
            .tried("start a thread")?;
        thread.join().map_or_else(|cause| panic::resume_unwind(cause), Ok)
    })
}

/// Keeps a fresh namespace from talking by itself: no router solicitations,
/// no duplicate address detection, no automatic addresses. Only a measure
/// against noise: where `/proc/sys` may not be written, things work without.
fn quieten() {
    // New interfaces inherit `default`; `/proc/sys/net` shows the namespace
    // of the thread that opens it.
    const QUIET: [(&str, &str); 4] = [
        ("accept_ra", "0"),
        ("router_solicitations", "0"),
        ("accept_dad", "0"),
        // IN6_ADDR_GEN_MODE_NONE: no link-local address, and so no traffic
        // to announce it.
        ("addr_gen_mode", "1"),
    ];
    for (name, value) in QUIET {
        let _ = fs::write(format!("/proc/sys/net/ipv6/conf/default/{name}"), value);
    }
}
