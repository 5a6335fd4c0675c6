//! Servers and clients that go, disks that are full, exports that are removed, and many entries.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use landfall_storage::files::{
    Caller, Client, MountOptions, Name, Options, ROOT, Reply, Request, open,
};
use landfall_testkit::skip_unless;

use super::{Carrier, Mounted, names, until, why_no_mounts};
use crate::support::Folder;

const CALLER: Caller = Caller { user: 0, group: 0 };

#[test]
fn a_server_that_goes_leaves_errors_and_no_hang() {
    skip_unless!(why_no_mounts());
    for carrier in [Carrier::Host, Carrier::Udp] {
        let Mounted { mount, server, exported, folder: _folder, _nodes } = Mounted::new(carrier);
        let file = File::create(mount.path().join("file")).unwrap();
        (&file).write_all(b"text").unwrap();
        assert!(mount.is_up());
        drop(server);
        let failed = (&file).write_all(b"more").unwrap_err();
        assert_eq!(failed.raw_os_error(), Some(5), "{carrier:?}: {failed}");
        let failed = std::fs::read_dir(mount.path().join("none")).unwrap_err();
        assert_eq!(failed.raw_os_error(), Some(5), "{carrier:?}: {failed}");
        assert!(!mount.is_up());
        assert!(mount.client().gone().is_some());
        let at = mount.path().to_owned();
        drop(file);
        mount.unmount().unwrap();
        assert_eq!(names(&at), [""; 0], "{carrier:?}: it is a directory again");
        assert_eq!(std::fs::read(exported.join("file")).unwrap(), b"text");
    }
}

#[test]
fn what_is_closed_is_closed_at_the_server_without_another_request() {
    skip_unless!(why_no_mounts());
    for carrier in [Carrier::Host, Carrier::Udp] {
        let files = Mounted::new(carrier);
        let file = File::create(files.path("file")).unwrap();
        let stats = files.server.stats();
        assert_eq!((stats.sessions, stats.handles), (1, 1), "{carrier:?}");
        assert_eq!(stats.channels, Options::default().channels);
        drop(file);
        until("the release arrives", || files.server.stats().handles == 0);
    }
}

#[test]
fn sessions_end_with_their_client_and_others_go_on() {
    skip_unless!(why_no_mounts());
    let files = Mounted::new(Carrier::Host);
    let meet = files.beside("meet");
    let connect = || Client::connect_on_host(&meet, "files", &Options::default()).unwrap();
    let clients: Vec<Client> = (0..3).map(|_| connect()).collect();
    assert_eq!(files.server.stats().sessions, 4);
    for (nth, client) in clients.iter().enumerate() {
        let name = Name::new(format!("file {nth}").as_bytes()).unwrap();
        let flags = open::WRITE;
        let create = Request::Create { parent: ROOT, name, mode: 0o644, flags };
        let Ok(Reply::Created { handle, .. }) = client.call(CALLER, create) else { panic!() };
        let write = Request::Write { handle, offset: 0, len: 4, append: false };
        client.call_with(CALLER, write, b"text").unwrap();
        // One session's handles are nothing in another.
        let write = Request::Write { handle: handle + 1000, offset: 0, len: 4, append: false };
        assert_eq!(client.call_with(CALLER, write, b"text").unwrap_err().errno().number(), 9);
    }
    drop(clients);
    until("sessions end", || files.server.stats().sessions == 1);
    until("handles are closed", || files.server.stats().handles == 0);
    assert_eq!(std::fs::read(files.path("file 2")).unwrap(), b"text");
}

#[test]
fn a_full_disk_says_so_and_goes_on_when_there_is_room() {
    skip_unless!(why_no_mounts());
    let folder = Folder::new();
    let exported = folder.file("small");
    std::fs::create_dir(&exported).unwrap();
    let small = std::ffi::CString::new("size=1m").unwrap();
    let flags = rustix::mount::MountFlags::empty();
    rustix::mount::mount("none", &exported, "tmpfs", flags, Some(small.as_c_str())).unwrap();
    let files =
        Mounted::of(folder, exported.clone(), Carrier::Host, &MountOptions::default(), |export| {
            export
        });
    let file = File::create(files.path("large")).unwrap();
    let failed = file.write_all_at(&vec![7; 4 << 20], 0).unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::StorageFull);
    file.set_len(0).unwrap();
    file.write_all_at(&[8; 100_000], 0).unwrap();
    drop(file);
    assert_eq!(std::fs::read(files.path("large")).unwrap(), [8; 100_000]);
    drop(files);
    rustix::mount::unmount(&exported, rustix::mount::UnmountFlags::DETACH).unwrap();
}

#[test]
fn an_export_that_is_removed_is_empty_and_takes_nothing() {
    skip_unless!(why_no_mounts());
    let files = Mounted::new(Carrier::Host);
    std::fs::create_dir(files.path("d")).unwrap();
    std::fs::remove_dir_all(&files.exported).unwrap();
    std::thread::sleep(MountOptions::default().timeout);
    let failed = File::create(files.path("new")).unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::NotFound);
    let failed = File::create(files.path("d/new")).unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::NotFound);
    assert!(files.mount.is_up());
}

#[test]
fn directories_of_many_entries_are_read_whole_also_while_they_change() {
    skip_unless!(why_no_mounts());
    let files = Mounted::new(Carrier::Host);
    std::fs::create_dir(files.path("d")).unwrap();
    let stay: BTreeSet<String> =
        (0..4000).map(|nth| format!("an entry that stays {nth}")).collect();
    for name in &stay {
        File::create(files.bare("d").join(name)).unwrap();
    }
    let mut found = Vec::new();
    for (nth, entry) in std::fs::read_dir(files.path("d")).unwrap().enumerate() {
        found.push(entry.unwrap().file_name().into_string().unwrap());
        if nth % 10 == 0 {
            let name = format!("d/comes and goes {nth}");
            File::create(files.path(&name)).unwrap();
            std::fs::remove_file(files.path(&name)).unwrap();
        }
    }
    found.retain(|name| name.contains("stays"));
    let once: BTreeSet<String> = found.iter().cloned().collect();
    assert!(found.len() == once.len() && once == stay, "{} found", found.len());
}

#[test]
fn changes_of_others_are_seen_after_the_time_that_is_said() {
    skip_unless!(why_no_mounts());
    let mounting = MountOptions { timeout: Duration::ZERO, ..MountOptions::default() };
    let files = Mounted::with(Carrier::Host, &mounting, |export| export);
    for nth in 0..50 {
        let text = format!("text {nth}").repeat(nth + 1);
        std::fs::write(files.bare("file"), &text).unwrap();
        assert_eq!(std::fs::read_to_string(files.path("file")).unwrap(), text);
        std::fs::remove_file(files.bare("file")).unwrap();
        assert!(!files.path("file").exists());
    }
}

#[test]
fn a_name_that_is_not_there_is_believed_to_be_missing_for_the_time_that_is_said() {
    skip_unless!(why_no_mounts());
    let mounting = MountOptions { timeout: Duration::from_secs(10_000), ..MountOptions::default() };
    let files = Mounted::with(Carrier::Host, &mounting, |export| export);
    assert!(!files.path("theirs").exists());
    std::fs::write(files.bare("theirs"), "of others").unwrap();
    assert!(!files.path("theirs").exists(), "nobody asks again");
    // Its own names the kernel knows.
    assert!(!files.path("ours").exists());
    std::fs::write(files.path("ours"), "of this client").unwrap();
    assert_eq!(std::fs::read_to_string(files.path("ours")).unwrap(), "of this client");
    for (nth, make) in ["linked", "renamed", "directory"].into_iter().enumerate() {
        assert!(!files.path(make).exists());
        match nth {
            0 => std::fs::hard_link(files.path("ours"), files.path(make)).unwrap(),
            1 => std::fs::rename(files.path("ours"), files.path(make)).unwrap(),
            _ => std::fs::create_dir(files.path(make)).unwrap(),
        }
        assert!(files.path(make).exists(), "{make}");
    }
    assert!(!files.path("ours").exists());
}

#[test]
fn clients_that_ask_for_too_much_are_refused_and_nothing_else_happens() {
    skip_unless!(why_no_mounts());
    let files = Mounted::new(Carrier::Host);
    let meet = files.beside("meet");
    let mut options =
        Options { data: 16 << 20, patience: Duration::from_secs(10), ..Options::default() };
    assert!(Client::connect_on_host(&meet, "files", &options).is_err());
    options.data = 4096;
    let client = Client::connect_on_host(&meet, "files", &options).unwrap();
    let name = Name::new(b"f").unwrap();
    let create =
        Request::Create { parent: ROOT, name, mode: 0o644, flags: open::READ | open::WRITE };
    let Ok(Reply::Created { handle, .. }) = client.call(CALLER, create) else { panic!() };
    assert!(client.call_with(CALLER, Request::Nothing {}, &[0; 5000]).is_err());
    let lies = Request::Write { handle, offset: 0, len: u32::MAX, append: false };
    assert_eq!(client.call_with(CALLER, lies, b"x").unwrap_err().errno().number(), 22);
    let all = Request::Read { handle, offset: 0, len: u32::MAX };
    let mut bytes = Vec::new();
    client
        .call_with(CALLER, Request::Write { handle, offset: 0, len: 3, append: false }, b"abc")
        .unwrap();
    client.call_into(CALLER, all, &mut bytes).unwrap();
    assert_eq!(bytes, b"abc");
    for node in [0, 2, u64::MAX] {
        let stale = client.call(CALLER, Request::GetAttributes { node }).unwrap_err();
        assert_eq!(stale.errno().number(), 116);
    }
    options.channels = 100;
    assert!(Client::connect_on_host(&meet, "files", &options).is_err(), "more than there are");
    client.call(CALLER, Request::Nothing {}).unwrap();
}
