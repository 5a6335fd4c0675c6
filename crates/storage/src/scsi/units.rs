//! [`UnitSource`]: what people call a logical unit: its number, and where its bytes are.

use std::str::FromStr;

use super::Lun;
use crate::device::Source;

/// A device with the number that it is a logical unit by: `NUMBER=file:PATH` or
/// `NUMBER=mem:SIZE`.
///
/// ```
/// use landfall_storage::device::Source;
/// use landfall_storage::scsi::UnitSource;
///
/// let unit: UnitSource = "7=mem:1G".parse()?;
/// assert_eq!((unit.number, unit.source), (7, Source::Memory(1 << 30)));
/// let wrong = "disk=mem:1G".parse::<UnitSource>().unwrap_err();
/// assert_eq!(wrong, "`disk` is no number of a unit: 0 to 16383 are, as in 0=mem:1G");
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitSource {
    /// The number of the unit, below 16,384.
    pub number: u16,
    /// Where the bytes are.
    pub source: Source,
}

impl FromStr for UnitSource {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((number, source)) = text.split_once('=') else {
            return Err(match text.parse::<Source>() {
                Ok(_) => format!("`{text}` has no number in front: 0={text} would have"),
                Err(_) => format!("`{text}` is no unit: 0=file:PATH or 0=mem:SIZE would be"),
            });
        };
        let known = number.parse().ok().filter(|number| Lun::new(*number).is_some());
        let number = known.ok_or_else(|| {
            format!("`{number}` is no number of a unit: 0 to 16383 are, as in 0={source}")
        })?;
        let source = source.parse().map_err(|why| format!("unit {number}: {why}"))?;
        Ok(Self { number, source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_unit_is_said() {
        let wrong = |text: &str| text.parse::<UnitSource>().unwrap_err();
        for (text, said) in [
            ("mem:1G", "`mem:1G` has no number in front: 0=mem:1G would have"),
            ("file:a", "`file:a` has no number in front: 0=file:a would have"),
            ("disk.img", "`disk.img` is no unit: 0=file:PATH or 0=mem:SIZE would be"),
            ("", "`` is no unit: 0=file:PATH or 0=mem:SIZE would be"),
            ("=mem:1G", "`` is no number of a unit: 0 to 16383 are, as in 0=mem:1G"),
            ("-1=mem:1G", "`-1` is no number of a unit: 0 to 16383 are, as in 0=mem:1G"),
            ("16384=mem:1G", "`16384` is no number of a unit: 0 to 16383 are, as in 0=mem:1G"),
            ("1=disk.img", "unit 1: `disk.img` is no device: file:PATH or mem:SIZE would be"),
            ("1=file:", "unit 1: `file:` is no device: file:PATH or mem:SIZE would be"),
            ("2=mem:much", "unit 2: \"much\" is no number of bytes: 500K, 20M or 1G would be"),
        ] {
            assert_eq!(wrong(text), said, "{text}");
        }
        let last = "16383=file:a=b".parse::<UnitSource>().unwrap();
        assert_eq!((last.number, last.source), (16_383, Source::File("a=b".into())));
    }
}
