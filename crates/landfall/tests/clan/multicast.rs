//! Groups by a multicast address of a real network: a write leaves the interface once.

use std::net::SocketAddr;

use super::groups::publish_to_members;
use super::{builder, host, loopback, noise, soon, until};
use landfall::clan::network::{
    Aperture, Builder, Config, Faults, Group, MemberDelivery, Node, OpenError, Peer, Transport,
};
use landfall::clan::{Error, Fabric, Local, Rights};
use landfall_placement::Refusal;
use landfall_testbed::{BridgedNetwork, VethEnd, require_namespaces};
use landfall_transport::multicast::MulticastSocket;

const LEN: u64 = 16 << 10;
const PORT: u16 = 4900;

/// How the nodes of a network are reached, and which group they hear.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Udp4,
    Udp6,
    Ethernet,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Udp4, Self::Udp6, Self::Ethernet];

    fn local(self, end: &VethEnd) -> Peer {
        match self {
            Self::Udp4 => Peer::Socket((end.ipv4, PORT).into()),
            Self::Udp6 => Peer::Socket((end.ipv6, PORT).into()),
            Self::Ethernet => Peer::Ethernet(end.mac.0),
        }
    }

    /// The group, as it is called at this interface.
    fn group(self, end: &VethEnd) -> Peer {
        match self {
            Self::Udp4 => Peer::Socket("239.255.76.82:8186".parse().unwrap()),
            Self::Udp6 => {
                let group = format!("[ff12::4c:1%{}]:8186", end.index);
                Peer::Socket(group.parse().unwrap())
            }
            Self::Ethernet => Peer::Ethernet([0x03, b'l', b'f', 0, 0, 1]),
        }
    }

    fn path(self, end: &VethEnd) -> Transport {
        match self.local(end) {
            Peer::Socket(local) => Transport::udp(local),
            _ => Transport::ethernet(&*end.name),
        }
    }

    fn builder(self, number: u16, end: &VethEnd) -> Builder {
        builder(number).path(self.path(end)).multicast(self.group(end))
    }
}

/// Opens a node in the namespace of an interface.
fn open(builder: Builder, end: &VethEnd) -> Node {
    end.namespace.enter(|| builder.open()).unwrap().unwrap()
}

/// A node for each end, the first with links to the others.
fn nodes(kind: Kind, network: &BridgedNetwork, change: impl Fn(Builder) -> Builder) -> Vec<Node> {
    let ends = network.ends();
    let nodes: Vec<Node> =
        (1..).zip(ends).map(|(n, end)| open(change(kind.builder(n, end)), end)).collect();
    for (node, end) in nodes.iter().zip(ends).skip(1) {
        nodes[0].link(kind.local(end)).unwrap().wait_up(soon()).unwrap();
        node.wait_reached(host(1), soon()).unwrap();
    }
    nodes
}

/// A group of the first node with memory of each of the others, which all hear its address.
fn group_of(nodes: &[Node]) -> (Group, Vec<Aperture>) {
    let mut group = nodes[0].found_group(LEN).unwrap();
    let memories: Vec<_> = nodes[1..]
        .iter()
        .map(|node| {
            let (memory, _) = node.expose(LEN, Rights::Write).unwrap();
            node.join_group(&group.cookie(), &memory).unwrap();
            group.add(node.host()).unwrap();
            memory
        })
        .collect();
    until(&nodes[0], || {
        group.publish(&[(0, &[0; 8])]).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(1));
        group.reached() == memories.len()
    });
    group.wait_delivered(soon()).unwrap();
    (group, memories)
}

/// Publishes until all were given it.
fn publish(group: &mut Group, node: &Node, writes: &[(u64, &[u8])]) {
    until(node, || {
        let told = group.publish(writes).unwrap();
        let is_member = |told: &MemberDelivery| matches!(told.result, Ok(()) | Err(Error::Busy));
        assert!(told.iter().all(is_member), "{told:?}");
        told.iter().all(|told| told.result.is_ok())
    });
}

#[test]
fn a_write_leaves_the_interface_once_whatever_the_number_of_members() {
    require_namespaces!();
    const WRITES: u64 = 200;
    for (kind, is_plain) in Kind::ALL.into_iter().flat_map(|kind| [(kind, false), (kind, true)]) {
        let network = BridgedNetwork::new(4).unwrap();
        let secured = |builder: Builder| if is_plain { builder.plaintext() } else { builder };
        let nodes = nodes(kind, &network, secured);
        let (mut group, memories) = group_of(&nodes);
        let (sent, before) =
            (network.ends()[0].counters().unwrap().sent_packets, nodes[0].stats().engine);
        for round in 1..=WRITES {
            let bytes = noise(round, 100);
            let told = group.publish(&[(64, &bytes), (0, &round.to_le_bytes())]).unwrap();
            assert!(told.len() == 3 && told.iter().all(|told| told.result.is_ok()), "{told:?}");
            for (node, memory) in nodes[1..].iter().zip(&memories) {
                until(node, || memory.load(0).unwrap() == round);
                let mut found = vec![0; 100];
                memory.copy_out(64, &mut found).unwrap();
                assert!(found == bytes, "{kind:?}, round {round}");
            }
        }
        let after = nodes[0].stats().engine;
        let frames = network.ends()[0].counters().unwrap().sent_packets - sent;
        let repairs = after.repairs - before.repairs;
        assert_eq!(after.multicasts - before.multicasts, WRITES, "{kind:?}");
        // The kernel and links have a little to say, too.
        let most = WRITES + repairs + WRITES / 4;
        assert!((WRITES..most).contains(&frames), "{kind:?}: {frames} frames, {repairs} repairs");
        group.wait_delivered(soon()).unwrap();
    }
}

#[test]
fn long_writes_arrive_at_all_whatever_the_network_loses() {
    require_namespaces!();
    let faults = Faults { duplication: 20_000, reordering: 50_000, ..Faults::loss(50_000) };
    for kind in Kind::ALL {
        let network = BridgedNetwork::new(3).unwrap();
        let ends = network.ends();
        let mut nodes = Vec::new();
        for (number, end) in (1..).zip(ends) {
            let path = kind.path(end).with_faults(faults, [number as u8; 32]);
            let builder = builder(number).path(path).multicast(kind.group(end));
            nodes.push(open(builder, end));
        }
        for (node, end) in nodes.iter().zip(ends).skip(1) {
            nodes[0].link(kind.local(end)).unwrap().wait_up(soon()).unwrap();
            node.wait_reached(host(1), soon()).unwrap();
        }
        let (mut group, memories) = group_of(&nodes);
        for round in 1..=100u64 {
            let bytes = noise(round, 8000);
            publish(&mut group, &nodes[0], &[(64, &bytes), (0, &round.to_le_bytes())]);
            if round % 10 == 0 {
                group.wait_delivered(soon()).unwrap();
                for memory in &memories {
                    assert_eq!(memory.load(0).unwrap(), round);
                    let mut found = vec![0; 8000];
                    memory.copy_out(64, &mut found).unwrap();
                    assert!(found == bytes, "{kind:?}, round {round}");
                }
            }
        }
        let engine = nodes[0].stats().engine;
        assert!(engine.repairs > 0 && engine.multicasts > 500, "{kind:?}: {engine:?}");
    }
}

/// What is heard by a group's address is sealed with a key of the group, which changes when
/// a member is removed.
#[test]
fn who_is_no_member_of_a_group_reads_nothing_of_it() {
    require_namespaces!();
    let network = BridgedNetwork::new(4).unwrap();
    let ends = network.ends();
    let kind = Kind::Udp4;
    let mut nodes = nodes(kind, &network, |builder| builder);
    // The last one goes, and another listens in its place.
    drop(nodes.pop());
    let Peer::Socket(address) = kind.group(&ends[3]) else { panic!("UDP") };
    let listen = || MulticastSocket::open(address, Some(ends[3].ipv4));
    let listener = ends[3].namespace.enter(listen).unwrap().unwrap();
    let (mut group, memories) = group_of(&nodes);
    let text = b"nobody but members reads this, and no others write it";
    let mut heard = Vec::new();
    let hear = |heard: &mut Vec<Vec<u8>>| {
        let mut unit = [0; 2048];
        while let Some((len, from)) = listener.receive(&mut unit).unwrap() {
            assert_eq!(from.port(), PORT);
            heard.push(unit[..len].to_vec());
        }
    };
    publish(&mut group, &nodes[0], &[(64, text), (0, &1u64.to_le_bytes())]);
    group.wait_delivered(soon()).unwrap();
    until(&nodes[0], || {
        hear(&mut heard);
        heard.iter().any(|unit| unit.len() > text.len())
    });
    assert!(heard.iter().all(|unit| !unit.windows(8).any(|part| text.starts_with(part))));
    let mut found = [0; 53];
    memories[0].copy_out(64, &mut found).unwrap();
    assert_eq!(&found, text);

    // A unit that comes again, as it was or changed on its way, changes nothing.
    for unit in &heard {
        let mut changed = unit.clone();
        // The number of the unit is among these, and hidden.
        changed[16..].iter_mut().for_each(|byte| *byte ^= 0x55);
        for bytes in [unit, &changed] {
            listener.send(bytes, address).unwrap();
        }
    }
    publish(&mut group, &nodes[0], &[(0, &2u64.to_le_bytes())]);
    group.wait_delivered(soon()).unwrap();
    let mut found = [0; 53];
    memories[0].copy_out(64, &mut found).unwrap();
    assert_eq!((memories[0].load(0).unwrap(), &found), (2, text));

    // The second member is removed: it hears units, and has no key.
    group.remove(host(3));
    let is_over = |node: &Node| node.stats().refusals.of(Refusal::UnknownId);
    let unknown = is_over(&nodes[2]);
    let mut round = 2u64;
    until(&nodes[0], || {
        round += 1;
        group.publish(&[(0, &round.to_le_bytes())]).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(1));
        group.reached() == 1 && is_over(&nodes[2]) > unknown
    });
    let last = memories[1].load(0).unwrap();
    group.wait_delivered(soon()).unwrap();
    for next in round + 1..round + 50 {
        publish(&mut group, &nodes[0], &[(0, &next.to_le_bytes())]);
        until(&nodes[1], || memories[0].load(0).unwrap() == next);
    }
    assert_eq!(memories[1].load(0).unwrap(), last, "it was removed");
}

#[test]
fn publications_reach_their_subscribers_by_a_multicast_address() {
    require_namespaces!();
    for kind in Kind::ALL {
        let network = BridgedNetwork::new(4).unwrap();
        let nodes = nodes(kind, &network, |builder| builder);
        publish_to_members(&nodes[0], &nodes[1..].iter().collect::<Vec<_>>());
        assert!(nodes[0].stats().engine.multicasts > 100, "{kind:?}");
    }
}

#[test]
fn a_member_that_is_killed_holds_up_no_other() {
    require_namespaces!();
    let network = BridgedNetwork::new(4).unwrap();
    let config = Config { give_up_after: 2, ..Config::shared_network() };
    let nodes = nodes(Kind::Udp4, &network, |builder| builder.config(config.clone()));
    let (mut group, memories) = group_of(&nodes);
    network.ends()[2].set_up(false).unwrap();
    for round in 1..=500u64 {
        until(&nodes[0], || {
            let told = group.publish(&[(64, &noise(round, 1000)), (0, &round.to_le_bytes())]);
            let told = told.unwrap();
            let is_ok =
                |number| told.iter().any(|told| told.member == host(number) && told.result.is_ok());
            is_ok(2) && is_ok(4)
        });
    }
    for nth in [0, 2] {
        until(&nodes[nth + 1], || memories[nth].load(0).unwrap() == 500);
    }
    assert!(memories[1].load(0).unwrap() < 500);
}

#[test]
fn without_a_network_that_multicasts_each_member_gets_a_copy() {
    let group: SocketAddr = "239.255.76.83:8187".parse().unwrap();
    // The writer speaks to a group that its members do not hear.
    let writer = builder(1).path(loopback()).multicast(group).open().unwrap();
    let members = [2, 3].map(|number| builder(number).path(loopback()).open().unwrap());
    for member in &members {
        writer.link(member.local().unwrap()).unwrap().wait_up(soon()).unwrap();
        member.wait_reached(host(1), soon()).unwrap();
    }
    publish_to_members(&writer, &members.iter().collect::<Vec<_>>());
    assert_eq!(writer.stats().engine.multicasts, 0);
}

#[test]
fn what_is_no_group_of_a_path_is_refused() {
    let open = |group: Peer| builder(1).path(loopback()).multicast(group).open();
    let socket = |text: &str| Peer::Socket(text.parse().unwrap());
    let bad = [
        socket("127.0.0.1:8186"),
        socket("239.255.76.82:0"),
        socket("[ff12::1]:8186"),
        Peer::Ethernet([3, 0, 0, 0, 0, 1]),
        Peer::Node(1),
    ];
    for group in bad {
        let error = open(group).map(drop).unwrap_err();
        assert!(matches!(error, OpenError::NoMulticast(_)), "{error}");
        assert!(error.to_string().contains("239.0.0.0/8"), "{error}");
    }
}
