//! How far Transfers are, from both ends, for tasks and threads.

use super::{PATIENCE, joined, memory_with, noise, pairs, run, udp_pair, within};
use landfall::stp::{Memory, Progress, RemoteRights, Stalled};
use landfall_placement::Duration;

const LEN: usize = 8 << 20;

/// All numbers of a stream, to its end.
async fn all(mut progress: Progress) -> Vec<u64> {
    let mut seen = Vec::new();
    while let Some(bytes) = within(progress.next()).await {
        assert!(progress.bytes() >= bytes);
        seen.push(bytes);
    }
    // What is over stays over.
    assert_eq!(progress.next().await, None);
    seen
}

fn is_of_a_whole(seen: &[u64], len: usize) -> bool {
    seen.is_sorted_by(|a, b| a < b) && seen.last() == Some(&(len as u64))
}

#[test]
fn a_transfer_tells_both_ends_how_far_it_is() {
    run(async {
        for (name, pair) in pairs() {
            let (here, there) = joined(&pair).await;
            let mut sending = here.send(memory_with(&noise(1, LEN))).start();
            let mut receiving = there.receive(Memory::zeroed(LEN));
            let progress = (sending.progress(), receiving.progress());
            let (sent, received) =
                tokio::join!(tokio::spawn(all(progress.0)), tokio::spawn(all(progress.1)),);
            for seen in [sent.unwrap(), received.unwrap()] {
                assert!(is_of_a_whole(&seen, LEN), "{name}: {seen:?}");
            }
            assert!(*within(receiving).await.unwrap() == noise(1, LEN));
            assert_eq!(within(sending).await.unwrap().len, LEN as u64);
        }
    });
}

#[test]
fn reads_and_gets_tell_how_far_they_are() {
    run(async {
        for (name, pair) in pairs() {
            let (here, there) = joined(&pair).await;
            let mut reading = here.read(Memory::zeroed(LEN), 1).start();
            let progress = reading.progress();
            let request = within(there.read_request()).await.unwrap();
            let answering = request.answer(noise(1, LEN)).start();
            assert!(is_of_a_whole(&all(progress).await, LEN), "{name}");
            within(reading).await.unwrap();
            within(answering).await.unwrap();

            let region = pair.1.register(memory_with(&noise(2, LEN))).unwrap();
            let asking = here.request_region(1, LEN as u64, RemoteRights::ALL).start();
            let asked = within(there.region_request()).await.unwrap();
            let _exposed = asked.expose(&region.whole(), RemoteRights::ALL).unwrap();
            let remote = within(asking).await.unwrap();
            let mut getting = remote.get(0, Memory::zeroed(LEN));
            assert!(is_of_a_whole(&all(getting.progress()).await, LEN), "{name}");
            assert!(*within(getting).await.unwrap() == noise(2, LEN));
        }
    });
}

#[test]
fn what_waits_makes_no_progress_and_what_fails_ends_the_stream() {
    run(async {
        for (name, pair) in pairs() {
            let (here, there) = joined(&pair).await;
            let mut receiving = there.receive(Memory::zeroed(LEN));
            let mut progress = receiving.progress();
            assert_eq!(progress.wait_for(Duration::from_millis(1)), Err(Stalled), "{name}");
            assert_eq!(progress.bytes(), 0);
            receiving.cancel();
            assert_eq!(all(progress).await, [], "{name}");
            within(receiving).await.unwrap_err();
            // Many that wait for a slot, each with somebody who looks.
            let mut sending: Vec<_> = (0..200).map(|_| here.send(vec![1; 100])).collect();
            let progress: Vec<_> = sending.iter_mut().map(|sending| sending.progress()).collect();
            there.abort();
            for progress in progress {
                assert_eq!(all(progress).await, [], "{name}");
            }
            // Of what failed already there is none.
            for mut sending in sending {
                let _ = sending.progress();
                within(&mut sending).await.unwrap_err();
                assert_eq!(all(sending.progress()).await, []);
            }
        }
    });
}

#[test]
fn several_look_and_some_look_no_more() {
    run(async {
        for (name, pair) in pairs() {
            let (here, there) = joined(&pair).await;
            let sending = here.send(memory_with(&noise(1, LEN))).start();
            let mut receiving = there.receive(Memory::zeroed(LEN));
            let (one, two, three) =
                (receiving.progress(), receiving.progress(), receiving.progress());
            drop(two);
            let (one, three) = tokio::join!(tokio::spawn(all(one)), tokio::spawn(all(three)));
            for seen in [one.unwrap(), three.unwrap()] {
                assert!(is_of_a_whole(&seen, LEN), "{name}: {seen:?}");
            }
            // All is there, and who comes late is told so once.
            assert_eq!(all(receiving.progress()).await, [LEN as u64], "{name}");
            within(receiving).await.unwrap();
            within(sending).await.unwrap();
        }
    });
}

#[test]
fn a_thread_looks_while_it_drives() {
    let pair = udp_pair();
    let (here, there) = run(joined(&pair));
    let bytes = noise(1, LEN);
    let mut sending = here.send(memory_with(&bytes)).start();
    let receiving = there.receive(Memory::zeroed(LEN)).start();
    let mut progress = sending.progress();
    let mut seen = Vec::new();
    while let Some(bytes) = progress.wait_for(PATIENCE).expect("it goes on") {
        seen.push(bytes);
    }
    assert!(is_of_a_whole(&seen, LEN), "{seen:?}");
    sending.wait().unwrap();
    assert!(*receiving.wait().unwrap() == *bytes);
}
