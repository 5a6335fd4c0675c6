//! [`Client`]: asks a server, from many threads at a time.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use landfall::clan::{Error, Fabric};
use landfall_files::{
    Attributes, Caller, Envelope, Errno, Layout, MOST_RELEASES, Release, Reply, Request, VERSION,
};

use super::channel::{Channel, ChannelError};
use super::{FilesError, Options, locked};

/// How long what nobody needs any more may wait for a request to travel with.
const RELEASE_AFTER: Duration = Duration::from_millis(50);

/// From this many releases on nobody waits for a request.
const RELEASE_AT: usize = 4 * MOST_RELEASES;

/// Why a call failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The server says so.
    #[error("{}", io::Error::from_raw_os_error((*.0).number().into()))]
    Failed(Errno),
    /// The server is gone, and nothing can be asked any more.
    #[error("the server is gone: {0}; connect to it again")]
    Gone(Arc<str>),
}

impl CallError {
    /// The error for a program: `EIO` where the server is gone.
    #[must_use]
    pub const fn errno(&self) -> Errno {
        match self {
            Self::Failed(error) => *error,
            Self::Gone(_) => Errno::IO,
        }
    }
}

/// A channel over whatever fabric.
trait Carry: Send {
    fn exchange(
        &mut self,
        message: &[u8],
        data: &[u8],
        patience: Duration,
        reply: &mut Vec<u8>,
    ) -> Result<(), ChannelError>;
    fn data(&self, len: usize, into: &mut Vec<u8>) -> Result<(), ChannelError>;
}

/// A channel, and the number of its last request.
struct Numbered<F: Fabric> {
    channel: Channel<F>,
    number: u32,
}

impl<F: Fabric> Carry for Numbered<F> {
    fn exchange(
        &mut self,
        message: &[u8],
        data: &[u8],
        patience: Duration,
        reply: &mut Vec<u8>,
    ) -> Result<(), ChannelError> {
        self.number = self.number.wrapping_add(1);
        let deadline = Instant::now() + patience;
        self.channel.send(self.number, message, data, deadline)?;
        match self.channel.receive(self.number, deadline, reply)? {
            true => Ok(()),
            false => Err(Error::TimedOut.into()),
        }
    }

    fn data(&self, len: usize, into: &mut Vec<u8>) -> Result<(), ChannelError> {
        self.channel.data(len, into)
    }
}

/// A channel, and the memory for its replies.
struct IdleChannel {
    carry: Box<dyn Carry>,
    reply: Vec<u8>,
}

/// A connection to a server, for any number of threads. When it is dropped, the server closes
/// what was open.
pub struct Client {
    shared: Arc<ClientState>,
    releaser: Option<JoinHandle<()>>,
    /// The exported directory.
    root: Attributes,
    is_read_only: bool,
    layout: Layout,
}

struct ClientState {
    idle: Mutex<Vec<IdleChannel>>,
    has_idle: Condvar,
    releases: Mutex<VecDeque<Release>>,
    has_releases: Condvar,
    gone: Mutex<Option<Arc<str>>>,
    is_gone: AtomicBool,
    is_over: AtomicBool,
    patience: Duration,
}

impl Client {
    /// Makes the channels with `open`, all for one session.
    pub(super) fn over<F: Fabric>(
        options: &Options,
        mut open: impl FnMut(Layout) -> Result<Channel<F>, FilesError>,
    ) -> Result<Self, FilesError> {
        let layout = Layout::new(options.data)?;
        let (mut lanes, mut session, mut welcomed) = (Vec::new(), [0; 16], None);
        for _ in 0..options.channels.max(1) {
            let carry = Box::new(Numbered { channel: open(layout)?, number: 0 });
            let mut lane = IdleChannel { carry, reply: Vec::new() };
            let welcome = lane.hello(session, options.patience)?;
            session = welcome.0;
            welcomed = Some(welcome);
            lanes.push(lane);
        }
        let Some((_, is_read_only, root)) = welcomed else {
            return Err(FilesError::Refused(Errno::INVALID));
        };
        let shared = Arc::new(ClientState {
            idle: Mutex::new(lanes),
            has_idle: Condvar::new(),
            releases: Mutex::default(),
            has_releases: Condvar::new(),
            gone: Mutex::default(),
            is_gone: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            patience: options.patience,
        });
        let releasing = Arc::clone(&shared);
        let releaser = thread::Builder::new()
            .name("landfall-files".into())
            .spawn(move || releasing.send_releases())
            .map_err(FilesError::system("cannot start a thread"))?;
        Ok(Self { shared, releaser: Some(releaser), root, is_read_only, layout })
    }

    /// The attributes that the exported directory had.
    #[must_use]
    pub const fn root(&self) -> &Attributes {
        &self.root
    }

    /// Does the server refuse all changes?
    #[must_use]
    pub const fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// The most bytes of one read or write.
    #[must_use]
    pub const fn most_data(&self) -> u32 {
        self.layout.data()
    }

    /// Why the server is gone, if it is.
    #[must_use]
    pub fn gone(&self) -> Option<Arc<str>> {
        locked(&self.shared.gone).clone()
    }

    /// Asks something that moves no data.
    ///
    /// # Errors
    /// The server refuses, or is gone.
    pub fn call(&self, caller: Caller, request: Request) -> Result<Reply, CallError> {
        self.shared.call(caller, request, &[], None)
    }

    /// Asks with data for the server.
    ///
    /// # Errors
    /// Those of [`call`](Self::call). `EINVAL`: more than [`most_data`](Self::most_data).
    pub fn call_with(
        &self,
        caller: Caller,
        request: Request,
        data: &[u8],
    ) -> Result<Reply, CallError> {
        if data.len() > self.layout.data() as usize {
            return Err(CallError::Failed(Errno::INVALID));
        }
        self.shared.call(caller, request, data, None)
    }

    /// Asks for data: a reply of `Bytes` has left it in `into`.
    ///
    /// # Errors
    /// Those of [`call`](Self::call).
    pub fn call_into(
        &self,
        caller: Caller,
        request: Request,
        into: &mut Vec<u8>,
    ) -> Result<Reply, CallError> {
        self.shared.call(caller, request, &[], Some((into, self.layout.data())))
    }

    /// Says that something is not needed any more, with one of the next requests.
    pub fn release(&self, release: Release) {
        self.shared.release([release]);
    }

    /// Sends all releases that wait.
    ///
    /// # Errors
    /// The server is gone.
    pub fn flush_releases(&self) -> Result<(), CallError> {
        self.shared.flush_releases()
    }
}

impl IdleChannel {
    fn hello(
        &mut self,
        session: [u8; 16],
        patience: Duration,
    ) -> Result<([u8; 16], bool, Attributes), FilesError> {
        let nobody = Caller { user: 0, group: 0 };
        let hello = Envelope::new(nobody, Request::Hello { version: VERSION, session });
        let exchanged = self.carry.exchange(&hello.encode(), &[], patience, &mut self.reply);
        exchanged.map_err(|error| match error {
            ChannelError::Clan(error) => FilesError::Clan(error),
            ChannelError::Protocol(error) => FilesError::Protocol(error),
            ChannelError::Closed => FilesError::Clan(Error::Closed),
        })?;
        match Reply::decode(&self.reply)? {
            Reply::Welcome { version: VERSION, session, read_only, root } => {
                Ok((session, read_only, root))
            }
            Reply::Welcome { version, .. } => {
                Err(FilesError::Version { theirs: version, ours: VERSION })
            }
            Reply::Failed { error } => Err(FilesError::Refused(error)),
            _ => Err(FilesError::Refused(Errno::INVALID)),
        }
    }
}

impl ClientState {
    fn call(
        &self,
        caller: Caller,
        request: Request,
        data: &[u8],
        into: Option<(&mut Vec<u8>, u32)>,
    ) -> Result<Reply, CallError> {
        let mut lane = self.lane()?;
        let releases = self.next_releases();
        let message = Envelope { caller, request, releases }.encode();
        match lane.call(&message, data, self.patience, into) {
            Ok(Reply::Failed { error }) => {
                self.give_back(lane);
                Err(CallError::Failed(error))
            }
            Ok(reply) => {
                self.give_back(lane);
                Ok(reply)
            }
            Err(error) => Err(self.fail(&error)),
        }
    }

    /// Waits for a channel that nobody uses.
    fn lane(&self) -> Result<IdleChannel, CallError> {
        let mut idle = locked(&self.idle);
        loop {
            if self.is_gone.load(Ordering::Acquire) {
                let why = locked(&self.gone).clone();
                return Err(CallError::Gone(why.unwrap_or_else(|| "it has ended".into())));
            }
            match idle.pop() {
                Some(lane) => return Ok(lane),
                None => idle = self.has_idle.wait(idle).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    fn give_back(&self, lane: IdleChannel) {
        locked(&self.idle).push(lane);
        self.has_idle.notify_one();
    }

    /// The channel is lost, and the session with it: nothing is asked any more.
    fn fail(&self, error: &ChannelError) -> CallError {
        let why: Arc<str> = error.to_string().into();
        locked(&self.gone).get_or_insert_with(|| Arc::clone(&why));
        self.is_gone.store(true, Ordering::Release);
        drop(locked(&self.idle));
        self.has_idle.notify_all();
        CallError::Gone(why)
    }

    fn next_releases(&self) -> Vec<Release> {
        let mut releases = locked(&self.releases);
        let count = releases.len().min(MOST_RELEASES);
        releases.drain(..count).collect()
    }

    fn release(&self, released: impl IntoIterator<Item = Release>) {
        let mut releases = locked(&self.releases);
        let was_empty = releases.is_empty();
        releases.extend(released);
        if was_empty || releases.len() >= RELEASE_AT {
            self.has_releases.notify_one();
        }
    }

    fn flush_releases(&self) -> Result<(), CallError> {
        let nobody = Caller { user: 0, group: 0 };
        while !locked(&self.releases).is_empty() {
            self.call(nobody, Request::Nothing {}, &[], None)?;
        }
        Ok(())
    }

    /// The thread that sends releases when there is no request for them to travel with.
    fn send_releases(&self) {
        while !self.is_over.load(Ordering::Acquire) {
            let over = || self.is_over.load(Ordering::Acquire);
            let releases = locked(&self.releases);
            let some = self.has_releases.wait_while(releases, |some| some.is_empty() && !over());
            let some = some.unwrap_or_else(PoisonError::into_inner);
            // Most travel with a request of somebody else meanwhile.
            let few = |some: &mut VecDeque<Release>| some.len() < RELEASE_AT && !over();
            drop(self.has_releases.wait_timeout_while(some, RELEASE_AFTER, few));
            if self.flush_releases().is_err() {
                return;
            }
        }
    }
}

impl IdleChannel {
    fn call(
        &mut self,
        message: &[u8],
        data: &[u8],
        patience: Duration,
        into: Option<(&mut Vec<u8>, u32)>,
    ) -> Result<Reply, ChannelError> {
        self.carry.exchange(message, data, patience, &mut self.reply)?;
        let reply = Reply::decode(&self.reply)?;
        if let (Reply::Bytes { len }, Some((into, most))) = (&reply, into) {
            // A server that says more than there is room for has written it nowhere.
            let len = (*len).min(most.into()) as usize;
            self.carry.data(len, into)?;
        }
        Ok(reply)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        drop(locked(&self.shared.releases));
        self.shared.has_releases.notify_all();
        if let Some(releaser) = self.releaser.take() {
            // It has panicked, or it has ended: both are its end.
            let _ = releaser.join();
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("root", &self.root)
            .field("gone", &self.gone())
            .finish_non_exhaustive()
    }
}
