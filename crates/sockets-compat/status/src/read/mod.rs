//! All connections of this host under the library: of this user, and for root of all.
//!
//! ```no_run
//! use landfall_socket_status::read::Reader;
//!
//! let view = Reader::new()?.look()?;
//! for process in &view.processes {
//!     for connection in &process.connections {
//!         println!("{} {}: {}", process.program, connection.peer(), connection.record.explanation);
//!     }
//! }
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! | file | what it is |
//! | --- | --- |
//! | this | what there is to see |
//! | `folder` | the folders in memory, proven as the library proves them |
//! | `process` | the file of a process, and whether it still runs |
//! | `counters` | bytes, where connections count them |
//! | `tcp` | bytes, as the kernel counts them for TCP |
//! | `leftovers` | what killed processes leave behind, and folders that nobody needs |

mod counters;
mod folder;
mod leftovers;
mod process;
mod tcp;

use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use folder::{Folder, Owner};
use leftovers::Networks;
use tcp::TcpDiag;

use crate::{CounterPlaces, ProcessName, Record, Role, Transport};

/// More connections are not read: files may say anything.
const MOST_CONNECTIONS: usize = 1 << 20;
/// Nor more records of one user, whatever is in them.
const MOST_RECORDS: usize = 1 << 21;

/// Looks at what processes say.
#[derive(Debug)]
pub struct Reader {
    shared_memory: PathBuf,
    host: Host,
}

/// Where the reader is: numbers of processes and connections mean something there alone.
#[derive(Clone, Copy, Debug)]
struct Host {
    user: u32,
    /// Namespaces, by the kernel's numbers.
    processes: u64,
    networks: u64,
    /// Whether the kernel tells where files are mapped.
    has_map_files: bool,
}

/// What was seen.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// Processes with their connections.
    pub processes: Vec<Process>,
    /// What could not be read, in words.
    pub faults: Vec<String>,
    /// Files and folders that nobody needs any more, which were removed.
    pub removed: usize,
}

/// One process.
#[derive(Clone, Debug)]
pub struct Process {
    /// Whose folder its file lies in.
    pub user: u32,
    /// Which one it is.
    pub name: ProcessName,
    /// What it is called.
    pub program: String,
    /// The version of its library.
    pub version: [u16; 3],
    /// Whether its number is one of the reader's namespace; else whether it runs is not known.
    pub is_in_this_namespace: bool,
    /// Where the counters of its connections lie.
    counters: CounterPlaces,
    /// Connections for which its file has no room.
    pub unseen: u64,
    /// All others.
    pub connections: Vec<Connection>,
}

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// What its process says of it.
    pub record: Record,
    /// Bytes that its program has sent; `None` where nobody says.
    pub sent: Option<u64>,
    /// Bytes that have come: that the program took, or for TCP those in the kernel's queue, too.
    pub received: Option<u64>,
}

impl Connection {
    /// The address of the end that called.
    #[must_use]
    pub fn connector(&self) -> SocketAddr {
        address(&self.record.name[..18])
    }

    /// The address that was called.
    #[must_use]
    pub fn acceptor(&self) -> SocketAddr {
        address(&self.record.name[18..])
    }

    /// The address of this end.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        match self.record.role {
            Role::Connector => self.connector(),
            Role::Acceptor => self.acceptor(),
        }
    }

    /// The address of the other end.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        match self.record.role {
            Role::Connector => self.acceptor(),
            Role::Acceptor => self.connector(),
        }
    }
}

fn address(bytes: &[u8]) -> SocketAddr {
    let (mut octets, mut port) = ([0; 16], [0; 2]);
    octets.copy_from_slice(&bytes[..16]);
    port.copy_from_slice(&bytes[16..18]);
    (Ipv6Addr::from(octets).to_canonical(), u16::from_be_bytes(port)).into()
}

impl Reader {
    /// Looks where the library has its folders.
    pub fn new() -> io::Result<Self> {
        Self::at(Path::new("/dev/shm"))
    }

    /// Looks for the folders elsewhere.
    pub fn at(shared_memory: &Path) -> io::Result<Self> {
        let namespace = |name: &str| Ok::<_, io::Error>(rustix::fs::stat(name)?.st_ino);
        let host = Host {
            user: rustix::process::geteuid().as_raw(),
            processes: namespace("/proc/self/ns/pid")?,
            networks: namespace("/proc/thread-self/ns/net")?,
            has_map_files: Path::new("/proc/self/map_files").exists(),
        };
        Ok(Self { shared_memory: shared_memory.to_owned(), host })
    }

    /// All that can be seen now; and what nobody needs any more is removed.
    pub fn look(&self) -> io::Result<View> {
        let mut view = View::default();
        let mut tcp = TcpDiag::open().ok();
        let mut networks = Networks::default();
        let folders = folder::all(&self.shared_memory, &self.host, &mut view.faults)?;
        for folder in &folders {
            let (mut is_in_use, mut budget) = (false, MOST_RECORDS);
            let processes = match folder.name.owner {
                Owner::User(user) => {
                    folder.processes().into_iter().map(|name| (name, user)).collect()
                }
                // What processes say lies in the folders of their users.
                Owner::Group(_) => Vec::new(),
            };
            for (process, user) in processes {
                match process::read(folder, user, &process, &self.host, &mut budget) {
                    Ok(process::Finding::Ended) => {
                        view.removed += usize::from(folder.remove(&process.to_bytes()));
                    }
                    Ok(process::Finding::Begins) => is_in_use = true,
                    Ok(process::Finding::Runs(mut found)) => {
                        is_in_use = true;
                        let left = MOST_CONNECTIONS.saturating_sub(view.connections().count());
                        found.connections.truncate(left);
                        self.count(folder, &folders, &mut found, tcp.as_mut());
                        view.processes.push(found);
                    }
                    Err(why) => view.faults.push(format!("{}: {why}", folder.path_of(&process))),
                }
            }
            view.removed +=
                leftovers::remove(folder, is_in_use, &self.host, &mut networks, tcp.as_mut());
        }
        view.processes
            .sort_by(|a, b| (a.user, &a.program, a.name).cmp(&(b.user, &b.program, b.name)));
        Ok(view)
    }

    /// Finds out how many bytes went.
    fn count(
        &self,
        folder: &Folder,
        folders: &[Folder],
        process: &mut Process,
        mut tcp: Option<&mut TcpDiag>,
    ) {
        let of_groups = || {
            let is_of_group = |folder: &&Folder| matches!(folder.name.owner, Owner::Group(_));
            folders.iter().filter(is_of_group).filter(|group| group.name.is_beside(&folder.name))
        };
        for connection in &mut process.connections {
            let counted = if connection.record.transport == Transport::Tcp {
                let is_here = folder.is_of_network(self.host.networks);
                tcp.as_mut().filter(|_| is_here).and_then(|tcp| tcp.counted(&connection.record))
            } else {
                let (record, places) = (&connection.record, &process.counters);
                counters::read(&self.shared_memory, folder, record, places)
                    .or_else(|| of_groups().find_map(|it| counters::read_in(it, record, places)))
            };
            connection.sent = counted.map(|counted| counted.sent);
            connection.received = counted.map(|counted| counted.received);
        }
    }
}

impl View {
    /// All connections, with their processes.
    pub fn connections(&self) -> impl Iterator<Item = (&Process, &Connection)> {
        self.processes
            .iter()
            .flat_map(|process| process.connections.iter().map(move |one| (process, one)))
    }
}

/// Bytes in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counted {
    sent: u64,
    received: u64,
}
