//! Addresses are what they print, and print what they are.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::path::PathBuf;

use proptest::prelude::*;
use sockets_compat::{Address, AddressError, Carrier, Name, ToAddress};

fn ip() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<u32>().prop_map(|bits| IpAddr::V4(Ipv4Addr::from(bits))),
        any::<u128>().prop_map(|bits| IpAddr::V6(Ipv6Addr::from(bits))),
    ]
}

fn carrier() -> impl Strategy<Value = Carrier> {
    prop_oneof![any::<u16>().prop_map(Carrier::Udp), Just(Carrier::default()), Just(Carrier::Ip),]
}

fn address() -> impl Strategy<Value = Address> {
    let name = proptest::option::of("[a-zA-Z0-9_-][a-zA-Z0-9._-]{0,63}");
    let scoped = (any::<u128>(), any::<u16>(), any::<u32>()).prop_map(|(ip, port, scope)| {
        Address::Qp(SocketAddrV6::new(Ipv6Addr::from(ip), port, 0, scope).into())
    });
    prop_oneof![
        (ip(), any::<u16>(), carrier()).prop_map(|(host, port, carrier)| Address::Stp {
            host,
            port,
            carrier
        }),
        (ip(), any::<u16>()).prop_map(|(host, port)| Address::Qp(SocketAddr::new(host, port))),
        scoped,
        (ip(), any::<u16>(), any::<u16>()).prop_map(|(host, port, udp)| Address::ClanPort {
            host,
            port,
            udp
        }),
        ("/[^\0]{0,40}", name).prop_map(|(folder, name)| Address::Clan {
            folder: PathBuf::from(folder),
            name: name.map(|name| Name::new(name).expect("such are names")),
        }),
    ]
}

proptest! {
    #[test]
    fn what_is_printed_parses_to_the_same(address in address()) {
        let text = address.to_string();
        prop_assert_eq!(text.parse::<Address>(), Ok(address.clone()), "{}", text);
        prop_assert_eq!(text.to_address(), Ok(address));
    }

    #[test]
    fn what_parses_prints_so_that_it_parses_again(text in "(stp|qp|clan|x)://[0-9a-f:/.#%\\[\\]]{0,30}") {
        if let Ok(address) = text.parse::<Address>() {
            prop_assert_eq!(address.to_string().parse::<Address>(), Ok(address));
        }
    }

    #[test]
    fn no_text_is_too_strange(text in any::<String>()) {
        let _ = text.parse::<Address>().map_err(|error| error.to_string());
    }
}

#[test]
fn what_is_wrong_is_said() {
    use AddressError::{Carrier, Folder, Host, Name, NoScheme, Scheme};
    let cases = [
        ("10.0.0.1:7", NoScheme("10.0.0.1:7".into())),
        ("tcp://10.0.0.1:7", Scheme("tcp".into())),
        ("qp://10.0.0.1", Host("10.0.0.1".into())),
        ("stp://example.org:7", Host("example.org:7".into())),
        ("stp://10.0.0.1:7/tcp/4", Carrier("/tcp/4".into())),
        ("clan://10.0.0.1:7/ip", Carrier("/ip".into())),
        ("clan://10.0.0.1:x", Host("10.0.0.1:x".into())),
        ("clan://run/landfall#web", Folder("run/landfall".into())),
        ("clan:///run/%zz#web", Folder("/run/%zz".into())),
        ("clan:///run/landfall#..", Name("..".into())),
    ];
    for (text, error) in cases {
        assert_eq!(text.parse::<Address>(), Err(error), "{text}");
    }
}

#[test]
fn names_of_hosts_are_resolved_when_asked_for() {
    let found = Address::resolve("stp://localhost:7/udp/4000").expect("everybody is localhost");
    assert!(found.iter().any(|address| address.ip().is_some_and(|ip| ip.is_loopback())));
    assert!(found.iter().all(|address| address.port() == Some(7)));
    let found = Address::resolve("clan://localhost:7").expect("everybody is localhost");
    assert!(found.iter().all(|address| *address == Address::clan_port(address.ip().unwrap(), 7)));
    assert!(Address::resolve("stp://:7").is_err());
    assert_eq!(Address::resolve("clan:///run#x").unwrap(), ["clan:///run#x".parse().unwrap()]);
}
