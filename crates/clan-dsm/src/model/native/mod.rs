//! Hosts around one switch or two, and whatever may happen between them: the
//! bursts are split, joined and interleaved by the switches, and every host is
//! compared with the naive model, word by word.
//!
//! Two things are checked. Each host's memory and the sequence of its firings
//! are those of the naive model, for the order in which words came. And of each
//! sender the words come in the order in which they were written, all of them,
//! unless a link was damaged.

mod host;
mod net;

use alloc::string::String;
use alloc::vec::Vec;

use landfall_testkit::model::Choices;

use crate::address::{Address, Kind, WORD};
use crate::cookie::{Access, Rights};
use crate::native::Burst;
use crate::tripwire::{Action, Place, Watch};
use net::Net;

/// Runs what these bytes stand for, lets everything come to its end, and gives
/// all in which the adapters and the naive model disagree.
#[must_use]
pub fn disagreements(bytes: &[u8]) -> Vec<String> {
    let mut choices = Choices::new(bytes);
    let mut net = Net::new(&mut choices);
    while !choices.is_over() {
        step(&mut net, &mut choices);
    }
    net.finish();
    net.failures()
}

fn step(net: &mut Net, choices: &mut Choices<'_>) {
    let hosts = net.hosts.len();
    match choices.byte() & 31 {
        0..=7 => write(net, choices),
        8..=10 => {
            let (line, most) = (choices.below(16), choices.byte());
            net.push(line, choices.flag(), u32::from(most));
        }
        11..=13 => {
            net.pull(choices.below(16), choices.flag());
        }
        14..=15 => {
            (0..=choices.below(8)).all(|_| net.go_on());
        }
        16..=18 => watch(net, choices),
        19..=20 => {
            let host = choices.below(hosts);
            net.hosts[host].change(choices.below(256), choices.byte());
        }
        21 => {
            let host = choices.below(hosts);
            net.hosts[host].pop();
        }
        22 => net.stop(choices.below(hosts), choices.flag()),
        23 => net.be_lazy(choices.below(hosts), choices.flag()),
        24 => {
            let host = choices.below(hosts);
            net.hosts[host].replace(choices.below(8));
        }
        25 => net.damage(choices.below(16), choices.flag(), choices.byte()),
        26 => {
            let (host, flag, len) = (choices.below(16), choices.flag(), choices.below(64));
            net.inject(host, flag, choices.raw(len));
        }
        27 => net.wait(),
        28 => net.unplug(choices.below(16)),
        29..=30 => burst_of_small_writes(net, choices),
        _ => net.settle(),
    }
}

/// One host writes to memory of another, or of a group; mostly as it may.
fn write(net: &mut Net, choices: &mut Choices<'_>) {
    let from = choices.below(net.hosts.len());
    let Some((mut at, len)) = target(net, choices) else { return };
    let all = len / u64::from(WORD) + 1;
    at.word = choices.below(all as usize) as u32;
    let words = match choices.byte() & 7 {
        0..=2 => 1 + choices.below(4) as u32,
        // Up to the end, and now and then beyond it.
        3..=6 => 1 + choices.below(all as usize) as u32,
        _ => {
            let (first, count) = (choices.below(8) as u32, 1 + choices.below(8) as u32);
            at.mask = Address::mask_of(first, count).unwrap_or(1);
            1
        }
    };
    net.write(from, at, words);
}

/// Neighbouring words, each in a packet of its own: to be joined.
fn burst_of_small_writes(net: &mut Net, choices: &mut Choices<'_>) {
    let from = choices.below(net.hosts.len());
    let Some((at, len)) = target(net, choices) else { return };
    let first = choices.below(len as usize / 8 + 1) as u32;
    let step = 1 + choices.below(3) as u32;
    for n in 0..choices.below(16) as u32 {
        net.write(from, Address { word: first + n * step, ..at }, step);
    }
}

/// The header for some memory, and how long that is. Sometimes its key or its
/// rights are wrong.
fn target(net: &Net, choices: &mut Choices<'_>) -> Option<(Address, u64)> {
    let which = choices.byte();
    if which >= 0xe0 {
        let cookie = net.group_cookie()?;
        let address = Address { kind: Kind::Multicast, ..cookie.address(0) };
        return Some((address, cookie.len()));
    }
    let host = &net.hosts[usize::from(which) % net.hosts.len()];
    let aperture = &host.apertures[choices.below(host.apertures.len())];
    let how = choices.byte();
    let [read, write, both] = aperture.cookies;
    let cookie = match how & 15 {
        0 => read,
        1..=8 => write,
        _ => both,
    };
    let mut at = cookie.address(0);
    if how == 0xff {
        at.key = crate::address::Key::from_bits(at.key.bits() ^ 1);
    }
    debug_assert!(cookie.rights() != Rights::Read || how & 15 == 0);
    Some((at, cookie.len()))
}

fn watch(net: &mut Net, choices: &mut Choices<'_>) {
    let host = choices.below(net.hosts.len());
    let apertures = &net.hosts[host].apertures;
    let aperture = &apertures[choices.below(apertures.len())];
    let (slot, len) = (aperture.id.index as u16, aperture.memory.len);
    let from = choices.below(len as usize) as u64;
    let most = (len - from) as usize;
    let watched = if choices.flag() { choices.below(most) } else { choices.below(most.min(16)) };
    let actions = [Action::State, Action::Identifier, Action::Bit(1), Action::Count(1)];
    net.hosts[host].watch(Watch {
        place: Place::Local(slot),
        from,
        to: from + 1 + watched as u64,
        access: choices.pick(&[Access::Write, Access::Read, Access::Both]),
        action: choices.pick(&actions),
        once: choices.flag(),
    });
}

/// What a packet of these would be, if it is one.
fn packet(at: Address, words: u32) -> Option<Burst> {
    Burst::new(at, words)
}
