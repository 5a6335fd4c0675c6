//! Whatever way an operation fails, the memory that was lent for it comes back, as it was or
//! with what arrived in it.

use std::time::Duration;

use super::{channel_pair, joined, loopback, memory_with, noise, pairs, run, within};
use landfall::stp::{
    Config, Connection, Ended, Endpoint, Error, Failed, Memory, Operation, Reason, RemoteMemory,
    RemoteRights,
};

/// The operation fails, and this is the memory that was lent for it.
async fn fails<T: std::fmt::Debug>(operation: Operation<T>) -> (Error, Memory)
where
    Operation<T>: Future<Output = Result<T, Failed>>,
{
    let (why, memory) = within(operation).await.unwrap_err().into_parts();
    let memory = memory.unwrap_or_else(|| panic!("the memory is gone: {why}"));
    (why, memory)
}

const LEN: usize = 10_000;

fn sent() -> Memory {
    memory_with(&noise(1, LEN))
}

/// What was to be sent is what it was.
async fn sends_fail(operations: Vec<Operation<landfall::stp::Sent>>) -> Vec<Error> {
    let mut errors = Vec::new();
    for operation in operations {
        let (why, memory) = fails(operation).await;
        assert!(*memory == noise(1, LEN));
        errors.push(why);
    }
    errors
}

/// A region of the other side that takes Puts and Gets.
async fn remote(here: &Connection, there: &Connection, to: &Endpoint) -> RemoteMemory {
    let asking = here.request_region(1, LEN as u64, RemoteRights::ALL).start();
    let asked = within(there.region_request()).await.unwrap();
    let region = to.register(Memory::zeroed(LEN)).unwrap();
    // It stays exposed as long as the connection is there.
    std::mem::forget(asked.expose(&region.whole(), RemoteRights::ALL).unwrap());
    within(asking).await.unwrap()
}

/// One of each kind that is lent memory, under way and not over: nothing at the other side
/// takes or answers them.
struct UnderWay {
    send: Operation<landfall::stp::Sent>,
    receive: Operation<landfall::stp::Message>,
    read: Operation<landfall::stp::Message>,
}

impl UnderWay {
    fn new(connection: &Connection) -> Self {
        Self {
            send: connection.send(sent()).start(),
            receive: connection.receive(Memory::zeroed(LEN)).start(),
            read: connection.read(Memory::zeroed(LEN), 1).start(),
        }
    }

    async fn fail(self) -> Vec<Error> {
        let mut errors = sends_fail(vec![self.send]).await;
        for operation in [self.receive, self.read] {
            let (why, memory) = fails(operation).await;
            assert_eq!(memory.len(), LEN);
            errors.push(why);
        }
        errors
    }
}

#[test]
fn it_comes_back_when_the_other_side_refuses() {
    run(async {
        for (name, pair) in pairs() {
            let (here, there) = joined(&pair).await;
            let UnderWay { send, receive, read } = UnderWay::new(&here);
            within(there.offer()).await.unwrap().refuse(Reason::Refused);
            within(there.read_request()).await.unwrap().refuse(Reason::Refused);
            let why = sends_fail(vec![send]).await;
            let is_refused = |why: &Error| {
                matches!(why, Error::Ended { why: Ended::There(Reason::Refused), .. })
            };
            assert!(is_refused(&why[0]), "{name}: {why:?}");
            let (why, _) = fails(read).await;
            assert!(is_refused(&why), "{name}: {why}");
            // What comes is longer than the memory: both sides have theirs back.
            let sending = there.send(memory_with(&noise(2, LEN + 1))).start();
            let (why, memory) = fails(receive).await;
            assert!(matches!(why, Error::Ended { why: Ended::DoesNotFit, .. }), "{name}: {why}");
            assert_eq!(memory.len(), LEN);
            let (_, memory) = fails(sending).await;
            assert!(*memory == noise(2, LEN + 1));
        }
    });
}

#[test]
fn it_comes_back_from_puts_and_gets_that_the_other_side_does_not_allow() {
    run(async {
        for (name, pair) in pairs() {
            let (here, there) = joined(&pair).await;
            let remote = remote(&here, &there, &pair.1).await;
            // Out of bounds: the engine does not begin it.
            let (why, memory) = fails(remote.put(1, sent())).await;
            assert!(matches!(why, Error::Refused(_)), "{name}: {why}");
            assert!(*memory == noise(1, LEN));
            let (why, memory) = fails(remote.get(1, Memory::zeroed(LEN))).await;
            assert!(matches!(why, Error::Refused(_)), "{name}: {why}");
            assert_eq!(memory.len(), LEN);
        }
    });
}

#[test]
fn it_comes_back_when_the_connection_ends() {
    run(async {
        for (name, pair) in pairs() {
            // By this side, and by the other one.
            for way in 0..2 {
                let (here, there) = joined(&pair).await;
                let remote = remote(&here, &there, &pair.1).await;
                let under_way = UnderWay::new(&here);
                if way == 0 {
                    here.abort();
                } else {
                    there.abort();
                }
                let errors = under_way.fail().await;
                assert_eq!(errors.len(), 3, "{name} {way}");
                // What begins afterwards fails at once.
                let _ = within(here.closed()).await;
                let errors = UnderWay::new(&here).fail().await;
                let is_closed = |why: &Error| matches!(why, Error::Closed { .. });
                assert!(errors.iter().all(is_closed), "{name} {way}: {errors:?}");
                let (why, memory) = fails(remote.put(0, sent())).await;
                assert!(is_closed(&why), "{name} {way}: {why}");
                assert!(*memory == noise(1, LEN));
                let (why, _) = fails(remote.get(0, Memory::zeroed(LEN))).await;
                assert!(is_closed(&why), "{name} {way}: {why}");
            }
        }
    });
}

#[test]
fn it_comes_back_when_a_connection_closes_gracefully_before_anything_came() {
    run(async {
        for (name, pair) in pairs() {
            let (here, there) = joined(&pair).await;
            let waiting: Vec<_> =
                (0..3).map(|_| here.receive(Memory::zeroed(LEN)).start()).collect();
            within(there.close()).await.unwrap();
            for waiting in waiting {
                let (why, memory) = fails(waiting).await;
                assert!(why.is_graceful_close(), "{name}: {why}");
                assert_eq!(memory.len(), LEN);
            }
        }
    });
}

#[test]
fn it_comes_back_when_the_endpoint_is_closed() {
    run(async {
        let builder = || Endpoint::builder().path(loopback()).linger(Duration::from_millis(20));
        let pair = (builder().bind().unwrap(), builder().bind().unwrap());
        let to = pair.1.local().unwrap();
        let pair = (pair.0, pair.1, to);
        let (here, _there) = joined(&pair).await;
        let under_way = UnderWay::new(&here);
        within(pair.0.clone().close()).await;
        let errors = under_way.fail().await;
        assert_eq!(errors.len(), 3);
        // Afterwards, too, however far the endpoint has let go of its paths.
        let errors = UnderWay::new(&here).fail().await;
        assert!(errors.iter().all(|why| matches!(why, Error::Closed { .. })), "{errors:?}");
        assert_eq!(pair.0.stats().regions, 0);
    });
}

/// A peer that answers until the connection is open, and then never again.
#[test]
fn it_comes_back_when_the_other_side_falls_silent() {
    run(async {
        let config = Config {
            retry_after: Duration::from_millis(5),
            give_up_after: 3,
            keep_alive: None,
            ..Config::shared_network()
        };
        let builder = || Endpoint::builder().config(config.clone()).path(loopback());
        let (a, b) = (builder().bind().unwrap(), builder().bind().unwrap());
        let to = b.local().unwrap();
        let pair = (a, b, to);
        let (here, there) = joined(&pair).await;
        let remote = remote(&here, &there, &pair.1).await;
        pair.1.set_path_up(pair.1.paths()[0], false).unwrap();
        let getting = remote.get(0, Memory::zeroed(LEN)).start();
        let putting = remote.put(0, sent()).start();
        let errors = UnderWay::new(&here).fail().await;
        let is_silent = |why: &Error| {
            matches!(
                why,
                Error::Ended { why: Ended::Silent | Ended::ConnectionGone, .. }
                    | Error::Closed { why: Some(Ended::Silent) }
            )
        };
        assert!(errors.iter().all(is_silent), "{errors:?}");
        let (why, memory) = fails(putting).await;
        assert!(is_silent(&why), "{why}");
        assert!(*memory == noise(1, LEN));
        let (why, memory) = fails(getting).await;
        assert!(is_silent(&why), "{why}");
        assert_eq!(memory.len(), LEN);
        within(async {
            // All of it was given back: none is lent any more.
            while pair.0.stats().regions > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
        drop(there);
    });
}

#[test]
fn it_comes_back_from_what_is_cancelled_in_every_state() {
    run(async {
        for (name, pair) in pairs() {
            let (here, there) = joined(&pair).await;
            let is_cancelled = |why: &Error| matches!(why, Error::Ended { why: Ended::Here, .. });
            // Not begun.
            let mut sending = here.send(sent());
            sending.cancel();
            let (why, memory) = fails(sending).await;
            assert!(is_cancelled(&why) && *memory == noise(1, LEN), "{name}: {why}");
            // Begun, and not taken; waiting for a slot; waiting for something to come.
            let mut sending: Vec<_> = (0..300).map(|_| here.send(sent()).start()).collect();
            let mut waiting: Vec<_> =
                (0..3).map(|_| here.receive(Memory::zeroed(LEN)).start()).collect();
            let mut reading = here.read(Memory::zeroed(LEN), 1).start();
            sending.iter_mut().for_each(Operation::cancel);
            waiting.iter_mut().for_each(Operation::cancel);
            reading.cancel();
            // Twice is as good as once.
            reading.cancel();
            let errors = sends_fail(sending).await;
            assert!(errors.iter().all(is_cancelled), "{name}: {errors:?}");
            for operation in waiting.into_iter().chain([reading]) {
                let (why, memory) = fails(operation).await;
                assert!(is_cancelled(&why), "{name}: {why}");
                assert_eq!(memory.len(), LEN);
            }
            let stats = pair.0.stats();
            assert_eq!((stats.operations, stats.regions), (0, 0), "{name}");
            drop(there);
        }
    });
}

#[test]
fn an_offer_whose_acceptance_is_cancelled_is_refused_and_one_that_is_over_is_not() {
    run(async {
        for (name, pair) in pairs() {
            let (here, there) = joined(&pair).await;
            let sending = here.send(sent()).start();
            let mut accepting = within(there.offer()).await.unwrap().accept(Memory::zeroed(LEN));
            accepting.cancel();
            let (_, memory) = fails(accepting).await;
            assert_eq!(memory.len(), LEN);
            let why = sends_fail(vec![sending]).await;
            assert!(why[0].to_string().contains("refused"), "{name}: {why:?}");

            let sending = here.send(sent()).start();
            let mut receiving = there.receive(Memory::zeroed(LEN)).start();
            let sent = within(sending).await.unwrap();
            assert!(*sent.memory.unwrap() == noise(1, LEN));
            // All of it is there, whether this side has heard of it or not.
            while pair.1.stats().operations > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            receiving.cancel();
            assert!(*within(receiving).await.unwrap() == noise(1, LEN), "{name}");
        }
    });
}

#[test]
fn it_comes_back_when_no_more_may_be_registered() {
    run(async {
        let builder = || Endpoint::builder().path(loopback()).regions(1);
        let (a, b) = (builder().bind().unwrap(), builder().bind().unwrap());
        let to = b.local().unwrap();
        let pair = (a, b, to);
        let (here, _there) = joined(&pair).await;
        let _one = pair.0.register(Memory::zeroed(1)).unwrap();
        let errors = UnderWay::new(&here).fail().await;
        assert!(errors.iter().all(|why| matches!(why, Error::NotLent(_))), "{errors:?}");
        let failed = pair.0.register(sent()).unwrap_err();
        assert!(*failed.into_memory().unwrap() == noise(1, LEN));
    });
}

#[test]
fn registered_memory_and_copies_are_not_given_back_and_a_reason_is_an_error() {
    run(async {
        let pair = channel_pair();
        let (here, there) = joined(&pair).await;
        let region = pair.0.register(sent()).unwrap();
        let sending = [
            here.send(&region).start(),
            here.send("text that is not lent").start(),
            here.send(noise(1, LEN)).start(),
        ];
        there.abort();
        for sending in sending {
            let failed = within(sending).await.unwrap_err();
            assert_eq!(failed.to_string(), failed.why().to_string());
            assert!(failed.into_memory().is_none());
        }
        assert!(*within(region.take_back()).await.unwrap() == noise(1, LEN));
        // As `?` does it.
        let reason = async { Ok::<_, Error>(here.send("too late").await?) };
        assert!(matches!(within(reason).await, Err(Error::Closed { .. })));
    });
}
