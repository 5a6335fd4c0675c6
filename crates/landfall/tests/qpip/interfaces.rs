//! What an interface may be: of a VLAN, and with addresses that it finds out itself.

use landfall::qpip::{Adapter, Link, Mapping, Operation};

use super::{End, PATIENCE, at, connected, noise};

#[test]
fn two_adapters_of_a_vlan_find_each_other_and_one_of_another_does_not() {
    let here = at("127.0.0.1:0");
    let station = |link: Link, address: &str, vlan: u16| {
        Adapter::builder().link(link).address(address).vlan(vlan).open().expect("loopback")
    };
    let two = station(Link::tunnel(here, []), "10.0.0.2/24", 5);
    let there = two.links()[0].tunnel_address.expect("a tunnel has an address");
    let one = station(Link::tunnel(here, [there]), "10.0.0.1/24", 5);
    let pair = (one, two);
    let (mut sender, mut receiver) = connected(&pair, Mapping::Message);
    let bytes = noise(2, 30_000);
    sender.post(1, 0, &bytes);
    assert_eq!(receiver.expect(Operation::Receive, 0).len, 30_000);
    assert!(receiver.received(0, 30_000) == bytes);
    let (one, two) = pair;

    let stranger = station(Link::tunnel(here, [there]), "10.0.0.3/24", 6);
    let asking = End::tcp(&stranger, Mapping::Message);
    let asked = asking.pair.connect(at("10.0.0.2:7000"));
    asked.wait_for(PATIENCE).expect("in time").expect_err("nobody answers");
    assert!(two.stats().frames_of_other_vlans > 0);
    assert_eq!(one.stats().frames_of_other_vlans, 0, "the tunnel does not pass them on");
}
