//! [`Server`]: exports a directory to any number of clients.
//!
//! | file | what it is |
//! | --- | --- |
//! | this | the server, its threads, and a channel from its first message to its end |
//! | `export` | a directory, and how its entries are reached without leaving it |
//! | `session` | what one client knows: nodes and handles |
//! | `operations`, `contents` | requests, carried out |
//! | `caller` | whom what is made belongs to |
//!
//! Each channel of a client has a thread: what it asks may wait for a medium.

mod caller;
mod contents;
mod export;
mod operations;
mod session;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use landfall::clan::Fabric;
use landfall_files::{Envelope, Errno, Layout, Reply, Request, VERSION};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use self::contents::Outgoing;
use self::operations::RequestContext;
use self::session::Session;
use super::channel::{Channel, ChannelError};
use super::{FilesError, Options, locked};

pub use export::{Export, ExportError};

/// How long a thread waits for a request before it looks whether the server has ended.
const SLICE: Duration = Duration::from_millis(200);

/// The error of the operating system, for a client.
fn errno(error: rustix::io::Errno) -> Errno {
    Errno::new(u16::try_from(error.raw_os_error()).unwrap_or(0))
}

/// What a server did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerStats {
    /// Requests that were answered.
    pub requests: u64,
    /// Those that were refused or failed.
    pub failed: u64,
    /// Bytes that clients read.
    pub read_bytes: u64,
    /// Bytes that clients wrote.
    pub written_bytes: u64,
    /// Channels that clients have open.
    pub channels: usize,
    /// Clients.
    pub sessions: usize,
    /// Nodes that clients know.
    pub nodes: usize,
    /// Files and directories that clients have open.
    pub handles: usize,
}

/// A running server. It ends when it is dropped: clients learn of it, and what they had open is
/// closed.
pub struct Server {
    shared: Arc<ServerState>,
}

pub(super) struct ServerState {
    export: Export,
    options: Options,
    is_over: AtomicBool,
    channels: AtomicUsize,
    sessions: Mutex<HashMap<[u8; 16], Weak<Session>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    counts: Counts,
}

#[derive(Default)]
struct Counts {
    requests: AtomicU64,
    failed: AtomicU64,
    read: AtomicU64,
    written: AtomicU64,
}

impl Server {
    /// Starts it. It listens nowhere yet. Of the options, `channels` counts those of all clients
    /// together, if there are more than 64.
    ///
    /// # Errors
    /// The options make no sense.
    pub fn start(export: Export, options: &Options) -> Result<Self, FilesError> {
        Layout::new(options.data)?;
        raise_limit();
        let options = Options { channels: options.channels.max(64), ..options.clone() };
        Ok(Self {
            shared: Arc::new(ServerState {
                export,
                options,
                is_over: AtomicBool::new(false),
                channels: AtomicUsize::new(0),
                sessions: Mutex::default(),
                threads: Mutex::default(),
                counts: Counts::default(),
            }),
        })
    }

    pub(super) const fn shared(&self) -> &Arc<ServerState> {
        &self.shared
    }

    /// What it did so far.
    #[must_use]
    pub fn stats(&self) -> ServerStats {
        let ServerState { counts, channels, .. } = &*self.shared;
        let sessions: Vec<_> =
            locked(&self.shared.sessions).values().filter_map(Weak::upgrade).collect();
        let held = sessions.iter().map(|session| session.held());
        let (nodes, handles) = held.fold((0, 0), |sum, held| (sum.0 + held.0, sum.1 + held.1));
        ServerStats {
            requests: counts.requests.load(Ordering::Relaxed),
            failed: counts.failed.load(Ordering::Relaxed),
            read_bytes: counts.read.load(Ordering::Relaxed),
            written_bytes: counts.written.load(Ordering::Relaxed),
            channels: channels.load(Ordering::Relaxed),
            sessions: sessions.len(),
            nodes,
            handles,
        }
    }
}

/// Every node that a client knows is a descriptor.
fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    // Where it may not be raised, clients get `EMFILE` earlier.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

impl ServerState {
    /// Starts a thread of this server.
    pub(super) fn spawn(
        self: &Arc<Self>,
        work: impl FnOnce(&Arc<Self>) + Send + 'static,
    ) -> Result<(), FilesError> {
        let shared = Arc::clone(self);
        let thread = thread::Builder::new()
            .name("landfall-files".into())
            .spawn(move || work(&shared))
            .map_err(FilesError::system("cannot start a thread"))?;
        let mut threads = locked(&self.threads);
        threads.retain(|thread| !thread.is_finished());
        threads.push(thread);
        Ok(())
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// How a client's channel has to look, which says how much data it wants to have room for.
    pub(super) fn layout(&self, data: u32) -> Result<Layout, Errno> {
        if data > self.options.data.max(1 << 20) {
            return Err(Errno::INVALID);
        }
        Layout::new(data).map_err(|_| Errno::INVALID)
    }

    pub(super) const fn spin(&self) -> Duration {
        self.options.spin
    }

    /// A place for another channel; it goes when it is dropped.
    pub(super) fn place(self: &Arc<Self>) -> Option<Place> {
        let most = self.options.channels;
        let taken = self.channels.fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| {
            (count < most).then_some(count + 1)
        });
        taken.ok().map(|_| Place(Arc::clone(self)))
    }

    /// A thread for a channel.
    pub(super) fn serve<F: Fabric>(
        self: &Arc<Self>,
        place: Place,
        channel: Channel<F>,
    ) -> Result<(), FilesError> {
        self.spawn(move |shared| {
            let mut service = Service {
                shared,
                channel,
                session: None,
                message: Vec::new(),
                incoming: Vec::new(),
                outgoing: Outgoing::default(),
            };
            // Whatever ended it, its client knows or is gone.
            let _ = service.run();
            drop(service);
            drop(place);
        })
    }

    /// The session of a channel's first message.
    fn join(&self, token: [u8; 16]) -> Result<([u8; 16], Arc<Session>), Errno> {
        let mut sessions = locked(&self.sessions);
        sessions.retain(|_, session| session.strong_count() > 0);
        if token != [0; 16] {
            let session = sessions.get(&token).and_then(Weak::upgrade).ok_or(Errno::STALE)?;
            return Ok((token, session));
        }
        let mut token = [0; 16];
        getrandom::fill(&mut token).map_err(|_| Errno::IO)?;
        let session = Arc::new(Session::open(&self.export)?);
        sessions.insert(token, Arc::downgrade(&session));
        Ok((token, session))
    }
}

/// One of the channels that there may be.
pub(super) struct Place(Arc<ServerState>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.channels.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A channel, from its first message to its end.
struct Service<'a, F: Fabric> {
    shared: &'a Arc<ServerState>,
    channel: Channel<F>,
    session: Option<Arc<Session>>,
    message: Vec<u8>,
    incoming: Vec<u8>,
    outgoing: Outgoing,
}

impl<F: Fabric> Service<'_, F> {
    fn run(&mut self) -> Result<(), ChannelError> {
        let mut number = 1;
        while !self.shared.is_over() {
            if !self.channel.receive(number, Instant::now() + SLICE, &mut self.message)? {
                continue;
            }
            let envelope = Envelope::decode(&self.message)?;
            self.outgoing.room(0);
            let reply = self.answer(&envelope)?;
            let deadline = Instant::now() + self.shared.options.patience;
            self.channel.send(number, &reply.encode(), self.outgoing.bytes(), deadline)?;
            number = number.wrapping_add(1);
        }
        Ok(())
    }

    fn answer(&mut self, envelope: &Envelope) -> Result<Reply, ChannelError> {
        let counts = &self.shared.counts;
        counts.requests.fetch_add(1, Ordering::Relaxed);
        let len = match envelope.request {
            Request::Write { len, .. } | Request::SetExtended { len, .. } => len,
            _ => 0,
        };
        let result = if len > self.channel.layout().data() {
            Err(Errno::INVALID)
        } else {
            self.channel.data(len as usize, &mut self.incoming)?;
            self.carry_out(envelope)
        };
        let reply = result.unwrap_or_else(|error| Reply::Failed { error });
        let count = match (&envelope.request, &reply) {
            (_, Reply::Failed { .. }) => {
                self.outgoing.room(0);
                counts.failed.fetch_add(1, Ordering::Relaxed)
            }
            (Request::Read { .. }, Reply::Bytes { len }) => {
                counts.read.fetch_add(*len, Ordering::Relaxed)
            }
            (Request::Write { .. }, Reply::Bytes { len }) => {
                counts.written.fetch_add(*len, Ordering::Relaxed)
            }
            _ => 0,
        };
        let _ = count;
        Ok(reply)
    }

    fn carry_out(&mut self, envelope: &Envelope) -> Result<Reply, Errno> {
        let export = &self.shared.export;
        let Envelope { caller, request, releases } = envelope;
        if let Request::Hello { session, .. } = request {
            let (token, session) = self.shared.join(*session)?;
            self.session = Some(session);
            return Ok(Reply::Welcome {
                version: VERSION,
                session: token,
                read_only: export.is_read_only,
                root: export.attributes(&export.root)?,
            });
        }
        // `ENOTCONN`: the first message was none of the protocol.
        let session = self.session.as_ref().ok_or(Errno::new(107))?;
        for release in releases {
            session.release(*release);
        }
        if export.is_read_only && changes(request) {
            return Err(Errno::READ_ONLY);
        }
        let most = self.channel.layout().data();
        let asked = RequestContext { export, session, caller: *caller };
        asked.answer_with(request, &self.incoming, &mut self.outgoing, most)
    }
}

/// Does it change anything?
const fn changes(request: &Request) -> bool {
    use landfall_files::open::{TRUNCATE, WRITE};
    match request {
        Request::Open { flags, .. } => *flags & (WRITE | TRUNCATE) != 0,
        Request::Hello { .. }
        | Request::Lookup { .. }
        | Request::GetAttributes { .. }
        | Request::ReadLink { .. }
        | Request::Read { .. }
        | Request::Sync { .. }
        | Request::OpenDirectory { .. }
        | Request::ReadDirectory { .. }
        | Request::Space {}
        | Request::Seek { .. }
        | Request::GetExtended { .. }
        | Request::ListExtended { .. }
        | Request::Nothing {} => false,
        _ => true,
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        loop {
            // Those that accept may have started more meanwhile.
            let threads = std::mem::take(&mut *locked(&self.shared.threads));
            if threads.is_empty() {
                return;
            }
            for thread in threads {
                // A panic was its end.
                let _ = thread.join();
            }
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("export", &self.shared.export)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}
