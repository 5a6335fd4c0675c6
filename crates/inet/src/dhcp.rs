//! DHCP for IPv4 (RFC 2131, 2132): what a client says, and what a server answers.

use core::net::Ipv4Addr;

use landfall_placement::Refusal;

use crate::ethernet::Mac;

/// Where clients listen.
pub const CLIENT_PORT: u16 = 68;
/// Where servers listen.
pub const SERVER_PORT: u16 = 67;
/// How long a message is at least: old relays drop shorter ones (RFC 1542, section 2.1).
pub const LEN_MIN: usize = 300;
/// The longest name of a host that is said.
pub const HOST_NAME_MAX: usize = 24;

/// What stands before the options, their mark included.
const FIXED: usize = 240;
const COOKIE: [u8; 4] = [99, 130, 83, 99];
const REQUEST: u8 = 1;
const REPLY: u8 = 2;
const BROADCAST: u8 = 0x80;

const PAD: u8 = 0;
const MASK: u8 = 1;
const ROUTER: u8 = 3;
const HOST_NAME: u8 = 12;
const MTU: u8 = 26;
const REQUESTED: u8 = 50;
const LEASE: u8 = 51;
const OVERLOAD: u8 = 52;
const KIND: u8 = 53;
const SERVER: u8 = 54;
const WANTED: u8 = 55;
const LONGEST: u8 = 57;
const RENEWAL: u8 = 58;
const REBINDING: u8 = 59;
const CLIENT: u8 = 61;
const END: u8 = 255;

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A client looks for servers.
    Discover = 1,
    /// A server offers an address.
    Offer = 2,
    /// A client wants an address.
    Request = 3,
    /// A client found that somebody else has the address.
    Decline = 4,
    /// A server gives the address.
    Ack = 5,
    /// A server refuses it.
    Nak = 6,
    /// A client needs the address no longer.
    Release = 7,
}

impl Kind {
    const fn read(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Discover,
            2 => Self::Offer,
            3 => Self::Request,
            4 => Self::Decline,
            5 => Self::Ack,
            6 => Self::Nak,
            7 => Self::Release,
            _ => return None,
        })
    }
}

/// What a client says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// What it is.
    pub kind: Kind,
    /// Which question it is.
    pub xid: u32,
    /// For how many seconds it has been asking.
    pub seconds: u16,
    /// The station.
    pub station: Mac,
    /// The address that it has, and can be answered at.
    pub has: Option<Ipv4Addr>,
    /// The address that it wants.
    pub wants: Option<Ipv4Addr>,
    /// The server that it has chosen.
    pub server: Option<Ipv4Addr>,
    /// How it calls itself: [`HOST_NAME_MAX`] bytes of it.
    pub host_name: &'a str,
}

/// What a server answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// What it is: an offer, or a yes or no.
    pub kind: Kind,
    /// To which question.
    pub xid: u32,
    /// To which station.
    pub station: Mac,
    /// The address that it gives.
    pub yours: Ipv4Addr,
    /// The server.
    pub server: Option<Ipv4Addr>,
    /// How many bits of the address all on the link share.
    pub prefix_len: Option<u8>,
    /// The first router.
    pub router: Option<Ipv4Addr>,
    /// How many bytes of IP the link carries.
    pub mtu: Option<u16>,
    /// For how many seconds the address is given; `u32::MAX` for ever.
    pub lease: Option<u32>,
    /// After how many of them it is renewed with this server.
    pub renewal: Option<u32>,
    /// After how many of them with any.
    pub rebinding: Option<u32>,
}

/// Appends options.
struct Options<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl Options<'_> {
    fn put(&mut self, kind: u8, value: &[u8]) -> Option<()> {
        let end = self.at + 2 + value.len();
        let into = self.bytes.get_mut(self.at..end)?;
        (into[0], into[1]) = (kind, value.len() as u8);
        into[2..].copy_from_slice(value);
        self.at = end;
        Some(())
    }

    fn put_address(&mut self, kind: u8, value: Option<Ipv4Addr>) -> Option<()> {
        value.map_or(Some(()), |value| self.put(kind, &value.octets()))
    }
}

impl Request<'_> {
    /// Writes the message and gives its length, or `None` if there is no room.
    pub fn write(&self, into: &mut [u8]) -> Option<usize> {
        let bytes = into.get_mut(..into.len().min(LEN_MIN + 100))?;
        let fixed = bytes.get_mut(..FIXED)?;
        fixed.fill(0);
        fixed[..4].copy_from_slice(&[REQUEST, 1, 6, 0]);
        fixed[4..8].copy_from_slice(&self.xid.to_be_bytes());
        fixed[8..10].copy_from_slice(&self.seconds.to_be_bytes());
        if let Some(has) = self.has {
            fixed[12..16].copy_from_slice(&has.octets());
        } else if self.kind != Kind::Decline {
            // Who has no address yet may hear only what goes to all.
            fixed[10] = BROADCAST;
        }
        fixed[28..34].copy_from_slice(&self.station);
        fixed[FIXED - 4..].copy_from_slice(&COOKIE);
        let mut options = Options { bytes, at: FIXED };
        options.put(KIND, &[self.kind as u8])?;
        let [a, b, c, d, e, f] = self.station;
        options.put(CLIENT, &[1, a, b, c, d, e, f])?;
        options.put_address(REQUESTED, self.wants)?;
        options.put_address(SERVER, self.server)?;
        if matches!(self.kind, Kind::Discover | Kind::Request) {
            options.put(LONGEST, &1_500u16.to_be_bytes())?;
            options.put(WANTED, &[MASK, ROUTER, MTU, LEASE, RENEWAL, REBINDING])?;
            let name = self.host_name.as_bytes();
            if !name.is_empty() {
                options.put(HOST_NAME, &name[..name.len().min(HOST_NAME_MAX)])?;
            }
        }
        let end = options.at;
        *bytes.get_mut(end)? = END;
        let len = (end + 1).max(LEN_MIN);
        bytes.get_mut(end + 1..len)?.fill(PAD);
        Some(len)
    }
}

/// What options say, as far as it was read.
#[derive(Default)]
struct OptionValues {
    kind: Option<Kind>,
    server: Option<Ipv4Addr>,
    mask: Option<u32>,
    router: Option<Ipv4Addr>,
    mtu: Option<u16>,
    lease: Option<u32>,
    renewal: Option<u32>,
    rebinding: Option<u32>,
    overload: u8,
}

impl OptionValues {
    /// Reads a field of options. One of a length that it cannot have is refused with the message.
    fn read(&mut self, mut field: &[u8]) -> Result<(), Refusal> {
        while let [kind, rest @ ..] = field {
            match *kind {
                PAD => field = rest,
                END => return Ok(()),
                kind => {
                    let (len, rest) = rest.split_first().ok_or(Refusal::Malformed)?;
                    let len = usize::from(*len);
                    let value = rest.get(..len).ok_or(Refusal::Malformed)?;
                    self.option(kind, value).ok_or(Refusal::Malformed)?;
                    field = &rest[len..];
                }
            }
        }
        Ok(())
    }

    fn option(&mut self, kind: u8, value: &[u8]) -> Option<()> {
        let word = || Some(u32::from_be_bytes(value.try_into().ok()?));
        match kind {
            KIND => {
                let [number] = *value else { return None };
                self.kind = Some(Kind::read(number)?);
            }
            SERVER => self.server = Some(Ipv4Addr::from(word()?)),
            MASK => self.mask = Some(word()?),
            ROUTER => {
                let first: [u8; 4] = value.get(..4)?.try_into().ok()?;
                if !value.len().is_multiple_of(4) {
                    return None;
                }
                self.router = Some(Ipv4Addr::from(first));
            }
            MTU => self.mtu = Some(u16::from_be_bytes(value.try_into().ok()?)),
            LEASE => self.lease = Some(word()?),
            RENEWAL => self.renewal = Some(word()?),
            REBINDING => self.rebinding = Some(word()?),
            OVERLOAD => {
                let [fields @ 1..=3] = *value else { return None };
                self.overload = fields;
            }
            _ => {}
        }
        Some(())
    }
}

impl Reply {
    /// Reads a message to a client.
    ///
    /// # Errors
    /// [`Refusal::Truncated`]; [`Refusal::Unsupported`] where it is none over Ethernet;
    /// [`Refusal::Malformed`] for options whose lengths or values cannot be.
    pub fn read(bytes: &[u8]) -> Result<Self, Refusal> {
        let (fixed, options) = bytes.split_first_chunk::<FIXED>().ok_or(Refusal::Truncated)?;
        let [operation, hardware, hardware_len, ..] = *fixed;
        if (operation, hardware, hardware_len) != (REPLY, 1, 6) || !fixed.ends_with(&COOKIE) {
            return Err(Refusal::Unsupported);
        }
        let mut said = OptionValues::default();
        said.read(options)?;
        // RFC 2132, section 9.3: what had no room lies in the fields of files and names.
        let overload = said.overload;
        if overload & 1 != 0 {
            said.read(&fixed[108..236])?;
        }
        if overload & 2 != 0 {
            said.read(&fixed[44..108])?;
        }
        let prefix_len = match said.mask {
            None => None,
            Some(mask) if mask.leading_ones() + mask.trailing_zeros() >= 32 => {
                Some(mask.leading_ones() as u8)
            }
            Some(_) => return Err(Refusal::Malformed),
        };
        let word = |at: usize| [fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]];
        let [a, b, c, d] = word(28);
        Ok(Self {
            kind: said.kind.ok_or(Refusal::Unsupported)?,
            xid: u32::from_be_bytes(word(4)),
            station: [a, b, c, d, fixed[32], fixed[33]],
            yours: Ipv4Addr::from(word(16)),
            server: said.server,
            prefix_len,
            router: said.router,
            mtu: said.mtu,
            lease: said.lease,
            renewal: said.renewal,
            rebinding: said.rebinding,
        })
    }

    /// Writes the message and gives its length, or `None` if there is no room: what a server
    /// does.
    pub fn write(&self, into: &mut [u8]) -> Option<usize> {
        let fixed = into.get_mut(..FIXED)?;
        fixed.fill(0);
        fixed[..4].copy_from_slice(&[REPLY, 1, 6, 0]);
        fixed[4..8].copy_from_slice(&self.xid.to_be_bytes());
        fixed[16..20].copy_from_slice(&self.yours.octets());
        fixed[28..34].copy_from_slice(&self.station);
        fixed[FIXED - 4..].copy_from_slice(&COOKIE);
        let mut options = Options { bytes: into, at: FIXED };
        options.put(KIND, &[self.kind as u8])?;
        options.put_address(SERVER, self.server)?;
        if let Some(bits) = self.prefix_len {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
            options.put(MASK, &mask.to_be_bytes())?;
        }
        options.put_address(ROUTER, self.router)?;
        if let Some(mtu) = self.mtu {
            options.put(MTU, &mtu.to_be_bytes())?;
        }
        for (kind, time) in
            [(LEASE, self.lease), (RENEWAL, self.renewal), (REBINDING, self.rebinding)]
        {
            if let Some(time) = time {
                options.put(kind, &time.to_be_bytes())?;
            }
        }
        let end = options.at;
        *into.get_mut(end)? = END;
        Some(end + 1)
    }
}
