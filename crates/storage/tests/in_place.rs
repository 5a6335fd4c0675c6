//! Blocks of files over queue pairs: from the page cache into memory that is sent from, and from
//! memory where they land to the file.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use landfall::qpip::{Adapter, Builder, ChannelConfig};
use landfall_storage::client::{Client, Error, Options};
use landfall_storage::device::{BlockDevice, FileDevice};
use landfall_storage::server::{Offer, Server};
use landfall_storage::sockets_compat::QpHost;
use landfall_storage::stream::queue_pair_options;
use landfall_storage::{Errno, Features, Replies};
use landfall_testkit::skip::skip;

use crate::support::{Folder, Gate, pattern, until};

const SIZE: usize = 16 << 20;

/// A file with the bytes of a pattern that the page cache has.
fn cached_file(test: &str, folder: &Folder) -> Option<std::path::PathBuf> {
    let path = folder.file("disk.img");
    std::fs::write(&path, pattern(1, SIZE)).unwrap();
    let device = FileDevice::open(&path, false).unwrap();
    if !device.read_if_cached(1 << 20, &mut [0; 4096]).unwrap() {
        skip(test, "the file system of temporary files does not say what is in its cache");
        return None;
    }
    Some(path)
}

/// A server of a device at an adapter of queue pairs, and the adapter of its clients.
fn serve(offer: Offer, change: impl FnOnce(Builder) -> Builder) -> (Server, QpHost) {
    let joined = change(Adapter::builder()).pair(Adapter::builder(), ChannelConfig::default());
    let (there, here) = joined.unwrap();
    let mut options = queue_pair_options();
    options.backlog = 1;
    let host = |builder: Builder, address| {
        QpHost::new(builder.address(address).open().unwrap(), options.clone()).unwrap()
    };
    let (here, there) = (host(here, "10.0.0.1/24"), host(there, "10.0.0.2/24"));
    let server = Server::builder().offer(offer).start().unwrap();
    server.streams().listen_qp(&there, "qp://10.0.0.2:10809").unwrap();
    (server, here)
}

fn serve_file(path: &Path) -> (Server, QpHost) {
    serve(Offer::new("disk", FileDevice::open(path, false).unwrap()), |builder| builder)
}

fn connect(host: &QpHost) -> Client {
    let stream = host.connect("qp://10.0.0.2:10809").unwrap();
    Client::connect(Arc::new(stream), &Options::export("disk")).unwrap()
}

/// Reads of every length, many at a time, and checks their bytes.
fn read_and_compare(client: &Client, bytes: &[u8]) {
    for turn in 0..4 {
        let mut reads = Vec::new();
        for nth in 0..64_usize {
            let len = [1, 512, 4096, 4097, 65_536, 262_145, 600_000, 1 << 20][nth % 8];
            let at = (turn * 64 + nth) * 7_919_333 % (bytes.len() - len);
            reads.push((at, len, client.read(at as u64, vec![0; len])));
        }
        for (at, len, read) in reads {
            let came = blake3::hash(&read.wait().unwrap());
            assert_eq!(came, blake3::hash(&bytes[at..at + len]), "{len} bytes at {at}");
        }
    }
}

#[test]
fn cached_blocks_leave_from_where_the_page_cache_put_them() {
    let test = "cached_blocks_leave_from_where_the_page_cache_put_them";
    let folder = Folder::new();
    let Some(path) = cached_file(test, &folder) else { return };
    let (server, host) = serve_file(&path);
    let client = connect(&host);
    read_and_compare(&client, &pattern(1, SIZE));
    // The end of the file, and nothing behind it.
    let end = client.read(SIZE as u64 - 5, vec![0; 5]).wait().unwrap();
    assert!(end == pattern(1, SIZE)[SIZE - 5..]);
    let stats = server.stats();
    assert_eq!((stats.reads, stats.errors), (4 * 64 + 1, 0));
    assert_eq!(stats.sent_in_place + stats.waited_for, stats.reads, "{stats:?}");
    // The kernel may take pages away at any time: then a read waits.
    assert!(stats.sent_in_place > stats.waited_for, "{stats:?}");
}

#[test]
fn replies_are_copied_where_no_memory_can_be_registered() {
    let test = "replies_are_copied_where_no_memory_can_be_registered";
    let folder = Folder::new();
    let Some(path) = cached_file(test, &folder) else { return };
    let offer = Offer::new("disk", FileDevice::open(&path, false).unwrap());
    // Two for this connection, and two for the next one.
    let (server, host) = serve(offer, |builder| builder.regions(4));
    read_and_compare(&connect(&host), &pattern(1, SIZE));
    let stats = server.stats();
    assert_eq!((stats.reads, stats.sent_in_place, stats.errors), (4 * 64, 0, 0));
}

/// What is read is what the file had, or zeroes of its new end, or an error: never bytes of another
/// reply.
#[test]
fn a_file_that_is_cut_off_under_its_readers_gives_its_bytes_or_an_error() {
    let test = "a_file_that_is_cut_off_under_its_readers_gives_its_bytes_or_an_error";
    let folder = Folder::new();
    let Some(path) = cached_file(test, &folder) else { return };
    let (_server, host) = serve_file(&path);
    let (client, bytes) = (connect(&host), pattern(1, SIZE));
    let half = SIZE as u64 / 2;
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Acquire) {
                file.set_len(half).unwrap();
                file.set_len(SIZE as u64).unwrap();
            }
            file.set_len(half).unwrap();
        });
        for nth in 0..200_usize {
            let (len, at) = (100_000, nth * 7_919_333 % (SIZE - 100_000));
            match client.read(at as u64, vec![0; len]).wait() {
                Ok(came) => {
                    for (offset, byte) in came.iter().enumerate() {
                        let is_cut = at + offset >= half as usize && *byte == 0;
                        assert!(is_cut || *byte == bytes[at + offset], "{} of {at}", offset);
                    }
                }
                Err(Error::Failed(failed)) => assert_eq!(failed.errno, Errno::INVALID),
                Err(other) => panic!("{other}"),
            }
        }
        is_over.store(true, Ordering::Release);
    });
    let across = client.read(half - 100, vec![0; 4096]).wait();
    let Err(Error::Failed(failed)) = across else { panic!("{across:?}") };
    assert_eq!(failed.errno, Errno::INVALID);
    assert!(
        client.read(half - 100, vec![0; 100]).wait().unwrap()
            == bytes[half as usize - 100..][..100]
    );
}

#[test]
fn a_client_that_vanishes_while_cached_blocks_are_sent_disturbs_nobody() {
    let test = "a_client_that_vanishes_while_cached_blocks_are_sent_disturbs_nobody";
    let folder = Folder::new();
    let Some(path) = cached_file(test, &folder) else { return };
    let (server, host) = serve_file(&path);
    let (staying, bytes) = (connect(&host), pattern(1, SIZE));
    for turn in 0..6_usize {
        let leaving = connect(&host);
        let reads: Vec<_> = (0..24_u64)
            .map(|nth| leaving.read((nth << 20) % (SIZE as u64 - (1 << 20)), vec![0; 1 << 20]))
            .collect();
        leaving.send();
        // Sometimes before the first is read, sometimes while they are sent.
        thread::sleep(Duration::from_millis(turn as u64));
        leaving.end("it goes");
        drop((leaving, reads));
        let at = turn * 1_000_003;
        let read = staying.read(at as u64, vec![0; 100_000]).wait().unwrap();
        assert!(read == bytes[at..at + 100_000], "{turn}");
    }
    until("all others are gone", || server.streams().clients() == 1);
}

/// A client that reads nothing fills the memory that is sent from: the server waits for it, and
/// not for good.
#[test]
fn a_server_that_ends_does_not_wait_for_replies_that_nobody_takes() {
    let test = "a_server_that_ends_does_not_wait_for_replies_that_nobody_takes";
    let folder = Folder::new();
    let Some(path) = cached_file(test, &folder) else { return };
    let (server, host) = serve_file(&path);
    let gate = Arc::new(Gate::new(Arc::new(host.connect("qp://10.0.0.2:10809").unwrap())));
    let client = Client::connect(Arc::<Gate>::clone(&gate), &Options::export("disk")).unwrap();
    gate.shut();
    let reads: Vec<_> = (0..15).map(|nth| client.read(nth << 20, vec![0; 1 << 20])).collect();
    client.send();
    until("the ring is full", || server.stats().sent_in_place > 3);
    drop(server);
    gate.open();
    assert!(reads.into_iter().any(|read| read.wait().is_err()), "15 MiB cannot all have come");
}

#[test]
fn long_writes_go_to_the_file_from_where_they_landed() {
    let folder = Folder::new();
    let path = folder.disk("disk.img", SIZE as u64);
    let (server, host) = serve_file(&path);
    let (client, mut bytes) = (connect(&host), vec![0; SIZE]);
    let (mut at, mut nth) = (0, 0_usize);
    let mut writes = Vec::new();
    while at < SIZE {
        // Long ones behind short ones and short ones behind long ones, and reads between them.
        let len = [1 << 20, 4096, 512, 1 << 20, 300_001, 65_536, 1, 7][nth % 8].min(SIZE - at);
        let written = pattern(nth as u64, len);
        bytes[at..at + len].copy_from_slice(&written);
        writes.push(match nth % 5 {
            0 => client.write_durably(at as u64, written),
            _ => client.write(at as u64, written),
        });
        if nth.is_multiple_of(3) {
            writes.push(client.read(0, vec![0; 4096]));
        }
        (at, nth) = (at + len, nth + 1);
    }
    writes.into_iter().for_each(|write| drop(write.wait().unwrap()));
    client.flush().wait().unwrap();
    assert_eq!(blake3::hash(&std::fs::read(&path).unwrap()), blake3::hash(&bytes));
    let stats = server.stats();
    assert!(stats.written_in_place > 0 && stats.written_in_place <= stats.writes, "{stats:?}");
    assert_eq!((stats.writes, stats.bytes_written), (nth as u64, SIZE as u64));
}

/// A device whose file cannot be written.
struct Unwritable(File);

impl BlockDevice for Unwritable {
    fn size(&self) -> u64 {
        SIZE as u64
    }

    fn features(&self) -> Features {
        Features::FLUSH
    }

    fn read(&self, _: u64, _: &mut [u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// What came with the head of the request.
    fn write(&self, _: u64, _: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn write_zeroes(&self, _: u64, _: u64, _: bool, _: bool) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn file(&self) -> Option<&File> {
        Some(&self.0)
    }
}

#[test]
fn a_write_that_fails_where_it_landed_is_no_end_of_the_connection() {
    let folder = Folder::new();
    let path = folder.disk("disk.img", SIZE as u64);
    let device = Unwritable(File::open(&path).unwrap());
    let (server, host) = serve(Offer::new("disk", device), |builder| builder);
    let client = connect(&host);
    for nth in 0..4 {
        let failed = client.write(nth << 21, vec![1; 2 << 20]).wait();
        let Err(Error::Failed(failed)) = failed else { panic!("{failed:?}") };
        assert_eq!(failed.errno, Errno::IO);
        // What follows its data is understood.
        client.flush().wait().unwrap();
    }
    assert_eq!((server.stats().errors, server.stats().flushes), (4, 4));
}

#[test]
fn a_client_that_vanishes_within_the_data_of_a_write_disturbs_nobody() {
    let folder = Folder::new();
    let path = folder.disk("disk.img", SIZE as u64);
    let (server, host) = serve_file(&path);
    let staying = connect(&host);
    for turn in 0..4_usize {
        let stream = Arc::new(host.connect("qp://10.0.0.2:10809").unwrap());
        let leaving = Client::connect(Arc::clone(&stream) as _, &Options::export("disk")).unwrap();
        let is_extended = leaving.replies() == Replies::Extended;
        let magic: u32 = if is_extended { 0x21e4_1c71 } else { 0x2560_9513 };
        let mut head = Vec::from(magic.to_be_bytes());
        head.extend([0, u8::from(is_extended) << 5, 0, 1]);
        head.extend(7_u64.to_be_bytes());
        head.extend(0_u64.to_be_bytes());
        let len = 4_u64 << 20;
        head.extend(&len.to_be_bytes()[if is_extended { 0 } else { 4 }..]);
        (&*stream).write_all(&head).unwrap();
        (&*stream).write_all(&vec![1; turn * 600_000 + 1]).unwrap();
        leaving.end("it goes");
        drop((leaving, stream));
        let written = pattern(turn as u64, 100_000);
        staying.write(8 << 20, written.clone()).wait().unwrap();
        assert!(staying.read(8 << 20, vec![0; 100_000]).wait().unwrap() == written);
    }
    until("all others are gone", || server.streams().clients() == 1);
}
