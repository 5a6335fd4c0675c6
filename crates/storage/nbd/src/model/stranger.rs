//! One end, and bytes of somebody who knows how messages begin.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use alloc::{format, vec};

use super::Choices;
use crate::client::{self, Event, Security, Wanted};
use crate::server::{self, Config, Tls};
use crate::wire::{
    CHUNK, EXTENDED_CHUNK, EXTENDED_REQUEST, INIT, OPTION, OPTION_REPLY, REQUEST, SIMPLE_REPLY,
};
use crate::{Command, Export, Features, Replies};

/// No input makes an end say more than that for each byte that it is sent.
const MOST_OUTPUT: usize = 64 << 10;

/// Gives one end these bytes, and tells what it does wrong.
#[must_use]
pub fn withstand(bytes: &[u8]) -> Vec<String> {
    let mut choices = Choices(bytes);
    match choices.below(4) {
        0 => server_negotiation(&mut choices),
        1 => client_negotiation(&mut choices),
        2 => server_session(&mut choices),
        _ => client_session(&mut choices),
    }
}

/// The bytes that are left, where each zero byte at an even choice begins a message properly.
fn written(choices: &mut Choices<'_>, magics: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    while !choices.is_over() {
        let byte = choices.byte();
        match magics.get(usize::from(byte.wrapping_sub(0xf0))) {
            Some(magic) => out.extend_from_slice(magic),
            None => out.push(byte),
        }
    }
    out
}

fn device() -> Export {
    let mut export = Export::new("disk", 1 << 20);
    export.features = Features::FLUSH.with(Features::FUA).with(Features::TRIM);
    export
}

fn server_negotiation(choices: &mut Choices<'_>) -> Vec<String> {
    let tls = [Tls::None, Tls::Optional, Tls::Required][choices.below(3) as usize];
    let hidden = Export { tls_only: true, ..Export::new("hidden", 1) };
    let exports = vec![device(), hidden];
    let mut server = server::Negotiation::new(Config { tls, ..Config::default() });
    let option = OPTION.to_be_bytes();
    let bytes = written(choices, &[&option, &[0, 0, 0, 3], b"disk", &[0, 0, 0, 4]]);
    let (mut at, mut failures) = (0, Vec::new());
    loop {
        let said = server.poll_output().map_or(0, |output| output.len());
        if said > MOST_OUTPUT {
            failures.push(format!("it says {said} bytes at once"));
        }
        match server.handle(&bytes[at..], &exports) {
            Err(_) => break,
            Ok((used, _)) if used > bytes.len() - at => {
                failures.push(format!("it used {used} bytes of {}", bytes.len() - at));
                break;
            }
            Ok((0, server::Step::StartTls)) if server.is_secure() => break,
            Ok((used, server::Step::StartTls)) => {
                at += used;
                if tls == Tls::None {
                    failures.push(String::from("TLS that it has not"));
                }
                server.secured();
            }
            Ok((_, server::Step::Transmission(session))) => {
                let open = tls != Tls::Required && !session.export().tls_only;
                if !open && !server.is_secure() {
                    failures.push(format!("{:?} in the open", session.export()));
                }
                break;
            }
            Ok((0, _)) | Ok((_, server::Step::Ended)) => break,
            Ok((used, server::Step::More)) => at += used,
        }
    }
    failures
}

fn client_negotiation(choices: &mut Choices<'_>) -> Vec<String> {
    let purposes = [client::Purpose::Use, client::Purpose::Look, client::Purpose::List];
    let purpose = purposes[choices.below(3) as usize];
    let security = if choices.flag() { Security::Required } else { Security::None };
    let mut client =
        client::Negotiation::new(Wanted { purpose, security, ..Wanted::export("disk") });
    let greeting = [&INIT.to_be_bytes()[..], &OPTION.to_be_bytes(), &[0, 3]].concat();
    let reply = OPTION_REPLY.to_be_bytes();
    let bytes = written(choices, &[&greeting, &reply, &[0, 0, 0, 1], &[0, 0, 0, 0]]);
    let (mut at, mut failures, mut is_secure) = (0, Vec::new(), false);
    loop {
        client.poll_output();
        match client.handle(&bytes[at..]) {
            Err(_) => break,
            Ok((used, _)) if used > bytes.len() - at => {
                failures.push(format!("it used {used} bytes of {}", bytes.len() - at));
                break;
            }
            Ok((used, client::Step::StartTls)) => {
                at += used;
                if is_secure {
                    break;
                }
                is_secure = true;
                client.secured();
            }
            Ok((0, client::Step::More)) => break,
            Ok((used, client::Step::More)) => at += used,
            Ok(_) => {
                if security == Security::Required && !is_secure {
                    failures.push(String::from("it does without the TLS that it wants"));
                }
                break;
            }
        }
    }
    failures
}

fn server_session(choices: &mut Choices<'_>) -> Vec<String> {
    let replies = [Replies::Simple, Replies::Structured, Replies::Extended];
    let replies = replies[choices.below(3) as usize];
    let mut export = device();
    if choices.flag() {
        export.features = export.features.with(Features::READ_ONLY);
    }
    let size = export.size;
    let read_only = export.features.has(Features::READ_ONLY);
    let session = server::Session::new(export, replies, choices.flag());
    let magic = if replies == Replies::Extended { EXTENDED_REQUEST } else { REQUEST };
    let bytes = written(choices, &[&magic.to_be_bytes(), &[0; 4], &[0; 8]]);
    let (mut at, mut failures) = (0, Vec::new());
    while bytes.len() - at >= session.head_len() {
        let Ok(incoming) = session.request(&bytes[at..], size) else { break };
        at += session.head_len();
        at = bytes.len().min(at + usize::try_from(incoming.payload).unwrap_or(usize::MAX));
        let Ok(command) = incoming.command else { continue };
        let end = match command {
            Command::Read { offset, length, .. } | Command::Write { offset, length, .. } => {
                offset.checked_add(length.into())
            }
            Command::Trim { offset, length, .. }
            | Command::Cache { offset, length }
            | Command::WriteZeroes { offset, length, .. }
            | Command::BlockStatus { offset, length, .. } => offset.checked_add(length),
            _ => Some(0),
        };
        if end.is_none_or(|end| end > size) || command.writes() && read_only {
            failures.push(format!("{command:?} is to be carried out"));
        }
    }
    failures
}

fn client_session(choices: &mut Choices<'_>) -> Vec<String> {
    let replies = [Replies::Simple, Replies::Structured, Replies::Extended];
    let replies = replies[choices.below(3) as usize];
    let mut session = client::Session::new(device(), replies, Some(1));
    let (mut out, mut flying) = (Vec::new(), BTreeMap::new());
    for nth in 0..4 {
        let command = match nth {
            0 => Command::Read { offset: 512, length: 1024, dont_fragment: false },
            1 => Command::BlockStatus { offset: 0, length: 4096, one: false },
            2 => Command::Flush,
            _ => Command::Read { offset: 0, length: 16, dont_fragment: false },
        };
        let cookie = session.issue(&command, &mut out).expect("it is offered");
        flying.insert(cookie, vec![0u8; if nth == 0 { 1024 } else { 16 }]);
    }
    let magic = match replies {
        Replies::Simple => SIMPLE_REPLY,
        Replies::Structured => CHUNK,
        Replies::Extended => EXTENDED_CHUNK,
    };
    let cookies: Vec<[u8; 8]> = flying.keys().map(|cookie| cookie.to_be_bytes()).collect();
    let magic = magic.to_be_bytes();
    let mut parts: Vec<&[u8]> = vec![&magic, &[0; 4], &[0, 1, 0, 1]];
    parts.extend(cookies.iter().map(|cookie| &cookie[..]));
    let bytes = written(choices, &parts);
    let (mut at, mut told, mut failures) = (0, BTreeMap::new(), Vec::new());
    while let Ok(Some((used, event))) = session.handle(&bytes[at..]) {
        at += used;
        match event {
            Event::Data { cookie, at: begin, len } => {
                at = bytes.len().min(at + len as usize);
                land(&flying, cookie, (begin, len), &mut failures);
            }
            Event::Hole { cookie, at: begin, len } => {
                land(&flying, cookie, (begin, len), &mut failures);
            }
            Event::Done { cookie, .. } => {
                if flying.remove(&cookie).is_none() {
                    failures.push(format!("{cookie} is over, which was not under way"));
                }
            }
            Event::Status { cookie, extents } => {
                let length = told.entry(cookie).or_insert(0);
                *length += extents.iter().map(|extent| extent.len).sum::<u64>();
                if *length > 4096 || extents.is_empty() || !flying.contains_key(&cookie) {
                    failures.push(format!("a status of {length} bytes"));
                }
            }
            Event::Failing { .. } => {}
        }
    }
    if session.in_flight() != flying.len() && failures.is_empty() {
        failures.push(format!("{} are under way, of {}", session.in_flight(), flying.len()));
    }
    failures
}

fn land(
    flying: &BTreeMap<u64, Vec<u8>>,
    cookie: u64,
    (begin, len): (u32, u32),
    failures: &mut Vec<String>,
) {
    let room = flying.get(&cookie).map_or(0, Vec::len) as u64;
    if u64::from(begin) + u64::from(len) > room {
        failures.push(format!("{len} bytes at {begin} of {room}"));
    }
}
