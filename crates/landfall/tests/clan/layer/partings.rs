//! A receiver that has taken all may go at once, even before the call has ended that told
//! it of the last: for the sender nothing has failed.

use std::io::{Read as _, Write as _};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use landfall::clan::layer::{multipart, queue, rpc, stream};
use landfall::clan::{Error, Threads};

use super::lab::Lab;
use super::support;

const MESSAGE: [u8; 8] = *b"the last";

/// While the sender commits, all arrives, the receiver does this, and its node goes.
fn interrupt(lab: &(Lab, Lab), receive: impl FnOnce() + Send + 'static) {
    let (here, there) = lab.clone();
    lab.0.at_next_commit(move || {
        here.deliver_all();
        receive();
        here.deliver_all();
        there.kill();
    });
}

fn batches_of(elements: u32) -> queue::Config {
    queue::Config::new(8, 4).batch(elements, Duration::from_secs(1))
}

#[test]
fn a_queue_whose_receiver_goes_with_the_last_element_is_drained() {
    let lab = Lab::pair(60);
    let (mut sender, mut receiver) = support::queue(&lab.0, &lab.1, batches_of(1));
    let taken = Arc::new(Mutex::new([0; 8]));
    let into = Arc::clone(&taken);
    interrupt(&lab, move || {
        assert!(receiver.try_get(&mut *into.lock().unwrap()).unwrap());
    });
    assert!(sender.try_put(&MESSAGE).unwrap(), "there is room");
    assert_eq!(*taken.lock().unwrap(), MESSAGE);
    sender.publish().unwrap();
    sender.drain(None).unwrap();
}

/// It took one of two: that is a failure.
#[test]
fn a_queue_whose_receiver_goes_before_the_last_element_is_not_drained() {
    let lab = Lab::pair(60);
    let (mut sender, mut receiver) = support::queue(&lab.0, &lab.1, batches_of(2));
    interrupt(&lab, move || {
        assert!(receiver.try_get(&mut [0; 8]).unwrap());
    });
    assert!(sender.try_put(&MESSAGE).unwrap());
    let put = sender.try_put(&MESSAGE);
    assert!(matches!(put, Err(Error::PeerLost)), "{put:?}");
    let drained = sender.drain(None);
    assert!(matches!(drained, Err(Error::PeerLost | Error::Closed)), "{drained:?}");
}

#[test]
fn a_stream_whose_reader_goes_with_the_last_bytes_is_drained() {
    let lab = Lab::pair(60);
    let (mut writer, mut reader) = support::stream(&lab.0, &lab.1, stream::Config::new(64));
    let taken = Arc::new(Mutex::new([0; 8]));
    let into = Arc::clone(&taken);
    interrupt(&lab, move || {
        assert_eq!(reader.read_some(&mut *into.lock().unwrap(), None).unwrap(), 8);
    });
    assert_eq!(writer.write_some(&MESSAGE, None).unwrap(), 8);
    assert_eq!(*taken.lock().unwrap(), MESSAGE);
    writer.drain(None).unwrap();
}

#[test]
fn the_end_of_what_was_taken_whole_is_no_failure_though_nobody_hears_it() {
    let (one, two) = Threads::pair().unwrap();
    let (mut sender, mut receiver) = support::queue(&one, &two, batches_of(1));
    assert!(sender.try_put(&MESSAGE).unwrap());
    assert!(receiver.try_get(&mut [0; 8]).unwrap());
    drop(receiver);
    sender.finish().unwrap();
    sender.drain(None).unwrap();

    let (mut writer, mut reader) = support::stream(&one, &two, stream::Config::new(64));
    assert_eq!(writer.write_some(&MESSAGE, None).unwrap(), 8);
    assert_eq!(reader.read_some(&mut [0; 8], None).unwrap(), 8);
    drop(reader);
    writer.finish().unwrap();
    writer.drain(None).unwrap();
}

/// What was put in and not taken is lost, and its end with it.
#[test]
fn what_nobody_took_has_failed_with_its_end() {
    let (one, two) = Threads::pair().unwrap();
    let (mut sender, receiver) = support::queue(&one, &two, batches_of(2));
    assert!(sender.try_put(&MESSAGE).unwrap());
    drop(receiver);
    assert!(matches!(sender.finish(), Err(Error::Closed)), "it was not taken");
    assert!(matches!(sender.drain(None), Err(Error::Closed)));
}

/// Memory that is taken away without a word is a ring that was closed.
#[test]
fn a_receiver_that_goes_before_it_says_a_word_has_closed() {
    let (one, two) = Threads::pair().unwrap();
    let receiver = queue::Receiver::open(&two, batches_of(1)).unwrap();
    let sender = queue::Sender::open(&one, batches_of(1)).unwrap();
    let mut sender = sender.connect(&receiver.cookie()).unwrap();
    drop(receiver);
    let put = sender.try_put(&MESSAGE);
    assert!(matches!(put, Err(Error::Closed)), "{put:?}");
}

/// A receiver that takes all, hears of the end and goes, while the sender still says it:
/// in whatever moment that is, nothing has failed.
#[test]
fn parting_in_any_moment_is_no_failure() {
    let (one, two) = Threads::pair().unwrap();
    for round in 0..2000_usize {
        let (mut sender, mut receiver) = support::queue(&one, &two, batches_of(1));
        let (mut writer, mut reader) = support::stream(&one, &two, stream::Config::new(64));
        let config = multipart::Config::DEFAULT.ring(8192);
        let (mut speaker, mut listener) = support::multipart(&one, &two, config);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut element = [0; 8];
                while !matches!(receiver.try_get(&mut element), Err(Error::Closed)) {}
                drop(receiver);
                while reader.read_some(&mut element, None).is_ok_and(|read| read > 0) {}
                drop(reader);
                while let Ok(message) = listener.next(None) {
                    message.parts(None).unwrap();
                }
            });
            assert!(sender.try_put(&MESSAGE).unwrap());
            (0..round % 50).for_each(|_| std::hint::spin_loop());
            sender.finish().unwrap();
            sender.drain(None).unwrap();
            writer.write_some(&MESSAGE, None).unwrap();
            writer.finish().unwrap();
            writer.drain(None).unwrap();
            speaker.send(b"", &[&MESSAGE], None).unwrap();
            speaker.finish().unwrap();
            speaker.drain(None).unwrap();
        });
    }
}

/// Who waits as a task hears that its own node has ended.
#[tokio::test]
async fn the_end_of_its_own_node_wakes_a_task() {
    let (one, two) = Threads::pair().unwrap();
    let (_client, mut server) = support::rpc(&one, &two, rpc::Config::new(64, 64));
    let waits = async { server.next_async().await.map(drop) };
    let ends = async {
        tokio::task::yield_now().await;
        two.end();
    };
    let ended = tokio::time::timeout(Duration::from_secs(60), async { tokio::join!(waits, ends) });
    let (served, ()) = ended.await.expect("it is woken");
    assert!(matches!(served, Err(Error::NodeGone)), "{served:?}");
}

/// A full way is not taken for a peer that is gone: the end is still to be said.
#[test]
fn an_end_that_met_a_full_way_is_said_again() {
    let lab = Lab::pair(60);
    let (mut sender, receiver) = support::queue(&lab.0, &lab.1, batches_of(1));
    lab.0.refuses_commits(1, || Error::Busy);
    let finished = sender.finish();
    assert!(matches!(finished, Err(Error::Busy)), "{finished:?}");
    sender.finish().unwrap();
    drop(receiver);
}

/// Both tripwires of a connection for messages hear of the end; who has heard of it by the
/// first may go before the second.
#[test]
fn a_receiver_of_messages_that_goes_with_the_end_is_no_failure() {
    let lab = Lab::pair(600);
    let config = multipart::Config::DEFAULT.ring(8192);
    let (mut sender, mut receiver) = support::multipart(&lab.0, &lab.1, config);
    sender.send(b"meta", &[&MESSAGE], None).unwrap();
    lab.0.deliver_all();
    receiver.next(None).unwrap().parts(None).unwrap();
    let here = lab.0.clone();
    lab.0.at_next_commit(move || {
        here.deliver_all();
        assert!(matches!(receiver.next(None), Err(Error::Closed)));
        drop(receiver);
        here.deliver_all();
    });
    sender.finish().unwrap();
    sender.drain(None).unwrap();
}

/// Whichever word it is by which a reader hears that the writer is gone, it reads what came.
#[test]
fn what_came_is_read_whatever_the_answer_to_it_meets() {
    let ways: [fn() -> Error; 4] = [
        || Error::PeerLost,
        || Error::StaleCookie,
        || Error::Refused(clan_dsm::Reason::BadKey),
        || Error::NoRoute,
    ];
    for why in ways {
        let lab = Lab::pair(6_000);
        let (mut writer, mut reader) = support::stream(&lab.0, &lab.1, stream::Config::new(4096));
        let bytes = [7; 4000];
        writer.write_all(&bytes).unwrap();
        writer.finish().unwrap();
        lab.0.deliver_all();
        lab.1.refuses_commits(u32::MAX, why);
        let mut came = Vec::new();
        reader.read_to_end(&mut came).unwrap_or_else(|error| panic!("{:?}: {error}", why()));
        assert!(came == bytes, "{:?}", why());
    }
}

/// What is delivered outlives the node of who wrote it.
#[test]
fn what_is_delivered_is_read_though_its_node_is_gone() {
    use landfall::clan::network::{ChannelConfig, HostId, Node, Peer};
    let builder = |number| Node::builder(HostId::new(number).unwrap());
    for round in 0..20_usize {
        let nodes = builder(1).linger(Duration::ZERO);
        let (one, two) = nodes.open_pair(builder(2), ChannelConfig::default()).unwrap();
        one.link(Peer::Node(1)).unwrap().wait_up(None).unwrap();
        two.wait_reached(one.host(), None).unwrap();
        let (mut writer, mut reader) = support::stream(&one, &two, stream::Config::DEFAULT);
        let bytes: Vec<u8> = (0..=round * 20_000).map(|at| (at % 255) as u8).collect();
        writer.write_all(&bytes).unwrap();
        writer.finish().unwrap();
        let delivered = one.wait_for(writer.delivered_async(), None).unwrap();
        delivered.expect("there is no deadline").unwrap();
        drop((writer, one));
        let mut came = Vec::new();
        reader.read_to_end(&mut came).unwrap();
        assert!(came == bytes, "{} of {} bytes", came.len(), bytes.len());
    }
}

#[test]
fn a_reader_that_closes_is_heard_of_by_who_waits_for_room() {
    let (one, two) = Threads::pair().unwrap();
    let (mut writer, mut reader) = support::stream(&one, &two, stream::Config::new(64));
    while writer.try_write(&[7; 64]).unwrap().is_some() {}
    let waiting = std::thread::spawn(move || writer.write_some(&[8], None));
    done_at_once(reader.close_async()).unwrap();
    let ended = waiting.join().unwrap();
    assert!(matches!(ended, Err(Error::Closed)), "{ended:?}");
}

/// Polls what need not wait over memory of one process.
fn done_at_once<T>(future: impl Future<Output = T>) -> T {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(future).poll(&mut context) {
        std::task::Poll::Ready(result) => result,
        std::task::Poll::Pending => panic!("there is nothing to wait for"),
    }
}
