//! What an interface did, for people.

use std::fmt;

use super::{Amount, BigMtuStats};

impl fmt::Display for BigMtuStats {
    /// Several lines; what did not happen is not told.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { joined, to_kernel, cut, from_kernel, .. } = self;
        writeln!(
            f,
            "in   {to_kernel} from {} frames: {} joined in place, {} by copying, {} passed as they \
             came; {} bytes copied",
            joined.kernel_frames,
            joined.joined.speculated,
            joined.joined.conventional,
            joined.joined.whole,
            joined.bytes_copied(),
        )?;
        writeln!(
            f,
            "out  {from_kernel} in {} frames; {} cut by the kernel",
            cut.frames, cut.cut_by_kernel
        )?;
        if self.passed_up.packets + self.passed_down.packets > 0 {
            let (up, down) = (self.passed_up, self.passed_down);
            writeln!(f, "passed by the kernel: in {up}; out {down}")?;
        }
        let asked = self.admission;
        if asked.fast + asked.slow + asked.plain > 0 {
            writeln!(
                f,
                "long packets: {} sent fast, {} slowly, {} as ever; {} had to wait",
                asked.fast, asked.slow, asked.plain, asked.held
            )?;
        }
        self.troubles()
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .try_for_each(|(count, what)| writeln!(f, "     {count} {what}"))
    }
}

impl BigMtuStats {
    fn troubles(&self) -> [(u64, &'static str); 11] {
        let Self { joined, cut, .. } = self;
        [
            (joined.kernel_drops, "frames dropped by the kernel: no room in the socket buffer"),
            (joined.gathered.expired, "packets did not become whole in time"),
            (joined.gathered.evicted, "packets given up for want of memory"),
            (joined.gathered.refused, "packets whose pieces contradicted each other"),
            (joined.lost, "packets lost here"),
            (self.not_taken, "packets that the kernel did not take"),
            (self.not_cut, "packets that cannot be cut"),
            (cut.failed, "frames that could not be sent"),
            (self.stuck, "times that the lower link took nothing"),
            (self.sums_left, "packets of a local peer whose checksums were left unfinished"),
            (self.admission.given_up, "packets given up since too many waited for a station"),
        ]
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} packets, {} bytes", self.packets, self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_did_not_happen_is_not_told() {
        let nothing = BigMtuStats::default().to_string();
        assert_eq!(nothing.lines().count(), 2, "{nothing}");
        let some = BigMtuStats { not_cut: 3, ..BigMtuStats::default() }.to_string();
        assert!(some.ends_with("     3 packets that cannot be cut\n"), "{some}");
    }
}
