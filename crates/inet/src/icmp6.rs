//! `ICMPv6` (RFC 4443): echoes, and errors about what was sent. Discovery of neighbours and
//! routers, and what is said of groups, is told apart here and read in [`ndp`], [`router`] and
//! [`group`].

use landfall_placement::Refusal;
use zerocopy::FromBytes;

use crate::checksum::InternetSum;
use crate::icmp::{self, Echo, Header, Quoted, Report, Trouble};
use crate::packet::Problem;
use crate::{group, ndp, router};

const UNREACHABLE: u8 = 1;
const TOO_BIG: u8 = 2;
const TIME_EXCEEDED: u8 = 3;
const PARAMETER_PROBLEM: u8 = 4;
/// The message that asks for an echo.
pub const ECHO_REQUEST: u8 = 128;
const ECHO_REPLY: u8 = 129;
/// The kind of a redirect: no error, and not answered by errors either (RFC 4443, section
/// 2.4 (e)).
pub const REDIRECT: u8 = 137;
/// Lower numbers are errors, which are never answered by errors (RFC 4443,
/// section 2.4).
const FIRST_INFORMATIONAL: u8 = 128;

const CODE_PORT: u8 = 4;
/// What an unknown next header is called as a parameter problem.
const CODE_UNKNOWN_HEADER: u8 = 1;

/// A message, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// Somebody wants to know whether we are there.
    EchoRequest(Echo<'a>),
    /// Somebody is there.
    EchoReply(Echo<'a>),
    /// A packet did not arrive.
    Report(Report<'a>),
    /// Something about neighbours: [`ndp::read`] reads it.
    Discovery,
    /// What a router says: [`router::Advertisement::read`] reads it.
    Router,
    /// Something about groups: [`group::read_mld`] reads it.
    Group,
}

/// Reads a whole message; `pseudo` is the folded sum over its pseudo-header.
///
/// # Errors
/// [`Refusal::Truncated`], [`Refusal::BadChecksum`], [`Refusal::Malformed`] where
/// what is quoted is no packet, [`Refusal::Unsupported`] for all other kinds.
pub fn read(message: &[u8], pseudo: u16) -> Result<Message<'_>, Refusal> {
    let (header, body) = Header::ref_from_prefix(message).map_err(|_| Refusal::Truncated)?;
    let mut sum = InternetSum::new();
    sum.add_word(pseudo);
    sum.add(message);
    if sum.sum() != 0xffff {
        return Err(Refusal::BadChecksum);
    }
    let (code, number) = (header.code, u32::from_be_bytes(header.rest));
    let trouble = match header.kind {
        ECHO_REQUEST if code == 0 => {
            return Ok(Message::EchoRequest(Echo::read(header.rest, body)));
        }
        ECHO_REPLY if code == 0 => return Ok(Message::EchoReply(Echo::read(header.rest, body))),
        ndp::SOLICITATION | ndp::ADVERTISEMENT => return Ok(Message::Discovery),
        router::ADVERTISEMENT => return Ok(Message::Router),
        group::MLD_QUERY | group::MLD_REPORT | group::MLD_DONE | group::MLD_REPORT_2 => {
            return Ok(Message::Group);
        }
        UNREACHABLE => match code {
            CODE_PORT => Trouble::PortUnreachable,
            // Forbidden; source address not allowed; route rejected.
            1 | 5 | 6 => Trouble::Prohibited { code },
            _ => Trouble::NoRoute { code },
        },
        TOO_BIG => Trouble::TooBig { mtu: number },
        TIME_EXCEEDED => Trouble::TimeExceeded { code },
        PARAMETER_PROBLEM if code == CODE_UNKNOWN_HEADER => Trouble::ProtocolUnreachable,
        PARAMETER_PROBLEM => Trouble::ParameterProblem { code, pointer: number },
        // Solicitations of routers among them: nobody here is one.
        _ => return Err(Refusal::Unsupported),
    };
    Ok(Message::Report(Report { trouble, about: Quoted::read_ipv6(body)? }))
}

/// Whether a message that starts so is an error. What is not at hand counts as one.
#[must_use]
pub fn is_error(message: &[u8]) -> bool {
    message.first().is_none_or(|kind| *kind < FIRST_INFORMATIONAL)
}

/// Writes the answer to an echo request. Gives its length, or `None` if there is
/// no room. `pseudo` is the folded sum over the pseudo-header of the answer.
pub fn write_echo_reply(echo: &Echo<'_>, into: &mut [u8], pseudo: u16) -> Option<usize> {
    echo.write(ECHO_REPLY, into, pseudo)
}

/// Writes an echo request.
pub fn write_echo_request(echo: &Echo<'_>, into: &mut [u8], pseudo: u16) -> Option<usize> {
    echo.write(ECHO_REQUEST, into, pseudo)
}

/// Writes that nobody listens on the port that `packet` was sent to; `packet` is
/// its beginning, from its IP header on.
pub fn write_port_unreachable(packet: &[u8], into: &mut [u8], pseudo: u16) -> Option<usize> {
    icmp::write(UNREACHABLE, CODE_PORT, [0; 4], packet, into, pseudo)
}

/// Writes what is wrong with `packet`.
pub fn write_problem(
    problem: &Problem,
    packet: &[u8],
    into: &mut [u8],
    pseudo: u16,
) -> Option<usize> {
    let pointer = problem.pointer.to_be_bytes();
    icmp::write(PARAMETER_PROBLEM, problem.code as u8, pointer, packet, into, pseudo)
}

/// Writes that `packet` is longer than the `mtu` of a link: what routers do.
pub fn write_too_big(mtu: u32, packet: &[u8], into: &mut [u8], pseudo: u16) -> Option<usize> {
    icmp::write(TOO_BIG, 0, mtu.to_be_bytes(), packet, into, pseudo)
}

/// Writes that not all fragments of `packet`, which is the first of them, came in time.
pub fn write_fragments_missing(packet: &[u8], into: &mut [u8], pseudo: u16) -> Option<usize> {
    icmp::write(TIME_EXCEEDED, icmp::FRAGMENTS_MISSING, [0; 4], packet, into, pseudo)
}
