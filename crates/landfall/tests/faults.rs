//! What people do with handles goes well over bad networks too.

mod support;

use std::io;

use landfall::stp::{Config, Endpoint, Memory, Peer, RemoteRights, Transport};
use landfall_placement::Duration;
use landfall_transport::fault::{Faults, Faulty};
use landfall_transport::udp::{UdpConfig, UdpDriver};
use support::{joined, noise, run, within};

/// Of a million packets.
const MANY: u32 = 100_000;

fn bad_udp(seed: u8) -> Transport {
    let faults = Faults {
        loss: MANY,
        duplication: MANY,
        reordering: MANY,
        corruption: MANY / 5,
        ..Faults::default()
    };
    Transport::driver(move |path, regions| {
        let config = UdpConfig::new(([127, 0, 0, 1], 0).into(), 1500);
        let driver = UdpDriver::open(path, config, regions)?;
        PORTS.with(|ports| ports.borrow_mut().push(driver.local_address()));
        Faulty::new(driver, faults, [seed; 32], regions).map_err(io::Error::other)
    })
}

thread_local! {
    /// A driver that was handed in has an address that only it knows.
    static PORTS: std::cell::RefCell<Vec<std::net::SocketAddr>> = const { std::cell::RefCell::new(Vec::new()) };
}

fn bad_pair() -> (Endpoint, Endpoint, Peer) {
    let config =
        Config { give_up_after: 100, retry_after: Duration::from_millis(10), ..Config::default() }
            .with_checksum();
    let bind = |seed| {
        let builder = Endpoint::builder().config(config.clone());
        builder.path(bad_udp(seed)).bind().expect("loopback")
    };
    let (a, b) = (bind(1), bind(2));
    let to_b = PORTS.with(|ports| ports.take()).pop().expect("an address");
    (a, b, Peer::from(to_b))
}

#[test]
fn transfers_reads_and_remote_memory_survive_every_fault() {
    run(async {
        let pair = bad_pair();
        let (here, there) = joined(&pair).await;
        let sending: Vec<_> =
            (0..10u32).map(|n| here.send(noise(n.into(), 100_000)).opaque(n).start()).collect();
        let mut arrived = Vec::new();
        for _ in 0..10 {
            let message = within(there.receive(Memory::zeroed(100_000))).await.unwrap();
            assert!(*message == noise(message.opaque().into(), 100_000));
            arrived.push(message.opaque());
        }
        arrived.sort_unstable();
        assert!(arrived.into_iter().eq(0..10), "each once");
        for sending in sending {
            within(sending).await.unwrap();
        }

        let reading = here.read(Memory::zeroed(50_000), 1).start();
        let request = within(there.read_request()).await.unwrap();
        let answering = request.answer(noise(50, 50_000)).start();
        assert!(*within(reading).await.unwrap() == noise(50, 50_000));
        within(answering).await.unwrap();

        let region = pair.1.register(Memory::zeroed(4096)).unwrap();
        let asking = here.request_region(1, 4096, RemoteRights::ALL).start();
        let asked = within(there.region_request()).await.unwrap();
        let exposed = asked.expose(&region.whole(), RemoteRights::ALL).unwrap();
        let remote = within(asking).await.unwrap();
        let adding: Vec<_> = (0..100).map(|_| remote.fetch_add(0, 1).start()).collect();
        for (n, adding) in adding.into_iter().enumerate() {
            assert_eq!(within(adding).await.unwrap(), n as u64, "each once, in order");
        }
        within(exposed.revoke()).await;
        let memory = within(region.take_back()).await.unwrap();
        assert_eq!(memory[..8], 100u64.to_le_bytes());

        within(here.close()).await.unwrap();
        within(there.closed()).await.unwrap();
        let stats = pair.1.stats();
        assert_eq!((stats.operations, stats.granted_bytes), (0, 0));
    });
}
