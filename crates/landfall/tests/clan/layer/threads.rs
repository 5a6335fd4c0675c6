//! The programming layer over the fabric between threads of one process.

use super::support::bytes;
use super::{suite, support};
use landfall::clan::layer::{multipart, queue, rpc, stream};
use landfall::clan::{Error, Fabric, Rights, Threads};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

suite::over_each_test! {
    let (one, two) = Threads::pair().unwrap();
    suite((&one, &two), { let two = two.clone(); move || two.end() });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_wait_without_a_thread() {
    let (one, two) = Threads::pair().unwrap();
    let (mut here, mut there) = support::both(&one, &two, stream::Config::new(4096));
    let echo = tokio::spawn(async move {
        let (mut reader, mut writer) = tokio::io::split(&mut there);
        tokio::io::copy(&mut reader, &mut writer).await.unwrap();
        writer.shutdown().await.unwrap();
    });
    let all = bytes(1, 100_000);
    let sent = all.clone();
    let (mut reader, mut writer) = tokio::io::split(&mut here);
    let write = async {
        writer.write_all(&sent).await.unwrap();
        writer.shutdown().await.unwrap();
    };
    let mut got = Vec::new();
    let (_, read) = tokio::join!(write, reader.read_to_end(&mut got));
    read.unwrap();
    assert!(got == all);
    echo.await.unwrap();

    let (mut sender, mut receiver) = support::queue(&one, &two, queue::Config::new(8, 16));
    let putting = tokio::spawn(async move {
        for nth in 0..5000_u64 {
            sender.put_async(&nth.to_le_bytes()).await.unwrap();
        }
    });
    for nth in 0..5000_u64 {
        let mut into = [0; 8];
        receiver.get_async(&mut into).await.unwrap();
        assert_eq!(into, nth.to_le_bytes());
    }
    putting.await.unwrap();

    let (mut client, mut server) = support::rpc(&one, &two, rpc::Config::new(64, 64));
    let serving = tokio::spawn(async move {
        while let Ok(request) = server.next_async().await {
            let bytes = request.to_vec().unwrap();
            request.reply(&bytes).unwrap();
        }
    });
    for nth in 0..500 {
        assert_eq!(client.call_async(&bytes(nth, 30)).await.unwrap(), bytes(nth, 30));
    }
    drop(client);
    drop(one);
    two.end();
    serving.await.unwrap();
}

#[test]
fn both_sides_have_to_agree() {
    let (one, two) = Threads::pair().unwrap();
    let sender = queue::Sender::open(&one, queue::Config::new(8, 16)).unwrap();
    let receiver = queue::Receiver::open(&two, queue::Config::new(8, 17)).unwrap();
    let wrong = sender.connect(&receiver.cookie());
    assert!(matches!(wrong, Err(Error::Mismatch { expected: 256, found: 264 })), "{wrong:?}");
    for config in [queue::Config::new(0, 1), queue::Config::new(1, 0)] {
        let wrong = queue::Receiver::open(&two, config);
        assert!(matches!(wrong, Err(Error::BadConfig(_))), "{wrong:?}");
    }
    let small = multipart::Config::DEFAULT.ring(64);
    assert!(matches!(multipart::Receiver::open(&two, small), Err(Error::BadConfig(_))));
}

#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() {
    let (one, two) = Threads::pair().unwrap();
    let (mut sender, mut receiver) = support::queue(&one, &two, queue::Config::new(8, 4).singly());
    for wrong in [sender.try_put(&[0; 7]).map(drop), sender.try_put_many(&[0; 17]).map(drop)] {
        assert!(matches!(wrong, Err(Error::TooLong { .. })), "{wrong:?}");
    }
    assert!(receiver.try_get(&mut [0; 9]).is_err());
    assert!(receiver.peek(4, &mut [0; 5]).is_err());
    assert!(sender.try_put(&[1; 8]).unwrap());
    let mut part = [0; 3];
    assert!(receiver.peek(5, &mut part).unwrap());
    assert_eq!((part, receiver.available().unwrap()), ([1; 3], 1));
    let (mut client, _server) = support::rpc(&one, &two, rpc::Config::new(4, 4));
    let wrong = client.call(&[0; 5], None);
    assert!(matches!(wrong, Err(Error::TooLong { len: 5, most: 4 })), "{wrong:?}");
}

#[test]
fn a_receiver_that_closes_is_noticed_when_there_is_no_room() {
    let (one, two) = Threads::pair().unwrap();
    let (mut sender, receiver) = support::queue(&one, &two, queue::Config::new(8, 4).singly());
    drop(receiver);
    let end = (0..6).find_map(|_| sender.put(&[0; 8], None).err());
    assert!(matches!(end, Some(Error::Closed)), "{end:?}");
}

#[test]
fn a_cookie_is_good_for_what_it_was_given_for() {
    let (one, two) = Threads::pair().unwrap();
    let (memory, cookie) = one.expose(64, Rights::Write).unwrap();
    let passed_on = landfall::clan::Cookie::from_bytes(&cookie.to_bytes()).unwrap();
    assert!(two.map(&passed_on).is_ok());
    drop(memory);
    assert!(matches!(two.map(&passed_on), Err(Error::StaleCookie)));
}
