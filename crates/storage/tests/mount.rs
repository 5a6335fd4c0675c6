//! Devices as files of this host: what is written by the kernel is at the server, and the other
//! way round; and nothing hangs.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use landfall_storage::Features;
use landfall_storage::client::{Client, Options};
use landfall_storage::device::{BlockDevice, Fault, MemoryDevice, Volatile};
use landfall_storage::mount::{Mount, MountError, MountOptions, UnmountError};
use landfall_storage::server::Offer;
use landfall_testkit::skip::skip;
use rustix::fs::{FallocateFlags, fallocate};

use crate::support::{Folder, connect, pattern, serve, until};

const SIZE: u64 = 16 << 20;

/// Mounts the device of a server at a new file, where that can be done.
fn mounted(test: &str, folder: &Folder, address: SocketAddr) -> Option<Mount> {
    let place = folder.file("device");
    File::create(&place).unwrap();
    mounted_with(test, &place, address, &MountOptions::default())
}

fn mounted_with(
    test: &str,
    place: &Path,
    address: SocketAddr,
    options: &MountOptions,
) -> Option<Mount> {
    let client = Client::connect_tcp(address, &Options::export("disk")).unwrap();
    match Mount::new(client, place, options) {
        Ok(mount) => Some(mount),
        Err(error @ (MountError::NoFuse | MountError::Refused { .. })) => {
            let source = std::error::Error::source(&error).map(ToString::to_string);
            skip(test, &format!("needs FUSE and root: {error}: {source:?}"));
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn open(mount: &Mount) -> File {
    OpenOptions::new().read(true).write(true).open(mount.file()).unwrap()
}

/// Unmounts it. Another test may be about to start a program: until then that has our files.
fn unmount(mount: Mount) {
    let mut mount = Some(mount);
    until("nobody uses it any more", || match mount.take().map(Mount::unmount) {
        None | Some(Ok(())) => true,
        Some(Err(still)) => {
            assert!(matches!(still.error, UnmountError::Busy(_)), "{still}");
            mount = Some(*still.mount);
            false
        }
    });
}

#[test]
fn what_is_written_is_read_back_and_is_there_after_another_mount() {
    let (folder, test) = (Folder::new(), "what_is_written_is_read_back");
    let (server, address) = serve(Offer::new("disk", MemoryDevice::new(SIZE)));
    let Some(mount) = mounted(test, &folder, address) else { return };
    let mut file = open(&mount);
    assert_eq!(file.metadata().unwrap().len(), SIZE);
    let bytes = pattern(1, 5_000_001);
    file.seek(SeekFrom::Start(777)).unwrap();
    file.write_all(&bytes).unwrap();
    assert_eq!(server.stats().flushes, 0);
    file.sync_all().unwrap();
    assert_eq!(server.stats().flushes, 1, "fsync is a flush");
    // The server has it, for another client.
    let other = connect(address);
    assert!(other.read(777, vec![0; bytes.len()]).wait().unwrap() == bytes);
    // And what others write is read here: nothing is kept.
    other.write(777, vec![9; 4]).wait().unwrap();
    let mut four = [0; 4];
    file.read_exact_at(&mut four, 777).unwrap();
    assert_eq!(four, [9; 4]);
    other.write(777, bytes[..4].to_vec()).wait().unwrap();
    drop(file);
    unmount(mount);
    assert_eq!(fs::metadata(folder.file("device")).unwrap().len(), 0, "the file is as it was");

    let again = mounted(test, &folder, address).expect("as before");
    let mut whole = Vec::new();
    open(&again).read_to_end(&mut whole).unwrap();
    assert_eq!(whole.len() as u64, SIZE);
    assert!(whole[777..][..bytes.len()] == bytes[..]);
    assert!(whole[..777].iter().chain(&whole[777 + bytes.len()..]).all(|byte| *byte == 0));
    unmount(again);
}

#[test]
fn many_write_and_read_at_a_time() {
    let (folder, test) = (Folder::new(), "many_write_and_read_at_a_time");
    let (_server, address) = serve(Offer::new("disk", MemoryDevice::new(SIZE)));
    let Some(mount) = mounted(test, &folder, address) else { return };
    thread::scope(|scope| {
        for part in 0..4u64 {
            let mount = &mount;
            scope.spawn(move || {
                let file = open(mount);
                for nth in 0..20 {
                    let (len, at) = (4096 * (1 + nth as usize * 13), part * (SIZE / 4));
                    let bytes = pattern(part * 100 + nth, len);
                    file.write_all_at(&bytes, at).unwrap();
                    let mut back = vec![0; len];
                    file.read_exact_at(&mut back, at).unwrap();
                    assert!(back == bytes, "{part}, {nth}");
                }
            });
        }
    });
    unmount(mount);
}

#[test]
fn a_device_keeps_its_size_whatever_is_asked() {
    let (folder, test) = (Folder::new(), "a_device_keeps_its_size");
    let (_server, address) = serve(Offer::new("disk", MemoryDevice::new(SIZE)));
    let Some(mount) = mounted(test, &folder, address) else { return };
    // As `dd of=device` opens it.
    let file = OpenOptions::new().write(true).read(true).truncate(true).open(mount.file()).unwrap();
    assert_eq!(file.metadata().unwrap().len(), SIZE);
    file.write_all_at(&[5; 100], SIZE - 100).unwrap();
    assert_eq!(file.write_at(&[6; 100], SIZE - 40).unwrap(), 40, "what has room");
    let full = file.write_at(&[7; 100], SIZE).unwrap_err();
    assert_eq!(full.kind(), io::ErrorKind::StorageFull);
    assert_eq!(file.read_at(&mut [0; 100], SIZE).unwrap(), 0);
    let mut end = [0; 200];
    assert_eq!(file.read_at(&mut end, SIZE - 100).unwrap(), 100);
    assert!(end[..60] == [5; 60] && end[60..100] == [6; 40]);
    drop(file);
    unmount(mount);
}

#[test]
fn holes_are_punched_and_zeroed_at_the_server() {
    let (folder, test) = (Folder::new(), "holes_are_punched_and_zeroed");
    let (_server, address) = serve(Offer::new("disk", MemoryDevice::new(SIZE)));
    let Some(mount) = mounted(test, &folder, address) else { return };
    let file = open(&mount);
    file.write_all_at(&vec![8; 1 << 20], 0).unwrap();
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&file, punch, 4096, 65_536).unwrap();
    fallocate(&file, FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE, 100_000, 50).unwrap();
    let bytes = connect(address).read(0, vec![1; 1 << 20]).wait().unwrap();
    let is_zero = |at: usize| (4096..69_632).contains(&at) || (100_000..100_050).contains(&at);
    assert!(bytes.iter().enumerate().all(|(at, byte)| (*byte == 0) == is_zero(at)));
    fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, 4096).unwrap_err();
    drop(file);
    unmount(mount);
}

#[test]
fn in_a_folder_it_is_the_only_file_with_the_name_of_the_export() {
    let (folder, test) = (Folder::new(), "in_a_folder_it_is_the_only_file");
    let (_server, address) = serve(Offer::new("disk", MemoryDevice::new(SIZE)));
    let place = folder.file("folder");
    fs::create_dir(&place).unwrap();
    let options = MountOptions::default();
    let Some(mount) = mounted_with(test, &place, address, &options) else { return };
    assert_eq!(mount.file(), place.canonicalize().unwrap().join("disk"));
    let names: Vec<_> =
        fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["disk"]);
    open(&mount).write_all_at(b"every byte", 4096).unwrap();
    assert_eq!(connect(address).read(4096, vec![0; 10]).wait().unwrap(), b"every byte");
    assert_eq!(fs::metadata(place.join("other")).unwrap_err().kind(), io::ErrorKind::NotFound);
    assert!(File::create(place.join("other")).is_err());
    unmount(mount);
    assert_eq!(fs::read_dir(&place).unwrap().count(), 0);
}

#[test]
fn who_may_not_write_cannot() {
    let (folder, test) = (Folder::new(), "who_may_not_write_cannot");
    let offer = Offer::new("disk", MemoryDevice::new(SIZE)).read_only(true);
    let (_server, address) = serve(offer);
    let Some(mount) = mounted(test, &folder, address) else { return };
    let refused = OpenOptions::new().write(true).open(mount.file()).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ReadOnlyFilesystem);
    let mut one = [1];
    File::open(mount.file()).unwrap().read_exact(&mut one).unwrap();
    assert_eq!(one, [0]);
    unmount(mount);
}

#[test]
fn errors_of_the_device_reach_the_one_who_reads_or_writes() {
    let (folder, test) = (Folder::new(), "errors_of_the_device_reach_the_one");
    let device = Arc::new(Volatile::new(1 << 20));
    device.fail(Fault::Read, 4096..8192);
    device.fail(Fault::NoSpace, 8192..12_288);
    let shared: Arc<dyn BlockDevice> = Arc::clone(&device) as Arc<dyn BlockDevice>;
    let (_server, address) = serve(Offer::shared("disk", shared));
    let Some(mount) = mounted(test, &folder, address) else { return };
    let file = open(&mount);
    let code = |result: io::Result<()>| result.unwrap_err().raw_os_error();
    assert_eq!(code(file.read_exact_at(&mut [0; 512], 4096)), Some(5), "EIO");
    assert_eq!(code(file.write_all_at(&[0; 512], 8192)), Some(28), "ENOSPC");
    file.write_all_at(&[3; 512], 0).unwrap();
    device.fail_flushes(true);
    assert_eq!(code(file.sync_all()), Some(5), "EIO");
    drop(file);
    unmount(mount);
}

#[test]
fn a_file_that_is_in_use_stays_until_it_is_not() {
    let (folder, test) = (Folder::new(), "a_file_that_is_in_use_stays");
    let (_server, address) = serve(Offer::new("disk", MemoryDevice::new(SIZE)));
    let Some(mount) = mounted(test, &folder, address) else { return };
    let file = open(&mount);
    let still = mount.unmount().unwrap_err();
    assert!(matches!(still.error, UnmountError::Busy(_)), "{still}");
    // It goes on as before.
    file.write_all_at(&[4; 512], 0).unwrap();
    drop(file);
    unmount(*still.mount);
    assert_eq!(fs::metadata(folder.file("device")).unwrap().len(), 0);
}

#[test]
fn dropped_it_is_cut_off_from_those_who_use_it() {
    let (folder, test) = (Folder::new(), "dropped_it_is_cut_off");
    let (server, address) = serve(Offer::new("disk", MemoryDevice::new(SIZE)));
    let Some(mount) = mounted(test, &folder, address) else { return };
    let file = open(&mount);
    drop(mount);
    assert_eq!(fs::metadata(folder.file("device")).unwrap().len(), 0, "it is not there any more");
    file.read_exact_at(&mut [0; 512], 0).unwrap_err();
    until("the server knows", || server.streams().clients() == 0);
}

#[test]
fn unmounted_by_somebody_else_it_has_ended() {
    let (folder, test) = (Folder::new(), "unmounted_by_somebody_else");
    let (_server, address) = serve(Offer::new("disk", MemoryDevice::new(SIZE)));
    let Some(mount) = mounted(test, &folder, address) else { return };
    assert!(!mount.has_ended());
    rustix::mount::unmount(mount.file(), rustix::mount::UnmountFlags::empty()).unwrap();
    until("it has heard", || mount.has_ended());
    unmount(mount);
}

/// A device that does not answer before it is told to.
#[derive(Default)]
struct Stuck {
    is_free: Mutex<bool>,
    freed: Condvar,
}

impl Stuck {
    fn free(&self) {
        *self.is_free.lock().unwrap() = true;
        self.freed.notify_all();
    }
}

impl BlockDevice for Stuck {
    fn size(&self) -> u64 {
        SIZE
    }

    fn features(&self) -> Features {
        Features::FLUSH
    }

    fn read(&self, _: u64, _: &mut [u8]) -> io::Result<()> {
        drop(self.freed.wait_while(self.is_free.lock().unwrap(), |is_free| !*is_free).unwrap());
        Ok(())
    }

    fn write(&self, _: u64, _: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn write_zeroes(&self, _: u64, _: u64, _: bool, _: bool) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_server_that_does_not_answer_is_given_up_and_nobody_hangs() {
    let (folder, test) = (Folder::new(), "a_server_that_does_not_answer");
    let device = Arc::new(Stuck::default());
    let shared: Arc<dyn BlockDevice> = Arc::clone(&device) as Arc<dyn BlockDevice>;
    let (_server, address) = serve(Offer::shared("disk", shared));
    let place = folder.file("device");
    File::create(&place).unwrap();
    let mut options = MountOptions::default();
    options.patience = Duration::from_millis(300);
    let Some(mount) = mounted_with(test, &place, address, &options) else { return };
    let file = open(&mount);
    assert_eq!(mount.lost(), None);
    let failed = file.read_exact_at(&mut [0; 512], 0).unwrap_err();
    assert_eq!(failed.raw_os_error(), Some(5), "{failed}");
    let why = mount.lost().expect("it says why");
    assert!(why.contains("has not answered for 0.3 s"), "{why}");
    // Nothing is waited for any more.
    assert_eq!(file.write_at(&[0; 512], 0).unwrap_err().raw_os_error(), Some(5));
    drop(file);
    unmount(mount);
    device.free();
}

#[test]
fn what_is_no_place_for_a_device_is_said() {
    let (folder, client) = (Folder::new(), || {
        let (server, address) = serve(Offer::new("disk", MemoryDevice::new(SIZE)));
        (connect(address), server)
    });
    let refused = |place: &Path| {
        let (client, _server) = client();
        Mount::new(client, place, &MountOptions::default()).unwrap_err().to_string()
    };
    let none = folder.file("none");
    let expected =
        format!("there is no {}: make it first, an empty file or an empty folder", none.display());
    assert_eq!(refused(&none), expected);
    let expected = "/dev/null is neither a file nor a folder: a device is mounted at one of these";
    assert_eq!(refused(Path::new("/dev/null")), expected);
}

/// With `O_DIRECT`, as loop devices and databases open files.
#[test]
fn it_is_opened_past_the_kernel_s_pages() {
    let (folder, test) = (Folder::new(), "it_is_opened_past_the_kernel_s_pages");
    let (_server, address) = serve(Offer::new("disk", MemoryDevice::new(SIZE)));
    let Some(mount) = mounted(test, &folder, address) else { return };
    // O_DIRECT
    let file =
        OpenOptions::new().read(true).write(true).custom_flags(0o40000).open(mount.file()).unwrap();
    let room = vec![6; 8192 + 4096];
    let at = room.as_ptr().align_offset(4096);
    file.write_all_at(&room[at..at + 4096], 8192).unwrap();
    assert_eq!(connect(address).read(8192, vec![0; 4096]).wait().unwrap(), [6; 4096]);
    drop(file);
    unmount(mount);
}
