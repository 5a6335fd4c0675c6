//! Files over CLAN: a directory as it is, and the same through a mount, side by side.

mod abuse;
mod escape;
mod posix;
mod programs;
mod random;

use std::path::{Path, PathBuf};
use std::time::Instant;

use landfall::clan::network::{HostId, Node, PortAddress, Transport};
use landfall_storage::files::{Client, Export, Mount, MountOptions, Options, PORT, Server};

use crate::support::{Folder, LIMIT};

/// Why nothing can be mounted here, if so.
pub(crate) fn why_no_mounts() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("needs root, who mounts".into());
    }
    let device = std::fs::File::open("/dev/fuse").err()?;
    Some(format!("needs /dev/fuse: {device}"))
}

/// A directory that is exported, and mounted.
pub(crate) struct Mounted {
    // The mount goes before the server: else its last requests would fail.
    pub(crate) mount: Mount,
    pub(crate) server: Server,
    pub(crate) exported: PathBuf,
    folder: Folder,
    _nodes: Option<(Node, Node)>,
}

/// What carries requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carrier {
    /// Memory that processes of a host share.
    Host,
    /// UDP of the loopback interface.
    Udp,
}

impl Mounted {
    pub(crate) fn new(carrier: Carrier) -> Self {
        Self::with(carrier, &MountOptions::default(), |export| export)
    }

    pub(crate) fn with(
        carrier: Carrier,
        mounting: &MountOptions,
        change: impl FnOnce(Export) -> Export,
    ) -> Self {
        let folder = Folder::new();
        let exported = folder.file("exported");
        std::fs::create_dir(&exported).unwrap();
        Self::of(folder, exported, carrier, mounting, change)
    }

    pub(crate) fn of(
        folder: Folder,
        exported: PathBuf,
        carrier: Carrier,
        mounting: &MountOptions,
        change: impl FnOnce(Export) -> Export,
    ) -> Self {
        // So that files get the permissions that tests say, at both.
        rustix::process::umask(rustix::fs::Mode::empty());
        let (meet, at) = (folder.file("meet"), folder.file("mounted"));
        for path in [&meet, &at] {
            std::fs::create_dir(path).unwrap();
        }
        let options = Options::default();
        let export = change(Export::open(&exported).unwrap());
        let server = Server::start(export, &options).unwrap();
        let (client, nodes) = match carrier {
            Carrier::Host => {
                server.listen_on_host(&meet, "files").unwrap();
                (Client::connect_on_host(&meet, "files", &options).unwrap(), None)
            }
            Carrier::Udp => {
                let (here, there) = nodes();
                server.listen(&here, PORT).unwrap();
                let to = PortAddress { host: here.host(), port: PORT };
                (Client::connect(&there, to, &options).unwrap(), Some((here, there)))
            }
        };
        let mount = Mount::new(client, &at, mounting).unwrap();
        Self { mount, server, exported, folder, _nodes: nodes }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.mount.path().join(name)
    }

    pub(crate) fn bare(&self, name: &str) -> PathBuf {
        self.exported.join(name)
    }

    /// A path beside what is exported.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.folder.file(name)
    }
}

/// Two nodes with a link between them.
pub(crate) fn nodes() -> (Node, Node) {
    let open = |host| {
        Node::open(HostId::new(host).unwrap(), Transport::udp(([127, 0, 0, 1], 0).into())).unwrap()
    };
    let (here, there) = (open(1), open(2));
    let link = there.link(here.local().unwrap()).unwrap();
    link.wait_up(Some(Instant::now() + LIMIT)).unwrap();
    (here, there)
}

/// Waits until it is so, for as long as a test may take.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// The names in a directory, in their order.
pub(crate) fn names(path: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(path).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into()).collect();
    names.sort();
    names
}
