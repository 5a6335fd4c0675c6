//! `ICMPv4` (RFC 792, 1191): echoes, and errors about what was sent.

use landfall_placement::Refusal;
use zerocopy::FromBytes;

use crate::checksum;
use crate::icmp::{self, Echo, Header, Quoted, Report, Trouble};

const ECHO_REPLY: u8 = 0;
const UNREACHABLE: u8 = 3;
const SOURCE_QUENCH: u8 = 4;
const REDIRECT: u8 = 5;
/// The message that asks for an echo.
pub const ECHO_REQUEST: u8 = 8;
const TIME_EXCEEDED: u8 = 11;
const PARAMETER_PROBLEM: u8 = 12;

const CODE_PROTOCOL: u8 = 2;
const CODE_PORT: u8 = 3;
const CODE_TOO_BIG: u8 = 4;

/// A message, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// Somebody wants to know whether we are there.
    EchoRequest(Echo<'a>),
    /// Somebody is there.
    EchoReply(Echo<'a>),
    /// A packet did not arrive.
    Report(Report<'a>),
}

/// Reads a whole message.
///
/// # Errors
/// [`Refusal::Truncated`], [`Refusal::BadChecksum`], [`Refusal::Malformed`] where
/// what is quoted is no packet, [`Refusal::Unsupported`] for all other kinds.
pub fn read(message: &[u8]) -> Result<Message<'_>, Refusal> {
    let (header, body) = Header::ref_from_prefix(message).map_err(|_| Refusal::Truncated)?;
    if checksum::sum_of(message) != 0xffff {
        return Err(Refusal::BadChecksum);
    }
    let code = header.code;
    let [pointer, _, mtu @ ..] = header.rest;
    let trouble = match header.kind {
        ECHO_REQUEST if code == 0 => {
            return Ok(Message::EchoRequest(Echo::read(header.rest, body)));
        }
        ECHO_REPLY if code == 0 => return Ok(Message::EchoReply(Echo::read(header.rest, body))),
        UNREACHABLE => match code {
            CODE_PROTOCOL => Trouble::ProtocolUnreachable,
            CODE_PORT => Trouble::PortUnreachable,
            CODE_TOO_BIG => Trouble::TooBig { mtu: u32::from(u16::from_be_bytes(mtu)) },
            // RFC 1812, section 5.2.7.1: forbidden by who runs the network.
            9 | 10 | 13 => Trouble::Prohibited { code },
            _ => Trouble::NoRoute { code },
        },
        TIME_EXCEEDED => Trouble::TimeExceeded { code },
        PARAMETER_PROBLEM => Trouble::ParameterProblem { code, pointer: u32::from(pointer) },
        _ => return Err(Refusal::Unsupported),
    };
    Ok(Message::Report(Report { trouble, about: Quoted::read_ipv4(body)? }))
}

/// Whether a message that starts so is an error, or a redirect: these are never answered
/// by errors (RFC 1122, section 3.2.2). What is not at hand counts as one.
#[must_use]
pub fn is_error(message: &[u8]) -> bool {
    message.first().is_none_or(|kind| {
        matches!(*kind, UNREACHABLE | SOURCE_QUENCH | REDIRECT | TIME_EXCEEDED | PARAMETER_PROBLEM)
    })
}

/// Writes the answer to an echo request. Gives its length, or `None` if there is
/// no room.
pub fn write_echo_reply(echo: &Echo<'_>, into: &mut [u8]) -> Option<usize> {
    echo.write(ECHO_REPLY, into, 0)
}

/// Writes an echo request. Gives its length, or `None` if there is no room.
pub fn write_echo_request(echo: &Echo<'_>, into: &mut [u8]) -> Option<usize> {
    echo.write(ECHO_REQUEST, into, 0)
}

/// Writes that nobody listens on the port that `packet` was sent to; `packet` is
/// its beginning, from its IP header on.
pub fn write_port_unreachable(packet: &[u8], into: &mut [u8]) -> Option<usize> {
    icmp::write(UNREACHABLE, CODE_PORT, [0; 4], packet, into, 0)
}

/// Writes that the protocol of `packet` is not spoken here.
pub fn write_protocol_unreachable(packet: &[u8], into: &mut [u8]) -> Option<usize> {
    icmp::write(UNREACHABLE, CODE_PROTOCOL, [0; 4], packet, into, 0)
}

/// Writes that `packet` is longer than the `mtu` of a link: what routers do.
pub fn write_too_big(mtu: u16, packet: &[u8], into: &mut [u8]) -> Option<usize> {
    let [high, low] = mtu.to_be_bytes();
    icmp::write(UNREACHABLE, CODE_TOO_BIG, [0, 0, high, low], packet, into, 0)
}

/// Writes that not all fragments of `packet`, which is the first of them, came in time.
pub fn write_fragments_missing(packet: &[u8], into: &mut [u8]) -> Option<usize> {
    icmp::write(TIME_EXCEEDED, icmp::FRAGMENTS_MISSING, [0; 4], packet, into, 0)
}
