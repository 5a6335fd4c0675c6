//! Streams of packets that are cut, and what tests ask of those who join them.
use spec_defrag::ReassemblyPath;
use spec_defrag::model::{Flow, Joined, Rig, Setup, Shape, cut, seal};

/// UDP over IPv4, in pages.
pub const UDP: Flow = Flow(0);
/// TCP over IPv6.
pub const TCP6: Flow = Flow(7);

/// A packet and the frames that it crosses in.
pub struct Sent {
    pub packet: Vec<u8>,
    pub pieces: Vec<Vec<u8>>,
}

/// The packet number `n` of a flow: a page, in pieces for an MTU of 1500.
pub fn page(flow: Flow, n: u32) -> Sent {
    sent(flow, &Shape { len: 4096, id: n, content: u64::from(n), ecn: 2, ..Shape::default() })
}

pub fn sent(flow: Flow, shape: &Shape) -> Sent {
    let packet = flow.packet(shape);
    let pieces = cut(&packet, 1500, shape.id);
    Sent { packet, pieces }
}

/// A receiver that has seen enough of a stream to guess right. The packets that come
/// next have numbers from 100 on.
pub fn trained(setup: Setup, flow: Flow) -> Rig {
    let mut rig = Rig::new(setup, false);
    for n in 0..30 {
        let Sent { packet, pieces } = page(flow, n);
        let came = rig.receive(&pieces, false);
        assert_eq!(frames(&came), [packet]);
    }
    rig
}

pub fn frames(came: &[Joined]) -> Vec<Vec<u8>> {
    came.iter().map(|joined| joined.frame.clone()).collect()
}

/// How many of them were joined without a copy.
pub fn hits(came: &[Joined]) -> usize {
    came.iter().filter(|joined| joined.path == ReassemblyPath::Speculated).count()
}

/// Nothing went wrong, to the end.
pub fn expect_good(mut rig: Rig) {
    rig.finish();
    assert_eq!(rig.failures(), [""; 0]);
}

/// The same piece with other bytes behind its headers.
pub fn twin(piece: &[u8]) -> Vec<u8> {
    let at = if piece[12] == 8 { 34 } else { 62 };
    let mut twin = piece.to_vec();
    twin[at..].iter_mut().for_each(|byte| *byte ^= 0xff);
    twin
}

/// The same piece elsewhere, in units of eight bytes.
pub fn moved(piece: &[u8], units: u16, more: bool) -> Vec<u8> {
    let mut moved = piece.to_vec();
    if piece[12] == 8 {
        let flags = units | if more { 0x2000 } else { 0 };
        moved[20..22].copy_from_slice(&flags.to_be_bytes());
        seal(&mut moved);
    } else {
        let flags = units << 3 | u16::from(more);
        moved[56..58].copy_from_slice(&flags.to_be_bytes());
    }
    moved
}

/// The same piece with another length: this many bytes behind the headers.
pub fn resized(piece: &[u8], len: usize) -> Vec<u8> {
    let at = if piece[12] == 8 { 34 } else { 62 };
    let mut resized = piece.to_vec();
    resized.resize(at + len, 7);
    if piece[12] == 8 {
        resized[16..18].copy_from_slice(&((20 + len) as u16).to_be_bytes());
        seal(&mut resized);
    } else {
        resized[18..20].copy_from_slice(&((8 + len) as u16).to_be_bytes());
    }
    resized
}
