//! The programming layer of CLAN.
//!
//! | module | what it proves |
//! | --- | --- |
//! | `sequences` | any sequence of calls gives what a list gives, also when a peer dies |
//! | `wakeups` | nobody sleeps for ever, whatever arrives when |
//! | `partings` | who has taken all may go at once, and that is no failure |
//! | `hostile` | a peer that scribbles spoils its own data only |
//! | `threads` | all of it between threads that really wait |
//! | `shared` | the same over memory that processes share |
//! | `network` | the same over a network |
//! | `several` | the same over nodes of several engines |
//! | `shapes` | many producers and consumers, work queues, blackboards, waiting for any |
//! | `lab` | a fabric on which each word arrives on its own |
//! | `suite` | what holds on any fabric |

mod hostile;
mod lab;
mod partings;
mod sequences;
mod shapes;
mod suite;
mod support;
mod threads;
mod wakeups;

/// The programming layer over a network, within this process.
mod network {
    use std::time::{Duration, Instant};

    use landfall::clan::network::{ChannelConfig, HostId, Node, Peer};

    use super::suite;

    fn pair() -> (Node, Node) {
        let builder = |number| Node::builder(HostId::new(number).unwrap());
        let (one, two) = builder(1).open_pair(builder(2), ChannelConfig::default()).unwrap();
        let soon = Some(Instant::now() + Duration::from_secs(60));
        one.link(Peer::Node(1)).unwrap().wait_up(soon).unwrap();
        two.wait_reached(one.host(), soon).unwrap();
        (one, two)
    }

    suite::over_each_test! {
        let (one, two) = pair();
        suite((&one, &two), {
            let (driving, two) = (two.clone(), two.clone());
            move || driving.wait_for(two.close(), None).map_or((), drop)
        });
    }
}

/// The programming layer over nodes of several engines.
mod several {
    use super::suite;
    use crate::clan::threads_pair;

    suite::over_each_test! {
        let (one, two) = threads_pair();
        suite((&one, &two), {
            let (driving, two) = (two.clone(), two.clone());
            move || driving.wait_for(two.close(), None).map_or((), drop)
        });
    }
}

/// The programming layer over memory that processes share; here both nodes are in one.
mod shared {
    use landfall::clan::shared::{SharedConfig, SharedNode};
    use landfall_testkit::TemporaryFolder;

    use super::suite;

    /// Two nodes that meet in a folder of their own, which goes with them.
    struct Meeting {
        one: SharedNode,
        two: SharedNode,
        _folder: TemporaryFolder,
    }

    impl Meeting {
        fn new() -> Self {
            let folder = TemporaryFolder::new("layer");
            let node = || SharedNode::open(SharedConfig::new(folder.path())).unwrap();
            let (one, two) = (node(), node());
            Self { one, two, _folder: folder }
        }
    }

    suite::over_each_test! {
        let (meeting, _none) = (Meeting::new(), ());
        suite((&meeting.one, &meeting.two), { let two = meeting.two.clone(); move || two.close() });
    }
}
