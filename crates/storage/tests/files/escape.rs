//! Nothing outside of the exported directory is reached.

use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};

use landfall_storage::files::{
    Caller, Client, Entries, Entry, EntryName, Export, MountOptions, Name, Options, ROOT, Reply,
    Request, Server, open,
};
use landfall_testkit::skip_unless;

use super::{Carrier, Mounted, why_no_mounts};
use crate::support::Folder;

const CALLER: Caller = Caller { user: 0, group: 0 };

/// A directory with a secret beside it, and a client of it.
struct Pair {
    folder: Folder,
    client: Client,
    _server: Server,
}

fn pair() -> Pair {
    let folder = Folder::new();
    for name in ["meet", "exported", "exported/inside", "outside"] {
        std::fs::create_dir(folder.file(name)).unwrap();
    }
    std::fs::write(folder.file("outside/secret"), "secret").unwrap();
    std::fs::write(folder.file("exported/inside/secret"), "nothing").unwrap();
    let export = Export::open(folder.file("exported")).unwrap();
    let server = Server::start(export, &Options::default()).unwrap();
    server.listen_on_host(&folder.file("meet"), "files").unwrap();
    let client =
        Client::connect_on_host(&folder.file("meet"), "files", &Options::default()).unwrap();
    Pair { folder, client, _server: server }
}

impl Pair {
    fn lookup(&self, parent: u64, name: &str) -> Result<u64, u16> {
        let name = Name::new(name.as_bytes()).unwrap();
        match self.client.call(CALLER, Request::Lookup { parent, name }) {
            Ok(Reply::Found { attributes }) => Ok(attributes.node),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error.errno().number()),
        }
    }

    fn read(&self, node: u64) -> Result<Vec<u8>, u16> {
        let opened = self.client.call(CALLER, Request::Open { node, flags: open::READ });
        let handle = match opened {
            Ok(Reply::Opened { handle }) => handle,
            Ok(other) => panic!("{other:?}"),
            Err(error) => return Err(error.errno().number()),
        };
        let mut bytes = Vec::new();
        let read = Request::Read { handle, offset: 0, len: 100 };
        self.client.call_into(CALLER, read, &mut bytes).unwrap();
        Ok(bytes)
    }
}

#[test]
fn a_symbolic_link_is_a_link_and_nothing_behind_it() {
    let pair = pair();
    for (name, target) in [("up", "../outside"), ("absolute", "/etc"), ("root", "/")] {
        symlink(target, pair.folder.file("exported").join(name)).unwrap();
        let link = pair.lookup(ROOT, name).unwrap();
        // It is no directory, whatever it leads to, and it has no bytes.
        let inside = Name::new(b"secret").unwrap();
        let lookup = Request::Lookup { parent: link, name: inside.clone() };
        let failed = pair.client.call(CALLER, lookup).unwrap_err();
        assert_eq!(failed.errno().number(), 20, "{name}");
        assert!(pair.read(link).is_err(), "{name}");
        let create =
            Request::Create { parent: link, name: inside, mode: 0o644, flags: open::WRITE };
        assert!(pair.client.call(CALLER, create).is_err(), "{name}");
        assert!(pair.client.call(CALLER, Request::OpenDirectory { node: link }).is_err());
    }
    // Neither does a file that is made where a link is lead outside.
    symlink("../outside/made", pair.folder.file("exported/dangling")).unwrap();
    let name = Name::new(b"dangling").unwrap();
    let create = Request::Create { parent: ROOT, name, mode: 0o644, flags: open::WRITE };
    assert!(pair.client.call(CALLER, create).is_err());
    assert!(!pair.folder.file("outside/made").exists());
}

/// Also when the test fails: else the other thread would never end.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_directory_that_is_swapped_for_a_link_in_a_race_leads_nowhere() {
    let pair = pair();
    let (exported, done) = (pair.folder.file("exported"), AtomicBool::new(false));
    symlink("../outside", exported.join("link")).unwrap();
    std::thread::scope(|scope| {
        let _done = SetOnDrop(&done);
        scope.spawn(|| {
            // `inside` is a directory and a link to the outside by turns.
            while !done.load(Ordering::Relaxed) {
                let (from, to) = (exported.join("inside"), exported.join("link"));
                let exchange = rustix::fs::RenameFlags::EXCHANGE;
                let at = rustix::fs::CWD;
                rustix::fs::renameat_with(at, &from, at, &to, exchange).unwrap();
            }
        });
        let (mut read, mut refused) = (0, 0);
        for nth in 0..2_000 {
            let found = pair.lookup(ROOT, "inside").and_then(|node| pair.lookup(node, "secret"));
            match found.and_then(|node| pair.read(node)) {
                Ok(bytes) => {
                    assert_eq!(bytes, b"nothing");
                    read += 1;
                }
                Err(_) => refused += 1,
            }
            let name = Name::new(format!("new {nth}").as_bytes()).unwrap();
            let parent = pair.lookup(ROOT, "inside").unwrap();
            let flags = open::WRITE | open::EXCLUSIVE;
            let _ = pair.client.call(CALLER, Request::Create { parent, name, mode: 0o600, flags });
        }
        assert!(read > 0 && refused > 0, "{read} read, {refused} refused: both have to happen");
    });
    assert_eq!(super::names(&pair.folder.file("outside")), ["secret"]);
}

#[test]
fn what_is_above_the_export_has_no_name_and_no_number() {
    let pair = pair();
    let entries = |node| {
        let opened = pair.client.call(CALLER, Request::OpenDirectory { node }).unwrap();
        let Reply::Opened { handle } = opened else { panic!("{opened:?}") };
        let read = Request::ReadDirectory { handle, cookie: 0, len: 4096, attributes: true };
        let mut bytes = Vec::new();
        pair.client.call_into(CALLER, read, &mut bytes).unwrap();
        Entries::new(&bytes).map(Result::unwrap).collect::<Vec<_>>()
    };
    let above = |entries: &[Entry]| {
        let above = entries.iter().find(|entry| entry.name == EntryName::Above).unwrap();
        assert_eq!(above.attributes, None);
        above.node
    };
    assert_eq!(above(&entries(ROOT)), ROOT, "not the number of the directory above");
    let inside = pair.lookup(ROOT, "inside").unwrap();
    assert_eq!(above(&entries(inside)), ROOT);
    // Names that would lead there cannot be said: see the tests of `landfall-files`.
    assert!(Name::new(b"..").is_err());
}

#[test]
fn other_file_systems_that_are_mounted_inside_are_not_entered() {
    skip_unless!(why_no_mounts());
    let pair = pair();
    let inner = pair.folder.file("exported/inside");
    rustix::mount::mount("none", &inner, "tmpfs", rustix::mount::MountFlags::empty(), None)
        .unwrap();
    std::fs::write(inner.join("other"), "other").unwrap();
    let found = pair.lookup(ROOT, "inside");
    rustix::mount::unmount(&inner, rustix::mount::UnmountFlags::DETACH).unwrap();
    // `EXDEV`
    assert_eq!(found, Err(18));
}

#[test]
fn devices_are_not_made_and_read_only_is_so() {
    skip_unless!(why_no_mounts());
    let pair = pair();
    for mode in [0o020_666, 0o060_666] {
        let name = Name::new(b"device").unwrap();
        let make = Request::MakeNode { parent: ROOT, name, mode, device: 0x0103 };
        assert_eq!(pair.client.call(CALLER, make).unwrap_err().errno().number(), 1);
    }
    let files = Mounted::with(Carrier::Host, &MountOptions::default(), Export::read_only);
    std::fs::write(files.bare("file"), "text").unwrap();
    assert_eq!(std::fs::read(files.path("file")).unwrap(), b"text");
    let failed = std::fs::write(files.path("file"), "other").unwrap_err();
    assert_eq!(failed.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    // Also for a client that does not mount it so.
    let name = Name::new(b"file").unwrap();
    let unlink = Request::Unlink { parent: ROOT, name };
    let refused = files.mount.client().call(CALLER, unlink).unwrap_err();
    assert_eq!(refused.errno().number(), 30);
    assert!(files.bare("file").exists());
}
