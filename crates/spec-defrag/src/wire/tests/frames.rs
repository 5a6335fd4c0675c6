//! Frames to read and to cut, written field by field.

use std::vec::Vec;

use proptest::prelude::*;

/// The stations of all frames here.
const LINK: [u8; 12] = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];

/// The bytes of a payload: no two neighbours, and no two places 8 apart, are alike.
pub(crate) fn payload(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n.wrapping_mul(167) >> 3 ^ n) as u8).collect()
}

/// The Internet checksum, as RFC 1071 words it.
pub(crate) fn checksum(bytes: &[u8]) -> u16 {
    let mut sum: u32 = 0;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | pair.get(1).copied().map_or(0, u32::from);
    }
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// An IPv4 frame; `flags_and_offset` as in the header, the options padded already.
#[derive(Clone, Debug)]
pub(crate) struct Ipv4 {
    pub(crate) options: Vec<u8>,
    pub(crate) id: u16,
    pub(crate) flags_and_offset: u16,
    pub(crate) traffic_class: u8,
    pub(crate) protocol: u8,
    pub(crate) payload: Vec<u8>,
}

impl Default for Ipv4 {
    fn default() -> Self {
        Self {
            options: Vec::new(),
            id: 0x1234,
            flags_and_offset: 0,
            traffic_class: 0,
            protocol: 17,
            payload: payload(4104),
        }
    }
}

impl Ipv4 {
    pub(crate) fn frame(&self) -> Vec<u8> {
        let header_len = 20 + self.options.len();
        let mut frame = LINK.to_vec();
        frame.extend([8, 0, 0x40 | (header_len / 4) as u8, self.traffic_class]);
        frame.extend(((header_len + self.payload.len()) as u16).to_be_bytes());
        frame.extend(self.id.to_be_bytes());
        frame.extend(self.flags_and_offset.to_be_bytes());
        frame.extend([64, self.protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend(&self.options);
        seal(&mut frame);
        frame.extend(&self.payload);
        frame
    }
}

/// Fills in the checksum of the IPv4 header that the frame has room for.
pub(crate) fn seal(frame: &mut [u8]) {
    let end = 14 + usize::from(frame[14] & 15) * 4;
    frame[24..26].fill(0);
    let sum = checksum(&frame[14..end]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
}

/// An IPv6 frame with headers (kind and all bytes behind its first) before what it
/// carries.
#[derive(Clone, Debug)]
pub(crate) struct Ipv6 {
    pub(crate) headers: Vec<(u8, Vec<u8>)>,
    pub(crate) traffic_class: u8,
    pub(crate) protocol: u8,
    pub(crate) payload: Vec<u8>,
}

impl Default for Ipv6 {
    fn default() -> Self {
        Self { headers: Vec::new(), traffic_class: 0, protocol: 17, payload: payload(4104) }
    }
}

impl Ipv6 {
    pub(crate) fn frame(&self) -> Vec<u8> {
        let mut kinds: Vec<u8> = self.headers.iter().map(|(kind, _)| *kind).collect();
        kinds.push(self.protocol);
        let len: usize = self.headers.iter().map(|(_, bytes)| 1 + bytes.len()).sum();
        let mut frame = LINK.to_vec();
        frame.extend([0x86, 0xdd, 0x60 | self.traffic_class >> 4, self.traffic_class << 4, 0, 7]);
        frame.extend(((len + self.payload.len()) as u16).to_be_bytes());
        frame.extend([kinds[0], 64]);
        for host in 1..=2 {
            frame.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]);
        }
        for ((_, bytes), next) in self.headers.iter().zip(&kinds[1..]) {
            frame.push(*next);
            frame.extend(bytes);
        }
        frame.extend(&self.payload);
        frame
    }
}

/// Options that pad (RFC 8200, section 4.2), in a header of `8 + more * 8` bytes.
pub(crate) fn padding(kind: u8, more: u8) -> (u8, Vec<u8>) {
    let len = 6 + more * 8;
    let mut bytes = std::vec![more, 1, len - 2];
    bytes.resize(1 + usize::from(len), 0);
    (kind, bytes)
}

/// A routing header with one address; `left` more stations are on the way.
pub(crate) fn routing(left: u8) -> (u8, Vec<u8>) {
    let mut bytes = std::vec![2, 2, left];
    bytes.resize(23, 0xfd);
    (43, bytes)
}

/// A fragment header.
pub(crate) fn piece(offset: u16, more: bool, id: u32) -> (u8, Vec<u8>) {
    let mut bytes = std::vec![0];
    bytes.extend((offset & !7 | u16::from(more)).to_be_bytes());
    bytes.extend(id.to_be_bytes());
    (44, bytes)
}

/// Options of IPv4, well formed and padded.
pub(crate) fn options() -> impl Strategy<Value = Vec<u8>> {
    let one = prop_oneof![
        Just(std::vec![1]),
        (any::<u8>(), 2..12_u8).prop_map(|(kind, len)| {
            // Neither the end nor nothing: these have no length.
            let mut option = std::vec![kind.max(2), len];
            option.resize(usize::from(len), 0xab);
            option
        }),
    ];
    prop::collection::vec(one, 0..6).prop_map(|list| {
        let mut all = Vec::new();
        for option in list {
            if all.len() + option.len() <= 40 {
                all.extend(option);
            }
        }
        all.resize(all.len().next_multiple_of(4), 0);
        all
    })
}

/// Lengths of payloads around the sizes of pages, odd ones too.
pub(crate) fn payload_len(most: usize) -> impl Strategy<Value = usize> {
    let around = |page: usize| page - 20..page + 80;
    prop_oneof![0..3000_usize, around(4096), around(8192), around(16_384), 0..=most]
        .prop_map(move |len| len.min(most))
}

/// Frames of IPv4, whole or pieces that are as they have to be.
pub(crate) fn any_ipv4() -> impl Strategy<Value = Ipv4> {
    (
        options(),
        any::<u16>(),
        any::<bool>(),
        any::<u8>(),
        prop::sample::select(&[1, 6, 17, 132][..]),
    )
        .prop_flat_map(|(options, id, dont_fragment, traffic_class, protocol)| {
            payload_len(65_515 - options.len()).prop_map(move |len| Ipv4 {
                options: options.clone(),
                id,
                flags_and_offset: u16::from(dont_fragment) << 14,
                traffic_class,
                protocol,
                payload: payload(len),
            })
        })
}

/// The headers that may stand before a fragment header.
pub(crate) fn per_fragment() -> impl Strategy<Value = Vec<(u8, Vec<u8>)>> {
    (prop::option::of(0..3_u8), prop::option::of(0..2_u8), any::<bool>()).prop_map(
        |(hop_by_hop, options, is_routed)| {
            let mut headers = Vec::new();
            headers.extend(hop_by_hop.map(|more| padding(0, more)));
            if is_routed {
                headers.extend(options.map(|more| padding(60, more)));
                headers.push(routing(0));
            }
            headers
        },
    )
}

/// Frames of IPv6 without a fragment header.
pub(crate) fn any_ipv6() -> impl Strategy<Value = Ipv6> {
    (per_fragment(), any::<u8>(), prop::sample::select(&[6, 17, 58, 132][..])).prop_flat_map(
        |(headers, traffic_class, protocol)| {
            let used: usize = headers.iter().map(|(_, bytes)| 1 + bytes.len()).sum();
            payload_len(65_535 - used).prop_map(move |len| Ipv6 {
                headers: headers.clone(),
                traffic_class,
                protocol,
                payload: payload(len.max(1)),
            })
        },
    )
}
