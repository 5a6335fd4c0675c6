//! [`Source`]: what people call a device: a file, or memory of some size.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use super::{BlockDevice, FileAccess, FileDevice, MemoryDevice};

/// A number of bytes as people write it: `4096`, `500K`, `20M`, `1G`.
///
/// # Errors
/// What would be one.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let (number, unit) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1 << 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 1 << 20),
        Some(b'g' | b'G') => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    bytes
        .filter(|bytes| *bytes > 0)
        .ok_or_else(|| format!("{text:?} is no number of bytes: 500K, 20M or 1G would be"))
}

/// Where the bytes of a device are: `file:PATH` or `mem:SIZE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// In a file, or another block device.
    File(PathBuf),
    /// In memory, this many.
    Memory(u64),
}

/// A device, and how it is read.
pub struct Opened {
    /// The device.
    pub device: Arc<dyn BlockDevice>,
    /// `memory`, or the [name](FileAccess::name) of a way to files.
    pub access: &'static str,
    /// Why it is not the way that was wanted.
    pub refusal: Option<io::Error>,
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opened").field("access", &self.access).finish_non_exhaustive()
    }
}

impl Source {
    /// Opens the device; a file in this way, if the kernel allows it.
    ///
    /// # Errors
    /// The file cannot be opened; it is named.
    pub fn open(&self, read_only: bool, access: FileAccess) -> io::Result<Opened> {
        match self {
            Self::File(path) => {
                let named = |error: io::Error| {
                    let what = format!("cannot open {}: {error}", path.display());
                    io::Error::new(error.kind(), what)
                };
                let mut device = FileDevice::open(path, read_only).map_err(named)?;
                let refusal = device.set_access(access).err();
                let access = device.access().name();
                Ok(Opened { device: Arc::new(device), access, refusal })
            }
            Self::Memory(size) => {
                let device = Arc::new(MemoryDevice::new(*size));
                Ok(Opened { device, access: "memory", refusal: None })
            }
        }
    }
}

impl FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("file", path)) if !path.is_empty() => Ok(Self::File(path.into())),
            Some(("mem", size)) => Ok(Self::Memory(parse_size(size)?)),
            _ => Err(format!("`{text}` is no device: file:PATH or mem:SIZE would be")),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Memory(_) => f.write_str("memory"),
        }
    }
}

/// A device with the name that it is offered under: `NAME=file:PATH` or `NAME=mem:SIZE`.
///
/// ```
/// use landfall_storage::device::{NamedSource, Source};
///
/// let named: NamedSource = "scratch=mem:1G".parse()?;
/// assert_eq!(named.name, "scratch");
/// assert_eq!(named.source, Source::Memory(1 << 30));
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedSource {
    /// The name, which may be empty.
    pub name: String,
    /// Where the bytes are.
    pub source: Source,
}

impl FromStr for NamedSource {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no device: NAME=file:PATH or NAME=mem:SIZE would be");
        let (name, source) = text.split_once('=').ok_or_else(wrong)?;
        Ok(Self { name: name.into(), source: source.parse()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_a_name_and_a_source() {
        let parse = str::parse::<NamedSource>;
        let file = Source::File("a=b:c.img".into());
        assert_eq!(parse("x=file:a=b:c.img"), Ok(NamedSource { name: "x".into(), source: file }));
        let memory = NamedSource { name: String::new(), source: Source::Memory(1 << 30) };
        assert_eq!(parse("=mem:1G"), Ok(memory));
        for wrong in ["x", "x=", "x=file:", "x=disk:1", "x=mem:much"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
