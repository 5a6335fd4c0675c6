//! Our client with our server: many requests under way, futures, threads.

use std::future::Future;
use std::io;
use std::net::TcpStream;
use std::pin::pin;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use landfall_nbd::client::Failure;
use landfall_storage::client::{
    Client, ConnectError, Error, Options, Pending, export_of, exports_of,
};
use landfall_storage::device::{BlockDevice, Fault, MemoryDevice, Volatile};
use landfall_storage::server::Offer;
use landfall_storage::stream::Stream;
use landfall_storage::{BlockSizes, Command, Errno, Replies};

use proptest::prelude::*;

use crate::support::{connect, pattern, serve, until};

const SIZE: u64 = 8 << 20;

struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The smallest executor.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let (mut future, mut cx) = (pin!(future), Context::from_waker(&waker));
    loop {
        match future.as_mut().poll(&mut cx) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}

#[test]
fn futures_are_woken_by_their_replies() {
    let (server, address) = serve(Offer::new("disk", MemoryDevice::new(SIZE)));
    let client = connect(address);
    block_on(async {
        let writes: Vec<_> =
            (0..64u64).map(|nth| client.write(nth * 4096, pattern(nth, 4096))).collect();
        for write in writes {
            write.await.unwrap();
        }
        client.flush().await.unwrap();
        for nth in (0..64).rev() {
            assert_eq!(client.read(nth * 4096, vec![0; 4096]).await.unwrap(), pattern(nth, 4096));
        }
        client.read(SIZE, vec![0; 4096]).await.unwrap_err();
    });
    let stats = server.stats();
    assert_eq!((stats.reads, stats.writes, stats.flushes), (64, 64, 1));
    assert_eq!((stats.bytes_read, stats.bytes_written), (64 * 4096, 64 * 4096));
    assert!(stats.waited_for >= 1, "a flush waits for its medium: {stats:?}");
}

#[test]
fn threads_share_a_connection() {
    let (_server, address) = serve(Offer::new("disk", MemoryDevice::new(SIZE)));
    let client = connect(address);
    thread::scope(|scope| {
        for part in 0..4u64 {
            let client = client.clone();
            scope.spawn(move || {
                for nth in 0..100 {
                    let (number, offset) = (part * 1000 + nth, part * (SIZE / 4) + nth * 8192);
                    client.write(offset, pattern(number, 8192)).wait().unwrap();
                    let back = client.read(offset, vec![0; 8192]).wait().unwrap();
                    assert!(back == pattern(number, 8192), "{number}");
                }
            });
        }
    });
}

/// Each side would wait for the other to read, if nobody read while writing.
#[test]
fn long_reads_and_long_writes_at_a_time_do_not_block_each_other() {
    let (_server, address) = serve(Offer::new("disk", MemoryDevice::new(256 << 20)));
    let client = connect(address);
    let len = 2 << 20;
    let mut reads = Vec::new();
    let mut writes = Vec::new();
    for nth in 0..32u64 {
        reads.push(client.read(nth * len as u64, vec![1; len]));
        writes.push(client.write((64 + nth) * len as u64, vec![nth as u8; len]));
    }
    for read in reads {
        assert!(read.wait().unwrap().iter().all(|byte| *byte == 0));
    }
    for write in writes {
        write.wait().unwrap();
    }
}

#[test]
fn every_kind_of_reply_carries_every_command() {
    for replies in [Replies::Simple, Replies::Structured, Replies::Extended] {
        let (_server, address) = serve(Offer::new("disk", MemoryDevice::new(SIZE)));
        let options = Options { replies, ..Options::export("disk") };
        let client = Client::connect_tcp(address, &options).unwrap();
        assert_eq!(client.replies(), replies);
        client.write_durably(100, pattern(1, 1 << 20)).wait().unwrap();
        assert_eq!(client.read(100, vec![0; 1 << 20]).wait().unwrap(), pattern(1, 1 << 20));
        assert_eq!(client.read(0, Vec::new()).wait().unwrap(), [0_u8; 0]);
        client.trim(0, SIZE).wait().unwrap();
        client.write_zeroes(0, SIZE, true).wait().unwrap();
        assert_eq!(client.read(100, vec![1; 4096]).wait().unwrap(), [0; 4096]);
        client.flush().wait().unwrap();
        client.resize(SIZE / 2).wait().unwrap();
        assert_eq!(client.export().size, SIZE / 2);
        assert!(matches!(client.read(SIZE / 2, vec![0]).wait(), Err(Error::NotIssued(_))));
        if client.has_status() {
            let extents = client.status(0, SIZE / 2).wait().unwrap();
            assert!(extents[0].is_zero, "{extents:?}");
        }
        // What another client cut off is the server's to refuse.
        connect(address).resize(512).wait().unwrap();
        let Err(Error::Failed(failed)) = client.read(512, vec![0]).wait() else { panic!() };
        assert_eq!(failed.errno, Errno::INVALID);
    }
}

#[test]
fn a_server_with_blocks_has_them_kept_to() {
    let blocks = BlockSizes { minimum: 4096, preferred: 4096, maximum: 65_536 };
    let (_server, address) = serve(Offer::new("disk", MemoryDevice::new(SIZE)).blocks(blocks));
    let client = connect(address);
    assert_eq!(client.export().blocks, blocks);
    assert!(matches!(client.write(1, vec![0; 4096]).wait(), Err(Error::NotIssued(_))));
    assert!(matches!(client.read(0, vec![0; 131_072]).wait(), Err(Error::NotIssued(_))));
    client.write(4096, vec![1; 4096]).wait().unwrap();
}

#[test]
fn exports_are_listed_and_looked_at_without_being_used() {
    let (server, address) = serve(Offer::new("disk", MemoryDevice::new(SIZE)).description("words"));
    assert!(server.offer(Offer::new("other", MemoryDevice::new(1))));
    assert!(!server.offer(Offer::new("other", MemoryDevice::new(2))), "the name is taken");
    let stream = || Arc::new(std::net::TcpStream::connect(address).unwrap());
    let options = Options::export("disk");
    let listed = exports_of(stream(), &options).unwrap();
    let names: Vec<_> = listed.iter().map(|listed| listed.name.as_str()).collect();
    assert_eq!(names, ["disk", "other"]);
    let looked = export_of(stream(), &options).unwrap();
    assert_eq!((looked.export().size, looked.export().description.as_str()), (SIZE, "words"));
    let none = Client::connect_tcp(address, &Options::export("none")).map(drop).unwrap_err();
    let is_none =
        |failure: &Failure| matches!(failure, Failure::NoSuchExport(name) if name == "none");
    assert!(matches!(&none, ConnectError::Negotiation(why) if is_none(why)), "{none}");
}

/// A stream whose calls that send data return when they are told to, long after the data have
/// gone.
struct Holding {
    stream: TcpStream,
    told: Mutex<Receiver<()>>,
}

impl Stream for Holding {
    fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        Stream::read(&self.stream, into)
    }

    fn write(&self, head: &[u8], payload: &[u8]) -> io::Result<()> {
        Stream::write(&self.stream, head, payload)?;
        if !payload.is_empty() {
            self.told
                .lock()
                .unwrap()
                .recv_timeout(Duration::from_secs(20))
                .map_err(io::Error::other)?;
        }
        Ok(())
    }

    fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        Stream::set_read_timeout(&self.stream, timeout)
    }

    fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        Stream::set_write_timeout(&self.stream, timeout)
    }

    fn shut_down(&self) {
        self.stream.shut_down();
    }
}

/// A reply overtakes the end of the call that sends: the buffer comes back whole all the same.
#[test]
fn what_was_written_is_given_back_whole() {
    let (_server, address) = serve(Offer::new("disk", MemoryDevice::new(SIZE)));
    let (tell, told) = mpsc::channel();
    let stream = TcpStream::connect(address).unwrap();
    let stream = Arc::new(Holding { stream, told: Mutex::new(told) });
    let client = Client::connect(stream, &Options::export("disk")).unwrap();
    // Not so much that it is sent at once.
    let bytes = pattern(1, 40_000);
    let mut write = client.write(4096, bytes.clone());
    thread::scope(|scope| {
        scope.spawn(|| client.send());
        until("it is answered", || write.is_over());
        let done = pin!(&mut write).poll(&mut Context::from_waker(Waker::noop()));
        let Poll::Ready(Ok(back)) = done else { panic!("it is over: {done:?}") };
        assert!(back == bytes, "{} bytes came back", back.len());
        tell.send(()).unwrap();
    });
    assert!(client.read(4096, vec![0; bytes.len()]).wait().unwrap() == bytes);
}

#[test]
fn a_buffer_of_another_length_is_refused_and_nothing_is_sent() {
    let (server, address) = serve(Offer::new("disk", MemoryDevice::new(SIZE)));
    let client = connect(address);
    let read = Command::Read { offset: 0, length: 4096, dont_fragment: false };
    let write = Command::Write { offset: 0, length: 4096, fua: false };
    for command in [read, write] {
        for len in [0, 4095, 4097] {
            let refused = client.command(command, vec![0; len]).wait();
            assert!(matches!(refused, Err(Error::Buffer { length: 4096, .. })), "{refused:?}");
        }
    }
    client.flush().wait().unwrap();
    assert_eq!(server.stats().reads + server.stats().writes, 0);
}

/// A part of a device that is used for itself: what is under way at others says nothing of it.
const PLACE: usize = 64 << 10;
const PLACES: usize = 6;

/// What is asked of a place, and how it is waited for.
#[derive(Clone, Debug)]
struct Request {
    place: usize,
    at: usize,
    len: usize,
    is_write: bool,
    /// As a future; else by a thread that waits.
    polls: bool,
}

fn request() -> impl Strategy<Value = Request> {
    // Around what is copied behind its request, and what is sent from where it lies.
    let len = prop_oneof![1..64usize, 16_300..16_500usize, 20_000..PLACE / 2];
    (0..PLACES, 0..PLACE / 2, len, any::<bool>(), any::<bool>())
        .prop_map(|(place, at, len, is_write, polls)| Request { place, at, len, is_write, polls })
}

/// A request, what it writes, and what comes of it.
type UnderWay = (Request, Vec<u8>, Pending<Vec<u8>>);

/// The naive device: it does one thing after another. The last place cannot be read.
struct Naive {
    bytes: Vec<Vec<u8>>,
    under_way: Vec<Option<UnderWay>>,
}

impl Naive {
    fn settle(&mut self, place: usize) -> Result<(), TestCaseError> {
        let Some((asked, bytes, pending)) = self.under_way[place].take() else { return Ok(()) };
        let done = if asked.polls { block_on(pending) } else { pending.wait() };
        if !asked.is_write && place == PLACES - 1 {
            prop_assert!(matches!(done, Err(Error::Failed(_))), "{:?}", asked);
            return Ok(());
        }
        let done = done.map_err(|error| TestCaseError::fail(error.to_string()))?;
        let is_right = if asked.is_write {
            self.bytes[place][asked.at..][..asked.len].copy_from_slice(&bytes);
            done == bytes
        } else {
            done == self.bytes[place][asked.at..][..asked.len]
        };
        prop_assert!(is_right, "{:?}: {} bytes", asked, done.len());
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever is waited for in whatever order, each buffer has what a device would give that
    /// does one thing after another; what fails takes nothing from others.
    #[test]
    fn what_is_pending_gives_what_a_naive_device_gives(
        all in proptest::collection::vec(request(), 1..120),
        order in proptest::collection::vec(0..PLACES, PLACES),
    ) {
        let device = Arc::new(Volatile::new(PLACE * PLACES));
        device.fail(Fault::Read, (PLACE * (PLACES - 1)) as u64..(PLACE * PLACES) as u64);
        let (_server, address) = serve(Offer::shared("disk", device as Arc<dyn BlockDevice>));
        let client = connect(address);
        let under_way = (0..PLACES).map(|_| None).collect();
        let mut naive = Naive { bytes: vec![vec![0; PLACE]; PLACES], under_way };
        for (number, asked) in (1..).zip(all) {
            naive.settle(asked.place)?;
            let offset = (asked.place * PLACE + asked.at) as u64;
            let bytes = pattern(number, asked.len);
            let pending = if asked.is_write {
                client.write(offset, bytes.clone())
            } else {
                client.read(offset, vec![7; asked.len])
            };
            naive.under_way[asked.place] = Some((asked.clone(), bytes, pending));
        }
        for place in order.into_iter().chain(0..PLACES) {
            naive.settle(place)?;
        }
        prop_assert!(client.gone().is_none());
    }
}
