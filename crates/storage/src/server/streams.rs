//! [`StreamServer`]: clients that come in over whatever carries bytes, each with a thread.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::Log;
use crate::stream::Stream;

/// How long nobody is let in after somebody could not be.
const PAUSE: Duration = Duration::from_millis(10);

/// Serves one client until it goes; the error is for the log.
pub(crate) type Serve = Box<dyn Fn(Arc<dyn Stream>) -> Result<(), String> + Send + Sync>;

/// Lets clients of a [`Server`](super::Server), or of a target of SCSI, come in.
///
/// Dropped, it stops: what was begun is ended, and clients see the end of their connections.
pub struct StreamServer {
    state: Arc<State>,
}

struct State {
    serve: Serve,
    is_ending: Arc<AtomicBool>,
    log: Option<Log>,
    clients: Mutex<Clients>,
    fewer: Condvar,
    most_clients: usize,
    served: AtomicU64,
}

#[derive(Default)]
struct Clients {
    next: u64,
    streams: BTreeMap<u64, Arc<dyn Stream>>,
    /// What ends a listener.
    wakes: Vec<Box<dyn Fn() + Send + Sync>>,
}

impl StreamServer {
    /// Lets nobody in yet. `is_ending` becomes true before clients are ended.
    pub(crate) fn new(
        serve: Serve,
        is_ending: Arc<AtomicBool>,
        log: Option<Log>,
        most_clients: usize,
    ) -> Self {
        let state = State {
            serve,
            is_ending,
            log,
            clients: Mutex::default(),
            fewer: Condvar::new(),
            most_clients,
            served: AtomicU64::new(0),
        };
        Self { state: Arc::new(state) }
    }

    /// Lets clients come in over the kernel's TCP. Gives the address, whose port may have
    /// been 0.
    ///
    /// # Errors
    /// Those of `bind`.
    pub fn listen(&self, address: impl ToSocketAddrs) -> io::Result<SocketAddr> {
        let listener = TcpListener::bind(address)?;
        let local = listener.local_addr()?;
        self.accept(
            move || {
                let (stream, from) = listener.accept()?;
                stream.set_nodelay(true)?;
                Ok((Arc::new(stream) as Arc<dyn Stream>, from.to_string()))
            },
            move || drop(TcpStream::connect(local)),
        )?;
        Ok(local)
    }

    /// Lets clients of this host come in, at a path where there is nothing yet.
    ///
    /// # Errors
    /// Those of `bind`.
    pub fn listen_unix(&self, path: &Path) -> io::Result<()> {
        let listener = UnixListener::bind(path)?;
        let (path, name) = (path.to_owned(), path.display().to_string());
        self.accept(
            move || Ok((Arc::new(listener.accept()?.0) as Arc<dyn Stream>, name.clone())),
            move || {
                drop(std::os::unix::net::UnixStream::connect(&path));
                let _ = std::fs::remove_file(&path);
            },
        )
    }

    /// Lets clients come in by whatever gives streams, as `accept` does: with a name for the
    /// log. It is called until it fails or the server ends, when `wake` has to make it
    /// return.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn accept(
        &self,
        mut accept: impl FnMut() -> io::Result<(Arc<dyn Stream>, String)> + Send + 'static,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> io::Result<()> {
        let state = Arc::clone(&self.state);
        state.clients().wakes.push(Box::new(wake));
        let thread = thread::Builder::new().name("landfall-client".into());
        thread.spawn(move || {
            while !state.is_ending.load(Ordering::Acquire) {
                match accept() {
                    Ok((stream, name)) => state.admit(stream, name),
                    Err(error) if is_passing(&error) => thread::sleep(PAUSE),
                    Err(error) => {
                        state.say(&format!("no more clients come in here: {error}"));
                        return;
                    }
                }
            }
        })?;
        Ok(())
    }

    /// Serves one client that is there, by a thread of its own.
    pub fn admit(&self, stream: Arc<dyn Stream>, name: impl Into<String>) {
        self.state.admit(stream, name.into());
    }

    /// How many clients are here.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.state.clients().streams.len()
    }

    /// How many clients have been here, the present ones among them.
    #[must_use]
    pub fn served(&self) -> u64 {
        self.state.served.load(Ordering::Relaxed)
    }
}

/// An error of one client that was about to come in, rather than of the listener.
fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted, TimedOut, WouldBlock};
    let passing = [ConnectionAborted, ConnectionReset, Interrupted, TimedOut, WouldBlock];
    // Too many descriptors for the moment: ENFILE, EMFILE.
    passing.contains(&error.kind()) || matches!(error.raw_os_error(), Some(23 | 24))
}

impl State {
    fn clients(&self) -> MutexGuard<'_, Clients> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn say(&self, what: &str) {
        if let Some(log) = &self.log {
            log(what);
        }
    }

    fn admit(self: &Arc<Self>, stream: Arc<dyn Stream>, name: String) {
        let mut clients = self.clients();
        if self.is_ending.load(Ordering::Acquire) {
            return stream.shut_down();
        }
        if clients.streams.len() >= self.most_clients {
            drop(clients);
            self.say(&format!("{name}: turned away, for there are too many"));
            return stream.shut_down();
        }
        let id = clients.next;
        clients.next += 1;
        clients.streams.insert(id, Arc::clone(&stream));
        drop(clients);
        self.served.fetch_add(1, Ordering::Relaxed);
        let state = Arc::clone(self);
        let thread = thread::Builder::new().name("landfall-client".into());
        let spawned = thread.spawn(move || {
            let leaves = Leaves { state: &state, id };
            state.say(&format!("{name}: came"));
            match (state.serve)(stream) {
                Ok(()) => state.say(&format!("{name}: gone")),
                Err(error) => state.say(&format!("{name}: gone: {error}")),
            }
            drop(leaves);
        });
        if let Err(error) = spawned {
            self.say(&format!("cannot serve: {error}"));
            self.leave(id);
        }
    }

    fn leave(&self, id: u64) {
        let stream = self.clients().streams.remove(&id);
        if let Some(stream) = stream {
            stream.shut_down();
        }
        self.fewer.notify_all();
    }
}

/// A client leaves the table, whatever ends its thread.
struct Leaves<'a> {
    state: &'a State,
    id: u64,
}

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.state.leave(self.id);
    }
}

impl Drop for StreamServer {
    fn drop(&mut self) {
        self.state.is_ending.store(true, Ordering::Release);
        let mut clients = self.state.clients();
        let wakes = std::mem::take(&mut clients.wakes);
        for stream in clients.streams.values() {
            stream.shut_down();
        }
        drop(clients);
        for wake in wakes {
            wake();
        }
        let mut clients = self.state.clients();
        while !clients.streams.is_empty() {
            clients = self.state.fewer.wait(clients).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl std::fmt::Debug for StreamServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StreamServer").field("clients", &self.clients()).finish_non_exhaustive()
    }
}
