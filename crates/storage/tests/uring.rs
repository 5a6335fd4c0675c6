//! Files that are not in the page cache, read by `io_uring` and by threads: both give the same.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use landfall::qpip::{Adapter, ChannelConfig};
use landfall_storage::Errno;
use landfall_storage::client::{Client, Error, Options};
use landfall_storage::device::{BlockDevice, FileAccess, FileDevice, Source};
use landfall_storage::server::{Offer, Server};
use landfall_storage::sockets_compat::QpHost;
use landfall_storage::stream::queue_pair_options;
use landfall_testkit::skip::skip;
use rustix::fs::{Advice, fadvise};

use crate::support::{Folder, Gate, connect, pattern, serve, until};

const SIZE: usize = 16 << 20;

/// A device in a file that is read by `io_uring`; the error says why there is none.
pub(crate) fn device(path: &Path) -> io::Result<FileDevice> {
    let mut device = FileDevice::open(path, false)?;
    device.set_access(FileAccess::Uring).map(|()| device)
}

/// Has the page cache forget a file, as far as it can.
pub(crate) fn forget(path: &Path) {
    let file = File::open(path).unwrap();
    file.sync_all().unwrap();
    fadvise(&file, 0, None, Advice::DontNeed).unwrap();
}

/// A server of a file with the bytes of a pattern that has to be read from its medium, if there
/// can be one here.
fn cold_server(test: &str, folder: &Folder) -> Option<(Server, Client)> {
    let (server, address) = serve(Offer::new("disk", cold_device(test, folder)?));
    let client = connect(address);
    Some((server, client))
}

/// A device with the bytes of a pattern, not one of which is in the page cache.
fn cold_device(test: &str, folder: &Folder) -> Option<FileDevice> {
    let path = folder.file("disk.img");
    std::fs::write(&path, pattern(1, SIZE)).unwrap();
    forget(&path);
    let device = match device(&path) {
        Ok(device) => device,
        Err(error) => {
            skip(test, &error.to_string());
            return None;
        }
    };
    if device.read_if_cached(1 << 20, &mut [0; 4096]).unwrap() {
        skip(test, "needs a folder for temporary files that is not in memory");
        return None;
    }
    Some(device)
}

#[test]
fn cold_reads_by_io_uring_have_the_bytes_of_the_file() {
    let (test, folder) = ("cold_reads_by_io_uring_have_the_bytes_of_the_file", Folder::new());
    let Some((server, client)) = cold_server(test, &folder) else { return };
    let bytes = pattern(1, SIZE);
    for turn in 0..8 {
        let mut reads = Vec::new();
        // More than a ring has places for, short ones and long ones, and longer than any place.
        for nth in 0..96_usize {
            let len = [512, 4096, 16_384, 16_385, 100_000, 262_144, 262_145, 600_000][nth % 8];
            let at = (turn * 96 + nth) * 7_919_333 % (SIZE - len);
            reads.push((at, len, client.read(at as u64, vec![0; len])));
        }
        for (at, len, read) in reads {
            assert!(read.wait().unwrap() == bytes[at..at + len], "{len} bytes at {at}");
        }
        forget(&folder.file("disk.img"));
    }
    let stats = server.stats();
    assert!(stats.ring_reads > 0 && stats.ring_reads < stats.waited_for, "{stats:?}");
    assert_eq!((stats.reads, stats.errors), (8 * 96, 0));
}

#[test]
fn writes_and_cold_reads_go_together() {
    let (test, folder) = ("writes_and_cold_reads_go_together", Folder::new());
    let Some((server, client)) = cold_server(test, &folder) else { return };
    let mut bytes = pattern(1, SIZE);
    for nth in 0..512_usize {
        let at = nth * 7_919_333 % (SIZE - 8192) / 4096 * 4096;
        let written = pattern(2 + nth as u64, 4096);
        bytes[at..at + 4096].copy_from_slice(&written);
        let write = if nth % 7 == 0 {
            client.write_durably(at as u64, written)
        } else {
            client.write(at as u64, written)
        };
        let others = client.read(0, vec![0; 4096]);
        write.wait().unwrap();
        others.wait().unwrap();
        // Behind the answer a read sees what was written, and its neighbour as it was.
        let read = client.read(at as u64, vec![0; 8192]).wait().unwrap();
        assert!(read == bytes[at..at + 8192], "{nth}");
        if nth % 64 == 0 {
            client.flush().wait().unwrap();
            forget(&folder.file("disk.img"));
        }
    }
    assert!(server.stats().ring_reads > 0, "{:?}", server.stats());
}

/// A file that others have cut off has no bytes there: an error, and no end of the connection.
#[test]
fn a_cold_read_behind_the_end_of_a_file_fails_alone() {
    let (test, folder) = ("a_cold_read_behind_the_end_of_a_file_fails_alone", Folder::new());
    let Some((_server, client)) = cold_server(test, &folder) else { return };
    let half = SIZE as u64 / 2;
    OpenOptions::new().write(true).open(folder.file("disk.img")).unwrap().set_len(half).unwrap();
    let lost = client.read(half + 4096, vec![0; 4096]);
    let across = client.read(half - 100, vec![0; 4096]);
    let there = client.read(4096, vec![0; 4096]);
    for failed in [lost.wait(), across.wait()] {
        let Err(Error::Failed(failed)) = failed else { panic!("{failed:?}") };
        assert_eq!(failed.errno, Errno::INVALID);
    }
    assert!(there.wait().unwrap() == pattern(1, SIZE)[4096..8192]);
}

#[test]
fn a_client_that_goes_while_the_ring_reads_disturbs_nobody() {
    let test = "a_client_that_goes_while_the_ring_reads_disturbs_nobody";
    let folder = Folder::new();
    let Some((server, client)) = cold_server(test, &folder) else { return };
    let address = server.listen("127.0.0.1:0").unwrap();
    let bytes = pattern(1, SIZE);
    let mut failed = 0;
    for turn in 0..8 {
        let leaving = connect(address);
        let blocks: Vec<_> = (0..64).map(|nth| (turn * 64 + nth) * 8192).collect();
        let read = |at: &usize| leaving.read(*at as u64, vec![0; 8192]);
        let reads: Vec<_> = blocks.iter().map(read).collect();
        leaving.send();
        leaving.end("it goes");
        for (at, read) in blocks.into_iter().zip(reads) {
            match read.wait() {
                Ok(block) => assert!(block == bytes[at..at + 8192], "at {at}"),
                Err(_) => failed += 1,
            }
        }
    }
    assert!(failed > 0, "each read was answered before its client went");
    until("all others are gone", || server.streams().clients() == 1);
    assert!(client.read(SIZE as u64 - 512, vec![0; 512]).wait().is_ok());
}

#[test]
fn how_a_device_is_read_is_told() {
    let folder = Folder::new();
    let path = folder.disk("disk.img", 4096);
    let open = |source: Source, access| source.open(false, access).unwrap();
    let memory = open(Source::Memory(4096), FileAccess::Uring);
    assert_eq!((memory.access, memory.device.size()), ("memory", 4096));
    let threads = open(Source::File(path.clone()), FileAccess::Threads);
    assert!(threads.access == "threads" && threads.device.uring_file().is_none());
    let wanted = open(Source::File(path), FileAccess::Uring);
    match wanted.refusal {
        None => assert!(wanted.access == "io_uring" && wanted.device.uring_file().is_some()),
        Some(why) => assert_eq!(wanted.access, "threads", "{why}"),
    }
}

/// A server of such a file at an adapter of queue pairs, and the adapter of its clients.
fn cold_server_of_queue_pairs(test: &str, folder: &Folder) -> Option<(Server, QpHost)> {
    let device = cold_device(test, folder)?;
    let joined = Adapter::builder().pair(Adapter::builder(), ChannelConfig::default());
    let (here, there) = joined.unwrap();
    let host = |builder: landfall::qpip::Builder, address| {
        QpHost::new(builder.address(address).open().unwrap(), queue_pair_options()).unwrap()
    };
    let (here, there) = (host(here, "10.0.0.1/24"), host(there, "10.0.0.2/24"));
    let server = Server::builder().offer(Offer::new("disk", device)).start().unwrap();
    server.streams().listen_qp(&there, "qp://10.0.0.2:10809").unwrap();
    Some((server, here))
}

fn connect_qp(host: &QpHost) -> Client {
    let stream = host.connect("qp://10.0.0.2:10809").unwrap();
    Client::connect(Arc::new(stream), &Options::export("disk")).unwrap()
}

#[test]
fn cold_blocks_leave_from_where_they_landed_over_queue_pairs() {
    let test = "cold_blocks_leave_from_where_they_landed_over_queue_pairs";
    let folder = Folder::new();
    let Some((server, host)) = cold_server_of_queue_pairs(test, &folder) else { return };
    let (client, bytes) = (connect_qp(&host), pattern(1, SIZE));
    for turn in 0..8 {
        let mut reads = Vec::new();
        // More than there are places: each is used again when the other side has its bytes.
        for nth in 0..160_usize {
            let len = [512, 4096, 16_384, 16_385, 100_000, 262_144, 262_145, 600_000][nth % 8];
            let at = (turn * 160 + nth) * 7_919_333 % (SIZE - len);
            reads.push((at, len, client.read(at as u64, vec![0; len])));
        }
        for (at, len, read) in reads {
            assert!(read.wait().unwrap() == bytes[at..at + len], "{len} bytes at {at}");
        }
        forget(&folder.file("disk.img"));
    }
    let stats = server.stats();
    assert!(stats.ring_reads > 0 && stats.sent_in_place >= stats.ring_reads, "{stats:?}");
    assert_eq!((stats.reads, stats.errors), (8 * 160, 0));
}

/// Its blocks are in mid-air: they are lost, its memory is freed, and others are not disturbed.
#[test]
fn a_client_that_vanishes_while_its_blocks_are_sent_disturbs_nobody() {
    let test = "a_client_that_vanishes_while_its_blocks_are_sent_disturbs_nobody";
    let folder = Folder::new();
    let Some((server, host)) = cold_server_of_queue_pairs(test, &folder) else { return };
    let (staying, bytes) = (connect_qp(&host), pattern(1, SIZE));
    for turn in 0..6_usize {
        forget(&folder.file("disk.img"));
        let leaving = connect_qp(&host);
        let reads: Vec<_> = (0..64_usize)
            .map(|nth| leaving.read(((turn * 64 + nth) * 32_768 % SIZE) as u64, vec![0; 32_768]))
            .collect();
        leaving.send();
        // Sometimes before the first is read, sometimes while they are sent.
        std::thread::sleep(Duration::from_millis(turn as u64));
        leaving.end("it goes");
        drop((leaving, reads));
        let at = turn * 1_000_003;
        let read = staying.read(at as u64, vec![0; 100_000]).wait().unwrap();
        assert!(read == bytes[at..at + 100_000], "{turn}");
    }
    until("all others are gone", || server.streams().clients() == 1);
}

/// The connection of a client that reads nothing fills up: the server waits for it, and not
/// for good.
#[test]
fn a_server_that_ends_does_not_wait_for_blocks_that_nobody_takes() {
    let test = "a_server_that_ends_does_not_wait_for_blocks_that_nobody_takes";
    let folder = Folder::new();
    let Some((server, host)) = cold_server_of_queue_pairs(test, &folder) else { return };
    let stream = Arc::new(host.connect("qp://10.0.0.2:10809").unwrap());
    let gate = Arc::new(Gate::new(stream));
    let client = Client::connect(Arc::<Gate>::clone(&gate), &Options::export("disk")).unwrap();
    gate.shut();
    let reads: Vec<_> = (0..64).map(|nth| client.read(nth * 262_144, vec![0; 262_144])).collect();
    client.send();
    until("the ring reads", || server.stats().ring_reads > 8);
    drop(server);
    gate.open();
    assert!(reads.into_iter().any(|read| read.wait().is_err()), "16 MiB cannot all have come");
}
