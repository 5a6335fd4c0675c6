//! The questions to every kind of stream under tokio: wakers, cancellation, halves.

use std::future::Future;
use std::io::IoSlice;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use sockets_compat::Family;
use sockets_compat::tokio::ByteStream;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{PATIENCE, until};

/// Runs a test on a runtime, for a bounded time.
pub(crate) fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let bounded = async { tokio::time::timeout(PATIENCE, test).await };
    runtime.expect("a runtime").block_on(bounded).expect("it takes far too long")
}

/// All of them, on pairs of one kind.
pub(crate) fn all<F: Family>(
    pair: fn() -> (sockets_compat::ByteStream<F>, sockets_compat::ByteStream<F>),
) {
    let pair = || {
        let (one, two) = pair();
        (ByteStream::from_std(one).unwrap(), ByteStream::from_std(two).unwrap())
    };
    run(bytes_cross_both_ways(pair()));
    run(whoever_gives_up_loses_nothing(pair()));
    run(a_full_way_lets_the_writer_wait(pair()));
    run(halves_end_their_direction(pair()));
    run(several_tasks_wait_for_one_stream(pair()));
    a_waker_is_called_and_the_last_one_too(pair());
}

async fn bytes_cross_both_ways<F: Family>((one, two): (ByteStream<F>, ByteStream<F>)) {
    const LEN: usize = 2 << 20;
    let exchange = async |mut stream: ByteStream<F>, seed: usize| {
        let bytes: Vec<u8> = (0..LEN).map(|at| (at * 13 + seed) as u8).collect();
        let (mut reader, mut writer) = stream.split();
        let writing = async {
            for part in bytes.chunks(99_991) {
                let (first, second) = part.split_at(part.len() / 3);
                let written = writer
                    .write_vectored(&[IoSlice::new(first), IoSlice::new(second)])
                    .await
                    .unwrap();
                writer.write_all(&part[written..]).await.unwrap();
            }
            writer.shutdown().await.unwrap();
        };
        let mut came = Vec::new();
        let (read, ()) = tokio::join!(reader.read_to_end(&mut came), writing);
        read.unwrap();
        came
    };
    let (at_one, at_two) = tokio::join!(exchange(one, 1), exchange(two, 2));
    let wanted = |seed: usize| (0..LEN).map(move |at| (at * 13 + seed) as u8);
    assert!(at_one.into_iter().eq(wanted(2)) && at_two.into_iter().eq(wanted(1)));
}

/// Reads and writes are polled and dropped at any time; the bytes are all there.
async fn whoever_gives_up_loses_nothing<F: Family>(
    (mut one, mut two): (ByteStream<F>, ByteStream<F>),
) {
    const LEN: usize = 300_000;
    let bytes: Vec<u8> = (0..LEN).map(|at| (at % 251) as u8).collect();
    let sent = bytes.clone();
    let writing = tokio::spawn(async move {
        let mut at = 0;
        while at < sent.len() {
            tokio::select! {
                biased;
                written = one.write(&sent[at..(at + 7_001).min(LEN)]) => at += written.unwrap(),
                () = tokio::task::yield_now() => {}
            }
        }
        one.shutdown().await.unwrap();
        one
    });
    let mut came = Vec::new();
    let mut some = [0; 1_003];
    loop {
        let read = tokio::select! {
            biased;
            read = two.read(&mut some) => read.unwrap(),
            () = tokio::task::yield_now() => continue,
        };
        if read == 0 {
            break;
        }
        came.extend_from_slice(&some[..read]);
    }
    assert!(came == bytes, "{} of {LEN} bytes", came.len());
    drop(writing.await.unwrap());
}

async fn a_full_way_lets_the_writer_wait<F: Family>(
    (mut one, mut two): (ByteStream<F>, ByteStream<F>),
) {
    let writing = tokio::spawn(async move {
        one.write_all(&vec![3; 8 << 20]).await.unwrap();
        one.shutdown().await.unwrap();
    });
    // Whether the way is full by now or not, all of it comes.
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    let mut came = Vec::new();
    two.read_to_end(&mut came).await.unwrap();
    assert_eq!(came.len(), 8 << 20);
    writing.await.unwrap();
}

async fn halves_end_their_direction<F: Family>((one, mut two): (ByteStream<F>, ByteStream<F>)) {
    let (mut reader, mut writer) = one.into_split();
    writer.write_all(b"question").await.unwrap();
    drop(writer);
    let mut question = String::new();
    two.read_to_string(&mut question).await.unwrap();
    two.write_all(b"answer").await.unwrap();
    drop(two);
    let mut answer = String::new();
    reader.read_to_string(&mut answer).await.unwrap();
    assert_eq!((question.as_str(), answer.as_str()), ("question", "answer"));
}

async fn several_tasks_wait_for_one_stream<F: Family>(
    (one, mut two): (ByteStream<F>, ByteStream<F>),
) {
    let one = Arc::new(one);
    let waiting: Vec<_> = (0..4)
        .map(|_| {
            let one = Arc::clone(&one);
            tokio::spawn(async move {
                let mut byte = [0];
                loop {
                    // A peek waits, a try takes: anyone who is late waits again.
                    if one.peek(&mut byte).await.unwrap() == 0 {
                        return None;
                    }
                    if one.try_read(&mut byte).is_ok_and(|len| len == 1) {
                        return Some(byte[0]);
                    }
                }
            })
        })
        .collect();
    for byte in 0..4u8 {
        two.write_all(&[byte]).await.unwrap();
    }
    let mut got = Vec::new();
    for task in waiting {
        got.extend(task.await.unwrap());
    }
    got.sort_unstable();
    assert_eq!(got, [0, 1, 2, 3]);
}

#[derive(Default)]
struct Counting(AtomicUsize);

impl Wake for Counting {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A future that is polled by ever new wakers calls the last of them.
fn a_waker_is_called_and_the_last_one_too<F: Family>(
    (mut one, two): (ByteStream<F>, ByteStream<F>),
) {
    let mut byte = [0];
    let mut reading = pin!(one.read(&mut byte));
    // More than anybody could want to keep.
    let wakers: Vec<_> = (0..200).map(|_| Arc::new(Counting::default())).collect();
    for waker in &wakers {
        let waker = Waker::from(Arc::clone(waker));
        assert!(reading.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    assert_eq!(two.try_write(b"x").unwrap(), 1);
    let last = wakers.last().expect("there are some");
    until("the last one is called", || last.0.load(Ordering::SeqCst) > 0);
    let waker = Waker::from(Arc::clone(last));
    let mut read = None;
    until("the byte is there", || {
        if let Poll::Ready(result) = reading.as_mut().poll(&mut Context::from_waker(&waker)) {
            read = Some(result.unwrap());
        }
        read.is_some()
    });
    assert_eq!(read, Some(1));
}
