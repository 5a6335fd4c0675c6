//! [`Server`]: devices for clients of NBD, over whatever carries bytes.

mod connection;
mod exports;
#[cfg(feature = "family")]
mod family;
mod tally;
mod workers;

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use landfall_nbd::server::{Config, Tls};

use crate::stream::Stream;
pub(crate) use connection::Input;
use connection::{Common, serve};
use exports::ExportTable;
pub use exports::Offer;
pub use tally::ServerStats;
use workers::Workers;

/// Threads that wait for media, for all clients together.
const WORKERS: usize = 16;

/// How long nobody is let in after somebody could not be.
const PAUSE: Duration = Duration::from_millis(10);

/// Tells of clients, in words for a log.
pub type Log = Box<dyn Fn(&str) + Send + Sync>;

/// A server of block devices.
///
/// ```
/// use landfall_storage::device::MemoryDevice;
/// use landfall_storage::server::{Offer, Server};
/// use landfall_storage::client::{Client, Options};
///
/// let server = Server::builder().offer(Offer::new("disk", MemoryDevice::new(1 << 20))).start()?;
/// let address = server.listen("127.0.0.1:0")?;
///
/// let client = Client::connect_tcp(address, &Options::export("disk"))?;
/// client.write(4096, b"every byte has its place".to_vec()).wait()?;
/// client.flush().wait()?;
/// assert_eq!(client.read(4096, vec![0; 5]).wait()?, b"every");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Dropped, it stops: what was begun is ended, and clients are told.
pub struct Server {
    state: Arc<State>,
}

struct State {
    common: Arc<Common>,
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

/// What a [`Server`] shall be like.
#[must_use]
pub struct Builder {
    exports: ExportTable,
    doubled: Option<String>,
    config: Config,
    log: Option<Log>,
    most_clients: usize,
    #[cfg(feature = "tls")]
    tls: Option<Arc<rustls::ServerConfig>>,
}

impl Builder {
    /// Offers a device.
    pub fn offer(mut self, offer: Offer) -> Self {
        let name = offer.name().to_owned();
        if !self.exports.add(offer) {
            self.doubled = Some(name);
        }
        self
    }

    /// Tells of clients that come and go, and of what goes wrong.
    pub fn log(mut self, log: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.log = Some(Box::new(log));
        self
    }

    /// This many clients at a time; others are turned away.
    pub const fn clients(mut self, most: usize) -> Self {
        self.most_clients = most;
        self
    }

    /// TLS for anyone who wants it, or for all.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, config: Arc<rustls::ServerConfig>, required: bool) -> Self {
        self.config.tls = if required { Tls::Required } else { Tls::Optional };
        self.tls = Some(config);
        self
    }

    /// Starts it. Clients come in by [`Server::listen`] and its like.
    ///
    /// # Errors
    /// Two exports have one name.
    pub fn start(self) -> io::Result<Server> {
        if let Some(name) = self.doubled {
            let what = format!("two exports have one name: {name}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        #[cfg(feature = "tls")]
        let secure = self.tls.map(|config| -> connection::Secure {
            Box::new(move |stream| crate::stream::tls::accept(stream, &config))
        });
        #[cfg(not(feature = "tls"))]
        let secure = None;
        let common = Common {
            exports: self.exports,
            workers: Workers::new(WORKERS),
            config: self.config,
            is_ending: AtomicBool::new(false),
            secure,
            tally: tally::Tally::default(),
        };
        let state = State {
            common: Arc::new(common),
            log: self.log,
            clients: Mutex::default(),
            fewer: Condvar::new(),
            most_clients: self.most_clients,
            served: AtomicU64::new(0),
        };
        Ok(Server { state: Arc::new(state) })
    }
}

impl Server {
    /// A server without exports, for 1024 clients.
    pub fn builder() -> Builder {
        let config = Config { tls: Tls::None, ..Config::default() };
        Builder {
            exports: ExportTable::default(),
            doubled: None,
            config,
            log: None,
            most_clients: 1024,
            #[cfg(feature = "tls")]
            tls: None,
        }
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
        let thread = thread::Builder::new().name("landfall-nbd".into());
        thread.spawn(move || {
            while !state.common.is_ending.load(Ordering::Acquire) {
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

    /// Offers one device more. False: its name is taken.
    pub fn offer(&self, offer: Offer) -> bool {
        self.state.common.exports.add(offer)
    }

    /// Withdraws an export. Anyone who uses it is told at the next request. False: there is
    /// none of this name.
    pub fn withdraw(&self, name: &str) -> bool {
        self.state.common.exports.remove(name)
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

    /// What was asked for so far, by all clients together.
    #[must_use]
    pub fn stats(&self) -> ServerStats {
        self.state.common.tally.stats()
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
        if self.common.is_ending.load(Ordering::Acquire) {
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
        let thread = thread::Builder::new().name("landfall-nbd".into());
        let spawned = thread.spawn(move || {
            let leaves = Leaves { state: &state, id };
            state.say(&format!("{name}: came"));
            match serve(stream, &state.common) {
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

impl Drop for Server {
    fn drop(&mut self) {
        self.state.common.is_ending.store(true, Ordering::Release);
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

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("clients", &self.clients()).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder").field("clients", &self.most_clients).finish_non_exhaustive()
    }
}
