//! Clients and devices that misbehave: a clear error for whom it concerns, and nobody else is
//! disturbed.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;

use landfall_storage::client::{Client, ConnectError, Error, Options};
use landfall_storage::device::{BlockDevice, Fault, FileDevice, MemoryDevice, Volatile};
use landfall_storage::server::{Offer, Server};
use landfall_storage::{Errno, Replies};

use crate::support::{Folder, LIMIT, connect, pattern, serve, until};

fn errno(error: Error) -> Errno {
    match error {
        Error::Failed(failed) => failed.errno,
        other => panic!("{other}"),
    }
}

#[test]
fn errors_of_the_device_are_told_and_are_no_end() {
    let device = Arc::new(Volatile::new(1 << 20));
    device.fail(Fault::Read, 4096..8192);
    device.fail(Fault::Write, 8192..12_288);
    device.fail(Fault::NoSpace, 12_288..16_384);
    let (_server, address) = serve(Offer::shared("disk", device as Arc<dyn BlockDevice>));
    for replies in [Replies::Simple, Replies::Structured, Replies::Extended] {
        let options = Options { replies, ..Options::export("disk") };
        let client = Client::connect_tcp(address, &options).unwrap();
        assert_eq!(errno(client.read(0, vec![0; 8192]).wait().unwrap_err()), Errno::IO);
        assert_eq!(errno(client.write(8000, vec![0; 4096]).wait().unwrap_err()), Errno::IO);
        assert_eq!(errno(client.write(12_288, vec![0; 9]).wait().unwrap_err()), Errno::NO_SPACE);
        let durable = client.write_durably(12_288, vec![0; 9]).wait();
        assert_eq!(errno(durable.unwrap_err()), Errno::NO_SPACE);
        client.write(0, pattern(1, 4096)).wait().unwrap();
        assert_eq!(client.read(0, vec![0; 4096]).wait().unwrap(), pattern(1, 4096));
    }
}

#[test]
fn a_withdrawn_export_is_gone_for_those_who_use_it_and_no_other() {
    let server = Server::builder()
        .offer(Offer::new("disk", MemoryDevice::new(4096)))
        .offer(Offer::new("other", MemoryDevice::new(4096)))
        .start()
        .unwrap();
    let address = server.listen("127.0.0.1:0").unwrap();
    let client = connect(address);
    let other = Client::connect_tcp(address, &Options::export("other")).unwrap();
    client.write(0, vec![1; 512]).wait().unwrap();
    assert!(server.withdraw("disk") && !server.withdraw("disk"));
    assert_eq!(errno(client.write(0, vec![2; 512]).wait().unwrap_err()), Errno::SHUTDOWN);
    assert_eq!(errno(client.read(0, vec![2; 512]).wait().unwrap_err()), Errno::SHUTDOWN);
    let gone = Client::connect_tcp(address, &Options::export("disk")).map(drop).unwrap_err();
    assert!(matches!(gone, ConnectError::Negotiation(_)), "{gone}");
    other.write(0, vec![1; 512]).wait().unwrap();
}

/// A connection that has its export, for bytes of one's own.
fn raw(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.read_exact(&mut [0; 18]).unwrap();
    stream.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\x04disk").unwrap();
    stream.read_exact(&mut [0; 10]).unwrap();
    stream
}

fn head(kind: u16, offset: u64, length: u32) -> Vec<u8> {
    let mut head = vec![0x25, 0x60, 0x95, 0x13, 0, 0];
    head.extend(kind.to_be_bytes());
    head.extend(9u64.to_be_bytes());
    head.extend(offset.to_be_bytes());
    head.extend(length.to_be_bytes());
    head
}

#[test]
fn strangers_and_clients_that_vanish_disturb_nobody() {
    let (server, address) = serve(Offer::new("disk", MemoryDevice::new(1 << 20)));
    let client = connect(address);
    client.write(0, pattern(5, 65_536)).wait().unwrap();
    // In the middle of a head, of data, of a negotiation, and behind what is no request.
    raw(address).write_all(&head(0, 0, 1)[..20]).unwrap();
    let mut stream = raw(address);
    stream.write_all(&head(1, 131_072, 65_536)).unwrap();
    stream.write_all(&[1; 1000]).unwrap();
    drop(stream);
    TcpStream::connect(address).unwrap().write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut stream = raw(address);
    stream.write_all(&[0xff; 100]).unwrap();
    assert!(matches!(stream.read(&mut [0; 16]), Ok(0) | Err(_)), "it is closed");
    // Many reads, and nobody who takes the replies.
    let mut greedy = raw(address);
    for _ in 0..1000 {
        if greedy.write_all(&head(0, 0, 65_536)).is_err() {
            break;
        }
    }
    assert_eq!(client.read(0, vec![0; 65_536]).wait().unwrap(), pattern(5, 65_536));
    drop(greedy);
    until("they are gone", || server.streams().clients() == 1);
    drop(client);
    until("all are gone", || server.streams().clients() == 0);
}

#[test]
fn a_request_that_is_refused_leaves_the_next_one_whole() {
    let (_server, address) = serve(Offer::new("disk", MemoryDevice::new(1 << 20)).read_only(true));
    let mut stream = raw(address);
    let mut bytes = head(1, 0, 300_000);
    bytes.extend(vec![7; 300_000]);
    bytes.extend(head(77, 0, 0));
    bytes.extend(head(0, 1 << 20, 1));
    bytes.extend(head(0, 0, 4));
    bytes.extend(head(2, 0, 0));
    stream.write_all(&bytes).unwrap();
    let mut replies = Vec::new();
    stream.read_to_end(&mut replies).unwrap();
    let errors: Vec<u8> = replies.chunks(16).map(|reply| *reply.get(7).unwrap_or(&0xff)).collect();
    // Read-only, unknown, beyond the end, and four bytes that were read.
    assert_eq!(errors, [1, 22, 22, 0, 0xff]);
    assert_eq!(replies.len(), 4 * 16 + 4);
}

#[test]
fn a_server_that_ends_ends_what_was_begun_and_tells_its_clients() {
    let device = Arc::new(MemoryDevice::new(1 << 20));
    let (server, address) =
        serve(Offer::shared("disk", Arc::clone(&device) as Arc<dyn BlockDevice>));
    let client = connect(address);
    client.write(0, vec![1; 512]).wait().unwrap();
    drop(server);
    assert!(client.write(0, vec![2; 512]).wait().is_err());
    // Nobody listens there any more; unless another test took the port meanwhile.
    drop(client);
    until("the device is nobody's", || Arc::strong_count(&device) == 1);
}

#[test]
fn a_client_more_than_there_is_room_for_is_turned_away_until_one_leaves() {
    let server = Server::builder()
        .clients(2)
        .offer(Offer::new("disk", MemoryDevice::new(512)))
        .start()
        .unwrap();
    let address = server.listen("127.0.0.1:0").unwrap();
    let (one, two) = (connect(address), connect(address));
    let refused = Client::connect_tcp(address, &Options::export("disk"));
    let ended = [ErrorKind::UnexpectedEof, ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
    assert!(
        matches!(&refused, Err(ConnectError::Io(error)) if ended.contains(&error.kind())),
        "the server ends it: {refused:?}"
    );
    for client in [&one, &two] {
        client.read(0, vec![0; 512]).wait().expect("the others are not disturbed");
    }
    drop(one);
    until("there is room", || server.streams().clients() == 1);
    connect(address).read(0, vec![0; 512]).wait().unwrap();
    two.read(0, vec![0; 512]).wait().unwrap();
}

/// Half a goodbye: the client sends no more, and reads all of its replies.
#[test]
fn a_client_that_only_reads_any_more_gets_all_of_it() {
    let (_server, address) = serve(Offer::new("disk", MemoryDevice::new(1 << 20)));
    let mut stream = raw(address);
    for _ in 0..10 {
        stream.write_all(&head(0, 0, 65_536)).unwrap();
    }
    stream.shutdown(Shutdown::Write).unwrap();
    let mut replies = Vec::new();
    stream.read_to_end(&mut replies).unwrap();
    assert_eq!(replies.len(), 10 * (65_536 + 16));
}

/// What several write at a time is of one or another of them, byte by byte, and the neighbours
/// are as they were; also where some of them vanish in the middle of a write.
#[test]
fn overlapping_writes_of_many_clients_touch_nothing_else() {
    const LEN: usize = 65_536;
    let folder = Folder::new();
    let device = FileDevice::open(&folder.disk("disk.img", 1 << 20), false).unwrap();
    let (server, address) = serve(Offer::new("disk", device));
    let client = connect(address);
    client.write(0, vec![0xee; 1 << 20]).wait().unwrap();
    std::thread::scope(|scope| {
        for writer in 1..=4_u8 {
            scope.spawn(move || {
                let client = connect(address);
                for turn in 0..20 {
                    let at = 131_072 + u64::from(writer) * 4096 + turn % 3;
                    client.write(at, vec![writer; LEN]).wait().unwrap();
                    if writer == 4 {
                        let mut leaving = raw(address);
                        leaving.write_all(&head(1, at, LEN as u32)).unwrap();
                        leaving.write_all(&[writer; 10_001]).unwrap();
                    }
                }
            });
        }
    });
    until("they are gone", || server.streams().clients() == 1);
    let bytes = client.read(0, vec![0; 1 << 20]).wait().unwrap();
    let (from, to) = (131_072 + 4096, 131_072 + 4 * 4096 + 2 + LEN);
    assert!(bytes[from + 2..to - 2].iter().all(|byte| (1..=4).contains(byte)));
    assert!(bytes[..from].iter().chain(&bytes[to..]).all(|byte| *byte == 0xee));
    client.flush().wait().unwrap();
    assert!(std::fs::read(folder.file("disk.img")).unwrap() == bytes);
}

#[test]
fn a_full_disk_is_told_and_writes_go_on_when_there_is_room() {
    let folder = Folder::new();
    let small = folder.file("small");
    std::fs::create_dir(&small).unwrap();
    let flags = rustix::mount::MountFlags::empty();
    if let Err(error) = rustix::mount::mount("none", &small, "tmpfs", flags, Some(c"size=1m")) {
        let test = "a_full_disk_is_told_and_writes_go_on_when_there_is_room";
        return landfall_testkit::skip::skip(test, &error.to_string());
    }
    let disk = folder.disk("small/disk.img", 4 << 20);
    let (server, address) = serve(Offer::new("disk", FileDevice::open(&disk, false).unwrap()));
    let (client, other) = (connect(address), connect(address));
    client.write(0, pattern(1, 4096)).wait().unwrap();
    assert_eq!(errno(client.write(0, vec![7; 4 << 20]).wait().unwrap_err()), Errno::NO_SPACE);
    // Others read on, and the same client writes when there is room.
    assert_eq!(other.read(3 << 20, vec![1; 512]).wait().unwrap(), [0; 512]);
    client.trim(0, 4 << 20).wait().unwrap();
    client.write_durably(2 << 20, pattern(2, 100_000)).wait().unwrap();
    assert_eq!(other.read(2 << 20, vec![0; 100_000]).wait().unwrap(), pattern(2, 100_000));
    drop((client, other, server));
    rustix::mount::unmount(&small, rustix::mount::UnmountFlags::DETACH).unwrap();
}
