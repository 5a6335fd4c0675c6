//! Numbers of the protocol, and how they lie in its messages: big-endian, without padding.

/// What a server says first (`NBDMAGIC`).
pub(crate) const INIT: u64 = 0x4e42_444d_4147_4943;
/// What follows, and what begins each option (`IHAVEOPT`).
pub(crate) const OPTION: u64 = 0x4948_4156_454f_5054;
/// What begins each reply to an option.
pub(crate) const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
/// What begins a request of 28 bytes.
pub(crate) const REQUEST: u32 = 0x2560_9513;
/// What begins a request of 32 bytes, where extended headers were negotiated.
pub(crate) const EXTENDED_REQUEST: u32 = 0x21e4_1c71;
/// What begins a reply without chunks.
pub(crate) const SIMPLE_REPLY: u32 = 0x6744_6698;
/// What begins a chunk of a reply.
pub(crate) const CHUNK: u32 = 0x668e_33ef;
/// What begins a chunk where extended headers were negotiated.
pub(crate) const EXTENDED_CHUNK: u32 = 0x6e8a_278c;

/// The bytes before an option's data.
pub(crate) const OPTION_HEAD: usize = 16;
/// The bytes before the data of a reply to an option.
pub(crate) const OPTION_REPLY_HEAD: usize = 20;
/// The bytes of zeroes that a client may ask to be spared.
pub(crate) const ZEROES: usize = 124;

/// The longest name of an export, and the longest query, in bytes.
pub const LONGEST_STRING: usize = 4096;

/// Flags of the handshake: what the server offers.
pub(crate) mod handshake {
    pub(crate) const FIXED_NEWSTYLE: u16 = 1;
    pub(crate) const NO_ZEROES: u16 = 1 << 1;
}

/// Options.
pub(crate) mod option {
    pub(crate) const EXPORT_NAME: u32 = 1;
    pub(crate) const ABORT: u32 = 2;
    pub(crate) const LIST: u32 = 3;
    pub(crate) const STARTTLS: u32 = 5;
    pub(crate) const INFO: u32 = 6;
    pub(crate) const GO: u32 = 7;
    pub(crate) const STRUCTURED_REPLY: u32 = 8;
    pub(crate) const LIST_META_CONTEXT: u32 = 9;
    pub(crate) const SET_META_CONTEXT: u32 = 10;
    pub(crate) const EXTENDED_HEADERS: u32 = 11;
}

/// Replies to options.
pub(crate) mod reply {
    pub(crate) const ACK: u32 = 1;
    pub(crate) const SERVER: u32 = 2;
    pub(crate) const INFO: u32 = 3;
    pub(crate) const META_CONTEXT: u32 = 4;
    /// Set in every error.
    pub(crate) const ERROR: u32 = 1 << 31;
    pub(crate) const UNSUPPORTED: u32 = ERROR + 1;
    pub(crate) const POLICY: u32 = ERROR + 2;
    pub(crate) const INVALID: u32 = ERROR + 3;
    pub(crate) const TLS_REQUIRED: u32 = ERROR + 5;
    pub(crate) const UNKNOWN: u32 = ERROR + 6;
    pub(crate) const SHUTDOWN: u32 = ERROR + 7;
    pub(crate) const BLOCK_SIZE_REQUIRED: u32 = ERROR + 8;
    pub(crate) const TOO_BIG: u32 = ERROR + 9;
    pub(crate) const EXTENDED_REQUIRED: u32 = ERROR + 10;
}

/// What `NBD_OPT_INFO` and `NBD_OPT_GO` ask for and get.
pub(crate) mod info {
    pub(crate) const EXPORT: u16 = 0;
    pub(crate) const NAME: u16 = 1;
    pub(crate) const DESCRIPTION: u16 = 2;
    pub(crate) const BLOCK_SIZE: u16 = 3;
}

/// Commands.
pub(crate) mod command {
    pub(crate) const READ: u16 = 0;
    pub(crate) const WRITE: u16 = 1;
    pub(crate) const DISCONNECT: u16 = 2;
    pub(crate) const FLUSH: u16 = 3;
    pub(crate) const TRIM: u16 = 4;
    pub(crate) const CACHE: u16 = 5;
    pub(crate) const WRITE_ZEROES: u16 = 6;
    pub(crate) const BLOCK_STATUS: u16 = 7;
    pub(crate) const RESIZE: u16 = 8;

    pub(crate) const FUA: u16 = 1;
    pub(crate) const NO_HOLE: u16 = 1 << 1;
    pub(crate) const DONT_FRAGMENT: u16 = 1 << 2;
    pub(crate) const ONE_EXTENT: u16 = 1 << 3;
    pub(crate) const FAST_ZERO: u16 = 1 << 4;
    pub(crate) const PAYLOAD: u16 = 1 << 5;
}

/// Chunks of replies.
pub(crate) mod chunk {
    pub(crate) const DONE: u16 = 1;

    pub(crate) const NONE: u16 = 0;
    pub(crate) const DATA: u16 = 1;
    pub(crate) const HOLE: u16 = 2;
    pub(crate) const STATUS: u16 = 5;
    pub(crate) const STATUS_EXTENDED: u16 = 6;
    /// Set in every error.
    pub(crate) const IS_ERROR: u16 = 1 << 15;
    pub(crate) const ERROR: u16 = IS_ERROR + 1;
    pub(crate) const ERROR_AT: u16 = IS_ERROR + 2;
}

/// Reads numbers off the front of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(head)
    }

    /// A string behind its length.
    pub(crate) fn string(&mut self) -> Option<&'a str> {
        let len = self.u32()? as usize;
        text(self.bytes(len)?)
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A string of the protocol: UTF-8, no NUL, not too long.
pub(crate) fn text(bytes: &[u8]) -> Option<&str> {
    let text = core::str::from_utf8(bytes).ok()?;
    (bytes.len() <= LONGEST_STRING && !bytes.contains(&0)).then_some(text)
}
