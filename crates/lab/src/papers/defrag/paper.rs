//! The numbers of the paper.

use serde::Serialize;

/// A line of Table 1: "Effect of interferences on a transfer with the `ttcp`
/// benchmark sending 100'000 zero-copy packets containing 4096 Byte".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Disturbed {
    pub(super) foreign: u32,
    pub(super) failed: u32,
    pub(super) megabytes_per_second: u32,
}

pub(super) const TABLE_1: [Disturbed; 3] = [
    Disturbed { foreign: 0, failed: 2, megabytes_per_second: 75 },
    Disturbed { foreign: 100, failed: 15, megabytes_per_second: 73 },
    Disturbed { foreign: 10_000, failed: 28, megabytes_per_second: 63 },
];

/// A column of Table 2: frames and packets that a station received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Station {
    pub(super) total: u32,
    pub(super) large: u32,
    pub(super) small: u32,
    pub(super) potential: u32,
    pub(super) successful: u32,
}

/// Oracle running query 7 of TPC-D: master, host 1, host 2. The master's column is
/// the sum of the two others in every line: they are what it received from each.
pub(super) const TPC_D: [Station; 3] = [
    Station { total: 129_835, large: 90_725, small: 39_110, potential: 26_505, successful: 12_745 },
    Station { total: 67_524, large: 45_877, small: 21_647, potential: 12_611, successful: 12_611 },
    Station { total: 62_311, large: 44_848, small: 17_463, potential: 13_894, successful: 13_894 },
];

/// TreadMarks running SOR: what each of the three received itself.
pub(super) const SOR: [Station; 3] = [
    Station { total: 68_182, large: 44_004, small: 24_178, potential: 14_670, successful: 14_458 },
    Station { total: 51_095, large: 30_707, small: 20_388, potential: 10_231, successful: 10_225 },
    Station { total: 50_731, large: 30_419, small: 20_312, potential: 10_135, successful: 10_133 },
];

/// A bar of Figure 4 or 5. The text gives numbers for some of them, the drawings none
/// that could be read to the last digit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Bar {
    pub(super) figure: u8,
    pub(super) name: &'static str,
    pub(super) megabytes_per_second: Option<u32>,
}

/// Figure 4: a transfer with and without the two techniques. Figure 5: when one end is
/// a standard one, or something foreign is in every packet.
pub(super) const BARS: [Bar; 7] = [
    bar(4, "standard", Some(42)),
    bar(4, "defragmentation alone, copied to the user", None),
    bar(4, "with page remapping", Some(65)),
    bar(4, "with fast buffers", Some(75)),
    bar(5, "our fragments, standard receiver", Some(42)),
    bar(5, "standard sender, our receiver", None),
    bar(5, "every packet missed, our receiver", Some(35)),
];

const fn bar(figure: u8, name: &'static str, megabytes_per_second: Option<u32>) -> Bar {
    Bar { figure, name, megabytes_per_second }
}
