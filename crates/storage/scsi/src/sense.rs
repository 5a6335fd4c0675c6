//! [`Response`]: how a command ended, and [`Sense`]: why it failed.

use alloc::vec::Vec;

use crate::wire::put;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It was carried out.
    Good,
    /// It was not, and sense data say why.
    CheckCondition,
    /// It cannot be taken now.
    Busy,
    /// Another initiator has reserved the logical unit.
    ReservationConflict,
    /// Too many commands are under way.
    TaskSetFull,
    /// Another initiator had it aborted.
    TaskAborted,
}

impl Status {
    /// The byte on the wire.
    #[must_use]
    pub const fn byte(self) -> u8 {
        match self {
            Self::Good => 0x00,
            Self::CheckCondition => 0x02,
            Self::Busy => 0x08,
            Self::ReservationConflict => 0x18,
            Self::TaskSetFull => 0x28,
            Self::TaskAborted => 0x40,
        }
    }

    /// What a byte on the wire means, if anything here.
    #[must_use]
    pub const fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            0x00 => Self::Good,
            0x02 => Self::CheckCondition,
            0x08 => Self::Busy,
            0x18 => Self::ReservationConflict,
            0x28 => Self::TaskSetFull,
            0x40 => Self::TaskAborted,
            _ => return None,
        })
    }
}

/// What kind of failure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Key {
    /// Nothing is wrong.
    NoSense = 0,
    /// The logical unit is not ready.
    NotReady = 2,
    /// The medium failed.
    MediumError = 3,
    /// The device failed.
    HardwareError = 4,
    /// The command makes no sense.
    IllegalRequest = 5,
    /// Something has changed that the initiator has to know of.
    UnitAttention = 6,
    /// Nobody may write.
    DataProtect = 7,
    /// The command was aborted.
    AbortedCommand = 11,
    /// Bytes differ.
    Miscompare = 14,
}

/// The additional sense code and its qualifier, in one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code(pub u16);

impl Code {
    /// Nothing to add.
    pub const NONE: Self = Self(0);
    /// WRITE ERROR.
    pub const WRITE_ERROR: Self = Self(0x0c00);
    /// UNRECOVERED READ ERROR.
    pub const READ_ERROR: Self = Self(0x1100);
    /// PARAMETER LIST LENGTH ERROR.
    pub const PARAMETER_LIST_LENGTH: Self = Self(0x1a00);
    /// MISCOMPARE DURING VERIFY OPERATION.
    pub const MISCOMPARE: Self = Self(0x1d00);
    /// INVALID COMMAND OPERATION CODE.
    pub const INVALID_OPCODE: Self = Self(0x2000);
    /// LOGICAL BLOCK ADDRESS OUT OF RANGE.
    pub const LBA_OUT_OF_RANGE: Self = Self(0x2100);
    /// INVALID FIELD IN CDB.
    pub const INVALID_FIELD_IN_CDB: Self = Self(0x2400);
    /// LOGICAL UNIT NOT SUPPORTED.
    pub const UNIT_NOT_SUPPORTED: Self = Self(0x2500);
    /// INVALID FIELD IN PARAMETER LIST.
    pub const INVALID_FIELD_IN_PARAMETERS: Self = Self(0x2600);
    /// INVALID RELEASE OF PERSISTENT RESERVATION.
    pub const INVALID_RELEASE: Self = Self(0x2604);
    /// WRITE PROTECTED.
    pub const WRITE_PROTECTED: Self = Self(0x2700);
    /// SPACE ALLOCATION FAILED WRITE PROTECT.
    pub const NO_SPACE: Self = Self(0x2707);
    /// POWER ON, RESET, OR BUS DEVICE RESET OCCURRED.
    pub const POWER_ON_OR_RESET: Self = Self(0x2900);
    /// BUS DEVICE RESET FUNCTION OCCURRED.
    pub const UNIT_RESET: Self = Self(0x2903);
    /// MODE PARAMETERS CHANGED.
    pub const MODE_CHANGED: Self = Self(0x2a01);
    /// RESERVATIONS PREEMPTED.
    pub const RESERVATIONS_PREEMPTED: Self = Self(0x2a03);
    /// RESERVATIONS RELEASED.
    pub const RESERVATIONS_RELEASED: Self = Self(0x2a04);
    /// REGISTRATIONS PREEMPTED.
    pub const REGISTRATIONS_PREEMPTED: Self = Self(0x2a05);
    /// CAPACITY DATA HAS CHANGED.
    pub const CAPACITY_CHANGED: Self = Self(0x2a09);
    /// COMMANDS CLEARED BY ANOTHER INITIATOR.
    pub const COMMANDS_CLEARED: Self = Self(0x2f00);
    /// SAVING PARAMETERS NOT SUPPORTED.
    pub const SAVING_NOT_SUPPORTED: Self = Self(0x3900);
    /// INTERNAL TARGET FAILURE.
    pub const INTERNAL_FAILURE: Self = Self(0x4400);
    /// DATA PHASE ERROR.
    pub const DATA_PHASE_ERROR: Self = Self(0x4b00);
    /// INSUFFICIENT REGISTRATION RESOURCES.
    pub const NO_REGISTRATION_ROOM: Self = Self(0x5504);
}

/// The field that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// It is in the command, not in the parameters.
    pub in_command: bool,
    /// The byte.
    pub byte: u16,
    /// The most significant bit of the field.
    pub bit: Option<u8>,
}

/// Why a command failed.
///
/// ```
/// use landfall_scsi::{Code, Key, Sense};
///
/// let sense = Sense::new(Key::IllegalRequest, Code::LBA_OUT_OF_RANGE);
/// assert_eq!(Sense::decode(&sense.encode(false)), Some(sense));
/// assert_eq!(Sense::decode(&sense.encode(true)), Some(sense));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key:?}, code {:#06x}", code.0)]
pub struct Sense {
    /// What kind of failure it is.
    pub key: Key,
    /// Which one.
    pub code: Code,
    /// Where: a logical block, or an offset.
    pub information: Option<u64>,
    /// Which field.
    pub field: Option<Field>,
}

impl Sense {
    /// A failure without details.
    #[must_use]
    pub const fn new(key: Key, code: Code) -> Self {
        Self { key, code, information: None, field: None }
    }

    /// A field of the command is wrong.
    #[must_use]
    pub const fn invalid_field(byte: u16, bit: u8) -> Self {
        let field = Field { in_command: true, byte, bit: Some(bit) };
        let sense = Self::new(Key::IllegalRequest, Code::INVALID_FIELD_IN_CDB);
        Self { field: Some(field), ..sense }
    }

    /// A field of the parameters is wrong.
    #[must_use]
    pub const fn invalid_parameter(byte: u16) -> Self {
        let field = Field { in_command: false, byte, bit: None };
        let sense = Self::new(Key::IllegalRequest, Code::INVALID_FIELD_IN_PARAMETERS);
        Self { field: Some(field), ..sense }
    }

    fn field_bytes(field: Field) -> [u8; 3] {
        let [high, low] = field.byte.to_be_bytes();
        let bit = field.bit.map_or(0, |bit| 0x08 | bit & 7);
        [0x80 | if field.in_command { 0x40 } else { 0 } | bit, high, low]
    }

    /// The sense data on the wire, in the fixed format or in that of descriptors.
    #[must_use]
    pub fn encode(&self, descriptors: bool) -> Vec<u8> {
        let code = self.code.0.to_be_bytes();
        if !descriptors {
            let mut bytes = alloc::vec![0; 18];
            put(&mut bytes, 0, &[0x70, 0, self.key as u8]);
            if let Some(at) = self.information.and_then(|at| u32::try_from(at).ok()) {
                bytes[0] |= 0x80;
                put(&mut bytes, 3, &at.to_be_bytes());
            }
            bytes[7] = 10;
            put(&mut bytes, 12, &code);
            if let Some(field) = self.field {
                put(&mut bytes, 15, &Self::field_bytes(field));
            }
            return bytes;
        }
        let mut bytes = alloc::vec![0x72, self.key as u8, code[0], code[1], 0, 0, 0, 0];
        if let Some(at) = self.information {
            bytes.extend_from_slice(&[0, 10, 0x80, 0]);
            bytes.extend_from_slice(&at.to_be_bytes());
        }
        if let Some(field) = self.field {
            bytes.extend_from_slice(&[2, 6, 0, 0]);
            bytes.extend_from_slice(&Self::field_bytes(field));
            bytes.push(0);
        }
        bytes[7] = (bytes.len() - 8) as u8;
        bytes
    }

    /// What sense data of a target mean; None where they are none.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let kind = *bytes.first()? & 0x7f;
        let (key, code) = match kind {
            0x70 if bytes.len() >= 14 => (bytes[2] & 0xf, [bytes[12], bytes[13]]),
            0x72 if bytes.len() >= 8 => (bytes[1] & 0xf, [bytes[2], bytes[3]]),
            _ => return None,
        };
        let keys = [
            Key::NoSense,
            Key::NotReady,
            Key::MediumError,
            Key::HardwareError,
            Key::IllegalRequest,
            Key::UnitAttention,
            Key::DataProtect,
            Key::AbortedCommand,
            Key::Miscompare,
        ];
        let key = keys.into_iter().find(|known| *known as u8 == key)?;
        let mut sense = Self::new(key, Code(u16::from_be_bytes(code)));
        if kind == 0x70 {
            if bytes[0] & 0x80 != 0 {
                sense.information = Some(crate::wire::u32_at(bytes, 3).into());
            }
            sense.field = bytes.get(15..18).and_then(Self::decode_field);
        } else {
            sense.decode_descriptors(&bytes[8..]);
        }
        Some(sense)
    }

    fn decode_descriptors(&mut self, mut rest: &[u8]) {
        while let [kind, len, ..] = *rest {
            let body = rest.get(2..2 + usize::from(len)).unwrap_or_default();
            match (kind, body.len()) {
                (0, 10) => self.information = Some(crate::wire::u64_at(body, 2)),
                (2, 6) => self.field = body.get(2..5).and_then(Self::decode_field),
                _ => {}
            }
            rest = rest.get(2 + usize::from(len)..).unwrap_or_default();
        }
    }

    fn decode_field(bytes: &[u8]) -> Option<Field> {
        let &[flags, high, low] = bytes else { return None };
        let bit = (flags & 0x08 != 0).then_some(flags & 7);
        let field =
            Field { in_command: flags & 0x40 != 0, byte: u16::from_be_bytes([high, low]), bit };
        (flags & 0x80 != 0).then_some(field)
    }
}

/// How a command ended, with what it gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// How.
    pub status: Status,
    /// Why it failed.
    pub sense: Option<Sense>,
    /// Data for the initiator.
    pub data: Vec<u8>,
}

impl Response {
    /// It was carried out, and has no data.
    #[must_use]
    pub const fn good() -> Self {
        Self { status: Status::Good, sense: None, data: Vec::new() }
    }

    /// It was carried out, and gives these data.
    #[must_use]
    pub const fn data(data: Vec<u8>) -> Self {
        Self { status: Status::Good, sense: None, data }
    }

    /// It ended so, without sense data.
    #[must_use]
    pub const fn status(status: Status) -> Self {
        Self { status, sense: None, data: Vec::new() }
    }

    /// It failed.
    #[must_use]
    pub const fn failed(sense: Sense) -> Self {
        Self { status: Status::CheckCondition, sense: Some(sense), data: Vec::new() }
    }
}

impl From<Sense> for Response {
    fn from(sense: Sense) -> Self {
        Self::failed(sense)
    }
}
