//! [`Login`]: from the first message to the session.

use alloc::borrow::ToOwned;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::chap::Proof;
use super::keys::{LONGEST_DATA, Parameters, pairs, say};
use super::pdu::{Head, Pdu, opcode};
use super::{Config, ProtocolError};

/// The longest text of a login.
const LONGEST_TEXT: usize = 16 << 10;
/// The most messages of a login.
const MOST_MESSAGES: u32 = 32;
/// The longest name of an initiator.
const LONGEST_NAME: usize = 223;

const TRANSIT: u8 = 0x80;
const CONTINUE: u8 = 0x40;
const SECURITY: u8 = 0;
const OPERATIONAL: u8 = 1;
const FULL: u8 = 3;

/// Why a login is refused, as it is said on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    Initiator = 0x0200,
    Authentication = 0x0201,
    NotFound = 0x0203,
    Version = 0x0205,
    MissingParameter = 0x0207,
    NoSession = 0x020a,
}

impl Refusal {
    const fn words(self) -> &'static str {
        match self {
            Self::Initiator => "a login that makes no sense",
            Self::Authentication => "a login that does not prove what is wanted",
            Self::NotFound => "a login to a target that is not here",
            Self::Version => "a login of another version",
            Self::MissingParameter => "a login without a name",
            Self::NoSession => "a login to a session that is not here",
        }
    }
}

/// What a login leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Agreed {
    /// The name of the initiator with the number of its session.
    pub(crate) initiator: String,
    pub(crate) discovery: bool,
    pub(crate) parameters: Parameters,
    pub(crate) command: u32,
}

/// What is done after a message.
pub(crate) enum Next {
    Reply(Head, Vec<u8>),
    /// The last reply, for which a number of the session is missing.
    Open(Head, Vec<u8>, Agreed),
    /// The reply before the end.
    Refused(Head, ProtocolError),
}

#[derive(Debug, Default)]
pub(crate) struct Login {
    messages: u32,
    text: Vec<u8>,
    initiator: Option<String>,
    discovery: bool,
    parameters: Parameters,
    /// The lengths that this end takes were said.
    has_said: bool,
    stage: u8,
    proof: Proof,
}

impl Login {
    /// Takes a message.
    pub(crate) fn handle(
        &mut self,
        pdu: &Pdu<'_>,
        target: &str,
        config: &Config,
    ) -> Result<Next, ProtocolError> {
        if pdu.opcode() != opcode::LOGIN {
            return Err(ProtocolError::Malformed("something else before the login"));
        }
        self.messages += 1;
        if self.messages > MOST_MESSAGES || self.text.len() + pdu.data.len() > LONGEST_TEXT {
            return Err(ProtocolError::Malformed("a login without end"));
        }
        self.text.extend_from_slice(pdu.data);
        let command = pdu.u32(24);
        let head = Head::new(opcode::LOGIN_RESPONSE, 0)
            .put(8, &pdu.head[8..14])
            .put(16, &pdu.head[16..20])
            .u32(28, command)
            .u32(32, command);
        match self.answer(pdu, target, config) {
            Ok((flags, text)) => {
                let head = head.put(1, &[flags]);
                if flags & TRANSIT == 0 || flags & 3 != FULL {
                    return Ok(Next::Reply(head, text.into_bytes()));
                }
                let isid = &pdu.head[8..14];
                let digits = isid.iter().map(|byte| alloc::format!("{byte:02x}"));
                let name = self.initiator.clone().unwrap_or_default();
                let initiator = name + ",i,0x" + &digits.collect::<String>();
                let (discovery, parameters) = (self.discovery, self.parameters);
                let agreed = Agreed { initiator, discovery, parameters, command };
                Ok(Next::Open(head, text.into_bytes(), agreed))
            }
            Err(refusal) => {
                let head = head.put(36, &(refusal as u16).to_be_bytes());
                Ok(Next::Refused(head, ProtocolError::Login(refusal.words())))
            }
        }
    }

    /// The flags and the text of a reply.
    fn answer(
        &mut self,
        pdu: &Pdu<'_>,
        target: &str,
        config: &Config,
    ) -> Result<(u8, String), Refusal> {
        let flags = pdu.flags();
        let (stage, next) = (flags >> 2 & 3, flags & 3);
        let transits = flags & TRANSIT != 0;
        if pdu.head[3] > 0 {
            return Err(Refusal::Version);
        }
        if pdu.head[14..16] != [0, 0] {
            return Err(Refusal::NoSession);
        }
        let is_known = matches!(stage, SECURITY | OPERATIONAL) && stage >= self.stage;
        let goes_on = next > stage && next != 2;
        if !is_known || transits && (!goes_on || flags & CONTINUE != 0) {
            return Err(Refusal::Initiator);
        }
        self.stage = stage;
        if flags & CONTINUE != 0 {
            return Ok((stage << 2, String::new()));
        }
        let text = core::mem::take(&mut self.text);
        let pairs = pairs(&text).ok_or(Refusal::Initiator)?;
        let mut out = String::new();
        let is_first = self.initiator.is_none();
        if is_first {
            self.introduce(&pairs, target)?;
            if !self.discovery {
                say(&mut out, "TargetPortalGroupTag", "1");
                if let Some(alias) = &config.alias {
                    say(&mut out, "TargetAlias", alias);
                }
            }
        }
        let is_proved = match &config.chap {
            None => true,
            Some(chap) if stage == SECURITY => {
                if !self.proof.handle(chap, &pairs, &mut out) {
                    return Err(Refusal::Authentication);
                }
                self.proof == Proof::Done
            }
            Some(_) if self.proof == Proof::Done => true,
            // The stage in which it would prove itself is over.
            Some(_) => return Err(Refusal::Authentication),
        };
        for (key, value) in pairs {
            let is_answered = key == "AuthMethod" || key.starts_with("CHAP_");
            if config.chap.is_none() || !is_answered {
                self.key(key, value, &mut out)?;
            }
        }
        if stage == OPERATIONAL && !self.has_said {
            self.has_said = true;
            say(&mut out, "MaxRecvDataSegmentLength", &LONGEST_DATA.to_string());
        }
        if out.len() > LONGEST_TEXT / 2 {
            return Err(Refusal::Initiator);
        }
        if !transits || !is_proved {
            // One that would go on proves itself first, or gets nowhere.
            return Ok((stage << 2, out));
        }
        self.stage = next;
        Ok((TRANSIT | stage << 2 | next, out))
    }

    /// Who comes, and what for.
    fn introduce(&mut self, pairs: &[(&str, &str)], target: &str) -> Result<(), Refusal> {
        let find =
            |wanted: &str| pairs.iter().find(|(key, _)| *key == wanted).map(|(_, value)| *value);
        let name = find("InitiatorName").ok_or(Refusal::MissingParameter)?;
        if name.is_empty() || name.len() > LONGEST_NAME {
            return Err(Refusal::Initiator);
        }
        self.initiator = Some(name.to_owned());
        self.discovery = match find("SessionType") {
            Some("Discovery") => true,
            None | Some("Normal") => false,
            Some(_) => return Err(Refusal::Initiator),
        };
        match find("TargetName") {
            Some(wanted) if wanted == target => {}
            Some(_) => return Err(Refusal::NotFound),
            None if self.discovery => {}
            None => return Err(Refusal::MissingParameter),
        }
        Ok(())
    }

    fn key(&mut self, key: &str, value: &str, out: &mut String) -> Result<(), Refusal> {
        match key {
            "InitiatorName" | "InitiatorAlias" | "SessionType" | "TargetName" => {}
            "AuthMethod" => {
                if !value.split(',').any(|method| method == "None") {
                    return Err(Refusal::Authentication);
                }
                say(out, key, "None");
            }
            _ if value == "NotUnderstood" || value == "Irrelevant" || value == "Reject" => {}
            _ => {
                if !self.parameters.negotiate(key, value, out) {
                    return Err(Refusal::Initiator);
                }
                // A first burst is part of a burst.
                let Parameters { burst, first_burst, .. } = &mut self.parameters;
                *first_burst = (*first_burst).min(*burst);
            }
        }
        Ok(())
    }
}
